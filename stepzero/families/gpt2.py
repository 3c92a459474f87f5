# GPT-2: norms before plain branches, matrices stored (in, out), one for queries, keys and values.
from stepzero.arch import *

arch("gpt2", width=768, layers=12, heads=12, ffn=3072, vocab=50257, positions=1024, norm_eps=1e-5, activation="gelu_tanh",
     attention_scale=0.125, attention_scale_by_layer=False, tied=True, init_std=0.02)

x = tokens(vocab, width, name="transformer.wte")
x = add_positions(x, positions, name="transformer.wpe")
stream(x)
small = normal(init_std / sqrt(2.0 * layers))
for l in range(layers):
    p = f"transformer.h.{l}."
    h = layer_norm(x, name=p + "ln_1", eps=norm_eps)
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "attn.c_attn", bias=True, stored="in_out")
    m = attention(q, k, v, heads, scale=attention_scale / (l + 1) if attention_scale_by_layer else attention_scale)
    x = x + linear(m, width, name=p + "attn.c_proj", bias=True, role="attention_out", stored="in_out", init=small)
    h = layer_norm(x, name=p + "ln_2", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "mlp.c_fc", bias=True, role="ffn_in", stored="in_out"), activation)
    x = x + linear(h, width, name=p + "mlp.c_proj", bias=True, role="ffn_out", stored="in_out", init=small)
    stream(x)
x = layer_norm(x, name="transformer.ln_f", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.wte.weight" if tied else ""))

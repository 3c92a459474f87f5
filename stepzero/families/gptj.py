# GPT-J: both branches read one norm, neighbouring channels turn.
from stepzero.arch import *

arch("gptj", width=4096, layers=28, heads=16, head_dim=256, ffn=16384, vocab=50400, positions=2048, norm_eps=1e-5, activation="gelu_tanh",
     turned=64, tied=False, init_std=0.02)

x = tokens(vocab, width, name="transformer.wte")
stream(x)
for l in range(layers):
    p = f"transformer.h.{l}."
    h = layer_norm(x, name=p + "ln_1", eps=norm_eps)
    q = linear(h, width, name=p + "attn.q_proj", role="query")
    k = linear(h, width, name=p + "attn.k_proj", role="key")
    v = linear(h, width, name=p + "attn.v_proj", role="value")
    q = rotary(q, heads, turned=turned, interleaved=True)
    k = rotary(k, heads, turned=turned, interleaved=True)
    a = linear(attention(q, k, v, heads), width, name=p + "attn.out_proj", role="attention_out")
    f = function(linear(h, ffn, name=p + "mlp.fc_in", bias=True, role="ffn_in"), activation)
    f = linear(f, width, name=p + "mlp.fc_out", bias=True, role="ffn_out")
    x = x + a + f
    stream(x)
x = layer_norm(x, name="transformer.ln_f", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.wte.weight" if tied else "", bias="lm_head.bias"))

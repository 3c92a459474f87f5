# GPT-2 by hand: what the preset gpt2 builds from its config.json, node by node.
from stepzero.arch import *

arch("gpt2-by-hand", width=768, layers=12, heads=12, vocab=50257, positions=1024, init_std=0.02)

x = tokens(vocab, width, name="transformer.wte")
x = add_positions(x, positions, name="transformer.wpe")
stream(x)
for l in range(layers):
    p = f"transformer.h.{l}."
    small = normal(init_std / sqrt(2 * layers))
    h = layer_norm(x, name=p + "ln_1")
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "attn.c_attn", bias=True, stored="in_out")
    m = attention(q, k, v, heads=heads)
    x = x + linear(m, width, name=p + "attn.c_proj", bias=True, role="attention_out", stored="in_out", init=small)
    h = linear(layer_norm(x, name=p + "ln_2"), 4 * width, name=p + "mlp.c_fc", bias=True, role="ffn_in", stored="in_out")
    x = x + linear(gelu_tanh(h), width, name=p + "mlp.c_proj", bias=True, role="ffn_out", stored="in_out", init=small)
    stream(x)
loss(head(layer_norm(x, name="transformer.ln_f"), vocab, tied="transformer.wte.weight"))

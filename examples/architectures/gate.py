# A gate of one's own: what attention gathers is let through by a sigmoid of what the block reads, channel by channel.
from stepzero.arch import *

arch("gated-attention", width=512, layers=8, heads=8, kv_heads=4, ffn=1408, vocab=32000, positions=2048, init_std=0.02)

x = tokens(vocab, width, name="embed")
stream(x)
for l in range(layers):
    p = f"layers.{l}."
    h = rms_norm(x, name=p + "norm")
    q = rotary(linear(h, width, name=p + "query", role="query"), heads)
    k = rotary(linear(h, width * kv_heads // heads, name=p + "key", role="key"), kv_heads)
    v = linear(h, width * kv_heads // heads, name=p + "value", role="value")
    m = attention(q, k, v, heads, kv_heads)
    g = sigmoid(linear(h, width, name=p + "gate", label="gate"))
    x = x + linear(m * g, width, name=p + "out", role="attention_out")
    x = x + swiglu(rms_norm(x, name=p + "mlp_norm"), ffn, gate=p + "mlp_gate", up=p + "mlp_up", down=p + "mlp_down")
    stream(x)
loss(head(rms_norm(x, name="norm"), vocab, name="head"))

# Differential attention: two maps of scores over the same values, the second taken away from the first by a learned share.
from stepzero.arch import *

arch("differential", width=512, layers=8, heads=4, ffn=1408, vocab=32000, positions=2048, share=0.5, init_std=0.02)

x = tokens(vocab, width, name="embed")
stream(x)
for l in range(layers):
    p = f"layers.{l}."
    h = rms_norm(x, name=p + "norm1")
    v = linear(h, width, name=p + "v", role="value")
    maps = []
    for i in range(2):
        q = linear(h, width // 2, name=f"{p}q{i}", role="query")
        k = linear(h, width // 2, name=f"{p}k{i}", role="key")
        maps.append(attention(rotary(q, heads), rotary(k, heads), v, heads))
    m = maps[0] + scalar(-share, name=p + "share") * maps[1]
    m = rms_norm(m, name=p + "head_norm", groups=heads)  # each head by itself
    x = x + linear(m, width, name=p + "out", role="attention_out")
    x = x + swiglu(rms_norm(x, name=p + "norm2"), ffn, gate=p + "gate", up=p + "up", down=p + "down")
    stream(x)
loss(head(rms_norm(x, name="norm"), vocab, name="head"))

# Hyper-connections: n streams side by side. Each branch reads a learned mixture of them and writes to all, and they are mixed again.
# The report's stream is the first of them.
from stepzero.arch import *

arch("hyper", width=512, layers=8, heads=8, vocab=32000, positions=2048, n=4, init_std=0.02)


def hyper(s, number, f, p):
    a = [scalar(1.0 if i == number % n else 0.0, name=f"{p}alpha.{i}") for i in range(n)]
    y = f(rms_norm(sum(a[i] * s[i] for i in range(n)), name=p + "norm"))
    kept = []
    for j in range(n):
        mix = [scalar(1.0 if i == j else 0.0, name=f"{p}mix.{i}.{j}") * s[i] for i in range(n)]
        kept.append(sum(mix) + scalar(1.0, name=f"{p}beta.{j}") * y)
    return kept


x = tokens(vocab, width, name="embed")
s = [x] * n
stream(x)
for l in range(layers):
    p = f"layers.{l}."

    def attend(h):
        q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "qkv")
        m = attention(rotary(q, heads), rotary(k, heads), v, heads)
        return linear(m, width, name=p + "out", role="attention_out")

    s = hyper(s, 2 * l, attend, p + "attn.")
    s = hyper(s, 2 * l + 1, lambda h: swiglu(h, 1408, gate=p + "gate", up=p + "up", down=p + "down"), p + "mlp.")
    stream(s[0])
loss(head(rms_norm(sum(s), name="norm"), vocab, name="head"))

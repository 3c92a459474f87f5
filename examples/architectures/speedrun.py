# Value residual and U-net skips: every value is mixed with the first layer's, and the second half of the layers adds what the first half
# left, each by a learned number; before every block some of the embedding comes back. Branches end in matrices that start at zero.
from stepzero.arch import *

arch("speedrun", width=768, layers=12, heads=6, vocab=50304, positions=1024, init_std=0.02)

x = rms_norm(tokens(vocab, width, name="embed", init=normal(1.0)), gain=False)
stream(x)
x0, skips, first = x, [], None
for l in range(layers):
    p = f"blocks.{l}."
    if l >= layers // 2:
        x = x + scalar(1.0, name=f"skip_weights.{l - layers // 2}") * skips.pop()
    x = scalar(1.0, name=p + "lambdas.0") * x + scalar(0.1, name=p + "lambdas.1") * x0
    h = rms_norm(x, gain=False)
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "attn.qkv")
    if l == 0:
        first = v
    else:
        v = scalar(0.5, name=p + "attn.lambdas.0") * v + scalar(0.5, name=p + "attn.lambdas.1") * first
    q = rotary(rms_norm(q, groups=heads, gain=False), heads)
    k = rotary(rms_norm(k, groups=heads, gain=False), heads)
    x = x + linear(attention(q, k, v, heads, scale=0.12), width, name=p + "attn.proj", role="attention_out", init=zeros)
    h = relu2(linear(rms_norm(x, gain=False), 4 * width, name=p + "mlp.fc", role="ffn_in"))
    x = x + linear(h, width, name=p + "mlp.proj", role="ffn_out", init=zeros)
    if l < layers // 2:
        skips.append(x)
    stream(x)
loss(softcap(head(rms_norm(x, gain=False), vocab, name="lm_head"), 15))

# A plain network of tanh, as in Schoenholz et al. 2016: no residual stream, no norm. Its signal has a line between order and chaos.
#
#     stepzero sweep examples/architectures/tanh.py --over std.ffn_in=0.8..2:x13 --show backward --show angle
arch("tanh", layers=100, width=300, vocab=500, positions=64)

x = tokens(vocab, width, name="embed", init=normal(0.5))
stream(x)
for l in range(layers):
    x = tanh(linear(x, width, name=f"layers.{l}", role="ffn_in", bias=True, init=normal(1 / width**0.5), bias_init=normal(0.05**0.5)))
    stream(x)
loss(head(x, vocab, name="head"))

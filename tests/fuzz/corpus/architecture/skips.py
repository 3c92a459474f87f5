arch("s", width=8, layers=1, heads=2, vocab=11, positions=8)
x = tokens(vocab, width, name="e")
stream(x)
s = [x]
x = x + scalar(0.5, name="a") * linear(x, width, name="f", init=zeros)
x = 0.5 * x + scalar(0.1, name="b") * s.pop()
x = dropout(x - relu2(x), 0.1)
stream(x)
loss(head(rms_norm(x, name="n"), vocab, name="h"))

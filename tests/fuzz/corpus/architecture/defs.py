arch("s", width=8, layers=1, heads=2, vocab=11, positions=8)
x = tokens(vocab, width, name="e")
stream(x)
def block(x, n, f=lambda y: gelu(y)):
    return x + linear(f(linear(x, 2 * width, name=n + "i")), width, name=n + "o")
for l in range(2):
    x = block(x, f"{l}")
    stream(x)
loss(head(rms_norm(x, name="n"), vocab, name="h"))

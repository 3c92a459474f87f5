arch("t", width=8)
m = None
for side in ["encoder", "decoder"]:
    stack(side)
    x = tokens(11, width, name="e", encoder=side == "encoder")
    stream(x)
    if m is not None:
        branch("cross")
        q, k, v = linear(x, 8, name="q"), linear(m, 8, name="k"), linear(m, 8, name="v")
        x = add(x, linear(attention(q, k, v, 2, cross=True), 8, name="o"), label="crossed")
        stream(x)
    m = rms_norm(x, name=side)
loss(head(m, 11, tied="e.weight", scale=0.3))

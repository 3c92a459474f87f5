arch("s", width=8, layers=1, heads=2, vocab=11, positions=8)
x = tokens(vocab, width, name="e")
stream(x)
for l in range(layers):
    p = f"l.{l}."
    h = layer_norm(x, name=p + "a")
    q, k, v = fused(h, [8, 8, 8], ["query", "key", "value"], name=p + "qkv", bias=True, stored="in_out")
    x = x + linear(attention(q, k, v, heads), width, name=p + "o", role="attention_out")
    x = x + swiglu(rms_norm(x, name=p + "b"), 12, gate=p + "g", up=p + "u", down=p + "d")
    stream(x)
loss(head(rms_norm(x, name="n"), vocab, name="h"))

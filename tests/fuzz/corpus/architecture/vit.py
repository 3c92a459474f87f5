arch("v")
x = add_positions(patches(4, 2, 8, name="p", class_token="c"), 5, name="e", suffix="")
stream(x)
loss(head(layer_norm(x, name="n"), 3, name="h", bias="hb"))

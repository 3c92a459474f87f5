x = 1
def f():
    x = 2
    return x
f()
str(x)

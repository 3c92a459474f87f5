def f():
    pass
str(f())

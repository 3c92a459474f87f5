def f(n):
    if n < 2:
        return 1
    return n * f(n - 1)
str(f(10))

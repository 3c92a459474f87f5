def outer(k):
    def inner(x):
        return x + k
    return inner
str(outer(2)(3))

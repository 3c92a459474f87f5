fs = [lambda: i for i in range(2)]
str([f() for f in fs])

a, b = 1, [2, 3]
b[0] += a
b.append(4)
c = b.pop(1)
str([a, b, c])

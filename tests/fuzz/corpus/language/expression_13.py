x = (range(5, 0, -2), range(3, 3), list([1]))

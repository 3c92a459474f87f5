x = (1 if 2 > 1 else 3, [x * x for x in range(5) if x % 2 == 1])

x = ((lambda a, b=2: a * b)(3), (1, 2), ())

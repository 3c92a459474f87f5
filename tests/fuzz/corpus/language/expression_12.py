x = (max(1, 2.5, 2), min([3, 1, 2]), int(2.9), int(-2.9), float(3), len('abc'), floor(-0.5), ceil(0.5))

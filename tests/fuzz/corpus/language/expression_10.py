x = (3 in [1, 2, 3], 'b' in 'abc', 4 not in [1], None is None, 1 is not None)

x = ([a + b for a, b in zip([1, 2], [10, 20])])

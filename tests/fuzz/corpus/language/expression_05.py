x = (0 or 'a', 1 and 2, [] or 3, None or False)

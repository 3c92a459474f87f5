t = 0
for i in range(10):
    if i == 2: continue
    elif i > 4:
        break
    t += i
str(t)

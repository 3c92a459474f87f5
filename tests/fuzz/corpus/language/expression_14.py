x = (sqrt(2.0), exp(1.0), log(10.0), cos(pi))

"""words"""
from stepzero.arch import *  # as under Python

x = (1 +
  2)
str(x)

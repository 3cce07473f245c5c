"""FIND: which memory a data set has. `detect.py` tells the story; read it first."""

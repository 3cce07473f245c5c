"""Sums of ReLU ridges and tables: the readout and the lag functions, with proved errors."""

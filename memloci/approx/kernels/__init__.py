"""Sums of head kernels over lags: fits, residuals proved in Arb, lower bounds."""

"""The slacks of the proofs: each has a name, a derivation and a test (tests/certify/test_slacks.py).

Bounds are non-negative and built from non-negative terms, so float64 evaluates them up to a relative error that is
known: a sum or product of n terms errs by at most gamma(n) = n 2^-53 / (1 - n 2^-53). A slack adds that back. Slacks of
the rounding model, which is about the model's own arithmetic, are in units of its unit roundoff u.
"""

OWN = 2.0**-53  # the unit roundoff of the float64 in which bounds and midpoints are computed
# Of any sum here: coordinates, neurons, value coordinates of all heads. Models with more are refused (certify.py).
MOST_TERMS = 2**17

# One sum of at most MOST_TERMS non-negative terms, from above: gamma(2^17) = 2^-36 (1 + 2^-36 + ...).
SUMMED = 1 + 2.0**-35.9

# A rounding of a number that is itself the result of up to 12 roundings: u (1 + u)^12 <= 1.05 u for u <= 2^-8, which is
# the coarsest precision of which anything is claimed.
ROUNDED = 1.05
ROUNDED_BEFORE = 12
FEWEST_BITS = 8

# Sums and products in a row that one layer adds to a bound: values, scores, weights, sums over the past, W_O, the
# residual, neurons. Counted in layer.py and its heads, generously.
IN_A_ROW = 64


def evaluation(layers: int, terms: int) -> float:
    """A bound of a model of so many layers, whose sums have at most `terms` terms, from above: at most IN_A_ROW sums
    and products in a row per layer, and as many for embedding and readout."""
    operations = IN_A_ROW * (layers + 2) * (terms + 1)
    return 1 + operations * OWN / (1 - operations * OWN)


def own_product(terms: int) -> float:
    """Of W x with so many terms, midpoints in float64: gamma(terms + 1), relative to |W| |x|, for n <= MOST_TERMS."""
    return 1.01 * (terms + 1) * OWN

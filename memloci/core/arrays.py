"""Shapes, named once: one sequence, one head; callers `vmap` over batches and heads.

`n` positions, `D` the residual width, `H` heads. Read `Pairs` as (t, s): the row is the present t, the
column the past s, and the lag is z = t - s.
"""

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

Scalar = Float[Array, ""]
PerHead = Float[Array, " H"]
Slope = Float[Array, "*H"]  # p of one head, or of stacked heads
Stream = Float[Array, "n D"]  # the residual stream of one sequence
Pairs = Float[Array, "n n"]
LagPairs = Int[Array, "n n"]
VisiblePairs = Bool[Array, "n n"]
Lags = Int[Array, "*lags"]
OfLags = Float[Array, "*lags"]  # one number per lag
Turns = UInt32[Array, " f"]  # frequencies, as whole turns per position in units of 2^-32
Key = PRNGKeyArray

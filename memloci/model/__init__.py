"""The model: one Transformer with every switch, by its plain definition.

Read `architecture.py`, then `transformer.py`, `attention.py` and the parts of a head: `scores.py`,
`encodings.py`, `normalisation.py`. This file imports nothing, so that an architecture can be named
without waiting for JAX.
"""

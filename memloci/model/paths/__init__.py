"""Fast paths: other ways to the numbers that `memloci/model` defines.

Read `base.py` (what a path is), `choice.py` (which one a model takes), then the paths. Nothing here defines
what a model computes: every path is compared with the plain definition, values and gradients.
"""

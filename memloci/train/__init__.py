"""LEARN: weights by gradient."""

"""COMPILE: weights by construction."""

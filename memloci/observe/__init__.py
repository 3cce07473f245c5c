"""MEASURE: what is observed."""

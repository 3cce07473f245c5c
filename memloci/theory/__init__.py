"""THEORY: every result, of the paper and of memloci, and what it says of a task."""

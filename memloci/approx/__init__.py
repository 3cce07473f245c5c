"""THEORY: kernel sums and ridge sums, each with a proved error, and what no such sum can do."""

"""Records to tables for the terminal."""

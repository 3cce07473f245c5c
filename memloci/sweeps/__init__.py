"""Many trainings as one thing: a file that says which, a store that keeps them, processes that run them."""

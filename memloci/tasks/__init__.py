"""TASK: the target H_t(X). Knows nothing of Transformers, and imports no JAX until it computes."""

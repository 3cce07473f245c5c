"""CERTIFY: what is proved. Reads weights and tasks; shares nothing with the compiler but the model."""

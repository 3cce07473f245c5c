"""CERTIFY: what is proved, from the weights alone."""

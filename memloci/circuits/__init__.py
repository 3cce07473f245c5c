"""CIRCUIT: named slots, heads that read them, neurons; and the compiler that turns a circuit into weights."""

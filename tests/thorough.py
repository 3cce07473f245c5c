"""How much is tried: everything by `make test-all`, a part of it with every change."""

import os

THOROUGH = bool(os.environ.get("MEMLOCI_TEST_ALL"))  # set by `make test-all`


def few(examples: int) -> int:
    """Of so many drawn examples, a quarter with every change."""
    return examples if THOROUGH else max(10, examples // 4)

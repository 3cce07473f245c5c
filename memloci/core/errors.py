"""Refusals: what a user typed cannot be done, said in one line.

`BadInput` is the only exception a user's mistake may raise; the command line prints it and exits
with status 2. Say where, what was found, and what would do.
"""


class BadInput(ValueError):
    """A user's mistake; `str(error)` is one line."""

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))

    def within(self, location: str) -> "BadInput":
        """The same refusal, seen from further out: a key, then a file."""
        return BadInput(f"{location}: {self}")

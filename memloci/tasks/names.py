"""Variables: a channel's name followed by the number of the memory; `x0` is the present, `x1` the first memory.

A channel's name does not end in a digit (channel.py), so a variable has one reading.
"""

DIGITS = "0123456789"


def variable(channel: str, memory: int) -> str:
    return f"{channel}{memory}"


def channel_of(name: str) -> str:
    return name.rstrip(DIGITS)


def memory_of(name: str) -> int:
    return int(name[len(channel_of(name)) :])

"""Which path a model takes: by length and kind, unless `Architecture.path` names one.

To add a path, write its class in a file of its own and list it in PATHS.
"""

from memloci.fast.base import AbstractPath
from memloci.fast.plain import Plain
from memloci.model.architecture import Architecture

PATHS: dict[str, type[AbstractPath]] = {path.name: path for path in (Plain,)}


def choose(architecture: Architecture, n: int) -> str:
    """The name of the path for sequences of length n."""
    return "plain" if architecture.path == "auto" else architecture.path

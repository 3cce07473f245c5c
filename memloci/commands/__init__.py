"""COMMANDS: one file per command. Each parses, calls the pipeline, and shows what it got.

A file is named after its command and holds a function of that name and an EXAMPLE. To add a command, write its file and
list it here, in the order in which `memloci --help` shows them.
"""

COMMANDS = (
    "tasks",
    "theory",
    "plan",
    "compile",
    "verify",
    "check",
    "measure",
    "train",
    "sweep",
    "runs",
    "rates",
    "study",
    "detect",
    "export",
    "doctor",
)

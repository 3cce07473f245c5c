"""`python -m memloci` is the command line."""

from memloci.cli import main

main()

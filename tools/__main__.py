"""All checks beyond style and types: `python -m tools`."""

import sys

from tools import formats, imports, purity, references

if __name__ == "__main__":
    sys.exit(max(check.main() for check in (imports, purity, formats, references)))

"""The command line: finds the commands (commands/) and turns their outcome into an exit status.

Exit status: 0 done, 2 bad input, 3 the tolerance was missed (the result is still written), 1 anything
else. A user's mistake gets one line, never a traceback. Heavy imports happen inside commands, so that
help and listings answer at once.
"""

import os
import sys
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from memloci import __version__
from memloci.commands import COMMANDS
from memloci.commands.shared import BAD_INPUT, DONE, FAILED, print_json
from memloci.core.errors import BadInput

TYPERS_INTERRUPT = (
    130  # with which Typer ends after Ctrl-C; ours is the status of anything else that went wrong
)

app = typer.Typer(
    name="memloci",
    help="What a Transformer can remember, at what cost, and whether training finds it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Start with:  memloci tasks",
)
for name in COMMANDS:
    module = import_module(f"memloci.commands.{name}")
    app.command(name, epilog=f"Example:  {module.EXAMPLE}")(getattr(module, name))


def _show_version(requested: bool) -> None:
    if requested:
        print(f"memloci {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _stopped() -> NoReturn:
    print("memloci: interrupted", file=sys.stderr)
    sys.exit(FAILED)


def main(arguments: list[str] | None = None) -> None:
    """The entry point: run a command and turn its outcome into an exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(arguments)
    except BadInput as error:
        if "--json" in arguments:
            print_json({"error": str(error)})
        print(f"memloci: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as status:
        if status.code == TYPERS_INTERRUPT:
            _stopped()
        raise
    except Exception as error:
        if os.environ.get("MEMLOCI_DEBUG"):
            raise
        name = type(error).__name__
        print(f"memloci: this is a bug: {name}: {error} (MEMLOCI_DEBUG=1 shows where)", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()

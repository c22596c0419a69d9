"""`clawkit`: the entry point."""

from __future__ import annotations

import sys

try:
    import io
    import os
    from typing import Any

    import click

    from clawkit.cli.commands import COMMANDS as COMMANDS
    from clawkit.cli.commands import main as main
except KeyboardInterrupt:
    # `run` would catch it, but does not exist yet.
    sys.exit(130)


def run(argv: list[str] | None = None) -> None:
    """The entry point: errors in plain words, no traceback unless `--debug` is given."""
    args = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What the terminal's encoding lacks is spelled out; in JSON that is an escape.
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in args[: _first_word(args)]
    try:
        color = False if os.environ.get("NO_COLOR") else None
        code = main.main(args, prog_name="clawkit", standalone_mode=False, color=color)
        _end(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        _end(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        _end(130)
    except OSError as error:
        click.echo(f"clawkit: {error.strerror or error}", err=True)
        _end(1)
    except Exception as error:  # the root of the program
        if debug:
            raise
        _end(_report(error))


def _first_word(args: list[str]) -> int:
    return next((i for i, arg in enumerate(args) if not arg.startswith("-")), len(args))


def _report(error: Exception) -> int:
    """Say what went wrong; the exit code that goes with it."""
    from clawkit.text import printable

    exit_code: Any = getattr(error, "exit_code", None)
    if isinstance(exit_code, int):
        click.echo(f"clawkit: {printable(str(error))}", err=True)
        return exit_code
    click.echo(
        f"clawkit: unexpected {type(error).__name__}: {printable(str(error))}\n"
        "This is a bug in clawkit; `clawkit --debug …` shows where.",
        err=True,
    )
    return 1


def _end(code: int) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        # Nobody takes what is left; the interpreter must not complain about it either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or 1
    sys.exit(code)

"""The entry point of `clawkit`: how it starts and ends.

A simple `clawkit agent` is sent to the gateway first, and is run without click if there is none:
click takes a tenth of the time to the first request.
"""

from __future__ import annotations

import sys

try:
    import codecs
    import gc
    import io
    import os
    from collections.abc import Callable
    from types import SimpleNamespace
    from typing import Any

    from clawkit.cli.console import echo
    from clawkit.text import printable
except KeyboardInterrupt:
    sys.exit(130)  # `run` would catch it, but does not exist yet

# Start-up creates many objects, all of which survive: collecting garbage among them would take a
# tenth of the time to the first request.
gc.set_threshold(100_000, 20, 20)


def run() -> None:
    """Run the command line and exit."""
    args = sys.argv[1:]
    try:
        if args[:1] == ["agent"]:
            from clawkit.cli.gateway_turn import begun_early, read_simple

            with begun_early(args[1:]):
                if (options := read_simple(args[1:])) is not None:
                    finish(lambda: _run_agent(options))
                _run()
        _run()
    except KeyboardInterrupt:
        sys.exit(130)  # before the command began


def _run() -> None:
    from clawkit.cli.main import run as run_all

    run_all()


def _run_agent(options: dict[str, Any]) -> int:
    import_msgspec()
    from clawkit.cli.turn import run_agent

    try:
        return run_agent(options, lambda: options["message"])
    except KeyboardInterrupt:
        echo(err=True)  # ends the line with ^C, as click does
        raise


def import_msgspec() -> None:
    """Import msgspec, which most commands use, without what takes 4 % of the start and has no use:
    names of typing_extensions that this Python has as well, if that is installed, and all of
    `platform`, of which `uuid` asks the name of the system."""
    stubs = {"typing_extensions": None, "platform": SimpleNamespace(system=lambda: os.uname()[0])}
    stubs = {name: stub for name, stub in stubs.items() if name not in sys.modules}
    sys.modules.update(stubs)  # type: ignore[arg-type]  # None cannot be imported
    try:
        import msgspec  # noqa: F401
    finally:
        for name in stubs:
            del sys.modules[name]


def finish(work: Callable[[], object], *, debug: bool = False) -> None:
    """Run a command and exit. Errors have no traceback unless `debug` is set."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale without any encoding is a mistake. Characters that another one lacks are
            # escaped instead of raising.
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            encoding = "utf-8" if is_ascii else stream.encoding
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        code = work()
        _end(code if isinstance(code, int) else 0)
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        _end(130)
    except OSError as error:
        echo(f"clawkit: {error.strerror or error}", err=True)
        _end(1)
    except Exception as error:  # top level of the program
        if debug:
            raise
        _end(_report(error))


def _report(error: Exception) -> int:
    exit_code: Any = getattr(error, "exit_code", None)
    if isinstance(exit_code, int):
        echo(f"clawkit: {printable(str(error))}", err=True)
        return exit_code
    echo(
        f"clawkit: unexpected {type(error).__name__}: {printable(str(error))}\n"
        "This is a bug in clawkit; `clawkit --debug …` shows where.",
        err=True,
    )
    return 1


def _end(code: int) -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        import errno

        # The rest cannot be written; keep the interpreter from failing on it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # EIO: the terminal has gone, so exit as if by SIGHUP.
        code = code or (129 if error.errno == errno.EIO else 1)
    sys.exit(code)

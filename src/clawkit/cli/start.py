"""The entry point of `clawkit`: how it starts and ends.

A simple `clawkit agent` is run without click, which takes a tenth of the time to the first request,
and so is `clawkit mcp serve`.
"""

from __future__ import annotations

import codecs
import gc
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from clawkit.cli.console import echo
from clawkit.text import printable

# Start-up creates many objects, all of which survive: collecting garbage among them would take a
# tenth of the time to the first request.
gc.set_threshold(100_000, 20, 20)


READER_LEFT = 141
"""The exit code of a program that no one reads any more: as if it had been ended by SIGPIPE."""


def run() -> None:
    """Run the command line and exit."""
    args = sys.argv[1:]
    try:
        if args[:1] == ["agent"]:
            from clawkit.cli.gateway_turn import read_simple

            if (options := read_simple(args[1:])) is not None:
                finish(lambda: _run_agent(options))
        if args[:2] == ["mcp", "serve"]:
            import_msgspec()
            from clawkit.cli.mcp_serve import read_simple as read_server
            from clawkit.cli.mcp_serve import run_server

            if (server := read_server(args[2:])) is not None:
                finish(lambda: run_server(server))
        from clawkit.cli.main import run as run_all

        run_all()
    except KeyboardInterrupt:
        sys.exit(130)  # before the command began


def _run_agent(options: dict[str, Any]) -> int:
    from clawkit.cli.turn import run_agent

    try:
        return run_agent(options, lambda: options["message"])
    except KeyboardInterrupt:
        echo(err=True)  # ends the line with ^C, as click does
        raise


def import_msgspec() -> None:
    """Import msgspec, which most commands use, without typing_extensions: if that is installed, it
    takes 4 % of the start, for names that this Python has as well."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # cannot be imported
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


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
        code = _carry_out(work, debug=debug)
    except BrokenPipeError:
        code = READER_LEFT
    _end(code)


def _carry_out(work: Callable[[], object], *, debug: bool) -> int:
    """Run a command, and report its errors; returns the exit code. Raises `BrokenPipeError` if no
    one reads what it prints."""
    try:
        code = work()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        return 130
    except OSError as error:
        if has_reader_left():
            raise BrokenPipeError from error
        echo(f"clawkit: {error.strerror or error}", err=True)
        return 1
    except Exception as error:  # top level of the program
        if debug:
            raise
        return _report(error)


def has_reader_left() -> bool:
    """Whether the pipe that the output goes to is closed at its other end, as by `head`."""
    import select

    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    return any(event == select.POLLERR for _, event in poll.poll(0))


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
        code = code or {errno.EIO: 129, errno.EPIPE: READER_LEFT}.get(error.errno or 0, 1)
    if "clawkit.plugins.load" in sys.modules:
        _leave_threads(code)
    sys.exit(code)


def _leave_threads(code: int) -> None:
    """Exit if a plugin left threads that Python would wait for, possibly without end."""
    import atexit
    import threading

    from clawkit.plugins.load import THREADS

    if any(not each.daemon for each in set(threading.enumerate()) - THREADS):
        atexit._run_exitfuncs()
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(code)

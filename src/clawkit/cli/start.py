"""The entry point of `clawkit`: how it starts and ends.

Simple calls of `clawkit agent` and `clawkit mcp serve` run without click, which takes a tenth of
the time to the first request.
"""

from __future__ import annotations

import codecs
import errno
import gc
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TextIO

from clawkit.cli.console import echo
from clawkit.text import printable

# Start-up creates many objects that all survive; garbage collection would take a tenth of the time
# to the first request.
gc.set_threshold(100_000, 20, 20)


READER_LEFT = 141
"""The exit code after a broken pipe, as if killed by SIGPIPE."""
TERMINAL_GONE = 129
"""The exit code if the terminal has gone, as if killed by SIGHUP."""
_OUTPUT = "standard output"


def run() -> None:
    """Run the command line and exit."""
    _open_closed_streams()
    _name_errors(sys.stdout)
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
        sys.exit(130)  # before the command started
    except SystemExit as ending:
        if "clawkit.plugins.load" in sys.modules and isinstance(ending.code, int):
            _leave_threads(ending.code)
        raise


def _open_closed_streams() -> None:
    """Open standard streams that were closed at start-up, so that printing does not fail and no
    other file gets their numbers. `sys.stdin` stays None: commands that need input say so."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest free descriptor: this one, unless it was closed only in Python.
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            if number:
                setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


def _run_agent(options: dict[str, Any]) -> int:
    from clawkit.cli.turn import run_agent

    try:
        return run_agent(options, lambda: options["message"])
    except KeyboardInterrupt:
        echo(err=True)  # ends the line with ^C, as click does
        raise


def import_msgspec() -> None:
    """Import msgspec, which most commands use, without its slow imports: typing_extensions, if
    installed, for names that this Python has as well; and platform, which uuid uses for the
    system's name (before Python 3.12). Together these take 6 % of the start."""
    useless = {"typing_extensions": None, "platform": SimpleNamespace(system=lambda: "Linux")}
    added = {name: each for name, each in useless.items() if name not in sys.modules}
    sys.modules.update(added)  # type: ignore[arg-type]  # None cannot be imported
    try:
        import msgspec  # noqa: F401
    finally:
        for name in added:
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
        code = _carry_out(work, debug=debug)
    except BrokenPipeError:
        code = READER_LEFT
    for stream in (sys.stdout, sys.stderr):
        _flush_or_drop(stream)
    sys.exit(code)


def _carry_out(work: Callable[[], object], *, debug: bool) -> int:
    """Run a command, and report its errors; returns the exit code. Raises `BrokenPipeError` if its
    output is no longer read."""
    try:
        try:
            code = work()
        except SystemExit as ending:
            code = ending.code
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except OSError as error:
        if has_reader_left():
            raise BrokenPipeError from error
        where = f"{printable(str(error.filename))}: " if error.filename else ""
        _say(f"clawkit: {where}{error.strerror or error}")
        is_terminal_gone = error.filename == _OUTPUT and error.errno == errno.EIO
        return TERMINAL_GONE if is_terminal_gone else 1
    except Exception as error:  # top level of the program
        if debug:
            raise
        return _report(error)


def has_reader_left() -> bool:
    """Whether the reader of the output pipe has closed it, like `head`."""
    import select

    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    return any(event == select.POLLERR for _, event in poll.poll(0))


def _report(error: Exception) -> int:
    exit_code: Any = getattr(error, "exit_code", None)
    if isinstance(exit_code, int):
        _say(f"clawkit: {printable(str(error))}")
        return exit_code
    _say(
        f"clawkit: unexpected {type(error).__name__}: {printable(str(error))}\n"
        "This is a bug in clawkit; `clawkit --debug …` shows where."
    )
    return 1


def _say(text: str) -> None:
    """Print a last message; standard error may be what cannot be written."""
    with suppress(OSError):
        echo(text, err=True)


def _flush_or_drop(stream: TextIO) -> None:
    """Write the rest of a stream, or the interpreter would fail on it again at exit."""
    try:
        stream.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _name_errors(stream: TextIO) -> None:
    """Have errors of writing to standard output name it, like those of files."""
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)
    if isinstance(raw, io.FileIO):
        write = raw.write

        def write_named(data: Any) -> int | None:
            try:
                return write(data)
            except OSError as error:
                error.filename = _OUTPUT
                raise

        raw.write = write_named  # type: ignore[method-assign]


def _leave_threads(code: int) -> None:
    """Exit if a plugin left threads that Python would wait for, possibly forever."""
    import atexit
    import threading

    from clawkit.plugins.load import THREADS

    if any(not each.daemon for each in set(threading.enumerate()) - THREADS):
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)

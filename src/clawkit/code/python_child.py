"""Runs Python code for `child.py`, call after call, in one namespace.

A standalone program with only the standard library of any Python 3.9 or newer. Requests come from
descriptor 3, answers go to descriptor 4; both are moved out of the way of the code.
"""

from __future__ import annotations

import ast
import base64
import builtins
import contextlib
import fcntl
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Coroutine

MAX_TEXT = 100_000
MAX_FIGURES, MAX_FIGURE_BYTES = 4, 1_500_000
_SOURCES = 100
"""Number of calls whose source is kept for tracebacks."""
_CANCEL_S = 1.0
_COROUTINE = 0x80
"""CO_COROUTINE of a code object."""
_PRIVATE = 200
"""First descriptor number reserved for this program."""


class Interpreter:
    """The namespace, and the process state that is restored after each call."""

    def __init__(self) -> None:
        self.requests, self.answers, self._out, self._err = map(_set_aside, (3, 4, 1, 2))
        self._pid = os.getpid()
        self._loop: AbstractEventLoop | None = None
        self._calls = 0
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        self._streams: tuple[io.TextIOWrapper, ...] = ()
        os.register_at_fork(after_in_child=self._leave)

    def run(self, code: str) -> dict[str, object]:
        """Run code; returns the result as JSON. All exceptions of the code are caught here."""
        os.dup2(self._out, 1)
        os.dup2(self._err, 2)
        if not self._streams or any(stream.closed for stream in self._streams):
            self._streams = (_open(0, "r"), _open(1, "w"), _open(2, "w"))
        sys.stdin, sys.stdout, sys.stderr = self._streams
        self._calls += 1
        said: dict[str, object] = {}
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                said["value"] = self._evaluate(code, f"<call {self._calls}>")
            finally:
                # Also after an error: figures that were drawn before may explain it.
                said["figures"] = _take_figures()
                signal.signal(signal.SIGINT, _ignore)
        except BaseException as error:  # noqa: BLE001  # the root of the code
            signal.signal(signal.SIGINT, _ignore)
            trace = error.__traceback__
            while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<call "):
                trace = trace.tb_next
            try:
                parts = traceback.format_exception(type(error), error, trace)
            except BaseException:  # noqa: BLE001  # calls methods of the exception, which may fail
                parts = [type(error).__name__]
            said["traceback"] = _shorten("".join(parts).rstrip())
        if os.getpid() != self._pid:
            os._exit(1 if "traceback" in said else 0)  # a forked copy of this process
        return said

    def _evaluate(self, code: str, name: str) -> str | None:
        lines = code.splitlines(keepends=True)
        linecache.cache[name] = (len(code), None, lines, name)
        linecache.cache.pop(f"<call {self._calls - _SOURCES}>", None)
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        self._execute(tree, name, "exec")
        if not isinstance(last, ast.Expr):
            return None
        value = self._execute(ast.Expression(last.value), name, "eval")
        return None if value is None else _shorten(repr(value))

    def _execute(self, tree: ast.Module | ast.Expression, name: str, mode: str) -> object:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: types.CodeType = compile(tree, name, mode, flags, dont_inherit=True)
        result: Any = eval(code, self._module.__dict__)  # noqa: S307
        return self._await(result) if code.co_flags & _COROUTINE else result

    def _await(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """The event loop persists between calls, with its tasks; they run while a call awaits."""
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            signal.signal(signal.SIGINT, _ignore)
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}, timeout=_CANCEL_S))
            raise

    def _leave(self) -> None:
        """In a forked copy: close the descriptors that belong to this process."""
        for fd in (self.requests, self.answers, self._out, self._err):
            with contextlib.suppress(OSError):
                os.close(fd)


def _ignore(_number: int, _frame: object) -> None:
    """For an interrupt that came too late. Unlike SIG_IGN, this is not inherited by programs that
    the code starts."""


def _set_aside(fd: int) -> int:
    """Move a descriptor to a high number, with close-on-exec."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PRIVATE)
    if fd > 2:
        os.close(fd)
    return copy


def _open(fd: int, mode: str) -> io.TextIOWrapper:
    raw = io.FileIO(fd, mode, closefd=False)
    if mode == "r":
        return io.TextIOWrapper(io.BufferedReader(raw), encoding="utf-8")
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _shorten(text: str) -> str:
    """Truncate to a little more than what is shown in the end."""
    if len(text) <= 2 * MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[…]\n{text[-MAX_TEXT:]}"


def _take_figures() -> list[str]:
    """Save open figures of matplotlib as PNG, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    figures = []
    for number in pyplot.get_fignums()[:MAX_FIGURES]:
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", bbox_inches="tight")
        if file.tell() <= MAX_FIGURE_BYTES:
            figures.append(base64.b64encode(file.getvalue()).decode())
        else:
            print(f"figure {number} is too large to be shown", file=sys.stderr)
    pyplot.close("all")
    return figures


def _send(fd: int, message: dict[str, object]) -> None:
    data = memoryview(json.dumps(message).encode() + b"\n")
    while data:
        data = data[os.write(fd, data) :]


def main() -> None:
    signal.signal(signal.SIGINT, _ignore)
    interpreter = Interpreter()
    sys.argv = [""]
    sys.path.insert(0, os.getcwd())
    os.environ.setdefault("MPLBACKEND", "Agg")
    warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
    _send(interpreter.answers, {})
    with open(interpreter.requests, "rb", closefd=False) as requests:
        for line in requests:
            _send(interpreter.answers, interpreter.run(json.loads(line)["code"]))


if __name__ == "__main__":
    main()

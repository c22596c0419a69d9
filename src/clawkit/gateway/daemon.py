"""Starts the gateway in the background, and stops the one of this home."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from clawkit.config.paths import home
from clawkit.errors import ClawkitError, ConflictError, ToolAuthorizationError, ToolError
from clawkit.gateway import process_record as records
from clawkit.store import hold_lock, open_private, private_dir, remove_lock

OUTPUT_NAME = "gateway.out"
MAX_SHOWN = 4_000
KILL_S = 10.0
_POLL_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_argv(started_by: records.StartedBy, config: str | None, port: int | None) -> list[str]:
    """The command line of a gateway. `-P`: do not import modules from the current directory."""
    argv = [sys.executable, "-P", "-m", "clawkit", "gateway", "run", "--started-by", started_by]
    argv += ["--port", str(port)] if port is not None else []
    return [*argv, "--config", os.path.abspath(config)] if config is not None else argv


def output_file() -> str:
    """The file for the output of a background gateway; its log is another file."""
    return os.path.join(home(os.environ), "logs", OUTPUT_NAME)


def refuse_second(state: records.GatewayState) -> None:
    """Raises `ConflictError` if a gateway is running."""
    if not state.pid:
        return
    where = f" at {state.record.url}" if state.record else ""
    what = "a gateway" if state.record else "a gateway or `clawkit cron serve`"
    raise ConflictError(
        f"{what} is already running for {home(os.environ)}: process {state.pid}{where}; "
        "stop it with: clawkit gateway stop"
    )


def start(config: str | None, port: int | None, wait_s: float) -> records.RunningGateway:
    """Start a gateway that outlives this process, and wait until it is ready.

    Raises `ToolError`, or `ClawkitError` if the gateway cannot use its configuration. If it is
    interrupted or fails, no gateway is left.
    """
    refuse_second(records.look())
    check_home()
    with _only_start(), _noting_signals() as signals, ExitStack() as undo:
        child = _spawn(run_argv("start", config, port))
        undo.callback(_end, child)
        deadline = time.monotonic() + wait_s
        while child.poll() is None:
            # Not `look`, which briefly holds the lock that the gateway is about to take.
            record = records.read_record()
            if record is not None and record.pid == child.pid:
                undo.pop_all()
                return record
            if signals:
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise ToolError(
                    f"the gateway was not ready after {wait_s:g} seconds, and was stopped; "
                    "to wait longer: clawkit gateway start --timeout SECONDS"
                )
            time.sleep(_POLL_S)
        raise _failure(child.returncode)


def check_home() -> None:
    """Create the directories of the gateway. Raises `ToolError` if they cannot be written."""
    for folder in (os.path.join(home(os.environ), "gateway"), os.path.dirname(output_file())):
        try:
            private_dir(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        except OSError as error:
            raise ToolError(
                f"cannot write to {error.filename or folder}: {error.strerror}; fix that, or set "
                "CLAWKIT_HOME to a writable directory"
            ) from None


@contextmanager
def _only_start() -> Iterator[None]:
    """Only one process at a time may start a gateway, because they share its output file."""
    path = os.path.join(home(os.environ), "gateway", "start.lock")
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(path, "the start of the gateway"))
        except ConflictError:
            raise ConflictError(
                f"another process is starting a gateway for {home(os.environ)}; see: clawkit "
                "gateway status"
            ) from None
        held.callback(remove_lock, path)
        yield


@contextmanager
def _noting_signals() -> Iterator[list[int]]:
    """Within this block, signals that would terminate this process are collected in the list
    instead."""
    noted: list[int] = []
    before = {each: signal.getsignal(each) for each in _SIGNALS}
    for each, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(each, lambda number, _frame: noted.append(number))
    try:
        yield noted
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _spawn(argv: list[str]) -> subprocess.Popen[bytes]:
    output = open_private(output_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.ftruncate(output, 0)
        return subprocess.Popen(
            argv,
            cwd=home(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    finally:
        os.close(output)


def _end(child: subprocess.Popen[Any]) -> None:
    """Stop a gateway that is no longer wanted, and remove its output."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(KILL_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    clean_up()
    with suppress(FileNotFoundError):
        os.unlink(output_file())


def _failure(code: int) -> ClawkitError:
    """Why the gateway ended before it was ready: its output and its exit code."""
    with suppress(OSError), open(output_file(), encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("warning:")]
        said = "\n".join(lines).removeprefix("clawkit: ")[-MAX_SHOWN:]
        kinds: dict[int, type[ClawkitError]] = {2: ClawkitError, 3: ToolAuthorizationError}
        if said and code > 0:
            return kinds.get(code, ToolError)(said)
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return ToolError(
        f"the gateway ended before it was ready ({how}); to see more: clawkit gateway run"
    )


def clean_up() -> None:
    """Remove the record of a gateway that was killed."""
    if records.look().stale is not None:
        records.remove_record()


def stop(pid: int, wait_s: float, *, force: bool = False) -> bool:
    """Stop the gateway gracefully and wait; with `force`, kill it if it takes longer.

    Returns whether it had to be killed. Raises `ToolError` if it is still running.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        clean_up()
        return False
    try:
        if records.look().pid != pid:
            return False  # it has ended, and its pid may be that of another process
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        is_killed = not _has_ended(handle, wait_s)
        if is_killed and not force:
            raise ToolError(
                f"the gateway (process {pid}) is still stopping after {wait_s:g} seconds; wait, or "
                "kill it with: clawkit gateway stop --force"
            )
        if is_killed:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _has_ended(handle, KILL_S)
    finally:
        os.close(handle)
    clean_up()
    return is_killed


def _has_ended(handle: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def await_ready(before: int, wait_s: float) -> records.RunningGateway:
    """Wait for a gateway that another program starts, with another pid than `before`."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        record = records.read_record()
        if record is not None and record.pid != before and records.look().pid == record.pid:
            return record
        time.sleep(_POLL_S)
    raise ToolError(
        f"the gateway was not ready after {wait_s:g} seconds; see: clawkit gateway logs"
    )

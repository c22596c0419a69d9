"""The process that decodes can reach nothing, and ends when it must."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from tests.lacking import needs
from tests.tables import table

import clawkit
from clawkit.errors import ToolError, ToolInputError
from clawkit.media import decoder
from clawkit.media.local import MAX_CHILDREN, LocalMedia, _read_answer, make_decoder
from clawkit.process.confine import start_helper
from clawkit.process.isolated import IsolatedProcess, NoAnswerError
from clawkit.process.landlock import available

from .files import photo, png_of_zeros, save, text_pdf

MB = 1024 * 1024
SLOW = png_of_zeros(5_000, 4_900)
needs_landlock = needs(available(), "Landlock")


def decoders() -> list[int]:
    """The processes of this one that decode, dead ones that nobody waited for among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name of a program may be anything.
            stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(stat[1]) == os.getpid() and (b"media/decoder.py" in command or stat[0] == "Z"):
            found.append(int(entry.name))
    return found


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def stopped_at_work(
    work: Awaitable[object],
) -> AsyncIterator[tuple[asyncio.Future[object], int]]:
    """A call whose decoder stands still from the beginning, so that it cannot end by itself."""
    started: list[int] = []

    def start_stopped(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start_helper(*args, **options)
        os.kill(process.pid, signal.SIGSTOP)
        started.append(process.pid)
        return process

    with patch("clawkit.process.isolated.start_helper", start_stopped):
        task = asyncio.ensure_future(work)
        await until(lambda: bool(started))
    (pid,) = started
    await until(lambda: is_stopped(pid))
    try:
        yield task, pid
    finally:
        task.cancel()
        await asyncio.wait({task})
    await until(lambda: not decoders())


def run_held(program: str, *args: str) -> str:
    """What a program prints that may do as much as the decoder."""
    argv = [sys.executable, "-I", "-S", "-c", program, *args]
    process = start_helper(
        argv, cwd="/", env={}, hold=make_decoder().hold, stderr=subprocess.STDOUT
    )
    return process.communicate()[0].decode()


@needs_landlock
def test_it_cannot_read_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    program = "import sys; print(open(sys.argv[1]).read())"
    for path in (str(secret), "/etc/passwd", "/proc/self/environ", __file__):
        assert "PermissionError" in run_held(program, path)
    assert "PermissionError" in run_held("import os, sys; os.listdir(sys.argv[1])", str(tmp_path))


@needs_landlock
def test_it_cannot_write_anywhere(tmp_path: Path) -> None:
    for place in (tmp_path, Path(clawkit.__file__).parent, Path(msgspec.__file__).parent):
        assert "PermissionError" in run_held(
            "import sys; open(sys.argv[1], 'w')", str(place / "planted")
        )
        assert not (place / "planted").exists()


@needs_landlock
def test_it_cannot_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
        assert "PermissionError" in run_held(program, str(server.getsockname()[1]))


def test_once_it_looks_at_the_data_it_can_open_nothing_at_all() -> None:
    program = """if True:
        import runpy, socket, sys
        child = runpy.run_path(sys.argv[1])
        child["limit_self"]()
        child["shut"]("json")
        for attempt in (lambda: open("/dev/null"), lambda: socket.socket()):
            try:
                attempt()
            except OSError as error:
                print(error.errno)
        import resource
        print(resource.getrlimit(resource.RLIMIT_AS)[1])
    """
    argv = [sys.executable, "-I", "-S", "-c", program, decoder.__file__]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["24", "24", str(decoder.MAX_MEMORY)]


async def test_it_knows_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-secret")
    work = LocalMedia().picture(SLOW, max_side=100, max_bytes=MB)
    async with stopped_at_work(work) as (_, pid):
        assert Path(f"/proc/{pid}/environ").read_bytes() == b""
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert os.getsid(pid) == pid


@needs_landlock
async def test_it_is_started_held() -> None:
    work = LocalMedia().picture(SLOW, max_side=100, max_bytes=MB)
    async with stopped_at_work(work) as (_, pid):
        # Landlock demands this of whoever it holds, and nothing else here sets it.
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()


async def test_a_cancelled_call_leaves_no_process() -> None:
    work = LocalMedia().picture(SLOW, max_side=100, max_bytes=MB)
    async with stopped_at_work(work) as (task, _):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not decoders())


async def test_a_call_cancelled_at_once_leaves_no_process() -> None:
    media = LocalMedia()
    for turns in range(6):
        task = asyncio.ensure_future(media.pages(text_pdf("one"), 1, 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # Threads may still be starting what they then have to stop.
    await media.pages(text_pdf("one"), 1, 1)
    await until(lambda: not decoders())


def test_a_decoder_that_was_stopped_before_it_started_ends_at_once() -> None:
    running = IsolatedProcess(make_decoder())
    running.stop()
    request = b'{"op": "picture", "size": 9, "max_side": 9, "max_bytes": 9}\n'
    with pytest.raises(NoAnswerError) as caught:
        running.run((request, b""), _read_answer)
    assert caught.value.code == -signal.SIGKILL


async def test_a_call_that_takes_too_long_is_ended() -> None:
    work = LocalMedia(timeout_s=1).picture(SLOW, max_side=100, max_bytes=MB)
    async with stopped_at_work(work) as (task, _):
        with pytest.raises(ToolError, match="longer than 1 s"):
            await task


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (signal.SIGXCPU, ToolInputError, "takes more than 20 s"),
        (signal.SIGSEGV, ToolInputError, "cannot be decoded: it crashed the decoder .SIGSEGV."),
        (signal.SIGKILL, ToolError, "the decoder failed .SIGKILL."),
        (signal.SIGRTMIN + 1, ToolInputError, "crashed the decoder .signal 35."),
    ],
)
async def test_a_decoder_that_dies_is_explained(
    number: int, kind: type[ToolError], message: str
) -> None:
    work = LocalMedia().picture(SLOW, max_side=100, max_bytes=MB)
    async with stopped_at_work(work) as (task, pid):
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(ToolError, match=message) as caught:
            await task
        assert caught.type is kind


async def test_only_two_decode_at_once() -> None:
    media = LocalMedia()
    data = save(photo(600, 600), "PNG")
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(decoders()))
            await asyncio.sleep(0.005)

    watcher = asyncio.ensure_future(watch())
    calls = (media.picture(data, max_side=100, max_bytes=MB) for _ in range(8))
    assert {picture.width for picture in await asyncio.gather(*calls)} == {100}
    watcher.cancel()
    assert 1 <= most <= MAX_CHILDREN


async def test_the_event_loop_goes_on_meanwhile() -> None:
    work = LocalMedia().picture(SLOW, max_side=100, max_bytes=MB)
    async with stopped_at_work(work) as (task, pid):
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not task.done()
        os.kill(pid, signal.SIGCONT)
        await task


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("pages(b'%PDF', 1, 1)", "pip install 'clawkit[pdf]'"),
        ("picture(b'', max_side=9, max_bytes=9)", "pip install pillow"),
    ],
)
def test_a_library_that_is_not_installed_is_named(tmp_path: Path, call: str, message: str) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (site / "clawkit.pth").write_text(str(Path(clawkit.__file__).parent.parent))
    program = f"import asyncio, clawkit.media.local as c; asyncio.run(c.LocalMedia().{call})"
    argv = [str(tmp_path / "env" / "bin" / "python"), "-c", program]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert message in ended.stderr.splitlines()[-1]


def test_decoders_are_waited_for_in_one_event_loop_after_the_other() -> None:
    media = LocalMedia()
    data = save(photo(8, 8), "PNG")

    async def decode() -> None:
        some = (media.picture(data, max_side=8, max_bytes=MB) for _ in range(MAX_CHILDREN + 1))
        await asyncio.gather(*some)

    asyncio.run(decode())
    asyncio.run(decode())


@table(
    "line",
    [b"{}}\n", b'{"reason": 7}\n', b'{"reason": "\xff"}\n', b'{"x": ' + b"[" * 60_000 + b"\n"],
)
def test_an_answer_that_cannot_be_read_is_an_ordinary_failure(line: bytes) -> None:
    with pytest.raises(ToolError, match="invalid answer"):
        _read_answer(io.BytesIO(line))

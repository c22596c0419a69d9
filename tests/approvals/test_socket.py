"""The socket at which questions are answered in another process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.tables import table

from clawkit.approvals.socket import (
    MAX_CONNECTIONS,
    MAX_LINE,
    ApprovalServer,
    Handler,
    ask_over,
    is_reachable,
    serve,
    socket_path,
)
from clawkit.approvals.types import Pending
from clawkit.core.approval import Answer, Lasting, Question
from clawkit.errors import ConflictError, ToolError, ToolInputError

TOKEN = "t" * 32
ASKED = Question(
    "exec",
    {"command": "touch x"},
    "run: touch x",
    command="touch \udcff\ud83d\ude00",
    lasting=(Lasting("exact", "touch x"),),
)
PENDING = Pending("ab" * 16, ASKED, 0, 60_000)
YES = Answer("allow", "go on", "exact", "ada")


@pytest.fixture
def path() -> Iterator[str]:
    """In a directory with a short name, as sockets need."""
    folder = tempfile.mkdtemp(dir="/tmp")
    yield os.path.join(folder, "s.sock")
    shutil.rmtree(folder)


async def say_yes(_question: Question) -> Answer:
    return YES


async def say_nothing(_question: Question) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def served(
    path: str, handler: Handler = say_yes, **options: Any
) -> AsyncIterator[ApprovalServer]:
    server = await serve(path, TOKEN, handler, **options)
    try:
        yield server
    finally:
        await server.close()


async def send(path: str, data: bytes | dict[str, Any], *, half_close: bool = False) -> bytes:
    """The answer; empty if the server closes the connection."""
    if isinstance(data, dict):
        data = json.dumps({"token": TOKEN, **data}).encode() + b"\n"
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE)
    try:
        writer.write(data)
        if half_close:
            writer.write_eof()
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def reply(path: str, data: bytes | dict[str, Any], **options: Any) -> Any:
    return json.loads(await send(path, data, **options))


def request(question: Question = ASKED, **given: Any) -> dict[str, Any]:
    fields = {"tool": question.tool, "params": {}, "title": question.title, "timeout_s": 60}
    return {"type": "request", "id": "ab-1", "request": {**fields, **given}}


async def test_a_question_is_answered_over_the_socket(path: str) -> None:
    seen: list[Question] = []

    async def answer(question: Question) -> Answer:
        seen.append(question)
        return YES

    async with served(path, answer):
        assert await ask_over(path, TOKEN, PENDING, 60) == YES
    assert seen == [ASKED]


@pytest.mark.parametrize("answer", [Answer("allow"), Answer("deny"), Answer("deny", "no", by="x")])
async def test_every_answer_arrives_unchanged(path: str, answer: Answer) -> None:
    async def handler(_question: Question) -> Answer:
        return answer

    async with served(path, handler):
        assert await ask_over(path, TOKEN, PENDING, 60) == answer


async def test_a_peer_that_stops_sending_still_gets_an_answer(path: str) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def handler(_question: Question) -> Answer:
        asked.set()
        await go_on.wait()
        return Answer("deny")

    async with served(path, handler):
        task = asyncio.create_task(reply(path, request(), half_close=True))
        await asked.wait()
        await asyncio.sleep(0.5)  # longer than it takes to notice that somebody hung up
        go_on.set()
        assert await task == {"type": "decision", "id": "ab-1", "decision": "deny"}


async def test_a_question_is_withdrawn_when_its_peer_hangs_up(path: str) -> None:
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def handler(_question: Question) -> Answer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async with served(path, handler):
        task = asyncio.create_task(ask_over(path, TOKEN, PENDING, 60))
        await asked.wait()
        task.cancel()
        await stopped.wait()
        assert await reply(path, {"type": "ping"}) == {"type": "pong"}
    assert task.cancelled()


async def test_a_timeout_is_reported_as_a_timeout(path: str) -> None:
    async with served(path, say_nothing):
        answer = await ask_over(path, TOKEN, PENDING, 0.05)
    assert answer.verdict == "deny"
    assert answer.silent


async def test_a_person_is_not_asked_for_longer_than_the_question_says(path: str) -> None:
    async with served(path, say_nothing):
        short = replace(PENDING, question=replace(ASKED, timeout_s=0.05))
        with pytest.raises(ToolError, match="no answer"):
            await ask_over(path, TOKEN, short, 60)


async def fail(_question: Question) -> Answer:
    raise RuntimeError("secret detail")


async def exit_(_question: Question) -> Answer:
    raise SystemExit(3)


async def say_true(_question: Question) -> Any:
    return True


async def say_too_much(_question: Question) -> Answer:
    return Answer("allow", extent="program")


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (fail, "no answer"),
        (exit_, "no answer"),
        (say_true, "invalid answer: it must be allow or deny"),
        (say_too_much, "invalid answer: 'program' was not offered, only 'exact'"),
    ],
)
async def test_invalid_answers_are_not_sent(path: str, handler: Handler, message: str) -> None:
    async with served(path, handler):
        with pytest.raises(ToolError, match=message) as caught:
            await ask_over(path, TOKEN, PENDING, 60)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "closed without an answer"),
        (b"yes", "closed without an answer"),
        (b"yes\n", "invalid reply"),
        (b"[]\n", "invalid reply"),
        (b'"allow-once"\n', "invalid reply"),
        (b'{"decision": "allow-once"}\n', "invalid reply"),
        (b'{"type": "decision"}\n', "unknown decision 'None'"),
        (b'{"type": "decision", "decision": "allow"}\n', "unknown decision 'allow'"),
        (b'{"type": "decision", "decision": true}\n', "unknown decision 'True'"),
        (b'{"type": "decision", "decision": "allow-once", "id": "x"}\n', "invalid reply"),
        (
            b'{"type": "decision", "decision": "allow-once", "extent": "exact"}\n',
            "extent requires allow-always",
        ),
        (b'{"type": "decision", "decision": "allow-always", "extent": "program"}\n', "not offered"),
        (b'{"type": "decision", "decision": "allow-always", "extent": [1]}\n', "not offered"),
        (b'{"type": "decision", "decision": "allow-once", "reason": 1}\n', "must be strings"),
        (b'{"type": "error", "message": "\\u001b[2Jbroken"}\n', r"s\.sock: \[2Jbroken"),
        (b"[" * 60_000 + b"\n", "invalid reply"),
        (b"x" * 200_000, "closed without an answer"),
    ],
)
async def test_invalid_answers_are_not_accepted(path: str, said: bytes, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        await ask_fake(path, said)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'{"type": "decision", "decision": "allow-once"}\n', Answer("allow")),
        (b'{"type": "decision", "decision": "allow-always"}\n', Answer("allow", extent="exact")),
        (b'{"type": "decision", "decision": "deny", "reason": "r"}\n', Answer("deny", "r")),
    ],
)
async def test_the_shortest_answers_are_understood(
    path: str, said: bytes, expected: Answer
) -> None:
    assert await ask_fake(path, said) == expected


async def ask_fake(path: str, said: bytes) -> Answer:
    """Ask a server that says something of its own."""

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        writer.close()

    server = await asyncio.start_unix_server(meet, path)
    os.chmod(path, 0o600)
    try:
        return await ask_over(path, TOKEN, PENDING, 60)
    finally:
        server.close()


async def test_a_server_is_reachable_only_with_its_token(path: str) -> None:
    assert not is_reachable(path, TOKEN)
    async with served(path):
        assert await asyncio.to_thread(is_reachable, path, TOKEN)
        assert not await asyncio.to_thread(is_reachable, path, "x" * 32)
        assert not await asyncio.to_thread(is_reachable, path, "")
    assert not is_reachable(path, TOKEN)


@pytest.mark.parametrize("said", [b"", b"pong\n", b'{"type": "pong"', b'{"type":"ping"}\n', None])
async def test_a_peer_with_another_protocol_is_not_used(path: str, said: bytes | None) -> None:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        if said is not None:
            writer.write(said)
        else:
            await reader.read()
        writer.close()
        done.set()

    done = asyncio.Event()
    server = await asyncio.start_unix_server(meet, path)
    os.chmod(path, 0o600)
    assert not await asyncio.to_thread(is_reachable, path, TOKEN)
    await done.wait()
    server.close()


async def test_the_socket_is_private_and_goes_away(path: str) -> None:
    home = os.path.join(os.path.dirname(path), "new")
    path = os.path.join(home, "s.sock")
    before = os.umask(0)
    try:
        async with served(path):
            info = os.lstat(path)
            assert stat.S_ISSOCK(info.st_mode)
            assert stat.S_IMODE(info.st_mode) == 0o600
            assert stat.S_IMODE(os.lstat(home).st_mode) == 0o700
            assert sorted(os.listdir(home)) == ["s.sock", "s.sock.lock"]
            assert stat.S_IMODE(os.lstat(f"{path}.lock").st_mode) == 0o600
    finally:
        os.umask(before)
    assert os.listdir(home) == ["s.sock.lock"]


async def test_one_serves_at_a_time(path: str) -> None:
    async with served(path):
        with pytest.raises(ConflictError, match="another process is already serving it"):
            await serve(path, TOKEN, say_yes)
        assert await reply(path, {"type": "ping"}) == {"type": "pong"}
    async with served(path):
        assert await reply(path, {"type": "ping"}) == {"type": "pong"}


async def test_a_socket_that_no_one_listens_on_is_replaced(path: str) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    os.chmod(path, 0o600)
    Path(f"{path}.new").touch()
    async with served(path):
        assert await reply(path, {"type": "ping"}) == {"type": "pong"}


async def test_a_server_that_cannot_keep_up_is_not_replaced(path: str) -> None:
    busy = socket.socket(socket.AF_UNIX)
    busy.bind(path)
    busy.listen(0)
    os.chmod(path, 0o600)
    waiting = [dial(path)]
    while waiting[-1] is not None:
        waiting.append(dial(path))
    with pytest.raises(ConflictError):
        await serve(path, TOKEN, say_yes)
    assert not is_reachable(path, TOKEN)
    with pytest.raises(ToolError, match="cannot ask for approval"):
        await ask_over(path, TOKEN, PENDING, 60)
    for one in (busy, *waiting[:-1]):
        assert one is not None
        one.close()


def dial(path: str) -> socket.socket | None:
    """A connection, unless there are too many already."""
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except BlockingIOError:
        sock.close()
        return None
    return sock


async def test_a_server_leaves_the_socket_of_the_next_one_alone(path: str) -> None:
    async with served(path):
        os.unlink(path)
        Path(path).touch()
    assert os.path.exists(path)


async def test_a_server_whose_socket_is_gone_closes_quietly(path: str) -> None:
    async with served(path) as server:
        os.unlink(path)
        await server.close()


def make_link(path: str) -> None:
    """To a socket that is fine."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(f"{path}.real")
    left.close()
    os.chmod(f"{path}.real", 0o600)
    os.symlink(f"{path}.real", path)


def make_open_socket(path: str) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    os.chmod(path, 0o666)


SQUATTERS: list[Callable[[str], object]] = [
    os.mkdir,
    os.mkfifo,
    make_link,
    make_open_socket,
    lambda path: Path(path).write_text("mine"),
    lambda path: os.symlink("/nowhere", path),
]


@pytest.mark.parametrize("make", SQUATTERS)
async def test_another_file_at_the_path_is_neither_removed_nor_used(
    path: str, make: Callable[[str], object]
) -> None:
    make(path)
    before = os.lstat(path)
    with pytest.raises(ToolError, match="is not a socket owned by you; move it away"):
        await serve(path, TOKEN, say_yes)
    assert not is_reachable(path, TOKEN)
    with pytest.raises(ToolError, match="cannot ask for approval"):
        await ask_over(path, TOKEN, PENDING, 60)
    assert os.lstat(path).st_ino == before.st_ino


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
async def test_a_directory_that_others_can_change_is_not_used(path: str, mode: int) -> None:
    async with served(path):
        os.chmod(os.path.dirname(path), mode)
        assert not await asyncio.to_thread(is_reachable, path, TOKEN)
        with pytest.raises(ToolError, match="is accessible to other users"):
            await ask_over(path, TOKEN, PENDING, 60)
        with pytest.raises(ToolError, match="can be written by others"):
            await serve(path, TOKEN, say_yes)


async def test_a_home_behind_a_link_of_our_own_is_fine(path: str) -> None:
    folder = os.path.dirname(path)
    os.mkdir(os.path.join(folder, "real"), 0o700)
    os.symlink("real", os.path.join(folder, "home"))
    path = os.path.join(folder, "home", "s.sock")
    async with served(path):
        assert await ask_over(path, TOKEN, PENDING, 60) == YES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
async def test_a_link_of_another_user_is_not_followed(path: str) -> None:
    folder = os.path.dirname(path)
    os.mkdir(os.path.join(folder, "real"), 0o700)
    link = os.path.join(folder, "home")
    os.symlink("real", link)
    os.lchown(link, 65534, 65534)
    with pytest.raises(ToolError, match="is accessible to other users"):
        await serve(os.path.join(link, "s.sock"), TOKEN, say_yes)


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_a_server_of_another_user_is_not_asked(path: str) -> None:
    folder = os.path.dirname(path)
    os.chown(folder, 65534, 65534)
    asked = asyncio.Event()

    async def handler(_question: Question) -> Answer:
        asked.set()
        return YES

    with as_nobody():
        server = await serve(path, TOKEN, handler)
    # By the file, then by the process behind it.
    assert not await asyncio.to_thread(is_reachable, path, TOKEN)
    os.chown(folder, 0, 0)
    assert not await asyncio.to_thread(is_reachable, path, TOKEN)
    os.chown(path, 0, 0)
    assert not await asyncio.to_thread(is_reachable, path, TOKEN)
    with pytest.raises(ToolError, match="belongs to another user"):
        await ask_over(path, TOKEN, PENDING, 60)
    assert not asked.is_set()
    await server.close()


PING_AS_NOBODY = """
import json, os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sock = socket.socket(socket.AF_UNIX)
try:
    sock.connect(sys.argv[1])
    sock.sendall(json.dumps({"type": "ping", "token": sys.argv[2]}).encode() + b"\\n")
    print(sock.recv(100))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(
    ("opened", "said"),
    [
        (False, ["PermissionError"]),
        (True, ["b''", "ConnectionResetError", "BrokenPipeError"]),
    ],
)
async def test_another_user_gets_no_answer_even_with_the_token(
    path: str, opened: bool, said: list[str]
) -> None:
    async with served(path):
        os.chmod(os.path.dirname(path), 0o755)
        if opened:
            os.chmod(path, 0o666)
        command = [sys.executable, "-c", PING_AS_NOBODY, path, TOKEN]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() in said


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"ping\n",
        b"{}\n",
        b"[]\n",
        b'{"type": "ping"}\n',
        b'{"type": "ping", "token": null}\n',
        b'{"type": "ping", "token": true}\n',
        b'{"type": "ping", "token": ["' + TOKEN.encode() + b'"]}\n',
        b'{"type": "ping", "token": ""}\n',
        b'{"type": "ping", "token": "' + b"t" * 31 + b'"}\n',
        b'{"type": "ping", "token": "' + b"t" * 33 + b'"}\n',
        b'{"type": "ping", "token": "' + b"T" * 32 + b'"}\n',
        b'{"type": "ping", "token": "\\ud800"}\n',
        b'{"type": "ping", "token": NaN}\n',
        b"\xff\xfe\n",
        b"[" * 1_000_000 + b"\n",
        b"1" * 10_000 + b"\n",
    ],
)
async def test_without_the_token_there_is_no_answer(path: str, data: bytes) -> None:
    async with served(path):
        assert await send(path, data) == b""
        assert await reply(path, {"type": "ping"}) == {"type": "pong"}


async def test_a_line_that_never_ends_is_cut_off(path: str) -> None:
    async with served(path):
        assert await send(path, b"x" * (MAX_LINE * 2 + 1024)) == b""
        assert await reply(path, {"type": "ping"}) == {"type": "pong"}


@pytest.mark.parametrize("data", [b"", b'{"type": "ping", "tok'])
async def test_a_peer_that_takes_too_long_is_disconnected(path: str, data: bytes) -> None:
    async with served(path, talk_s=0.05):
        assert await send(path, data) == b""
        # Also who stops in the middle of the line.
        assert await send(path, data, half_close=True) == b""
        # On a busy machine that may be us.
        while not (answer := await send(path, {"type": "ping"})):
            await asyncio.sleep(0.01)
        assert json.loads(answer) == {"type": "pong"}


async def test_the_number_of_connections_is_limited(path: str) -> None:
    async with served(path):
        idle = [await asyncio.open_unix_connection(path) for _ in range(MAX_CONNECTIONS)]
        assert await send(path, {"type": "ping"}) == b""
        _, writer = idle.pop()
        writer.close()
        while await send(path, {"type": "ping"}) == b"":
            await asyncio.sleep(0.01)
        for _, writer in idle:
            writer.close()


async def test_closing_the_server_ends_its_questions(path: str) -> None:
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def handler(_question: Question) -> Answer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async with served(path, handler):
        task = asyncio.create_task(ask_over(path, TOKEN, PENDING, 60))
        await asked.wait()
    assert stopped.is_set()
    with pytest.raises(ToolError, match="closed without an answer"):
        await task


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"type": "exec"}, "unknown message type"),
        ({"type": ["ping"]}, "unknown message type"),
        ({}, "unknown message type"),
        ({"type": "list"}, "unknown message type"),
        ({"type": "resolve", "id": "abcd", "decision": "deny"}, "unknown message type"),
        ({"type": "request", "id": "a"}, "invalid request"),
        ({"type": "request", "id": "a", "request": []}, "invalid request"),
        (request(title=5), "invalid request: Expected `str`"),
        (request(lasting=[{"extent": "all", "words": ""}]), "Invalid enum value"),
        ({**request(), "id": None}, "the id of a request must be"),
        ({**request(), "id": "../x"}, "the id of a request must be"),
        ({**request(), "id": "a" * 81}, "the id of a request must be"),
    ],
)
async def test_an_invalid_message_with_the_token_is_an_error(
    path: str, message: dict[str, Any], said: str
) -> None:
    async with served(path):
        answer = await reply(path, message)
    assert (answer["type"], answer["status"]) == ("error", 400)
    assert said in answer["message"]


@pytest.mark.parametrize("timeout_s", [-1, 0])
async def test_a_question_without_time_is_not_answered(path: str, timeout_s: float) -> None:
    async with served(path, say_nothing):
        assert (await reply(path, request(timeout_s=timeout_s)))["type"] == "error"


async def test_a_question_with_an_infinite_timeout_is_asked(path: str) -> None:
    data = json.dumps({"token": TOKEN, **request()}).replace(
        '"timeout_s": 60', '"timeout_s": 1e999'
    )
    async with served(path, fail):
        assert (await reply(path, f"{data}\n".encode()))["message"] == "no answer"


@pytest.mark.parametrize("token", ["", "short", "x" * 15])
async def test_a_token_that_can_be_guessed_is_refused(path: str, token: str) -> None:
    with pytest.raises(ToolInputError, match="16 characters or more"):
        await serve(path, token, say_yes)
    assert not os.path.exists(path)


async def test_a_socket_that_cannot_be_created_is_an_error(path: str) -> None:
    Path(path).touch()
    with pytest.raises(ToolError, match="approvals cannot be served: "):
        await serve(os.path.join(path, "s.sock"), TOKEN, say_yes)
    folder = os.path.dirname(path)
    os.mkdir(f"{path}.new")
    os.unlink(path)
    with pytest.raises(ToolError, match="approvals cannot be served: "):
        await serve(path, TOKEN, say_yes)
    assert sorted(os.listdir(folder)) == ["s.sock.lock", "s.sock.new"]


async def test_a_path_that_is_too_long_is_an_error(path: str) -> None:
    long = os.path.join(os.path.dirname(path), "s" * 90)
    with pytest.raises(ToolError, match="approvals cannot be served: "):
        await serve(long, TOKEN, say_yes)


def test_the_socket_is_in_the_home() -> None:
    assert socket_path("/home/ada/.clawkit", None) == "/home/ada/.clawkit/exec-approvals.sock"
    assert socket_path("/home/ada/.clawkit") == "/home/ada/.clawkit/exec-approvals.sock"


@table(("length", "stays"), [(87, True), (88, False), (4000, False)])
def test_a_path_that_is_too_long_is_shortened(length: int, stays: bool) -> None:
    home = "/" + "h" * (length - 1)
    found = socket_path(home, "")
    assert found.startswith(f"{home}/") is stays
    assert len(os.fsencode(found)) < 108


def test_bytes_count_not_characters() -> None:
    assert not socket_path("/" + "ä" * 80, "").startswith("/ä")


def test_a_private_runtime_directory_takes_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    home = "/" + "h" * 200
    mark = hashlib.sha256(home.encode()).hexdigest()[:16]
    try:
        assert socket_path(home, str(folder)) == f"{folder}/clawkit-{mark}.sock"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        assert socket_path(home) == f"{folder}/clawkit-{mark}.sock"
        assert socket_path(f"{home}x") != socket_path(home)
        elsewhere = socket_path(home, "")
        assert mark in elsewhere
        # Nowhere that others could write, that is not there, or not absolute.
        folder.chmod(0o777)
        for wrong in (str(folder), "/nowhere", "relative", str(tmp_path / ("x" * 90))):
            assert socket_path(home, wrong) == elsewhere
        file = folder / "file"
        file.touch(0o600)
        assert socket_path(home, str(file)) == elsewhere
    finally:
        folder.rmdir() if not list(folder.iterdir()) else shutil.rmtree(folder)


def test_homes_that_are_the_same_share_a_socket(tmp_path: Path) -> None:
    home = tmp_path / ("h" * 120)
    home.mkdir()
    (tmp_path / ("l" * 120)).symlink_to(home)
    assert socket_path(str(home), "") == socket_path(str(tmp_path / ("l" * 120)), "")


async def test_a_socket_in_the_shorter_place_works() -> None:
    path = socket_path("/" + os.urandom(60).hex(), "")
    folder = os.path.dirname(path)
    if folder == f"/run/user/{os.geteuid()}":
        pytest.skip("the runtime directory is used")
    try:
        async with served(path):
            assert await ask_over(path, TOKEN, PENDING, 60) == YES
            assert stat.S_IMODE(os.lstat(folder).st_mode) == 0o700
    finally:
        shutil.rmtree(folder)


SERVE = """
import asyncio, sys
from clawkit.approvals.socket import serve
from clawkit.core.approval import Answer

async def answer(question):
    return Answer("allow", question.command, by="the other process")

async def main():
    server = await serve(sys.argv[1], sys.argv[2], answer)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await server.close()

asyncio.run(main())
"""


async def test_an_answer_travels_between_two_processes(path: str) -> None:
    command = [sys.executable, "-c", SERVE, path, TOKEN]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert await asyncio.to_thread(server.stdout.readline) == "ready\n"
    assert is_reachable(path, TOKEN)
    answer = await ask_over(path, TOKEN, PENDING, 60)
    assert answer == Answer("allow", ASKED.command, by="the other process")
    await asyncio.to_thread(server.communicate, "\n")
    assert server.returncode == 0
    assert not os.path.exists(path)

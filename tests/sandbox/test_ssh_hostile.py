"""The other end of the connection may send anything: these tests use a program that does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.ssh_ground import open_ssh
from tests.tables import table

from clawkit.config.sections.sandbox import Ssh
from clawkit.errors import ToolError, ToolInputError
from clawkit.process.protocols import Launch
from clawkit.sandbox.protocols import SandboxUnavailableError
from clawkit.sandbox.remote_helper import pack, receive
from clawkit.sandbox.ssh import SshSandbox

_PROGRAM = """#!{python}
import json, shlex, struct, sys
words = shlex.split(sys.argv[-1])
sys.stdin.buffer.read(int(words[-1]))
def send(raw):
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()
send(b"welcome\\n" + words[-3].encode() + b"\\n")
send({ready!r})
answers = {answers!r}
while head := sys.stdin.buffer.read(8):
    size, beside = struct.unpack("<II", head)
    number, method, *_ = json.loads(sys.stdin.buffer.read(size))
    sys.stdin.buffer.read(beside)
    for each in answers.get(method, ()):
        send(each.replace(b"7777777", b"%07d" % number))
"""
NUMBER = 7777777
READY = pack(["ready", 1.5])
Make = Callable[..., SshSandbox]


def done(result: object, data: bytes = b"") -> bytes:
    # JSON has no leading zeros: the number of an answer is sent as text, which is read as well.
    return pack(["done", str(NUMBER), result], data)


def fail(*rest: object) -> bytes:
    return pack(["fail", str(NUMBER), *rest])


@pytest.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    made: list[SshSandbox] = []
    # Some never say that their commands have ended.
    monkeypatch.setattr("clawkit.sandbox.ssh._CLOSE_S", 0.5)
    (tmp_path / "ws").mkdir()
    (tmp_path / "outside").write_text("safe")

    def build(ready: bytes = READY, access: Any = "none", **answers: bytes) -> SshSandbox:
        program = tmp_path / "ssh"
        by_method = {name: [answer] for name, answer in answers.items()}
        program.write_text(_PROGRAM.format(python=sys.executable, ready=ready, answers=by_method))
        program.chmod(0o755)
        ssh = Ssh(target="me@there", command=str(program), workspace_root="/there")
        made.append(open_ssh(ssh, tmp_path, access=access))
        return made[-1]

    yield build
    for each in made:
        await each.close()


async def test_a_message_is_received_as_it_was_sent() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(pack(["a", "\udcff", None], b"\0data") + pack([1]))
    reader.feed_eof()
    assert await receive(reader) == (["a", "\udcff", None], b"\0data")
    assert await receive(reader) == ([1], b"")
    with pytest.raises(EOFError):
        await receive(reader)


@table(
    "raw",
    [
        b"\xff" * 8,
        b"\0\0\0\0\xff\xff\xff\xff",
        pack({}),
        pack([]),
        pack("x"),
        b"\x02\0\0\0\0\0\0\0{]",
        b"\xa0\x86\x01\0\0\0\0\0" + b"[" * 100_000,
    ],
)
async def test_an_invalid_message_is_refused(raw: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(raw)
    with pytest.raises((ValueError, EOFError)):
        await receive(reader)


@pytest.mark.parametrize(
    "ready", [b"", b"\xff" * 8, pack(["ready"]), pack(["ready", "x"]), pack(["ready", "/", 1.5])]
)
async def test_a_helper_with_an_invalid_greeting_is_refused(make: Make, ready: bytes) -> None:
    sandbox = make(ready or pack([]))
    with pytest.raises(SandboxUnavailableError):
        await sandbox.prepare()


@pytest.mark.parametrize(
    "answer",
    [
        done(None),
        done([["x"]]),
        done([["x", "y", 1.0, "z", "rw"]]),
        pack(["done"]),
        pack(["done", {}]),
        b"\xff" * 20,
        fail(False, "x"),
        fail("SystemExit", None),
        pack(["fail", str(NUMBER)]),
        pack(["fail", str(NUMBER), True]),
        pack(["done", str(NUMBER)]),
    ],
)
async def test_an_invalid_answer_is_an_error(make: Make, answer: bytes) -> None:
    with pytest.raises(ToolError):
        await make(scan=done(["d", {}, []]), instances=answer).list()


async def test_errors_lose_what_could_fool_a_terminal(make: Make) -> None:
    sandbox = make(instances=fail(True, "gone\x1b[2J" + "x" * 10_000))
    with pytest.raises(ToolInputError) as caught:
        await sandbox.list()
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) <= 4_000


@pytest.mark.parametrize(
    "entry",
    [
        {"../outside": ["file", 0o644, 4, "0" * 64, ""]},
        {"/outside": ["file", 0o644, 4, "0" * 64, ""]},
        {"x/y": ["file", 0o644, 4, "0" * 64, ""]},
        {"x": ["device", 0, 0, "", ""]},
        None,
    ],
)
async def test_a_hostile_manifest_changes_nothing(make: Make, tmp_path: Path, entry: Any) -> None:
    sandbox = make(access="rw", scan=done(["d", entry, []]))
    with pytest.raises(ToolError, match="side sent"):
        await sandbox.prepare()
    assert os.listdir(tmp_path / "ws") == []
    assert (tmp_path / "outside").read_text() == "safe"


async def test_content_that_is_not_what_the_manifest_said_is_not_written(
    make: Make, tmp_path: Path
) -> None:
    entry = {"f": ["file", 0o644, 4, "0" * 64, ""]}
    fetch = done({"f": 4, "../outside": 4}, b"evilevil")
    await make(access="rw", scan=done(["d", entry, []]), fetch=fetch).prepare()
    assert os.listdir(tmp_path / "ws") == []
    assert (tmp_path / "outside").read_text() == "safe"


@pytest.mark.parametrize(
    "answer",
    [
        done([["won", 0], []]),
        done([["exit", 0], 5]),
        done([None, [["x"]]]),
        done([None, []]),
        done(5),
        fail(False, "no"),
        pack(["exit", "test-1"]),
        b"junk" * 10,
    ],
)
async def test_an_invalid_message_about_a_command_ends_it_as_lost(
    make: Make, answer: bytes
) -> None:
    sandbox = make(scan=done(["d", {}, []]), start=done(None), follow=answer)
    running = await sandbox.host().start(Launch("true", "/there", {}), "test-1")
    exit_ = await running.wait()
    assert exit_.reason == "lost"
    assert exit_.note


async def test_what_is_said_about_a_command_is_cut_and_made_printable(make: Make) -> None:
    end = ["exit", 3, "", 0, 0, 0, "x\x1b[2J" + "y" * 9_000]
    left = [[number, "\x1b[2J" + "z" * 1_000, False] for number in range(2_000)]
    other = pack(["done", 999_999, None])
    follow = other + done([end, left], b"yes")
    sandbox = make(scan=done(["d", {}, []]), start=done(None), follow=follow)
    running = await sandbox.host().start(Launch("true", "/there", {}), "test-1")
    exit_ = await running.wait()
    assert (exit_.reason, exit_.code) == ("exit", 3)
    assert running.output.tail(100).startswith(b"yes")
    assert "\x1b" not in exit_.note
    assert len(exit_.note) < 2_000
    assert len(running.left) == 1_000
    assert all(len(each.name) <= 64 and "\x1b" not in each.name for each in running.left)


async def test_a_helper_that_claims_all_files_were_removed_deletes_no_protected_file(
    make: Make, tmp_path: Path
) -> None:
    config = tmp_path / "ws/.git/config"
    config.parent.mkdir()
    config.write_text("[core]")
    (tmp_path / "ws/f").write_text("x")
    entries = {
        ".git": ["directory", 0, 0, "", ""],
        ".git/config": ["file", 0o644, 6, sha256(b"[core]").hexdigest(), ""],
        "f": ["file", 0o644, 1, sha256(b"x").hexdigest(), ""],
    }
    await make(access="rw", scan=done(["d", entries, []])).prepare()
    await make(access="rw", scan=done(["e", {}, []])).prepare()
    assert config.read_text() == "[core]"
    assert not (tmp_path / "ws/f").exists()

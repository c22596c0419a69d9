"""`clawkit logs`: the output of a command."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.asking import PROGRAM
from tests.lacking import import_or_lack
from tests.process.started import KEY, TOGETHER, Start, log_of, make, starting

from clawkit.cli.main import run
from clawkit.cli.ps import _CHUNK, _Cleaned, _last_lines
from clawkit.process import records
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch
from clawkit.process.supervisor import Supervisor

pytestmark = TOGETHER


class Done(NamedTuple):
    code: int
    out: bytes
    err: str


Logs = Callable[..., Done]


@pytest.fixture
def folder() -> Path:
    place = Path(os.environ["CLAWKIT_HOME"]) / "commands"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    with starting(folder) as start:
        yield start


@pytest.fixture
def logs(capsysbinary: pytest.CaptureFixture[bytes]) -> Logs:
    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["logs", *args])
        out, err = capsysbinary.readouterr()
        assert b"Traceback" not in err
        code = end.value.code
        return Done(code if isinstance(code, int) else 0, out, err.decode())

    return type_in


def put(folder: Path, data: bytes, **fields: object) -> None:
    records.write(str(folder), make(pid=2**31 - 1, detached=True, **fields))
    log_of(folder).write_bytes(data)


def test_the_last_lines_are_shown_without_what_is_meant_for_a_terminal(
    logs: Logs, folder: Path
) -> None:
    put(folder, b"".join(b"\x1b[31mline %d\x1b[0m\a\n" % number for number in range(300)))
    done = logs("calm-otter")
    lines = done.out.decode().splitlines()
    assert (done.code, len(lines)) == (0, 200)
    assert lines[0] == "line 100\\x07"
    assert lines[-1] == "line 299\\x07"
    assert "of earlier output omitted; -n shows more" in done.err


@pytest.mark.parametrize(
    ("args", "out"),
    [
        (("-n", "2"), b"two\nthree\n"),
        (("-n", "1"), b"three\n"),
        (("-n", "0"), b""),
        (("--lines", "99"), b"one\ntwo\nthree\n"),
        (("--raw",), b"\x1b[1mone\x1b[m\ntwo\r\nthree"),
        (("--raw", "-n", "2"), b"two\r\nthree"),
        (("--raw", "-n", "0"), b""),
    ],
)
def test_how_much_and_how(logs: Logs, folder: Path, args: tuple[str, ...], out: bytes) -> None:
    put(folder, b"\x1b[1mone\x1b[m\ntwo\r\nthree")
    assert logs("calm-otter", *args) == Done(0, out, "")


def test_raw_shows_all_bytes_as_they_are(logs: Logs, folder: Path) -> None:
    data = bytes(range(256)) * 5_000 + b"\n" * 500
    put(folder, data)
    assert logs("calm-otter", "--raw").out == data


@pytest.mark.parametrize(
    ("data", "count", "start"),
    [
        (b"", 5, 0),
        (b"a", 1, 0),
        (b"a\n", 1, 0),
        (b"a\nb", 1, 2),
        (b"a\nb\n", 1, 2),
        (b"a\nb\n", 2, 0),
        (b"a\n\n", 1, 2),
        (b"\n\n\n", 2, 1),
        (b"a\nb\n", 0, 4),
        (b"a\nb\n" + b"x" * _CHUNK * 2, 1, 4),
        (b"a\nb\n" + b"x" * _CHUNK * 2, 2, 2),
        (b"x" * (_CHUNK - 1) + b"\n" + b"y" * _CHUNK, 1, _CHUNK),
        (b"x" * _CHUNK + b"\n" + b"y" * (_CHUNK - 1), 1, _CHUNK + 1),
        (b"x\n" * _CHUNK, _CHUNK, 0),
        (b"x\n" * _CHUNK, _CHUNK - 1, 2),
        (b"x\n" * _CHUNK, 3, 2 * _CHUNK - 6),
    ],
    ids=range(16),
)
def test_tail_finds_the_start_of_the_last_lines(
    tmp_path: Path, data: bytes, count: int, start: int
) -> None:
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        assert _last_lines(file.fileno(), len(data), count) == start


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1_000])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\nlines\n", "plain\nlines\n"),
        ("é日本🦦\n".encode(), "é日本🦦\n"),
        (b"\x1b[31;1mred\x1b[0m\n\x1b]0;title\x07x\n", "red\nx\n"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"10%\r20%\r30%\n", "10%\n20%\n30%\n"),
        (b"prompt> ", "prompt> \n"),
        (b"\xff\xfe\n", "��\n"),
        (b"cut \xe6\x97", "cut �\n"),
        (b"end\r", "end\n"),
        (b"", ""),
    ],
)
def test_the_pieces_in_which_output_comes_do_not_show(
    capsys: pytest.CaptureFixture[str], data: bytes, text: str, size: int
) -> None:
    cleaned = _Cleaned()
    for at in range(0, len(data), size):
        cleaned.take(data[at : at + size])
    cleaned.finish()
    assert capsys.readouterr().out == text


def test_lines_that_come_while_the_last_are_shown_are_not_shown(
    logs: Logs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, b"1\n2\n3\n")

    def find_while_more_comes(fd: int, size: int, count: int) -> int:
        with log_of(folder).open("ab") as log:
            log.write(b"4\n")
        return _last_lines(fd, size, count)

    monkeypatch.setattr("clawkit.cli.ps._last_lines", find_while_more_comes)
    assert logs("calm-otter", "-n", "2").out == b"2\n3\n"


def test_output_is_shown_without_a_record_of_the_command(logs: Logs, folder: Path) -> None:
    (folder / f"{KEY}.log").write_text("kept\n", encoding="utf-8")
    for wanted in ("calm-otter", KEY, "calm"):
        assert logs(wanted, "-f") == Done(0, b"kept\n", "")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("calm-oter",), 1, "did you mean 'calm-otter'?"),
        (("zzz",), 1, "known: calm-otter, quiet-lynx"),
        (("../calm-otter-ab1",), 1, "unknown command '../calm-otter-ab1'"),
        (("quiet-lynx",), 1, "the output of quiet-lynx is not stored"),
        (("quiet-lynx", "-f"), 1, "the output of quiet-lynx is not stored"),
        (("calm-otter", "-n", "-1"), 2, "-1"),
        (("calm-otter", "-n", "x"), 2, "valid integer"),
        (("calm-otter", "--screen"), 2, "calm-otter has no terminal"),
        (("calm-otter", "--screen", "-f"), 2, "cannot be combined with other options"),
        (("calm-otter", "--screen", "--raw"), 2, "cannot be combined with other options"),
        (("calm-otter", "--screen", "-n", "5"), 2, "cannot be combined with other options"),
        ((), 2, "Missing argument"),
    ],
)
def test_wrong_usage_is_an_error(
    logs: Logs, folder: Path, args: tuple[str, ...], code: int, words: str
) -> None:
    put(folder, b"text")
    records.write(str(folder), make(key="quiet-lynx-1", id="quiet-lynx"))
    done = logs(*args)
    assert (done.code, done.out) == (code, b"")
    assert words in done.err


def test_two_commands_with_one_id_are_distinguished_by_their_keys(logs: Logs, folder: Path) -> None:
    (folder / f"{KEY}.log").write_text("one", encoding="utf-8")
    (folder / "calm-otter-ab2.log").write_text("two", encoding="utf-8")
    done = logs("calm-otter")
    assert done.code == 2
    assert f"  {KEY}\n  calm-otter-ab2" in done.err
    assert logs("calm-otter-ab2").out == b"two\n"


@pytest.mark.parametrize("make_it", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
@pytest.mark.parametrize("args", [(), ("--raw",), ("-f",)])
def test_only_a_plain_file_is_shown(
    logs: Logs, folder: Path, make_it: Callable[[Path], None], args: tuple[str, ...]
) -> None:
    put(folder, b"")
    log_of(folder).unlink()
    make_it(log_of(folder))
    done = logs("calm-otter", *args)
    assert (done.code, done.out) == (1, b"")
    assert f"{log_of(folder)} cannot be read" in done.err


def test_an_open_folder_is_not_trusted(logs: Logs, folder: Path) -> None:
    put(folder, b"text")
    folder.chmod(0o755)
    done = logs("calm-otter")
    assert (done.code, done.out) == (2, b"")
    assert "chmod 700" in done.err


def test_the_screen_of_a_terminal(logs: Logs, folder: Path) -> None:
    import_or_lack("pyte")
    put(
        folder,
        b"old\r\n\x1b[2J\x1b[2;5Hhere\x1b]0;title\x07\x1b[3;1H\xe2\x80\xaeend",
        terminal=(40, 5),
    )
    assert logs("calm-otter", "--screen").out.decode().splitlines()[:2] == ["", "    here"]


def test_following_ends_with_the_command(logs: Logs, start: Start) -> None:
    start("echo ready; for i in 1 2 3; do sleep 0.15; echo $i; done; printf end", detached=True)
    done = logs("calm-otter", "-f")
    assert done == Done(0, b"ready\n1\n2\n3\nend\n", "")


@pytest.fixture
def follow(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*args: str, **streams: int) -> subprocess.Popen[bytes]:
        argv = [*PROGRAM, "logs", "-f", *args]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        begun.append(subprocess.Popen(argv, **pipes))  # type: ignore[call-overload]
        return begun[-1]

    yield begin
    for each in begun:
        each.kill()
        each.communicate()


Follow = Callable[..., "subprocess.Popen[bytes]"]


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def append(folder: Path, data: bytes) -> None:
    with log_of(folder).open("ab") as file:
        file.write(data)


def test_following_prints_new_output_until_interrupted(
    start: Start, folder: Path, follow: Follow
) -> None:
    start("echo ready; exec sleep 300")
    process = follow("calm-otter")
    assert line_of(process) == b"ready\n"
    append(folder, b"\x1b[1mmore\x1b[m\n")
    assert line_of(process) == b"more\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.split()) == (130, b"", [b"interrupted"])


def test_following_output_that_was_cut_or_removed(
    start: Start, folder: Path, follow: Follow
) -> None:
    record = start("echo ready; exec sleep 300", detached=True)
    process = follow("calm-otter")
    assert line_of(process) == b"ready\n"
    log_of(folder).write_bytes(b"new\n")
    assert line_of(process) == b"new\n"
    with log_of(folder).open("ab") as file:
        log_of(folder).unlink()
        file.write(b"from beyond\n")
    assert line_of(process) == b"from beyond\n"
    os.kill(record.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"")
    assert err == b"[the output was truncated; it continues from the start]\n"


def test_following_waits_for_output_to_be_there(start: Start, folder: Path, follow: Follow) -> None:
    record = start("exec sleep 300", detached=True)
    log_of(folder).unlink()
    process = follow("calm-otter", "--raw")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    log_of(folder).write_bytes(b"\x1b[1mthere\n")
    assert line_of(process) == b"\x1b[1mthere\n"
    os.kill(record.pid, signal.SIGKILL)
    assert process.wait(60) == 0


def test_output_that_no_one_takes_is_not_an_error(
    start: Start, folder: Path, follow: Follow
) -> None:
    start("yes | head -c 3000000; echo ready; exec sleep 300")
    process = follow("calm-otter", "-n", "9999999")
    assert line_of(process) == b"y\n"
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.wait(60)


async def test_all_that_a_command_of_a_running_clawkit_says_is_followed(folder: Path) -> None:
    commands = Supervisor({"gateway": lambda: LocalHost(str(folder))}, str(folder))
    text = "echo ready; read line; echo got $line; yes | head -n 99999; echo end"
    launch = Launch(text, "/", dict(os.environ), open_input=True)
    try:
        session = await commands.start("gateway", launch, "main", background=True)
        await session.wait_for_news(0, 60)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "clawkit",
            "logs",
            "-f",
            session.id,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        await session.write(b"it\n")
        out, _ = await process.communicate()
        assert out == b"got it\n" + b"y\n" * 99_999 + b"end\n"
        assert process.returncode == 0
    finally:
        await commands.close()

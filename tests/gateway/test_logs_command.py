"""`clawkit gateway logs`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.gateway.test_command import BASE, clawkit

from clawkit.cli.gateway_logs import _KEEP, LogFollower, log_file
from clawkit.gateway import log as gateway_log

pytestmark = pytest.mark.usefixtures("ready")


def entry(text: str, level: str = "info") -> str:
    fields = {
        "time": "2026-01-02T03:04:05.678Z",
        "level": level,
        "subsystem": "clawkit.gateway.server",
        "message": text,
    }
    return json.dumps(fields) + "\n"


def write(*texts: str, suffix: str = "") -> Path:
    path = Path(log_file() + suffix)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(texts)
    return path


@contextmanager
def following(*args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*BASE, "logs", "-f", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_last_lines_are_shown_for_people_and_for_programs() -> None:
    write(*(entry(f"old {number}") for number in range(3)), suffix=".1")
    write(entry("one"), entry("two\nlines \x1b[31m", "warning"), "not JSON\n", entry("cut")[:20])
    assert clawkit("logs", "-n", "2").stdout.splitlines() == [
        "2026-01-02T03:04:05.678Z warning gateway.server: two",
        "    lines \\u{1b}[31m",
        "not JSON",
    ]
    found = [json.loads(line) for line in clawkit("logs", "-n", "4", "--json").stdout.splitlines()]
    assert [each["message"] for each in found] == [
        "old 2",
        "one",
        "two\nlines \x1b[31m",
        "not JSON",
    ]
    assert found[1]["level"] == "info"
    assert clawkit("logs", "-n", "0").stdout == ""
    assert len(clawkit("logs").stdout.splitlines()) == 7


def test_a_missing_log_is_an_error_that_names_the_next_command() -> None:
    none = clawkit("logs")
    assert none.returncode == 1
    assert "clawkit gateway start" in none.stderr


def test_new_lines_are_followed_also_into_a_new_file() -> None:
    with following("--json", "-n", "1") as process:
        assert process.stdout is not None

        def read() -> str:
            assert process.stdout is not None
            return str(json.loads(process.stdout.readline())["message"])

        path = write(entry("first"))
        assert read() == "first"
        half = entry("second")
        write(half[:10])
        write(half[10:])
        assert read() == "second"
        os.rename(path, f"{path}.1")
        write(entry("third"))
        assert read() == "third"
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 130


def test_a_follower_loses_no_line_at_a_rotation() -> None:
    path = write(entry("a"))
    follower = LogFollower(str(path))
    assert len(list(follower.read())) == 1
    write(entry("b"))
    os.rename(path, f"{path}.1")
    write(entry("c"))
    assert [json.loads(line)["message"] for line in follower.read()] == ["b", "c"]
    os.truncate(path, 0)
    assert list(follower.read()) == []
    write(entry("d"))
    assert [json.loads(line)["message"] for line in follower.read()] == ["d"]
    follower.close()


def test_the_command_reads_what_the_gateway_writes() -> None:
    assert os.path.basename(log_file()) == gateway_log.NAME
    assert _KEEP == gateway_log.KEEP


def test_the_command_imports_no_library_of_the_server() -> None:
    code = (
        "import sys; import clawkit.cli.gateway_logs, clawkit.cli.gateway_service,"
        " clawkit.gateway.daemon, clawkit.gateway.service_file;"
        "names = ('starlette', 'uvicorn', 'websockets', 'cryptography');"
        "print([name for name in names if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

"""The log of decisions, written by several processes and read from its end."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals import audit
from clawkit.approvals.audit import KEPT, MAX_LINE, Audit, AuditRecord, read, was_asked
from clawkit.errors import ClawkitError, ToolAuthorizationError
from clawkit.redact import Redactor

SECRET = "correct-horse-battery"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "logs" / "exec-approvals.jsonl"


def record(**fields: Any) -> dict[str, Any]:
    return {
        "verdict": "allow",
        "code": "allowlist",
        "rules": ["/usr/bin/git (allowlist)"],
        "actor": "policy",
        "agent": "main",
        "session": "main",
        "host": "gateway",
        "cwd": "/work",
        "command": "git status",
        "programs": [{"resolved": "/usr/bin/git", "argv": ["git", "status"], "code": ""}],
        "security": "allowlist",
        "ask": "on-miss",
        "reason": "every part is allowed",
        **fields,
    }


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def commands(file: Path, limit: int = 100, since: str = "") -> list[str]:
    return [each["command"] for each in read(str(file), limit, since)]


def fill(file: Path, *names: str, **fields: Any) -> None:
    log = Audit(str(file))
    try:
        for name in names:
            log.write(record(command=name, **fields))
    finally:
        log.close()


def refuse(file: Path, name: str = "a") -> str:
    """The error when a record cannot be written."""
    with pytest.raises(ToolAuthorizationError) as refusal:
        fill(file, name)
    assert refusal.value.reason == "audit"
    said = str(refusal.value)
    assert said.startswith(f"the approvals log {file} cannot be written: ")
    assert "Nothing was run" in said
    return said


def test_a_record_is_one_line_with_its_time(file: Path) -> None:
    Audit(str(file)).write(record(approvalId="abc", extent=None, unknown=1))
    (found,) = lines(file)
    at = found.pop("at")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at)
    assert found == record(approvalId="abc")
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_an_empty_record_is_also_a_line(file: Path) -> None:
    Audit(str(file)).write({"unknown": 1})
    assert [*lines(file)[0]] == ["at"]


def test_the_time_can_be_given(file: Path) -> None:
    Audit(str(file)).write({"at": "2026-01-31T12:00:00.000Z", "verdict": "ask"})
    assert file.read_bytes() == b'{"at":"2026-01-31T12:00:00.000Z","verdict":"ask"}\n'


def test_records_are_appended_and_kept_to_the_owner(file: Path) -> None:
    fill(file, "a")
    file.chmod(0o644)
    fill(file, "b")
    assert [each["command"] for each in lines(file)] == ["a", "b"]
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "fields",
    [
        {"command": f"mysql --password {SECRET} -u me"},
        {"command": f"echo {SECRET}"},
        {"reason": f"TOKEN={SECRET} is set"},
        {"cwd": f"/srv/{SECRET}"},
        {"rules": [f"curl -u me:{SECRET} https://example.org"]},
        {"programs": [{"resolved": "/bin/mysql", "argv": ["mysql", "--password", SECRET]}]},
        {"programs": [{"resolved": "/bin/sshpass", "argv": ["sshpass", "-p", "a b'c" + SECRET]}]},
        {
            "programs": [
                {"resolved": "/bin/curl", "argv": ["curl", "-H", f"Authorization: Bearer {SECRET}"]}
            ]
        },
    ],
)
def test_secrets_are_masked(file: Path, fields: dict[str, Any]) -> None:
    Audit(str(file), Redactor([SECRET])).write(record(**fields))
    assert SECRET not in file.read_text(encoding="utf-8")
    assert len(lines(file)) == 1


def test_secrets_of_a_known_shape_are_masked_without_a_redactor(file: Path) -> None:
    programs = [{"resolved": "/bin/x", "argv": ["x", "--api-key", "'" + SECRET]}]
    Audit(str(file)).write(record(command=f"x --api-key {SECRET}", programs=programs))
    (found,) = lines(file)
    assert found["command"] == "x --api-key correc…tery"
    assert found["programs"][0]["argv"][:2] == ["x", "--api-key"]
    assert SECRET not in json.dumps(found)


def test_masked_arguments_without_clear_borders_are_joined(file: Path) -> None:
    class Blunt(Redactor):
        def strict(self, text: str) -> str:
            return text.replace(" ", "")

    programs = [{"resolved": "/bin/x", "argv": ["x", "a b", ""]}, {"resolved": "", "argv": []}]
    Audit(str(file), Blunt()).write(record(programs=programs))
    assert [each["argv"] for each in lines(file)[0]["programs"]] == [["x", "xa_b_"], [""]]


def test_arguments_without_a_secret_stay_as_they_are(file: Path) -> None:
    argv = ["x", "", "a b", "'", '"', "\n", "--flag", "", "ü*?"]
    Audit(str(file)).write(record(programs=[{"resolved": "/x", "argv": argv}]))
    assert lines(file)[0]["programs"][0]["argv"] == argv


@pytest.mark.parametrize(
    "text", ["a\nb", "\r\n\x00\x1b[2J", "\u2028\u202e\u200b", "\ud800", '{"at":"x"}\n']
)
def test_no_text_breaks_a_line(file: Path, text: str) -> None:
    Audit(str(file)).write(record(command=text, programs=[{"resolved": text, "argv": [text]}]))
    fill(file, "next")
    assert file.read_bytes().isascii()
    assert commands(file) == [text, "next"]


LONG: list[dict[str, Any]] = [
    {"command": "x" * 1_000_000},
    {"command": "\U0001f600" * 100_000},
    {"rules": ["miss: x"] * 100_000},
    {"rules": ["\u202e" * 20_000] * 1_000},
    {
        "programs": [
            {"resolved": "/x" * 9_000, "argv": ["a" * 50] * 5_000, "code": "miss", "wrapper": True}
        ]
        * 99
    },
    {name: "\U0001f600" * 20_000 for name in record() if name not in ("rules", "programs")},
    {"at": "9" * 100_000},
]


@pytest.mark.parametrize("fields", LONG)
def test_a_line_is_never_too_long(file: Path, fields: dict[str, Any]) -> None:
    Audit(str(file)).write(record(**fields))
    data = file.read_bytes()
    assert len(data) <= MAX_LINE
    (found,) = read(str(file))
    assert found["cut"] is True
    assert set(record()) <= set(found)


def test_a_cut_text_states_how_much_is_missing(file: Path) -> None:
    Audit(str(file)).write(record(command="y" * 5_000))
    Audit(str(file)).write(record(command="x" * 20_000))
    whole, cut = read(str(file))
    assert whole["command"] == "y" * 5_000
    assert "cut" not in whole
    assert cut["command"] == "x" * 4_096 + "… (15,904 more characters)"
    assert cut["reason"] == "every part is allowed"


def test_a_secret_at_the_cut_is_masked(file: Path) -> None:
    Audit(str(file), Redactor([SECRET])).write(record(command="x" * 4_090 + SECRET + "y" * 20_000))
    assert SECRET[:6] + "…" in next(read(str(file)))["command"]
    assert SECRET[:8] not in file.read_text(encoding="utf-8")


def test_a_record_that_cannot_be_written_is_an_error_with_file_and_reason(
    file: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    file.parent.mkdir(0o700, parents=True)
    places: list[tuple[Any, str]] = [
        (lambda: file.symlink_to(target), "(ELOOP)"),
        (lambda: os.mkfifo(file), "(ENXIO)"),
        (lambda: file.mkdir(), "(EISDIR)"),
        (lambda: file.symlink_to("/dev/full"), "(ELOOP)"),
    ]
    for place, code in places:
        place()
        assert code in refuse(file)
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        else:
            file.unlink()
    file.parent.chmod(0o777)
    assert "can be written by others" in refuse(file)
    assert not file.exists()
    assert target.read_bytes() == b"kept"


def test_a_refusal_that_cannot_be_written_is_only_a_warning(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.mkdir(0o700, parents=True)
    fill(file, "a", verdict="deny")
    assert f"the approvals log {file} cannot be written: Is a directory (EISDIR)" in caplog.text


def test_a_file_in_place_of_the_directory_is_an_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"")
    assert "(ENOTDIR)" in refuse(file)


def test_a_log_removed_or_moved_while_open_is_created_again(file: Path) -> None:
    log = Audit(str(file))
    log.write(record(command="a"))
    file.unlink()
    log.write(record(command="b"))
    assert commands(file) == ["b"]
    file.rename(f"{file}.1")
    log.write(record(command="c"))
    assert [each["command"] for each in lines(file)] == ["c"]
    assert commands(file) == ["b", "c"]
    os.rename(file.parent, file.parent.with_name("elsewhere"))
    log.write(record(command="d"))
    assert commands(file) == ["d"]
    log.close()
    log.write(record(command="e"))
    assert commands(file) == ["d", "e"]
    log.close()


def test_an_open_log_is_kept_to_the_owner(file: Path) -> None:
    log = Audit(str(file))
    log.write(record())
    file.chmod(0o666)
    log.write(record())
    assert file.stat().st_mode & 0o777 == 0o600
    log.close()


def test_threads_write_whole_lines_through_every_rotation(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_FILE", 30_000)
    log, failures = Audit(str(file)), []

    def work(start: int) -> None:
        try:
            for number in range(50):
                log.write(record(command=f"{start} {number}"))
        except Exception as error:  # noqa: BLE001  # a thread's root: reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert failures == []
    assert sorted(commands(file, 1_000)) == sorted(f"{a} {b}" for a in range(4) for b in range(50))


def test_a_pipe_is_not_written_to(file: Path) -> None:
    file.parent.mkdir(0o700, parents=True)
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "not a regular file" in refuse(file)
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


def test_a_full_disk_is_reported_and_the_next_record_is_found(file: Path) -> None:
    fill(file, "first")
    room = file.stat().st_size + 40
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        assert "only part of a line was written (ENOSPC)" in refuse(file, "second")
        assert "File too large (EFBIG)" in refuse(file, "third")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.stat().st_size == room
    fill(file, "fourth", "fifth")
    assert commands(file) == ["first", "fourth", "fifth"]


def test_processes_do_not_mix_their_lines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys\n"
        "from clawkit.approvals import audit\n"
        "audit.MAX_FILE = 1_000_000\n"
        "sys.stdin.readline()\n"
        "log = audit.Audit(sys.argv[1])\n"
        "for number in range(300):\n"
        "    log.write({'command': f'{sys.argv[2]} {number} ' + 'x' * (number * 13 % 3_000)})\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(file), str(number)], stdin=subprocess.PIPE
        )
        for number in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
    assert [child.wait(50) for child in children] == [0] * 4
    found = [each.split()[:2] for each in commands(file, 10_000)]
    assert len(found) == 4 * 300
    for number in range(4):
        mine = [int(each[1]) for each in found if each[0] == str(number)]
        assert sorted(mine) == list(range(300))
    assert Path(f"{file}.1").exists()


def test_a_full_file_is_moved_aside_and_three_are_kept(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_FILE", 1_000)
    fill(file, "first")
    per_file = 1_000 // file.stat().st_size
    names = ["first", *(f"c{number:03}" for number in range(per_file * (KEPT + 3)))]
    fill(file, *names[1:])
    assert sorted(os.listdir(file.parent)) == sorted(
        [
            file.name,
            f"{file.name}.lock",
            *(f"{file.name}.{number}" for number in range(1, KEPT + 1)),
        ]
    )
    assert all(path.stat().st_size <= 1_000 for path in file.parent.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in file.parent.iterdir())
    left = commands(file)
    assert left == names[-len(left) :]
    assert len(left) > per_file * KEPT
    assert commands(file, per_file + 2) == names[-per_file - 2 :]


def test_a_file_that_is_being_moved_by_others_is_written_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(file, "a")
    monkeypatch.setattr(audit, "MAX_FILE", 10)
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fill(file, "b")
    assert not Path(f"{file}.1").exists()
    assert commands(file) == ["a", "b"]


def test_only_the_file_that_was_found_full_is_moved(file: Path) -> None:
    fill(file, "a")
    info = file.stat()
    file.rename(f"{file}.1")
    fill(file, "b")
    assert audit._rotate(str(file), info)
    assert commands(file) == ["a", "b"]
    file.unlink()
    assert not audit._rotate(str(file), info)


def test_without_a_log_there_is_nothing_to_read(file: Path) -> None:
    assert list(read(str(file))) == []
    fill(file, "a")
    assert list(read(str(file), 0)) == []


def test_the_last_records_come_newest_last(file: Path) -> None:
    fill(file, *(f"c{number}" for number in range(2_000)))
    assert commands(file, 3) == ["c1997", "c1998", "c1999"]
    assert commands(file, 10_000) == [f"c{number}" for number in range(2_000)]


def test_records_before_a_time_are_left_out(file: Path) -> None:
    log = Audit(str(file))
    for day in range(10, 20):
        log.write(record(at=f"2026-01-{day}T12:00:00.000Z", command=str(day)))
    assert commands(file, since="2026-01-17") == ["17", "18", "19"]
    assert commands(file, 2, "2026-01-17") == ["18", "19"]
    assert commands(file, since="2026-01-18T12:00:00.000Z") == ["18", "19"]
    assert commands(file, since="2027") == []


GOOD = b'{"at":"2026","command":"good"}'
BAD: list[bytes] = [
    b"",
    b"\n\n\n",
    b"not json\n",
    b"[]\n1\nnull\n",
    b"{}\n",
    b'{"at":5}\n',
    b'{"at":"2026","command":"torn',
    b"\xff\xfe\n",
    b"\x00" * 5_000 + b"\n",
    b"[" * 50_000 + b"\n",
    b"x" * 1_000_000 + b"\n",
    b"y" * (64 * 1024) + b"\n",
    b'{"at":"2026"' * 30_000 + b"\n",
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_invalid_records_are_skipped(file: Path, bad: bytes) -> None:
    file.parent.mkdir(0o700, parents=True)
    first = b'{"at":"2025","command":"first"}\n'
    for data in (first + bad + GOOD + b"\n", first + bad + GOOD):
        file.write_bytes(data)
        assert commands(file) == ["first", "good"]
    file.write_bytes(first + bad)
    assert commands(file) == ["first"]
    file.write_bytes(bad)
    assert commands(file) == []


def test_a_log_that_moves_on_while_it_is_read_is_read_once(file: Path) -> None:
    fill(file, "a", "b")
    os.link(file, f"{file}.1")
    assert commands(file) == ["a", "b"]


@pytest.mark.parametrize("name", ["exec-approvals.jsonl", "exec-approvals.jsonl.2"])
def test_a_log_that_is_a_link_is_not_read(file: Path, tmp_path: Path, name: str) -> None:
    file.parent.mkdir(0o700, parents=True)
    (tmp_path / "other").write_bytes(GOOD)
    (file.parent / name).symlink_to(tmp_path / "other")
    with pytest.raises(ClawkitError, match=f"{name} cannot be read: "):
        read(str(file))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_log_of_another_user_is_not_read(file: Path) -> None:
    fill(file, "a")
    os.chown(file, 65534, -1)
    with pytest.raises(ClawkitError, match="cannot be read: belongs to another user"):
        read(str(file))


def test_no_handle_is_left_open(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(audit, "MAX_FILE", 600)
    fill(file, *"abcdef")
    assert commands(file, 2) == ["e", "f"]
    file.unlink()
    file.mkdir()
    refuse(file)
    assert len(os.listdir("/proc/self/fd")) <= before


@table(
    ("actor", "expected"),
    [
        ("policy", False),
        ("askFallback, because no one can be asked here", False),
        ("", False),
        (None, False),
        (5, False),
        ("the terminal", True),
    ],
)
def test_an_answer_records_whether_a_person_gave_it(actor: Any, expected: bool) -> None:
    assert was_asked({"actor": actor}) is expected


def test_a_record_may_be_typed(file: Path) -> None:
    typed: AuditRecord = {"verdict": "deny", "programs": [{"resolved": "", "argv": ["x"]}]}
    Audit(str(file)).write(typed)
    assert next(read(str(file)))["programs"] == typed["programs"]

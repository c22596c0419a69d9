"""`clawkit approvals`: what waits for an answer, the document, the log, and end to end."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.asking import PROGRAM
from tests.lacking import lack
from tests.test_corpus import CASES

from clawkit.approvals.audit import Audit
from clawkit.approvals.broker import PendingStore
from clawkit.approvals.file import read_document
from clawkit.cli.main import run
from clawkit.config.paths import approvals_file, audit_file, waiting_file
from clawkit.core.approval import Lasting, Question
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch

MINUTE_MS = 60_000
LASTING = (Lasting("subcommand", "/usr/bin/git, only log"), Lasting("program", "/usr/bin/git"))


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Clawkit = Callable[..., Done]
Ask = Callable[..., str]


@pytest.fixture
def clawkit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Clawkit:
    def type_in(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as end:
            run(["approvals", *args])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert "bug" not in shown.err
        return Done(end.value.code or 0 if isinstance(end.value.code, int) else 0, *shown)

    return type_in


@pytest.fixture
def waiting() -> PendingStore:
    return PendingStore(waiting_file(os.environ))


@pytest.fixture
def ask(waiting: PendingStore) -> Ask:
    """Put a question; its id."""

    def put(command: str = "git log", *, expired: bool = False, **fields: Any) -> str:
        now = round(time.time() * 1000)
        known = {"description": "git is not on the allowlist", "cwd": "/w", "lasting": LASTING}
        question = Question("exec", {}, f"run: {command}", command=command, **{**known, **fields})
        at, lasts = (now - MINUTE_MS, 1) if expired else (now, MINUTE_MS)
        return waiting.add(question, {}, at, lasts).id

    return put


def test_with_nothing_pending_no_file_is_created(clawkit: Clawkit) -> None:
    assert clawkit("pending").err == "No requests are pending.\n"
    assert clawkit("pending", "--json").json == []
    assert not os.path.exists(waiting_file(os.environ))


def test_pending_questions_are_shown_with_the_command_that_answers(
    clawkit: Clawkit, ask: Ask
) -> None:
    id_ = ask("git log\u202e", host="gateway")
    done = clawkit("pending")
    assert done.code == 0
    head, *rows = done.out.split("\n")
    assert head.startswith(f"{id_[:8]}  ")
    assert head.endswith(" left")
    assert "    | git log\\u{202e}" in rows
    assert "    where: /w" in rows
    assert "    why: git is not on the allowlist" in rows
    assert "    always (program): /usr/bin/git" in rows
    assert f"  Answer: clawkit approvals resolve {id_[:8]} allow-once|allow-always|deny" in rows
    assert "\u202e" not in done.out


def test_pending_questions_as_json(clawkit: Clawkit, ask: Ask) -> None:
    ask(expired=True)
    id_ = ask(lasting=())
    (row,) = clawkit("pending", "--json").json
    assert (row["id"], row["slug"], row["command"], row["cwd"]) == (id_, id_[:8], "git log", "/w")
    assert row["always"] == []
    assert row["orphaned"] is False
    assert 0 < row["expiresInMs"] <= MINUTE_MS
    assert "allow-once|deny" in clawkit("pending").out


def test_an_answer_is_recorded_with_its_reason_and_its_author(
    clawkit: Clawkit, ask: Ask, waiting: PendingStore
) -> None:
    id_ = ask()
    done = clawkit("resolve", id_[:6], "deny", "--reason", "use git show")
    assert (done.code, done.err) == (0, f"{id_[:8]}: deny\n")
    answer = waiting.answer(id_)
    assert answer is not None
    assert (answer.verdict, answer.reason) == ("deny", "use git show")
    assert answer.by.endswith(" at the command line")
    assert clawkit("pending", "--json").json == []


@pytest.mark.parametrize(
    ("options", "extent"), [([], "subcommand"), (["--extent", "program"], "program")]
)
def test_always_uses_the_narrowest_rule_by_default(
    clawkit: Clawkit, ask: Ask, waiting: PendingStore, options: list[str], extent: str
) -> None:
    id_ = ask()
    done = clawkit("resolve", id_, "allow-always", *options, "--json")
    assert done.json == {"id": id_, "decision": "allow-always", "extent": extent, "reason": ""}
    answer = waiting.answer(id_)
    assert answer is not None
    assert (answer.verdict, answer.extent) == ("allow", extent)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["0000", "deny"], "unknown request '0000'; list them with: clawkit approvals pending"),
        (["xyz", "deny"], "invalid request id 'xyz'"),
        (["ID", "allow-always", "--extent", "exact"], "'exact' was not offered, only 'subcommand'"),
    ],
)
def test_answers_that_cannot_be_given(
    clawkit: Clawkit, ask: Ask, args: list[str], said: str
) -> None:
    id_ = ask()
    done = clawkit("resolve", *(id_ if each == "ID" else each for each in args))
    assert done.code == 2
    assert said in done.err
    assert len(clawkit("pending", "--json").json) == 1


def test_always_is_refused_where_only_once_was_offered(clawkit: Clawkit, ask: Ask) -> None:
    done = clawkit("resolve", ask(lasting=()), "allow-always")
    assert done.code == 2
    assert "only a one-time approval was offered" in done.err


def test_a_late_answer_is_refused_with_the_reason(clawkit: Clawkit, ask: Ask) -> None:
    id_, late = ask(), ask(expired=True)
    assert clawkit("resolve", id_, "allow-once").code == 0
    again = clawkit("resolve", id_, "deny")
    assert again.code == 1
    assert "was already answered: allow-once by" in again.err
    gone = clawkit("resolve", late, "allow-once")
    assert gone.code == 1
    assert "expired" in gone.err


def test_a_beginning_that_fits_several_names_them(
    clawkit: Clawkit, ask: Ask, waiting: PendingStore
) -> None:
    import apsw

    ask(), ask()
    waiting.close()
    db = apsw.Connection(waiting.path)
    db.execute("UPDATE question SET id = 'abcd' || substr(id, 5)")
    db.close()
    done = clawkit("resolve", "abcd", "deny")
    assert done.code == 2
    assert "'abcd' matches more than one request: abcd" in done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["0000"], "Missing argument"),
        (["0000", "maybe"], "'maybe' is not one of 'allow-once', 'allow-always', 'deny'"),
        (["0000", "deny", "--extent", "exact"], "--extent requires allow-always"),
    ],
)
def test_wrong_usage_of_resolve(clawkit: Clawkit, args: list[str], said: str) -> None:
    done = clawkit("resolve", *args)
    assert done.code == 2
    assert said in done.err


def test_an_approval_that_no_call_waits_for_is_reported(
    clawkit: Clawkit, workspace: Path, ask: Ask
) -> None:
    code = (
        "import os, time\n"
        "from clawkit.approvals.broker import PendingStore\n"
        "from clawkit.core.approval import Question\n"
        "from clawkit.config.paths import waiting_file\n"
        "question = Question('exec', {}, 'run: ls', command='ls')\n"
        "added = PendingStore(waiting_file(os.environ)).add(question, {}, "
        "round(time.time() * 1000), 60_000)\n"
        "print(added.id)"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    id_ = asked.stdout.strip()
    assert "the process that asked has exited" in clawkit("pending").out
    assert "so nothing will run" in clawkit("resolve", id_, "allow-once").err


def test_the_document_is_shown_without_its_token_and_replaced(
    clawkit: Clawkit, tmp_path: Path
) -> None:
    assert "does not exist yet, so only the configuration applies" in clawkit("get").err
    path = approvals_file(os.environ)
    first = {"version": 1, "socket": {"path": "/tmp/x", "token": "t" * 32}}
    assert clawkit("set", "--file", "-", stdin=json.dumps(first).encode()).code == 0
    shown = clawkit("get", "--json").json
    assert shown["path"] == path
    assert "t" * 32 not in json.dumps(shown)
    plain = clawkit("get")
    assert plain.err == f"{path}, revision {shown['revision']}\n"
    file = tmp_path / "new.json"
    file.write_text(json.dumps({**json.loads(plain.out), "defaults": {"security": "deny"}}))
    done = clawkit("set", "--file", str(file), "--base", shown["revision"], "--json")
    assert done.json == {"path": path, "revision": read_document(path).revision}
    assert read_document(path).token == "t" * 32
    late = clawkit("set", "--file", str(file), "--base", shown["revision"])
    assert late.code == 1
    assert "another process has changed it" in late.err


@pytest.mark.parametrize(
    ("args", "stdin", "code", "said"),
    [
        ([], b"", 2, "name the file"),
        (["--file", "/nope"], b"", 2, "cannot read '/nope': No such file"),
        (["--file", "-"], b"\xff", 2, "cannot read '-': it is not UTF-8"),
        (["--file", "-"], b"{", 2, "exec-approvals.json"),
        (["--file", "-"], b"[]", 2, "exec-approvals.json"),
        (["--file", "-"], b'{"version": 1, "defaults": {"security": "some"}}', 2, "some"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused(
    clawkit: Clawkit, args: list[str], stdin: bytes, code: int, said: str
) -> None:
    done = clawkit("set", *args, stdin=stdin)
    assert done.code == code
    assert said in done.err
    assert not os.path.exists(approvals_file(os.environ))


def record(command: str, **fields: Any) -> Mapping[str, Any]:
    argv = shlex.split(command)
    fact = {"resolved": f"/usr/bin/{argv[0]}", "argv": argv, "code": "miss", "wrapper": False}
    known = {"verdict": "allow", "code": "miss", "actor": "ann", "agent": "main"}
    return {**known, "command": command, "programs": [fact], "reason": "not listed", **fields}


def test_the_log_shows_decisions_with_author_and_reason(clawkit: Clawkit) -> None:
    assert clawkit("log").err == "No decisions recorded yet.\n"
    audit = Audit(audit_file(os.environ))
    audit.write(record("ls \u202ea\nb", extent="exact", at="2026-01-31T12:00:00.000Z"))
    audit.write(record("rm x", verdict="deny", why="denied by a person"))
    done = clawkit("log")
    assert done.out.split("\n")[:2] == [
        "2026-01-31 12:00:00 UTC  allow  ls \\u{202e}a b",
        "    ann, always (exact): not listed",
    ]
    assert "deny   rm x\n    ann: denied by a person\n" in done.out
    (last,) = clawkit("log", "--limit", "1", "--json").json
    assert last["command"] == "rm x"


@pytest.mark.usefixtures("on_host")
def test_rules_that_would_have_saved_questions_are_proposed(
    clawkit: Clawkit, workspace: Path
) -> None:
    assert clawkit("suggest").err == "No command was approved often enough to suggest an entry.\n"
    audit = Audit(audit_file(os.environ))
    for name in ("a.txt", "a.txt", "src/main.py"):
        audit.write(record(f"touch {name}", cwd=str(workspace)))
    done = clawkit("suggest")
    assert done.out.startswith("3 requests, such as: touch src/main.py\n")
    (each,) = clawkit("suggest", "--json").json
    assert (each["count"], each["pattern"], each["note"]) == (3, "/usr/bin/touch", "")
    assert f"  {each['words']}\n" in done.out
    # What it says to type is what it takes.
    assert clawkit("check", "touch a.txt", "--cwd", str(workspace)).code == 3
    assert clawkit(*shlex.split(each["words"])[2:]).code == 0
    assert clawkit("check", "touch a.txt", "--cwd", str(workspace)).code == 0


def test_a_preset_is_proposed_where_it_would_do(clawkit: Clawkit, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    audit = Audit(audit_file(os.environ))
    for command in ("git status", "git status -s"):
        audit.write(record(command, cwd=str(workspace)))
    (each,) = clawkit("suggest", "--json").json
    assert (each["pattern"], each["args"]) == ("/usr/bin/git", "git-read")


def test_what_runs_files_of_the_project_is_proposed_with_a_remark(
    clawkit: Clawkit, workspace: Path
) -> None:
    if not os.access("/usr/bin/make", os.X_OK):
        lack("make is not installed")
    for _ in range(2):
        Audit(audit_file(os.environ)).write(record("make test", cwd=str(workspace)))
    assert "  But: it runs code from the project's files.\n" in clawkit("suggest").out


def test_watching_needs_a_terminal(clawkit: Clawkit) -> None:
    done = clawkit("watch")
    assert done.code == 2
    assert "watch needs a terminal" in done.err


CHANGES = (
    "resolve 3f2a deny",
    "set --file -",
    "allowlist add ls",
    "allowlist remove ls",
    "watch",
)


async def test_commands_of_agents_cannot_answer_for_a_person(
    workspace: Path, tmp_path: Path, ask: Ask
) -> None:
    ask()
    me = f"{shlex.quote(sys.executable)} -m clawkit approvals"
    lines = [f"{me} {each} </dev/null; echo code $?" for each in CHANGES]
    # Nor when the parents in between are gone.
    lines.append(f"(setsid -w {me} allowlist add ls; echo code $?) & wait")
    lines.append(f"{me} pending --json")
    host = LocalHost(str(tmp_path / "spool"))
    running = await host.start(Launch("\n".join(lines), str(workspace), dict(os.environ)), "one")
    await running.wait()
    said = (await running.output.read(0, 100_000)).decode()
    await host.close()
    refused = said.count("a command that clawkit runs cannot change what clawkit allows")
    assert refused == said.count("code 3") == len(CHANGES) + 1, said
    assert '"command": "git log"' in said
    assert not os.path.exists(approvals_file(os.environ))


@pytest.fixture
def call(workspace: Path) -> Callable[[str], Done]:
    """Call exec without an approver."""

    def execute(command: str) -> Done:
        params = json.dumps({"command": command})
        done = subprocess.run(
            [*PROGRAM, "tools", "call", "exec", params],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=workspace,
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return execute


@pytest.mark.usefixtures("on_host")
def test_without_a_terminal_it_is_refused_with_the_rule_that_would_do(
    clawkit: Clawkit, call: Callable[[str], Done], workspace: Path
) -> None:
    refused = call("touch made")
    assert refused.code == 3
    details = refused.json["details"]
    assert (details["status"], details["deniedReason"]) == ("blocked", "approval-unavailable")
    assert not (workspace / "made").exists()
    rule = "clawkit approvals allowlist add /usr/bin/touch"
    assert rule in details["reason"]
    assert clawkit("pending", "--json").json == []
    assert clawkit(*rule.split()[2:]).code == 0
    assert call("touch made").code == 0
    assert (workspace / "made").exists()
    verdicts = [(each["verdict"], each["actor"]) for each in clawkit("log", "--json").json]
    assert verdicts == [("deny", "policy"), ("allow", "policy")]


def test_the_cases_about_the_document_end_to_end(call: Callable[[str], Done]) -> None:
    steps = CASES["approval/file-corrupt"]["input"]["steps"]
    Path(approvals_file(os.environ)).write_text(steps[0]["bytes"], encoding="utf-8")
    done = call(steps[1]["command"])
    assert done.code == 3
    assert "exec-approvals.json" in done.out

"""`clawkit sandbox`: which sandbox there is, and running commands in it."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.asking import PROGRAM
from tests.lacking import lack, needs

from clawkit.cli.main import run
from clawkit.cli.sandbox import is_meant
from clawkit.process import landlock
from clawkit.sandbox.local import probe_bwrap
from clawkit.sandbox.paths import process_dir, scope_key, slug_of
from clawkit.sandbox.protocols import Instance

BACKENDS = [
    pytest.param("bwrap", marks=needs(not probe_bwrap(), "bwrap")),
    pytest.param("landlock", marks=needs(landlock.available(), "Landlock")),
]
PATIENCE_S = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Sandbox = Callable[..., Done]


@pytest.fixture
def sandbox(
    capsys: pytest.CaptureFixture[str], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> Sandbox:
    monkeypatch.chdir(workspace)

    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["sandbox", *args])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert "bug" not in shown.err
        return Done(end.value.code or 0 if isinstance(end.value.code, int) else 0, *shown)

    return type_in


def configure(**settings: Any) -> None:
    text = json.dumps({"agents": {"defaults": {"sandbox": settings}}})
    file = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)


def start(workspace: Path, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    argv = [*PROGRAM, "sandbox", "run", *args]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(argv, cwd=workspace, stderr=subprocess.PIPE, **pipes | options)


def run_in(workspace: Path, *args: str, given: bytes = b"") -> Done:
    with start(workspace, *args) as running:
        out, err = running.communicate(given, timeout=PATIENCE_S)
    return Done(running.returncode, out.decode(), err.decode())


# explain


@pytest.mark.parametrize("backend", BACKENDS)
def test_explain_shows_the_backend_and_what_it_allows(
    sandbox: Sandbox, workspace: Path, backend: str
) -> None:
    configure(backend=backend, hidePaths=[str(workspace / "a.txt")], limits={"memoryMb": 512})
    # The machine may have keys of its own: a browser makes ~/.pki for whoever starts it.
    before = re.search(r"keys and passwords \((\d+)\)", sandbox("explain").out)
    keys = int(before[1]) if before else 0
    secret = Path(os.environ["HOME"]) / ".ssh"
    secret.mkdir()
    done = sandbox("explain", "--json")
    about = done.json["sandbox"]
    assert done.code == 0
    assert about["backend"] == backend
    assert about["available"] is True
    assert about["reason"] == "sandbox.backend names it"
    assert about["workspaceAccess"] == "rw"
    assert about["runtimeWorkdir"] == str(workspace)
    assert about["workspaceMounts"] == [
        {"source": str(workspace), "target": str(workspace), "writable": True}
    ]
    assert str(workspace) in about["writable"]
    assert {str(secret), str(workspace / "a.txt")} <= set(about["hidden"])
    assert about["limits"]["memory"] == 512 << 20
    assert bool(about["gaps"]) == (backend == "landlock")
    assert done.json["problem"] == ""
    shown = sandbox("explain")
    assert f"Sandbox: {backend}" in shown.out
    assert f"keys and passwords ({keys + 1})" in shown.out
    assert "network      none" in shown.out
    assert "memory 512 MB" in shown.out


def test_explain_reports_that_security_full_means_no_sandbox(sandbox: Sandbox) -> None:
    assert sandbox("explain", "--json").json["unconfined"] is False
    file = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    file.write_text('{tools: {exec: {security: "full"}}}', encoding="utf-8")
    file.chmod(0o600)
    assert sandbox("explain", "--json").json["unconfined"] is True
    assert sandbox("explain").out.startswith("Commands run on the host, unconfined")


def test_explain_warns_about_an_unknown_agent(sandbox: Sandbox) -> None:
    done = sandbox("explain", "--agent", "foo", "--json")
    assert done.json["warnings"]
    assert f"warning: {done.json['warnings'][0]}" in done.err


def test_explain_leaves_nothing_running(sandbox: Sandbox) -> None:
    sandbox("explain")
    assert [each["running"] for each in sandbox("list", "--json").json] in ([], [False])


def test_explain_shows_where_a_command_would_run(sandbox: Sandbox) -> None:
    done = sandbox("explain", "--json", "--", "git", "commit", "-m", "two words")
    assert done.json["command"]["command"] == "git commit -m 'two words'"
    assert done.json["command"]["verdict"] == "allow"
    assert done.json["command"]["place"] == "sandbox"
    assert "runs in the sandbox" in sandbox("explain", "ls | wc -l").out


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"backend": "openshell"}, "'openshell' is not supported"),
        ({"backend": "crabbox", "mode": "all"}, "'crabbox' is not supported"),
        ({"backend": "landlock", "network": "allowlist"}, "cannot filter by host"),
    ],
)
def test_explain_works_when_the_sandbox_cannot_be_used(
    sandbox: Sandbox, settings: dict[str, str], said: str
) -> None:
    configure(**settings)
    done = sandbox("explain", "--json")
    assert done.code == 1
    assert said in done.json["problem"]
    assert done.json["sandbox"]["available"] is False
    assert any("backend auto" in each for each in done.json["fixIt"])
    shown = sandbox("explain")
    assert shown.code == 1
    assert "No sandbox" in shown.out
    assert said in shown.out


def test_explain_shows_what_an_engine_lacks(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(mode="all", backend="docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    done = sandbox("explain")
    assert done.code == 1
    assert done.out.startswith("No sandbox: ")
    lacks = "docker does not respond" if shutil.which("docker") else "apt-get install docker.io"
    assert lacks in done.out


def test_explain_without_a_sandbox_by_choice_is_not_an_error(sandbox: Sandbox) -> None:
    configure(mode="off")
    done = sandbox("explain", "--json")
    assert done.code == 0
    assert done.json["sandbox"]["backend"] is None
    assert any("mode auto" in each for each in done.json["fixIt"])


def test_explain_names_the_keys_that_decide_about_tools(sandbox: Sandbox) -> None:
    configure(mode="all", workspaceAccess="rw")
    tools = sandbox("explain", "--json").json["sandbox"]["tools"]
    assert tools["inForce"] is True
    assert "exec" in tools["allow"]
    assert "cron" in tools["deny"]
    assert {"source": "default", "key": "tools.sandbox.tools.allow"} in tools["sources"]["allow"]
    assert "tools allow" in sandbox("explain").out


def test_explain_depends_on_the_session(sandbox: Sandbox) -> None:
    configure(mode="non-main", workspaceAccess="rw")
    assert sandbox("explain", "--json").json["sandbox"]["sessionIsSandboxed"] is False
    other = sandbox("explain", "--json", "--session", "other").json
    assert other["sessionKey"] == "other"
    assert other["sandbox"]["sessionIsSandboxed"] is True


def test_explain_shows_a_private_workspace(sandbox: Sandbox, workspace: Path) -> None:
    configure(mode="all", workspaceAccess="ro")
    done = sandbox("explain")
    assert f"{workspace} (ro)" in done.out
    assert f"{workspace} at {workspace}, read-only" in done.out


def test_explain_names_the_gates_of_elevated(sandbox: Sandbox) -> None:
    assert sandbox("explain", "--json").json["elevated"]["allowedByConfig"] is True
    closed = sandbox("explain", "--json", "--channel", "telegram", "--sender", "7").json
    assert closed["elevated"]["allowedByConfig"] is False
    assert closed["elevated"]["failures"] == [
        {"gate": "allowFrom", "key": "tools.elevated.allowFrom"}
    ]
    assert "elevated is refused" in sandbox("explain", "--channel", "telegram").out


def test_explain_lists_the_hosts_of_the_network(sandbox: Sandbox) -> None:
    if probe_bwrap():
        lack("bwrap does not work here")
    configure(network="allowlist", allowHosts=["example.org", "packages"])
    done = sandbox("explain")
    assert "example.org, packages (" in done.out


# run


@pytest.mark.parametrize("backend", BACKENDS)
def test_run_shows_output_and_has_the_exit_code(workspace: Path, backend: str) -> None:
    configure(backend=backend)
    (Path(os.environ["HOME"]) / ".ssh").mkdir()
    (Path(os.environ["HOME"]) / ".ssh" / "id").write_text("secret")
    done = run_in(workspace, "cat; pwd; cat ~/.ssh/id; exit 7", given=b"typed\n")
    assert done.code == 7
    assert done.out.startswith(f"typed\n{workspace}\n")
    assert "secret" not in done.out


def test_run_takes_several_words_as_a_program(workspace: Path) -> None:
    done = run_in(workspace, "--", "printf", "%s.", "a b", "$HOME")
    assert done == Done(0, "a b.$HOME.", "")


def test_run_tells_which_signal_ended_it(workspace: Path) -> None:
    assert run_in(workspace, "kill -9 $$").code == 128 + 9


def test_run_passes_a_large_input_through(workspace: Path) -> None:
    data = os.urandom(3_000_000)
    with start(workspace, "cat") as running:
        out, _ = running.communicate(data, timeout=PATIENCE_S)
    assert out == data
    assert running.returncode == 0


def test_run_reports_that_the_network_was_refused(workspace: Path) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 9), 5)"
    done = run_in(workspace, "--network", "none", "--", sys.executable, "-c", connect)
    assert done.code == 1
    assert "refused network access" in done.err


def test_run_grants_the_network_that_is_asked_for(workspace: Path) -> None:
    connect = "import socket; socket.socket().close(); print('made')"
    done = run_in(workspace, "--network", "full", "--", sys.executable, "-c", connect)
    assert done == Done(0, "made\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_all_it_started(workspace: Path, number: int) -> None:
    mark = f"{98_000 + os.getpid() % 1000}.{number}"
    with start(workspace, f"sleep {mark} & echo ready; trap '' INT TERM; sleep {mark}") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(number)
        assert running.wait(PATIENCE_S) == 128 + number
    assert not [name for name in _command_lines() if f"sleep\0{mark}" in name]


def _command_lines() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


def test_run_without_a_sandbox_is_refused(sandbox: Sandbox) -> None:
    configure(backend="openshell")
    done = sandbox("run", "--", "true")
    assert done.code == 1
    assert "'openshell' is not supported" in done.err
    configure(mode="off")
    assert "no sandbox is available: sandbox.mode is 'off'" in sandbox("run", "true").err


@pytest.mark.parametrize("args", [(), ("",), (" ",), ("--", "")])
def test_run_needs_a_command(sandbox: Sandbox, args: tuple[str, ...]) -> None:
    done = sandbox("run", *args)
    assert done.code == 2
    assert not args or "the command is empty" in done.err


# list and recreate


def make_instance(scope: str) -> Path:
    root = Path(os.environ["CLAWKIT_HOME"]) / "sandboxes" / slug_of(scope)
    (root / "cache").mkdir(parents=True)
    (root / "created").touch()
    return root


def test_sandboxes_are_listed(sandbox: Sandbox) -> None:
    assert "No sandbox exists yet" in sandbox("list").err
    assert sandbox("list", "--json").json == []
    root = make_instance("agent:main:workspace:00")
    row = sandbox("list", "--json").json[0]
    assert row["name"] == root.name
    assert row["running"] is False
    assert abs(row["createdAtMs"] / 1000 - time.time()) < 3600
    shown = sandbox("list").out
    assert root.name in shown
    assert "idle" in shown


def test_sandboxes_are_removed_by_name_session_agent_or_all(sandbox: Sandbox) -> None:
    keys = ["agent:main:workspace:0", "agent:other:workspace:0", "chat:workspace:0", "shared"]
    roots = [make_instance(key) for key in keys]
    assert sandbox("recreate", "--agent", "other", "--json", "-y").json == {
        "removed": [roots[1].name],
        "notRemoved": {},
    }
    assert sandbox("recreate", "--session", "chat", "--yes").out == "Removed 1 sandbox.\n"
    assert sandbox("recreate", roots[3].name, "--yes").code == 0
    assert [root.exists() for root in roots] == [True, False, False, False]
    assert sandbox("recreate", "--all", "--force").code == 0
    assert not roots[0].exists()
    assert sandbox("recreate", "--all").out == "Removed 0 sandboxes.\n"


@pytest.mark.parametrize("kind", ["agent", "session"])
def test_a_session_or_agent_without_a_sandbox_is_an_error(sandbox: Sandbox, kind: str) -> None:
    root = make_instance("agent:main:workspace:0")
    done = sandbox("recreate", f"--{kind}", "nope", "--force")
    assert done.code == 2
    assert f"the {kind} 'nope' has no sandbox" in done.err
    assert done.out == ""
    assert root.exists()


@pytest.mark.parametrize(
    ("typed", "code", "said"), [(b"n\n", 3, b"nothing was removed"), (b"y\n", 0, b"Removed 1")]
)
def test_a_person_is_asked_before_sandboxes_are_removed(
    workspace: Path, typed: bytes, code: int, said: bytes
) -> None:
    root = make_instance("agent:main:workspace:0")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed)
        argv = [*PROGRAM, "sandbox", "recreate", "--all"]
        done = subprocess.run(
            argv,
            cwd=workspace,
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
        )
        shown = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code
    assert b"Remove 1 sandbox with its files?" in shown
    assert said in done.stdout + shown
    assert b"interrupted" not in shown
    assert root.exists() == (code == 3)


def test_without_a_terminal_sandboxes_are_not_removed_unasked(sandbox: Sandbox) -> None:
    root = make_instance("agent:main:workspace:0")
    done = sandbox("recreate", "--all")
    assert done.code == 2
    assert "there is no terminal to confirm on, so nothing was removed; add --yes" in done.err
    assert root.exists()


def test_a_sandbox_in_use_is_not_removed(sandbox: Sandbox) -> None:
    root = make_instance("agent:main:workspace:0")
    os.mkdir(process_dir(str(root)))
    done = sandbox("recreate", "--all", "--yes")
    assert done.code == 1
    assert "is in use" in done.err
    assert root.exists()
    assert "in use" in sandbox("list").out


@pytest.mark.parametrize(
    "args", [(), ("--all", "--agent", "a"), ("x", "--all"), ("nope",), ("../x",), ("",)]
)
def test_remove_needs_exactly_one_existing_target(sandbox: Sandbox, args: tuple[str, ...]) -> None:
    assert sandbox("recreate", *args).code == 2


def test_a_sandbox_belongs_to_its_session_or_agent_alone() -> None:
    def instance(scope: str) -> Instance:
        return Instance(slug_of(scope), "local", slug_of(scope), 0, 0, False)

    agent = scope_key("agent", agent="main", session="s", workspace="/x")
    assert is_meant(instance(agent), name=None, agent="main")
    assert not is_meant(instance(agent), name=None, agent="mai")
    assert not is_meant(instance(agent), name=None, session="main")
    long = "agent:main:a-very-long-session-key-indeed"
    session = scope_key("session", agent="main", session=long, workspace="/x")
    assert is_meant(instance(session), name=None, session=long)
    assert not is_meant(instance("shared"), name=None, session="shared-with")
    named = Instance("c-1", "docker", "agent:a:workspace:0", 0, 0, False)
    assert is_meant(named, name=None, agent="a")


def test_an_unreachable_backend_is_reported(sandbox: Sandbox) -> None:
    configure(mode="all", backend="ssh")
    done = sandbox("list", "--json")
    assert done.json == []
    assert "cannot list sandboxes of the backend 'ssh'" in done.err


@pytest.mark.parametrize("args", [("recreate", "--all"), ("run", "--network", "full", "true")])
def test_a_command_of_an_agent_cannot_widen_or_remove(
    sandbox: Sandbox, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawkit.process import process_table

    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    done = sandbox(*args)
    assert done.code == 3
    assert "a command that clawkit runs cannot" in done.err

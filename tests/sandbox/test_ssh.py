"""The ssh sandbox against a real server."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import PATIENCE_S, alive, children, new_marker, until
from tests.sandbox.patient import open_patient_kit
from tests.sandbox.ssh_ground import open_ssh
from tests.sandbox.sshd import Server, sshd
from tests.tables import table

from clawkit.config.sections.sandbox import Ssh
from clawkit.content import Text
from clawkit.errors import ProtectedError, ToolError, ToolInputError
from clawkit.fs.protected_files import Protection
from clawkit.fs.protocols import Change, read_all
from clawkit.process.landlock import Hold
from clawkit.process.protocols import Exit, Launch
from clawkit.sandbox.paths import portable
from clawkit.sandbox.protocols import Sandbox, SandboxUnavailableError, prune
from clawkit.sandbox.ssh import SshSandbox
from clawkit.sandbox.ssh_connection import parse_target, write_config
from clawkit.sandbox.tree_removal import remove_tree

__all__ = ["sshd"]
_numbers = itertools.count(1)
Make = Callable[..., SshSandbox]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    (place / "a.txt").write_text("alpha")
    return place


@pytest.fixture
async def make(sshd: Server, tmp_path: Path, workspace: Path) -> AsyncIterator[Make]:
    made: list[SshSandbox] = []

    def build(settings: Ssh | None = None, **options: Any) -> SshSandbox:
        values = {"scope": f"agent:{tmp_path.name}", **options}
        made.append(open_ssh(settings or sshd.settings(sshd.folder / "root"), tmp_path, **values))
        return made[-1]

    yield build
    for each in made:
        await each.close()


async def run(sandbox: SshSandbox, text: str, **options: Any) -> tuple[Exit, str]:
    launch = Launch(text, sandbox.workdir, {})._replace(**options)
    running = await sandbox.host().start(launch, f"test-{os.getpid()}-{next(_numbers)}")
    exit_ = await running.wait()
    return exit_, running.output.tail(1_000_000).decode()


# The workspace


async def test_changes_of_commands_are_copied_back_to_the_workspace(
    make: Make, workspace: Path
) -> None:
    (workspace / "tool").write_text("#!/bin/sh\necho tool\n")
    (workspace / "tool").chmod(0o755)
    (workspace / "dir").mkdir()
    (workspace / "link").symlink_to("a.txt")
    sandbox = make()
    assert isinstance(sandbox, Sandbox)
    exit_, said = await run(
        sandbox, "cat a.txt link; ./tool; echo new > dir/new; rm tool; readlink link; pwd"
    )
    assert (exit_.code, exit_.note) == (0, "")
    assert said == f"alphaalphatool\na.txt\n{sandbox.workdir}\n"
    assert (workspace / "dir/new").read_text() == "new\n"
    assert not (workspace / "tool").exists()
    assert stat.S_IMODE(os.stat(sandbox.workdir).st_mode) == 0o700
    (workspace / "a.txt").write_text("beta")
    (workspace / "link").unlink()
    _, said = await run(sandbox, "cat a.txt; ls")
    assert said == "betaa.txt\ndir\n"


async def test_a_conflict_keeps_both_versions_and_is_reported(make: Make, workspace: Path) -> None:
    sandbox = make()
    await sandbox.prepare()
    Path(sandbox.workdir, "a.txt").write_text("theirs")
    (workspace / "a.txt").write_text("ours")
    exit_, said = await run(sandbox, "cat a.txt; ls")
    aside = next(workspace.glob("a.txt.remote-conflict-*"))
    assert (workspace / "a.txt").read_text() == "ours"
    assert aside.read_text() == "theirs"
    assert said == f"oursa.txt\n{aside.name}\n"
    assert aside.name in exit_.note
    exit_, _ = await run(sandbox, "true")
    assert exit_.note == ""


async def test_protected_files_and_links_to_the_outside_are_not_copied_back(
    make: Make, workspace: Path
) -> None:
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".git/config").write_text("[core]")
    exit_, _ = await run(
        make(),
        "echo evil >> .git/config; echo evil > .git/hooks/pre-commit; ln -s /etc out; "
        "mkdir -p sub/.git; echo x > sub/.git/description; echo ok > .git/index; "
        "printf 'x' > .GIT; echo fine > fine",
    )
    assert (workspace / ".git/config").read_text() == "[core]"
    assert sorted(os.listdir(workspace / ".git/hooks")) == []
    assert not os.path.lexists(workspace / "out")
    assert not (workspace / "sub/.git").exists()
    assert not (workspace / ".GIT").exists()
    assert (workspace / ".git/index").read_text() == "ok\n"
    assert (workspace / "fine").exists()
    assert ".git/config: not copied from the remote side" in exit_.note


async def test_files_of_clawkit_are_not_uploaded(make: Make, workspace: Path) -> None:
    own = workspace / "home"
    own.mkdir()
    (own / "secret").write_text("key")
    _, said = await run(make(protection=Protection((str(own),))), "ls -A")
    assert said == "a.txt\n"


async def test_a_read_only_workspace_is_a_copy_whose_changes_are_undone(
    make: Make, workspace: Path
) -> None:
    sandbox = make(access="ro")
    copy, own = sandbox.mounts
    assert (copy.source, copy.writable, own.writable) == (str(workspace), False, True)
    _, said = await run(sandbox, f"ls -A; cd {copy.target}; cat a.txt; echo x > a.txt; echo > new")
    assert said == "alpha"
    assert sorted(os.listdir(workspace)) == ["a.txt"]
    assert (workspace / "a.txt").read_text() == "alpha"
    (workspace / "more").write_text("more")
    _, said = await run(sandbox, "echo own > own; cat a.txt more; ls", cwd=copy.target)
    assert said == "alphamorea.txt\nmore\nown\n"
    _, said = await run(sandbox, "ls; echo own > own", cwd=str(workspace))
    assert said == "a.txt\nmore\n"
    await run(sandbox, "echo own > own")
    assert (Path(own.source) / "own").read_text() == "own\n"


async def test_without_access_the_directory_is_a_private_one(make: Make, workspace: Path) -> None:
    sandbox = make(access="none")
    _, said = await run(sandbox, "ls -A; echo x > new; ls")
    assert said == "new\n"
    assert sorted(os.listdir(workspace)) == ["a.txt"]
    (own,) = sandbox.mounts
    assert sorted(os.listdir(own.source)) == ["new"]


async def test_a_second_start_continues_with_the_same_copy(make: Make, workspace: Path) -> None:
    first = make()
    await run(first, "true")
    await first.close()
    (workspace / "a.txt").unlink()
    (workspace / "b.txt").write_text("b")
    _, said = await run(make(), "ls -A")
    assert said == "b.txt\n"


async def test_secrets_in_the_workspace_are_neither_sent_nor_replaced(
    make: Make, workspace: Path
) -> None:
    """Even if the workspace is clawkit's home."""
    (workspace / "gateway").mkdir()
    secrets = (workspace / "gateway", workspace / "exec-approvals.json")
    files = (workspace / "gateway" / "token", workspace / "exec-approvals.json")
    for file in files:
        file.write_text("mine")
    own = Protection((str(workspace),))
    sandbox = make(protection=own, secrets=tuple(map(str, secrets)))
    text = "ls -A; mkdir gateway; echo theirs | tee gateway/token gateway/new > exec-approvals.json"
    _, said = await run(sandbox, text)
    assert said == "a.txt\n"
    await run(sandbox, "touch done")
    assert (workspace / "done").exists()
    assert [file.read_text() for file in files] == ["mine", "mine"]
    assert [file.name for file in (workspace / "gateway").iterdir()] == ["token"]


async def test_removing_the_copy_deletes_nothing_in_the_workspace(
    make: Make, workspace: Path
) -> None:
    sandbox = make()
    await run(sandbox, "mkdir -p fixed/deep; touch fixed/deep/f; chmod 500 fixed/deep fixed")
    name = str(sandbox.describe()["name"])
    assert name in [each.name for each in await sandbox.list()]
    await sandbox.remove(name)
    assert not os.path.exists(sandbox.workdir)
    _, said = await run(sandbox, "ls -A")
    assert said == "a.txt\nfixed\n"
    assert (workspace / "fixed/deep/f").exists()


async def test_a_copy_is_removed_whatever_commands_left_in_it(make: Make, tmp_path: Path) -> None:
    sandbox = make(access="none")
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").touch()
    text = f"""ln -s {outside} link; mkdir shut; ln -s {outside} shut/link; chmod 0 shut
        python3 -c 'import os
        for _ in range(2_000):
            os.mkdir("deep")
            os.chdir("deep")'; chmod 0 .; echo made"""
    _, said = await run(sandbox, text.replace("\n        ", "\n"))
    assert said == "made\n"
    try:
        await sandbox.remove(str(sandbox.describe()["name"]))
        assert not os.path.lexists(sandbox.workdir)
    finally:
        remove_tree(sandbox.workdir)  # pytest cannot
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert (outside / "file").exists()


async def test_file_tools_and_commands_see_the_same_files(make: Make, workspace: Path) -> None:
    sandbox = make()
    files = sandbox.files()
    await files.change([Change("d/new", b"bridge")])
    _, said = await run(sandbox, "cat d/new; echo command > d/new")
    assert said == "bridge"
    for path in ("d/new", f"{workspace}/d/new", f"{sandbox.workdir}/d/new"):
        async with files.open(path) as file:
            assert file.place == f"{workspace}/d/new"
            assert await read_all(file, 100) == b"command\n"
    hook = ".git/hooks/post-commit"
    with pytest.raises(ProtectedError):
        await files.change([Change(f"{sandbox.workdir}/{hook}", b"#!")])
    await files.change([Change(hook, b"#!")], allowed=frozenset({f"{workspace}/{hook}"}))
    _, said = await run(sandbox, f"cat {hook}")
    assert said == "#!"


async def test_files_are_in_step_while_a_command_runs(make: Make, workspace: Path) -> None:
    sandbox = make()
    files = sandbox.files()
    launch = Launch(
        "echo one > made; until test -e go; do sleep 0.05; done; cat go", sandbox.workdir, {}
    )
    running = await sandbox.host().start(launch, f"test-{os.getpid()}-step")

    async def names() -> set[str]:
        return {each.name for each in (await files.list(".")).entries}

    async with asyncio.timeout(PATIENCE_S):
        while "made" not in await names():
            await asyncio.sleep(0.05)
    await files.change([Change("go", b"went")])
    assert (await running.wait()).code == 0
    assert running.output.tail(100) == b"went"
    start = await asyncio.to_thread(files.start, f"{sandbox.workdir}/made")
    os.close(start.fd)
    assert start.place == str(workspace)


def config_for(sshd: Server, access: str, root: Path) -> dict[str, Any]:
    sandbox = {
        "mode": "all",
        "backend": "ssh",
        "workspaceAccess": access,
        "ssh": {
            "command": sshd.command,
            "target": sshd.target,
            "workspaceRoot": str(root),
            "identityFile": str(sshd.folder / "key"),
            "knownHostsData": sshd.known_hosts,
            "updateHostKeys": False,
        },
    }
    return {"agents": {"defaults": {"sandbox": sandbox}}, "tools": {"sandbox": {"tools": {}}}}


async def test_a_remote_command_has_no_local_pid_or_record(
    sshd: Server, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "home"))
    config = config_for(sshd, "none", tmp_path / "root")
    async with open_patient_kit(workspace, config=config) as kit:
        started = await kit.call("exec", {"command": "sleep 300", "background": True})
        id_ = started.details["sessionId"]
        assert started.as_text().startswith(f"Command still running (sessionId {id_}). ")
        listed = await kit.call("process", {"action": "list"})
        (row,) = listed.details["sessions"]
        assert "pid" not in started.details
        assert "pid" not in row
        folder = tmp_path / "home" / "commands"
        await until(lambda: list(folder.glob(f"{id_}-*.log")))
        assert not list(folder.glob("*.json*"))


@pytest.mark.parametrize("access", ["rw", "ro", "none"])
async def test_all_tools_of_a_session_work_in_the_same_place(
    sshd: Server, workspace: Path, access: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "home"))
    (workspace / "sub").mkdir()
    config = config_for(sshd, access, tmp_path / "root")
    async with open_patient_kit(workspace, config=config) as kit:

        async def call(tool: str, **params: str) -> str:
            result = await kit.call(tool, params)
            said = "".join(each.text for each in result.content if isinstance(each, Text))
            return f"FAILED {said}" if result.is_error else said

        said = await call("exec", command="mkdir -p sub; echo needle > sub/made; pwd")
        inside = said.splitlines()[0]
        assert inside.startswith(str(tmp_path / "root")), said
        for path in ("sub/made", f"{inside}/sub/made"):
            assert "needle" in await call("read", path=path)
        assert "sub/made" in await call("grep", pattern="needle")
        assert "made" in await call("exec", command="ls", workdir="sub")
        for tool in ("read", "ls"):
            assert (await call(tool, path="/etc/passwd")).startswith("FAILED")
        if access == "rw":
            await call("write", path=f"{inside}/sub/more", content="more")
            assert (await call("exec", command="cat sub/more")).startswith("more")
    assert (workspace / "sub/made").exists() == (access == "rw")


# Commands


def test_only_variables_that_mean_the_same_elsewhere_are_sent() -> None:
    given = {"LANG": "C", "HOME": "/h", "PATH": "/p", "XDG_CACHE_HOME": "/c", "TMPDIR": "/t"}
    given |= {"SSH_AUTH_SOCK": "/s", "LD_PRELOAD": "/l", "PATHS": "x", "CI": "1"}
    assert portable(given) == {"LANG": "C", "PATHS": "x", "CI": "1"}


async def test_unsupported_requests_are_refused(make: Make) -> None:
    sandbox = make(access="none")
    for options in ({"detach": True}, {"programs": ("/bin/ls",)}, {"hold": Hold()}):
        with pytest.raises(ToolError, match="ssh sandbox cannot"):
            await run(sandbox, "true", **options)
    with pytest.raises(ToolInputError, match="NUL"):
        await run(sandbox, "true", env={"A": "b\0c"})


async def test_quotes_and_newlines_arrive_as_they_are(make: Make) -> None:
    text = "printf '%s|' \"$V\" 'a\"b' '$x' \"it's\" '\n'; echo `echo !x` \\\\"
    _, said = await run(make(access="none"), text, env={"V": "'; exit 9 #\n\"$(false)"})
    assert said == "'; exit 9 #\n\"$(false)|a\"b|$x|it's|\n|!x \\\n"


@pytest.mark.parametrize("who", ["client", "server"])
async def test_a_lost_connection_is_reported_and_ends_the_commands(
    make: Make, sshd: Server, who: str
) -> None:
    sandbox, marker = make(access="none"), new_marker()
    exit_, _ = await run(sandbox, "exit 255")
    assert (exit_.reason, exit_.code) == ("exit", 255)
    launch = Launch(f"setsid sleep {marker} & sleep {marker}", sandbox.workdir, {})
    running = await sandbox.host().start(launch, f"test-{os.getpid()}-{who}")
    await until(lambda: len(alive(marker)) >= 2)
    above, program = (os.getpid(), "ssh") if who == "client" else (sshd.pid, "sshd")
    for pid, name in children(above).items():
        if name == program:
            os.kill(pid, signal.SIGKILL)
    exit_ = await running.wait()
    assert exit_.reason == "lost"
    assert "connection to" in exit_.note
    await until(lambda: not alive(marker))
    exit_, said = await run(sandbox, "echo again")
    assert (exit_.code, said) == (0, "again\n")


async def test_keys_are_private_and_on_disk_only_while_ssh_logs_in(
    make: Make, sshd: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    secret = (sshd.folder / "key").read_text()
    watched = tmp_path / "watched-ssh"
    watched.write_text(
        f'#!/bin/sh\nstat -c "%a %n" {tmp_path}/clawkit-ssh-*/* > {tmp_path}/seen\nexec ssh "$@"\n'
    )
    watched.chmod(0o755)
    settings = sshd.settings(
        sshd.folder / "root", identity_file=None, identity_data="named", command=str(watched)
    )
    sandbox = make(settings, reveal=lambda given: secret if given == "named" else str(given))
    await sandbox.prepare()
    seen = dict(line.split()[::-1] for line in (tmp_path / "seen").read_text().splitlines())
    assert {os.path.basename(path) for path in seen} == {
        *("config", "IdentityFile", "UserKnownHostsFile")
    }
    assert set(seen.values()) == {"600"}
    assert not list(tmp_path.glob("clawkit-ssh-*"))
    exit_, _ = await run(sandbox, "true")
    assert exit_.code == 0
    await sandbox.close()
    await sandbox.close()
    assert not list((tmp_path / "state/sandboxes").glob("*/run-*"))
    await until(lambda: "ssh" not in children(os.getpid()).values())


# Attacks


async def test_links_do_not_lead_a_copy_out_of_its_directory(
    make: Make, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("SECRET")
    (workspace / "d").mkdir()
    (workspace / "d/f").write_text("inside")
    (workspace / "out").symlink_to(outside)
    sandbox = make()
    await sandbox.prepare()
    copied = Path(sandbox.workdir)
    assert os.readlink(copied / "out") == str(outside)
    # A directory becomes a link there, with changes behind it.
    exit_, _ = await run(sandbox, f"rm -r d; ln -s {outside} d; ln -s d/f out2; ln -s ../.. up")
    assert (workspace / "d").is_dir()
    assert not (workspace / "d").is_symlink()
    assert not os.path.lexists(workspace / "up")
    assert "points outside the workspace" in exit_.note
    # And here, after the copies were compared.
    if (workspace / "d/f").exists():
        (workspace / "d/f").unlink()
    (workspace / "d").rmdir()
    (workspace / "d").symlink_to(outside)
    await run(sandbox, "rm -f d; mkdir -p d; echo PWNED > d/f")
    assert (outside / "f").read_text() == "SECRET"
    assert sorted(os.listdir(outside)) == ["f"]


async def test_special_and_large_files_are_not_copied_back(make: Make, workspace: Path) -> None:
    exit_, _ = await run(
        make(),
        "mkfifo pipe; truncate -s 300M big; echo x > tool; chmod 6777 tool; "
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; "
        "ln -s /etc \"$(printf 'x\\033[2J\\nfake: line')\"",
    )
    assert exit_.code == 0
    assert sorted(os.listdir(workspace)) == ["a.txt", "tool"]
    assert stat.S_IMODE((workspace / "tool").stat().st_mode) & 0o7022 == 0
    assert "big: not copied" in exit_.note
    assert "\x1b" not in exit_.note
    assert "\n" not in exit_.note


async def test_a_change_on_both_sides_while_a_command_runs_is_a_conflict(
    make: Make, workspace: Path
) -> None:
    sandbox = make()
    text = "echo theirs > a.txt; echo up; read go; rm -r kept"
    (workspace / "kept").mkdir()
    (workspace / "kept/old").write_text("old")
    running = await sandbox.host().start(
        Launch(text, sandbox.workdir, {}, open_input=True), f"test-{os.getpid()}-both"
    )
    await until(lambda: b"up" in running.output.tail(100))
    (workspace / "a.txt").write_text("ours")
    (workspace / "kept/new").write_text("new")
    await running.write(b"\n")
    exit_ = await running.wait()
    assert (workspace / "a.txt").read_text() == "ours"
    (aside,) = workspace.glob("a.txt.remote-conflict-*")
    assert aside.read_text() == "theirs\n"
    assert aside.name in exit_.note
    assert os.listdir(workspace / "kept") == ["new"]
    assert (Path(sandbox.workdir) / "kept/new").exists()


async def test_a_command_that_breaks_the_program_there_ends_with_the_connection(
    make: Make,
) -> None:
    sandbox, marker = make(access="none"), new_marker()
    text = f"setsid sleep {marker} & sleep {marker} & kill -9 $(ps -o ppid= $PPID); wait"
    exit_, _ = await run(sandbox, text)
    assert exit_.reason in ("lost", "signal")
    await sandbox.close()
    await until(lambda: not alive(marker))
    assert (await run(sandbox, "echo again"))[1] == "again\n"


# Instances


async def test_unused_sandboxes_are_listed_and_pruned(make: Make, tmp_path: Path) -> None:
    old = make(scope=f"old {tmp_path.name}")
    await old.prepare()
    place, name = old.workdir, str(old.describe()["name"])
    await old.close()
    sandbox = make()
    await sandbox.prepare()
    found = {each.name: each for each in await sandbox.list()}
    assert found[name].scope == f"old {tmp_path.name}"
    assert found[name].created > 0
    meta = Path(place).parent / ".clawkit" / f"{name}.json"
    os.utime(meta, (0, 0))
    assert await prune(sandbox, idle_s=0, age_s=0) == []
    assert name in await prune(sandbox, idle_s=10**8, age_s=0)
    assert not os.path.exists(place)
    with pytest.raises(ToolInputError):
        await sandbox.remove("../x")


# What can be wrong with a connection


@pytest.mark.parametrize(
    "target",
    [
        None,
        "",
        "-oProxyCommand=x",
        "u@-oProxyCommand=x",
        "-u@host",
        "u@host x",
        "u@host\nProxyCommand x",
        "u@host:0",
        "u@host:99999",
        "u@host:x",
        "a@b@c",
        "u@$(x)",
        "u@host/",
        "ssh://u@host",
    ],
)
def test_a_hostile_target_is_refused(target: str | None, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match="must be user@host"):
        open_ssh(Ssh(target=target), tmp_path)


@table(
    ("target", "parts"),
    [
        ("host", ("host", "", 22)),
        ("me@host.example", ("host.example", "me", 22)),
        ("me@10.0.0.1:2222", ("10.0.0.1", "me", 2222)),
        ("me@[::1]:22", ("::1", "me", 22)),
    ],
)
def test_a_target_is_parsed(target: str, parts: tuple[str, str, int]) -> None:
    assert parse_target(target) == parts


@pytest.mark.parametrize("path", ['a"b', "a\nb", "${HOME}/x", "a\\b"])
def test_a_path_that_ssh_would_read_otherwise_is_refused(path: str, tmp_path: Path) -> None:
    settings = Ssh(target="h", identity_file=path)
    with pytest.raises(SandboxUnavailableError, match="plain path"):
        write_config(str(tmp_path), parse_target("h"), settings, str)


def test_the_configuration_asks_nothing_and_forwards_nothing(tmp_path: Path) -> None:
    settings = Ssh(target="me@h:23", identity_file="/k%h", known_hosts_data="h key")
    path = write_config(str(tmp_path), parse_target(settings.target), settings, str)
    lines = Path(path).read_text().splitlines()
    for line in (
        "HostName h",
        "User me",
        "Port 23",
        "BatchMode yes",
        "ConnectTimeout 5",
        "IdentitiesOnly yes",
        "ForwardAgent no",
        "StrictHostKeyChecking yes",
        'IdentityFile "/k%%h"',
        f'UserKnownHostsFile "{tmp_path}/UserKnownHostsFile"',
    ):
        assert line in lines
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def changed_key(sshd: Server) -> str:
    kind, key = (sshd.folder / "other_key.pub").read_text().split()[:2]
    return f"[127.0.0.1]:{sshd.port} {kind} {key}\n"


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (lambda sshd: {"command": "no-such-ssh"}, "install openssh-client"),
        (lambda sshd: {"target": "me@127.0.0.1:1"}, "cannot be reached"),
        (lambda sshd: {"known_hosts_data": "\n"}, "host key of .* is unknown"),
        (lambda sshd: {"known_hosts_data": changed_key(sshd)}, "is not the known one"),
        (lambda sshd: {"identity_file": str(sshd.folder / "other_key")}, "refused the login"),
        (lambda sshd: {"identity_file": str(sshd.folder / "bare_key")}, "python3 was not found"),
        (lambda sshd: {"workspace_root": "/proc/x"}, "could not be set up"),
        (lambda sshd: {"workspace_root": "/dev/null/x"}, "could not be set up"),
    ],
    ids=["ssh", "unreachable", "unknown", "changed", "login", "python", "root", "file"],
)
async def test_connection_errors_are_reported(
    make: Make, sshd: Server, others: Callable[[Server], dict[str, str]], words: str
) -> None:
    sandbox = make(sshd.settings(sshd.folder / "root", **others(sshd)))
    with pytest.raises(SandboxUnavailableError, match=words):
        await sandbox.prepare()
    with pytest.raises(SandboxUnavailableError, match=words):
        await run(sandbox, "true")


async def test_a_root_that_others_can_write_to_is_refused(
    make: Make, sshd: Server, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(SandboxUnavailableError, match="others can write"):
        await make(sshd.settings(shared)).prepare()
    (tmp_path / "link").symlink_to(tmp_path / "ws")
    with pytest.raises(SandboxUnavailableError, match="could not be set up"):
        await make(sshd.settings(tmp_path / "link")).prepare()


async def test_an_unknown_host_key_is_learned_when_that_is_set(
    make: Make, sshd: Server, tmp_path: Path
) -> None:
    settings = sshd.settings(
        sshd.folder / "root",
        known_hosts_data=None,
        known_hosts_file=str(tmp_path / "known"),
        strict_host_key_checking=False,
    )
    await make(settings).prepare()
    assert (tmp_path / "known").read_text()


async def test_commands_at_once_share_one_connection(make: Make) -> None:
    sandbox = make(access="none")
    done = await asyncio.gather(*(run(sandbox, f"echo {n}") for n in range(20)))
    assert [said for _, said in done] == [f"{n}\n" for n in range(20)]
    assert list(children(os.getpid()).values()).count("ssh") == 1

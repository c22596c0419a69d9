"""Containers of a real engine: creating, keeping, losing, replacing and removing them."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.process.watching import PATIENCE_S, alive, new_marker, until
from tests.sandbox.dockerd import BARE, IMAGE, Box, Engine, dockerd, open_container
from tests.sandbox.patient import open_patient_kit

from clawkit import Agent
from clawkit.errors import ToolAuthorizationError, ToolError, ToolInputError
from clawkit.fs.protocols import Change, read_all
from clawkit.models.protocols import Request
from clawkit.sandbox.container import ContainerSandbox
from clawkit.sandbox.protocols import SandboxUnavailableError, prune
from clawkit.testing import ScriptedModel, call

__all__ = ["dockerd"]
pytestmark = pytest.mark.xdist_group("docker")


@pytest.fixture
def engine(dockerd: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{dockerd.socket}")
    return dockerd


@pytest.fixture
async def box(engine: Engine, tmp_path: Path) -> AsyncIterator[Box]:
    sandbox = open_container(tmp_path)
    yield Box(sandbox)
    await drop(sandbox)


async def drop(sandbox: ContainerSandbox) -> None:
    await sandbox.close()
    for each in await sandbox.list():
        await sandbox.remove(each.name)


def inspect(engine: Engine, name: str, form: str) -> str:
    return engine.call("inspect", f"--format={form}", name).strip()


def name_of(sandbox: ContainerSandbox) -> str:
    return str(sandbox.describe()["container"])


# How it is made


async def test_a_container_is_created_as_configured(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "ws" / "data").mkdir(parents=True)
    sandbox = open_container(
        tmp_path,
        env={"LANG": "C.UTF-8", "GREETING": "hello there"},
        pids_limit=200,
        memory="200m",
        memory_swap="200m",
        cpus=0.5,
        ulimits={"nofile": 300},
        extra_hosts=["example.test:192.0.2.1"],
        dns=["192.0.2.53"],
        tmpfs=["/tmp:size=5m", "/run"],
        binds=[f"{tmp_path}/ws/data:/data:ro"],
        setup_command=["echo made > /tmp/made", "echo $GREETING >> /tmp/made"],
    )
    box = Box(sandbox)
    _, said = await box.run(
        "cat /tmp/made; echo $GREETING; ulimit -n; touch /data/x; cat /etc/hosts"
    )
    assert said.splitlines()[:4] == ["made", "hello there", "hello there", "300"]
    assert "Read-only file system" in said
    assert "192.0.2.1" in said
    name = name_of(sandbox)
    form = "{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}} {{.HostConfig.NanoCpus}}"
    assert inspect(engine, name, form) == f"200 {200 << 20} 500000000"
    form = "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}}"
    assert inspect(engine, name, form) == "true [ALL] [no-new-privileges]"
    assert inspect(engine, name, "{{.HostConfig.NetworkMode}} {{.HostConfig.Dns}}") == (
        "none [192.0.2.53]"
    )
    assert inspect(engine, name, '{{index .Config.Labels "clawkit.sandbox"}}') == "1"
    exit_, said = await box.run("dd if=/dev/zero of=/tmp/big bs=1M count=50 2>&1")
    assert exit_.code
    assert "No space left" in said
    assert not [
        each for each in os.listdir(tmp_path / "state" / "containers" / name) if "env" in each
    ]
    await drop(sandbox)
    assert not engine.call("ps", "-aq", f"--filter=name={name}").strip()
    assert not (tmp_path / "state" / "containers" / name).exists()


async def test_commands_run_as_the_owner_of_the_workspace(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    os.chown(tmp_path / "ws", 4321, 4322)
    sandbox = open_container(tmp_path)
    _, said = await Box(sandbox).run("id -u; id -g; touch made && echo yes")
    assert said.split() == ["4321", "4322", "yes"]
    assert (tmp_path / "ws" / "made").stat().st_uid == 4321
    await drop(sandbox)


@pytest.mark.parametrize("access", ["none", "ro", "rw"])
async def test_what_commands_see_of_the_workspace(
    engine: Engine, tmp_path: Path, access: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "f").write_text("mine\n")
    sandbox = open_container(tmp_path, access=access)
    _, said = await Box(sandbox).run("pwd; cat f /agent/f 2>&1; echo x > new; echo x > /agent/new")
    assert said.startswith("/workspace\n")
    assert said.count("mine\n") == (access != "none")
    assert ("Read-only file system" in said) == (access == "ro")
    assert (tmp_path / "ws" / "new").exists() == (access == "rw")
    place = next(each.source for each in sandbox.mounts if each.target == sandbox.workdir)
    assert Path(place, "new").exists()
    await drop(sandbox)


async def test_a_failed_setup_leaves_no_container(engine: Engine, tmp_path: Path) -> None:
    sandbox = open_container(tmp_path, setup_command="echo broken pipe dream >&2; exit 7")
    with pytest.raises(SandboxUnavailableError, match="exit code 7: broken pipe dream"):
        await Box(sandbox).run("true")
    assert await sandbox.list() == []
    await sandbox.close()


async def test_an_image_without_python_is_named(engine: Engine, tmp_path: Path) -> None:
    sandbox = open_container(tmp_path, image=BARE)
    with pytest.raises(SandboxUnavailableError, match=r"python3 3\.10 or newer.*sandbox build"):
        await Box(sandbox).run("true")
    await drop(sandbox)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("clawkit-sandbox:bookworm-slim", "clawkit sandbox build"),
        ("other:1", "build or pull it"),
    ],
)
async def test_a_missing_image_is_named(
    engine: Engine, tmp_path: Path, image: str, words: str
) -> None:
    sandbox = open_container(tmp_path, image=image)
    with pytest.raises(SandboxUnavailableError, match=f"{image}.*does not exist.*{words}"):
        await Box(sandbox).run("true")
    await sandbox.close()


async def test_a_daemon_that_does_not_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-socket")
    sandbox = open_container(tmp_path)
    with pytest.raises(SandboxUnavailableError, match="cannot be reached; start it"):
        await Box(sandbox).run("true")
    await sandbox.close()
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(SandboxUnavailableError, match="must be on this machine"):
        await Box(open_container(tmp_path)).run("true")


# How it goes on


async def test_a_container_is_kept_without_running_processes(
    engine: Engine, tmp_path: Path, box: Box
) -> None:
    marker = new_marker()
    _, said = await box.run(f"echo $$ > /tmp/kept; (setsid sleep {marker} &); cat /proc/1/cmdline")
    assert "sleep" in said
    await until(lambda: alive(marker))
    await box.sandbox.close()
    assert not alive(marker)
    name = name_of(box.sandbox)
    assert len(engine.call("top", name).splitlines()) == 3
    assert os.listdir(box.sandbox.link_dir) == []
    again = Box(open_container(tmp_path))
    assert (await again.run("cat /tmp/kept"))[0].code == 0
    await again.sandbox.close()


async def test_a_command_whose_container_ends_is_lost_and_the_next_one_works(
    engine: Engine, box: Box, subtests: pytest.Subtests
) -> None:
    for how in (("rm", "-f"), ("kill",), ("restart", "-t0")):
        with subtests.test(how=how):
            running = await box.start("echo ready; sleep 600")
            await until(lambda running=running: running.output.size)  # type: ignore[misc]
            engine.call(*how, name_of(box.sandbox))
            exit_ = await running.wait()
            assert exit_.reason == "lost"
            assert "container was stopped" in exit_.notes[0]
            exit_, said = await box.run("echo again")
            assert (exit_.code, said) == (0, "again\n")


async def test_a_container_that_is_removed_between_commands_is_made_again(
    engine: Engine, box: Box
) -> None:
    await box.run("true")
    engine.call("rm", "-f", name_of(box.sandbox))
    exit_, said = await box.run("echo again")
    assert (exit_.code, said) == (0, "again\n")


async def test_a_command_that_kills_the_server_ends_with_everything(
    engine: Engine, box: Box
) -> None:
    marker = new_marker()
    running = await box.start(
        f"(setsid sleep {marker} &); sleep 0.1; kill -9 $PPID; sleep {marker}"
    )
    assert (await running.wait()).reason == "lost"
    exit_, said = await box.run("echo again")
    assert (exit_.code, said) == (0, "again\n")
    assert not alive(marker)


async def test_settings_that_changed_make_another_container(engine: Engine, tmp_path: Path) -> None:
    first = open_container(tmp_path)
    await Box(first).run("true")
    await first.close()
    name = name_of(first)
    # It was used just now: it goes on, and says so.
    second = open_container(tmp_path, memory="300m")
    assert name_of(second) == name
    await Box(second).run("true")
    assert "recreate" in second.describe()["hints"][-1]
    assert inspect(engine, name, "{{.HostConfig.Memory}}") == "0"
    assert [each.outdated for each in await second.list()] == [True]
    await second.close()
    (tmp_path / "ws" / "data").mkdir()
    third = open_container(tmp_path, binds=[f"{tmp_path}/ws/data:/data"])
    with pytest.raises(SandboxUnavailableError, match=r"mounts .* have changed.*recreate"):
        await Box(third).run("true")
    # Once it has been idle, it is replaced.
    used = tmp_path / "state" / "containers" / name / "used"
    os.utime(used, (time.time() - 301, time.time() - 301))
    _, said = await Box(third).run("ls -d /data")
    assert said == "/data\n"
    assert third.describe()["hints"] == []
    await drop(third)


async def test_two_processes_share_a_container(engine: Engine, tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from tests.sandbox.dockerd import Box, open_container
async def main():
    box = Box(open_container(Path({str(tmp_path)!r})))
    exit_, said = await box.run("cat /proc/sys/kernel/random/boot_id >/dev/null; echo $HOSTNAME")
    print(said, end="", flush=True)
    sys.stdin.readline()
    await box.sandbox.close()
asyncio.run(main())
"""
    others = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent.parent,
        )
        for _ in range(2)
    ]
    sandbox = open_container(tmp_path)
    _, mine = await Box(sandbox).run("echo $HOSTNAME")

    def hear(other: subprocess.Popen[bytes]) -> str:
        assert other.stdout is not None
        return other.stdout.readline().decode()

    names = [await asyncio.to_thread(hear, other) for other in others]
    assert set(names) == {mine}
    assert len(await sandbox.list()) == 1
    with pytest.raises(ToolError, match="in use"):
        await sandbox.remove(name_of(sandbox))
    # One that ends does not take the commands of the others with it.
    others[0].communicate(b"\n")
    running = await Box(sandbox).start("read; echo on", open_input=True)
    others[1].communicate(b"\n")
    assert [other.returncode for other in others] == [0, 0]
    await running.write(b"\n")
    assert (await running.wait()).code == 0
    await drop(sandbox)


async def test_a_process_that_is_killed_leaves_no_command(engine: Engine, tmp_path: Path) -> None:
    marker = new_marker()
    script = f"""
import asyncio
from pathlib import Path
from tests.sandbox.dockerd import Box, open_container
async def main():
    box = Box(open_container(Path({str(tmp_path)!r})))
    running = await box.start("echo ready; sleep {marker}")
    while not running.output.size:
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await running.wait()
asyncio.run(main())
"""
    other = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert other.stdout is not None
    assert await asyncio.to_thread(other.stdout.readline) == b"ready\n"
    assert alive(marker)
    other.kill()
    other.wait()
    other.stdout.close()
    await until(lambda: not alive(marker))
    await drop(open_container(tmp_path))


async def test_idle_and_old_containers_are_pruned(engine: Engine, tmp_path: Path) -> None:
    boxes = [Box(open_container(tmp_path, scope=scope)) for scope in ("one", "two")]
    for box in boxes:
        await box.run("true")
    await boxes[0].sandbox.close()
    one, two = (name_of(box.sandbox) for box in boxes)
    assert one != two
    assert len(one) <= 63
    # A container that merely goes on is not in use.
    in_use = {each.name: each.running for each in await boxes[1].sandbox.list()}
    assert in_use == {one: False, two: True}
    assert await prune(boxes[1].sandbox, idle_s=3600, age_s=3600) == []
    folder = tmp_path / "state" / "containers"
    for name in (one, two):
        os.utime(folder / name / "used", (0, 0))
    assert await prune(boxes[1].sandbox, idle_s=0, age_s=0) == []
    # One in use is never removed.
    assert await prune(boxes[1].sandbox, idle_s=3600, age_s=0) == [one]
    assert [each.name for each in await boxes[1].sandbox.list()] == [two]
    await drop(boxes[1].sandbox)


async def test_only_containers_of_clawkit_can_be_removed(engine: Engine, box: Box) -> None:
    engine.call("run", "-d", "--name=foreign", "--network=none", IMAGE, "sleep", "100")
    with pytest.raises(ToolError, match="unknown sandbox"):
        await box.sandbox.remove("foreign")
    engine.call("rm", "-f", "foreign")


# What cannot be had


async def test_unsupported_requests_are_refused(box: Box) -> None:
    with pytest.raises(ToolError, match="keep commands running"):
        await box.run("true", detach=True)
    with pytest.raises(ToolError, match="permissions of a single command"):
        await box.run("true", programs=("/bin/ls",))


async def test_a_refused_network_access_is_reported(box: Box) -> None:
    script = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    exit_, _ = await box.run(f'python3 -c "{script}"')
    assert exit_.wanted_network


async def test_a_git_hook_written_by_a_command_is_reverted(box: Box, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "ws")], check=True)
    hook = tmp_path / "ws" / ".git" / "hooks" / "pre-commit"
    exit_, _ = await box.run("echo 'touch /tmp/pwned' > .git/hooks/pre-commit")
    assert exit_.code == 0
    assert any("pre-commit" in note for note in exit_.notes)
    assert not hook.exists()


# Files


async def read(sandbox: ContainerSandbox, path: str) -> bytes:
    async with sandbox.files().open(path) as file:
        return await read_all(file, 1 << 20)


async def test_files_can_be_named_by_their_paths_on_the_host_and_inside(
    box: Box, tmp_path: Path
) -> None:
    await box.run("mkdir -p sub; echo inside > sub/f")
    sandbox, files = box.sandbox, box.sandbox.files()
    for path in ("sub/f", "/workspace/sub/f", f"{tmp_path.resolve()}/ws/sub/f"):
        assert await read(sandbox, path) == b"inside\n"
    listing = await files.list("/workspace/sub")
    assert [entry.name for entry in listing.entries] == ["f"]
    await files.change([Change("/workspace/new/g", b"made here\n")])
    _, said = await box.run("cat new/g; pwd", cwd=f"{tmp_path.resolve()}/ws")
    assert said == "made here\n/workspace\n"
    with pytest.raises(ToolInputError, match="directory"):
        await box.run("true", cwd="/nowhere")


async def test_files_outside_the_mounts_cannot_be_opened(box: Box) -> None:
    await box.run("ln -sfn /etc/passwd link; ln -sfn /etc folder; ln -sfn /proc/self proc")
    for path in (
        "/etc/passwd",
        "/tmp/made-inside",
        "/workspace/../../etc/passwd",
        "../ws2/f",
        "/workspaces/f",
        "~/.bashrc",
        "link",
        "/workspace/link",
        "folder/passwd",
        "/workspace/proc/environ",
    ):
        with pytest.raises(ToolAuthorizationError):
            await read(box.sandbox, path)
        with pytest.raises(ToolInputError):
            await box.sandbox.files().change([Change(path, b"x")])
    with pytest.raises(ToolAuthorizationError, match=r"only commands in the sandbox.*use exec"):
        await read(box.sandbox, "/tmp/made-inside")


# Attacks


@pytest.fixture
async def attacker(engine: Engine, tmp_path: Path) -> AsyncIterator[Box]:
    sandbox = open_container(tmp_path, pids_limit=60)
    yield Box(sandbox)
    await drop(sandbox)


_CALL = "python3 -c 'import ctypes, os, sys; call = ctypes.CDLL(None).syscall; sys.exit({})'"
_SOCKET = "python3 -c 'import socket; {}'"
ATTACKS = [
    "ls /var/run/docker.sock /run/docker.sock",
    "mount -t tmpfs none /workspace",
    "unshare -r true",
    "mknod disk b 254 0",
    "cat /dev/mem /dev/vda /dev/sda",
    "echo x > /proc/sys/kernel/core_pattern",
    "echo b > /proc/sysrq-trigger",
    "echo x > /.clawkit/code/clawkit/process/spawn_server.py",
    "echo x > /.clawkit/link/socket",
    "ls /.clawkit/link",
    "touch /made",
    "chmod u+s /bin/sh",
    "cat /etc/shadow",
    "cat /proc/$PPID/environ",
    "cat /proc/$PPID/mem",
    "ls -l /proc/$PPID/fd",
    _CALL.format("call(101, 16, os.getppid(), 0, 0) == -1"),  # ptrace
    _CALL.format("call(425, 8, 0) == -1"),  # io_uring_setup
    _CALL.format("call(272, 0x10000000) == -1"),  # unshare
    _CALL.format("call(250, 0, 0, 0, 0, 0) == -1"),  # keyctl
    _SOCKET.format("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    _SOCKET.format("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    _SOCKET.format('socket.create_connection(("127.0.0.1", 22), 3)'),
    _SOCKET.format('socket.create_connection(("192.0.2.1", 80), 3)'),
]


async def test_no_attack_escapes_from_the_container(attacker: Box) -> None:
    ended = {text: (await attacker.run(text))[0].code for text in ATTACKS}
    assert [text for text, code in ended.items() if code == 0] == []


async def test_the_first_process_cannot_be_killed(attacker: Box) -> None:
    exit_, said = await attacker.run("kill -9 1 2> /dev/null; sleep 0.1; echo there")
    assert (exit_.code, said) == (0, "there\n")


async def test_a_fork_bomb_stays_inside(attacker: Box) -> None:
    running = await attacker.start("f() { f | f & }; f; sleep 600")
    await until(lambda: b"Resource temporarily unavailable" in running.output.tail(100_000))
    await running.end(0)
    exit_, said = await attacker.run("echo still here")
    assert (exit_.code, said) == (0, "still here\n")


async def test_a_setuid_program_gives_no_rights(attacker: Box, tmp_path: Path) -> None:
    program = tmp_path / "ws" / "id"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    os.chown(tmp_path / "ws", 4321, 4321)
    await drop(attacker.sandbox)
    box = Box(open_container(tmp_path))
    _, said = await box.run("./id -u")
    assert said == "4321\n"
    assert stat.S_IMODE(program.stat().st_mode) == 0o4755
    await drop(box.sandbox)


_HOSTILE = """
import json, os, socket, struct, sys, time
path = sys.stdin.readline().strip()
print(json.dumps({"env": {}, "bash": True}), flush=True)
link = socket.socket(socket.AF_UNIX)
link.connect(path)
data, fds, _, _ = socket.recv_fds(link, 1 << 16, 8)
found = [os.readlink(f"/proc/self/fd/{fd}") for fd in fds]
open("/workspace/handles", "w").write(repr(found))
size = struct.unpack_from("<I", data)[0]
id_ = json.loads(data[4:4 + size])[1]
def say(raw):
    link.sendall(struct.pack("<I", len(raw)) + raw)
%s
time.sleep(60)
"""


async def test_messages_of_a_hostile_server_are_refused(
    engine: Engine, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """A python3 in the workspace that comes first in the container's PATH."""
    program, handles = tmp_path / "ws" / "python3", tmp_path / "ws" / "handles"
    program.parent.mkdir()
    program.touch(0o755)
    sandbox = open_container(tmp_path, env={"PATH": "/workspace:/usr/bin:/bin"})
    for attack in (
        "say(b'not json')",
        "say(json.dumps([id_, 'exit']).encode())",
        "say(json.dumps([id_, 'pid', 1, 1]).encode()); say(json.dumps([id_, 'exit', {}]).encode())",
        "link.sendall(struct.pack('<I', 1 << 31))",
        "while True: link.sendall(bytes(1 << 20))",
        "say(json.dumps({'id': 1}).encode())",
        "link.close()",
    ):
        with subtests.test(attack=attack):
            program.write_text("#!/usr/bin/python3\n" + _HOSTILE % attack)
            handles.unlink(missing_ok=True)
            try:
                exit_, _ = await asyncio.wait_for(Box(sandbox).run("echo never"), 4 * PATIENCE_S)
            except ToolError:
                pass
            else:
                assert exit_.reason == "lost"
            # It gets what the command would have had, and nothing that leads out.
            said = handles.read_text()
            assert "pipe:" in said
            assert str(tmp_path) not in said
            await sandbox.close()
            await until(lambda: not alive(str(program)))
    await drop(sandbox)


@pytest.fixture(autouse=True)
def no_leak(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.glob("state/containers/*/link/*"))


# Through the tools


async def test_tools_of_a_sandboxed_session_work_in_its_container(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "state"))
    place = tmp_path / "ws"
    (place / "sub").mkdir(parents=True)
    settings = {
        "mode": "all",
        "backend": "docker",
        "workspaceAccess": "rw",
        "docker": {"image": IMAGE},
    }
    config = {
        "agents": {"defaults": {"sandbox": settings}},
        "tools": {"sandbox": {"tools": {"allow": []}}},
    }
    async with open_patient_kit(place, config=config) as kit:
        for path in ("sub", "/workspace/sub", str(place / "sub")):
            result = await kit.call("exec", {"command": "pwd", "workdir": path})
            assert result.as_text().strip() == "/workspace/sub", result.as_text()
        await kit.call("write", {"path": "/workspace/sub/f", "content": "made by a tool\n"})
        result = await kit.call("exec", {"command": "cat sub/f && echo again >> sub/f"})
        assert result.as_text().strip() == "made by a tool"
        assert "again" in (await kit.call("read", {"path": "sub/f"})).as_text()
        assert (
            "sub/f"
            in (await kit.call("grep", {"pattern": "again", "path": "/workspace"})).as_text()
        )
        refused = await kit.call("read", {"path": "/etc/passwd"})
        assert "use exec" in refused.as_text()
        code = {"code": "import os; os.getcwd()", "timeoutSeconds": 600}
        result = await kit.call("code_execution", code)
        assert "/workspace" in result.as_text(), result.as_text()
    label = f"label=clawkit.home={tmp_path.resolve()}/state"
    [left] = engine.call("ps", "-aq", f"--filter={label}").split()
    engine.call("rm", "-f", left)


async def test_a_sub_agent_can_read_the_files_of_its_task(engine: Engine, workspace: Path) -> None:
    os.chown(workspace, 4321, 4322)  # who commands are
    docker = {"image": IMAGE}
    config = {
        "tools": {
            "sessions_spawn": {"attachments": {"enabled": True}},
            "subagents": {"tools": {"alsoAllow": ["exec"]}},
        },
        "agents": {"defaults": {"sandbox": {"mode": "all", "backend": "docker", "docker": docker}}},
    }
    file = {"name": "notes.txt", "content": "the word is heron"}
    parent = [call("sessions_spawn", {"task": "t", "attachments": [file]}), "waiting", "ok"]
    seen: list[str] = []

    def answer(request: Request) -> Any:
        if "You are a sub-agent" not in request.system:
            return parent.pop(0)
        [line] = [each for each in request.system.splitlines() if each.endswith("/notes.txt")]
        place = line.removeprefix("- ")
        said = getattr(request.messages[-1], "content", ())
        seen.append("".join(getattr(each, "text", "") for each in said))
        if len(seen) == 1:
            return call("read", {"path": place})
        return (
            call("exec", {"command": f"cat {place}; echo x > {place}"}) if len(seen) == 2 else "."
        )

    model = ScriptedModel(then=answer)
    async with Agent.open(config, workspace=workspace, model=model, sandboxed=True) as agent:
        await agent.work("go")
    for name in engine.call("ps", "-aq", "--filter=label=clawkit.sandbox=1").split():
        engine.call("rm", "--force", name)
    _, by_tool, by_command = seen
    assert "the word is heron" in by_tool
    assert "the word is heron" in by_command
    assert "Read-only file system" in by_command

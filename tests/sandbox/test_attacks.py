"""What commands in the sandboxes of this machine's kernel try, and what comes of it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.lacking import lack
from tests.process.started import BOMBS
from tests.process.watching import alive, new_marker, until
from tests.sandbox.local_ground import Box, open_sandbox

from clawkit.config.sections.sandbox import SandboxLimits
from clawkit.config.sections.sandbox import SandboxSettings as Settings
from clawkit.process import landlock
from clawkit.process.protocols import Grants
from clawkit.sandbox.local import Backend, probe_bwrap

CANARY = "CANARY-7f3a"
PYTHON = os.path.realpath(sys.executable)
BACKENDS: list[Backend] = ["landlock", "bwrap"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    if found == "bwrap" and probe_bwrap():
        lack(probe_bwrap())
    if found == "landlock" and not landlock.available():
        lack("this kernel has no Landlock")
    return found


class Ground:
    """A workspace, a home with secrets, and a place outside."""

    def __init__(self, tmp_path: Path) -> None:
        self.workspace = tmp_path / "ws"
        self.outside = tmp_path / "outside"
        self.home = Path(os.environ["HOME"])
        self.state = tmp_path / "state"
        for folder in (self.workspace, self.outside, self.state, self.home / ".ssh"):
            folder.mkdir()
        (self.outside / "file").write_text("kept")
        (self.home / ".ssh" / "id").write_text(CANARY)
        (self.home / ".netrc").write_text(CANARY)
        (self.home / "notes").write_text("not a secret")
        (self.state / "exec-approvals.json").write_text(CANARY)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
async def box(backend: Backend, ground: Ground) -> AsyncIterator[Box]:
    sandbox = open_sandbox(backend, ground.workspace, ground.state, ground.home)
    yield Box(sandbox, ground.workspace)
    await sandbox.close()


def python(code: str, *arguments: object) -> str:
    """A command that runs some Python."""
    words = " ".join(f"'{each}'" for each in arguments)
    return f"{PYTHON} -I - {words} <<'END'\nimport ctypes, os, socket, sys\n{code}\nEND"


# What may be done


async def test_everyday_work_is_possible(box: Box, ground: Ground) -> None:
    text = (
        "set -e; echo one > a; sed -i s/one/two/ a; cp -r a b; mkdir -p c/d; mv b c/d; ls -la; "
        "git init -q r; cd r; git -c user.name=n -c user.email=e commit -q --allow-empty -m m; "
        "git log --oneline; mktemp; cat /etc/passwd > /dev/null; cat ~/notes; "
        "echo x > $TMPDIR/x; mkdir -p $XDG_CACHE_HOME/y"
    )
    exit_, said = await box.run(text)
    assert (exit_.code, "not a secret" in said) == (0, True), said
    assert (ground.workspace / "a").read_text() == "two\n"


async def test_bubblewrap_gives_a_command_its_own_loopback_network(
    backend: Backend, box: Box
) -> None:
    code = (
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(s.getsockname())\n"
        "s.accept()[0].send(b'met')\nprint(c.recv(9))"
    )
    _, said = await box.run(python(code))
    assert ("met" in said) == (backend == "bwrap"), said


# Protected files, and what outlives its command


def leave(text: str) -> str:
    """A command that ends at once and leaves something running."""
    return f"(setsid sh -c '{text}' > /dev/null 2>&1 &)"


EVIL = "echo ../evil > .git/commondir; mkdir -p .git/info; echo x > .git/info/attributes"


@pytest.fixture
def git(ground: Ground) -> Path:
    subprocess.run(["git", "init", "-q", ground.workspace], check=True)
    return ground.workspace / ".git"


async def test_leftover_processes_cannot_change_protected_files(
    box: Box, ground: Ground, git: Path
) -> None:
    go, done = ground.workspace / "go", ground.workspace / "done"
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    exit_, _ = await box.run(leave(f"{wait}; {EVIL}; touch done; sleep 1000"))
    assert exit_.notes == ()
    go.touch()
    await until(done.exists)
    exit_, _ = await box.run("true")
    assert any(line.startswith("Removed .git/commondir") for line in exit_.notes), exit_.notes
    assert not (git / "commondir").exists()
    assert not (git / "info" / "attributes").exists()


async def test_protected_files_are_checked_again_when_leftover_processes_end(
    box: Box, ground: Ground, git: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go = ground.workspace / "go"
    await box.run(leave(f"while [ ! -e go ]; do sleep 0.05; done; {EVIL}"))
    go.touch()
    await until(lambda: "Removed .git/commondir" in caplog.text)
    assert not (git / "commondir").exists()
    # From then on, what a person does counts.
    (git / "config").write_text("[core]\n\tbare = false\n")
    exit_, _ = await box.run("true")
    assert exit_.notes == ()
    assert "bare = false" in (git / "config").read_text()


async def test_protected_files_are_checked_when_the_sandbox_closes(
    box: Box, ground: Ground, git: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go, done = ground.workspace / "go", ground.workspace / "done"
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    await box.run(leave(f"{wait}; while :; do {EVIL}; touch done; done"))
    go.touch()
    await until(done.exists)
    await box.sandbox.close()
    assert not (git / "commondir").exists()
    assert not (git / "info" / "attributes").exists()
    assert "Removed .git/commondir" in caplog.text


async def test_closing_does_not_revert_changes_of_a_person(box: Box, git: Path) -> None:
    await box.run("true")
    (git / "commondir").write_text("mine")
    await box.sandbox.close()
    assert (git / "commondir").read_text() == "mine"


async def test_a_detached_command_is_checked_while_clawkit_runs(
    box: Box, ground: Ground, git: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if not landlock.available():
        lack("detach needs Landlock")
    done, marker = ground.workspace / "done", new_marker()
    await box.start(f"{EVIL}; touch done; exec sleep {marker}", detach=True)
    try:
        await until(done.exists)
        await box.sandbox.close()
        assert not (git / "commondir").exists()
        assert "Removed .git/commondir" in caplog.text
    finally:
        for pid in alive(marker):
            os.kill(pid, signal.SIGKILL)


# Files


async def test_nothing_outside_the_workspace_is_written(box: Box, ground: Ground) -> None:
    outside = ground.outside
    (ground.workspace / "link").symlink_to(outside)
    (ground.workspace / "flink").symlink_to(outside / "file")
    text = (
        f"echo x > {outside}/new; echo x > {outside}/file; echo x > link/new; echo x > flink; "
        f"rm -f {outside}/file; mv {outside}/file .; ln {outside}/file hard && echo x > hard; "
        f"mkdir {outside}/d; touch ~/.bashrc; truncate -s 0 {outside}/file; chmod 777 {outside}; "
        f"cp -r . {outside}/copy; ln -s /etc {outside}/l; touch -d 2000-01-01 {outside}/file; true"
    )
    before = outside.stat().st_mode, (outside / "file").stat().st_mtime_ns
    await box.run(text)
    assert [each.name for each in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "kept"
    assert not (ground.home / ".bashrc").exists()
    if box.sandbox.backend == "bwrap":  # Landlock knows neither modes nor times
        assert (outside.stat().st_mode, (outside / "file").stat().st_mtime_ns) == before


READING = [
    "cat ~/.ssh/id ~/.netrc",
    "cd ~/.ssh && cat id",
    "ln -s ~/.ssh s; cat s/id; cat ~/./.ssh/../.ssh/id",
    "cat /proc/self/root$HOME/.ssh/id; cat /proc/self/cwd/../../../../../../../..$HOME/.netrc",
    "cp -r ~ copy; cat copy/.ssh/id copy/.netrc",
    "tar cf - ~ | grep -a CANARY",
    "grep -r CANARY ~ $STATE",
    "cat $STATE/exec-approvals.json",
    "ls $STATE $STATE/..; cat /proc/1/environ /proc/$PPID/environ | tr '\\0' '\\n'",
]


async def test_no_secret_is_read(box: Box, ground: Ground, subtests: pytest.Subtests) -> None:
    for text in READING:
        with subtests.test(text=text):
            _, said = await box.run(f"STATE={ground.state}; {text}")
            assert CANARY not in said


async def test_clawkits_own_state_is_not_written(box: Box, ground: Ground) -> None:
    text = f"echo x > {ground.state}/exec-approvals.json; touch {ground.state}/new; true"
    await box.run(text)
    assert (ground.state / "exec-approvals.json").read_text() == CANARY
    assert not (ground.state / "new").exists()


async def test_a_link_to_a_secret_is_hidden_where_it_leads(
    backend: Backend, ground: Ground
) -> None:
    shutil.rmtree(ground.home / ".ssh")
    real = ground.outside / "keys"
    real.mkdir()
    (real / "id").write_text(CANARY)
    (ground.home / ".ssh").symlink_to(real)
    sandbox = open_sandbox(backend, ground.workspace, ground.state, ground.home)
    try:
        _, said = await Box(sandbox, ground.workspace).run(f"cat ~/.ssh/id {real}/id")
        assert CANARY not in said
    finally:
        await sandbox.close()


async def test_a_workspace_that_is_the_home_shows_no_secrets(
    backend: Backend, ground: Ground
) -> None:
    home = ground.home
    (home / "src").mkdir()
    (home / ".bashrc").write_text("mine")
    sandbox = open_sandbox(backend, home, ground.state, home)
    box = Box(sandbox, home)
    try:
        text = "cat .ssh/id .netrc; echo x > .ssh/id; echo x > .bashrc; echo y > src/f"
        _, said = await box.run(text)
    finally:
        await sandbox.close()
    assert CANARY not in said
    assert (home / ".ssh" / "id").read_text() == CANARY
    assert (home / ".bashrc").read_text() == "mine"
    assert (home / "src" / "f").read_text() == "y\n"


async def test_only_granted_paths_are_accessible(box: Box, ground: Ground) -> None:
    grants = Grants(read=(f"{ground.home}/.ssh/id",), write=(str(ground.outside),))
    _, said = await box.run(f"cat ~/.ssh/id; echo x > {ground.outside}/new; cat ~/.netrc", grants)
    assert (ground.outside / "new").read_text() == "x\n"
    assert said.count(CANARY) == 1


async def test_hidden_paths_of_the_settings_are_hidden_and_shown_ones_are_not(
    backend: Backend, ground: Ground
) -> None:
    settings = replace(Settings(), hide_paths=[str(ground.outside)], show_paths=["~/.netrc"])
    sandbox = open_sandbox(backend, ground.workspace, ground.state, ground.home, settings)
    try:
        _, said = await Box(sandbox, ground.workspace).run(f"cat {ground.outside}/file ~/.netrc")
    finally:
        await sandbox.close()
    assert "kept" not in said
    assert CANARY in said


async def test_devices_cannot_be_made_or_opened(box: Box, ground: Ground) -> None:
    text = (
        "mknod d b 8 0; mknod c c 1 1; cat /dev/mem /dev/sda /dev/vda /dev/kmsg | head -c 1 | wc -c"
    )
    _, said = await box.run(f"({text}) 2>/dev/null")
    assert said.strip() == "0"
    assert not list(ground.workspace.glob("[cd]"))


# Other programs


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A program of the same user, outside."""
    env = {"VICTIM": CANARY, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["/bin/sleep", "600"], env=env) as process:
        yield process
        process.kill()


async def test_programs_outside_cannot_be_signalled_or_traced(
    box: Box, victim: subprocess.Popen[bytes]
) -> None:
    code = (
        "pid = int(sys.argv[1]); libc = ctypes.CDLL(None, use_errno=True)\n"
        "for number in (9, 15, 19):\n"
        "    try: os.kill(pid, number); print('signalled')\n"
        "    except OSError: pass\n"
        "if libc.ptrace(16, pid, 0, 0) == 0: print('traced')\n"
        "for name in ('environ', 'mem', 'cwd', 'root', 'fd/0', 'maps'):\n"
        "    try: print(open(f'/proc/{pid}/{name}', 'rb').read(4096))\n"
        "    except OSError: pass\n"
        "buffer = ctypes.create_string_buffer(8)\n"
    )
    _, said = await box.run(python(code, victim.pid))
    assert CANARY not in said
    assert "signalled" not in said
    assert "traced" not in said
    assert victim.poll() is None
    os.kill(victim.pid, signal.SIGCONT)


async def test_limits_of_programs_outside_cannot_be_set(
    box: Box, victim: subprocess.Popen[bytes]
) -> None:
    code = (
        "import resource; kind = resource.RLIMIT_CPU\n"
        "try: resource.prlimit(int(sys.argv[1]), kind, (1, 1)); print('set')\n"
        "except OSError: pass\n"
        "resource.prlimit(os.getpid(), kind); resource.setrlimit(kind, (600, 600))"
    )
    before = resource.prlimit(victim.pid, resource.RLIMIT_CPU)
    exit_, said = await box.run(python(code, victim.pid))
    assert (exit_.code, said) == (0, "")
    assert resource.prlimit(victim.pid, resource.RLIMIT_CPU) == before


async def test_a_command_cannot_change_its_limits_before_they_are_final(box: Box) -> None:
    """With Landlock, the server sets hard limits just after the start: it could not raise its own
    again. Until then, children could get more."""
    code = (
        "import resource as r\n"
        "for kind in (r.RLIMIT_DATA, r.RLIMIT_FSIZE, r.RLIMIT_NPROC, r.RLIMIT_MSGQUEUE):\n"
        "    for set_limit in (r.setrlimit, lambda *given: r.prlimit(0, *given)):\n"
        "        try: set_limit(kind, r.getrlimit(kind)); print('set', kind)\n"
        "        except (OSError, ValueError): pass\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, 64)); print('done')"
    )
    exit_, said = await box.run(python(code))
    assert exit_.code == 0
    if box.sandbox.backend == "landlock":  # bwrap's server has hard limits itself
        assert said == "done\n"


async def test_no_memory_is_shared_with_programs_outside(box: Box) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(0, 4096, 0o600)
    assert segment >= 0
    try:
        here = libc.shmat(segment, None, 0)
        ctypes.memmove(here, CANARY.encode(), len(CANARY))
        code = (
            "libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
            "there = libc.shmat(int(sys.argv[1]), None, 0)\n"
            "if there not in (None, 2**64 - 1): print(ctypes.string_at(there, 20))"
        )
        _, said = await box.run(python(code, segment))
        assert said == ""
        libc.shmdt(ctypes.c_void_p(here))
    finally:
        libc.shmctl(segment, 0, None)


async def test_clawkit_itself_cannot_be_signalled(box: Box) -> None:
    text = f"kill -9 {os.getpid()} {os.getppid()}; kill -9 -1; kill -STOP $PPID; true"
    await box.run(text)
    exit_, said = await box.run("echo still here")
    assert (exit_.code, said) == (0, "still here\n")


SYSTEM_CALLS = {
    "ptrace": "libc.ptrace(0, 0, 0, 0)",
    "unshare": "libc.unshare(0x10000000)",
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    "umount": "libc.umount2(b'/proc', 2)",
    "chroot": "libc.chroot(b'.')",
    "setns": "libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
    "clone": "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": "libc.syscall(435, ctypes.create_string_buffer(88), 88)",
    "io_uring": "libc.syscall(425, 8, ctypes.create_string_buffer(120))",
    "bpf": "libc.syscall(321, 0, ctypes.create_string_buffer(120), 120)",
    "perf": "libc.syscall(298, ctypes.create_string_buffer(120), 0, -1, -1, 0)",
    "userfaultfd": "libc.syscall(323, 0)",
    "keyring": "libc.syscall(250, 0, -3, 1)",
    "fsopen": "libc.syscall(430, b'tmpfs', 0)",
    "open_tree": "libc.syscall(428, -100, b'/', 1)",
    "handle": "libc.syscall(304, -100, ctypes.create_string_buffer(64), 0)",
    "process_vm_readv": "libc.syscall(310, os.getppid(), 0, 0, 0, 0, 0)",
    "pidfd_getfd": "libc.syscall(438, os.pidfd_open(os.getpid()), 0, 0)",
    "other convention": "libc.syscall(0x40000000 + 39)",
    "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and 0",
    "packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW) and 0",
    "netlink audit": "socket.socket(16, socket.SOCK_RAW, 9) and 0",
    "unix socket": "socket.socket(socket.AF_UNIX) and 0",
    "vsock": "socket.socket(40, socket.SOCK_STREAM) and 0",
    "bluetooth": "socket.socket(31, socket.SOCK_RAW, 0) and 0",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
async def test_system_calls_that_no_command_needs_are_refused(box: Box) -> None:
    lines = ["libc = ctypes.CDLL(None, use_errno=True)"]
    for name, call in SYSTEM_CALLS.items():
        lines += [
            f"try: done = {call}",
            "except OSError: done = -1",
            f"if done >= 0: print({name!r})",
        ]
    exit_, said = await box.run(python("\n".join(lines)))
    assert (exit_.code, said) == (0, "")


async def test_a_command_cannot_inject_terminal_input(box: Box) -> None:
    code = (
        "import fcntl\n"
        "for number in (0x5412, 0x541C, 0x5412 | 1 << 32):\n"
        "    try: fcntl.ioctl(0, number & 0xffffffff, b'x'); print('typed')\n"
        "    except OSError: print('refused')\n"
        "libc = ctypes.CDLL(None)\n"
        "print(libc.ioctl(0, ctypes.c_ulong(0x5412 | 1 << 32), b'x'))"
    )
    (box.workspace / "t.py").write_text(f"import ctypes, os\n{code}\n")
    _, said = await box.run(f"{PYTHON} -I t.py", size=(80, 24))
    assert "typed" not in said
    assert said.split()[-1] == "-1"


async def test_snapshots_do_not_reveal_hidden_files(box: Box) -> None:
    """On btrfs and bcachefs, a snapshot goes past mounts and rules: `btrfs subvolume snapshot ~ x`
    in a home directory that is a subvolume. Sharing data between open files stays possible."""
    code = (
        "import errno, fcntl\n"
        "folder, file, other = os.open('.', 0), open('a', 'w+'), open('b', 'w+')\n"
        "def ask(number, argument):\n"
        "    try: return fcntl.ioctl(folder, number, argument)\n"
        "    except OSError as error: return errno.errorcode[error.errno]\n"
        "shots = (0x50009401, 0x50009417, 0x5000940e, 0x5000940f, 0x4040bc10, 0x4040bc11)\n"
        "print(*(ask(each, bytearray(4096)) for each in shots))\n"
        "folder = file\n"
        "print(ask(0x40049409, other.fileno()) != 'EPERM')"
    )
    _, printed = await box.run(python(code))

    assert printed == "EPERM EPERM EPERM EPERM EPERM EPERM\nTrue\n"


async def test_a_program_in_memory_is_confined_like_its_command(box: Box, ground: Ground) -> None:
    code = (
        "fd = os.memfd_create('x')\n"
        "os.write(fd, open('/bin/cat', 'rb').read())\n"
        "os.execve(fd, ['cat', sys.argv[1]], {})"
    )
    _, said = await box.run(python(code, f"{ground.home}/.ssh/id"))
    assert CANARY not in said


async def test_setuid_programs_gain_nothing(box: Box) -> None:
    _, said = await box.run(
        "grep -E 'NoNewPrivs|CapEff' /proc/self/status; cat /etc/shadow; su -c id"
    )
    assert "NoNewPrivs:\t1" in said
    assert "root:" not in said
    # What is left are powers over files that its user could have anyway.
    assert int(said.partition("CapEff:\t")[2].split()[0], 16) & ~0b11011 == 0


# The network


def serve(listener: socket.socket, heard: list[bytes]) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer:
            peer.settimeout(5)
            heard.append(peer.recv(100))


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[int, str, str, list[bytes]]]:
    """Programs outside that listen: on TCP, on a socket file in reach, on an abstract socket."""
    heard: list[bytes] = []
    path, name = f"{tmp_path}/ws/service.sock", f"clawkit-test-{os.getpid()}"
    listeners = [socket.create_server(("127.0.0.1", 0))]
    for address in (path, f"\0{name}"):
        listeners.append(socket.socket(socket.AF_UNIX))
        listeners[-1].bind(address)
        listeners[-1].listen()
    for each in listeners:
        threading.Thread(target=serve, args=(each, heard), daemon=True).start()
    yield listeners[0].getsockname()[1], path, name, heard
    for each in listeners:
        each.shutdown(socket.SHUT_RDWR)
        each.close()


async def test_services_of_the_machine_cannot_be_reached(
    ground: Ground, box: Box, services: tuple[int, str, str, list[bytes]]
) -> None:
    port, path, name, heard = services
    code = (
        "port, path, name = int(sys.argv[1]), *sys.argv[2:]\n"
        "tries = [(socket.AF_INET, ('127.0.0.1', port)), (socket.AF_INET, ('0.0.0.0', port)),\n"
        "    (socket.AF_INET6, ('::1', port)), (socket.AF_INET6, ('::ffff:127.0.0.1', port)),\n"
        "    (socket.AF_UNIX, path), (socket.AF_UNIX, chr(0) + name)]\n"
        "for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
        "    for family, address in tries:\n"
        "        try:\n"
        "            s = socket.socket(family, kind); s.settimeout(3); s.connect(address)\n"
        "            s.send(b'heard'); print('sent', address, kind)\n"
        "        except OSError: pass\n"
    )
    await box.run(python(code, port, path, name))
    assert heard == []


@pytest.mark.parametrize("grants", [Grants(), Grants(network=True)])
async def test_socket_pairs_do_not_reach_other_programs(
    box: Box, ground: Ground, grants: Grants
) -> None:
    path, name = f"{ground.workspace}/service.sock", f"clawkit-test-pair-{os.getpid()}"
    code = (
        "for kind in (1, 2, 3, 5):\n"
        "    for address in (sys.argv[1], chr(0) + sys.argv[2]):\n"
        "        try:\n"
        "            s, t = socket.socketpair(socket.AF_UNIX, kind)\n"
        "            s.send(b'met'); print(t.recv(9)); t.close()\n"
        "            s.connect(address); s.send(b'heard')\n"
        "        except OSError: pass\n"
    )
    with ExitStack() as opened:
        services = []
        for address in (path, f"\0{name}"):
            service = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            service.bind(address)
            service.setblocking(False)
            services.append(service)
        _, said = await box.run(python(code, path, name), grants)
        assert said == "b'met'\n" * 4
        for service in services:
            with pytest.raises(BlockingIOError):
                service.recv(9)


@pytest.mark.skipif(landlock.abi() < 6, reason="the kernel cannot tell whose sockets they are")
async def test_granting_unix_sockets_does_not_grant_abstract_ones(
    box: Box, services: tuple[int, str, str, list[bytes]]
) -> None:
    _, path, name, heard = services
    code = (
        "for address in (chr(0) + sys.argv[2], sys.argv[1]):\n"
        "    try: s = socket.socket(socket.AF_UNIX); s.connect(address); s.send(address.encode())\n"
        "    except OSError: pass"
    )
    await box.run(python(code, path, name), Grants(network=True, sockets=True))
    await until(lambda: heard, "the service to hear")
    assert heard == [path.encode()]


async def test_the_kernel_reports_that_the_network_was_refused(box: Box) -> None:
    code = "s = socket.socket(); s.settimeout(3); s.connect(('192.0.2.1', 80))"
    exit_, _ = await box.run(python(code))
    assert exit_.wanted_network
    exit_, _ = await box.run("id; ls -l; getent passwd root")
    assert not exit_.wanted_network


async def test_with_the_network_granted_a_service_can_be_reached_and_socket_files_cannot(
    box: Box, services: tuple[int, str, str, list[bytes]]
) -> None:
    port, path, name, heard = services
    code = (
        "for family, address in ((socket.AF_UNIX, sys.argv[2]),\n"
        "        (socket.AF_UNIX, chr(0) + sys.argv[3]), (2, ('127.0.0.1', int(sys.argv[1])))):\n"
        "    try:\n"
        "        s = socket.socket(family); s.connect(address); s.send(str(family).encode())\n"
        "    except OSError: pass"
    )
    await box.run(python(code, port, path, name), Grants(network=True))
    await until(lambda: heard, "the service to hear")
    assert heard == [b"2"]


async def test_hosts_are_reached_through_the_proxy_only(
    ground: Ground, services: tuple[int, str, str, list[bytes]]
) -> None:
    port, *_ = services
    private = [f"127.0.0.1:{port}"]
    settings = replace(
        Settings(), network="allowlist", allow_hosts=["example.org"], allow_private=private
    )
    sandbox = open_sandbox("bwrap", ground.workspace, ground.state, ground.home, settings)
    try:
        box = Box(sandbox, ground.workspace)
        exit_, said = await box.run("curl -sS -m 20 http://evil.example/; true")
        assert "not allowed" in said
        assert any("evil.example" in note for note in exit_.notes)
        _, said = await box.run(f"curl -sS -m 20 --noproxy '*' http://127.0.0.1:{port}/; true")
        assert "Failed to connect" in said or "refused" in said
    finally:
        await sandbox.close()


async def test_landlock_refuses_to_filter_by_host(ground: Ground) -> None:
    from clawkit.errors import ToolError

    sandbox = open_sandbox("landlock", ground.workspace, ground.state, ground.home)
    try:
        with pytest.raises(ToolError, match="cannot filter by host"):
            await Box(sandbox, ground.workspace).run("true", Grants(hosts=("example.org",)))
    finally:
        await sandbox.close()


# The machine itself


async def test_leftover_processes_end_with_the_sandbox(backend: Backend, ground: Ground) -> None:
    marker = new_marker()
    sandbox = open_sandbox(backend, ground.workspace, ground.state, ground.home)
    box = Box(sandbox, ground.workspace)
    await box.run(f"(setsid env -i $(type -p sleep) {marker} &) ; nohup sleep {marker} & true")
    await until(lambda: alive(marker), "what is left running")
    await sandbox.close()
    await until(lambda: not alive(marker), "the end of what was left running")
    assert not list((ground.state / "sandboxes").rglob("run-*"))


@BOMBS
async def test_a_fork_bomb_is_ended(box: Box) -> None:
    """One that stops at 2,000 processes: root has no limit, and one that never stops can take the
    pids that tests beside it need before it is ended."""
    bomb = "f() { (($1 > 9)) && exec sleep 600; f $(($1 + 1)) | f $(($1 + 1)) & wait; }; f 0"
    exit_, _ = await box.run(bomb)
    assert exit_.reason == "process-limit"
    exit_, said = await box.run("echo after")
    assert said == "after\n"


async def test_limits_of_files_and_memory_hold(backend: Backend, ground: Ground) -> None:
    settings = replace(Settings(), limits=SandboxLimits(memory_mb=400, file_mb=1))
    sandbox = open_sandbox(backend, ground.workspace, ground.state, ground.home, settings)
    box = Box(sandbox, ground.workspace)
    try:
        exit_, _ = await box.run("head -c 3000000 /dev/zero > big")
        assert exit_.code != 0
        assert (ground.workspace / "big").stat().st_size <= 1 << 20
        exit_, said = await box.run(python("x = bytearray(1_000_000_000)"))
        assert "MemoryError" in said
    finally:
        await sandbox.close()


async def test_commands_end_when_clawkit_is_killed(backend: Backend, ground: Ground) -> None:
    """Killed in the middle of a command."""
    marker = new_marker()
    program = f"""
import asyncio, sys
from pathlib import Path
from tests.sandbox.local_ground import Box, open_sandbox
async def main():
    ground, state, home = map(Path, sys.argv[1:])
    sandbox = open_sandbox({backend!r}, ground, state, home)
    await Box(sandbox, ground).run("sleep {marker} & (setsid sleep {marker} &); wait")
asyncio.run(main())
"""
    places = map(str, (ground.workspace, ground.state, ground.home))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, *places)
    await until(lambda: len(alive(marker)) >= 2, "the commands")
    process.kill()
    await process.wait()
    await until(lambda: not alive(marker), "the end of the commands")

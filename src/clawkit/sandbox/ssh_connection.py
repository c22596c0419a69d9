"""The connection to the other machine: the configuration of ssh, its errors, and requests."""

from __future__ import annotations

import ast
import asyncio
import functools
import json
import os
import re
import shlex
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from clawkit.config.section import SecretInput
from clawkit.config.sections.sandbox import Ssh
from clawkit.errors import ToolError, ToolInputError
from clawkit.process.environ import find_program
from clawkit.sandbox.engine import read_tail, start_program
from clawkit.sandbox.protocols import SandboxUnavailableError
from clawkit.sandbox.remote_helper import FAILED, SILENCE_S, pack, receive
from clawkit.store import write_atomic
from clawkit.text import last_words, printable

ALIAS = "clawkit-sandbox"
OLD_PYTHON = 95  # exit code of the program if the other machine's Python is too old
_TARGET = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_ASK_NOTHING = "BatchMode yes; ConnectTimeout 5; ServerAliveInterval 15; ServerAliveCountMax 3"
_FORWARD_NOTHING = """IdentitiesOnly yes; ForwardAgent no; ForwardX11 no; ClearAllForwardings yes;
    PermitLocalCommand no; ControlMaster no; ControlPath none; EscapeChar none; RequestTTY no"""
_FAULTS = {
    "HOST IDENTIFICATION HAS CHANGED": "the host key of {} is not the known one: someone may be "
    "intercepting the connection. If it was changed on purpose, replace it in the known hosts",
    "Host key verification failed": "the host key of {} is unknown; connect once with ssh to check "
    "the fingerprint, or set sandbox.ssh.knownHostsFile",
    "Permission denied": "{} refused the login; check the user and sandbox.ssh.identityFile (a key "
    "with a passphrase must be in an ssh agent)",
}
_SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
T = TypeVar("T")
_PROGRAMS = ("clawkit.sandbox.remote_helper", "clawkit.process.spawn_server")
_CONNECT_S, _CALL_S, _CLOSE_S = 30.0, 120.0, 10.0
_NOISE = 64 * 1024  # bytes that startup files there may print before the program answers
_ENV = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK")
_BOOT = "import sys,zlib;exec(zlib.decompress(sys.stdin.buffer.read(int(sys.argv[3]))))"
_INSTALL = """
import json, os, stat, sys
if sys.version_info < (3, 11):
    sys.stderr.write(sys.version.split()[0])
    sys.exit({old})
root = os.path.join(os.path.abspath(json.loads(sys.argv[2])["root"]), ".clawkit")
lib = os.path.join(root, {name!r})
mask = os.umask(0o077)
try:
    os.makedirs(lib, 0o700, exist_ok=True)
    for each in (os.path.dirname(root), root, lib):
        info = os.lstat(each)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise OSError(1, "it belongs to another user, or others can write to it", each)
    for path, text in {files!r}.items():
        path = os.path.join(lib, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.exists(path) and open(path, "rb").read() == text.encode():
            continue  # keep its bytecode
        new = "%s.%d" % (path, os.getpid())
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)
except OSError as error:
    sys.stderr.write("%r cannot be used: %s" % (error.filename, error.strerror))
    sys.exit({failed})
os.umask(mask)
sys.path.insert(0, lib)
from clawkit.sandbox.remote_helper import main
main()
"""


Reveal = Callable[[SecretInput], str]
Target = tuple[str, str, int]  # host, user and port


def parse_target(text: str | None) -> Target:
    """Raises `SandboxUnavailableError` unless it is user@host or user@host:port."""
    found = _TARGET.fullmatch(text or "")
    port = int(found["port"] or 22) if found else 0
    if found is None or not 1 <= port <= 65_535:
        why = f"sandbox.ssh.target is {text!r}; it must be user@host or user@host:port"
        raise SandboxUnavailableError(why)
    return found["host"].strip("[]"), found["user"] or "", port


def write_config(folder: str, target: Target, settings: Ssh, reveal: Reveal) -> str:
    """Write the ssh configuration for a connection into a private directory; returns its path."""
    host, user, port = target
    lines = [
        *(f"Host {ALIAS}", f"HostName {host}", f"Port {port}"),
        *([f"User {user}"] if user else []),
        *re.split(r";\s+", f"{_ASK_NOTHING}; {_FORWARD_NOTHING}"),
        f"StrictHostKeyChecking {'yes' if settings.strict_host_key_checking else 'accept-new'}",
        f"UpdateHostKeys {'yes' if settings.update_host_keys else 'no'}",
    ]
    for option, file, data in (
        ("IdentityFile", settings.identity_file, settings.identity_data),
        ("CertificateFile", settings.certificate_file, settings.certificate_data),
        ("UserKnownHostsFile", settings.known_hosts_file, settings.known_hosts_data),
    ):
        path = os.path.expanduser(file) if file else ""
        if data is not None:
            path = os.path.join(folder, option)
            write_atomic(path, reveal(data).rstrip("\n").encode() + b"\n")
        if path:
            lines.append(f"{option} {_quote(option, path)}")
    path = os.path.join(folder, "config")
    write_atomic(path, "\n".join(lines).encode() + b"\n")
    return path


def _quote(option: str, path: str) -> str:
    """Quote a path so that ssh reads it literally: no tokens, no variables, one word."""
    if not path.isprintable() or '"' in path or "\\" in path or "${" in path:
        raise SandboxUnavailableError(f"ssh cannot use {path!r} as {option}; use a plain path")
    return f'"{path}"'.replace("%", "%%")


def explain(where: str | None, code: int, stderr: str) -> str:
    """Why ssh exited before the program answered, and what to do."""
    if code == 127:
        return f"python3 was not found on {where}; install Python 3.11 or newer there"
    if code == OLD_PYTHON:
        return f"python3 on {where} is {stderr[-20:]}; install Python 3.11 or newer there"
    if code == FAILED:
        return f"the sandbox on {where} could not be set up: {last_words(stderr, 500)}"
    for words, what in _FAULTS.items():
        if words in stderr:
            return what.format(where)
    last = stderr.splitlines()[-1][:500] if stderr else "no answer"
    return f"{where} cannot be reached by ssh: {last}. Check sandbox.ssh.target and the network"


@functools.cache
def _bundle() -> bytes:
    """The program for the other machine: all modules of clawkit that it needs, compressed."""
    files: dict[str, str] = {"clawkit/__init__.py": ""}
    waiting = list(_PROGRAMS)
    while waiting:
        module = waiting.pop()
        for path in (f"{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py")):
            place = os.path.join(_SOURCES, path)
            if path not in files and os.path.exists(place):
                with open(place, encoding="utf-8") as file:
                    files[path] = file.read()
                waiting += [module.rpartition(".")[0], *_imports(files[path])]
    name = f"lib-{zlib.crc32(repr(sorted(files.items())).encode()):08x}"
    code = _INSTALL.format(old=OLD_PYTHON, failed=FAILED, name=name, files=files)
    return zlib.compress(code.encode())


def _imports(text: str) -> list[str]:
    """The modules of clawkit that a module imports at run time."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clawkit."):
            found += [f"{node.module}", *(f"{node.module}.{each.name}" for each in node.names)]
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)
    return found


class SshLink:
    """A connection to the program on the other machine, whose messages are not trusted."""

    def __init__(self, process: asyncio.subprocess.Process, shown: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.created = 0.0  # when the sandbox there was created
        self._process = process
        if process.stdout is None or process.stdin is None:
            raise ValueError("the process has no pipes")
        self._reader, self._writer = process.stdout, process.stdin
        self._shown = shown
        self._waiting: dict[int, asyncio.Future[tuple[Any, bytes]]] = {}
        self._number, self._why, self._closed = 0, "", False
        self._tasks: list[asyncio.Task[None]] = []
        self.lost: asyncio.Future[None] = self.loop.create_future()  # done on disconnect

    @property
    def is_open(self) -> bool:
        return not self._closed and not self.lost.done()

    async def begin(self, token: str) -> None:
        """Send the program, and wait until it answers. Raises `EOFError` or `ValueError`."""
        self._writer.write(_bundle())
        seen = 0
        while (line := await self._reader.readline()).strip() != token.encode():
            seen += len(line)
            if not line or seen > _NOISE:
                raise EOFError
        message, _ = await receive(self._reader)
        if list(map(type, message)) != [str, float]:
            raise ValueError("unexpected answer")
        self.created = message[1]
        self._tasks = [self.loop.create_task(each()) for each in (self._listen, self._keep_alive)]

    async def call(self, method: str, *params: Any, data: bytes = b"") -> tuple[Any, bytes]:
        """Send a request and return its answer. Raises the error of the other side, and `ToolError`
        if the connection is lost or times out."""
        self._number += 1
        number = self._number
        future: asyncio.Future[tuple[Any, bytes]] = self.loop.create_future()
        self._waiting[number] = future
        try:
            self.post(method, *params, data=data, number=number)
            async with asyncio.timeout(_CALL_S):
                with suppress(ConnectionError):
                    await self._writer.drain()
                return await future
        except TimeoutError:
            self._lose(f"no answer for {_CALL_S:g} s")
            raise self.error() from None
        finally:
            self._waiting.pop(number, None)

    def post(self, method: str, *params: Any, data: bytes = b"", number: int = 0) -> None:
        """Send a request; with the number 0, without an answer."""
        if not self.is_open:
            raise self.error()
        self._writer.write(pack([number, method, *params], data))

    def error(self) -> ToolError:
        return ToolError(f"the connection to {self._shown} was lost{self._why}; try again")

    async def close(self) -> None:
        self._closed = True
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._lose("it was closed")

    def drop(self) -> None:
        """Close the connection from another event loop."""
        self._closed = True
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _listen(self) -> None:
        why = ""
        try:
            while True:
                self._settle(*await receive(self._reader))
        except EOFError:
            pass
        except (ValueError, TypeError, LookupError):
            why = "the other side sent an invalid message"
        self._lose(why)

    def _settle(self, message: list[Any], data: bytes) -> None:
        kind, number, first, *more = message
        future = self._waiting.get(int(number))
        if future is None or future.done():
            return
        if kind == "done":
            future.set_result((first, data))
        else:
            error = ToolInputError if first is True else ToolError
            future.set_exception(error(printable(str(more[0]))[:4_000]))

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(SILENCE_S / 4)
            self.post("ping")

    def _lose(self, why: str) -> None:
        if self.lost.done():
            return
        self._why = f" ({why})" if why else ""
        self.lost.set_result(None)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self.error())
        self._writer.close()
        if not self._closed:
            self._closed = True
            self.loop.call_later(_CLOSE_S, self.drop)


async def connect(settings: Ssh, options: Mapping[str, str], reveal: Reveal) -> SshLink:
    """Open a connection. Raises `SandboxUnavailableError`."""
    target = parse_target(settings.target)
    program = find_program(settings.command)
    if program is None:
        why = f"the ssh program {settings.command!r} was not found; install openssh-client, or set"
        raise SandboxUnavailableError(f"{why} sandbox.ssh.command to its path")
    token = os.urandom(16).hex()
    given = json.dumps({"root": settings.workspace_root, **options})
    words = ("python3", "-I", "-S", "-c", _BOOT, token, given, str(len(_bundle())))
    # Keys are on disk only while ssh logs in.
    with tempfile.TemporaryDirectory(prefix="clawkit-ssh-") as folder:
        config = write_config(folder, target, settings, reveal)
        argv = (program, "-F", config, "-T", "--", ALIAS, f"exec {shlex.join(words)}")
        env = {name: os.environ[name] for name in _ENV if name in os.environ}
        process = await start_program(argv, env)
        link = SshLink(process, settings.target or "")
        errors = asyncio.create_task(read_tail(process.stderr, _NOISE))
        try:
            async with asyncio.timeout(_CONNECT_S):
                await link.begin(token)
        except (EOFError, ValueError, OSError, TimeoutError) as error:
            await link.close()
            said = printable((await errors).strip(), "\n") or str(error)
            why = explain(settings.target, process.returncode or 0, said)
            raise SandboxUnavailableError(why) from None
        except BaseException:
            link.drop()
            raise
    link.lost.add_done_callback(lambda _: errors.cancel())
    return link


def convert(value: object, kind: type[T]) -> T:
    """Validate a part of an answer. Raises `ToolError`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ToolError(f"the other side sent an invalid answer: {error}") from None

"""The approval socket: asks another process of the same user over a unix socket.

One line of JSON in each direction, then the connection is closed:

    {"type": "request", "token", "id", "request": {…}}     decision, extent?, reason?, by?
    {"type": "ping", "token"}                              pong

Any other type is answered with an error. A client without the token gets no answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import select
import socket
import stat
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EPERM
from typing import Any

from msgspec.structs import asdict

from clawkit.approvals import binding
from clawkit.approvals.types import Pending
from clawkit.core.approval import MAX_WAIT_S, Answer, Question
from clawkit.core.tasks import bounded
from clawkit.errors import ConflictError, ToolError, ToolInputError
from clawkit.store import locked, private_dir
from clawkit.text import one_line

NAME = "exec-approvals.sock"
MAX_LINE, MAX_CONNECTIONS = 16 * 1024**2, 32
TALK_S = 5.0
"""Time limit for a client to send its line, and to read the answer."""
PING_S, MIN_TOKEN = 0.5, 16
_MAX_PATH = 107
_MAX_REPLY = 64 * 1024
_GRACE_S, _HUNG_UP_S = 1.0, 0.2
_ID = re.compile(r"[A-Za-z0-9-]{1,80}")
_PEER = struct.Struct("=iII")

log = logging.getLogger(__name__)

Handler = Callable[[Question], Awaitable[Answer]]
"""Asks a person. Cancelled if the client disconnects."""


def socket_path(home: str, runtime_dir: str | None = None) -> str:
    """The socket path for a home: inside it, or elsewhere if its path would be too long."""
    place = os.path.join(os.path.abspath(home), NAME)
    if len(os.fsencode(place)) <= _MAX_PATH:
        return place
    mark = hashlib.sha256(os.fsencode(os.path.realpath(home))).hexdigest()[:16]
    uid = os.geteuid()
    given = os.environ.get("XDG_RUNTIME_DIR", "") if runtime_dir is None else runtime_dir
    for folder in (given, f"/run/user/{uid}"):
        place = os.path.join(folder, f"clawkit-{mark}.sock")
        private = os.path.isabs(folder) and os.path.isdir(folder) and _is_ours(os.stat(folder))
        if private and len(os.fsencode(place)) <= _MAX_PATH:
            return place
    # Not TMPDIR, which may differ between client and server.
    return f"/tmp/clawkit-{uid}-{mark}/{NAME}"  # noqa: S108


def _is_ours(info: os.stat_result) -> bool:
    return info.st_uid == os.geteuid() and not info.st_mode & 0o022


@contextmanager
def _folder_of(path: str) -> Iterator[tuple[int, str]]:
    """The socket's name, and a descriptor of its directory, which must be private and cannot be
    replaced in the meantime."""
    folder, name = os.path.split(os.path.abspath(path))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(os.path.realpath(folder), flags)
    try:
        # A link to our own directory that another user created is not acceptable.
        if not _is_ours(os.fstat(fd)) or os.lstat(folder).st_uid != os.geteuid():
            raise PermissionError(
                EPERM, "is accessible to other users; run `chmod 700` on it", folder
            )
        yield fd, name
    finally:
        os.close(fd)


def _is_there(fd: int, name: str, path: str) -> bool:
    """Whether there is a socket owned by us. Raises PermissionError for any other file."""
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(info.st_mode) or not _is_ours(info):
        raise PermissionError(EPERM, "is not a socket owned by you; move it away", path)
    return True


def _connect(path: str) -> socket.socket:
    """Connect to a server of the same user without blocking. Raises OSError."""
    with _folder_of(path) as (fd, name):
        if not _is_there(fd, name, path):
            raise FileNotFoundError(f"no socket at {path}")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.connect(f"/proc/self/fd/{fd}/{name}")
            _check_peer(sock)
        except OSError:
            sock.close()
            raise
        return sock


def _check_peer(sock: socket.socket) -> int:
    """The pid of the other end. Raises PermissionError if it belongs to another user."""
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(given)
    if uid != os.geteuid():
        raise PermissionError(EPERM, f"process {pid} belongs to another user")
    return int(pid)


def is_reachable(path: str, token: str) -> bool:
    """Whether a server that knows the token responds. Blocks; not for the server's own loop."""
    until = time.monotonic() + PING_S
    got = b""
    try:
        with _connect(path) as sock:
            sock.settimeout(PING_S)
            sock.sendall(binding.encode({"type": "ping", "token": token}) + b"\n")
            while b"\n" not in got and len(got) < _MAX_REPLY and time.monotonic() < until:
                got += sock.recv(_MAX_REPLY) or b"\n"
    except OSError:
        return False
    return _read(got).get("type") == "pong"


async def ask_over(path: str, token: str, pending: Pending, timeout_s: float) -> Answer:
    """The answer from the server of a socket. Raises `ToolError` if there is none."""
    request = asdict(pending.question)
    message = {"type": "request", "token": token, "id": pending.id, "request": request}
    try:
        reader, writer = await asyncio.open_unix_connection(sock=_connect(path), limit=_MAX_REPLY)
    except OSError as error:
        raise ToolError(f"{path}: cannot ask for approval: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(binding.encode(message) + b"\n")
            await writer.drain()
            line = await reader.readuntil(b"\n")
    except TimeoutError:
        return binding.no_answer(timeout_s)
    except (OSError, EOFError, asyncio.LimitOverrunError) as error:
        raise ToolError(f"{path}: the connection was closed without an answer") from error
    finally:
        writer.transport.abort()
    return _read_decision(_read(line), pending, path)


def _read_decision(message: Mapping[str, Any], pending: Pending, path: str) -> Answer:
    kind, id_ = message.get("type"), message.get("id", pending.id)
    if kind == "error":
        raise ToolError(f"{path}: {one_line(str(message.get('message')), 400)}")
    if kind != "decision" or id_ != pending.id:
        raise ToolError(f"{path}: invalid reply")
    choice, extent = message.get("decision"), message.get("extent")
    reason, by = message.get("reason", ""), message.get("by", "")
    return binding.answer_for(pending.question, str(choice), extent, reason=reason, by=by)


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        message = binding.decode(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


async def serve(
    path: str, token: str, handler: Handler, *, talk_s: float = TALK_S
) -> ApprovalServer:
    """Serve a socket until the server is closed. Raises `ConflictError` if another process does."""
    if len(token) < MIN_TOKEN:
        raise ToolInputError(f"the token of {path} must have {MIN_TOKEN} characters or more")
    server = ApprovalServer(path, token, handler, talk_s)
    try:
        await server.start()
    except OSError as error:
        why = error.strerror or str(error)
        raise ToolError(f"{error.filename or path}: approvals cannot be served: {why}") from error
    return server


def _listen(path: str) -> tuple[socket.socket, tuple[int, int]]:
    private_dir(os.path.dirname(os.path.abspath(path)))
    with _folder_of(path) as (fd, name), locked(f"{name}.lock", dir_fd=fd):
        if _is_there(fd, name, path) and _is_served(path):
            raise ConflictError(f"{path}: another process is already serving it")
        temp = f"{name}.new"
        with suppress(FileNotFoundError):
            os.unlink(temp, dir_fd=fd)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The file inherits the mode, so that it is never accessible to others.
            os.fchmod(sock.fileno(), 0o600)
            sock.bind(f"/proc/self/fd/{fd}/{temp}")
            sock.listen(MAX_CONNECTIONS)
            info = os.stat(temp, dir_fd=fd, follow_symlinks=False)
            os.rename(temp, name, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError:
            sock.close()
            raise
        return sock, (info.st_dev, info.st_ino)


def _is_served(path: str) -> bool:
    try:
        _connect(path).close()
    except ConnectionRefusedError:
        return False
    except BlockingIOError:
        pass  # its queue is full
    return True


class ApprovalServer:
    """One socket and its clients."""

    def __init__(self, path: str, token: str, handler: Handler, talk_s: float) -> None:
        self.path = path
        self._token = token.encode("utf-8", "surrogatepass")
        self._handler = handler
        self._talk_s = talk_s
        self._clients: set[asyncio.Task[None]] = set()
        self._is_open = True

    async def start(self) -> None:
        sock, self._identity = _listen(self.path)
        # From 3.13 on, asyncio would remove the socket by a path that is no longer valid.
        more: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        self._server = await asyncio.start_unix_server(
            self._accept, sock=sock, limit=MAX_LINE, **more
        )

    async def close(self) -> None:
        """Disconnect all clients, and remove the socket unless another process has replaced it."""
        self._is_open = False
        for sock in self._server.sockets:
            asyncio.get_running_loop().remove_reader(sock)
        # Clients accepted just now get their callback within a few iterations of the loop.
        for _ in range(4):
            await asyncio.sleep(0)
        self._server.close()
        for client in tuple(self._clients):
            client.cancel()
        while self._clients:
            await asyncio.wait(self._clients)
        with (
            suppress(OSError),
            _folder_of(self.path) as (fd, name),
            locked(f"{name}.lock", dir_fd=fd),
        ):
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if (info.st_dev, info.st_ino) == self._identity:
                os.unlink(name, dir_fd=fd)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CONNECTIONS or not self._is_open:
            writer.transport.abort()
            return
        client = asyncio.ensure_future(self._serve_client(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)
        # Also runs if it is cancelled before it starts.
        client.add_done_callback(lambda _: writer.transport.abort())

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.transport.set_write_buffer_limits(0)
        try:
            pid = _check_peer(writer.get_extra_info("socket"))
            async with asyncio.timeout(self._talk_s):
                message = _read(await reader.readuntil(b"\n"))
            token = message.get("token")
            given = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b""
            if not hmac.compare_digest(given, self._token):
                log.warning("process %s sent a wrong token to %s", pid, self.path)
                return
            reply = await self._reply(message, writer)
            async with asyncio.timeout(self._talk_s):
                writer.write(binding.encode(reply) + b"\n")
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            log.debug("a connection to %s ended: %r", self.path, error)

    async def _reply(
        self, message: Mapping[str, Any], writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        if message.get("type") == "ping":
            return {"type": "pong"}
        try:
            if message.get("type") != "request":
                raise ToolInputError("unknown message type")
            return await self._ask(message, writer)
        except ToolError as error:
            return {"type": "error", "message": str(error), "status": error.status}

    async def _ask(
        self, message: Mapping[str, Any], writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        id_ = message.get("id")
        try:
            question = binding.read_question(message.get("request"))
        except ValueError as error:
            raise ToolInputError(f"invalid request: {error}") from error
        if not isinstance(id_, str) or not _ID.fullmatch(id_):
            raise ToolInputError("the id of a request must be letters, digits and dashes")
        timeout_s = min(question.timeout_s, MAX_WAIT_S)
        work = bounded(self._handler(question), timeout_s, _GRACE_S)
        asking = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_hung_up(writer))
        gone.add_done_callback(lambda _: asking.cancel())
        try:
            await asyncio.wait((asking,))
        finally:
            gone.cancel()
            await asyncio.wait((asking, gone))
        if asking.cancelled():
            raise ToolError("the client disconnected")
        if (failure := asking.exception()) is not None:
            log.warning("asking a person failed: %r", failure)
            raise ToolError("no answer")
        answer = asking.result()
        if wrong := binding.why_invalid(question, answer):
            raise ToolError(f"invalid answer: {wrong}")
        said = {"extent": answer.extent, "reason": answer.reason, "by": answer.by}
        given = {key: value for key, value in said.items() if value}
        return {"type": "decision", "id": id_, "decision": binding.choice_of(answer), **given}


async def _hung_up(writer: asyncio.StreamWriter) -> None:
    poll = select.poll()
    poll.register(writer.get_extra_info("socket"), 0)
    while not poll.poll(0) and not writer.is_closing():  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(_HUNG_UP_S)

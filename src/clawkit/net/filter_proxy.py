"""The filtering proxy of the network policy `allowlist`: the only way out of a sandbox.

Its listening sockets are created inside the sandbox and passed to it; names are resolved and
connections opened here. It checks every address of a name, and connects to the address that it
checked. Clients use HTTP CONNECT, plain HTTP or SOCKS5.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, NamedTuple

import h11

from clawkit.errors import ToolError
from clawkit.net.addresses import Address, parse_url
from clawkit.net.connect import open_socket, system_resolve
from clawkit.net.host_rules import Rules, judge, judge_addresses, read_hello, read_host
from clawkit.net.route import NetError, Resolve

Connect = Callable[[str, int], Awaitable[tuple[str, socket.socket]]]
OnDenied = Callable[[str, int, str], None]

MAX_HEAD = 32 * 1024
_CHUNK = 64 * 1024
_LINGER_S = 2
# Bytes that other parsers could read differently: line endings, continued lines, control
# characters.
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?=[^\n])|\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+):([0-9]{1,5})", re.ASCII)
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"upgrade host".split()
)
_UNKNOWN_NAME = b"\x15\x03\x01\x00\x02\x02\x70"
"""The TLS alert unrecognized_name."""
_SOCKS4_REFUSED = b"\0\x5b\0\0\0\0\0\0"
_SOCKS_REST = b"\0\x01\0\0\0\0\0\0"
_SOCKS_CODES = {403: 2, 502: 4}


class ProxyLimits(NamedTuple):
    connections: int = 256
    """Concurrent connections per listener; others wait."""
    head_s: float = 30
    """Seconds for the head of a request, from the end of the previous one."""
    connect_s: float = 30
    idle_s: float = 300
    """Seconds without a byte in either direction."""
    denied_s: float = 30
    """Seconds that a denial by a person is remembered."""
    questions: int = 16
    """Concurrent questions; more are denied."""


class RefusedRequestError(Exception):
    """A refused request. `status` is an HTTP status: 403 if it is not allowed."""

    def __init__(self, status: int, host: str, port: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.host, self.port, self.reason = status, host, port, reason


class _Peer:
    """A connected socket, and received data that was not used yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.data = sock, bytearray()
        self._loop = asyncio.get_running_loop()

    async def fill(self) -> None:
        """Receive more. Raises `EOFError` at the end."""
        more = await self._loop.sock_recv(self.sock, _CHUNK)
        if not more:
            raise EOFError
        self.data += more

    async def receive(self) -> bytes:
        """Buffered or new data; empty at the end."""
        return self.take(len(self.data)) or await self._loop.sock_recv(self.sock, _CHUNK)

    async def exactly(self, size: int) -> bytes:
        while len(self.data) < size:
            await self.fill()
        return self.take(size)

    def take(self, size: int) -> bytes:
        taken = bytes(self.data[:size])
        del self.data[:size]
        return taken

    async def send(self, data: bytes | None) -> None:
        await self._loop.sock_sendall(self.sock, data or b"")

    def end(self) -> None:
        with suppress(OSError):  # the peer is gone
            self.sock.shutdown(socket.SHUT_WR)


class ProxyConnection:
    """Serves one client connection. Its first byte determines the protocol.

    `connect` returns the normalized host and a connection to it, or raises `RefusedRequestError`.
    """

    def __init__(
        self, client: socket.socket, connect: Connect, on_denied: OnDenied, limits: ProxyLimits
    ) -> None:
        self._client, self._connect = _Peer(client), connect
        self._on_denied, self._limits = on_denied, limits
        self._limit = asyncio.timeout(limits.head_s)

    async def run(self) -> None:
        # Slow, broken and ambiguous connections are just closed.
        with suppress(OSError, EOFError, h11.ProtocolError):
            async with self._limit:
                await self._client.fill()
                if self._client.data[0] == 5:
                    await self._serve_socks()
                elif self._client.data[0] == 4:
                    await self._finish(_SOCKS4_REFUSED)
                else:
                    await self._serve_http()

    async def _serve_http(self) -> None:
        try:
            while await self._serve_request():
                self._set_limit(self._limits.head_s)
            # The client may still be reading, or sending data that is no longer needed.
            await self._finish(b"")
        except RefusedRequestError as refused:
            what = "is not allowed in the sandbox" if self._report(refused) else "failed"
            host = f"[{refused.host}]" if ":" in refused.host else refused.host
            place = f"{host}:{refused.port}" if refused.port else "this request"
            text = f"clawkit: {place} {what}: {refused.reason}"
            # Some clients show the body, others the status line.
            head = f"{refused.status} {text}\r\nContent-Type: text/plain\r\nConnection: close"
            answer = f"HTTP/1.1 {head}\r\nContent-Length: {len(text) + 1}\r\n\r\n{text}\n"
            await self._finish(answer.encode("ascii", "replace"))

    async def _serve_request(self) -> bool:
        """Serve one request; returns whether another may follow."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        http.receive_data(await self._read_head())
        try:
            request = http.next_event()
        except h11.RemoteProtocolError:
            raise _malformed("it is not valid HTTP") from None
        assert isinstance(request, h11.Request)  # noqa: S101  # the head is complete
        framing = _FRAMING.intersection(name for name, _ in request.headers)
        # HTTP/1.0 has no chunked encoding.
        versions = (b"1.1",) if b"transfer-encoding" in framing else (b"1.0", b"1.1")
        if request.http_version not in versions or len(framing) > 1:
            raise _malformed("its version is not supported, or its length is ambiguous")
        if request.method == b"CONNECT":
            place = _AUTHORITY.fullmatch(request.target.decode("ascii"))
            if place is None or framing:
                raise _malformed("CONNECT takes host:port, and has no body")
            await self._tunnel(place[1], int(place[2]), b"HTTP/1.1 200 Connected\r\n\r\n")
            return False
        await self._forward(http, request)
        self._client.data[:0] = http.trailing_data[0]
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    async def _read_head(self) -> bytes:
        data, start = self._client.data, 0
        while True:
            end = data.find(b"\r\n\r\n", start)
            size = len(data) if end < 0 else end + 4
            if size > MAX_HEAD or _AMBIGUOUS.search(data, start, size):
                raise _malformed("its head is ambiguous or too long")
            if end >= 0:
                return self._client.take(size)
            start = max(0, size - 3)
            await self._client.fill()

    async def _forward(self, http: h11.Connection, request: h11.Request) -> None:
        """Forward one request, rewritten, on a separate connection."""
        try:
            target = parse_url(request.target.decode("ascii"))
        except NetError as error:
            raise _malformed(str(error).partition(": ")[2]) from None
        if target.scheme != "http":
            raise _malformed("https needs CONNECT")
        name, sock = await self._open(target.host, target.port)
        with sock:
            server, up = _Peer(sock), h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
            headers = [(b"Host", target.authority.encode()), *_pass_on(request)]
            headers.append((b"Connection", b"close"))
            head = h11.Request(method=request.method, target=target.path, headers=headers)
            await server.send(up.send(head))
            body = asyncio.ensure_future(self._copy(self._client, http, server, up))
            answer = asyncio.ensure_future(self._copy(server, up, self._client, http))
            # After the answer, the rest of the request is not needed.
            answer.add_done_callback(lambda _: body.cancel())
            try:
                await _together(body, answer)
            except (h11.RemoteProtocolError, OSError):
                # Once an answer has started, no other one can be sent.
                if http.our_state is not h11.SEND_RESPONSE:
                    raise
                if http.their_state is h11.ERROR:
                    raise _malformed("its body is not valid HTTP") from None
                raise RefusedRequestError(
                    502, name, target.port, "the server sent an invalid response"
                ) from None

    async def _copy(
        self, source: _Peer, reading: h11.Connection, sink: _Peer, writing: h11.Connection
    ) -> None:
        """Forward the rest of a message, without trailers."""
        event: Any = None
        while not isinstance(event, h11.EndOfMessage):
            event = reading.next_event()
            if event is h11.NEED_DATA:
                reading.receive_data(await source.receive())
                continue
            if isinstance(event, h11.Response):
                status, headers = event.status_code, _pass_on(event)
                event = h11.Response(status_code=status, headers=headers, reason=event.reason)
            elif isinstance(event, h11.EndOfMessage):
                event = h11.EndOfMessage()
            await sink.send(writing.send(event))
            self._set_limit(self._limits.idle_s)

    async def _serve_socks(self) -> None:
        _, count = await self._client.exactly(2)
        if 0 not in await self._client.exactly(count):
            return await self._finish(b"\x05\xff")
        await self._client.send(b"\x05\0")
        version, command, _, kind = await self._client.exactly(4)
        if (version, command) != (5, 1) or kind not in (1, 3, 4):
            return await self._finish(b"\x05\x07" + _SOCKS_REST)
        if kind == 3:
            (size,) = await self._client.exactly(1)
            # Invalid UTF-8 becomes an invalid name, which is denied.
            host = (await self._client.exactly(size)).decode("utf-8", "backslashreplace")
        else:
            host = str(ip_address(await self._client.exactly(4 * kind)))
        port = int.from_bytes(await self._client.exactly(2), "big")
        try:
            return await self._tunnel(host, port, b"\x05\0" + _SOCKS_REST)
        except RefusedRequestError as refused:
            self._report(refused)
            return await self._finish(bytes([5, _SOCKS_CODES[refused.status]]) + _SOCKS_REST)

    async def _tunnel(self, host: str, port: int, granted: bytes) -> None:
        name, sock = await self._open(host, port)
        with sock:
            server = _Peer(sock)
            await self._client.send(granted)
            out = asyncio.ensure_future(self._pump_checked(server, name, port))
            await _together(out, asyncio.ensure_future(self._pump(server, self._client)))

    async def _open(self, host: str, port: int) -> tuple[str, socket.socket]:
        self._set_limit(None)  # a question to a person takes long; the rest has its own limit
        opened = await self._connect(host, port)
        self._set_limit(self._limits.idle_s)
        return opened

    async def _pump_checked(self, server: _Peer, name: str, port: int) -> None:
        """Forward nothing before it is clear that TLS is not for another host."""
        if reason := await self._find_mismatch(name, port):
            self._on_denied(name, port, reason)
            await self._client.send(_UNKNOWN_NAME)
            self._client.end()
            raise ConnectionAbortedError
        await self._pump(self._client, server)

    async def _find_mismatch(self, name: str, port: int) -> str:
        """Why the client's first bytes must not be forwarded; empty if they may, or if there are
        none. For the limits of this check, see `host_rules`."""
        try:
            while (hello := read_hello(bytes(self._client.data))).state == "incomplete":
                await self._client.fill()
            if hello.state == "other":
                return "only TLS is allowed on port 443" if port == 443 else ""
            if not hello.name or read_host(hello.name).name == name:
                return ""
        except EOFError:
            return "the client sent a truncated TLS hello" if self._client.data else ""
        except ValueError as error:
            return f"the client sent {error}"
        return f"the TLS connection is for another host, {hello.name[:100]!a}"

    async def _pump(self, source: _Peer, sink: _Peer) -> None:
        while data := await source.receive():
            await sink.send(data)
            self._set_limit(self._limits.idle_s)
        sink.end()

    async def _finish(self, data: bytes) -> None:
        """Send the last bytes, and give the client time to read them: closing a socket with unread
        data resets the connection."""
        self._set_limit(_LINGER_S)
        await self._client.send(data)
        self._client.end()
        while await self._client.receive():
            pass

    def _report(self, refused: RefusedRequestError) -> bool:
        if refused.status == 403:
            self._on_denied(refused.host, refused.port, refused.reason)
        return refused.status == 403

    def _set_limit(self, seconds: float | None) -> None:
        if not self._limit.expired():
            until = None if seconds is None else asyncio.get_running_loop().time() + seconds
            self._limit.reschedule(until)


async def _together(*tasks: asyncio.Task[None]) -> None:
    """Wait for all, or for the first that fails; cancels the rest."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _pass_on(message: h11.Request | h11.Response) -> list[tuple[bytes, bytes]]:
    """The headers without hop-by-hop ones. The sender may name more of these in `Connection`, but
    not those that determine where the message ends."""
    headers = message.headers.raw_items()
    lines = [value for name, value in message.headers if name == b"connection"]
    dropped = {name.strip().lower() for name in b",".join(lines).split(b",")} - _FRAMING
    if isinstance(message, h11.Response) and (b"transfer-encoding", b"chunked") in message.headers:
        dropped |= _FRAMING
    return [each for each in headers if each[0].lower() not in dropped | _HOP_BY_HOP]


def _malformed(reason: str) -> RefusedRequestError:
    return RefusedRequestError(400, "", 0, reason)


Ask = Callable[[str, int], Awaitable[bool]]
"""Asks a person about a host and port that no rule allows."""

_MAX_ADDRESSES = 6
_MAX_LOOKUPS = 4
"""Concurrent lookups: each takes one of the few threads of the default executor."""
_NOT_LISTENING = (errno.EINVAL, errno.EBADF, errno.ENOTSOCK, errno.EOPNOTSUPP)
_OPTIONS = (socket.SO_DOMAIN, socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_ACCEPTCONN)
_NO_LINGER = struct.pack("ii", 0, 0)


class FilterProxy:
    """Serves any number of listeners with one set of rules, in one event loop.

    Concurrent requests share one call of `ask`; an approval holds for the lifetime of the proxy, a
    denial for a short time. `on_denied(host, port, reason)` is called for every refusal, with a
    host that is safe to show.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        ask: Ask | None = None,
        on_denied: OnDenied = lambda host, port, reason: None,
        resolve: Resolve = system_resolve,
        limits: ProxyLimits = ProxyLimits(),  # noqa: B008  # immutable
    ) -> None:
        self._rules, self._ask, self._on_denied = rules, ask, on_denied
        self._resolve, self._limits = resolve, limits
        self._listeners: dict[threading.Thread, tuple[socket.socket, threading.Semaphore]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._questions: dict[tuple[str, int], asyncio.Task[bool]] = {}
        self._answers: dict[tuple[str, int], tuple[bool, float]] = {}
        self._lookups = asyncio.Semaphore(_MAX_LOOKUPS)
        self._is_closed = False

    def serve(self, listener: socket.socket) -> None:
        """Accept connections on a listening socket; takes ownership of it. Raises `ToolError` if it
        cannot be used."""
        if problem := "the proxy is closed" if self._is_closed else _find_fault(listener):
            listener.close()
            raise ToolError(f"the sandbox's proxy cannot start: {problem}")
        # The sandbox may share this socket, including its O_NONBLOCK flag, and could make `accept`
        # block at any time. That would block the event loop, so a thread accepts.
        listener.setblocking(True)
        slots = threading.Semaphore(self._limits.connections)
        work = (listener, slots, asyncio.get_running_loop())
        thread = threading.Thread(target=self._accept, args=work, name="clawkit-proxy", daemon=True)
        self._listeners[thread] = listener, slots
        thread.start()

    async def close(self) -> None:
        """Close all connections and listeners, and cancel pending questions."""
        self._is_closed = True
        tasks = {*self._connections, *self._questions.values()}
        for task in tasks:
            task.cancel()
        ends = [asyncio.to_thread(_end, one, *it) for one, it in self._listeners.items()]
        self._listeners.clear()
        await asyncio.gather(*tasks, *ends, return_exceptions=True)

    async def _connect(self, host: str, port: int) -> tuple[str, socket.socket]:
        """The normalized host, and a connection to it. Raises `RefusedRequestError`."""
        action, (name, address), reason = judge(host, port, self._rules)
        if action != "allow" and not (action == "ask" and await self._is_approved(name, port)):
            raise RefusedRequestError(403, name, port, reason)
        try:
            async with asyncio.timeout(self._limits.connect_s):
                found = [address] if address else await self._look_up(name, port)
        except OSError:  # including TimeoutError
            raise RefusedRequestError(
                502, name, port, "its address could not be resolved"
            ) from None
        for each in found:
            with suppress(OSError):
                async with asyncio.timeout(self._limits.connect_s / len(found)):
                    return name, await open_socket(each, port)
        raise RefusedRequestError(502, name, port, "could not connect")

    async def _look_up(self, name: str, port: int) -> list[Address]:
        async with self._lookups:
            found = await self._resolve(name, port)
        addresses, reason = judge_addresses(found, port, self._rules)
        if reason:
            raise RefusedRequestError(403, name, port, reason)
        return addresses[:_MAX_ADDRESSES]

    async def _is_approved(self, host: str, port: int) -> bool:
        key = host, port
        answer, end = self._answers.get(key, (False, 0))
        if self._ask is None or end > time.monotonic():
            return answer
        if key not in self._questions:
            if len(self._questions) >= self._limits.questions:
                return False
            self._questions[key] = asyncio.create_task(self._put(self._ask, key))
        return await asyncio.shield(self._questions[key])

    async def _put(self, ask: Ask, key: tuple[str, int]) -> bool:
        try:
            answer, now = await ask(*key), time.monotonic()
            self._answers = {each: past for each, past in self._answers.items() if past[1] > now}
            self._answers[key] = answer, math.inf if answer else now + self._limits.denied_s
            return answer
        finally:
            del self._questions[key]

    def _accept(
        self, listener: socket.socket, slots: threading.Semaphore, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Runs in a thread. At the limit, connections wait in the listener's queue."""
        while slots.acquire() and not self._is_closed:
            try:
                client, _ = listener.accept()
                loop.call_soon_threadsafe(self._start, client, slots)
            except RuntimeError:  # the loop is closed
                return
            except OSError as error:
                if error.errno in _NOT_LISTENING:
                    return
                slots.release()
                time.sleep(0.1)  # too many open files, or made non-blocking by the sandbox

    def _start(self, client: socket.socket, slots: threading.Semaphore) -> None:
        def end(task: asyncio.Task[None]) -> None:
            self._connections.discard(task)
            client.close()
            slots.release()

        if self._is_closed:
            return client.close()
        client.setblocking(False)
        # Options are inherited from the listener, which the sandbox controls: closing could block.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ProxyConnection(client, self._connect, self._on_denied, self._limits)
        task = asyncio.create_task(connection.run())
        self._connections.add(task)
        return task.add_done_callback(end)


def proxy_env(port: int) -> Mapping[str, str]:
    """Environment variables that make programs use a proxy at this port of 127.0.0.1."""
    http = f"http://127.0.0.1:{port}"
    env = {"http_proxy": http, "https_proxy": http, "all_proxy": f"socks5h://127.0.0.1:{port}"}
    env["no_proxy"] = "localhost,127.0.0.1,::1"
    env |= {name.upper(): value for name, value in env.items()}
    # Yarn from version 2 on, and Node's own HTTP client, ignore the others by default.
    return env | {"YARN_HTTP_PROXY": http, "YARN_HTTPS_PROXY": http, "NODE_USE_ENV_PROXY": "1"}


def _find_fault(listener: socket.socket) -> str:
    """Why a socket from an untrusted process cannot be used as a listener; empty if it can."""
    try:
        domain, *rest = (listener.getsockopt(socket.SOL_SOCKET, option) for option in _OPTIONS)
    except OSError as error:
        return f"its listener is not a socket that can be used ({error.strerror})"
    is_tcp = domain in (socket.AF_INET, socket.AF_INET6)
    is_listening = rest == [socket.SOCK_STREAM, socket.IPPROTO_TCP, 1]
    return "" if is_tcp and is_listening else "its listener is not a TCP socket that listens"


def _end(thread: threading.Thread, listener: socket.socket, slots: threading.Semaphore) -> None:
    slots.release()
    for _ in range(50):  # the sandbox could make it listen again
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(0.1)
        if not thread.is_alive():
            break
    listener.close()

"""One WebSocket client: its handshake, its requests, and the frames sent to it."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from clawkit.errors import ClawkitError, ConflictError, ToolError, ToolInputError
from clawkit.gateway import auth, protocol
from clawkit.gateway.devices import describe
from clawkit.gateway.methods import find_method, read_frame
from clawkit.gateway.methods.agents import snapshot_models
from clawkit.gateway.origin import RequestOrigin, is_within
from clawkit.gateway.protocol import Connect, GatewayError, RequestFrame, Shows, invalid
from clawkit.gateway.scopes import READ, satisfies

if TYPE_CHECKING:
    from clawkit.gateway.methods.chats import HostedChat
    from clawkit.gateway.server import Gateway

MAX_AT_ONCE = 64
"""Maximum concurrent requests of one client."""
MAX_WRONG_ROLE = 10
_CLOSE_S = 2.0
"""Seconds that a client may take to read queued data when it is disconnected."""

log = logging.getLogger(__name__)


class HandshakeError(Exception):
    """Ends a connection that has not logged in."""

    def __init__(self, code: int, error: GatewayError | None = None, reason: str = "") -> None:
        super().__init__(code)
        self.code, self.error = code, error
        self.reason = error.message if error is not None else reason


class GatewayConnection:
    """A client, from its first frame to its last."""

    def __init__(self, gateway: Gateway, socket: WebSocket, origin: RequestOrigin) -> None:
        self.id = str(uuid.uuid4())
        self.gateway = gateway
        self.origin = origin
        self.connect: Connect
        self.presence: msgspec.Raw
        """Its entry in the presence list, which every new client gets."""
        self.role = "operator"
        self.scopes: tuple[str, ...] = ()
        self.device = ""
        self.since_ms = protocol.now_ms()
        self.is_scoped = self.follows_sessions = False
        self.followed: set[str] = set()
        """Keys of the sessions whose messages it gets."""
        self.watched: set[str] = set()
        """Keys of the sessions whose approvals it gets."""
        self.attached: dict[str, Shows] = {}
        """The sessions whose agent it follows, event by event, and which events it shows."""
        self.chats: dict[str, HostedChat] = {}
        self.on_leave: list[Callable[[], None]] = []
        self._socket = socket
        self._connect_id = ""
        self._seq = 0
        self._frames: deque[bytes] = deque()
        self._buffered = 0
        self._has_frames = asyncio.Event()
        self._closing: tuple[int, str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._wrong_roles = 0

    @property
    def name(self) -> str:
        """A name for records and limits."""
        return self.device or f"{self.connect.client.id}@{self.origin.address}"

    def grant(self, scopes: Iterable[str]) -> None:
        """Change the scopes of the client, with immediate effect."""
        self.scopes = tuple(scopes)
        self.presence = self._describe()
        self.gateway.hub.forget()

    def may(self, scope: str) -> bool:
        return self.role == "operator" and satisfies(self.scopes, scope)

    def follows(self, session: str) -> bool:
        """Whether it gets the messages of a session."""
        return self.follows_sessions or session in self.followed

    def follow(self, session: str | None, *, ends: bool = False) -> None:
        """Start sending the messages of a session (None for all); with `ends`, stop."""
        if session is None:
            self.follows_sessions = True
        elif ends:
            self.followed.discard(session)
        else:
            self.followed.add(session)
        self.gateway.hub.forget()

    def attach(self, session: str, shows: Shows, *, only: bool = False) -> None:
        """Send it the events of an agent that it shows; with `only`, of this session alone."""
        self.attached = {**({} if only else self.attached), session: shows}
        self.gateway.hub.forget()

    def leave_chats(self) -> None:
        """Drop the state of this client's chats."""
        while self.chats:
            self.chats.popitem()[1].leave()
        while self.on_leave:
            self.on_leave.pop()()

    def _describe(self) -> msgspec.Raw:
        client = self.connect.client
        name = client.display_name or client.id
        shown: dict[str, Any] = {"host": name, "clientId": client.id, "mode": client.mode}
        shown |= {"version": client.version, "platform": client.platform, "deviceId": self.device}
        shown |= {"deviceFamily": client.device_family, "instanceId": client.instance_id}
        shown |= {"ip": "" if self.origin.is_local else self.origin.address, "roles": [self.role]}
        shown |= {"scopes": list(self.scopes), "text": f"{name} · mode {client.mode}"}
        shown |= {"ts": self.since_ms, "reason": "connect"}
        found = {key: value for key, value in shown.items() if value != ""}
        return msgspec.Raw(protocol.encode(found))

    async def serve(self) -> None:
        """Serve the client until it leaves or is disconnected."""
        try:
            if await self._log_in():
                await self._work()
        except (WebSocketDisconnect, asyncio.CancelledError):
            pass  # the client left, or the server is going down
        finally:
            self.gateway.hub.leave(self)
            self.gateway.nodes.leave(self)
            self.leave_chats()
            for task in self._tasks:
                task.cancel()

    async def _log_in(self) -> bool:
        nonce, refused = str(uuid.uuid4()), None
        able = ["model-catalog-snapshot"]
        challenge = {"nonce": nonce, "ts": protocol.now_ms(), "capabilities": able}
        limit = asyncio.timeout(protocol.HELLO_S)
        try:
            async with limit:
                self.gateway.waiting.enter(self.origin.who, limit)
                await self._write(protocol.event("connect.challenge", protocol.encode(challenge)))
                await self._write(await self._shake_hands(nonce))
                return True
        except HandshakeError as error:
            refused = error
        except GatewayError as error:
            refused = HandshakeError(1008, error)
        except TimeoutError:
            refused = HandshakeError(1008, reason="handshake timeout")
        except ClawkitError as error:
            log.error("a login failed: %s", error)
            refused = HandshakeError(1011, reason="the gateway cannot check logins; see its log")
        finally:
            # Log first: the writes below can take a while.
            self.gateway.waiting.addresses.pop(limit, None)
        if refused.error is not None:
            log.warning("refused a client from %s: %s", self.origin.address, refused.reason)
            self._abort_soon()
            await self._write(protocol.refusal(self._connect_id, refused.error))
        # Nothing is queued for this client.
        self._abort_soon()
        await self._socket.close(refused.code, protocol.close_reason(refused.reason))
        return False

    async def _shake_hands(self, nonce: str) -> bytes:
        """Read the connect request and decide; returns the hello. Raises `HandshakeError`, and
        `GatewayError` for a refusal with a reason."""
        request = self._first(await self._read(protocol.MAX_FRAME_BEFORE_HELLO))
        self.connect = connect = protocol.decode_params(Connect, "connect", request.params)
        gateway, place = self.gateway, self.origin
        near = is_within(place.address, gateway.settings.nodes.pairing.auto_approve_cidrs)
        is_sure = auth.is_beyond_guessing(gateway.auth, connect, self._known_device())
        async with gateway.logins.turn(place, is_sure=is_sure) as locked_s:
            if locked_s:
                raise auth.rate_limited(round(locked_s * 1000))
            known, now = self._known_device(), protocol.now_ms()  # read after the wait
            code = connect.auth.bootstrap_token
            has_code = bool(code) and gateway.codes.redeem(code or "")
            attempt = auth.Attempt(connect, place, nonce, now, known, near, has_code)
            decision = auth.decide(gateway.auth, attempt)
            if isinstance(decision, auth.Refuse):
                if decision.is_guess:
                    await asyncio.sleep(gateway.logins.fail(place))
                raise HandshakeError(decision.close, decision.error)
        if isinstance(decision, auth.Pair):
            about = describe(connect, place.address)
            pending = gateway.devices.request(about, decision.role, connect.scopes, now)
            gateway.hub.broadcast("device.pair.requested", pending.to_json())
            raise auth.pairing_required(decision, connect, pending.id, known)
        return protocol.answer(request.id, self._admit(decision, now))

    def _known_device(self) -> auth.KnownDevice | None:
        device = self.connect.device
        return self.gateway.devices.facts_about(device.id) if device is not None else None

    def _first(self, text: str) -> RequestFrame:
        try:
            request = protocol.decode_request(text)
        except ValueError as error:
            # Anything but JSON ends the connection without an answer.
            try:
                msgspec.json.decode(text)
            except (ValueError, RecursionError):
                raise HandshakeError(1000) from None
            raise invalid(f"invalid request frame: {error}") from None
        self._connect_id = request.id
        if request.method != "connect":
            raise invalid("invalid handshake: first request must be connect")
        return request

    def _admit(self, admit: auth.Admit, now: int) -> dict[str, Any]:
        self.role = admit.role
        self.device = self.connect.device.id if self.connect.device else ""
        self.grant(admit.scopes)
        self.is_scoped = "session-scoped-events" in self.connect.caps
        login: dict[str, Any] = {"method": admit.method, "role": admit.role}
        login["scopes"] = list(admit.scopes)
        if self.device:
            if admit.approve:
                about = describe(self.connect, "")
                self.gateway.devices.approve(about, admit.role, admit.scopes, now, "silent")
            token, issued = self.gateway.devices.token(self.device, admit.role, now)
            login |= {"deviceToken": token, "issuedAtMs": issued}
        self.gateway.hub.join(self)
        if self.role == "node":
            self.gateway.nodes.join(self)
        if (wish := self.connect.model_catalog) is not None and self.may(READ):
            with suppress(GatewayError):  # the agent of the session may have been removed
                snapshot = protocol.encode(snapshot_models(self.gateway, wish.session_key))
                self.send(protocol.event("models.snapshot", snapshot))
        return self.gateway.hello(self, login)

    async def _work(self) -> None:
        self._extension("admit")()
        reader = asyncio.ensure_future(self._read_requests())
        writer = asyncio.ensure_future(self._write_frames())
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, writer):
                task.cancel()
            await asyncio.wait({reader, writer})
        for task in (reader, writer):
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, WebSocketDisconnect):
                log.warning("the connection of %s failed: %r", self.name, error)

    def _extension(self, name: str) -> Any:
        """A function of our own server; other servers lack it."""
        own = self._socket.scope.get("extensions", {}).get("clawkit", {})
        return own.get(name, lambda: None)

    async def _read(self, max_bytes: int) -> str:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text = message.get("text")
        if text is None:
            raise HandshakeError(1003, invalid("frames must be text"))
        # Count characters first, to avoid encoding oversized texts.
        is_long = len(text) > max_bytes
        if is_long or not (text.isascii() or len(text.encode("utf-8", "replace")) <= max_bytes):
            raise HandshakeError(1009)
        return str(text)

    async def _read_requests(self) -> None:
        while True:
            try:
                text = await self._read(protocol.MAX_FRAME)
            except HandshakeError as refused:
                self.close(refused.code, refused.error.message if refused.error else "too big")
                await asyncio.Event().wait()  # until everything is written
                return
            try:
                request, params = await protocol.aside(len(text), read_frame, text)
            except ValueError as error:
                problem = invalid(f"invalid request frame: {error}")
                self.send(protocol.refusal("invalid", problem))
                continue
            if self._closing is not None:
                continue  # it may have lost its rights, and would get no answer
            if len(self._tasks) >= MAX_AT_ONCE:
                busy = GatewayError("UNAVAILABLE", "too many requests at once", retry_ms=500)
                self.send(protocol.refusal(request.id, busy))
                continue
            task = asyncio.ensure_future(self._answer(request, params))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: RequestFrame, params: Any) -> None:
        """Answer one request."""
        outcome, started = "cancelled", time.monotonic()
        try:
            outcome, frame = await self._run(request, params)
            self.send(frame)
            if self._wrong_roles > MAX_WRONG_ROLE:
                self.close(1008, "repeated unauthorized role")
        finally:
            self.gateway.metrics.request(request.method, outcome, time.monotonic() - started)

    async def _run(self, request: RequestFrame, params: Any) -> tuple[str, bytes]:
        """Run one method; returns the outcome and the answer. Task root: every error becomes the
        answer."""
        try:
            method = find_method(self, request, params)
            frame = protocol.answer(request.id, await method.run(self, params, request.id))
        except (ClawkitError, GatewayError) as error:
            refused = error if isinstance(error, GatewayError) else _explain(error)
        except Exception:
            log.exception("%s failed", request.method)
            text = f"{request.method} failed; see the gateway's log"
            return "crashed", protocol.refusal(request.id, GatewayError("UNAVAILABLE", text))
        else:
            self._wrong_roles = 0
            return "ok", frame
        is_wrong = refused.message.startswith("unauthorized role: ")
        self._wrong_roles = self._wrong_roles + 1 if is_wrong else 0
        return refused.code.lower(), protocol.refusal(request.id, refused)

    def tell(self, name: str, payload: bytes, *, droppable: bool = False) -> None:
        """Send a broadcast event. A slow client misses droppable events."""
        self._seq += 1
        if droppable and self._buffered + len(payload) > protocol.MAX_BUFFERED:
            return
        state = self.gateway.hub.state() if name == "presence" else None
        self.send(protocol.event(name, payload, self._seq, state))

    def send(self, frame: bytes) -> None:
        """Queue a frame; a client with too much unread data is disconnected."""
        if self._closing is not None:
            return
        if self._buffered + len(frame) > protocol.MAX_BUFFERED and self._frames:
            self._frames.clear()
            self.close(1008, "slow consumer")
            return
        self._frames.append(frame)
        self._buffered += len(frame)
        self._has_frames.set()

    def close(self, code: int, reason: str) -> None:
        """Disconnect the client after all queued frames. Later requests are ignored; if its access
        has changed, running ones are stopped."""
        if self._closing is None:
            self._closing = code, protocol.close_reason(reason)
            self._has_frames.set()
            self._abort_soon()
        if code == protocol.ACCESS_CHANGED:
            for task in self._tasks:
                task.cancel()

    def _abort_soon(self) -> None:
        """Drop a client that does not read."""
        asyncio.get_running_loop().call_later(_CLOSE_S, self._extension("abort"))

    async def _write_frames(self) -> None:
        while True:
            await self._has_frames.wait()
            self._has_frames.clear()
            while self._frames:
                frame = self._frames.popleft()
                await self._write(frame)
                self._buffered -= len(frame)
            if self._closing is not None:
                with suppress(RuntimeError):  # it is already closed
                    await self._socket.close(*self._closing)
                return

    async def _write(self, frame: bytes) -> None:
        await self._socket.send({"type": "websocket.send", "text": frame.decode()})


def _explain(error: ClawkitError) -> GatewayError:
    """An error of clawkit as an answer: errors that the client can fix are invalid requests."""
    is_temporary = isinstance(error, ConflictError)
    if isinstance(error, ToolError) and (is_temporary or not isinstance(error, ToolInputError)):
        return GatewayError("UNAVAILABLE", str(error))
    return invalid(str(error))

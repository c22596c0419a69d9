"""A real gateway on a free port, with a scripted model."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn.server
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.scale import FULL
from websockets.asyncio.client import ClientConnection, connect

from clawkit.cli.gateway import LazyRooms
from clawkit.gateway.scopes import ALL
from clawkit.gateway.serve import listen, make_server
from clawkit.gateway.server import Gateway, app
from clawkit.gateway.tls import Certificate
from clawkit.models.protocols import Model
from clawkit.testing import ScriptedModel

TOKEN = "T0KEN-for-tests"
WAIT_S = 60.0
PROXY = "127.0.0.2"
"""Where clients with a forwarding header connect from."""


class _Impatient:
    """For uvicorn, which looks every 100 ms whether it is to end, and twice more while it does."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 10)


uvicorn.server.asyncio = _Impatient()  # type: ignore[assignment, attr-defined]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Device:
    """A device with a key of its own."""

    def __init__(self, seed: bytes | None = None) -> None:
        self.key = (
            Ed25519PrivateKey.from_private_bytes(seed) if seed else Ed25519PrivateKey.generate()
        )
        raw = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public_key = b64(raw)
        self.id = hashlib.sha256(raw).hexdigest()

    def claim(self, params: dict[str, Any], nonce: str, ts: int, version: str = "v3") -> Any:
        client, auth = params["client"], params.get("auth", {})
        names = ("token", "deviceToken", "bootstrapToken")
        token = next((auth[name] for name in names if auth.get(name)), "")
        parts = [
            *(version, self.id, client["id"], client["mode"], params.get("role", "operator")),
            *(",".join(params.get("scopes", [])), str(ts), token, nonce),
        ]
        if version == "v3":
            parts += [client["platform"].lower(), client.get("deviceFamily", "").lower()]
        signature = b64(self.key.sign("|".join(parts).encode()))
        return {
            "id": self.id,
            "publicKey": self.public_key,
            "signature": signature,
            "signedAt": ts,
            "nonce": nonce,
        }


def hello_params(
    scopes: list[str] | None = None,
    *,
    client: tuple[str, str] = ("cli", "cli"),
    auth: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "minProtocol": 4,
        "maxProtocol": 4,
        "client": {"id": client[0], "version": "1", "platform": "linux", "mode": client[1]},
        "role": "operator",
        "scopes": list(ALL) if scopes is None else scopes,
        "auth": {"token": TOKEN} if auth is None else auth,
        **more,
    }


class Peer:
    """A client of the tests: sends frames, and keeps the events."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.hello: dict[str, Any] = {}

    async def receive(self) -> Any:
        return json.loads(await asyncio.wait_for(self.socket.recv(), WAIT_S))

    async def send(self, method: str, params: Any = None, id_: str = "") -> str:
        id_ = id_ or str(uuid.uuid4())
        frame = {"type": "req", "id": id_, "method": method}
        await self.socket.send(json.dumps(frame if params is None else {**frame, "params": params}))
        return id_

    async def answer(self, id_: str) -> Any:
        while True:
            frame = await self.receive()
            if frame["type"] == "res" and frame["id"] == id_:
                return frame
            self.events.append(frame)

    async def ask(self, method: str, params: Any = None) -> Any:
        """The whole answer, also one that is an error."""
        return await self.answer(await self.send(method, params))

    async def call(self, method: str, params: Any = None) -> Any:
        frame = await self.ask(method, params)
        assert frame["ok"], frame
        return frame["payload"]

    async def refused(self, method: str, params: Any = None) -> Any:
        frame = await self.ask(method, params)
        assert not frame["ok"], frame
        return frame["error"]

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event that fits, also one that was received before."""
        for event in self.events:
            if wanted(event):
                return event
        while True:
            frame: dict[str, Any] = await self.receive()
            self.events.append(frame)
            if wanted(frame):
                return frame

    async def until_chat(self, state: str, run: str = "") -> dict[str, Any]:
        event = await self.until(
            lambda each: (
                each.get("event") == "chat"
                and each["payload"]["state"] == state
                and run in ("", each["payload"]["runId"])
            )
        )
        payload: dict[str, Any] = event["payload"]
        return payload

    def of(self, name: str) -> list[dict[str, Any]]:
        return [each["payload"] for each in self.events if each.get("event") == name]


class Ground:
    """A running gateway."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway = gateway
        self.port = port
        self.url = f"ws://127.0.0.1:{port}/"
        self.http = f"http://127.0.0.1:{port}"
        self._stack = AsyncExitStack()

    async def open(self, headers: dict[str, str] | None = None, path: str = "") -> Peer:
        """A connection that has not logged in; its challenge is the first event."""
        is_forwarded = "X-Forwarded-For" in (headers or {})
        socket = await self._stack.enter_async_context(
            connect(
                self.url + path,
                additional_headers=headers,
                compression=None,
                max_size=2**26,
                proxy=None,
                close_timeout=0.5,
                local_addr=(PROXY, 0) if is_forwarded else None,
            )
        )
        peer = Peer(socket)
        peer.events.append(await peer.receive())
        return peer

    async def shake(
        self,
        params: dict[str, Any],
        device: Device | None = None,
        *,
        version: str = "v3",
        headers: dict[str, str] | None = None,
        change: Callable[[dict[str, Any]], Any] | None = None,
    ) -> tuple[Peer, dict[str, Any]]:
        """Connect with these parameters; `change` may alter the signed device claim."""
        peer = await self.open(headers)
        challenge = peer.events[0]["payload"]
        if device is not None:
            claim = device.claim(params, challenge["nonce"], challenge["ts"], version)
            if change is not None:
                change(claim)
            params = {**params, "device": claim}
        return peer, await peer.ask("connect", params)

    async def join(
        self, scopes: list[str] | None = None, device: Device | None = None, **more: Any
    ) -> Peer:
        """A client that has logged in."""
        peer, frame = await self.shake(hello_params(scopes, **more), device)
        assert frame["ok"], frame
        peer.hello = frame["payload"]
        return peer

    async def close(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def serve(
    config: dict[str, Any] | str,
    model: Model | None = None,
    certificate: Certificate | None = None,
) -> AsyncIterator[Ground]:
    given = config
    if isinstance(config, dict):
        own = config.get("gateway", {})
        given = {**config, "gateway": {"auth": {"token": TOKEN}, **own}}
    # As `clawkit gateway run` has it.
    said = model or ScriptedModel(then="Hello there, friend.")
    application = app(given, model=said, chats=LazyRooms())
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    server = make_server(application, "127.0.0.1", port, certificate)
    gateway: Gateway = application.state.gateway
    started = asyncio.Event()
    gateway.on_started = started.set
    task = asyncio.create_task(server.serve([sock]))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    ground = Ground(gateway, port)
    try:
        yield ground
    finally:
        gateway.live.hurry.set()  # what is left running has no time to end
        server.should_exit = True
        await ground.close()
        await task
        waiting.cancel()


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    async with serve({}) as made:
        yield made


BROWSER_TESTS = (
    *("test_page.py", "test_page_jobs.py", "test_page_settings.py", "test_page_port.py"),
    *("test_node_host.py", "test_control_ui.py", "test_tui.py"),
)
ALWAYS = (
    "test_a_walk_through_the_page",
    "test_a_walk_through_jobs",
    "test_a_one_time_address_works_once_and_the_browser_stays_logged_in",
    "test_a_lost_connection_doubles_and_loses_nothing",
    "test_hostile_text_stays_text",
    "test_the_first_load_is_small_and_comes_from_the_gateway",
    "test_a_key_that_a_stranger_knows_is_not_used",
    "test_a_double_click_allows_no_question_that_moves_below_it",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browsers and other programs take seconds of processor time for each test: `make test` runs
    those that matter most, `make bench` all."""
    for item in items:
        if item.path.name in BROWSER_TESTS and getattr(item, "originalname", "") not in ALWAYS:
            item.add_marker(pytest.mark.long)
            if not FULL:
                item.add_marker(pytest.mark.skip(reason="for make bench"))

"""Which gateway the commands use, and the client that they talk to it with."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shlex
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.tables import table

from clawkit.config.gateway_address import is_loopback
from clawkit.config.load import loads
from clawkit.errors import ToolError, ToolInputError
from clawkit.gateway import process_record
from clawkit.gateway.client import (
    CallError,
    Target,
    connect,
    find_for_command,
    find_target,
    parse_url,
)
from clawkit.gateway.home_commands import why_not_here
from clawkit.gateway.own_device import _advise, tokens_file
from clawkit.gateway.websocket import MAX_MESSAGE, SocketClosedError, WebSocket
from clawkit.store import hold_lock


def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


# The protocol


def frame(data: bytes, first: int = 0x81) -> bytes:
    size = len(data)
    if size < 126:
        return bytes((first, size)) + data
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2, "big") + data
    return bytes((first, 127)) + size.to_bytes(8, "big") + data


class Peer:
    """A server that upgrades, and then does what it is told."""

    def __init__(self, talk: Callable[[socket.socket], None], *, accept: str = "") -> None:
        self._talk, self._accept = talk, accept
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got = b""
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with self.listener:
            link, _ = self.listener.accept()
        with link:
            link.settimeout(10)
            head = b""
            while b"\r\n\r\n" not in head:
                head += link.recv(4096)
            key = head.partition(b"Sec-WebSocket-Key: ")[2].split(b"\r\n")[0]
            digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            accept = self._accept or base64.b64encode(digest).decode()
            link.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept.encode() + b"\r\n\r\n"
            )
            self._talk(link)
            with suppress(OSError):  # the other side may have left
                while more := link.recv(1 << 16):
                    self.got += more

    def open(self) -> WebSocket:
        return WebSocket.open("127.0.0.1", self.port, timeout_s=10)


@table("size", [0, 5, 125, 126, 65_535, 65_536, 300_000])
def test_messages_of_every_length_arrive(size: int) -> None:
    text = "é" * (size // 2) + "x" * (size % 2)
    ours = Peer(lambda link: link.sendall(frame(text.encode()))).open()
    assert ours.receive(10) == text
    ours.close()


def test_a_message_may_come_in_pieces_with_pings_between_them() -> None:
    def talk(link: socket.socket) -> None:
        data = frame("hé".encode()[:2], 0x01) + frame(b"are you there", 0x89)
        for byte in data + frame("hé".encode()[2:], 0x80):
            link.sendall(bytes((byte,)))

    peer = Peer(talk)
    ours = peer.open()
    assert ours.receive(10) == "hé"
    ours.send("x" * 200)
    ours.close()
    peer.thread.join(10)
    pong, text, close = _unmasked(peer.got)
    assert (pong, text) == ((0x8A, b"are you there"), (0x81, b"x" * 200))
    assert close == (0x88, b"\x03\xe8")


def _unmasked(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        assert data[1] & 0x80, "frames of a client are masked"
        size, at = data[1] & 0x7F, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        mask, body = data[at : at + 4], data[at + 4 : at + 4 + size]
        yield data[0], bytes(byte ^ mask[n % 4] for n, byte in enumerate(body))
        data = data[at + 4 + size :]


@table(
    "sent",
    [
        frame(b"x", 0xC1),  # a reserved bit
        bytes((0x81, 0x81)) + b"maskx",  # masked
        frame(b"x", 0x82),  # not text
        frame(b"x", 0x83),  # unknown
        frame(b"x", 0x80),  # a continuation of nothing
        frame(b"x", 0x01) + frame(b"y", 0x81),  # a message inside another
        frame(b"x", 0x09),  # a control frame in pieces
        frame(b"x" * 126, 0x89),
        frame(b"\xff\xfe"),  # not UTF-8
        frame("é".encode()[:1], 0x01) + frame(b"", 0x80),
        bytes((0x81, 127)) + (MAX_MESSAGE + 1).to_bytes(8, "big"),
    ],
)
def test_an_invalid_frame_ends_the_connection(sent: bytes) -> None:
    ours = Peer(lambda link: link.sendall(sent)).open()
    with pytest.raises(ToolError, match=r"invalid WebSocket frame|too large"):
        ours.receive(10)
    ours.close()


def test_a_close_frame_says_why_and_a_lost_connection_that_it_was_lost() -> None:
    ours = Peer(lambda link: link.sendall(frame(b"\x03\xf4service restart", 0x88))).open()
    with pytest.raises(SocketClosedError, match="service restart") as closed:
        ours.receive(10)
    assert closed.value.code == 1012
    ours.close()
    lost = Peer(lambda link: link.shutdown(socket.SHUT_WR)).open()
    with pytest.raises(SocketClosedError, match="connection lost"):
        lost.receive(10)
    lost.close()


def test_only_a_server_that_has_read_the_key_is_talked_to() -> None:
    with pytest.raises(ToolError, match="does not speak WebSocket"):
        Peer(lambda _link: None, accept="AAAA").open()


@table(("sent", "times"), [("[]", 1), ("7", 1), ("{", 1), ("[", 100_000)])
def test_a_frame_that_is_not_an_object_is_refused(sent: str, times: int) -> None:
    peer = Peer(lambda link: link.sendall(frame(sent.encode() * times)))
    with pytest.raises(ToolError, match="not a JSON object"):
        connect(Target("127.0.0.1", peer.port, is_own=True))


def test_many_empty_pieces_take_as_long_as_their_bytes() -> None:
    pieces = frame(b"", 0x01) + frame(b"", 0x00) * 40_000 + frame(b"x", 0x80)
    ours = Peer(lambda link: link.sendall(pieces)).open()
    start = time.process_time()
    assert ours.receive(60) == "x"
    assert time.process_time() - start < 5
    ours.close()


def test_a_server_that_drips_does_not_extend_the_time() -> None:
    def drip(link: socket.socket) -> None:
        with suppress(OSError):
            for byte in frame(b"x" * 100):
                link.sendall(bytes((byte,)))
                time.sleep(0.1)

    ours = Peer(drip).open()
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive(0.5)
    assert time.monotonic() - start < 5
    ours.close()


@pytest.mark.parametrize("head", [b"", b"\x16\x03\x03\x40\x00"])
def test_a_server_that_drips_its_answer_does_not_extend_the_time(head: bytes) -> None:
    """The second one drips the beginning of TLS."""
    tls = ssl.create_default_context() if head else None
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            link, _ = listener.accept()
            with link, suppress(OSError):
                link.sendall(head)
                for _ in range(100):
                    link.sendall(b"\2" if head else b"x")
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            WebSocket.open("127.0.0.1", listener.getsockname()[1], timeout_s=0.5, tls=tls)
        assert time.monotonic() - start < 5


def test_events_do_not_extend_the_time_of_a_call() -> None:
    def flood(link: socket.socket) -> None:
        with suppress(OSError):
            while True:
                link.sendall(frame(b'{"type": "event", "payload": {}}'))
                time.sleep(0.01)

    peer = Peer(flood)
    start = time.monotonic()
    with pytest.raises(ToolError, match="does not answer"):
        connect(Target("127.0.0.1", peer.port, is_own=True), timeout_s=0.5)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        {"ok": False, "error": "x"},
        {"ok": False, "error": {"message": "no", "details": [1]}},
        {"ok": True, "payload": [1]},
        {"ok": True, "payload": {"auth": "x", "features": [1]}},
        {"ok": True, "payload": {"auth": {"deviceToken": [1]}, "features": {"methods": None}}},
    ],
)
def test_an_answer_of_another_shape_is_no_surprise(answer: dict[str, Any], is_own: bool) -> None:
    def talk(link: socket.socket) -> None:
        link.sendall(frame(b'{"type": "event", "payload": [1]}'))
        link.sendall(frame(json.dumps({"id": "1", **answer}).encode()))

    target = Target("127.0.0.1", Peer(talk).port, secret="s", is_own=is_own)
    if answer["ok"]:
        with connect(target) as link:
            assert "health" not in link.methods
        assert not os.path.exists(tokens_file())
    else:
        with pytest.raises(CallError) as refused:
            connect(target)
        assert refused.value.code == ""


# Which gateway


@table(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("127.0.0.1.evil.test", False),
        ("127.evil.0.1", False),
        ("localhost.evil.test", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("2130706433", False),
        ("127.1", False),
        ("", False),
    ],
)
def test_loopback_hosts_are_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@table(
    ("url", "problem"),
    [
        ("ws://far.test:1", "not encrypted: use wss://, or forward its port with: ssh -N"),
        ("ws://127.0.0.1.evil.test", "not encrypted"),
        ("http://127.0.0.1:1", "must be ws://"),
        ("ws://", "must be ws://"),
        ("ws://127.0.0.1@evil.test", "must be ws://"),
        ("ws://127.0.0.1:x", "invalid gateway address"),
        ("ws://127.0.0.1:1/a b", "plain text"),
        ("ws://127.0.0.1:1/é", "plain text"),
    ],
)
def test_an_address_that_would_give_secrets_away_or_is_invalid_is_refused(
    url: str, problem: str
) -> None:
    with pytest.raises(ToolInputError, match=problem):
        parse_url(url)


@table(
    ("url", "again"),
    [
        ("ws://127.0.0.1", "ws://127.0.0.1:18789/"),
        ("wss://far.test", "wss://far.test:443/"),
        ("ws://[::1]:7/x?y=1", "ws://[::1]:7/x?y=1"),
    ],
)
def test_an_address_is_read(url: str, again: str) -> None:
    assert parse_url(url).url == again


def write_config(text: str) -> str:
    path = home() / "clawkit.json5"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def running() -> Iterator[Callable[..., None]]:
    """Makes this home look as if a gateway was running."""
    (home() / "gateway").mkdir(mode=0o700, exist_ok=True)

    def write(config: str | None = None, *, serves: bool = True) -> None:
        process_record.write_record(
            *("127.0.0.1", 7, "run", config, None),
            secret="boot",
            serves_commands=serves,
            files=[config] if config else [],
            fingerprint="",
        )

    with hold_lock(process_record.lock_file(), "a test"):
        yield write


def test_commands_use_the_gateway_that_runs_with_their_configuration(
    running: Callable[..., None], tmp_path: Path
) -> None:
    assert find_for_command(None) is None
    running()
    found = find_for_command(None)
    assert found is not None
    assert (found.url, found.secret, found.is_own) == ("ws://127.0.0.1:7/", "boot", True)
    other = tmp_path / "other.json5"
    other.write_text("{}", encoding="utf-8")
    assert find_for_command(str(other)) is None
    path = write_config("{}")
    assert find_for_command(None) is None, "it has no configuration, and this home has one now"
    running(path)
    assert find_for_command(None) is not None
    running(path, serves=False)
    assert find_for_command(None) is None


def test_a_changed_configuration_is_read_again(running: Callable[..., None]) -> None:
    path = write_config("{}")
    running(path)
    write_config('{ agents: { defaults: { workspace: "~" } } }')
    assert find_for_command(None) is not None
    write_config("{ gateway: { useForCommands: false } }")
    assert find_for_command(None) is None
    write_config('{ gateway: { mode: "remote", remote: { url: "ws://127.0.0.1:9" } } }')
    found = find_for_command(None)
    assert found is not None
    assert (found.url, found.is_own) == ("ws://127.0.0.1:9/", False)


def test_a_gateway_here_does_not_hide_the_remote_one(
    running: Callable[..., None], tmp_path: Path
) -> None:
    remote = '{ gateway: { mode: "remote", remote: { url: "ws://127.0.0.1:9" } } }'
    running(write_config(remote), serves=False)
    found = find_for_command(None)
    assert found is not None
    assert (found.url, found.is_own) == ("ws://127.0.0.1:9/", False)
    other = tmp_path / "other.json5"
    other.write_text(remote, encoding="utf-8")
    running(write_config("{}"))
    found = find_for_command(str(other))
    assert found is not None
    assert (found.url, found.is_own) == ("ws://127.0.0.1:9/", False)
    other.write_text("{ agents: { list: [{ id: 'remote' }] } }", encoding="utf-8")
    assert find_for_command(str(other)) is None


def test_a_gateway_that_was_killed_is_not_used(running: Callable[..., None]) -> None:
    running()
    path = Path(process_record.record_file())
    path.write_text(path.read_text().replace(str(os.getpid()), "1"), encoding="utf-8")
    assert find_for_command(None) is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_mode_remote_needs_an_address() -> None:
    with pytest.raises(ToolInputError, match=r"set gateway\.remote\.url"):
        find_target(loads("{ gateway: { mode: 'remote' } }"))


# Logging in


async def call_health(target: Target) -> Any:
    """In a thread, because the gateway runs in this one."""

    def call() -> Any:
        with connect(target) as link:
            return link.call("health")["ok"], link.hello["auth"]

    return await asyncio.to_thread(call)


async def test_an_answer_that_something_was_accepted_is_an_answer(ground: Ground) -> None:
    asked = {"command": "ls", "twoPhase": True}

    def ask() -> Any:
        with connect(Target("127.0.0.1", ground.port, secret=TOKEN, is_own=True)) as link:
            return link.call("exec.approval.request", asked, 10)

    assert (await asyncio.to_thread(ask))["status"] == "accepted"


async def test_the_own_secret_is_known_and_a_wrong_one_is_not(ground: Ground) -> None:
    own = Target("127.0.0.1", ground.port, secret=ground.gateway.auth.own_secret, is_own=True)
    assert (await call_health(own))[0]
    with pytest.raises(CallError, match="token mismatch"):
        await call_health(own._replace(secret="wrong"))


async def test_the_secret_of_a_gateway_elsewhere_is_sent_once_and_then_a_device_token() -> None:
    async with serve({}) as ground:
        target = Target("127.0.0.1", ground.port, secret=TOKEN)
        _, auth = await call_health(target)
        assert auth["method"] == "token"
        kept = json.loads(Path(tokens_file()).read_text(encoding="utf-8"))
        assert kept == {target.url: auth["deviceToken"]}
        assert Path(tokens_file()).stat().st_mode & 0o777 == 0o600
        # From now on the secret is not needed, and not sent.
        _, auth = await call_health(target._replace(secret="not even right"))
        assert auth["method"] == "device-token"
        # A token that is worth nothing does not bring the secret out again.
        Path(tokens_file()).write_text(json.dumps({target.url: "stolen"}), encoding="utf-8")
        with pytest.raises(CallError, match=r"no longer knows this device.*remove .*json"):
            await call_health(target)


async def test_a_wrong_secret_is_an_error_that_names_the_setting() -> None:
    async with serve({}) as ground:
        target = Target("127.0.0.1", ground.port, secret="wrong")
        with pytest.raises(CallError, match=r"set gateway\.remote\.token"):
            await call_health(target)


def test_what_is_to_be_typed_is_one_command_whatever_a_gateway_says() -> None:
    hostile = "x'; touch pwned; echo '"
    details = {"code": "PAIRING_REQUIRED", "requestId": hostile}
    advice = _advise(CallError({"message": "pairing required", "details": details}))
    words = shlex.split(advice.partition("type: ")[2])
    assert words[:-1] == ["clawkit", "gateway", "call", "device.pair.approve", "--params"]
    assert json.loads(words[-1]) == {"requestId": hostile}


async def test_a_device_that_has_to_be_approved_says_how() -> None:
    pairing = {"nodes": {"pairing": {"autoApproveLocal": False}}}
    async with serve({"gateway": pairing}) as ground:
        target = Target("127.0.0.1", ground.port, secret=TOKEN)
        with pytest.raises(CallError, match=r"clawkit gateway call device\.pair\.approve") as error:
            await call_health(target)
        request = error.value.error["details"]["requestId"]
        peer = await ground.join()
        await peer.call("device.pair.approve", {"requestId": request})
        assert (await call_health(target))[0]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A certificate, its key, and its fingerprint."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ),
            *("-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=here"),
        ],
        check=True,
        capture_output=True,
    )
    found = subprocess.run(
        ["openssl", "x509", "-in", str(cert), "-noout", "-fingerprint", "-sha256"],
        check=True,
        capture_output=True,
        text=True,
    )
    return str(cert), str(key), found.stdout.partition("=")[2].strip()


def test_only_the_certificate_with_the_fingerprint_is_accepted(
    certificate: tuple[str, str, str],
) -> None:

    cert, key, fingerprint = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    got: list[bytes] = []

    def serve_tls(listener: socket.socket) -> None:
        for _ in range(3):
            raw, _ = listener.accept()
            raw.settimeout(10)
            try:
                with context.wrap_socket(raw, server_side=True) as link:
                    head = link.recv(4096)
                    wanted = head.partition(b"Sec-WebSocket-Key: ")[2].split(b"\r\n")[0]
                    digest = hashlib.sha1(wanted + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
                    link.sendall(
                        b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: "
                        + base64.b64encode(digest)
                        + b"\r\n\r\n"
                    )
                    got.append(link.recv(4096))
            except OSError:
                got.append(b"")

    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve_tls, args=(listener,), daemon=True)
    thread.start()
    target = Target("127.0.0.1", listener.getsockname()[1], secret=TOKEN, is_tls=True)
    with pytest.raises(ToolError, match="its certificate cannot be verified"):
        connect(target)
    with pytest.raises(ToolError, match=r"which is not gateway\.remote\.tlsFingerprint"):
        connect(target._replace(fingerprint="AA:" * 31 + "AA"))
    right = target._replace(fingerprint=fingerprint)
    with pytest.raises(ToolError, match="does not answer"):
        connect(right, timeout_s=0.5)  # it is talked to, and says nothing
    thread.join(10)
    listener.close()
    assert all(TOKEN.encode() not in each for each in got[:2])


# What runs elsewhere


@table(
    ("line", "runs"),
    [
        ("sessions list", True),
        ("sessions list --json -n 5", True),
        ("sessions delete abc --yes", True),
        ("approvals allowlist list", True),
        ("ps", True),
        ("kill abc", True),
        ("logs abc -n 5", True),
        ("logs abc -f", False),
        ("logs abc -n5f", True),
        ("logs -fabc", False),
        ("logs abc --foll", False),
        ("sessions", False),
        ("sessions export a -o /etc/x", False),
        ("sessions export a -o/etc/x", False),
        ("sessions export a --output=/etc/x", False),
        ("sessions list --config /etc/passwd", False),
        ("sessions list --conf=/etc/passwd", False),
        ("sessions list --here", False),
        ("approvals set file", False),
        ("approvals watch", False),
        ("approvals check ls", False),
        ("gateway token", False),
        ("config get", False),
        ("agent -m x", False),
        ("--debug sessions list", False),
        ("sessions search -- word", True),
        ("sessions list --agent -- --here", False),
        ("sessions export --format -- -o /etc/x", False),
        ("sessions search -- -o", False),
    ],
)
def test_only_commands_about_the_home_run_in_the_home_of_a_gateway(line: str, runs: bool) -> None:
    assert (why_not_here(line.split()) == "") is runs


async def test_commands_that_may_not_run_there_are_refused_by_the_gateway(ground: Ground) -> None:
    peer = await ground.join()
    error = await peer.refused("clawkit.command", {"argv": ["gateway", "token"]})
    assert error["message"] == "'gateway' does not go through a gateway"
    assert (await peer.refused("clawkit.command", {"argv": []}))["code"] == "INVALID_REQUEST"


def test_the_request_is_sent_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys, clawkit.cli.start, clawkit.cli.gateway_turn\n"
        "heavy = {'click', 'asyncio', 'msgspec', 'ssl', 'urllib.parse', 'websockets', 'uuid'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"

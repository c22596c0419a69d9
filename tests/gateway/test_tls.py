"""TLS: certificates, and a gateway that is served with one."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import ssl
import stat
import subprocess
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.gateway.test_command import clawkit
from tests.gateway.test_daemon import configure

from clawkit.config.load import loads
from clawkit.config.sections.gateway import GatewayTls
from clawkit.errors import ConfigError, ToolError
from clawkit.gateway import serve as serving
from clawkit.gateway.client import Target, connect
from clawkit.gateway.process_record import look
from clawkit.gateway.tls import Certificate, find_certificate

pytestmark = pytest.mark.usefixtures("ready")

ON: dict[str, Any] = {"gateway": {"auth": {"token": TOKEN}, "tls": {"enabled": True}}}


def make(directory: Path, **settings: Any) -> Certificate:
    given = msgspec.convert({"enabled": True, **settings}, GatewayTls)
    found = find_certificate(given, str(directory), ("box", "box.local"))
    assert found is not None
    return found


def test_without_tls_there_is_no_certificate(tmp_path: Path) -> None:
    assert find_certificate(GatewayTls(), str(tmp_path), ()) is None
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_is_made_once_and_renewed_before_it_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path / "own")
    assert make(tmp_path / "own") == made
    for path in (made.cert, made.key):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    der = ssl.PEM_cert_to_DER_cert(Path(made.cert).read_text(encoding="ascii"))
    assert made.fingerprint.replace(":", "").lower() == hashlib.sha256(der).hexdigest()
    monkeypatch.setattr("clawkit.gateway.tls.RENEW", timedelta(days=500))
    assert make(tmp_path / "own").fingerprint != made.fingerprint
    monkeypatch.undo()
    os.unlink(made.key)
    assert make(tmp_path / "own").key == made.key
    Path(made.cert).write_text("nonsense", encoding="ascii")
    assert make(tmp_path / "own").cert == made.cert


def test_a_configured_certificate_is_used(tmp_path: Path) -> None:
    own = make(tmp_path)
    found = make(tmp_path / "unused", certPath=own.cert, keyPath=own.key)
    assert found == own
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"certPath": "/nowhere/c", "keyPath": "/nowhere/k"}, "certPath.*No such file"),
        ({"certPath": "CERT"}, "keyPath.*is missing"),
        ({"keyPath": "KEY"}, "certPath.*is missing"),
        ({"autoGenerate": False}, "autoGenerate.*no certificate"),
        ({"caPath": "CERT"}, "caPath.*client certificates"),
        ({"certPath": "CERT", "keyPath": "OTHER"}, "certPath.*cannot be used"),
        ({"certPath": "KEY", "keyPath": "KEY"}, "certPath.*cannot be used"),
        ({"certPath": "CERT", "keyPath": "LOCKED"}, "certPath.*cannot be used"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_explained(
    tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    own, other = make(tmp_path), make(tmp_path / "other")
    locked = tmp_path / "locked.pem"
    encrypt = f"openssl ec -aes256 -passout pass:x -in {own.key} -out {locked}"
    subprocess.run(encrypt.split(), check=True, capture_output=True)
    files = {"CERT": own.cert, "KEY": own.key, "OTHER": other.key, "LOCKED": str(locked)}
    given = {key: files.get(value, value) for key, value in settings.items()}
    with pytest.raises(ConfigError, match=problem):
        make(tmp_path / "new", **given)


async def test_a_gateway_is_served_with_tls(tmp_path: Path) -> None:
    made = make(tmp_path)
    async with serve(ON, certificate=made) as ground:
        target = _target(ground.port, made.fingerprint)
        assert (await _health(target))["ok"]
        other = target._replace(fingerprint="AA:" * 31 + "AA")
        with pytest.raises(ToolError, match="no secret was sent"):
            await _health(other)
        with pytest.raises(ToolError, match=r"set gateway\.remote\.tlsFingerprint.*status --json"):
            await _health(target._replace(fingerprint=""))
        trusted = ssl.create_default_context(cafile=made.cert)
        assert await asyncio.to_thread(_get, ground.port, trusted) == (200, "live")


async def test_a_port_without_tls_is_told_from_a_gateway_that_is_not_there(ground: Ground) -> None:
    target = _target(ground.port, "AA:" * 31 + "AA")
    for given in (target, target._replace(fingerprint="")):
        with pytest.raises(ToolError, match="that port is not encrypted; use ws://"):
            await _health(given)


@pytest.mark.parametrize(
    ("given", "good"),
    [
        ("AA:" * 31 + "AA", True),
        ("ab" * 32, True),
        ("sha256:" + "ab" * 32, True),
        ("xyz", False),
        ("ab" * 31, False),
        ("ab" * 33, False),
        ("", False),
    ],
)
def test_an_invalid_fingerprint_is_refused(given: str, good: bool) -> None:
    text = json.dumps({"gateway": {"remote": {"tlsFingerprint": given}}})
    with nullcontext() if good else pytest.raises(ConfigError, match="64 hexadecimal digits"):
        loads(text)


def _target(port: int, fingerprint: str = "") -> Target:
    tls = bool(fingerprint)
    return Target("127.0.0.1", port, secret=TOKEN, is_tls=tls, fingerprint=fingerprint, is_own=True)


async def _health(target: Target) -> Any:
    def ask() -> Any:
        with connect(target) as link:
            return link.call("health", {}, 30)

    return await asyncio.to_thread(ask)


def _get(port: int, context: ssl.SSLContext) -> tuple[int, str]:
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["status"]
    finally:
        connection.close()


async def test_what_should_be_encrypted_is_not_served_otherwise() -> None:
    async with serve(ON) as ground:
        with pytest.raises(ToolError):
            await _health(_target(ground.port))
        place = ground.gateway.place_of({"headers": [], "scheme": "http", "client": ("::1", 1)})
        assert "not encrypted" in place.refused


async def test_silent_connections_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(tmp_path)
    async with serve(ON, certificate=made) as ground:
        monkeypatch.setattr(serving, "max_connections", lambda: 8)
        monkeypatch.setattr(serving, "HEAD_S", 1.0)
        silent = [await asyncio.open_connection("127.0.0.1", ground.port) for _ in range(12)]
        for _, writer in silent[:4]:
            writer.write(b"GET / HTTP/1.1\r\n\r\n")  # not a handshake
        # Too many, not TLS, or too slow: all of them are dropped.
        for reader, _ in silent:
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 10)
        target = _target(ground.port, made.fingerprint)
        assert (await _health(target))["ok"]
        for _, writer in silent:
            writer.close()


def test_commands_find_the_gateway_and_know_its_certificate() -> None:
    configure("{ gateway: { tls: { enabled: true } } }")
    done = clawkit("start", "--port", "0")
    try:
        assert done.returncode == 0, done.stderr
        assert "wss://127.0.0.1:" in done.stdout + done.stderr
        assert clawkit("health").returncode == 0
        shown = json.loads(clawkit("status", "--json").stdout)
        record = look().record
        assert record is not None
        assert shown["fingerprint"] == record.fingerprint != ""
    finally:
        clawkit("stop")

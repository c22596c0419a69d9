"""Paired devices, pairing requests and device tokens, in a private database.

Only hashes of tokens are stored. Tokens are derived from a key in a separate file, so that a device
gets the same one with every hello until it is rotated.
"""

from __future__ import annotations

import base64
import hmac
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from clawkit.errors import NotFoundError
from clawkit.gateway.auth import Grant, KnownDevice, hash_token, same
from clawkit.gateway.protocol import Connect, Role
from clawkit.store import Database, private_dir, write_atomic

if TYPE_CHECKING:
    from apsw import Connection

PENDING_MS = 5 * 60 * 1000
MAX_PENDING, MAX_PENDING_AT = 100, 10
"""Maximum pending requests, in total and per address."""
Via = Literal["silent", "owner"]
_APPLICATION = 0x636C6764
_SCHEMA = """
CREATE TABLE device (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE pending (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
"""


class DeviceInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device's description of itself."""

    device_id: str
    public_key: str
    platform: str = ""
    device_family: str = ""
    client_id: str = ""
    client_mode: str = ""
    display_name: str = ""
    remote_ip: str = ""


class PendingDevice(Struct, frozen=True):
    """A request for approval."""

    id: str
    about: DeviceInfo
    role: Role
    scopes: tuple[str, ...]
    at_ms: int
    is_repair: bool = False

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self.about)
        role = {"role": self.role, "roles": [self.role], "scopes": list(self.scopes)}
        more = {"silent": False, "isRepair": self.is_repair, "ts": self.at_ms}
        return {"requestId": self.id, **shown, **role, **more}


class DeviceToken(Struct):
    """The rights of a device in one role. Without a generation, its token is revoked."""

    scopes: tuple[str, ...]
    generation: str
    hash: str
    at_ms: int


class NodeSurface(Struct, frozen=True):
    """The commands and capabilities that a node offers."""

    caps: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    def covers(self, other: NodeSurface) -> bool:
        is_known = set(other.commands) <= set(self.commands)
        return is_known and set(other.caps) <= set(self.caps)


class PairedNode(Struct):
    """The approved surface of a node, and a request for more. The request does not expire: a node
    repeats its offer whenever it connects."""

    approved: NodeSurface | None = None
    approved_ms: int = 0
    asked: NodeSurface | None = None
    asked_id: str = ""
    asked_ms: int = 0


class Paired(Struct):
    """A paired device."""

    about: DeviceInfo
    created_ms: int
    approved_ms: int
    seen_ms: int
    via: Via
    tokens: dict[str, DeviceToken] = msgspec.field(default_factory=dict)
    node: PairedNode = msgspec.field(default_factory=PairedNode)

    @property
    def scopes(self) -> list[str]:
        return list(dict.fromkeys(scope for each in self.tokens.values() for scope in each.scopes))

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self.about)
        roles = list(self.tokens)
        tokens = [
            {"role": role, "scopes": each.scopes, "createdAtMs": each.at_ms}
            | ({} if each.generation else {"revokedAtMs": each.at_ms})
            for role, each in self.tokens.items()
        ]
        times = {"createdAtMs": self.created_ms, "approvedAtMs": self.approved_ms}
        times["lastSeenAtMs"] = self.seen_ms
        role = {"role": roles[0] if roles else None, "roles": roles, "scopes": self.scopes}
        return {**shown, **role, "approvedVia": self.via, **times, "tokens": tokens}


def describe(connect: Connect, address: str) -> DeviceInfo:
    client, device = connect.client, connect.device
    if device is None:
        raise ValueError("the client has no device")
    about = (client.platform, client.device_family, client.id, client.mode, client.display_name)
    return DeviceInfo(device.id, device.public_key, *about, address)


def load_key(path: str) -> bytes:
    """The key that tokens are derived from, generated on first use."""
    with suppress(FileNotFoundError):
        with open(path, "rb") as file:
            key = file.read(64)
        if len(key) == 32:
            return key
    private_dir(os.path.dirname(path))
    key = os.urandom(32)
    write_atomic(path, key)
    return key


class Devices:
    """The devices of one gateway. Every method is atomic; an unknown device, role or request is a
    `NotFoundError`."""

    def __init__(self, path: str, key: bytes) -> None:
        what = "the store of devices"
        self._database = Database(path, what, _APPLICATION, (_SCHEMA,), outlives_power=True)
        self._key = key

    def close(self) -> None:
        self._database.close()

    def facts_about(self, device: str) -> KnownDevice | None:
        """The facts about a device for a decision; None if it is not paired."""
        try:
            found = self.get(device)
        except NotFoundError:
            return None
        grants = {role: Grant(each.scopes, each.hash) for role, each in found.tokens.items()}
        return KnownDevice(found.about.platform, found.about.device_family, grants)

    def get(self, device: str, role: str = "") -> Paired:
        """A paired device; with `role`, paired in that role."""
        with self._database.using() as db:
            return _find(db, device, role)

    def paired(self) -> list[Paired]:
        with self._database.using() as db:
            rows: Any = db.execute("SELECT body FROM device ORDER BY rowid").fetchall()
        return [msgspec.json.decode(body, type=Paired) for (body,) in rows]

    def is_operator(self, token: str) -> bool:
        """Whether it is the token of a paired operator device."""
        hashed = hash_token(token)
        held = (each.tokens.get("operator") for each in self.paired())
        return any(each is not None and same(hashed, each.hash) for each in held)

    def request(
        self, info: DeviceInfo, role: Role, scopes: Sequence[str], now: int
    ) -> PendingDevice:
        """Store a request for approval; a repeated one is not stored again."""
        wanted = (info.device_id, role, tuple(scopes))
        for each in self.pending(now):
            if (each.about.device_id, each.role, each.scopes) == wanted:
                return each
        is_repair = self.facts_about(info.device_id) is not None
        made = PendingDevice(str(uuid.uuid4()), info, role, tuple(scopes), now, is_repair)
        same = [each.id for each in self.pending(now) if each.about.remote_ip == info.remote_ip]
        with self._database.writing() as db:
            # Drop the oldest, first of the same address: strangers must not block new requests or
            # displace waiting ones.
            for id_ in same[: 1 - MAX_PENDING_AT]:
                db.execute("DELETE FROM pending WHERE id = ?", (id_,))
            db.execute(
                "DELETE FROM pending WHERE at_ms <= ? OR id IN"
                " (SELECT id FROM pending ORDER BY at_ms DESC LIMIT -1 OFFSET ?)",
                (now - PENDING_MS, MAX_PENDING - 1),
            )
            row = (made.id, now, msgspec.json.encode(made))
            db.execute("INSERT INTO pending VALUES (?, ?, ?)", row)
        return made

    def pending(self, now: int) -> list[PendingDevice]:
        query = "SELECT body FROM pending WHERE at_ms > ? ORDER BY at_ms"
        with self._database.using() as db:
            rows: Any = db.execute(query, (now - PENDING_MS,)).fetchall()
        return [msgspec.json.decode(body, type=PendingDevice) for (body,) in rows]

    def get_pending(self, request_id: str, now: int) -> PendingDevice:
        for each in self.pending(now):
            if each.id == request_id:
                return each
        raise NotFoundError("unknown requestId")

    def drop_pending(self, request_id: str) -> None:
        with self._database.writing() as db:
            db.execute("DELETE FROM pending WHERE id = ?", (request_id,))

    def approve(
        self, info: DeviceInfo, role: Role, scopes: Sequence[str], now: int, via: Via
    ) -> Paired:
        """Approve a device for a role and scopes, in addition to existing ones."""
        with self._database.writing() as db:
            try:
                device = _find(db, info.device_id)
            except NotFoundError:
                device = Paired(info, now, now, now, via)
            device.about, device.approved_ms, device.via = info, now, via
            old = device.tokens.get(role) or DeviceToken((), "", "", now)
            wider = tuple(dict.fromkeys((*old.scopes, *scopes)))
            self._renew(device, role, wider, now, old.generation or uuid.uuid4().hex)
            _put(db, device)
        for each in self.pending(now):
            if each.about.device_id == info.device_id:
                self.drop_pending(each.id)
        return device

    def _renew(
        self, device: Paired, role: str, scopes: tuple[str, ...], now: int, generation: str
    ) -> str:
        """Give a device a new token in a role, or none without a generation."""
        token = self._derive(device.about.device_id, role, generation) if generation else ""
        hashed = hash_token(token) if token else ""
        device.tokens[role] = DeviceToken(scopes, generation, hashed, now)
        return token

    def _derive(self, device: str, role: str, generation: str) -> str:
        digest = hmac.digest(self._key, f"{device}|{role}|{generation}".encode(), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def token(self, device: str, role: str, now: int) -> tuple[str, int]:
        """The token of a device in a role (a new one if it was revoked), and its time of issue."""
        with self._changing(device, role) as found:
            held, found.seen_ms = found.tokens[role], now
            if not held.generation:
                return self._renew(found, role, held.scopes, now, uuid.uuid4().hex), now
        return self._derive(device, role, held.generation), held.at_ms

    def rotate(
        self, device: str, role: str, scopes: Sequence[str] | None, now: int
    ) -> tuple[str, tuple[str, ...]]:
        """Replace a token, with the same scopes or fewer; returns it and its scopes."""
        with self._changing(device, role) as found:
            held = found.tokens[role].scopes
            kept = held if scopes is None else tuple(each for each in held if each in scopes)
            return self._renew(found, role, kept, now, uuid.uuid4().hex), kept

    def revoke(self, device: str, role: str, now: int) -> None:
        """Revoke a token. The device stays paired, and gets a new one at its next login."""
        with self._changing(device, role) as found:
            self._renew(found, role, found.tokens[role].scopes, now, "")

    def remove(self, device: str, role: str = "") -> None:
        """Remove a device, or its approval in one role."""
        with self._database.writing() as db:
            found = _find(db, device, role)
            found.tokens.pop(role, None)
            if role and found.tokens:
                found.node = PairedNode()
                _put(db, found)
            else:
                db.execute("DELETE FROM device WHERE id = ?", (device,))

    def rename(self, device: str, name: str) -> None:
        with self._changing(device) as found:
            found.about = msgspec.structs.replace(found.about, display_name=name)

    def offer(self, device: str, surface: NodeSurface, now: int) -> bool:
        """Record what a node offers. True if that needs approval and is requested for the first
        time."""
        with self._changing(device, "node") as found:
            node = found.node
            if node.approved is not None and node.approved.covers(surface):
                node.asked, node.asked_id = None, ""
                return False
            is_new = node.asked != surface
            if is_new:
                node.asked, node.asked_id, node.asked_ms = surface, str(uuid.uuid4()), now
        return is_new

    def settle_offer(self, device: str, request: str, now: int, *, approve: bool) -> Paired:
        """Approve or reject the request of a node."""
        with self._changing(device, "node") as found:
            node = found.node
            if node.asked is None or node.asked_id != request:
                raise NotFoundError("unknown requestId")
            if approve:
                node.approved, node.approved_ms = node.asked, now
            node.asked, node.asked_id = None, ""
        return found

    @contextmanager
    def _changing(self, device: str, role: str = "") -> Iterator[Paired]:
        """A device to be changed in the `with` block, and stored after it."""
        with self._database.writing() as db:
            found = _find(db, device, role)
            yield found
            _put(db, found)


def _find(db: Connection, device: str, role: str = "") -> Paired:
    body: Any = db.execute("SELECT body FROM device WHERE id = ?", (device,)).get
    found = None if body is None else msgspec.json.decode(body, type=Paired)
    if found is None or (role and role not in found.tokens):
        what = {"": "deviceId", "node": "nodeId"}.get(role, "deviceId/role")
        raise NotFoundError(f"unknown {what}")
    return found


def _put(db: Connection, device: Paired) -> None:
    row = (device.about.device_id, msgspec.json.encode(device))
    db.execute("INSERT INTO device VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET body = ?2", row)

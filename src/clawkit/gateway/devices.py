"""Paired devices, pairing requests and device tokens, in a private database.

Only hashes of tokens are stored. A token is derived from a key in a file of its own, so that a
device gets the same one with every hello until it is rotated.
"""

from __future__ import annotations

import base64
import hmac
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from clawkit.errors import NotFoundError
from clawkit.gateway.auth import Grant, KnownDevice, hash_token
from clawkit.gateway.protocol import Connect, Role
from clawkit.store import Database, private_dir, write_atomic

if TYPE_CHECKING:
    from apsw import Connection

PENDING_MS = 5 * 60 * 1000
MAX_PENDING = 100
Via = Literal["silent", "owner"]
_APPLICATION = 0x636C6764
_SCHEMA = """
CREATE TABLE device (
    id TEXT PRIMARY KEY,
    about BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    approved_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    via TEXT NOT NULL
) STRICT;
CREATE TABLE token (
    device TEXT NOT NULL REFERENCES device (id),
    role TEXT NOT NULL,
    scopes BLOB NOT NULL,
    generation TEXT NOT NULL,
    hash TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (device, role)
) STRICT;
CREATE TABLE pending (
    id TEXT PRIMARY KEY,
    device TEXT NOT NULL,
    role TEXT NOT NULL,
    scopes BLOB NOT NULL,
    about BLOB NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
"""


class About(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a device said about itself."""

    device_id: str
    public_key: str
    platform: str = ""
    device_family: str = ""
    client_id: str = ""
    client_mode: str = ""
    display_name: str = ""
    remote_ip: str = ""


class Pending(Struct, frozen=True):
    """A request for approval."""

    id: str
    about: About
    role: Role
    scopes: tuple[str, ...]
    created_ms: int
    is_repair: bool = False

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self.about)
        return shown | {
            "requestId": self.id,
            "role": self.role,
            "roles": [self.role],
            "scopes": list(self.scopes),
            "silent": False,
            "isRepair": self.is_repair,
            "ts": self.created_ms,
        }


def describe(connect: Connect, address: str) -> About:
    client, device = connect.client, connect.device
    if device is None:
        raise ValueError("the client has no device")
    return About(
        device.id,
        device.public_key,
        client.platform,
        client.device_family,
        client.id,
        client.mode,
        client.display_name,
        address,
    )


def load_key(path: str) -> bytes:
    """The key that tokens are derived from, made on first use."""
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
    """The devices of one gateway. Every method is atomic."""

    def __init__(self, path: str, key: bytes) -> None:
        what = "the store of devices"
        self._database = Database(path, what, _APPLICATION, (_SCHEMA,), outlives_power=True)
        self._key = key

    def close(self) -> None:
        self._database.close()

    def known(self, device: str) -> KnownDevice | None:
        with self._database.using() as db:
            found = db.execute("SELECT about FROM device WHERE id = ?", (device,)).get
            rows: Any = db.execute(
                "SELECT role, scopes, hash FROM token WHERE device = ?", (device,)
            ).fetchall()
        if found is None:
            return None
        about = msgspec.json.decode(found, type=About)
        grants = {role: Grant(_scopes(scopes), hashed) for role, scopes, hashed in rows}
        return KnownDevice(about.platform, about.device_family, grants)

    def request(self, about: About, role: Role, scopes: Sequence[str], now: int) -> Pending:
        """Store a request for approval; the same one again is not stored twice."""
        packed = msgspec.json.encode(list(scopes))
        with self._database.writing() as db:
            db.execute("DELETE FROM pending WHERE created_ms <= ?", (now - PENDING_MS,))
            same: Any = db.execute(
                "SELECT id, created_ms FROM pending WHERE device = ? AND role = ? AND scopes = ?",
                (about.device_id, role, packed),
            ).get
            known = db.execute("SELECT 1 FROM device WHERE id = ?", (about.device_id,)).get
            if same is not None:
                return Pending(same[0], about, role, tuple(scopes), same[1], bool(known))
            # The oldest make room: strangers must not keep out whoever comes next.
            db.execute(
                "DELETE FROM pending WHERE id IN (SELECT id FROM pending"
                " ORDER BY created_ms DESC LIMIT -1 OFFSET ?)",
                (MAX_PENDING - 1,),
            )
            id_ = str(uuid.uuid4())
            row = (id_, about.device_id, role, packed, msgspec.json.encode(about), now)
            db.execute("INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?)", row)
        return Pending(id_, about, role, tuple(scopes), now, bool(known))

    def pending(self, now: int) -> list[Pending]:
        with self._database.using() as db:
            rows: Any = db.execute(
                "SELECT pending.id, pending.about, role, scopes, pending.created_ms, device.id"
                " FROM pending LEFT JOIN device ON device.id = pending.device"
                " WHERE pending.created_ms > ? ORDER BY pending.created_ms",
                (now - PENDING_MS,),
            ).fetchall()
        return [
            Pending(
                id_, msgspec.json.decode(about, type=About), role, _scopes(scopes), at, bool(known)
            )
            for id_, about, role, scopes, at, known in rows
        ]

    def get_pending(self, request_id: str, now: int) -> Pending:
        for each in self.pending(now):
            if each.id == request_id:
                return each
        raise NotFoundError("unknown requestId")

    def drop_pending(self, request_id: str) -> None:
        with self._database.writing() as db:
            db.execute("DELETE FROM pending WHERE id = ?", (request_id,))

    def approve(
        self, about: About, role: Role, scopes: Sequence[str], now: int, via: Via
    ) -> dict[str, Any]:
        """Approve a device for a role and scopes, beside what it was approved for."""
        with self._database.writing() as db:
            packed = msgspec.json.encode(about)
            db.execute(
                "INSERT INTO device VALUES (?1, ?2, ?3, ?3, ?3, ?4) ON CONFLICT (id)"
                " DO UPDATE SET about = ?2, approved_ms = ?3, via = ?4",
                (about.device_id, packed, now, via),
            )
            query = "SELECT scopes, generation FROM token WHERE device = ? AND role = ?"
            old: Any = db.execute(query, (about.device_id, role)).get
            held = _scopes(old[0]) if old else ()
            wider = tuple(dict.fromkeys((*held, *scopes)))
            generation = old[1] if old and old[1] else uuid.uuid4().hex
            self._put_token(db, about.device_id, role, wider, generation, now)
            db.execute("DELETE FROM pending WHERE device = ?", (about.device_id,))
        return self.get(about.device_id)

    def _put_token(
        self,
        db: Connection,
        device: str,
        role: str,
        scopes: Sequence[str],
        generation: str,
        now: int,
    ) -> None:
        hashed = hash_token(self._derive(device, role, generation)) if generation else ""
        db.execute(
            "INSERT INTO token VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (device, role)"
            " DO UPDATE SET scopes = ?3, generation = ?4, hash = ?5, created_ms = ?6",
            (device, role, msgspec.json.encode(list(scopes)), generation, hashed, now),
        )

    def _derive(self, device: str, role: str, generation: str) -> str:
        text = f"{device}|{role}|{generation}"
        digest = hmac.digest(self._key, text.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def token(self, device: str, role: str, now: int) -> tuple[str, int]:
        """The token of a device in a role, a new one if it was revoked, and when it was issued."""
        with self._database.writing() as db:
            row = self._token_row(db, device, role)
            scopes, generation, at = row
            if not generation:
                generation, at = uuid.uuid4().hex, now
                self._put_token(db, device, role, _scopes(scopes), generation, now)
            db.execute("UPDATE device SET seen_ms = ? WHERE id = ?", (now, device))
        return self._derive(device, role, generation), at

    def rotate(
        self, device: str, role: str, scopes: Sequence[str] | None, now: int
    ) -> tuple[str, tuple[str, ...]]:
        """Replace a token, with the same scopes or fewer; returns it and its scopes."""
        with self._database.writing() as db:
            held = _scopes(self._token_row(db, device, role)[0])
            kept = held if scopes is None else tuple(each for each in held if each in scopes)
            generation = uuid.uuid4().hex
            self._put_token(db, device, role, kept, generation, now)
        return self._derive(device, role, generation), kept

    def revoke(self, device: str, role: str, now: int) -> None:
        """Make a token invalid. The device stays paired, and gets a new one when it logs in."""
        with self._database.writing() as db:
            scopes = _scopes(self._token_row(db, device, role)[0])
            self._put_token(db, device, role, scopes, "", now)

    def _token_row(self, db: Connection, device: str, role: str) -> Any:
        query = "SELECT scopes, generation, created_ms FROM token WHERE device = ? AND role = ?"
        row = db.execute(query, (device, role)).get
        if row is None:
            raise NotFoundError("unknown deviceId/role")
        return row

    def remove(self, device: str) -> None:
        with self._database.writing() as db:
            db.execute("DELETE FROM token WHERE device = ?", (device,))
            db.execute("DELETE FROM device WHERE id = ?", (device,))
            if db.changes() != 1:
                raise NotFoundError("unknown deviceId")

    def get(self, device: str) -> dict[str, Any]:
        for each in self.paired():
            if each["deviceId"] == device:
                return each
        raise NotFoundError("unknown deviceId")

    def paired(self) -> list[dict[str, Any]]:
        """All paired devices as JSON."""
        with self._database.using() as db:
            rows: Any = db.execute(
                "SELECT about, created_ms, approved_ms, seen_ms, via FROM device"
                " ORDER BY created_ms"
            ).fetchall()
            tokens: Any = db.execute(
                "SELECT device, role, scopes, created_ms, generation FROM token ORDER BY role"
            ).fetchall()
        return [_paired(row, tokens) for row in rows]


def _paired(row: Any, tokens: Any) -> dict[str, Any]:
    about, created, approved, seen, via = row
    shown: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(about, type=About))
    mine = [each for each in tokens if each[0] == shown["deviceId"]]
    roles = [each[1] for each in mine]
    scopes = dict.fromkeys(scope for each in mine for scope in _scopes(each[2]))
    return shown | {
        "role": roles[0] if roles else None,
        "roles": roles,
        "scopes": list(scopes),
        "approvedVia": via,
        "createdAtMs": created,
        "approvedAtMs": approved,
        "lastSeenAtMs": seen,
        "tokens": [
            {"role": role, "scopes": list(_scopes(scopes)), "createdAtMs": at}
            | ({} if generation else {"revokedAtMs": at})
            for _, role, scopes, at, generation in mine
        ],
    }


def _scopes(packed: bytes) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(packed, type=list[str]))

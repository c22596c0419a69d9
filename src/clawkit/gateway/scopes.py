"""Roles and scopes, and which scope includes which."""

from __future__ import annotations

from collections.abc import Iterable

ADMIN, READ, WRITE = "operator.admin", "operator.read", "operator.write"
APPROVALS, PAIRING = "operator.approvals", "operator.pairing"
_ALSO = {
    WRITE: (READ, "operator.talk", "operator.sessions.read", "operator.sessions.write"),
    READ: ("operator.sessions.read",),
}
ALL = (
    *(ADMIN, READ, WRITE, APPROVALS, "operator.questions", PAIRING, "operator.talk"),
    *("operator.talk.secrets", "operator.sessions.read", "operator.sessions.write"),
)
OWNER = (ADMIN, READ, WRITE, APPROVALS, PAIRING)
"""The scopes of the gateway's own clients, and of requests over HTTP."""


def satisfies(granted: Iterable[str], wanted: str) -> bool:
    """Whether the `granted` scopes include `wanted`."""
    held = set(granted)
    return wanted in held or ADMIN in held or any(wanted in _ALSO.get(scope, ()) for scope in held)


def lacking(granted: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The wanted scopes that the granted ones do not satisfy."""
    held = tuple(granted)
    return [scope for scope in wanted if not satisfies(held, scope)]

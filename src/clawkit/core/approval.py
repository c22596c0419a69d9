"""Asking a person before a call goes on. The surfaces that ask live in higher layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Question:
    """One question to a person."""

    tool: str
    params: Mapping[str, Any]
    title: str
    description: str = ""
    asked_by: str = ""
    """The hook or rule that wants to know, by its configuration key where it has one."""
    to_allow: str = ""
    """What to type so that the question does not come up again."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    agent: str = "main"
    session: str = "main"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the person said. Only `allow` lets the call go on, once."""

    verdict: Literal["allow", "deny"]
    reason: str = ""


class Approver(Protocol):
    """Somebody who can be asked. Must answer or raise; silence is cut off and means no."""

    async def ask(self, request: Question) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """A hook's or a rule's wish to have a person decide."""

    title: str
    description: str = ""
    asked_by: str = ""
    to_allow: str = ""
    timeout_s: float | None = None
    """How long to wait for an answer; None takes the operator's setting."""


@dataclass(frozen=True, slots=True)
class Deny:
    """A hook's or a rule's no. The model is told the reason."""

    reason: str

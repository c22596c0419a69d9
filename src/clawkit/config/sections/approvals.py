"""Asking a person: `approvals`."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.section import Conflict, Name, Section


class ApprovalTarget(Section):
    """One place a question is sent to."""

    channel: Name
    """Channel id, such as `telegram`."""
    to: Name
    """Person or group on that channel."""
    account_id: str | None = None
    """Account to send from."""
    thread_id: str | int | None = None
    """Thread to send to."""


class Forwarding(Section):
    """Sending questions to chat channels."""

    enabled: bool = False
    """Forward questions; default false."""
    mode: Literal["session", "targets", "both"] = "session"
    """To the conversation that caused it (default), to `targets`, or to both."""
    agent_filter: list[str] | None = None
    """Only questions of these agents; unset means all."""
    session_filter: list[str] | None = None
    """Only questions of sessions whose key fits; unset means all."""
    targets: list[ApprovalTarget] = []
    """Places for mode `targets` and `both`."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("enabled") and raw.get("mode") == "targets" and not raw.get("targets"):
            yield "targets", "empty although mode is 'targets'", "Add a target or change mode"


class Approvals(Section):
    """Asking a person before something is done."""

    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 120
    """Seconds to wait for an answer; default 120."""
    exec: Forwarding = Forwarding()
    """Forwarding of questions about commands."""
    plugin: Forwarding = Forwarding()
    """Forwarding of questions asked by plugins."""

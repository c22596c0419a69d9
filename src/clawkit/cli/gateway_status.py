"""What `clawkit gateway status` knows from the home directory, without asking the gateway."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from clawkit.cli.gateway_logs import log_file
from clawkit.config.paths import home

if TYPE_CHECKING:
    from clawkit.gateway.record import GatewayState, RunningGateway

_STARTED_BY = {
    "run": "in the foreground (clawkit gateway run)",
    "start": "in the background (clawkit gateway start)",
    "service": "as a service (clawkit gateway install)",
}


def describe(record: RunningGateway) -> dict[str, Any]:
    """A gateway, for programs."""
    return {
        "pid": record.pid,
        "url": record.url,
        **({"fingerprint": record.fingerprint} if record.fingerprint else {}),
        "since": record.since,
        "version": record.version,
        "startedBy": record.started_by,
        "config": record.config,
        "home": home(os.environ),
        "log": log_file(),
    }


def describe_state(state: GatewayState) -> dict[str, Any]:
    """What the home says, for programs; empty if it says nothing."""
    if state.stale is not None:
        return {"stale": describe(state.stale)}
    if state.record is not None:
        return describe(state.record)
    return {"pid": state.pid} if state.pid else {}


def how_started(record: RunningGateway) -> str:
    """`process 7, since …, in the background (clawkit gateway start)`."""
    return f"process {record.pid}, since {record.since}, {_STARTED_BY[record.started_by]}"


def explain_silence(state: GatewayState) -> str:
    """What the home says about a gateway that does not answer; empty if it says nothing."""
    if (stale := state.stale) is not None:
        return (
            f"The last one was killed or has crashed, and left a stale lock: {how_started(stale)}. "
            "The next start removes it"
        )
    if state.record is not None:
        return (
            f"It holds the lock, but does not answer: {how_started(state.record)}. See: clawkit "
            "gateway logs; end it with: clawkit gateway stop --force"
        )
    if state.pid:
        return f"Process {state.pid} holds the lock: it is starting or stopping; try again"
    return ""

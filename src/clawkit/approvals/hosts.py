"""Where a command runs: what is configured, what the call may choose, and what there is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, cast, get_args

from clawkit.config.sections.exec import Host
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.text import one_line

HostName = Literal["sandbox", "gateway", "node"]

_MISSING: dict[HostName, str] = {
    "sandbox": "no sandbox is running here",
    "gateway": "this machine itself runs no commands here",
    "node": "no node is connected",
}


def resolve_host(
    configured: Host,
    requested: str | None,
    *,
    sandboxed: bool,
    elevated: bool,
    available: Collection[str],
    node: str | None,
) -> HostName:
    """The host of a call; never another one in place of one that is missing.

    `elevated` is a right that was already granted: it leaves the sandbox for the gateway, and
    changes nothing elsewhere. Raises `ToolInputError` for a request that makes no sense and
    `ToolAuthorizationError` for one that is not allowed or cannot be met.
    """
    wanted = _read(requested)
    place: HostName = configured if configured != "auto" else "sandbox" if sandboxed else "gateway"
    if place == "sandbox" and sandboxed and elevated:
        if wanted == "sandbox":
            raise ToolInputError(
                "host: 'sandbox' and elevated contradict each other, because elevated leaves the "
                "sandbox; send only one of them"
            )
        place = "gateway"
    free = configured == "auto" and place == "gateway"
    if wanted is not None and wanted != place:
        if not free or wanted == "sandbox":
            raise _refuse(configured, wanted, place, free=free)
        place = wanted
    if node and place != "node":
        raise ToolInputError(
            f"node: the command would run on the host {place!r}, not on a node; "
            "leave node out, or choose the host 'node'"
        )
    if place not in available:
        raise ToolAuthorizationError(
            f"the command cannot run on the host {place!r}: {_MISSING[place]}. No other host is "
            f"used in its place; tools.exec.host is {configured!r}",
            reason="host",
        )
    return place


def _read(requested: str | None) -> HostName | None:
    if requested is None or requested == "auto":
        return None
    if requested not in get_args(HostName):
        raise ToolInputError(
            f"host: {one_line(requested, 40)!r} is no host; use one of {', '.join(get_args(Host))}"
        )
    return cast("HostName", requested)


def _refuse(
    configured: Host, wanted: HostName, place: HostName, *, free: bool
) -> ToolAuthorizationError:
    setting = f"tools.exec.host is {configured!r}"
    if free:
        why = f"{_MISSING[wanted]}; {setting}, which allows 'gateway' or 'node'"
    elif configured == "auto":
        why = f"{setting} and the session is sandboxed, which allows only {place!r}"
    else:
        why = f"{setting}, which allows only {place!r}"
    return ToolAuthorizationError(
        f"the host {wanted!r} is refused: {why}. Leave host out, or have tools.exec.host changed",
        reason="host",
    )

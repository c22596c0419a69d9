"""The policy for node commands: who may offer, approve and send them. Pure.

A command runs if the node offers it, a person has approved it, and it is usual for the node's
platform or in `gateway.nodes.commands.allow`. Names are compared exactly; `deny` wins.
"""

from __future__ import annotations

from collections.abc import Iterable

from clawkit.config.sections.gateway import GatewayNodes
from clawkit.gateway.identity import normal
from clawkit.gateway.scopes import ADMIN, PAIRING, WRITE

_DEVICE = "device.info device.status system.notify"
_PHONE = f"""{_DEVICE} camera.list location.get contacts.search calendar.events reminders.list
    photos.latest motion.activity motion.pedometer"""
_COMPUTER = """system.run system.run.prepare system.which system.notify system.execApprovals.get
    system.execApprovals.set browser.proxy screen.snapshot desktop.stream computer.act"""
_USUAL = {
    "ios": _PHONE,
    "ipados": _PHONE,
    "watchos": _DEVICE,
    "android": f"""{_PHONE} notifications.list notifications.actions device.permissions
        device.health device.apps callLog.search mobile.ui.observe mobile.ui.act""",
    "macos": f"""{_PHONE} {_COMPUTER} camera.ptz.status device.apps fs.listDir terminal.upload
        mcp.tools.call.v1""",
    "linux": _COMPUTER,
    "windows": f"{_COMPUTER} {_DEVICE} camera.list location.get",
}
_UNKNOWN = "camera.list location.get system.notify"
"""Commands that take pictures, record, send or add something are not usual on any platform and must
be allowed explicitly."""
_ALSO_CALLED = {"darwin": "macos", "win32": "windows"}
_POWERFUL = frozenset(
    (
        *("browser.proxy", "browser.proxy.upload.v1", "fs.listDir", "terminal.upload"),
        *("computer.act", "mobile.ui.act", "mcp.tools.call.v1"),
    )
)
"""Need `admin`: they expose files, or control the node."""
APPROVALS_GET, APPROVALS_SET = "system.execApprovals.get", "system.execApprovals.set"
EXEC = frozenset(("system.run", "system.run.prepare", APPROVALS_GET, APPROVALS_SET))
"""Not available over `node.invoke`: commands that a node runs, and its approvals, must first be
approved here."""


def usual_commands(platform: str) -> frozenset[str]:
    """The commands of a platform, in the node's own spelling, such as `macOS 26.1`."""
    word = normal(platform).partition(" ")[0]
    return frozenset(_USUAL.get(_ALSO_CALLED.get(word, word), _UNKNOWN).split())


def allowed_commands(platform: str, settings: GatewayNodes) -> frozenset[str]:
    allow = (*settings.commands.allow, *settings.allow_commands)
    return (
        usual_commands(platform)
        .union(allow)
        .difference(settings.commands.deny, settings.deny_commands)
    )


def approval_scopes(commands: Iterable[str]) -> list[str]:
    """The scopes needed to approve a node with these commands."""
    given = set(commands)
    if given & (_POWERFUL | EXEC | {"system.which"}):
        return [PAIRING, ADMIN]
    return [PAIRING, WRITE] if given else [PAIRING]


def invoke_scope(command: str) -> str:
    return ADMIN if command in _POWERFUL else WRITE

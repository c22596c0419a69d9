"""Which commands a node may offer, and who may approve and send them."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.config.sections.gateway import AllowDeny, GatewayNodes
from clawkit.gateway.node_policy import (
    allowed_commands,
    approval_scopes,
    invoke_scope,
    usual_commands,
)

DANGEROUS = {
    *("camera.snap", "camera.clip", "camera.ptz.control", "screen.record", "contacts.add"),
    *("calendar.add", "reminders.add", "sms.send", "sms.search", "health.summary"),
}


@table(
    ("platform", "has", "lacks"),
    [
        ("linux", "system.run system.which screen.snapshot", "camera.list fs.listDir"),
        ("Linux 6.1", "system.notify", "mcp.tools.call.v1"),
        ("darwin", "system.run camera.list fs.listDir mcp.tools.call.v1", "callLog.search"),
        ("macOS 26.1", "terminal.upload", "notifications.list"),
        ("win32", "system.run device.info location.get", "fs.listDir"),
        ("iOS 26", "contacts.search photos.latest", "system.run device.apps"),
        ("watchOS", "device.info system.notify", "camera.list location.get"),
        ("android", "callLog.search mobile.ui.act", "system.run"),
        ("", "camera.list location.get system.notify", "system.run system.which"),
        ("linuxmacos", "camera.list", "system.run"),
        ("../linux", "camera.list", "system.run"),
    ],
)
def test_every_platform_has_its_usual_commands(platform: str, has: str, lacks: str) -> None:
    usual = usual_commands(platform)
    assert set(has.split()) <= usual
    assert not set(lacks.split()) & usual
    assert not DANGEROUS & usual


@table(
    ("settings", "command", "allowed"),
    [
        ({}, "system.run", True),
        ({}, "camera.snap", False),
        ({"commands": AllowDeny(allow=["camera.snap"])}, "camera.snap", True),
        ({"allow_commands": ["camera.snap"]}, "camera.snap", True),
        ({"commands": AllowDeny(deny=["system.run"])}, "system.run", False),
        ({"deny_commands": ["system.run"]}, "system.run", False),
        ({"commands": AllowDeny(allow=["sms.send"], deny=["sms.send"])}, "sms.send", False),
        ({"allow_commands": ["sms.send"], "deny_commands": ["sms.send"]}, "sms.send", False),
        ({"commands": AllowDeny(allow=["*", "camera.*", "CAMERA.SNAP"])}, "camera.snap", False),
        ({"commands": AllowDeny(deny=["system"])}, "system.run", True),
    ],
)
def test_settings_add_and_remove_commands_by_their_exact_name(
    settings: dict[str, Any], command: str, allowed: bool
) -> None:
    assert (command in allowed_commands("linux", GatewayNodes(**settings))) is allowed


@table(
    ("commands", "more"),
    [
        ("", []),
        ("system.notify", ["operator.write"]),
        ("camera.snap", ["operator.write"]),
        ("system.which", ["operator.admin"]),
        ("system.notify system.run", ["operator.admin"]),
        ("system.execApprovals.set", ["operator.admin"]),
        ("browser.proxy", ["operator.admin"]),
        ("computer.act", ["operator.admin"]),
    ],
)
def test_powerful_commands_are_approved_by_the_owner(commands: str, more: list[str]) -> None:
    assert approval_scopes(commands.split()) == ["operator.pairing", *more]


@table("command", ["browser.proxy", "fs.listDir", "terminal.upload"])
def test_powerful_commands_are_sent_by_the_owner(command: str) -> None:
    assert invoke_scope(command) == "operator.admin"
    assert invoke_scope("system.which") == "operator.write"

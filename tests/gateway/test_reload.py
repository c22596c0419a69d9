"""A configuration file that changes while the gateway runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, Peer, serve
from tests.gateway.test_turns import message
from tests.tables import table

from clawkit.config.json5 import parse_path
from clawkit.config.model import Config
from clawkit.config.section import layout_of
from clawkit.gateway.reload import KINDS, kind_of
from clawkit.testing import Gate, ScriptedModel, call

AUTH = f'auth: {{ token: "{TOKEN}" }}'


def text(more: str = "", gateway: str = "") -> str:
    return f"{{ gateway: {{ {AUTH}, {gateway} }}, {more} }}"


@pytest.fixture
def file() -> Path:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    path.write_text(text(), encoding="utf-8")
    path.chmod(0o600)
    return path


def replace_file(path: Path, words: str) -> None:
    """As editors do it."""
    other = path.with_name("other")
    other.write_text(words, encoding="utf-8")
    other.chmod(0o600)
    os.replace(other, path)


def write_in_place(path: Path, words: str) -> None:
    with path.open("r+", encoding="utf-8") as stream:
        stream.truncate()
        stream.write(words)


@pytest.fixture
async def ground(file: Path) -> AsyncIterator[Ground]:
    async with serve(str(file), ScriptedModel(then="ok")) as made:
        yield made


async def changed(peer: Peer) -> dict[str, Any]:
    peer.events = [each for each in peer.events if each.get("event") != "config.changed"]
    event = await peer.until(lambda each: each.get("event") == "config.changed")
    payload: dict[str, Any] = event["payload"]
    return payload


async def tools(peer: Peer) -> set[str]:
    shown = await peer.call("tools.effective", {"sessionKey": "main"})
    return {each["id"] for group in shown["groups"] for each in group["tools"]}


@table(
    ("path", "kind"),
    [
        ("tools.exec.ask", "hot"),
        ("agents.defaults.model.primary", "hot"),
        ("session", "hot"),
        ("session.mainKey", "hot"),
        ("session.store", "restart"),
        ("gateway.port", "restart"),
        ("logging.redactPatterns", "restart"),
        ("logging.level", "none"),
        ("cron.enabled", "hot"),
        ("agents.list[0].groupChat.historyLimit", "none"),
        ("agents.entries.a.groupChat", "none"),
        ('agents.entries["a.groupChat"].groupChat', "none"),
        ("nonsense", "restart"),
        ("toolsets.x", "restart"),
    ],
)
def test_each_setting_has_a_kind_of_reload(path: str, kind: str) -> None:
    assert kind_of(parse_path(path)) == kind


def test_every_section_is_listed() -> None:
    sections = set(layout_of(Config).shapes)
    assert sections <= KINDS.keys()


@pytest.mark.parametrize("write", [replace_file, write_in_place])
async def test_a_change_by_an_editor_is_taken_up(
    ground: Ground, file: Path, write: Callable[[Path, str], None]
) -> None:
    peer = await ground.join()
    assert "write" in await tools(peer)
    await peer.call("chat.send", message("hi"))
    await peer.until_chat("final")
    write(file, text('tools: { deny: ["write"] }'))
    event = await changed(peer)
    found = await peer.call("config.get", {})
    assert event == {
        "path": str(file),
        "hash": found["hash"],
        "ts": event["ts"],
        "valid": True,
        "issues": [],
        "restartNeeded": [],
    }
    assert found["appliedConfigHash"] == found["hash"]
    assert "write" not in await tools(peer)
    await peer.call("chat.send", message("again", "run-2"))
    there = ground.gateway.live.find("agent:main:main")
    assert there is not None
    assert "write" not in there.agent.kit.run.tools


async def test_a_turn_keeps_the_configuration_that_it_began_with(file: Path) -> None:
    gate = Gate(call("write", {"path": "a.txt", "content": "x"}))
    model = ScriptedModel(gate, "done", call("write", {"path": "b.txt", "content": "x"}), "done")
    async with serve(str(file), model) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("go"))
        await gate.reached.wait()
        replace_file(file, text('tools: { deny: ["write"] }'))
        await changed(peer)
        gate.release()
        await peer.until_chat("final")
        await peer.call("chat.send", message("again", "run-2"))
        await peer.until_chat("final", "run-2")
    place = Path(os.environ["CLAWKIT_HOME"]) / "workspace"
    assert [each.name for each in place.glob("*.txt")] == ["a.txt"]


async def test_an_invalid_file_changes_nothing_and_is_reported(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    replace_file(file, text('tools: { deny: ["write"], exec: { security: "everything" } }'))
    event = await changed(peer)
    assert event["valid"] is False
    [issue] = event["issues"]
    assert issue["path"] == "tools.exec.security"
    assert (await peer.call("health"))["config"]["issues"] == [issue]
    found = await peer.call("config.get", {})
    assert (found["valid"], found["issues"]) == (False, [issue])
    assert "write" in await tools(peer)
    lines = (await peer.call("logs.tail", {}))["lines"]
    assert any("is invalid and not used" in each for each in lines)
    limited = await ground.join(["operator.approvals"], Device())
    assert limited.hello["snapshot"]["health"]["config"] == {"valid": False}
    write_in_place(file, text('tools: { deny: ["edit"] }'))
    assert (await changed(peer))["valid"] is True
    assert "edit" not in await tools(peer)


async def test_a_configuration_that_would_not_start_is_invalid(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    raw = "{ gateway: { auth: { mode: 'none' }, trustedProxies: ['10.0.0.1'] } }"
    write_in_place(file, raw)
    event = await changed(peer)
    assert event["issues"][0]["path"] == "gateway.trustedProxies"
    write_in_place(file, text(gateway="auth: { mode: 'token', token: '$NOT_SET_ANYWHERE' }"))
    assert (await changed(peer))["valid"] is False
    write_in_place(file, text())
    assert (await changed(peer))["valid"] is True
    base = (await peer.call("config.get", {}))["hash"]
    error = await peer.refused("config.patch", {"raw": raw, "baseHash": base})
    assert error["message"].startswith("invalid config: gateway.trustedProxies: ")


async def test_settings_of_the_gateway_wait_for_a_restart(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    replace_file(file, text('tools: { deny: ["write"] }', "port: 18801"))
    event = await changed(peer)
    assert event["restartNeeded"] == ["gateway.port"]
    assert "write" not in await tools(peer)
    assert ground.gateway.loaded.config.gateway == ground.gateway.settings
    assert (await peer.call("config.get", {}))["restartNeeded"] == ["gateway.port"]
    replace_file(file, text())
    assert (await changed(peer))["restartNeeded"] == []


async def test_an_included_file_is_watched_also_while_it_is_broken(
    ground: Ground, file: Path
) -> None:
    peer = await ground.join()
    more = file.with_name("more.json5")
    more.write_text("{ deny: ", encoding="utf-8")
    replace_file(file, text('tools: { $include: "./more.json5" }'))
    assert (await changed(peer))["valid"] is False
    more.write_text('{ deny: ["write"] }', encoding="utf-8")
    assert (await changed(peer))["valid"] is True
    more.write_text('{ deny: ["edit"] }', encoding="utf-8")
    await changed(peer)
    assert "write" in await tools(peer)
    assert "edit" not in await tools(peer)


async def test_a_file_that_is_created_later_is_taken_up() -> None:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    os.environ["CLAWKIT_GATEWAY_TOKEN"] = TOKEN
    try:
        async with serve_default() as ground:
            peer = await ground.join()
            path.touch(0o600)
            path.write_text('{ tools: { deny: ["write"] } }', encoding="utf-8")
            assert (await changed(peer))["path"] == str(path)
            assert "write" not in await tools(peer)
    finally:
        del os.environ["CLAWKIT_GATEWAY_TOKEN"]


def serve_default() -> Any:
    return serve(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["hybrid", "hot", "restart", "off"])
async def test_modes(file: Path, mode: str) -> None:
    file.write_text(text(gateway=f'reload: {{ mode: "{mode}" }}'), encoding="utf-8")
    async with serve(str(file), ScriptedModel(then="ok")) as ground:
        peer, restarts = await ground.join(), []
        ground.gateway.on_restart = lambda: restarts.append(1)
        base = (await peer.call("config.get", {}))["hash"]
        params = {"raw": "{tools: {deny: ['write']}}", "baseHash": base, "restartDelayMs": 0}
        done = await peer.call("config.patch", params)
        is_hot = mode != "restart"
        assert ("write" not in await tools(peer)) is is_hot
        assert ("restart" in done) is not is_hot
        params = {"raw": "{gateway: {port: 18802}}", "baseHash": done["hash"]}
        done = await peer.call("config.patch", params | {"restartDelayMs": 0})
        assert done["sentinel"]["payload"]["stats"]["requiresRestart"] is True
        assert ("restart" in done) is (mode in ("hybrid", "restart"))
        await peer.call("health")
        assert bool(restarts) is (mode in ("hybrid", "restart"))
        assert ground.gateway._tasks[-1].done() is (mode == "off")


async def test_a_restart_is_requested_once_and_the_note_delivered_afterwards(file: Path) -> None:
    async with serve(str(file), ScriptedModel(then="ok")) as ground:
        peer, restarts = await ground.join(), []
        ground.gateway.on_restart = lambda: restarts.append(1)
        for port in (18803, 18804):
            base = (await peer.call("config.get", {}))["hash"]
            raw = json.dumps({"gateway": {"port": port}})
            given = {"raw": raw, "baseHash": base, "restartDelayMs": 100}
            given |= {"sessionKey": "main", "note": f"Look at port {port}."}
            done = await peer.call("config.patch", given)
            assert done["sentinel"]["persisted"] is True
            assert done["restart"]["coalesced"] is (port == 18804)
            assert 0 <= done["restart"]["delayMs"] <= 100
        raw = "{gateway: {port: 18805}}"
        given = {"raw": raw, "baseHash": done["hash"], "deliveryContext": {"channel": "telegram"}}
        refused = await peer.refused("config.patch", given)
        assert refused["message"].startswith("deliveryContext: ")
        given = {"raw": raw, "baseHash": done["hash"], "note": "for no one"}
        refused = await peer.refused("config.apply", given)
        assert refused["message"].startswith("note: ")
    model = ScriptedModel("seen", "seen")
    async with serve(str(file), model) as ground:
        peer = await ground.join()
        while len(model.requests) < 2:
            await peer.until_chat("final")
            peer.events.clear()
        history = await peer.call("chat.history", {"sessionKey": "main"})
        notes = [each["content"] for each in history["messages"] if each["role"] == "user"]
        assert notes == [
            f"The gateway was restarted: config.patch changed gateway.port.\nLook at port {port}."
            for port in (18803, 18804)
        ]


async def test_restarts_are_not_too_close_together(ground: Ground) -> None:
    gateway = ground.gateway
    assert gateway.request_restart("why") == {
        "ok": False,
        "reason": "the program that embeds this gateway must restart it",
    }
    gateway.on_restart = lambda: None
    gateway.mark_restart()
    asked = gateway.request_restart("why", 0.0)
    assert 20_000 < asked["delayMs"] <= 30_000
    gateway.forget_restart()
    assert not gateway.is_restarting
    # A turn may end while the gateway stops, and ask for it.
    assert gateway.request_restart("why", 0.0)["ok"] is False
    assert not gateway.is_restarting


async def test_the_earliest_of_several_restarts_counts(ground: Ground) -> None:
    gateway, restarts = ground.gateway, []
    gateway.on_restart = lambda: restarts.append(1)
    assert gateway.request_restart("later", 60.0)["coalesced"] is False
    sooner = gateway.request_restart("sooner", 5.0)
    assert sooner["coalesced"] is True
    assert 4_000 < sooner["delayMs"] <= 5_000
    assert gateway.request_restart("later", 60.0)["delayMs"] <= 5_000
    assert gateway.request_restart("now", 0.0)["delayMs"] == 0
    await (await ground.join()).call("health")
    assert gateway.request_restart("again", 0.0)["delayMs"] == 0
    await (await ground.join()).call("health")
    assert restarts == [1]


async def test_a_clock_that_was_set_back_does_not_delay_a_restart(ground: Ground) -> None:
    gateway = ground.gateway
    gateway.on_restart = lambda: None
    gateway.mark_restart()
    later = time.time() + 86_400
    os.utime(Path(os.environ["CLAWKIT_HOME"]) / "gateway" / "restarted", (later, later))
    assert gateway.request_restart("why", 0.0)["delayMs"] <= 30_000


async def test_a_change_that_needs_no_restart_leaves_others_waiting(
    ground: Ground, file: Path
) -> None:
    peer, restarts = await ground.join(), []
    ground.gateway.on_restart = lambda: restarts.append(1)
    replace_file(file, text(gateway="port: 18806"))
    await ground.gateway.watch.reload()
    base = (await peer.call("config.get", {}))["hash"]
    given = {"raw": "{tools: {deny: ['write']}}", "baseHash": base, "restartDelayMs": 0}
    done = await peer.call("config.patch", given)
    assert done["sentinel"]["payload"]["stats"] == {"requiresRestart": False}
    assert "restart" not in done
    assert ground.gateway.watch.waiting == ["gateway.port"]
    back = {"raw": "{gateway: {port: null}}", "baseHash": done["hash"], "restartDelayMs": 0}
    assert "restart" not in await peer.call("config.patch", back)
    assert not ground.gateway.is_restarting


async def test_lists_in_a_patch(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    replace_file(file, text("agents: { list: [{ id: 'a', name: 'A' }, { id: 'b' }] }"))
    await changed(peer)
    base = (await peer.call("config.get", {}))["hash"]
    raw = "{agents: {list: [{id: 'b', name: 'B'}, {id: 'c'}]}, tools: {deny: ['write', 'edit']}}"
    done = await peer.call("config.patch", {"raw": raw, "baseHash": base})
    assert done["config"]["agents"]["list"] == [
        *({"id": "a", "name": "A"}, {"id": "b", "name": "B"}, {"id": "c"}),
    ]
    shorter = {"raw": "{tools: {deny: ['edit']}}", "baseHash": done["hash"]}
    error = await peer.refused("config.patch", shorter)
    assert error["message"].startswith("tools.deny: this would remove 1 of 2 entries")
    done = await peer.call("config.patch", shorter | {"replacePaths": ["tools.deny"]})
    assert done["config"]["tools"]["deny"] == ["edit"]
    gone = {"raw": "{agents: {list: [{id: 'c'}]}}", "baseHash": done["hash"]}
    done = await peer.call("config.patch", gone | {"replacePaths": ["agents.list"]})
    assert done["config"]["agents"]["list"] == [{"id": "c"}]


async def test_a_file_in_every_state(ground: Ground, file: Path) -> None:
    peer = await ground.join()

    def denying(tool: str) -> str:
        return text(f'tools: {{ deny: ["{tool}"] }}')

    async def denied(tool: str) -> bool:
        assert (await changed(peer))["valid"] is True
        return tool not in await tools(peer)

    async def invalid() -> str:
        event = await changed(peer)
        assert event["valid"] is False
        assert "write" not in await tools(peer)  # as it was last valid
        return str(event["issues"][0]["message"])

    file.write_bytes(b"\xef\xbb\xbf" + denying("write").encode())
    assert await denied("write")
    file.write_bytes(b"")
    assert "the text is empty" in await invalid()
    target = file.with_name("target.json5")
    target.write_text(denying("edit"), encoding="utf-8")
    file.unlink()
    file.symlink_to(target)
    assert await denied("edit")
    target.write_text(denying("ls"), encoding="utf-8")
    assert await denied("ls")
    found = await peer.call("config.get", {})
    error = await peer.refused("config.set", {"raw": "{}", "baseHash": found["hash"]})
    assert f"is a symbolic link; use its target: '{target}'" in error["message"]
    other = file.with_name("other.json5")
    other.write_text(denying("write"), encoding="utf-8")
    replace_file(target, denying("grep"))
    assert await denied("grep")
    file.unlink()
    file.symlink_to(other)
    assert await denied("write")
    file.unlink()
    assert "does not exist" in await invalid()
    file.write_text(denying("write"), encoding="utf-8")
    assert await denied("write")
    file.unlink()
    file.mkdir()
    assert "is a directory" in await invalid()
    file.rmdir()
    file.write_text(denying("edit"), encoding="utf-8")
    assert await denied("edit")
    old = file.stat()
    write_in_place(file, denying("grep")[: old.st_size])
    os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))  # as if the clock was set back
    assert file.stat().st_size == old.st_size
    assert await denied("grep")


async def test_a_change_while_the_file_is_read_is_taken_up_too(ground: Ground, file: Path) -> None:
    peer, gateway = await ground.join(), ground.gateway
    later = iter([text('tools: { deny: ["edit"] }')])

    def change_once(_loaded: Any) -> None:
        for words in later:
            file.write_text(words, encoding="utf-8")

    gateway.preflight = change_once
    file.write_text(text('tools: { deny: ["write"] }'), encoding="utf-8")
    await changed(peer)
    await changed(peer)
    assert {"write"} <= await tools(peer)
    assert "edit" not in await tools(peer)

"""Roots of a client: they limit the workspace and never widen it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.mcp_server.wire import Wire, connect, opener

from clawkit.mcp_server.client import choose_workspace


def test_the_first_root_below_the_workspace_is_chosen(tmp_path: Path) -> None:
    for name in ("ws/a b", "ws/c", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws/file").write_text("")
    (tmp_path / "ws/out").symlink_to(tmp_path / "other")
    inside = f"file://{tmp_path}/ws"
    for roots, chosen in [
        ([], ""),
        ([f"{inside}/c"], "ws/c"),
        ([f"{inside}/a%20b/", f"{inside}/c"], "ws/a b"),
        ([f"file://localhost{tmp_path}/ws/c"], "ws/c"),
        ([f"file://{tmp_path}/other", f"{inside}/c"], "ws/c"),
        ([f"{inside}/c", inside], ""),
        ([f"file://{tmp_path}"], ""),
        (["file:///"], ""),
        ([f"file://{tmp_path}/other"], ""),
        ([f"{inside}/out"], ""),
        ([f"{inside}/../other"], ""),
        ([f"{inside}/missing"], ""),
        ([f"{inside}/file"], ""),
        ([f"{inside}/c%00"], ""),
        ([f"http://{tmp_path}/ws/c", f"file://elsewhere{tmp_path}/ws/c", "c", "", "file:[x"], ""),
    ]:
        found = choose_workspace(str(tmp_path / "ws"), roots, lambda _path: "")
        assert found == (str(tmp_path / chosen) if chosen else ""), roots


async def call(wire: Wire, roots: object, **arguments: Any) -> dict[str, Any]:
    """Read a file, and list these roots when asked for them."""
    number = await wire.start("tools/call", {"name": "read", "arguments": arguments})
    message = await wire.receive()
    if message.get("method") == "roots/list":
        await wire.send({"jsonrpc": "2.0", "id": message["id"], "result": roots})
        message = await wire.receive()
    assert message["id"] == number
    found: dict[str, Any] = message["result"]
    return found


async def test_files_outside_the_roots_cannot_be_read_until_the_roots_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    narrow = {"roots": [{"uri": f"file://{tmp_path}/sub", "name": "sub"}]}
    wide = {"roots": [{"uri": f"file://{tmp_path}"}]}
    async with connect(opener(None, tmp_path)) as wire:
        await wire.initialize({"roots": {"listChanged": True}})
        listed = await wire.ask("tools/list")
        assert "result" in listed
        assert (await call(wire, narrow, path="a.txt"))["content"][0]["text"] == "inside"
        assert (await call(wire, None, path=f"{tmp_path}/b.txt"))["isError"] is True
        await wire.notify("notifications/roots/list_changed", {})
        assert (await call(wire, wide, path="b.txt"))["content"][0]["text"] == "outside"


async def test_a_client_that_does_not_list_its_roots_keeps_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("here")
    answers: list[object] = ["nonsense", {"roots": 7}, {"roots": [{}]}]
    for invalid in answers:
        async with connect(opener(None, tmp_path)) as wire:
            await wire.initialize({"roots": {}})
            assert (await call(wire, invalid, path="b.txt"))["content"][0]["text"] == "here"


async def test_a_root_inside_of_what_is_protected_does_not_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "user" / ".clawkit"
    (state / "skills").mkdir(parents=True)
    (tmp_path / "user" / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("CLAWKIT_HOME", str(state))
    for place in (state / "skills", tmp_path / "user" / ".ssh"):
        file = place / "authorized_keys"
        async with connect(opener(None, tmp_path / "user")) as wire:
            await wire.initialize({"roots": {}})
            given = {"path": str(file), "content": "x"}
            await wire.start("tools/call", {"name": "write", "arguments": given})
            asked = await wire.receive()
            roots = {"roots": [{"uri": f"file://{place}"}]}
            await wire.send({"jsonrpc": "2.0", "id": asked["id"], "result": roots})
            assert "needs a person's approval" in str(await wire.receive())
        assert not file.exists()

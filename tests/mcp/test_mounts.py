"""Servers that are programs: listed once, started on use, confined, and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.mcp.parts import SERVER, Approver, entry, error, mounts, names, notes, open_kit, until

from clawkit import Agent, Toolkit
from clawkit.core.call import CallRequest, call
from clawkit.core.context import Scope, Sender
from clawkit.mcp.definitions import FEATURES
from clawkit.mcp.tools import allowed_servers
from clawkit.runtime import load_config
from clawkit.testing import ScriptedModel
from clawkit.testing import call as tool_call


async def test_tools_are_offered_by_server_and_name_and_can_be_called(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"my srv": entry(tmp_path)}) as kit:
        assert names(kit) == [
            *("my-srv__echo", "my-srv__ask", "my-srv__sleep", "my-srv__where"),
            *("my-srv__resources", "my-srv__prompts"),
        ]
        result = await kit.call("my-srv__echo", {"text": "hello"})
        assert kit.assembly.sources["my-srv__echo"] == "mcp:my srv"
    assert "\nhello\n" in result.as_text()
    assert "EXTERNAL_UNTRUSTED_CONTENT" in result.as_text()
    assert "call echo" in notes(tmp_path)


async def test_nothing_is_started_while_the_list_is_known_and_no_tool_is_called(
    workspace: Path, tmp_path: Path
) -> None:
    servers = {"srv": entry(tmp_path)}
    async with open_kit(workspace, servers):
        pass
    before = notes(tmp_path).count("started")
    async with open_kit(workspace, servers) as kit:
        assert "srv__echo" in names(kit)
    assert notes(tmp_path).count("started") == before == 1


async def test_another_entry_of_the_same_name_is_listed_anew(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path)}) as kit:
        assert "srv__echo" in names(kit)
    async with open_kit(workspace, {"srv": entry(tmp_path, "media")}) as kit:
        assert "srv__structured" in names(kit)


@pytest.mark.parametrize(
    "tools",
    [
        {"deny": ["mcp:srv"]},
        {"deny": ["bundle-mcp"]},
        {"deny": ["group:plugins"]},
        {"deny": ["srv__*"]},
        {"allow": ["read"]},
        {"profile": "minimal"},
    ],
    ids=str,
)
async def test_a_server_that_policy_denies_is_never_started(
    workspace: Path, tmp_path: Path, tools: dict[str, Any]
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path)}, tools) as kit:
        assert names(kit) == []
    assert notes(tmp_path) == []


def test_a_server_is_allowed_if_one_of_its_tools_may_be() -> None:
    servers = {"srv": {"command": "/bin/true"}, "off": {"command": "/bin/true", "enabled": False}}
    for tools, allowed in (
        ({}, ["srv"]),
        ({"deny": ["srv__echo"]}, ["srv"]),
        ({"allow": ["read", "srv__echo"]}, ["srv"]),
        ({"allow": ["read", "other__echo"]}, []),
        ({"profile": "coding"}, []),
        ({"profile": "coding", "alsoAllow": ["bundle-mcp"]}, ["srv"]),
        ({"profile": "minimal", "alsoAllow": ["srv__e*"]}, ["srv"]),
    ):
        config = load_config({"mcp": {"servers": servers}, "tools": tools}).config
        scope = Scope(sender=Sender(owner=True))
        assert allowed_servers(config, scope) == allowed, tools
        assert allowed_servers(config, Scope(sender=Sender(owner=True), depth=1)) == []


async def test_policy_decides_about_single_tools(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path)}, {"deny": ["srv__ask"]}) as kit:
        assert "srv__ask" not in names(kit)
        result = await kit.call("srv__ask")
    assert result.details["status"] == "blocked"
    assert "tools.deny denies it with 'srv__ask'" in result.as_text()


async def test_the_filter_of_an_entry_chooses_tools(workspace: Path, tmp_path: Path) -> None:
    chosen = {"include": ["e*", "ask", "prompts"], "exclude": ["ask"]}
    async with open_kit(workspace, {"srv": entry(tmp_path, toolFilter=chosen)}) as kit:
        assert names(kit) == ["srv__echo", "srv__prompts"]


async def test_a_disabled_server_is_not_used(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, enabled=False)}) as kit:
        assert names(kit) == []
    assert notes(tmp_path) == []


async def test_resources_and_prompts_are_listed_and_read(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path)}) as kit:
        for tool, params, said in (
            ("srv__resources", {}, '{"uri": "note:1", "name": "one"}'),
            ("srv__resources", {"uri": "note:1"}, "text of note:1"),
            ("srv__prompts", {}, '{"name": "greet"}'),
            ("srv__prompts", {"name": "greet", "arguments": {"who": "Ada"}}, "user: Greet Ada"),
        ):
            assert said in (await kit.call(tool, params)).as_text()


async def test_a_tool_with_the_name_of_a_feature_is_called_as_a_tool(
    workspace: Path, tmp_path: Path
) -> None:
    """Even if its definition is the same."""
    own = msgspec.json.encode(FEATURES["resources"]).decode()
    server = entry(tmp_path, "feature", env={"DEFINITION": own})
    async with open_kit(workspace, {"srv": server}) as kit:
        await kit.call("srv__resources")
    assert "call resources" in notes(tmp_path)


async def test_progress_is_an_update_and_cancelling_the_call_cancels_the_request(
    workspace: Path, tmp_path: Path
) -> None:
    updates: list[Any] = []
    async with open_kit(workspace, {"srv": entry(tmp_path)}) as kit:
        request = CallRequest("srv__sleep")
        task = asyncio.ensure_future(call(kit.run, request, updates.append))
        await until(lambda: any(each["type"] == "update" for each in updates))
        task.cancel()
        await asyncio.wait({task})
        await until(lambda: any("notifications/cancelled" in line for line in notes(tmp_path)))
    told = next(each for each in updates if each["type"] == "update")
    assert told["content"][0]["text"] == "1 of 4 working"


async def test_a_question_of_the_server_goes_to_the_person(workspace: Path, tmp_path: Path) -> None:
    accepted = '{"action": "accept", "content": {"color": "red", "sure": true}}'
    yes, no = Approver(), Approver("deny")
    for approver, answer in ((yes, accepted), (no, '{"action": "decline"}')):
        async with open_kit(workspace, {"srv": entry(tmp_path)}, approver=approver) as kit:
            assert answer in (await kit.call("srv__ask")).as_text()
    assert "Sure?" in yes.asked[0].description
    assert "Yes sends: 'sure': True, 'color': 'red'" in yes.asked[0].description


async def test_a_question_is_declined_where_no_one_can_be_asked(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path)}) as kit:
        assert '{"action": "decline"}' in (await kit.call("srv__ask")).as_text()


async def test_results_keep_images_and_say_what_else_there_is(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "media")}) as kit:
        result = await kit.call("srv__echo", {"text": "t"})
        structured = await kit.call("srv__structured")
        failed = await kit.call("srv__fails")
    text = result.as_text()
    for part in (
        *("[audio, audio/wav, 3 B: not shown]", "[resource file:///x (text/x) x]"),
        "[resource file:///y]\ninside",
    ):
        assert part in text
    assert [block.to_json()["type"] for block in result.content] == ["text", "image"]
    assert structured.details["structuredContent"] == {"n": 1}
    assert '{"n":1}' in structured.as_text()
    assert error(failed) == "no such thing"


# Confinement


async def where(kit: Any) -> dict[str, Any]:
    text = (await kit.call("srv__where")).as_text()
    found: dict[str, Any] = json.loads(text.split("---\n")[1].split("\n<<<END")[0])
    return found


async def test_a_program_sees_its_own_variables_and_no_credentials(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_notforservers")
    monkeypatch.setenv("FOR_SRV", "given")
    env = {"OWN": "$FOR_SRV", "PLAIN": "yes"}
    async with open_kit(workspace, {"srv": entry(tmp_path, env=env)}) as kit:
        found = await where(kit)
    assert "GITHUB_TOKEN" not in found["env"]
    assert (found["env"]["PLAIN"], "OWN" in found["env"]) == ("yes", True)
    assert found["env"]["TMPDIR"].startswith(os.environ["CLAWKIT_HOME"])


@pytest.mark.parametrize(
    "sandbox", [{}, {"workspaceAccess": "none"}, {"workspaceAccess": "rw"}, {"enabled": False}]
)
async def test_the_workspace_does_not_decide_what_runs(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: dict[str, Any]
) -> None:
    own, link = workspace / ".venv" / "bin", tmp_path / "bin"
    own.mkdir(parents=True)
    link.symlink_to(own)
    loop = workspace / "loop"
    loop.symlink_to(loop)
    inside = {str(own), str(link), f"/{own}", f"{loop}/bin", ".venv/bin", ""}
    monkeypatch.setenv("PATH", ":".join((*inside, os.environ["PATH"])))
    (workspace / "served.py").write_text("raise SystemExit('the one in the workspace')")
    server = entry(tmp_path, sandbox=sandbox, env={"PYTHONPATH": str(tmp_path / "lib")})
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "served.py").write_text(SERVER.read_text())
    server["sandbox"].setdefault("readPaths", []).append(str(tmp_path / "lib"))
    server["args"] = ["-m", "served", *server["args"][1:]]
    async with open_kit(workspace, {"srv": server}) as kit:
        found = await where(kit)
    assert found["cwd"].startswith(os.environ["CLAWKIT_HOME"])
    folders = found["env"]["PATH"].split(":")
    assert folders
    assert inside.isdisjoint(folders)


async def test_a_server_that_is_in_the_workspace_needs_its_directory(workspace: Path) -> None:
    (workspace / "mine.py").write_text("raise SystemExit(1)")
    server = {"command": sys.executable, "args": ["mine.py"]}
    async with open_kit(workspace, {"srv": server}) as kit:
        [(_, said)] = mounts(kit).errors.items()
    assert "'mine.py' is in the workspace" in said
    assert "set mcp.servers.srv.cwd to '.'" in said


async def test_it_runs_in_its_directory(workspace: Path, tmp_path: Path) -> None:
    (workspace / "inner").mkdir()
    async with open_kit(workspace, {"srv": entry(tmp_path, cwd="inner")}) as kit:
        assert (await where(kit))["cwd"] == str(workspace / "inner")


PROBE = """
import json, os, socket, sys
def tries(what):
    try:
        what()
        return True
    except OSError as error:
        return type(error).__name__
def write(path):
    def do():
        with open(path, "w") as file:
            file.write("x")
    return do
def read(path):
    def do():
        if not open(path).read():
            raise OSError
    return do
def connect():
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), 2).close()
found = {
    "write": tries(write("probe.txt")),
    "granted": tries(write(sys.argv[1] + "/probe.txt")),
    "read": tries(read("seen.txt")),
    "secret": tries(read(sys.argv[2])),
    "network": tries(connect),
}
tool = {"name": json.dumps(found).replace('"', ""), "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": [{**tool, "name": "probe", "description": json.dumps(found)}]}
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    if asked["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601}}))
    elif "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
    sys.stdout.flush()
"""


async def test_a_program_is_confined_to_what_its_entry_grants(
    workspace: Path, tmp_path: Path, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "probe.py").write_text(PROBE, encoding="utf-8")
    (workspace / "seen.txt").write_text("x", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    secret = tmp_path / "user" / ".ssh" / "id_rsa"
    secret.parent.mkdir(parents=True)
    secret.write_text("x", encoding="utf-8")
    granted = tmp_path / "granted"
    granted.mkdir()
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    closed = {"write": False, "granted": False, "read": True, "secret": False, "network": False}
    for sandbox, opened in (
        ({}, {}),
        ({"workspaceAccess": "rw"}, {"write": True}),
        ({"writePaths": [str(granted)]}, {"granted": True}),
        ({"readPaths": [str(secret.parent)]}, {"secret": True}),
        ({"network": "full"}, {"network": True}),
        ({"enabled": False}, dict.fromkeys(closed, True)),
    ):
        with subtests.test(sandbox=sandbox):
            args = [str(workspace / "probe.py"), str(granted), str(secret), str(port)]
            probe = {"command": sys.executable, "args": args, "cwd": ".", "sandbox": sandbox}
            async with open_kit(workspace, {f"s{len(opened)}{len(str(sandbox))}": probe}) as kit:
                [tool] = [tool for tool in kit.tools if tool.name.endswith("__probe")]
            found = json.loads(tool.description.partition(") ")[2])
            assert {key: value is True for key, value in found.items()} == {**closed, **opened}
    server.close()
    await server.wait_closed()


async def test_a_program_does_not_see_what_is_hidden_from_commands(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "probe.py").write_text(PROBE, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    diary = tmp_path / "user" / "diary"
    diary.parent.mkdir(parents=True)
    diary.write_text("x", encoding="utf-8")
    args = [str(workspace / "probe.py"), str(tmp_path), str(diary), "9"]
    for hidden, granted, is_read in (
        ([], [], True),
        (["~/diary"], [], False),
        (["~/diary"], ["~/diary"], True),
    ):
        probe = {"command": sys.executable, "args": args, "sandbox": {"readPaths": granted}}
        config = {
            "mcp": {"servers": {f"s{len(hidden)}{len(granted)}": probe}},
            "agents": {"defaults": {"sandbox": {"hidePaths": hidden}}},
        }
        async with Toolkit.open(config, workspace=workspace, owner=True) as kit:
            [tool] = [tool for tool in kit.tools if tool.name.endswith("__probe")]
        found = json.loads(tool.description.partition(") ")[2])
        assert (found["secret"] is True) is is_read, (hidden, granted)


async def test_a_program_that_cannot_be_confined_is_not_started(
    workspace: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(os.environ["CLAWKIT_HOME"])
    for kind, place in product(("readPaths", "writePaths"), (os.environ["CLAWKIT_HOME"], link)):
        own = {kind: [str(place)]}
        async with open_kit(workspace, {"srv": entry(tmp_path, sandbox=own)}) as kit:
            assert names(kit) == []
            said = mounts(kit).errors["srv"]
        assert "commands may not access clawkit's own files" in said
        assert "set mcp.servers.srv.sandbox.enabled to false" in said


# Life


async def test_a_server_that_dies_is_started_again_by_the_next_call(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "dies")}) as kit:
        for _ in range(2):
            assert "it exited" in error(await kit.call("srv__echo"))
        assert notes(tmp_path).count("started") == 2
        said = error(await kit.call("srv__echo"))
    assert "failed 2 times" in said
    assert "retry in" in said


async def test_an_idle_server_is_stopped_and_started_by_the_next_call(
    workspace: Path, tmp_path: Path
) -> None:
    mcp = {"sessionIdleTtlMs": 100}
    async with open_kit(workspace, {"srv": entry(tmp_path)}, mcp=mcp) as kit:
        await until(lambda: mounts(kit)._slots["srv"].session is None)
        assert not (await kit.call("srv__echo", {"text": "x"})).is_error
        assert notes(tmp_path).count("started") == 2


async def test_closing_stops_the_program(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path)}) as kit:
        task = asyncio.ensure_future(kit.call("srv__sleep"))
        await until(lambda: "call sleep" in notes(tmp_path))
        running = mounts(kit)._slots["srv"].setup
        assert running is not None
    await task
    assert mounts(kit)._slots["srv"].session is None


@pytest.mark.parametrize("parallel", [True, False])
async def test_calls_run_in_parallel_where_the_server_supports_it(
    workspace: Path, tmp_path: Path, parallel: bool
) -> None:
    servers = {"srv": entry(tmp_path, supportsParallelToolCalls=parallel, requestTimeoutMs=300)}
    calls = [CallRequest("srv__sleep"), CallRequest("srv__echo", {"text": "x"})]
    order: list[str] = []
    async with open_kit(
        workspace, servers, on_event=lambda e: order.append(f"{e['type']} {e['tool']}")
    ) as kit:
        first, second = await kit.call_all(calls)
    assert "did not answer in time" in error(first)
    assert not second.is_error
    ends = [each for each in order if each.startswith("end")]
    assert (ends == ["end srv__echo", "end srv__sleep"]) is parallel


async def test_an_agent_uses_a_tool_of_a_server_that_it_never_saw(
    workspace: Path, tmp_path: Path
) -> None:
    config = {"mcp": {"servers": {"srv": entry(tmp_path)}}}
    model = ScriptedModel(tool_call("srv__echo", {"text": "from the model"}), "Done.")
    async with Agent.open(
        config, workspace=workspace, model=model, keep=False, owner=True
    ) as agent:
        assert await agent.run("Use it") == "Done."
    declared = [tool.name for tool in model.requests[0].tools]
    assert "srv__echo" in declared
    assert "from the model" in str(model.requests[1].messages)


async def test_a_changed_list_is_offered_in_the_next_turn(workspace: Path, tmp_path: Path) -> None:
    config = {"mcp": {"servers": {"srv": entry(tmp_path, "changing")}}}
    model = ScriptedModel(tool_call("srv__echo", {"text": "x"}), "One.", "Two.")
    async with Agent.open(
        config, workspace=workspace, model=model, keep=False, owner=True
    ) as agent:
        await agent.run("first")
        (tmp_path / "notes.changed").touch()
        await mounts(agent.kit).refresh("srv")
        await agent.run("second")
        assert any("clawkit mcp accept srv" in each for each in agent.warnings)
    first, last = (([t.name for t in r.tools]) for r in (model.requests[0], model.requests[-1]))
    assert "srv__echo" in first
    assert "srv__echo" not in last
    assert "srv__new" not in last


async def test_changed_settings_replace_servers_while_others_stay(
    workspace: Path, tmp_path: Path
) -> None:
    servers = {"same": entry(tmp_path), "other": entry(tmp_path)}
    async with open_kit(workspace, servers) as kit:
        before = mounts(kit)._slots["same"].session
        more = {"same": entry(tmp_path), "other": entry(tmp_path, "media"), "new": entry(tmp_path)}
        kit.alter(config=load_config({"mcp": {"servers": more}}).config)
        assert mounts(kit)._slots["other"].session is None
        assert await kit.update()
        assert {"other__structured", "new__echo", "same__echo"} <= set(names(kit))
        assert mounts(kit)._slots["same"].session is before
        assert not (await kit.call("new__echo", {"text": "x"})).is_error

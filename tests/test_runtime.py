"""The toolkit, as a Python program uses it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.net.parts import answering
from tests.web.internet import respond

import clawkit
from clawkit import Agent, CallRequest, Context, Hooks, Sender, Tool, Toolkit, tool
from clawkit.config.load import loads
from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef
from clawkit.core.hooks import Call
from clawkit.errors import ConfigError, RegistryError, SchemaError, ToolInputError
from clawkit.runtime import resolve_workspace
from clawkit.schema.choose import PROVIDERS
from clawkit.testing import Events, ScriptedModel


@tool
async def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return f"18 degrees in {city}"


BUILT = ["read", "write", "edit", "apply_patch", "grep", "find", "ls", "exec", "process"]
BUILT += ["code_execution", "web_fetch", "sessions_list", "sessions_history", "sessions_search"]
BUILT += ["session_status", "agents_list"]


def without(name: str) -> list[str]:
    return [each for each in BUILT if each != name]


def names(kit: Toolkit) -> list[str]:
    return [each.name for each in kit.tools]


async def test_a_toolkit_runs_built_in_and_custom_tools(workspace: Path) -> None:
    async with Toolkit.open(workspace=workspace, tools=[weather]) as kit:
        assert names(kit) == [*BUILT, "weather"]
        assert kit.workspace == str(workspace)
        assert (await kit.call("read", {"path": "a.txt"})).as_text() == "alpha\nbeta"
        assert (await kit.call("weather", {"city": "Oslo"})).as_text() == "18 degrees in Oslo"
        listed = await kit.call("exec", {"command": "ls"})
        assert (listed.as_text(), listed.details["confined"]) == ("a.txt\nsrc", True)
        assert (await kit.call("exec", {"command": "ls", "elevated": True})).is_error


async def test_several_calls_and_their_events(workspace: Path) -> None:
    events = Events()
    async with Toolkit.open({}, workspace=workspace, on_event=events) as kit:
        results = await kit.call_all(
            [CallRequest("ls", id="1"), CallRequest("read", {"path": "a.txt"}, "2")]
        )
        await kit.call("ls", id="3")
    assert [result.is_error for result in results] == [False, False]
    assert sorted(event["callId"] for event in events.of("end")) == ["1", "2", "3"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_schemas_for_each_model_api(workspace: Path, provider: Any) -> None:
    kit = Toolkit.open({}, workspace=workspace)
    declared = kit.schemas(provider)
    assert len(declared) == len(BUILT)
    first: dict[str, Any] = declared[0].get("function", declared[0])
    assert first["name"] == "read"
    schema = first.get("input_schema") or first["parameters"]
    assert list(schema["properties"])[:3] == ["path", "offset", "limit"]
    assert json.dumps(declared)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_hidden_parameters_are_accepted_but_not_declared(
    workspace: Path, provider: Any
) -> None:
    schema = {"properties": {"shown": {"type": "string"}, "secret": {"type": "string"}}}

    async def execute(params: dict[str, Any], _ctx: Context) -> str:
        return str(params["secret"])

    quiet = Tool("quiet", "Quiet.", schema, execute, hidden=frozenset({"secret"}))
    async with Toolkit.open({}, workspace=workspace, tools=[quiet]) as kit:
        declared = json.dumps(kit.schemas(provider)[-1])
        assert "shown" in declared
        assert "secret" not in declared
        assert (await kit.call("quiet", {"secret": "taken"})).as_text() == "taken"


def test_strict_schemas_and_unknown_apis(workspace: Path) -> None:
    kit = Toolkit.open({}, workspace=workspace)
    assert kit.schemas("openai", strict=True)[0]["function"]["strict"] is True
    with pytest.raises(SchemaError, match="unknown model API 'mistral'; known: anthropic"):
        kit.schemas("mistral")  # type: ignore[arg-type]


DENY_LS = {"tools": {"deny": ["ls"]}}


def test_settings_come_from_a_mapping_a_file_or_an_object(workspace: Path, tmp_path: Path) -> None:
    file = tmp_path / "my.json5"
    file.write_text("{tools: {deny: ['ls']}} // mine")
    for config in (
        DENY_LS,
        MappingProxyType(DENY_LS),
        loads(json.dumps(DENY_LS)).config,
        str(file),
        file,
    ):
        kit = Toolkit.open(config, workspace=workspace)
        assert names(kit) == without("ls")
        assert kit.config.tools.deny == ["ls"]


def test_settings_left_out_come_from_the_usual_place(workspace: Path) -> None:
    assert names(Toolkit.open(workspace=workspace)) == BUILT
    home = Path(os.environ["CLAWKIT_HOME"])
    (home / "clawkit.json5").write_text(json.dumps(DENY_LS))
    assert names(Toolkit.open(workspace=workspace)) == without("ls")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"toolz": {}}, "toolz"),
        ({"tools": {"deny": {1, 2}}}, "is not plain JSON"),
        ({"tools": {"deny": [Path("/")]}}, "is not plain JSON"),
        ({"logging": {"redactPatterns": ["("]}}, "redactPatterns"),
        ("/no/such/file.json5", "/no/such/file.json5"),
        (
            {"tools": {"rules": [{"tool": "read", "effect": "deny", "params": {"path": "/(/"}}]}},
            "/(/",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_a_configuration_error(
    workspace: Path, config: Any, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Toolkit.open(config, workspace=workspace)
    assert words in str(caught.value)


def test_a_mistake_in_a_mapping_has_no_line(workspace: Path) -> None:
    with pytest.raises(ConfigError, match=r"^<mapping>: tols: unknown setting"):
        Toolkit.open({"tols": {}}, workspace=workspace)


def test_a_mapping_that_holds_itself_is_a_configuration_error(workspace: Path) -> None:
    loop: dict[str, Any] = {}
    loop["tools"] = loop
    with pytest.raises(ConfigError, match="not plain JSON"):
        Toolkit.open(loop, workspace=workspace)


def test_suspicious_settings_are_warnings(workspace: Path) -> None:
    config = {
        "tools": {
            "deny": ["raed"],
            "rules": [{"tool": "read", "effect": "deny", "params": {"pth": "x"}}],
        }
    }
    warnings = Toolkit.open(config, workspace=workspace).warnings
    assert any("raed" in warning for warning in warnings)
    assert any("params.pth" in warning for warning in warnings)


def test_a_run_has_owner_rights_only_if_requested(workspace: Path) -> None:
    async def nothing(_params: Any, _ctx: Context) -> None:
        return None

    danger = Tool("danger", "Danger.", {}, nothing, owner_only=True)

    def offered(**options: Any) -> bool:
        return "danger" in names(Toolkit.open({}, workspace=workspace, tools=[danger], **options))

    assert not offered()
    assert offered(owner=True)
    assert offered(sender=Sender(owner=True))
    assert offered(sender=Sender(id="7"), owner=True)
    assert not offered(sender=Sender(id="7"))


def test_every_option_of_the_scope_has_an_effect(workspace: Path) -> None:
    config = {
        "tools": {"byProvider": {"openai/gpt-5": {"deny": ["ls"]}}},
        "agents": {"list": [{"id": "support", "tools": {"deny": ["read"]}}]},
        "channels": {"telegram": {"groups": {"g1": {"tools": {"deny": ["session_status"]}}}}},
    }

    def offered(**options: Any) -> list[str]:
        return names(Toolkit.open(config, workspace=workspace, **options))

    everything = BUILT
    assert offered() == everything
    assert offered(agent="Support") == without("read")
    assert offered(model="openai/gpt-5") == without("ls")
    assert offered(model=ModelRef("openai", "gpt-5")) == without("ls")
    assert offered(channel="telegram", group="g1") == without("session_status")
    assert offered(depth=1) == ["read", "grep", "find", "ls"]
    assert offered(allow=["ls"]) == ["ls"]
    assert offered(allow=[]) == []
    confined = [each for each in without("agents_list") if each != "web_fetch"]
    assert offered(sandboxed=True) == confined


async def test_session_status_reports_a_sandboxed_run(workspace: Path) -> None:
    kit = Toolkit.open({}, workspace=workspace, sandboxed=True)
    assert (await kit.call("session_status")).details["sandboxed"] is True


def test_an_invalid_model_name_is_a_configuration_error(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="model"):
        Toolkit.open({}, workspace=workspace, model="a b")


@pytest.mark.parametrize("name", ["exec", "EXEC", "Bash", "read"])
def test_a_tool_of_the_caller_cannot_shadow_a_built_in_one(workspace: Path, name: str) -> None:
    with pytest.raises(RegistryError):
        Toolkit.open({}, workspace=workspace, tools=[tool(name=name)(weather_function)])


def test_a_plain_function_is_not_a_tool(workspace: Path) -> None:
    given: Any = [weather_function]
    with pytest.raises(TypeError, match=r"weather_function.* is not a Tool; .* with @tool"):
        Toolkit.open({}, workspace=workspace, tools=given)


async def test_tools_may_come_from_a_generator(workspace: Path) -> None:
    given = (tool(name=name)(weather_function) for name in ("here", "there"))
    async with Toolkit.open({}, workspace=workspace, tools=given) as kit:
        assert {"here", "there"} <= {each.name for each in kit.tools}


def weather_function(city: str) -> str:
    """Tell the weather."""
    return city


async def test_hooks_of_the_caller_are_called(workspace: Path) -> None:
    seen: list[Call] = []
    hooks = Hooks()
    hooks.before(seen.append)
    async with Toolkit.open({}, workspace=workspace, hooks=hooks) as kit:
        await kit.call("ls")
    assert len(seen) == 1


def test_the_workspace_is_the_given_else_the_agents_else_the_default_else_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("given", "agents", "common", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    both = {
        "agents": {
            "defaults": {"workspace": "~/common"},
            "list": [{"id": "support", "workspace": str(tmp_path / "agents")}],
        }
    }
    config = loads(json.dumps(both)).config
    empty = loads("{}").config
    assert resolve_workspace(config, "support", tmp_path / "given") == str(tmp_path / "given")
    assert resolve_workspace(config, "Support", "../given") == str(tmp_path / "given")
    assert resolve_workspace(config, "Support") == str(tmp_path / "agents")
    assert resolve_workspace(config, "main") == str(tmp_path / "common")
    assert resolve_workspace(config, "main", "") == str(tmp_path / "common")
    assert resolve_workspace(empty, "main") == str(tmp_path / "here")


@pytest.mark.parametrize("place", ["missing", "a.txt", "a\0b"])
def test_a_workspace_that_is_not_a_directory_is_a_configuration_error(
    workspace: Path, place: str
) -> None:
    with pytest.raises(ConfigError, match=r"workspace: .* is not a directory"):
        Toolkit.open({}, workspace=workspace / place)


def test_a_current_directory_that_is_gone_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the current directory was deleted"):
        resolve_workspace(Config(), "main")


async def test_the_file_tools_are_limited_to_the_workspace_by_default(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "f").write_text("other")
    path = str(tmp_path / "other" / "f")

    async def reached(config: dict[str, Any], **options: Any) -> bool:
        kit = Toolkit.open(config, workspace=workspace, **options)
        return not (await kit.call("read", {"path": path})).is_error

    support = {"id": "support", "tools": {"fs": {"workspaceOnly": False}}}
    assert not await reached({})
    assert await reached({"tools": {"fs": {"workspaceOnly": False}}})
    assert await reached({"tools": {"fs": {"readRoots": ["../other"]}}})
    assert await reached({"tools": {"fs": {"writeRoots": [str(tmp_path / "other")]}}})
    assert await reached({"agents": {"list": [support]}}, agent="support")
    assert not await reached({"agents": {"list": [support]}})


async def test_another_spelling_of_a_path_does_not_bypass_a_rule(workspace: Path) -> None:
    (workspace / "secrets").mkdir()
    (workspace / "secrets" / "key").write_text("the key")
    (workspace / "~root").symlink_to("secrets")
    rules = [{"tool": "group:fs", "effect": "deny", "params": {"path": "secrets*"}}]
    kit = Toolkit.open({"tools": {"rules": rules}}, workspace=workspace)
    for path in (
        "secrets/key",
        f"file://{workspace}/secrets/key",
        f"file://localhost{workspace}/s%65crets/key",
        f"FILE:{workspace}/secrets/key",
        "file:secrets/key",
        "file:./secrets/key",
        "~root/key",
        "./~root/key",
        "file:~root/key",
        "a/../secrets/key",
    ):
        result = await kit.call("read", {"path": path})
        assert "the key" not in result.as_text(), path
        assert result.details["status"] == "blocked", path
    assert (await kit.call("ls", {"path": "file:secrets"})).details["status"] == "blocked"


async def test_omitting_the_path_does_not_bypass_a_rule_about_it(workspace: Path) -> None:
    rules = [{"tool": "ls", "effect": "deny", "params": {"path": str(workspace)}}]
    kit = Toolkit.open({"tools": {"rules": rules}}, workspace=workspace)
    for params in ({}, {"path": "."}, {"path": str(workspace)}, {"path": None}):
        assert (await kit.call("ls", params)).details["status"] == "blocked"


async def test_secrets_of_the_environment_are_masked_in_results(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery-staple")
    (workspace / "notes").write_text("it is correct-horse-battery-staple\nORDER-123456789\n")
    config = {"logging": {"redactPatterns": [r"ORDER-\d+"]}}
    kit = Toolkit.open(config, workspace=workspace)
    text = (await kit.call("read", {"path": "notes"})).as_text()
    assert "correct-horse-battery-staple" not in text
    assert "ORDER-123456789" not in text
    assert text.startswith("it is ")


@pytest.mark.parametrize(
    "config",
    [
        {"gateway": {"auth": {"token": "velvet-otter-monsoon-42"}}},
        loads('{gateway: {auth: {token: "velvet-otter-monsoon-42"}}}').config,
    ],
)
async def test_secrets_of_the_settings_are_masked_in_results(workspace: Path, config: Any) -> None:
    (workspace / "notes").write_text("it is velvet-otter-monsoon-42\n")
    kit = Toolkit.open(config, workspace=workspace)
    text = (await kit.call("read", {"path": "notes"})).as_text()
    assert text.startswith("it is ")
    assert "velvet-otter-monsoon-42" not in text


async def test_only_cancellation_is_raised(workspace: Path) -> None:
    started = asyncio.Event()

    async def hang(_params: Any, _ctx: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    kit = Toolkit.open({}, workspace=workspace, tools=[Tool("hang", "Hang.", {}, hang)])
    task = asyncio.create_task(kit.call("hang"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_public_names_are_loaded_on_first_use() -> None:
    for name in clawkit.__all__:
        assert getattr(clawkit, name) is not None
    assert dir(clawkit) == sorted(clawkit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = clawkit.nothing
    code = "import sys, clawkit; print('clawkit.runtime' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_agent_that_is_not_among_those_configured_is_refused(tmp_path: Path) -> None:
    config = {"agents": {"list": [{"id": "reviewer", "tools": {"deny": ["write"]}}]}}
    for name in ("reviwer", "other"):
        with pytest.raises(ConfigError, match=r"there is no agent .*reviewer"):
            Toolkit.open(config, workspace=tmp_path, agent=name)
    assert "write" not in Toolkit.open(config, workspace=tmp_path, agent="Reviewer").run.tools
    assert "write" in Toolkit.open(config, workspace=tmp_path, agent="main").run.tools
    # Without configured agents, a program names them as it likes.
    assert "write" in Toolkit.open({}, workspace=tmp_path, agent="other").run.tools


async def test_changed_settings_of_web_and_memory_apply_to_the_next_call(workspace: Path) -> None:
    def allowing(*hosts: str, more: str = "") -> Config:
        fetch = {"ssrfPolicy": {"allowedHostnames": list(hosts)}, "cacheTtlMinutes": 0}
        search = {"extraPaths": [more] if more else []}
        config = {"tools": {"web": {"fetch": fetch}}, "memory": {"search": search}}
        return loads(json.dumps(config)).config

    notes = workspace / "elsewhere"
    notes.mkdir()
    (notes / "tea.md").write_text("Oolong steeps for four minutes.\n")
    page = respond("Here.", "text/plain")
    async with (
        answering(*[page] * 3) as server,
        Toolkit.open(allowing(), workspace=workspace, owner=True) as kit,
    ):
        seen = []
        for settings in (None, allowing("127.0.0.1", more=str(notes)), allowing()):
            if settings is not None:
                kit.alter(config=settings)
            fetched = await kit.call("web_fetch", {"url": server.url("/")})
            found = await kit.call("memory_search", {"query": "oolong"})
            seen.append((fetched.is_error, len(found.details["results"])))
        assert seen == [(True, 0), (False, 1), (True, 0)]


async def test_changing_the_model_keeps_the_services(workspace: Path) -> None:
    config = {"tools": {"web": {"search": {"provider": "brave"}}}}
    async with Toolkit.open(config, workspace=workspace, owner=True) as kit:
        before = await kit.call("web_search", {"query": "tea"})
        kit.alter(model=ModelRef("openai", "gpt-5"))
        after = await kit.call("web_search", {"query": "tea"})
    assert before.details["error"] == after.details["error"] == "missing_brave_api_key"


@pytest.mark.parametrize("cwd", ["/etc", "..", "link", "sub/../.."])
def test_a_cwd_outside_the_workspace_is_refused(workspace: Path, cwd: str) -> None:
    (workspace / "sub").mkdir()
    (workspace / "link").symlink_to("/etc")
    said = rf"^cwd: '{cwd}' is outside the workspace .*tools\.fs\.writeRoots"
    with pytest.raises(ToolInputError, match=said):
        Toolkit.open({}, workspace=workspace, cwd=cwd)
    with pytest.raises(ToolInputError, match=said):
        Agent.open({}, workspace=workspace, cwd=cwd, model=ScriptedModel())


async def test_a_cwd_may_be_where_settings_let_tools_work(workspace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("beta")
    for fs in ({"workspaceOnly": False}, {"writeRoots": [str(other)]}):
        config = {"tools": {"fs": fs}}
        async with Toolkit.open(config, workspace=workspace, cwd=str(other)) as kit:
            assert "b.txt" in (await kit.call("ls")).as_text()


async def test_a_cwd_is_where_files_and_commands_start(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "b.txt").write_text("beta")
    for cwd in ("sub", workspace / "sub", "./sub/"):
        async with Toolkit.open({}, workspace=workspace, cwd=cwd, owner=True) as kit:
            assert kit.run.scope.cwd == "sub"
            assert (await kit.call("read", {"path": "b.txt"})).as_text() == "beta"


async def test_what_is_shown_of_a_kit_and_an_agent_says_which_they_are(workspace: Path) -> None:
    config = {"models": {"providers": {"some": {"apiKey": "sk-secret-secret"}}}}
    kit = Toolkit.open(config, workspace=workspace, model="some/m", session="tea")
    assert repr(kit) == (
        f"<Toolkit agent='main' session='tea' model='some/m' workspace='{workspace}'>"
    )
    agent = Agent.open({}, workspace=workspace, model=ScriptedModel(), keep=False)
    assert repr(agent).startswith("<Agent agent='main' session='main' model='")

"""Services of plugins: who fills a role, and what happens if no one does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.kit import add, home, open_kit, settings

from clawkit import Agent
from clawkit.approvals.protocols import Confines
from clawkit.bundled import BUNDLED, BY_DEFAULT
from clawkit.cli.main import run
from clawkit.config.sections.plugins import Plugins
from clawkit.content import Text, ToolResult
from clawkit.errors import ConfigError, ToolInputError
from clawkit.lsp.protocols import Diagnostics, Edited
from clawkit.plugins.discover import discover
from clawkit.plugins.roles import ROLES
from clawkit.plugins.trust import read_problems
from clawkit.runtime import Toolkit
from clawkit.testing import ScriptedModel, call

CHECKER = '''"""Finds a problem in every file."""
from clawkit.plugins import Plugin, PluginContext

plugin = Plugin("{id}", services=["diagnostics"])


class Checker:
    async def check(self, edits):
        from clawkit.lsp.protocols import Problem, Problems
        found = [Problem(each.place, 1, 1, "error", "by {id}", "", "{id}") for each in edits]
        return Problems(tuple(found), ("{id}",))


@plugin.service("diagnostics")
def make(ctx: PluginContext):
    {body}
'''


def checker(id_: str, body: str = "return Checker()") -> str:
    return add(CHECKER.format(id=id_, body=body))


async def servers(kit: Toolkit) -> tuple[str, ...]:
    service: Any = kit.run.services[Diagnostics]
    async with kit:
        return tuple((await service.check([Edited("/x.txt", None, "x")])).servers)


def test_the_tables_of_bundled_plugins_say_what_these_declare() -> None:
    found = discover(Plugins(), str(home()), BUNDLED)
    assert [each.id for each in found] == list(BUNDLED)
    assert not [each.problem for each in found if each.problem]
    manifests = [each.manifest for each in found if each.manifest]
    default = {role: m.id for m in manifests if m.enabled_by_default for role in m.services}
    assert default == BY_DEFAULT
    assert set(default) <= set(ROLES)
    assert set(ROLES) == {*default, "models", "sandbox", "search", "embeddings"}


async def test_a_role_that_no_plugin_fills_has_no_provider(tmp_path: Path) -> None:
    for config in ({}, settings()):
        async with Toolkit.open(config, workspace=tmp_path) as kit:
            services: Any = kit.run.services
            for role in ROLES.keys() - BY_DEFAULT.keys():
                assert services.provide_role(role) is None


async def test_an_enabled_plugin_fills_a_role_and_a_slot_chooses_among_several(
    workspace: Path,
) -> None:
    checker("one")
    checker("two")
    cases: list[tuple[list[str], dict[str, str], str]] = [
        ([], {}, "LanguageServers"),
        (["one"], {}, "SafeDiagnostics"),
        (["one"], {"diagnostics": "lsp"}, "LanguageServers"),
        (["one"], {"diagnostics": "none"}, "NoDiagnostics"),
        (["one"], {"diagnostics": "two"}, "NoDiagnostics"),
    ]
    for ids, slots, expected in cases:
        kit = open_kit(workspace, *ids, slots=slots)
        assert type(kit.run.services[Diagnostics]).__name__ == expected, (ids, slots)
        await kit.close()
    assert await servers(open_kit(workspace, "one", "two")) == ("one",)
    chosen = open_kit(workspace, "one", "two", slots={"diagnostics": "two"})
    assert await servers(chosen) == ("two",)


async def test_a_provider_that_fails_or_lacks_a_method_is_not_used(workspace: Path) -> None:
    for id_, body, problem in (
        ("fails", "raise ValueError('no')", "its diagnostics service failed: ValueError: no"),
        ("lacks", "return object()", "has no check; it must be a Diagnostics"),
    ):
        checker(id_, body)
        assert await servers(open_kit(workspace, id_)) == ()
        assert problem in read_problems(str(home()))[id_]


async def test_a_provider_that_fails_later_changes_nothing(workspace: Path) -> None:
    checker("later", "checker = Checker()\n    checker.check = None\n    return checker")
    kit = open_kit(workspace, "later")
    async with kit:
        result = await kit.call("write", {"path": "x.txt", "content": "x"})
        assert not result.is_error
    assert "its check of a changed file failed" in read_problems(str(home()))["later"]
    add(
        ORACLE.replace('"oracle"', '"liar"').replace("return ScriptedModel", "return Liar")
        + """

class Liar(ScriptedModel):
    async def stream(self, request):
        raise ValueError("no idea")
        yield
"""
    )
    async with Agent.open(
        settings("liar"), workspace=workspace, model="liar/delphi", keep=False
    ) as agent:
        ended = await agent.send("What is it?")
        assert ended.how == "error"
        assert "no idea" in ended.error


async def test_telemetry_that_fails_changes_nothing(workspace: Path) -> None:
    for number, body in enumerate(("raise ValueError('no')", "return fail")):
        id_ = f"recorder{number}"
        add(f'''"""Fails."""
from clawkit.plugins import Plugin, PluginContext

plugin = Plugin("{id_}", services=["telemetry"])


def fail(event):
    raise ValueError("no")


class Recorder:
    warnings = ()

    def beside(self, tell):
        {body}

    async def close(self) -> None:
        raise SystemExit


@plugin.service("telemetry")
def make(ctx: PluginContext) -> Recorder:
    return Recorder()
''')
        async with Agent.open(
            settings(id_), workspace=workspace, model=ScriptedModel("fine"), keep=False
        ) as agent:
            assert await agent.run("How are you?") == "fine"
        assert "telemetry failed" in read_problems(str(home()))[id_]


async def test_language_servers_and_pdf_reading_can_be_disabled(workspace: Path) -> None:
    (workspace / "x.pdf").write_bytes(b"%PDF-1.4\n")
    off = {id_: {"enabled": False} for id_ in ("lsp", "pdf")}
    kit = open_kit(workspace, entries=off)
    assert await servers(kit) == ()
    said = (await kit.call("read", {"path": "x.pdf"})).as_text()
    assert "no plugin reads PDFs: see plugins.entries.pdf" in said


async def test_telemetry_can_be_disabled_and_replaced(workspace: Path) -> None:
    add('''"""Counts events."""
from clawkit.plugins import Plugin, PluginContext

plugin = Plugin("counter", services=["telemetry"])


class Counter:
    warnings = ("counting",)

    def beside(self, tell):
        return tell

    async def close(self) -> None:
        pass


@plugin.service("telemetry")
def make(ctx: PluginContext) -> Counter:
    return Counter()
''')
    otel = {"diagnostics": {"otel": {"enabled": True, "protocol": "grpc"}}}
    cases = [
        ({}, ["gRPC is not supported"]),
        ({"plugins": {"entries": {"telemetry": {"enabled": False}}}}, []),
        ({"plugins": {"entries": {"counter": {"enabled": True}}}}, ["counting"]),
    ]
    for plugins, expected in cases:
        config = {**otel, **plugins}
        async with Agent.open(
            config, workspace=workspace, model=ScriptedModel("x"), keep=False
        ) as agent:
            said = [each for each in agent.warnings if "no effect" not in each]
            assert len(said) == len(expected)
            assert all(part in whole for part, whole in zip(expected, said, strict=True))


ORACLE = '''"""A model that knows everything."""
from clawkit.config.modelref import ModelRef
from clawkit.plugins import Plugin, PluginContext
from clawkit.testing import ScriptedModel

plugin = Plugin("oracle", services=["models"])


class Oracle:
    def model(self, name: str) -> ScriptedModel:
        if name != "delphi":
            raise ValueError(f"no oracle is at {name}")
        return ScriptedModel("42", ref=f"oracle/{name}")


@plugin.service("models")
def make(ctx: PluginContext) -> Oracle:
    return Oracle()
'''


async def test_a_plugin_provides_models(workspace: Path) -> None:
    add(ORACLE)
    given = settings("oracle")
    for config, model in (
        (given, "oracle/delphi"),
        ({**given, "agents": {"defaults": {"model": "oracle/delphi"}}}, None),
    ):
        async with Agent.open(config, workspace=workspace, model=model, keep=False) as agent:
            assert await agent.run("What is it?") == "42"
    taken = settings("oracle", slots={"models": "none"})
    with pytest.raises(ToolInputError, match="unknown provider 'oracle'"):
        Agent.open(taken, workspace=workspace, model="oracle/delphi", keep=False)
    with pytest.raises(ConfigError, match=r"plugin oracle: .*no oracle is at rome"):
        Agent.open(given, workspace=workspace, model="oracle/rome", keep=False)


async def test_a_plugin_cannot_take_the_name_of_a_provider(workspace: Path) -> None:
    from clawkit.bundled import select_models
    from clawkit.models.client import HttpModel
    from clawkit.runtime import load_config

    add(ORACLE.replace('"oracle"', '"openai"'))
    loaded = load_config({**settings("openai"), "env": {"vars": {"OPENAI_API_KEY": "sk-1"}}})
    selection = select_models(loaded, "main")
    assert isinstance(selection.plain_model(selection.find("openai/gpt-5")), HttpModel)
    await selection.close()


PLACE = '''"""Runs commands in a place of its own."""
from clawkit.plugins import Plugin, PluginContext
from clawkit.sandbox.local import LocalSandbox
from clawkit.sandbox.paths import SandboxPaths

plugin = Plugin("place", services=["sandbox"])


@plugin.service("sandbox")
def make(ctx: PluginContext) -> LocalSandbox:
    made = LocalSandbox("landlock", ctx.use(SandboxPaths), "a plugin says so")
    made.is_mine = True
    return made
'''


async def test_a_plugin_provides_the_sandbox_and_nothing_runs_without_it(workspace: Path) -> None:
    add(PLACE)
    mode = {"agents": {"defaults": {"sandbox": {"mode": "all"}}}}
    async with open_kit(workspace, "place", config=mode) as kit:
        confines: Any = kit.run.services[Confines]
        assert confines.sandbox.is_mine
        result = await kit.call("exec", {"command": "pwd"})
        assert result.as_text().strip() == kit.workspace
    for slot in ("place", "gone"):
        with pytest.raises(ConfigError, match="no plugin provides the sandbox"):
            open_kit(workspace, slots={"sandbox": slot}, config=mode)


MEANINGS = '''"""Knows that an automobile is a car."""
from clawkit.plugins import Plugin, PluginContext

plugin = Plugin("meanings", services=["embeddings"])
CAR = ("car", "automobile")


class Meanings:
    provider, model = "meanings", "one"

    async def embed(self, texts, purpose):
        return [[float(any(word in text for word in CAR)), 0.1] for text in texts]


@plugin.service("embeddings")
def make(ctx: PluginContext) -> Meanings:
    return Meanings()
'''


def test_the_vectors_of_a_plugin_decide_what_a_model_finds(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "memory").mkdir()
    (workspace / "MEMORY.md").write_text("The lease of the flat ends in May.\n")
    (workspace / "memory" / "road.md").write_text("The car needs new tyres.\n")
    add(MEANINGS)
    file = home() / "clawkit.json5"
    asked = {"query": "automobile", "maxResults": 1}

    async def find(config: dict[str, Any]) -> Any:
        model = ScriptedModel(call("memory_search", asked), "Found.")
        where: dict[str, Any] = {
            "workspace": workspace,
            "model": model,
            "keep": False,
            "owner": True,
        }
        async with Agent.open(config, **where) as agent:
            assert await agent.run("What about the automobile?") == "Found."
        (said,) = [each for each in model.requests[-1].messages if isinstance(each, ToolResult)]
        (block,) = said.content
        assert isinstance(block, Text)
        return json.loads(block.text)

    for enabled, expected in ((True, ["memory/road.md"]), (False, [])):
        config = settings(entries={"meanings": {"enabled": enabled}})
        file.write_text(json.dumps(config))
        file.chmod(0o600)
        with pytest.raises(SystemExit) as end:
            run(["memory", "index", "--workspace", str(workspace)])
        assert end.value.code == 0
        assert ("keywords and meanings one, 2 embedded" in capsys.readouterr().out) is enabled
        found = asyncio.run(find(config))
        assert [each["path"] for each in found["results"]] == expected
        assert found["mode"] == ("hybrid" if enabled else "keyword")

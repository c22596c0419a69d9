"""Services of plugins: who fills a role, and what happens if no one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.plugins.kit import add, home, open_kit

from clawkit.bundled import BUNDLED, BY_DEFAULT
from clawkit.config.sections.plugins import Plugins
from clawkit.lsp.protocols import Diagnostics, Edited
from clawkit.plugins.discover import discover
from clawkit.plugins.roles import ROLES
from clawkit.plugins.trust import read_problems
from clawkit.runtime import Toolkit

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


async def test_an_enabled_plugin_fills_a_role_and_a_slot_chooses_among_several(
    workspace: Path,
) -> None:
    checker("one")
    checker("two")
    cases: list[tuple[list[str], dict[str, str], str]] = [
        ([], {}, "LanguageServers"),
        (["one"], {}, "Checker"),
        (["one"], {"diagnostics": "lsp"}, "LanguageServers"),
        (["one"], {"diagnostics": "none"}, "_NoDiagnostics"),
        (["one"], {"diagnostics": "two"}, "_NoDiagnostics"),
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


async def test_language_servers_and_pdf_reading_can_be_disabled(workspace: Path) -> None:
    (workspace / "x.pdf").write_bytes(b"%PDF-1.4\n")
    off = {id_: {"enabled": False} for id_ in ("lsp", "pdf")}
    kit = open_kit(workspace, entries=off)
    assert await servers(kit) == ()
    said = (await kit.call("read", {"path": "x.pdf"})).as_text()
    assert "no plugin reads PDFs: see plugins.entries.pdf" in said


async def test_telemetry_can_be_disabled_and_replaced(workspace: Path) -> None:
    from clawkit import Agent
    from clawkit.testing import ScriptedModel

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

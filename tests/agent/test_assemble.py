"""The tool set of one run."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.tables import table

from clawkit.agent.assemble import REMEMBERED, _assemble, assemble
from clawkit.config.load import loads
from clawkit.config.model import Config
from clawkit.core.approval import Ask, Deny
from clawkit.core.catalog import CATALOG, CONTROLS
from clawkit.core.context import Context, InForce, Scope, Sender
from clawkit.core.tool import Registered, Tool
from clawkit.errors import ConfigError, RegistryError

OWNER = Scope(sender=Sender(owner=True))
BUILT = ["read", "write", "edit", "apply_patch", "grep", "find", "ls", "exec", "process"]
BUILT += ["code_execution", "web_search", "web_fetch", "memory_search", "memory_get"]
BUILT += ["sessions_list", "sessions_history", "sessions_search"]
BUILT += ["session_status", "cron", "agents_list"]


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


def config_of(**tools: Any) -> Config:
    return loads(json.dumps({"tools": tools})).config


def given(name: str, source: str = "caller", **options: Any) -> Registered:
    return Registered(Tool(name, "A tool.", {}, nothing, **options), source)


ACTIONS = {
    "properties": {"action": {"enum": ["list", "kill", "kill_all"]}},
    "additionalProperties": False,
}


def jobs(parameters: dict[str, Any] = ACTIONS) -> Registered:
    return Registered(Tool("jobs", "Jobs.", parameters, nothing), "caller")


def test_without_settings_every_built_tool_is_offered_in_catalog_order() -> None:
    assembly = assemble(Config(), OWNER)
    assert list(assembly.tools) == BUILT
    assert set(assembly.sources) == set(CATALOG)
    assert set(assembly.sources.values()) == {"core"}
    # These have to be asked for, or are for sessions elsewhere; policy does not take them away.
    assert (
        set(assembly.refused)
        == assembly.off
        == {
            "update_plan",
            "heartbeat_respond",
            "gateway",
            "x_search",
            "sessions_send",
            "sessions_spawn",
            "sessions_yield",
            "subagents",
            *CONTROLS,
        }
    )
    assert assembly.in_force == InForce(tuple(BUILT), 0, 11)
    assert assembly.warnings == ()
    assert assembly.rules == ()


def test_tools_from_outside_come_after_the_built_in_ones_with_their_source() -> None:
    assembly = assemble(Config(), OWNER, [given("weather"), given("Rain", "plugin:sky")])
    assert list(assembly.tools) == [*BUILT, "weather", "rain"]
    assert assembly.tools["rain"].name == "Rain"
    assert assembly.sources["rain"] == "plugin:sky"
    assert assembly.sources["exec"] == "core"


@table("name", ["exec", "EXEC", "bash", "Bash", "read", "apply-patch"])
def test_a_built_in_tool_cannot_be_shadowed(name: str) -> None:
    with pytest.raises(RegistryError, match="give it another name"):
        assemble(Config(), OWNER, [given(name)])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(RegistryError, match="already provided by caller"):
        assemble(Config(), OWNER, [given("weather"), given("WEATHER")])


def test_policy_removes_tools_with_a_reason() -> None:
    assembly = assemble(config_of(deny=["read", "process"]), OWNER)
    assert list(assembly.tools) == [name for name in BUILT if name not in ("read", "process")]
    assert "tools.deny denies it with 'read'" in assembly.refused["read"]
    assert "process" in assembly.refused


def test_denying_exec_takes_code_execution_away_as_well() -> None:
    assembly = assemble(config_of(deny=["exec"]), OWNER)
    assert not {"exec", "code_execution"} & set(assembly.tools)
    assert "runs programs like exec, and tools.deny" in assembly.refused["code_execution"]
    rules = [{"tool": "exec", "effect": "deny"}]
    assert "code_execution" not in assemble(config_of(rules=rules), OWNER).tools
    only = assemble(config_of(allow=["code_execution", "read"]), OWNER)
    assert list(only.tools) == ["read", "code_execution"]


def test_owner_only_tools_are_for_owners() -> None:
    extra = [given("safe"), given("danger", owner_only=True)]
    assert "danger" in assemble(Config(), OWNER, extra).tools
    stranger = assemble(Config(), Scope(), extra)
    assert "danger" not in stranger.tools
    assert "safe" in stranger.tools
    assert "owner" in stranger.refused["danger"]


def test_optional_tools_are_offered_if_requested() -> None:
    extra = [replace(given("rain", "plugin:sky"), optional=True)]
    assert "rain" not in assemble(Config(), OWNER, extra).tools
    assert "rain" in assemble(config_of(alsoAllow=["sky"]), OWNER, extra).tools


def test_a_deny_rule_without_conditions_takes_the_tool_out_of_the_list() -> None:
    rules = [{"tool": "read", "effect": "deny"}, {"tool": "read", "effect": "deny"}]
    assembly = assemble(config_of(rules=rules), OWNER)
    assert "read" not in assembly.tools
    assert "tools.rules[0]" in assembly.refused["read"]
    assert "ls" in assembly.tools


@table(
    "rule",
    [
        {"tool": "read", "effect": "ask"},
        {"tool": "read", "effect": "allow"},
        {"tool": "read", "effect": "deny", "params": {"path": "secrets/*"}},
        {"tool": "read", "effect": "deny", "action": "x"},
    ],
)
def test_other_rules_leave_the_tool_in_the_list(rule: dict[str, Any]) -> None:
    assert "read" in assemble(config_of(rules=[rule]), OWNER).tools


def test_rules_judge_single_calls(workspace: Path) -> None:
    rules = [
        {"tool": "read", "effect": "deny", "params": {"path": "secrets/*"}},
        {"tool": "group:fs", "effect": "ask", "params": {"path": "src*"}},
    ]
    assembly = assemble(config_of(rules=rules), OWNER)
    ctx = Context("1", OWNER, str(workspace))
    read = assembly.tools["read"]
    assert isinstance(assembly.judge(read, {"path": "secrets/key"}, ctx), Deny)
    assert isinstance(assembly.judge(read, {"path": "src/main.py"}, ctx), Ask)
    assert assembly.judge(read, {"path": "a.txt"}, ctx) is None


def test_a_rule_that_cannot_be_read_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"tools\.rules\[0\]"):
        assemble(
            config_of(rules=[{"tool": "read", "effect": "deny", "params": {"path": "/(/"}}]), OWNER
        )


def test_text_that_is_not_utf8_is_a_configuration_error() -> None:
    config = loads('{tools: {deny: ["${ODD}"]}}', env={"ODD": "a\udcff"}).config
    with pytest.raises(ConfigError, match="not UTF-8"):
        assemble(config, OWNER)


@table(
    ("rule", "remark"),
    [
        ({"tool": "read", "params": {"pth": "x"}}, "params.pth: 'read' has no such parameter"),
        ({"tool": "read", "action": "kill"}, "action: 'read' has no such action"),
        ({"tool": "jobs", "action": "start"}, "action: 'jobs' has no such action"),
        (
            {"tool": "*", "params": {"pth": "x"}},
            "params.pth: 'read' and 'write' and 'edit' and 18 more has no such parameter",
        ),
        ({"tool": "read", "params": {"path": "x", "offset": "1"}}, None),
        ({"tool": "read", "params": {"file_path": "x"}}, None),
        ({"tool": "read", "params": {"path.name": "x"}}, None),
        ({"tool": "jobs", "action": "kill*"}, None),
        ({"tool": "weather", "action": "kill", "params": {"anything": "x"}}, None),
        ({"tool": "browser", "params": {"comand": "x"}}, None),
    ],
)
def test_a_rule_about_what_no_tool_has_is_remarked_on(
    rule: dict[str, Any], remark: str | None
) -> None:
    config = config_of(rules=[{"effect": "deny", **rule}])
    extra = [jobs(), given("weather")] if rule["tool"] != "*" else [jobs()]
    found = [each for each in assemble(config, OWNER, extra).warnings if "no such" in each]
    assert found == ([] if remark is None else [f"tools.rules[0].{remark}"])


def test_actions_that_a_rule_denies_are_not_offered() -> None:
    rules = [{"tool": "jobs", "action": "kill*", "effect": "deny", "reason": "no killing"}]
    tool = assemble(config_of(rules=rules), OWNER, [jobs()]).tools["jobs"]
    assert tool.schema["properties"]["action"]["enum"] == ["list"]


@table(
    "rule",
    [
        {"tool": "jobs", "action": "kill*", "effect": "ask"},
        {"tool": "jobs", "action": "start", "effect": "deny"},
        {"tool": "jobs", "action": "kill", "effect": "deny", "params": {"id": "7"}},
        {"tool": "read", "action": "kill", "effect": "deny"},
    ],
)
def test_actions_that_may_be_allowed_are_offered(rule: dict[str, Any]) -> None:
    tool = assemble(config_of(rules=[rule]), OWNER, [jobs()]).tools["jobs"]
    assert tool.schema["properties"]["action"]["enum"] == ["list", "kill", "kill_all"]


@table(
    "parameters",
    [{}, {"properties": {"action": True}}, {"properties": {"action": {"enum": [1, None, "kill"]}}}],
)
def test_odd_schemas_do_not_stop_the_assembly(parameters: dict[str, Any]) -> None:
    rules = [{"tool": "*", "action": "k*", "effect": "deny"}]
    assert "jobs" in assemble(config_of(rules=rules), OWNER, [jobs(parameters)]).tools


NEEDY = {
    "properties": {
        "action": {"enum": ["run", "kill"]},
        "later": {"type": "boolean"},
        "old": {"type": "boolean"},
    },
    "required": ["later"],
    "additionalProperties": False,
}


NAMES = ("later", "old")


def needy(**options: Any) -> Registered:
    options = {"hidden": frozenset({"old"}), "needs": {"later": "Jobs"}, **options}
    return Registered(Tool("needy", "Needy.", NEEDY, nothing, **options), "caller")


@table(
    ("config", "extra", "offered"),
    [
        (Config(), [jobs()], ["action", "later"]),
        (Config(), [], ["action"]),
        (config_of(deny=["jobs"]), [jobs()], ["action"]),
        (config_of(rules=[{"tool": "jobs", "effect": "deny"}]), [jobs()], ["action"]),
        (config_of(allow=["needy"]), [jobs()], ["action"]),
    ],
)
def test_a_parameter_is_offered_only_beside_the_tool_it_needs(
    config: Config, extra: list[Registered], offered: list[str]
) -> None:
    given_tool = needy()
    tool = assemble(config, OWNER, [given_tool, *extra]).tools["needy"]
    assert list(tool.offered["properties"]) == offered
    assert tool.offered["required"] == (["later"] if "later" in offered else [])
    assert tool.schema == given_tool.tool.schema
    assert given_tool.tool.hidden == {"old"}


@table(("other", "there"), [("no_such", False), ("READ", True), ("glob", True)])
def test_a_tool_that_is_needed_may_be_called_by_any_of_its_names(other: str, there: bool) -> None:
    tool = assemble(Config(), OWNER, [needy(needs={"later": other})]).tools["needy"]
    assert ("later" in tool.offered["properties"]) is there


def test_actions_and_parameters_can_be_left_out_together() -> None:
    rules = [{"tool": "needy", "action": "kill", "effect": "deny"}]
    tool = assemble(config_of(rules=rules), OWNER, [needy()]).tools["needy"]
    assert tool.offered["properties"] == {"action": {"enum": ["run"]}}
    assert "later" in tool.schema["properties"]


def test_a_rule_about_a_hidden_parameter_holds() -> None:
    rules = [{"tool": "needy", "params": {name: "true"}, "effect": "deny"} for name in NAMES]
    assembly = assemble(config_of(rules=rules), OWNER, [needy()])
    assert not [each for each in assembly.warnings if "no such" in each]
    ctx = Context("1", OWNER, "/")
    for name in NAMES:
        assert isinstance(assembly.judge(assembly.tools["needy"], {name: True}, ctx), Deny)


def test_equal_settings_in_other_objects_give_the_same_assembly() -> None:
    text = '{tools: {deny: ["read"], byProvider: {openai: {deny: ["ls"]}}}}'
    first, second = loads(text).config, loads(f"// read again\n{text}").config
    assert first is not second
    assert assemble(first, OWNER) is assemble(second, Scope(sender=Sender(owner=True)))


@table(
    ("config", "scope"),
    [
        (config_of(deny=["ls"]), OWNER),
        (config_of(deny=["read"]), Scope()),
        (config_of(deny=["read"]), Scope(depth=1, sender=Sender(owner=True))),
        (config_of(deny=["read"]), Scope(sandboxed=True, sender=Sender(owner=True))),
    ],
)
def test_other_settings_or_another_scope_give_another_assembly(
    config: Config, scope: Scope
) -> None:
    assert assemble(config_of(deny=["read"]), OWNER) is not assemble(config, scope)


def test_tools_from_outside_are_part_of_what_is_remembered() -> None:
    one, other = given("weather"), given("weather")
    assert assemble(Config(), OWNER, [one]) is assemble(Config(), OWNER, [one])
    assert assemble(Config(), OWNER, [one]).tools["weather"] is one.tool
    assert assemble(Config(), OWNER, [other]).tools["weather"] is other.tool
    optional = replace(one, optional=True)
    assert "weather" not in assemble(Config(), OWNER, [optional]).tools
    elsewhere = replace(one, source="plugin:sky")
    assert assemble(Config(), OWNER, [elsewhere]).sources["weather"] == "plugin:sky"


def test_a_new_tool_is_not_mistaken_for_a_deleted_one() -> None:
    config = config_of(deny=["tool*"])
    for number in range(200):
        name = f"tool{number}"
        assert name in assemble(config, OWNER, [given(name)]).sources


def test_a_failed_assembly_is_not_remembered() -> None:
    extra = [given("exec")]
    for _ in range(2):
        with pytest.raises(RegistryError):
            assemble(Config(), OWNER, extra)


def test_only_the_latest_assemblies_are_remembered() -> None:
    first = assemble(Config(), Scope(group="first"))
    for number in range(REMEMBERED):
        assemble(Config(), Scope(group=str(number)))
    assert _assemble.cache_info().currsize == REMEMBERED
    assert assemble(Config(), Scope(group="first")) is not first


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
def test_many_threads_can_assemble_many_scopes_at_once() -> None:
    failures: list[Exception] = []

    def work(start: int) -> None:
        try:
            for number in range(1_000):
                group = str((number * 7 + start) % (REMEMBERED + 16))
                assemble(Config(), Scope(group=group))
        except Exception as error:  # noqa: BLE001  # a thread's root: reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert _assemble.cache_info().currsize == REMEMBERED


def test_neither_the_session_nor_the_window_makes_another_assembly() -> None:
    first = assemble(Config(), Scope(session="one"))
    assert assemble(Config(), Scope(session="two", context_window=8000)) is first


def test_threads_may_assemble_at_the_same_time() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(150):
                account = str((number * seed) % (REMEMBERED + 5))
                scope = Scope(account=account, sender=Sender(owner=True))
                assert list(assemble(Config(), scope).tools) == BUILT
        except BaseException as error:  # noqa: BLE001  # a thread's root
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

"""The policy: nine steps, owner-only, and a trace for every decision."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.core.catalog import CATALOG, CONTROLS, GROUPS, PROFILES
from clawkit.core.context import Scope, Sender
from clawkit.errors import ConfigError
from clawkit.policy.pipeline import (
    ListRule,
    PolicyDecision,
    PolicyStep,
    Subject,
    ToolVerdict,
    Trace,
    _apply_step,
    apply_policy,
)
from clawkit.policy.tool_names import Matcher, Universe

OWNER = Sender(owner=True, id="1")
PLUGIN = (
    Subject("slack_send", "plugin:slack"),
    Subject("slack_read", "plugin:slack"),
    Subject("lobster", "plugin:lobster", optional=True),
    Subject("llm-task", "plugin:llm-task", optional=True),
    Subject("srv__list", "mcp:srv"),
    Subject("srv__delete", "mcp:srv"),
    Subject("mine", "caller"),
)


def decide(config: dict[str, Any], *extra: Subject, **scope: Any) -> PolicyDecision:
    if isinstance(scope.get("model"), str):
        scope["model"] = parse_ref(scope["model"])
    scope.setdefault("sender", OWNER)
    subjects = [*(Subject(name) for name in EVERYTHING), *extra]
    return apply_policy(loads(json.dumps(config)).config, Scope(**scope), subjects)


def kept(config: dict[str, Any], *extra: Subject, **scope: Any) -> set[str]:
    decision = decide(config, *extra, **scope)
    return {name for name, verdict in decision.verdicts.items() if verdict.allowed}


# Those that allow lists do not apply to have a test of their own.
EVERYTHING = dict.fromkeys(name for name in CATALOG if name not in CONTROLS).keys()


def tools(**keys: Any) -> dict[str, Any]:
    return {"tools": keys}


def agent(name: str = "a", **keys: Any) -> dict[str, Any]:
    return {"agents": {"list": [{"id": name, "tools": keys}]}}


def test_without_settings_every_tool_is_kept_and_no_step_decides() -> None:
    decision = decide({})
    assert all(verdict == ToolVerdict(True, ()) for verdict in decision.verdicts.values())
    assert decision.warnings == ()


@table("profile", ["minimal", "coding", "messaging"])
def test_a_profile_keeps_what_the_catalog_says(profile: str) -> None:
    assert kept(tools(profile=profile)) == set(PROFILES[profile])


def test_the_profiles_hold_what_users_were_promised() -> None:
    assert kept(tools(profile="minimal")) == {"session_status"}
    assert kept(tools(profile="messaging")) == {
        "message",
        "sessions_list",
        "sessions_history",
        "sessions_search",
        "sessions_send",
        "session_status",
    }
    coding = kept(tools(profile="coding"))
    groups = ("fs", "runtime", "web", "sessions", "memory")
    expected = {tool for name in groups for tool in GROUPS[f"group:{name}"]}
    assert coding == expected | {"cron", "image", "image_generate", "video_generate"}
    assert kept(tools(profile="full")) == EVERYTHING


@table(
    ("config", "holds"),
    [
        ({}, False),
        ({"tools": {"updatePlan": True}}, True),
        ({"tools": {"experimental": {"planTool": True}}}, True),
        ({"tools": {"updatePlan": False}}, False),
        ({"agents": {"defaults": {"embeddedPi": {"executionContract": "strict-agentic"}}}}, True),
        ({"tools": {"updatePlan": True, "deny": ["update_plan"]}}, False),
    ],
)
def test_update_plan_belongs_only_to_the_coding_profile(config: Any, holds: bool) -> None:
    tools_ = {**config.get("tools", {}), "profile": "coding"}
    assert ("update_plan" in kept({**config, "tools": tools_})) is holds
    other = {**config, "tools": {**tools_, "profile": "messaging"}}
    assert "update_plan" not in kept(other)


MATCHING = [
    # list, what it keeps or removes
    (["exec"], {"exec"}),
    (["EXEC "], {"exec"}),
    (["bash"], {"exec"}),
    (["glob"], {"find"}),
    (["apply-patch"], {"apply_patch"}),
    (["automations"], {"cron"}),
    (["view_image"], {"image"}),
    (["progress_card"], {"update_plan"}),
    (["group:runtime"], {"exec", "process", "code_execution"}),
    (["GROUP:UI"], {"browser", "canvas"}),
    (["web_*"], {"web_search", "web_fetch"}),
    (["*_get"], {"memory_get"}),
    (["s*s_l*t"], {"sessions_list"}),
    (["*"], EVERYTHING),
    (["group:openclaw"], EVERYTHING),
]


def _an_allow_list_keeps_exactly_what_its_entries_mean(entries: list[str], names: set[str]) -> None:
    assert kept(tools(allow=entries)) == names


def test_an_allow_list_keeps_exactly_what_its_entries_mean(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = MATCHING
    for entries, names in cases:
        with subtests.test(entries=entries, names=names):
            _an_allow_list_keeps_exactly_what_its_entries_mean(entries, names)


def _a_deny_list_removes_exactly_what_its_entries_mean(entries: list[str], names: set[str]) -> None:
    assert kept(tools(deny=entries)) == EVERYTHING - names


def test_a_deny_list_removes_exactly_what_its_entries_mean(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = MATCHING
    for entries, names in cases:
        with subtests.test(entries=entries, names=names):
            _a_deny_list_removes_exactly_what_its_entries_mean(entries, names)


def test_allowing_write_allows_apply_patch_but_denying_it_does_not_deny_it() -> None:
    assert kept(tools(allow=["Write"])) == {"write", "apply_patch"}
    assert kept(tools(allow=["wri*"])) == {"write", "apply_patch"}
    assert kept(tools(allow=["write"], deny=["apply_patch"])) == {"write"}
    assert "apply_patch" in kept(tools(deny=["WRITE"]))
    assert kept(tools(allow=["apply_patch"])) == {"apply_patch"}


def test_deny_wins_over_allow() -> None:
    assert kept(tools(allow=["read"], deny=["*"])) == set()
    assert kept(tools(allow=["*"], deny=["GROUP:FS"])) == EVERYTHING - set(GROUPS["group:fs"])


@pytest.mark.parametrize("allow", [[], ["", "  "]])
def test_an_empty_allow_list_restricts_nothing(allow: list[str]) -> None:
    assert kept(tools(allow=allow)) == EVERYTHING


def test_an_empty_list_for_one_run_leaves_nothing() -> None:
    assert kept({}, allow=()) == set()
    assert kept({}, allow=("read",)) == {"read"}
    assert kept(tools(deny=["read"]), allow=("read",)) == set()


@table(
    "allow",
    [["my_plugin_tool"], ["slack_send"], ["slack"], ["lost", "slack_*"], ["srv__*"]],
)
def test_an_allow_list_of_plugin_tools_alone_is_ignored_with_a_warning(allow: list[str]) -> None:
    decision = decide(tools(allow=allow), *PLUGIN)
    assert decision.verdicts["exec"].allowed
    assert any("tools.allow is ignored" in warning for warning in decision.warnings)


@table("allow", [["e.ec"], ["group:nope"], ["ex ec"], ["read?"]])
def test_an_allow_list_without_known_tools_allows_nothing(allow: list[str]) -> None:
    decision = decide(tools(allow=allow))
    assert not any(verdict.allowed for verdict in decision.verdicts.values())
    assert any("matches no tool" in warning for warning in decision.warnings)


def test_a_plugin_entry_beside_a_built_in_one_counts() -> None:
    assert kept(tools(allow=["read", "slack"]), *PLUGIN) == {"read", "slack_send", "slack_read"}
    assert kept(tools(allow=["mine"]), *PLUGIN) == {"mine"}


def test_plugin_and_server_names_mean_their_tools() -> None:
    everything = kept({}, *PLUGIN)
    assert everything - kept(tools(deny=["Slack"]), *PLUGIN) == {"slack_send", "slack_read"}
    assert everything - kept(tools(deny=["bundle-mcp"]), *PLUGIN) == {"srv__list", "srv__delete"}
    assert everything - kept(tools(deny=["srv__delete"]), *PLUGIN) == {"srv__delete"}
    assert everything - kept(tools(deny=["group:plugins"]), *PLUGIN) == {
        "slack_send",
        "slack_read",
        "srv__list",
        "srv__delete",
    }


@table(
    ("config", "optional"),
    [
        ({}, set()),
        (tools(profile="full"), {"lobster", "llm-task"}),
        (tools(alsoAllow=["lobster"]), {"lobster"}),
        (tools(profile="coding", alsoAllow=["lobster"]), {"lobster"}),
        (tools(allow=["read", "lobster"]), {"lobster"}),
        (tools(allow=["*"]), {"lobster", "llm-task"}),
        (tools(allow=["l*"]), set()),
        (agent(alsoAllow=["group:plugins"]), {"lobster", "llm-task"}),
        (tools(alsoAllow=["lobster"], deny=["lobster"]), set()),
    ],
)
def test_optional_tools_appear_only_if_requested(
    config: dict[str, Any], optional: set[str]
) -> None:
    assert kept(config, *PLUGIN, agent="a") & {"lobster", "llm-task"} == optional


def test_also_allow_adds_to_a_profile_and_the_agents_list_replaces_the_global_one() -> None:
    both = tools(profile="messaging", alsoAllow=["read"]) | agent(alsoAllow=["exec"])
    assert kept(both) - set(PROFILES["messaging"]) == {"read"}
    assert kept(both, agent="a") - set(PROFILES["messaging"]) == {"exec"}


def test_also_allow_alone_restricts_nothing() -> None:
    assert kept(tools(alsoAllow=["read"])) == EVERYTHING


def test_the_agents_profile_replaces_the_global_one_while_lists_add_up() -> None:
    config = tools(profile="minimal", deny=["exec"]) | agent(profile="coding", deny=["read"])
    assert kept(config, agent="A") == set(PROFILES["coding"]) - {"exec", "read"}
    assert kept(config) == {"session_status"}


def test_agents_may_be_configured_under_entries() -> None:
    config = {"agents": {"entries": {"b": {"tools": {"allow": ["read"]}}}}}
    assert kept(config, agent="b") == {"read"}


PROVIDERS = {"openai": {"deny": ["read"]}, "openai/gpt-5.4": {"deny": ["exec"]}}


def test_provider_settings_apply_to_the_model_then_to_the_provider(
    subtests: pytest.Subtests,
) -> None:
    cases: list[Any] = [
        (PROVIDERS, "openai/gpt-5.4", {"exec"}),
        (PROVIDERS, "OpenAI/GPT-5.4", {"exec"}),
        (PROVIDERS, "openai/other", {"read"}),
        (PROVIDERS, "anthropic/x", set()),
        (PROVIDERS, None, set()),
        ({"z.ai": {"deny": ["read"]}}, "zai/glm", {"read"}),
        ({"z-ai/glm": {"deny": ["read"]}}, "z.ai/glm", {"read"}),
        ({"z.ai": {"deny": ["read"]}, "zai": {"deny": ["exec"]}}, "zai/glm", {"exec"}),
        ({"o/a/b": {"deny": ["read"]}}, "o/a/b", {"read"}),
        (PROVIDERS, "gpt-5.4", {"exec"}),
        (PROVIDERS, "other", set()),
        ({"openai": {"profile": "minimal"}}, "openai/x", EVERYTHING - {"session_status"}),
    ]
    for by_provider, model, removed in cases:
        with subtests.test(by_provider=by_provider, model=model, removed=removed):
            assert EVERYTHING - kept(tools(byProvider=by_provider), model=model) == removed
            assert (
                EVERYTHING - kept(agent(byProvider=by_provider), model=model, agent="a") == removed
            )


def test_a_provider_can_only_narrow() -> None:
    config = tools(deny=["exec"], byProvider={"openai": {"allow": ["exec"]}})
    assert kept(config, model="openai/x") == set()


def test_the_agents_provider_profile_comes_before_the_global_one() -> None:
    config = tools(byProvider={"p": {"profile": "minimal", "alsoAllow": ["read"]}})
    assert kept(config, model="p/m") == {"session_status", "read"}
    config |= agent(byProvider={"p": {"profile": "messaging"}})
    assert kept(config, model="p/m", agent="a") == {*PROFILES["messaging"], "read"}


GROUPS_CONFIG = {
    "channels": {
        "telegram": {
            "groups": {
                "g1": {
                    "tools": {"allow": ["read"]},
                    "toolsBySender": {"id:9": {"allow": ["exec"]}},
                },
                "g3": {"toolsBySender": {"id:9": {"allow": ["exec"]}}},
                "*": {"tools": {"deny": ["exec"]}, "toolsBySender": {"@Bob": {"deny": ["read"]}}},
            },
            "accounts": {"work": {"groups": {"g1": {"tools": {"allow": ["ls"]}}}}},
        }
    }
}


def _the_most_specific_group_setting_applies(scope: dict[str, Any], names: set[str]) -> None:
    assert kept(GROUPS_CONFIG, **{"channel": "telegram", **scope}) == names


def test_the_most_specific_group_setting_applies(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ({"group": "g1"}, {"read"}),
        ({"group": "g1", "sender": Sender(owner=True, id="9")}, {"exec"}),
        ({"group": "g2"}, EVERYTHING - {"exec"}),
        ({"group": "g2", "sender": Sender(owner=True, id="@bob")}, EVERYTHING - {"read"}),
        ({"group": "g3"}, EVERYTHING - {"exec"}),
        ({"group": "g3", "sender": Sender(owner=True, id="9")}, {"exec"}),
        ({"group": "g1", "account": "work"}, {"ls"}),
        ({"group": "g1", "account": "home"}, {"read"}),
        ({"group": ""}, EVERYTHING),
        ({"group": "g1", "channel": "discord"}, EVERYTHING),
        ({"group": "G1", "channel": "Telegram"}, {"read"}),
        ({"group": "g1:topic:5"}, {"read"}),
        ({"group": "g1:Topic:5"}, {"read"}),
        ({"group": " g1 ", "channel": " telegram "}, {"read"}),
        ({"group": "g1:sender:7:thread:2"}, {"read"}),
        ({"group": "g1", "account": "Work"}, {"ls"}),
    ]
    for scope, names in cases:
        with subtests.test(scope=scope, names=names):
            _the_most_specific_group_setting_applies(scope, names)


def _sender_keys(key: str, sender: Sender, matches: bool) -> None:
    config = tools(toolsBySender={key: {"deny": ["read"]}})
    names = kept(config, sender=sender, channel="telegram")
    assert ("read" not in names) == matches


def test_sender_keys(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("channel:telegram:7", Sender(id="7"), True),
        ("channel:discord:7", Sender(id="7"), False),
        ("id:7", Sender(id="7"), True),
        ("7", Sender(id="7"), True),
        ("id:7", Sender(id="77"), False),
        ("e164:+155", Sender(e164="+155"), True),
        ("e164:+1 (555) 555-0123", Sender(e164="+15555550123"), True),
        ("e164:15555550123", Sender(e164="+15555550123"), True),
        ("channel:telegram:7", Sender(id=" 7 "), True),
        ("username:@Ann", Sender(username="ann"), True),
        ("username:ann", Sender(username="@Ann"), True),
        ("name:Ann B", Sender(name="ann b"), True),
        ("id:ann", Sender(username="ann"), False),
        ("id: 7", Sender(id="7"), True),
        (" ID:7 ", Sender(id="7"), True),
        ("*", Sender(), True),
    ]
    for key, sender, matches in cases:
        with subtests.test(key=key, sender=sender, matches=matches):
            _sender_keys(key, sender, matches)


def test_the_most_specific_sender_key_wins_and_agent_replaces_global() -> None:
    config = tools(toolsBySender={"*": {"deny": ["read"]}, "id:1": {"deny": ["ls"]}})
    assert {"read"} <= kept(config)
    assert "ls" not in kept(config)
    config |= agent(toolsBySender={"id:1": {}})
    assert {"read", "ls"} <= kept(config, agent="a")


def test_a_senders_allow_list_is_never_ignored() -> None:
    assert kept(tools(toolsBySender={"*": {"allow": ["lost_plugin"]}})) == set()


SANDBOX_DEFAULT = {
    *("exec", "process", "code_execution", "read", "write", "edit", "apply_patch"),
    *("grep", "find", "ls", "image"),
    *("sessions_list", "sessions_history", "sessions_search", "sessions_send", "sessions_spawn"),
    "sessions_yield",
    *("subagents", "session_status"),
}


@table(
    ("lists", "names"),
    [
        ({}, SANDBOX_DEFAULT),
        ({"allow": []}, EVERYTHING - {"browser", "canvas", "nodes", "cron", "gateway"}),
        ({"allow": ["browser"]}, {"browser"}),
        ({"allow": ["browser"], "deny": ["browser"]}, set()),
        ({"alsoAllow": ["browser"]}, SANDBOX_DEFAULT | {"browser"}),
        ({"deny": ["exec"]}, SANDBOX_DEFAULT - {"exec"}),
        ({"allow": [], "deny": []}, EVERYTHING),
    ],
)
def test_sandbox_lists(lists: dict[str, Any], names: set[str]) -> None:
    config = tools(sandbox={"tools": lists})
    assert kept(config, sandboxed=True) == names
    assert kept(config) == EVERYTHING
    assert kept(agent(sandbox={"tools": lists}), sandboxed=True, agent="a") == names


def test_sandbox_fields_fall_back_one_by_one() -> None:
    config = tools(sandbox={"tools": {"allow": ["read", "exec"]}})
    config |= agent(sandbox={"tools": {"deny": ["exec"]}})
    assert kept(config, sandboxed=True, agent="a") == {"read"}


LEAF = {"read", "grep", "find", "ls"}
ORCHESTRATOR = {
    *LEAF,
    *("sessions_list", "sessions_history", "sessions_search", "sessions_spawn", "sessions_yield"),
}


@table(
    ("depth", "max_depth", "lists", "names"),
    [
        (0, 1, {}, EVERYTHING),
        (1, 1, {}, LEAF),
        (2, 1, {}, LEAF),
        (1, 2, {}, ORCHESTRATOR),
        (2, 2, {}, LEAF),
        (1, 1, {"allow": ["exec"]}, LEAF | {"exec"}),
        (1, 1, {"alsoAllow": ["write"]}, LEAF | {"write", "apply_patch"}),
        (1, 1, {"deny": ["grep"]}, LEAF - {"grep"}),
        (1, 1, {"alsoAllow": ["message", "gateway", "cron", "sessions_spawn"]}, LEAF),
        (1, 1, {"allow": ["subagents"]}, LEAF),
        (1, 2, {"allow": ["subagents"]}, ORCHESTRATOR | {"subagents"}),
    ],
)
def test_sub_agents_have_what_their_depth_gives(
    depth: int, max_depth: int, lists: dict[str, Any], names: set[str]
) -> None:
    config = tools(subagents={"tools": lists})
    config["agents"] = {"defaults": {"subagents": {"maxSpawnDepth": max_depth}}}
    assert kept(config, depth=depth) == names


def test_sub_agent_lists_never_widen_an_earlier_step() -> None:
    config = tools(subagents={"tools": {"allow": ["exec"]}}) | agent(deny=["exec"])
    assert "exec" not in kept(config, depth=1, agent="a")


def test_owner_only_tools_need_the_owner_whatever_the_lists_say() -> None:
    gone = EVERYTHING - kept(tools(allow=["*"]), sender=Sender())
    assert gone == {"whatsapp_login", "cron", "gateway", "nodes"}
    decision = decide({}, Subject("secret", "plugin:p", owner_only=True), sender=Sender())
    cause = decision.verdicts["secret"].removed_by
    assert cause is not None
    assert (cause.number, cause.step) == (0, "owner-only")


@table(
    ("config", "scope", "tool", "expected"),
    [
        (tools(profile="minimal"), {}, "exec", (1, "not-allowed", "tools.profile", "minimal")),
        (
            tools(byProvider={"p": {"profile": "minimal"}}),
            {"model": "p/m"},
            "exec",
            (2, "not-allowed", "tools.byProvider.p.profile", "minimal"),
        ),
        (tools(allow=["read"]), {}, "exec", (3, "not-allowed", "tools.allow", None)),
        (tools(deny=["Group:Runtime"]), {}, "exec", (3, "deny", "tools.deny", "Group:Runtime")),
        (
            tools(byProvider={"p/m": {"deny": ["ex*"]}}),
            {"model": "p/m"},
            "exec",
            (4, "deny", "tools.byProvider.p/m.deny", "ex*"),
        ),
        (
            agent(deny=["exec"]),
            {"agent": "a"},
            "exec",
            (5, "deny", "agents.a.tools.deny", "exec"),
        ),
        (
            agent(byProvider={"p": {"allow": ["read"]}}),
            {"agent": "a", "model": "p/m"},
            "exec",
            (6, "not-allowed", "agents.a.tools.byProvider.p.allow", None),
        ),
        (
            GROUPS_CONFIG,
            {"channel": "telegram", "group": "g1"},
            "exec",
            (7, "not-allowed", "channels.telegram.groups.g1.tools.allow", None),
        ),
        (
            {},
            {"sandboxed": True},
            "browser",
            (8, "deny", "tools.sandbox.tools.deny", "(default)"),
        ),
        (
            {},
            {"depth": 1},
            "exec",
            (9, "not-allowed", "tools.subagents.tools.allow", "(default for leaf sub-agents)"),
        ),
        ({}, {"allow": ()}, "exec", (10, "not-allowed", "run.allow", None)),
    ],
)
def test_every_removal_names_step_key_and_entry(
    config: dict[str, Any], scope: dict[str, Any], tool: str, expected: tuple[Any, ...]
) -> None:
    cause = decide(config, **scope).verdicts[tool].removed_by
    assert cause is not None
    assert (cause.number, cause.effect, cause.key, cause.entry) == expected
    assert decide(config, **scope).refusal(tool).startswith(f"the tool {tool!r} is not allowed")


def test_a_kept_tool_names_what_kept_it() -> None:
    decision = decide(tools(profile="coding", allow=["group:fs"]))
    traces = decision.verdicts["read"].traces
    assert [(t.number, t.effect, t.key, t.entry) for t in traces] == [
        (1, "allow", "tools.profile", "coding"),
        (3, "allow", "tools.allow", "group:fs"),
    ]
    assert str(traces[1]) == "tools.allow has 'group:fs'"


def test_entries_that_match_nothing_are_reported_with_the_nearest_name() -> None:
    warnings = decide(tools(deny=["exce", "group:fss", "web_*"])).warnings
    assert warnings == (
        "tools.deny: 'exce' matches no tool; did you mean 'exec'?",
        "tools.deny: 'group:fss' matches no tool; did you mean 'group:fs'?",
    )


@table(
    ("config", "words"),
    [
        (tools(byProvider={"openai/*": {"deny": ["read"]}}), "openai/* matches no model"),
        (agent(byProvider={"openai/": {"deny": ["read"]}}), "openai/ matches no model"),
        (tools(toolsBySender={"@ada": {"deny": ["read"]}}), "@ada is read as a plain id"),
        (agent(toolsBySender={"user:42": {}}), "user:42 is read as a plain id"),
        (tools(toolsBySender={"channel:telegram": {}}), "channel:telegram is read as a plain id"),
    ],
)
def test_keys_that_match_no_sender_cause_a_warning(config: dict[str, Any], words: str) -> None:
    assert any(words in warning for warning in decide(config, agent="a").warnings)


def test_a_group_without_its_channel_is_a_warning() -> None:
    assert "has no effect without its channel" in decide({}, group="g1").warnings[0]


def test_a_program_may_give_a_provider_by_another_name() -> None:
    config = tools(byProvider={"google": {"deny": ["read"]}})
    assert "read" not in kept(config, model=ModelRef("Gemini", "x"))


def test_an_agents_empty_list_replaces_the_global_one() -> None:
    config = tools(byProvider={"p": {"profile": "minimal", "alsoAllow": ["read"]}})
    config |= agent(byProvider={"p": {"alsoAllow": []}})
    assert kept(config, model="p/m", agent="a") == {"session_status"}


def test_a_name_shared_by_a_plugin_and_a_tool_means_both() -> None:
    shared = (Subject("lobster", "plugin:lobster"), Subject("lobster_admin", "plugin:lobster"))
    assert kept(tools(deny=["lobster"]), *shared) == EVERYTHING
    odd = (Subject("sneaky", "plugin:read"),)
    assert kept(tools(deny=["read"]), *odd) == EVERYTHING - {"read"}


def test_an_unknown_agent_is_a_warning() -> None:
    assert decide({}, agent="ghost").warnings[0].startswith("no agent called 'ghost'")


def test_an_unset_variable_in_a_list_is_an_error_where_it_is_used() -> None:
    with pytest.raises(ConfigError, match=r"tools\.deny\[0\].*not set"):
        decide(tools(deny=["${SURELY_NOT_SET_ANYWHERE}"]))


class BrokenMatcher(Matcher):
    """A list that cannot be looked through."""

    def find_all(self, names: Iterable[str]) -> dict[str, str]:
        raise RuntimeError("boom")


def test_a_failing_step_removes_the_tools_it_should_have_judged() -> None:
    rule = ListRule("tools.deny", BrokenMatcher([], "tools.deny", Universe.of({})))
    said: dict[str, list[Trace]] = {"read": [], "exec": []}
    assert _apply_step(PolicyStep(3, "tools.allow", None, (rule,)), ["read", "exec"], said) == []
    why = "tools.allow failed: boom"
    assert said["read"] == [Trace(3, "tools.allow", "deny", "tools.allow", "error: boom", why)]


NAMES = st.sampled_from([*CATALOG, *GROUPS, "*", "web_*", "lost", "Bash", "slack", "e.ec", ""])
LISTS = st.lists(NAMES, max_size=4)
LAYER = st.fixed_dictionaries({}, optional={"allow": LISTS, "deny": LISTS})


@given(one=LAYER, two=LAYER, three=LAYER, depth=st.integers(0, 2), sandboxed=st.booleans())
def test_no_step_restores_what_another_removed(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any], depth: int, sandboxed: bool
) -> None:
    scope: dict[str, Any] = {"agent": "a", "model": "p/m"}
    given_tools = [subject for subject in PLUGIN if not subject.optional]
    config = {**tools(**one, byProvider={"p": two}), **agent(**three)}
    all_of_it = kept(config, *given_tools, depth=depth, sandboxed=sandboxed, **scope)
    for part in (tools(**one), tools(byProvider={"p": two}), agent(**three)):
        assert all_of_it <= kept(part, *given_tools, **scope)
    assert all_of_it <= kept({}, *given_tools, depth=depth, sandboxed=sandboxed)


def test_a_group_without_lists_changes_nothing() -> None:
    group: dict[str, Any] = {"toolsBySender": {"id:9": {}}}
    config = {"channels": {"telegram": {"groups": {"g": group}}}}
    assert kept(config, channel="telegram", group="g") == EVERYTHING


def test_allow_lists_do_not_apply_to_the_tools_for_deferred_tools_and_deny_lists_do() -> None:
    controls = [Subject(name) for name in CONTROLS]
    narrow = {"tools": {"profile": "minimal", "allow": ["read"]}}
    assert kept(narrow, *controls, sandboxed=True, depth=1) >= set(CONTROLS)
    assert kept({}, *controls, allow=()) == set(CONTROLS)
    # A later step denies what an earlier one does not list.
    denied = narrow | {"agents": {"list": [{"id": "main", "tools": {"deny": ["tool_c*"]}}]}}
    decision = decide(denied, *controls)
    assert not decision.verdicts["tool_call"].allowed
    assert decision.refusal("tool_call").endswith("agents.main.tools.deny denies it with 'tool_c*'")

"""What sections say about their values together: contradictions, and an agent's changes."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.model import Config
from clawkit.config.section import Override, SecretRef, Section
from clawkit.config.sections.agents import Agents, AgentSettings
from clawkit.config.sections.environment import Env, SecretProvider
from clawkit.config.sections.gateway import Cron, GatewayAuth, GatewaySettings, WebhookSettings
from clawkit.config.sections.messaging import Forwarding, MessageTool
from clawkit.config.sections.plugins import McpServer, MemorySearch
from clawkit.config.sections.sandbox import Docker
from clawkit.config.sections.shared import RequestAuth, RequestProxy, SsrfPolicy
from clawkit.config.sections.tools import (
    Exec,
    LoopDetection,
    ProviderPolicy,
    ToolPolicy,
    Tools,
)
from clawkit.config.sections.web import Browser, MediaModel


def config(raw: dict[str, Any]) -> Config:
    return msgspec.convert(raw, Config)


def own_exec(raw: dict[str, Any]) -> Override[Exec] | None:
    return msgspec.convert({"tools": {"exec": raw}}, AgentSettings).tools.exec


CONFLICTS: list[tuple[type[Section], dict[str, Any], list[Any]]] = [
    (ToolPolicy, {"allow": ["a"], "alsoAllow": ["b"]}, ["alsoAllow"]),
    (ToolPolicy, {"allow": [], "alsoAllow": ["b"]}, []),
    (ToolPolicy, {"allow": ["a"], "alsoAllow": []}, []),
    (ProviderPolicy, {"allow": ["a"], "alsoAllow": ["b"]}, ["alsoAllow"]),
    (Tools, {"allow": ["a"], "alsoAllow": ["b"]}, ["alsoAllow"]),
    (Tools, {"experimental": {"planTool": True}, "updatePlan": False}, ["updatePlan"]),
    (Tools, {"experimental": {"planTool": True}, "updatePlan": True}, []),
    (LoopDetection, {"warningThreshold": 5}, []),
    (LoopDetection, {"warningThreshold": 20}, ["warningThreshold"]),
    (LoopDetection, {"criticalThreshold": 10}, ["warningThreshold"]),
    (LoopDetection, {"criticalThreshold": 30}, ["criticalThreshold"]),
    (LoopDetection, {"globalCircuitBreakerThreshold": 15}, ["criticalThreshold"]),
    (Exec, {"mode": "ask"}, []),
    (Exec, {"security": "full", "ask": "off"}, []),
    (Exec, {"mode": "ask", "security": "full", "ask": "off"}, ["security", "ask"]),
    (MessageTool, {"allowCrossContextSend": True}, []),
    (
        MessageTool,
        {"allowCrossContextSend": True, "crossContext": {"allowWithinProvider": True}},
        ["allowCrossContextSend"],
    ),
    (MediaModel, {"type": "cli"}, ["command"]),
    (MediaModel, {"provider": "x", "command": "whisper"}, ["command"]),
    (RequestAuth, {"mode": "header", "headerName": "X-Key"}, ["value"]),
    (RequestProxy, {"mode": "explicit-proxy"}, ["url"]),
    (RequestProxy, {"mode": "env-proxy"}, []),
    (McpServer, {}, ["command"]),
    (McpServer, {"command": "x", "url": "http://x"}, ["url"]),
    (McpServer, {"url": "http://x"}, []),
    (Forwarding, {"enabled": True, "mode": "targets"}, ["targets"]),
    (Cron, {"sessionRetention": True}, ["sessionRetention"]),
    (Cron, {"sessionRetention": False}, []),
    (WebhookSettings, {"enabled": True}, ["token"]),
    (Browser, {"profiles": {"work-1": {}, "My Work": {}}}, ["profiles"]),
    (GatewaySettings, {"bind": "lan", "auth": {"mode": "none"}}, ["bind"]),
    (GatewaySettings, {"bind": "custom"}, ["customBindHost"]),
    (GatewayAuth, {"mode": "password"}, ["password"]),
    (GatewayAuth, {"mode": "trusted-proxy", "trustedProxy": {}}, ["trustedProxy"]),
    (Docker, {"network": "host"}, ["network"]),
    (Docker, {"network": "container:other"}, ["network"]),
    (Docker, {"network": "container:o", "dangerouslyAllowContainerNamespaceJoin": True}, []),
    (Docker, {"seccompProfile": "unconfined"}, ["seccompProfile"]),
    (SecretRef, {"source": "env", "id": "API_KEY"}, []),
    (SecretRef, {"source": "env", "id": "api-key"}, ["id"]),
    (SecretRef, {"source": "file", "id": "/keys/openai"}, []),
    (SecretRef, {"source": "file", "id": "keys/openai"}, ["id"]),
    (SecretRef, {"source": "exec", "id": "vault/openai"}, []),
    (SecretRef, {"source": "exec", "id": "vault/../root"}, ["id"]),
    (SecretRef, {"source": "env", "id": "A", "provider": "No Name"}, ["provider"]),
    (SecretProvider, {"source": "file"}, ["path"]),
    (SecretProvider, {"source": "env", "path": "/x"}, ["path"]),
    (SecretProvider, {"source": "exec", "command": "op"}, ["command"]),
    (SecretProvider, {"source": "exec", "command": "/usr/bin/op", "jsonOnly": False}, []),
    (Env, {"KEY": "x", "vars": {}}, []),
    (Env, {"PORT": 80}, ["PORT"]),
    (Agents, {"list": [{"id": "a"}, {"id": "b"}], "entries": {"c": {}}}, []),
    (Agents, {"list": [{"id": "Main"}, {"id": "main "}]}, ["list"]),
    (Agents, {"list": [{"id": "a"}], "entries": {"A": {}}}, ["entries"]),
    (Agents, {"list": [{"name": "no id"}]}, ["list"]),
    (Agents, {"entries": {"a": {"id": "A"}}}, []),
    (Agents, {"entries": {"a": {"id": "b"}}}, ["entries"]),
    (SsrfPolicy, {"allowedHostnames": ["a.lan", "*", "*.b.de", "::1", "[fd00::1]", "10.0.*"]}, []),
    (
        SsrfPolicy,
        {
            "allowedHostnames": ["http://a/"],
            "hostnameAllowlist": ["a.de", "b.de:80", "10.0.0.0/8"],
            "blockedHostnames": ["", "a b"],
        },
        [
            ("allowedHostnames", 0),
            *(("hostnameAllowlist", number) for number in (1, 2)),
            *(("blockedHostnames", number) for number in (0, 1)),
        ],
    ),
    (Config, {"tools": {"web": {"search": {"provider": "gemini"}}}}, []),
    (
        Config,
        {
            "tools": {"web": {"search": {"provider": "google"}}},
            "plugins": {"entries": {"google": {}, "mine": {}}},
        },
        [("tools", "web", "search", "provider")],
    ),
    (
        Config,
        {
            "tools": {"web": {"search": {"provider": "mine"}}},
            "plugins": {"entries": {"google": {}, "mine": {}}},
        },
        [],
    ),
    (
        Config,
        {"hooks": {"token": "same"}, "gateway": {"auth": {"token": "same"}}},
        ["hooks"],
    ),
    (Config, {"hooks": {"token": "one"}, "gateway": {"auth": {"token": "two"}}}, []),
]


def test_contradictions_are_found(subtests: pytest.Subtests) -> None:
    for cls, raw, keys in CONFLICTS:
        with subtests.test(cls=cls, raw=raw, keys=keys):
            found = list(cls.conflicts(raw))
            assert [key for key, _, _ in found] == keys
            for _, message, hint in found:
                assert message
                assert hint
                assert not message.endswith(".")


@pytest.mark.parametrize(
    "secret", [{"hooks": {"token": "tell-no-one"}, "gateway": {"auth": {"token": "tell-no-one"}}}]
)
def test_a_contradiction_between_secrets_does_not_show_them(secret: dict[str, Any]) -> None:
    assert "tell-no-one" not in str(list(Config.conflicts(secret)))


def test_an_override_is_not_compared_with_defaults_it_does_not_have() -> None:
    cls = typing.cast("type[Section]", Override[LoopDetection])
    assert list(cls.conflicts({"warningThreshold": 25})) == []
    assert list(cls.conflicts({"warningThreshold": 25, "criticalThreshold": 25}))


@pytest.mark.parametrize("form", ["list", "entries"])
def test_thresholds_of_an_agent_are_compared_with_the_general_ones(form: str) -> None:
    def agents(own: dict[str, int]) -> dict[str, Any]:
        tools = {"tools": {"loopDetection": own}}
        return {"list": [{"id": "a", **tools}]} if form == "list" else {"entries": {"a": tools}}

    general = {"loopDetection": {"criticalThreshold": 40, "globalCircuitBreakerThreshold": 50}}
    fine = {"tools": general, "agents": agents({"warningThreshold": 25})}
    assert list(Config.conflicts(fine)) == []
    wrong = {"tools": general, "agents": agents({"warningThreshold": 45})}
    [(key, message, _)] = Config.conflicts(wrong)
    assert key == "agents"
    assert "'a'" in message


def test_an_agent_that_repeats_a_default_wins_over_the_general_setting() -> None:
    read = config(
        {
            "tools": {"fs": {"workspaceOnly": False}},
            "agents": {"list": [{"id": "a", "tools": {"fs": {"workspaceOnly": True}}}]},
        }
    )
    assert read.tools.fs.workspace_only is False
    assert read.tools.fs.merged(read.agents.get("a").tools.fs).workspace_only is True
    assert read.tools.fs.merged(read.agents.get("b").tools.fs).workspace_only is False


def test_an_override_merges_objects_and_maps_by_key_and_replaces_lists() -> None:
    general = msgspec.convert(
        {
            "safeBins": ["jq"],
            "applyPatch": {"workspaceOnly": False, "allowModels": ["a"]},
            "safeBinProfiles": {"rg": {}, "fd": {}},
        },
        Exec,
    )
    own = {
        "safeBins": ["wc"],
        "applyPatch": {"allowModels": ["b"]},
        "safeBinProfiles": {"fd": {"maxPositional": 1}},
    }
    merged = general.merged(own_exec(own))
    assert merged.safe_bins == ["wc"]
    assert merged.apply_patch.workspace_only is False
    assert merged.apply_patch.allow_models == ["b"]
    assert merged.safe_bin_profiles["rg"].max_positional is None
    assert merged.safe_bin_profiles["fd"].max_positional == 1


@table(
    ("general", "own", "expected"),
    [
        ({}, {}, ("allowlist", "on-miss")),
        ({"mode": "full"}, {}, ("full", "off")),
        ({"mode": "auto"}, {}, ("allowlist", "on-miss")),
        ({"security": "deny"}, {}, ("deny", "on-miss")),
        ({"security": "full", "ask": "off"}, {"mode": "deny"}, ("deny", "off")),
        ({"mode": "full"}, {"ask": "always"}, ("full", "always")),
        ({"mode": "full"}, {"security": "deny"}, ("deny", "off")),
        ({"security": "full"}, {"ask": "off"}, ("full", "off")),
    ],
)
def test_mode_of_an_agent_replaces_security_and_ask_and_the_other_way_round(
    general: dict[str, Any], own: dict[str, Any], expected: tuple[str, str]
) -> None:
    section = msgspec.convert(general, Exec)
    assert section.merged(own_exec(own)).policy() == expected


def test_notes_of_an_agent_are_added_to_the_general_ones() -> None:
    general = msgspec.convert({"extraPaths": ["a"], "query": {"maxResults": 3}}, MemorySearch)
    agent = msgspec.convert(
        {"memorySearch": {"extraPaths": ["b"], "enabled": False}}, AgentSettings
    )
    merged = general.merged(agent.memory_search)
    assert merged.extra_paths == ["a", "b"]
    assert merged.enabled is False
    assert merged.query.max_results == 3
    assert general.merged(None).extra_paths == ["a"]


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "historySize": st.integers(1, 99),
        "warningThreshold": st.integers(1, 99),
        "detectors": st.fixed_dictionaries(
            {}, optional={"pingPong": st.booleans(), "genericRepeat": st.booleans()}
        ),
    },
)


@given(LIMITS, LIMITS)
def test_merging_typed_sections_is_merging_what_was_written(
    general: dict[str, Any], own: dict[str, Any]
) -> None:
    written = {**general, **own}
    if "detectors" in written:
        written["detectors"] = {**general.get("detectors", {}), **own.get("detectors", {})}
    agent = msgspec.convert({"tools": {"loopDetection": own}}, AgentSettings)
    section = msgspec.convert(general, LoopDetection)
    assert section.merged(agent.tools.loop_detection) == msgspec.convert(written, LoopDetection)


def test_an_override_is_one_class_with_the_limits_aliases_and_texts_of_its_section() -> None:
    cls = typing.cast("type[Section]", Override[Exec])
    assert cls is typing.cast("type[Section]", Override[Exec])
    assert cls.ALIASES == Exec.ALIASES
    assert cls.descriptions() == Exec.descriptions()
    assert list(cls.conflicts({"mode": "ask", "ask": "off"}))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"timeoutSec": 9}, cls)


def test_agents_of_both_forms_are_found_by_lower_case_id() -> None:
    agents = msgspec.convert(
        {"list": [{"id": "Support", "name": "S"}], "entries": {"Work": {"default": True}}}, Agents
    )
    assert list(agents.by_id()) == ["support", "work"]
    assert agents.get("SUPPORT").name == "S"
    assert agents.get("work").id == "work"
    assert agents.get().id == "work"
    assert agents.get("nobody") == AgentSettings(id="nobody")


def test_the_marked_agent_is_the_default_else_main() -> None:
    assert msgspec.convert({"list": [{"id": "a"}, {"id": "b"}]}, Agents).get().id == "main"
    marked = {"list": [{"id": "a"}, {"id": "B", "default": True}]}
    assert msgspec.convert(marked, Agents).get().id == "b"
    assert Agents().get().id == "main"


@table(
    ("raw", "expected"),
    [
        ({}, "rw"),
        ({"mode": "all"}, "none"),
        ({"mode": "all", "workspaceAccess": "ro"}, "ro"),
        ({"workspaceAccess": "none"}, "none"),
    ],
)
def test_workspace_access_depends_on_the_sandbox_mode(raw: dict[str, Any], expected: str) -> None:
    assert config({"agents": {"defaults": {"sandbox": raw}}}).agents.defaults.sandbox.access() == (
        expected
    )


def test_both_spellings_of_one_setting_are_read() -> None:
    plan = [{"experimental": {"planTool": True}}, {"updatePlan": True}]
    assert [config({"tools": raw}).tools.plan_tool() for raw in plan] == [True, True]
    assert Tools().plan_tool() is None
    gateway = config(
        {
            "gateway": {
                "nodes": {"allowCommands": ["a"], "commands": {"allow": ["b"], "deny": ["c"]}}
            }
        }
    ).gateway
    assert gateway is not None
    assert (gateway.nodes.allow_commands, gateway.nodes.commands.allow) == (["a"], ["b"])
    assert gateway.nodes.commands.deny == ["c"]
    spoken = config({"messages": {"tts": {"auto": "always"}}, "tts": {"mode": "all"}})
    assert spoken.tts is not None
    assert spoken.messages is not None
    merged = spoken.tts.merged(spoken.messages.tts)
    assert (merged.auto, merged.mode) == ("always", "all")


def test_a_plugin_can_be_named_instead_of_a_command_for_secrets() -> None:
    integration = '{ pluginId: "vault", integrationId: "main" }'
    text = "{ secrets: { providers: { a: { source: 'exec', pluginIntegration: %s } } } }"
    provider = loads(text % integration, env={}).config.secrets.providers["a"]
    assert provider.plugin_integration is not None
    assert provider.plugin_integration.plugin_id == "vault"


def test_settings_of_plugins_about_models_are_accepted() -> None:
    entry = """{
        llm: { allowAgentIdOverride: true, allowedModels: ["a/b"], allowModelOverride: true },
        subagent: { allowModelOverride: true, allowedModels: ["*"] },
    }"""
    plugin = loads(f"{{ plugins: {{ entries: {{ a: {entry} }} }} }}", env={}).config.plugins
    assert plugin is not None
    found = plugin.entries["a"]
    assert (found.llm.allow_agent_id_override, found.llm.allowed_models) == (True, ["a/b"])
    assert (found.subagent.allow_model_override, found.subagent.allowed_models) == (True, ["*"])

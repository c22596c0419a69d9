"""Whole configuration files, as people have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawkit.config.load import Loaded, load, loads
from clawkit.errors import ConfigError

EXAMPLES = Path(__file__).parent / "examples"
ENV = {"HOME": "/nonexistent", "MINIMAX_API_KEY": "sk-minimax"}


def example(name: str) -> Loaded:
    return load(str(EXAMPLES / name), env=ENV)


def test_an_example_loads_without_errors_or_warnings(subtests: pytest.Subtests) -> None:
    for file in sorted(EXAMPLES.glob("*.json5")):
        with subtests.test(file=file):
            loaded = load(str(file), env=ENV)
            assert loaded.warnings == []
            assert loaded.raw


def test_the_examples_are_all_there() -> None:
    assert len(list(EXAMPLES.glob("*.json5"))) == 31


def test_policies_end_up_where_they_belong() -> None:
    config = example("agent-profile.json5").config
    assert config.tools.profile == "coding"
    support = config.agents.get("support")
    assert support.tools.profile == "messaging"
    assert support.tools.allow == ["slack"]
    by_provider = example("agent-provider-allow.json5").config.agents.get("support").tools
    assert by_provider.by_provider["google-antigravity"].allow == ["message", "sessions_list"]
    config = example("provider-and-model-policy.json5").config
    assert config.tools.by_provider["google-antigravity"].profile == "minimal"
    assert config.tools.by_provider["openai/gpt-5.4"].allow == ["group:fs", "sessions_list"]


def test_the_whole_tools_section_is_read() -> None:
    tools = example("whole-tools-section.json5").config.tools
    assert (tools.profile, tools.deny) == ("coding", ["gateway"])
    assert tools.allow == ["group:runtime", "group:fs", "browser"]
    assert tools.elevated.allow_from == {
        "whatsapp": ["+15551234567"],
        "discord": ["user:123456789"],
    }
    assert (tools.exec.host, tools.exec.security, tools.exec.ask) == (
        "sandbox",
        "allowlist",
        "on-miss",
    )
    assert tools.exec.safe_bins == ["jq", "grep", "python", "node"]
    assert (tools.exec.background_ms, tools.exec.timeout_sec) == (5000, 30)
    assert tools.sandbox.tools.allow == ["exec", "read", "write"]
    assert tools.sandbox.tools.deny == ["browser", "gateway"]


def test_limits_and_switches_are_read() -> None:
    loops = example("loop-detection.json5").config.tools.loop_detection
    assert loops.enabled
    assert (loops.warning_threshold, loops.critical_threshold) == (10, 20)
    assert (loops.global_circuit_breaker_threshold, loops.history_size) == (30, 30)
    files = example("sessions-spawn-attachments.json5").config.tools.sessions_spawn.attachments
    assert (files.max_total_bytes, files.max_files, files.max_file_bytes) == (5242880, 50, 1048576)
    assert example("plan-tool.json5").config.tools.plan_tool() is True
    subagents = example("subagents.json5").config.agents.defaults.subagents
    assert subagents.allow_agents == ["research"]
    assert (subagents.max_concurrent, subagents.run_timeout_seconds) == (8, 900)


def test_keys_of_providers_come_from_the_env_section_or_the_environment() -> None:
    moonshot = example("moonshot.json5").config.models.providers["moonshot"]
    assert moonshot.api_key == "sk-..."
    assert moonshot.models[0].context_window == 262144
    minimax = example("minimax.json5").config.models.providers["minimax"]
    assert minimax.api_key == "sk-minimax"
    assert minimax.models[0].cost is not None
    assert minimax.models[0].cost.cache_write == 0.375


def test_contradictions_and_unknown_words_are_errors(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ('{tools: {allow: ["read"], alsoAllow: ["exec"]}}', ["tools.alsoAllow"]),
        (
            '{tools: {byProvider: {openai: {allow: ["read"], alsoAllow: ["exec"]}}}}',
            ["tools.byProvider.openai.alsoAllow"],
        ),
        (
            '{agents: {list: [{id: "a", tools: {allow: ["read"], alsoAllow: ["exec"]}}]}}',
            ["agents.list[0].tools.alsoAllow"],
        ),
        (
            '{tools: {sandbox: {tools: {allow: ["read"], alsoAllow: ["exec"]}}}}',
            ["tools.sandbox.tools.alsoAllow"],
        ),
        (
            "{tools: {loopDetection: {warningThreshold: 20, criticalThreshold: 20}}}",
            ["tools.loopDetection.warningThreshold"],
        ),
        (
            "{tools: {loopDetection: {criticalThreshold: 40, globalCircuitBreakerThreshold: 40}}}",
            ["tools.loopDetection.criticalThreshold"],
        ),
        (
            "{tools: {loopDetection: {warningThreshold: 25}}}",
            ["tools.loopDetection.warningThreshold"],
        ),
        ('{tools: {exec: {mode: "ask", security: "full"}}}', ["tools.exec.security"]),
        ('{tools: {profile: "developer"}}', ["tools.profile"]),
        ('{agents: {list: [{id: "a", tools: {profile: "x"}}]}}', ["agents.list[0].tools.profile"]),
        ('{tools: {exec: {security: "everything"}}}', ["tools.exec.security"]),
        (
            "{session: {agentToAgent: {maxPingPongTurns: 6}}}",
            ["session.agentToAgent.maxPingPongTurns"],
        ),
        ('{agents: {list: [{id: "a"}, {id: "A"}]}}', ["agents.list"]),
    ]
    for text, paths in cases:
        with subtests.test(text=text, paths=paths):
            with pytest.raises(ConfigError) as caught:
                loads(text, env=ENV)
            assert [issue.path for issue in caught.value.issues] == paths


def test_an_older_openclaw_json_loads_with_one_warning_too() -> None:
    loaded = example("openclaw-older.json")
    assert len(loaded.warnings) == 1
    assert "cron.runLog" in loaded.warnings[0].message
    assert loaded.config.agents.get("main").tools.profile == "full"
    assert loaded.config.gateway is not None
    assert loaded.config.gateway.nodes.deny_commands == ["camera.snap"]


def test_an_existing_openclaw_json_loads_with_one_warning() -> None:
    loaded = example("openclaw.json")
    (warning,) = loaded.warnings
    assert warning.path == "meta"
    for setting in ("meta", "wizard", "acp", "talk", "tools.swarm", "gateway.tailscale", "ui"):
        assert setting in warning.message or "more" in warning.message
    config = loaded.config
    assert config.tools.exec.timeout_sec == 600
    assert config.agents.get().id == "main"
    assert config.agents.get("work").tools.also_allow == ["message"]
    assert config.gateway is not None
    assert config.gateway.port == 18789
    assert config.plugins is not None
    assert config.plugins.entries["voice-call"].config == {"fromNumber": "+15555550100"}

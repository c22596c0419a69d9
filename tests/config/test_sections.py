"""The typed sections: what they accept, what contradicts, how an agent changes them."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from clawkit.config.model import Config
from clawkit.config.section import Section
from clawkit.config.sections.gateway import CommandSettings, GatewaySettings
from clawkit.config.sections.sandbox import SandboxSettings


def inside(hint: Any) -> Iterator[type[Section]]:
    if isinstance(hint, type) and issubclass(hint, Section):
        yield hint
    for part in typing.get_args(hint):
        yield from inside(part)


def all_sections() -> list[type[Section]]:
    found: dict[type[Section], None] = {Config: None}
    queue: list[type[Section]] = [Config]
    for cls in queue:
        for field in msgspec.structs.fields(cls):
            new = [each for each in inside(field.type) if each not in found]
            found.update(dict.fromkeys(new))
            queue += new
    return list(found)


def config(raw: dict[str, Any]) -> Config:
    return msgspec.convert(raw, Config)


def test_every_section_and_field_is_described(subtests: pytest.Subtests) -> None:
    for cls in all_sections():
        with subtests.test(cls=cls):
            described = cls.descriptions()
            assert list(described) == list(cls.__struct_fields__)
            for text in [cls.__doc__ or ".", *described.values()]:
                assert text.endswith(".")
                assert "\n" not in text
            assert all(len(text) <= 120 for text in described.values())


def test_aliases_stand_for_other_keys_of_the_section(subtests: pytest.Subtests) -> None:
    for cls in all_sections():
        with subtests.test(cls=cls):
            keys = cls.__struct_encode_fields__
            assert set(cls.ALIASES.values()) <= set(keys)
            assert not set(cls.ALIASES) & set(keys)


def test_section_names_are_unique_because_the_schema_refers_to_them() -> None:
    names = [cls.__name__ for cls in all_sections()]
    assert len(names) == len(set(names))


def test_every_section_but_those_with_required_keys_can_be_empty() -> None:
    for cls in all_sections():
        if not any(field.required for field in msgspec.structs.fields(cls)):
            assert msgspec.convert({}, cls) == cls()


def test_defaults_survive_a_round_trip() -> None:
    assert msgspec.convert(msgspec.to_builtins(Config()), Config) == Config()


def test_json_schema_compiles_and_agrees_on_examples() -> None:
    validator = jsonschema_rs.Draft202012Validator(msgspec.json.schema(Config))
    assert validator.is_valid({})
    for raw in VALID.values():
        assert validator.is_valid(raw), raw
    for raw in INVALID.values():
        assert not validator.is_valid(raw), raw


VALID: dict[str, dict[str, Any]] = {
    "tool lists": {"tools": {"profile": "coding", "allow": ["group:fs"], "deny": ["browser"]}},
    "by provider": {"tools": {"byProvider": {"openai/gpt-5.4": {"profile": "minimal"}}}},
    "by sender": {"tools": {"toolsBySender": {"id:7": {"deny": ["exec"]}, "*": {"allow": []}}}},
    "argument rules": {
        "tools": {
            "rules": [
                {"tool": "write", "params": {"path": "*.env"}, "effect": "deny", "reason": "no"},
                {"tool": "message", "action": "send", "effect": "ask"},
            ]
        }
    },
    "exec": {
        "tools": {
            "exec": {
                "host": "sandbox",
                "security": "allowlist",
                "ask": "on-miss",
                "safeBins": ["jq"],
                "pathPrepend": ["/opt/bin"],
                "backgroundMs": 5000,
                "timeoutSec": 30,
                "applyPatch": {"enabled": False, "allowModels": ["gpt-5.5"]},
                "safeBinProfiles": {"rg": {"maxPositional": 1, "allowedFlags": ["-i"]}},
                "redirects": "workspace",
            }
        }
    },
    "elevated": {"tools": {"elevated": {"allowFrom": {"telegram": [12345, "@me"]}}}},
    "files": {
        "tools": {"fs": {"workspaceOnly": False, "readRoots": ["/srv"], "protected": "deny"}}
    },
    "spawn attachments": {"tools": {"sessions_spawn": {"attachments": {"enabled": True}}}},
    "media": {
        "tools": {
            "media": {
                "audio": {
                    "scope": {
                        "default": "deny",
                        "rules": [{"action": "allow", "match": {"chatType": "direct"}}],
                    },
                    "models": [
                        {"provider": "openai", "model": "gpt-4o-mini-transcribe"},
                        {"type": "cli", "command": "whisper", "args": ["{{MediaPath}}"]},
                    ],
                },
                "models": [{"provider": "google", "capabilities": ["image", "video"]}],
            }
        }
    },
    "both forms of agents": {
        "agents": {
            "list": [{"id": "support", "tools": {"profile": "messaging"}}],
            "entries": {"work": {"subagents": {"allowAgents": ["*"]}}},
        }
    },
    "model with fallbacks": {
        "agents": {"defaults": {"model": {"primary": "a/b", "fallbacks": ["c/d"]}}}
    },
    "model by name": {"agents": {"defaults": {"model": "a/b", "models": {"a/b": {"alias": "B"}}}}},
    "sandbox": {
        "agents": {
            "defaults": {
                "sandbox": {"mode": "non-main", "backend": "podman", "workspaceAccess": "ro"}
            }
        }
    },
    "custom provider": {
        "models": {
            "mode": "merge",
            "providers": {
                "proxy": {
                    "baseUrl": "http://localhost:4000/v1",
                    "apiKey": {"source": "env", "id": "KEY"},
                    "api": "openai-completions",
                    "injectNumCtxForOpenAICompat": False,
                    "models": [{"id": "m", "input": ["text"], "cost": {"input": 0.5}}],
                    "request": {"auth": {"mode": "authorization-bearer", "token": "t"}},
                }
            },
        }
    },
    "flat variables": {"env": {"KEY": "sk", "vars": {"OTHER": "x"}, "shellEnv": {"enabled": True}}},
    "plugin settings": {"plugins": {"entries": {"bedrock": {"config": {"a": {"b": [1, None]}}}}}},
    "MCP server": {"mcp": {"servers": {"github": {"command": "npx", "env": {"TOKEN": "x"}}}}},
    "channel": {
        "channels": {
            "telegram": {
                "botToken": "anything the channel wants",
                "groups": {"*": {"topics": {}, "tools": {"deny": ["exec"]}}},
                "accounts": {"b": {"groups": {"-1": {"toolsBySender": {"*": {"deny": ["*"]}}}}}},
            }
        }
    },
    "ping-pong": {"session": {"agentToAgent": {"maxPingPongTurns": 0}}},
    "nodes": {"gateway": {"nodes": {"denyCommands": ["camera.snap"]}}},
    "schema address": {"$schema": "https://example.com/schema.json"},
}

INVALID: dict[str, dict[str, Any]] = {
    "unknown section": {"tool": {}},
    "unknown key": {"tools": {"exec": {"sekurity": "deny"}}},
    "unknown profile": {"tools": {"profile": "everything"}},
    "list as a string": {"tools": {"allow": "exec"}},
    "rule without effect": {"tools": {"rules": [{"tool": "exec"}]}},
    "rule with another effect": {"tools": {"rules": [{"tool": "exec", "effect": "warn"}]}},
    "timeout below ten": {"tools": {"exec": {"timeoutSec": 9}}},
    "number as a string": {"tools": {"exec": {"timeoutSec": "30"}}},
    "boolean as a number": {"tools": {"loopDetection": {"enabled": 1}}},
    "threshold of zero": {"tools": {"loopDetection": {"warningThreshold": 0}}},
    "too many results": {"tools": {"web": {"search": {"maxResults": 11}}}},
    "unknown sandbox mode": {"agents": {"defaults": {"sandbox": {"mode": "on"}}}},
    "unknown backend": {"agents": {"list": [{"id": "a", "sandbox": {"backend": "jail"}}]}},
    "key no agent has": {"agents": {"list": [{"id": "a", "tools": {"web": {}}}]}},
    "six turns": {"session": {"agentToAgent": {"maxPingPongTurns": 6}}},
    "depth of six": {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 6}}}},
    "secret of another source": {"gateway": {"auth": {"token": {"source": "x", "id": "A"}}}},
    "misspelt group policy": {"channels": {"x": {"groups": {"*": {"tools": {"denny": []}}}}}},
    "misspelt sender policy": {
        "channels": {"x": {"groups": {"1": {"toolsBySender": {"*": {"allowed": []}}}}}}
    },
    "group policy of an account": {
        "channels": {"x": {"accounts": {"a": {"groups": {"*": {"tools": {"deny": "exec"}}}}}}}
    },
    "misspelt plugin switch": {"plugins": {"entries": {"x": {"enable": False}}}},
    "variable that is a number": {"env": {"vars": {"PORT": 1}}},
}


def test_valid_values_are_converted(subtests: pytest.Subtests) -> None:
    for raw in VALID.values():
        with subtests.test(raw=raw):
            assert isinstance(config(raw), Config)


def test_invalid_values_are_errors(subtests: pytest.Subtests) -> None:
    for raw in INVALID.values():
        with subtests.test(raw=raw), pytest.raises(msgspec.ValidationError):
            config(raw)


def test_settings_are_read_by_attribute() -> None:
    read = config(VALID["exec"] | VALID["channel"] | VALID["both forms of agents"])
    assert read.tools.exec.ask == "on-miss"
    assert read.tools.loop_detection.enabled is None
    assert read.agents.by_id()["support"].tools.profile == "messaging"
    group = read.channels["telegram"].groups["*"]
    assert group.tools is not None
    assert group.tools.deny == ["exec"]


def test_open_sections_let_unknown_keys_pass_and_others_do_not() -> None:
    for cls in all_sections():
        required = [field for field in msgspec.structs.fields(cls) if field.required]
        if required:
            continue
        if cls.is_open():
            assert msgspec.convert({"somethingElse": 1}, cls) == cls()
        else:
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert({"somethingElse": 1}, cls)


def test_only_channels_speech_services_variables_and_plugin_hooks_are_open() -> None:
    assert {cls.__name__ for cls in all_sections() if cls.is_open()} == {
        "Channel",
        "ChannelAccount",
        "ChannelGroup",
        "Env",
        "PluginHooks",
        "TtsProvider",
    }


def test_safe_defaults() -> None:
    defaults = Config()
    assert defaults.tools.fs.workspace_only is True
    assert defaults.agents.defaults.sandbox.mode == "auto"
    assert defaults.tools.exec.policy() == ("allowlist", "on-miss")
    assert defaults.tools.agent_to_agent.enabled is False
    assert defaults.tools.sessions.visibility == "tree"
    assert (defaults.commands or CommandSettings()).restart is False
    assert (defaults.gateway or GatewaySettings()).bind == "loopback"
    assert (defaults.gateway or GatewaySettings()).auth.mode == "token"


def test_sections_that_a_file_does_not_have_are_not_loaded() -> None:
    script = (
        "import sys\nfrom clawkit.config.load import loads\n"
        "def loaded(): return sorted(\n"
        "    name.rpartition('.')[2] for name in sys.modules if '.config.sections.' in name)\n"
        "loads('{}', env={'HOME': '/nowhere'}); print(*loaded())\n"
        "found = loads('{ cron: { enabled: false } }', env={'HOME': '/nowhere'}).config\n"
        "print(*loaded(), found.cron.enabled, found.gateway)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    before, after = done.stdout.decode().splitlines()
    assert before == "agents environment models sandbox shared tools"
    assert after == "agents environment gateway models sandbox shared tools False None"


def test_importing_the_model_loads_nothing_heavy() -> None:
    heavy = {"asyncio", "click", "difflib", "jsonschema_rs", "pathlib", "subprocess"}
    code = f"import sys, clawkit.config.model; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COVERAGE_PROCESS_CONFIG": ""},  # which would load modules of its own
    )
    assert result.stdout.strip() == "[]"


def test_only_the_main_session_is_not_sandboxed_in_mode_non_main() -> None:
    """Not one whose name a web request or a chat could end so."""
    settings = SandboxSettings(mode="non-main")
    names = ("main", "agent:a:main", "agent:a:hook:main", "hook:main", "agent:a:chat:group:main")
    assert [settings.covers(name) for name in names] == [False, False, True, True, True]

"""Which settings there are, by whatever name."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.config.json5 import parse_path
from clawkit.config.load import loads
from clawkit.config.lookup import find, in_force, is_secret, spelled
from clawkit.config.model import Config
from clawkit.config.section import describe


@table(
    ("path", "documented"),
    [
        ("tools.exec.ask", ("tools", "exec", "ask")),
        ("tools.exec.timeout_seconds", ("tools", "exec", "timeoutSec")),
        ("agents.list.0.tools", ("agents", "list", 0, "tools")),
        ('agents.defaults.models["a/b"].alias', ("agents", "defaults", "models", "a/b", "alias")),
        ("channels.telegram.anything.at.all", ("channels", "telegram", "anything", "at", "all")),
        ("plugins.entries.x.config.y", ("plugins", "entries", "x", "config", "y")),
        ("env.HOME_PAGE", ("env", "HOME_PAGE")),
        ("tools.$include", ("tools", "$include")),
        ("ui.assistant.name", ("ui", "assistant", "name")),
    ],
)
def test_a_setting_is_found_by_any_of_its_names(path: str, documented: tuple[Any, ...]) -> None:
    found = find(parse_path(path))
    assert found.shape is not None
    assert found.path == documented


@table(
    ("path", "hint"),
    [
        ("tolls", "Did you mean 'tools'?"),
        ("tools.exec.aks", "Did you mean 'tools.exec.ask'?"),
        ("tools.exec.ask.x", "tools.exec.ask takes one of off, on-miss, always"),
        ("tools.deny.first", "tools.deny takes a list of strings"),
        ("tools.fs.zzzzzzzzzz", "Settings in 'tools.fs': workspaceOnly"),
        ("zzzzzzzzzz", "Top-level settings: $schema, env"),
    ],
)
def test_what_is_not_a_setting_comes_with_a_hint(path: str, hint: str) -> None:
    found = find(parse_path(path))
    assert found.shape is None
    assert found.hint.startswith(hint)


def test_the_shape_of_a_setting_says_what_belongs_there() -> None:
    shape = find(("gateway", "port")).shape
    assert shape is not None
    assert describe(shape) == "a whole number from 1 to 65535"


@table(
    ("path", "secret"),
    [
        ("gateway.auth.token", True),
        ("models.providers.x.apiKey", True),
        ("models.providers.x.headers.Accept", True),
        ("gateway.port", False),
        ("agents.defaults.model", False),
    ],
)
def test_secrets_are_known_by_their_type(path: str, secret: bool) -> None:
    shape = find(parse_path(path)).shape
    assert shape is not None
    assert is_secret(shape) is secret


@table(
    ("path", "content", "expected"),
    [
        (("tools", "exec"), {}, ("tools", "exec")),
        (
            ("tools", "loopDetection", "historySize"),
            {"tools": {"loop_detection": {"history_size": 5}}},
            ("tools", "loop_detection", "history_size"),
        ),
        (
            ("agents", "list", "0", "group_chat"),
            {"agents": {"list": [{"groupChat": {}}]}},
            ("agents", "list", 0, "groupChat"),
        ),
        (("tools", "exec"), "not even an object", ("tools", "exec")),
    ],
)
def test_a_path_is_spelled_as_in_the_file(
    path: tuple[Any, ...], content: Any, expected: tuple[Any, ...]
) -> None:
    assert spelled(path, content) == expected


@table(
    ("path", "value"),
    [
        (("tools", "exec", "timeoutSec"), 1800),
        (("tools", "exec", "ask"), "off"),
        (("agents", "list", 0, "name"), "A"),
        (("agents", "list", 1), None),
        (("channels", "none", "enabled"), None),
    ],
)
def test_defaults_are_in_force_where_nothing_is_set(path: tuple[Any, ...], value: Any) -> None:
    config = loads(
        "{ tools: { exec: { ask: 'off' } }, agents: { list: [{ id: 'a', name: 'A' }] } }"
    )
    assert in_force(config.config, path) == value


def test_the_default_of_a_section_that_is_not_set() -> None:
    assert in_force(Config(), ("gateway", "bind")) == "loopback"
    assert in_force(Config(), ("agents", "defaults", "heartbeat", "maxCostPerDay")) == 1.0
    assert in_force(Config(), ("agents", "defaults", "memorySearch", "enabled")) is None

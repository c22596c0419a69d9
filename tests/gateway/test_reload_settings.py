"""What a change of each setting needs, and whether that is true."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.gateway.conftest import TOKEN, serve
from tests.gateway.test_reload import changed, text
from tests.gateway.test_turns import message

from clawkit.config.load import load, loads
from clawkit.config.lookup import ROOT, in_force
from clawkit.config.model import Config
from clawkit.config.section import Shape, layout_of
from clawkit.errors import ConfigError
from clawkit.gateway.reload import KINDS, changed_paths, combine, kind_of
from clawkit.testing import ScriptedModel

Setting = tuple[str | int, ...]
WORDS = ("x", "5m", "/x", "lab/x", "12:00", "ws://127.0.0.1:1")
NUMBERS = (7, 1, 0, 300, 5_000, 0.5)


def settings(shape: Shape, path: Setting = ()) -> Iterator[tuple[Setting, Shape]]:
    """All settings; `a` is the key wherever users choose one."""
    if len(path) > 8:
        return
    if shape.sections:
        for key, inner in layout_of(shape.sections[0]).shapes.items():
            yield from settings(inner, (*path, key))
    elif shape.values is not None:
        yield from settings(shape.values, (*path, "a"))
    else:
        yield path, shape


def values(shape: Shape) -> Iterator[Any]:
    yield from shape.words
    yield from (True, False) if shape.boolean else ()
    yield from NUMBERS if shape.whole or shape.number else ()
    yield from WORDS if shape.text else ()
    if shape.items is not None:
        yield from ([each] for each in values(shape.items))


def another(path: Setting, shape: Shape) -> Config | None:
    """A configuration that sets this to something else; None if it needs other settings, too."""
    for value in values(shape):
        for key in reversed(path):
            value = {key: value}
        try:
            found = loads(str(value).replace("True", "true").replace("False", "false")).config
        except ConfigError:
            continue
        if any(changed_paths(Config(), found)):
            return found
    return None


def test_a_restart_is_asked_for_exactly_where_the_old_value_stays() -> None:
    started, tested = loads("{}"), dict[str, int]()
    for path, shape in settings(ROOT):
        if (config := another(path, shape)) is None:
            continue
        taken_up = combine(replace(started, config=config), started).config
        changes, applied = (
            [each for each in changed_paths(started.config, new) if kind_of(each) != "none"]
            for new in (config, taken_up)
        )
        assert applied == [each for each in changes if kind_of(each) == "hot"], path
        tested[str(path[0])] = tested.get(str(path[0]), 0) + 1
    assert sum(tested.values()) > 450
    named = {name for name in KINDS if name in layout_of(Config).shapes}
    assert named - tested.keys() <= {"bindings"}, "nothing of these could be set"


NEW = {
    "agents": "{ defaults: { userTimezone: 'Asia/Tokyo' } }",
    "approvals": "{ timeoutSeconds: 77 }",
    "auth": "{ order: { lab: ['b', 'a'] } }",
    "bindings": "[{ agentId: 'main', match: { channel: 'telegram' } }]",
    "channels": "{ telegram: { groups: { '*': { tools: { deny: ['exec'] } } } } }",
    "commands": "{ restart: true }",
    "cron": "{ maxConcurrentRuns: 7 }",
    "diagnostics": "{ enabled: false }",
    "env": "{ vars: { FROM_THE_FILE: 'new' } }",
    "hooks": "{ path: '/in' }",
    "mcp": "{ servers: { off: { command: '/nowhere', enabled: false } } }",
    "memory": "{ citations: 'off' }",
    "messages": "{ queue: { cap: 3 } }",
    "models": "{ providers: { lab: { baseUrl: 'http://127.0.0.1:9/v1' } } }",
    "plugins": "{ entries: { lsp: { enabled: false } } }",
    "secrets": "{ defaults: { env: 'other' } }",
    "session": "{ mainKey: 'desk' }",
    "skills": "{ entries: { tour: { enabled: false } } }",
    "tools": "{ deny: ['write'] }",
}


async def test_the_next_message_is_answered_with_the_new_settings_of_every_section() -> None:
    hot = {name for name, kind in KINDS.items() if kind == "hot" and not name.startswith("$")}
    assert NEW.keys() == hot
    file = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    file.write_text(text(), encoding="utf-8")
    file.chmod(0o600)
    model = ScriptedModel(then="ok")
    async with serve(str(file), model) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("before"))
        await peer.until_chat("final")
        assert "Tokyo" not in model.requests[-1].system
        file.write_text(text(", ".join(f"{name}: {new}" for name, new in NEW.items())))
        assert (await changed(peer))["restartNeeded"] == []
        await peer.call("chat.send", {**message("after", "run-2"), "sessionKey": "desk"})
        await peer.until_chat("final", "run-2")
        there = ground.gateway.live.find("agent:main:desk")
        assert there is not None
        used, expected = there.agent.kit.config, load(str(file)).config
        for name in NEW:
            assert in_force(used, (name,)) == in_force(expected, (name,)), name
        assert used != Config()
        assert "Tokyo" in model.requests[-1].system
        assert "write" not in {each.name for each in model.requests[-1].tools}
        assert (await peer.call("agents.list"))["mainKey"] == "desk"


@pytest.mark.parametrize(
    ("more", "gateway", "waiting"),
    [
        ("session: { store: '/x/s.sqlite' }", "", ["session.store"]),
        ("session: { store: '/x/s.sqlite', mainKey: 'a' }", "", ["session.store"]),
        ("session: { mainKey: 'a' }", "", []),
        ("logging: { redact_patterns: ['x{8}'], level: 'debug' }", "", ["logging.redactPatterns"]),
        ("", "custom_bind_host: '127.0.0.3', bind: 'custom'", ["gateway.bind"]),
        ("", "port: 18789", []),
        ("", "nodes: { browser: { mode: 'off' } }", []),
        ("", "trustedProxies: ['${OF_THE_TEST}']", ["gateway.trustedProxies"]),
    ],
)
def test_settings_that_need_a_restart_are_listed(
    more: str, gateway: str, waiting: list[str]
) -> None:
    env = {"OF_THE_TEST": "10.0.0.1", "CLAWKIT_HOME": os.environ["CLAWKIT_HOME"]}
    old, new = loads(text()).config, loads(text(more, gateway), env=env).config
    found = [path for path in changed_paths(old, new) if kind_of(path) == "restart"]
    names = [".".join(map(str, path)) for path in found]
    assert [each for each in names if each != "gateway.customBindHost"] == waiting
    assert TOKEN in text()

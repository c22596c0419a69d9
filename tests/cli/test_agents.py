"""`clawkit agents` as a person or a program types it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clawkit.cli.main import run
from clawkit.config.load import load
from clawkit.process import process_table


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Type = Callable[..., Done]


@pytest.fixture
def agents(capsys: pytest.CaptureFixture[str]) -> Type:
    """Run `clawkit agents ...` in this process."""

    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["agents", *args])
        out, err = capsys.readouterr()
        assert "unexpected" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


@pytest.fixture
def file() -> Path:
    home = os.environ["CLAWKIT_HOME"]
    os.makedirs(home, 0o700, exist_ok=True)
    return Path(home) / "clawkit.json5"


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)


def test_without_any_agent_main_is_listed(agents: Type) -> None:
    assert agents("list", "--json").json == {
        "default": "main",
        "agents": [
            {
                "id": "main",
                "default": True,
                "name": None,
                "model": None,
                "workspace": None,
                "setting": None,
            }
        ],
    }
    assert "main  default  not in the configuration" in agents("list").out


def test_agents_are_listed_with_their_settings(agents: Type, file: Path) -> None:
    write(
        file,
        "{agents: {defaults: {model: 'p/all', workspace: '/tmp'}, list: ["
        "{id: 'one', name: 'First', model: {primary: 'p/own'}}, {id: 'Two', default: true}]}}",
    )
    told = agents("list", "--json").json
    assert told["default"] == "two"
    two, one = told["agents"]
    assert (two["id"], two["default"], two["model"]) == ("two", True, "p/all")
    assert (one["name"], one["model"], one["workspace"]) == ("First", "p/own", "/tmp")
    assert one["setting"] == "agents.list[0]"
    lines = agents("list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "two", "one"]


def test_an_agent_is_added_with_the_given_settings(
    agents: Type, file: Path, tmp_path: Path
) -> None:
    model = "anthropic/claude-opus-5"
    given = ("--name", "Research", "--workspace", str(tmp_path), "--model", model)
    done = agents("add", "research", *given)
    assert done.code == 0
    made = load(str(file)).config.agents.get("research")
    assert (made.name, made.workspace, made.model) == ("Research", str(tmp_path), model)
    assert agents("add", "plain").code == 0
    assert [each["id"] for each in agents("list", "--json").json["agents"]] == [
        "main",
        "research",
        "plain",
    ]


def test_a_list_stays_a_list_and_comments_stay(agents: Type, file: Path) -> None:
    write(
        file,
        "{\n  // mine\n  agents: { list: [\n    { id: 'one' }, // first\n"
        "    { id: 'two' }, // second\n  ] },\n}\n",
    )
    assert agents("add", "three").code == 0
    text = file.read_text(encoding="utf-8")
    assert all(each in text for each in ("// mine", "// first", "// second"))
    assert load(str(file)).config.agents.key_of("three") == "agents.list[2]"
    assert agents("remove", "one").code == 0
    text = file.read_text(encoding="utf-8")
    assert "// second" in text
    assert list(load(str(file)).config.agents.by_id()) == ["two", "three"]


def test_a_dry_run_writes_nothing(agents: Type, file: Path) -> None:
    done = agents("add", "research", "--dry-run", "--json")
    assert done.json["changed"] is True
    assert not file.exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("Research",), "invalid agent id"),
        (("a b",), "invalid agent id"),
        (("-x",), "No such option"),
        (("x" * 65,), "invalid agent id"),
        (("x", "--workspace", "/nowhere/at/all"), "is not a directory; create it first"),
        (("x", "--model", "nobody/nothing"), "unknown provider 'nobody'"),
    ],
)
def test_invalid_agents_are_refused(
    agents: Type, file: Path, args: tuple[str, ...], message: str
) -> None:
    done = agents("add", *args)
    assert done.code == 2
    assert message in done.err
    assert not file.exists()


def test_an_agent_is_added_once(agents: Type, file: Path) -> None:
    write(file, "{agents: {entries: {one: {}}}}")
    done = agents("add", "one")
    assert done.code == 1
    assert "already exists, at agents.entries.one" in done.err


def test_an_agent_is_removed(agents: Type, file: Path) -> None:
    write(file, "{agents: {entries: {one: {name: 'x'}, two: {}}}}")
    assert agents("remove", "ONE").code == 0
    assert list(load(str(file)).config.agents.by_id()) == ["two"]


@pytest.mark.parametrize(
    ("text", "id_", "message"),
    [
        ("{agents: {entries: {one: {default: true}, two: {}}}}", "one", "then 'main' is used"),
        ("{agents: {list: [{id: 'main'}, {id: 'two'}]}}", "main", "is the default agent"),
        ("{agents: {list: [{id: 'two'}]}}", "two", "then 'main' is the only one"),
    ],
)
def test_the_default_and_the_last_one_need_force(
    agents: Type, file: Path, text: str, id_: str, message: str
) -> None:
    write(file, text)
    done = agents("remove", id_)
    assert done.code == 2
    assert message in done.err
    assert file.read_text(encoding="utf-8") == text
    assert agents("remove", id_, "--force").code == 0
    assert id_ not in load(str(file)).config.agents.by_id()


def test_an_unknown_agent_is_an_error_with_suggestions(agents: Type, file: Path) -> None:
    write(file, "{agents: {entries: {research: {}, two: {}}}}")
    done = agents("remove", "reserch")
    assert done.code == 2
    assert "did you mean 'research'?" in done.err
    assert "it has research, two" in agents("remove", "zzz").err
    write(file, "{}")
    assert "the configuration has no agent 'zzz'; it has none" in agents("remove", "zzz").err


def test_an_agent_of_an_included_file_is_left_alone(agents: Type, file: Path) -> None:
    more = file.parent / "more.json5"
    write(more, "{entries: {one: {}, two: {}}}")
    write(file, "{agents: {$include: './more.json5'}}")
    done = agents("remove", "one")
    assert done.code == 2
    assert "comes from an included file" in done.err


def test_a_command_of_an_agent_changes_nothing(
    agents: Type, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    assert agents("add", "research").code == 3
    assert not file.exists()
    assert agents("list").code == 0


@pytest.mark.parametrize(
    "command",
    [
        *("memory index", "memory search tea", "models list", "models status", "models write"),
        *("sessions list", "sessions tree", "skills list", "heartbeat run", "wake hello"),
    ],
)
def test_no_command_for_what_an_agent_has_accepts_an_unknown_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Even if no agent is configured: data for the main agent must not be stored elsewhere."""
    home = Path(os.environ["CLAWKIT_HOME"])
    before = {*home.rglob("*")}
    with open(os.devnull) as nothing, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", nothing)
        with pytest.raises(SystemExit) as end:
            run([*command.split(), "--agent", "nope"])
    said = capsys.readouterr().err
    assert (end.value.code, "agent 'nope'" in said) == (2, True), said
    assert not [each for each in {*home.rglob("*")} - before if "nope" in str(each)]
    assert not (home / "memory").exists()


def test_an_agent_is_the_same_in_any_case(
    capsys: pytest.CaptureFixture[str], workspace: Path
) -> None:
    (workspace / "MEMORY.md").write_text("Ada prefers tea.\n")
    for name in ("main", "MAIN", " Main "):
        with pytest.raises(SystemExit) as end:
            run(["memory", "index", "--workspace", str(workspace), "--agent", name])
        assert end.value.code == 0
    assert len([*Path(os.environ["CLAWKIT_HOME"], "memory").glob("*.sqlite")]) == 1

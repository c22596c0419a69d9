"""May a plugin load? Which one wins? What is hashed, and what runs?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.kit import DICE, add, home, open_kit, section, trust, write

from clawkit.errors import PluginError
from clawkit.plugins.discover import FoundPlugin, Origin, discover, is_in_place, read_plugin, settle
from clawkit.plugins.load import _import_installed, load_plugins
from clawkit.plugins.snapshot import MAX_FILES, SnapshotModules, take_snapshot
from clawkit.plugins.trust import (
    Record,
    read_records,
    records_file,
    why_blocked,
    why_off,
    why_untrusted,
)

# The settings, whether it is on by default, and why it is off: empty if it is on.
OFF: list[tuple[dict[str, Any], bool, str]] = [
    ({}, False, "clawkit plugins enable dice"),
    ({}, True, ""),
    ({"entries": {"dice": {}}}, False, "clawkit plugins enable dice"),
    ({"entries": {"dice": {}}}, True, ""),
    ({"entries": {"dice": {"enabled": True}}}, False, ""),
    ({"entries": {"dice": {"enabled": False}}}, True, "plugins.entries.dice.enabled is false"),
    ({"enabled": False, "entries": {"dice": {"enabled": True}}}, True, "plugins.enabled is false"),
    ({"deny": ["dice"], "entries": {"dice": {"enabled": True}}}, True, "plugins.deny"),
    ({"allow": [], "entries": {"dice": {"enabled": True}}}, True, "plugins.allow"),
    ({"allow": ["other"]}, True, "plugins.allow"),
    ({"allow": ["dice"]}, False, "clawkit plugins enable dice"),
    ({"allow": ["dice"], "entries": {"dice": {"enabled": True}}}, False, ""),
    ({"allow": ["dice"], "deny": ["dice"]}, True, "plugins.deny"),
]


def test_the_configuration_decides_whether_a_plugin_is_wanted() -> None:
    for given, default, reason in OFF:
        entries = given.pop("entries", {})
        settings = section(**given)
        settings.entries.update({id_: _entry(each) for id_, each in entries.items()})
        found = why_off("dice", settings, by_default=default)
        assert bool(found) == bool(reason), (given, entries)
        assert reason in found


def _entry(given: dict[str, Any]) -> Any:
    from clawkit.config.sections.plugins import PluginEntry

    return PluginEntry(**given)


# What is recorded, and what is there.
UNTRUSTED: list[tuple[Record | None, str, str, str]] = [
    (None, "/p/dice.py", "aa", "has not been enabled"),
    (Record("/p/dice.py", "aa"), "/p/dice.py", "aa", ""),
    (Record("/p/dice.py", "aa"), "/p/dice.py", "ab", "have changed"),
    (Record("/p/dice.py", "aa"), "/q/dice.py", "aa", "is now at /q/dice.py"),
    (Record("/p/dice.py", ""), "/p/dice.py", "aa", "have changed"),
]


def test_an_enabled_plugin_runs_only_as_it_was_when_it_was_enabled() -> None:
    for record, location, sha256, reason in UNTRUSTED:
        found = why_untrusted("dice", record, location, sha256)
        assert bool(found) == bool(reason)
        assert reason in found
        assert not found or "clawkit plugins enable dice" in found


def test_a_plugin_must_not_have_the_name_of_a_tool() -> None:
    assert {id_ for id_ in ("exec", "bash", "dice", "web_search") if why_blocked(id_)} == {
        "exec",
        "bash",
        "web_search",
    }


def test_the_first_of_two_plugins_with_one_id_wins_and_the_other_is_reported() -> None:
    order: tuple[Origin, ...] = ("installed", "home", "path", "bundled")
    found = settle([FoundPlugin("dice", origin, f"/{origin}") for origin in order])
    assert [each.origin for each in found] == ["bundled", "path", "home", "installed"]
    assert not found[0].problem
    assert all("with this id: /bundled" in each.problem for each in found[1:])


def test_plugins_are_found_as_files_and_as_directories(tmp_path: Path) -> None:
    write("one.py", DICE.replace('"dice"', '"one"'))
    write("two/plugin.py", DICE.replace('"dice"', '"two"'))
    write("_private.py", DICE)
    write("broken.py", "def")
    more = tmp_path / "more"
    (more / "three").mkdir(parents=True)
    (more / "three" / "plugin.py").write_text(DICE.replace('"dice"', '"three"'))
    (more / "two.py").write_text(DICE.replace('"dice"', '"two"'))
    single = tmp_path / "four.py"
    single.write_text(DICE.replace('"dice"', '"four"'))
    paths = {"load": {"paths": [str(more), str(single), "/nowhere.py"]}}
    found = discover(section(**paths), str(home()), {})
    assert [(each.id, each.origin, bool(each.problem)) for each in found] == [
        ("three", "path", False),
        ("two", "path", False),
        ("four", "path", False),
        ("nowhere", "path", True),
        ("broken", "home", True),
        ("one", "home", False),
        ("two", "home", True),
    ]


def test_skills_come_with_a_directory(tmp_path: Path) -> None:
    source = DICE.replace("tools=", 'skills=["skills"], tools=')
    write("dice.py", source)
    write("dice/plugin.py", source)
    write(
        "out/plugin.py",
        DICE.replace('"dice"', '"out"').replace("tools=", 'skills=["../x"], tools='),
    )
    found = {each.location: each for each in discover(section(), str(home()), {})}
    folder = home() / "plugins"
    assert "must be" not in found[str(folder / "dice")].problem
    assert "only a plugin that is a directory" in found[str(folder / "dice.py")].problem
    assert "must be below the plugin's" in found[str(folder / "out")].problem
    (folder / "dice.py").unlink()
    trust(folder / "dice")
    loaded = load_plugins(section("dice"), str(home()), {})
    assert loaded.skills == [str(folder / "dice" / "skills")]


def test_a_plugin_is_in_place_while_its_place_is_searched(tmp_path: Path) -> None:
    here = Record(str(tmp_path / "dice.py"), "aa")
    own = Record(str(home() / "plugins" / "dice"), "aa")
    deep = Record(str(tmp_path / "a" / "dice.py"), "aa")
    foreign = Record(str(tmp_path / "dice"), "aa", "dice.plugin")
    settings = section(load={"paths": [str(tmp_path)]})
    places = [is_in_place(each, settings, str(home())) for each in (here, own, deep, foreign)]
    assert places == [True, True, False, False]
    assert not is_in_place(here, section(), str(home()))
    assert is_in_place(here, section(load={"paths": [here.location]}), str(home()))


async def test_a_plugin_in_the_workspace_is_not_loaded_by_itself(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "plugins").mkdir()
    (workspace / "plugins" / "dice.py").write_text(DICE)
    (workspace / "dice.py").write_text(DICE)
    info = workspace / "dice-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: dice\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[clawkit.plugins]\ndice = dice\n")
    monkeypatch.chdir(workspace)
    monkeypatch.syspath_prepend(str(workspace))
    assert "dice" not in [each.id for each in discover(section(), str(home()), {})]
    async with open_kit(workspace, "dice") as kit:
        assert "roll" not in kit.run.tools


def test_relative_paths_are_refused(tmp_path: Path) -> None:
    from clawkit.errors import ConfigError

    with pytest.raises(ConfigError, match=r"plugins.load.paths\[0\]: './plugins' is not an absol"):
        open_kit(tmp_path, "dice", load={"paths": ["./plugins"]})


def test_what_is_hashed_is_what_runs(tmp_path: Path) -> None:
    path = write(
        "dice/plugin.py", f"from .sides import SIDES\n{DICE}".replace("sides: int = 6", "")
    )
    (path.parent / "sides.py").write_text("SIDES = 6\n")
    path.write_text(path.read_text().replace("{sides} of {sides}", "{SIDES}"))
    trust(path.parent)
    loaded = load_plugins(section("dice"), str(home()), {})
    assert loaded.left_out == {}
    # Neither bytecode nor a module beside it is used.
    assert not list(path.parent.rglob("__pycache__"))
    (path.parent / "sides.py").write_text("SIDES = 7\n")
    changed = load_plugins(section("dice", allow=["dice"]), str(home()), {})
    assert "have changed" in changed.left_out["dice"]


@pytest.mark.parametrize("kind", ["link", "fifo", "writable", "many", "huge", "outside"])
def test_files_that_cannot_be_trusted_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "dice"
    folder.mkdir()
    (folder / "plugin.py").write_text(DICE)
    reason = "too large"
    if kind == "link":
        (folder / "more.py").symlink_to("/etc/hostname")
        reason = "more.py is a symbolic link"
    elif kind == "outside":
        folder = tmp_path / "linked"
        folder.symlink_to(tmp_path / "dice")
        reason = "is a symbolic link"
    elif kind == "fifo":
        os.mkfifo(folder / "more.py")
        reason = "more.py is not a regular file"
    elif kind == "writable":
        (folder / "plugin.py").chmod(0o666)
        reason = "plugin.py can be written by others"
    elif kind == "many":
        for number in range(MAX_FILES):
            (folder / f"f{number}").touch()
    else:
        with open(folder / "data", "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(PluginError, match=reason):
        take_snapshot(str(folder))


def test_python_finds_nothing_else_under_the_name_of_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = 'from clawkit.plugins import Plugin\nplugin = Plugin("{}")\n'
    good, evil = tmp_path / "good", tmp_path / "evil"
    for place in (good, evil):
        (place / "acmespace/tools").mkdir(parents=True)
        (place / "acmespace/tools/dice.py").write_text(source.format(place.name))
    monkeypatch.setattr(sys, "path", [str(evil), *sys.path, str(good)])
    found = read_plugin(
        str(good / "acmespace"), "installed", "acmespace.tools.dice", "tools/dice.py"
    )
    with pytest.raises(PluginError, match="Python would import acmespace from"):
        _import_installed(found.record)
    monkeypatch.setattr(sys, "path", [*sys.path[1:]])
    assert _import_installed(found.record).plugin.id == "good"

    (own := tmp_path / "own").mkdir()
    (own / "plugin.py").write_text(source.format("own"))
    snapshot = take_snapshot(str(own))
    (evil / "_taken").mkdir()
    (evil / "_taken/__init__.py").write_text("")
    (evil / "_taken/plugin.py").write_text(source.format("evil"))
    monkeypatch.setattr(sys, "path", [str(evil), *sys.path])
    assert SnapshotModules(snapshot, "_taken").run().plugin.id == "own"


def test_a_damaged_record_trusts_nothing(tmp_path: Path) -> None:
    add(DICE)
    Path(records_file(str(home()))).write_text("{")
    with pytest.raises(PluginError, match="enable your plugins again"):
        read_records(str(home()))
    loaded = load_plugins(section("dice"), str(home()), {})
    assert not loaded.active
    assert "enable your plugins again" in loaded.left_out["dice"]


def test_the_hash_covers_names_and_contents(tmp_path: Path) -> None:
    def digest(files: dict[str, str]) -> str:
        folder = tmp_path / os.urandom(4).hex()
        folder.mkdir()
        for name, text in {"plugin.py": DICE, **files}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return read_plugin(str(folder), "path").sha256

    same = digest({}), digest({"__pycache__/x.pyc": "1", ".git/config": "2"})
    assert same[0] == same[1]
    others = [{"a": "b"}, {"a": "bc"}, {"ab": "c"}, {"d/a": "b"}, {"plugin.py": DICE + "#"}]
    assert len({same[0], *map(digest, others)}) == len(others) + 1

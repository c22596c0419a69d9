"""`clawkit plugins`, and commands of plugins, as a person or a program types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.plugins.kit import DICE, home, write

import clawkit
from clawkit.cli.main import run
from clawkit.plugins.load import _load_all
from clawkit.plugins.trust import read_records
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
def type_in(capsys: pytest.CaptureFixture[str]) -> Type:
    """Run `clawkit ...` in this process, which remembers plugins as another one would not."""

    def type_in(*args: str) -> Done:
        _load_all.cache_clear()
        with pytest.raises(SystemExit) as end:
            run(list(args))
        out, err = capsys.readouterr()
        assert "unexpected" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


def states(type_in: Type) -> dict[str, str]:
    return {
        each["id"]: each["state"] for each in type_in("plugins", "list", "--json").json["plugins"]
    }


SURE = '''"""Dice for games."""
import msgspec
from clawkit.plugins import Plugin

class Settings(msgspec.Struct):
    sides: int = 6

plugin = Plugin("dice", version="2.1", tools=["roll"], commands=["dice", "ps"], config=Settings)

@plugin.tool
def roll() -> str:
    """Roll a die."""
    return "4"

@plugin.command("dice")
def dice(args: list[str]) -> int:
    if args == ["fail"]:
        raise ValueError("no dice")
    print(*args)
    return len(args)

@plugin.command("ps")
def ps(args: list[str]) -> None:
    print("mine")
'''


def test_bundled_plugins_are_on_until_they_are_disabled(type_in: Type) -> None:
    default = {"lsp": "on", "pdf": "on", "telemetry": "on"}
    assert default.items() <= states(type_in).items()
    done = type_in("plugins", "disable", "lsp", "--json").json
    assert done["written"]
    assert (default | {"lsp": "off"}).items() <= states(type_in).items()
    assert type_in("plugins", "enable", "lsp").code == 0
    assert states(type_in)["lsp"] == "on"


def test_enabling_shows_what_is_declared_and_needs_an_approval(type_in: Type) -> None:
    write("dice", SURE)
    asked = type_in("plugins", "enable", "dice")
    assert asked.code == 2
    assert "nothing was changed; add --yes" in asked.err
    assert states(type_in)["dice"] == "off"
    assert not read_records(str(home()))
    done = type_in("plugins", "enable", "dice", "--yes")
    for words in (
        "~/plugins/dice.py",
        "sha256",
        "roll",
        "commands  dice, ps",
        "all of your rights",
    ):
        assert words in done.err
    assert states(type_in)["dice"] == "on"
    shown = type_in("plugins", "info", "dice").out
    assert "setting   plugins.entries.dice.config.sides: integer; default 6" in shown
    schema = type_in("config", "schema").json
    entry = schema["$defs"]["Plugins"]["properties"]["entries"]["properties"]["dice"]
    assert entry["properties"]["config"]["properties"]["sides"]["default"] == 6


def test_the_help_lists_the_commands_of_plugins_without_running_them(type_in: Type) -> None:
    assert "Commands of plugins" not in type_in("--help").out
    ran = "import os, pathlib\npathlib.Path(os.environ['CLAWKIT_HOME'], 'ran').touch()\n"
    path = write("dice", SURE.replace("import msgspec\n", f"{ran}import msgspec\n"))
    type_in("plugins", "enable", "dice", "--yes")
    (home() / "ran").unlink()
    assert re.search(r"Commands of plugins:\n  dice +Of the plugin dice.\n\n", type_in("-h").out)
    assert not (home() / "ran").exists()
    path.write_text(SURE)
    assert "Commands of plugins" not in type_in("--help").out
    type_in("plugins", "enable", "dice", "--yes")
    type_in("plugins", "disable", "dice")
    assert "Commands of plugins" not in type_in("--help").out


def test_a_change_asks_again(type_in: Type) -> None:
    path = write("dice", SURE)
    type_in("plugins", "enable", "dice", "--yes")
    path.write_text(SURE.replace("2.1", "2.2"))
    assert states(type_in)["dice"] == "left out"
    assert "have changed" in type_in("plugins", "list").out
    assert "have changed" in type_in("doctor").out
    assert "unknown tool" in type_in("tools", "call", "roll").out
    assert "have changed" in type_in("tools", "explain", "roll").err
    type_in("plugins", "enable", "dice", "--yes")
    assert type_in("tools", "call", "roll", "--text").out == "4\n"
    type_in("plugins", "disable", "dice")
    assert read_records(str(home())) == {}
    assert "plugins.entries.dice.enabled is false" in type_in("plugins", "list").out


def test_the_configuration_alone_enables_nothing(type_in: Type) -> None:
    write("dice", SURE)
    type_in("config", "set", "plugins.entries.dice.enabled", "true")
    assert states(type_in)["dice"] == "left out"
    checked = type_in("config", "validate")
    assert "plugins.entries.dice: this plugin is left out: it has not been enabled" in checked.err


def test_unknown_plugins_and_roles_are_reported(type_in: Type) -> None:
    given = """{plugins: {load: {paths: ["/more"]}, allow: ["lps", "lobste"],
        deny: ["other"], slots: {diagnostic: "lsp", documents: "lsp"},
        entries: {dise: {enabled: false}, lobste: {enabled: true}}}}"""
    home().mkdir(exist_ok=True, mode=0o700)
    (home() / "clawkit.json5").write_text(given)
    said = type_in("config", "validate").err
    for words in (
        "plugins.allow[0]: there is no such plugin. Did you mean 'lsp'?",
        "plugins.deny[0]: there is no such plugin",
        "plugins.entries.dise: there is no such plugin",
        "plugins.entries.lobste: this plugin is left out: there is no such plugin; searched: "
        f"/more, {home() / 'plugins'}, the installed packages. Did you mean 'lobster'?",
        "plugins.slots.diagnostic: there is no such role. Did you mean 'diagnostics'?",
        "plugins.slots.documents: this plugin does not fill the role",
    ):
        assert words in said
        assert words in type_in("doctor").out
    assert type_in("plugins", "info", "dise").code == 2
    write("dice", SURE)
    enabled = type_in("plugins", "enable", "dise", "--yes")
    assert "unknown plugin 'dise'; did you mean 'dice'?" in enabled.err
    assert "/plugins or in plugins.load.paths" in type_in("plugins", "enable", "./x.py").err


def test_a_plugin_that_cannot_be_loaded_is_reported_when_it_is_enabled(type_in: Type) -> None:
    write("dice", SURE.replace('tools=["roll"]', 'tools=["rolls"]'))
    done = type_in("plugins", "enable", "dice", "--yes")
    assert done.code == 0
    assert "warning: dice cannot be used yet: " in done.err
    assert "'roll' is not declared" in done.err
    assert "'roll' is not declared" in type_in("dice").err
    write("shell", 'from clawkit.plugins import Plugin\nplugin = Plugin("exec")\n')
    assert "its id is the name of a built-in tool" in type_in("plugins", "enable", "exec").err


def test_setup_reports_problems_of_the_plugin(type_in: Type) -> None:
    write("dice", SURE)
    type_in("plugins", "enable", "dice", "--yes")
    wrong = type_in("config", "set", "plugins.entries.dice.config", '{side: 1, sides: "six"}')
    assert "config.side: unknown setting. Did you mean 'sides'?" in wrong.err
    assert "config.sides: expected int, found str" in wrong.err


def test_a_plugin_that_cannot_be_read_cannot_be_enabled(type_in: Type) -> None:
    write("dice", SURE.replace('version="2.1"', "version=VERSION"))
    done = type_in("plugins", "enable", "dice", "--yes")
    assert done.code == 2
    assert "the arguments of Plugin must be literals" in done.err
    assert "must be literals" in type_in("plugins", "info", "dice").out


def test_a_command_of_clawkit_enables_nothing(
    type_in: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("dice", SURE)
    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    assert type_in("plugins", "enable", "dice", "--yes").code == 3
    assert type_in("plugins", "disable", "lsp").code == 3
    assert not read_records(str(home()))


def test_a_plugin_adds_a_command_and_cannot_take_one(type_in: Type) -> None:
    write("dice", SURE)
    assert "Unknown command 'dice'" in type_in("dice").err
    type_in("plugins", "enable", "dice", "--yes")
    done = type_in("dice", "--sides", "7")
    assert (done.code, done.out) == (2, "--sides 7\n")
    failed = type_in("dice", "fail")
    assert failed.code == 2
    assert "dice of plugin dice failed: ValueError: no dice" in failed.err
    assert "mine" not in type_in("ps").out
    assert "Unknown command 'dicee'" in type_in("dicee").err


def test_settings_that_keep_a_plugin_off_are_named(type_in: Type) -> None:
    write("dice", SURE)
    type_in("config", "set", "plugins.deny", '["dice"]')
    done = type_in("plugins", "enable", "dice", "--yes")
    assert "dice stays off: plugins.deny names it" in done.err
    assert states(type_in)["dice"] == "off"


def test_clawkit_exits_although_a_plugin_left_threads() -> None:
    source = DICE.replace(
        "    return f",
        """    import threading, time
    threading.Thread(target=time.sleep, args=(600,)).start()
    return f""",
    )
    write("dice", source)
    env = {**os.environ, "PYTHONPATH": str(Path(clawkit.__file__).parent.parent)}
    for args in (["plugins", "enable", "dice", "--yes"], ["tools", "call", "roll", "--text"]):
        done = subprocess.run(
            [sys.executable, "-m", "clawkit", *args], env=env, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == b"6 of 6\n"


def test_an_installed_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    place = tmp_path / "env"
    venv.create(place, symlinks=True)
    [packages] = place.glob("lib/python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    source = str(Path(clawkit.__file__).parent.parent)
    (packages / "all.pth").write_text("\n".join([source, *libraries]))
    (packages / "dice_pack").mkdir()
    (packages / "dice_pack" / "__init__.py").write_text("SIDES = 8\n")
    plugin = packages / "dice_pack" / "plugin.py"
    plugin.write_text("from dice_pack import SIDES\n" + DICE.replace("int = 6", "int = SIDES"))
    info = packages / "dice_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dice-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[clawkit.plugins]\ndice = dice_pack.plugin:plugin\ngone = not_there\n"
    )

    def type_in(*args: str, cwd: Path = tmp_path) -> str:
        done = subprocess.run(
            [place / "bin" / "python", "-m", "clawkit", *args],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout + done.stderr

    listed = type_in("plugins", "list")
    assert "installed  it is not enabled" in listed
    assert "its module is not in its distribution" in listed
    assert "Enabled dice" in type_in("plugins", "enable", "dice", "--yes")
    assert type_in("tools", "call", "roll", "--text") == "8 of 8\n"
    # A package of the same name in the current directory would be imported first.
    other = tmp_path / "other" / "dice_pack"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit('never')")
    assert "Python would import dice_pack from" in type_in("tools", "list", cwd=other.parent)
    plugin.write_text(plugin.read_text() + "\n")
    assert "have changed" in type_in("plugins", "list")


def test_many_tools_are_deferred_and_the_list_says_what_that_saves(type_in: Type) -> None:
    write("dice", DICE)
    type_in("plugins", "enable", "dice", "--yes")
    assert type_in("tools", "list", "--json").json["deferral"]["deferred"] == 0
    type_in("config", "set", "tools.toolSearch", "true")
    listed = type_in("tools", "list").out
    assert "deferred, " in listed
    assert "Deferred: 1 of those in force, which adds about " in listed
    found = type_in("tools", "list", "--json").json
    assert found["deferral"]["deferred"] == 1
    assert [row["tool"] for row in found["tools"] if row["deferred"]] == ["roll"]
    assert "if it were not deferred (tools.toolSearch)" in type_in("tools", "explain", "roll").out
    assert '"roll"' not in type_in("tools", "schema").out
    assert '"roll"' in type_in("tools", "schema", "roll").out
    done = type_in("tools", "call", "tool_call", '{"name": "roll", "args": {"sides": 8}}')
    assert done.json["details"] == {"calledTool": "roll"}
    assert type_in("tools", "call", "tool_search", '{"query": "a die"}').json["details"] == {
        "tools": ["roll"]
    }

"""What a plugin declares is read without running it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from tests.plugins.kit import DICE

from clawkit.errors import PluginError
from clawkit.plugins.manifest import MAX_SOURCE_BYTES, read_manifest
from clawkit.plugins.roles import ROLES, HookName

BAD = {
    "": "needs one line `plugin = Plugin",
    "x = 1\ndef": "cannot be parsed: invalid syntax (line 2)",
    "x = 1\0": "cannot be parsed",
    "(" * 10_000: "cannot be parsed",
    "#" * (MAX_SOURCE_BYTES + 1): "larger than",
    "plugin = Plugin('a')\nplugin = Plugin('b')": "needs one line",
    "if True:\n    plugin = Plugin('a')": "needs one line",
    "plugin = Plugin()": "missing required field `id`",
    "plugin = Plugin('a', 'b')": "line 1: only the id of a Plugin may be positional",
    "plugin = Plugin(NAME)": "line 1: 'id' is computed; the arguments of Plugin must be literals",
    "plugin = Plugin('a', tools=[*NAMES])": "must be literals",
    "plugin = Plugin('a', **more)": "must be literals",
    "plugin = Plugin('a',\n  version=str(1))": "line 2: 'version' is computed",
    "plugin = Plugin('A')": "invalid id 'A'",
    "plugin = Plugin('a/../b')": "invalid id",
    "plugin = Plugin('a\\n')": "invalid id",
    "plugin = Plugin(7)": "Expected `str`, got `int`",
    "plugin = Plugin('a', tools='roll')": "Expected `array`",
    "plugin = Plugin('a', tools=['no name'])": "invalid tool name 'no name'",
    "plugin = Plugin('a', tools=['\\x1b[2J'])": "invalid tool name",
    "plugin = Plugin('a', tools=['x'], optional_tools=['x'])": "declares a tool twice: x",
    "plugin = Plugin('a', hooks=['before'])": "'before'; known: before_tool_call,",
    "plugin = Plugin('a', commands=['rm -rf'])": "invalid command name",
    "plugin = Plugin('a', services=['nothing'])": f"known: {', '.join(ROLES)}",
    # No hash covers these: whoever can write there could change the skills of a trusted plugin.
    **{
        f"plugin = Plugin('a', skills=['{each}'])": "must be below the plugin's, not hidden"
        for each in ("../up", "/etc", ".own", "a/.own", "__pycache__", "a/node_modules/b", "a//b")
    },
    # Python takes a minute to parse a megabyte of this.
    f"plugin = Plugin(f'{'{a}' * 300_000}')": "larger than 128 KB; move code into other modules",
    "plugin = Plugin('a', powers=['all'])": "unknown field `powers`",
    "plugin = Plugin('a', prompt='" + "x" * 5_000 + "')": "length <= 4000",
}


def test_a_declaration_that_cannot_be_read_says_why() -> None:
    for source, problem in BAD.items():
        with pytest.raises(PluginError, match=re.escape(problem)):
            read_manifest(source.encode())


def test_a_declaration_is_read_with_its_docstring_and_without_its_code() -> None:
    found = read_manifest(f"{DICE}\nraise SystemExit\n".encode())
    assert (found.id, found.name, found.version) == ("dice", "dice", "1.0")
    assert found.description == "Dice for games."
    assert found.summary() == {"tools": "roll"}
    assert read_manifest(b"plugin = Plugin('a', config=Settings)").has_settings


def test_the_page_about_plugins_describes_every_hook() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert [name for name in get_args(HookName) if f"| `{name}` |" not in page] == []

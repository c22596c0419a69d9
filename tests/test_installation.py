"""How clawkit was installed, and how it is updated."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.tables import table

from clawkit.installation import find_installation, how_to_add, judge

PYTHON = sys.executable


@table(
    ("source", "marks", "tool", "installer", "command"),
    [
        (
            {"url": "file:///a%20b/c", "dir_info": {"editable": True}},
            *([], "uv", "checkout"),
            f"git -C '/a b/c' pull && {PYTHON} -m pip install -e '/a b/c'",
        ),
        ({"url": "file:///a/c", "dir_info": {}}, [], "pip", "unknown", ""),
        ({"url": "https://me:secret@x.test/c.git", "vcs_info": {}}, [], "pip", "unknown", ""),
        ({}, ["pipx_metadata.json"], "pip", "pipx", "pipx upgrade clawkit"),
        ({}, ["uv-receipt.toml"], "uv", "uv", "uv tool upgrade clawkit"),
        ({}, [], "uv\n", "uv", f"uv pip install --python {PYTHON} --upgrade clawkit"),
        ({}, [], "pip\n", "pip", f"{PYTHON} -m pip install --upgrade clawkit"),
        ({}, [], "", "pip", f"{PYTHON} -m pip install --upgrade clawkit"),
    ],
)
def test_the_update_command_depends_on_the_installer(
    source: dict[str, Any], marks: list[str], tool: str, installer: str, command: str
) -> None:
    found = judge(source, marks, tool, is_system=False)
    assert (found.installer, found.command) == (installer, command)


def test_system_packages_have_no_update_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge({}, [], "pip", is_system=True).installer == "pip"  # in an environment of its own
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    found = judge({}, [], "pip", is_system=True)
    assert (found.installer, found.command) == ("system", "")


@table(
    ("source", "marks", "tool", "command"),
    [
        (
            {"url": "file:///a%20b/{c}", "dir_info": {"editable": True}},
            *([], "pip"),
            f"{PYTHON} -m pip install -e '/a b/{{c}}[{{}}]'",
        ),
        ({"url": "file:///a/c"}, [], "uv", f"uv pip install --python {PYTHON} '/a/c[{{}}]'"),
        (
            {"url": "file:///a/c"},
            *(["uv-receipt.toml"], "uv"),
            "uv tool install --force '/a/c[all]'",
        ),
        ({}, ["pipx_metadata.json"], "pip", "pipx install --force 'clawkit[all]'"),
        ({}, [], "pip", f"{PYTHON} -m pip install 'clawkit[{{}}]'"),
        ({"url": "git+https://x.test/c"}, [], "pip", f"{PYTHON} -m pip install 'clawkit[{{}}]'"),
    ],
)
def test_the_command_that_adds_extras_depends_on_the_installer(
    source: dict[str, Any], marks: list[str], tool: str, command: str
) -> None:
    assert judge(source, marks, tool, is_system=False).extend == command


def test_the_command_names_the_extra() -> None:
    assert how_to_add("tui") == find_installation().extend.replace("{}", "tui")
    assert "[tui]'" in how_to_add("tui")


def test_the_running_installation_is_recognised() -> None:
    assert find_installation().installer != "unknown"

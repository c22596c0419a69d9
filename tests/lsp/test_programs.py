from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from clawkit.lsp.servers import Programs


def make(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def look(tmp_path: Path, *path: object, home: str = "/home/nobody") -> Programs:
    env = {"PATH": ":".join(map(str, path)), "HOME": home}
    return Programs([str(tmp_path / "ws")], env)


def test_the_first_on_the_path_is_found(tmp_path: Path) -> None:
    make(tmp_path / "b" / "server")
    first = make(tmp_path / "a" / "server")
    programs = look(tmp_path, tmp_path / "a", tmp_path / "b")
    assert programs.find("server") == first
    assert programs.find(first) == first
    assert programs.find("other") is None


def test_what_is_beside_the_interpreter_is_found_last(tmp_path: Path) -> None:
    programs = look(tmp_path, "/usr/bin")
    assert programs.path == ("/usr/bin", os.path.dirname(sys.executable))


def test_what_cannot_be_run_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a" / "server").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "server").touch(0o644)
    found = make(tmp_path / "c" / "server")
    folders = [tmp_path / name for name in "abc"]
    assert look(tmp_path, *folders).find("server") == found


@pytest.mark.parametrize("name", ["", "./server", "ws/server", "../ws/server", "a/../server"])
def test_only_plain_names_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make(tmp_path / "server")
    make(tmp_path / "ws" / "server")
    monkeypatch.chdir(tmp_path)
    assert look(tmp_path, tmp_path).find(name) is None


def test_nothing_leads_through_the_workspace(tmp_path: Path) -> None:
    inside = make(tmp_path / "ws" / "server")
    outside = make(tmp_path / "out" / "server")
    (tmp_path / "ws" / "hop").symlink_to(outside)
    (tmp_path / "ws" / "folder").symlink_to(tmp_path / "out")
    links = tmp_path / "links"
    links.mkdir()
    (links / "direct").symlink_to(inside)
    (links / "hops").symlink_to("../ws/hop")  # leads out again, for now
    (links / "circle").symlink_to("circle")
    (links / "fine").symlink_to(outside)
    programs = look(tmp_path, links, tmp_path / "ws", tmp_path / "ws" / "folder")
    assert programs.find("direct") is None
    assert programs.find("hops") is None
    assert programs.find("circle") is None
    assert programs.find(str(tmp_path / "links" / ".." / "ws" / "server")) is None
    assert programs.find("fine") == str(links / "fine")
    assert programs.path[:-1] == (str(links),)


def test_a_workspace_that_is_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "ws").symlink_to(tmp_path / "real")
    make(tmp_path / "real" / "server")
    assert look(tmp_path, tmp_path / "ws", tmp_path / "real").find("server") is None


def test_shims_are_skipped(tmp_path: Path) -> None:
    make(tmp_path / "shims" / "server")
    assert look(tmp_path, tmp_path / "shims", f"{tmp_path}/shims/").find("server") is None


def test_a_program_needs_its_installation(tmp_path: Path) -> None:
    programs = look(tmp_path, "/usr/bin", home=str(tmp_path / "home"))
    tool = make(tmp_path / "opt" / "tool" / "bin" / "server", "")
    assert programs.installation(tool) == (str(tmp_path / "opt" / "tool"),)
    package = make(tmp_path / "npm" / "node_modules" / "pkg" / "bin" / "server", "")
    assert programs.installation(package) == (str(tmp_path / "npm" / "node_modules"),)
    script = make(tmp_path / "servers" / "server.py", "")
    assert programs.installation(script) == (str(tmp_path / "servers"),)


def test_a_home_is_not_part_of_an_installation(tmp_path: Path) -> None:
    home = tmp_path / "home"
    programs = look(tmp_path, "/usr/bin", home=str(home))
    for prefix in (home, home / ".local"):
        needed = programs.installation(make(prefix / "bin" / "server", ""))
        assert str(prefix / "bin") in needed
        assert str(prefix / "lib") in needed
        assert str(prefix) not in needed
    alone = make(home / "server.py", "")
    assert programs.installation(alone) == (alone,)


def test_a_script_needs_its_interpreter(tmp_path: Path) -> None:
    node = make(tmp_path / "node" / "bin" / "node", "")
    direct = make(tmp_path / "a" / "bin" / "server", f"#!{node}\n")
    by_name = make(tmp_path / "b" / "bin" / "server", "#!/usr/bin/env -S node --flag\n")
    programs = look(tmp_path, tmp_path / "node" / "bin")
    assert programs.installation(direct) == (str(tmp_path / "a"), str(tmp_path / "node"))
    assert programs.installation(by_name) == (str(tmp_path / "b"), str(tmp_path / "node"))


def test_a_link_in_an_environment_needs_both(tmp_path: Path) -> None:
    real = make(tmp_path / "python" / "bin" / "python3", "")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    link = tmp_path / "venv" / "bin" / "python"
    link.symlink_to(real)
    needed = look(tmp_path).installation(str(link))
    assert needed == (str(tmp_path / "venv"), str(tmp_path / "python"))

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from clawkit.config.sections.tools import Lsp, LspServer
from clawkit.lsp.servers import Programs, ServerCatalog

NAMES = ("ruff", "ty", "pyright-langserver", "tsc", "gopls", "rust-analyzer", "clangd", "zls")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools" / "bin"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).touch(0o755)
    return folder


def look(
    tools: Path, *, can_hold: bool = True, servers: Mapping[str, LspServer] | None = None
) -> ServerCatalog:
    # Nothing but these tools: not even what is beside the interpreter.
    programs = Programs(["/ws"], {"PATH": str(tools), "HOME": str(tools.parent)})
    programs.path = (str(tools),)
    cache = str(tools.parent.parent / "cache")
    return ServerCatalog(Lsp(servers=dict(servers or {})), programs, cache, can_hold=can_hold)


def names(known: ServerCatalog, place: str) -> list[str]:
    return [each.name for each in known.servers_for(place)]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/ws/a.py", ["ruff", "ty"]),
        ("/ws/a.pyi", ["ruff", "ty"]),
        ("/ws/a.tsx", ["typescript"]),
        ("/ws/a.mjs", ["typescript"]),
        ("/ws/a.go", ["gopls"]),
        ("/ws/a.rs", ["rust-analyzer"]),
        ("/ws/a.cpp", ["clangd"]),
        ("/ws/a.txt", []),
        ("/ws/py", []),
        ("/ws/a.py/b", []),
    ],
)
def test_servers_are_chosen_by_the_name_of_the_file(
    tools: Path, place: str, expected: list[str]
) -> None:
    assert names(look(tools), place) == expected


def test_pyright_stands_in_for_ty(tools: Path) -> None:
    (tools / "ty").unlink()
    assert names(look(tools), "/ws/a.py") == ["ruff", "pyright"]


def test_what_is_not_installed_is_not_used(tools: Path) -> None:
    (tools / "gopls").unlink()
    assert names(look(tools), "/ws/a.go") == []


def test_where_nothing_can_be_held_only_harmless_servers_are_used(tools: Path) -> None:
    added = {"zls": LspServer(command=["zls"], files=["*.zig"])}
    known = look(tools, can_hold=False, servers=added)
    assert names(known, "/ws/a.py") == ["ruff", "ty"]
    assert names(known, "/ws/a.ts") == ["typescript"]
    for place in ("/ws/a.go", "/ws/a.rs", "/ws/a.c", "/ws/a.zig"):
        assert names(known, place) == []
    (server, _) = known.servers_for("/ws/a.py")
    assert known.launch(server, "/ws", ["/ws"]).hold is None


def test_servers_can_be_added_replaced_and_left_out(tools: Path) -> None:
    servers = {
        "zls": LspServer(command=["zls", "--flag"], files=["*.zig", "build.zon"]),
        "ruff": LspServer(command=["zls"], files=["*.py"]),
        "clangd": LspServer(command=[], files=[]),
    }
    known = look(tools, servers=servers)
    assert names(known, "/ws/a.zig") == ["zls"]
    assert names(known, "/ws/build.zon") == ["zls"]
    assert names(known, "/ws/a.c") == []
    (ruff, _) = known.servers_for("/ws/a.py")
    assert known.launch(ruff, "/ws", ["/ws"]).argv == (str(tools / "zls"),)


def test_files_that_matter_are_watched(tools: Path) -> None:
    servers = {"zls": LspServer(command=["zls"], files=["b*.zon"], root_markers=["build.zig"])}
    known = look(tools, servers=servers)
    watched = (
        "a.py",
        "x.d.ts",
        "new\nline.py",
        "pyproject.toml",
        "go.mod",
        "build.zon",
        "build.zig",
    )
    assert all(map(known.is_watched, watched))
    assert not any(map(known.is_watched, ("a.txt", "py", "a.pyc", "xgo.mod", "x.zon", "")))


def test_a_server_may_read_the_project_and_write_its_cache(tools: Path) -> None:
    known = look(tools)
    (gopls,) = known.servers_for("/ws/a.go")
    launch = known.launch(gopls, "/ws/sub", ["/ws", "/more"])
    assert launch.hold is not None
    assert launch.hold.read[:2] == ("/ws", "/more")
    assert launch.hold.write == (launch.cache,)
    assert not launch.hold.network
    assert str(tools.parent) not in launch.hold.read
    for place in (*launch.hold.read, *launch.hold.run):
        assert not os.path.realpath(tools.parent.parent / "cache").startswith(place + "/")


@pytest.mark.parametrize("name", ["../../evil", "/abs", "a/b", "..", "x" * 300, "ünï\n"])
def test_a_cache_stays_in_its_directory_whatever_the_server_is_called(
    tools: Path, tmp_path: Path, name: str
) -> None:
    known = look(tools, servers={name: LspServer(command=["zls"], files=["*.zig"])})
    (server,) = known.servers_for("/ws/a.zig")
    cache = Path(known.launch(server, "/ws", ["/ws"]).cache)
    assert cache.parent == tmp_path / "cache"
    assert cache.is_dir()


def test_a_cache_that_others_can_write_to_is_refused(tools: Path) -> None:
    known = look(tools)
    (gopls,) = known.servers_for("/ws/a.go")
    os.chmod(known.launch(gopls, "/ws", ["/ws"]).cache, 0o777)
    with pytest.raises(PermissionError):
        known.launch(gopls, "/ws", ["/ws"])

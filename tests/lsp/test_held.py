"""A hostile workspace gets nothing run, and a server reaches nothing that it does not need."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lacking import needs
from tests.lsp.parts import Desk, fake, messages, need_python_servers

from clawkit.config.sections.tools import LspServer
from clawkit.lsp.protocols import Problems
from clawkit.process.landlock import available

Make = Callable[..., Desk]

needs_landlock = needs(available(), "Landlock")


def plant(path: Path, mark: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    path.chmod(0o755)


async def test_programs_in_the_workspace_are_never_run(
    desk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_python_servers()
    made = desk()
    mark = tmp_path / "PWNED"
    for folder in (".venv/bin", "venv/bin", "node_modules/.bin", "bin", "."):
        for name in ("ruff", "ty", "tsc", "gopls", "rust-analyzer", "clangd", "python3", "npm"):
            plant(made.ws / folder / name, mark)
    (tmp_path / "links").mkdir()
    (tmp_path / "links/gopls").symlink_to(made.ws / "bin/gopls")
    (tmp_path / "through").symlink_to(made.ws / "bin")
    entries = ("bin", "", ".", "./bin", str(made.ws / "bin"), f"{tmp_path}/links/../ws/bin")
    links = (str(tmp_path / "links"), str(tmp_path / "through"))
    monkeypatch.setenv("PATH", ":".join((*entries, *links, "/usr/bin", "/bin")))
    monkeypatch.setenv("VIRTUAL_ENV", str(made.ws / ".venv"))
    monkeypatch.chdir(made.ws)
    problems = await made.write("a.py", "print(nowhere)\n")
    assert problems.servers == ("ruff", "ty")  # those beside this interpreter
    for name in ("a.ts", "a.go", "a.rs", "a.c"):
        await made.write(name, "text\n")
    await made.service.close()
    assert not mark.exists()


async def test_programs_in_another_writable_root_are_never_run(
    desk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, mark = tmp_path / "root", tmp_path / "PWNED"
    plant(root / "bin/gopls", mark)
    monkeypatch.setenv("PATH", f"{root}/bin:/usr/bin:/bin")
    made = desk(roots=[root])
    assert await made.write("a.go", "package main\n") == Problems()
    assert not mark.exists()


@pytest.mark.parametrize("spelled", ["{ws}/server", "server", "./server", "{links}/server", ""])
async def test_a_configured_program_in_the_workspace_is_refused(
    desk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    links, mark = tmp_path / "links", tmp_path / "PWNED"
    links.mkdir()
    command = spelled.format(ws=tmp_path / "ws", links=links)
    made = desk(mine=LspServer(command=[command] if command else [], files=["*.mine"]))
    plant(made.ws / "server", mark)
    (links / "server").symlink_to(made.ws / "server")
    monkeypatch.setenv("PATH", f"{made.ws}:{links}:/usr/bin:/bin")
    monkeypatch.chdir(made.ws)
    assert await made.write("a.mine", "text\n") == Problems()
    assert not mark.exists()


async def test_a_server_gets_no_secrets_in_its_environment(
    desk: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "CLAWKIT_TOKEN", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("PATH", f"{tmp_path}/ws/bin:{os.environ['PATH']}")
    made = desk(fake=fake("environment"))
    problems = await made.write("a.fake", "text\n")
    env = dict(each.split("=", 1) for each in messages(problems))
    allowed = {"PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}
    assert set(env) <= allowed
    assert "hunter2" not in str(env)
    assert str(tmp_path / "ws") not in env["PATH"]
    private = Path(env["HOME"])
    assert private.parent == made.cache
    assert env["XDG_CACHE_HOME"] == env["TMPDIR"] == env["HOME"]
    assert private.stat().st_mode & 0o777 == 0o700


@needs_landlock
async def test_a_server_reads_the_workspace_and_nothing_else_of_the_user(
    desk: Make, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "more.txt").write_text("readable root")
    (tmp_path / "secret.txt").write_text("hunter2")
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "link.txt").symlink_to(tmp_path / "secret.txt")
    (ws / "own.txt").write_text("workspace")
    profile = Path("~/.profile").expanduser()
    profile.touch()
    wanted = {
        str(ws / "own.txt"): "workspace",
        str(root / "more.txt"): "readable root",
        str(tmp_path / "secret.txt"): "PermissionError",
        str(ws / "link.txt"): "PermissionError",
        f"/proc/{os.getpid()}/environ": "PermissionError",
        "/etc/passwd": "PermissionError",
        str(profile): "PermissionError",
    }
    made = desk(fake=fake("read"), roots=[root])
    problems = await made.write("a.fake", "\n".join(wanted))
    assert messages(problems) == list(wanted.values())


@needs_landlock
async def test_a_server_writes_nowhere_but_in_its_cache(desk: Make, tmp_path: Path) -> None:
    made = desk(fake=fake("append"))
    (made.ws / "own.txt").write_text("as it was")
    problems = await made.write("a.fake", f"{made.ws}/own.txt\n{tmp_path}/other.txt\n")
    assert messages(problems) == ["PermissionError", "PermissionError"]
    assert (made.ws / "own.txt").read_text() == "as it was"
    assert not (tmp_path / "other.txt").exists()


async def test_each_project_has_a_cache_of_its_own(desk: Make) -> None:
    command = fake("environment").command
    made = desk(fake=LspServer(command=command, files=["*.fake"], root_markers=["project"]))
    homes: set[str] = set()
    for name in ("one", "two"):
        made.edit(f"{name}/project", "")
        problems = await made.write(f"{name}/sub/a.fake", "text\n")
        homes |= {each for each in messages(problems) if each.startswith("HOME=")}
    assert len(homes) == 2


async def test_an_empty_cache_goes_with_its_server(desk: Make) -> None:
    need_python_servers()
    made = desk()
    await made.write("a.py", "print(nowhere)\n")
    assert len(os.listdir(made.cache)) == 2
    await made.service.close()
    assert os.listdir(made.cache) == []


@needs_landlock
async def test_a_server_cannot_connect_to_the_network(desk: Make, tmp_path: Path) -> None:
    script = tmp_path / "servers" / "dial.py"
    script.parent.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script.write_text(
            "import socket, sys\n"
            f"try:\n    socket.create_connection(('127.0.0.1', {port}), 5)\n"
            "except PermissionError:\n    sys.exit(0)\n"
        )
        made = desk(dial=LspServer(command=[sys.executable, str(script)], files=["*.dial"]))
        await made.write("a.dial", "text\n")
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.accept()

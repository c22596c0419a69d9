"""The look at the scripts of a command before it is run."""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from clawkit.process.preflight import MAX_BYTES, check
from clawkit.process.preflight import read_script as read_in_workspace

Read = Callable[[str], Awaitable[bytes | None]]


@pytest.fixture
def read_script(tmp_path: Path) -> Read:
    return partial(read_in_workspace, workspace=str(tmp_path), may_read=lambda _path: True)


async def test_shell_syntax_in_a_python_file_is_reported_with_line_and_fix(
    tmp_path: Path, read_script: Read
) -> None:
    (tmp_path / "x.py").write_text("import os\n\nprint($HOME)\n")
    text = await check([("python", f"{tmp_path}/x.py")], read_script)
    assert text == (
        f"'{tmp_path}/x.py', line 3: `$HOME` is a shell variable, not Python."
        ' The command was not run. Write os.environ["HOME"] (after import os).'
        " If the file is meant to be a shell script, name it .sh and run it with bash."
    )


async def test_shell_syntax_in_a_javascript_file_is_reported(
    tmp_path: Path, read_script: Read
) -> None:
    (tmp_path / "x.js").write_text("export KEY=1\n")
    text = await check([("javascript", f"{tmp_path}/x.js")], read_script)
    assert "line 1: `export KEY` is a shell export, not JavaScript." in text
    assert "process.env.KEY" in text


async def test_a_notebooks_command_is_not_called_a_shell_script(
    tmp_path: Path, read_script: Read
) -> None:
    (tmp_path / "x.py").write_text("!ls\n")
    text = await check([("python", f"{tmp_path}/x.py")], read_script)
    assert "an IPython command" in text
    assert ".sh" not in text


async def test_all_scripts_of_a_pipe_are_checked(tmp_path: Path, read_script: Read) -> None:
    (tmp_path / "a.py").write_text("print('$HOME')\n")
    (tmp_path / "b.js").write_text("echo 'a'\n")
    text = await check(
        [("python", f"{tmp_path}/a.py"), ("javascript", f"{tmp_path}/b.js")], read_script
    )
    assert "b.js" in text


@pytest.mark.parametrize("names", [["good.py"], [], ["gone.py"], ["good.py", "gone.py"]])
async def test_a_valid_script_has_no_problem(
    tmp_path: Path, read_script: Read, names: list[str]
) -> None:
    (tmp_path / "good.py").write_bytes("\ufeffx = 'é $HOME'\r\n".encode())
    scripts = [("python", f"{tmp_path}/{name}") for name in names]
    assert await check(scripts, read_script) == ""


async def test_the_reader_is_asked_for_absolute_paths_and_may_decline() -> None:
    asked: list[str] = []

    async def read(path: str) -> bytes | None:
        asked.append(path)
        return None if path.endswith("a.py") else b"x = $A"

    text = await check([("python", "/w/d/a.py"), ("python", "/w/d/b.py")], read)
    assert asked == ["/w/d/a.py", "/w/d/b.py"]
    assert text.startswith("'/w/d/b.py', line 1: `$A`")


async def test_scripts_beyond_the_size_limit_are_not_checked() -> None:
    async def read(path: str) -> bytes | None:
        return b"x = $A\n#" + b"\xff" * MAX_BYTES

    assert await check([("python", "/w/x.py")], read) == ""


async def test_text_that_is_not_utf8_is_checked(tmp_path: Path, read_script: Read) -> None:
    (tmp_path / "x.py").write_bytes(b"# caf\xe9\nx = $A\n")
    assert "line 2" in await check([("python", f"{tmp_path}/x.py")], read_script)


async def test_a_path_cannot_write_into_the_message(tmp_path: Path, read_script: Read) -> None:
    (tmp_path / "a\n\x1b[31m.py").write_text("x = $A")
    text = await check([("python", f"{tmp_path}/a\n\x1b[31m.py")], read_script)
    assert text
    assert text.isprintable()


async def test_a_script_is_read_whole(tmp_path: Path, read_script: Read) -> None:
    file = tmp_path / "x.py"
    (tmp_path / "link.py").symlink_to(file)
    for data in (b"", b"x = 1\n", b"#" * MAX_BYTES):
        file.write_bytes(data)
        assert await read_script(str(file)) == data
        assert await read_script(str(tmp_path / "link.py")) == data


async def test_files_that_are_not_scripts_are_not_read(tmp_path: Path, read_script: Read) -> None:
    (tmp_path / "large").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"x = 1\0")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    names = ["large", "binary", "directory", "pipe", "loop", "gone", "nul\0", "\ud800", "a" * 300]
    for name in names:
        assert await read_script(f"{tmp_path}/{name}") is None
    assert await read_script("/dev/zero") is None


async def test_reading_leaves_no_file_open(tmp_path: Path, read_script: Read) -> None:
    (tmp_path / "x.py").write_text("x = 1")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for name in ("x.py", "", "gone") * 5:
        await read_script(f"{tmp_path}/{name}")
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_only_what_lies_in_the_workspace_is_read(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "k.py").write_text("x = $secret")
    (workspace / "link.py").symlink_to(outside / "k.py")
    (workspace / "folder").symlink_to(outside)
    (workspace / "here.py").write_text("x = $A")
    (outside / "back.py").symlink_to(workspace / "here.py")
    (tmp_path / "ws2").symlink_to(workspace)
    for place in (workspace, tmp_path / "ws2"):
        read = partial(read_in_workspace, workspace=str(place), may_read=lambda _path: True)
        for name in ("link.py", "folder/k.py", "../outside/k.py"):
            assert await check([("python", os.path.join(place, name))], read) == ""
        assert await check([("python", f"{outside}/k.py")], read) == ""
        for name in ("here.py", str(outside / "back.py")):
            assert "`$A`" in await check([("python", os.path.join(place, name))], read)


async def test_what_may_not_be_read_is_judged_by_where_it_really_is(tmp_path: Path) -> None:
    (tmp_path / "closed.py").write_text("x = $A")
    (tmp_path / "open.py").symlink_to("closed.py")
    asked: list[str] = []

    def may_read(path: str) -> bool:
        asked.append(path)
        return False

    read = partial(read_in_workspace, workspace=str(tmp_path), may_read=may_read)
    assert await check([("python", f"{tmp_path}/open.py")], read) == ""
    assert asked == [os.path.realpath(tmp_path / "closed.py")]


async def test_a_file_that_moves_meanwhile_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "x.py"

    def move(path: str) -> bool:
        os.rename(path, tmp_path / "y.py")
        return True

    def remove(path: str) -> bool:
        os.unlink(path)
        return True

    def replace(path: str) -> bool:
        os.unlink(path)
        Path(path).write_text("other")
        return True

    for act in (move, remove, replace):
        file.write_text("x = $A")
        assert await read_in_workspace(str(file), workspace=str(tmp_path), may_read=act) is None

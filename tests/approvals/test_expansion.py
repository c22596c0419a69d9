"""Which files a command means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawkit.approvals.expansion import (
    MAX_LOOKUPS,
    FoundProgram,
    ProgramFinder,
    cached_lookups,
    normalize_path,
    resolve_links,
)
from clawkit.approvals.types import Doubt


def make(path: Path, text: str = "\x7fELF", mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def finder(*folders: object) -> ProgramFinder:
    return ProgramFinder({"PATH": ":".join(str(folder) for folder in folders)})


def doubt_of(finder: ProgramFinder, name: str, cwd: Path | None = None) -> Doubt:
    with pytest.raises(Doubt) as caught:
        finder.program(name, str(cwd) if cwd else None, 4)
    assert caught.value.at == 4
    return caught.value


def test_the_first_program_in_path_wins(here: Path) -> None:
    first, second = make(here / "a/tool"), make(here / "b/tool")
    assert finder(here / "a", here / "b").program("tool", None, 0) == FoundProgram(first, first)
    assert finder(here / "b", here / "a").program("tool", None, 0) == FoundProgram(second, second)


@pytest.mark.parametrize("kind", ["directory", "not executable", "dangling", "pipe"])
def test_non_programs_are_skipped(here: Path, kind: str) -> None:
    place = here / "a/tool"
    place.parent.mkdir()
    if kind == "directory":
        place.mkdir()
    elif kind == "dangling":
        place.symlink_to("nothing")
    elif kind == "pipe":
        os.mkfifo(place, 0o777)
    else:
        make(place, mode=0o644)
    assert finder(here / "a").program("tool", None, 0) == FoundProgram()
    second = make(here / "b/tool")
    assert finder(here / "a", here / "b").program("tool", None, 0).resolved == second


def test_only_absolute_directories_of_path_count(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(here / "tool")
    monkeypatch.chdir(here)
    for folder in ("", ".", "a/..", "~", f"{here}\0"):
        assert finder(folder).program("tool", str(here), 0) == FoundProgram()
    assert ProgramFinder({}).program("tool", str(here), 0) == FoundProgram()


def test_directories_of_path_are_normalized(here: Path) -> None:
    place = make(here / "a/tool")
    (here / "b").mkdir()
    (here / "link").symlink_to(here / "b")
    for folder in (f"{here}//a/", f"{here}/./a", f"{here}/b/../a", f"{here}/link/../a"):
        assert finder(folder).program("tool", None, 0).resolved == place


def test_links_are_kept_and_followed(here: Path) -> None:
    place = make(here / "real/tool-1.2")
    (here / "bin").mkdir()
    (here / "bin/tool").symlink_to("../real/tool-1.2")
    (here / "linked").symlink_to("bin")
    found = finder(here / "linked").program("tool", None, 0)
    assert found == FoundProgram(f"{here}/linked/tool", place)
    assert found.names("tool") == {"tool", "tool-1.2"}
    assert FoundProgram().names("./x/tool") == {"tool"}


@pytest.mark.parametrize("name", ["./tool", "sub/../tool", ".//tool", "././tool"])
def test_a_path_is_taken_from_the_directory(here: Path, name: str) -> None:
    place = make(here / "tool")
    (here / "sub").mkdir()
    assert finder().program(name, str(here), 0) == FoundProgram(place, place)
    assert finder().program(f"{here}/{name}", None, 0) == FoundProgram(place, place)


@pytest.mark.parametrize("name", ["./tool/", "./tool/.", "./none", "./sub", f"./{'x' * 5000}"])
def test_a_path_that_leads_to_no_program_is_not_found(here: Path, name: str) -> None:
    make(here / "tool")
    (here / "sub").mkdir()
    assert finder().program(name, str(here), 0) == FoundProgram()


def test_a_relative_path_needs_a_known_directory() -> None:
    assert doubt_of(finder(), "./tool").code == "cwd"


def test_a_path_that_links_make_another_one_is_in_doubt(here: Path) -> None:
    make(here / "tool")
    make(here / "far/tool")
    (here / "far/away").mkdir()
    (here / "link").symlink_to("far/away")
    assert doubt_of(finder(), "link/../tool", here).code == "path"
    assert doubt_of(finder(), f"{here}/link/../tool").code == "path"
    assert doubt_of(finder(), "sub/../" * 600 + "tool", here).code == "path"


@pytest.mark.parametrize(
    "name",
    [
        "ld-linux-x86-64.so.2",
        "ld-linux.so.2",
        "LD-LINUX.so.2",
        "ld-musl-x86_64.so.1",
        "ld.so",
        "ld.so.1",
        "ld64.so.2",
        "ld64-uClibc.so.0",
        "ld32-x.so",
        "ld32.so",
        "ld-2.31.so",
        "libc.so",
        "libc.musl-x86_64.so.1",
        "linker64",
    ],
)
def test_the_loader_may_not_be_named(here: Path, name: str) -> None:
    make(here / "bin" / name)
    (here / "bin/tool").symlink_to(name)
    (here / "bin" / "link").symlink_to("tool")
    for typed in (name, "tool", "link", f"bin/{name}", "bin/tool", f"none/{name}"):
        assert doubt_of(finder(here / "bin"), typed, here).code == "loader"
    make(here / "script", f"#!{here}/bin/link\n")
    assert doubt_of(finder(), "./script", here).code == "loader"


@pytest.mark.parametrize("name", ["ld", "ldd", "ld.gold", "libc", "list", "ld.bfd"])
def test_other_programs_with_such_names_may(here: Path, name: str) -> None:
    assert finder(here).program(name, None, 0) == FoundProgram()
    place = make(here / name)
    assert finder(here).program(name, None, 0).resolved == place


@pytest.mark.parametrize(
    ("line", "interpreters"),
    [
        ("#!{bin}/sh\n", ["sh"]),
        ("#! {bin}/sh\n", ["sh"]),
        ("#!\t{bin}/sh\t-e \n", ["sh"]),
        ("#!{bin}/sh -e -u\nmore", ["sh"]),
        ("#!{bin}/sh", ["sh"]),
        ("#!{bin}//./sh\n", ["sh"]),
        ("#!{bin}/nothing\n", ["nothing"]),
        ("#!{bin}/env python3\n", ["env", "python3"]),
        ("#! {bin}/env\tpython3 \n", ["env", "python3"]),
        ("#!{bin}/genv python3\n", ["genv", "python3"]),
        ("#!{bin}/env shim\n", ["env", "shim", "env", "sh"]),
        ("#!{bin}/shim -x\n", ["shim", "env", "sh"]),
        ("no script\n#!{bin}/sh\n", []),
        ("", []),
    ],
)
def test_a_script_names_its_interpreters(here: Path, line: str, interpreters: list[str]) -> None:
    folder = here / "bin"
    for name in ("sh", "env", "python3"):
        make(folder / name)
    make(folder / "shim", f"#!{folder}/env sh\n")
    (folder / "genv").symlink_to("env")
    script = make(here / "run", line.format(bin=folder))
    found = finder(folder).program("./run", str(here), 0)
    assert found == FoundProgram(script, script, tuple(f"{folder}/{name}" for name in interpreters))


@pytest.mark.parametrize(
    "line",
    [
        "#!\n",
        "#!",
        "#! \n",
        "#!sh\n",
        "#!./sh\n",
        "#!{bin}/sh\r\n",
        "#!{bin}/sh\0\n",
        "#!{bin}/sh é\n",
        "#!{bin}/" + "x" * 300 + "\n",
        "#!{bin}/env\n",
        "#!{bin}/env -S python3 -x\n",
        "#!{bin}/env -i\n",
        "#!{bin}/env A=b python3\n",
        "#!{bin}/env A=b\n",
        "#!{bin}/env python3 -u\n",
        "#!{bin}/env ./python3\n",
        "#!{bin}/env missing\n",
        "#!{here}/run\n",
    ],
)
def test_a_script_with_an_unclear_first_line_is_in_doubt(here: Path, line: str) -> None:
    for name in ("sh", "env", "python3"):
        make(here / "bin" / name)
    make(here / "run", line.format(bin=here / "bin", here=here))
    assert doubt_of(finder(here / "bin"), "./run", here).code == "script"


@pytest.mark.skipif(os.getuid() == 0, reason="root can read everything")
def test_a_program_that_cannot_be_read_is_not_a_script(here: Path) -> None:
    make(here / "tool", "#!/bin/sh\n", mode=0o111)
    assert finder(here).program("tool", None, 0).script == ()


def test_a_program_is_looked_for_once(here: Path) -> None:
    place = make(here / "tool")
    one = finder(here)
    assert one.program("tool", "/", 0).resolved == place
    os.unlink(place)
    assert one.program("tool", "/tmp", 0).resolved == place
    for _ in range(MAX_LOOKUPS):
        one.program("tool", "/", 0)
        one.resolve(f"{here}/./x", None, 0)


def test_looking_for_too_many_files_is_in_doubt(here: Path) -> None:
    one = finder(here)
    for number in range(MAX_LOOKUPS):
        one.program(f"tool{number}", "/", 0)
    assert doubt_of(one, "another").code == "long"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x", "{here}/x"),
        ("./x", "{here}/x"),
        ("a/../x", "{here}/x"),
        ("/x//y/./z", "/x/y/z"),
        ("//x", "/x"),
        ("///dev/null", "/dev/null"),
        ("/..", "/"),
        (".hidden/x", "{here}/.hidden/x"),
    ],
)
def test_a_resolved_path_is_absolute_and_normalized(here: Path, path: str, expected: str) -> None:
    assert finder().resolve(path, str(here), 0) == expected.format(here=here)


def test_a_path_in_the_root_has_one_slash() -> None:
    assert finder().resolve("x", "/", 0) == "/x"


@pytest.mark.parametrize(
    ("path", "expected", "may_fail"),
    [
        ("sub", "{here}/sub", False),
        ("./sub/", "{here}/sub", False),
        ("sub/..", "{here}", False),
        ("link", "{here}/link", False),
        ("/", "/", False),
        ("none", "{here}/none", True),
        ("file", "{here}/file", True),
        ("link/..", None, False),
    ],
)
def test_cd_is_followed(here: Path, path: str, expected: str | None, may_fail: bool) -> None:
    (here / "sub").mkdir()
    (here / "far/away").mkdir(parents=True)
    (here / "link").symlink_to("far/away")
    (here / "file").touch()
    place = expected.format(here=here) if expected else None
    assert finder().directory(path, str(here), 0) == (place, may_fail)


def test_cd_from_nowhere_is_only_certain_with_an_absolute_path() -> None:
    assert finder().directory("x", None, 0) == (None, True)
    assert finder().directory("/", None, 0) == ("/", False)


def test_a_path_without_dots_is_settled_as_it_is() -> None:
    assert normalize_path("/a/b") == "/a/b"
    assert normalize_path("") == ""


def test_links_are_followed_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    for name in ("link/x", "there/../link", "link", "link/", "missing/x", "."):
        path = f"{tmp_path}/{name}"
        assert resolve_links(path) == os.path.realpath(path)
    assert resolve_links("/" + "a" * 70_000) == "/" + "a" * 70_000


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/none", "{here}", "{here}/", "{here}/file", "{here}/none", "{here}/none/deep"),
        *(
            "{here}/link",
            "{here}/link/x",
            "{here}/link/none/x",
            "{here}/link/../file",
            "{here}/./a",
        ),
        *("{here}//file", "{here}/loop", "{here}/loop/x", "{here}/dangling", "{here}/dangling/x"),
        *("{here}/root/etc", "{here}/file/x", "{here}/.hidden", "{here}/link/back/link/x"),
    ],
)
def test_links_are_followed_as_python_does(here: Path, path: str) -> None:
    (here / "far/away").mkdir(parents=True)
    (here / "far/away/x").touch()
    (here / "far/away/back").symlink_to(here)
    (here / "file").touch()
    (here / "link").symlink_to("far/away")
    (here / "loop").symlink_to("loop")
    (here / "dangling").symlink_to("nothing")
    (here / "root").symlink_to("/")
    place = path.format(here=here)
    assert resolve_links(place) == os.path.realpath(place)
    with cached_lookups():
        assert [resolve_links(place) for _ in range(2)] == [os.path.realpath(place)] * 2


def test_what_no_system_opens_is_not_followed(here: Path) -> None:
    assert resolve_links("/a" * 30_000) == "/a" * 30_000
    assert resolve_links(f"{here}/{'x/../' * 30_000}y") == f"{here}/y"
    with pytest.raises(ValueError, match="null"):
        resolve_links(f"{here}/a\0b")


def test_a_verdict_is_about_one_state_of_the_files(here: Path) -> None:
    for name in ("one", "two"):
        (here / name).mkdir()
    link = here / "link"
    link.symlink_to("one")
    with cached_lookups():
        assert resolve_links(f"{link}/x") == f"{here}/one/x"
        link.unlink()
        link.symlink_to("two")
        assert resolve_links(f"{link}/y") == f"{here}/one/y"
    assert resolve_links(f"{link}/y") == f"{here}/two/y"
    with cached_lookups():
        assert resolve_links(f"{link}/y") == f"{here}/two/y"

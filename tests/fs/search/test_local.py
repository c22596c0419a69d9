"""Searching this machine's files, with ripgrep and with Python."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fs.tricks import swapping
from tests.lacking import lack, needs
from tests.scale import scaled

from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import Find, Grep, Searched, SearchResult, Start
from clawkit.fs.search import engines
from clawkit.fs.search.local import LocalSearch
from clawkit.process import landlock

Make = Callable[..., LocalSearch]

held = needs(landlock.available(), "Landlock")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace, and a directory beside it."""
    place = tmp_path / "root"
    for path, text in {
        "a.txt": "alpha\nbeta\ngamma\n",
        "src/main.py": "import os\nprint('beta')\n",
        "src/deep/util.py": "beta = 1\n",
        "src/deep/skipped.log": "beta\n",
        ".hidden/notes.md": "beta\n",
        ".git/config": "beta\n",
        "sub/.git": "gitdir: beta\n",
        "build/out.txt": "beta\n",
    }.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    (place / ".gitignore").write_text("build/\n*.log\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("SECRET beta\n")
    return place


@pytest.fixture(params=["ripgrep", "python"])
def make(request: pytest.FixtureRequest, place: Path) -> Make:
    """Makes searches of the place, with each of the programs."""
    engine = request.param
    if engine == "ripgrep" and not landlock.available():
        lack("ripgrep cannot be held here")

    def search(**options: object) -> LocalSearch:
        files = LocalFileSystem(str(place))
        return LocalSearch(files, str(place), use_landlock=engine == "ripgrep", **options)  # type: ignore[arg-type]

    return search


def paths(found: SearchResult) -> list[str]:
    return [each.path for each in found.hits]


async def test_hits_are_in_order_of_path_and_line(make: Make) -> None:
    found = await make().grep(Grep("beta|gamma"))
    assert [(each.path, [line.number for line in each.lines]) for each in found.hits] == [
        (".hidden/notes.md", [1]),
        ("a.txt", [2, 3]),
        ("src/deep/util.py", [1]),
        ("src/main.py", [2]),
    ]
    assert (found.total, found.stopped) == (5, "")


async def test_a_search_can_return_only_files_or_counts(make: Make) -> None:
    files = await make().grep(Grep("[bg]a|beta", path="a.txt", output="files"))
    assert [(each.path, each.lines) for each in files.hits] == [("a.txt", ())]
    counts = await make().grep(Grep("a", globs=("*.txt", "*.md"), output="count"))
    assert [(each.path, each.matches) for each in counts.hits] == [
        (".hidden/notes.md", 1),
        ("a.txt", 3),
    ]
    assert counts.total == 2


async def test_ignored_files_are_searched_only_when_asked_for(make: Make) -> None:
    assert "build/out.txt" not in paths(await make().grep(Grep("beta")))
    found = paths(await make().grep(Grep("beta", ignored=True)))
    assert {"build/out.txt", "src/deep/skipped.log"} <= {*found}
    assert not any(".git" in path for path in found)


async def test_a_glob_does_not_bring_ignored_files_back(make: Make) -> None:
    for glob in ("*.log", "src/**/*.log", "build/*", "build/out.txt", ".git/*", "**/.git"):
        assert paths(await make().grep(Grep("beta", globs=(glob,)))) == []
        assert (await make().find(Find(glob))).paths == ()


async def test_an_ignore_file_cannot_bring_git_back(make: Make, place: Path) -> None:
    (place / ".ignore").write_text("!.git\n!.git/config\n")
    assert not any(".git" in path for path in paths(await make().grep(Grep("beta"))))


async def test_git_can_be_searched_by_its_own_path(make: Make) -> None:
    assert paths(await make().grep(Grep("beta", path=".git"))) == [".git/config"]
    assert paths(await make().grep(Grep("beta", path="sub/.git"))) == ["sub/.git"]


@held
async def test_ignore_files_further_up_count_as_far_as_the_root(place: Path) -> None:
    search = LocalSearch(LocalFileSystem(str(place)), str(place))
    (place.parent / ".gitignore").write_text("*.py\n")
    found = await search.grep(Grep("beta", path="src/deep"))
    assert paths(found) == ["src/deep/util.py"]


async def test_a_broken_ignore_file_does_not_break_the_search(make: Make, place: Path) -> None:
    (place / ".ignore").write_text("x{\n[\n")
    (place / "src" / ".gitignore").write_text("**x{\n")
    for path in (".", "src", "src/deep"):
        assert "src/deep/util.py" in paths(await make().grep(Grep("beta", path=path)))


async def test_a_file_is_searched_whatever_ignores_it_and_whatever_the_glob(make: Make) -> None:
    found = await make().grep(Grep("beta", path="build/out.txt", globs=("*.py", "src/*.py")))
    assert paths(found) == ["build/out.txt"]


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (("*.py",), ["src/deep/util.py", "src/main.py"]),
        (("src/*.py",), ["src/main.py"]),
        (("**/deep/*.py", "*.txt"), ["a.txt", "src/deep/util.py"]),
        (("!deep",), [".hidden/notes.md", "a.txt", "src/main.py"]),
        (("*.py", "!main.*"), ["src/deep/util.py"]),
        (("!/src/deep",), [".hidden/notes.md", "a.txt", "src/main.py"]),
        (("[a]?txt",), ["a.txt"]),
    ],
)
async def test_globs_choose_files(make: Make, globs: tuple[str, ...], expected: list[str]) -> None:
    assert paths(await make().grep(Grep("beta", globs=globs))) == expected


async def test_globs_start_at_the_directory_that_is_searched(make: Make, place: Path) -> None:
    for glob in ("deep/*.py", f"{place}/src/deep/*.py"):
        found = await make().grep(Grep("beta", path="src", globs=(glob,)))
        assert paths(found) == ["src/deep/util.py"]


async def test_a_type_and_a_glob_must_both_fit(make: Make) -> None:
    search = make()
    assert paths(await search.grep(Grep("beta", type="py"))) == ["src/deep/util.py", "src/main.py"]
    assert paths(await search.grep(Grep("beta", type="py", globs=("m*",)))) == ["src/main.py"]
    assert paths(await search.grep(Grep("beta", type="md", globs=("*.py",)))) == []
    with pytest.raises(ToolInputError, match="unknown file type 'pyth'; did you mean"):
        await search.grep(Grep("beta", type="pyth"))


async def test_letters_literals_and_lines(make: Make, place: Path) -> None:
    (place / "t.txt").write_text("Beta(1)\nx.y\nxzy\n")
    search = make()
    assert paths(await search.grep(Grep("BETA", ignore_case=True, globs=("t.txt",)))) == ["t.txt"]
    assert paths(await search.grep(Grep("BETA"))) == []
    found = await search.grep(Grep("x.y", literal=True, path="t.txt"))
    assert [line.number for line in found.hits[0].lines] == [2]
    found = await search.grep(Grep(r"\(1\).*zy", multiline=True, path="t.txt"))
    assert [line.number for line in found.hits[0].lines] == [1, 2, 3]


@held
@pytest.mark.parametrize(("pattern", "number"), [("two$", 2), ("three$", 3), (r"\r$", 2)])
async def test_a_line_ends_before_either_kind_of_line_end(
    place: Path, pattern: str, number: int
) -> None:
    (place / "dos.txt").write_bytes(b"one\ntwo\r\nthree")
    search = LocalSearch(LocalFileSystem(str(place)), str(place))
    found = await search.grep(Grep(pattern, path="dos.txt"))
    assert [line.number for line in found.hits[0].lines] == [number]


@pytest.mark.parametrize("pattern", ["-v", "--files", "-e", "--pre=/bin/sh", "--", "-"])
async def test_patterns_are_never_read_as_options(make: Make, place: Path, pattern: str) -> None:
    (place / "options.txt").write_text(f"x\n{pattern} x\n")
    found = await make().grep(Grep(pattern, path="options.txt"))
    assert [line.number for line in found.hits[0].lines] == [2]


async def test_names_are_never_read_as_options(make: Make, place: Path) -> None:
    (place / "--files").write_text("beta\n")
    assert paths(await make().grep(Grep("beta", path="--files"))) == ["--files"]
    assert (await make().find(Find("--files"))).paths == ("--files",)


@pytest.mark.parametrize("pattern", ["a(", "[z-a]", "a{2,1}", "(?P<a", "\ud800", "a\0b"])
async def test_a_pattern_that_cannot_be_used_is_the_callers_mistake(
    make: Make, pattern: str
) -> None:
    with pytest.raises(ToolInputError, match="pattern"):
        await make().grep(Grep(pattern))


async def test_the_lines_around_a_match_come_along(make: Make) -> None:
    found = await make().grep(Grep("beta", context=1, path="a.txt"))
    assert [(line.number, line.is_match) for line in found.hits[0].lines] == [
        (1, False),
        (2, True),
        (3, False),
    ]


async def test_paths_are_those_that_the_file_tools_take(make: Make, place: Path) -> None:
    (place / "~").mkdir()
    (place / "~" / "f").write_text("beta\n")
    (place / "file:x").write_text("beta\n")
    (place / "link").symlink_to("src/deep")
    files = LocalFileSystem(str(place))
    found = paths(await make().grep(Grep("beta")))
    assert {"./~/f", "./file:x"} <= {*found}
    found += paths(await make().grep(Grep("beta", path="link")))
    assert found[-1] == "src/deep/util.py"
    for path in found:
        async with files.open(path) as file:
            assert b"beta" in await file.read(100, 0)


@held
async def test_matches_outside_the_workspace_have_absolute_paths(
    place: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    files = LocalFileSystem(str(place), read_roots=[str(outside)])
    search = LocalSearch(files, str(place))
    assert paths(await search.grep(Grep("beta", path=str(outside)))) == [f"{outside}/f"]
    with pytest.raises(ToolAuthorizationError):
        await search.grep(Grep("beta", path="/etc"))


async def test_links_are_never_followed(make: Make, place: Path, tmp_path: Path) -> None:
    (place / "out").symlink_to(tmp_path / "outside")
    (place / "file").symlink_to(tmp_path / "outside" / "f")
    (place / "round").symlink_to(place)
    assert paths(await make().grep(Grep("SECRET", ignored=True))) == []
    assert not any("out/" in path for path in (await make().find(Find("*"))).paths)
    for path in ("out", "file", "..", "/etc/passwd", "nowhere"):
        with pytest.raises((ToolAuthorizationError, NotFoundError)):
            await make().grep(Grep("SECRET", path=path))


async def test_files_with_several_hard_links_are_not_searched(
    make: Make, place: Path, tmp_path: Path
) -> None:
    os.link(tmp_path / "outside" / "f", place / "hard")
    for output in ("content", "files", "count"):
        found = await make().grep(Grep("SECRET", output=output))
        assert (paths(found), found.total) == ([], 0)
        assert found.searched is not None
        assert found.searched.linked == 1
        # Nothing tells whether the pattern was in it.
        assert found == await make().grep(Grep("NOT THERE", output=output))
    assert paths(await make(hard_links=True).grep(Grep("SECRET"))) == ["hard"]
    with pytest.raises(ToolAuthorizationError, match="hard links"):
        await make().grep(Grep("SECRET", path="hard"))


async def test_files_that_may_not_be_shown_are_left_out_without_a_trace(make: Make) -> None:
    def admit(path: str) -> bool:
        return not path.startswith("src/")

    found = await make().grep(Grep("beta"), admit)
    assert (paths(found), found.total) == ([".hidden/notes.md", "a.txt"], 2)
    secret = await make().grep(Grep("import"), admit)
    assert secret == await make().grep(Grep("nowhere"), admit)
    assert secret.searched is not None
    assert secret.searched.refused == 2
    every = (await make().find(Find("*"), admit)).paths
    assert "src/main.py" not in every
    # They take no place of those that may be shown, either.
    few = await make().find(Find("*", limit=2), lambda path: path != every[0])
    assert few.paths == every[1:3]


async def test_a_search_without_matches_reports_what_was_searched(make: Make) -> None:
    found = await make().grep(Grep("nowhere", globs=("*.txt",)))
    assert found.searched == Searched(1, 0, 0, True)
    assert (await make().grep(Grep("beta", globs=("*.xyz",)))).searched == Searched(0, 0, 0, True)
    assert (await make().grep(Grep("nowhere", path="a.txt"))).searched is None


async def test_without_a_limit_everything_can_be_searched(place: Path, tmp_path: Path) -> None:
    os.link(tmp_path / "outside" / "f", place / "hard")
    search = LocalSearch(LocalFileSystem(str(place), workspace_only=False), str(place))
    found = await search.grep(Grep("SECRET", path=str(tmp_path)))
    assert paths(found) == [f"{tmp_path}/outside/f", "hard"] or paths(found) == [
        f"{tmp_path}/outside/f",
        f"{place}/hard",
    ]
    assert found.engine == "ripgrep"


async def test_without_landlock_ripgrep_is_not_used(place: Path) -> None:
    search = LocalSearch(LocalFileSystem(str(place)), str(place), use_landlock=False)
    assert (await search.grep(Grep("beta"))).engine == "python"
    assert (await search.find(Find("*"))).engine == "python"


@held
async def test_a_configured_program_that_is_missing_is_an_error(place: Path) -> None:
    search = LocalSearch(LocalFileSystem(str(place)), str(place), ripgrep="/nowhere/rg")
    with pytest.raises(ToolError, match=r"tools\.fs\.ripgrep"):
        await search.grep(Grep("beta"))


async def test_many_matches_stop_the_search(make: Make, place: Path) -> None:
    (place / "many").write_text("line\n" * 5_000)
    found = await make().grep(Grep("line", limit=3))
    assert [line.number for line in found.hits[0].lines] == [1, 2, 3]
    assert (found.total, found.stopped) == (1_000, "enough")
    (place / "many").write_text("line\n" * 999)
    found = await make().grep(Grep("line", limit=3))
    assert (found.total, found.stopped) == (999, "")


async def test_a_binary_file_named_in_the_call_is_reported(make: Make, place: Path) -> None:
    (place / "blob").write_bytes(b"a\0beta\n")
    found = await make().grep(Grep("beta", path="blob"))
    assert found.hits == ()
    assert found.binary is (found.engine == "ripgrep")
    assert "blob" not in paths(await make().grep(Grep("beta")))


@held
async def test_a_file_that_turns_binary_does_not_confuse_the_names(place: Path) -> None:
    for number in range(20):
        (place / f"late{number}").write_bytes(b"beta\n" + b"x\n" * 100_000 + b"\0\n")
    search = LocalSearch(LocalFileSystem(str(place)), str(place))
    found = await search.grep(Grep("beta", globs=("late*", "*.py"), context=1))
    expected = [*sorted(f"late{n}" for n in range(20)), "src/deep/util.py", "src/main.py"]
    assert paths(found) == expected


class Plain:
    """Lets searches begin wherever they like; what they may read is another matter."""

    def __init__(self, place: Path, readable: tuple[str, ...] | None = None) -> None:
        self.place = place
        self.readable = readable

    def start(self, path: str) -> Start:
        name = "" if path == "." else path
        return Start(os.open(self.place, os.O_PATH | os.O_DIRECTORY), str(self.place), name)


@held
async def test_an_unreadable_path_is_an_error(place: Path) -> None:
    search = LocalSearch(Plain(place, (str(place / "src"),)), str(place))
    for path in (".", "a.txt"):
        with pytest.raises(ToolInputError, match="cannot be read: Permission denied"):
            await search.grep(Grep("beta", path=path))
    with pytest.raises(ToolInputError, match="cannot be read: Permission denied"):
        await search.find(Find("*"))


@held
async def test_files_that_cannot_be_opened_are_counted(place: Path) -> None:
    below = os.open(place, os.O_PATH | os.O_DIRECTORY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=below)
        above, below = below, os.open("d" * 250, os.O_PATH | os.O_DIRECTORY, dir_fd=below)
        os.close(above)
    os.close(below)
    found = await LocalSearch(LocalFileSystem(str(place)), str(place)).grep(Grep("beta"))
    assert (found.unread, found.total) == (1, 4)


@pytest.fixture
def waiting(place: Path) -> Plain:
    """A named pipe for a file, so that whoever reads it waits."""
    os.mkfifo(place / "pipe")
    return Plain(place)


def children() -> list[str]:
    """What this program started and has not seen the end of."""
    listed = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,comm="], capture_output=True, text=True
    ).stdout.splitlines()
    return [line for line in listed if "ps" not in line.split()]


async def wait_for_children(wanted: bool) -> None:
    while bool(children()) is not wanted:
        await asyncio.sleep(0.02)


async def test_a_search_ends_with_its_time(place: Path, waiting: Plain) -> None:
    search = LocalSearch(waiting, str(place), timeout_s=0.2)
    found = await search.grep(Grep("beta", path="pipe"))
    assert (found.hits, found.stopped) == ((), "time")
    assert children() == []


async def test_a_cancelled_search_takes_its_program_along(place: Path, waiting: Plain) -> None:
    search = LocalSearch(waiting, str(place))
    task = asyncio.create_task(search.grep(Grep("beta", path="pipe")))
    await wait_for_children(True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_for_children(False)


async def test_a_runaway_expression_ends_at_the_timeout(place: Path) -> None:
    (place / "a.txt").write_text("a" * 60 + "\n")
    files = LocalFileSystem(str(place))
    search = LocalSearch(files, str(place), use_landlock=False, timeout_s=1.0)
    found = await search.grep(Grep("(a|a)*(a|a)*(a|a)*b", path="a.txt"))
    assert (found.hits, found.engine, found.stopped) == ((), "python", "time")
    assert children() == []


async def test_a_crash_of_the_search_program_is_an_error(place: Path, waiting: Plain) -> None:
    search = LocalSearch(waiting, str(place))
    task = asyncio.create_task(search.grep(Grep("beta", path="pipe")))
    await wait_for_children(True)
    (child,) = children()
    os.kill(int(child.split()[0]), 9)
    assert (await task).stopped == "failed"


async def test_no_handle_is_left_open(make: Make, place: Path) -> None:
    search = make()
    await search.grep(Grep("beta"))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for query in (Grep("beta"), Grep("a("), Grep("beta", type="no"), Grep("x", path="a.txt")):
        try:
            await search.grep(query)
        except ToolInputError:
            continue
    await search.find(Find("*"))
    with pytest.raises(ToolInputError):
        await search.find(Find("*", path="a.txt"))
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.long
async def test_nothing_outside_is_found_while_directories_are_swapped(
    make: Make, place: Path
) -> None:
    (place / "dir").mkdir()
    (place / "dir" / "f").write_text("inside\n")
    search = make()
    is_fast = (await search.find(Find("x"))).engine == "ripgrep"
    tries = scaled(200, 50) if is_fast else scaled(20, 10)
    seen = set()
    with swapping(place):
        for number in range(tries):
            query = Grep("inside|SECRET", path="dir" if number % 2 else ".", ignored=True)
            try:
                found = await search.grep(query)
            except ToolInputError:
                continue
            seen |= {line.text for each in found.hits for line in each.lines}
    assert seen <= {b"inside", b"inside\r"}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ("src/deep/util.py", "src/main.py")),
        ("src/*.py", ("src/main.py",)),
        ("src/**/*.py", ("src/deep/util.py", "src/main.py")),
        ("**/util*", ("src/deep/util.py",)),
        ("./*.txt", ("a.txt",)),
        ("{main,util}.py", ("src/deep/util.py", "src/main.py")),
        ("src/", ("src/deep/util.py", "src/main.py")),
        ("[!a].txt", ()),
        ("util.py", ("src/deep/util.py",)),
        ("MAIN.py", ()),
    ],
)
async def test_patterns_find_files(make: Make, pattern: str, expected: tuple[str, ...]) -> None:
    found = await make().find(Find(pattern))
    assert (found.paths, found.total, found.stopped) == (expected, len(expected), "")


async def test_the_directory_may_be_named_in_the_path_or_in_the_pattern(
    make: Make, place: Path
) -> None:
    for query in (
        Find("*.py", path="src/deep"),
        Find(f"{place}/src/deep/*"),
        Find("src/deep/**"),
        Find("deep/*.py", path="src"),
    ):
        assert (await make().find(query)).paths == ("src/deep/util.py",)
    with pytest.raises(ToolInputError, match="not below"):
        await make().find(Find("/etc/*"))
    with pytest.raises(ToolInputError, match="is a file"):
        await make().find(Find("*", path="a.txt"))


async def test_directories_can_be_found_by_the_files_in_them(make: Make, place: Path) -> None:
    (place / "empty").mkdir()
    found = await make().find(Find("*", kind="directory"))
    assert found.paths == (".hidden", "src", "src/deep")
    assert (await make().find(Find("deep/", kind="directory"))).paths == ("src/deep",)
    assert (await make().find(Find("src/*", kind="directory"))).paths == ("src/deep",)


async def test_results_by_time_begin_with_the_latest_change(make: Make, place: Path) -> None:
    os.utime(place / "src" / "main.py", (2_000_000_000, 2_000_000_000))
    os.utime(place / "src" / "deep" / "util.py", (1_000, 1_000))
    found = await make().find(Find("*.{py,txt}", sort="time"))
    assert found.paths == ("src/main.py", "a.txt", "src/deep/util.py")


async def test_ignored_files_are_found_only_when_asked_for(make: Make) -> None:
    assert (await make().find(Find("out.txt"))).paths == ()
    assert (await make().find(Find("out.txt", ignored=True))).paths == ("build/out.txt",)


async def test_names_that_are_not_text_are_found(make: Make, place: Path) -> None:
    raw = os.fsencode(place) + b"/odd\xff\n name"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    with open(raw, "wb") as file:
        file.write(b"beta\n")
    assert (await make().find(Find("odd*"))).paths == ("odd\udcff\n name",)
    assert "odd\udcff\n name" in paths(await make().grep(Grep("beta")))


async def test_searches_can_run_side_by_side(make: Make) -> None:
    search = make()
    queries = [Grep("beta"), Grep("gamma"), Grep("import")]
    found = await asyncio.gather(*(search.grep(query) for query in queries))
    assert [each.total for each in found] == [4, 1, 1]


async def test_long_patterns_and_many_globs_are_accepted(make: Make) -> None:
    globs = tuple(f"!{'😀' * 200}{number}" for number in range(50))
    found = await make().grep(Grep(f"beta|{'😀' * 9_000}", globs=globs))
    assert (found.total, found.stopped) == (4, "")


async def test_a_failed_search_is_not_reported_as_no_matches(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "MAX_MEMORY", 64 * 1024 * 1024)
    # More lines than it has the memory for.
    (place / "a.txt").write_bytes(b"beta\n" + b"\n" * 16 * 1024 * 1024)
    search = LocalSearch(LocalFileSystem(str(place)), str(place), use_landlock=False)
    found = await search.grep(Grep(r"beta\n", path="a.txt", multiline=True))
    assert (found.hits, found.engine, found.stopped) == ((), "python", "failed")


@pytest.mark.parametrize(
    ("hidden", "found"),
    [("src/deep", 3), ("src/deep/..", 2), (".", 0), ("..", 0), ("../outside", 4)],
)
async def test_nothing_in_hidden_directories_is_found(
    make: Make, place: Path, hidden: str, found: int
) -> None:
    search = make(hidden=[str(place / hidden)])
    assert len((await search.grep(Grep("beta", output="files"))).hits) == found

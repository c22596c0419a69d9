"""`clawkit memory` as a person or a program types it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs
from tests.agent.talking import store_of_home
from tests.cli.asking import PROGRAM

from clawkit.cli.main import run
from clawkit.content import Text, User
from clawkit.memory.index import MemoryIndex
from clawkit.memory.orphaned_indexes import find_orphans, remove_index
from clawkit.process import process_table

NOTE = "# Memory\n\n- Ada prefers green tea.\n- The backup runs at three.\n"


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Type = Callable[..., Done]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], workspace: Path) -> Type:
    """Run `clawkit memory …` in this process, for the workspace."""

    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["memory", *args, "--workspace", str(workspace)])
        out, err = capsys.readouterr()
        assert "unexpected" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


@pytest.fixture
def note(workspace: Path) -> Path:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "day.md").write_text("We chose SQLite.\n")
    file = workspace / "MEMORY.md"
    file.write_text(NOTE)
    return file


def configure(config: dict[str, Any]) -> None:
    home = Path(os.environ["CLAWKIT_HOME"])
    home.mkdir(0o700, parents=True, exist_ok=True)
    (home / "clawkit.json5").write_text(json.dumps(config))
    (home / "clawkit.json5").chmod(0o600)


def test_status_and_index_show_what_is_indexed(typed: Type, note: Path, workspace: Path) -> None:
    done = typed("status")
    assert (done.code, done.err) == (0, "")
    assert f"notes in  {workspace}\n" in done.out
    assert "pending   2 files; a search indexes them" in done.out
    made = typed("index", "--json")
    assert (made.code, made.err) == (0, "")
    assert made.json["files"] == 2
    assert made.json["pending"] == 0
    assert "pending" not in typed("status").out
    shown = typed("status", "--json").json
    assert shown.pop("sizeBytes") > 0
    assert shown == {
        "path": made.json["path"],
        "roots": [str(workspace)],
        "files": 2,
        "chunks": 2,
        "embedded": 0,
        "pending": 0,
        "provider": None,
        "model": None,
        "problems": [],
        "error": None,
    }
    again = typed("index", "--rebuild")
    assert "indexed   2 files, 2 passages\n" in again.out
    assert "search    keywords only\n" in again.out


def test_places_of_notes_are_listed_as_configured(
    typed: Type, note: Path, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "plan.md").write_text("Plan.\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "one.md").write_text("One.\n")
    extra = ["docs", "plan.md", ".", str(tmp_path / "other"), str(tmp_path / "other" / "one.md")]
    configure({"memory": {"search": {"extraPaths": extra}}})
    done = typed("status")
    listed = [line.removeprefix("notes in  ") for line in done.out.splitlines() if "in  " in line]
    assert listed == [
        str(workspace),
        f"{workspace}/docs (does not exist)",
        f"{workspace}/plan.md",
        str(workspace),
        f"{tmp_path}/other",
        f"{tmp_path}/other/one.md",
    ]


def test_problems_are_listed(typed: Type, note: Path, workspace: Path) -> None:
    for number in range(25):
        (workspace / "memory" / f"{number}.md").symlink_to("/etc/passwd")
    done = typed("index")
    assert done.code == 1
    assert done.out.count("problem   memory/") == 20
    assert "… and 5 more; --json lists all." in done.out
    assert len(typed("index", "--json").json["problems"]) == 25


def test_a_search_shows_passages(typed: Type, note: Path) -> None:
    done = typed("search", "what", "does", "Ada", "prefer?")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("MEMORY.md:1-4  1.00\n  # Memory\n")
    found = typed("search", "SQLite", "--json").json
    assert (found["mode"], found["warning"]) == ("keyword", None)
    [row] = found["results"]
    assert (row["path"], row["startLine"], row["source"]) == ("memory/day.md", 1, "memory")
    both = ("search", "tea or SQLite", "--json")
    assert len(typed(*both).json["results"]) == 2
    assert len(typed(*both, "--max-results", "1").json["results"]) == 1
    assert len(typed(*both, "--min-score", "1").json["results"]) < 2
    assert typed("search", "unheard-of").out == "Nothing found.\n"
    assert typed("search").code == 2
    assert typed("search", " ").code == 2


def test_a_search_without_notes_says_where_they_would_be(typed: Type, workspace: Path) -> None:
    configure({"memory": {"search": {"extraPaths": [str(workspace.parent / "none")]}}})
    places = f"{workspace}, {workspace.parent / 'none'}"
    assert typed("search", "tea").out == f"There are no notes in {places}.\n"
    assert f"notes in  {workspace.parent / 'none'} (does not exist)\n" in typed("status").out


def test_sessions_are_searched_if_they_are_indexed(typed: Type, workspace: Path) -> None:
    store = store_of_home()
    made = store.create("main", workspace=str(workspace), model="a/b", name="work")
    store.append(made.id, User((Text("the tea is in the cupboard"),)))
    store.close()
    none = typed("search", "cupboard", "--corpus", "sessions", "--json").json
    assert none["results"] == []
    assert none["warning"].startswith("past sessions are not indexed: memory.search.sources")
    configure({"memory": {"search": {"sources": ["memory", "sessions"]}}})
    done = typed("search", "cupboard", "--corpus", "sessions")
    assert f"sessions/{made.id}:1-1" in done.out
    assert typed("show", f"sessions/{made.id}").out == "person: the tea is in the cupboard\n"
    refused = typed("forget", f"sessions/{made.id}", "--yes")
    assert refused.code == 2
    assert "clawkit sessions delete" in refused.err


def test_a_note_is_shown(typed: Type, note: Path) -> None:
    assert typed("show", "MEMORY.md").out == NOTE
    some = typed("show", "MEMORY.md", "--from", "3", "--lines", "1")
    assert some.out == "- Ada prefers green tea.\n"
    assert "--from 4 continues" in some.err
    shown = typed("show", "MEMORY.md", "--lines", "1", "--json").json
    assert shown == {"path": "MEMORY.md", "from": 1, "lines": 1, "text": "# Memory", "nextFrom": 2}
    # As a search names it.
    assert typed("show", "MEMORY.md:3").out == "- Ada prefers green tea.\n"
    assert typed("show", "MEMORY.md:1-4").out == NOTE
    for more in (("--from", "2"), ("--lines", "1")):
        both = typed("show", "MEMORY.md:1-4", *more)
        assert (both.code, "leave out --from and --lines" in both.err) == (2, True)
    assert "invalid lines '4-1'" in typed("show", "MEMORY.md:4-1").err
    beyond = typed("show", "MEMORY.md:9")
    assert (beyond.code, beyond.err) == (2, "clawkit: MEMORY.md has no line 9\n")
    missing = typed("show", "memory/none.md")
    assert (missing.code, missing.err) == (2, "clawkit: there is no note 'memory/none.md'\n")
    for typo, meant in (("MEMROY.md", "MEMORY.md"), ("memory/dy.md:1", "memory/day.md")):
        missing = typed("show", typo)
        assert (missing.code, f"Did you mean {meant!r}?" in missing.err) == (2, True), missing.err
    assert typed("show", "/etc/hostname").code == 3
    (note.parent / "a.txt").write_text("other\n")
    other = typed("show", "a.txt")
    assert other.code == 3
    assert "not an allowed Markdown memory file" in other.err


def test_lines_and_notes_are_forgotten(typed: Type, note: Path, workspace: Path) -> None:
    note.chmod(0o644)
    assert typed("search", "backup", "--json").json["results"]
    done = typed("forget", "MEMORY.md:4", "--yes")
    assert (done.code, done.err) == (0, "removed 1 line of MEMORY.md\n")
    assert note.read_text() == "# Memory\n\n- Ada prefers green tea.\n"
    assert note.stat().st_mode & 0o777 == 0o644
    # Not even by reading the files of the index.
    assert typed("search", "backup", "--json").json["results"] == []
    done = typed("forget", "MEMORY.md:1-2", "--yes", "--json")
    assert done.json == {"path": "MEMORY.md", "lines": 2, "deleted": False}
    assert note.read_text() == "- Ada prefers green tea.\n"
    done = typed("forget", "memory/day.md", "--yes")
    assert (done.code, done.err) == (0, "removed the note memory/day.md\n")
    assert not (workspace / "memory" / "day.md").exists()


def test_what_cannot_be_forgotten(typed: Type, note: Path, tmp_path: Path) -> None:
    (note.parent / "a.txt").write_text("other\n")
    outside = tmp_path / "outside.md"
    outside.write_text("mine\n")
    configure({"memory": {"search": {"extraPaths": [str(outside)]}}})
    for what, code, why in (
        ("MEMORY.md:9", 2, "MEMORY.md has only 4 lines"),
        ("MEMORY.md:0", 2, "invalid lines '0'"),
        ("MEMORY.md:3-2", 2, "invalid lines '3-2'"),
        ("memory/none.md", 2, "there is no note"),
        ("a.txt", 3, "not an allowed Markdown memory file"),
        (str(outside), 3, "outside"),
    ):
        done = typed("forget", what, "--yes")
        assert (done.code, why in done.err) == (code, True), done.err
    # Without a terminal nobody can confirm it.
    refused = typed("forget", "MEMORY.md:3")
    assert (refused.code, "nothing was removed; add --yes" in refused.err) == (2, True)
    assert refused.err.startswith("  - Ada prefers green tea.\n")
    assert (note.read_text(), outside.read_text()) == (NOTE, "mine\n")


def test_a_command_of_an_agent_makes_it_forget_nothing(
    typed: Type, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    done = typed("forget", "MEMORY.md", "--yes")
    assert done.code == 3
    assert note.read_text() == NOTE


def test_status_reports_disabled_memory(typed: Type, note: Path) -> None:
    configure({"memory": {"search": {"enabled": False}}})
    assert "does not use its memory" in typed("search", "tea").err
    assert typed("status", "--agent", "main").code == 0


async def test_forget_and_index_show_their_progress(note: Path, workspace: Path) -> None:
    async def at_terminal(*args: str, answer: bytes) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "memory", *args, "--workspace", str(workspace),
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        while True:
            try:
                piece = await asyncio.to_thread(os.read, ours, 65_536)
            except OSError:
                break
            if not piece:
                break
            said += piece
        os.close(ours)
        return await process.wait(), said.decode()

    code, said = await at_terminal("forget", "MEMORY.md:3-4", answer=b"n\n")
    assert code == 3
    assert "- Ada prefers green tea." in said
    assert "Remove these lines permanently?" in said
    assert note.read_text() == NOTE
    code, said = await at_terminal("index", "--rebuild", answer=b"")
    assert code == 0
    assert "indexed 2 of 2 files" in said
    code, said = await at_terminal("forget", "MEMORY.md", answer=b"y\n")
    assert code == 0
    assert not note.exists()


async def test_ctrl_c_stops_indexing_and_what_is_there_can_be_used(workspace: Path) -> None:
    (workspace / "memory").mkdir()
    for number in range(1_500):
        (workspace / "memory" / f"{number}.md").write_text(f"note {number} about tea\n" * 200)
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "memory", "index", "--workspace", str(workspace),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    folder = Path(os.environ["CLAWKIT_HOME"]) / "memory"
    while process.returncode is None and not any(folder.glob("*.sqlite")):
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert b"Traceback" not in err
    left = {each.suffix for each in folder.iterdir()}
    assert left <= {".sqlite", ".sqlite-wal", ".sqlite-shm", ".lock"}
    again = await asyncio.create_subprocess_exec(
        *PROGRAM, "memory", "status", "--workspace", str(workspace), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await again.communicate()
    assert again.returncode == 0
    assert b"indexed" in out


def test_indexes_of_workspaces_that_are_gone_are_removed_if_asked(
    note: Path, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run([*args])
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    assert type_in("memory", "prune").err == "removed 0 indexes, 0 B\n"
    folder = Path(os.environ["CLAWKIT_HOME"], "memory")
    places = [tmp_path / "mounted", tmp_path / os.fsdecode(b"gone\xff")]
    for place in (*places, workspace):
        place.mkdir(exist_ok=True)
        (place / "MEMORY.md").write_text("tea\n")
        assert type_in("memory", "index", "--workspace", str(place)).code == 0
    kept = json.loads(type_in("memory", "status", "--json", "--workspace", str(workspace)).out)
    # An older one, which does not say whose it is, and one that cannot be read.
    (folder / "main-000000000000.sqlite").write_bytes(b"not a database" * 100)
    (folder / "main-000000000000.sqlite").chmod(0o600)
    assert "do not exist" not in type_in("doctor", "--workspace", str(workspace)).out
    for place in places:
        place.rename(f"{place}-elsewhere")
    files = {*folder.iterdir()}
    for _ in range(2):
        told = type_in("doctor", "--fix", "--workspace", str(workspace)).out
        assert re.search(r"warn +2 indexes \(\S+ KB\) of workspaces that do not exist: ", told)
        assert str(places[0]) in told
        assert "clawkit memory prune, unless they are on an unmounted disk" in told
        assert {*folder.iterdir()} == files
    refused = type_in("memory", "prune")
    assert (refused.code, "nothing was removed; add --yes" in refused.err) == (2, True)
    assert f"  {places[0]} (" in refused.err
    assert {*folder.iterdir()} == files
    # One that is mounted again is kept.
    (tmp_path / "mounted-elsewhere").rename(places[0])
    done = type_in("memory", "prune", "--yes", "--json").json
    (gone,) = done["removed"]
    assert os.fsencode(gone["workspace"]) == os.fsencode(places[1])
    left = {*folder.iterdir()}
    assert files - left == {Path(gone["path"]), Path(gone["path"] + ".lock")}
    assert Path(kept["path"]) in left
    assert "1 index" not in type_in("doctor", "--workspace", str(workspace)).out


def test_an_index_is_kept_if_its_workspace_comes_back_or_is_unclear(
    note: Path, tmp_path: Path
) -> None:
    folder = Path(os.environ["CLAWKIT_HOME"], "memory")

    def say_whose(value: Any, db: Any) -> None:
        db.execute("INSERT INTO meta VALUES ('workspace', ?)", (value,))

    for at, value in enumerate((b"relative", b"/with\0nul", 7, "", b"/not-there")):
        with closing(MemoryIndex(str(folder / f"main-{at}.sqlite"))) as index:
            index.run(partial(say_whose, value), write=True)
    (found,) = find_orphans(os.environ)
    assert (found.workspace, Path(found.path).name) == ("/not-there", "main-4.sqlite")
    back = structs.replace(found, workspace=str(tmp_path))
    assert (remove_index(back), os.path.exists(found.path)) == (False, True)
    assert (remove_index(found), os.path.exists(found.path)) == (True, False)


def test_ctrl_c_at_the_question_forgets_nothing(note: Path, workspace: Path) -> None:
    ours, theirs = pty.openpty()
    line = [*PROGRAM, "memory", "forget", "MEMORY.md", "--workspace", str(workspace)]
    with subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4_096)
        try:
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                # Before it reads, a signal goes unnoticed; a person presses the keys again.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            assert process.returncode == 130
        finally:
            process.kill()
            os.close(ours)
    assert note.exists()

"""ripgrep: where it is found, and what its complaints mean."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from tests.tables import table

from clawkit.errors import ToolError
from clawkit.fs.protocols import Grep
from clawkit.fs.search.engines import Ended, KillSwitch, Ripgrep, explain, find_ripgrep, run_program

PACKAGED = os.path.realpath(os.path.join(os.path.dirname(sys.executable), "rg"))


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on PATH with another ripgrep in it."""
    place = tmp_path / "bin"
    place.mkdir()
    shutil.copy(PACKAGED, place / "rg")
    monkeypatch.setenv("PATH", f"/nowhere{os.pathsep}{place}")
    return place


def program(found: Ripgrep | None) -> str:
    assert found is not None
    return found.program


def test_ripgrep_on_path_is_preferred_to_the_packaged_one(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program(find_ripgrep(None, ())) == str(other / "rg")
    monkeypatch.setenv("PATH", "/nowhere")
    assert program(find_ripgrep(None, ())) == PACKAGED


def test_the_configured_program_is_preferred_to_all_others(other: Path) -> None:
    assert program(find_ripgrep(PACKAGED, ())) == PACKAGED


def test_a_program_in_the_workspace_is_never_taken_from_path(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program(find_ripgrep(None, (str(other),))) == PACKAGED
    away = tmp_path / "away"
    away.mkdir()
    (away / "rg").symlink_to(other / "rg")
    monkeypatch.setenv("PATH", str(away))
    assert program(find_ripgrep(None, (str(other),))) == PACKAGED


def test_relative_entries_of_path_are_not_followed(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(other)
    monkeypatch.setenv("PATH", os.pathsep.join((".", "", "bin")))
    assert program(find_ripgrep(None, ())) == PACKAGED


@pytest.mark.parametrize(
    "script",
    ["#!/bin/sh\necho ripgrep 15.0.0\n", "#!/bin/sh\necho ripgrep 12.1.0\n", "no program at all"],
)
def test_programs_that_are_not_ripgrep_are_skipped(other: Path, script: str) -> None:
    (other / "rg").write_text(script)
    assert program(find_ripgrep(None, ())) == PACKAGED
    with pytest.raises(ToolError, match=r"tools\.fs\.ripgrep is '.*rg'"):
        find_ripgrep(str(other / "rg"), ())


@pytest.mark.parametrize("path", ["/nowhere/rg", "rg", "bin/rg", "/", "/etc/passwd"])
def test_an_unusable_configured_path_is_reported(other: Path, path: str) -> None:
    with pytest.raises(ToolError, match=r"tools\.fs\.ripgrep"):
        find_ripgrep(path, ())


def test_a_replaced_program_is_checked_again(other: Path) -> None:
    assert program(find_ripgrep(None, ())) == str(other / "rg")
    (other / "rg").unlink()
    (other / "rg").write_text("#!/bin/sh\nexit 1\n")
    (other / "rg").chmod(0o755)
    assert program(find_ripgrep(None, ())) == PACKAGED


def test_a_program_without_libraries_needs_only_itself() -> None:
    found = find_ripgrep(PACKAGED, ())
    assert found is not None
    libraries = [each for each in found.needs if ".so" in each]
    assert found.needs[0] == PACKAGED
    assert all(os.path.isfile(each) for each in libraries)
    assert not any(os.path.isdir(each) for each in found.needs)


@table(
    ("errors", "words"),
    [
        ("rg: regex parse error:\n    (?:a{2)\n        ^^\nerror: unclosed repetition\n",
         "the pattern 'p' cannot be used (character 2): unclosed repetition; literal=true"),
        ("rg: regex parse error:\n    (?:foo()\n    ^\nerror: unclosed group\n",
         "the pattern 'p' cannot be used: unclosed group; literal=true"),
        ("rg: regex parse error:\nwhatever\n", "the pattern 'p' cannot be used: regex parse error"),
        ('rg: the literal "\\n" is not allowed\n\nConsider enabling multiline mode\n',
         "a line break can only match with multiline=true"),
        ("rg: compiled regex exceeds size limit of 10\n", "it is too large"),
        ("rg: error parsing glob '[a': unclosed\n", "error parsing glob '[a': unclosed"),
        ("rg: something else\nand more\n", "cannot be used: something else and more"),
    ],
)  # fmt: skip
def test_complaints_are_made_readable(errors: str, words: str) -> None:
    ripgrep = find_ripgrep(PACKAGED, ())
    assert ripgrep is not None
    assert words in str(explain(errors, Grep("p"), ripgrep))


def test_an_unknown_type_is_an_error_with_suggestions() -> None:
    ripgrep = find_ripgrep(PACKAGED, ())
    assert ripgrep is not None
    error = explain("rg: unrecognized file type: pyt\n", Grep("p", type="pyt"), ripgrep)
    assert str(error).startswith("unknown file type 'pyt'; did you mean 'py'")
    error = explain("rg: unrecognized file type: qqqqq\n", Grep("p", type="qqqqq"), ripgrep)
    assert "'py', 'js', 'ts'" in str(error)


def test_output_that_arrives_bit_by_bit_is_taken_in_few_pieces() -> None:
    script = "import time\nfor _ in range(300):\n    print('.', flush=True)\n    time.sleep(0.001)"
    pieces: list[bytes] = []

    def feed(data: bytes) -> bool:
        pieces.append(data)
        return True

    ended = run_program(
        [sys.executable, "-S", "-c", script],
        cwd="/",
        hold=None,
        feed=feed,
        until=time.monotonic() + 60,
        switch=KillSwitch(),
    )
    assert (b"".join(pieces), ended) == (b".\n" * 300, Ended(0, "", ""))
    assert len(pieces) < 100

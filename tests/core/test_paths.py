"""One reading per path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.core.paths import (
    MAX_PATH,
    CycleError,
    is_below,
    plain_path,
    real_path,
    steps_of,
    strip_mention,
    ways_of,
)
from clawkit.core.tool import ANYTHING, Effect, resolve
from clawkit.errors import ToolInputError


def test_every_spelling_becomes_one_plain_path(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[str, str]] = [
        ("a.txt", "a.txt"),
        ("", ""),
        ("./a", "./a"),
        ("/a/b", "/a/b"),
        ("~", "~"),
        ("~/a", "~/a"),
        ("~root", "./~root"),
        ("~root/a", "./~root/a"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file://LOCALHOST/a", "/a"),
        ("file:a", "a"),
        ("file:~/a", "~/a"),
        ("file:~root/a", "./~root/a"),
        ("file:", ""),
        ("file:///a%20b", "/a b"),
        ("file:///s%65crets/key", "/secrets/key"),
        ("file:///a?b=1", "/a"),
        ("file:///a#part", "/a"),
        ("file:file:///a", "./file:///a"),
        ("file:%66ile:///a", "./file:///a"),
        ("files/a", "files/a"),
        ("b\udcff", "b\udcff"),
    ]
    for written, plain in cases:
        with subtests.test(f"{written!r:.80}"):
            assert plain_path(written) == plain


@table(
    "path",
    [
        "a\0b",
        "\ud800",
        "a" * (MAX_PATH + 1),
        "file://server/share",
        "file:///a%2fb",
        "file:///a%2Fb",
        "file:///a%00b",
        "file://[::1/a",
    ],
)
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(ToolInputError, match="is not a"):
        plain_path(path)


@given(
    st.lists(
        st.sampled_from(["file:", "FILE:", "~", "/", "//", "localhost", "%66", "%7e", "ile:", "a"]),
        max_size=6,
    ).map("".join)
)
def test_a_plain_path_is_never_read_a_second_time(path: str) -> None:
    try:
        plain = plain_path(path)
    except ToolInputError:
        return
    assert plain_path(plain) == plain


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a", "a"),
        ("@a", "a"),
        ("@src/a.py", "src/a.py"),
        ("@../a", "../a"),
        ("@/etc/passwd", "/etc/passwd"),
        ("@~/a", "~/a"),
        ("@file:///a", "file:///a"),
        ("@@a", "./@a"),
        ("@scope/a", "./@scope/a"),
        ("@scope", "./@scope"),
        ("@dangling/a", "./@dangling/a"),
        ("./@a", "./@a"),
        ("@", ""),
        ("@a\0b", "a\0b"),
    ],
)
def test_the_at_sign_of_a_mention_is_not_part_of_the_name(
    tmp_path: Path, written: str, meant: str
) -> None:
    (tmp_path / "@scope").mkdir()
    (tmp_path / "@dangling").symlink_to("nowhere")
    assert strip_mention(written, str(tmp_path)) == meant


def test_a_path_that_cannot_be_followed_is_an_error_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    assert real_path(str(tmp_path / "link")) == str(tmp_path.resolve() / "f")
    # The link of an ended process is there, but leads nowhere that could be told.
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.read()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ToolInputError, match="changed while it was being resolved"):
            real_path(f"/proc/{ended.pid}/exe")
        # Whatever such a call does, it runs alone.
        assert resolve([Effect("read", f"file:/proc/{ended.pid}/exe")]) == ANYTHING


def test_real_path_agrees_with_os_path_realpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to(tmp_path / "real")
    (tmp_path / "up").symlink_to("real/inner/../..")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    written = (
        *(
            "a/inner",
            "a/../x",
            "b/./inner//none",
            "up/a/f",
            "none/../a",
            "../..",
            ".",
            "",
            "loop/f",
        ),
        *(f"{tmp_path}/a/inner/..", f"//{tmp_path}/b", "/", "/..", f"{tmp_path}/loop/../a"),
    )
    assert [real_path(path) for path in written] == [os.path.realpath(path) for path in written]


def test_ways_of_returns_every_name_a_path_goes_through(tmp_path: Path) -> None:
    top = str(tmp_path.resolve())
    (tmp_path / "real").mkdir()
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to(tmp_path / "real")
    (tmp_path / "loop").symlink_to("loop")
    assert ways_of(f"{top}/a/f") == (f"{top}/a/f", f"{top}/b/f", f"{top}/real/f")
    assert ways_of(f"{top}/none/../f") == (f"{top}/f",)
    assert ways_of(f"//{top}/f") == ways_of(f"/{top}/f") == (f"{top}/f",)
    with pytest.raises(ToolInputError, match="too many levels of symbolic links"):
        ways_of(f"{top}/loop/f")


def test_steps_of_returns_every_step_including_links(tmp_path: Path) -> None:
    top = str(tmp_path.resolve())
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "away").symlink_to("real/inner/../f")
    (tmp_path / "here").symlink_to(".")
    assert [*steps_of(f"{top}/away")][-6:] == [
        *(f"{top}/away", top, f"{top}/real", f"{top}/real/inner", f"{top}/real", f"{top}/real/f"),
    ]
    assert [*steps_of(f"{top}/here")][-2:] == [f"{top}/here", top]
    assert [*steps_of("/")] == ["/"]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CycleError):
        [*steps_of(f"{top}/loop/f")]


@table(
    ("place", "base", "expected"),
    [
        *(("/a", "/a", True), ("/a/b", "/a", True), ("/a/b", "/a/", True), ("/a", "/", True)),
        *(("/", "/", True), ("/ab", "/a", False), ("/", "/a", False), ("/b", "/a", False)),
    ],
)
def test_a_path_is_below_itself_and_every_directory_above(
    place: str, base: str, expected: bool
) -> None:
    assert is_below(place, base) is expected

"""ls: the names in a directory."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, resolve
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import DirEntry, FileSystem, Info
from clawkit.tools.ls import TOOL, Params, show


async def ls(place: Path, window: int | None = None, **params: Any) -> Result:
    run = Run(
        {"ls": TOOL},
        str(place),
        Scope(context_window=window),
        services={FileSystem: LocalFileSystem(str(place))},
    )
    return await call(run, CallRequest("ls", params))


def names(result: Result) -> list[str]:
    """The names as a careful reader takes them from the text."""
    listed = result.as_text().partition("\n\n[")[0]
    return [json.loads(line) for line in listed.split("\n")]


async def test_names_are_listed_in_byte_order_hidden_ones_included(tmp_path: Path) -> None:
    for name in ("b", ".hidden", "a", "Z", "é"):
        (tmp_path / name).touch()
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("dir")
    result = await ls(tmp_path)
    assert names(result) == [".hidden", "Z", "a", "b", "dir/", "link", "é"]
    assert result.details == {"path": ".", "shown": 7, "total": 7}


@pytest.mark.parametrize("name", ["path", "directory", "dir", "file_path"])
async def test_the_directory_has_the_names_models_use(tmp_path: Path, name: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").touch()
    given_params: dict[str, Any] = {name: "d"}
    result = await ls(tmp_path, **given_params)
    assert names(result) == ["x"]
    assert result.details["path"] == "d"


async def test_limit_and_after_page_through_a_long_list(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"n{number}").touch()
    first = await ls(tmp_path, limit=3)
    assert first.as_text() == '"n0"\n"n1"\n"n2"\n\n[4 more; continue with after="n2"]'
    assert first.details == {"path": ".", "shown": 3, "total": 7, "nextAfter": "n2"}
    rest = await ls(tmp_path, after="n2")
    assert names(rest) == ["n3", "n4", "n5", "n6"]
    assert "nextAfter" not in rest.details


async def test_a_directory_may_be_named_with_its_slash_to_go_on(tmp_path: Path) -> None:
    for name in ("dir", "dir-2", "dir.3"):
        (tmp_path / name).mkdir()
    for after in ("dir", "dir/"):
        assert names(await ls(tmp_path, after=after)) == ["dir-2/", "dir.3/"]


async def test_an_empty_directory_is_reported(tmp_path: Path) -> None:
    assert (await ls(tmp_path)).as_text() == "[empty directory]"
    (tmp_path / "a").touch()
    result = await ls(tmp_path, after="b")
    assert result.as_text() == "[no more names]"
    assert result.details == {"path": ".", "shown": 0, "total": 1}


@pytest.mark.parametrize(
    "name",
    ['a\n"b"', 'quote"d', "back\\slash", "tab\there", "\u202egnp.exe", "\x1b[31mred", "a\u2028b"],
)
async def test_no_name_can_imitate_two_lines_or_hide_its_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "zz").touch()
    result = await ls(tmp_path)
    assert sorted(names(result)) == sorted([name, "zz"])
    assert len(result.as_text().splitlines()) == 2
    assert result.as_text().replace("\n", "").isprintable()


async def test_names_that_are_not_utf8_are_shown_and_work_as_cursor(tmp_path: Path) -> None:
    for raw in (b"a\xff", b"a\xfe", b"b"):
        os.close(os.open(os.fsencode(tmp_path) + b"/" + raw, os.O_CREAT))
    first = await ls(tmp_path, limit=1)
    assert names(first) == ["a\udcfe"]
    first.as_text().encode()
    after = json.loads(first.as_text().rpartition("after=")[2].rstrip("]"))
    assert names(await ls(tmp_path, after=after)) == ["a\udcff", "b"]


async def test_details_show_mode_size_time_and_where_links_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    (tmp_path / "tool").write_bytes(b"x" * 1536)
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "dir").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to('to "it"\n')
    for name in ("tool", "dir", "link"):
        os.utime(tmp_path / name, (0, 1_000_000_000), follow_symlinks=False)
    result = await ls(tmp_path, details=True)
    monkeypatch.undo()
    time.tzset()
    assert result.as_text().split("\n") == [
        'drwx------        - 2001-09-09 01:46 "dir/"',
        'lrwxrwxrwx        - 2001-09-09 01:46 "link" -> "to \\"it\\"\\n"',
        '-rwxr-xr-x   1.5 KB 2001-09-09 01:46 "tool"',
    ]
    facts = {each.pop("name"): each for each in result.details["entries"]}
    assert facts["tool"] == {"kind": "file", "size": 1536, "mtimeMs": 10**12, "mode": "0755"}
    assert facts["dir"]["kind"] == "directory"
    assert facts["link"]["target"] == 'to "it"\n'
    assert {"path": ".", "shown": 3, "total": 3}.items() <= result.details.items()


async def test_without_details_only_names_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    result = await ls(tmp_path)
    assert result.as_text() == '"a"'
    assert "entries" not in result.details


async def test_the_details_of_a_page_are_those_of_its_names(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"n{number}").touch()
    result = await ls(tmp_path, details=True, limit=2, after="n1")
    assert [each["name"] for each in result.details["entries"]] == ["n2", "n3"]
    assert result.details["nextAfter"] == "n3"
    assert result.as_text().endswith('"n3"\n\n[1 more; continue with after="n3"]')


async def test_links_to_the_outside_are_shown_but_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc/passwd")
    (tmp_path / os.fsdecode(b"odd\xff")).symlink_to(os.fsdecode(b"\xfe"))
    lines = (await ls(tmp_path, details=True)).as_text().split("\n")
    assert [line[0] for line in lines] == ["l", "l"]
    assert lines[0].endswith('"odd\\udcff" -> "\\udcfe"')
    assert lines[1].endswith('"out" -> "/etc/passwd"')


@table("mtime_ns", [2**55 * 10**9, -(10**20), 0])
def test_any_time_can_be_shown(mtime_ns: int) -> None:
    entry = DirEntry("f", "file", Info("file", 1, mtime_ns, 0o100644, "1"))
    assert show(entry).startswith("-rw-r--r--      1 B ")
    assert show(entry).endswith('"f"')


def test_a_file_that_went_away_has_no_details() -> None:
    assert show(DirEntry("f", "file")) == '? "f"'


@pytest.mark.parametrize(
    "params",
    [{"after": "\ud800"}, {"limit": 0}, {"limit": 10_001}, {"path": ""}, {"path": "f"}, {"x": 1}],
)
async def test_a_path_that_cannot_be_listed_is_an_input_error(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    (tmp_path / "f").touch()
    assert (await ls(tmp_path, **params)).details["code"] == 400


async def test_paths_outside_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    for path in ("..", "/", "out", "~"):
        assert (await ls(tmp_path, path=path)).details["status"] == "blocked"


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["n", "中", "😀", "é", "\u200b", "\udcff"]),
    st.integers(1, 60),
    st.integers(1, 300),
    st.sampled_from([4_000, 16_000, 200_000, None]),
)
def test_the_pages_together_are_the_directory(
    char: str, length: int, count: int, window: int | None
) -> None:
    expected = [f"{number:04}{char * length}" for number in range(count)]

    async def pages(place: Path) -> list[str]:
        found: list[str] = []
        after = ""
        while True:
            result = await ls(place, window, after=after)
            found += names(result)
            if "nextAfter" not in result.details:
                return found
            after = result.details["nextAfter"]

    with tempfile.TemporaryDirectory() as place:
        for name in expected:
            Path(place, name).touch()
        assert asyncio.run(pages(Path(place))) == expected


async def test_even_the_smallest_model_is_shown_a_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    result = await ls(tmp_path, window=1)
    assert result.details["shown"] == 1
    assert result.details["nextAfter"] == "a"


def test_effects_name_the_directory_that_is_read(tmp_path: Path) -> None:
    ctx = Context("1", Scope(), str(tmp_path))
    assert list(resolve(TOOL.effects(Params(), ctx))) == [
        Effect("read", f"file:{tmp_path.resolve()}")
    ]

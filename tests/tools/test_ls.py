"""ls: the names in a directory."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.effects import Effect
from clawkit.core.result import Result
from clawkit.fs.base import FileSystem
from clawkit.fs.local import LocalFileSystem
from clawkit.tools.ls import TOOL, Params


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
    assert first.as_text() == '"n0"\n"n1"\n"n2"\n\n[4 more; go on with after="n2"]'
    assert first.details == {"path": ".", "shown": 3, "total": 7, "nextAfter": "n2"}
    rest = await ls(tmp_path, after="n2")
    assert names(rest) == ["n3", "n4", "n5", "n6"]
    assert "nextAfter" not in rest.details


async def test_a_directory_may_be_named_with_its_slash_to_go_on(tmp_path: Path) -> None:
    for name in ("dir", "dir-2", "dir.3"):
        (tmp_path / name).mkdir()
    for after in ("dir", "dir/"):
        assert names(await ls(tmp_path, after=after)) == ["dir-2/", "dir.3/"]


async def test_nothing_to_list_says_so(tmp_path: Path) -> None:
    assert (await ls(tmp_path)).as_text() == "[empty directory]"
    (tmp_path / "a").touch()
    result = await ls(tmp_path, after="b")
    assert result.as_text() == "[no more names]"
    assert result.details == {"path": ".", "shown": 0, "total": 1}


@pytest.mark.parametrize(
    "name",
    ['a\n"b"', 'quote"d', "back\\slash", "tab\there", "\u202egnp.exe", "\x1b[31mred", "a\u2028b"],
)
async def test_no_name_can_pose_as_two_or_hide_what_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "zz").touch()
    result = await ls(tmp_path)
    assert sorted(names(result)) == sorted([name, "zz"])
    assert len(result.as_text().splitlines()) == 2
    assert result.as_text().replace("\n", "").isprintable()


async def test_names_that_are_not_utf8_can_be_told_and_gone_on_from(tmp_path: Path) -> None:
    for raw in (b"a\xff", b"a\xfe", b"b"):
        os.close(os.open(os.fsencode(tmp_path) + b"/" + raw, os.O_CREAT))
    first = await ls(tmp_path, limit=1)
    assert names(first) == ["a\udcfe"]
    first.as_text().encode()
    after = json.loads(first.as_text().rpartition("after=")[2].rstrip("]"))
    assert names(await ls(tmp_path, after=after)) == ["a\udcff", "b"]


@pytest.mark.parametrize(
    "params",
    [{"after": "\ud800"}, {"limit": 0}, {"limit": 10_001}, {"path": ""}, {"path": "f"}, {"x": 1}],
)
async def test_what_cannot_be_listed_is_the_callers_mistake(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    (tmp_path / "f").touch()
    assert (await ls(tmp_path, **params)).details["code"] == 400


async def test_what_is_outside_is_refused(tmp_path: Path) -> None:
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


def test_a_call_says_which_directory_it_reads(tmp_path: Path) -> None:
    ctx = Context("1", Scope(), str(tmp_path))
    assert list(TOOL.effects(Params(), ctx)) == [Effect("read", f"file:{tmp_path.resolve()}")]

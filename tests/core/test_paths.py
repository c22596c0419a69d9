"""One reading per path."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.core.paths import MAX_PATH, plain_path
from clawkit.errors import ToolInputError


@pytest.mark.parametrize(
    ("written", "plain"),
    [
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
    ],
)
def test_every_spelling_becomes_one_plain_path(written: str, plain: str) -> None:
    assert plain_path(written) == plain


@pytest.mark.parametrize(
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
def test_what_cannot_be_a_path_is_refused(path: str) -> None:
    with pytest.raises(ToolInputError, match="is not a"):
        plain_path(path)


@settings(max_examples=500, deadline=None)
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

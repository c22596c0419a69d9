from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.sources import (
    MAX_FILE_BYTES,
    MAX_INCLUDES,
    ConfigFile,
    ConfigTree,
    ReadError,
    read_text,
)


def write(folder: Path, **files: str) -> Path:
    """Files by stem; returns `main.json5`."""
    for stem, text in files.items():
        (folder / f"{stem}.json5").write_text(text)
    return folder / "main.json5"


def joined(main: Path, roots: tuple[str, ...] = ()) -> ConfigTree:
    return ConfigTree(ConfigFile(str(main), main.read_text()), roots)


def value(main: Path) -> Any:
    tree = joined(main)
    assert tree.issues == []
    return tree.value


def complaint(main: Path, roots: tuple[str, ...] = ()) -> str:
    (issue,) = joined(main, roots).issues
    return str(issue)


def test_an_include_replaces_the_object_it_stands_in(tmp_path: Path) -> None:
    main = write(tmp_path, main='{a: {$include: "./part.json5"}, b: 1}', part="{x: [1], y: 2}")
    assert value(main) == {"a": {"x": [1], "y": 2}, "b": 1}


def test_an_include_need_not_be_an_object(tmp_path: Path) -> None:
    main = write(tmp_path, main='{a: {$include: "part.json5"}}', part="[1, 2]")
    assert value(main) == {"a": [1, 2]}


def test_a_list_of_includes_is_merged_in_order(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='{$include: ["one.json5", "two.json5"]}',
        one='{tools: {deny: ["a"], profile: "coding", exec: {ask: "off"}}, n: 1}',
        two='{tools: {deny: ["b"], profile: "full", exec: {host: "node"}}, m: 2}',
    )
    assert value(main) == {
        "tools": {"deny": ["a", "b"], "profile": "full", "exec": {"ask": "off", "host": "node"}},
        "n": 1,
        "m": 2,
    }


def test_keys_beside_an_include_override_it_wherever_they_stand(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='{profile: "full", $include: "part.json5", deny: ["mine"]}',
        part='{deny: ["theirs"], profile: "coding", allow: [{}]}',
    )
    assert value(main) == {"deny": ["theirs", "mine"], "profile": "full", "allow": [{}]}


def test_values_of_different_kinds_are_replaced(tmp_path: Path) -> None:
    main = write(
        tmp_path, main='{$include: "part.json5", a: {}, b: [1], c: 2}', part="{a:[1],b:{},c:[]}"
    )
    assert value(main) == {"a": {}, "b": [1], "c": 2}


def test_includes_nest_and_are_relative_to_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write(
        tmp_path / "deep", middle='{inner: [{$include: "leaf.json5"}, {x: 1}]}', leaf="{leaf: true}"
    )
    main = write(tmp_path, main='{a: {$include: "deep/middle.json5"}}')
    assert value(main) == {"a": {"inner": [{"leaf": True}, {"x": 1}]}}


def test_an_empty_list_includes_nothing(tmp_path: Path) -> None:
    assert value(write(tmp_path, main="{a: {$include: [], b: 1}}")) == {"a": {"b": 1}}


def test_every_value_knows_its_own_file_and_line(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="""{
  plain: 1,
  tools: {
    $include: ["one.json5", "two.json5"],
    deny: [
      "mine",
    ],
    exec: {
      ask: "off",
    },
  },
  replaced: { $include: "list.json5" },
}""",
        one='{\n  deny: ["one"],\n  exec: {\n    host: "node",\n    ask: "x",\n  },\n}',
        two='// a note\n{\n  deny: [\n    "two",\n    "three",\n  ],\n  only: { deep: [{}] },\n}',
        list="[\n  1,\n  { x: 2 }]",
    )
    tree = joined(main)
    assert tree.value["tools"]["deny"] == ["one", "two", "three", "mine"]
    expected = {
        (): ("main", 1),
        ("plain",): ("main", 2),
        ("tools",): ("main", 3),
        ("tools", "deny", 0): ("one", 2),
        ("tools", "deny", 1): ("two", 4),
        ("tools", "deny", 2): ("two", 5),
        ("tools", "deny", 3): ("main", 6),
        ("tools", "deny"): ("main", 5),
        ("tools", "exec"): ("main", 8),
        ("tools", "exec", "host"): ("one", 4),
        ("tools", "exec", "ask"): ("main", 9),
        ("tools", "only"): ("two", 7),
        ("tools", "only", "deep", 0): ("two", 7),
        ("tools", "nothing"): ("main", 3),
        ("replaced",): ("list", 1),
        ("replaced", 0): ("list", 2),
        ("replaced", 1, "x"): ("list", 3),
        ("replaced", 9): ("list", 1),
        ("plain", "deeper"): ("main", 2),
    }
    found = {path: tree.locate(path) for path in expected}
    assert {path: (Path(file).stem, line) for path, (file, line) in found.items()} == expected
    assert [Path(file).stem for file in tree.files] == ["main", "one", "two", "list"]


def test_a_cycle_is_shown_as_a_chain(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='{\n$include: "a.json5"}',
        a='{$include: "b.json5"}',
        b='{$include: "main.json5"}',
    )
    text = complaint(main)
    assert text.startswith(f"{tmp_path}/b.json5:1: $include: cannot include 'main.json5'")
    chain = [str(tmp_path / f"{stem}.json5") for stem in ("main", "a", "b", "main")]
    assert text.endswith("it includes itself: " + " -> ".join(chain))


def test_a_file_that_includes_itself_by_another_name_is_a_cycle(tmp_path: Path) -> None:
    main = write(tmp_path, main='{$include: "./x/../alias.json5"}')
    (tmp_path / "x").mkdir()
    (tmp_path / "alias.json5").symlink_to(main)
    assert "it includes itself" in complaint(main)


def test_ten_includes_may_nest_and_eleven_may_not(tmp_path: Path) -> None:
    chain = {f"f{n}": f'{{$include: "f{n + 1}.json5"}}' for n in range(1, 11)}
    main = write(tmp_path, main='{$include: "f1.json5"}', **{**chain, "f10": "{end: 1}"})
    assert value(main) == {"end": 1}
    write(tmp_path, **chain, f11="{end: 1}")
    assert complaint(main).endswith("includes are nested more than 10 deep")


def test_includes_that_double_each_time_are_stopped(tmp_path: Path) -> None:
    bombs = {f"f{n}": f'{{$include: ["f{n + 1}.json5", "f{n + 1}.json5"]}}' for n in range(9)}
    main = write(tmp_path, main='{$include: "f0.json5"}', **bombs, f9="{a: [1]}")
    tree = joined(main)
    assert tree.issues
    assert all(f"more than {MAX_INCLUDES} includes" in str(issue) for issue in tree.issues)


def test_nesting_through_includes_is_limited(tmp_path: Path) -> None:
    deep = '{"a": ' * 100 + '{"$include": "NEXT.json5"}' + "}" * 100
    main = write(tmp_path, main=deep.replace("NEXT", "f1"), f1=deep.replace("NEXT", "f2"), f2="{}")
    assert complaint(main).endswith("more than 128 levels of nesting")


@pytest.mark.parametrize("name", ["../outside.json5", "{outside}/outside.json5", "link.json5"])
def test_files_outside_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    write(tmp_path, outside='{secret: "hunter2"}')
    (inside / "link.json5").symlink_to(tmp_path / "outside.json5")
    name = name.replace("{outside}", str(tmp_path))
    main = write(inside, main=f'{{$include: "{name}"}}')
    text = complaint(main)
    assert "CLAWKIT_INCLUDE_ROOTS" in text
    assert "hunter2" not in text
    tree = joined(main, (str(tmp_path),))
    assert tree.issues == []
    assert tree.value == {"secret": "hunter2"}


def test_a_directory_whose_name_only_begins_alike_is_outside(tmp_path: Path) -> None:
    for name in ("conf", "conf-other"):
        (tmp_path / name).mkdir()
    write(tmp_path / "conf-other", part="{}")
    main = write(tmp_path / "conf", main='{$include: "../conf-other/part.json5"}')
    assert "it is outside '" in complaint(main)


@pytest.mark.parametrize(
    ("include", "reason"),
    [
        ('"missing.json5"', "does not exist"),
        ('"."', "is a directory, not a file"),
        ('""', "expected a file name or a list of file names"),
        ("5", "expected a file name or a list of file names"),
        ("null", "expected a file name or a list of file names"),
        ("{}", "expected a file name or a list of file names"),
        ('["part.json5", 5]', "expected a file name or a list of file names"),
        ('"a\\u0000b"', "invalid file name"),
        (f'"{"x" * 5000}"', "invalid file name"),
        (f'"{"x" * 300}"', "cannot be read: File name too long"),
    ],
)
def test_what_cannot_be_included_is_reported_where_it_is_named(
    tmp_path: Path, include: str, reason: str
) -> None:
    main = write(tmp_path, main=f"{{\n  a: {{\n    $include: {include},\n  }},\n}}", part="{}")
    text = complaint(main)
    assert text.startswith(f"{main}:3: a.$include: cannot include ")
    assert text.endswith(reason)
    assert len(text) < 400


def test_what_is_not_a_file_name_is_not_repeated(tmp_path: Path) -> None:
    main = write(tmp_path, main='{$include: {token: "hunter2"}}')
    assert "hunter2" not in complaint(main)


def test_keys_beside_an_include_need_an_object(tmp_path: Path) -> None:
    main = write(tmp_path, main='{a: {$include: "part.json5", b: 1}}', part="[1]")
    assert complaint(main).endswith("the included file must contain an object here")


def test_all_broken_includes_are_reported(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='{a: {$include: "one.json5"}, b: {$include: "two.json5"}, c: {$include: "no.json5"}}',
        one="{\n\n  x: ,\n}",
        two="{",
    )
    issues = joined(main).issues
    assert [(Path(issue.file).stem, issue.line) for issue in issues] == [
        ("one", 3),
        ("two", 1),
        ("main", 1),
    ]


def test_text_that_was_not_read_from_a_file_has_no_includes() -> None:
    (issue,) = ConfigTree(ConfigFile("<text>", '{$include: "a.json5"}'), ()).issues
    assert issue.message.endswith("this text was not read from a file")


def test_a_file_is_read_as_utf8_with_or_without_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes("{ü: 1}".encode("utf-8-sig"))
    assert read_text(str(file)) == "{ü: 1}"
    file.write_bytes(b"{\n a: '\xff' }")
    with pytest.raises(ReadError, match="byte 0xff at offset 7, on line 2"):
        read_text(str(file))
    file.write_bytes("{a: 1}".encode("utf-16"))
    with pytest.raises(ReadError, match="is not UTF-8 text: byte 0xff at offset 0"):
        read_text(str(file))


def test_only_regular_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, reason in (
        (huge, "larger than 2 MiB"),
        (pipe, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path, "is a directory"),
        (tmp_path / "none", "does not exist"),
        (huge / "below", "Not a directory"),
    ):
        with pytest.raises(ReadError, match=reason):
            read_text(str(path))


def test_a_file_may_be_exactly_as_large_as_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b" " * MAX_FILE_BYTES)
    assert len(read_text(str(file))) == MAX_FILE_BYTES

"""The front matter of SKILL.md, compared with a YAML parser."""

from __future__ import annotations

import string
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clawkit.skills.front_matter import MAX_LINES, FrontMatterError, read_front_matter


def read(lines: str) -> dict[str, Any]:
    return read_front_matter(f"---\n{lines}\n---\nbody\n")


def plain(value: Any) -> Any:
    """What YAML gives, in the types of ours: numbers and dates stay text."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value if isinstance(value, bool | str) else "" if value is None else str(value)


SAME = """
name: weather
---
name: "a \\"quoted\\" name"   # a comment
description: 'it''s fine'
---
description: Plain text with (parens), a-dash, a:colon and #hash  # comment
---
description: |
  Two lines
    indented

  and a third
name: x
---
description: |-
  Two lines
  without an end

---
description: >
  Folded into
  one line

  and another

    code
    more

  end
---
description: >-
  Folded
  text
---
allowed-tools: [Read, Write, Bash]
tags: []
---
allowed-tools:
  - Read
  - "Write it"
  # not this
  - Bash
name: x
---
tags:
- a
- b
name: x
---
metadata:
  author: example
  version: "1.0"
---
metadata:
  openclaw:
    always: true
    requires:
      bins:
        - curl
        - jq
      env: [TOKEN]
    os: ["linux"]
name: x
---
metadata: {"openclaw": {"emoji": "x", "requires": {"bins": ["curl"]}}}
---
metadata:
  {
    "openclaw":
      {
        "emoji": "x",
        "requires": { "bins": ["curl"], },
      },
  }
name: x
---
user-invocable: false
disable-model-invocation: yes
a: On
b: no
empty:
homepage: https://example.com/a#b
"""


def test_what_is_understood_is_what_a_yaml_parser_reads() -> None:
    for case in SAME.strip("\n").split("\n---\n"):
        assert read(case) == plain(yaml.safe_load(f"{case}\n")), case


def test_json5_may_have_comments_unquoted_keys_and_single_quotes() -> None:
    found = read("metadata:\n  { // why\n    openclaw: { emoji: 'x', },\n  }")
    assert found == {"metadata": {"openclaw": {"emoji": "x"}}}


def test_an_empty_front_matter_is_an_empty_map() -> None:
    assert read_front_matter("---\n---\n") == read("# nothing") == {}
    assert read_front_matter("\ufeff---\r\nname: x\r\n---\r\n") == {"name": "x"}


REFUSED = {
    "a: &anchor x": 2,
    "a: *alias": 2,
    "a: !!python/object:os.system x": 2,
    "a: {{ bomb": 2,
    "a: x\nb: y: z": 3,
    "a: x\na: y": 3,
    "a: plain\n  text": 3,
    'a: "open': 2,
    "a: 'open": 2,
    'a: "\\q"': 2,
    "a:\n  b: 1\n c: 2": 4,
    "a:\n  - x\n  y": 4,
    "a:\n  - x\n  - y: z": 4,
    "\ta: x": 2,
    "a:\n\tb: x": 3,
    "- a": 2,
    "just text": 2,
    "<<: x": 2,
    "a: |2\n  x": 3,
    "a: [x, {y]": 2,
    'a:\n  {\n    "b": nope,\n  }': 4,
    "a: ? b": 2,
    "a: - b": 2,
    "a: @b": 2,
    "a: `b`": 2,
}


def test_everything_else_is_refused_with_its_line() -> None:
    for text, line in REFUSED.items():
        with pytest.raises(FrontMatterError, match=rf"^line {line}: "):
            read(text)


def test_bombs_are_refused() -> None:
    nested = "\n".join(f"{' ' * depth}a:" for depth in range(900))
    for text in (
        nested,
        "a: " + "[" * 50_000,
        "a: " + '{"a":' * 50_000,
        "a: x\n" * (MAX_LINES + 1),
        "a: " + "&" * 100_000,
    ):
        with pytest.raises(FrontMatterError):
            read(text)


def test_a_file_without_front_matter_is_an_error() -> None:
    for text in ("", "# Title\n", "--- x\n---\n", "---\nname: x\n"):
        with pytest.raises(FrontMatterError):
            read_front_matter(text)


@given(st.text(alphabet=f"{string.printable}é&*\u2028\x85", max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(text)
    except FrontMatterError:
        return
    assert isinstance(found, dict)


_VALUES = st.text(alphabet=string.ascii_letters + " .,;()/'\"#-&:!", min_size=1, max_size=40)


@given(st.dictionaries(st.from_regex(r"k[a-z]{1,8}", fullmatch=True), _VALUES, max_size=4))
def test_what_is_read_agrees_with_a_yaml_parser(values: dict[str, str]) -> None:
    lines = "\n".join(f"{key}: {value}" for key, value in values.items())
    try:
        found = read(lines)
    except FrontMatterError:
        return
    assert found == plain(yaml.safe_load(lines) or {})

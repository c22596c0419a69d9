"""What is shown of a configuration holds no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.config.file_edit import diff
from clawkit.config.json5 import parse
from clawkit.config.masking import masked, variables_of
from clawkit.text import printable

SECRET = "hunter2"


def test_secrets_are_masked_wherever_they_stand(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        {"gateway": {"auth": {"token": SECRET}}},
        {"models": {"providers": {"x": {"apiKey": SECRET}}}},
        {"models": {"providers": {"x": {"api_key": SECRET}}}},
        {"models": {"providers": {"x": {"headers": {"X-Thing": SECRET}}}}},
        {"env": {"THING": SECRET}},
        {"env": {"vars": {"THING": SECRET}}},
        {"mcp": {"servers": {"x": {"env": {"THING": SECRET}}}}},
        {"plugins": {"entries": {"x": {"config": {"password": SECRET}}}}},
        {"plugins": {"entries": {"x": {"config": {"credentials": {"deep": [SECRET]}}}}}},
        {"channels": {"telegram": {"botToken": SECRET}}},
        {"unknown": {"clientSecret": SECRET}},
        {"plugins": {"entries": {"x": {"config": {"auth": SECRET}}}}},
        {"plugins": {"entries": {"x": {"config": {"creds": {"deep": SECRET}}}}}},
        {"channels": {"irc": {"pass": SECRET}}},
        {"channels": {"irc": {"nickserv": {"smtpPass": [SECRET]}}}},
        {"channels": {"irc": {"pass": 1234, "auth": SECRET}}},
        {"mcp": {"servers": {"x": {"args": ["run", "--token", SECRET]}}}},
        {"mcp": {"servers": {"x": {"args": ["-pass", SECRET, "--verbose"]}}}},
    ]
    for config in cases:
        with subtests.test(config=config):
            shown = json.dumps(masked(config))
            assert SECRET not in shown
            assert '"***"' in shown
            text = json.dumps(config, indent=1)
            assert SECRET not in "\n".join(diff("{}", text, "f"))
            assert SECRET not in "\n".join(diff(text, "{}", "f"))


@table(
    "dsn",
    [
        f"postgres://bob:{SECRET}@db/x",
        f"bob:{SECRET}@tcp(db:3306)/x",
        f"host=db password={SECRET} user=bob",
        f"Server=db;Password={SECRET}",
    ],
)
def test_a_password_inside_a_text_is_masked_and_the_rest_is_shown(dsn: str) -> None:
    config = {"plugins": {"entries": {"x": {"config": {"dsn": dsn}}}}}
    shown = masked(config)["plugins"]["entries"]["x"]["config"]["dsn"]
    assert shown == dsn.replace(SECRET, "***")
    assert SECRET not in "\n".join(diff("{}", json.dumps(config), "f"))


def test_flags_and_their_neighbours_stay_as_they_are() -> None:
    args = ["--token", "--verbose", "--max-tokens", "100", "-p", "80", 5, "--token"]
    config = {"mcp": {"servers": {"x": {"args": args}}}}
    assert masked(config) == config


@table(
    "comment",
    [
        f"// old password: {SECRET}",
        f'// apiKey: "{SECRET}"',
        f"/* TOKEN={SECRET} */",
        f"// was postgres://bob:{SECRET}@db/x",
    ],
)
def test_a_comment_beside_a_change_shows_no_secret(comment: str) -> None:
    old = f"{{\n  {comment}\n  gateway: {{ port: 1 }},\n}}\n"
    lines = diff(old, old.replace("1", "2"), "f")
    assert "***" in lines[4]
    assert SECRET not in "\n".join(lines)
    assert lines[5:7] == ["-  gateway: { port: 1 },", "+  gateway: { port: 2 },"]


def test_a_token_is_masked_by_its_shape_even_in_a_comment() -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    text = f'{{\n  // was {token}\n  messages: {{ responsePrefix: "{token}" }},\n}}'
    assert token not in json.dumps(masked(parse(text).value))
    assert token not in "\n".join(diff("", text, "f"))


@table(
    "value",
    [
        "${TOKEN}",
        "$TOKEN",
        "${A}${B}",
        {"source": "env", "id": "TOKEN"},
        {"source": "exec", "provider": "vault", "id": "a/b"},
    ],
)
def test_references_to_secrets_are_shown(value: Any) -> None:
    config = {"gateway": {"auth": {"token": value}}}
    assert masked(config) == config


@table("value", ["$ecret", "${lower}", "a${TOKEN}", "$TOKEN!", 12345])
def test_what_only_looks_like_a_reference_is_masked(value: Any) -> None:
    shown = masked({"gateway": {"auth": {"token": value}}})
    assert shown["gateway"]["auth"]["token"] == "***"


def test_what_is_not_a_secret_is_shown_as_it_is() -> None:
    config = {
        "gateway": {"port": 1, "auth": {"mode": "token", "allowTailscale": True}},
        "env": {"shellEnv": {"enabled": True, "timeoutMs": 5}},
        "secrets": {"defaults": {"env": "default"}},
        "agents": {"list": [{"id": "a", "compaction": None}]},
        "channels": {"x": {"auth": {"mode": "basic"}, "pass": True, "passed": "yes"}},
        "models": {"providers": {"x": {"auth": "api-key"}}},
    }
    assert masked(config) == config


def test_a_changed_secret_is_seen_to_change() -> None:
    old = '{\n  hooks: {\n    token: "one",\n  },\n}\n'
    new = old.replace("one", "two")
    assert diff(old, new, "f") == [
        "--- f",
        "+++ f",
        "@@ -1,5 +1,5 @@",
        " {",
        "   hooks: {",
        '-    token: "***",',
        '+    token: "***",',
        "   },",
        " }",
    ]


def test_lines_stay_where_they_are_when_a_secret_spans_several() -> None:
    old = '{ hooks: { token: "a\\\nb\\\nc" },\n  gateway: { port: 1 } }'
    lines = diff(old, old.replace("port: 1", "port: 2"), "f")
    assert lines[-2:] == ["-  gateway: { port: 1 } }", "+  gateway: { port: 2 } }"]
    assert not any("a\\" in line for line in lines)


def test_distant_changes_are_shown_apart() -> None:
    old = [f"// {number}" for number in range(50)]
    new = [*old]
    new[5], new[40] = "// five", "// forty"
    shown = diff("\n".join(old), "\n".join(new), "f")
    assert [line for line in shown if line.startswith("@@")] == [
        "@@ -4,5 +4,5 @@",
        "@@ -39,5 +39,5 @@",
    ]


def test_a_change_of_very_many_lines_is_counted() -> None:
    same = "// same\n" * 5_000
    old, new = (f"{same}{{ a: [\n{word * 1_500}] }}\n{same}" for word in ("1,\n", "2,\n3,\n"))
    lines = diff(old, new, "f")
    assert lines[2:] == ["@@ -5002,1500 +5002,3000 @@", "1,500 lines are replaced by 3,000 lines"]
    few = diff(old, old.replace("1,\n]", "4,\n]"), "f")
    assert few[2:] == ["@@ -6499,5 +6499,5 @@", " 1,", " 1,", "-1,", "+4,", " ] }", " // same"]


def test_nothing_changed_is_not_a_diff() -> None:
    assert diff("{}", "{}", "f") == []


def test_windows_line_ends_are_not_shown() -> None:
    assert diff("{\r\n}\r\n", "{\r\n// x\r\n}\r\n", "f")[3:] == [" {", "+// x", " }"]


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert printable("a\x1b[2Jb\u202ec\td\n") == "a\\u{1b}[2Jb\\u{202e}c\td\n"
    assert "\x1b" not in "\n".join(diff("{}", "{ /* \x1b[2J */ }", "f"))


_LINES = st.lists(st.sampled_from(["a", "b", "", "// x", "{", "}"]), max_size=12)


@given(_LINES, _LINES)
def test_a_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    before, after = "".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new)
    result, at = [], 0
    for line in diff(before, after, "f")[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1][1:].split(",")[0]) - 1
            result += old[at:start]
            at = start
        elif line.startswith("+"):
            result.append(line[1:])
        else:
            assert old[at] == line[1:]
            at += 1
            result += [line[1:]] if line.startswith(" ") else []
    assert result + old[at:] == new


@table(
    ("given", "names"),
    [
        ({"apiKey": "PLACE"}, ["PLACE"]),
        ({"apiKey": "$PLACE"}, ["PLACE"]),
        ({"apiKey": "${PLACE}"}, ["PLACE"]),
        ({"apiKey": {"source": "env", "id": "PLACE"}}, ["PLACE"]),
        ({"apiKey": {"source": "file", "provider": "x", "id": "PLACE"}}, []),
        ({"apiKey": "place-of-all"}, []),
        ({"headers": {"X-A": "$PLACE", "X-B": "PLACE", "X-C": 1}}, ["PLACE"]),
        ({"models": [{"id": "PLACE", "headers": {"X-A": "${PLACE}"}}]}, ["PLACE"]),
        ({"baseUrl": "PLACE"}, []),
    ],
)
def test_variables_that_stand_for_secrets_are_found(given: Any, names: list[str]) -> None:
    assert list(variables_of({"models": {"providers": {"x": given}}})) == names

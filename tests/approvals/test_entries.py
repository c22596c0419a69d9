"""Entries of an allowlist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.approvals.entries import (
    EXACT,
    describe_entry,
    entry_to_json,
    read_entry,
    validate_pattern,
)
from clawkit.approvals.types import AllowlistEntry, ArgRule, Flags
from clawkit.net.host_rules import PACKAGES
from clawkit.process.protocols import Grants

SUM = "sha256:" + "0a" * 32


def _an_entry_is_read_and_written_alike(value: Any, expected: AllowlistEntry) -> None:
    entry = read_entry(value)
    assert entry == expected
    assert read_entry(json.loads(json.dumps(entry_to_json(entry)))) == entry


def test_an_entry_is_read_and_written_alike(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("npm", AllowlistEntry("npm")),
        ({"pattern": "npm"}, AllowlistEntry("npm")),
        ({"pattern": "npm", "argPattern": None, "args": None, "cwd": None}, AllowlistEntry("npm")),
        ({"pattern": "npm", "argPattern": ""}, AllowlistEntry("npm", arg_pattern="")),
        ({"pattern": "npm", "args": "any"}, AllowlistEntry("npm", args="any")),
        ({"pattern": "npm", "args": {}}, AllowlistEntry("npm", args=ArgRule())),
        (
            {"pattern": "npm", "args": {"subcommand": "run build"}},
            AllowlistEntry("npm", args=ArgRule(("run build",))),
        ),
        (
            {
                "pattern": "npm",
                "args": {
                    "subcommand": ["test", "ci"],
                    "flags": {"allow": ["-v", "--verbose", "-exec"], "deny": ["--prefix"]},
                    "paths": "workspace",
                },
            },
            AllowlistEntry(
                "npm",
                args=ArgRule(
                    ("test", "ci"), Flags(("-v", "--verbose", "-exec"), ("--prefix",)), "workspace"
                ),
            ),
        ),
        (
            {"pattern": "npm", "args": {"flags": {"allow": []}, "paths": "any"}},
            AllowlistEntry("npm", args=ArgRule(flags=Flags(allow=()))),
        ),
        (
            {
                "id": "1",
                "pattern": "/usr/bin/git",
                "argPattern": f"{EXACT}00",
                "children": "named",
                "source": "allow-always",
                "extent": "exact",
                "cwd": "/srv",
                "content": SUM,
                "lastUsedAt": 3,
                "somethingElse": {},
            },
            AllowlistEntry(
                "/usr/bin/git",
                id="1",
                arg_pattern=f"{EXACT}00",
                children="named",
                source="allow-always",
                extent="exact",
                cwd="/srv",
                content=SUM,
            ),
        ),
        ({"pattern": "x", "grants": None}, AllowlistEntry("x")),
        ({"pattern": "x", "grants": {}}, AllowlistEntry("x", grants=Grants())),
        (
            {"pattern": "x", "grants": {"network": True}},
            AllowlistEntry("x", grants=Grants(network=True)),
        ),
        (
            {
                "pattern": "x",
                "grants": {
                    "network": False,
                    "sockets": True,
                    "hosts": ["example.org", "*.example.org"],
                    "read": ["~/.aws", "/srv"],
                    "write": ["/srv/out"],
                },
            },
            AllowlistEntry(
                "x",
                grants=Grants(
                    sockets=True,
                    hosts=("example.org", "*.example.org"),
                    read=("~/.aws", "/srv"),
                    write=("/srv/out",),
                ),
            ),
        ),
    ]
    for value, expected in cases:
        with subtests.test(value=value, expected=expected):
            _an_entry_is_read_and_written_alike(value, expected)


def _problems_of_an_entry_are_named(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_entry(value)


def test_problems_of_an_entry_are_named(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        (3, "an entry is int"),
        (None, "an entry is NoneType"),
        ([], "an entry is list"),
        ("", "pattern is missing"),
        ({}, "pattern is missing"),
        ({"pattern": 3}, "pattern: expected `str`, got `int`"),
        ({"pattern": "x", "argPattern": ["a"]}, "argPattern: expected"),
        ({"pattern": "x", "arg_pattern": "a"}, "'arg_pattern'; did you mean 'argPattern'"),
        ({"pattern": "x", "ArgPattern": "a"}, "'ArgPattern'; did you mean 'argPattern'"),
        ({"pattern": "x", "id": 1}, "id: expected `str`"),
        ({"pattern": "x", "source": 1}, "source: expected `str`"),
        ({"pattern": "x", "children": "some"}, "children: invalid enum value 'some'"),
        ({"pattern": "x", "children": ["any"]}, "children: expected"),
        ({"pattern": "x", "extent": "all"}, "extent: invalid enum value 'all'"),
        ({"pattern": "x", "cwd": "srv"}, "cwd is 'srv', not an absolute"),
        ({"pattern": "x", "cwd": 1}, "cwd: expected `str`"),
        ({"pattern": "x", "content": "md5:00"}, "content is 'md5:00'"),
        ({"pattern": "x", "content": SUM.upper()}, "content is"),
        ({"pattern": "x", "args": ""}, "args is empty"),
        ({"pattern": "x", "args": 3}, "args: expected"),
        ({"pattern": "x", "args": ["any"]}, "args: expected"),
        (
            {"pattern": "x", "args": {"flag": {}}},
            "args: unknown key 'flag'; known: subcommand, flags, paths",
        ),
        ({"pattern": "x", "args": {"subcommand": []}}, "args.subcommand"),
        ({"pattern": "x", "args": {"subcommand": 3}}, "args.subcommand"),
        ({"pattern": "x", "args": {"subcommand": [3]}}, "args.subcommand[0]: expected `str`"),
        ({"pattern": "x", "args": {"subcommand": " "}}, "args.subcommand has ' '"),
        ({"pattern": "x", "args": {"subcommand": "-c"}}, "args.subcommand has '-c'"),
        ({"pattern": "x", "args": {"flags": []}}, "args.flags: expected `object`"),
        (
            {"pattern": "x", "args": {"flags": {"denied": []}}},
            "args.flags: unknown key 'denied'; known: allow, deny",
        ),
        (
            {"pattern": "x", "args": {"flags": {"allow": "-v"}}},
            "args.flags.allow: expected `array | null`",
        ),
        ({"pattern": "x", "args": {"flags": {"deny": None}}}, "args.flags.deny: expected `array`"),
        ({"pattern": "x", "args": {"flags": {"deny": ["v"]}}}, "args.flags has 'v'"),
        ({"pattern": "x", "args": {"flags": {"deny": ["--a=b"]}}}, "has '--a=b'"),
        ({"pattern": "x", "args": {"flags": {"deny": ["--"]}}}, "has '--'"),
        ({"pattern": "x", "args": {"flags": {"deny": [1]}}}, "args.flags.deny[0]: expected `str`"),
        ({"pattern": "x", "args": {"paths": "home"}}, "args.paths: invalid enum value 'home'"),
        ({"pattern": "x", "args": {"paths": None}}, "args.paths: expected `str`"),
        ({"pattern": "x", "grants": "network"}, "grants: expected `object`"),
        (
            {"pattern": "x", "grants": {"net": True}},
            "grants: unknown key 'net'; known: network, sockets",
        ),
        ({"pattern": "x", "grants": {"network": "yes"}}, "grants.network: expected `bool`"),
        ({"pattern": "x", "grants": {"sockets": None}}, "grants.sockets: expected `bool`"),
        ({"pattern": "x", "grants": {"read": "/srv"}}, "grants.read: expected `array`"),
        ({"pattern": "x", "grants": {"write": [1]}}, "grants.write[0]: expected `str`"),
        ({"pattern": "x", "grants": {"hosts": ["a b"]}}, "grants.hosts: invalid host 'a b'"),
        ({"pattern": "x", "grants": {"hosts": [""]}}, "grants.hosts: invalid host ''"),
        ({"pattern": "x", "grants": {"read": ["srv"]}}, "the path 'srv'; it must be absolute"),
        ({"pattern": "x", "grants": {"read": ["~ann/x"]}}, "the path '~ann/x'"),
        ({"pattern": "x", "grants": {"write": ["/srv/../etc"]}}, "the path '/srv/../etc'"),
        ({"pattern": "x", "grants": {"write": ["/a\0"]}}, "the path '/a"),
        ({"pattern": "x", "Grants": {}}, "'Grants'; did you mean 'grants'"),
    ]
    for value, message in cases:
        with subtests.test(value=value, message=message):
            _problems_of_an_entry_are_named(value, message)


texts = st.text(max_size=5)
words = st.text("abc", min_size=1, max_size=5)
flags = st.lists(words.map(lambda word: f"--{word}"), max_size=2).map(tuple)
rules = st.builds(
    ArgRule,
    st.none() | st.lists(words, min_size=1, max_size=2).map(tuple),
    st.builds(Flags, st.none() | flags, flags),
    st.sampled_from(["workspace", "any"]),
)


@given(
    st.builds(
        AllowlistEntry,
        texts.filter(bool),
        texts,
        st.none() | texts,
        st.none() | words | rules,
        st.sampled_from([None, "any", "named"]),
        texts,
        st.sampled_from([None, "exact", "subcommand", "program"]),
        st.sampled_from(["", "/srv"]),
        st.sampled_from(["", SUM]),
        st.just(False),
        st.sampled_from([None, Grants(), Grants(network=True, read=("/x", "~/y"), hosts=("a.b",))]),
    )
)
def test_nothing_is_lost_on_the_way_to_the_document_and_back(entry: AllowlistEntry) -> None:
    assert read_entry(entry_to_json(entry)) == entry
    assert describe_entry(entry).isprintable()


def _an_entry_is_told_in_one_line(entry: AllowlistEntry, words: str) -> None:
    assert describe_entry(entry) == words


def test_an_entry_is_described_in_one_line(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        (AllowlistEntry("npm"), "npm"),
        (AllowlistEntry("npm", args="any"), "npm, with any arguments"),
        (AllowlistEntry("git", args="git"), "git, with the arguments of the preset 'git'"),
        (AllowlistEntry("x", arg_pattern="^a$"), "x, with arguments matching /^a$/"),
        (
            AllowlistEntry("x", arg_pattern=f"{EXACT}00", cwd="/srv", content=SUM),
            "x, with exactly these arguments, in /srv, as long as the file does not change",
        ),
        (
            AllowlistEntry(
                "x",
                args=ArgRule(("a", "b c"), Flags(("-v", "-q"), ("-x",)), "workspace"),
                children="named",
            ),
            "x, only a or b c, no flags except -v -q, not with -x, only files in the workspace, "
            "without starting other programs",
        ),
        (AllowlistEntry("x", args=ArgRule(flags=Flags(allow=()))), "x, no flags"),
        (AllowlistEntry("x\u202e\n"), "x\\u{202e}\\u{a}"),
        (AllowlistEntry("*", args="git"), "the programs of the preset 'git'"),
        (AllowlistEntry("*", args="any"), "*, with any arguments"),
        (AllowlistEntry("x", grants=Grants()), "x, granted nothing beyond the sandbox"),
        (
            AllowlistEntry("x", grants=Grants(True, True, ("a.b",), ("/r",), ("~/w",))),
            "x, granted the whole network, unix sockets, the host a.b, read access to /r, "
            "write access to ~/w",
        ),
        (
            AllowlistEntry("x", grants=Grants(hosts=("packages", "a.b"))),
            f"x, granted the {len(PACKAGES)} hosts of package registries (pypi.org, "
            "files.pythonhosted.org, registry.npmjs.org, …), the host a.b",
        ),
    ]
    for entry, words in cases:
        with subtests.test(entry=entry, words=words):
            _an_entry_is_told_in_one_line(entry, words)


def _a_pattern_that_would_mean_nothing_is_not_added(pattern: str, problem: str) -> None:
    assert problem in validate_pattern(pattern)


def test_a_meaningless_pattern_is_not_added(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("", "is empty"),
        (" ", "is empty"),
        ("gi\nt", "invisible characters"),
        ("git\0", "invisible characters"),
        ("git\u200b", "invisible characters"),
        ("git\u202e", "invisible characters"),
        ("\ud800", "invisible characters"),
        (" git", "leading or trailing blanks"),
        ("/" + "a" * 5_000, "at most 4,096 are allowed"),
        ("bin/x", "relative path"),
        ("./x", "relative path"),
        ("../x", "relative path"),
        ("*/x", "relative path"),
        ("~", "relative path"),
        ("~other/x", "relative path"),
        ("/usr/../x", "remove them"),
        ("/usr/./x", "remove them"),
        ("/usr//x", "remove them"),
        ("~/../x", "remove them"),
        ("/usr/bin/", "is a directory"),
    ]
    for pattern, problem in cases:
        with subtests.test(pattern=pattern, problem=problem):
            _a_pattern_that_would_mean_nothing_is_not_added(pattern, problem)


@table(
    "pattern",
    ["git", "*", "g++", "/usr/bin/git", "/usr/bin/py*", "~/bin/x", "**/ls", "/a b/c", "/usr/bin/["],
)
def test_a_pattern_that_means_something_can_be_added(pattern: str) -> None:
    assert validate_pattern(pattern) == ""

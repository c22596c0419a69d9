"""`clawkit approvals allowlist`: what may run without a question."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clawkit.approvals.file import note_use, read_document
from clawkit.cli.main import run
from clawkit.config.paths import approvals_file


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Clawkit = Callable[..., Done]


@pytest.fixture
def allowlist(capsys: pytest.CaptureFixture[str]) -> Clawkit:
    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["approvals", "allowlist", *args])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert "bug" not in shown.err
        return Done(end.value.code or 0 if isinstance(end.value.code, int) else 0, *shown)

    return type_in


def stored() -> list[dict[str, Any]]:
    document = json.loads(Path(approvals_file(os.environ)).read_text(encoding="utf-8"))
    return [
        {key: value for key, value in entry.items() if key != "id"}
        for body in document["agents"].values()
        for entry in body["allowlist"]
    ]


def test_an_empty_list_prints_a_hint(allowlist: Clawkit) -> None:
    done = allowlist("list")
    assert (done.code, done.out) == (0, "")
    assert "allowlist add git --args git" in done.err
    assert allowlist("list", "--json").json == []


@pytest.mark.parametrize(
    ("args", "entry"),
    [
        (["ls"], {"pattern": "ls"}),
        (["/opt/tools/*"], {"pattern": "/opt/tools/*"}),
        (["git", "--args", "git"], {"pattern": "git", "args": "git"}),
        (
            ["git", "--args", '{"subcommand": ["log"]}', "--children", "named"],
            {"pattern": "git", "args": {"subcommand": ["log"]}, "children": "named"},
        ),
        (["ls", "--arg-pattern", "^-l$"], {"pattern": "ls", "argPattern": "^-l$"}),
        (["ls", "--preset", "look"], {"pattern": "ls", "args": "look"}),
        (["ls", "--no-network"], {"pattern": "ls", "grants": {}}),
        (
            ["ls", "--read", "~/.aws", "--read", "/srv", "--write", "/out"],
            {
                "pattern": "ls",
                "grants": {"network": True, "read": ["~/.aws", "/srv"], "write": ["/out"]},
            },
        ),
        (
            ["ls", "--host", "a.example", "--host", "b.example"],
            {"pattern": "ls", "grants": {"hosts": ["a.example", "b.example"]}},
        ),
        (
            ["npm", "--args", "npm", "--write", "/out"],
            {
                "pattern": "npm",
                "args": "npm",
                "grants": {"network": True, "write": ["~/.npm", "/out"]},
            },
        ),
    ],
)
def test_an_added_entry_is_stored(
    allowlist: Clawkit, args: list[str], entry: dict[str, Any]
) -> None:
    done = allowlist("add", *args)
    assert done.code == 0
    assert f"allowed: {entry['pattern']}" in done.err
    assert stored() == [entry]
    assert "already allowed" in allowlist("add", *args).err
    assert len(stored()) == 1


def test_a_preset_needs_no_pattern(allowlist: Clawkit) -> None:
    assert allowlist("add", "--preset", "look").code == 0
    assert stored() == [{"pattern": "*", "args": "look"}]
    assert "the programs of the preset 'look'" in allowlist("list").out


def test_the_list_shows_grants(allowlist: Clawkit) -> None:
    allowlist("add", "ls", "--no-network", "--read", "/srv")
    assert "ls, granted read access to /srv" in allowlist("list").out
    assert allowlist("list", "--json").json[0]["grants"] == {"read": ["/srv"]}


def test_an_entry_added_for_one_agent_applies_only_to_it(allowlist: Clawkit) -> None:
    added = allowlist("add", "ls", "--agent", "ann", "--json").json
    assert (added["added"], added["pattern"]) == (True, "ls")
    assert added["revision"] == read_document(approvals_file(os.environ)).revision
    (row,) = allowlist("list", "--json").json
    assert (row["agent"], row["pattern"], row["lastUsedAtMs"]) == ("ann", "ls", None)
    assert "ls  (agent ann)  [never used]" in allowlist("list").out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["bin/ls"], "PATTERN: the pattern 'bin/ls' is a relative path"),
        ([""], "the pattern is empty"),
        (["l\u200bs"], "has invisible characters"),
        (["ls", "--args", "gti"], "unknown preset 'gti'; did you mean 'git'?"),
        (["ls", "--args", "whatever"], "unknown preset 'whatever'; use one of git-read,"),
        (["ls", "--args", "{"], "--args is not JSON"),
        (["ls", "--args", "{" * 50_000], "--args is not JSON"),
        (["ls", "--args", '{"sub": []}'], "args: unknown key 'sub'; known: subcommand, "),
        (["ls", "--arg-pattern", "("], "--arg-pattern: '(' is invalid"),
        (["ls", "--arg-pattern", ""], "--arg-pattern: '' is invalid"),
        (["ls", "--children", "some"], "'some' is not one of"),
        ([], "name a program"),
        (["--preset", "gti"], "unknown preset 'gti'; did you mean 'git'?"),
        (["--preset", "git", "--args", "git"], "--preset and --args cannot be combined"),
        (["ls", "--host", "a b"], "grants.hosts: invalid host 'a b'"),
    ],
)
def test_invalid_entries_are_not_added(allowlist: Clawkit, args: list[str], said: str) -> None:
    done = allowlist("add", *args)
    assert done.code == 2
    assert said in done.err
    assert not os.path.exists(approvals_file(os.environ))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nosuchprogram"], "nosuchprogram is not in PATH yet"),
        (["/nope/x"], "/nope/x does not exist yet"),
        (["~/x"], "/x does not exist yet"),
        (["ls", "--args", "any"], "ls now runs with any arguments"),
        (["ls", "--arg-pattern", "-l"], "-l matches anywhere in the arguments"),
        (
            ["ls", "--host", "a.example"],
            "ls runs in the sandbox, because only the sandbox can restrict hosts",
        ),
    ],
)
def test_suspicious_entries_get_a_warning(allowlist: Clawkit, args: list[str], said: str) -> None:
    done = allowlist("add", *args)
    assert done.code == 0
    assert f"warning: {said}" in done.err or said in done.err
    assert len(stored()) == 1


def test_a_broken_document_is_not_touched(allowlist: Clawkit) -> None:
    path = Path(approvals_file(os.environ))
    path.write_text("{", encoding="utf-8")
    for args in (["add", "ls"], ["remove", "ls"], ["list"]):
        done = allowlist(*args)
        assert done.code == 2
        assert str(path) in done.err
    assert path.read_text(encoding="utf-8") == "{"


def test_entries_are_removed_by_id_or_pattern(allowlist: Clawkit) -> None:
    for name in ("ls", "cat", "touch"):
        allowlist("add", name)
    ids = {row["pattern"]: row["id"] for row in allowlist("list", "--json").json}
    assert allowlist("remove", "ls").err == "removed: ls\n"
    assert allowlist("remove", ids["cat"][:8]).err == "removed: cat\n"
    done = allowlist("remove", ids["touch"], "--json").json
    assert done["removed"] == {"agent": "*", "id": ids["touch"], "pattern": "touch"}
    assert stored() == []


def test_removing_an_ambiguous_entry_lists_the_candidates(allowlist: Clawkit) -> None:
    allowlist("add", "ls", "--agent", "ann")
    allowlist("add", "ls", "--agent", "bob")
    for which in ("ls", "nope"):
        done = allowlist("remove", which)
        assert done.code == 2
        assert done.err.count("  ls") == 2
    assert allowlist("remove", "ls", "--agent", "bob").code == 0
    assert [row["agent"] for row in allowlist("list", "--json").json] == ["ann"]


def test_the_list_shows_when_an_entry_was_last_used(allowlist: Clawkit) -> None:
    allowlist("add", "ls")
    path = approvals_file(os.environ)
    (item,) = read_document(path).items
    note_use(path, {item.entry.id: ("ls -l", "/usr/bin/ls")}, 1_000)
    assert allowlist("list", "--json").json[0]["lastUsedAtMs"] == 1_000
    assert "d ago]" in allowlist("list").out or "h ago]" in allowlist("list").out

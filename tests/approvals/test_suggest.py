"""Rules proposed from what people have allowed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from clawkit.approvals.allow_always import Suggestion, suggest
from clawkit.approvals.audit import Audit, read
from clawkit.approvals.entries import read_entry, validate_pattern
from clawkit.approvals.types import ArgRule, Entry


def fact(words: str, *, folder: str = "/usr/bin", **fields: Any) -> dict[str, Any]:
    argv = shlex.split(words)
    return {"resolved": f"{folder}/{argv[0]}", "argv": argv, "code": "miss", **fields}


def asked(*calls: str | dict[str, Any], times: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """Records of a question that was answered with yes."""
    programs = [each if isinstance(each, dict) else fact(each) for each in calls]
    command = " | ".join(shlex.join(each["argv"]) for each in programs)
    record = {
        "verdict": "allow",
        "code": "miss",
        "actor": "the terminal",
        "agent": "main",
        "cwd": "/work",
        "command": command,
        "programs": programs,
        **fields,
    }
    return [record] * times


def rules(found: list[Suggestion]) -> dict[str, tuple[Any, int]]:
    """By pattern and sub-command: the arguments and the count."""
    return {
        " ".join([each.pattern, *(each.args or {}).get("subcommand", [])])
        if not isinstance(each.args, str)
        else f"{each.pattern} {each.args}": (each.args, each.count)
        for each in found
    }


def test_a_sub_command_that_is_asked_for_often_becomes_a_rule() -> None:
    (found,) = suggest(asked("git status", times=11) + asked("git status -s"))
    assert found == Suggestion(
        pattern="/usr/bin/git",
        args={"subcommand": ["status"]},
        count=12,
        example="git status -s",
        words=(
            "clawkit approvals allowlist add /usr/bin/git --agent main "
            """--args '{"subcommand": ["status"]}'"""
        ),
    )


def test_what_is_to_be_typed_makes_the_rule() -> None:
    records = asked("git log", times=3) + asked("rg x src", times=2) + asked("rg 'a b' /etc")
    for each in suggest(records, lambda *_: True, presets=("git",)):
        words = shlex.split(each.words)
        assert words[:6] == ["clawkit", "approvals", "allowlist", "add", each.pattern, "--agent"]
        rest = dict(zip(words[5::2], words[6::2], strict=True))
        assert rest["--agent"] == "main"
        given = rest.get("--args")
        args = json.loads(given) if given and given.startswith("{") else given
        assert args == each.args
        assert validate_pattern(each.pattern) == ""
        entry = read_entry({"pattern": each.pattern, **({"args": args} if args else {})})
        assert entry.pattern == each.pattern


NARROW: list[tuple[list[str], Any]] = [
    # Programs with sub-commands.
    (["git stash list", "git stash list -v"], {"subcommand": ["stash list"]}),
    (["gh pr view 5", "gh pr view 6"], {"subcommand": ["pr view"]}),
    (["npm run build", "npm run build"], {"subcommand": ["run build"]}),
    (["npm test", "npm test"], {"subcommand": ["test"]}),
    (["docker ps", "docker ps -a"], {"subcommand": ["ps"]}),
    (["docker compose ps", "docker compose ps"], {"subcommand": ["compose ps"]}),
    (["make test", "make test -j4"], {"subcommand": ["test"]}),
    # Others, always with the same first word.
    (["mytool deploy a", "mytool deploy b"], {"subcommand": ["deploy"]}),
    (["pytest tests", "pytest tests"], {"subcommand": ["tests"]}),
    # Only with files that are below.
    (["tree src", "tree docs/a"], {"paths": "workspace"}),
    (["tree", "tree -L 2"], {"paths": "workspace"}),
    (["tree", "tree"], {"paths": "workspace"}),
    (["stat --format=x a.b", "stat -c x"], {"paths": "workspace"}),
    # With others too.
    (["tree src", "tree /etc"], None),
    (["tree src", "tree ../x"], None),
    (["tree src", "tree '~/x'"], None),
    (["tree src", "tree --of=/etc"], None),
    (["tree src", "tree 'a b'"], None),
    (["find . -name x", "find / -name y"], None),
]


def _the_narrowest_rule_that_covers_all_is_proposed(calls: list[str], args: Any) -> None:
    (found,) = suggest([record for call in calls for record in asked(call)])
    assert found.args == args
    assert found.count == 2


def test_the_narrowest_rule_that_covers_all_is_proposed(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = NARROW
    for calls, args in cases:
        with subtests.test(calls=calls, args=args):
            _the_narrowest_rule_that_covers_all_is_proposed(calls, args)


NEVER: dict[str, list[dict[str, Any]]] = {
    "asked once": asked("git status"),
    "asked once each": asked("git status") + asked("git log"),
    "not asked": asked("git status", times=5, actor="policy"),
    "nobody answered": asked("git status", times=5, actor="askFallback, because of nobody"),
    "only asked": asked("git status", times=5, verdict="ask"),
    "always asked": asked("git status", times=5, code=""),
    "redirected": asked("git status", times=5, code="redirect"),
    "not all of it is known": asked("git status", times=5, cut=True),
    "inline code": asked("python3 -c 1", times=5),
    "script": asked("python3.11 a.py", times=5),
    "node": asked("node a.js", times=5),
    "awk": asked("awk 1", times=5),
    "sed": asked("sed p", times=5),
    "shell": asked("bash a.sh", times=5) + asked("zsh x", times=5) + asked("sh x", times=5),
    "wrapper": asked(fact("timeout 5 x", wrapper=True), times=5),
    "sudo": asked("sudo ls", times=5),
    "xargs": asked("xargs ls", times=5),
    "env": asked("env ls", times=5),
    "ssh": asked("ssh host ls", times=5),
    "rm": asked("rm -rf build", times=5),
    "curl": asked("curl https://example.org", times=5),
    "clawkit": asked("clawkit approvals get", times=5),
    "other code": asked(fact("git status", code="inline-eval"), times=5),
    "under another name": asked({**fact("ls x"), "argv": ["bash", "x"]}, times=5),
    "a link to a shell": asked({**fact("bash x"), "argv": ["ls", "x"]}, times=5),
    "docker run": asked("docker run x", times=5),
    "npm exec": asked("npm exec x", times=5),
    "git config": asked("git config a b", times=5),
    "no sub-command": asked("git", times=5),
    "flag first": asked("git -C /x status", times=5),
    "odd sub-command": asked("git 'status;x'", times=5),
    "group without its own": asked("git stash", times=5) + asked("git stash -u", times=5),
    "own program": asked(fact("run.sh", folder="/work/bin"), times=5),
    "own program below a slash": asked(fact("run.sh", folder="/work/bin"), times=5, cwd="/work/"),
    "temporary program": asked(fact("x", folder="/tmp/a"), times=5),
    "pattern": asked({**fact("x"), "resolved": "/opt/*/x"}, times=5),
    "pattern with a question": asked({**fact("x"), "resolved": "/opt/?"}, times=5),
    "brackets": asked({**fact("x"), "resolved": "/opt/[a]"}, times=5),
    "blank": asked({**fact("x"), "resolved": "/opt/a b"}, times=5),
    "invisible": asked({**fact("x"), "resolved": "/opt/a\u200b"}, times=5),
    "line end": asked({**fact("x"), "resolved": "/opt/a\n"}, times=5),
    "dots": asked({**fact("x"), "resolved": "/opt/../bin/x"}, times=5),
    "relative": asked({**fact("x"), "resolved": "bin/x"}, times=5),
    "nothing found": asked({**fact("x"), "resolved": ""}, times=5),
    "refused": asked("git push", times=5) + asked("git push", verdict="deny"),
    "refused before": asked("git push", verdict="deny", code="redirect")
    + asked("git push", times=5),
    "with a shell": asked("git status", "bash x", times=5),
    "with one asked once": asked("git status", "rg x") + asked("rg y"),
    "no programs": asked(times=5),
    "all allowed": asked(fact("git status", code=""), times=5),
}


def _nothing_is_proposed_for(case: str) -> None:
    assert suggest(NEVER[case]) == []


def test_nothing_is_proposed_for(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = NEVER
    for case in cases:
        with subtests.test(case=case):
            _nothing_is_proposed_for(case)


def _records_that_make_no_sense_count_for_nothing(fields: dict[str, Any]) -> None:
    assert suggest(asked("git status", times=5, **fields)) == []
    assert suggest([{}, {"actor": "me"}]) == []


def test_records_that_make_no_sense_count_for_nothing(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        {"agent": None},
        {"cwd": 5},
        {"programs": None},
        {"programs": "git"},
        {"programs": [None]},
        {"programs": [{}]},
        {"programs": [{"resolved": "/usr/bin/git", "argv": "git status"}]},
        {"programs": [{"resolved": "/usr/bin/git", "argv": []}]},
        {"programs": [{"resolved": "/usr/bin/git", "argv": ["git", 5]}]},
        {"programs": [{"resolved": 5, "argv": ["git", "status"]}]},
        {"programs": [fact("git status"), 5]},
        {"verdict": []},
        {"actor": {}},
    ]
    for fields in cases:
        with subtests.test(fields=fields):
            _records_that_make_no_sense_count_for_nothing(fields)


def test_a_program_without_a_code_was_missing() -> None:
    bare = {"resolved": "/usr/bin/git", "argv": ["git", "status"]}
    assert rules(suggest(asked(bare, times=2))) == {
        "/usr/bin/git status": ({"subcommand": ["status"]}, 2)
    }


def test_the_root_directory_is_no_workspace_of_everything() -> None:
    assert len(suggest(asked("git status", times=2, cwd="/"))) == 1


def test_a_question_is_saved_only_by_rules_for_all_of_its_parts() -> None:
    records = [
        *asked("git log", "rg x", times=3),
        *asked("git log", "bash x", times=9),
        *asked(fact("git log", code=""), "rg y /x"),
    ]
    found = suggest(records)
    assert rules(found) == {
        "/usr/bin/rg": (None, 4),
        "/usr/bin/git log": ({"subcommand": ["log"]}, 3),
    }
    assert found[0].example == "git log | rg y /x"


def test_a_rule_that_only_helps_with_another_goes_with_it() -> None:
    # Without one for fd, which is wanted once, there is nothing that one for bat could save.
    assert suggest(asked("fd x", "bat x") + asked("bat y")) == []


def test_a_program_that_comes_twice_in_a_question_counts_once() -> None:
    (found,) = suggest(asked("git log", "git log", times=2))
    assert found.count == 2


def test_the_most_useful_comes_first() -> None:
    records = [
        *asked("git log", times=2),
        *asked("git status", times=5),
        *asked("git diff", times=2),
        *asked("git status", times=3, agent="other"),
    ]
    found = [
        (each.agent, next(iter(rules([each]))).split()[1], each.count) for each in suggest(records)
    ]
    assert found == [
        ("main", "status", 5),
        ("other", "status", 3),
        ("main", "diff", 2),
        ("main", "log", 2),
    ]


def test_what_one_agent_was_refused_another_may_have() -> None:
    records = asked("git push", times=2) + asked("git push", verdict="deny", agent="other")
    assert len(suggest(records)) == 1


def test_what_runs_the_files_of_the_project_is_marked() -> None:
    marked = {
        each.pattern: each.note
        for each in suggest(asked("make test", times=2) + asked("git log", times=2))
    }
    assert marked == {
        "/usr/bin/make": "it runs what the files of the project say",
        "/usr/bin/git": "",
    }


def covers(entry: Entry, program: Mapping[str, Any], cwd: str) -> bool:
    """A check that knows one preset, and lets nobody look at files elsewhere."""
    assert cwd == "/work"
    first = program["argv"][1]
    if entry.args == "git":
        return first in ("log", "status", "diff")
    if isinstance(entry.args, ArgRule) and entry.args.subcommand is not None:
        return entry.args.subcommand == (first,)
    return isinstance(entry.args, ArgRule) and entry.args.paths == "workspace"


def test_a_preset_that_covers_the_calls_is_proposed() -> None:
    records = [
        *asked("git log", times=2),
        *asked("git status"),
        *asked("git log", "git diff"),
        *asked("git push", times=2),
    ]
    assert rules(suggest(records, covers, presets={"git", "npm"})) == {
        "/usr/bin/git git": ("git", 4),
        "/usr/bin/git push": ({"subcommand": ["push"]}, 2),
    }
    assert "/usr/bin/git git" not in rules(suggest(records, presets={"git"}))
    assert "/usr/bin/git git" not in rules(suggest(records, covers))


def test_a_rule_that_would_not_help_is_not_proposed() -> None:
    assert suggest(asked("tree a", times=2) + asked("tree /etc"), covers) == []
    assert suggest(asked("tree a", times=2) + asked("tree b"), covers)[0].args == {
        "paths": "workspace"
    }


def test_the_log_can_be_read_for_it(tmp_path: Path) -> None:
    path = str(tmp_path / "logs" / "log.jsonl")
    log = Audit(path)
    for record in asked("git status", "rg --password hunter2222 x", times=3):
        log.write(record)
    found = suggest(read(path))
    assert {each.count for each in found} == {3}
    assert "hunter2222" not in str(found)


def test_hostile_words_are_quoted() -> None:
    (found,) = suggest(asked("git log", times=2, agent="x; rm -rf ~"))
    assert shlex.split(found.words)[6] == "x; rm -rf ~"

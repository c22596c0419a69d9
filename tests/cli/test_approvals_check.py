"""`clawkit approvals check`: what would become of a command, without running it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.test_corpus import CASES, HERE, generate

from clawkit.cli.approvals_check import MAX_LINE
from clawkit.cli.main import run

pytestmark = pytest.mark.usefixtures("on_host")


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.split("\n") if line]


Check = Callable[..., Done]


@pytest.fixture
def check(
    capsys: pytest.CaptureFixture[str], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> Check:
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["approvals", "check", *args])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert "bug" not in shown.err
        return Done(end.value.code or 0 if isinstance(end.value.code, int) else 0, *shown)

    return type_in


@pytest.fixture
def feed(
    capsys: pytest.CaptureFixture[str], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> Check:
    """Lines for `--jsonl`."""
    monkeypatch.chdir(workspace)

    def give(*lines: str | bytes | dict[str, Any]) -> Done:
        data = b"".join(
            (line if isinstance(line, bytes) else _text(line).encode()) + b"\n" for line in lines
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(SystemExit) as end:
            run(["approvals", "check", "--jsonl"])
        assert isinstance(end.value.code, int)
        return Done(end.value.code, *capsys.readouterr())

    def _text(line: str | dict[str, Any]) -> str:
        return line if isinstance(line, str) else json.dumps(line)

    return give


def test_an_unlisted_command_is_explained_with_the_command_that_allows_it(check: Check) -> None:
    done = check("ls -l | head -3")
    assert done.code == 3
    assert done.out.split("\n") == [
        "ask: ls is not on the allowlist",
        "  if approved, it runs on the host, unconfined",
        "  ls -l",
        "    asks  /usr/bin/ls: ls is not on the allowlist",
        "  head -3",
        "    ok    /usr/bin/head: head (safe program)",
        "  in force: tools.exec.security is 'allowlist' by default; "
        "tools.exec.ask is 'on-miss' by default",
        "To allow it from now on: clawkit approvals allowlist add /usr/bin/ls",
        "",
    ]


def test_an_agent_that_is_not_configured_is_a_warning(check: Check) -> None:
    assert "no agent called 'nope' is configured" in check("ls", "--agent", "nope").err
    assert check("ls").err == ""


def test_the_suggested_commands_allow_the_checked_command(check: Check) -> None:
    advice = check("ls; touch x").out.rpartition("from now on: ")[2]
    assert advice.count("&&") == 1
    for command in advice.split("&&"):
        with pytest.raises(SystemExit):
            run(command.split()[1:])
    done = check("ls; touch x")
    assert (done.code, done.out.split(",")[0]) == (0, "allow")


def test_the_command_is_shown_as_it_would_run(check: Check, workspace: Path) -> None:
    done = check("head -3 < a.txt")
    assert done.code == 0
    assert done.out.startswith(
        "allow, on the host, confined, by entry: every part is allowed: head (safe program)\n"
    )
    assert f"  runs as: /usr/bin/head -3 <{workspace}/a.txt\n" in done.out
    assert "(with Landlock) lets it start only: /usr/bin/head\n" in done.out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo a; cat $UNKNOWN/x", ["    echo a; cat $UNKNOWN/x\n", "\n                ^ here\n"]),
        (
            "echo `date`",
            [
                "cannot determine what this runs: command substitution",
                "^ here",
                "No allowlist entry can allow it as written; a person can, each time. Without",
            ],
        ),
        ("#", ["nothing to run", "No allowlist entry can allow it as written;"]),
        (
            "rm -rf /",
            [
                "only a person can allow this",
                "No allowlist entry can allow it as written; a person",
            ],
        ),
        ("nosuchprogram", ["nosuchprogram was not found in PATH"]),
        ("echo hi > f", ["it writes the file", "config set tools.exec.redirects workspace"]),
        (
            "ls; nosuch",
            ["    asks  /usr/bin/ls", "          to allow it: clawkit approvals allowli"],
        ),
        ("есho hi", ["warning: the program name has look-alike letters"]),
        ("ls \u202eabc", ["warning: it has characters that reverse the order", "\\u{202e}abc"]),
    ],
)
def test_what_no_rule_helps_with_is_explained_too(
    check: Check, command: str, said: list[str]
) -> None:
    done = check(command)
    assert done.code == 3
    assert [words for words in said if words not in done.out] == []
    assert "\u202e" not in done.out


def test_an_entry_that_would_help_but_is_not_suggested_is_not_denied(
    check: Check, workspace: Path
) -> None:
    script = workspace / "release"
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    script.chmod(0o755)
    done = check("./release", "--allow", "**/release")
    assert "so only an entry with its own path allows it" in done.out
    assert done.out.endswith(
        "No allowlist entry is suggested for this; a person can allow it each time.\n"
    )
    assert check("./release", "--allow", str(script)).code == 0


@pytest.mark.parametrize(
    ("options", "verdict", "said"),
    [
        (["--allow", "ls"], "allow", "ls (allowlist)"),
        (["--allow", "git", "--allow", "/usr/bin/ls"], "allow", "/usr/bin/ls (allowlist)"),
        (["--allow", "/usr/bin/**"], "allow", "/usr/bin/** (allowlist)"),
        (["--security", "full", "--ask", "off"], "allow", "every command may run"),
        (["--security", "deny"], "deny", "no command may run"),
        (["--ask", "off"], "deny", "no    /usr/bin/ls: ls is not on the allowlist"),
        (["--ask", "always", "--allow", "ls"], "ask", "No allowlist entry changes that"),
        (["--safe-bin", "ls"], "ask", "ls is allowed, but"),
    ],
)
def test_options_override_the_configured_policy(
    check: Check, options: list[str], verdict: str, said: str
) -> None:
    done = check("ls", *options)
    assert re.split("[:,]", done.out)[0] == verdict
    assert said in done.out
    assert done.code == (0 if verdict == "allow" else 3)


def test_options_replace_what_is_listed(check: Check) -> None:
    with pytest.raises(SystemExit):
        run(["approvals", "allowlist", "add", "ls"])
    assert check("ls").code == 0
    assert check("ls", "--allow", "git").code == 3
    assert check("head").code == 0
    assert check("head", "--safe-bin", "tail").code == 3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "name a command"),
        ([" "], "name a command"),
        (["git", "push"], "quote the command: clawkit approvals check 'git push'"),
        (["ls", "--jsonl"], "options come from the input"),
        (["--jsonl", "--ask", "off"], "options come from the input"),
        (["ls", "--allow", "bin/ls"], "--allow: the pattern 'bin/ls' is a relative path"),
        (["ls", "--cwd", "/nope"], "--cwd: '/nope' is not a directory"),
        (["ls", "--security", "some"], "'some' is not one of"),
        (["l\0s"], "command: contains a NUL character"),
        (["a" * 200_000], "is 200,000 bytes; the limit of exec is 131,071"),
    ],
)
def test_wrong_usage(check: Check, args: list[str], said: str) -> None:
    done = check(*args)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_for_programs(check: Check, workspace: Path) -> None:
    done = check("ls -l | head -3", "--json", "--allow", "ls")
    assert done.code == 0
    (ls, head) = done.json.pop("segments")
    assert done.json["verdict"] == "allow"
    assert done.json["analysis"] == {"ok": True, "rebuilt": "/usr/bin/ls -l | /usr/bin/head -3"}
    assert done.json["programs"] is None
    assert (ls["argv"], ls["resolved"], ls["by"]) == (["ls", "-l"], "/usr/bin/ls", "entry")
    assert (ls["reason"], ls["children"], ls["cwd"]) == ("ls (allowlist)", "any", str(workspace))
    assert (head["by"], head["children"]) == ("safe-bin", "named")


def test_every_part_for_programs_has_the_same_keys(check: Check) -> None:
    found = check("cd src && touch x > y", "--json").json
    assert found["verdict"] == "ask"
    shown = [(part["argv"], part["resolved"], part["by"]) for part in found["segments"]]
    assert shown == [
        (["cd"], "", "builtin"),
        (["touch", "x"], "/usr/bin/touch", None),
        ([], "", None),
    ]
    assert [part["code"] for part in found["segments"][1:]] == ["miss", "redirect"]
    doubt = check("ls; echo $X", "--json").json["analysis"]
    assert (doubt["ok"], doubt["position"]) == (False, 9)
    assert check("ls", "--json", "--security", "deny").json["analysis"] is None
    offered = check("touch x", "--json").json["always"]
    assert [each["extent"] for each in offered] == ["exact", "program"]


def test_the_workspace_is_where_the_command_runs_unless_told(check: Check, tmp_path: Path) -> None:
    assert check("head < a.txt").code == 0
    assert check("head < a.txt", "--cwd", str(tmp_path)).code == 0
    away = check("head < a.txt", "--cwd", str(tmp_path), "--workspace", "src")
    assert away.code == 3
    assert "which is not in the workspace" in away.out


def test_a_document_that_cannot_be_read_refuses_everything(check: Check) -> None:
    (Path(os.environ["CLAWKIT_HOME"]) / "exec-approvals.json").write_text("{", encoding="utf-8")
    done = check("ls")
    assert (done.code, done.out.split(":")[0]) == (3, "deny")
    assert "exec-approvals.json" in done.out


def test_lines_are_answered_one_by_one_whatever_they_are(feed: Check, workspace: Path) -> None:
    ls = {"command": "ls", "allowlist": ["ls"]}
    done = feed(
        {**ls, "id": "a"},
        "",
        {"command": "ls", "allowlist": [{"pattern": "/usr/bin/ls"}], "id": 7},
        {"command": "head", "safeBins": ["head"], "env": {"PATH": "/usr/bin"}},
        {"command": "ls", "security": "full", "ask": "off", "cwd": "/nonexistent"},
        {"command": "python3 -c 1", "security": "full", "ask": "off", "strictInlineEval": True},
        {"command": "ls", "env": {"PATH": str(workspace)}, "allowlist": ["ls"]},
    )
    assert done.code == 0, done.err
    assert [line["verdict"] for line in done.lines] == ["allow"] * 4 + ["ask"] * 2
    assert [line.get("id") for line in done.lines] == ["a", 7, *[None] * 4]
    assert done.err == ""


BAD: list[tuple[str | bytes | dict[str, Any], str]] = [
    ({"command": "ls " + "a" * 5_000_000}, "command: is 5,000,003 bytes"),
    (b'{"command": "' + b"a" * MAX_LINE + b'"}', "is longer than 16,777,216 bytes"),
    ("nonsense", "is not JSON"),
    (b"\xff\xfe{", "is not JSON"),
    ("[" * 100_000, "is not JSON"),
    ("[]", "must be an object like"),
    ({"cmd": "ls"}, "must be an object like"),
    ({"command": 5}, "command: Expected `str`, got `int`"),
    ({"command": None}, "command: Expected `str`, got `null`"),
    ({"command": "ls", "safebins": []}, "has the unknown key 'safebins'; did you mean 'safeBins'?"),
    ({"command": "ls", "whatever": 1}, "has the unknown key 'whatever'; known: command, cwd,"),
    ({"command": "l\0s"}, "command: contains a NUL character"),
    ('{"command": "ls \\ud800"}', "command: has a lone surrogate at position 3"),
    ({"command": "ls", "cwd": "/\0"}, "cwd: contains a NUL character"),
    ({"command": "ls", "cwd": []}, "cwd: Expected `str | null`, got `array`"),
    ({"command": "ls", "env": {"PATH": 3}}, "env[...]: Expected `str`, got `int`"),
    ({"command": "ls", "env": {"PATH": "\0"}}, "PATH: contains a NUL character"),
    ({"command": "ls", "safeBins": [None]}, "safeBins[0]: Expected `str`, got `null`"),
    ({"command": "ls", "allowlist": "ls"}, "allowlist: Expected `array | null`, got `str`"),
    ({"command": "ls", "allowlist": [3]}, "an entry is int"),
    ({"command": "ls", "allowlist": [{}]}, "pattern is missing"),
    (
        {"command": "ls", "security": "some"},
        "security: Invalid enum value 'some'; use one of deny, allowlist, full",
    ),
    ({"command": "ls", "ask": 1}, "ask: Expected `str | null`, got `int`"),
    (
        {"command": "ls", "strictInlineEval": "no"},
        "strictInlineEval: Expected `bool | null`, got `str`",
    ),
    ({"command": "ls", "id": {"a": 1}}, "id: Expected `int | str | null`, got `"),
    ('{"command": "ls", "id": 1e999}', "id: Expected `int | str | null`, got `"),
]


def test_a_line_that_makes_no_sense_is_an_answer_and_not_the_end(feed: Check) -> None:
    done = feed(*(line for line, _ in BAD), {"command": "ls", "allowlist": ["ls"], "id": 1})
    assert done.code == 1
    assert done.err == ""
    *bad, last = done.lines
    assert last["verdict"] == "allow"
    for number, (answer, (_, said)) in enumerate(zip(bad, BAD, strict=True), 1):
        assert answer["verdict"] == "deny"
        assert answer["error"].startswith(f"line {number} {said}"), answer
        assert answer["segments"] == []


def test_the_allowlist_cases_line_by_line(feed: Check, tmp_path: Path) -> None:
    place = tmp_path / "made" / "ws"
    subprocess.run(["bash", str(HERE / "fixture.sh"), str(place)], check=True)
    # What has a harm is judged by its effect: tests/sandbox/test_corpus_effects.py.
    cases = [each for each in CASES.values() if each["area"] == "allowlist" and "harm" not in each]
    assert len(cases) > 100
    lines = [
        json.dumps({**generate(case["input"]), "id": case["id"]}).replace("$WS", str(place))
        for case in cases
    ]
    done = feed(*lines)
    assert done.code == 0, done.err
    for case, answer in zip(cases, done.lines, strict=True):
        assert answer["id"] == case["id"]
        assert (answer["verdict"] == "allow") == (case["expected"] == "allow"), answer
    assert not list(place.rglob("PWNED"))


def test_commands_that_need_little_import_little() -> None:
    code = (
        "import sys; import clawkit.cli.approvals; "
        "print([name for name in ('asyncio', 'apsw', 'clawkit.approvals.judge', "
        "'clawkit.approvals.file', 'clawkit.core.call') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

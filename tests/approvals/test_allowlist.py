"""Whether a program may run without a question, and by which rule."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace
from tests.tables import table

from clawkit.approvals.allowlist import (
    MAX_CONTENT_BYTES,
    PLAIN_GRANTS,
    ProgramCall,
    content_of,
    match_program,
)
from clawkit.approvals.entries import hash_call
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.types import (
    AllowlistEntry,
    ApprovalRules,
    Arg,
    ArgRule,
    Flags,
    Match,
    Miss,
    Program,
)
from clawkit.config.sections.tools import SAFE_BINS
from clawkit.process.protocols import Grants

HOME = "/home/me"


def program(line: str, **fields: Any) -> Program:
    """A call as typed, of a program in /usr/bin by default."""
    words = shlex.split(line)
    argv = tuple(Arg(each.removeprefix("glob:"), glob=each.startswith("glob:")) for each in words)
    path = words[0] if words[0].startswith("/") else f"/usr/bin/{words[0]}"
    return replace(Program(argv, path, path, "/ws"), **fields)


def in_workspace(path: str) -> bool:
    return path == "/ws" or path.startswith("/ws/")


def judge(
    call: Program | str, *entries: AllowlistEntry | str, rules: ApprovalRules | None = None
) -> Match | Miss:
    listed = tuple(AllowlistEntry(each) if isinstance(each, str) else each for each in entries)
    rules = rules or ApprovalRules(may_read=in_workspace, may_write=in_workspace)
    found = program(call) if isinstance(call, str) else call
    return match_program(found, replace(rules, entries=listed), home=HOME)


def allowed(
    call: Program | str, *entries: AllowlistEntry | str, rules: ApprovalRules | None = None
) -> bool:
    return isinstance(judge(call, *entries, rules=rules), Match)


def reason(
    call: Program | str, *entries: AllowlistEntry | str, rules: ApprovalRules | None = None
) -> str:
    found = judge(call, *entries, rules=rules)
    assert isinstance(found, Miss)
    return found.reason


@table(
    ("line", "entries", "expected"),
    [
        ("ls -la", ["/usr/bin/ls"], True),
        ("ls -la", ["ls"], True),
        ("ls -la", ["*"], True),
        ("ls -la", ["l*"], True),
        ("ls -la", ["/usr/bin/git", "npm", "/usr/bin/ls"], True),
        ("ls -la", [], False),
        ("ls -la", ["/usr/bin/git"], False),
        ("/usr/bin/ls", ["ls"], False),
        ("/usr/bin/ls", ["/usr/bin/ls"], True),
    ],
)
def test_a_program_needs_an_entry(line: str, entries: list[str], expected: bool) -> None:
    assert allowed(line, *entries) is expected


def test_the_rule_is_named() -> None:
    entry = AllowlistEntry("/usr/bin/ls", id="1")
    plain = Match("entry", "/usr/bin/ls (allowlist)", entry, "any", grants=PLAIN_GRANTS)
    assert judge("ls", entry) == plain
    tight = replace(entry, children="named")
    assert judge("ls", tight) == structs.replace(plain, entry=tight, children="named")


def test_a_miss_contains_the_command_that_allows_it() -> None:
    assert judge("ls") == Miss(
        "ls is not on the allowlist", "clawkit approvals allowlist add /usr/bin/ls"
    )
    spaced = program("x", argv=(Arg("/a b/x"),), resolved="/a b/x", real="/a b/x")
    assert judge(spaced) == Miss(
        "/a b/x is not on the allowlist", "clawkit approvals allowlist add '/a b/x'"
    )
    starred = program("x", argv=(Arg("/a*/x"),), resolved="/a*/x", real="/a*/x")
    assert judge(starred) == Miss("/a*/x is not on the allowlist")


def test_a_program_that_was_not_found_is_never_allowed() -> None:
    missing = program("nothing", resolved="", real="")
    assert judge(missing, "*", "nothing") == Miss("nothing was not found in PATH")
    assert judge(replace(missing, argv=(Arg("./x"),)), "*") == Miss("./x was not found")
    assert not allowed(program("glob:ls"), "*", "ls")


def test_entries_with_a_pattern_for_arguments_come_first() -> None:
    whole, exact = AllowlistEntry("ls"), AllowlistEntry("/usr/bin/ls", arg_pattern="^-la$")
    for entries in ((whole, exact), (exact, whole)):
        found = judge("ls -la", *entries)
        assert isinstance(found, Match)
        assert found.entry is exact
        other = judge("ls -l", *entries)
        assert isinstance(other, Match)
        assert other.entry is whole


@table(
    ("line", "expected"),
    [
        ("python3 script.py", True),
        ("python3 evil.py", False),
        ("python3 -c 'import os' script.py", False),
        ("python3 'script.py' x", False),
    ],
)
def test_arguments_must_match_the_pattern(line: str, expected: bool) -> None:
    entry = AllowlistEntry("/usr/bin/python3*", arg_pattern=r"^script\.py$")
    assert allowed(line, entry) is expected


@table(
    ("line", "entries", "told"),
    [
        (
            "ls -l",
            [AllowlistEntry("ls", arg_pattern="^-a$")],
            "ls is allowed, but not with these arguments",
        ),
        ("ls -l", [AllowlistEntry("ls", cwd="/other")], "ls is allowed, but only in /other"),
        (
            "ls -l",
            [AllowlistEntry("ls", args=ArgRule(flags=Flags(allow=("-a",))))],
            "ls is allowed, but not with -l",
        ),
        (
            "ls -l",
            [
                AllowlistEntry("ls", args=ArgRule(("x",))),
                AllowlistEntry("l*", args=ArgRule(("x",))),
            ],
            "ls is allowed, but not with -l before the sub-command",
        ),
        (
            "ls x",
            [AllowlistEntry("ls", args=ArgRule((name,))) for name in ("a", "b", "c", "d")],
            "ls is allowed, but not x, only a; not x, only b; not x, only c",
        ),
    ],
)
def test_the_reason_why_an_entry_does_not_match_is_reported(
    line: str, entries: Sequence[AllowlistEntry], told: str
) -> None:
    assert reason(line, *entries) == told


@table(
    ("line", "suggested"),
    [
        ("python3.11 -m pytest -q", "/usr/bin/python3.11 --args python"),
        ("python3 tool.py", "/usr/bin/python3 --args python"),
        ("python3 -m http.server", ""),
        ("node server.js", ""),
        ("git status", "/usr/bin/git --args git-read"),
        ("git add .", "/usr/bin/git --args git"),
        ("npm outdated", "/usr/bin/npm --args npm"),
        ("npm test", "/usr/bin/npm"),
        ("make", "/usr/bin/make"),
    ],
)
def test_a_preset_is_proposed_before_the_whole_program_which_an_interpreter_never_is(
    line: str, suggested: str
) -> None:
    found = judge(line)
    assert isinstance(found, Miss)
    assert found.to_allow.removeprefix("clawkit approvals allowlist add ") == suggested


def test_nothing_is_proposed_for_a_program_whose_path_would_be_a_pattern() -> None:
    found = judge(program("git status", resolved="/opt/a*b/git", real="/opt/a*b/git"))
    assert isinstance(found, Miss)
    assert found.to_allow == ""


def test_a_wider_entry_is_proposed_only_if_it_would_match() -> None:
    found = judge("ls -l", AllowlistEntry("ls", arg_pattern="^-a$"))
    assert isinstance(found, Miss)
    assert found.to_allow == "clawkit approvals allowlist add /usr/bin/ls"
    dangerous = judge("git -c alias.x=!id x", "/usr/bin/git")
    assert isinstance(dangerous, Miss)
    assert dangerous.to_allow == ""
    assert dangerous.reason.startswith("git is allowed, but -c ")


@pytest.mark.parametrize(
    "line",
    [
        "git -c alias.x='!touch PWNED' x",
        "git diff --output=PWNED",
        "git grep --open-files-in-pager=./evil.sh alpha",
    ],
)
@pytest.mark.parametrize("args", [None, ArgRule()])
def test_an_entry_does_not_cover_arguments_that_start_another_program(
    line: str, args: ArgRule | None
) -> None:
    assert not allowed(line, AllowlistEntry("/usr/bin/git", args=args))
    assert not allowed(line, AllowlistEntry("/usr/bin/git", arg_pattern=".", args=args))
    assert allowed(line, AllowlistEntry("/usr/bin/git", args="any"))
    assert allowed("git status", AllowlistEntry("/usr/bin/git", args=args))


def test_a_plain_entry_does_not_cover_code_or_data_that_leaves() -> None:
    for line, why in (
        ("git -c a.b=c log", "-c before the sub-command can make it start other programs"),
        ("git push origin main", "push sends data to origin"),
    ):
        assert reason(line, "git") == f"git is allowed, but {why}"
        assert not allowed(line, AllowlistEntry("git", args=ArgRule()))
        assert allowed(line, AllowlistEntry("git", args="any"))
    pushes = AllowlistEntry("git", args=ArgRule(("push",)))
    assert allowed("git push origin main", pushes)
    assert not allowed("git push https://a.example/x", pushes)
    assert not allowed("git push --receive-pack=x origin", pushes)


@table(
    ("entry", "expected"),
    [
        (AllowlistEntry("ls"), Grants(network=True)),
        (AllowlistEntry("ls", args="any"), Grants(network=True)),
        (AllowlistEntry("ls", grants=Grants()), Grants()),
        (
            AllowlistEntry("ls", grants=Grants(read=("~/.aws", "/srv"))),
            Grants(read=(f"{HOME}/.aws", "/srv")),
        ),
    ],
)
def test_an_entry_gives_its_grants(entry: AllowlistEntry, expected: Grants) -> None:
    found = judge("ls", entry)
    assert isinstance(found, Match)
    assert found.grants == expected


def test_a_grant_below_an_unknown_home_directory_is_dropped() -> None:
    entry = AllowlistEntry("ls", grants=Grants(read=("~/.aws",), write=("~/x", "/y")))
    found = match_program(program("ls"), ApprovalRules(entries=(entry,)), home="")
    assert isinstance(found, Match)
    assert found.grants == Grants(write=("/y",))


@pytest.mark.parametrize(
    ("line", "fields", "expected"),
    [
        ("ls", {}, ""),
        ("python3 s.py", {}, "the script /"),
        ("python3 /usr/bin/s.py", {}, ""),
        ("tool", {"resolved": "{ws}/tool", "real": "{ws}/tool"}, "the program /"),
        ("git log", {}, ""),
        ("git log", {"cwd": "{ws}/src"}, "which repository git finds"),
    ],
)
def test_a_match_names_what_must_not_change(
    workspace: Path, line: str, fields: dict[str, str], expected: str
) -> None:
    (workspace / ".git").mkdir()
    filled = {key: value.format(ws=workspace) for key, value in fields.items()}
    call = program(line, **{"cwd": str(workspace), **filled})
    found = judge(call, "git", call.resolved, rules=rules_of(workspace))
    assert isinstance(found, Match)
    assert found.depends.startswith(expected)
    assert bool(found.depends) is bool(expected)


def test_programs_that_show_files_run_where_the_kernel_confines_none(workspace: Path) -> None:
    rules = replace(rules_of(workspace), confines=False)
    call = program("cat a", cwd=str(workspace))
    found = judge(call, rules=rules)
    assert isinstance(found, Match)
    assert (found.by, found.changes, found.grants) == ("look", False, Grants())
    assert not allowed(call, rules=replace(rules, confines=True))
    assert "reading /etc/passwd" in reason(
        program("cat /etc/passwd", cwd=str(workspace)), rules=rules
    )
    assert reason("touch x", rules=rules) == "touch is not on the allowlist"


@table(
    ("assigned", "plain", "trusting"),
    [
        (("LANG", "NO_COLOR"), True, True),
        (("PORT",), False, True),
        (("GIT_SSH_COMMAND",), False, False),
        (("LANG", "LD_PRELOAD"), False, False),
        (("HOME",), False, False),
    ],
)
def test_variables_can_turn_a_program_into_another(
    assigned: tuple[str, ...], plain: bool, trusting: bool
) -> None:
    call = program("ls", assigned=assigned)
    assert allowed(call, "ls") is plain
    assert allowed(call, AllowlistEntry("ls", args="any")) is trusting


@pytest.mark.parametrize(
    ("line", "expected"),
    [("git status", True), ("git -c core.pager=x log", False), ("git nonsense-x", False)],
)
def test_a_preset_decides_about_arguments(workspace: Path, line: str, expected: bool) -> None:
    for folder in (".git/objects", ".git/refs"):
        (workspace / folder).mkdir(parents=True)
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    call = program(line, cwd=str(workspace))
    rules = rules_of(workspace)
    entry = AllowlistEntry("/usr/bin/git", args="git", id="7")
    found = judge(call, entry, rules=rules)
    assert isinstance(found, Match) is expected
    if isinstance(found, Match):
        assert found.by == "entry"
        assert found.entry is entry
        assert found.children == "any"
        assert found.grants.sockets
        tight = judge(call, replace(entry, children="named", grants=Grants()), rules=rules)
        assert isinstance(tight, Match)
        assert (tight.children, tight.grants) == ("named", Grants())


def test_an_unknown_preset_allows_nothing() -> None:
    assert not allowed("git status", AllowlistEntry("/usr/bin/git", args="no-such-preset"))


def test_a_rule_about_files_looks_at_the_workspace() -> None:
    entry = AllowlistEntry("cat", args=ArgRule(paths="workspace"))
    assert allowed("cat src/x", entry)
    assert not allowed("cat /etc/passwd", entry)


def test_code_from_the_standard_input_is_never_allowed() -> None:
    for line in ("python3", "python3 -", "bash", "sh -s"):
        found = judge(program(line, piped=True), "*", AllowlistEntry("*", args="any"))
        assert isinstance(found, Miss)
        assert found.to_allow == ""


def test_code_on_the_command_line_is_never_allowed_when_the_operator_says_so() -> None:
    call, entry = "python3 -c 'print(1)'", AllowlistEntry("python3", args="any")
    assert allowed(call, entry)
    found = judge(call, entry, rules=ApprovalRules(strict_inline_eval=True))
    assert isinstance(found, Miss)
    assert found.code == "inline-eval"
    assert found.reason.startswith("python3: ")
    assert allowed("python3 x.py", entry, rules=ApprovalRules(strict_inline_eval=True))


def wrapper(resolved: str) -> Program:
    return program("nice -n 5", resolved=resolved, real=resolved, wrapper=True)


def test_a_wrapper_of_the_system_needs_no_entry() -> None:
    found = judge(wrapper("/usr/bin/nice"))
    words = "nice (starts the next program)"
    assert found == Match("wrapper", words, None, "named", changes=False)


@table("path", ["/ws/nice", "/usr/local/bin/nice", "/opt/nice", ""])
def test_a_wrapper_from_another_directory_is_not_trusted(path: str) -> None:
    assert isinstance(judge(wrapper(path), "*", "nice"), Miss)


def test_a_wrapper_from_a_trusted_directory_is_trusted() -> None:
    assert allowed(wrapper("/opt/nice"), rules=ApprovalRules(trusted_dirs=("/opt",)))


def test_safe_programs_need_no_entry() -> None:
    rules = ApprovalRules(safe_bins=SAFE_BINS)
    head = judge("head -n 3", rules=rules)
    assert isinstance(head, Match)
    assert head.by == "safe-bin"
    assert reason("head file", rules=rules) == ("head is allowed, but file would be read as a file")


# What is called how, where that leads, and which pattern allows it.
IN_WORKSPACE = program("tool", resolved="/ws/bin/tool", real="/ws/bin/tool")
BY_PATH = replace(IN_WORKSPACE, argv=(Arg("bin/tool"),))
LINK = program("git", argv=(Arg("./git"),), resolved="/ws/git", real="/usr/bin/git")
OTHER_LINK = replace(LINK, argv=(Arg("./my"),), resolved="/ws/bin/my")
INSTALLED = program("tool", resolved="/usr/local/bin/tool", real="/ws/bin/tool")
SCRIPT = program("tool", resolved="/opt/tool", real="/opt/tool", script=("/ws/venv/bin/python",))


def _what_whoever_runs_commands_can_change_needs_its_own_path(
    call: Program, pattern: str, expected: bool
) -> None:
    assert allowed(call, pattern) is expected
    assert allowed(
        call, AllowlistEntry(pattern, source="allow-always", extent="program")
    ) is False or (call.script == ("/usr/bin/python3",))


def test_a_program_that_commands_can_change_needs_its_own_path(
    subtests: pytest.Subtests,
) -> None:
    cases: Iterable[Any] = [
        (IN_WORKSPACE, "tool", False),
        (IN_WORKSPACE, "*", False),
        (IN_WORKSPACE, "**/tool", False),
        (IN_WORKSPACE, "/**", False),
        (IN_WORKSPACE, "/ws/bin/tool", True),
        (IN_WORKSPACE, "/ws/bin/*", True),
        (IN_WORKSPACE, "/ws/**", True),
        (BY_PATH, "tool", False),
        (BY_PATH, "*", False),
        (BY_PATH, "/ws/bin/tool", True),
        (LINK, "/usr/bin/git", False),
        (LINK, "/ws/git", True),
        (OTHER_LINK, "/usr/bin/git", False),
        (OTHER_LINK, "/ws/bin/*", False),
        (OTHER_LINK, "/ws/bin/my", True),
        (INSTALLED, "/usr/local/bin/tool", True),
        (INSTALLED, "/ws/bin/tool", True),
        (INSTALLED, "tool", False),
        (INSTALLED, "/usr/local/bin/*", False),
        (SCRIPT, "/opt/tool", False),
        (replace(SCRIPT, script=("/usr/bin/python3",)), "/opt/tool", True),
        (replace(IN_WORKSPACE, script=("/ws/venv/bin/python",)), "/ws/bin/tool", True),
    ]
    for call, pattern, expected in cases:
        with subtests.test(call=call, pattern=pattern, expected=expected):
            _what_whoever_runs_commands_can_change_needs_its_own_path(call, pattern, expected)


def test_code_is_found_behind_a_link_of_another_name() -> None:
    assert not allowed(
        replace(OTHER_LINK, argv=(*OTHER_LINK.argv, Arg("-c"), Arg("a.b=c"))), "/ws/**"
    )


@table(
    ("entry", "active"),
    [
        (AllowlistEntry("ls", source="allow-always"), False),
        (AllowlistEntry("ls", source="allow-always", extent="program"), True),
        (AllowlistEntry("ls", source="allow-always", extent="exact"), False),
        (AllowlistEntry("ls", source="allow-always", extent="exact", arg_pattern="^x$"), False),
        (AllowlistEntry("ls", source="allow-always", extent="subcommand"), False),
        (AllowlistEntry("ls", source="allow-always", extent="subcommand", args=ArgRule()), False),
        (
            AllowlistEntry("ls", source="allow-always", extent="subcommand", args=ArgRule(("x",))),
            True,
        ),
        (AllowlistEntry("ls", source="allow-always", extent="subcommand", args="any"), False),
        (AllowlistEntry("ls", source="operator"), True),
    ],
)
def test_a_lasting_approval_must_state_its_extent(entry: AllowlistEntry, active: bool) -> None:
    assert allowed("ls x", entry) is active


def test_a_lasting_approval_of_one_call_covers_that_call_in_that_directory() -> None:
    call = program("npm test")
    entry = AllowlistEntry(
        "/usr/bin/npm",
        arg_pattern=hash_call("/ws", call.argv[1:]),
        source="allow-always",
        extent="exact",
        cwd="/ws",
    )
    assert allowed(call, entry)
    assert not allowed("npm test x", entry)
    assert not allowed(replace(call, cwd="/other"), entry)
    assert not allowed(replace(call, cwd=None), entry)
    assert not allowed(replace(call, assigned=("FOO",)), entry)
    assert not allowed("npm test", replace(entry, arg_pattern="^test$", extent="exact"))


def test_an_entry_with_a_hash_covers_only_that_call() -> None:
    call = program("git diff --output=x")
    entry = AllowlistEntry("/usr/bin/git", arg_pattern=hash_call("/ws", call.argv[1:]))
    assert allowed(call, entry)
    assert not allowed("git diff --output=y", entry)


@pytest.fixture
def tool(workspace: Path) -> Program:
    """A script in the workspace, and rules that know the workspace."""
    path = workspace / "tool.sh"
    path.write_text("#!/bin/sh\ntrue\n", encoding="utf-8")
    path.chmod(0o755)
    return Program((Arg("./tool.sh"),), str(path), os.path.realpath(path), str(workspace))


def rules_of(workspace: Path) -> ApprovalRules:
    places = PathRules(str(workspace))
    return ApprovalRules(may_read=places.may_read, may_write=places.may_write)


def sum_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_an_entry_can_be_bound_to_the_content_of_a_file(tool: Program, workspace: Path) -> None:
    rules = rules_of(workspace)
    entry = AllowlistEntry(tool.resolved, content=content_of(tool.real))
    assert entry.content == sum_of("#!/bin/sh\ntrue\n")
    assert allowed(tool, entry, rules=rules)
    always = replace(entry, source="allow-always", extent="program")
    assert allowed(tool, always, rules=rules)
    assert not allowed(tool, replace(always, content=""), rules=rules)
    Path(tool.real).write_text("#!/bin/sh\nevil\n", encoding="utf-8")
    assert reason(tool, entry, rules=rules).endswith("the file has changed since then")
    assert not allowed(tool, replace(always), rules=rules)


def test_content_of_a_directory_is_empty_and_leaves_no_handle_open(workspace: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert {content_of(str(workspace)) for _ in range(20)} == {""}
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_the_content_of_a_script_is_that_of_the_call(tool: Program, workspace: Path) -> None:
    rules = rules_of(workspace)
    call = program("python3 src/main.py", cwd=str(workspace))
    script = content_of(str(workspace / "src/main.py"))
    always = AllowlistEntry("/usr/bin/python3", source="allow-always", extent="program")
    assert allowed(call, "/usr/bin/python3", rules=rules)
    assert not allowed(call, always, rules=rules)
    assert allowed(call, replace(always, content=script), rules=rules)
    assert not allowed(call, replace(always, content=sum_of("other")), rules=rules)
    # Outside the workspace nobody changes it, but it is what was meant all the same.
    assert allowed(call, replace(always, content=script), rules=ApprovalRules())
    # One sum cannot stand for two files.
    own = replace(
        call, argv=(Arg("./python3"), *call.argv[1:]), resolved=tool.resolved, real=tool.real
    )
    for each in (script, content_of(tool.real)):
        assert not allowed(own, AllowlistEntry(tool.resolved, content=each), rules=rules)


def test_content_is_that_of_ordinary_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, MAX_CONTENT_BYTES + 1)
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none", huge, "/dev/zero", "/\0"):
        assert content_of(str(path)) == ""


def test_content_is_that_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    fresh = tmp_path / "x"
    for text in ("one", "two", "a" * 100_000):
        fresh.write_text(text, encoding="utf-8")
        assert content_of(str(fresh)) == sum_of(text)


@pytest.fixture
def shell(workspace: Path) -> Program:
    (workspace / "s.sh").write_text("true\n", encoding="utf-8")
    return program("bash s.sh a", resolved="/bin/bash", real="/usr/bin/bash", cwd=str(workspace))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{ws}/s.sh", True),
        ("{ws}/*.sh", True),
        ("/bin/bash", False),
        ("/usr/bin/bash", False),
        ("bash", False),
        ("s.sh", False),
        ("*", False),
    ],
)
def test_a_shell_is_allowed_by_the_script_it_runs(
    shell: Program, workspace: Path, pattern: str, expected: bool
) -> None:
    pattern = pattern.format(ws=workspace)
    assert allowed(shell, pattern, rules=rules_of(workspace)) is expected


def test_a_shell_that_is_not_allowed_names_its_script(shell: Program, workspace: Path) -> None:
    found = judge(shell, "bash", rules=ApprovalRules())
    assert isinstance(found, Miss)
    assert found.reason.startswith("bash (/")
    assert found.to_allow == f"clawkit approvals allowlist add {workspace}/s.sh"
    dotted = program("bash ./src/../s.sh", cwd=str(workspace))
    assert judge(dotted, rules=ApprovalRules()) == found


def test_no_entry_is_proposed_for_programs_that_run_code(shell: Program, workspace: Path) -> None:
    for call in (shell, program("python3 -c 'print(1)'"), program("perl -e 1")):
        found = judge(call, rules=rules_of(workspace))
        assert isinstance(found, Miss)
        assert found.to_allow == ""


def test_arguments_of_a_script_are_those_behind_it(shell: Program, workspace: Path) -> None:
    rules = rules_of(workspace)
    script = f"{workspace}/s.sh"
    assert allowed(shell, AllowlistEntry(script, arg_pattern="^a$"), rules=rules)
    assert allowed(shell, AllowlistEntry(script, args=ArgRule(("a",))), rules=rules)
    assert not allowed(shell, AllowlistEntry(script, arg_pattern="s.sh"), rules=rules)
    # The hash of a call is that of all of it.
    whole = AllowlistEntry(script, arg_pattern=hash_call(str(workspace), shell.argv[1:]))
    assert allowed(shell, whole, rules=rules)
    part = AllowlistEntry(script, arg_pattern=hash_call(str(workspace), shell.argv[2:]))
    assert not allowed(shell, part, rules=rules)


def test_the_content_of_a_script_is_what_counts(shell: Program, workspace: Path) -> None:
    rules = rules_of(workspace)
    entry = AllowlistEntry(
        f"{workspace}/s.sh", source="allow-always", extent="program", content=sum_of("true\n")
    )
    assert allowed(shell, entry, rules=rules)
    (workspace / "s.sh").write_text("evil\n", encoding="utf-8")
    assert not allowed(shell, entry, rules=rules)


def test_it_must_be_certain_which_script_a_shell_runs(shell: Program, workspace: Path) -> None:
    rules = rules_of(workspace)
    entries = ("*", "bash", f"{workspace}/**", "/**")
    trusting = tuple(AllowlistEntry(each, args="any") for each in entries)
    (workspace / "deep").mkdir()
    (workspace / "link").symlink_to(workspace / "src")
    (workspace / "src/inner").mkdir()
    (workspace / "crooked").symlink_to(workspace / "src/inner")
    lines = ("none.sh", "glob:*.sh", "--rcfile s.sh -i", "-i", "deep", "-c s.sh", "'a\0'")
    calls = [program(f"bash {line}", cwd=str(workspace)) for line in lines]
    for call in (*calls, replace(shell, cwd=None)):
        assert not allowed(call, *entries, *trusting, rules=rules)
    # `..` behind a link is another directory.
    crooked = program("bash crooked/../main.py", cwd=str(workspace))
    assert not allowed(crooked, f"{workspace}/main.py", rules=rules)


def test_a_shell_may_print_its_version() -> None:
    assert allowed("bash --version", "bash")
    assert not allowed("bash --version x", "bash")


def test_reasons_show_what_cannot_be_seen() -> None:
    hidden = program("x", argv=(Arg("/a/gi\u200bt"),), resolved="/a/gi\u200bt", real="/a/gi\u200bt")
    assert reason(hidden) == "/a/gi\\u{200b}t is not on the allowlist"


@table(
    ("entry", "expected"),
    [
        (AllowlistEntry("/usr/bin/git", args="git", extent="preset"), True),
        (AllowlistEntry("/usr/bin/git", args="any", extent="preset"), False),
        (AllowlistEntry("/usr/bin/git", extent="preset"), False),
    ],
)
def test_an_answer_for_a_preset_names_it(entry: AllowlistEntry, expected: bool) -> None:
    given = replace(entry, source="allow-always")
    assert allowed("git log", given) is expected
    assert ProgramCall(program("git log"), ApprovalRules(), HOME).is_allowed_by(given) is expected

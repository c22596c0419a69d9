"""Arguments and variables within a rule."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.arguments import check_arguments, find_steering, show
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.types import ApprovalRules, Arg, ArgRule, Flags, Program


def arg(text: str) -> Arg:
    """An argument; one that begins with `glob:` is a pattern of file names."""
    return Arg(text.removeprefix("glob:"), glob=text.startswith("glob:"))


def check(
    rule: ArgRule, line: str, cwd: str | None = "/ws", rules: ApprovalRules | None = None
) -> str:
    argv = tuple(map(arg, ("x", *line.split())))
    return check_arguments(
        rule, Program(argv, "/usr/bin/x", "/usr/bin/x", cwd), rules or ApprovalRules()
    )


def _the_first_word_must_be_a_subcommand(line: str, fits: bool) -> None:
    assert (check(ArgRule(("status", "run build")), line) == "") is fits


def test_the_first_word_must_be_a_subcommand(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("status", True),
        ("status -s --long", True),
        ("status file", True),
        ("run build", True),
        ("run build x", True),
        ("run", False),
        ("run clean", False),
        ("run -v build", False),
        ("push", False),
        ("statusx", False),
        ("", False),
        ("-v status", False),
        ("--verbose status", False),
        ("-C status push", False),
        ("-- status", False),
        ("- status", False),
        ("glob:status", False),
        ("glob:s* status", False),
    ]
    for line, fits in cases:
        with subtests.test(line=line, fits=fits):
            _the_first_word_must_be_a_subcommand(line, fits)


@table(
    ("line", "fits"),
    [
        ("-C status", False),
        ("--no-pager log", False),
        ("--git-dir=x log", True),
        ("--git-dir=x log push", True),
        ("-C status push", False),
        ("log -C", True),
        ("--git-dir=x", False),
        ("--git-dir=x push", False),
        ("-C push", False),
        ("-C", False),
        ("--other=x log", False),
        ("glob:-C log", False),
    ],
)
def test_a_flag_before_it_may_take_it_as_a_value(line: str, fits: bool) -> None:
    rule = ArgRule(("status", "log"), Flags(allow=("-C", "--no-pager", "--git-dir")))
    assert (check(rule, line) == "") is fits


def test_no_subcommand_means_none_fits() -> None:
    assert check(ArgRule(()), "status") == "not status, only no sub-command at all"


def _a_denied_flag_counts_however_it_is_written(line: str, why: str) -> None:
    assert check(ArgRule(flags=Flags(deny=("--output", "-o", "-exec"))), line) == why


def test_a_denied_flag_counts_however_it_is_written(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("-a -b file", ""),
        ("file", ""),
        ("-", ""),
        ("-- file", ""),
        ("--output-x=1", ""),
        ("--exec-path", ""),
        ("-e", ""),
        ("--o", "not with --o (--output)"),
        ("-o", "not with -o"),
        ("-o=x", "not with -o=x (-o)"),
        ("-ox", "not with -ox (-o)"),
        ("-abo", "not with -abo (-o)"),
        ("--output", "not with --output"),
        ("--output=x", "not with --output=x (--output)"),
        ("--out", "not with --out (--output)"),
        ("--out=x", "not with --out=x (--output)"),
        ("--=x", "not with --=x (--output)"),
        ("-output", "not with -output (--output)"),
        ("-exec", "not with -exec"),
        ("--exec", "not with --exec (-exec)"),
        ("-ex", "not with -ex (-exec)"),
        ("-- --output", "not with --output"),
        ("glob:*", "not with *, which could expand to a flag"),
        ("glob:?a", "not with ?a, which could expand to a flag"),
        ("glob:-o*", "not with -o*, which could expand to a flag"),
        ("glob:./*", ""),
        ("glob:a*", ""),
    ]
    for line, why in cases:
        with subtests.test(line=line, why=why):
            _a_denied_flag_counts_however_it_is_written(line, why)


def _only_listed_flags_are_allowed_where_there_is_a_list(line: str, fits: bool) -> None:
    allow = ("-a", "-b", "-n", "-d", "--long", "-single")
    assert (check(ArgRule(flags=Flags(allow, deny=("-d",))), line) == "") is fits


def test_only_listed_flags_are_allowed_where_there_is_a_list(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("", True),
        ("file - -- x", True),
        ("-a", True),
        ("-ab", True),
        ("-ba -a", True),
        ("-n 5", True),
        ("-n5", True),
        ("-abn10", True),
        ("-n=x", True),
        ("--long", True),
        ("--long=x", True),
        ("-single", True),
        ("-single=x", True),
        ("-c", False),
        ("-ac", False),
        ("-nx", False),
        ("-5", False),
        ("-=x", False),
        ("--=x", False),
        ("--lon", False),
        ("--longer", False),
        ("-- --other", False),
        ("-an", True),
        ("-d", False),
        ("-ad", False),
        ("glob:*", False),
        ("glob:x*", True),
    ]
    for line, fits in cases:
        with subtests.test(line=line, fits=fits):
            _only_listed_flags_are_allowed_where_there_is_a_list(line, fits)


def test_an_empty_list_allows_no_flag() -> None:
    rule = ArgRule(flags=Flags(allow=()))
    assert check(rule, "a b") == ""
    assert check(rule, "a -v") == "not with -v"


def test_a_rule_about_nothing_fits_everything() -> None:
    assert check(ArgRule(), "-x --y glob:* /etc/passwd", cwd=None) == ""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with links out of it, and a file of clawkit's own."""
    here = tmp_path / "ws"
    (here / "src").mkdir(parents=True)
    (here / "a.txt").touch()
    (here / "own").touch()
    (tmp_path / "secret").touch()
    (here / "out").symlink_to(tmp_path)
    (here / "leak").symlink_to(tmp_path / "secret")
    (here / "in").symlink_to(here / "a.txt")
    return here


WORKSPACE = ArgRule(paths="workspace")


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("a.txt in src/x.py ./a.txt nothing --flag -v", True),
        ("{ws}/a.txt --file=a.txt -fa.txt . ./", True),
        ("src/../a.txt --width=80 -n1.5 a,b:c", True),
        ("-", True),
        ("/etc/passwd", False),
        ("..", False),
        ("../secret", False),
        ("src/../../secret", False),
        ("~/x", False),
        ("~", False),
        ("~root/x", False),
        ("leak", False),
        ("out", False),
        ("out/secret", False),
        ("{ws}/leak", False),
        ("own", False),
        ("--file=/etc/passwd", False),
        ("--file=leak", False),
        ("--a=b=/etc/passwd", False),
        ("--a=-f/etc/passwd", False),
        ("-f/etc/passwd", False),
        ("-rf/etc/passwd", False),
        ("-rf../secret", False),
        ("-rfleak", False),
        ("-I~/x", False),
        ("@/etc/passwd", False),
        ("@leak", False),
        ("if=/etc/passwd", False),
        ("HEAD:../secret", False),
        ("a,/etc/passwd", False),
        ("file:///etc/passwd", False),
        ("-- /etc/passwd", False),
        ("-" + "f" * 300, False),
        (",".join("abc" * 100), False),
        ("glob:*.py", False),
        ("glob:a*.py", True),
        ("glob:src/*.py", True),
        ("glob:./*", True),
        ("glob:{ws}/*/x", True),
        ("glob:/etc/*", False),
        ("glob:/*", False),
        ("glob:out/*", False),
        ("glob:../*", False),
        ("glob:.*", False),
        ("glob:src/.?", False),
        ("glob:src/*/../../x", False),
        ("glob:~/*", False),
        ("glob:'-'*", False),
        ("glob:-*", False),
        ("glob:[a-z]*", False),
        ("glob:if=/etc/*", False),
    ],
)
def test_arguments_that_may_be_files_are_in_the_workspace(
    place: Path, line: str, fits: bool
) -> None:
    places = PathRules(str(place), own=[str(place / "own")])
    rules = ApprovalRules(
        may_read=places.may_read, may_write=places.may_write, is_own=places.is_own
    )
    assert (check(WORKSPACE, line.format(ws=place), str(place), rules) == "") is fits


def test_an_unknown_directory_is_not_the_workspace() -> None:
    everything = ApprovalRules(may_read=lambda _path: True, may_write=lambda _path: True)
    assert check(WORKSPACE, "x", None, everything) == "only in a known directory"
    assert check(WORKSPACE, "x/y", "/", everything) == ""


def test_a_program_without_files_looks_at_its_directory(place: Path) -> None:
    places = PathRules(str(place))
    rules = ApprovalRules(may_read=places.may_read, may_write=places.may_write)
    assert check(WORKSPACE, "", str(place / "src"), rules) == ""
    assert check(WORKSPACE, "", str(place.parent), rules) == "only in the workspace"
    assert check(WORKSPACE, "", str(place / "out"), rules) == "only in the workspace"


@pytest.mark.parametrize("only", ["may_read", "may_write"])
def test_a_file_must_be_one_that_may_be_read_and_written(only: str) -> None:
    rules = ApprovalRules(
        may_read=lambda path: only != "may_read" or not path.endswith("y"),
        may_write=lambda path: only != "may_write" or not path.endswith("y"),
    )
    assert check(WORKSPACE, "x/z", "/", rules) == ""
    assert check(WORKSPACE, "x/y", "/", rules) == "not with x/y, which is not in the workspace"


def test_a_name_that_cannot_be_one_is_not_inside() -> None:
    everything = ApprovalRules(may_read=lambda _path: True, may_write=lambda _path: True)
    assert "\\u{0}" in check(WORKSPACE, "a/\0", "/", everything)


@table(
    ("assigned", "found"),
    [
        ((), ""),
        (("LANG", "LC_ALL", "TZ", "NO_COLOR", "CI"), ""),
        (("LANG", "PATH"), "PATH"),
        (("FOO",), "FOO"),
        (("lang",), "lang"),
        (("LD_PRELOAD",), "LD_PRELOAD"),
        (("LOCPATH",), "LOCPATH"),
    ],
)
def test_a_variable_that_is_not_known_to_be_harmless_is_named(
    assigned: tuple[str, ...], found: str
) -> None:
    assert find_steering(assigned) == found


def test_reasons_are_short_and_show_everything() -> None:
    assert show("a\nb\u202e") == "a\\u{a}b\\u{202e}"
    assert len(show("x" * 1_000)) == 60

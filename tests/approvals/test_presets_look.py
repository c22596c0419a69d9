"""The preset `look`: programs that only show files."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.approvals.test_arguments_code import program

from clawkit.approvals import presets
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.presets import check_preset
from clawkit.approvals.types import ApprovalRules, Match


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A workspace: `open` may be shown, `closed` has a file that is masked."""
    for name in ("ws/open/a.txt", "ws/open/deep/b.txt", "ws/closed/.env", "out/secret"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n", encoding="utf-8")
    (tmp_path / "ws/linked").mkdir()
    (tmp_path / "ws/linked/out").symlink_to(tmp_path / "out")
    (tmp_path / "ws/leak").symlink_to(tmp_path / "out/secret")
    return tmp_path / "ws"


def rules_of(here: Path) -> ApprovalRules:
    places = PathRules(str(here), is_masked=lambda path: path.endswith("/.env"))
    return ApprovalRules(may_read=places.may_read, may_write=places.may_write)


def check(line: str, here: Path, cwd: str = "open") -> str:
    """Why a call does not only show files that may be read; empty when it does."""
    found = check_preset("look", program(line, cwd=str(here / cwd)), "", rules_of(here))
    return found if isinstance(found, str) else ""


@pytest.mark.parametrize(
    "line",
    [
        *(
            "ls",
            "ls -la",
            "ls -lah --color=auto deep",
            "ls ../closed",
            "ls -R ../closed",
            "ls -- -x",
        ),
        *("cat a.txt", "cat -n a.txt deep/b.txt", "cat", "cat -", "cat missing", "head -n 5 a.txt"),
        *("head -5 a.txt", "tail -n +3 a.txt", "wc -l a.txt", "sort -rn a.txt", "md5sum a.txt"),
        *("stat -c %s a.txt", "file -b a.txt", "tree -L 2 .", "du -sh", "du -d 1 ../closed"),
        *("diff a.txt deep/b.txt", "diff -ru . deep", "grep x a.txt", "grep -e x a.txt", "grep x"),
        *("grep -rn x", "grep -rn x .", "grep -r --include '*.txt' x deep", "grep -rne x deep"),
        *("rg x", "rg -n x deep", "rg -e x deep", "rg -g '*.txt' x .", "sha256sum a.txt"),
        *("find", "find .", "find . -name '*.txt' -type f", "find ../closed -maxdepth 1 -print0"),
        *("find . '(' -name a -o -name b ')' ! -empty", "echo /etc/passwd", "basename /etc/passwd"),
        *(
            "dirname /etc/passwd",
            "git status",
            "git log -n 5",
            "git diff",
            "git show HEAD",
            "git branch -a",
        ),
        *("cat glob:./**", "ls glob:../closed/**", "wc -l glob:deep/**", "ls --help"),
    ],
)
def test_commands_that_only_show_readable_files_match(here: Path, line: str) -> None:
    assert check(line, here) == ""


@pytest.mark.parametrize(
    "line",
    [
        *(
            "cat /etc/passwd",
            "cat ../leak",
            "cat ../../out/secret",
            "cat ../closed/.env",
            "ls /",
            "ls ../..",
        ),
        *("cat a.txt /etc/passwd", "cat glob:*.txt", "head -n glob:* a.txt", "stat /etc/passwd"),
        *(
            "grep x /etc/passwd",
            "grep -r x ..",
            "grep -rn x ../closed",
            "grep -R x .",
            "grep -f a.txt x",
        ),
        *(
            "grep -e x a.txt /etc/passwd",
            "rg x ..",
            "rg --pre y x",
            "rg -z x",
            "rg --files /",
            "rg -L x",
        ),
        *(
            "diff a.txt /etc/passwd",
            "diff -r . ../closed",
            "grep -r x ../linked",
            "cat glob:../closed/**",
        ),
        *(
            "tail -f a.txt",
            "sort -o x a.txt",
            "sort --compress-program=x a.txt",
            "wc --files0-from=x",
        ),
        *(
            "file -f a.txt",
            "file -z a.txt",
            "tree -o x",
            "md5sum -c a.txt",
            "ls --unknown",
            "ls -D",
        ),
        *(
            "find /",
            "find . -delete",
            "find -- . -delete",
            "find -",
            "find ')'",
            "find . -print b",
            "find glob:a*",
            "find . -exec cat {} +",
            "find . -fprintf x y",
            "find -L .",
        ),
        *("find . -newer /etc/passwd", "find glob:*", "find . -name glob:*", "cat --numb a.txt"),
        *(
            "git push",
            "git branch x",
            "git branch -D x",
            "git stash",
            "git -c a=b log",
            "git log --output=x",
        ),
        *("git config --get a.b", "git commit"),
    ],
)
def test_commands_that_do_more_or_read_elsewhere_do_not_match(here: Path, line: str) -> None:
    assert check(line, here) != ""


def test_the_directory_counts_where_no_file_is_named(here: Path) -> None:
    assert check("ls", here, "..") != ""
    assert check("rg x", here, "closed") != ""
    assert check("grep -r x", here, "closed") != ""
    assert check("ls", here, "closed") == ""
    unsure = check_preset("look", replace(program("ls"), cwd=None), "", rules_of(here))
    assert unsure == "cannot determine the directory it runs in; use && after cd"


def test_a_tree_that_is_too_large_is_not_searched(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "MAX_FILES", 1)
    assert check("grep -r x", here, "open/deep") == ""
    assert check("grep -r x", here) != ""


def test_the_look_preset_grants_nothing_and_changes_nothing(here: Path) -> None:
    found = check_preset("look", program("cat a.txt", cwd=str(here / "open")), "", rules_of(here))
    assert found == Match(
        "look", "cat (read-only)", None, "named", changes=False, depends="the files it reads"
    )
    found = check_preset("look", program("echo x", cwd=str(here)), "", rules_of(here))
    assert found == Match("look", "echo (read-only)", None, "named", changes=False)


def test_git_may_only_look_where_the_kernel_confines_it(here: Path) -> None:
    call = program("git status", cwd=str(here))
    found = check_preset("look", call, "", rules_of(here))
    assert isinstance(found, Match)
    assert (found.by, found.children, found.changes) == ("look", "named", False)
    unheld = check_preset("look", call, "", replace(rules_of(here), confines=False))
    assert unheld == "a repository's configuration can start programs, which run unconfined here"

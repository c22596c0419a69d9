"""Presets: which calls of a program they allow, and with which access."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.approvals.test_arguments_code import program
from tests.tables import table

from clawkit.approvals.presets import PRESETS, check_preset, expand_grants
from clawkit.approvals.types import ApprovalRules, Match
from clawkit.process.protocols import NO_GRANTS, Grants


def in_workspace(path: str) -> bool:
    return f"{path}/".startswith("/ws/")


RULES = ApprovalRules(may_read=in_workspace, may_write=in_workspace)


def check(name: str, line: str, operand: str = "", **more: Any) -> str:
    """Why a call does not fit a preset; empty when it does."""
    call = replace(program(line, cwd="/ws"), **more)
    found = check_preset(name, call, operand, RULES)
    return found if isinstance(found, str) else ""


READS = (
    *("git status", "git log -n 3", "git diff", "git show HEAD", "git blame x", "git ls-files"),
    *("git branch", "git branch -vv", "git tag -l", "git remote -v", "git stash list"),
    *(
        "git config --get user.name",
        "git config --list",
        "git config -l",
        "git config --get-all a.b",
    ),
    *("git --no-pager log", "git -C src log", "git --version", "git worktree list", "git reflog"),
)
WORKS = (
    *("git add -A", "git commit -m x", "git commit --amend --no-edit", "git switch -c x"),
    *("git checkout x", "git restore x", "git reset --soft HEAD~1", "git rm x", "git mv a b"),
    *(
        "git branch x",
        "git branch -d x",
        "git tag v1",
        "git merge x",
        "git rebase main",
        "git stash",
    ),
    *("git stash pop", "git fetch", "git fetch origin", "git fetch --all --prune", "git pull"),
    *("git pull --rebase origin main", "git push", "git push -u origin main", "git push --tags"),
)
NEITHER = (
    *(
        "git",
        "git clone x",
        "git init",
        "git gc",
        "git clean -fd",
        "git nonsense",
        "git -c a=b log",
    ),
    *(
        "git config a.b c",
        "git config --global a.b c --get",
        "git config --unset a.b",
        "git config",
    ),
    *("git remote add x y", "git submodule update", "git log --output=x", "git glob:* x"),
    *(
        "git bisect run x",
        "git worktree add x",
        "git reflog expire",
        "git add glob:*",
        "git filter-branch",
    ),
)
REFUSED = (
    *("git reset --hard", "git checkout -f", "git switch -C x", "git branch -D x", "git push -f"),
    *(
        "git push --force-with-lease",
        "git push origin :x",
        "git push origin +x",
        "git push -d origin x",
    ),
    *(
        "git push https://a.example/x",
        "git push ../x",
        "git fetch ext::sh",
        "git pull --upload-pack=x",
    ),
    *(
        "git rebase -i x",
        "git rebase -x y",
        "git rebase --continue",
        "git merge -s x",
        "git stash clear",
    ),
)


def _looking_at_a_repository_fits_both_presets_of_git(line: str) -> None:
    assert check("git", line) == ""
    assert check("git-read", line) == ""


def test_looking_at_a_repository_fits_both_presets_of_git(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = READS
    for line in cases:
        with subtests.test(line=line):
            _looking_at_a_repository_fits_both_presets_of_git(line)


def _everyday_work_fits_only_the_larger_one(line: str) -> None:
    assert check("git", line) == ""
    assert check("git-read", line) != ""


def test_everyday_work_fits_only_the_larger_one(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = WORKS
    for line in cases:
        with subtests.test(line=line):
            _everyday_work_fits_only_the_larger_one(line)


def _other_calls_match_no_git_preset(line: str) -> None:
    assert check("git", line) != ""
    assert check("git-read", line) != ""


def test_other_calls_match_no_git_preset(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [*NEITHER, *REFUSED]
    for line in cases:
        with subtests.test(line=line):
            _other_calls_match_no_git_preset(line)


def _other_presets_allow_what_they_list(name: str, line: str, fits: bool) -> None:
    assert (check(name, line) == "") is fits


def test_other_presets_allow_what_they_list(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("npm", "npm ls", True),
        ("npm", "npm view left-pad version", True),
        ("npm", "npm audit --json", True),
        ("npm", "npm audit signatures", True),
        ("npm", "npm config get registry", True),
        ("npm", "npm -v", True),
        ("npm", "npm audit fix", False),
        ("npm", "npm install", False),
        ("npm", "npm test", False),
        ("npm", "npm config set a b", False),
        ("npm", "npm publish", False),
        ("pip", "pip list --outdated", True),
        ("pip", "pip3 index versions x", True),
        ("pip", "pip install x", False),
        ("pip", "pip cache purge", False),
        ("cargo", "cargo tree -d", True),
        ("cargo", "cargo fmt --check", True),
        ("cargo", "cargo fmt", False),
        ("cargo", "cargo metadata --config x", False),
        ("cargo", "cargo build", False),
        ("docker", "docker ps -a", True),
        ("docker", "docker logs -f x", True),
        ("docker", "docker container ls", True),
        ("docker", "docker stats --no-stream", True),
        ("docker", "docker stats", False),
        ("docker", "docker run x", False),
        ("docker", "docker -H tcp://a ps", False),
        ("python", "python3 -m pytest -q", True),
        ("python", "python3 --version", True),
        ("python", "python3 -m site", True),
        ("python", "python3 -m site --user-site", False),
        ("python", "python3 -m http.server", False),
        ("python", "python3 -c 1", False),
        ("python", "python3", False),
    ]
    for name, line, fits in cases:
        with subtests.test(name=name, line=line, fits=fits):
            _other_presets_allow_what_they_list(name, line, fits)


def test_python_runs_scripts_of_the_workspace() -> None:
    assert check("python", "python3 s.py", "/ws/s.py") == ""
    assert check("python", "python3 s.py", "/etc/s.py") != ""
    found = check_preset("python", program("python3 s.py", cwd="/ws"), "/ws/s.py", RULES)
    assert isinstance(found, Match)
    assert found.depends == "the files it reads"
    assert found.grants == NO_GRANTS


def test_a_preset_is_for_its_own_programs() -> None:
    assert check_preset("git", program("ls"), "", RULES) == ""
    assert isinstance(check_preset("git", program("git log"), "", RULES), Match)
    other = replace(program("git log"), real="/usr/bin/sh")
    assert check_preset("git", other, "", RULES) == ""
    assert check("nothing", "ls").startswith("unknown preset 'nothing'; use one of git-read, git,")


@table(
    ("name", "line", "more", "said"),
    [
        ("git", "git log", {"assigned": ("GIT_DIR",)}, "the variable GIT_DIR could change"),
        ("git", "git log", {"assigned": ("LANG",)}, ""),
        ("git", "git log", {"cwd": None}, "cannot determine the directory it runs in"),
        ("git", "git log", {"real": "/ws/git"}, "the program can be changed"),
        ("git", "git log", {"resolved": "/ws/git"}, "the program can be changed"),
        ("git", "git log", {"script": ("/bin/sh",)}, "does not list its interpreter"),
        ("npm", "npm ls", {"script": ("/usr/bin/env", "/usr/bin/node")}, ""),
        ("npm", "npm ls", {"script": ("/ws/node",)}, "the program can be changed"),
        ("pip", "pip list", {"script": ("/usr/bin/python3.11",)}, ""),
        ("python", "python3 -V", {"resolved": "/ws/.venv/bin/python3"}, ""),
        (
            "python",
            "python3 -V",
            {"real": "/ws/.venv/bin/python3"},
            "the program can be changed",
        ),
    ],
)
def test_variables_and_directory_of_a_call_count(
    name: str, line: str, more: dict[str, Any], said: str
) -> None:
    found = check(name, line, **more)
    assert said in found
    assert bool(found) is bool(said)


def test_a_preset_grants_what_its_program_needs() -> None:
    found = check_preset("git", program("git fetch", cwd="/ws"), "", RULES)
    assert isinstance(found, Match)
    assert (found.grants.network, found.grants.sockets, found.grants.write) == (True, True, ())
    assert (found.children, found.changes) == ("any", True)
    found = check_preset("git-read", program("git log", cwd="/ws"), "", RULES)
    assert isinstance(found, Match)
    assert (found.grants, found.children, found.changes) == (Grants(), "named", False)
    keys = ("id_", ".pem", "credentials", "gnupg")
    for preset in PRESETS.values():
        assert not [path for path in preset.grants.read if any(key in path for key in keys)]
        assert all(
            path.startswith(("/", "~/")) for path in preset.grants.read + preset.grants.write
        )


def test_a_tilde_is_the_home_directory() -> None:
    given = Grants(network=True, read=("~/a", "/~/b"), write=("~/c",))
    assert expand_grants(given, "/h/") == given._replace(read=("/h/a", "/~/b"), write=("/h/c",))
    assert expand_grants(given, "") == given._replace(read=("/~/b",), write=())

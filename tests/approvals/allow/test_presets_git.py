"""The presets for git."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clawkit.approvals.allow.presets import PRESETS, check
from clawkit.approvals.base import Arg, Match, Program, Rules

GIT = "/usr/bin/git"


def git(folder: Path, *arguments: str) -> None:
    config = ("-c", "user.name=n", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    subprocess.run([GIT, *config, *arguments], cwd=folder, check=True, capture_output=True)


def below(folder: Path) -> Callable[[str], bool]:
    def is_in(path: str) -> bool:
        return f"{os.path.realpath(path)}/".startswith(f"{folder}/")

    return is_in


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "message").write_text("x")
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", "https://example.org/x.git")
    return folder


def ask(preset: str, folder: Path, command: str, root: Path | None = None) -> Match | str:
    """A call in a folder of the workspace; words that begin with `GLOB:` are patterns."""
    argv = tuple(
        Arg(word.removeprefix("GLOB:"), glob=word.startswith("GLOB:"))
        for word in shlex.split(command)
    )
    inside = below(root or folder)
    rules = Rules(may_read=inside, may_write=inside, is_own=lambda path: path.endswith("/own"))
    return check(preset, Program(argv, GIT, GIT, str(folder)), rules)


READ = """
git status
git status -sb --porcelain=v2 -uno
git status GLOB:src/*
git log
git log --oneline -5 --graph --all
git log -n 3 -n5 --max-count=2 --since yesterday --author='A B'
git log --pretty=format:%h --grep='$(touch x)'
git log -p -M50 -S'x y' -L1,5:src/x -- src
git log main..dev origin/main...HEAD ^x HEAD~2 @{u}
git log -- -x
git show HEAD:src/x --stat
git diff --cached --stat -U5
git diff HEAD~1 -- GLOB:src/*.py
git diff -w --word-diff=color main
git branch
git branch -avv
git branch --list 'x*'
git branch --contains HEAD
git branch --merged
git branch --show-current
git tag -l 'v*'
git tag --sort=-version:refname
git tag -n3
git ls-files -o --exclude-standard
git ls-files GLOB:src/*.py
git rev-parse --abbrev-ref HEAD
git rev-parse --show-toplevel --git-dir
git blame -L 1,5 -w src/x
git grep -n -i -C 3 -e x -- '*.py'
git grep -A3 x
git describe --tags --always --dirty
git remote
git remote -v
git remote get-url origin
git stash list
git stash show -p stash@{0}
git config --get user.name
git config -l --show-origin
git config user.name
git config get user.name
git config list
git cat-file -p HEAD
git merge-base main dev
git for-each-ref --format='%(refname)' refs/heads
git reflog -5
git reflog show main
git rev-list --count HEAD
git shortlog -sne
git worktree list
git check-ignore -v x
git --version
git version
git --no-pager log
git -P --no-optional-locks status
git -C src status
git -C . log
git symbolic-ref --short HEAD
"""
NEITHER = """
git
git -c core.pager=x log
git -ccore.pager=x log
git --config-env=a=b log
git --exec-path=/x status
git --git-dir=/x status
git --work-tree=/x status
git -p log
git -C .. status
git -C /etc status
git -C
git -C src -C .. status
git -C src -C src status
git -C --help status
git log --output=x
git log --outp=x
git log --ext-diff
git log --textconv
git log --format -x
git log --grep --output=x
git log -n x
git log --oneline=x
git log -O/x
git diff --no-index a b
git diff /etc/passwd /etc/group
git diff ../../x y
git diff GLOB:*
git diff GLOB:-*
git diff GLOB:../*
git diff GLOB:.*/x
git diff 'GLOB:src/{a}*'
git diff GLOB:/*
git show --show-signature
git grep -Ox y
git grep -nOx y
git grep --open-files-in-pager=x y
git grep --no-index x
git grep -f x y
git 'GLOB:s*'
git log GLOB:*
git branch -D x
git branch --edit-description
git tag -s x
git tag -f x
git remote add x y
git remote set-url origin x
git remote show origin
git config user.name x
git config --unset user.name
git config edit
git config -e
git config set user.name x
git config --file=x -l
git config --global core.pager x
git stash branch x
git stash clear
git stash -p
git reflog expire --all
git rebase -i main
git rebase -x y main
git rebase --exec=y main
git rebase -s x main
git rebase --continue
git merge -s x dev
git clone x
git init
git am x
git apply x
git archive HEAD
git bisect run x
git submodule foreach x
git submodule update
git difftool
git mergetool
git filter-branch
git daemon
git unknown
git a/x
git gc
git clean -fdx
git update-index --refresh
git worktree add x
git ls-remote origin
git help log
git log --help
git status -- ../..
git cat-file --textconv HEAD:x
git cat-file --batch
git symbolic-ref HEAD x
git check-attr --stdin
"""
WORK = """
git add .
git add -A
git add GLOB:src/*.py
git add -- -x
git commit -m x
git commit -am 'a text'
git commit --amend --no-edit
git commit -F message
git commit --file=message
git commit --message=-x
git commit --fixup=HEAD
git commit --dry-run
git switch main
git switch -c new origin/main
git switch -
git checkout main
git checkout -b new
git checkout -- src/x
git restore --staged src/x
git restore -s HEAD GLOB:src/*
git reset HEAD src/x
git reset --soft HEAD~1
git rm --cached x
git mv a b
git branch new
git branch -d old
git branch -m new
git tag v1
git tag -a v1 -m x
git tag -d v1
git merge --ff-only dev
git merge --no-edit -X ours dev
git merge -m x dev
git merge --abort
git rebase main
git rebase --onto a b
git rebase --abort
git cherry-pick -x abc
git revert --no-edit HEAD
git stash
git stash -u
git stash push -m x -- src
git stash pop
git stash drop stash@{1}
git fetch
git fetch --all --prune
git fetch origin main
git fetch origin main:main
git pull --ff-only
git pull --rebase
git pull -r origin main
git push
git push -u origin main
git push origin HEAD:main
git push --tags
git -C src add .
"""
NOT_EVEN_WORK = """
git commit
git commit --amend
git commit -m
git commit -m -x
git commit -F /etc/passwd
git commit -F ../x
git commit -F own
git commit --fixup=amend:HEAD
git commit -n -m x
git commit --no-verify -m x
git commit -S -m x
git commit -e -m x
git commit -t x
git commit -p -m x
git add -p
git add -e
git add --pathspec-from-file=x
git add GLOB:*
git checkout -p
git checkout -f
git reset --hard
git merge dev
git merge -e dev
git revert HEAD
git tag -a v1
git tag -u key v1
git push --force
git push -f
git push origin +main
git push origin :main
git push origin --delete main
git push --mirror
git push --receive-pack=x
git push --exec=x
git push https://example.org/y
git push ../x
git push other
git push ext::x
git fetch --upload-pack=x
git fetch ext::x
git fetch ../x
git pull
git pull --rebase=interactive
git pull --ff-only ../x
git pull -s x
git cherry-pick -e x
git cherry-pick --strategy=x y
"""


def lines(text: str) -> list[str]:
    return text.strip().split("\n")


@pytest.mark.parametrize("command", lines(READ))
@pytest.mark.parametrize("preset", ["git", "git-read"])
def test_looking_is_allowed(workspace: Path, preset: str, command: str) -> None:
    found = ask(preset, workspace, command)
    assert isinstance(found, Match), found
    assert found.rule == f"{GIT} (preset {preset})"
    assert (found.by, found.children) == ("entry", "named")
    assert GIT in found.starts


@pytest.mark.parametrize("command", lines(NEITHER))
@pytest.mark.parametrize("preset", ["git", "git-read"])
def test_everything_that_is_not_listed_is_refused(
    workspace: Path, preset: str, command: str
) -> None:
    why = ask(preset, workspace, command)
    assert isinstance(why, str)
    assert why
    assert why.isprintable()


@pytest.mark.parametrize("command", lines(WORK))
def test_work_is_allowed_only_by_the_wider_preset(workspace: Path, command: str) -> None:
    found = ask("git", workspace, command)
    assert isinstance(found, Match), found
    assert isinstance(ask("git-read", workspace, command), str)


@pytest.mark.parametrize("command", lines(NOT_EVEN_WORK))
def test_work_stays_without_editors_force_and_other_places(workspace: Path, command: str) -> None:
    assert isinstance(ask("git", workspace, command), str)


@pytest.mark.no_cover
@pytest.mark.parametrize("preset", ["git", "git-read"])
def test_no_flag_of_a_sub_command_may_be_shortened(workspace: Path, preset: str) -> None:
    for name, command in PRESETS[preset].commands.items():
        for flag in command.options:
            for end in range(3, len(flag)):
                if flag.startswith("--") and flag[:end] not in command.options:
                    assert isinstance(ask(preset, workspace, f"git {name} {flag[:end]}"), str)


def test_a_name_that_is_none_is_refused(workspace: Path) -> None:
    argv = tuple(map(Arg, ("git", "commit", "-F", "a\0b")))
    rules = Rules(may_read=lambda _path: True, may_write=lambda path: path != GIT)
    found = check("git", Program(argv, GIT, GIT, str(workspace)), rules)
    assert "not in the workspace" in found


def test_it_may_start_its_own_parts_and_nothing_else(workspace: Path) -> None:
    found = ask("git", workspace, "git status")
    assert isinstance(found, Match)
    exec_path = subprocess.run([GIT, "--exec-path"], capture_output=True, text=True, check=True)
    own = {GIT, exec_path.stdout.strip()}
    assert set(found.starts) in (own, own | {"/usr/bin/ssh"})
    looking = ask("git-read", workspace, "git status")
    assert isinstance(looking, Match)
    assert set(looking.starts) == own


def test_the_repository_has_to_be_in_the_workspace(workspace: Path) -> None:
    sub = workspace / "src"
    assert isinstance(ask("git-read", sub, "git log", root=workspace), Match)
    assert "not in the workspace" in ask("git-read", sub, "git log", root=sub)
    assert "there is no repository" in ask("git-read", workspace.parent, "git log")


def test_a_repository_may_be_readable_only(workspace: Path) -> None:
    rules = Rules(may_read=below(workspace))
    for command, allowed in {"log": True, "add .": False, "branch": False}.items():
        argv = tuple(map(Arg, ("git", *command.split())))
        found = check("git", Program(argv, GIT, GIT, str(workspace)), rules)
        assert isinstance(found, Match) is allowed
    argv = (Arg("git"), Arg("branch"))
    assert isinstance(check("git-read", Program(argv, GIT, GIT, str(workspace)), rules), Match)


def test_a_repository_elsewhere_is_not_read_through_a_file(workspace: Path) -> None:
    other = workspace.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    sub = workspace / "src"
    (sub / ".git").write_text(f"gitdir: {other}/.git\n")
    assert "not in the workspace" in ask("git-read", sub, "git log", root=workspace)
    (sub / ".git").write_text("nonsense")
    assert "cannot be told" in ask("git-read", sub, "git log", root=workspace)


def test_hooks_and_settings_that_start_programs_are_refused(workspace: Path) -> None:
    hook = workspace / ".git/hooks/pre-commit"
    hook.write_text("")
    hook.chmod(0o755)
    assert "pre-commit" in ask("git", workspace, "git commit -m x")
    assert isinstance(ask("git", workspace, "git log"), Match)
    inner = workspace / "src"
    git(inner, "init", "-q")
    git(inner, "config", "core.fsmonitor", "x")
    assert "core.fsmonitor" in ask("git", workspace, "git -C src status")


def test_a_push_goes_to_another_machine_only(workspace: Path) -> None:
    git(workspace, "remote", "add", "near", "../bare")
    assert "hooks" in ask("git", workspace, "git push near main")
    assert isinstance(ask("git", workspace, "git push origin main"), Match)

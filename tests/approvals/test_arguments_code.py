"""Arguments that carry code, or start other programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from clawkit.approvals.arguments import find_code, find_top
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.types import ApprovalRules, Arg, Program


def program(line: str, **more: Any) -> Program:
    """A call as it is typed; a word that begins with `glob:` is a pattern."""
    words = shlex.split(line)
    argv = tuple(Arg(each.removeprefix("glob:"), each.startswith("glob:")) for each in words)
    path = f"/usr/bin/{words[0]}"
    return Program(argv, path, path, **{"cwd": "/", **more})


def _arguments_that_start_other_programs_are_named(line: str) -> None:
    assert find_code(program(line), ApprovalRules()) != ""


def test_arguments_that_start_other_programs_are_named(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *("git -c a.b=c log", "git --config-env=a=b log", "git --exec-path=x log", "git --exec x"),
        *("git --git-dir=x log", "git --work-tree x log", "git glob:-* log", "git -C glob:* log"),
        *("git glob:src/* x", "git -- log", "git --", "git - log"),
        *("git diff --output=x", "git diff --outp x", "git log --ou=x", "git archive --exec=x"),
        *("git grep --open-files-in-pager=x a", "git grep -Oless a", "git grep -nO a"),
        *("git rebase --exec x", "git rebase -x x", "git rebase --root -ix x"),
        *("git bisect run x", "git filter-branch", "git submodule foreach x", "git difftool -x y"),
        *(
            "git clone --upload-pack=x y",
            "git clone -u x y",
            "git clone -c a=b y",
            "git ls-remote -u x",
        ),
        *("git push --receive-pack=x", "git fetch ext::sh", "git clone 'ext::sh -c x' y"),
        *("git remote add x ext::y", "git init --template=x", "git daemon", "git -C x hook run y"),
        *("git config a.b c", "git config --global a.b c", "git config -e", "git config --edit"),
        *("git config edit", "git config --unset a.b", "git --no-pager bisect run x"),
        *(
            "tar -I x -cf a b",
            "tar -cIx f",
            "tar xIf x a",
            "tar --use-comp=x -xf a",
            "tar -F x -xf a",
        ),
        *("tar --checkpoint-action=exec=x -cf a b", "tar --to-command x -xf a", "tar xf a glob:*"),
        *("rsync -e x a b", "rsync -ave x a b", "rsync --rsh=x a b", "rsync --rsync-path=x a b"),
        *("scp -o ProxyCommand=x a b:c", "scp -S x a b:c", "sort --compress-program=x a"),
        *(
            "sort --co x",
            "split --filter=x a",
            "rg --pre x a",
            "rg --hostname-bin=x a",
            "zip -TT x a",
        ),
        *("gcc -fplugin=x a.c", "gcc-12 -wrapper x a.c", "gcc -Bx a.c", "clang++ -specs=x a.cc"),
        *("go build -toolexec x", "go test -exec=x", "cargo --config x build", "cmake -P x"),
        *("curl -K x", "curl --config x", "curl -sKx", "wget -e x y", "wget --use-askpass=x y"),
        *("nc -e x h 1", "ncat --sh-exec x h 1", "openssl -engine x", "psql -c '\\! x'"),
        *(
            "docker run x",
            "docker --context a run x",
            "docker --context=a exec x y",
            "podman build .",
        ),
        *("docker compose -f a up", "docker compose up", "docker container exec x y"),
        *(
            "kubectl exec x",
            "kubectl --kubeconfig x get pods",
            "kubectl -n a debug x",
            "gh alias set x y",
        ),
        *("vim", "vi a", "nano a", "emacs a", "less a", "man ls", "top", "hg --config a=b log"),
    ]
    for line in cases:
        with subtests.test(line=line):
            _arguments_that_start_other_programs_are_named(line)


def _what_a_plain_entry_trusts_its_program_with_passes(line: str) -> None:
    assert find_code(program(line), ApprovalRules()) == ""


def test_what_a_plain_entry_trusts_its_program_with_passes(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        *(
            "git",
            "git status",
            "git --no-pager log -n 5",
            "git log --oneline",
            "git -P diff --stat",
        ),
        *(
            "git switch -c x",
            "git commit -m '-c x'",
            "git commit -c HEAD",
            "git diff -C",
            "git -C / log",
        ),
        *("git clean -x", "git cherry-pick -x a", "git push -u origin x", "git diff -O order"),
        *(
            "git clone https://a.b/c",
            "git clone git@a.b:c",
            "git config --get a.b",
            "git config -l",
        ),
        *(
            "git config",
            "git config get a.b",
            "git bisect start",
            "git submodule update",
            "git --version",
        ),
        *("git log -- a:b.txt", "git add glob:./*"),
        *(
            "tar xf a",
            "tar -xzf a",
            "tar czf a b",
            "tar",
            "tar '' x",
            "rsync -av a b",
            "sort -rn a",
        ),
        *(
            "rg x",
            "rg -n x src",
            "gcc -o a a.c -Wall",
            "go build ./...",
            "cargo build",
            "cmake -B x",
        ),
        *(
            "curl -sSL https://a.b",
            "wget https://a.b",
            "docker ps",
            "docker compose ps",
            "kubectl get x",
        ),
        *("npm test", "npm run build", "pytest -p x", "unheard-of --exec x", "make", "-"),
    ]
    for line in cases:
        with subtests.test(line=line):
            _what_a_plain_entry_trusts_its_program_with_passes(line)


def test_the_reason_names_the_argument() -> None:
    for line, words in (
        ("tar --to-command=sh -xf a", "--to-command=sh starts other programs"),
        ("git bisect run x", "run starts other programs"),
        ("less a", "its keyboard commands can start other programs"),
        ("git --git-dir=x log", "--git-dir before the sub-command can make it start"),
        ("git config a.b c", "config changes settings"),
        ("git fetch ext::sh", "a remote helper starts other programs"),
    ):
        assert find_code(program(line), ApprovalRules()).startswith(words)
    assert "cannot determine the directory" in find_code(
        program("git log", cwd=None), ApprovalRules()
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace with a repository, and another one in it."""
    for folder in ("ws/.git", "ws/src", "ws/sub/.git", "ws/sub/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ws/link").symlink_to("sub/deep")
    return tmp_path / "ws"


@pytest.mark.parametrize(
    ("line", "cwd", "fits"),
    [
        ("git status", ".", True),
        ("git status", "src", True),
        ("git -C src status", ".", True),
        ("git -C .. status", "sub", True),
        ("git status", "sub", False),
        ("git status", "sub/deep", False),
        ("git status", "link", False),
        ("git -C sub status", ".", False),
        ("git -C src -C ../sub status", ".", False),
        ("git -C '\0' status", ".", True),
    ],
)
def test_git_uses_only_the_repository_of_the_workspace(
    place: Path, line: str, cwd: str, fits: bool
) -> None:
    places = PathRules(str(place))
    rules = ApprovalRules(may_read=places.may_read, may_write=places.may_write)
    found = find_code(program(line, cwd=str(place / cwd)), rules)
    assert (found == "") is fits
    assert fits or "not the workspace's own repository" in found
    anywhere = PathRules(str(place), workspace_only=False)
    rules = ApprovalRules(may_read=anywhere.may_read, may_write=anywhere.may_write)
    assert find_code(program(line, cwd=str(place / cwd)), rules) == ""


def test_a_repository_is_found_upward(place: Path) -> None:
    assert find_top(str(place / "src")) == str(place)
    assert find_top("/") == ""

"""Files that only a person may have changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.tables import table

from clawkit.fs.protected_files import Protection, fold, fold_path


def explain(place: str, existing: Iterable[str] = ()) -> str:
    there = {fold_path(path) for path in existing}
    return Protection().explain(place, lambda path: fold_path(path) in there)


def test_files_that_make_git_run_programs_are_protected(subtests: pytest.Subtests) -> None:
    for path in [
        ".git/config",
        ".git/config.worktree",
        ".git/hooks/pre-commit",
        ".git/hooks/deep/er",
        ".git/hooks",
        ".git/commondir",
        ".git",
        "sub/.git",
        "sub/.git/config",
        ".git/modules/x/config",
        ".git/modules/x/y/hooks/post-checkout",
        ".git/worktrees/w/gitdir",
        ".git/worktrees/w/commondir",
        ".git/worktrees/w/config.worktree",
        ".git/rebase-merge/git-rebase-todo",
        ".git/rebase-apply/author-script",
        ".git/worktrees/w/rebase-merge/git-rebase-todo",
        ".git/sequencer/opts",
        ".GIT/CONFIG",
        ".Git/Hooks/x",
        ".git /config",
        ".git./config",
        ".git. . /config",
        ".git/config ",
        ".git/config.",
        ".git::$INDEX_ALLOCATION/config",
        ".git/config:stream",
        "git~1/config",
        "GIT~1/hooks/x",
        "git~2/config",
        ".g\u200cit/config",
        ".git\u200d/config",
        "\ufeff.git/config",
        ".g\u206fit/hooks/x",
        ".g\u00adit/config",
        ".g\ufe0fit/config",
        ".g\U000e0001it/config",
        ".git/con\ufb01g",
        ".git/\uff48ooks/x",
        ".git/hoo\u212as/x",
        ".git/hook\u017f/x",
    ]:
        with subtests.test(path=path):
            assert "git takes settings or programs to run" in explain(f"/ws/{path}")


def test_files_that_make_other_programs_run_programs_are_protected(
    subtests: pytest.Subtests,
) -> None:
    for path, why in [
        (".git/info/attributes", "git takes"),
        (".git/info", "git takes"),
        (".git/objects/info/alternates", "git takes"),
        (".git/worktrees/w/HEAD", "git takes"),
        (".git/modules/x", "git takes"),
        (".git/remotes/x", "git takes"),
        (".git/branches/x", "git takes"),
        (".envrc", "direnv"),
        ("sub/.ENVRC", "direnv"),
        (".vscode", "editors"),
        (".vscode/tasks.json", "editors"),
        ("a/b/.vscode/settings.json", "editors"),
        (".idea/runConfigurations/x.xml", "editors"),
        (".idea/workspace.xml", "editors"),
        ("my.code-workspace", "editors"),
        ("sub/.vimrc", "editors"),
        (".dir-locals.el", "editors"),
        (".husky/pre-commit", "core.hooksPath"),
        ("sub/.githooks", "core.hooksPath"),
        (".mcp.json", "coding agents"),
        ("a/.claude/settings.json", "coding agents"),
        (".claude/settings.local.json", "coding agents"),
        (".claude/notes.md", ""),
        ("husky/pre-commit", ""),
        ("mcp.json", ""),
        (".vscode/extensions.json", ""),
        (".vscodex/tasks.json", ""),
        ("vscode/tasks.json", ""),
        (".idea/misc.xml", ""),
        ("code-workspace", ""),
        (".bashrc", ""),
        (".config/x", ""),
        (".npmrc", ""),
    ]:
        with subtests.test(path=path):
            said = explain(f"/ws/{path}")
            assert why in said
            assert bool(said) == bool(why)


def test_startup_files_are_protected_in_the_home_directory_only(subtests: pytest.Subtests) -> None:
    for path, is_protected in [
        (".bashrc", True),
        (".BASHRC", True),
        (".zshenv", True),
        (".config", True),
        (".config/anything/at/all", True),
        (".config/fish/config.fish", True),
        (".gitconfig", True),
        (".ssh/authorized_keys", True),
        (".npmrc", True),
        (".cargo", True),
        (".cargo/config", True),
        (".cargo/config.toml", True),
        (".cargo/registry/x", False),
        (".local/bin/ls", True),
        (".local/share/x", False),
        (".local/share/bash-completion/completions/git", True),
        (".bash_completion", True),
        (".p10k.zsh", True),
        (".fzf.bash", True),
        (".oh-my-zsh/plugins/git/git.plugin.zsh", True),
        (".oh-my-zsh/anything", True),
        (".nvm/nvm.sh", True),
        (".nvm/versions/node/v22/bin/node", True),
        (".hgrc", True),
        (".sqliterc", True),
        (".pyenv/shims/python", True),
        (".pyenv/versions/x", False),
        (".volta/bin/node", True),
        (".npm-global/bin/x", True),
        (".asdf/shims/x", True),
        (".rbenv/shims/x", True),
        (".yarn/bin/x", True),
        (".docker/cli-plugins/docker-x", True),
        (".claude/hooks/x.sh", True),
        (".claude/CLAUDE.md", True),
        (".local/lib/python3.12/site-packages/x.pth", True),
        (".local/lib/python3.12/site-packages/x.py", False),
        (".gradle/init.gradle", True),
        ("project/.bashrc", False),
        ("project/.config/x", False),
        ("project/bin/x", False),
        ("notes.md", False),
    ]:
        with subtests.test(path=path):
            at_home = Protection(home="/home/u")
            assert bool(at_home.explain(f"/home/u/{path}", lambda _: False)) is is_protected
            assert at_home.explain(f"/home/user/{path}", lambda _: False) == ""
            assert at_home.explain(f"/{path}", lambda _: False) == ""
            assert bool(Protection(home="/").explain(f"/{path}", lambda _: False)) is is_protected


def test_ordinary_files_are_not(subtests: pytest.Subtests) -> None:
    for path in [
        ".github/workflows/ci.yml",
        ".gitignore",
        ".gitattributes",
        ".gitmodules",
        ".git/info/exclude",
        ".git/COMMIT_EDITMSG",
        ".git/description",
        "src/config",
        "src/config/index.ts",
        "config",
        "hooks/useFoo.ts",
        "refs/heads.md",
        "objects/a.py",
        "HEAD",
        "docs/HEAD/objects.md",
        "git/config",
        ".gitx/config",
        "x.git/config",
        "git~1x/config",
        "git~/config",
        "digit/hooks/x",
        "sequencer/opts",
        "rebase-merge/x",
        "commondir",
        "...",
        " ",
    ]:
        with subtests.test(path=path):
            assert explain(f"/ws/{path}") == ""
            assert explain(f"/ws/{path}", ["/ws/.git", "/ws/.git/HEAD", "/ws/.git/objects"]) == ""


PARTS = ("HEAD", "objects/x", "refs/heads/y", "config")


@table("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1)])
def test_a_repository_of_any_name_cannot_be_made_step_by_step(order: tuple[int, ...]) -> None:
    existing: list[str] = []
    said = []
    for number in order:
        said.append(bool(explain(f"/ws/bare/{PARTS[number]}", existing)))
        existing += [f"/ws/bare/{PARTS[number].split('/')[0]}"]
    assert said == [False, False, True]


@pytest.mark.parametrize("first", ["HEAD", "commondir"])
def test_a_file_that_completes_a_repository_is_protected(first: str) -> None:
    second = {"HEAD": "commondir", "commondir": "HEAD"}[first]
    assert explain(f"/ws/x/{first}") == ""
    assert "treats as a repository" in explain(f"/ws/x/{second}", [f"/ws/x/{first}"])


def test_the_settings_of_a_bare_repository_are_protected(subtests: pytest.Subtests) -> None:
    for name, is_protected in [
        ("config", True),
        ("config.worktree", True),
        ("hooks/post-update", True),
        ("commondir", True),
        ("HEAD", True),
        ("Config", True),
        ("rebase-merge/git-rebase-todo", True),
        ("objects/info/alternates", True),
        ("objects/info/packs", False),
        ("info/attributes", True),
        ("worktrees/w/HEAD", True),
        ("modules/x/index", True),
        ("refs/heads/main", False),
        ("description", False),
        ("info/exclude", False),
    ]:
        with subtests.test(name=name):
            existing = ["/ws/bare", "/ws/bare/HEAD", "/ws/bare/objects", "/ws/bare/refs"]
            assert bool(explain(f"/ws/bare/{name}", existing)) is is_protected


def test_a_real_bare_repository_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    for name in ("objects", "refs", "hooks"):
        (tmp_path / name).mkdir()
    place = str(tmp_path / "hooks" / "update")
    assert Protection().explain(place) == ""
    (tmp_path / "HEAD").symlink_to("nowhere")
    assert "treats as a repository" in Protection().explain(place)


@pytest.fixture
def protection() -> Protection:
    return Protection(
        own=("/home/u/.clawkit", "/etc/clawkit.json5", "/home/u/.clawkit/ws/clawkit.json5"),
        open=("/home/u/.clawkit/ws",),
    )


@pytest.mark.parametrize(
    ("place", "is_protected"),
    [
        ("/home/u/.clawkit", True),
        ("/home/u/.clawkit/clawkit.json5", True),
        ("/home/u/.clawkit/changes/x.patch", True),
        ("/home/u/.Clawkit/x", True),
        ("/home/u/.clawkit./x", True),
        ("/home/u/.claw\u200bkit/x", True),
        ("/etc/clawkit.json5", True),
        ("/ETC/clawkit.JSON5", True),
        ("/etc/clawkit.json5.bak", False),
        ("/home/u/.clawkit-notes", False),
        ("/home/u/other", False),
        ("/home/u/.clawkit/ws/a.txt", False),
        ("/home/u/.clawkit/ws/deep/a.txt", False),
        ("/home/u/.clawkit/ws2/a.txt", True),
        ("/home/u/.clawkit/WS/a.txt", True),
        ("/home/u/.clawkit/ws/clawkit.json5", True),
        ("/home/u/.clawkit/ws/.git/config", True),
    ],
)
def test_clawkits_own_files_are_protected(
    protection: Protection, place: str, is_protected: bool
) -> None:
    assert bool(protection.explain(place)) is is_protected


def test_everything_may_be_clawkits_own() -> None:
    assert Protection(own=("/",)).explain("/x")
    assert Protection(own=("/",), open=("/",)).explain("/x") == ""


def test_names_are_folded(subtests: pytest.Subtests) -> None:
    for name, folded in [
        ("A.B", "a.b"),
        ("x. .", "x"),
        ("...", "..."),
        ("", ""),
        (":", ":"),
        ("\u00c9", "\u00e9"),
    ]:
        with subtests.test(name=name):
            assert fold(name) == folded


def test_names_that_are_not_text_can_be_asked_about() -> None:
    assert explain("/ws/" + os.fsdecode(b"\xff\xfe")) == ""

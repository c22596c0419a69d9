"""What the repository around a directory would start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clawkit.approvals.allow import repository as module
from clawkit.approvals.allow.gitconfig import Setting, read_settings
from clawkit.approvals.allow.repository import (
    REWRITTEN,
    find_hooks,
    find_remotes,
    find_repository,
    is_far,
    repository_notes,
)

STARTS = "its repository's settings start a program"


def git(folder: Path, *arguments: str) -> str:
    config = ("user.name=n", "user.email=a@b", "init.defaultBranch=main")
    options = [word for each in config for word in ("-c", each)]
    done = subprocess.run(
        ["git", *options, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def settle(folder: Path, text: str) -> None:
    with (folder / ".git/config").open("a") as file:
        file.write(text)


def notes(folder: Path) -> tuple[str, ...]:
    return repository_notes(str(folder))


def test_a_fresh_repository_and_none_at_all_start_nothing(repo: Path, tmp_path: Path) -> None:
    assert notes(repo) == ()
    assert notes(tmp_path) == ()
    assert notes(repo / "missing" / "deeper") == ()
    assert repository_notes("/") == ()


def test_the_note_names_the_key_and_the_file(repo: Path) -> None:
    settle(repo, "[core]\n\tfsmonitor = ./evil.sh\n")
    expected = (f"{STARTS} (core.fsmonitor in {repo}/.git/config)",)
    assert notes(repo) == expected
    (repo / "a/b").mkdir(parents=True)
    assert notes(repo / "a/b") == expected
    link = repo.parent / "link"
    link.symlink_to(repo / "a")
    assert notes(link) == expected


STARTING = """
core.fsmonitor ./evil
core.fsmonitor "/x y"
core.hooksPath .husky
core.pager less -R
core.editor vim
core.sshCommand ssh -i x
core.askPass x
core.gitProxy x
core.alternateRefsCommand x
diff.external x
diff.x.command y
diff.x.textconv y
merge.x.driver y
filter.x.clean y
filter.x.smudge y
filter.x.process y
alias.x !y
credential.helper !y
credential.helper /x/y
credential.helper store --file=/x
credential.https://example.org.helper ./x
gpg.program x
gpg.ssh.program x
gpg.ssh.defaultKeyCommand x
pager.log x
sequence.editor x
interactive.diffFilter x
remote.x.uploadpack y
remote.x.receivepack y
remote.x.vcs y
remote.x.url ext::y
remote.x.pushurl ext::y
url.ext::x.insteadOf y
submodule.x.update !y
submodule.x.url ext::y
uploadpack.packObjectsHook x
protocol.ext.allow always
trailer.x.command y
trailer.x.cmd y
tar.x.command y
difftool.x.cmd y
mergetool.x.path y
init.templateDir x
hook.x.command y
gc.recentObjectsHook x
include.path x
includeIf.gitdir:/x.path y
core.worktree /
core.worktree x
core.worktree x/../..
format.outputDirectory /
core.excludesFile x
core.attributesFile x
core.unknown x
commit.template /x
mailmap.file /x
http.cookieFile /x
http.saveCookies true
http.https://example.org.cookieFile /x
http.proxy x
http.sslVerify false
http.sslKey /x
remote.x.proxy y
branch.main.mergeOptions -s x/y
pull.twohead x/y
rebase.instructionFormat %nexec x
blame.ignoreRevsFile /x
blame.ignoreRevsFile ../x
lfs.customtransfer.x.path y
lfs.standaloneTransferAgent x
trace2.eventTarget /x
fsck.skipList /x
unknown.key x
"""
HARMLESS = """
core.fsmonitor true
core.fsmonitor false
core.fsmonitor 0
core.pager cat
core.bare false
core.autocrlf input
core.worktree ..
blame.ignoreRevsFile .git-blame-ignore-revs
user.name x
pager.log false
pager.diff true
alias.st status -s
alias.x log --pretty=!y
credential.helper cache
credential.helper osxkeychain
remote.origin.url https://example.org/x
remote.origin.url git@example.org:x/y
remote.origin.fetch +refs/heads/*:refs/remotes/origin/*
branch.main.remote origin
submodule.x.update rebase
submodule.x.active true
protocol.file.allow never
url.https://example.org/.insteadOf x:
commit.gpgSign true
diff.x.binary true
merge.conflictStyle diff3
http.https://example.org/.extraheader a: b
gitflow.branch.master main
color.ui auto
gc.auto 0
extensions.worktreeConfig true
"""


@pytest.mark.parametrize("line", STARTING.strip().split("\n"))
def test_settings_that_start_programs_are_noted(repo: Path, line: str) -> None:
    key, _, value = line.partition(" ")
    git(repo, "config", key, value)
    (note,) = notes(repo)
    assert note.endswith(f" in {repo}/.git/config)")
    section, _, last = key.lower().partition(".")
    assert f"({section}." in note
    assert last.rpartition(".")[2] in note


@pytest.mark.parametrize("line", HARMLESS.strip().split("\n"))
def test_other_settings_are_not(repo: Path, line: str) -> None:
    key, _, value = line.partition(" ")
    git(repo, "config", key, value)
    assert notes(repo) == ()


@pytest.mark.parametrize(
    "text",
    [
        "[CORE]\nFSMonitor=x",
        "[core] fsmonitor=x",
        "[core] ; comment\n  fsmonitor = x # more",
        "[core]fsmonitor = \\\n x",
        "\ufeff[core]\nfsmonitor = x",
        "[core]\r\n\tfsmonitor = x\r\n",
        '[core]\nfsmonitor = "x"',
        '[core]\nfsmonitor = "tr"ue" "x',
        "[core]\nbare = false\n[user]\nname = y\n[core]\nfsmonitor = x",
        '[gui "b\\"]"]\nc=d\n[core]\nfsmonitor = x',
    ],
)
def test_settings_are_found_however_they_are_written(repo: Path, text: str) -> None:
    (repo / ".git/config").write_text(text)
    assert git(repo, "config", "--get", "core.fsmonitor").strip().endswith("x")
    assert notes(repo) == (f"{STARTS} (core.fsmonitor in {repo}/.git/config)",)


@pytest.mark.parametrize(
    "text",
    [
        "[core\n",
        "[]\n",
        "x = y\n",
        "[core]\n= y\n",
        "[core]\nx y\n",
        '[core]\nx = "y\n',
        "[core]\nx = \\q\n",
        "[core]\nx = y\\",
        '[core "a\nb"]\n',
        '[core "a" ]\n',
        "[core]\nx = \0\n",
        "[co re]\n",
        "garbage",
    ],
)
def test_settings_that_are_not_understood_are_noted(repo: Path, text: str) -> None:
    (repo / ".git/config").write_text(text)
    (note,) = notes(repo)
    assert note.startswith("what its repository's settings start cannot be told: ")
    assert str(repo) in note
    assert notes(repo) == (note,)


def test_settings_are_read_as_git_writes_them() -> None:
    text = (
        '[Remote "O\\"x\\\\"]\n\tURL = a ; no\n[branch.Main]\nflag\n'
        '[x]\n y = " a;b " # c\n z = a\\\n\\tb\\"c\n\n e ='
    )
    assert list(read_settings(text)) == [
        Setting("remote", 'O"x\\', "url", "a"),
        Setting("branch", "main", "flag", None),
        Setting("x", "", "y", "a;b"),
        Setting("x", "", "z", 'a\tb"c'),
        Setting("x", "", "e", ""),
    ]


def test_a_file_that_is_none_or_too_large_is_noted(repo: Path) -> None:
    config = repo / ".git/config"
    config.write_text("# " + "x" * 70_000)
    assert "too large" in notes(repo)[0]
    config.unlink()
    assert notes(repo) == ()
    config.mkdir()
    assert "not a regular one" in notes(repo)[0]
    config.rmdir()
    os.mkfifo(config)
    assert "not a regular one" in notes(repo)[0]
    config.unlink()
    config.symlink_to("/etc/passwd")
    assert "cannot be read" in notes(repo)[0]


def test_a_file_that_grows_while_it_is_read_is_too_large() -> None:
    # Its size is told as 0, however much there is in it.
    with pytest.raises(module._Unclear, match="too large"):
        module._CACHE.read("x", "/proc/self/status", 10, lambda _data: ())


def test_a_changed_file_is_read_again(repo: Path) -> None:
    assert notes(repo) == ()
    config = repo / ".git/config"
    before = config.stat()
    harmless = config.read_text() + "[core]\n\tabbrev = aaaaaa\n"
    config.write_text(harmless)
    assert notes(repo) == ()
    config.write_text(harmless.replace("abbrev = aaaaaa", "fsmonitor = ./x"))
    os.utime(config, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(notes(repo)) == 1


def test_what_is_remembered_has_a_limit(tmp_path: Path) -> None:
    for number in range(module._CACHED + 5):
        file = tmp_path / str(number)
        file.write_text("x")
        assert module._CACHE.read("x", str(file), 10, lambda data: (data.decode(),)) == ("x",)
    assert len(module._CACHE._found) <= module._CACHED


def test_a_repository_is_found_through_a_file_and_in_other_working_trees(
    repo: Path, tmp_path: Path
) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    settle(repo, "[core]\n\tfsmonitor = x\n")
    tree = tmp_path / "tree"
    assert notes(tree) == (f"{STARTS} (core.fsmonitor in {repo}/.git/config)",)
    found = find_repository(str(tree))
    assert found is not None
    assert (found.top, found.common) == (str(tree), f"{repo}/.git")
    (Path(found.folder) / "config.worktree").write_text("[core]\neditor = x\n")
    assert len(notes(tree)) == 2
    (tmp_path / "tree/.git").write_text("nonsense")
    assert "names no directory" in notes(tree)[0]
    with pytest.raises(ValueError, match="names no directory"):
        find_repository(str(tree))


def test_a_bare_repository_and_a_link_to_one_count(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    git(bare, "init", "-q", "--bare")
    with (bare / "config").open("a") as file:
        file.write("[core]\nfsmonitor = x\n")
    itself = f"it takes {bare} itself for a repository"
    starts = f"{STARTS} (core.fsmonitor in {bare}/config)"
    assert notes(bare) == (itself, starts)
    assert notes(bare / "hooks") == (itself, starts)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / ".git").symlink_to(bare)
    assert len(notes(linked)) == 1
    (linked / ".git").unlink()
    (linked / ".git").symlink_to("missing")
    assert notes(linked) == ()
    (linked / ".git").unlink()
    (linked / ".git").symlink_to(".git")
    assert "cannot be looked at" in notes(linked)[0]


def test_the_directory_of_a_repository_may_be_looked_at_from_within(repo: Path) -> None:
    assert notes(repo / ".git/hooks") == ()


def test_a_path_in_a_file_is_followed_as_the_kernel_does(repo: Path, tmp_path: Path) -> None:
    far = tmp_path / "far/away"
    far.mkdir(parents=True)
    (repo / "link").symlink_to(far)
    other = tmp_path / "far/other"
    git(tmp_path, "init", "-q", "--bare", str(other))
    tree = repo / "tree"
    tree.mkdir()
    # Written out, it would be `repo/tree/other`.
    (tree / ".git").write_text("gitdir: ../link/../other\n")
    found = find_repository(str(tree))
    assert found is not None
    assert found.folder == str(other)
    (other / "commondir").write_text("../../repo/link/../third\n")
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "far/third"))
    found = find_repository(str(tree))
    assert found is not None
    assert found.common == str(tmp_path / "far/third")
    (other / "commondir").write_text("a\0b\n")
    assert "cannot be looked at" in notes(tree)[0]


@pytest.mark.parametrize("way", ["link", "long", "letters"])
def test_a_head_that_only_git_understands_hides_no_hooks(repo: Path, way: str) -> None:
    inner = repo / "e"
    for name in ("objects", "refs/heads", "hooks"):
        (inner / name).mkdir(parents=True)
    (inner / "config").write_text("[core]\nbare = false\nworktree = .\n")
    head = inner / "HEAD"
    if way == "link":
        head.symlink_to("refs/heads/main")
    else:
        head.write_text("ref: refs/heads/main" + "\n" * 5000 if way == "long" else "A" * 40)
    assert git(inner, "rev-parse", "--absolute-git-dir").strip() == str(inner)
    assert notes(inner)
    with pytest.raises(ValueError, match="may be a repository, or not"):
        find_repository(str(inner))


def test_what_git_takes_for_no_repository_does_not_hide_one_further_up(repo: Path) -> None:
    settle(repo, "[core]\n\tfsmonitor = x\n")
    inner = repo / "inner"
    for name in ("objects", "refs"):
        (inner / ".git" / name).mkdir(parents=True)
    assert len(notes(inner)) == 1
    (inner / ".git/HEAD").write_text("nonsense")
    assert len(notes(inner)) == 1
    with pytest.raises(ValueError, match="may be a repository, or not"):
        find_repository(str(inner))
    (inner / ".git/config").write_text("[core]\neditor = x\n")
    assert len(notes(inner)) == 2
    (inner / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert len(notes(inner)) == 1
    (inner / ".git/HEAD").unlink()
    (inner / ".git/HEAD").symlink_to("refs/heads/main")
    assert len(notes(inner)) == 2
    (inner / ".git/refs").rmdir()
    assert len(notes(inner)) == 1
    found = find_repository(str(inner))
    assert found is not None
    assert found.top == str(repo)


def test_the_directory_of_a_submodule_is_where_it_should_be(repo: Path) -> None:
    (repo / "sub").mkdir()
    modules = repo / ".git/modules/sub"
    modules.parent.mkdir()
    git(repo, "init", "-q", "--separate-git-dir", str(modules), "sub")
    git(repo, "--git-dir", str(modules), "config", "core.worktree", "../../../sub")
    assert notes(repo / "sub") == ()
    git(repo, "--git-dir", str(modules), "config", "core.worktree", "../../../other")
    assert "kept elsewhere (core.worktree" in notes(repo / "sub")[0]


def test_repositories_that_are_kept_for_later_count(repo: Path) -> None:
    modules = repo / ".git/modules"
    for name in ("a/b", "a/b/modules/c"):
        (modules / name).mkdir(parents=True)
        (modules / name / "HEAD").touch()
    (modules / "a/b/modules/c/config").write_text("[core]\nworktree = ../../../../../../x\n")
    assert notes(repo) == ()
    (modules / "a/b/modules/c/config").write_text('[filter "x"]\nsmudge = y\n')
    assert notes(repo) == (f"{STARTS} (filter.x.smudge in {modules}/a/b/modules/c/config)",)
    for number in range(module._MAX_MODULES):
        (modules / str(number)).mkdir()
    assert "too many repositories" in notes(repo)[0]


def test_kept_repositories_that_cannot_be_listed_are_noted(repo: Path) -> None:
    (repo / ".git/modules").symlink_to("modules")
    assert "cannot be read" in notes(repo)[0]


def add_inner(repo: Path, name: str) -> Path:
    inner = repo / name
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "add", name)
    return inner


@pytest.mark.parametrize("split", [False, True])
def test_repositories_within_one_count_as_git_runs_itself_in_them(repo: Path, split: bool) -> None:
    (repo / "a.txt").write_text("x")
    git(repo, "add", ".")
    inner = add_inner(repo, "inner")
    if split:
        git(repo, "update-index", "--split-index")
    assert notes(repo) == ()
    settle(inner, "[core]\n\tfsmonitor = touch PWNED; false\n")
    assert notes(repo) == (f"{STARTS} (core.fsmonitor in {inner}/.git/config)",)
    # And git does start it:
    git(repo, "status")
    assert (inner / "PWNED").exists()
    (inner / ".git").rename(inner / "git")
    assert notes(repo) == ()


def test_a_list_of_files_with_long_digests_is_understood(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q", "--object-format=sha256")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path, "add", "inner")
    settle(inner, "[core]\n\tfsmonitor = x\n")
    assert len(notes(tmp_path)) == 1


def test_a_list_of_files_that_is_not_understood_is_noted(repo: Path) -> None:
    add_inner(repo, "inner")
    git(repo, "update-index", "--index-version", "4")
    assert "of a kind that is not known" in notes(repo)[0]
    index = repo / ".git/index"
    for data in (b"DIRC\0\0\0\2\0\0\0\1\0\0\xe0\0", b"DIRC\0\0\0\2\0\0\0\1" + b"\0\0\xe0\0" * 99):
        index.write_bytes(data)
        assert "is not understood" in notes(repo)[0]


def test_many_repositories_within_one_are_noted(repo: Path) -> None:
    entries = b""
    for number in range(module._MAX_INNER + 1):
        name = b"%03d" % number
        entry = bytes(24) + b"\0\0\xe0\0" + bytes(12) + bytes(20) + b"\x00\x03" + name
        entries += entry + bytes(8 - len(entry) % 8)
    count = (module._MAX_INNER + 1).to_bytes(4, "big")
    (repo / ".git/index").write_bytes(b"DIRC\0\0\0\2" + count + entries)
    assert "too many repositories" in notes(repo)[0]


def test_repositories_within_each_other_are_followed_for_a_while(repo: Path) -> None:
    folders = [repo]
    for _ in range(module._MAX_DEPTH):
        inner = folders[-1] / "in"
        inner.mkdir()
        git(inner, "init", "-q")
        git(inner, "commit", "-q", "--allow-empty", "-m", "x")
        folders.append(inner)
    for folder in reversed(folders[:-1]):
        git(folder, "add", "in")
    assert notes(repo) == ()
    add_inner(folders[-1], "one")
    assert "too many repositories" in notes(repo)[0]


def test_a_directory_that_cannot_be_looked_at_is_noted(repo: Path) -> None:
    assert "cannot be looked at" in repository_notes("/a\0b")[0]
    with pytest.raises(ValueError, match="cannot be told"):
        find_repository("/a\0b")
    assert find_repository("/") is None


def test_names_are_shown_without_invisible_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a\u202eb\nc"
    folder.mkdir()
    git(folder, "init", "-q")
    settle(folder, '[filter "x\u202ey"]\nclean = z\n')
    assert notes(folder)[0].isprintable()


def test_hooks_are_programs_by_their_names(repo: Path) -> None:
    found = find_repository(str(repo))
    assert found is not None
    assert find_hooks(found) == ()
    for name, mode in {"pre-commit": 0o755, "post-merge": 0o644, "x.py": 0o755}.items():
        path = repo / ".git/hooks" / name
        path.touch()
        path.chmod(mode)
    assert find_hooks(found) == ("pre-commit",)
    assert find_hooks(found._replace(common="/nowhere")) == ()
    assert find_hooks(found._replace(common="/" + "x" * 300)) == ("*",)


@pytest.mark.parametrize(
    ("address", "far"),
    [
        ("https://example.org/x", True),
        ("ssh://git@example.org/x", True),
        ("git@example.org:x/y", True),
        ("host:x", True),
        ("file:///x", False),
        ("/x", False),
        ("./x:y", False),
        ("../x", False),
        ("x", False),
        (".", False),
        ("", False),
        ("ext::sh -c x", False),
        ("evil://x", False),
    ],
)
def test_an_address_is_on_another_machine_or_not(address: str, far: bool) -> None:
    assert is_far(address) is far


def test_remotes_are_told_apart_by_where_they_are(repo: Path) -> None:
    found = find_repository(str(repo))
    assert found is not None
    assert find_remotes(found) == ((), ())
    git(repo, "remote", "add", "a", "https://example.org/a")
    git(repo, "remote", "add", "b", "../b")
    git(repo, "remote", "add", "c", "https://example.org/c")
    git(repo, "config", "--add", "remote.c.pushurl", "../c")
    git(repo, "config", "branch.x.pushRemote", "a")
    git(repo, "config", "branch.y.remote", ".")
    far, near = find_remotes(found)
    assert far == ("a",)
    assert sorted(near) == [".", "b", "c"]
    git(repo, "config", "url.https://example.org/.insteadOf", "x:")
    assert find_remotes(found) == (far, near)
    git(repo, "config", "url./x.insteadOf", "y:")
    assert set(find_remotes(found)[1]) == {*near, REWRITTEN}
    settle(repo, "[x\n")
    with pytest.raises(ValueError, match="cannot be told"):
        find_remotes(found)

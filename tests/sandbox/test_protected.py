"""Protected files stay as they are, whatever commands do."""

from __future__ import annotations

import mmap
import os
import re
import resource
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lacking import needs

from clawkit.fs.protected_files import Protection
from clawkit.sandbox.protected_files import MAX_LINES, ProtectedFiles, ProtectedPaths
from clawkit.sandbox.protected_walk import MAX_FOLDERS, MAX_NAMES

CONFIG = "[core]\n\tbare = false\n"
HOOK = "#!/bin/sh\nexit 0\n"
ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_ALLOW_PROTOCOL": "file",
}


def make_repository(folder: Path) -> Path:
    """As far as git takes it for one."""
    git = folder / ".git"
    for name in ("hooks", "info", "objects/info", "refs"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(CONFIG)
    (git / "hooks/pre-commit").write_text(HOOK)
    (git / "hooks/pre-commit").chmod(0o755)
    (git / "hooks/update.sample").write_text(HOOK)
    return git


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    ws = tmp_path / "ws"
    make_repository(ws)
    (ws / "a.txt").write_text("a")
    return ws


@pytest.fixture
def aside(tmp_path: Path) -> Path:
    return tmp_path / "aside"


@pytest.fixture
def watch(ws: Path, aside: Path) -> ProtectedFiles:
    return ProtectedFiles(str(ws), home="", aside=str(aside))


@pytest.fixture
def mounted(ws: Path, aside: Path) -> ProtectedFiles:
    """For a backend that mounts the protected files found at this moment."""
    watch = ProtectedFiles(str(ws), home="", aside=str(aside))
    watch.find(prevented=True)
    return watch


FEW_FOLDERS, FEW_LISTED, FEW_GONE = 300, 50, 100


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making as many files as the limits allow takes long."""
    monkeypatch.setattr("clawkit.sandbox.protected_walk.MAX_FOLDERS", FEW_FOLDERS)
    monkeypatch.setattr("clawkit.sandbox.protected_walk.MAX_LISTED", FEW_LISTED)
    monkeypatch.setattr("clawkit.sandbox.protected_files._MAX_GONE", FEW_GONE)


def sh(ws: Path, command: str) -> None:
    subprocess.run(["sh", "-ec", command], cwd=ws, env=ENV, check=True, capture_output=True)


def run(watch: ProtectedFiles, ws: Path, command: str) -> tuple[str, ...]:
    watch.before()
    sh(ws, command)
    return watch.after(all_exited=True)


def snapshot(folder: Path) -> dict[str, object]:
    """Everything in a directory but its times."""
    found: dict[str, object] = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            info = os.lstat(path)
            content: object = None
            if stat.S_ISREG(info.st_mode):
                content = Path(path).read_bytes()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            found[os.path.relpath(path, folder)] = (info.st_mode, content)
    return found


REVERTED = {
    "written to": "echo x >> .git/config",
    "cut": ": > .git/config",
    "deleted": "rm .git/config",
    "replaced": "echo x > new && mv new .git/config",
    "of the same size": "tr b B < .git/config > new && cat new > .git/config && rm new",
    "with its time set back": "touch -r .git/config t && echo x > .git/config"
    " && touch -r t .git/config && rm t",
    "a link": "rm .git/config && ln -s /etc/passwd .git/config",
    "a link to itself": "mv .git/config ../config && ln -s ../../config .git/config",
    "a directory": "rm .git/config && mkdir -p .git/config/deep",
    "a pipe": "rm .git/config && mkfifo .git/config",
    "with another mode": "chmod 777 .git/config",
    "written to by another name": "ln .git/config ../name && echo x >> ../name",
    "a hook": "echo evil > .git/hooks/pre-commit",
    "a hook that is not run any more": "chmod -x .git/hooks/pre-commit",
    "a deleted hook": "rm .git/hooks/pre-commit",
    "deleted hooks": "rm .git/hooks/pre-commit",
    "hooks elsewhere": "mv .git/hooks ../hooks && ln -s ../../hooks .git/hooks",
    "hooks replaced": "mv .git/hooks ../hooks && mkdir .git/hooks"
    " && echo evil > .git/hooks/pre-commit && cp ../hooks/*.sample .git/hooks",
    "hooks as a file": "mv .git/hooks ../hooks && echo > .git/hooks",
    "a new hook": "echo evil > .git/hooks/pre-push && chmod +x .git/hooks/pre-push",
    "a new directory of hooks": "mkdir .git/hooks/d && echo evil > .git/hooks/d/x",
    "a new link as hook": "ln -s /bin/true .git/hooks/pre-push",
    "a dangling link as hook": "ln -s /nonexistent .git/hooks/pre-push",
    "settings of a worktree": "echo > .git/config.worktree",
    "another repository behind it": "echo /tmp > .git/commondir",
    "attributes": "echo '* filter=x' > .git/info/attributes",
    "a remote of old times": "mkdir -p .git/remotes && echo URL: ext::x > .git/remotes/x",
    "another one": "mkdir -p .git/branches && echo ext::x > .git/branches/x",
    "other objects": "echo /tmp > .git/objects/info/alternates",
    "a link as info": "mv .git/info ../info && ln -s ../../info .git/info"
    " && echo > ../info/attributes",
    "modes": "chmod 711 .git .git/hooks .git/info",
}


@pytest.mark.parametrize("command", REVERTED.values(), ids=REVERTED)
def test_a_change_is_reverted_and_reported(
    ws: Path, aside: Path, watch: ProtectedFiles, command: str
) -> None:
    before = snapshot(ws)
    said = run(watch, ws, command)
    now = snapshot(ws)
    # What is a sample is not run by anything, and restoring a directory does not need it.
    for each in (before, now):
        each.pop(".git/hooks/update.sample", None)
    assert now == before
    assert said
    assert all("it is protected" in line for line in said)
    assert run(watch, ws, "true") == ()


@pytest.mark.parametrize("place", [*filter(os.path.isdir, (tempfile.gettempdir(), "/dev/shm"))])
def test_a_change_through_a_memory_mapping_is_reverted(place: str) -> None:
    with tempfile.TemporaryDirectory(dir=place) as top:
        config = make_repository(Path(top, "ws")) / "config"
        watch = ProtectedFiles(os.path.join(top, "ws"), home="", aside=os.path.join(top, "aside"))
        with open(config, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:] = CONFIG.encode()
            time.sleep(0.1)  # later changes would get another timestamp
            watch.before()
            # The first change has made the page writable, so the kernel does not notice this one.
            mapped[:] = CONFIG.replace("false", "true#").encode()
            [line] = watch.after(all_exited=True)
        assert line.startswith("Reverted .git/config")
        assert config.read_text() == CONFIG


def test_the_changed_version_is_kept_aside(ws: Path, aside: Path, watch: ProtectedFiles) -> None:
    (line,) = run(watch, ws, "echo evil >> .git/config")
    found = re.fullmatch(
        r"Reverted \.git/config: it is protected\. The changed version is kept in (.*); "
        r"ask the person to change it, or retry with elevated: true",
        line,
    )
    assert found
    assert Path(found[1]).read_text() == CONFIG + "evil\n"
    assert Path(found[1]).parent == aside
    assert stat.S_IMODE(aside.stat().st_mode) == 0o700


@pytest.mark.parametrize("command", [REVERTED["a hook"], REVERTED["a new directory of hooks"]])
@needs(os.path.isdir("/dev/shm"), "another file system")
def test_the_changed_version_can_be_kept_on_another_file_system(ws: Path, command: str) -> None:
    aside = Path("/dev/shm") / f"clawkit-test-{os.getpid()}"
    watch = ProtectedFiles(str(ws), home="", aside=str(aside))
    try:
        (line,) = run(watch, ws, command)
        found = re.search(r"is kept in (.*?);", line)
        assert found
        kept = Path(found[1])
        assert (kept / "x" if kept.is_dir() else kept).read_text() == "evil\n"
        assert run(watch, ws, "true") == ()
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def test_a_file_is_restored_even_if_the_change_cannot_be_kept(tmp_path: Path, ws: Path) -> None:
    (tmp_path / "file").write_text("")
    aside = tmp_path / "file" / "aside"
    watch = ProtectedFiles(str(ws), home="", aside=str(aside))
    (line,) = run(watch, ws, "echo evil >> .git/config")
    assert "could not be kept: Not a directory" in line
    assert (ws / ".git/config").read_text() == CONFIG
    (line,) = run(watch, ws, REVERTED["a new hook"])
    assert "could not be kept" in line
    assert not (ws / ".git/hooks/pre-push").exists()
    assert not list(ws.glob("**/.clawkit*"))


ORDINARY = {
    "commit": "git add a.txt && git commit -qm x",
    "branch": "git commit -q --allow-empty -m x && git branch b && git checkout -q b",
    "rebase": "git commit -q --allow-empty -m x && git commit -q --allow-empty -m y"
    " && git rebase -q HEAD~1",
    "stash": "git add a.txt && git commit -qm x && echo b > a.txt && git stash -q && git gc -q",
    "lock": "touch .git/config.lock && rm .git/config.lock",
    "touch": "touch .git/config",
    "the same content": "cp .git/config c && mv c .git/config",
    "files": "mkdir -p src && echo x > src/config && echo x > hooks && mkdir refs && touch HEAD",
    "a sample": "echo x > .git/hooks/other.sample",
    "nothing": "true",
}


@pytest.mark.parametrize("command", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_work_is_left_alone(ws: Path, watch: ProtectedFiles, command: str) -> None:
    assert run(watch, ws, command) == ()


NAMED = {
    "git init -q sub": ["New repository: sub/"],
    "git init -q --bare bare": ["New repository: bare/"],
    "mkdir s && echo 'gitdir: /tmp' > s/.git": ["New repository: s/"],
    "mkdir s && ln -s /tmp s/.git": ["New repository: s/"],
    "git commit -q --allow-empty -m x && git worktree add -q wt": [
        "New repository: wt/",
        "New repository: .git/worktrees/wt/",
    ],
    "echo > .envrc": ["New: .envrc (direnv"],
    "mkdir -p s/.vscode && echo > s/.vscode/tasks.json": ["New: s/.vscode/tasks.json (editors"],
    "ln -s /tmp .vscode": ["New: .vscode (editors"],
    "mkdir -p .idea/runConfigurations && touch .idea/runConfigurations/a": [
        "New: .idea/runConfigurations (editors"
    ],
}


@pytest.mark.parametrize("is_mounted", [False, True])
@pytest.mark.parametrize("command", NAMED)
def test_new_protected_files_are_reported_and_left_alone(
    ws: Path, watch: ProtectedFiles, mounted: ProtectedFiles, command: str, is_mounted: bool
) -> None:
    watch = mounted if is_mounted else watch
    before = snapshot(ws)
    said = run(watch, ws, command)
    assert len(said) == len(NAMED[command])
    for start in NAMED[command]:
        assert any(line.startswith(start) for line in said)
    assert len(snapshot(ws)) > len(before)
    assert run(watch, ws, "true") == ()


def test_what_was_named_is_protected_from_the_next_command_on(
    ws: Path, watch: ProtectedFiles
) -> None:
    run(watch, ws, "git init -q sub && echo a > .envrc")
    said = run(watch, ws, "git -C sub config x.y z; echo b > .envrc")
    assert [line.split(":")[0] for line in said] == ["Reverted .envrc", "Reverted sub/.git/config"]
    assert (ws / ".envrc").read_text() == "a\n"


def test_a_repository_that_replaces_another_gets_its_settings_back(
    ws: Path, watch: ProtectedFiles
) -> None:
    said = run(watch, ws, "mv .git ../old && git init -q . && git config core.fsmonitor evil")
    assert any(line.startswith("Reverted .git/config") for line in said)
    assert any(line.startswith("New repository: ./") for line in said)
    assert (ws / ".git/config").read_text() == CONFIG


@pytest.mark.parametrize("away", ["mv .git ../old", "cp -r .git ../old && rm -rf .git"])
def test_a_repository_cannot_be_changed_while_it_is_away(
    ws: Path, watch: ProtectedFiles, away: str
) -> None:
    assert run(watch, ws, away) == ()
    assert not (ws / ".git").exists()
    assert run(watch, ws, "true") == ()
    said = run(watch, ws, "mv ../old .git && git config core.fsmonitor evil")
    assert said[0].startswith("Reverted .git/config")
    assert (ws / ".git/config").read_text() == CONFIG


def test_a_person_may_put_another_repository_in_the_place_of_one_that_is_gone(
    ws: Path, watch: ProtectedFiles
) -> None:
    run(watch, ws, "rm -rf .git")
    make_repository(ws)
    (ws / ".git/config").write_text("other")
    assert run(watch, ws, "true") == ()
    assert (ws / ".git/config").read_text() == "other"


@pytest.mark.parametrize("command", ["rm -rf sub", "mv sub ../sub", "rm -rf sub && touch sub"])
def test_a_directory_can_be_removed_with_the_repository_in_it(
    ws: Path, watch: ProtectedFiles, command: str
) -> None:
    make_repository(ws / "sub")
    (ws / "sub/.envrc").write_text("")
    assert run(watch, ws, command) == ()
    assert not (ws / "sub").is_dir()


@pytest.mark.parametrize("thing", ["ln -s ../old .git", "echo 'gitdir: ../old' > .git"])
def test_nothing_takes_the_place_of_a_git_directory(
    ws: Path, watch: ProtectedFiles, thing: str
) -> None:
    said = run(watch, ws, f"mv .git ../old && {thing}")
    assert said[0].startswith("Removed .git: it is protected, and could not be restored")
    assert not os.path.lexists(ws / ".git")
    assert run(watch, ws, "true") == ()
    said = run(watch, ws, "mv ../old .git && echo x > .git/config")
    assert said[0].startswith("Reverted .git/config")


def test_a_repository_stays_one_without_its_head(ws: Path, watch: ProtectedFiles) -> None:
    sh(ws, "git init -q --bare bare")
    watch.before()
    assert watch.after(all_exited=True) == ()
    run(watch, ws, "mv bare/HEAD h")
    said = run(watch, ws, "echo evil > bare/config")
    assert said[0].startswith("Reverted bare/config")
    assert run(watch, ws, "mv h bare/HEAD") == ()


@pytest.mark.parametrize("is_mounted", [False, True])
def test_git_as_a_file_and_as_a_link_is_restored(ws: Path, aside: Path, is_mounted: bool) -> None:
    (ws / "one").mkdir()
    (ws / "one/.git").write_text("gitdir: ../.git/worktrees/one\n")
    (ws / "two").mkdir()
    (ws / "two/.git").symlink_to("../.git")
    watch = ProtectedFiles(str(ws), home="", aside=str(aside))
    found = watch.find(prevented=is_mounted)
    assert str(ws / "one/.git") in found.files
    assert not any("two" in path for path in (*found.files, *found.pins))
    before = snapshot(ws)
    said = run(watch, ws, "rm two/.git && mkdir two/.git && git init -q --bare two/.git")
    assert said[0].startswith("Reverted two/.git")
    assert snapshot(ws) == before
    said = run(watch, ws, "ln -sfn /tmp two/.git")
    assert said[0].startswith("Reverted two/.git")
    assert snapshot(ws) == before
    if not is_mounted:
        said = run(watch, ws, "rm one/.git && git init -q one")
        assert said[0].startswith("Reverted one/.git")
        assert snapshot(ws) == before


def test_the_repositories_of_worktrees_and_submodules_are_protected(
    ws: Path, watch: ProtectedFiles
) -> None:
    shutil.copytree(ws / ".git", ws / ".git/modules/a/b")
    sh(ws, "git commit -q --allow-empty -m x && git worktree add -q wt")
    found = watch.find()
    pins = {os.path.relpath(path, ws) for path in found.pins}
    assert {".git", ".git/modules/a/b", ".git/worktrees/wt"} <= pins
    files = {os.path.relpath(path, ws) for path in found.files}
    wanted = {"wt/.git", ".git/modules/a/b/config", ".git/modules/a/b/hooks"}
    assert wanted | {".git/worktrees/wt/commondir", ".git/worktrees/wt/gitdir"} <= files
    before = snapshot(ws)
    said = run(
        watch,
        ws,
        "echo > .git/modules/a/b/hooks/x; echo > .git/modules/a/b/config;"
        "echo > .git/worktrees/wt/commondir; echo > .git/worktrees/wt/config.worktree",
    )
    assert len(said) == 4
    assert snapshot(ws) == before


# Backends that mount.


def test_what_a_mount_keeps_can_be_changed_by_the_person(ws: Path, mounted: ProtectedFiles) -> None:
    (ws / ".envrc").write_text("a")
    mounted.find(prevented=True)
    assert run(mounted, ws, "echo x >> .git/config; echo > .git/hooks/new; echo b > .envrc") == ()
    assert (ws / ".git/config").read_text() == CONFIG + "x\n"
    assert run(mounted, ws, "rm .git/config .envrc") == ()
    assert not (ws / ".git/config").exists()
    assert run(mounted, ws, "true") == ()


@pytest.mark.parametrize(
    "command",
    [
        REVERTED["settings of a worktree"],
        REVERTED["another repository behind it"],
        REVERTED["attributes"],
        REVERTED["other objects"],
    ],
)
def test_what_a_mount_cannot_keep_out_is_moved_aside(
    ws: Path, mounted: ProtectedFiles, command: str
) -> None:
    before = snapshot(ws)
    (line,) = run(mounted, ws, command)
    assert line.startswith("Removed .git/")
    assert snapshot(ws) == before


@pytest.mark.parametrize(
    "first",
    [
        # Each leaves the file without the mount that it had.
        "cp .git/config c && mv c .git/config",
        "cp -r .git new && rm -rf .git && mv new .git",
        "ln .git/config other",
    ],
)
def test_a_file_that_is_not_the_one_that_was_mounted_is_restored(
    ws: Path, mounted: ProtectedFiles, first: str
) -> None:
    sh(ws, first)
    (line,) = run(mounted, ws, "echo evil >> .git/config")
    assert line.startswith("Reverted .git/config")
    assert (ws / ".git/config").read_text() == CONFIG


def test_a_directory_above_a_mount_can_be_renamed_but_not_replaced(ws: Path, aside: Path) -> None:
    make_repository(ws / "sub")
    (ws / "sub/.envrc").write_text("a")
    watch = ProtectedFiles(str(ws), home="", aside=str(aside))
    watch.find(prevented=True)
    said = run(watch, ws, "mv sub x && git init -q sub && echo evil > sub/.envrc")
    assert (ws / "sub/.git/config").read_text() == CONFIG
    assert (ws / "sub/.envrc").read_text() == "a"
    assert {line.split(":")[0] for line in said} >= {
        "Reverted sub/.git/config",
        "Reverted sub/.envrc",
        "New repository",
    }


def test_a_repository_that_came_after_the_mounts_is_restored(
    ws: Path, mounted: ProtectedFiles
) -> None:
    make_repository(ws / "sub")
    (line,) = run(mounted, ws, "echo evil >> sub/.git/config")
    assert line.startswith("Reverted sub/.git/config")


# Several commands.


def test_a_command_does_not_get_what_another_has_changed_taken_over(
    ws: Path, watch: ProtectedFiles
) -> None:
    watch.before()
    sh(ws, "echo evil >> .git/config; git init -q sub")
    watch.before()
    said = watch.after(all_exited=True)
    assert [line.split(":")[0] for line in said] == ["Reverted .git/config", "New repository"]
    sh(ws, "echo evil > .git/hooks/pre-commit")
    (line,) = watch.after(all_exited=True)
    assert line.startswith("Reverted .git/hooks/pre-commit")
    assert (ws / ".git/config").read_text() == CONFIG
    assert (ws / ".git/hooks/pre-commit").read_text() == HOOK


def test_what_a_command_left_running_does_is_never_taken_over(
    ws: Path, watch: ProtectedFiles
) -> None:
    watch.before()
    assert watch.after(all_exited=False) == ()
    sh(ws, "echo evil >> .git/config")
    watch.before()
    (line,) = watch.after(all_exited=True)
    assert line.startswith("Reverted .git/config")
    sh(ws, "echo ../evil > .git/commondir")
    (line,) = watch.after(all_exited=True)
    assert line.startswith("Removed .git/commondir")


def test_without_a_command_nothing_is_reverted(ws: Path, watch: ProtectedFiles) -> None:
    run(watch, ws, "true")
    (ws / ".git/config").write_text("mine")
    assert watch.after(all_exited=False) == ()
    assert (ws / ".git/config").read_text() == "mine"


def test_changes_of_a_person_between_commands_are_kept(ws: Path, watch: ProtectedFiles) -> None:
    run(watch, ws, "true")
    (ws / ".git/config").write_text("mine")
    (ws / ".git/hooks/pre-commit").unlink()
    assert run(watch, ws, "true") == ()
    run(watch, ws, "echo evil > .git/config")
    assert (ws / ".git/config").read_text() == "mine"
    assert not (ws / ".git/hooks/pre-commit").exists()


def overwrite(git: Path) -> None:
    (git / "config").write_text("evil")


def rename(git: Path) -> None:
    git.rename(git.parent / "x")
    (git.parent / "x").rename(git)


def replace_hooks(git: Path) -> None:
    (git / "hooks").rename(git / "h")
    (git / "hooks").symlink_to("/tmp")


def delete(git: Path) -> None:
    (git / "hooks/pre-commit").unlink()
    (git / "config").unlink()


@pytest.mark.parametrize("act", [overwrite, rename, replace_hooks, delete])
def test_a_racing_command_cannot_change_protected_files(
    ws: Path, watch: ProtectedFiles, act: Callable[[Path], None]
) -> None:
    is_over = threading.Event()

    def race() -> None:
        while not is_over.is_set():
            with suppress(OSError):
                act(ws / ".git")

    watch.before()
    racing = threading.Thread(target=race)
    racing.start()
    others = [threading.Thread(target=run, args=(watch, ws, "true")) for _ in range(6)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    is_over.set()
    racing.join()
    watch.after(all_exited=True)
    assert (ws / ".git/config").read_text() == CONFIG
    assert (ws / ".git/hooks/pre-commit").read_text() == HOOK
    assert run(watch, ws, "true") == ()


# Sizes, names and other obstacles.


def test_a_large_file_is_restored(ws: Path, aside: Path, watch: ProtectedFiles) -> None:
    large = CONFIG + "# 0123456789\n" * 250_000
    (ws / ".git/config").write_text(large)
    assert run(watch, ws, "touch .git/config") == ()
    (line,) = run(watch, ws, "sed -i s/false/true/ .git/config")
    assert line.startswith("Reverted .git/config")
    assert (ws / ".git/config").read_text() == large
    (line,) = run(watch, ws, "rm .git/config")
    assert line.startswith("Restored .git/config")
    assert (ws / ".git/config").read_text() == large
    assert len(list(aside.iterdir())) == 1


def test_one_that_is_too_large_to_copy_is_moved_aside_when_it_changes(
    ws: Path, aside: Path, watch: ProtectedFiles
) -> None:
    os.truncate(ws / ".git/config", 1 << 30)
    assert run(watch, ws, "true") == ()
    (line,) = run(watch, ws, "echo evil >> .git/config")
    assert "could not be restored: there is no copy of it. The changed version is kept in" in line
    assert not (ws / ".git/config").exists()
    assert run(watch, ws, "true") == ()
    (line,) = run(watch, ws, "echo evil > .git/config")
    assert "evil" not in line
    assert not (ws / ".git/config").exists()


def test_a_file_that_cannot_be_restored_is_removed_and_restored_later(
    ws: Path, watch: ProtectedFiles
) -> None:
    watch.before()
    (ws / ".git/config").write_text("evil")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        said = watch.after(all_exited=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said[0].startswith(
        "Removed .git/config: it is protected, and could not be restored: File too large. The"
    )
    assert not (ws / ".git/config").exists()
    assert not list(ws.glob("**/.clawkit*"))
    (line,) = run(watch, ws, "true")
    assert line.startswith("Restored .git/config: ")
    assert (ws / ".git/config").read_text() == CONFIG
    assert run(watch, ws, "true") == ()


@pytest.mark.usefixtures("low_limits")
def test_the_memory_of_removed_repositories_is_limited(ws: Path, watch: ProtectedFiles) -> None:
    for number in range(3 * FEW_GONE // 10):
        make_repository(ws / f"r{number}")
    assert run(watch, ws, "mkdir ../old && mv r* ../old") == ()
    assert run(watch, ws, "true") == ()
    said = run(watch, ws, "mv ../old/r9 . && echo evil > r9/.git/config")
    assert said[0].startswith("Reverted r9/.git/config")


def test_hundreds_of_repositories_make_a_few_lines(ws: Path, watch: ProtectedFiles) -> None:
    watch.before()
    for number in range(200):
        os.makedirs(ws / f"r{number}/.git")
    said = watch.after(all_exited=True)
    assert len(said) == MAX_LINES + 1
    assert said[-1] == "and 190 more"
    assert len(watch.find().pins) == 1 + 200
    assert run(watch, ws, "true") == ()


@pytest.mark.usefixtures("low_limits")
def test_a_workspace_that_is_too_large_is_watched_nearby(ws: Path, aside: Path) -> None:
    deep = make_repository(ws / "a/b/c/d/e")
    watch = ProtectedFiles(str(ws), home="", aside=str(aside))
    assert watch.find().complete
    watch.before()
    (ws / "a/b/many").mkdir()
    for number in range(FEW_FOLDERS):
        os.mkdir(ws / f"a/b/many/{number}")
    (deep / "config").write_text("evil")
    (ws / ".git/config").write_text("evil")
    said = watch.after(all_exited=True)
    assert (deep / "config").read_text() == (ws / ".git/config").read_text() == CONFIG
    assert said[-1].startswith("The workspace is now too large")
    found = watch.find()
    assert not found.complete
    assert str(deep) in found.pins
    other = ProtectedFiles(str(ws), home="", aside=str(aside)).find()
    assert not other.complete
    assert str(ws / ".git") in other.pins


@pytest.mark.usefixtures("low_limits")
def test_many_files_hide_no_repository(ws: Path, aside: Path) -> None:
    deep = make_repository(ws / "a/b/c/d/e")
    for number in range(FEW_FOLDERS + 1):
        os.close(os.open(ws / str(number), os.O_CREAT | os.O_WRONLY))
    found = ProtectedFiles(str(ws), home="", aside=str(aside)).find(prevented=True)
    assert found.complete
    assert str(deep / "config") in found.files


def test_a_directory_with_too_many_names_is_not_looked_through(
    ws: Path, aside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_NAMES > MAX_FOLDERS
    monkeypatch.setattr("clawkit.sandbox.protected_walk.MAX_NAMES", 50)
    (ws / "sub").mkdir()
    for number in range(60):
        (ws / f"sub/{number}").touch()
    (ws / "sub/.envrc").touch()
    found = ProtectedFiles(str(ws), home="", aside=str(aside)).find(prevented=True)
    assert not found.complete
    assert {str(ws / "sub/.envrc"), str(ws / ".git/config")} <= set(found.files)


@pytest.mark.usefixtures("low_limits")
def test_too_many_worktrees_make_the_result_incomplete(ws: Path, aside: Path) -> None:
    for number in range(FEW_LISTED + 1):
        os.makedirs(ws / f".git/worktrees/{number}")
    found = ProtectedFiles(str(ws), home="", aside=str(aside)).find(prevented=True)
    assert not found.complete


@pytest.mark.usefixtures("low_limits")
def test_many_hooks_do_not_hide_one(ws: Path, watch: ProtectedFiles) -> None:
    watch.before()
    for number in range(FEW_LISTED + 1):
        os.close(os.open(ws / f".git/hooks/{number}", os.O_CREAT | os.O_WRONLY))
    (line,) = watch.after(all_exited=True)
    assert line.startswith("Reverted .git/hooks: ")
    assert os.listdir(ws / ".git/hooks") == ["pre-commit"]
    assert (ws / ".git/hooks/pre-commit").read_text() == HOOK


def test_many_names_in_a_git_directory_do_not_hide_one(ws: Path, watch: ProtectedFiles) -> None:
    watch.before()
    for number in range(FEW_LISTED + 1):
        os.close(os.open(ws / f".git/{number}", os.O_CREAT | os.O_WRONLY))
    (ws / ".git/commondir").write_text("/tmp")
    (line,) = watch.after(all_exited=True)
    assert line.startswith("Removed .git/commondir: ")


def test_a_directory_that_looks_like_a_repository_hides_nothing(
    ws: Path, watch: ProtectedFiles
) -> None:
    said = run(watch, ws, "mkdir objects refs && touch HEAD && git init -q sub")
    assert [line.split(" (")[0] for line in said] == ["New repository: ./", "New repository: sub/"]


def test_names_are_shown_printable(ws: Path, watch: ProtectedFiles) -> None:
    watch.before()
    name = os.fsencode(ws) + b"/a\n\xff\xe2\x80\xae" + b"x" * 200
    os.makedirs(name + b"/.git")
    (ws / ".git/hooks" / "pre\npush").write_text("evil")
    said = watch.after(all_exited=True)
    assert len(said) == 2
    for line in said:
        assert line.isprintable()
        assert line.isascii() or line.encode()
        assert len(line) < 600
    assert said[0].startswith(r"Removed .git/hooks/pre\u{a}push: ")
    assert said[1].startswith(r"New repository: a\u{a}\u{dcff}\u{202e}xxx")


def test_a_pipe_in_the_place_of_a_file_does_not_block(ws: Path, watch: ProtectedFiles) -> None:
    (ws / ".git/config").unlink()
    os.mkfifo(ws / ".git/config")
    assert run(watch, ws, "true") == ()
    (line,) = run(watch, ws, "rm .git/config && echo evil > .git/config")
    assert "could not be restored" in line
    assert not (ws / ".git/config").exists()


def test_the_workspace_may_be_deleted_meanwhile(ws: Path, watch: ProtectedFiles) -> None:
    watch.before()
    shutil.rmtree(ws)
    assert watch.after(all_exited=True) == ()
    watch.before()
    assert watch.after(all_exited=True) == ()
    assert watch.find() == ProtectedPaths((), (), complete=True)


def test_links_out_are_not_followed(tmp_path: Path, ws: Path, watch: ProtectedFiles) -> None:
    other = make_repository(tmp_path / "other")
    make_repository(ws / "sub")
    (ws / "link").symlink_to(tmp_path / "other")
    assert not any(path.startswith(f"{ws}/link") for path in watch.find().files)
    said = run(watch, ws, "mv sub x && ln -s ../other sub && echo mine > ../other/.git/config")
    assert [line.split(" (")[0] for line in said] == ["New repository: x/"]
    assert (other / "config").read_text() == "mine\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of an ordinary user, as whom the test runs."""
    place = Path(tempfile.mkdtemp())
    user = os.geteuid()
    if user == 0:
        os.chown(place, 65534, -1)
        os.seteuid(65534)
    try:
        yield place
    finally:
        os.seteuid(user)
        shutil.rmtree(place)


@pytest.mark.parametrize(
    ("shut", "line"),
    [
        ("chmod 0 .git", "Reverted the mode of .git: "),
        ("chmod 0 .git/hooks", "Reverted the mode of .git/hooks: "),
        ("chmod 300 .git/hooks", "Reverted the mode of .git/hooks: "),
        ("chmod 0 .git/hooks && chmod 0 .git", "Reverted the mode of .git: "),
        ("chmod 0 sub", ""),
    ],
)
def test_directories_that_were_closed_hide_nothing(place: Path, shut: str, line: str) -> None:
    ws = place / "ws"
    make_repository(ws)
    make_repository(ws / "sub")
    watch = ProtectedFiles(str(ws), home="", aside=str(place / "aside"))
    watch.before()
    (ws / "sub/.git/config").write_text("evil")
    (ws / ".git/config").write_text("evil")
    (ws / ".git/hooks/pre-push").write_text("evil")
    for each in shut.split(" && "):
        _, mode, path = each.split()
        os.chmod(ws / path, int(mode, 8))
    said = watch.after(all_exited=True)
    assert (ws / "sub/.git/config").read_text() == (ws / ".git/config").read_text() == CONFIG
    assert not (ws / ".git/hooks/pre-push").exists()
    assert any(each.startswith(line) for each in said)


# The home directory.


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".config/app").mkdir(parents=True)
    (home / ".bashrc").write_text("mine")
    (home / ".local/bin").mkdir(parents=True)
    return home


HOME = {
    "echo evil >> .bashrc": "Reverted .bashrc",
    "echo evil > .zshenv": "Removed .zshenv",
    "mkdir .ssh && echo evil > .ssh/config": "Removed .ssh",
    "echo evil > .local/bin/ls": "Removed .local/bin/ls",
    "mkdir .config/fish && echo evil > .config/fish/config.fish": "Removed .config/fish",
    "mkdir -p .cargo && echo evil > .cargo/config.toml": "Removed .cargo/config.toml",
    "mkdir .cargo && echo ok > .cargo/x": "",
    "echo ok > .config/app/state": "",
    "mkdir project && echo ok > project/.bashrc": "",
}


@pytest.mark.parametrize("command", HOME)
@pytest.mark.parametrize("above", [False, True])
def test_startup_files_are_protected_where_the_workspace_has_the_home_directory(
    home: Path, aside: Path, command: str, above: bool
) -> None:
    ws = home.parent if above else home
    watch = ProtectedFiles(str(ws), home=str(home), aside=str(aside))
    said = run(watch, home, command)
    start = HOME[command].replace(" ", " home/") if above else HOME[command]
    assert [line.partition(":")[0] for line in said] == ([start] if start else [])
    assert (home / ".bashrc").read_text() == "mine"


def test_a_mount_keeps_all_settings_in_the_home_directory(home: Path, aside: Path) -> None:
    watch = ProtectedFiles(str(home), home=str(home), aside=str(aside))
    found = watch.find(prevented=True)
    files = [os.path.relpath(path, home) for path in found.files]
    assert files == [".bashrc", ".config", ".local/bin"]
    assert [os.path.relpath(path, home) for path in found.pins] == [".local"]


def test_files_moved_aside_are_not_checked(home: Path) -> None:
    aside = home / "state/aside"
    watch = ProtectedFiles(str(home), home=str(home), aside=str(aside))
    (home / ".git").write_text("gitdir: elsewhere")
    (line,) = run(watch, home, "rm .git && git init -q .")
    assert line.startswith("Reverted .git: ")
    assert run(watch, home, "true") == ()


def test_startup_files_are_not_protected_without_the_home_directory(
    home: Path, aside: Path
) -> None:
    watch = ProtectedFiles(str(home), home="/nonexistent", aside=str(aside))
    assert watch.find() == ProtectedPaths((), (), complete=True)
    assert run(watch, home, "echo x > .bashrc; echo > .zshenv") == ()


# The table.

NAMES = st.sampled_from(
    (
        *(".git", ".GIT", "git~1", "config", "HEAD", "objects", "refs", "hooks", "info"),
        *("attributes", "alternates", "modules", "worktrees", "commondir", "gitdir", "a", "home"),
        *(".envrc", ".vscode", "tasks.json", ".idea", "runConfigurations", "x.code-workspace"),
        *(".vimrc", ".config", "fish", ".bashrc", ".local", "bin", ".ssh", ".cargo", "config.toml"),
    )
)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


@given(st.lists(PATHS, max_size=12), st.sampled_from(["", "home", "a", "nowhere"]))
def test_everything_that_is_found_is_protected_for_the_file_tools(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], home: str
) -> None:
    ws = tmp_path_factory.mktemp("ws")
    for path in paths:
        try:
            (ws / path).parent.mkdir(parents=True, exist_ok=True)
            (ws / path).touch()
        except (NotADirectoryError, FileExistsError):
            continue
    place = os.path.join(ws, home).rstrip("/")
    watch = ProtectedFiles(str(ws), home=place, aside=str(ws / "aside"))
    found = watch.find(prevented=True)
    protection = Protection(home=place)
    for path in (*found.files, *found.pins):
        assert protection.explain(path), path
        assert os.path.realpath(path) == path
    assert list(found.files) == sorted(found.files)
    assert not set(found.files) & set(found.pins)
    shutil.rmtree(ws)

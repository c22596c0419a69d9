"""Sandboxes that are no longer used are removed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import lack
from tests.sandbox.patient import open_patient_kit
from tests.scale import nest

from clawkit.sandbox.confinement import EVERY_S
from clawkit.sandbox.paths import process_dir, slug_of, sweep
from clawkit.sandbox.tree_removal import remove_tree

HOUR_S, DAY_S = 3600, 86_400


@pytest.fixture(autouse=True)
def _whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run waits for its round, however busy the machine is."""
    monkeypatch.setattr("clawkit.sandbox.confinement._PRUNING_S", 120.0)


def make(scope: str, *, created_s: float = 0, used_s: float = 0) -> Path:
    """A sandbox that was created and last used the given numbers of seconds ago."""
    root = Path(os.environ["CLAWKIT_HOME"]) / "sandboxes" / slug_of(scope)
    (root / "cache").mkdir(parents=True)
    (root / "created").touch()
    now = time.time()
    os.utime(root / "created", (now - created_s, now - created_s))
    os.utime(root, (now - used_s, now - used_s))
    return root


def stamps() -> list[Path]:
    return list((Path(os.environ["CLAWKIT_HOME"]) / "sandboxes").glob(".pruned-*"))


async def run(workspace: Path, **prune: Any) -> None:
    """One command in the sandbox, in a run of its own."""
    config = {"agents": {"defaults": {"sandbox": {"prune": prune}}}}
    async with open_patient_kit(workspace, config=config) as kit:
        result = await kit.call("exec", {"command": "true"})
        assert result.details["exitCode"] == 0


async def test_idle_and_old_sandboxes_are_removed_with_the_first_command(workspace: Path) -> None:
    idle = make("idle", created_s=2 * DAY_S, used_s=25 * HOUR_S)
    old = make("old", created_s=8 * DAY_S, used_s=HOUR_S)
    young = make("young", created_s=6 * DAY_S, used_s=23 * HOUR_S)
    await run(workspace)
    assert [each.exists() for each in (idle, old, young)] == [False, False, True]


async def test_a_sandbox_in_use_stays(workspace: Path) -> None:
    busy = make("busy", created_s=8 * DAY_S)
    os.mkdir(process_dir(str(busy)))
    os.utime(busy, (0, 0))
    await run(workspace)
    assert busy.exists()


@pytest.mark.parametrize(
    ("prune", "left"),
    [
        ({"idleHours": 0}, [True, False]),
        ({"maxAgeDays": 0}, [False, True]),
        ({"idleHours": 0, "maxAgeDays": 0}, [True, True]),
        ({"idleHours": 0.5, "maxAgeDays": 100}, [False, False]),
    ],
)
async def test_the_settings_have_an_effect(
    workspace: Path, prune: dict[str, float], left: list[bool]
) -> None:
    idle = make("idle", created_s=2 * DAY_S, used_s=25 * HOUR_S)
    old = make("old", created_s=8 * DAY_S, used_s=HOUR_S)
    await run(workspace, **prune)
    assert [idle.exists(), old.exists()] == left


async def test_sandboxes_are_pruned_at_intervals(workspace: Path) -> None:
    await run(workspace)
    [stamp] = stamps()
    idle = make("idle", used_s=25 * HOUR_S)
    await run(workspace)
    assert idle.exists()
    long_ago = time.time() - EVERY_S - 1
    os.utime(stamp, (long_ago, long_ago))
    await run(workspace)
    assert not idle.exists()


async def test_opening_a_run_removes_nothing(workspace: Path) -> None:
    idle = make("idle", used_s=25 * HOUR_S)
    async with open_patient_kit(workspace) as kit:
        await kit.call("ls", {})
    assert idle.exists()
    assert stamps() == []


def test_a_tree_of_any_depth_and_without_permissions_is_removed(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for folder in (tree / "shut" / "inner", outside):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (tree / "link").symlink_to(outside)
    (tree / "shut" / "link").symlink_to(outside)
    nest(tree, 3_000)
    for shut in (tree / "shut" / "inner", tree / "shut", tree):
        shut.chmod(0)
    remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "file").exists()
    remove_tree(str(tree))


def test_a_tree_that_something_adds_to_is_left_for_the_next_call(tmp_path: Path) -> None:
    tree, done = tmp_path / "tree", threading.Event()
    for number in range(20):
        (tree / str(number)).mkdir(parents=True)

    def feed() -> None:
        while not done.is_set():
            with suppress(OSError):  # it may be removed meanwhile
                for folder in tree.iterdir():
                    (folder / "a").mkdir(exist_ok=True)
                    (folder / "a" / "file").touch()

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        remove_tree(str(tree), most=1_000)
    finally:
        done.set()
        feeding.join()
    remove_tree(str(tree))
    assert not tree.exists()


def test_each_call_removes_part_of_a_large_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for number in range(30):
        (tree / str(number)).mkdir(parents=True)
        (tree / str(number) / "file").touch()
    left = []
    while tree.exists():
        remove_tree(str(tree), most=10)
        left.append(len(list(tree.glob("*"))))
    assert left == [20, 10, 0]


@pytest.mark.parametrize("mode", [0o755, 0])
def test_mounts_in_a_tree_keep_their_mode(tmp_path: Path, mode: int) -> None:
    tree, source = tmp_path / "tree", tmp_path / "source"
    (tree / "inner" / "mounted").mkdir(parents=True)
    (tree / "inner" / "mounted").chmod(mode)
    source.mkdir(mode=0o755)
    (source / "file").touch()
    code = (
        "import sys; from clawkit.sandbox.tree_removal import remove_tree; remove_tree(sys.argv[1])"
    )
    script = (
        'mount --bind "$1" "$2/inner/mounted" && exec setpriv --bounding-set=-all "$3" -c "$4" "$2"'
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run([*argv, source, tree, sys.executable, code], capture_output=True)
    if done.returncode:
        lack(f"nothing can be mounted here: {done.stderr.decode()}")
    assert stat.S_IMODE(source.stat().st_mode) == 0o755
    assert (source / "file").exists()


def test_a_tree_of_a_lower_layer_of_overlayfs_is_removed(tmp_path: Path) -> None:
    """As in a container whose image has it: its directories cannot be moved."""
    folders = [tmp_path / name for name in ("lower", "upper", "work", "merged")]
    for folder in folders:
        folder.mkdir()
    for name in ("a/b/c", "a/d", "e/f"):
        (folders[0] / "tree" / name).mkdir(parents=True)
        (folders[0] / "tree" / name / "file").touch()
    code = (
        "import os, sys; from clawkit.sandbox.tree_removal import remove_tree\n"
        "remove_tree(sys.argv[1]); print(os.path.exists(sys.argv[1]))"
    )
    script = (
        'mount -t overlay -o "lowerdir=$1,upperdir=$2,workdir=$3,userxattr" overlay "$4"'
        " || exit 77; "
        'exec "$5" -c "$6" "$4/tree"'
    )
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = subprocess.run([*argv, *folders, sys.executable, code], capture_output=True)
    if done.returncode == 77:
        lack(f"no overlay can be mounted here: {done.stderr.decode()}")
    assert (done.returncode, done.stdout) == (0, b"False\n"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_empty_directories_of_other_users_are_removed() -> None:
    tree = Path(tempfile.mkdtemp())  # pytest's directory is closed to others
    try:
        for folder in (tree / "tree" / "mine" / "mount", tree / "tree" / "mount"):
            folder.mkdir(parents=True)
        for own in (tree, tree / "tree", tree / "tree" / "mine"):
            os.chown(own, 65534, 65534)
        os.seteuid(65534)
        try:
            remove_tree(str(tree / "tree"))
        finally:
            os.seteuid(0)
        assert list(tree.iterdir()) == []
    finally:
        shutil.rmtree(tree)


def test_a_command_cannot_make_its_sandbox_unusable() -> None:
    """A tree that cannot be removed would be met again by every later command."""
    root = make("agent:main:workspace:x")
    left = root / "run-1-1-abc" / "tmp"
    left.mkdir(parents=True)
    nest(left, 3_000)
    assert sweep(str(root)) == []
    assert not left.exists()

"""Changes to the file on disk when editors meet, die, or find no room."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.file_edit import change, set_setting
from clawkit.config.load import loads

COMMENTED = """\
// mine
{
  tools: {
    exec: { ask: "always" }, // careful
  },
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clawkit.json5"
    path.write_text(COMMENTED, encoding="utf-8")
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def can_be_changed(file: Path) -> bool:
    return change(str(file), lambda text: set_setting(text, ("tools", "profile"), "full")).written


EDITOR = """
import sys
from clawkit.config.file_edit import set_setting
from clawkit.config.file_edit import change
file, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for number in range(count):
    path = ("env", "vars", f"{name}_{number}")
    change(file, lambda text: set_setting(text, path, "x"), wait_s=300)
print("done", flush=True)
"""


def editor(file: Path, name: str, count: int, **options: Any) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", EDITOR, str(file), name, str(count)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **options)


def test_editors_at_the_same_time_lose_nothing(file: Path) -> None:
    names = ("A", "B", "C")
    running = [editor(file, name, 8) for name in names]
    for each in running:
        out, _ = each.communicate()
        assert out.endswith("done\n")
    found = loads(file.read_text(encoding="utf-8")).config.env.vars
    assert set(found) == {f"{name}_{number}" for name in names for number in range(8)}


def test_a_killed_editor_leaves_a_whole_file_and_no_lock(file: Path) -> None:
    for delay in (0.0, 0.004, 0.011, 0.023, 0.05):
        with editor(file, "K", 500) as each:
            assert each.stdout is not None
            each.stdout.readline()
            time.sleep(delay)
            each.send_signal(signal.SIGKILL)
        for name, data in files_in(file.parent).items():
            if name.startswith(file.name) and not name.endswith(".lock"):
                assert loads(data.decode()).config.tools.exec.ask == "always", name
    assert can_be_changed(file)


def test_death_while_the_new_file_is_written_leaves_the_old_one(file: Path) -> None:
    # The backup fits below the limit, the new file does not: the kernel ends the process there.
    def die_of_large_files() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10,) * 2)

    script = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n" + EDITOR
    argv = [sys.executable, "-c", script, str(file), "LONG_NAME" * 9, "1"]
    done = subprocess.run(argv, preexec_fn=die_of_large_files, timeout=50, capture_output=True)
    assert done.returncode == -signal.SIGXFSZ
    assert file.read_text(encoding="utf-8") == COMMENTED
    assert Path(f"{file}.bak").read_text(encoding="utf-8") == COMMENTED
    assert can_be_changed(file)


def clawkit(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "clawkit", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=50, **options)


def test_a_full_disk_leaves_the_file_unchanged(file: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10,) * 2)

    done = clawkit(
        *("config", "set", "messages.responsePrefix", "x" * 200, "--config", str(file)),
        preexec_fn=no_room,
        env={**os.environ, "COVERAGE_PROCESS_CONFIG": ""},  # which would write files of its own
    )
    assert done.returncode == 2
    assert "was not changed" in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_text(encoding="utf-8") == COMMENTED
    assert [name for name in files_in(file.parent) if name.endswith(".tmp")] == []


def without_override() -> None:
    """In a child: root loses the right to write where permissions say no."""
    import ctypes

    if os.geteuid() == 0:
        pr_capbset_drop, cap_dac_override = 24, 1
        ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0)


@pytest.fixture
def locked_folder(file: Path) -> Iterator[Path]:
    file.parent.chmod(0o500)
    yield file
    file.parent.chmod(0o700)


def test_a_read_only_directory_is_an_error_in_plain_words(locked_folder: Path) -> None:
    done = clawkit(
        *("config", "set", "tools.profile", "full", "--config", str(locked_folder)),
        preexec_fn=without_override,
    )
    assert done.returncode == 2
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
    assert locked_folder.read_text(encoding="utf-8") == COMMENTED

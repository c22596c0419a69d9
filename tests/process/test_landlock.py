"""What the kernel keeps a thread to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fs.tricks import open_handles
from tests.lacking import needs

from clawkit.process import landlock
from clawkit.process.landlock import Hold, abi, available, enter, make_start_rules, restrict_thread

held = needs(landlock.available(), "Landlock")


def in_thread(work: Callable[[], object]) -> list[object]:
    """The outcome of some work in a thread of its own, whose restrictions end with it."""
    outcome: list[object] = []

    def body() -> None:
        try:
            outcome.append(work())
        except OSError as error:
            outcome.append(type(error))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return outcome


@held
def test_a_thread_is_held_and_the_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").write_text("in")
    (tmp_path / "f").write_text("out")

    def work() -> object:
        restrict_thread(Hold(read=(f"{tmp_path}/in",)))
        assert (tmp_path / "in" / "f").read_text() == "in"
        return (tmp_path / "f").read_text()

    assert in_thread(work) == [PermissionError]
    assert (tmp_path / "f").read_text() == "out"


@held
def test_a_second_hold_never_gives_back_what_the_first_took(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("out")

    def work() -> object:
        restrict_thread(Hold())
        restrict_thread(Hold(read=("/",)))
        return (tmp_path / "f").read_text()

    assert in_thread(work) == [PermissionError]


@held
def test_truncating_a_readable_file_is_denied(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")

    def work() -> object:
        restrict_thread(Hold(read=(str(tmp_path),)))
        return os.open(tmp_path / "f", os.O_RDONLY | os.O_TRUNC)

    if abi() >= 3:
        assert in_thread(work) == [PermissionError]
        assert (tmp_path / "f").read_text() == "content"


@held
def test_a_directory_that_cannot_be_inspected_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    before = open_handles()

    def work() -> None:
        restrict_thread(Hold(read=(f"{tmp_path}/loop",)))

    assert in_thread(work) == [OSError]
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


@pytest.fixture
def other_system(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    abi.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    yield
    abi.cache_clear()


@pytest.mark.usefixtures("other_system")
def test_other_systems_have_none_and_say_so() -> None:
    assert not available()
    with pytest.raises(OSError, match="no Landlock"):
        restrict_thread(Hold())


@held
@pytest.mark.parametrize("version", range(1, 7))
def test_older_kernels_are_asked_for_no_more_than_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    if version > abi():
        pytest.skip("this kernel is older itself")
    (tmp_path / "f").write_text("out")

    def work() -> object:
        restrict_thread(Hold(write=(f"{tmp_path}/in",)))
        return (tmp_path / "f").read_text()

    monkeypatch.setattr(landlock, "abi", lambda: version)
    assert in_thread(work) == [PermissionError]


@held
def test_a_failing_call_is_an_error_with_the_message_of_the_kernel() -> None:
    def work() -> None:
        # More than sixteen layers on top of each other are refused.
        for _ in range(20):
            restrict_thread(Hold(read=("/",)))

    (outcome,) = in_thread(work)
    assert outcome is OSError


TRUE, FALSE = (os.path.realpath(shutil.which(name) or "") for name in ("true", "false"))


def start(program: str, *paths: str) -> object:
    """What becomes of a program where only some can be started."""

    def work() -> int:
        rules = make_start_rules(paths)
        try:
            enter(rules)
        finally:
            os.close(rules)
        return subprocess.run((program,), check=False).returncode

    (outcome,) = in_thread(work)
    return outcome


@held
def test_only_what_the_rules_name_can_be_started(tmp_path: Path) -> None:
    assert start(TRUE, *landlock.SYSTEM) == 0
    assert start(TRUE, TRUE) is PermissionError, "it needs its loader"
    assert start(FALSE, str(tmp_path), f"{tmp_path}/missing") is PermissionError
    assert subprocess.run((TRUE,), check=False).returncode == 0


@held
@pytest.mark.parametrize("version", [1, 2])
def test_rules_for_starting_keep_nothing_else_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    if version > abi():
        pytest.skip("this kernel is older itself")
    for name in ("a", "b", "named"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "f").write_text("old")
    monkeypatch.setattr(landlock, "abi", lambda: version)

    def work() -> object:
        rules = make_start_rules([f"{tmp_path}/named"])
        enter(rules)
        os.close(rules)
        (tmp_path / "a" / "f").write_text("new")
        os.truncate(tmp_path / "a" / "f", 2)
        os.rename(tmp_path / "a" / "f", tmp_path / "a" / "g")
        with pytest.raises(OSError, match="cross-device"):
            os.link(tmp_path / "a" / "g", tmp_path / "named" / "g")
        os.link(tmp_path / "a" / "g", tmp_path / "b" / "h")
        os.rename(tmp_path / "a" / "g", tmp_path / "b" / "g")
        return (tmp_path / "b" / "g").read_text()

    # The oldest kernels do not let files change their directory.
    assert in_thread(work) == (["ne"] if version > 1 else [OSError])


@held
def test_rules_that_cannot_be_made_leave_no_handle(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    before = open_handles()
    with pytest.raises(OSError, match="symbolic links"):
        make_start_rules([f"{tmp_path}/loop"])
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


@held
def test_entering_invalid_rules_fails() -> None:
    assert in_thread(lambda: enter(0)) == [OSError]

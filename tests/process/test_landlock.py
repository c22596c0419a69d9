"""What the kernel keeps a thread to."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fs.tricks import open_handles

from clawkit.process import landlock
from clawkit.process.landlock import Hold, abi, available, restrict_thread

held = pytest.mark.skipif(not landlock.available(), reason="this kernel has no Landlock")


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
def test_cutting_is_kept_from_where_it_is_not_left_to_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")

    def work() -> object:
        restrict_thread(Hold(read=(str(tmp_path),)))
        return os.open(tmp_path / "f", os.O_RDONLY | os.O_TRUNC)

    if abi() >= 3:
        assert in_thread(work) == [PermissionError]
        assert (tmp_path / "f").read_text() == "content"


@held
def test_a_directory_that_cannot_be_looked_at_is_an_error_not_a_gap(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    before = open_handles()

    def work() -> None:
        restrict_thread(Hold(read=(f"{tmp_path}/loop",)))

    assert in_thread(work) == [OSError]
    assert open_handles() == before


@pytest.fixture
def other_system(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    abi.cache_clear()
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
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
def test_a_failing_call_says_what_the_kernel_said() -> None:
    def work() -> None:
        # More than sixteen layers on top of each other are refused.
        for _ in range(20):
            restrict_thread(Hold(read=("/",)))

    (outcome,) = in_thread(work)
    assert outcome is OSError

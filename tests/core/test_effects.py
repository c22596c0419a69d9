"""Which calls may run side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.core.tool import ANYTHING, Effect, collide, file_resource, resolve


def test_two_calls_collide_when_their_order_could_matter(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[Effect, Effect, bool]] = [
        (Effect("read", "file:/a"), Effect("read", "file:/a"), False),
        (Effect("read"), Effect("read"), False),
        (Effect("read", "file:/a"), Effect("write", "file:/a"), True),
        (Effect("write", "file:/a"), Effect("write", "file:/b"), False),
        (Effect("write", "file:/a"), Effect("read", "file:/a/b"), True),
        (Effect("write", "file:/a/"), Effect("read", "file:/a/b"), True),
        (Effect("write", "file:/a"), Effect("read", "file:/ab"), False),
        (Effect("write", "file:/"), Effect("read", "file:/x/y"), True),
        (Effect("write"), Effect("read", "session:main"), True),
        (Effect("exec"), Effect("exec"), True),
        (Effect("send", "channel:a"), Effect("send", "channel:a"), True),
        (Effect("send", "channel:a"), Effect("send", "channel:a/b"), False),
        (Effect("network", "host:x"), Effect("read", "file:/x"), False),
    ]
    for first, second, expected in cases:
        with subtests.test(f"{first!r:.80}"):
            assert collide([first], [second]) is expected
            assert collide([second], [first]) is expected


def test_one_colliding_pair_is_enough_and_no_effects_collide_with_nothing() -> None:
    several = [Effect("read", "file:/a"), Effect("write", "file:/b")]
    assert collide(several, iter([Effect("read", "file:/c"), Effect("read", "file:/b")]))
    assert not collide(several, [])
    assert not collide([], ANYTHING)


EFFECTS = st.lists(
    st.builds(
        Effect,
        st.sampled_from(["read", "write", "exec"]),
        st.sampled_from(["*", "file:/", "file:/a", "file:/a/b", "file:/ab", "x:a", "x:a/b"]),
    ),
    max_size=3,
)


@settings(deadline=None)
@given(EFFECTS, EFFECTS)
def test_collide_is_symmetric(first: list[Effect], second: list[Effect]) -> None:
    assert collide(first, second) == collide(second, first)


def test_a_file_has_one_name_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    workspace = str(tmp_path)
    expected = f"file:{tmp_path.resolve()}/d/f"
    for path in ("d/f", "./d//f", "link/f", f"{workspace}/d/f", "d/../link/f", "~/d/f"):
        [effect] = resolve([Effect("read", file_resource(workspace, path))])
        assert effect.resource == expected

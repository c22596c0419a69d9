"""Random paths: none may reveal files outside, or files that a rule denies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clawkit.testing import open_kit

PIECES = st.sampled_from(
    [
        *("", ".", "..", "a", "secrets", "key", "out", "f", "link", "~", "~root", "~/", "sub"),
        *(
            "file:",
            "FILE://",
            "file://localhost",
            "{ws}",
            "{tmp}",
            "{tmp}/outside",
            "/proc/self/cwd",
        ),
        *("%2e%2e", "%73ecrets", "s%65crets", "k%65y", "?", "#x", "%25", "\\", " ", "loop", "abs"),
    ]
)
PATHS = st.tuples(st.lists(PIECES, min_size=1, max_size=6), st.sampled_from(["/", "", "//"])).map(
    lambda each: each[1].join(each[0])
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("tricks")
    ws = tmp / "ws"
    (ws / "secrets").mkdir(parents=True)
    (ws / "secrets" / "deep").mkdir()
    (ws / "secrets" / "key").write_text("KEPT BACK")
    (ws / "a").mkdir()
    (ws / "a" / "f").write_text("plain")
    (tmp / "outside").mkdir()
    (tmp / "outside" / "f").write_text("OUTSIDE")
    (tmp / "outside" / "key").write_text("OUTSIDE")
    for name, target in (
        ("link", "secrets"),
        ("sub", "secrets/deep"),
        ("~root", "secrets"),
        ("~", "secrets"),
        ("file:", "secrets"),
        ("out", "../outside"),
        ("abs", str(ws / "secrets")),
        ("loop", "loop"),
    ):
        (ws / name).symlink_to(target)
    (ws / "a" / "link").symlink_to("../secrets/key")
    return tmp


RULES = [{"tool": "group:fs", "effect": "deny", "params": {"path": "secrets*"}}]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=PATHS)
@example(written="file:file:secrets/key")
@example(written="file:%66ile:/secrets/key")
@example(written="~root/key")
@example(written="sub/../key")
@example(written="file:sub/%2e%2e/key")
@example(written="file:~/../secrets/key")
def test_no_spelling_of_a_path_gets_past_the_workspace_or_a_rule(
    place: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("HOME", str(place / "outside"))
    monkeypatch.chdir(place / "ws")
    path = written.replace("{ws}", str(place / "ws")).replace("{tmp}", str(place))
    config: dict[str, Any] = {"tools": {"rules": RULES}}

    async def look() -> str:
        kit = open_kit(place / "ws", config=config)
        shown = await kit.call("read", {"path": path})
        listed = await kit.call("ls", {"path": path})
        assert {shown.details.get("code"), listed.details.get("code")} <= {None, 400, 403, 404}
        return f"{shown.as_text()} {'' if listed.is_error else listed.as_text()}"

    text = asyncio.run(look())
    assert "KEPT BACK" not in text
    assert "OUTSIDE" not in text
    assert '"key"' not in text

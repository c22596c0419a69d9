"""Full-screen programs and prompts, driven through the tools as a person would by hand."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import lack

from clawkit.core.result import Result
from clawkit.runtime import Toolkit
from clawkit.testing import open_kit

PATIENCE_S = 60.0
"""Long enough for a machine that is busy; whoever waits goes on at once when it is so."""


def need(*names: str) -> str:
    """The first of some programs that is there. Without one the test is skipped, unless all tests
    are asked for."""
    found = next((path for name in names if (path := shutil.which(name))), "")
    if not found:
        lack(f"{' or '.join(names)} is not installed")
    return found


class Desk:
    """One program in a terminal."""

    def __init__(self, kit: Toolkit, id_: str) -> None:
        self._kit = kit
        self.id = id_

    async def do(self, action: str, **params: Any) -> Result:
        result = await self._kit.call("process", {"action": action, "sessionId": self.id, **params})
        assert not result.is_error, result.as_text()
        return result

    async def press(self, *keys: str) -> None:
        result = await self.do("send-keys", keys=list(keys))
        assert "warnings" not in result.details, result.as_text()

    async def type(self, text: str) -> None:
        await self.do("send-keys", literal=text)

    async def screen(self) -> str:
        return "\n".join((await self.do("log", screen=True)).details["screen"])

    async def shows(self, pattern: str, *, without: str = "") -> str:
        """The screen, once something on it matches and something else is gone."""
        seen = ""

        async def look() -> bool:
            nonlocal seen
            seen = await self.screen()
            is_gone = not without or not re.search(without, seen, re.MULTILINE)
            return is_gone and re.search(pattern, seen, re.MULTILINE) is not None

        if not await self._until(look):
            pytest.fail(f"{pattern!r} did not come; the screen is:\n{seen}")
        return seen

    async def points_at(self, column: int, row: int) -> None:
        """Until the cursor is somewhere; the first column and row are 1."""
        seen: object = None

        async def look() -> bool:
            nonlocal seen
            seen = (await self.do("log", screen=True)).details["cursor"]
            return seen == {"column": column, "row": row}

        if not await self._until(look):
            pytest.fail(f"the cursor is at {seen}, not at column {column} of row {row}")

    async def _until(self, look: Callable[[], Awaitable[bool]]) -> bool:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if await look():
                return True
            news = await self.do("poll", timeout=1_000)
            if news.details["status"] != "running":
                return await look()
        return False

    async def ends(self) -> Result:
        """How it ended, once it has."""
        async with asyncio.timeout(PATIENCE_S):
            while (result := await self.do("poll", timeout=5_000)).details["status"] == "running":
                pass
        return result


@pytest.fixture
async def kit(workspace: Path) -> AsyncIterator[Toolkit]:
    config = {"tools": {"exec": {"mode": "full", "loginPath": False}}}
    async with open_kit(workspace, config=config) as opened:
        yield opened


async def sit_down(kit: Toolkit, command: str, columns: int = 80, rows: int = 24) -> Desk:
    params = {"command": command, "background": True, "pty": True, "columns": columns, "rows": rows}
    result = await kit.call("exec", params)
    assert result.details["status"] == "running", result.as_text()
    return Desk(kit, result.details["sessionId"])


async def test_a_file_is_edited_in_vim(kit: Toolkit, workspace: Path) -> None:
    vim = need("vim", "vim.tiny")
    poem = workspace / "poem.txt"
    poem.write_text("".join(f"line {n}\n" for n in range(1, 61)), encoding="utf-8")
    desk = await sit_down(kit, f"{vim} -u NONE -N -i NONE -n poem.txt")
    screen = await desk.shows(r"^\"poem.txt\" 60 ?L")
    assert screen.splitlines()[:23] == [f"line {n}" for n in range(1, 24)]
    await desk.points_at(1, 1)
    await desk.press("Down", "Down", "Right", "Right")
    await desk.points_at(3, 3)
    await desk.type("iNEW ")
    await desk.shows("^liNEW ne 3$")
    await desk.press("Up", "End")
    await desk.type("!")
    await desk.shows("^line 2!$")
    # It asked for arrows in the form for applications, and that is what it gets.
    await desk.press("C-v", "Left")
    await desk.shows(r"^line 2!\^\[OD$")
    await desk.press("Escape", "u")
    await desk.shows("^line 2$", without="!")
    await desk.do("submit", data="/line 57")
    await desk.shows("^line 57$")
    await desk.type("xp")
    await desk.shows("^ilne 57$")
    await desk.do("submit", data=":wq")
    result = await desk.ends()
    assert result.details["exitCode"] == 0
    assert (await desk.screen()).strip() == ""
    lines = poem.read_text(encoding="utf-8").splitlines()
    assert lines[1:3] == ["line 2", "liNEW ne 3"]
    assert lines[56] == "ilne 57"
    assert len(lines) == 60


async def test_text_pasted_into_vim_is_not_indented_as_if_typed(
    kit: Toolkit, workspace: Path
) -> None:
    vim = need("vim", "vim.tiny")
    desk = await sit_down(kit, f"{vim} -u NONE -N -i NONE -n new.txt")
    await desk.shows("new.txt")
    await desk.do("submit", data=":set autoindent")
    await desk.type("i")
    await desk.shows("-- INSERT --")
    text = "if one:\n    if two:\n        three()\n    four()\n"
    await desk.do("paste", text=text)
    await desk.shows(r"^    four\(\)$")
    await desk.press("Escape")
    await desk.do("submit", data=":wq")
    await desk.ends()
    # Typed, every line would be indented by those before it.
    assert (workspace / "new.txt").read_text(encoding="utf-8") == text + "\n"


async def test_the_python_prompt_is_used_like_by_hand(kit: Toolkit) -> None:
    # Neither the history nor the settings of whoever runs the tests.
    own = "HOME=$PWD INPUTRC=/dev/null PYTHON_BASIC_REPL=1"
    desk = await sit_down(kit, f"{own} {sys.executable} -q")
    await desk.shows("^>>>$")
    await desk.do("paste", text="def double(x):\n    return 2 * x\n\n")
    await desk.shows(r"return 2 \* x\n\.\.\.\n>>>")
    await desk.do("submit", data="double(111)")
    await desk.shows("^222$")
    await desk.press("Up")
    await desk.shows(r"^222\n>>> double\(111\)")
    await desk.press("Left", "BSpace")
    await desk.type("2")
    await desk.press("Enter")
    await desk.shows("^224$")
    await desk.do("submit", data="while True: pass")
    await desk.shows("pass$")
    await desk.press("C-c")
    await desk.shows("^KeyboardInterrupt$")
    await desk.do("submit", data="'still' + 'here'")
    await desk.shows("^'stillhere'$")
    await desk.press("C-d")
    assert (await desk.ends()).details["exitCode"] == 0


async def start_bash(kit: Toolkit) -> Desk:
    desk = await sit_down(kit, "HOME=$PWD INPUTRC=/dev/null PS1='ok> ' bash --norc --noprofile -i")
    await desk.shows("^ok>$")
    return desk


async def test_lines_pasted_into_a_shell_wait_for_enter(kit: Toolkit) -> None:
    desk = await start_bash(kit)
    await desk.do("paste", text="echo o''ne\necho t''wo")
    assert "\none" not in await desk.shows("^echo t''wo$")
    await desk.press("Enter")
    await desk.shows("^one\ntwo\nok>$")
    await desk.do("paste", text="echo th''ree\n", bracketed=False)
    await desk.shows("^three\nok>$")
    await desk.do("submit", data="exit 4")
    assert (await desk.ends()).details["exitCode"] == 4


async def test_a_shell_suspends_and_resumes_programs(kit: Toolkit) -> None:
    desk = await start_bash(kit)
    await desk.do("submit", data="echo be''gun; cat")
    await desk.shows("^begun$")
    await desk.do("submit", data="first")
    await desk.shows("^first\nfirst$")
    await desk.press("C-z")
    await desk.shows(r"Stopped +cat\nok>$")
    await desk.do("submit", data="echo $((20 + 3))")
    await desk.shows("^23$")
    await desk.do("submit", data="fg")
    await desk.shows("fg\ncat$")
    await desk.do("submit", data="second")
    await desk.shows("^second\nsecond$")
    await desk.press("C-c")
    await desk.shows(r"\^C\nok>$")
    await desk.do("submit", data="echo $?")
    await desk.shows("^130$")
    await desk.press("C-d")
    assert (await desk.ends()).details["exitCode"] == 0


async def test_top_fills_the_screen_and_follows_its_size(kit: Toolkit) -> None:
    need("top")
    desk = await sit_down(kit, "HOME=$PWD exec top -d 0.5 -p $$", columns=100, rows=20)
    screen = await desk.shows(r"^ *PID USER.*COMMAND[^$]*\d+ .* top$")
    assert "load average" in screen.splitlines()[0]
    assert screen.count("\n") == 20 - 1
    await desk.do("resize", columns=50, rows=10)
    screen = await desk.shows(r"^ *PID USER", without="COMMAND|TIME")
    assert screen.count("\n") == 10 - 1
    assert max(map(len, screen.splitlines())) <= 50
    await desk.do("resize", columns=120, rows=24)
    await desk.shows(r"^ *PID USER.*COMMAND[^$]*\d+ .* top$")
    await desk.press("q")
    assert (await desk.ends()).details["exitCode"] == 0


async def test_a_long_text_is_paged_through_in_less(kit: Toolkit, workspace: Path) -> None:
    need("less")
    text = "".join(f"line {n}\n" for n in range(1, 201))
    (workspace / "long.txt").write_text(text, encoding="utf-8")
    desk = await sit_down(kit, "LESS= LESSKEYIN= LESSHISTFILE=- less long.txt")
    await desk.shows("^long.txt$")
    await desk.press("PageDown")
    await desk.shows(r"\Aline 24$")
    await desk.press("Down")
    await desk.shows(r"\Aline 25$")
    await desk.press("Up", "Up")
    await desk.shows(r"\Aline 23$")
    await desk.do("submit", data="/line 150")
    await desk.shows(r"\Aline 150$")
    await desk.press("End")
    await desk.shows(r"^line 200$")
    await desk.press("Home")
    await desk.shows(r"\Aline 1$")
    await desk.press("q")
    assert (await desk.ends()).details["exitCode"] == 0


async def test_a_password_is_taken_and_never_shown(kit: Toolkit) -> None:
    ask = "read -rsp 'Password: ' word; echo; echo ${#word} letters; [[ $word = c0rrect* ]]"
    desk = await sit_down(kit, ask)
    await desk.shows("^Password:$")
    sent = await desk.do("submit", data="c0rrect-horse")
    result = await desk.ends()
    assert result.details["exitCode"] == 0
    screen = await desk.shows("^13 letters$")
    log = (await desk.do("log")).as_text()
    assert "horse" not in " ".join((sent.as_text(), result.as_text(), screen, log))

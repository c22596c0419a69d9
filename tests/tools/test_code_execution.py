"""code_execution: code in an interpreter that keeps its variables."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow
from tests.lacking import needs
from tests.tables import table

from clawkit.approvals.broker import Broker, PendingStore
from clawkit.config.paths import waiting_file
from clawkit.content import Image
from clawkit.core.approval import Answer, Question
from clawkit.core.result import Result
from clawkit.runtime import Toolkit
from clawkit.testing import Events, open_kit
from clawkit.tools.code_execution import MAX_CODE, as_command

ON_HOST: dict[str, Any] = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
FULL: dict[str, Any] = {"tools": {"exec": {"security": "full", "ask": "off"}}}
needs_node = needs(shutil.which("node"), "node")


@pytest.fixture
async def kit(workspace: Path) -> AsyncIterator[Toolkit]:
    async with open_kit(workspace, config=FULL) as opened:
        yield opened


class Person:
    """Answers every question in the same way."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.asked.append(request)
        return self.answer


async def run(kit: Toolkit, code: str, **params: Any) -> Result:
    return await kit.call("code_execution", {"code": code, "timeoutSeconds": 120, **params})


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Pillow.new("RGB", (width, height), "red").save(buffer, "PNG")
    return buffer.getvalue()


async def test_output_is_returned_in_parts_and_as_one_text(kit: Toolkit) -> None:
    result = await run(
        kit, "import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 20\n2 * x"
    )
    assert result.as_text() == "out\n\nstderr:\nerr\n\n=> 40"
    assert dict(result.details) == {
        "status": "completed",
        "language": "python",
        "stdout": "out",
        "stderr": "err",
        "value": "40",
        "traceback": None,
        "files": [],
        "images": [],
        "stateKept": True,
        "truncated": False,
    }
    assert (await run(kit, "x")).as_text() == "=> 20"
    assert (await run(kit, "x = 1")).as_text() == "(no output)"


async def test_an_exception_is_an_answer_and_loses_nothing(kit: Toolkit) -> None:
    await run(kit, "x = 1")
    result = await run(kit, "print('before')\n1 / 0")
    assert result.as_text().startswith("before\n\nTraceback (most recent call last):")
    assert result.details["traceback"].endswith("ZeroDivisionError: division by zero")
    assert result.details["stateKept"]
    assert not result.is_error
    assert (await run(kit, "x")).details["value"] == "1"


async def test_a_reset_begins_anew_alone_or_with_code(kit: Toolkit) -> None:
    await run(kit, "x = 1")
    result = await run(kit, "'x' in globals()", reset=True)
    assert result.details["value"] == "False"
    await run(kit, "x = 1")
    result = await kit.call("code_execution", {"reset": True})
    assert result.as_text() == (
        "Interpreter reset (python): its variables are lost. The next call starts a fresh one."
    )
    result = await kit.call("code_execution", {"reset": True})
    assert "none was running" in result.as_text()
    assert (await run(kit, "'x' in globals()")).details["value"] == "False"


@needs_node
async def test_each_language_has_its_own_interpreter(kit: Toolkit) -> None:
    await run(kit, "var x = 'js'", language="javascript")
    await run(kit, "x = 'py'")
    assert (await run(kit, "x", language="javascript")).as_text() == "=> 'js'"
    await kit.call("code_execution", {"reset": True})
    assert (await run(kit, "x", language="javascript")).as_text() == "=> 'js'"


async def test_code_that_takes_too_long_is_interrupted_with_its_variables_kept(
    kit: Toolkit,
) -> None:
    await run(kit, "x = 1")
    result = await run(kit, "while True: pass", timeoutSeconds=0.5)
    assert result.is_error
    assert (result.details["timedOut"], result.details["stateKept"]) == (True, True)
    assert result.as_text().endswith("[Interrupted after 0.5 s. Variables are kept.]")
    assert (await run(kit, "x")).details["value"] == "1"


async def test_losing_the_interpreter_reports_that_variables_are_lost(kit: Toolkit) -> None:
    result = await run(kit, "import os\nos._exit(3)")
    assert result.is_error
    assert result.as_text() == (
        "[The interpreter ended: it exited with code 3. Its variables are lost; the next call "
        "starts a fresh one.]"
    )
    assert result.details["stateKept"] is False
    code = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nwhile True: time.sleep(0.1)"
    result = await run(kit, code, timeoutSeconds=2)
    assert "ended after 2 s: it ignored the interrupt and was killed" in result.as_text()


async def test_no_call_runs_longer_than_the_longest_time(kit: Toolkit) -> None:
    result = await run(kit, "1", timeoutSeconds=1e9)
    assert result.details["value"] == "1"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "code: is empty"),
        ({"code": " \n"}, "code: is empty"),
        ({"code": "a\0b"}, "NUL character"),
        ({"code": "'\ud800'"}, "lone surrogate"),
        ({"code": "#" * (MAX_CODE + 1)}, "write it to a file"),
        ({"code": "1", "timeoutSeconds": 0}, "timeoutSeconds"),
        ({"code": "1", "timeoutSeconds": -1}, "timeoutSeconds"),
        ({"code": "1", "language": "cobol"}, "language"),
        ({"task": "draw a cat"}, "send it as code"),
        ({"task": "draw a cat", "code": "1"}, "this build has no remote provider"),
    ],
)
async def test_code_that_cannot_run_is_refused(
    kit: Toolkit, params: dict[str, Any], said: str
) -> None:
    result = await kit.call("code_execution", params)
    assert result.is_error
    assert said in result.as_text()


async def test_what_is_meant_for_a_terminal_is_left_out(kit: Toolkit) -> None:
    result = await run(kit, "print('\\x1b[31mred\\x1b[0m\\x07')")
    assert "\x1b" not in result.as_text()
    assert result.details["stdout"].startswith("red")


async def test_long_output_is_cut_to_what_the_model_has_room_for(workspace: Path) -> None:
    async with open_kit(workspace, config=FULL, context_window=10_000) as kit:
        result = await run(kit, "for n in range(300_000): print(n)")
    assert result.details["truncated"]
    assert len(result.details["stdout"]) > 50_000
    assert len(result.as_text()) < 12_000
    assert "left out here" in result.as_text()


async def test_new_images_are_shown_and_new_files_named(kit: Toolkit, workspace: Path) -> None:
    result = await run(
        kit,
        f"open('red.png', 'wb').write({png(40, 30)!r})\nopen('data.csv', 'w').write('a,b')\n"
        "open('broken.gif', 'wb').write(b'GIF89a but not really')\nNone",
    )
    assert [block.mime_type for block in result.content if isinstance(block, Image)] == [
        "image/png"
    ]
    assert sorted(result.details["files"]) == ["broken.gif", "data.csv", "red.png"]
    assert result.details["images"] == ["red.png"]
    assert "[Not shown: broken.gif: " in result.as_text()
    assert "data.csv" in result.as_text()
    result = await run(kit, f"open('red.png', 'wb').write({png(50, 30)!r})\nNone")
    assert (result.details["files"], result.details["images"]) == ([], ["red.png"])


async def test_the_number_of_images_is_limited(kit: Toolkit) -> None:
    data = png(4, 4)
    result = await run(kit, f"for n in range(7): open(f'{{n}}.png', 'wb').write({data!r})")
    assert len([block for block in result.content if isinstance(block, Image)]) == 4
    assert "[3 more images are not shown; use read to see them.]" in result.as_text()


async def test_an_image_that_leads_out_of_the_workspace_is_not_read(
    kit: Toolkit, tmp_path: Path, workspace: Path
) -> None:
    (tmp_path / "secret.png").write_bytes(png(9, 9))
    # What the child says is forged: a path outside, and a link that took the place of a file.
    (workspace / "link.png").symlink_to(tmp_path / "secret.png")
    result = await run(
        kit,
        "import json, os\nout = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)\n"
        "images = ['../secret.png', 'link.png', '/etc/passwd', 'a\\x00b.png']\n"
        "answer = {'id': 1, 'value': 'forged', 'images': images, 'files': ['../up', 'a\\nb']}\n"
        "os.write(out, json.dumps(answer).encode() + b'\\n')\nwhile True: pass",
    )
    assert result.details["value"] == "forged"
    assert [block for block in result.content if isinstance(block, Image)] == []
    assert result.details["images"] == []
    assert result.details["files"] == ["a\\u{a}b"]
    assert "[Not shown: link.png: " in result.as_text()


async def test_figures_that_are_not_pictures_are_not_shown(kit: Toolkit, workspace: Path) -> None:
    package = workspace / "matplotlib"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pyplot.py").write_text(
        "drawn = []\n"
        "def get_fignums(): return list(range(1, len(drawn) + 1))\n"
        "class figure:\n"
        "    def __init__(self, number): self.number = number\n"
        "    def savefig(self, file, **_): file.write(drawn[self.number - 1])\n"
        "def close(_): drawn.clear()\n",
        encoding="utf-8",
    )
    code = f"import matplotlib.pyplot as plt\nplt.drawn += [{png(20, 10)!r}, b'no picture']"
    result = await run(kit, code)
    assert len([block for block in result.content if isinstance(block, Image)]) == 1
    assert "[Not shown: figure 2: " in result.as_text()


async def test_without_approval_no_code_runs(workspace: Path) -> None:
    for settings in ({}, {"security": "deny"}, {"security": "allowlist", "ask": "off"}):
        config = {"tools": {"exec": settings}, **ON_HOST}
        async with open_kit(workspace, config=config) as kit:
            result = await run(kit, "open('made', 'w')")
        assert result.is_error
        assert not (workspace / "made").exists()


async def test_a_person_sees_the_code_and_every_piece_of_it_is_asked_for(workspace: Path) -> None:
    person = Person(Answer("allow"))
    async with open_kit(workspace, config=ON_HOST, approver=person) as kit:
        assert (await run(kit, "x = 1\nx + 1")).details["value"] == "2"
        assert person.asked[0].command == "python3 -I -u - <<'EOF'\nx = 1\nx + 1\nEOF"
        assert [each.extent for each in person.asked[0].lasting] == ["session"]
        person.answer = Answer("deny", "not this")
        result = await run(kit, "x + 2")
        assert result.details["deniedReason"] == "approval"
        assert "not this" in result.as_text()
        person.answer = Answer("allow")
        assert (await run(kit, "x")).details["value"] == "1"


@table(
    ("code", "command"),
    [
        ("1", "node - <<'EOF'\n1\nEOF"),
        ("EOF\nrm -rf x", "node - <<'EOF_'\nEOF\nrm -rf x\nEOF_"),
        ("EOF\nEOF_", "node - <<'EOF__'\nEOF\nEOF_\nEOF__"),
    ],
)
def test_code_cannot_end_the_text_that_it_is_shown_in(code: str, command: str) -> None:
    assert as_command("javascript", code) == command


@pytest.mark.parametrize("choice", ["allow-once", "deny"])
async def test_code_that_is_allowed_later_runs_then(workspace: Path, choice: str) -> None:
    events = Events()
    config = {"tools": {"exec": {"security": "allowlist", "ask": "on-miss"}}, **ON_HOST}
    async with open_kit(workspace, config=config, later=True, on_event=events) as kit:
        result = await run(kit, "open('made', 'w').write('later')")
        assert result.details["status"] == "approval-pending"
        assert "The code has not run" in result.as_text()
        assert not (workspace / "made").exists()
        store = PendingStore(waiting_file(os.environ))
        Broker(store).resolve(result.details["approvalId"], choice, authorized=True)
        store.close()
        async with asyncio.timeout(120):
            while not events.of("notice"):
                await asyncio.sleep(0.02)
    notice: dict[str, Any] = dict(events.of("notice")[0])
    assert notice["details"]["approvalId"] == result.details["approvalId"]
    is_allowed = choice == "allow-once"
    assert notice["details"]["status"] == ("completed" if is_allowed else "blocked")
    assert (workspace / "made").exists() == is_allowed


async def test_children_end_with_the_kit_and_are_not_listed(workspace: Path) -> None:
    async with open_kit(workspace, config=FULL) as kit:
        pid = int((await run(kit, "import os; os.getpid()")).details["value"])
        listed = await kit.call("process", {"action": "list"})
        assert listed.as_text() == "No commands in the background."
    async with asyncio.timeout(120):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)


async def test_a_cancelled_call_leaves_the_interpreter_in_order(
    kit: Toolkit, workspace: Path
) -> None:
    await run(kit, "x = 1")
    task = asyncio.create_task(run(kit, "open('begun', 'w')\nwhile True: pass"))
    async with asyncio.timeout(120):
        while not (workspace / "begun").exists():
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await run(kit, "x")).details["value"] == "1"


async def test_rules_can_forbid_code(workspace: Path) -> None:
    config = {"tools": {**FULL["tools"], "deny": ["group:runtime"]}}
    async with open_kit(workspace, config=config) as kit:
        assert (await run(kit, "1")).is_error

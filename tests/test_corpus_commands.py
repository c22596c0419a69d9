"""The safety cases about commands: which run unasked, and what an answer is worth."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.test_corpus import CASES, HERE, cases, generate

from clawkit.approvals.broker import Broker, PendingStore
from clawkit.approvals.decide import fallback_verdict
from clawkit.approvals.entries import read_entry
from clawkit.approvals.judge import Judge
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.prompt import render
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import Decision
from clawkit.config.paths import approvals_file, waiting_file
from clawkit.config.sections.tools import Exec
from clawkit.core.approval import Question
from clawkit.core.tool import Tool
from clawkit.errors import ClawkitError
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch
from clawkit.runtime import Toolkit
from clawkit.testing import Events, open_kit

Fill = Callable[[Any], Any]
NO_SANDBOX = {"mode": "off"}
DISPLAYED = [name for name in cases("approval") if "/disp-" in name]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpus")
    subprocess.run(["bash", str(HERE / "fixture.sh"), str(place / "ws")], check=True)
    return place


@pytest.fixture
def ws(made: Path, tmp_path: Path) -> Path:
    """A workspace of the test's own, as every case expects it."""
    subprocess.run(["cp", "-a", str(made / "ws"), str(tmp_path / "ws")], check=True)
    return tmp_path / "ws"


def fill_in(value: Any, ws: Path) -> Any:
    """A value of a case, with the workspace in place of its name."""
    return json.loads(json.dumps(value).replace("$WS", str(ws)))


@pytest.fixture
def fill(ws: Path) -> Fill:
    return lambda value: fill_in(value, ws)


def judge(given: dict[str, Any], ws: Path) -> tuple[Decision, ExecRequest]:
    places = PathRules(str(ws))
    settings = Exec(
        security=given.get("security", "allowlist"),
        ask=given.get("ask", "on-miss"),
        strict_inline_eval=given.get("strictInlineEval", False),
        safe_bins=given.get("safeBins", []),
    )
    entries = tuple(read_entry(entry) for entry in given.get("allowlist", ()))
    request = ExecRequest(
        given["command"],
        given.get("cwd", str(ws)),
        given.get("env", {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(ws / "home")}),
    )
    decision = Judge(
        settings,
        str(ws.parent / "no-document.json"),
        more=entries,
        may_read=places.may_read,
        may_write=places.may_write,
    ).judge(request)
    return decision, request


# Cases with a harm are judged by their effect: tests/sandbox/test_corpus_effects.py.
JUDGED = [name for name in cases("allowlist") if "harm" not in CASES[name]]


def test_commands_that_no_rule_allows_do_not_run_without_approval(
    made: Path, subtests: pytest.Subtests
) -> None:
    ws = made / "ws"  # judging changes nothing
    for case_id in JUDGED:
        if CASES[case_id]["expected"] != "allow":
            with subtests.test(case_id=case_id):
                decision, _ = judge(fill_in(CASES[case_id]["input"], ws), ws)
                assert decision.verdict in ("ask", "deny")
                assert decision.reason
                assert fallback_verdict(decision) == "deny"


async def test_allowed_commands_run(made: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    host = LocalHost(str(tmp_path / "spool"))
    for case_id in JUDGED:
        if CASES[case_id]["expected"] != "allow":
            continue
        with subtests.test(case_id=case_id):
            ws = tmp_path / case_id.replace("/", "-") / "ws"
            shutil.copytree(made / "ws", ws, symlinks=True)
            decision, request = judge(fill_in(CASES[case_id]["input"], ws), ws)
            assert decision.verdict == "allow", decision.reason
            launch = Launch(decision.run, request.cwd, request.env, programs=decision.programs)
            running = await host.start(launch, case_id[10:])
            exit_ = await running.wait()
            said = await running.output.read(0, 100_000)
            assert not list(ws.rglob("PWNED"))
            assert exit_.reason == "exit", said
            assert b"Permission denied" not in said
            assert b"not found" not in said
    await host.close()


@pytest.mark.parametrize("case_id", DISPLAYED)
@pytest.mark.parametrize("surface", ["terminal", "plain", "markdown"])
def test_display(case_id: str, surface: Any) -> None:
    given = generate(CASES[case_id]["input"])
    command = given["command"]
    shown = render(Question("exec", {}, f"run: {command[:200]}", command=command), surface)
    assert not [each for each in given["mustNotContain"] if each in shown]
    assert [each for each in given["mustContain"] if each not in shown] == []
    if case_id.endswith("homoglyph"):
        assert "look-alike letters" in shown
    if case_id.endswith("mention") and surface == "plain":
        assert "@" not in shown


@pytest.mark.parametrize("case_id", ["dos/cmd-5mb", "dos/argpat-redos"])
def test_dos(case_id: str, ws: Path) -> None:
    decision, _ = judge(generate(CASES[case_id]["input"]), ws)
    assert decision.verdict == "ask"


class Story:
    """Carries out the steps of a case, and counts what ran."""

    def __init__(self, ws: Path) -> None:
        self.ws = ws
        self.store = PendingStore(waiting_file(os.environ))
        self.ids: dict[str, str] = {}
        self.kits: list[Toolkit] = []
        self.events = Events()
        self.clock_s = 0.0
        self.last = ""
        """The status of the last command."""

    async def play(self, steps: list[dict[str, Any]]) -> int:
        """How often the last step alone ran the payload."""
        ran = 0
        try:
            for step in steps:
                ran = await self.take(step)
        finally:
            for kit in self.kits:
                await kit.close()
        return ran

    async def take(self, step: dict[str, Any]) -> int:
        await getattr(self, f"do_{step['do']}")(step)
        found = list(self.ws.parent.rglob("PWNED"))
        for path in found:
            path.unlink()
        return len(found)

    async def do_exec(self, step: dict[str, Any]) -> None:
        agent = step.get("as", "agent:main").partition(":")[2]
        settings = {"security": "allowlist", "ask": "on-miss", **step.get("config", {})}
        if (fallback := settings.pop("askFallback", None)) is not None:
            write_document(
                {"defaults": {"security": "full", "ask": "off", "askFallback": fallback}}
            )
        later = step.get("approvers") != []
        kit = open_kit(
            self.ws,
            # In the sandbox nothing of this would need an approval.
            config={"tools": {"exec": settings}, "agents": {"defaults": {"sandbox": NO_SANDBOX}}},
            agent=agent,
            later=later,
            on_event=self.events,
        )
        self.kits.append(kit)
        known = ("command", "workdir", "env", "approvalId")
        params = {key: step[key] for key in known if key in step}
        if "approvalId" in params:
            params["approvalId"] = self.ids[params["approvalId"]]
        result = await kit.call("exec", params)
        self.last = result.details["status"]
        if "expect" in step:
            assert self.last == step["expect"]
        if "bind" in step:
            self.ids[step["bind"]] = result.details["approvalId"]

    async def do_approve(self, step: dict[str, Any]) -> None:
        before = self.notices()
        id_, operator = self.ids.get(step["id"], step["id"]), step.get("as") == "operator"
        # What was not offered for good can still be allowed once.
        choices = (step["decision"], "allow-once")
        if not any(self.resolve(id_, choice, operator=operator) for choice in choices):
            return
        async with asyncio.timeout(60):
            while self.notices() == before:
                await asyncio.sleep(0.02)

    def resolve(self, id_: str, decision: str, *, operator: bool) -> bool:
        broker = Broker(self.store, clock=lambda: time.time() + self.clock_s)
        lasting = "exact" if decision == "allow-always" else None
        try:
            broker.resolve(id_, decision, extent=lasting, authorized=operator)
        except ClawkitError:
            return False
        return True

    def notices(self) -> int:
        return sum(each["type"] == "notice" for each in self.events)

    async def do_parallel(self, step: dict[str, Any]) -> None:
        calls = [{"id": each["approve"], "as": "operator", **each} for each in step["calls"]]
        await asyncio.gather(*map(self.do_approve, calls))

    async def do_advanceClock(self, step: dict[str, Any]) -> None:  # noqa: N802
        self.clock_s += step["ms"] / 1000

    async def do_toolResult(self, step: dict[str, Any]) -> None:  # noqa: N802
        async def execute(_params: Any, _ctx: Any) -> str:
            return str(step["text"]).replace("id1", self.ids["id1"])

        page = Tool("page", "A page of somebody.", {"properties": {}}, execute)
        async with open_kit(self.ws, page) as kit:
            await kit.call("page")
        assert self.store.answer(self.ids["id1"]) is None

    async def do_retarget(self, step: dict[str, Any]) -> None:
        Path(step["link"]).unlink()
        Path(step["link"]).symlink_to(step["to"])

    async def do_corruptApprovals(self, step: dict[str, Any]) -> None:  # noqa: N802
        write_document(step["bytes"])

    async def do_setApprovals(self, step: dict[str, Any]) -> None:  # noqa: N802
        write_document({"version": 1, **step["json"]})

    async def do_symlinkApprovals(self, step: dict[str, Any]) -> None:  # noqa: N802
        everything = {"version": 1, "defaults": {"security": "full", "ask": "off"}}
        Path(step["to"]).write_text(json.dumps(everything), encoding="utf-8")
        Path(approvals_file(os.environ)).symlink_to(step["to"])


def write_document(value: Any) -> None:
    path = Path(approvals_file(os.environ))
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    path.chmod(0o600)


@pytest.mark.parametrize("case_id", [name for name in cases("approval") if name not in DISPLAYED])
async def test_approval(case_id: str, ws: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for place in (out, ws / "there"):
        place.mkdir()
        (place / "run.sh").write_text("#!/bin/sh\n/bin/touch PWNED\n", encoding="utf-8")
        (place / "run.sh").chmod(0o755)
    (ws / "link").symlink_to(ws / "there")
    Path("/tmp/other").mkdir(exist_ok=True)
    case = CASES[case_id]
    text = json.dumps(case["input"]["steps"]).replace("$WS", str(ws)).replace("$OUT", str(out))
    story = Story(ws)
    ran = await story.play(json.loads(text))
    if case["expected"] == "allow":
        assert story.last == "completed"
    else:
        assert ran <= (1 if case["expected"] == "bounded" else 0)
        assert story.last != "completed"

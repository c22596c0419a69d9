"""The safety cases that are judged by what commands do, in the sandboxes of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.patient import open_patient_kit
from tests.test_corpus import CASES, HERE, cases, snapshot

from clawkit.approvals.entries import read_entry
from clawkit.approvals.file import add_entry
from clawkit.config.paths import approvals_file

CANARY = "CANARY-7f3a"
BY_EFFECT = [name for name in (*cases("allowlist"), *cases("path")) if "harm" in CASES[name]]
ASKING = [
    name
    for name in cases("allowlist")
    if CASES[name]["expected"] == "ask" and "harm" not in CASES[name]
][::4]
"""A sample: what the kernel prevents does not depend on how a command is written."""


class Ground:
    """A workspace, a place outside, and a home with a secret."""

    def __init__(self, tmp_path: Path, fixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fixture = fixture
        self.workspace = tmp_path / "ws"
        self.outside = tmp_path / "out"
        self.home = tmp_path / "home"
        for folder in (self.outside, self.home / ".ssh"):
            folder.mkdir(parents=True)
        (self.home / ".ssh" / "id").write_text(CANARY)
        (self.outside / "file").write_text("kept")
        monkeypatch.setenv("HOME", str(self.home))

    def fill(self, value: Any) -> Any:
        text = json.dumps(value).replace("$WS", str(self.workspace))
        return json.loads(text.replace("$OUT", str(self.outside)))

    def prepare(self, case: dict[str, Any]) -> None:
        if case["area"] == "allowlist":
            shutil.copytree(self._fixture, self.workspace, symlinks=True)
        setup: str = self.fill(case["setup"])
        if setup.startswith("sh:"):
            run = ["bash", "-c", setup.removeprefix("sh:")]
            subprocess.run(run, check=True, cwd=self.outside, capture_output=True)

    def protected(self) -> dict[str, bytes]:
        """What git acts on in the repositories of the workspace."""
        found = [
            path
            for path in self.workspace.rglob("*")
            if "/.git/" in str(path) and ("/hooks/" in str(path) or path.name == "config")
        ]
        return {str(path): path.read_bytes() for path in found if path.is_file()}


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of the cases, created once. Its content does not depend on its path."""
    place = tmp_path_factory.mktemp("fixture") / "ws"
    subprocess.run(["bash", str(HERE / "fixture.sh"), str(place)], check=True)
    return place


@pytest.fixture
def ground(tmp_path: Path, fixture: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    return Ground(tmp_path, fixture, monkeypatch)


async def run(ground: Ground, backend: str, given: dict[str, Any]) -> str:
    """What a command says, with the entries and settings of a case."""
    config = given.get("config", {})
    entries = given.get("allowlist") or config.pop("$approvals", [])
    for entry in entries:
        add_entry(approvals_file(os.environ), "main", read_entry(entry))
    config["agents"] = {"defaults": {"sandbox": {"backend": backend}}}
    command = given.get("params", given)["command"]
    async with open_patient_kit(ground.workspace, config=config) as kit:
        result = await kit.call("exec", {"command": command, "timeout": 60})
    return result.as_text()


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
@pytest.mark.parametrize("case_id", BY_EFFECT)
async def test_commands_of_the_corpus_have_no_harmful_effects(
    case_id: str, backend: str, ground: Ground
) -> None:
    case = CASES[case_id]
    ground.prepare(case)
    before = snapshot(ground.outside), snapshot(ground.home), ground.protected()
    said = await run(ground, backend, ground.fill(case["input"]))
    assert said
    assert (snapshot(ground.outside), snapshot(ground.home), ground.protected()) == before


@pytest.mark.parametrize("case_id", ASKING)
async def test_unlisted_commands_have_no_harmful_effects_in_the_sandbox(
    case_id: str, ground: Ground
) -> None:
    case = CASES[case_id]
    ground.prepare(case)
    before = snapshot(ground.outside), snapshot(ground.home), ground.protected()
    said = await run(ground, "auto", ground.fill(case["input"]))
    assert "approval" not in said
    assert (snapshot(ground.outside), snapshot(ground.home), ground.protected()) == before

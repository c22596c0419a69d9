"""What the tests of pipelines share: a toolkit with the plugin, and the original."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lacking import lack
from tests.node import NODE, PACKAGES

from clawkit.core.approval import Answer, Question
from clawkit.runtime import Toolkit

CONFIG: dict[str, Any] = {
    "agents": {"defaults": {"sandbox": {"mode": "off"}}},
    "tools": {"alsoAllow": ["lobster", "llm-task"], "exec": {"security": "full", "ask": "off"}},
    "plugins": {"entries": {"lobster": {"enabled": True}}},
}
"""Commands run without a sandbox, which makes them several times as fast."""
CORE = PACKAGES / "@clawdbot/lobster/dist/src/core/index.js"
ORACLE = Path(__file__).with_name("lobster_oracle.mjs")


class Person:
    """Answers every question alike, and remembers them."""

    def __init__(self, verdict: str = "allow", by: str = "ann") -> None:
        self.answer = Answer("allow" if verdict == "allow" else "deny", "not now", by=by)
        self.asked: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.asked.append(request)
        return self.answer


def open_kit(workspace: Path, config: Mapping[str, Any] = CONFIG, **more: Any) -> Toolkit:
    return Toolkit.open(config, workspace=workspace, **{"owner": True, **more})


async def run(kit: Toolkit, pipeline: str, **more: Any) -> dict[str, Any]:
    return await send(kit, action="run", pipeline=pipeline, **more)


async def resume(kit: Toolkit, **more: Any) -> dict[str, Any]:
    return await send(kit, action="resume", **more)


async def send(kit: Toolkit, **params: Any) -> dict[str, Any]:
    """The envelope that the tool answers with; for a refusal, the details of that."""
    result = await kit.call("lobster", params)
    return dict(result.details)


async def output(kit: Toolkit, pipeline: str, **more: Any) -> Any:
    """What a pipeline outputs, or the message of its error."""
    envelope = await run(kit, pipeline, **more)
    return envelope["output"] if envelope.get("ok") else envelope["error"]["message"]


class Original:
    """The original, in one process for all requests of a test."""

    def __init__(self, place: Path) -> None:
        for part in (NODE, CORE):
            if not part.exists():
                lack(f"{part} is not installed")
        self._cwd = str(place)
        self._process = subprocess.Popen(
            [NODE, ORACLE, CORE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "LOBSTER_STATE_DIR": str(place / ".state")},
            text=True,
        )

    def send(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**request, "cwd": self._cwd}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def run(self, pipeline: str) -> dict[str, Any]:
        return self.send(run={"pipeline": pipeline})

    def close(self) -> None:
        self._process.communicate()


def comparable(envelope: Mapping[str, Any]) -> Any:
    """An envelope without what differs in every run, and without newlines at the end of texts: the
    output of a command has none here."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items() if key not in _OWN}
        if isinstance(value, list):
            return [plain(each) for each in value]
        return value.rstrip("\n") if isinstance(value, str) else value

    return plain(dict(envelope))


_OWN = ("resumeToken", "approvalId")

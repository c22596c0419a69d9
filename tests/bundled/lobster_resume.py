"""Runs or resumes a pipeline in a process of its own, and waits to be ended."""

import asyncio
import json
import sys

from clawkit.runtime import Toolkit

CONFIG = {
    "agents": {"defaults": {"sandbox": {"mode": "off"}}},
    "tools": {"alsoAllow": ["lobster"], "exec": {"security": "full", "ask": "off"}},
    "plugins": {"entries": {"lobster": {"enabled": True}}},
}


async def main(workspace: str, action: str, text: str) -> None:
    given = {"pipeline": text} if action == "run" else {"token": text, "approve": True}
    async with Toolkit.open(CONFIG, workspace=workspace, owner=True) as kit:
        result = await kit.call("lobster", {"action": action, **given})
        print(json.dumps(dict(result.details)), flush=True)
        await asyncio.sleep(60 if action == "run" else 0)


asyncio.run(main(*sys.argv[1:]))

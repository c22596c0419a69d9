"""The client that the public conformance suite runs: `conformance_client.py URL`.

It does what a person would: mounts the server, calls its tools through a toolkit, logs in when that
is required, and says yes to questions. Its browser follows the first redirect, as the suite's own
servers expect. The scenario and its facts come in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from typing import Any

from clawkit import Toolkit
from clawkit.core.approval import Answer, Question
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolError
from clawkit.mcp.mounts import Mounts
from clawkit.net.client import Client
from clawkit.runtime import load_config

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
MAX_LOGINS = 3


class Yes:
    async def ask(self, request: Question) -> Answer:
        return Answer("allow")


async def browse(url: str) -> None:
    client = Client()
    try:
        async with client.stream("GET", url, headers={}) as response:
            target = response.headers["location"]
        async with client.stream("GET", target, headers={}) as response:
            await response.read(1_000)
    finally:
        await client.close()


def settings(url: str, issuer: str = "") -> dict[str, Any]:
    server: dict[str, Any] = {"url": url, "transport": "streamable-http"}
    # An id that is a document is valid at every authorization server, so nothing would be seen.
    if SCENARIO.startswith("auth/") and SCENARIO != "auth/authorization-server-migration":
        server["oauth"] = {
            "clientMetadataUrl": "https://conformance-test.local/client-metadata.json"
        }
    if "client_id" in CONTEXT:
        server["oauth"] = {
            "clientId": CONTEXT["client_id"],
            "clientSecret": CONTEXT.get("client_secret"),
            **({"issuer": issuer} if issuer else {}),
        }
    return {"mcp": {"servers": {"it": server}}}


def arguments(tool: Tool, observed: Any) -> dict[str, Any]:
    """Values for the parameters of a tool that a scenario offers."""
    if tool.name == "it__json_schema_echo":
        return {"schema": observed}
    if SCENARIO == "http-custom-headers":
        for each in CONTEXT.get("toolCalls", ()):
            if f"it__{each['name']}" == tool.name:
                return dict(each["arguments"])
    values = {"number": 2, "integer": 2, "boolean": True, "string": "x", "object": {}, "array": []}
    found = {}
    for name, part in tool.properties.items():
        if name in tool.schema.get("required", ()) or SCENARIO == "tools_call":
            found[name] = values[part.get("type", "string")]
    return found


async def call(kit: Toolkit, tool: str, given: dict[str, Any], url: str) -> Result:
    for _ in range(MAX_LOGINS):
        result = await kit.call(tool, given)
        if "clawkit mcp login" not in str(result.details.get("error", "")):
            break
        await log_in(kit, url)
    return result


async def log_in(kit: Toolkit, url: str) -> None:
    """Log in. A person who has a client secret knows whose it is, and says so if asked to."""
    for _ in range(2):
        mounts: Any = kit.run.services[Mounts]
        try:
            await mounts.login("it", browse)
            break
        except ToolError as error:
            if (found := re.search(r"server is '(\S+)'.*oauth.issuer", str(error))) is None:
                raise
            kit.alter(config=load_config(settings(url, found[1])).config)


async def main(url: str, home: str, workspace: str) -> int:
    os.environ["CLAWKIT_HOME"] = home
    kit = Toolkit.open(settings(url), workspace=workspace, approver=Yes(), owner=True)
    mounts: Any = kit.run.services[Mounts]
    for _ in range(MAX_LOGINS):
        try:
            await mounts.refresh("it")
            break
        except ToolError as error:
            if "clawkit mcp login" not in str(error):
                raise
            await log_in(kit, url)
    async with kit:
        tools = [tool for tool in kit.tools if tool.name.startswith("it__")]
        print([tool.name for tool in tools], kit.warnings, file=sys.stderr)
        observed = {tool.name: tool.schema for tool in tools}.get("it__json_schema_2020_12_tool")
        failed = 0
        names = [tool for tool in tools if tool.name not in ("it__resources", "it__prompts")]
        if SCENARIO == "http-custom-headers" and CONTEXT.get("toolCalls"):
            known = {tool.name: tool for tool in tools}
            for each in CONTEXT["toolCalls"]:
                tool = known[f"it__{each['name']}"]
                result = await call(kit, tool.name, each["arguments"], url)
                print(result, file=sys.stderr)
            return 0
        for tool in names:
            result = await call(kit, tool.name, arguments(tool, observed), url)
            print(tool.name, result, file=sys.stderr)
            # One tool is only there for its schema, which the other returns.
            failed |= result.is_error and tool.name != "it__json_schema_2020_12_tool"
        for feature, of, item in (
            ("resources", "uri", "resources"),
            ("prompts", "name", "prompts"),
        ):
            if f"it__{feature}" in {tool.name for tool in tools}:
                entries = await mounts.list("it", f"{feature}/list", item)
                for raw in entries:
                    value = json.loads(bytes(raw))[of]
                    await kit.call(f"it__{feature}", {of: value})
        return int(failed)


try:
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as workspace:
        sys.exit(asyncio.run(main(sys.argv[1], place, workspace)))
except ToolError as error:
    sys.exit(str(error))

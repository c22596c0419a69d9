"""A minimal agent with only the standard library, as the baseline for clawkit.

`python -m bench.minimal_agent URL`: sends one message, carries out the calls that come back, and
ends with the answer that has none. No policy, no limits, no storage, no checks.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {given: {"type": "string"}}},
        },
    }
    for name, given in (("read", "path"), ("exec", "command"))
]


def ask(link: http.client.HTTPConnection, path: str, messages: list[dict[str, Any]]) -> Any:
    body = {"model": "m", "stream": True, "tools": TOOLS, "messages": messages}
    link.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = link.getresponse()
    text, calls = "", []
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text += choice["delta"].get("content", "")
            calls += choice["delta"].get("tool_calls", [])
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def carry_out(name: str, arguments: dict[str, str]) -> str:
    if name == "read":
        with open(arguments["path"], encoding="utf-8") as file:
            return file.read()
    done = subprocess.run(
        ["bash", "-c", arguments["command"]],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def main(url: str) -> None:
    parts = urlsplit(url)
    link = http.client.HTTPConnection(parts.netloc)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        answer = ask(link, f"{parts.path}/chat/completions", messages)
        messages.append(answer)
        if "tool_calls" not in answer:
            return
        for call in answer["tool_calls"]:
            function = call["function"]
            said = carry_out(function["name"], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})


if __name__ == "__main__":
    main(sys.argv[1])

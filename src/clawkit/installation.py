"""How this clawkit was installed, and the commands with which a person updates or extends it.

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
_MARKS: dict[str, tuple[Installer, tuple[str, ...], tuple[str, ...]]] = {
    "pipx_metadata.json": ("pipx", ("pipx", "upgrade", "clawkit"), ("pipx", "install")),
    "uv-receipt.toml": ("uv", ("uv", "tool", "upgrade", "clawkit"), ("uv", "tool", "install")),
}
"""Files that installers leave in the environments they make, and their commands."""


class Installation(Struct, frozen=True):
    installer: Installer
    command: str = ""
    """Updates it; empty if that is unknown."""
    extend: str = "pip install 'clawkit[{}]'"
    """Adds an extra, which takes the place of the braces."""


def how_to_add(extra: str) -> str:
    """The command that adds an extra, such as `tui`, to the running clawkit."""
    return find_installation().extend.replace("{}", extra)


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
    """`source` is where the package came from, if not an index; `marks` are the files found in its
    environment."""
    url, details = str(source.get("url", "")), source.get("dir_info")
    place = unquote(urlsplit(url).path) if url.startswith("file:") else ""
    is_editable = bool(place and isinstance(details, dict) and details.get("editable"))
    owner = next((_MARKS[name] for name in marks), None)
    python, what = sys.executable, place or "clawkit"
    install: tuple[str, ...] = (python, "-m", "pip", "install")
    if tool.strip() == "uv":
        install = ("uv", "pip", "install", "--python", python)
    if owner is not None:
        # These make their environment anew, and would leave out the extras that are not named.
        extend = shlex.join((*owner[2], "--force", f"{what}[all]"))
    else:
        extend = shlex.join((*install, *(["-e"] if is_editable else []), f"{what}[{{}}]"))
    if is_editable:
        pull = shlex.join(("git", "-C", place, "pull"))
        update = shlex.join((python, "-m", "pip", "install", "-e", place))
        return Installation("checkout", f"{pull} && {update}", extend)
    if url:  # the version was chosen explicitly
        return Installation("unknown", "", extend)
    if owner is not None:
        return Installation(owner[0], shlex.join(owner[1]), extend)
    if is_system and sys.prefix == sys.base_prefix:
        return Installation("system")
    installer: Installer = "uv" if install[0] == "uv" else "pip"
    return Installation(installer, shlex.join((*install, "--upgrade", "clawkit")), extend)

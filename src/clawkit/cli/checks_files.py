"""What `clawkit doctor` looks at for the file tools: roots, ripgrep, kernel, language servers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from clawkit.cli.finding import Finding
from clawkit.config.model import Config
from clawkit.config.sections.fs import Fs
from clawkit.errors import ToolError
from clawkit.fs.search.ripgrep import find_ripgrep
from clawkit.lsp.known import Known
from clawkit.lsp.programs import Programs
from clawkit.process import landlock


def check_files(config: Config) -> Iterator[Finding]:
    """Everything that makes the file tools reach less, or tell less, than they could."""
    settings = config.tools.fs
    yield from _check_roots(settings)
    yield _check_ripgrep(settings)
    if landlock.available():
        yield Finding(
            "files", "ok", f"the kernel holds helper programs (Landlock {landlock.abi()})"
        )
    else:
        what = "the kernel has no Landlock: searches are slower and fewer language servers are used"
        yield Finding("files", "warn", what, "use Linux 5.13 or newer with Landlock switched on")
    yield from _check_servers(settings)
    if importlib.util.find_spec("pypdfium2") is None:
        what = "PDF files cannot be read"
        yield Finding("files", "ok", what, "pip install 'clawkit[pdf]'")


def _check_roots(settings: Fs) -> Iterator[Finding]:
    for name, roots in (("readRoots", settings.read_roots), ("writeRoots", settings.write_roots)):
        for root in roots:
            path = os.path.expanduser(root)
            # Others begin at the workspace, of which there may be many.
            if (os.path.isabs(path) or root.startswith("~")) and not os.path.isdir(path):
                what = f"tools.fs.{name}: {root!r} is not a directory"
                yield Finding("files", "warn", what, "correct it, or leave it out")


def _check_ripgrep(settings: Fs) -> Finding:
    try:
        found = find_ripgrep(settings.ripgrep, ())
    except ToolError as error:
        return Finding("files", "error", str(error))
    if found is None:
        what = "there is no ripgrep, so grep and find use a slower search"
        return Finding("files", "warn", what, "pip install 'clawkit[search]'")
    return Finding("files", "ok", f"ripgrep is {found.program}")


def _check_servers(settings: Fs) -> Iterator[Finding]:
    if not settings.lsp.enabled:
        return
    programs = Programs((), dict(os.environ))
    known = Known(settings.lsp, programs, "", can_hold=landlock.available())
    available = known.available()
    names = ", ".join(available) or "none were found"
    yield Finding("files", "ok", f"language servers: {names}")
    for name, server in settings.lsp.servers.items():
        if server.command and name not in available:
            what = f"tools.fs.lsp.servers.{name}: {server.command[0]!r} cannot be used"
            do = "give an absolute path of a program outside the workspace, or install it"
            yield Finding("files", "warn", what, do)

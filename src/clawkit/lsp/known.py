"""Which language servers can be used here, and how each is started."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from clawkit.config.sections.fs import Lsp
from clawkit.lsp.programs import Programs
from clawkit.lsp.servers import SERVERS, Server
from clawkit.process.landlock import SYSTEM, Hold
from clawkit.store import private_dir

_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")

log = logging.getLogger(__name__)


class Launch(NamedTuple):
    """Everything it takes to start a server."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    hold: Hold | None
    cache: str
    """The one directory that it may write to."""


class Known:
    """The servers of one workspace: those clawkit knows and those the operator added.

    `can_hold` says whether the kernel can keep a server to what it needs. If not, only those are
    used that run nothing of the project.
    """

    def __init__(
        self, settings: Lsp, programs: Programs, cache_dir: str, *, can_hold: bool
    ) -> None:
        added = {
            name: Server(name, tuple(each.command), tuple(each.files), tuple(each.root_markers))
            for name, each in settings.servers.items()
        }
        self._servers = {each.name: each for each in SERVERS} | added
        self._programs = programs
        self._cache_dir = cache_dir
        self._can_hold = can_hold
        self._found: dict[str, str | None] = {}
        self._watched = _compile(self._servers.values())

    def is_watched(self, name: str) -> bool:
        """Whether what a server says may depend on a file of that name."""
        return self._watched(name) is not None

    def available(self) -> tuple[str, ...]:
        """The names of the servers that can be started on this machine."""
        return tuple(name for name, each in self._servers.items() if self._program(each))

    def servers_for(self, place: str) -> Iterator[Server]:
        """The servers for a file that can be started on this machine."""
        name = os.path.basename(place)
        for each in self._servers.values():
            if each.matches(name) and self._program(each):
                other = self._servers.get(each.unless)
                if other is None or not self._program(other):
                    yield each

    def _program(self, server: Server) -> str | None:
        if server.name not in self._found:
            self._found[server.name] = self._find(server)
        return self._found[server.name]

    def _find(self, server: Server) -> str | None:
        program = self._programs.find(server.command[0]) if server.command else None
        if program is not None and server.resolve is not None:
            program = server.resolve(program, self._programs)
        if program is not None and not server.runs_nothing and not self._can_hold:
            log.info("%s is not used: this kernel cannot hold it to the workspace", server.name)
            return None
        return program

    def launch(self, server: Server, root: str, readable: Sequence[str]) -> Launch:
        """How to start a server for a project. Raises OSError when its cache cannot be made."""
        program = self._program(server)
        if program is None:
            raise FileNotFoundError(f"{server.name} is not installed")
        cache = self._make_cache(server, root)
        needs = server.needs(self._programs, cache)
        env = {
            **{name: self._programs.env[name] for name in _PASSED_ON if name in self._programs.env},
            "PATH": os.pathsep.join(self._programs.path),
            "HOME": cache,
            "XDG_CACHE_HOME": cache,
            "TMPDIR": cache,
            **needs.env,
        }
        arguments = server.command[1:]
        scripts = [each for each in arguments if os.path.isabs(each) and os.path.isfile(each)]
        run = [
            part
            for each in (program, *filter(self._programs.is_safe, scripts))
            for part in self._programs.installation(each)
        ]
        hold = Hold((*readable, *needs.read), (*SYSTEM, *run, *needs.run), (cache,))
        return Launch((program, *arguments), env, hold if self._can_hold else None, cache)

    def _make_cache(self, server: Server, root: str) -> str:
        """A directory for this project alone: what one leaves behind must not mislead another."""
        import hashlib

        digest = hashlib.sha256(f"{server.name}\0{root}".encode("utf-8", "surrogateescape"))
        plain = "".join(char if char.isalnum() else "-" for char in server.name[:40])
        cache = os.path.join(self._cache_dir, f"{plain}-{digest.hexdigest()[:16]}")
        private_dir(cache)
        return cache


def _compile(servers: Iterable[Server]) -> Callable[[str], object]:
    """One pattern for the files of all servers: it is matched with every name in a tree."""
    endings: set[str] = set()
    others: set[str] = set()
    for pattern in (each for server in servers for each in (*server.files, *server.root_markers)):
        plain = pattern.removeprefix("*.")
        if plain != pattern and plain.isalnum():
            endings.add(plain)
        else:
            others.add(fnmatch.translate(pattern))
    joined = "|".join((rf".*\.(?:{'|'.join(sorted(endings))})\Z", *sorted(others)))
    return re.compile(joined, re.S).match

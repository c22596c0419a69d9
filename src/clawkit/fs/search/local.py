"""Search files on this machine, with ripgrep if it is available."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import structs

from clawkit.core.paths import is_below
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolInputError
from clawkit.fs.protocols import (
    Admit,
    Find,
    Grep,
    Names,
    Places,
    Searched,
    SearchResult,
    Start,
    admit_all,
)
from clawkit.fs.roots import hidden_in
from clawkit.fs.search.engines import Engine, KillSwitch, SearchJob, choose_engine
from clawkit.fs.search.results import Collector, Gathering, ResultFilter
from clawkit.fs.search.ripgrep_globs import FileSelection, select

T = TypeVar("T")

TIMEOUT_S = 30.0
LOOK_S = 2.0
LOOK_AT = 1_000
"""Files that are counted to explain why nothing was found."""
MIN_GATHERED = 1_000
"""Minimum number of matches before a search is stopped, so that they usually include the first ones
in order."""
SPARE = 1_000
"""Names kept beyond the limit, in case some may not be shown."""


class LocalSearch:
    """Searches files on this machine. The search program is confined to the readable directories,
    and ends with the search."""

    def __init__(
        self,
        places: Places,
        workspace: str,
        *,
        ripgrep: str | None = None,
        use_landlock: bool = True,
        hidden: Sequence[str] = (),
        hard_links: bool = False,
        absolute: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`ripgrep` is the path of the program; None to find it. Without `use_landlock`, as without
        Landlock, ripgrep is used only if everything may be read. Nothing in the directories
        `hidden` is shown. `hard_links` permits files with several hard links. With `absolute`,
        results have absolute paths."""
        self._places = places
        self._workspace = os.path.abspath(workspace)
        self._real = os.path.realpath(workspace)
        self._ripgrep = ripgrep
        self._use_landlock = use_landlock
        self._hidden = hidden_in(places.readable, hidden)
        self._hard_links = hard_links
        self._shown_from = "\0" if absolute else self._real  # nothing lies below the former
        self._timeout_s = timeout_s

    async def grep(self, query: Grep, admit: Admit = admit_all) -> SearchResult:
        return await _in_thread(lambda switch: self._grep(query, self._shown(admit), switch))

    async def find(self, query: Find, admit: Admit = admit_all) -> Names:
        return await _in_thread(lambda switch: self._find(query, self._shown(admit), switch))

    def _shown(self, admit: Admit) -> Admit:
        """Admits no path that is hidden. Links need not be resolved: searches follow none."""
        if not self._hidden:
            return admit

        def admits(path: str) -> bool:
            place = os.path.normpath(os.path.join(self._real, path))
            return not any(is_below(place, each) for each in self._hidden) and admit(path)

        return admits

    def _grep(self, query: Grep, admit: Admit, switch: KillSwitch) -> SearchResult:
        try:
            query.pattern.encode()
        except UnicodeEncodeError:
            raise ToolInputError("the pattern is not valid Unicode; send it as text") from None
        if "\0" in query.pattern:
            raise ToolInputError("the pattern contains NUL; write \\x00 for it")
        start = self._places.start(query.path)
        try:
            selection = select(query.globs, self._bases(start), typed=bool(query.type))
            gate = self._gate(start, selection, admit)
            enough = max(10 * query.limit, MIN_GATHERED)
            hits = Gathering(query.output, gate, enough)
            until = time.monotonic() + self._timeout_s
            job = SearchJob(start, selection, query.ignored, hits.feed, until, switch, query.type)
            engine = self._engine()
            outcome = engine(job, query, enough)
            first = tuple(hits.first(query.limit))
            found = SearchResult(first, hits.total, outcome.stopped, outcome.engine, outcome.unread)
            if start.name:
                return structs.replace(found, binary=hits.is_binary)
            if found.hits or found.stopped:
                return found
            return structs.replace(found, searched=_look(engine, job, gate, admit))
        finally:
            os.close(start.fd)

    def _find(self, query: Find, admit: Admit, switch: KillSwitch) -> Names:
        start = self._places.start(query.path)
        try:
            if start.name:
                raise ToolInputError(f"{query.path!r} is a file; find searches directories")
            of_folders = query.kind == "directory"
            pattern = (query.pattern.rstrip("/") or "/") if of_folders else query.pattern
            # Directories are derived from the paths of files, so the pattern is not for files.
            selection = select([pattern], self._bases(start), typed=of_folders)
            names = Collector(query, selection.accepts, start.fd, spare=SPARE)
            until = time.monotonic() + self._timeout_s
            job = SearchJob(start, selection, query.ignored, names.feed, until, switch)
            outcome = self._engine()(job, None, 0)
            gate = self._gate(start, selection, admit)
            paths, total = names.first(lambda name: admit(gate.shown(name)))
            shown = tuple(map(gate.shown, paths))
            return Names(shown, total, outcome.stopped, outcome.engine, outcome.unread)
        finally:
            os.close(start.fd)

    def _engine(self) -> Engine:
        readable = self._places.readable
        return choose_engine(self._ripgrep, self._real, readable, self._use_landlock)

    def _gate(self, start: Start, selection: FileSelection, admit: Admit) -> ResultFilter:
        one_name = self._places.readable is not None and not self._hard_links
        return ResultFilter(
            start, self._shown_from, accepts=selection.accepts, admit=admit, one_name=one_name
        )

    def _bases(self, start: Start) -> Sequence[str]:
        """Possible names of the searched directory in an absolute pattern."""
        way = os.path.relpath(start.place, self._real)
        return start.place, os.path.normpath(os.path.join(self._workspace, way))


async def _in_thread(work: Callable[[KillSwitch], T]) -> T:
    """Run blocking work in a thread; if the caller is cancelled, its search program is killed."""
    switch = KillSwitch()
    try:
        result: T = await in_thread(work, switch)
    except BaseException:
        switch.turn_off()
        raise
    return result


def _look(engine: Engine, job: SearchJob, gate: ResultFilter, admit: Admit) -> Searched:
    """Count the files that a search covered, by their names only: a hint that depends on content
    would reveal something about files that may not be read."""
    names = Collector(Find("*", sort="none", limit=LOOK_AT), job.selection.accepts)
    job = job._replace(feed=names.feed, until=time.monotonic() + LOOK_S)
    outcome = engine(job, None, 0)
    kept = names.names()
    return Searched(
        files=len(kept),
        linked=sum(map(gate.leaves_out, kept)),
        refused=sum(not admit(gate.shown(name)) for name in kept),
        whole=not outcome.stopped,
    )

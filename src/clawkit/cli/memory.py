"""`clawkit memory`: the notes of an agent: what is indexed, searching, showing, forgetting."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import PurePath
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from clawkit.cli import shared_options as cli
from clawkit.cli.shared_options import counted
from clawkit.config.load import Loaded, load
from clawkit.config.paths import abbreviate_home
from clawkit.core.context import Scope, Sender
from clawkit.errors import (
    ConfigError,
    Issue,
    NotFoundError,
    ProtectedError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)
from clawkit.fs.protocols import Change, WorkspaceFiles, read_all
from clawkit.memory.orphaned_indexes import find_orphans, remove_index
from clawkit.memory.protocols import Corpus, Excerpt, IndexStatus, Memory, MemoryHits
from clawkit.memory.settings import settings_of
from clawkit.runtime import resolve_workspace
from clawkit.services import Services
from clawkit.text import human_size, nearest, printable
from clawkit.tools._memory import is_enabled

T = TypeVar("T")
_MAX_SHOWN = 20
_MAX_BYTES = 32 * 1024 * 1024
_AGENT = click.option("--agent", help="Agent whose memory to use. Default: the default agent.")
_options = partial(
    cli.scope_options,
    options=(cli.json_option, cli.config_option, cli.workspace_option, _AGENT),
)


class MemoryOptions(msgspec.Struct, frozen=True):
    """The values of the shared options."""

    config_file: str | None
    workspace: str | None
    agent: str | None

    def use(self, work: Callable[[Services, Memory], Awaitable[T]]) -> T:
        """Run work with the memory of the agent, then close it."""
        return asyncio.run(self._use(work))

    async def _use(self, work: Callable[[Services, Memory], Awaitable[T]]) -> T:
        loaded = load(self.config_file)
        cli.warn(map(str, loaded.warnings))
        agent = loaded.config.agents.find(self.agent)
        if not is_enabled(loaded.config, agent):
            cli.warn(
                [f"the agent {agent!r} does not use its memory: memory.search.enabled is false"]
            )
        async with _opened(loaded, agent, self.workspace) as services:
            return await work(services, services[Memory])


def inspect_memory(loaded: Loaded, agent: str, workspace: str | None) -> IndexStatus:
    """The state of an agent's memory. Changes nothing."""

    async def look() -> IndexStatus:
        async with _opened(loaded, agent, workspace) as services:
            return await services[Memory].status()

    return asyncio.run(look())


def embedding_issues(loaded: Loaded) -> list[Issue]:
    """Errors in the embedding settings of all agents that use their memory."""
    found = dict[Issue, None]()
    for agent in loaded.config.agents.ids():
        settings = settings_of(loaded.config, agent)
        is_used = settings.provider or settings.fallback != "none"
        if is_used and is_enabled(loaded.config, agent):
            from clawkit.memory.embed import find_issues

            with suppress(ConfigError):  # `clawkit doctor` reports invalid files of an agent
                found |= dict.fromkeys(find_issues(settings, loaded, agent))
    return [each._replace(file=loaded.file or "") for each in found]


@asynccontextmanager
async def _opened(loaded: Loaded, agent: str, workspace: str | None) -> AsyncIterator[Services]:
    place = resolve_workspace(loaded.config, agent, workspace)
    services = Services(loaded, Scope(agent=agent, sender=Sender(owner=True)), place)
    try:
        yield services
    finally:
        await services.close()


def _with_place(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command, and pass it `MemoryOptions` instead."""

    def run(config_file: str | None, workspace: str | None, agent: str | None, **more: Any) -> None:
        command(MemoryOptions(config_file, workspace, agent), **more)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return _options(run)


@click.command()
@_with_place
def status(options: MemoryOptions, as_json: bool) -> None:
    """Show the state of the index, and problems.

    Exit codes: 0 no problems, 1 problems.
    """
    _report(options.use(lambda _, memory: memory.status()), as_json)


def _report(status: IndexStatus, as_json: bool) -> NoReturn:
    if as_json:
        said = {"provider": status.provider, "model": status.model, "error": status.error}
        facts = {name: text or None for name, text in said.items()}
        cli.print_json({**msgspec.to_builtins(status), **facts})
    else:
        _print_status(status)
    sys.exit(1 if status.problems else 0)


def _print_status(status: IndexStatus) -> None:
    by = f"{status.provider} {status.model}".strip()
    rows = [
        *(("notes in", _describe_root(root)) for root in status.roots),
        ("index", f"{abbreviate_home(status.path)}, {human_size(status.size_bytes)}"),
        ("indexed", f"{counted(status.files, 'file')}, {counted(status.chunks, 'passage')}"),
        ("pending", f"{counted(status.pending, 'file')}; a search indexes them"),
        ("search", f"keywords and {by}, {status.embedded} embedded" if by else "keywords only"),
    ]
    for name, value in rows:
        if name != "pending" or status.pending:
            click.echo(printable(f"{name:<9} {value}", ""))
    for problem in status.problems[:_MAX_SHOWN]:
        click.secho(printable(f"problem   {problem}", ""), fg="yellow")
    if (more := len(status.problems) - _MAX_SHOWN) > 0:
        click.echo(f"… and {more} more; --json lists all.")


def _describe_root(root: str) -> str:
    missing = "" if os.path.lexists(root) else " (does not exist)"
    return abbreviate_home(root) + missing


@click.command()
@click.option("--rebuild", is_flag=True, help="Rebuild the index from scratch.")
@_with_place
def index(options: MemoryOptions, rebuild: bool, as_json: bool) -> None:
    """Update the index, including embeddings.

    A search does this as well; use it after many changes. If you interrupt it, what is indexed so
    far is kept.

    Exit codes: 0 no problems, 1 problems, such as files that cannot be read.
    """
    progress = _IndexProgress()
    try:
        show = progress.show
        found = options.use(lambda _, notes: notes.index(rebuild=rebuild, on_progress=show))
    finally:
        progress.end()
    _report(found, as_json)


class _IndexProgress:
    """A line on the terminal that is overwritten; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = cli.is_terminal(sys.stderr)
        self._said = ""

    def show(self, done: int, total: int) -> None:
        if self._is_shown:
            self._said = f"indexed {done:,} of {total:,} files"
            click.echo(f"\r{self._said}", err=True, nl=False)

    def end(self) -> None:
        if self._said:
            click.echo("\r" + " " * len(self._said) + "\r", err=True, nl=False)


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--max-results", type=click.IntRange(1, 100), help="Maximum number of passages.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="Lowest score of a passage, 0 to 1.")
@click.option(
    "--corpus",
    type=click.Choice(("memory", "sessions", "all")),
    default="memory",
    show_default=True,
    help="Notes, past sessions if they are indexed, or both.",
)
@_with_place
def search(
    options: MemoryOptions,
    query: tuple[str, ...],
    max_results: int | None,
    min_score: float | None,
    corpus: Corpus,
    as_json: bool,
) -> None:
    """Search notes for QUERY, as the agent does.

    \b
    clawkit memory search tea or coffee
    clawkit memory search "what did we decide about backups?"
    """

    async def work(_services: Services, memory: Memory) -> tuple[MemoryHits, IndexStatus]:
        found = await memory.search(
            " ".join(query), max_results=max_results, min_score=min_score, corpus=corpus
        )
        return found, await memory.status()

    found, indexed = options.use(work)
    if as_json:
        service = {"provider": found.provider or None, "model": found.model or None}
        facts = {"mode": found.mode, **service, "warning": found.warning or None}
        cli.print_json({"results": msgspec.to_builtins(found.hits), **facts})
        return
    for hit in found.hits:
        head = f"{hit.path}:{hit.start_line}-{hit.end_line}"
        click.secho(printable(head, ""), bold=True, nl=False)
        click.secho(f"  {hit.score:.2f}", fg="bright_black")
        for line in hit.snippet.splitlines():
            click.echo(f"  {printable(line, '')}")
    if not found.hits:
        roots = ", ".join(map(abbreviate_home, indexed.roots))
        click.echo("Nothing found." if indexed.files else f"There are no notes in {roots}.")
    cli.warn([found.warning] if found.warning else [])


@click.command()
@click.argument("what", metavar="PATH[:LINES]")
@click.option("--from", "first", type=click.IntRange(1), help="First line.")
@click.option("--lines", type=click.IntRange(1), help="How many lines. Default: 120.")
@_with_place
def show(
    options: MemoryOptions, what: str, first: int | None, lines: int | None, as_json: bool
) -> None:
    """Show part of the note PATH, or of sessions/ID if sessions are indexed.

    LINES, such as 3 or 3-5, are as in search results; they replace --from and --lines.
    """
    path, start, end = _read_target(what)
    if end is None:
        start = first or 1
    elif first or lines:
        raise click.UsageError(f"{what!r} names its lines; leave out --from and --lines")
    else:
        lines = end - start + 1

    async def work(services: Services, memory: Memory) -> Excerpt:
        found = await _get(path, services, memory, start, lines)
        if start > 1 and not found.lines:
            raise NotFoundError(f"{path} has no line {start}")
        return found

    found = options.use(work)
    if as_json:
        facts = {"path": found.path, "from": found.start_line, "lines": found.lines}
        cli.print_json({**facts, "text": found.text, "nextFrom": found.next_line})
        return
    cli.print_text(found.text)
    if found.next_line is not None:
        click.echo(f"There is more; --from {found.next_line} continues.", err=True)


@click.command()
@click.argument("what", metavar="PATH[:LINES]")
@cli.yes_option()
@_with_place
def forget(options: MemoryOptions, what: str, yes: bool, as_json: bool) -> None:
    """Remove the note PATH, or some LINES of it such as 3 or 3-5, after showing them.

    It is removed from the Markdown file and from the index. Only notes in the workspace can be
    removed; for sessions, see `clawkit sessions delete`.
    """
    cli.refuse_commands("change what clawkit remembers")
    path, first, last = _read_target(what)
    if path.startswith("sessions/"):
        raise click.UsageError("sessions are not notes; see `clawkit sessions delete`")
    done = options.use(partial(_forget, path, first, last, yes))
    gone = "the note" if last is None else cli.counted(done["lines"], "line")
    cli.print_done(as_json, done, f"removed {gone} {'' if last is None else 'of '}{path}")


@click.command()
@cli.yes_option()
@cli.json_option
def prune(yes: bool, as_json: bool) -> None:
    """Remove the indexes of workspaces that no longer exist.

    No notes are removed. If a workspace is on a disk that is not mounted, its index and embeddings
    are created again when it is next used, which can cost money.
    """
    cli.refuse_commands("remove indexes")
    found = find_orphans(os.environ)
    if found and not yes:
        shown = [f"{each.workspace} ({human_size(each.size_bytes)})" for each in found]
        cli.confirm("Remove the indexes of these workspaces?", "nothing was removed", shown)
    found = [each for each in found if remove_index(each)]
    size = sum(each.size_bytes for each in found)
    done = f"removed {counted(len(found), 'index', 'es')}, {human_size(size)}"
    cli.print_done(as_json, {"removed": msgspec.to_builtins(found)}, done)


async def _get(
    path: str, services: Services, memory: Memory, start: int = 1, lines: int | None = None
) -> Excerpt:
    """Part of a note. Raises `NotFoundError` for a missing file, and `ToolAuthorizationError` if it
    is not a note."""
    try:
        found = await memory.get(path, start_line=start, lines=lines)
        if found.exists:
            return found
    except ToolAuthorizationError as refusal:
        try:
            async with services[WorkspaceFiles].open(path):
                raise refusal
        except NotFoundError:  # most likely a typo
            pass
    stems = {PurePath(each).stem: each for each in await memory.paths()}
    close = nearest(PurePath(path).stem, [*stems], 1)
    hint = f". Did you mean {stems[close[0]]!r}?" if close else ""
    raise NotFoundError(f"there is no note {path!r}{hint}")


def _read_target(what: str) -> tuple[str, int, int | None]:
    """Path, first and last line; no last line for the whole file."""
    found = re.fullmatch(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?", what)
    if found is None:
        return what, 1, None
    path, first, last = found.groups()
    start, end = int(first), int(last or first)
    if not 1 <= start <= end:
        given = what[len(path) + 1 :]
        raise click.UsageError(f"invalid lines {given!r}; use a line or a range, such as 3 or 3-5")
    return path, start, end


async def _forget(
    path: str, first: int, last: int | None, yes: bool, services: Services, memory: Memory
) -> dict[str, Any]:
    await _get(path, services, memory)
    files = services[WorkspaceFiles]
    async with files.open(path) as file:
        data, version = await read_all(file, _MAX_BYTES), file.info.version
    lines = data.splitlines(keepends=True)
    if first > max(1, len(lines)):
        raise ToolInputError(f"{path} has only {counted(len(lines), 'line')}")
    gone = lines[first - 1 : last]
    if not yes:
        shown = [line.decode("utf-8", "replace").rstrip("\r\n") for line in gone[:_MAX_SHOWN]]
        shown += [f"… and {len(gone) - _MAX_SHOWN} more lines"] * (len(gone) > _MAX_SHOWN)
        question = f"Remove {'this note' if last is None else 'these lines'} permanently?"
        cli.confirm(question, "nothing was removed", shown)
    rest = b"".join((*lines[: first - 1], *lines[first - 1 + len(gone) :]))
    change = Change(path, None if last is None else rest, expect=version)
    try:
        await files.change([change])
    except ProtectedError as error:
        # A person asked for it.
        await files.change([change], allowed=error.places)
    try:
        await memory.index()
    except ToolError as error:
        cli.warn([f"the index is not up to date, a search will update it: {error}"])
    return {"path": path, "lines": len(gone), "deleted": last is None}

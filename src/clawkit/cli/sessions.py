"""`clawkit sessions`: conversations that are kept."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from clawkit.cli.columns import columns, cut_to, print_table, widths_of
from clawkit.cli.options import (
    config_option,
    is_terminal,
    json_option,
    print_json,
    refuse_commands,
    warn,
    wrong_usage,
)
from clawkit.cli.transcript import (
    message_to_json,
    print_transcript,
    say_turns,
    session_to_json,
    to_markdown,
)
from clawkit.config.load import Loaded, load
from clawkit.errors import ClawkitError, NotFoundError, ToolAuthorizationError
from clawkit.sessions.base import Session
from clawkit.sessions.place import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.store import write_atomic
from clawkit.text import human_time, one_line, printable

EVERYTHING = 2**62
_HEAD = ("ID", "NAME", "AGENT", "USED", "TURNS", "MODEL", "COST", "DIRECTORY", "TITLE")
_MAX_NAME, _MAX_DIRECTORY, _MAX_TITLE, _MIN_TITLE = 24, 36, 60, 12

_AGENT = click.option("--agent", help="Agent whose conversations are meant. Default: the usual.")
_ID = click.argument("which", metavar="ID")


@click.group()
def sessions() -> None:
    """List, show, rename, delete and export conversations.

    ID is the id of one, the beginning of it, or its name.

    \b
    clawkit sessions list --here              those of this directory
    clawkit sessions show k3mq                what was said in one
    clawkit agent --session k3mq -m "Go on"   go on with it
    """


class _Opened:
    """The store, and whose conversations are meant."""

    def __init__(self, loaded: Loaded, agent: str | None) -> None:
        self.loaded = loaded
        self.agent = agent or loaded.config.agents.default_id()
        self.store = SessionStore(locate_store(loaded.config.session.store, os.environ))

    def find(self, which: str) -> Session:
        try:
            return self.store.get(which, self.agent)
        except NotFoundError as error:
            hint = "" if str(error).endswith("?") else ". `clawkit sessions list` shows all"
            raise NotFoundError(f"{error}{hint}") from None


@contextmanager
def _opened(config_file: str | None, agent: str | None = None) -> Iterator[_Opened]:
    loaded = load(config_file)
    warn(map(str, loaded.warnings))
    found = _Opened(loaded, agent)
    try:
        with wrong_usage():
            yield found
    finally:
        found.store.close()


@sessions.command("list")
@click.option("--all-agents", is_flag=True, help="Those of every agent.")
@click.option("--here", is_flag=True, help="Only those of this directory.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many."
)
@json_option
@_AGENT
@config_option
def list_sessions(
    all_agents: bool,
    here: bool,
    limit: int,
    as_json: bool,
    agent: str | None,
    config_file: str | None,
) -> None:
    """List conversations, the one that was used last first."""
    if all_agents and agent:
        raise click.UsageError("--agent and --all-agents exclude each other")
    with _opened(config_file, agent) as opened:
        place = _this_place(opened) if here else None
        found = opened.store.recent(None if all_agents else opened.agent, place, limit + 1)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        print_json({"sessions": [session_to_json(each) for each in found], "more": more})
        return
    if not found:
        whose = "any agent" if all_agents else f"the agent {opened.agent!r}"
        where = f" in {place}" if place else ""
        click.echo(printable(f"There is no conversation of {whose}{where} yet."))
        return
    _print_list(found, all_agents=all_agents, here=here)
    if more:
        click.echo(f"There are more; -n {limit * 5} shows more of them.")


def _this_place(opened: _Opened) -> str:
    # The tools come with it.
    from clawkit.runtime import resolve_workspace

    return resolve_workspace(opened.loaded.config, opened.agent)


def _print_list(found: Sequence[Session], *, all_agents: bool, here: bool) -> None:
    now_ms = time.time() * 1000
    rows = [_cells(each, now_ms, all_agents=all_agents, here=here) for each in found]
    if (room := columns()) is not None:
        lines = [line[:-1] for line in (_HEAD, *rows) if line]
        used = sum(width + 2 for width in widths_of(lines))
        rows = [(*row[:-1], cut_to(row[-1], max(room - used, _MIN_TITLE))) for row in rows]
    print_table(_HEAD, rows)


def _cells(session: Session, now_ms: float, *, all_agents: bool, here: bool) -> tuple[str, ...]:
    cost = session.usage.cost
    ago = human_time(max(1, round((now_ms - session.updated_ms) / 1000)))
    cells = (
        session.id,
        cut_to(session.name, _MAX_NAME) if session.name != session.id else "",
        session.agent if all_agents else "",
        f"{ago.partition(' ')[0]} ago",
        str(session.turns),
        (session.model_override or session.model).rpartition("/")[2],
        f"${cost:.2f}" if cost >= 0.005 else "",
        "" if here else _short(session.workspace),
        cut_to(session.title, _MAX_TITLE),
    )
    return tuple(printable(one_line(cell, 200), "") for cell in cells)


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    if path == home or path.startswith(f"{home}/"):
        path = f"~{path[len(home) :]}"
    return path if len(path) <= _MAX_DIRECTORY else f"…{path[1 - _MAX_DIRECTORY :]}"


@sessions.command()
@_ID
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="How many messages.",
)
@click.option("--all", "everything", is_flag=True, help="All messages, from the first one on.")
@json_option
@_AGENT
@config_option
def show(
    which: str,
    limit: int,
    everything: bool,
    as_json: bool,
    agent: str | None,
    config_file: str | None,
) -> None:
    """Show what was said and done in a conversation.

    Long results are cut; `clawkit sessions export` has all of them.
    """
    with _opened(config_file, agent) as opened:
        session = opened.find(which)
        entries = opened.store.history(session.id, EVERYTHING if everything else limit)
    if as_json:
        told = [message_to_json(each) for each in entries]
        print_json({"session": session_to_json(session), "messages": told})
    else:
        print_transcript(session, entries)


@sessions.command()
@_ID
@click.argument("name", metavar="NAME")
@json_option
@_AGENT
@config_option
def rename(
    which: str, name: str, as_json: bool, agent: str | None, config_file: str | None
) -> None:
    """Call a conversation NAME, a word without spaces."""
    refuse_commands("change what clawkit remembers")
    with _opened(config_file, agent) as opened:
        before = opened.find(which)
        with opened.store.hold(before.id):
            session = opened.store.rename(before.id, name)
    if as_json:
        print_json(session_to_json(session))
    else:
        click.echo(printable(f"{session.id} is called {session.name} now"), err=True)


@sessions.command()
@click.argument("which", metavar="ID...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@_AGENT
@config_option
def delete(
    which: tuple[str, ...], yes: bool, as_json: bool, agent: str | None, config_file: str | None
) -> None:
    """Delete conversations for good. One that is in use stays.

    The exit code is 1 when one of them could not be deleted, and 2 when one is not there: then
    nothing was.
    """
    refuse_commands("change what clawkit remembers")
    with _opened(config_file, agent) as opened:
        found = list({each.id: each for each in map(opened.find, which)}.values())
        if not yes:
            _confirm(found)
        failed: dict[str, str] = {}
        for session in found:
            try:
                opened.store.delete(session.id)
            except ClawkitError as error:
                failed[session.id] = str(error)
    gone = [each for each in found if each.id not in failed]
    if as_json:
        print_json({"deleted": [each.id for each in gone], "failed": failed})
    for session in () if as_json else gone:
        click.echo(printable(f"deleted {_call(session)}"), err=True)
    for problem in () if as_json else failed.values():
        click.echo(f"clawkit: {printable(problem)}", err=True)
    sys.exit(1 if failed else 0)


def _confirm(found: Sequence[Session]) -> None:
    """Ask the person. Raises when there is none, or they say no."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise click.UsageError("nobody can be asked here; add --yes to delete without a question")
    for session in found:
        title = one_line(session.title, _MAX_TITLE)
        said = f"{_call(session)}, {say_turns(session)}, {title!r}"
        click.echo(f"  {printable(said, '')}", err=True)
    what = "this conversation" if len(found) == 1 else f"these {len(found)} conversations"
    if not click.confirm(f"Delete {what} for good?", err=True):
        raise ToolAuthorizationError("nothing was deleted", reason="person")


def _call(session: Session) -> str:
    return session.id if session.name == session.id else f"{session.id} ({session.name})"


@sessions.command()
@_ID
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "markdown"]),
    default="json",
    show_default=True,
    help="For programs, or to read.",
)
@click.option(
    "-o", "--output", metavar="FILE", help="Write into FILE, which must not be there yet."
)
@_AGENT
@config_option
def export(
    which: str, form: str, output: str | None, agent: str | None, config_file: str | None
) -> None:
    """Print a whole conversation, or write it into a file that only you can read."""
    with _opened(config_file, agent) as opened:
        session = opened.find(which)
        entries = opened.store.history(session.id, EVERYTHING)
    told = [message_to_json(each) for each in entries]
    data: dict[str, Any] = {"version": 1, "session": session_to_json(session), "messages": told}
    if output is None and form == "json":
        print_json(data)
    elif output is None:
        text = to_markdown(session, entries)
        click.echo(printable(text) if is_terminal(sys.stdout) else text, nl=False)
    else:
        _write(output, data if form == "json" else to_markdown(session, entries))


def _write(path: str, what: dict[str, Any] | str) -> None:
    import msgspec

    if os.path.lexists(path):
        raise click.UsageError(f"{path!r} is there already; name another file")
    if isinstance(what, str):
        data = what.encode("utf-8", "backslashreplace")
    else:
        data = msgspec.json.format(msgspec.json.encode(what), indent=2) + b"\n"
    try:
        write_atomic(path, data)
    except OSError as error:
        raise click.UsageError(f"{path!r} cannot be written: {error.strerror}") from None
    click.echo(printable(f"Wrote {path}"), err=True)


@sessions.command()
@json_option
@config_option
def path(as_json: bool, config_file: str | None) -> None:
    """Print where conversations are kept."""
    with _opened(config_file) as opened:
        file = opened.store.path
    exists = os.path.lexists(file)
    if as_json:
        print_json({"path": file, "exists": exists})
        return
    click.echo(file)
    if not exists:
        click.echo("There is no such file yet; the first conversation makes it.", err=True)

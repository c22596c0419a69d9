"""`clawkit sessions`: saved conversations."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import click
import msgspec

from clawkit.cli.options import (
    can_ask,
    config_option,
    counted,
    json_option,
    limit_option,
    print_done,
    print_json,
    print_location,
    print_table,
    print_text,
    refuse_commands,
    warn,
    wrong_usage,
)
from clawkit.cli.session_text import (
    cost,
    message_to_json,
    print_transcript,
    session_to_json,
    time_of,
    to_markdown,
)
from clawkit.config.load import Loaded, load
from clawkit.config.paths import abbreviate_home
from clawkit.errors import ClawkitError, NotFoundError, ToolAuthorizationError
from clawkit.sessions.keys import resolve
from clawkit.sessions.mailbox import MAX_MESSAGE, Mail
from clawkit.sessions.protocols import Session, Visible, locate_store
from clawkit.sessions.store import SessionStore
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.store import write_atomic
from clawkit.terminal_text import truncate
from clawkit.text import human_time, one_line, printable

EVERYTHING = 2**62
_INDEX_S = 3_600.0
"""Long enough to index everything: a person can interrupt it, and what is indexed is kept."""
_HEAD = ("ID", "NAME", "AGENT", "USED", "TURNS", "MODEL", "COST", "DIRECTORY", "TITLE")
_MAX_NAME, _MAX_DIRECTORY, _MAX_TITLE, _MIN_TITLE = 24, 36, 60, 12

_ID = click.argument("which", metavar="ID")


class _Opened(NamedTuple):
    loaded: Loaded
    agent: str
    store: SessionStore

    def find(self, which: str) -> Session:
        try:
            main = self.loaded.config.session.main_key
            return resolve(self.store, which, agent=self.agent, main=main)
        except NotFoundError as error:
            hint = "" if str(error).endswith("?") else ". `clawkit sessions list` shows all"
            raise NotFoundError(f"{error}{hint}") from None


@contextmanager
def open_store(config_file: str | None, agent: str | None = None) -> Iterator[_Opened]:
    loaded = load(config_file)
    store = SessionStore(locate_store(loaded.config.session.store, os.environ))
    try:
        with wrong_usage():
            yield _Opened(loaded, agent or loaded.config.agents.default_id(), store)
    finally:
        store.close()


def _with_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--agent` and `--config` to a command, and pass it the opened store instead."""

    @click.option("--agent", help="Agent whose sessions to use. Default: the default agent.")
    @config_option
    @wraps(command)
    def run(config_file: str | None, agent: str | None, **options: Any) -> None:
        if agent and options.get("all_agents"):
            raise click.UsageError("--agent and --all-agents cannot be combined")
        with open_store(config_file, agent) as opened:
            warn(map(str, opened.loaded.warnings))
            command(opened, **options)

    return run


@click.command("list")
@click.option("--all-agents", is_flag=True, help="Sessions of every agent.")
@click.option("--here", is_flag=True, help="Only sessions of this directory.")
@limit_option(20, "Maximum number.")
@json_option
@_with_store
def list_sessions(opened: _Opened, all_agents: bool, here: bool, limit: int, as_json: bool) -> None:
    """List sessions, the most recently used first."""
    place = None
    if here:
        from clawkit.runtime import resolve_workspace

        place = resolve_workspace(opened.loaded.config, opened.agent)
    found = opened.store.recent(None if all_agents else opened.agent, place, limit + 1)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        print_json({"sessions": [session_to_json(each) for each in found], "more": more})
        return
    if not found:
        whose = "No agent" if all_agents else f"The agent {opened.agent!r}"
        where = f" in {place}" if place else ""
        click.echo(printable(f"{whose} has no session{where} yet."))
        return
    rows = [_cells(each, all_agents=all_agents, here=here) for each in found]
    print_table(_HEAD, rows, min_last=_MIN_TITLE)
    if more:
        click.echo(f"There are more; -n {limit * 5} shows up to {limit * 5}.")


def _cells(session: Session, *, all_agents: bool, here: bool) -> tuple[str, ...]:
    place = abbreviate_home(session.workspace)
    place = place if len(place) <= _MAX_DIRECTORY else f"…{place[1 - _MAX_DIRECTORY :]}"
    cells = (
        session.id,
        truncate(session.name, _MAX_NAME) if session.name != session.id else "",
        session.agent if all_agents else "",
        _ago(session.updated_ms),
        str(session.turns),
        (session.model_override or session.model).rpartition("/")[2],
        cost(session),
        "" if here else place,
        truncate(session.title, _MAX_TITLE),
    )
    return tuple(printable(one_line(cell, 200), "") for cell in cells)


def _ago(at_ms: int) -> str:
    ago = human_time(max(1, round(time.time() - at_ms / 1000)))
    return f"{ago.partition(' ')[0]} ago"


@click.command()
@click.argument("which", metavar="[ID]", required=False)
@limit_option(20, "Maximum number of top-level sessions.")
@json_option
@_with_store
def tree(opened: _Opened, which: str | None, limit: int, as_json: bool) -> None:
    """Show which session started which, as a tree; with ID, only below that session.

    \b
    clawkit sessions tree            the most recently used sessions
    clawkit sessions tree main       what the main session started
    """
    below: dict[str, list[Session]] = {}
    every = opened.store.recent(limit=EVERYTHING)
    for each in reversed(every):
        below.setdefault(each.parent, []).append(each)
    known = {each.id for each in every}
    top = [each for each in every if each.agent == opened.agent and each.parent not in known]
    roots = [opened.find(which)] if which else top[:limit]
    if as_json:
        more = not which and len(top) > limit
        print_json({"sessions": [_branch_to_json(each, below) for each in roots], "more": more})
        return
    if not roots:
        click.echo(printable(f"The agent {opened.agent!r} has no session yet."))
        return
    rows = [row for root in roots for row in _branch(root, below, "", "")]
    print_table(("NAME", "ID", "USED", "TURNS", "COST", "TITLE"), rows, min_last=_MIN_TITLE)
    if not which and len(top) > limit:
        click.echo(f"There are more; -n {limit * 5} shows up to {limit * 5}.")


def _branch(
    session: Session, below: dict[str, list[Session]], lead: str, mark: str
) -> Iterator[tuple[str, ...]]:
    """A table row for a session and for each one below it."""
    name = session.name.rpartition(":")[2] if session.name.startswith("subagent:") else session.name
    title = session.label or session.title
    facts = (session.id, _ago(session.updated_ms), str(session.turns), cost(session))
    cells = (truncate(name, _MAX_NAME), *facts, truncate(title, _MAX_TITLE))
    first, *others = (printable(one_line(cell, 200), "") for cell in cells)
    yield (lead + mark + first, *others)
    lead += {"": "", "├─ ": "│  ", "└─ ": "   "}[mark]
    children = below.get(session.id, [])
    for each in children:
        yield from _branch(each, below, lead, "├─ " if each is not children[-1] else "└─ ")


def _branch_to_json(session: Session, below: dict[str, list[Session]]) -> dict[str, Any]:
    children = [_branch_to_json(each, below) for each in below.get(session.id, ())]
    return {**session_to_json(session), "children": children}


@click.command()
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--all-agents", is_flag=True, help="Sessions of every agent.")
@limit_option(10, "Maximum number of messages.")
@json_option
@_with_store
def search(
    opened: _Opened, words: tuple[str, ...], all_agents: bool, limit: int, as_json: bool
) -> None:
    """Search the messages of sessions for all of WORDS.

    Quoted words are a phrase. The first search indexes all messages, which can take a minute.

    \b
    clawkit sessions search login page
    clawkit sessions search "login page" css
    """
    query = " ".join(f'"{each}"' if " " in each else each for each in words)
    agents = opened.store.agents() if all_agents else [opened.agent]
    visible = Visible("", agents=tuple(agents))
    found = opened.store.search(query, visible, limit, index_s=_INDEX_S)
    if as_json:
        results = [
            {
                "session": session_to_json(hit.session),
                "number": hit.number,
                "role": hit.role,
                "at": hit.at_ms,
                "snippet": hit.snippet,
            }
            for hit in found.hits
        ]
        print_json({"results": results, "more": found.more})
        return
    for hit in found.hits:
        session, who = hit.session, "you" if hit.role == "user" else "model"
        title = truncate(session.label or session.title, _MAX_TITLE)
        head = f"{_call(session)}: {title}" if title else _call(session)
        click.secho(printable(one_line(head, 200), ""), bold=True)
        when = f" · {time_of(hit.at_ms)}" if hit.at_ms else ""
        click.secho(f"  message {hit.number} · {who}{when}", fg="bright_black")
        click.echo(f"  {printable(hit.snippet, '')}")
    if not found.hits:
        click.echo("No message contains all of these words.")
    if found.more:
        click.echo(f"There are more; -n {limit * 5} shows up to {limit * 5}.")


@click.command()
@_ID
@limit_option(30, "Maximum number of messages.")
@click.option("--all", "everything", is_flag=True, help="All messages from the beginning.")
@json_option
@_with_store
def show(opened: _Opened, which: str, limit: int, everything: bool, as_json: bool) -> None:
    """Show the messages and tool calls of a session.

    Long results are truncated; `clawkit sessions export` prints everything.
    """
    session = opened.find(which)
    entries = opened.store.history(session.id, EVERYTHING if everything else limit)
    if as_json:
        messages = [message_to_json(each) for each in entries]
        print_json({"session": session_to_json(session), "messages": messages})
    else:
        print_transcript(session, entries)


@click.command()
@_ID
@click.argument("message", metavar="MESSAGE")
@json_option
@_with_store
def send(opened: _Opened, which: str, message: str, as_json: bool) -> None:
    """Leave MESSAGE for a session; its model reads it in its next turn.

    If the session is in use, it is read when the current turn ends. To start a turn instead, use
    `clawkit agent --session ID -m MESSAGE`.
    """
    refuse_commands("send messages to sessions")
    session = opened.find(which)
    if not message.strip() or len(message) > MAX_MESSAGE:
        raise click.UsageError(f"the message must have 1 to {MAX_MESSAGE} characters")
    from clawkit.runtime import make_redactor

    opened.store.redact = make_redactor(opened.loaded).text
    id_ = os.urandom(8).hex()
    mail = Mail(id_, session.id, "command line", "", message, wakes=True, sent_ms=now_ms())
    opened.store.mailbox.put(mail)
    queued = {"status": "queued", "notificationId": id_, "sessionKey": session.key}
    print_done(as_json, queued, f"{_call(session)} reads it in its next turn")


@click.command()
@_ID
@click.argument("name", metavar="NAME")
@json_option
@_with_store
def rename(opened: _Opened, which: str, name: str, as_json: bool) -> None:
    """Rename a session to NAME, a word without spaces."""
    refuse_commands("change what clawkit remembers")
    before = opened.find(which)
    with opened.store.hold(before.id):
        session = opened.store.rename(before.id, name)
    said = f"{session.id} is now called {session.name}"
    print_done(as_json, session_to_json(session), said)


@click.command()
@click.argument("which", metavar="ID...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@_with_store
def delete(opened: _Opened, which: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete sessions permanently. Sessions in use are not deleted.

    The exit code is 1 if one of them could not be deleted, and 2 if one does not exist; then none
    is deleted.
    """
    refuse_commands("change what clawkit remembers")
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
    said = [f"deleted {_call(each)}" for each in gone]
    said += [f"clawkit: {problem}" for problem in failed.values()]
    deleted = [each.id for each in gone]
    print_done(as_json, {"deleted": deleted, "failed": failed}, "\n".join(said))
    sys.exit(1 if failed else 0)


def _confirm(found: Sequence[Session]) -> None:
    """Raises if the person says no, or if there is no terminal to ask on."""
    if not can_ask():
        raise click.UsageError(
            "there is no terminal to confirm on; add --yes to delete without confirmation"
        )
    for session in found:
        title = one_line(session.title, _MAX_TITLE)
        said = f"{_call(session)}, {counted(session.turns, 'turn')}, {title!r}"
        click.echo(f"  {printable(said, '')}", err=True)
    what = "this session" if len(found) == 1 else f"these {len(found)} sessions"
    if not click.confirm(f"Delete {what} permanently?", err=True):
        raise ToolAuthorizationError("nothing was deleted", reason="person")


def _call(session: Session) -> str:
    return session.id if session.name == session.id else f"{session.id} ({session.name})"


@click.command()
@_ID
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "markdown"]),
    default="json",
    show_default=True,
    help="JSON for programs, Markdown for reading.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, which must not exist yet.")
@_with_store
def export(opened: _Opened, which: str, form: str, output: str | None) -> None:
    """Print a whole session, or write it to a file that only you can read."""
    session = opened.find(which)
    entries = opened.store.history(session.id, EVERYTHING)
    messages = [message_to_json(each) for each in entries]
    whole = {"version": 1, "session": session_to_json(session), "messages": messages}
    text = to_markdown(session, entries) if form == "markdown" else ""
    if output is None:
        print_text(text, nl=False) if text else print_json(whole)
        return
    if os.path.lexists(output):
        raise click.UsageError(f"{output!r} already exists; choose another file")
    data = text.encode("utf-8", "backslashreplace")
    if form == "json":
        data = msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"
    try:
        write_atomic(output, data)
    except OSError as error:
        raise click.UsageError(f"{output!r} cannot be written: {error.strerror}") from None
    click.echo(printable(f"Wrote {output}"), err=True)


@click.command()
@json_option
@config_option
def path(as_json: bool, config_file: str | None) -> None:
    """Print where sessions are stored."""
    with open_store(config_file) as opened:
        warn(map(str, opened.loaded.warnings))
        print_location(as_json, "path", opened.store.path, "the first session")

"""`clawkit sessions`: saved conversations, and transcripts as text, JSON and Markdown."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple

import click
import msgspec

from clawkit import content
from clawkit.call_summary import summarize_params
from clawkit.cli import shared_options as cli
from clawkit.cli.gateway_commands import retry_released
from clawkit.config.load import Loaded, load
from clawkit.config.paths import abbreviate_home
from clawkit.errors import ClawkitError, NotFoundError
from clawkit.sessions.keys import resolve
from clawkit.sessions.protocols import Session, StoredMessage, Visible, locate_store
from clawkit.sessions.store import MAX_MESSAGE, Mail, SessionStore
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.store import write_atomic
from clawkit.terminal_text import truncate
from clawkit.text import human_size, human_time, one_line, printable

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
            hint = "" if str(error).endswith("?") else ". `clawkit sessions list` lists them"
            raise NotFoundError(f"{error}{hint}") from None


@contextmanager
def open_store(config_file: str | None, agent: str | None = None) -> Iterator[_Opened]:
    loaded = load(config_file)
    store = SessionStore(locate_store(loaded.config.session.store, os.environ))
    try:
        # One that is no longer configured may still have sessions.
        if not (agent and agent in store.agents()):
            agent = loaded.config.agents.find(agent)
        yield _Opened(loaded, agent, store)
    finally:
        store.close()


def _with_store(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--agent` and `--config` to a command, and pass it the opened store instead."""

    @click.option("--agent", help="Agent whose sessions to use. Default: the default agent.")
    @cli.config_option
    @wraps(command)
    def run(config_file: str | None, agent: str | None, **options: Any) -> None:
        if agent and options.get("all_agents"):
            raise click.UsageError("--agent and --all-agents cannot be combined")
        with open_store(config_file, agent) as opened:
            cli.warn(map(str, opened.loaded.warnings))
            command(opened, **options)

    return run


@click.command("list")
@click.option("--all-agents", is_flag=True, help="Sessions of every agent.")
@click.option("--here", is_flag=True, help="Only sessions of this directory.")
@cli.limit_option(20, "Maximum number.")
@cli.json_option
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
        cli.print_json({"sessions": [session_to_json(each) for each in found], "more": more})
        return
    if not found:
        whose = "No agent" if all_agents else f"The agent {opened.agent!r}"
        where = f" in {place}" if place else ""
        click.echo(printable(f"{whose} has no session{where} yet."))
        return
    rows = [_cells(each, all_agents=all_agents, here=here) for each in found]
    cli.print_table(_HEAD, rows, min_last=_MIN_TITLE)
    cli.tell_more(more, limit)


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
@cli.limit_option(20, "Maximum number of top-level sessions.")
@cli.json_option
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
    more = not which and len(top) > limit
    if as_json:
        cli.print_json({"sessions": [_branch_to_json(each, below) for each in roots], "more": more})
        return
    if not roots:
        click.echo(printable(f"The agent {opened.agent!r} has no session yet."))
        return
    rows = [row for root in roots for row in _branch(root, below, "", "")]
    cli.print_table(("NAME", "ID", "USED", "TURNS", "COST", "TITLE"), rows, min_last=_MIN_TITLE)
    cli.tell_more(more, limit)


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
@cli.limit_option(10, "Maximum number of messages.")
@cli.json_option
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
        cli.print_json({"results": results, "more": found.more})
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
    cli.tell_more(found.more, limit)


@click.command()
@_ID
@cli.limit_option(30, "Maximum number of messages.")
@click.option("--all", "everything", is_flag=True, help="All messages from the beginning.")
@cli.json_option
@_with_store
def show(opened: _Opened, which: str, limit: int, everything: bool, as_json: bool) -> None:
    """Show the messages and tool calls of a session.

    Long results are truncated; `clawkit sessions export` prints everything.
    """
    session = opened.find(which)
    entries = opened.store.history(session.id, EVERYTHING if everything else limit)
    if as_json:
        messages = [message_to_json(each) for each in entries]
        cli.print_json({"session": session_to_json(session), "messages": messages})
    else:
        print_transcript(session, entries)


@click.command()
@_ID
@click.argument("message", metavar="MESSAGE")
@cli.json_option
@_with_store
def send(opened: _Opened, which: str, message: str, as_json: bool) -> None:
    """Leave MESSAGE for a session; its model reads it in its next turn.

    If the session is in use, it is read when the current turn ends. To start a turn instead, use
    `clawkit agent --session ID -m MESSAGE`.
    """
    cli.refuse_commands("send messages to sessions")
    session = opened.find(which)
    if not message.strip() or len(message) > MAX_MESSAGE:
        raise click.UsageError(f"the message must have 1 to {MAX_MESSAGE} characters")
    from clawkit.runtime import make_redactor

    opened.store.redact = make_redactor(opened.loaded).text
    id_ = os.urandom(8).hex()
    mail = Mail(id_, session.id, "command line", "", message, wakes=True, sent_ms=now_ms())
    opened.store.mailbox.put(mail)
    queued = {"status": "queued", "notificationId": id_, "sessionKey": session.key}
    cli.print_done(as_json, queued, f"{_call(session)} reads it in its next turn")


@click.command()
@_ID
@click.argument("name", metavar="NAME")
@cli.json_option
@_with_store
def rename(opened: _Opened, which: str, name: str, as_json: bool) -> None:
    """Rename a session to NAME, a word without spaces."""
    cli.refuse_commands("change what clawkit remembers")
    before = opened.find(which)

    def change() -> Session:
        with opened.store.hold(before.id):
            return opened.store.rename(before.id, name)

    session = retry_released(change, before.id)
    said = f"{session.id} is now called {session.name}"
    cli.print_done(as_json, session_to_json(session), said)


@click.command()
@click.argument("which", metavar="ID...", nargs=-1, required=True)
@cli.yes_option()
@cli.json_option
@_with_store
def delete(opened: _Opened, which: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete sessions permanently. Sessions in use are not deleted.

    The exit code is 1 if one of them could not be deleted, and 2 if one does not exist; then none
    is deleted.
    """
    cli.refuse_commands("change what clawkit remembers")
    found = list({each.id: each for each in map(opened.find, which)}.values())
    if not yes:
        what = "this session" if len(found) == 1 else f"these {len(found)} sessions"
        cli.confirm(f"Delete {what} permanently?", "nothing was deleted", map(_describe, found))
    failed: dict[str, str] = {}
    for session in found:
        try:
            retry_released(partial(opened.store.delete, session.id), session.id)
        except ClawkitError as error:
            failed[session.id] = str(error)
    gone = [each for each in found if each.id not in failed]
    said = [f"deleted {_call(each)}" for each in gone]
    said += [f"clawkit: {problem}" for problem in failed.values()]
    deleted = [each.id for each in gone]
    cli.print_done(as_json, {"deleted": deleted, "failed": failed}, "\n".join(said))
    sys.exit(1 if failed else 0)


def _describe(session: Session) -> str:
    title = one_line(session.title, _MAX_TITLE)
    return f"{_call(session)}, {cli.counted(session.turns, 'turn')}, {title!r}"


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
        cli.print_text(text, nl=False) if text else cli.print_json(whole)
        return
    if os.path.lexists(output):
        raise click.UsageError(f"{output!r} already exists; choose another file")
    data = text.encode("utf-8", "backslashreplace")
    if form == "json":
        data = msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"
    try:
        write_atomic(output, data)
    except OSError as error:
        raise click.UsageError(f"cannot write {output!r}: {error.strerror}") from None
    click.echo(printable(f"Wrote {output}"), err=True)


@click.command()
@cli.json_option
@cli.config_option
def path(as_json: bool, config_file: str | None) -> None:
    """Print where sessions are stored."""
    with open_store(config_file) as opened:
        cli.warn(map(str, opened.loaded.warnings))
        cli.print_location(as_json, "path", opened.store.path, "the first session")


_WHOSE = {
    "": "you",
    "subagent": "sub-agents",
    "session": "another session",
    "gateway": "the gateway",
    "cron": "a scheduled job",
    "hook": "a web request",
}
MAX_RESULT_LINES = 8
MAX_LINE = 400
_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_NO_USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0.0}
_FENCE = re.compile(r"^[ \t]*(`{3,})", re.M)


Part = content.Message | content.Text | content.Thinking | content.ToolCall
"""A message, or a part of an answer."""


def session_to_json(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "key": session.key,
        "name": session.name,
        "agent": session.agent,
        "title": session.title,
        "workspace": session.workspace,
        "model": session.model or None,
        "modelOverride": session.model_override or None,
        "thinking": session.thinking or None,
        "createdAt": session.created_ms,
        "updatedAt": session.updated_ms,
        "turns": session.turns,
        "usage": {**_NO_USAGE, **msgspec.to_builtins(session.usage)},
        "contextTokens": session.context_tokens,
        "parent": session.parent or None,
        "label": session.label or None,
        "archivedAt": session.archived_ms or None,
    }


def message_to_json(entry: StoredMessage) -> dict[str, Any]:
    """A message as it is stored, without unset fields, and its number."""
    return {"number": entry.number, **msgspec.to_builtins(entry.message)}


def print_transcript(session: Session, entries: Sequence[StoredMessage]) -> None:
    """Print the messages for people: long ones truncated, unprintable characters escaped."""
    for line in _head(session):
        click.echo(printable(line, ""))
    if left_out := entries[0].number - 1 if entries else 0:
        click.secho(f"… {left_out} earlier messages; --all shows them", fg="bright_black")
    for entry in entries:
        _print(entry.message)


def _head(session: Session) -> Iterator[str]:
    name = f" ({session.name})" if session.name != session.id else ""
    yield f"{session.id}{name}: {session.title or 'no title'}"
    usage = session.usage
    tokens = cli.count_tokens(usage.input + usage.cache_read + usage.cache_write)
    facts = [
        f"agent {session.agent}",
        session.model_override or session.model,
        cli.counted(session.turns, "turn"),
        f"{tokens} tokens in, {cli.count_tokens(usage.output)} out",
        cost(session),
    ]
    yield " · ".join(filter(None, facts))
    yield f"{session.workspace} · {time_of(session.created_ms)} to {time_of(session.updated_ms)}"


def time_of(ms: int) -> str:
    """Local time; empty if it is unknown."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000)) if ms > 0 else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _print(item: Part) -> None:
    match item:
        case content.User(source=source):
            _print_name(_WHOSE[source.kind if source else ""], "cyan", item.at_ms)
            _print_text(_plain(item.content), "  ")
        case content.Assistant():
            _print_name(item.model or "model", "green", item.at_ms)
            for part in item.content:
                _print(part)
            if item.error:
                click.secho(f"  {printable(one_line(item.error, MAX_LINE), '')}", fg="red")
            elif item.stop not in ("stop", "tool_calls"):
                click.secho(f"  [the answer stopped: {item.stop}]", fg="yellow")
        case content.ToolResult():
            word = "failed" if item.is_error else "result"
            click.secho(f"  ← {printable(item.tool, '')} {word}", fg="bright_black")
            _print_text(_plain(item.content), "    ", MAX_RESULT_LINES)
        case content.Summary():
            _print_name("summary of earlier messages", "magenta", item.at_ms)
            _print_text(item.text, "  ")
        case content.Text():
            _print_text(item.text, "  ")
        case content.Thinking():
            words = item.text or "not shown by the provider"
            click.secho(f"  [thinking: {printable(one_line(words, 200), '')}]", fg="bright_black")
        case content.ToolCall():
            text = f"  → {item.name} {summarize_params(item.arguments, 120)}".rstrip()
            click.secho(printable(text, ""), fg="yellow")


def _print_name(name: str, colour: str, at_ms: int) -> None:
    when = f"  {click.style(time_of(at_ms), fg='bright_black')}" if at_ms else ""
    click.echo(f"\n{click.style(printable(one_line(name, 80), ''), fg=colour, bold=True)}{when}")


def _print_text(text: str, indent: str, max_lines: int | None = None) -> None:
    lines = text.strip("\n").split("\n") if text.strip() else []
    for line in lines[:max_lines]:
        long = max_lines is not None and len(line) > MAX_LINE
        click.echo(indent + printable(f"{line[:MAX_LINE]}…" if long else line, "\t"))
    if max_lines is not None and len(lines) > max_lines:
        click.secho(f"{indent}… {len(lines) - max_lines} more lines", fg="bright_black")


def _plain(blocks: Sequence[content.Block]) -> str:
    return "\n".join(
        block.text
        if isinstance(block, content.Text)
        else f"[image: {one_line(block.mime_type, 40)}, {human_size(len(block.data) * 3 // 4)}]"
        for block in blocks
    )


def to_markdown(session: Session, entries: Sequence[StoredMessage]) -> str:
    """The whole session as Markdown; of images, only type and size."""
    title = one_line(session.title, 200) or session.id
    facts = [f"- {line}" for line in list(_head(session))[1:]]
    parts = [f"# {title}", "\n".join([f"- session {session.key} ({session.id})", *facts])]
    for entry in entries:
        parts += _markdown(entry.message)
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _markdown(item: Part) -> Iterator[str]:
    match item:
        case content.User(source=source):
            whose = _WHOSE[source.kind if source else ""].capitalize()
            yield f"## {whose} {time_of(item.at_ms)}".rstrip()
            yield _contain_markdown(_plain(item.content))
        case content.Assistant():
            yield f"## {one_line(item.model, 80) or 'Model'} {time_of(item.at_ms)}".rstrip()
            for part in item.content:
                yield from _markdown(part)
            if item.error:
                yield f"**Failed:** {one_line(item.error, MAX_LINE)}"
        case content.ToolResult():
            word = "failed" if item.is_error else "returned"
            yield f"`{one_line(item.tool, 80)}` {word}"
            yield _fenced(_plain(item.content), "text")
        case content.Summary():
            yield "## Summary of earlier messages"
            yield _contain_markdown(item.text)
        case content.Text():
            yield _contain_markdown(item.text)
        case content.Thinking() if item.text:
            yield "\n".join(f"> {line}" for line in item.text.strip().split("\n"))
        case content.ToolCall(arguments=given):
            text = given if isinstance(given, str) else json.dumps(given, indent=2, default=str)
            yield f"Calls `{one_line(item.name, 80)}`"
            yield _fenced(text, "json")


def _contain_markdown(text: str) -> str:
    """Escape the headings in a message and close its last code block, so that it cannot imitate
    the headings of the page, which say who wrote what."""
    rows: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _OPENING.match(line)
        if fence:
            closes = mark and mark[1].startswith(fence) and not mark[2].strip()
            fence = "" if closes else fence
        elif mark:
            fence = mark[1]
        elif _HEADING.match(line) or (rows and rows[-1].strip() and _UNDERLINE.match(line)):
            line = "\\".join((line[: len(line) - len(line.lstrip())], line.lstrip()))
        rows.append(line)
    return "\n".join([*rows, fence] if fence else rows)


def _fenced(text: str, language: str) -> str:
    """A code block with a fence that nothing in the text can close."""
    longest = max((len(found[1]) for found in _FENCE.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


def cost(session: Session) -> str:
    return f"${session.usage.cost:.2f}" if session.usage.cost >= 0.005 else ""

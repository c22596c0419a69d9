"""Sessions as text, JSON and Markdown."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from clawkit.call_summary import summarize_params
from clawkit.cli.options import count_tokens, counted
from clawkit.content import (
    Assistant,
    Block,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from clawkit.sessions.protocols import Entry, Session
from clawkit.text import human_size, one_line, printable

_WHOSE = {"": "you", "subagent": "sub-agents", "session": "another session"}
MAX_RESULT_LINES = 8
MAX_LINE = 400
_OPENING = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_NO_USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0.0}
_FENCE = re.compile(r"^[ \t]*(`{3,})", re.M)


def session_to_json(session: Session) -> dict[str, Any]:
    """A session as JSON, without its messages."""
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


def message_to_json(entry: Entry) -> dict[str, Any]:
    """A message as it is stored, without unset fields, and its number."""
    stored: dict[str, Any] = msgspec.to_builtins(entry.message)
    return {"number": entry.number, **stored}


def print_transcript(session: Session, entries: Sequence[Entry]) -> None:
    """Print the messages for people: long ones truncated, unprintable characters escaped."""
    for line in _head(session):
        click.echo(printable(line, ""))
    if left_out := entries[0].number - 1 if entries else 0:
        click.secho(f"… {left_out} earlier messages; --all shows them", fg="bright_black")
    for entry in entries:
        _print_message(entry.message)


def _head(session: Session) -> Iterator[str]:
    name = f" ({session.name})" if session.name != session.id else ""
    yield f"{session.id}{name}: {session.title or 'no title'}"
    usage = session.usage
    tokens = count_tokens(usage.input + usage.cache_read + usage.cache_write)
    facts = [
        f"agent {session.agent}",
        session.model_override or session.model,
        counted(session.turns, "turn"),
        f"{tokens} tokens in, {count_tokens(usage.output)} out",
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


def _print_message(message: Message) -> None:
    match message:
        case User():
            _print_name(
                _WHOSE[message.source.kind if message.source else ""], "cyan", message.at_ms
            )
            _print_text(_plain(message.content), "  ")
        case Assistant():
            _print_name(message.model or "model", "green", message.at_ms)
            for part in message.content:
                _print_part(part)
            if message.error:
                click.secho(f"  {printable(one_line(message.error, MAX_LINE), '')}", fg="red")
            elif message.stop not in ("stop", "tool_calls"):
                click.secho(f"  [the answer stopped: {message.stop}]", fg="yellow")
        case ToolResult():
            word = "failed" if message.is_error else "result"
            click.secho(f"  ← {printable(message.tool, '')} {word}", fg="bright_black")
            _print_text(_plain(message.content), "    ", MAX_RESULT_LINES)
        case Summary():
            _print_name("summary of earlier messages", "magenta", message.at_ms)
            _print_text(message.text, "  ")


def _print_name(name: str, colour: str, at_ms: int) -> None:
    when = f"  {click.style(time_of(at_ms), fg='bright_black')}" if at_ms else ""
    click.echo(f"\n{click.style(printable(one_line(name, 80), ''), fg=colour, bold=True)}{when}")


def _print_part(part: Text | Thinking | ToolCall) -> None:
    match part:
        case Text():
            _print_text(part.text, "  ")
        case Thinking():
            words = part.text or "not shown by the provider"
            click.secho(f"  [thinking: {printable(one_line(words, 200), '')}]", fg="bright_black")
        case ToolCall():
            text = f"  → {part.name} {summarize_params(part.arguments, 120)}".rstrip()
            click.secho(printable(text, ""), fg="yellow")


def _print_text(text: str, indent: str, max_lines: int | None = None) -> None:
    lines = text.strip("\n").split("\n") if text.strip() else []
    for line in lines[:max_lines]:
        long = max_lines is not None and len(line) > MAX_LINE
        click.echo(indent + printable(f"{line[:MAX_LINE]}…" if long else line, "\t"))
    if max_lines is not None and len(lines) > max_lines:
        click.secho(f"{indent}… {len(lines) - max_lines} more lines", fg="bright_black")


def _plain(content: Sequence[Block]) -> str:
    return "\n".join(
        block.text
        if isinstance(block, Text)
        else f"[image: {one_line(block.mime_type, 40)}, {human_size(len(block.data) * 3 // 4)}]"
        for block in content
    )


def to_markdown(session: Session, entries: Sequence[Entry]) -> str:
    """The whole session as Markdown; of images, only type and size."""
    title = one_line(session.title, 200) or session.id
    facts = [f"- {line}" for line in list(_head(session))[1:]]
    parts = [f"# {title}", "\n".join([f"- session {session.key} ({session.id})", *facts])]
    for entry in entries:
        parts += _message_to_markdown(entry.message)
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _message_to_markdown(message: Message) -> Iterator[str]:
    match message:
        case User():
            whose = _WHOSE[message.source.kind if message.source else ""].capitalize()
            yield f"## {whose} {time_of(message.at_ms)}".rstrip()
            yield _contain_markdown(_plain(message.content))
        case Assistant():
            yield f"## {one_line(message.model, 80) or 'Model'} {time_of(message.at_ms)}".rstrip()
            for part in message.content:
                yield from _part_to_markdown(part)
            if message.error:
                yield f"**Failed:** {one_line(message.error, MAX_LINE)}"
        case ToolResult():
            word = "failed" if message.is_error else "returned"
            yield f"`{one_line(message.tool, 80)}` {word}"
            yield _fenced(_plain(message.content), "text")
        case Summary():
            yield "## Summary of earlier messages"
            yield _contain_markdown(message.text)


def _part_to_markdown(part: Text | Thinking | ToolCall) -> Iterator[str]:
    match part:
        case Text():
            yield _contain_markdown(part.text)
        case Thinking():
            if part.text:
                yield "\n".join(f"> {line}" for line in part.text.strip().split("\n"))
        case ToolCall():
            given = part.arguments
            text = given if isinstance(given, str) else json.dumps(given, indent=2, default=str)
            yield f"Calls `{one_line(part.name, 80)}`"
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

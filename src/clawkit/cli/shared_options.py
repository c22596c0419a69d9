"""Options that commands share, and helpers for their input and output."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from clawkit.cli.console import can_ask as can_ask
from clawkit.cli.console import cancelled_by_signals as cancelled_by_signals
from clawkit.cli.console import is_command as is_command
from clawkit.cli.console import is_terminal as is_terminal
from clawkit.cli.console import origin_of as origin_of
from clawkit.cli.console import print_text as print_text
from clawkit.cli.console import tell_ending as tell_ending
from clawkit.cli.console import warn as warn
from clawkit.cli.console import workspace_warning as workspace_warning
from clawkit.errors import ClawkitError, ToolAuthorizationError
from clawkit.terminal_text import text_width, truncate, wrap
from clawkit.text import nearest, printable

if TYPE_CHECKING:
    from clawkit.config.load import Loaded
    from clawkit.core.context import Scope

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file. Default: CLAWKIT_CONFIG, else clawkit.json5 in ~/.clawkit.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def completed_from(
    words: Callable[[], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """For `shell_complete`: the words that start with the typed text."""
    return lambda _context, _parameter, typed: [each for each in words() if each.startswith(typed)]


def _known_models() -> Iterator[str]:
    from clawkit.config.load import load
    from clawkit.models.known import PROVIDERS

    with suppress(ClawkitError, OSError):
        for name, settings in load(None).config.models.providers.items():
            yield from (f"{name}/{model.id}" for model in settings.models)
    for provider in PROVIDERS.values():
        yield from (f"{provider.id}/{row.id}" for row in provider.models)


complete_model = completed_from(_known_models)
workspace_option = click.option(
    "--workspace", metavar="DIR", help="Workspace. Default: as configured, else this directory."
)
_MODEL = click.option(
    "--model",
    metavar="PROVIDER/ID",
    help="Model whose settings apply. Default: the agent's.",
    shell_complete=complete_model,
)
_SCOPE = (
    config_option,
    workspace_option,
    click.option("--agent", help="Agent to use. Default: by bindings, else the default one."),
    _MODEL,
    click.option("--channel", default="", help="Channel the message came through."),
    click.option("--account", default="", help="Account of the channel that received it."),
    click.option("--group", default="", help="Group chat the message came from."),
    click.option("--space", default="", help="Server or team that the group belongs to."),
    click.option("--sender", default="", help="Id of the sender."),
    click.option("--role", "roles", multiple=True, help="Role of the sender; can be repeated."),
    click.option(
        "--owner/--no-owner", default=True, help="Whether the sender is the owner. Default: owner."
    ),
    click.option(
        "--sandboxed/--no-sandboxed",
        default=None,
        help="Whether the session is sandboxed. Default: as configured.",
    ),
    click.option(
        "--depth",
        type=click.IntRange(0, 32),
        default=0,
        show_default=True,
        help="0 for a main session, 1 for a sub-agent, and so on.",
    ),
)

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
_CONVERSATION = (
    click.option("--local", is_flag=True, help="Work without the gateway, even if one is running."),
    click.option("--image", "images", metavar="FILE", multiple=True, help="Attach an image."),
    click.option(
        "--session", metavar="ID", help="Resume a session by id or name, or start one by name."
    ),
    click.option("--continue", "go_on", is_flag=True, help="Resume this directory's last session."),
    click.option("--no-session", is_flag=True, help="Do not save the session."),
    click.option("--thinking", type=click.Choice(THINKING), help="How much the model may think."),
    click.option(
        "--max-turns", type=click.IntRange(1), metavar="N", help="Maximum number of model answers."
    ),
    click.option(
        "--max-cost",
        type=click.FloatRange(0, min_open=True),
        metavar="DOLLARS",
        help="Maximum cost of the session.",
    ),
)
_USE_MODEL = click.option(
    "--model",
    metavar="MODEL",
    help="Model to use: provider/model, a model id or an alias. Default: the agent's.",
    shell_complete=complete_model,
)


class ResolvedOptions(NamedTuple):
    """The values of the shared options, resolved."""

    loaded: Loaded
    scope: Scope
    workspace: str | None
    chosen_by: str = ""
    """The binding that chose the agent; empty when none did."""


# For commands that print only JSON, so that programs can pass --json to every command.
always_json = click.option("--json", is_flag=True, expose_value=False, help="Always on.")


def change_options(command: F) -> F:
    """The options of every command that changes the configuration."""
    about = "Show and check the change without writing it."
    return click.option("--dry-run", is_flag=True, help=about)(json_option(config_option(command)))


def scope_options(command: F, options: Sequence[Callable[[F], F]] = _SCOPE) -> F:
    """`--config`, `--workspace` and all options that policy depends on."""
    return reduce(lambda made, option: option(made), reversed(options), command)


def conversation_options(command: F) -> F:
    """The options of every command that talks to a model, except the message."""
    scope = (_USE_MODEL if each is _MODEL else each for each in _SCOPE)
    return scope_options(command, (*_CONVERSATION, *scope))


def limit_option(default: int, help_text: str) -> Callable[[F], F]:
    kind = click.IntRange(1)
    options: Any = {"type": kind, "default": default, "show_default": True, "help": help_text}
    return click.option("-n", "--limit", **options)


def tell_more(more: bool, limit: int) -> None:
    """If there is more than the limit of `limit_option`, print how to see it."""
    if more:
        click.echo(f"There are more; -n {limit * 5} shows up to {limit * 5}.")


def timeout_option(help_text: str, most_s: float = 3_600) -> Callable[[F], F]:
    kind = click.FloatRange(0.1, most_s)
    return click.option(
        "--timeout", "timeout_s", type=kind, default=30.0, show_default=True, help=help_text
    )


def read_settings(options: dict[str, Any], session: str = "main") -> ResolvedOptions:
    """Load the configuration and build the scope from the values of `scope_options`."""
    from clawkit.agent.model import context_window_of, default_model
    from clawkit.bundled import search_services
    from clawkit.config.load import load
    from clawkit.config.modelref import parse_ref
    from clawkit.core.context import Scope
    from clawkit.policy.selectors import choose_agent

    loaded, origin = load(options["config_file"]), origin_of(options)
    chosen = choose_agent(loaded.config, options["agent"], origin)
    agent = chosen.agent
    if options["workspace"] is not None:
        from clawkit.runtime import resolve_workspace

        resolve_workspace(loaded.config, agent, options["workspace"])
    try:
        named = parse_ref(options["model"]) if options["model"] else None
    except ValueError as error:
        raise click.UsageError(f"--model: {error}") from None
    model = named or default_model(loaded.config, agent)
    sandboxed = options["sandboxed"]
    if sandboxed is None:
        sandboxed = loaded.config.agents.sandbox_of(agent).covers(session)
    scope = Scope(
        agent=agent,
        session=session,
        model=model,
        context_window=context_window_of(loaded.config, model),
        channel=origin.channel,
        account=origin.account,
        group=origin.group,
        sender=origin.sender,
        sandboxed=sandboxed,
        depth=options["depth"],
        search=search_services(loaded),
    )
    return ResolvedOptions(loaded, scope, options["workspace"], chosen.by)


def print_json(value: Any) -> None:
    """Print one JSON value, indented; on a terminal, with unprintable characters escaped."""
    _print_json(value, indent=2)


def print_json_line(value: Any) -> None:
    """Like `print_json`, on one line."""
    _print_json(value, indent=None)


def _print_json(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    plain = text.replace("\n", "").isprintable() or not is_terminal(sys.stdout)
    click.echo(text if plain else json.dumps(value, indent=indent))


def print_done(as_json: bool, data: Any, message: str) -> None:
    """Print what a command did: as JSON, or as a sentence on standard error."""
    if as_json:
        print_json(data)
    else:
        click.echo(printable(message), err=True)


def print_location(as_json: bool, name: str, path: str, creator: str) -> None:
    """Print the location of a file; `creator` is the command that creates it if missing."""
    exists = os.path.lexists(path)
    if as_json:
        print_json({name: path, "exists": exists})
        return
    click.echo(path)
    if not exists:
        click.echo(f"It does not exist yet; {creator} creates it.", err=True)


def read_input(file: str, max_bytes: int) -> bytes:
    """Read a file, or standard input for `-`; input that is too long has one byte more than
    `max_bytes`. Raises `ClawkitError`."""
    try:
        if file == "-":
            return sys.stdin.buffer.read(max_bytes + 1) if sys.stdin is not None else b""
        with open(file, "rb") as stream:
            return stream.read(max_bytes + 1)
    except OSError as error:
        raise ClawkitError(f"cannot read {file!r}: {error.strerror}") from None


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or the empty string."""
    close = nearest(name, known)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def yes_option(*more: str) -> Callable[[F], F]:
    """`--yes`, for commands that `confirm`, and other spellings of it."""
    about = "Do not ask for confirmation."
    return click.option("-y", "--yes", "yes", *more, is_flag=True, help=about)


def confirm(question: str, refused: str, details: Iterable[str] = ()) -> None:
    """Ask a person, and raise unless the answer is yes; `details` are listed before that."""
    width = os.get_terminal_size(sys.stderr.fileno()).columns if can_ask() else 0
    for line in details:
        # Wrapped here: rows without the prefix could pass for ours.
        for row in wrap(printable(line, ""), width or 10_000, "  ", marks=1):
            click.echo(row, err=True)
    if not can_ask():
        raise click.UsageError(f"there is no terminal to confirm on, so {refused}; add --yes")
    # asyncio's handler would not interrupt the question.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        is_yes = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # ends the line of the question
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
    if not is_yes:
        raise ToolAuthorizationError(refused, reason="person")


def counted(number: int, what: str, ending: str = "s") -> str:
    """`1 model`, `2 models`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}{ending}"


def count_tokens(tokens: int) -> str:
    """A number of tokens for people: `800`, `200k`, `1.5M`."""
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_500:
        return f"{tokens / 1_000:.0f}k"
    return f"{tokens / 1_000_000:.1f}".removesuffix(".0") + "M"


def refuse_commands(what: str = "change what clawkit allows") -> None:
    """Raise if an agent's command runs this: it must not answer for a person."""
    if is_command():
        raise ToolAuthorizationError(
            f"a command that clawkit runs cannot {what}; a person must type this in their own "
            "terminal",
            reason="approval",
        )


def columns() -> int | None:
    """Width of the terminal on standard output; None if it is not a terminal."""
    if not is_terminal(sys.stdout):
        return None
    from shutil import get_terminal_size  # imports every archive format

    return get_terminal_size().columns


def widths_of(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(text_width, cells)) for cells in zip(*lines, strict=True)]


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, min_last: int | None = None
) -> None:
    """Print a table with a header; columns that are empty in every row are left out.

    With `min_last`, the last column is truncated to fit the terminal, but not below that width.
    """
    kept = [at for at in range(len(head)) if any(row[at] for row in rows)]
    lines = [[line[at] for at in kept] for line in (head, *rows)]
    widths = widths_of(lines)
    if min_last is not None and (room := columns()) is not None:
        widths[-1] = max(room - sum(width + 2 for width in widths[:-1]), min_last)
        lines = [[*line[:-1], truncate(line[-1], widths[-1])] for line in lines]
    for number, line in enumerate(lines):
        cells = (
            cell + " " * (width - text_width(cell))
            for cell, width in zip(line, widths, strict=True)
        )
        text = "  ".join(cells).rstrip()
        click.echo(text if number else click.style(text, bold=True))

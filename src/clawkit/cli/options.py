"""Options that several commands share, and what is made of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO, TypeVar

import click

from clawkit.agent.model import context_window_of, default_model
from clawkit.config.load import Loaded, load
from clawkit.config.modelref import parse_ref
from clawkit.core.context import Scope, Sender
from clawkit.errors import (
    ClawkitError,
    ConflictError,
    ToolAuthorizationError,
    ToolInputError,
)
from clawkit.text import printable

F = TypeVar("F", bound=Callable[..., Any])

_CONFIG = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file. Default: CLAWKIT_CONFIG, else clawkit.json5 in ~/.clawkit.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
_SCOPE = (
    _CONFIG,
    click.option("--workspace", metavar="DIR", help="Directory to work in. Default: this one."),
    click.option("--agent", help="Agent whose settings apply. Default: the default one, or main."),
    click.option(
        "--model", metavar="PROVIDER/ID", help="Model whose settings apply. Default: the agent's."
    ),
    click.option("--channel", default="", help="Channel the message came through."),
    click.option("--group", default="", help="Group chat the message came from."),
    click.option("--sender", default="", help="Id of the sender."),
    click.option(
        "--owner/--no-owner", default=True, help="Act as the owner, or not. Default: owner."
    ),
    click.option("--sandboxed/--no-sandboxed", default=False, help="As in a sandbox, or not."),
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
    click.option("--image", "images", metavar="FILE", multiple=True, help="Send a picture, too."),
    click.option(
        "--session", metavar="ID", help="Go on with a conversation, or begin one by name."
    ),
    click.option(
        "--continue", "go_on", is_flag=True, help="Go on with the last one in this directory."
    ),
    click.option("--no-session", is_flag=True, help="Keep nothing of the conversation."),
    click.option("--thinking", type=click.Choice(THINKING), help="How long the model may think."),
    click.option(
        "--max-turns", type=click.IntRange(1), metavar="N", help="Most answers of the model."
    ),
    click.option(
        "--max-cost",
        type=click.FloatRange(0, min_open=True),
        metavar="DOLLARS",
        help="What the conversation may cost.",
    ),
)


class Settings(NamedTuple):
    """What the shared options amount to."""

    loaded: Loaded
    scope: Scope
    workspace: str | None


def config_option(command: F) -> F:
    """`--config`."""
    return _CONFIG(command)


def json_option(command: F) -> F:
    """`--json`."""
    return _JSON(command)


def always_json(command: F) -> F:
    """`--json` for commands that print nothing else, so that programs can always say it."""
    return click.option("--json", is_flag=True, expose_value=False, help="The default.")(command)


def scope_options(command: F) -> F:
    """`--config`, `--workspace` and everything policy looks at."""
    for option in reversed(_SCOPE):
        command = option(command)
    return command


def conversation_options(command: F) -> F:
    """What every command that talks with a model takes, but for the message."""
    command = scope_options(command)
    for option in reversed(_CONVERSATION):
        command = option(command)
    return command


def read_settings(options: dict[str, Any]) -> Settings:
    """The configuration and the scope that the options ask for."""
    loaded = load(options["config_file"])
    agent = loaded.config.agents.choose(options["agent"])
    model = _model(options["model"]) or default_model(loaded.config, agent)
    scope = Scope(
        agent=agent,
        model=model,
        context_window=context_window_of(loaded.config, model),
        channel=options["channel"],
        group=options["group"],
        sender=Sender(owner=options["owner"], id=options["sender"]),
        sandboxed=options["sandboxed"],
        depth=options["depth"],
    )
    return Settings(loaded, scope, options["workspace"])


def _model(text: str | None) -> Any:
    if not text:
        return None
    try:
        return parse_ref(text)
    except ValueError as error:
        raise click.UsageError(f"--model: {error}") from None


def print_json(value: Any) -> None:
    """One JSON value, indented, on standard output; on a terminal nothing in it can deceive."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    plain = text.replace("\n", "").isprintable() or not is_terminal(sys.stdout)
    click.echo(text if plain else json.dumps(value, indent=2))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at a stream; one that was closed before we began is none."""
    return stream is not None and stream.isatty()


def warn(messages: Any) -> None:
    """Remarks for the person, on standard error."""
    for message in messages:
        click.echo(f"{click.style('warning:', fg='yellow')} {printable(message)}", err=True)


@contextmanager
def wrong_usage() -> Iterator[None]:
    """What is named on the command line and is not there, or cannot be, has the exit code 2."""
    try:
        yield
    except (ConflictError, ToolAuthorizationError):
        raise
    except ToolInputError as error:
        raise ClawkitError(str(error)) from None


def is_command() -> bool:
    """Whether an agent runs this: whoever answers at its terminal is then no person."""
    from clawkit.process import tree

    return tree.is_below_keeper()


def refuse_commands(what: str = "change what clawkit allows") -> None:
    """What an agent runs may not answer for a person."""
    if is_command():
        raise ToolAuthorizationError(
            f"a command that clawkit runs cannot {what}; a person has to type this in a terminal "
            "of their own",
            reason="approval",
        )

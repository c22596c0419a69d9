"""`clawkit agent`: one turn for scripts; `clawkit chat` and `up`: a conversation."""

from __future__ import annotations

import os
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from clawkit.cli import options as cli
from clawkit.errors import ClawkitError, ToolError
from clawkit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from clawkit.agent.events import Tell, TurnEnded
    from clawkit.agent_session import Agent
    from clawkit.cli.turn_output import TurnOutput
    from clawkit.content import Block
    from clawkit.core.approval import Approver

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes."""
BLIND = (
    "does not accept images, so it is only told that there was one. If it does accept them, put "
    'input: ["text", "image"] into its entry under models.providers'
)


@click.command(context_settings={"allow_extra_args": True})
@click.option("-m", "--message", metavar="TEXT", help="The message; - reads standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--print-prompt", is_flag=True, help="Print the system prompt and exit.")
@cli.conversation_options
def agent(**options: Any) -> int:
    """Send an agent one message, let it work until it is done, and print its answer.

    The answer goes to standard output, progress to standard error. With --json every event is one
    line on standard output; the last one has `"type": "turn_end"`. Without a terminal, everything
    that needs an approval is refused.

    \b
    clawkit agent -m "Which tests are slow here?"
    git diff | clawkit agent -m - --session review
    clawkit agent -m "Fix the failing test" --json --max-turns 30
    """

    @cache
    def output() -> TurnOutput:
        from clawkit.cli.turn_output import JsonOutput, PlainOutput

        return JsonOutput() if options["as_json"] else PlainOutput()

    try:
        _refuse_more_words("quote the message after -m: clawkit agent -m", options["message"])
        if options["print_prompt"]:
            import asyncio

            return asyncio.run(_print_prompt(open_agent(options, output())))
        ended = _answer(options, _read_message(options["message"]), output)
    except KeyboardInterrupt:
        output().give_up("aborted")
        raise
    except (ClawkitError, click.ClickException, OSError) as error:
        output().give_up("error", getattr(error, "strerror", "") or str(error))
        raise
    output().finish(ended)
    return 0 if ended.how == "done" else 1


def _answer(options: dict[str, Any], said: str, output: Callable[[], TurnOutput]) -> TurnEnded:
    """Run the turn in the gateway if there is one, else here."""
    from clawkit.cli.gateway_turn import find_gateway

    beside = cache(lambda: _approver_beside_pipe(options))
    if (target := find_gateway(options)) is not None:
        from clawkit.cli.gateway_follow import run_turn

        ended = run_turn(target, options, said, output(), lambda: _approver(beside()))
        if ended is not None:
            return ended
    import asyncio

    opened = open_agent(options, output(), beside())
    return asyncio.run(_one_turn(opened, said, options["images"], output()))


def _refuse_more_words(what: str, message: str | None) -> None:
    """Raise if the message was given without its option, or without quotes."""
    if words := click.get_current_context().args:
        import shlex

        said = shlex.quote(one_line(" ".join(filter(None, (message, *words))), 60))
        raise click.UsageError(f"{what} {said}")


def _approver_beside_pipe(options: dict[str, Any]) -> Any:
    """An approver that asks at the terminal while the message comes from standard input."""
    is_piped = options["message"] == "-" and not cli.is_terminal(sys.stdin)
    if not is_piped or not cli.is_terminal(sys.stderr) or options["as_json"] or cli.is_command():
        return None
    from clawkit.cli.terminal import TerminalApprover, open_terminal

    fd = open_terminal()
    return None if fd is None else TerminalApprover(fd)


def _approver(approver: Approver | None) -> Approver | None:
    """The given approver, else one at this terminal; none for what an agent started."""
    if cli.is_command():
        return None
    if approver is None and cli.can_ask():
        from clawkit.cli.terminal import TerminalApprover

        return TerminalApprover()
    return approver


def open_agent(options: dict[str, Any], tell: Any, approver: Any = None) -> Agent:
    from msgspec.structs import asdict

    from clawkit.agent_session import Agent
    from clawkit.cli.gateway_commands import retry_released
    from clawkit.process.process_table import hide_memory

    hide_memory()
    approver = _approver(approver)
    if options["no_session"] and (options["session"] or options["go_on"]):
        raise click.UsageError("--no-session cannot be combined with --session or --continue")
    if options["go_on"] and options["session"]:
        raise click.UsageError("--continue and --session cannot be combined")
    session = _choose_session(options)
    same = ("workspace", "agent", "model", "thinking", "max_turns", "max_cost")
    try:
        with cli.wrong_usage():
            opening = partial(
                Agent.open,
                options["config_file"],
                **{name: options[name] for name in (*same, "sandboxed", "depth")},
                session=session,
                keep=not options["no_session"],
                **asdict(cli.origin_of(options)),
                approver=approver,
                tell=tell,
            )
            opened = retry_released(opening, session or "")
    except ToolError as error:
        if isinstance(error.__cause__, OSError):  # of the store of sessions
            how = "`clawkit doctor` says how to fix it; with --no-session nothing is saved"
            raise ToolError(f"{error}. {how}") from error
        raise
    cli.warn(filter(None, (*opened.warnings, cli.workspace_warning(opened.kit.workspace))))
    return opened


def _choose_session(options: dict[str, Any]) -> str | None:
    """The last session here, or the one that was typed: its id in full, where only the beginning
    was."""
    session: str | None = options["session"]
    if not session and not options["go_on"]:
        return None
    from clawkit.cli.sessions import open_store
    from clawkit.policy.selectors import choose_agent
    from clawkit.runtime import resolve_workspace

    with open_store(options["config_file"], options["agent"]) as opened:
        config = opened.loaded.config
        agent = choose_agent(config, options["agent"], cli.origin_of(options)).agent
        if session:
            known = opened.store.find(session, agent, is_short=True)
            return known.id if known else session
        place = resolve_workspace(config, agent, options["workspace"])
        found = opened.store.recent(agent, place, 1)
    if not found:
        raise click.UsageError(f"the agent {agent!r} has no session in {place} yet")
    return found[0].id


async def _print_prompt(opened: Agent) -> int:
    async with opened:
        cli.print_text(opened.prompt(), nl=False)
    return 0


async def _one_turn(
    opened: Agent, text: str, images: tuple[str, ...], watcher: TurnOutput
) -> TurnEnded:
    """Run the turn; stopped cleanly by Ctrl-C, SIGTERM, or if the output cannot be written."""
    import asyncio

    from clawkit.agent.events import Noticed, no_listener
    from clawkit.content import Text

    async with opened:
        with cli.wrong_usage():
            said: list[Block] = [Text(text), *[await opened.attach(path) for path in images]]
        model = opened.conversation.model
        if images and not model.facts.images:
            watcher(Noticed(f"{model.ref} {BLIND}", "warning"))
        if watcher.shows_subagents:
            opened.on_subagent_event = watcher
        task = asyncio.ensure_future(opened.work(said))
        watcher.stop = task.cancel
        with cli.cancelled_by_signals(task):
            try:
                return await task
            except asyncio.CancelledError:
                raise watcher.failed or KeyboardInterrupt from None
            finally:
                # The last event is the end of the turn, even if more is stopped after it.
                opened.on_subagent_event = no_listener
                cli.tell_ending(opened.kit.run)


def _read_message(text: str | None) -> str:
    if text is None:
        raise click.UsageError("a message is needed: -m TEXT, or -m - to read standard input")
    # Typed or piped text is UTF-8 regardless of the locale.
    data = cli.read_input("-", MAX_MESSAGE) if text == "-" else os.fsencode(text)
    if len(data) > MAX_MESSAGE:
        raise click.UsageError(f"the message is longer than {MAX_MESSAGE} bytes")
    if b"\0" in data:
        raise click.UsageError("standard input is not text; name the file in the message instead")
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("the message is empty")
    return text


@click.command(context_settings={"allow_extra_args": True})
@click.argument("message", required=False, default="")
@cli.conversation_options
def chat(message: str, **options: Any) -> int:
    """Chat with an agent: what you type goes to the model, which can use the tools in force.

    MESSAGE is the first message. While the agent works you can keep typing: Enter sends a message
    that it reads before its next answer, Esc interrupts it. `/help` lists the commands, Ctrl-D
    or `exit` quits.

    From a pipe every line is a message; the exit code is 1 if the last one failed.

    \b
    clawkit chat "What is in this folder?"
    clawkit chat --continue
    printf 'list src\\n/cost\\n' | clawkit chat
    """
    import asyncio

    from clawkit.cli.gateway_turn import find_gateway, open_chat

    _refuse_more_words("quote the message: clawkit chat", message)
    pictures = options.pop("images")
    target = find_gateway(options, ("max_turns", "max_cost"))
    doors = _Doors(options)
    has_cursor = (os.environ.get("TERM") or "dumb") not in ("dumb", "unknown")
    is_full = (
        has_cursor and cli.is_terminal(sys.stdin) and cli.is_terminal(sys.stdout) and has_tui()
    )
    hosted = open_chat(target, options, keyboard=is_full) if target is not None else None
    if is_full:
        from clawkit.ui.prompt import open_here, run_full

        opener = open_here(doors)
        if hosted is not None:
            from clawkit.cli.gateway_chat import GatewayChat

            opener = GatewayChat.opener(hosted[0], options, hosted[1])
        return asyncio.run(run_full(opener, message, pictures))
    from clawkit.cli.turn_output import PlainOutput
    from clawkit.ui.line_chat import LineChat, run_plain

    if hosted is not None:
        from clawkit.cli.gateway_lines import RemoteLines

        link, opened = hosted
        lines = partial(RemoteLines, link, options, opened, _approver(None))
        return asyncio.run(run_plain(lines, message, pictures))
    approver: Approver | None = None
    if cli.can_ask():
        from clawkit.cli.terminal import TerminalApprover

        approver = TerminalApprover()
        if not has_tui():
            click.echo("For the full terminal interface: pip install 'clawkit[tui]'", err=True)
    here = partial(LineChat, doors, PlainOutput(), approver)
    return asyncio.run(run_plain(here, message, pictures))


def has_tui() -> bool:
    """Whether the packages of the extra `tui` are installed."""
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("rich", "prompt_toolkit"))


class _Doors:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def open(self, tell: Tell, approver: Approver | None, **changes: Any) -> Agent:
        return open_agent({**self._options, **changes}, tell, approver)

    def ending(self, agent: Agent) -> None:
        cli.tell_ending(agent.kit.run)

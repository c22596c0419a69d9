"""One turn of `clawkit agent`, in the gateway or in this process; opens agents for commands.

Does not import click: see `start`.
"""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from clawkit.cli import console
from clawkit.cli.start import import_msgspec
from clawkit.errors import ClawkitError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clawkit.agent.events import TurnEnded
    from clawkit.agent_session import Agent
    from clawkit.cli.turn_output import TurnOutput
    from clawkit.content import Block
    from clawkit.core.approval import Approver


def run_agent(options: dict[str, Any], read_message: Callable[[], str]) -> int:
    """Send an agent the message, and print its answer; returns the exit code."""

    @cache
    def output() -> TurnOutput:
        import_msgspec()
        from clawkit.cli.turn_output import JsonOutput, PlainOutput

        return JsonOutput() if options["as_json"] else PlainOutput()

    try:
        said = read_message()
        if options["print_prompt"]:
            import asyncio

            return asyncio.run(_print_prompt(open_agent(options, output())))
        ended = _answer(options, said, output)
    except KeyboardInterrupt:
        output().give_up("aborted")
        raise
    except (ClawkitError, OSError) as error:
        output().give_up("error", getattr(error, "strerror", "") or str(error))
        raise
    output().finish(ended)
    return 0 if ended.how == "done" else 1


def _answer(options: dict[str, Any], message: str, output: Callable[[], TurnOutput]) -> TurnEnded:
    from clawkit.cli.gateway_turn import begin, find_gateway

    beside = cache(lambda: _approver_beside_pipe(options))
    target = find_gateway(options)
    # The gateway starts working while this process loads the rest.
    if target is not None and (started := begin(target, options, message)) is not None:
        try:
            shown = output()
            from clawkit.cli.gateway_follow import follow_turn

            ended = follow_turn(target, started, shown, lambda: choose_approver(beside()))
        except KeyboardInterrupt:
            started.abandon()
            raise
        if ended is not None:
            return ended
    import asyncio

    opened = open_agent(options, output(), beside())
    return asyncio.run(_one_turn(opened, message, options["images"], output()))


def _approver_beside_pipe(options: dict[str, Any]) -> Any:
    """An approver that asks at the terminal while the message comes from standard input."""
    is_piped = options["message"] == "-" and not console.is_terminal(sys.stdin)
    if (
        not is_piped
        or not console.is_terminal(sys.stderr)
        or options["as_json"]
        or console.is_command()
    ):
        return None
    from clawkit.cli.terminal_approver import TerminalApprover, open_terminal

    fd = open_terminal()
    return None if fd is None else TerminalApprover(fd)


def choose_approver(approver: Approver | None) -> Approver | None:
    """The given approver, else one at this terminal; None in an agent's command."""
    if console.is_command():
        return None
    if approver is None and console.can_ask():
        from clawkit.cli.terminal_approver import TerminalApprover

        return TerminalApprover()
    return approver


def open_agent(options: dict[str, Any], tell: Any, approver: Any = None) -> Agent:
    from msgspec.structs import asdict

    from clawkit.agent_session import Agent
    from clawkit.cli.gateway_commands import retry_released
    from clawkit.process.libc import hide_memory

    hide_memory()
    approver = choose_approver(approver)
    if options["no_session"] and (options["session"] or options["go_on"]):
        raise ClawkitError("--no-session cannot be combined with --session or --continue")
    if options["go_on"] and options["session"]:
        raise ClawkitError("--continue and --session cannot be combined")
    session = _choose_session(options)
    same = ("workspace", "agent", "model", "thinking", "max_turns", "max_cost")
    try:
        opening = partial(
            Agent.open,
            options["config_file"],
            **{name: options[name] for name in (*same, "sandboxed", "depth")},
            session=session,
            keep=not options["no_session"],
            **asdict(console.origin_of(options)),
            approver=approver,
            tell=tell,
        )
        opened = retry_released(opening, session or "")
    except ToolError as error:
        if isinstance(error.__cause__, OSError):  # from the session store
            how = "`clawkit doctor` says how to fix it; with --no-session nothing is saved"
            raise ToolError(f"{error}. {how}") from error
        raise
    console.warn(filter(None, (*opened.warnings, console.workspace_warning(opened.kit.workspace))))
    return opened


def _choose_session(options: dict[str, Any]) -> str | None:
    """The last session of this directory, or the given one; expands an id prefix. Warns about an
    agent that may be a typo."""
    session: str | None = options["session"]
    if not (session or options["go_on"] or options["agent"]):
        return None
    from clawkit.cli.sessions import open_store
    from clawkit.policy.selectors import choose_agent
    from clawkit.runtime import resolve_workspace

    with open_store(options["config_file"]) as opened:
        config = opened.loaded.config
        agent = choose_agent(config, options["agent"], console.origin_of(options)).agent
        console.warn(filter(None, [config.agents.doubt(agent, opened.store.agents())]))
        if session:
            known = opened.store.find(session, agent, is_short=True)
            return known.id if known else session
        if not options["go_on"]:
            return None
        place = resolve_workspace(config, agent, options["workspace"])
        found = opened.store.recent(agent, place, 1)
    if not found:
        raise ClawkitError(f"the agent {agent!r} has no session in {place} yet")
    return found[0].id


async def _print_prompt(opened: Agent) -> int:
    async with opened:
        console.print_text(opened.prompt(), nl=False)
    return 0


async def _one_turn(
    opened: Agent, text: str, images: tuple[str, ...], watcher: TurnOutput
) -> TurnEnded:
    """Run the turn; stopped cleanly by Ctrl-C, SIGTERM, or if the output cannot be written."""
    import asyncio

    from clawkit.agent.events import Notice, no_listener
    from clawkit.content import Text

    async with opened:
        said: list[Block] = [Text(text), *[await opened.attach(path) for path in images]]
        model = opened.conversation.model
        if images and not model.facts.images:
            from clawkit.cli.agent import BLIND

            watcher(Notice(f"{model.ref} {BLIND}", "warning"))
        if watcher.shows_subagents:
            opened.on_subagent_event = watcher
        task = asyncio.ensure_future(opened.work(said))
        watcher.stop = task.cancel
        with console.cancelled_by_signals(task):
            try:
                return await task
            except asyncio.CancelledError:
                raise watcher.failed or KeyboardInterrupt from None
            finally:
                # The last event is the end of the turn, even if more is stopped after it.
                opened.on_subagent_event = no_listener
                console.tell_ending(opened.kit.run)

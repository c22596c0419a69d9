"""Runs commands in the home of `gateway.remote`, and releases sessions that the local gateway has
open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from clawkit.errors import ClawkitError, ConflictError, ToolAuthorizationError
from clawkit.gateway.client import connect, find_for_command, read_as
from clawkit.gateway.home_commands import why_not_here
from clawkit.process.process_table import is_inside_command

T = TypeVar("T")


def run_remotely(argv: Sequence[str]) -> int | None:
    """Run a command in the home of the remote gateway; None if there is none. Raises
    `ClawkitError`."""
    target = find_for_command(None)
    if target is None or target.is_own:
        return None
    if is_inside_command():
        raise ToolAuthorizationError("a command that clawkit runs cannot use the gateway")
    if why := why_not_here(argv):
        far = f"gateway.mode is 'remote' ({target.url}), but {why}"
        raise ClawkitError(f"{far}. To run it on this machine, add --local")
    from clawkit.cli.gateway_answers import CommandDone
    from clawkit.cli.shared_options import print_text

    with connect(target) as link:
        found = read_as(CommandDone, link.call("clawkit.command", {"argv": list(argv)}, 90.0))
    print_text(found["stdout"], nl=False)
    print_text(found["stderr"], nl=False, err=True)
    code: int = found["code"]
    return code


def retry_released(work: Callable[[], T], session: str) -> T:
    """Run `work` on a session. If the gateway of this home has it open but idle, the gateway closes
    it first."""
    try:
        return work()
    except ConflictError:
        target = find_for_command(None)
        if target is None or not target.is_own or is_inside_command():
            raise
        from clawkit.cli.gateway_answers import ReleasedSession

        with connect(target) as link:
            answer = read_as(ReleasedSession, link.call("clawkit.release", {"id": session}))
            if not answer["released"]:
                raise
        return work()

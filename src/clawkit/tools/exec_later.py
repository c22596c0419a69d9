"""Commands that a person may allow after the call: asked for now, run when the answer comes."""

from __future__ import annotations

from typing import Protocol

from msgspec import structs

from clawkit.approvals.seam import Admitted, Gate, Request, Waiting
from clawkit.config.sections.exec import Exec
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.errors import ToolAuthorizationError, ToolError
from clawkit.process.base import Command
from clawkit.tools.exec_output import say_done, say_running


class Start(Protocol):
    """Starts the command once it may run."""

    async def __call__(
        self, ctx: Context, settings: Exec, admitted: Admitted, *, background: bool
    ) -> Command: ...


def run_later(
    waiting: Waiting, request: Request, start: Start, ctx: Context, settings: Exec
) -> Result:
    """Say that the command waits; what becomes of it is told as a notice."""
    gate, pending = ctx.use(Gate), waiting.pending
    gate.later(_follow(waiting, request, start, ctx, settings))
    text = (
        f"Approval required (id {pending.slug}): {waiting.reason}. The command has not run. It "
        "runs by itself as soon as a person allows it, and you will be told; do not send it again."
    )
    return Result.text(
        text,
        status="approval-pending",
        approvalId=pending.id,
        approvalSlug=pending.slug,
        expiresAtMs=pending.expires_ms,
        allowedDecisions=[
            "allow-once",
            *(["allow-always"] if pending.question.lasting else []),
            "deny",
        ],
        host=request.host,
        command=pending.question.command,
        cwd=request.cwd,
        warningText=waiting.reason,
        toAllow=waiting.to_allow,
    )


async def _follow(
    waiting: Waiting, request: Request, start: Start, ctx: Context, settings: Exec
) -> None:
    about = {"approvalId": waiting.pending.id, "approvalSlug": waiting.pending.slug}

    def notify(notice: Result) -> None:
        ctx.notify(Result(notice.content, {**notice.details, **about}))

    # Whoever was told to wait is told of every end, here and not by the command itself.
    quiet = structs.replace(settings, notify_on_exit=False)
    try:
        admitted = await ctx.use(Gate).settle(waiting, request)
        command = await start(ctx, quiet, admitted, background=True)
    except ToolAuthorizationError as error:
        said = f"Command {waiting.pending.slug} was not run: {error}"
        notify(Result.text(said, status="blocked", deniedReason=error.reason))
        return
    except ToolError as error:
        said = f"Command {waiting.pending.slug} was allowed but could not be run: {error}"
        notify(Result.error("exec", said))
        return
    said = f"Command {waiting.pending.slug} was allowed."
    notice_s = settings.approval_running_notice_ms / 1000
    if notice_s and await command.wait(notice_s) is None:
        notify(say_running(command, ctx, [said]))
    exit_ = await command.wait()
    if exit_ is not None and command.announce:
        command.announce = False
        notify(await say_done(command, exit_, ctx, [said]))

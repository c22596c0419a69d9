"""What a sub-agent gets with its task: attachments, a worktree, a working directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.config.model import Config
from clawkit.config.paths import attachments_dir, home
from clawkit.core.paths import is_below, plain_path, real_path
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.sessions.subagent_protocols import RunOutcome, SpawnRequest, SubagentRun, Worktree

if TYPE_CHECKING:
    from clawkit.agent.assemble import Assembly
    from clawkit.sessions.attachments import AttachedFile
    from clawkit.sessions.subagents import Spec

log = logging.getLogger(__name__)
_EFFECTS = ("allow", "ask", "deny")  # the strictest last
_FILES = "tools.sessions_spawn.attachments"


def check_files(request: SpawnRequest, config: Config, target: str) -> Sequence[AttachedFile]:
    """Validate attachments. Raises `ToolInputError` for invalid files, `ToolAuthorizationError` if
    attachments are not allowed."""
    if not request.attachments:
        return ()
    from clawkit.sessions.attachments import check_attachments

    settings = config.tools.sessions_spawn.attachments
    if not settings.enabled:
        raise ToolAuthorizationError(
            f"attachments are not enabled ({_FILES}.enabled); put the contents into the task"
        )
    sandbox = config.agents.sandbox_of(target)
    is_shared = sandbox.mode == "auto" or sandbox.scope != "session"
    is_container = sandbox.backend in ("docker", "podman")
    if sandbox.mode != "off" and (sandbox.backend == "ssh" or (is_container and is_shared)):
        raise ToolAuthorizationError(
            f"attachments cannot be mounted into the sandbox of {target!r}: its backend is "
            f"{sandbox.backend!r}, and they need a container for each session (sandbox.scope)"
        )
    return check_attachments(request.attachments, settings)


def describe_files(files: Sequence[AttachedFile], key: str) -> dict[str, Any]:
    """Facts about the attachments for the requester; empty for none."""
    if not files:
        return {}
    from clawkit.sessions.attachments import describe

    place = os.path.relpath(attachments_dir(os.environ, key), home(os.environ))
    return {**describe(files), "relDir": place}


def instruct(rules: str, spec: Spec, key: str) -> str:
    """The rules for a sub-agent, with its working directory and the list of its attachments."""
    if spec.cwd:
        rules += f"\n\nYou start in {spec.cwd!r} of the workspace {spec.workspace!r}."
    if not (attached := [each.name for each in spec.request.attachments]):
        return rules
    from clawkit.sessions.attachments import list_files

    return f"{rules}\n\n{list_files(key, attached, spec.request.mount_path)}"


def plan_worktree(config: Config, target: str, workspace: str, requester: str) -> Worktree:
    """Plan a worktree as the workspace of a sub-agent; `requester` is the key of its requester.
    Raises `ToolInputError`."""
    from clawkit import worktrees

    sandbox = config.agents.sandbox_of(target)
    if sandbox.mode != "off" and (access := sandbox.access()) != "rw":
        raise ToolInputError(
            f"worktree: a sub-agent could not change it: sandbox.workspaceAccess is {access!r}"
        )
    return worktrees.plan_worktree(workspace, requester)


def resolve_cwd(workspace: str, start: str, cwd: str, *, is_there: bool = True) -> str:
    """Resolve `cwd` to a path relative to the workspace; a relative `cwd` is relative to `start`.
    With `is_there` false it need not exist yet. Raises `ToolInputError`."""
    if not cwd and os.path.isabs(start):  # outside, where settings allow it
        return start
    resolve = real_path if is_there else os.path.normpath
    root = resolve(workspace)
    place = resolve(os.path.join(root, start, os.path.expanduser(plain_path(cwd))))
    if not is_below(place, root) or (not is_there and os.path.isabs(cwd)):
        raise ToolInputError(f"cwd: {cwd!r} is not a directory in the workspace {workspace!r}")
    if is_there and not os.path.isdir(place):
        raise ToolInputError(f"cwd: {place!r} is not a directory")
    return "" if place == root else os.path.relpath(place, root)


async def check_out(worktree: Worktree, rules: Assembly, workspace: str, cwd: str) -> None:
    """Create a worktree that must contain the directory `cwd`. Raises `ToolError`, including when
    `rules` are stricter about files in the original workspace than about their copies."""
    from clawkit.worktrees import make_worktree

    def effect(top: str, name: str, path: str) -> int:
        return _EFFECTS.index(rules.effect_on("read", os.path.join(top, name), path))

    def is_hidden(name: str) -> bool:
        there = effect(worktree.repository, name, workspace)
        return there > effect(worktree.tree, name, worktree.workspace)

    # Not interruptible: it must not be removed while it is still being created.
    await unbroken(in_thread(make_worktree, worktree, is_hidden))
    resolve_cwd(worktree.workspace, "", cwd)


def wind_up(run: SubagentRun, outcome: RunOutcome) -> RunOutcome:
    """Remove the resources of a run; returns the outcome with the changes in its worktree."""
    if run.attachments:
        import shutil

        shutil.rmtree(run.attachments, ignore_errors=True)
    if run.worktree is None:
        return outcome
    from clawkit.worktrees import finish_worktree

    try:
        changes = finish_worktree(run.worktree)
    except Exception as error:  # noqa: BLE001  # no failure here may lose the result
        log.warning("changes in a worktree could not be determined: %r", error)
        changes = f"Its worktree is kept: {run.worktree.tree}"
    return replace(outcome, changes=changes)

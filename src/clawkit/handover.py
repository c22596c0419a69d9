"""What a sub-agent is handed along with its task: files, a worktree, a directory to begin in."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.config.model import Config
from clawkit.config.paths import attachments_dir, home
from clawkit.core.paths import plain_path, real_path
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.fs.roots import is_below
from clawkit.sessions.subagent_protocols import Outcome, Run, SpawnRequest, Worktree

if TYPE_CHECKING:
    from clawkit.agent.assemble import Assembly
    from clawkit.sessions.attachments import AttachedFile
    from clawkit.sessions.subagents import Spec

log = logging.getLogger(__name__)
_EFFECTS = ("allow", "ask", "deny")  # the strictest last
_FILES = "tools.sessions_spawn.attachments"


def check_files(request: SpawnRequest, config: Config, target: str) -> Sequence[AttachedFile]:
    """The files for an agent. Raises `ToolInputError` for bad ones, `ToolAuthorizationError` where
    there must be none."""
    if not request.attachments:
        return ()
    from clawkit.sessions.attachments import check_attachments

    settings = config.tools.sessions_spawn.attachments
    if not settings.enabled:
        raise ToolAuthorizationError(
            f"attachments are not enabled ({_FILES}.enabled); put what it has to know into the task"
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
    """What the requester learns about the files of a session; empty for none."""
    if not files:
        return {}
    from clawkit.sessions.attachments import describe

    place = os.path.relpath(attachments_dir(os.environ, key), home(os.environ))
    return {**describe(files), "relDir": place}


def instruct(rules: str, spec: Spec, key: str) -> str:
    """The rules for a sub-agent, with what it is to know about the files it was given."""
    if spec.cwd:
        rules += f"\n\nYou begin in {spec.cwd!r} of the workspace {spec.workspace!r}."
    if not spec.attached:
        return rules
    from clawkit.sessions.attachments import list_files

    return f"{rules}\n\n{list_files(key, spec.attached, spec.mount_path)}"


def plan_worktree(config: Config, target: str, workspace: str, requester: str) -> Worktree:
    """A worktree for a sub-agent of the session with a key, in place of a workspace. Raises
    `ToolInputError`."""
    from clawkit import worktrees

    sandbox = config.agents.sandbox_of(target)
    if sandbox.mode != "off" and (access := sandbox.access()) != "rw":
        raise ToolInputError(
            f"worktree: a sub-agent could not change it: sandbox.workspaceAccess is {access!r}"
        )
    return worktrees.plan_worktree(workspace, requester)


def resolve_cwd(workspace: str, start: str, cwd: str, *, is_there: bool = True) -> str:
    """A directory of the workspace, from there; relative ones begin at `start`. One that is not
    there yet is not looked at. Raises `ToolInputError`."""
    resolve = real_path if is_there else os.path.normpath
    root = resolve(workspace)
    place = resolve(os.path.join(root, start, os.path.expanduser(plain_path(cwd))))
    if not is_below(place, root) or (not is_there and os.path.isabs(cwd)):
        raise ToolInputError(f"cwd: {cwd!r} is not a directory in the workspace {workspace!r}")
    if is_there and not os.path.isdir(place):
        raise ToolInputError(f"cwd: {place!r} is not a directory")
    return "" if place == root else os.path.relpath(place, root)


async def check_out(worktree: Worktree, rules: Assembly, workspace: str, cwd: str) -> None:
    """Make a worktree that has a directory `cwd`, unless files are in it that `rules` are stricter
    about where it is from. Raises `ToolError`."""
    from clawkit.worktrees import make_worktree

    def effect(top: str, name: str, place: str) -> int:
        return _EFFECTS.index(rules.effect_on("read", os.path.join(top, name), place))

    def is_hidden(name: str) -> bool:
        there = effect(worktree.repository, name, workspace)
        return there > effect(worktree.tree, name, worktree.workspace)

    # It has to be known what is there before it can be removed.
    await unbroken(in_thread(make_worktree, worktree, is_hidden))
    resolve_cwd(worktree.workspace, "", cwd)


def wind_up(run: Run, outcome: Outcome) -> Outcome:
    """Remove what was there for a run alone; how it ended, with what it changed."""
    if run.attachments:
        from clawkit.sessions.attachments import remove_attachments

        remove_attachments(run.attachments)
    if run.worktree is None:
        return outcome
    from clawkit.worktrees import finish_worktree

    try:
        changes = finish_worktree(run.worktree)
    except Exception as error:  # noqa: BLE001  # whatever it is, the result must not be lost for it
        log.warning("changes in a worktree could not be determined: %r", error)
        changes = f"Its worktree is kept: {run.worktree.tree}"
    return replace(outcome, changes=changes)

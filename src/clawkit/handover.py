"""What a sub-agent is handed along with its task: files that it can read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clawkit.config.model import Config
from clawkit.config.paths import attachments_dir, home
from clawkit.errors import ToolAuthorizationError
from clawkit.sessions.subagent_protocols import Outcome, Run, SpawnRequest

if TYPE_CHECKING:
    from clawkit.sessions.attachments import AttachedFile
    from clawkit.sessions.subagents import Spec

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
    if not spec.attached:
        return rules
    from clawkit.sessions.attachments import list_files

    return f"{rules}\n\n{list_files(key, spec.attached, spec.mount_path)}"


def wind_up(run: Run, outcome: Outcome) -> Outcome:
    """Remove what was there for a run alone; how it ended."""
    if run.attachments:
        from clawkit.sessions.attachments import remove_attachments

        remove_attachments(run.attachments)
    return outcome

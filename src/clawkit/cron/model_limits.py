"""What a model may choose in a job: only its agent's own sessions and destinations. Pure."""

from __future__ import annotations

from clawkit.config.sections.shared import SsrfPolicy
from clawkit.cron.jobs import Job, JobAlert
from clawkit.errors import ToolAuthorizationError
from clawkit.net.addresses import is_listed, parse_url
from clawkit.net.route import NetError
from clawkit.text import one_line


def check_limits(
    job: Job, before: Job | None, agent: str, session: str, policy: SsrfPolicy
) -> None:
    """Refuse settings that only people may choose; `before` is the old job, `agent` and `session`
    are the requesters. Raises `ToolAuthorizationError`."""
    if job.agent_id != (before.agent_id if before else agent):
        raise ToolAuthorizationError("a job must run with the agent that creates it")
    if job.declaration_key:
        raise ToolAuthorizationError("declarationKey: only clawkit creates such jobs")
    if job.session_key != (before.session_key if before else session):
        raise ToolAuthorizationError("sessionKey is the session that creates the job; omit it")
    target = "announce", job.session_target.removeprefix("session:")
    for mode, to in {target, *_places(job)} - (_places(before) if before else set()):
        if mode == "webhook" and not _is_named(to, policy):
            raise ToolAuthorizationError(
                f"results cannot go to {one_line(to, 80)}: models can only use hosts in "
                "cron.webhookSsrfPolicy.hostnameAllowlist, people any (clawkit cron add)"
            )
        kind, _, rest = to.strip().lower().partition(":")
        if mode == "announce" and kind == "agent" and rest.partition(":")[0] != agent:
            raise ToolAuthorizationError(f"{one_line(to, 80)} is a session of another agent")


def _places(job: Job) -> set[tuple[str, str]]:
    """The explicit destinations of a job's reports."""
    delivery, alert = job.delivery, job.failure_alert or JobAlert()
    given = delivery, delivery.failure_destination, delivery.completion_destination, alert
    return {(place.mode or "announce", place.to) for place in given if place and place.to}


def _is_named(url: str, policy: SsrfPolicy) -> bool:
    """Whether a person named the host of an address, which gets `cron.webhookToken`."""
    try:
        host = parse_url(url).host
    except NetError:
        return False
    return is_listed(host, (*policy.hostname_allowlist, *policy.allowed_hostnames))

"""Methods about scheduled jobs, heartbeats and wake-ups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, field
from msgspec.structs import asdict

from clawkit import session_cron
from clawkit.cron.phrases import describe, read_phrase
from clawkit.cron.schedule import next_after, read_schedule, write_schedule
from clawkit.cron.service import RunMode
from clawkit.errors import ClawkitError, NotFoundError
from clawkit.gateway.methods.method import Caller, Method, OfAgent
from clawkit.gateway.protocol import (
    Closed,
    Ignored,
    NoParams,
    Short,
    encode,
    ignored,
    invalid,
    now_ms,
)
from clawkit.gateway.scopes import ADMIN, READ, WRITE
from clawkit.sessions.keys import parse_key
from clawkit.sessions.protocols import session_key

_Limit = Annotated[int, Meta(ge=1, le=200)]
_Offset = Annotated[int, Meta(ge=0)]
NEXT_TIMES = 5


class ListJobs(OfAgent, frozen=True):
    """Which jobs to list."""

    include_disabled: bool = False
    enabled: Literal["all", "enabled", "disabled"] | bool | None = None
    query: Short = ""
    limit: _Limit = 50
    offset: _Offset = 0
    sort_by: Ignored = UNSET
    sort_dir: Ignored = UNSET
    compact: Ignored = UNSET
    include_delivery_previews: Ignored = UNSET


class OneJob(Closed, frozen=True):
    """A job, by its id, the start of its id, or its name."""

    id: Short = ""
    job_id: Short = ""

    @property
    def wanted(self) -> str:
        if not (self.id or self.job_id):
            raise invalid("id is required")
        return self.id or self.job_id


class DescribeSchedule(OneJob, frozen=True):
    """A schedule as a phrase (with a default time zone) or as an object, or the schedule of a
    job."""

    schedule: Short | dict[str, Any] | None = None
    tz: Short = ""


class AddJob(Closed, frozen=True):
    """A job in the format of the tool `cron`, plus `command` payloads and `grants` for
    operators."""

    name: Any = UNSET
    schedule: Any = UNSET
    payload: Any = UNSET
    session_target: Any = UNSET
    wake_mode: Any = UNSET
    delivery: Any = UNSET
    description: Any = UNSET
    enabled: Any = UNSET
    agent_id: Any = UNSET
    session_key: Any = UNSET
    declaration_key: Any = UNSET
    display_name: Any = UNSET
    delete_after_run: Any = UNSET
    failure_alert: Any = UNSET
    pacing: Any = UNSET
    overlap: Any = UNSET
    retry_interrupted: Any = UNSET
    grants: Any = UNSET


class UpdateJob(OneJob, frozen=True):
    """A job, and the fields to change; null removes an optional field."""

    patch: dict[str, Any] = field(default_factory=dict)


class RunJob(OneJob, frozen=True):
    """A job to run now: always, if it is due, or unless it is disabled."""

    mode: RunMode = "force"


class ListRuns(OneJob, frozen=True):
    """Which runs to list: of one job, or of all."""

    run_id: Short = ""
    limit: _Limit = 50
    offset: _Offset = 0
    scope: Ignored = UNSET
    sort_dir: Ignored = UNSET
    status: Ignored = UNSET


class Wake(Struct, frozen=True, rename="camel"):
    """A text for a session, and whether to start a turn. Unknown keys are ignored, because some
    clients send more."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    mode: Literal["now", "next-heartbeat"] = "now"
    session_key: Short | None = None
    agent_id: Short | None = None


class SetHeartbeats(Closed, frozen=True):
    """Whether heartbeats are on; false pauses them for all agents."""

    enabled: bool


class LeftEvent(Closed, frozen=True, kw_only=True):
    """A message for the next turn of the main session, and facts about the sender."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    session_key: Short | None = None
    reason: Ignored = UNSET
    mode: Ignored = UNSET
    host: Ignored = UNSET
    ip: Ignored = UNSET
    version: Ignored = UNSET
    platform: Ignored = UNSET
    device_id: Ignored = UNSET
    device_family: Ignored = UNSET
    model_identifier: Ignored = UNSET
    instance_id: Ignored = UNSET
    last_input_seconds: Ignored = UNSET


@contextmanager
def _refusals() -> Iterator[None]:
    """Within this block, refusals of clawkit become invalid requests."""
    try:
        yield
    except ClawkitError as error:
        code = {"code": "NOT_FOUND"} if isinstance(error, NotFoundError) else None
        raise invalid(str(error), code) from None


async def _status(caller: Caller, _params: NoParams, _id: str) -> Any:
    """Whether jobs run, how many there are, and when the next one is due."""
    return caller.gateway.job_runner.jobs().status()


async def _list(caller: Caller, params: ListJobs, _id: str) -> Any:
    """A page of jobs, the next one first, with their schedules in words."""
    jobs = caller.gateway.job_runner
    is_off = params.enabled in (False, "disabled")
    page = jobs.jobs().list(
        include_disabled=params.include_disabled or is_off or params.enabled == "all",
        only_disabled=is_off,
        agent=params.agent_id or "",
        query=params.query,
        limit=params.limit,
        offset=params.offset,
    )
    revision = hashlib.sha256(encode(page["jobs"])).hexdigest()
    rows = [row for job in page["jobs"] if (row := jobs.store.get(job["id"]))]
    more = {
        "snapshotRevision": f"sha256:{revision}",
        "deliveryPreviews": {job["id"]: jobs.preview(job) for job in page["jobs"]},
        "schedules": {row.job.id: describe(row.job.schedule) for row in rows},
    }
    return page | more | ignored(params)


async def _get(caller: Caller, params: OneJob, _id: str) -> Any:
    """One job."""
    with _refusals():
        return caller.gateway.job_runner.jobs().get(params.wanted)


async def _describe(caller: Caller, params: DescribeSchedule, _id: str) -> Any:
    """A schedule in words, and its next times."""
    job_id, now = "", now_ms()
    with _refusals():
        if params.schedule is None:
            job = caller.gateway.job_runner.store.find(params.wanted).job
            job_id, schedule = job.id, job.schedule
        elif isinstance(params.schedule, str):
            schedule = read_phrase(params.schedule, now, params.tz)
        else:
            schedule = read_schedule(params.schedule, now)
    times: list[int] = []
    while len(times) < NEXT_TIMES and (at := next_after(schedule, now, job_id)) is not None:
        times.append(now := at)
    return {"text": describe(schedule), "schedule": write_schedule(schedule), "next": times}


async def _add(caller: Caller, params: AddJob, _id: str) -> Any:
    """Add a job."""
    given = {name: value for name, value in asdict(params).items() if value is not UNSET}
    with _refusals():
        job = caller.gateway.job_runner.jobs().add(given, by="operator")
    return job | {"deliveryPreview": caller.gateway.job_runner.preview(job)}


async def _update(caller: Caller, params: UpdateJob, _id: str) -> Any:
    """Change a job."""
    with _refusals():
        return caller.gateway.job_runner.jobs().update(params.wanted, params.patch, by="operator")


async def _remove(caller: Caller, params: OneJob, _id: str) -> Any:
    """Remove a job; a current run continues."""
    with _refusals(), suppress(NotFoundError):
        return caller.gateway.job_runner.jobs().remove(params.wanted)
    return {"ok": True, "removed": False}


async def _run(caller: Caller, params: RunJob, _id: str) -> Any:
    """Run a job now."""
    with _refusals():
        found = caller.gateway.job_runner.jobs().run(params.wanted, params.mode)
    return found | {"processInstanceId": caller.gateway.boot_id}


async def _runs(caller: Caller, params: ListRuns, _id: str) -> Any:
    """A page of runs, the latest first."""
    wanted = params.id or params.job_id
    with _refusals():
        found = caller.gateway.job_runner.jobs().runs(
            wanted, params.limit, params.offset, params.run_id
        )
    return found | ignored(params)


async def _wake(caller: Caller, params: Wake, _id: str) -> Any:
    """Send a text to a session, by default the main one."""
    gateway = caller.gateway
    agent = gateway.live.check_agent(params.agent_id)
    main = session_key(agent, gateway.loaded.config.session.main_key)
    key = gateway.live.resolve_key(params.session_key, agent) if params.session_key else main
    with _refusals():
        if params.mode == "next-heartbeat" and gateway.store.find(key) is None:
            gateway.live.create(agent, name=key.split(":", 2)[2])
        jobs = gateway.job_runner.jobs()
        is_owner, given = caller.may(ADMIN), (agent, key, params.text, params.mode)
        found = session_cron.wake(gateway.loaded, jobs, *given, owner=is_owner)
    gateway.job_runner.scheduler.wake()
    return found


async def _last_heartbeat(caller: Caller, _params: NoParams, _id: str) -> Any:
    """The last heartbeat of all agents; null if there was none."""
    return caller.gateway.job_runner.heartbeats.last()


async def _set_heartbeats(caller: Caller, params: SetHeartbeats, _id: str) -> Any:
    """Pause or resume the heartbeats of all agents, including those that an error stopped."""
    with _refusals():
        session_cron.switch_heartbeats(caller.gateway.job_runner.jobs(), params.enabled)
        caller.gateway.job_runner.heartbeats.keep()
    return {"ok": True, "enabled": params.enabled}


async def _system_event(caller: Caller, params: LeftEvent, _id: str) -> Any:
    """Leave a message for the next turn of a session, by default the main one."""
    live = caller.gateway.live
    key = live.resolve_key(params.session_key or "main")
    with _refusals():
        agent = parse_key(key).agent
        caller.gateway.job_runner.leave(key, agent, "a system event", params.text)
    return {"ok": True} | ignored(params)


METHODS = (
    Method("cron.status", READ, NoParams, _status),
    Method("cron.list", READ, ListJobs, _list),
    Method("cron.get", READ, OneJob, _get),
    Method("cron.describe", READ, DescribeSchedule, _describe),
    Method("cron.runs", READ, ListRuns, _runs),
    Method("cron.add", ADMIN, AddJob, _add, limited=True),
    Method("cron.update", ADMIN, UpdateJob, _update, limited=True),
    Method("cron.remove", ADMIN, OneJob, _remove, limited=True),
    Method("cron.run", ADMIN, RunJob, _run, limited=True),
    Method("wake", WRITE, Wake, _wake),
    Method("last-heartbeat", READ, NoParams, _last_heartbeat),
    Method("set-heartbeats", ADMIN, SetHeartbeats, _set_heartbeats, limited=True),
    Method("system-event", ADMIN, LeftEvent, _system_event),
)

"""The definition of jobs, and reading them: leniently from a model or person, strictly
otherwise."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.shared import Thinking
from clawkit.core.context import Scope, Sender
from clawkit.cron.schedule import Schedule, Stream, read_schedule, write_schedule
from clawkit.errors import ToolInputError
from clawkit.text import nearest, one_line

RUNNING: ContextVar[str] = ContextVar("running_job", default="")
"""The id of the job that runs in the current context."""
By = Literal["operator", "model"]
"""The author of a change: a person, or an agent with the tool `cron`."""
WakeMode = Literal["now", "next-heartbeat"]
SCRIPT_S, MAX_SCRIPT_S = 300, 600
MAX_TEXT, MAX_SCRIPT, MAX_NAME = 20_000, 65_536, 200
MAX_JOBS = 20_000
_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
_Short = Annotated[str, Meta(max_length=MAX_NAME)]
_Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class _PayloadPart(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """Common base of payloads: frozen, camelCase in JSON."""


class SystemEvent(_PayloadPart, frozen=True, tag="systemEvent"):
    """A text for the main session, with or without a turn of its own."""

    text: _Text


class AgentTurn(_PayloadPart, frozen=True, tag="agentTurn"):
    """A message for an agent to answer."""

    message: _Text
    model: _Short = ""
    fallbacks: tuple[_Short, ...] = ()
    thinking: Thinking | Literal[""] = ""
    timeout_seconds: _Seconds = 0
    """0 for the default limit of jobs."""
    light_context: bool = False
    tools_allow: tuple[_Short, ...] | None = None
    """The only tools of the turn, within policy; an empty list allows none."""


class CommandRun(_PayloadPart, frozen=True, tag="command"):
    """A program, run as a command of the agent."""

    argv: Annotated[tuple[_Text, ...], Meta(min_length=1, max_length=256)]
    cwd: str = ""
    env: dict[str, str] = {}
    input: str = ""
    timeout_seconds: _Seconds = 0
    no_output_timeout_seconds: _Seconds = 0


class ScriptPayload(_PayloadPart, frozen=True, tag="script"):
    """Python code, run by `code_execution`."""

    script: Annotated[str, Meta(min_length=1, max_length=MAX_SCRIPT)]
    timeout_seconds: Annotated[float, Meta(gt=0, le=MAX_SCRIPT_S)] = SCRIPT_S


class HeartbeatPayload(_PayloadPart, frozen=True, tag="heartbeat"):
    """The regular check of an agent. clawkit creates these jobs itself."""


class HookPayload(_PayloadPart, frozen=True, tag="hook"):
    """Web requests of one hook: one per run. clawkit creates these jobs itself."""


Payload = SystemEvent | AgentTurn | CommandRun | ScriptPayload | HeartbeatPayload | HookPayload


class Destination(
    Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The target of a report: a session or a web address."""

    mode: Literal["announce", "webhook"] = "announce"
    channel: Literal["", "last"] = ""
    to: str = ""
    """The web address, or a session: by default the one that created the job, else the main one."""


class Delivery(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What to do with the answer."""

    mode: Literal["none", "announce", "webhook"] = "none"
    channel: Literal["", "last"] = ""
    to: str = ""
    best_effort: bool = False
    """Whether a failed delivery leaves the run successful."""
    failure_destination: Destination | None = None
    completion_destination: Destination | None = None
    """A web address that gets the outcome of every run, in addition."""


class JobAlert(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """When to report a job again that keeps failing."""

    after: Annotated[int, Meta(ge=1)] | None = None
    cooldown_ms: Annotated[int, Meta(ge=0)] | None = None
    include_skipped: bool | None = None
    mode: Literal["announce", "webhook"] | None = None
    to: str = ""


class Pacing(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Limits for the next run time that a run may choose, in milliseconds from its end."""

    min: Annotated[int, Meta(ge=1_000)] = 60_000
    max: Annotated[int, Meta(ge=1_000)] = 7 * 86_400_000


class JobAuthor(Struct, frozen=True):
    """The model session that created a job or changed it last."""

    model: ModelRef | None
    sender: Sender
    withheld: tuple[tuple[str, str], ...]

    def within(self, scope: Scope) -> Scope:
        """The scope of a run, limited to what the author may do."""
        return replace(scope, model=self.model, sender=self.sender, withheld=self.withheld)


class Job(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """The definition of a job; its state is in `JobState`."""

    id: str
    name: str
    schedule: Schedule
    session_target: str
    payload: Payload
    enabled: bool = True
    wake_mode: WakeMode = "now"
    description: str = ""
    agent_id: str = ""
    session_key: str = ""
    """The session that created it: `current` runs there, and results are announced there."""
    declaration_key: str = ""
    """Unique key of a job that clawkit manages for a setting."""
    display_name: str = ""
    delete_after_run: bool = False
    overlap: bool = False
    """Whether runs of the job may overlap."""
    retry_interrupted: bool = False
    """Whether to repeat an interrupted run, such as after a crash."""
    delivery: Delivery = Delivery()
    failure_alert: Literal[False] | JobAlert = JobAlert()
    pacing: Pacing | None = None
    grants: tuple[str, ...] = ()
    """Commands that a person approved for this job in advance. Any change of the job removes
    them."""
    author: JobAuthor | None = None
    """None for a job of a person. Runs have no tools that the author would not have."""
    created_at_ms: int = 0
    updated_at_ms: int = 0

    @property
    def revision(self) -> str:
        """Differs if the definition has changed."""
        plain = replace(self, created_at_ms=0, updated_at_ms=0, enabled=True, grants=())
        return "sha256:" + hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:43]

    @property
    def title(self) -> str:
        return self.display_name or self.name


class JobState(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The state of a job."""

    schedule_activated_at_ms: int | UnsetType = UNSET
    running_at_ms: int | UnsetType = UNSET
    last_run_at_ms: int | UnsetType = UNSET
    last_run_status: Literal["ok", "error", "skipped"] | UnsetType = UNSET
    last_error: str = ""
    last_error_reason: str = ""
    last_duration_ms: int | UnsetType = UNSET
    consecutive_errors: int = 0
    consecutive_skipped: int = 0
    schedule_error_count: int = 0
    auto_disabled: str = ""
    """Why clawkit disabled it."""
    reported_error: str = ""
    """The last reported cause of failure; empty if the last report was a success."""
    last_alert_at_ms: int = 0
    next_check_ms: int = 0
    """The next time, as chosen by the last run."""
    last_delivered: bool | UnsetType = UNSET
    last_delivery_status: str = ""
    last_delivery_error: str = ""
    delivery_suppression_reason: str = ""
    stream_dropped_batches: int = 0
    stream_coalesced_batches: int = 0
    stream_last_started_at_ms: int | UnsetType = UNSET
    stream_last_exit_at_ms: int | UnsetType = UNSET


_PAYLOADS: tuple[type[Payload], ...] = (SystemEvent, AgentTurn, CommandRun, ScriptPayload)
_TYPES: dict[str, type[Struct]] = {
    "delivery": Delivery,
    "delivery.failureDestination": Destination,
    "delivery.completionDestination": Destination,
    "failureAlert": JobAlert,
    "pacing": Pacing,
}
_MAIN_FIELDS = {
    "agentTurn": "message",
    "systemEvent": "text",
    "script": "script",
    "command": "argv",
}
"""The main field of each payload kind, which identifies a payload without a kind."""
_SCHEDULE_KEYS = frozenset(
    (
        *("at", "atMs", "in", "every", "everyMs", "anchorMs"),
        *("cron", "expr", "tz", "stagger", "staggerMs", "exact"),
    )
)
_OWN_KEYS = frozenset(("model", "fallbacks", "thinking", "lightContext", "toolsAllow"))
"""Options of a turn that require a session of its own."""
_PAYLOAD_KEYS = frozenset(_MAIN_FIELDS.values()) | _OWN_KEYS | {"timeoutSeconds"}
_ALIASES = {"agent": "agentId", "session": "sessionTarget", "prompt": "message"}
_NOT_HERE = {
    "trigger": "conditions are not supported; use a stream or on-exit schedule",
    "accountId": "chat channels are not supported",
    "threadId": "chat channels are not supported",
    "toolBudget": "a script cannot call tools; use agentTurn with toolsAllow",
}
_HELP = {
    "schedule": 'such as {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Vienna"}, '
    '{"kind": "every", "everyMs": 600000} or {"kind": "at", "at": "2030-01-31T09:00:00Z"}',
    "payload": 'such as {"kind": "agentTurn", "message": "…"} or '
    '{"kind": "systemEvent", "text": "…"}',
}


def read_job(
    raw: Mapping[str, Any], now_ms: int, *, by: By, session: str = "", agent: str = ""
) -> Job:
    """A new job from lenient input. `session` is the key of the session that creates it, `agent`
    the default agent. Raises `ToolInputError`."""
    given = _without_nulls(_gather(raw))
    if "delivery" in given:
        given["delivery"] = _without_nulls(given["delivery"])
    for name, help_ in _HELP.items():
        if name not in given:
            raise ToolInputError(f"{name} is required; {help_}")
    payload = given["payload"] = _payload(given["payload"], {})
    schedule = given["schedule"] = _schedule(given["schedule"], now_ms)
    kind, said = payload["kind"], payload.get(_MAIN_FIELDS[payload["kind"]], "")
    is_plain = kind == "agentTurn" and _OWN_KEYS.isdisjoint(payload)
    target = "main" if kind == "systemEvent" else "current" if is_plain and session else "isolated"
    target = given.setdefault("sessionTarget", target)
    said = " ".join(map(str, said)) if isinstance(said, list) else str(said)
    defaults = {
        "name": one_line(said, 60),
        "deleteAfterRun": schedule["kind"] in ("at", "on-exit"),
        "delivery": {"mode": "announce" if (kind, target) == ("agentTurn", "isolated") else "none"},
        "agentId": agent,
        "sessionKey": session,
    }
    made = {"id": str(uuid.uuid4()), "createdAtMs": now_ms, "updatedAtMs": now_ms}
    return check_job(_build(defaults | given | made, by, given), by)


def patch_job(job: Job, raw: Mapping[str, Any], now_ms: int, *, by: By) -> Job:
    """A changed job; null removes optional fields. Raises `ToolInputError`."""
    given, before = _gather(raw), msgspec.to_builtins(job)
    if not given:
        raise ToolInputError("the patch is empty; name the fields to change, such as enabled")
    if given.get("payload") is not None:
        given["payload"] = _payload(given["payload"], before["payload"])
    if given.get("schedule") is not None:
        given["schedule"] = _schedule(given["schedule"], now_ms)
    place, old = given.get("delivery"), before.get("delivery", {})
    if place and place.get("mode", old.get("mode", "none")) == old.get("mode", "none"):
        given["delivery"] = _without_nulls(old | place)
    if given.keys() - {"enabled", "grants"}:
        before["grants"] = []  # approvals applied to the old definition
    kept = {"id": job.id, "createdAtMs": job.created_at_ms, "updatedAtMs": now_ms}
    return check_job(_build(_without_nulls(before | given | kept), by, given), by)


def _build(fields: dict[str, Any], by: By, params: Mapping[str, Any]) -> Job:
    """Convert all fields at once. Raises a `ToolInputError` that names invalid fields."""
    if by == "model" and "grants" in params:
        raise ToolInputError("grants: only a person can allow commands (clawkit cron edit --grant)")
    if "author" in params:
        raise ToolInputError("author: clawkit sets it")
    if re.match(r"heartbeat:|hook:", str(params.get("declarationKey", ""))):
        raise ToolInputError("declarationKey: this name is reserved for clawkit")
    try:
        return msgspec.convert(fields, Job, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        why, _, place = str(error).partition(" - at `$")
        name = place.strip("`.")
        if found := re.search(r"unknown field `(.+)`", why):
            raise ToolInputError(_unknown(f"{name}.{found[1]}".lstrip("."), fields)) from None
        raise ToolInputError(f"{name}: {why}" if name else why) from None


def _unknown(name: str, fields: Mapping[str, Any]) -> str:
    """The error for a field that no job has, or that does not fit this payload."""
    within, _, bare = name.rpartition(".")
    if bare in _NOT_HERE:
        return f"{name}: {_NOT_HERE[bare]}"
    kind = _TYPES.get(within, Job)
    if within == "payload":
        kind = next(each for each in _PAYLOADS if _kind(each) == fields["payload"]["kind"])
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    close = nearest(bare, [*known, *(_SCHEDULE_KEYS | _PAYLOAD_KEYS)] if not within else known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"
    return f"unknown field {one_line(name, 60)!r} of a job{hint}"


def check_job(job: Job, by: By) -> Job:
    """Check that the fields of a job are consistent. Raises `ToolInputError`."""
    if not job.name.strip() or len(job.name) > MAX_NAME:
        raise ToolInputError(f"name must have 1 to {MAX_NAME} characters")
    target, payload = job.session_target, job.payload
    if by == "model" and isinstance(payload, CommandRun):
        raise ToolInputError(
            "payload.kind: only a person can schedule a command (clawkit cron add); use agentTurn"
        )
    if job.grants and target != "isolated":
        raise ToolInputError("grants need sessionTarget 'isolated': others ask in their session")
    is_event = isinstance(payload, SystemEvent | HeartbeatPayload)
    if target == "main" and not is_event:
        raise ToolInputError(
            "sessionTarget 'main' needs a systemEvent; use 'isolated', 'current' or 'session:<id>'"
            f" for {_kind(payload)}, or payload {{kind: 'systemEvent', text}}"
        )
    if target != "main" and is_event:
        raise ToolInputError(f"a systemEvent goes to sessionTarget 'main', not {target!r}")
    if target == "current" and not job.session_key:
        raise ToolInputError(
            "sessionTarget 'current' is the session that creates the job, but there is none here; "
            "use 'isolated', or 'session:<id>'"
        )
    if target not in ("main", "isolated", "current") and not re.fullmatch(r"session:\S+", target):
        raise ToolInputError(
            f"unknown sessionTarget {one_line(target, 60)!r}; use main, isolated, current or "
            "session:<id>"
        )
    own = sorted(_OWN_KEYS & msgspec.to_builtins(payload).keys())
    if own and target != "isolated":
        raise ToolInputError(
            f"payload.{own[0]} needs sessionTarget 'isolated': other sessions keep theirs"
        )
    if isinstance(job.schedule, Stream) and job.delete_after_run:
        raise ToolInputError("deleteAfterRun: a stream does not end after its first lines")
    if job.pacing is not None and job.pacing.min > job.pacing.max:
        raise ToolInputError("pacing.min is larger than pacing.max")
    for place in (
        job.delivery,
        job.delivery.failure_destination,
        job.delivery.completion_destination,
    ):
        if place is not None:
            _check_destination(place)
    if (
        job.delivery.completion_destination
        and job.delivery.completion_destination.mode != "webhook"
    ):
        raise ToolInputError("delivery.completionDestination.mode must be webhook")
    return job


def _check_destination(destination: Destination | Delivery) -> None:
    if destination.mode == "webhook" and not re.match(r"https?://[^/\s]", destination.to):
        raise ToolInputError("delivery.to must be an address such as https://example.com/hook")
    if destination.mode == "announce" and not re.fullmatch(r"\S{0,300}", destination.to):
        raise ToolInputError("delivery.to must be a session, such as agent:main:main")
    if destination.mode == "none" and destination.to:
        raise ToolInputError("delivery.to has no effect with mode 'none'; use announce or webhook")


def show_job(job: Job, state: JobState, next_ms: int | None) -> dict[str, Any]:
    """A job as tools and clients see it."""
    shown: dict[str, Any] = msgspec.to_builtins(job)
    shown |= {
        "enabled": job.enabled,
        "wakeMode": job.wake_mode,
        "schedule": write_schedule(job.schedule),
    }
    shown["delivery"] = {"mode": "none"} | shown.get("delivery", {})
    told = msgspec.to_builtins(state)
    told.pop("reportedError", None)
    shown.pop("author", None)
    if next_ms is not None:
        told["nextRunAtMs"] = shown["nextRunAtMs"] = next_ms
    if "lastRunStatus" in told:
        told["lastStatus"] = told["lastRunStatus"]
    for name in ("lastRunAtMs", "lastRunStatus", "lastDelivered", "lastDeliveryStatus"):
        if name in told:
            shown[name] = told[name]
    if state.last_error:
        shown["lastRunError"] = state.last_error
    return shown | {"state": told, "configRevision": job.revision}


def _gather(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job in camelCase, with those of schedule and payload moved into these
    objects."""
    given = _spell(raw)
    while len(given) == 1 and isinstance(inner := given.get("job", given.get("data")), Mapping):
        given = _spell(inner)
    loose = {name: given.pop(name) for name in _SCHEDULE_KEYS & given.keys()}
    if loose and not isinstance(given.get("schedule"), str):
        given["schedule"] = {**loose, **_object(given.get("schedule") or {}, "schedule")}
    elif loose:
        given["schedule"] = {"phrase": given["schedule"], **loose}
    loose = {name: given.pop(name) for name in _PAYLOAD_KEYS & given.keys()}
    if isinstance(given.get("payload"), str):
        given["payload"] = {"kind": "agentTurn", "message": given["payload"]}
    if loose or given.get("payload") is not None:
        given["payload"] = {**loose, **_spell(_object(given.get("payload") or {}, "payload"))}
    if given.get("delivery") is not None:
        given["delivery"] = _place(given["delivery"])
    if isinstance(given.get("name"), str):
        given["name"] = given["name"].strip()
    return given


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ToolInputError(f"{name} must be an object; {_HELP[name]}")
    return value


def _spell(raw: Any) -> dict[str, Any]:
    """The object with trimmed names in camelCase."""
    if not isinstance(raw, Mapping):
        raise ToolInputError("a job must be an object")
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = re.sub(r"_([a-z])", lambda match: match[1].upper(), str(key).strip())
        name = _ALIASES.get(name, name)
        if name in found:
            raise ToolInputError(f"{name} is given twice")
        found[name] = value
    return found


def _schedule(raw: Any, now_ms: int) -> dict[str, Any]:
    if isinstance(raw, str):
        raw = {"phrase": raw}
    if "phrase" not in _object(raw, "schedule"):
        return dict(msgspec.to_builtins(read_schedule(raw, now_ms)))
    from clawkit.cron.phrases import read_phrase

    found = read_phrase(str(raw["phrase"]), now_ms, str(raw.get("tz") or ""))
    return dict(msgspec.to_builtins(found))


def _payload(fields: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """A payload with its kind; if `before` has the same kind, only the given fields change."""
    kind = fields.pop("kind", None)
    if kind is None:
        named = [each for each, field in _MAIN_FIELDS.items() if fields.get(field) is not None]
        kind = named[0] if named else before.get("kind", "agentTurn")
    if kind == "heartbeat":
        raise ToolInputError("payload.kind: heartbeats are configured (agents.defaults.heartbeat)")
    if kind not in _MAIN_FIELDS:
        raise ToolInputError(f"unknown payload.kind {kind!r}; use one of {', '.join(_MAIN_FIELDS)}")
    main = _MAIN_FIELDS[kind]
    for other in {"message", "text"} & fields.keys():
        if fields.get(main) is None:
            fields[main] = fields.pop(other)
    if fields.get("toolsAllow") in (["*"], "*"):
        fields["toolsAllow"] = None
    merged = (before if before.get("kind") == kind else {}) | fields | {"kind": kind}
    found = _without_nulls(merged)
    if main not in found:
        raise ToolInputError(f"payload.{main} is required for {kind}")
    return found


def _place(raw: Any) -> dict[str, Any]:
    """Parse a delivery from an object, a mode or an address."""
    if isinstance(raw, str):
        raw = {"mode": raw} if raw in ("none", "announce") else {"mode": "webhook", "to": raw}
    if not isinstance(raw, Mapping):
        raise ToolInputError('delivery must be an object, such as {"mode": "announce"}')
    given = _spell(raw)
    if given.get("channel") not in (None, "", "last"):
        raise ToolInputError(
            f"delivery.channel: unknown channel {one_line(str(given['channel']), 40)!r}; chat "
            "channels are not supported in this version. Results can go to a session or a webhook"
        )
    if given.get("to"):
        given.setdefault("mode", "webhook" if "://" in str(given["to"]) else "announce")
    return given


def _kind(payload: Payload | type[Payload]) -> str:
    return str(payload.__struct_config__.tag)

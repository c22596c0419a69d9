"""What a job is, and how one is read: leniently from a model or a person, strictly otherwise."""

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

from clawkit.config.sections.shared import Thinking
from clawkit.cron.schedule import At, OnExit, Schedule, Stream, read_schedule, write_schedule
from clawkit.errors import ToolInputError
from clawkit.text import nearest, one_line

RUNNING: ContextVar[str] = ContextVar("running_job", default="")
"""The id of the job whose turn runs here."""
By = Literal["operator", "model"]
"""Who makes or changes a job: a person, or an agent with the tool `cron`."""
WakeMode = Literal["now", "next-heartbeat"]
SCRIPT_S, MAX_SCRIPT_S = 300, 600
MAX_TEXT, MAX_SCRIPT, MAX_NAME = 20_000, 65_536, 200
MAX_JOBS = 20_000
_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
_Short = Annotated[str, Meta(max_length=MAX_NAME)]
_Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class _Part(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """A part of a job as it is stored and sent."""


class SystemEvent(_Part, frozen=True, tag="systemEvent"):
    """A text that the main session reads, with or without a turn for it."""

    text: _Text


class AgentTurn(_Part, frozen=True, tag="agentTurn"):
    """A message that an agent answers."""

    message: _Text
    model: _Short = ""
    fallbacks: tuple[_Short, ...] = ()
    thinking: Thinking | Literal[""] = ""
    timeout_seconds: _Seconds = 0
    """0 is the limit for all jobs."""
    light_context: bool = False
    tools_allow: tuple[_Short, ...] | None = None
    """The only tools of the turn, as far as policy allows them; an empty list allows none."""


class CommandRun(_Part, frozen=True, tag="command"):
    """A program, run as a command of the agent."""

    argv: Annotated[tuple[_Text, ...], Meta(min_length=1, max_length=256)]
    cwd: str = ""
    env: dict[str, str] = {}
    input: str = ""
    timeout_seconds: _Seconds = 0
    no_output_timeout_seconds: _Seconds = 0


class Script(_Part, frozen=True, tag="script"):
    """Python code, run by `code_execution`."""

    script: Annotated[str, Meta(min_length=1, max_length=MAX_SCRIPT)]
    timeout_seconds: Annotated[float, Meta(gt=0, le=MAX_SCRIPT_S)] = SCRIPT_S


class Heartbeat(_Part, frozen=True, tag="heartbeat"):
    """The regular check of an agent. clawkit makes these jobs itself."""


Payload = SystemEvent | AgentTurn | CommandRun | Script | Heartbeat


class Destination(
    Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Where something is reported: in a session, or to a web address."""

    mode: Literal["announce", "webhook"] = "announce"
    channel: Literal["", "last"] = ""
    to: str = ""
    """A session, by default the one that made the job, else the main one; or the address."""


class Delivery(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What becomes of the answer."""

    mode: Literal["none", "announce", "webhook"] = "none"
    channel: Literal["", "last"] = ""
    to: str = ""
    best_effort: bool = False
    """A failed delivery does not make the run a failure."""
    failure_destination: Destination | None = None
    completion_destination: Destination | None = None
    """A web address that gets the outcome of every run, in addition."""


class JobAlert(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """When a job that keeps failing is reported again."""

    after: Annotated[int, Meta(ge=1)] | None = None
    cooldown_ms: Annotated[int, Meta(ge=0)] | None = None
    include_skipped: bool | None = None
    mode: Literal["announce", "webhook"] | None = None
    to: str = ""


class Pacing(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Limits of the next time that a run may choose for itself, in milliseconds from its end."""

    min: Annotated[int, Meta(ge=1_000)] = 60_000
    max: Annotated[int, Meta(ge=1_000)] = 7 * 86_400_000


class Job(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A job as it was defined; what became of it is in `JobState`."""

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
    """The session that made it: where `current` runs, and where results are announced."""
    declaration_key: str = ""
    """Names a job that clawkit keeps for a setting; no two jobs have the same."""
    display_name: str = ""
    delete_after_run: bool = False
    overlap: bool = False
    """A run may start while another one of the same job is under way."""
    retry_interrupted: bool = False
    """A run that was interrupted in the middle, such as by a crash, is run again."""
    delivery: Delivery = Delivery()
    failure_alert: Literal[False] | JobAlert = JobAlert()
    pacing: Pacing | None = None
    grants: tuple[str, ...] = ()
    """Commands that a person allowed this job to run although they would be asked. They end with
    any change of the job."""
    created_at_ms: int = 0
    updated_at_ms: int = 0

    @property
    def revision(self) -> str:
        """Changes with the definition."""
        plain = replace(self, created_at_ms=0, updated_at_ms=0, enabled=True, grants=())
        return "sha256:" + hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:43]

    @property
    def title(self) -> str:
        return self.display_name or self.name


class JobState(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What became of a job."""

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
    """The cause that was reported last; empty if the last report was good."""
    last_alert_at_ms: int = 0
    next_check_ms: int = 0
    """When the last run wants the next one."""
    last_delivered: bool | UnsetType = UNSET
    last_delivery_status: str = ""
    last_delivery_error: str = ""
    delivery_suppression_reason: str = ""
    stream_dropped_batches: int = 0
    stream_coalesced_batches: int = 0
    stream_last_started_at_ms: int | UnsetType = UNSET
    stream_last_exit_at_ms: int | UnsetType = UNSET


_PAYLOADS: dict[str, tuple[type[Payload], str]] = {
    "systemEvent": (SystemEvent, "text"),
    "agentTurn": (AgentTurn, "message"),
    "command": (CommandRun, "argv"),
    "script": (Script, "script"),
}
_SCHEDULE_KEYS = frozenset(
    (
        *("at", "atMs", "in", "every", "everyMs", "anchorMs"),
        *("cron", "expr", "tz", "stagger", "staggerMs", "exact"),
    )
)
_TURN_KEYS = frozenset(
    ("model", "fallbacks", "thinking", "timeoutSeconds", "lightContext", "toolsAllow")
)
_PAYLOAD_KEYS = frozenset(("message", "text", "script", "argv")) | _TURN_KEYS
_PLAIN_KEYS = frozenset(
    (
        *("name", "description", "enabled", "agentId", "sessionKey", "displayName", "wakeMode"),
        *("deleteAfterRun", "overlap", "retryInterrupted", "sessionTarget", "declarationKey"),
    )
)
_KEYS = _PLAIN_KEYS | {"schedule", "payload", "delivery", "failureAlert", "pacing", "grants"}
_ALIASES = {"agent": "agentId", "session": "sessionTarget", "prompt": "message", "kind": ""}
_NOT_HERE = {
    "trigger": "conditions are not supported; use a stream or on-exit schedule",
    "accountId": "chat channels are not supported",
    "threadId": "chat channels are not supported",
    "toolBudget": "a script cannot call tools; use agentTurn with toolsAllow",
}


def read_job(
    raw: Mapping[str, Any], now_ms: int, *, by: By, session: str = "", agent: str = ""
) -> Job:
    """A new job from lenient input. `session` is the key of the session that makes it, `agent` the
    one it is for unless it names another. Raises `ToolInputError`."""
    given = _normalize(raw, now_ms, by, creating=True)
    for name in ("schedule", "payload"):
        if name not in given:
            raise ToolInputError(f"{name} is required; {_HELP[name]}")
    payload, schedule = given["payload"], given["schedule"]
    said = next(
        (getattr(payload, key) for _, key in _PAYLOADS.values() if hasattr(payload, key)), ""
    )
    target = given.pop("sessionTarget", "") or _default_target(payload, session)
    given.setdefault("name", one_line(said if isinstance(said, str) else " ".join(said), 60))
    given.setdefault("deleteAfterRun", isinstance(schedule, At | OnExit))
    if isinstance(payload, AgentTurn) and target == "isolated":
        given.setdefault("delivery", Delivery("announce"))
    given.setdefault("agentId", agent)
    given.setdefault("sessionKey", session)
    fields = {_snake(name): value for name, value in given.items()}
    job = Job(
        id=str(uuid.uuid4()),
        session_target=target,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        **fields,
    )
    return check_job(job, by)


def patch_job(job: Job, raw: Mapping[str, Any], now_ms: int, *, by: By) -> Job:
    """A changed job; null removes what is optional. Raises `ToolInputError`."""
    given = _normalize(raw, now_ms, by, creating=False, payload=job.payload, delivery=job.delivery)
    if not given:
        raise ToolInputError("the patch is empty; name the fields to change, such as enabled")
    fields = {_snake(name): value for name, value in given.items()}
    blank = Job(id="", name="", schedule=job.schedule, session_target="", payload=job.payload)
    for name, value in fields.items():
        if value is None:
            fields[name] = getattr(blank, name)
    if fields.keys() - {"enabled", "grants"}:
        fields.setdefault("grants", ())  # what was allowed was allowed for the job as it was
    return check_job(replace(job, updated_at_ms=now_ms, **fields), by)


def check_job(job: Job, by: By) -> Job:
    """The job, if its parts fit together. Raises `ToolInputError`."""
    if not job.name.strip() or len(job.name) > MAX_NAME:
        raise ToolInputError(f"name must have 1 to {MAX_NAME} characters")
    target, payload = job.session_target, job.payload
    if by == "model" and isinstance(payload, CommandRun):
        raise ToolInputError(
            "payload.kind: only a person can schedule a command (clawkit cron add); use agentTurn"
        )
    if job.grants and target != "isolated":
        raise ToolInputError("grants need sessionTarget 'isolated': others ask in their session")
    is_event = isinstance(payload, SystemEvent | Heartbeat)
    if target == "main" and not is_event:
        raise ToolInputError(
            "sessionTarget 'main' needs a systemEvent; use 'isolated', 'current' or 'session:<id>'"
            f" for {_kind(payload)}, or payload {{kind: 'systemEvent', text}}"
        )
    if target != "main" and is_event:
        raise ToolInputError(f"a systemEvent goes to sessionTarget 'main', not {target!r}")
    if target == "current" and not job.session_key:
        raise ToolInputError(
            "sessionTarget 'current' is the session that makes the job, and there is none here; "
            "use 'isolated', or 'session:<id>'"
        )
    if target not in ("main", "isolated", "current") and not re.fullmatch(r"session:\S+", target):
        raise ToolInputError(
            f"unknown sessionTarget {one_line(target, 60)!r}; use main, isolated, current or "
            "session:<id>"
        )
    if isinstance(payload, AgentTurn) and target != "isolated":
        own = msgspec.to_builtins(replace(payload, message="-", timeout_seconds=0)).keys()
        if extra := sorted(own - {"kind", "message"}):
            raise ToolInputError(
                f"payload.{extra[0]} needs sessionTarget 'isolated': other sessions keep theirs"
            )
    if isinstance(job.schedule, Stream) and job.delete_after_run:
        raise ToolInputError("deleteAfterRun: a stream does not end with its first lines")
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


def _check_destination(place: Destination | Delivery) -> None:
    if place.mode == "webhook" and not re.match(r"https?://[^/\s]", place.to):
        raise ToolInputError("delivery.to must be an address such as https://example.com/hook")
    if place.mode == "announce" and not re.fullmatch(r"\S{0,300}", place.to):
        raise ToolInputError("delivery.to must be a session, such as agent:main:main")
    if place.mode == "none" and place.to:
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


_HELP = {
    "schedule": 'such as {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Vienna"}, '
    '{"kind": "every", "everyMs": 600000} or {"kind": "at", "at": "2030-01-31T09:00:00Z"}',
    "payload": 'such as {"kind": "agentTurn", "message": "…"} or '
    '{"kind": "systemEvent", "text": "…"}',
}


def _normalize(
    raw: Mapping[str, Any],
    now_ms: int,
    by: By,
    *,
    creating: bool,
    payload: Payload | None = None,
    delivery: Delivery | None = None,
) -> dict[str, Any]:
    """The fields of a job, typed, by their names in camelCase."""
    given = _spelled(raw)
    while len(given) == 1 and isinstance(inner := given.get("job", given.get("data")), Mapping):
        given = _spelled(inner)
    if creating:
        given = {name: value for name, value in given.items() if value is not None}
    schedule = {name: given.pop(name) for name in _SCHEDULE_KEYS & given.keys()}
    loose = {name: given.pop(name) for name in _PAYLOAD_KEYS & given.keys()}
    if unknown := sorted(given.keys() - _KEYS):
        raise ToolInputError(_unknown(unknown[0], _KEYS | _SCHEDULE_KEYS | _PAYLOAD_KEYS))
    if by == "model" and "grants" in given:
        raise ToolInputError("grants: only a person can allow commands (clawkit cron edit --grant)")
    fields: dict[str, Any] = {}
    for name in _PLAIN_KEYS & given.keys():
        fields[name] = _plain(name, given[name])
    if given.get("schedule") is not None or schedule:
        fields["schedule"] = _read_schedule(given.get("schedule"), schedule, now_ms)
    if given.get("payload") is not None or loose:
        fields["payload"] = _read_payload(given.get("payload"), loose, payload)
    for name, kind in (
        ("failureAlert", Literal[False] | JobAlert),
        ("pacing", Pacing | None),
        ("grants", tuple[_Text, ...] | None),
    ):
        if name in given:
            fields[name] = _convert(given[name], kind, name)
    if "delivery" in given:
        fields["delivery"] = _read_delivery(given["delivery"], delivery)
    return fields


def _spelled(raw: Mapping[str, Any]) -> dict[str, Any]:
    """With trimmed names in camelCase."""
    if not isinstance(raw, Mapping):
        raise ToolInputError("a job must be an object")
    found: dict[str, Any] = {}
    for key, value in raw.items():
        name = re.sub(r"_([a-z])", lambda match: match[1].upper(), str(key).strip())
        name = _ALIASES.get(name, name)
        if name in found:
            raise ToolInputError(f"{name} is given twice")
        if name:
            found[name] = value
    return found


def _read_schedule(raw: Any, loose: dict[str, Any], now_ms: int) -> Schedule:
    if isinstance(raw, str):
        from clawkit.cron.phrases import read_phrase

        by_phrase: Schedule = read_phrase(raw, now_ms, str(loose.get("tz") or ""))
        return by_phrase
    if raw is not None and not isinstance(raw, Mapping):
        raise ToolInputError(f"schedule must be an object; {_HELP['schedule']}")
    return read_schedule({**loose, **(raw or {})}, now_ms)


def _read_payload(raw: Any, loose: dict[str, Any], before: Payload | None) -> Payload:
    if isinstance(raw, str):
        raw = {"kind": "agentTurn", "message": raw}
    if raw is not None and not isinstance(raw, Mapping):
        raise ToolInputError(f"payload must be an object; {_HELP['payload']}")
    given = {**loose, **_spelled_payload(raw or {})}
    kind = given.pop("kind", None) or _infer(given, before)
    if kind == "heartbeat":
        raise ToolInputError("payload.kind: heartbeats are configured (agents.defaults.heartbeat)")
    if kind not in _PAYLOADS:
        raise ToolInputError(f"unknown payload.kind {kind!r}; use one of {', '.join(_PAYLOADS)}")
    type_, main = _PAYLOADS[kind]
    if before is not None and isinstance(before, type_):
        given = msgspec.to_builtins(before) | given
        given.pop("kind")
    given = {name: value for name, value in given.items() if value is not None}
    for other in {key for _, key in _PAYLOADS.values()} - {main}:
        if other in given and main not in given:
            given[main] = given.pop(other)
    known = {field.encode_name for field in msgspec.structs.fields(type_)}
    if unknown := sorted(given.keys() - known):
        raise ToolInputError(
            _unknown(f"payload.{unknown[0]}", {f"payload.{each}" for each in known})
        )
    if main not in given:
        raise ToolInputError(f"payload.{main} is required for {kind}")
    if given.get("toolsAllow") in (["*"], "*"):
        del given["toolsAllow"]
    found: Payload = _convert(given, type_, "payload")
    return found


def _spelled_payload(raw: Mapping[str, Any]) -> dict[str, Any]:
    kind = raw.get("kind")
    return _spelled({key: value for key, value in raw.items() if key != "kind"}) | (
        {"kind": kind} if kind is not None else {}
    )


def _infer(given: Mapping[str, Any], before: Payload | None) -> str:
    for kind, key in (
        ("agentTurn", "message"),
        ("script", "script"),
        ("command", "argv"),
        ("systemEvent", "text"),
    ):
        if key in given:
            return kind
    return _kind(before) if before is not None else "agentTurn"


def _read_delivery(raw: Any, before: Delivery | None) -> Delivery:
    if raw is None:
        return Delivery()
    if isinstance(raw, str):
        is_mode = raw in ("none", "announce")
        raw = {"mode": raw} if is_mode else {"mode": "webhook", "to": raw}
    if not isinstance(raw, Mapping):
        raise ToolInputError('delivery must be an object, such as {"mode": "announce"}')
    given = {name: value for name, value in _spelled(raw).items() if value is not None}
    if before is not None and given.get("mode", before.mode) == before.mode:
        given = msgspec.to_builtins(before) | given
    if given.get("channel") not in (None, "", "last"):
        raise ToolInputError(
            f"delivery.channel: there is no channel {one_line(str(given['channel']), 40)!r}; chat "
            "channels are not supported in this version. Results can go to a session or a webhook"
        )
    given.setdefault("mode", "webhook" if "://" in str(given.get("to", "")) else "announce")
    found: Delivery = _convert(given, Delivery, "delivery")
    return found


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return None
    kind = next(field for field in msgspec.structs.fields(Job) if field.encode_name == name)
    found = _convert(value, kind.type, name)
    return found.strip() if isinstance(found, str) else found


def _convert(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        why, _, place = str(error).partition(" - at `$")
        name = f"{where}{place.rstrip('`')}"
        key = re.search(r"unknown field `(\w+)`", why)
        if key and key[1] in _NOT_HERE:
            why = f"has no {key[1]}: {_NOT_HERE[key[1]]}"
        raise ToolInputError(f"{name}: {why}") from None


def _unknown(name: str, known: frozenset[str] | set[str]) -> str:
    bare = name.rpartition(".")[2]
    if bare in _NOT_HERE:
        return f"{name}: {_NOT_HERE[bare]}"
    close = nearest(name, sorted(known), 1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"
    return f"unknown field {one_line(name, 60)!r} of a job{hint}"


def _default_target(payload: Payload, session: str) -> str:
    if isinstance(payload, SystemEvent | Heartbeat):
        return "main"
    is_plain = isinstance(payload, AgentTurn) and replace(
        payload, message="-", timeout_seconds=0
    ) == AgentTurn(message="-")
    return "current" if is_plain and session else "isolated"


def _kind(payload: Payload) -> str:
    return str(type(payload).__struct_config__.tag)


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)

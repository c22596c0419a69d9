"""Reads the jobs of an OpenClaw file, `cron/jobs.json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from clawkit.cron.jobs import read_job
from clawkit.cron.phrases import describe
from clawkit.errors import ClawkitError, ToolInputError
from clawkit.text import one_line

_STATE = ("id", "jobId", "state", "createdAtMs", "updatedAtMs", "configRevision", "nextRunAtMs")
"""Run-time state in a file; imported jobs start without it."""
_NOT_HERE = {
    "trigger": "its condition is dropped, so it runs every time",
    "isolation": "isolation is dropped: delivery decides how results are reported",
    "notify": "notify is dropped; use delivery with a webhook",
    "declarationKey": "declarationKey is dropped: it belongs to a setting of OpenClaw",
    "owner": "owner is dropped",
    "sessionKey": "sessionKey is dropped: it names a session of OpenClaw",
}
_PAYLOAD_NOT_HERE = ("allowUnsafeExternalContent", "externalContentSource", "toolBudget")
_OLD_DELIVERY = ("deliver", "channel", "provider", "to", "bestEffortDeliver")
"""In older files, the delivery is part of the payload."""


class Imported(NamedTuple):
    """A job of the file in the format of `cron.add`, and notes about differences."""

    name: str
    raw: dict[str, Any]
    changes: list[str]
    means: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        own = {"name": self.name, "means": self.means, "problem": self.problem}
        return {key: value or None for key, value in own.items()} | {"changes": self.changes}


def read_jobs(data: bytes, now_ms: int) -> list[Imported]:
    """The jobs, including invalid ones. Raises `ClawkitError` for another kind of file."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ClawkitError(f"this is not a jobs file of OpenClaw: {error}") from None
    version = found.get("version", 1) if isinstance(found, dict) else 1
    if version != 1:
        raise ClawkitError(
            f"version {one_line(str(version), 40)} of this file is not supported; use 1"
        )
    jobs = found.get("jobs") if isinstance(found, dict) else found
    if not isinstance(jobs, list):
        raise ClawkitError('this is not a jobs file of OpenClaw: it has no list "jobs"')
    return [_read_one(each, number, now_ms) for number, each in enumerate(jobs)]


def _read_one(record: Any, number: int, now_ms: int) -> Imported:
    if not isinstance(record, dict):
        return Imported(f"jobs[{number}]", {}, [], problem="it must be an object")
    name = one_line(str(record.get("name") or record.get("id") or f"jobs[{number}]"), 80)
    raw = {key: value for key, value in record.items() if key not in _STATE and value is not None}
    changes = list(_adapt(raw))
    try:
        job = read_job(raw, now_ms, by="operator")
    except ToolInputError as error:
        return Imported(name, raw, changes, problem=str(error))
    return Imported(name, raw, changes, means=describe(job.schedule))


def _adapt(raw: dict[str, Any]) -> Iterator[str]:
    """Convert a job to clawkit's format; yields notes about changes."""
    for key, why in _NOT_HERE.items():
        if raw.pop(key, None) is not None:
            yield why
    payload = raw.get("payload")
    if isinstance(payload, dict):
        payload = raw["payload"] = dict(payload)
        old = {key: payload.pop(key) for key in _OLD_DELIVERY if key in payload}
        if old and "delivery" not in raw:
            raw["delivery"] = _delivery_of(old)
        for key in _PAYLOAD_NOT_HERE:
            if payload.pop(key, None) is not None:
                yield f"payload.{key} is dropped"
    if isinstance(raw.get("delivery"), dict):
        raw["delivery"] = dict(raw["delivery"])
        yield from _adapt_destination(raw["delivery"], "delivery")
        failure = raw["delivery"].get("failureDestination")
        if isinstance(failure, dict):
            failure = raw["delivery"]["failureDestination"] = dict(failure)
            yield from _adapt_destination(failure, "delivery.failureDestination")
    alert = raw.get("failureAlert")
    if isinstance(alert, dict):
        alert = raw["failureAlert"] = dict(alert)
        yield from _adapt_destination(alert, "failureAlert")
    if raw.get("sessionTarget") == "current":
        raw["sessionTarget"] = "isolated"
        yield "sessionTarget 'current' becomes 'isolated': its session does not exist here"


def _delivery_of(old: dict[str, Any]) -> dict[str, Any]:
    wanted = old.get("deliver")
    found: dict[str, Any] = {"mode": "none" if wanted is False else "announce"}
    if channel := old.get("channel") or old.get("provider"):
        found["channel"] = channel
    if old.get("to"):
        found["to"] = old["to"]
    if old.get("bestEffortDeliver"):
        found["bestEffort"] = True
    return found


def _adapt_destination(destination: dict[str, Any], where: str) -> Iterator[str]:
    """A destination in a chat channel becomes the main session."""
    gone = [key for key in ("accountId", "threadId") if destination.pop(key, None) is not None]
    channel = destination.get("channel")
    if channel not in (None, "", "last"):
        has_to = destination.get("mode") != "webhook" and "to" in destination
        gone += ["channel", *(["to"] if has_to else [])]
    if destination.get("mode") == "none" and destination.get("to"):
        gone.append("to")
    for key in ("channel", "to"):
        if key in gone or (key == "channel" and where == "failureAlert"):
            destination.pop(key, None)
    if gone:
        is_said = destination.get("mode", "announce") == "announce"
        instead = "; results are reported in the main session" if is_said else ""
        keys = ", ".join(dict.fromkeys(gone))
        shown = f"{channel} ({keys})" if "channel" in gone else keys
        yield f"{where}: {shown} is dropped{instead}"

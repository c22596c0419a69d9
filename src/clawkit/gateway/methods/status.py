"""Methods about the gateway itself: health, status, presence, logs, the doctor, restarts."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct

from clawkit.bundled import open_plugins
from clawkit.config.paths import home, skills_dir
from clawkit.core.context import Scope
from clawkit.core.tasks import in_thread
from clawkit.errors import ConfigError
from clawkit.gateway import protocol
from clawkit.gateway.formats import NO_SUMMARY
from clawkit.gateway.log import Level, LogFilter
from clawkit.gateway.methods.method import Caller, Gateway, Method, OfAgent
from clawkit.gateway.own_device import own_identity
from clawkit.gateway.protocol import Closed, Ignored, NoParams, Short, ignored, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, READ
from clawkit.services import Services
from clawkit.sessions.protocols import Filter
from clawkit.version import __version__

DOCTOR_S = 120.0


class Health(Struct, frozen=True):
    """Unknown keys are ignored: old clients send some."""


class Status(Closed, frozen=True):
    include_channel_summary: bool = True


class Tail(Closed, frozen=True):
    cursor: Annotated[int, Meta(ge=0)] | None = None
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 500
    max_bytes: Annotated[int, Meta(ge=1, le=1_000_000)] = 250_000
    level: Level = "debug"
    text: Short = ""


class ChannelsStatus(Closed, frozen=True):
    """There are no channels to probe."""

    probe: Ignored = UNSET
    timeout_ms: Ignored = UNSET
    channel: Ignored = UNSET


class RestartRequest(Closed, frozen=True):
    """Turns always get time to end."""

    reason: Short = "a client requested it"
    skip_deferral: Ignored = UNSET


class DoctorReport(Struct, frozen=True, rename="camel"):
    """The output of the command without the fields for `--fix`."""

    ok: bool
    config_valid: bool
    findings: list[dict[str, str]]


def health(gateway: Gateway, *, details: bool = True) -> dict[str, Any]:
    """Without `details`, omits sessions and settings."""
    started, config = time.monotonic(), gateway.watch.describe()
    default = gateway.loaded.config.agents.default_id()
    beat = gateway.job_runner.heartbeats.describe
    agents = [
        {
            "agentId": each,
            "isDefault": each == default,
            "heartbeat": beat(each, details=details),
            "sessions": gateway.session_list.summary(each) if details else NO_SUMMARY,
        }
        for each in gateway.loaded.config.agents.ids()
    ]
    plugins = open_plugins(gateway.loaded.config)
    return {
        "ok": True,
        "ts": now_ms(),
        "plugins": {
            "loaded": list(plugins.active) if plugins else [],
            "errors": [{"id": each, "error": plugins.left_out[each]} for each in plugins.left_out]
            if plugins and details
            else [],
        },
        "channels": {},
        "channelOrder": [],
        "channelLabels": {},
        "heartbeatSeconds": (beat(default)["everyMs"] or 0) // 1000,
        "defaultAgentId": default,
        "agents": agents,
        "sessions": gateway.session_list.summary() if details else NO_SUMMARY,
        "config": config if details else {"valid": config["valid"]},
        "durationMs": round((time.monotonic() - started) * 1000),
    }


async def _health(caller: Caller, _params: Health, _id: str) -> Any:
    return health(caller.gateway)


async def _status(caller: Caller, params: Status, _id: str) -> Any:
    gateway, now = caller.gateway, now_ms()
    default, *others = gateway.loaded.config.agents.ids()
    model, window, _ = gateway.session_list.default_model(default)
    recent = []
    for each in gateway.session_list.list(Filter(), 10):
        row = gateway.session_list.row(each)
        room = row["contextTokens"]
        used = round(100 * each.context_tokens / room) if room else None
        row |= {"age": now - each.updated_ms, "percentUsed": used, "flags": []}
        recent.append(row)
    agents = [{"agentId": each} for each in (default, *others)]
    beat = gateway.job_runner.heartbeats.describe
    return {
        "runtimeVersion": __version__,
        "heartbeat": {
            "defaultAgentId": default,
            "agents": [each | beat(each["agentId"], details=False) for each in agents],
        },
        **({"channelSummary": []} if params.include_channel_summary else {}),
        "queuedSystemEvents": [],
        "tasks": {"total": 0, "active": 0, "terminal": 0, "failures": 0},
        "sessions": {
            "paths": [gateway.store.path],
            "count": gateway.session_list.count(Filter()),
            "defaults": {"model": model or None, "contextTokens": window or None},
            "recent": recent,
            "byAgent": [each | gateway.session_list.summary(each["agentId"]) for each in agents],
        },
    }


async def _presence(caller: Caller, _params: NoParams, _id: str) -> Any:
    return caller.gateway.hub.presence()


async def _tail(caller: Caller, params: Tail, _id: str) -> Any:
    wanted = LogFilter(params.level, params.text)
    return caller.gateway.log.tail(params.cursor, params.limit, params.max_bytes, wanted)


async def _info(caller: Caller, _params: NoParams, _id: str) -> Any:
    gateway, place = caller.gateway, home(os.environ)
    disk, size = shutil.disk_usage(place), os.sysconf("SC_PAGE_SIZE")
    host, kernel = socket.gethostname(), platform.release()
    system = {"hostname": host, "machineName": host, "platform": sys.platform, "release": kernel}
    system |= {"arch": platform.machine(), "osLabel": f"{platform.system()} {kernel}"}
    process = {"port": gateway.port, "pid": os.getpid(), "processInstanceId": gateway.boot_id}
    process |= {"uptimeMs": gateway.uptime_ms, "pythonVersion": platform.python_version()}
    process |= {"processMemory": {"rssBytes": _resident_pages() * size}}
    space = {"diskPath": place, "diskTotalBytes": disk.total, "diskAvailableBytes": disk.free}
    pages = {"memoryTotalBytes": "SC_PHYS_PAGES", "memoryFreeBytes": "SC_AVPHYS_PAGES"}
    memory = {name: os.sysconf(kind) * size for name, kind in pages.items()}
    load = {"cpuCount": os.cpu_count(), "loadAverage": list(os.getloadavg())}
    return {**system, **process, **space, **memory, **load}


async def _identity(_caller: Caller, _params: NoParams, _id: str) -> Any:
    """The device identity of this home, for remote gateways and nodes."""
    _, device, public = own_identity()
    return {"deviceId": device, "publicKey": public}


async def _restart(caller: Caller, params: RestartRequest, _id: str) -> Any:
    """Schedule a restart; requests until then share it."""
    return caller.gateway.request_restart(params.reason) | ignored(params)


def _resident_pages() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1])


async def _channels(_caller: Caller, params: ChannelsStatus, _id: str) -> Any:
    lists = ("channelOrder", "channelMeta", "statusIssues")
    tables = ("channelLabels", "channels", "channelAccounts", "channelDefaultAccountId")
    empty: dict[str, Any] = {**{key: [] for key in lists}, **{key: {} for key in tables}}
    return {"ts": now_ms(), **empty, **ignored(params)}


async def _skills(caller: Caller, params: OfAgent, _id: str) -> Any:
    """The skills of an agent, and whether each is offered."""
    live = caller.gateway.live
    agent = live.check_agent(params.agent_id)
    place = live.workspace(agent)
    services = Services(caller.gateway.loaded, Scope(agent=agent), place)
    snapshot = await in_thread(lambda: services.skills)
    rows = [_show_skill(snapshot.describe(each)) for each in snapshot.skills] if snapshot else []
    about = {"agentId": agent, "workspaceDir": place, "managedSkillsDir": skills_dir(os.environ)}
    return {**about, "skills": rows}


def _show_skill(row: dict[str, Any]) -> dict[str, Any]:
    """A skill in the format of the protocol."""
    about, why = row["metadata"], row["missing"]
    lists: dict[str, Any] = {key: [] for key in ("bins", "anyBins", "env", "config", "os")}
    given = {key: about[key] for key in ("emoji", "homepage", "primaryEnv") if about.get(key)}
    return {
        **{key: row[key] for key in ("name", "description", "source", "eligible", "warnings")},
        **given,
        "bundled": False,
        "filePath": row["file"],
        "baseDir": os.path.dirname(row["file"]),
        "skillKey": about.get("skillKey") or row["name"],
        "always": about.get("always", False),
        "disabled": why.endswith("enabled is false"),
        "blockedByAllowlist": False,
        "requirements": {**lists, **about.get("requires", {}), "os": about.get("os", [])},
        "missing": lists,
        "reason": why,
        "configChecks": [],
        "install": [],
    }


async def _reload_secrets(caller: Caller, _params: NoParams, _id: str) -> Any:
    """Reload the configuration, including every secret that it refers to."""
    watch = caller.gateway.watch
    await watch.reload()
    if watch.issues:
        raise invalid(str(ConfigError(watch.issues)))
    return {"ok": True, "warningCount": 0}


async def _doctor(caller: Caller, _params: NoParams, _id: str) -> Any:
    """The report of `clawkit doctor --json`, without secrets."""
    file = caller.gateway.loaded.file
    if file is not None and file.startswith("<"):
        raise protocol.GatewayError("UNAVAILABLE", "the configuration does not come from a file")
    report: DoctorReport = await in_thread(_examine, file)
    redact = caller.gateway.redactor.strict
    findings = [{key: redact(each[key]) for key in each} for each in report.findings]
    shown = {"ok": report.ok, "configValid": report.config_valid, "findings": findings}
    return {"ts": now_ms(), **shown}


def _examine(file: str | None) -> DoctorReport:
    """Run the command in a process, because it belongs to a higher layer. `-P`: do not import
    modules from the current directory."""
    argv = [sys.executable, "-P", "-m", "clawkit", "doctor", "--json"]
    argv += ["--config", file] if file is not None else []
    try:
        done = subprocess.run(  # our own program
            argv,
            cwd=home(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DOCTOR_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=DoctorReport)
    except subprocess.TimeoutExpired:
        what = f"took more than {DOCTOR_S:g} seconds"
    except ValueError:
        what = "printed no report"
    raise protocol.GatewayError("UNAVAILABLE", f"clawkit doctor {what}; run it in a terminal")


METHODS = (
    Method("health", READ, Health, _health),
    Method("status", READ, Status, _status),
    Method("system-presence", READ, NoParams, _presence),
    Method("system.info", READ, NoParams, _info),
    Method("logs.tail", READ, Tail, _tail),
    Method("channels.status", READ, ChannelsStatus, _channels),
    Method("skills.status", READ, OfAgent, _skills),
    Method("secrets.reload", ADMIN, NoParams, _reload_secrets),
    Method("gateway.identity.get", READ, NoParams, _identity),
    Method("gateway.restart.request", ADMIN, RestartRequest, _restart, limited=True),
    Method("doctor.run", ADMIN, NoParams, _doctor, limited=True),
)

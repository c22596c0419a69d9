"""Methods about the gateway itself: health, status, presence, logs."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct

from clawkit.config.paths import home
from clawkit.errors import ConfigError
from clawkit.gateway.log import Level, LogFilter
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, Ignored, NoParams, Short, ignored, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, READ
from clawkit.gateway.shelf import NO_SUMMARY
from clawkit.sessions.protocols import Filter
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway

_NO_HEARTBEAT = {"enabled": False, "every": "0m", "everyMs": None}


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
    """There are no channels that could be probed."""

    probe: Ignored = UNSET
    timeout_ms: Ignored = UNSET
    channel: Ignored = UNSET


class SkillsStatus(Closed, frozen=True):
    agent_id: Short | None = None


def agent_ids(gateway: Gateway) -> list[str]:
    """All agents, the default one first."""
    agents = gateway.loaded.config.agents
    return list(dict.fromkeys((agents.default_id(), *agents.by_id())))


def health(gateway: Gateway, *, details: bool = True) -> dict[str, Any]:
    """Without details, nothing about sessions and settings."""
    started, config = time.monotonic(), gateway.watch.describe()
    default = gateway.loaded.config.agents.default_id()
    agents = [
        {
            "agentId": each,
            "isDefault": each == default,
            "heartbeat": _NO_HEARTBEAT,
            "sessions": gateway.shelf.summary(each) if details else NO_SUMMARY,
        }
        for each in agent_ids(gateway)
    ]
    return {
        "ok": True,
        "ts": now_ms(),
        "plugins": {"loaded": [], "errors": []},
        "channels": {},
        "channelOrder": [],
        "channelLabels": {},
        "heartbeatSeconds": 0,
        "defaultAgentId": default,
        "agents": agents,
        "sessions": gateway.shelf.summary() if details else NO_SUMMARY,
        "config": config if details else {"valid": config["valid"]},
        "durationMs": round((time.monotonic() - started) * 1000),
    }


async def _health(caller: GatewayConnection, _params: Health, _id: str) -> Any:
    return health(caller.gateway)


async def _status(caller: GatewayConnection, params: Status, _id: str) -> Any:
    gateway, now = caller.gateway, now_ms()
    default = gateway.loaded.config.agents.default_id()
    model, window, _ = gateway.shelf.default_model(default)
    recent = []
    for each in gateway.shelf.list(Filter(), 10):
        row = gateway.shelf.row(each)
        window = row["contextTokens"]
        used = round(100 * each.context_tokens / window) if window else None
        row |= {"age": now - each.updated_ms, "percentUsed": used, "flags": []}
        recent.append(row)
    by_agent = [{"agentId": each, **gateway.shelf.summary(each)} for each in agent_ids(gateway)]
    return {
        "runtimeVersion": __version__,
        "heartbeat": {
            "defaultAgentId": default,
            "agents": [{"agentId": each, **_NO_HEARTBEAT} for each in agent_ids(gateway)],
        },
        **({"channelSummary": []} if params.include_channel_summary else {}),
        "queuedSystemEvents": [],
        "tasks": {"total": 0, "active": 0, "terminal": 0, "failures": 0},
        "sessions": {
            "paths": [gateway.store.path],
            "count": gateway.shelf.count(Filter()),
            "defaults": {"model": model or None, "contextTokens": window or None},
            "recent": recent,
            "byAgent": by_agent,
        },
    }


async def _presence(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    return caller.gateway.hub.presence()


async def _tail(caller: GatewayConnection, params: Tail, _id: str) -> Any:
    wanted = LogFilter(params.level, params.text)
    return caller.gateway.log.tail(params.cursor, params.limit, params.max_bytes, wanted)


async def _info(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    gateway, disk = caller.gateway, shutil.disk_usage(home(os.environ))
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    rss = _resident_pages()
    host, kernel = socket.gethostname(), platform.release()
    system = {"hostname": host, "machineName": host, "platform": sys.platform, "release": kernel}
    system |= {"arch": platform.machine(), "osLabel": f"{platform.system()} {kernel}"}
    process = {"port": gateway.port, "pid": os.getpid(), "processInstanceId": gateway.boot_id}
    process |= {"uptimeMs": gateway.uptime_ms, "pythonVersion": platform.python_version()}
    space = {"diskPath": home(os.environ), "diskTotalBytes": disk.total}
    space |= {"diskAvailableBytes": disk.free, "memoryTotalBytes": pages * size}
    load = {"cpuCount": os.cpu_count(), "loadAverage": list(os.getloadavg())}
    return {**system, **process, **space, **load, "processMemory": {"rssBytes": rss * size}}


def _resident_pages() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1])


async def _channels(_caller: GatewayConnection, params: ChannelsStatus, _id: str) -> Any:
    lists = ("channelOrder", "channelMeta", "statusIssues")
    tables = ("channelLabels", "channels", "channelAccounts", "channelDefaultAccountId")
    empty: dict[str, Any] = {**{key: [] for key in lists}, **{key: {} for key in tables}}
    return {"ts": now_ms(), **empty, **ignored(params)}


async def _skills(caller: GatewayConnection, params: SkillsStatus, _id: str) -> Any:
    """Clawkit has no skills."""
    live = caller.gateway.live
    agent = live.check_agent(params.agent_id)
    about = {"agentId": agent, "workspaceDir": live.workspace(agent)}
    return {**about, "managedSkillsDir": "", "skills": []}


async def _heartbeat(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    """There are no heartbeats, so there was none."""
    return None


async def _reload_secrets(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    """Read the configuration again, and with it every secret that it refers to."""
    watch = caller.gateway.watch
    await watch.reload()
    if watch.issues:
        raise invalid(str(ConfigError(watch.issues)))
    return {"ok": True, "warningCount": 0}


METHODS = (
    Method("health", READ, Health, _health),
    Method("status", READ, Status, _status),
    Method("system-presence", READ, NoParams, _presence),
    Method("system.info", READ, NoParams, _info),
    Method("logs.tail", READ, Tail, _tail),
    Method("channels.status", READ, ChannelsStatus, _channels),
    Method("skills.status", READ, SkillsStatus, _skills),
    Method("last-heartbeat", READ, NoParams, _heartbeat),
    Method("secrets.reload", ADMIN, NoParams, _reload_secrets),
)

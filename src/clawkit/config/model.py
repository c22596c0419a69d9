"""`Config`: the whole configuration as one typed value."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.config.section import Conflict, Section, suggest
from clawkit.config.sections.agents import MAIN, Agents, SessionSettings
from clawkit.config.sections.environment import DiagnosticsSettings, Env, Logging, Secrets
from clawkit.config.sections.models import Auth, Models
from clawkit.config.sections.tools import ApprovalSettings, LoopDetection, Tools
from clawkit.text import one_line

if TYPE_CHECKING:
    from clawkit.config.sections.gateway import (
        CommandSettings,
        Cron,
        GatewaySettings,
        WebhookSettings,
    )
    from clawkit.config.sections.messaging import Binding, Channel, Messages
    from clawkit.config.sections.plugins import Mcp, MemoryConfig, Plugins
    from clawkit.config.sections.skills import Skills
    from clawkit.config.sections.web import Browser, Tts


class Config(Section):
    """All settings. An empty file is a complete configuration."""

    schema: str | None = msgspec.field(default=None, name="$schema")  #: JSON Schema, for editors.
    env: Env = Env()  #: Environment variables for this configuration.
    secrets: Secrets = Secrets()
    agents: Agents = Agents()  #: Agents, and defaults for all of them.
    bindings: "list[Binding]" = []  #: Which agent answers which messages.
    models: Models = Models()
    auth: Auth = Auth()
    tools: Tools = Tools()  #: Tools and their limits.
    plugins: "Plugins | None" = None
    mcp: "Mcp | None" = None  #: MCP servers whose tools are offered.
    skills: "Skills | None" = None
    approvals: ApprovalSettings = ApprovalSettings()
    gateway: "GatewaySettings | None" = (
        None  #: The server that other programs and devices connect to.
    )
    browser: "Browser | None" = None
    cron: "Cron | None" = None
    hooks: "WebhookSettings | None" = None
    commands: "CommandSettings | None" = None
    session: SessionSettings = SessionSettings()
    messages: "Messages | None" = None
    tts: "Tts | None" = None
    memory: "MemoryConfig | None" = None
    channels: "dict[str, Channel]" = {}  #: Chat channels, by id.
    logging: Logging = Logging()
    diagnostics: DiagnosticsSettings = DiagnosticsSettings()

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        token = _at(raw, "hooks", "token")
        if token and token == _at(raw, "gateway", "auth", "token"):
            yield (
                "hooks",
                "its token is the same as gateway.auth.token",
                "Use a different token: senders of hooks must not control the gateway",
            )
        general = _at(raw, "tools", "loopDetection") or {}
        agents = raw.get("agents") or {}
        named = [(agent.get("id"), agent) for agent in agents.get("list") or ()]
        for name, agent in [*named, *(agents.get("entries") or {}).items()]:
            own = _at(agent, "tools", "loopDetection")
            if own and not any(LoopDetection.partial_conflicts(own)):
                for key, message, hint in LoopDetection.conflicts({**general, **own}):
                    yield "agents", f"{key} of agent {name!r} {message}", hint
        yield from _unknown_agents(raw)
        yield from _unknown_search(raw)


def _unknown_agents(raw: dict[str, Any]) -> Iterable[Conflict]:
    if not raw.get("bindings"):
        return
    agents = raw.get("agents") or {}
    known = [*(each.get("id") for each in agents.get("list") or ()), *(agents.get("entries") or ())]
    known = list(dict.fromkeys(str(each).strip().lower() for each in (*known, MAIN)))
    for number, binding in enumerate(raw["bindings"]):
        name = binding["agentId"].strip().lower()
        if name not in known:
            hint = suggest(name, known, "Known agents")
            yield ("bindings", number, "agentId"), f"there is no agent {one_line(name, 60)!r}", hint


def _unknown_search(raw: dict[str, Any]) -> Iterable[Conflict]:
    name = _at(raw, "tools", "web", "search", "provider")
    if not name:
        return
    from clawkit.config.search_services import SEARCH_ENTRIES, SEARCH_SETTINGS

    plugins = _at(raw, "plugins", "entries") or ()
    known = [*SEARCH_ENTRIES, *(each for each in plugins if each not in SEARCH_SETTINGS)]
    if name not in known:
        hint = suggest(name, known, "Search services")
        where = ("tools", "web", "search", "provider")
        yield where, f"unknown search service {one_line(name, 60)!r}", hint


def _at(raw: dict[str, Any], *keys: str) -> Any:
    found: Any = raw
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found

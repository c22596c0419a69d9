"""The one table of tools: what exists, under which names, and in which groups and profiles.

Profiles, groups, policy, the command line and the documentation all read this table. A tool that is
not `available` is known by name but not part of this build: policy traces it like any other, and a
call fails with a clear error.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Profile = Literal["minimal", "coding", "messaging", "full"]
SubAgent = Literal["yes", "orchestrator", "orchestrator-opt-in", "no", "never"]


class CatalogEntry(Struct, frozen=True):
    """One tool as the outside world knows it."""

    id: str
    section: str
    description: str
    profiles: tuple[Profile, ...] = ()
    """The limited profiles that include the tool; `full` includes every tool."""
    groups: tuple[str, ...] = ()
    """Group names without `group:`; every built-in is also in `group:openclaw`."""
    aliases: tuple[str, ...] = ()
    owner_only: bool = False
    sub_agent: SubAgent = "no"
    """Default for sub-agents: `yes`; `orchestrator` (has it, but never at the deepest level);
    `orchestrator-opt-in` (configuration may add it, but never at the deepest level); `no`
    (configuration may add it); `never` (nothing can add it)."""
    available: bool = True
    """Whether this build has the tool."""

    @property
    def module(self) -> str:
        """The module that defines the tool; empty if it is not in this build."""
        return f"clawkit.tools.{self.id}" if self.available else ""


_C: tuple[Profile, ...] = ("coding",)
_CM: tuple[Profile, ...] = ("coding", "messaging")
_FS, _RUN, _WEB, _MEM, _SES = ("fs",), ("runtime",), ("web",), ("memory",), ("sessions",)

# fmt: off
_ENTRIES = (
    CatalogEntry("read", "Files", "Read a file, page by page", _C, _FS, sub_agent="yes"),
    CatalogEntry("write", "Files", "Create or overwrite a file", _C, _FS),
    CatalogEntry("edit", "Files", "Replace exact pieces of a file", _C, _FS),
    CatalogEntry("apply_patch", "Files", "Apply a patch over one or more files", _C, _FS, ("apply-patch",)),
    CatalogEntry("grep", "Files", "Search file contents", _C, _FS, sub_agent="yes"),
    CatalogEntry("find", "Files", "Find files by name pattern", _C, _FS, ("glob",), sub_agent="yes"),
    CatalogEntry("ls", "Files", "List a directory", _C, _FS, sub_agent="yes"),
    CatalogEntry("exec", "Runtime", "Run shell commands", _C, _RUN, ("bash",)),
    CatalogEntry("process", "Runtime", "Watch and steer background commands", _C, _RUN),
    CatalogEntry("code_execution", "Runtime", "Run Python or JavaScript, with variables kept", _C, _RUN),
    CatalogEntry("web_search", "Web", "Search the web", _C, _WEB),
    CatalogEntry("x_search", "Web", "Search posts on X", _C, _WEB),
    CatalogEntry("web_fetch", "Web", "Fetch a page as readable text", _C, _WEB),
    CatalogEntry("memory_search", "Memory", "Search notes of earlier work", _C, _MEM),
    CatalogEntry("memory_get", "Memory", "Read part of a note", _C, _MEM),
    CatalogEntry("sessions_list", "Sessions", "List sessions", _CM, _SES, sub_agent="orchestrator"),
    CatalogEntry("sessions_history", "Sessions", "Read a session's transcript", _CM, _SES, sub_agent="orchestrator"),
    CatalogEntry("sessions_search", "Sessions", "Search what was said in sessions", _CM, _SES, sub_agent="orchestrator"),
    CatalogEntry("sessions_send", "Sessions", "Send a message to another session", _CM, _SES, sub_agent="never"),
    CatalogEntry("sessions_spawn", "Sessions", "Start a sub-agent", _C, _SES, sub_agent="orchestrator"),
    CatalogEntry("sessions_yield", "Sessions", "End the turn and wait for sub-agents", _C, _SES, sub_agent="orchestrator"),
    CatalogEntry("subagents", "Sessions", "List and steer sub-agent runs", _C, _SES, sub_agent="orchestrator-opt-in"),
    CatalogEntry("session_status", "Sessions", "Show the state of the session", ("minimal", "coding", "messaging"), _SES, sub_agent="never"),
    CatalogEntry("browser", "UI", "Control a web browser", (), ("ui",), available=False),
    CatalogEntry("canvas", "UI", "Show and drive a canvas on a device", (), ("ui",), available=False),
    CatalogEntry("message", "Messaging", "Send messages and channel actions", ("messaging",), ("messaging",), sub_agent="never", available=False),
    CatalogEntry("whatsapp_login", "Messaging", "Link a WhatsApp account", owner_only=True, available=False),
    CatalogEntry("heartbeat_respond", "Automation", "Answer a heartbeat check", (), ("automation",), sub_agent="never"),
    CatalogEntry("cron", "Automation", "Schedule tasks and reminders", _C, ("automation",), ("automations",), True, "never"),
    CatalogEntry("gateway", "Automation", "Restart, configure or update the gateway", (), ("automation",), (), True, "never"),
    CatalogEntry("nodes", "Nodes", "List and control paired devices", (), ("nodes",), (), True, available=False),
    CatalogEntry("agents_list", "Agents", "List the agents that may be started", (), ("agents",), sub_agent="never"),
    CatalogEntry("update_plan", "Agents", "Keep a plan of steps", (), ("agents",), ("progress_card",), sub_agent="never"),
    CatalogEntry("image", "Media", "Look at an image with a vision model", _C, ("media",), ("view_image",), available=False),
    CatalogEntry("image_generate", "Media", "Make or change images", _C, ("media",), available=False),
    CatalogEntry("music_generate", "Media", "Make music", (), ("media",), available=False),
    CatalogEntry("video_generate", "Media", "Make videos", _C, ("media",), available=False),
    CatalogEntry("tts", "Media", "Turn text into speech", (), ("media",), available=False),
    CatalogEntry("tool_search", "Tools", "Search for deferred tools", sub_agent="yes"),
    CatalogEntry("tool_describe", "Tools", "Describe a deferred tool", sub_agent="yes"),
    CatalogEntry("tool_call", "Tools", "Call a deferred tool", sub_agent="yes"),
)
# fmt: on

CATALOG: dict[str, CatalogEntry] = {entry.id: entry for entry in _ENTRIES}
ALIASES: dict[str, str] = {alias: entry.id for entry in _ENTRIES for alias in entry.aliases}
CARRIER = "tool_call"
CONTROLS = ("tool_search", "tool_describe", CARRIER)
"""They access nothing themselves, so allow lists do not apply to them."""

GROUPS: dict[str, tuple[str, ...]] = {
    f"group:{group}": tuple(entry.id for entry in _ENTRIES if group in entry.groups)
    for group in dict.fromkeys(group for entry in _ENTRIES for group in entry.groups)
} | {"group:openclaw": tuple(CATALOG)}
PROFILES: dict[str, tuple[str, ...]] = {
    profile: tuple(entry.id for entry in _ENTRIES if profile in entry.profiles)
    for profile in ("minimal", "coding", "messaging")
} | {"full": ("*",)}


def canonical(name: str) -> str:
    """The name a tool is registered and matched under: trimmed, lower-case, aliases resolved."""
    name = name.strip().lower()
    return ALIASES.get(name, name)

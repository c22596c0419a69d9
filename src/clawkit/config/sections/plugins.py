"""Third-party tools: `plugins` and `mcp`."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.section import Conflict, Name, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers


class PluginHooks(Section, forbid_unknown_fields=False):
    timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] = 15_000
    """Timeout of a hook, in milliseconds."""


class PluginSubagent(Section):
    allow_model_override: bool = False  #: Let it choose the model.
    allowed_models: list[str] | None = None  #: Models it may choose, `*` for any; unset is all.


class PluginLlm(PluginSubagent):
    allowed_completion_models: list[str] | None = None  #: Models for completions; unset is all.
    allow_auth_profile_override: bool = False  #: Let it choose the credential.
    allow_agent_id_override: bool = False  #: Let it act for another agent.


class PluginEntry(Section):
    """One plugin."""

    enabled: bool | None = None  #: Whether to load it; unset is the plugin's own default.
    config: dict[str, Any] = {}  #: Its own settings, checked against the plugin's schema.
    hooks: PluginHooks = PluginHooks()  #: Limits of its hooks.
    llm: PluginLlm = PluginLlm()  #: How it may use models.
    subagent: PluginSubagent = PluginSubagent()  #: Which models its sub-agents may use.


class PluginLoad(Section):
    paths: list[str] = []  #: Further files and directories with plugins.


class Plugins(Section):
    """Plugins, and which of them are loaded."""

    enabled: bool = True  #: Load plugins.
    allow: list[str] | None = None  #: Only these plugins; unset means all.
    deny: list[str] = []  #: Plugins that are never loaded.
    load: PluginLoad = PluginLoad()  #: Where to look for plugins.
    slots: dict[str, str] = {}  #: Role to the plugin that fills it.
    entries: dict[str, PluginEntry] = {}  #: Settings of plugins, by id.


class ToolFilter(Section):
    include: list[str] | None = None  #: Only these tools; unset means all.
    exclude: list[str] = []  #: Tools to leave out.


class McpServer(Section):
    """One MCP server: a program to start, or an address."""

    EXCLUSIVE = {"url": "command"}

    enabled: bool = True  #: Use the server.
    command: Name | None = None  #: Program to start as the server.
    args: list[str] = []  #: Arguments of the program.
    env: dict[str, SecretInput] = {}  #: Environment variables of the program.
    cwd: str | None = None  #: Working directory of the program.
    url: Name | None = None  #: Address of the server.
    transport: Literal["stdio", "sse", "http", "streamable-http"] | None = None
    """Transport; unset follows from `command` or `url`."""
    headers: Headers = {}  #: Extra headers; values may be secret references.
    connection_timeout_ms: Positive | None = None  #: Milliseconds until connecting fails.
    request_timeout_ms: Positive | None = None  #: Milliseconds until a call fails.
    ssl_verify: bool = True  #: Check the server's certificate.
    supports_parallel_tool_calls: bool | None = None  #: Whether its tools may run at the same time.
    tool_filter: ToolFilter = ToolFilter()  #: Which of its tools are used.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        if not raw.get("command") and not raw.get("url"):
            yield "command", "neither command nor url is set", "Set command or url"


class Mcp(Section):
    """MCP servers whose tools are offered as `<server>__<tool>`."""

    servers: dict[str, McpServer] = {}  #: MCP servers, by name.
    session_idle_ttl_ms: Positive | None = None  #: Milliseconds until an idle connection closes.

"""Plugins, MCP servers and long-term memory: `plugins`, `mcp`, `memory`, and `memorySearch`."""

import re
from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Name, Override, Positive, SecretInput, Section
from clawkit.config.sections.sandbox import Access, Network
from clawkit.config.sections.shared import Headers, Switch, relative_paths


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
    paths: list[str] = []  #: Further files and directories with plugins; absolute, or from `~`.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        return relative_paths(raw, "paths")


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


class McpSandbox(Section):
    """What a program that serves MCP may access, besides reading the system."""

    enabled: bool = True  #: Confine the program; false gives it all your rights.
    workspace_access: Access = "ro"  #: Access to the workspace: none, ro or rw.
    network: Network = "none"  #: Network: none, the hosts in allowHosts, or full.
    allow_hosts: list[str] = []  #: `name`, `*.example.org` or `name:port`; `packages`: registries.
    read_paths: list[str] = []  #: Paths that it may read although they are hidden from commands.
    write_paths: list[str] = []  #: Directories outside the workspace that it may change.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        from clawkit.net.host_rules import check_host

        for number, host in enumerate(raw.get("allowHosts") or ()):
            if problem := check_host(host):
                yield ("allowHosts", number), problem, "Fix or remove it"
        for key in ("readPaths", "writePaths"):
            yield from relative_paths(raw, key)


class McpOauth(Section):
    """The login at a server that requires one, with `clawkit mcp login`."""

    issuer: str | None = None  #: Authorization server to log in at; unset is what the server names.
    scope: str | None = None  #: Scopes to ask for; unset is what the server asks for.
    redirect_url: str | None = None  #: Loopback address to return to; unset is any free port.
    client_metadata_url: str | None = None  #: Address that describes this client, used as its id.
    client_id: str | None = None  #: Id of a client that was registered by hand.
    client_secret: SecretInput | None = None
    """Secret of that client; only for the `issuer`, or for an authorization server at the address
    of the server itself."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("clientSecret") and not raw.get("clientId"):
            yield "clientSecret", "has no effect without clientId", "Set clientId"
        yield from _bad_urls(raw, "issuer", "clientMetadataUrl", "redirectUrl")
        here = r"http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/[^?#]*)?"
        if not re.fullmatch(here, raw.get("redirectUrl") or "http://localhost"):
            problem = "must be an http address of this machine"
            yield "redirectUrl", problem, "Use http://127.0.0.1:PORT/callback"


def _bad_urls(raw: dict[str, Any], *keys: str) -> Iterator[Conflict]:
    from clawkit.net.addresses import parse_url
    from clawkit.net.route import NetError

    for key in (key for key in keys if raw.get(key)):
        try:
            parse_url(raw[key])
        except NetError as error:
            yield key, str(error), "Write a whole address, such as https://example.org/mcp"


class McpServer(Section):
    """One MCP server: a program to start, or an address."""

    EXCLUSIVE = {"url": "command"}

    enabled: bool = True  #: Use the server.
    command: Name | None = None  #: Program to start as the server.
    args: list[str] = []  #: Arguments of the program.
    env: dict[str, SecretInput] = {}  #: Environment variables of the program.
    cwd: str | None = None  #: Directory of the program, from the workspace; unset: a private one.
    url: Name | None = None  #: Address of the server.
    transport: Literal["stdio", "sse", "http", "streamable-http"] | None = None
    """Transport; unset follows from `command` or `url`."""
    headers: Headers = {}  #: Extra headers; values may be secret references.
    auth: Literal["oauth"] | None = None  #: Send nothing before a login; unset asks the server.
    oauth: McpOauth = McpOauth()
    sandbox: McpSandbox = McpSandbox()
    connection_timeout_ms: Positive = 30_000  #: Milliseconds until connecting fails.
    request_timeout_ms: Positive = 120_000  #: Milliseconds until a call fails.
    ssl_verify: bool = True  #: Check the server's certificate.
    supports_parallel_tool_calls: bool | None = None  #: Whether its tools may run at the same time.
    tool_filter: ToolFilter = ToolFilter()  #: Which of its tools are used.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        if not raw.get("command") and not raw.get("url"):
            yield "command", "neither command nor url is set", "Set command or url"
        if raw.get("transport") and (raw["transport"] == "stdio") is not bool(raw.get("command")):
            kind = "url" if raw["transport"] == "stdio" else "command"
            yield "transport", f"cannot be {raw['transport']!r} with {kind}", "Remove it"
        kind = "url" if raw.get("url") else "command"
        unused = {"url": ("args", "env", "cwd", "sandbox"), "command": ("headers", "auth", "oauth")}
        for key in (key for key in unused[kind] if raw.get(key)):
            yield key, f"has no effect with {kind}", "Remove it"
        yield from _bad_urls(raw, "url")
        for name in raw.get("env") or ():
            if not re.fullmatch(r"[^=\0]+", name):
                yield ("env", name), "invalid name of a variable", "Use letters, digits and _"
        for key in ("command", "cwd", "args"):
            if "\0" in "".join(raw.get(key) or ""):
                yield key, "contains a NUL character", "Remove it"
        for name, value in (raw.get("headers") or {}).items():
            from clawkit.net.route import bad_name, bad_value

            if problem := bad_name(name) or (isinstance(value, str) and bad_value(value)):
                yield ("headers", name), problem, "Fix or remove it"


def tool_prefix(server: str) -> str:
    """How the names of all tools of a server begin."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", server)
    return f"{plain if re.match('[A-Za-z]', plain) else f'mcp-{plain}'}__"


class Mcp(Section):
    """MCP servers whose tools are offered as `<server>__<tool>`."""

    servers: dict[str, McpServer] = {}  #: MCP servers, by name.
    session_idle_ttl_ms: Positive = 600_000  #: Milliseconds until an idle connection closes.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        """With the servers `a` and `a__b`, the tool `a__b__c` could be of either."""
        names = (raw.get("servers") or {}).items()
        used = {name: tool_prefix(name).lower() for name, of in names if of.get("enabled", True)}
        for one, other in permutations(used, 2):
            if used[other].startswith(used[one]) and (used[one] != used[other] or one < other):
                problem = f"its tools could have the same names as those of {one!r}"
                yield ("servers", other), problem, "Rename one of the two"


class MemoryBatch(Section):
    enabled: bool = False  #: Use the provider's batch requests.


class MemoryRemote(Section):
    base_url: str | None = None  #: Address of the service.
    api_key: SecretInput | None = None  #: Key of the service.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    batch: MemoryBatch = MemoryBatch()  #: Sending many texts in one request.


class MemoryLocal(Section):
    model_path: str | None = None  #: File of the model.


class MemoryPath(Section):
    """Another location of notes."""

    path: str  #: Directory or file.
    pattern: str | None = None  #: Which files in it, such as `**/*.md`.


class Multimodal(Section):
    enabled: bool = False  #: Also index media files.
    modalities: list[Literal["image", "audio"]] = []  #: Kinds of media to index.
    max_file_bytes: Positive = 10_485_760  #: Largest file to index, in bytes.


class MemoryFts(Section):
    tokenizer: Literal["unicode61", "trigram"] = "unicode61"  #: trigram is for Asian languages.


class MemoryVector(Section):
    enabled: bool = True  #: Use the SQLite vector extension if found.
    extension_path: str | None = None  #: File of the extension.


class MemoryStore(Section):
    fts: MemoryFts = MemoryFts()  #: The keyword index.
    vector: MemoryVector = MemoryVector()  #: The vector index.


class MemoryQuery(Section):
    max_results: Positive = 6  #: Results of a search.
    min_score: Annotated[float, Meta(ge=0, le=1)] = 0.35  #: Lowest score of a result, 0 to 1.


class MemoryExperimental(Section):
    session_memory: bool = False  #: Also index past conversations.


class MemorySearch(Section):
    """The memory tools and their index."""

    enabled: bool = True  #: Offer the memory tools.
    provider: str | None = None  #: Embeddings: `auto`, `none` (keywords only), or such as `openai`.
    model: str | None = None  #: Embedding model.
    fallback: str = "none"  #: Service to use when the first fails; default `none`.
    remote: MemoryRemote = MemoryRemote()  #: The embedding service.
    local: MemoryLocal = MemoryLocal()  #: An embedding model on this machine.
    input_type: str | None = None  #: Input type sent to the service.
    query_input_type: str | None = None  #: Input type for queries.
    document_input_type: str | None = None  #: Input type for notes.
    output_dimensionality: Positive | None = None  #: Length of the vectors.
    sources: list[Literal["memory", "sessions"]] | None = None  #: Notes (default), past sessions.
    extra_paths: list[str | MemoryPath] = []  #: More locations of notes; agents add theirs.
    multimodal: Multimodal = Multimodal()  #: Indexing of images and audio.
    store: MemoryStore = MemoryStore()  #: How the index is stored.
    query: MemoryQuery = MemoryQuery()  #: Defaults of a search.
    cache: Switch = Switch()  #: Cache of embeddings.
    experimental: MemoryExperimental = MemoryExperimental()  #: Parts that may still change.

    def merged(self, override: "Override[Self] | None") -> Self:
        result = super().merged(override)
        more = getattr(override, "extra_paths", None) or []
        return msgspec.structs.replace(result, extra_paths=[*self.extra_paths, *more])


class MemoryConfig(Section):
    """Long-term memory."""

    citations: Literal["auto", "on", "off"] = "auto"  #: Name sources; auto does in direct chats.
    search: MemorySearch = MemorySearch()


class AgentMemory(Section):
    """Memory of one agent."""

    search: "Override[MemorySearch] | None" = None

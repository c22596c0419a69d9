"""Tools and their limits: `tools`, `tools` of one agent, and `approvals`."""

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Count, Name, Override, Positive, Section
from clawkit.config.sections.shared import ModelInput, People

if TYPE_CHECKING:
    from clawkit.config.sections.messaging import Forwarding, MessageTool
    from clawkit.config.sections.web import MediaSettings, Web

Profile = Literal["minimal", "coding", "messaging", "full"]
Effect = Literal["deny", "ask", "allow"]


class ToolPolicy(Section):
    EXCLUSIVE = {"alsoAllow": "allow"}

    allow: list[str] | None = None
    """Keep only these tools; empty keeps all. So does unset, except for sandbox and sub-agents."""
    also_allow: list[str] | None = None  #: Tools to add to profile or defaults; not with `allow`.
    deny: list[str] | None = None  #: Tools to remove; wins over every allow.


class ProviderPolicy(ToolPolicy):
    profile: Profile | None = None  #: Set of tools to start from; unset and `full` are all.


class ToolScope(Section):
    tools: ToolPolicy = ToolPolicy()  #: Allow and deny lists for these sessions.


Senders = dict[str, ToolPolicy]
"""Keys: `channel:<channel>:<id>`, `id:`, `e164:`, `username:`, `name:` or `*`."""


class RuleSettings(Section):
    tool: Name  #: Tool that the rule applies to: a name, `group:` name or `*` pattern.
    effect: Effect  #: What happens on a match: refuse, ask a person, or go ahead.
    action: Name | None = None  #: Only calls with this `action`, for tools that have actions.
    params: dict[str, str] = {}  #: Parameter to a `*` pattern or `/regex/`; all must match.
    reason: str | None = None  #: Shown to the person and the model on a match.


class LspServer(Section):
    command: list[str]  #: Program and arguments that start the server.
    files: list[str]  #: Patterns of the files it handles, such as `*.zig`.
    root_markers: list[str] = []  #: File names that mark a project root, such as `build.zig`.


class Lsp(Section):
    enabled: bool = True  #: Report new problems after an edit.
    timeout_ms: Positive = 2_000  #: Longest time a result waits for problems, in milliseconds.
    servers: dict[str, LspServer] = {}  #: Further language servers, by name.


class Fs(Section):
    """What the file tools may reach."""

    workspace_only: bool = True  #: Keep the file tools inside the workspace.
    read_roots: list[str] = []  #: Directories outside the workspace that may be read.
    write_roots: list[str] = []  #: Directories outside the workspace that may be read and written.
    protected: Literal["ask", "deny"] = "ask"  #: Writing files such as .git/hooks.
    hard_links: Literal["refuse", "allow"] = "refuse"  #: Files with several hard links.
    lsp: Lsp = Lsp()  #: Problems reported by language servers after a change.
    ripgrep: str | None = None  #: Path of ripgrep; unset looks on PATH, then in the package.


Host = Literal["auto", "sandbox", "gateway", "node"]
Security = Literal["deny", "allowlist", "full"]
Ask = Literal["off", "on-miss", "always"]
Mode = Literal["deny", "allowlist", "ask", "auto", "full"]

MODES: dict[Mode, tuple[Security, Ask]] = {
    "deny": ("deny", "off"),
    "allowlist": ("allowlist", "off"),
    "ask": ("allowlist", "on-miss"),
    "auto": ("allowlist", "on-miss"),
    "full": ("full", "off"),
}
"""Security and ask of each mode; with `auto`, a model reviews commands before a person is asked."""

SAFE_BINS = ("jq", "grep", "cut", "sort", "uniq", "head", "tail", "tr", "wc")


class ApplyPatch(Section):
    enabled: bool | None = None  #: On or off; unset is for OpenAI models and those in allowModels.
    workspace_only: bool = True  #: Keep patches inside the workspace.
    allow_models: list[str] = []  #: `model` or `provider/model` that get it; only these if enabled.


class SafeBinProfile(Section):
    min_positional: Count | None = None  #: Fewest arguments that are not flags; default 0.
    max_positional: Count | None = None
    """Maximum arguments that are not flags; unset means no limit."""
    allowed_flags: list[str] = []  #: Flags without a value that are allowed.
    allowed_value_flags: list[str] = []  #: Flags with a value that are allowed.
    denied_flags: list[str] = []  #: Flags that are never allowed.


class Reviewer(Section):
    model: ModelInput | None = None  #: Model to ask; unset uses the agent's own.
    thinking: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """Thinking level of the model."""
    fast_mode: bool | None = None  #: Use the provider's faster variant.
    timeout_ms: Positive = 30_000  #: Longest wait for a review, in milliseconds.


class Exec(Section):
    """Where commands run, which of them need approval, and their limits."""

    ALIASES = {"timeoutSeconds": "timeoutSec"}
    EXCLUSIVE = {"security": "mode", "ask": "mode"}

    host: Host = "auto"  #: Where commands run; auto is the sandbox, else the gateway.
    mode: Mode | None = None  #: One word for security and ask: deny, allowlist, ask, auto or full.
    security: Security | None = None  #: What may run; unset is allowlist outside the sandbox.
    ask: Ask | None = None  #: When a person is asked; unset means on-miss outside the sandbox.
    node: str | None = None  #: Node that runs commands when host is `node`.
    path_prepend: list[str] = []  #: Directories to put in front of PATH.
    login_path: bool = True  #: Ask the login shell once for PATH.
    inherit_env: list[str] = []  #: More variables for commands, even if they hold credentials.
    safe_bins: list[str] = msgspec.field(default_factory=lambda: list(SAFE_BINS))
    """Programs that need no approval with harmless arguments."""
    safe_bin_trusted_dirs: list[str] = []  #: Directories of safe programs besides /bin, /usr/bin.
    safe_bin_profiles: dict[str, SafeBinProfile] = {}  #: Harmless arguments of other programs.
    strict_inline_eval: bool = False  #: Always ask for inline code, such as `python -c`.
    unconfined: Literal["ask", "allow"] = "ask"  #: Listed programs that cannot be confined.
    redirects: Literal["ask", "workspace"] = "ask"  #: Writing files with `>`.
    grant_expiry_days: Annotated[int, Meta(ge=1, le=3650)] | None = None
    """Days until a lasting approval of a scheduled job ends; unset means never."""
    reviewer: Reviewer = Reviewer()  #: The reviewing model of mode `auto`.
    background_ms: Positive = 10_000  #: Milliseconds until a command goes to the background.
    timeout_sec: Annotated[int, Meta(ge=10)] = 1800  #: Seconds until a command is stopped.
    no_output_timeout_sec: Count = 0  #: Seconds without output until it is stopped; 0 is never.
    cleanup_ms: Positive = 1_800_000  #: Milliseconds a finished command's output is kept.
    max_running: Positive = 64  #: Maximum commands running at once.
    max_processes: Annotated[int, Meta(ge=10)] = 1_000  #: Processes at which a command is stopped.
    approval_running_notice_ms: Count = 10_000  #: Milliseconds until a still-running notice.
    notify_on_exit: bool = True  #: Tell the session when a background command exits.
    notify_on_exit_empty_success: bool = False  #: Even without output.
    apply_patch: ApplyPatch = ApplyPatch()  #: The `apply_patch` tool.

    def merged(self, override: "Override[Self] | None") -> Self:
        base = self
        given = {key for key in ("mode", "security", "ask") if getattr(override, key, None)}
        if "mode" in given:
            base = msgspec.structs.replace(self, security=None, ask=None)
        elif given and self.mode:
            security, ask = MODES[self.mode]
            base = msgspec.structs.replace(self, mode=None, security=security, ask=ask)
        return super(Exec, base).merged(override)

    def policy(self) -> tuple[Security, Ask]:
        """Security and ask outside the sandbox, from `mode`, the two settings or the defaults."""
        if self.mode:
            return MODES[self.mode]
        return self.security or "allowlist", self.ask or "on-miss"


class ApprovalSettings(Section):
    """Asking a person before something is done."""

    timeout_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 120  #: Seconds to wait for an answer.
    exec: "Forwarding | None" = None  #: Forwarding of questions about commands.
    plugin: "Forwarding | None" = None  #: Forwarding of questions asked by plugins.


class Elevated(Section):
    enabled: bool = True  #: Offer elevated mode at all.
    allow_from: dict[str, People] | None = None
    """Senders by channel, `*` for any; an agent can only narrow it."""


class Detectors(Section):
    generic_repeat: bool = True  #: The same call with the same parameters, over and over.
    known_poll_no_progress: bool = True  #: Polling that keeps returning the same.
    ping_pong: bool = True  #: A few calls that alternate without progress.


_THRESHOLDS = {
    "warningThreshold": 10,
    "criticalThreshold": 20,
    "globalCircuitBreakerThreshold": 30,
}


class LoopDetection(Section):
    """Guard against calls that repeat without progress."""

    enabled: bool | None = None  #: On or off; unset only ends loops after a compaction.
    history_size: Positive = 30  #: Past calls to check.
    warning_threshold: Positive = 10  #: Repeats after which the model is warned.
    critical_threshold: Positive = 20  #: Repeats after which the call is blocked.
    global_circuit_breaker_threshold: Positive = 30  #: Repeats after which every call is blocked.
    detectors: Detectors = Detectors()  #: Which kinds of loop are looked for.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        return cls.partial_conflicts({**_THRESHOLDS, **raw})

    @classmethod
    def partial_conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        steps = [(key, raw[key]) for key in _THRESHOLDS if raw.get(key) is not None]
        for (low, smaller), (high, larger) in pairwise(steps):
            if smaller >= larger:
                yield (
                    low,
                    f"must be smaller than {high}, but {smaller} is not below {larger}",
                    f"Lower {low} or raise {high}",
                )


class AgentToAgent(Section):
    enabled: bool = False  #: Let agents reach sessions of other agents.
    allow: list[str] | None = None  #: Agents that may reach each other; unset is all.


class SessionTools(Section):
    visibility: Literal["self", "tree", "agent", "all"] = "tree"  #: Which sessions can be seen.


class Attachments(Section):
    enabled: bool = False  #: Allow files to be attached to a task.
    max_total_bytes: Positive = 5_242_880  #: Maximum bytes of all files; default 5242880 (5 MB).
    max_files: Positive = 50  #: Maximum files.
    max_file_bytes: Positive = 1_048_576  #: Maximum bytes of one file; default 1048576 (1 MB).
    retain_on_session_keep: bool = False  #: Keep the files when the sub-agent's session is kept.


class SessionsSpawn(Section):
    attachments: Attachments = Attachments()  #: Files attached to a sub-agent's task.


class ToolSearch(Section):
    """Deferred tools: found by search, instead of being described in every request."""

    enabled: bool | None = None  #: On or off; unset is on if all tools take `minTokens` or more.
    min_tokens: Count = 10_000  #: Estimated tokens of all tools from which they are deferred.
    mode: Literal["tools", "directory", "code"] = "tools"
    """What is deferred: `directory` leaves out the tools of the program that uses clawkit."""
    search_default_limit: Annotated[int, Meta(ge=1, le=50)] = 10  #: Hits of one search.
    max_search_limit: Annotated[int, Meta(ge=1, le=50)] = 20  #: Maximum hits that can be asked for.
    code_timeout_ms: Annotated[int, Meta(ge=1_000, le=60_000)] | None = None
    """Time limit of mode `code`."""


class Experimental(Section):
    plan_tool: bool | None = None  #: Offer `update_plan`; unset is for strict-agentic GPT-5 only.


class ToolSettings(ProviderPolicy):
    """Settings of both `tools` and the `tools` of one agent."""

    by_provider: dict[str, ProviderPolicy] = {}  #: Tighter policy by `provider[/model]`.
    tools_by_sender: Senders = {}
    """Policy by sender: `id:`, `e164:`, `username:`, `name:`, `channel:<c>:<id>` or `*`."""
    sandbox: ToolScope = ToolScope()  #: Tools of sandboxed sessions; unset lists are built in.


class Tools(ToolSettings):
    """Tools for every agent."""

    ALIASES = {"sessionsSpawn": "sessions_spawn"}

    rules: list[
        RuleSettings
    ] = []  #: Rules over arguments: any matching deny wins, then the first match.
    elevated: Elevated = Elevated()  #: Running commands outside the sandbox.
    exec: Exec = Exec()  #: Running commands.
    fs: Fs = Fs()  #: The file tools.
    loop_detection: LoopDetection = LoopDetection()
    web: "Web | None" = None
    media: "MediaSettings | None" = None  #: Understanding images, sound and video.
    message: "MessageTool | None" = None
    agent_to_agent: AgentToAgent = AgentToAgent()  #: Messages between agents.
    sessions: SessionTools = SessionTools()  #: Which sessions the session tools may see.
    sessions_spawn: SessionsSpawn = msgspec.field(default=SessionsSpawn(), name="sessions_spawn")
    """The `sessions_spawn` tool."""
    subagents: ToolScope = ToolScope()  #: Tools of sub-agents, on top of what their depth allows.
    experimental: Experimental = Experimental()  #: Experimental tools.
    tool_search: bool | ToolSearch | None = None  #: Deferred tools; true or false is `enabled`.
    update_plan: bool | None = None  #: Offer `update_plan`; newer form of `experimental.planTool`.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        older = (raw.get("experimental") or {}).get("planTool")
        if older is not None and raw.get("updatePlan") not in (None, older):
            yield "updatePlan", "contradicts experimental.planTool", "Keep one of the two"

    def deferral(self) -> ToolSearch:
        given = self.tool_search
        return given if isinstance(given, ToolSearch) else ToolSearch(enabled=given)

    def plan_tool(self) -> bool | None:
        """Whether `update_plan` is enabled, by either setting; None if unset."""
        return self.experimental.plan_tool if self.update_plan is None else self.update_plan


class AgentTools(ToolSettings):
    """Tools of one agent; objects are merged into the general settings key by key."""

    elevated: Elevated | None = None  #: Further limits on running commands outside the sandbox.
    exec: "Override[Exec] | None" = None  #: Running commands.
    fs: "Override[Fs] | None" = None  #: The file tools.
    loop_detection: "Override[LoopDetection] | None" = None
    message: "Override[MessageTool] | None" = None

"""Running commands: `tools.exec`."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Count, Override, Positive, Section
from clawkit.config.sections.shared import ModelInput

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
"""What each mode stands for; `auto` also lets a model review a command before a person."""

SAFE_BINS = ("jq", "grep", "cut", "sort", "uniq", "head", "tail", "tr", "wc")


class ApplyPatch(Section):
    """The `apply_patch` tool."""

    enabled: bool | None = None
    """Turn the tool on or off; unset offers it to OpenAI models and those in allowModels."""
    workspace_only: bool = True
    """Keep patches inside the workspace; default true."""
    allow_models: list[str] = []
    """Models that get the tool, as `model` or `provider/model`; with enabled true, only these."""


class SafeBinProfile(Section):
    """Which arguments of a program are harmless; anything else needs approval."""

    min_positional: Count | None = None
    """Fewest arguments that are not flags; default 0."""
    max_positional: Count | None = None
    """Most arguments that are not flags; unset means no limit."""
    allowed_flags: list[str] = []
    """Flags without a value that are allowed."""
    allowed_value_flags: list[str] = []
    """Flags with a value that are allowed."""
    denied_flags: list[str] = []
    """Flags that are never allowed."""


class Reviewer(Section):
    """The model that looks at commands before a person does, in mode `auto`."""

    model: ModelInput | None = None
    """Model to ask; unset uses the agent's own."""
    thinking: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How long the model may think."""
    fast_mode: bool | None = None
    """Use the provider's faster variant."""
    timeout_ms: Positive = 30_000
    """Longest wait for a review, in milliseconds; default 30000."""


class Exec(Section):
    """Where commands run, which of them need approval, and their limits."""

    ALIASES: ClassVar[dict[str, str]] = {"timeoutSeconds": "timeoutSec"}

    host: Host = "auto"
    """Where commands run; auto (default) is the sandbox if there is one, else the gateway."""
    mode: Mode | None = None
    """One word for security and ask: deny, allowlist, ask, auto or full."""
    security: Security | None = None
    """No commands, allowed ones, or all; unset means allowlist outside the sandbox."""
    ask: Ask | None = None
    """When a person is asked; unset means on-miss outside the sandbox."""
    node: str | None = None
    """Node that runs commands when host is `node`."""
    path_prepend: list[str] = []
    """Directories to put in front of PATH."""
    login_path: bool = True
    """Ask the login shell once for PATH; default true."""
    inherit_env: list[str] = []
    """Variables that commands get although they look like credentials; names."""
    safe_bins: list[str] = msgspec.field(default_factory=lambda: list(SAFE_BINS))
    """Programs that need no approval with harmless arguments; default jq, grep, cut, sort, uniq,
    head, tail, tr, wc."""
    safe_bin_trusted_dirs: list[str] = []
    """Directories safe programs may come from besides /bin and /usr/bin."""
    safe_bin_profiles: dict[str, SafeBinProfile] = {}
    """Harmless arguments of further safe programs, by name."""
    strict_inline_eval: bool = False
    """Always ask for code given on the command line, such as `python -c`."""
    redirects: Literal["ask", "workspace"] = "ask"
    """Writing files with `>`: ask (default), or allow inside the workspace."""
    grant_expiry_days: Annotated[int, Meta(ge=1, le=3650)] | None = None
    """Days until a lasting approval of a scheduled job ends; unset means never."""
    reviewer: Reviewer = Reviewer()
    """The reviewing model of mode `auto`."""
    background_ms: Positive = 10_000
    """Milliseconds until a running command goes to the background; default 10000."""
    timeout_sec: Annotated[int, Meta(ge=10)] = 1800
    """Seconds until a command is ended; at least 10, default 1800."""
    no_output_timeout_sec: Count = 0
    """Seconds without output until a command is ended; 0 (default) for never."""
    cleanup_ms: Positive = 1_800_000
    """Milliseconds a finished command's output is kept; default 1800000."""
    max_running: Positive = 64
    """Most commands running at once; default 64."""
    max_processes: Annotated[int, Meta(ge=10)] = 1_000
    """Most processes of one command, which is ended when it has more; default 1000."""
    approval_running_notice_ms: Count = 10_000
    """Milliseconds until a note that an approved command still runs; default 10000."""
    notify_on_exit: bool = True
    """Tell the session when a background command ends; default true."""
    notify_on_exit_empty_success: bool = False
    """Tell it also when the command succeeded without output; default false."""
    apply_patch: ApplyPatch = ApplyPatch()
    """The `apply_patch` tool."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        mode = raw.get("mode")
        for key in ("security", "ask"):
            if mode is not None and raw.get(key) is not None:
                yield (
                    key,
                    f"cannot be combined with 'mode', which is {mode!r}",
                    f"Remove {key}, or replace mode by security and ask",
                )

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

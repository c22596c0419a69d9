"""Analysis, allowlist entries and decisions as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from clawkit.config.sections.tools import Ask, SafeBinProfile, Security
from clawkit.core.approval import Question, StoredExtent
from clawkit.process.protocols import NO_GRANTS, Grants

Verdict = Literal["allow", "ask", "deny"]
Children = Literal["any", "named"]
By = Literal["entry", "safe-bin", "look", "builtin", "wrapper"]
Choice = Literal["allow-once", "allow-always", "deny"]


class Doubt(Exception):  # noqa: N818  # not an error: the command may be valid, only not understood
    """Why a command, or a part of it, cannot be analyzed with certainty."""

    def __init__(self, reason: str, at: int = 0, code: str = "syntax") -> None:
        """`at` is the character offset; `code` a short machine-readable name (`substitution`)."""
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.code = code


class Arg(Struct, frozen=True):
    """One argument of a program."""

    text: str
    """The value; for a glob pattern, its source text."""
    glob: bool = False
    """Whether the shell expands it to file names, which cannot be known in advance."""
    at: int = 0


class Program(msgspec.Struct, frozen=True):
    """A program that a command may start."""

    argv: tuple[Arg, ...]
    resolved: str
    """Absolute path of the program, symbolic links unresolved; empty if not found."""
    real: str
    """The same with links resolved; empty if not found."""
    cwd: str | None
    """Its working directory; None if that depends on the outcome of an earlier command."""
    assigned: tuple[str, ...] = ()
    """Names of variables that the command line or the call sets for it."""
    piped: bool = False
    """Whether it reads the output of another program in a pipeline."""
    script: tuple[str, ...] = ()
    """Absolute paths of the interpreters started by its `#!` line, outermost first."""
    wrapper: bool = False
    """Whether it only starts the next program of its segment."""

    @property
    def name(self) -> str:
        return self.argv[0].text

    @property
    def by_name(self) -> bool:
        """Whether it was looked up in PATH."""
        return "/" not in self.name


class FileUse(msgspec.Struct, frozen=True):
    """A file that the shell itself opens (a redirection)."""

    path: str
    """Absolute, links unresolved; empty if its directory is unknown."""
    writes: bool


class Segment(msgspec.Struct, frozen=True):
    """One simple command: the programs it starts, or a shell builtin."""

    text: str
    programs: tuple[Program, ...] = ()
    """Wrappers first, then the program they start. Empty for a builtin."""
    builtin: str = ""
    files: tuple[FileUse, ...] = ()


class Analysis(msgspec.Struct, frozen=True):
    """Every program that a command may start, or why they cannot be determined."""

    command: str
    segments: tuple[Segment, ...] = ()
    rebuilt: str = ""
    """The command re-created from the analysis: everything quoted, programs by absolute path.
    Empty if there is a doubt."""
    doubt: Doubt | None = None


class Flags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Allowed flags of a program; `deny` wins."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ArgRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Allowed arguments of a program. Every key restricts further, so unknown keys are errors:
    ignoring one would allow more than intended."""

    subcommand: tuple[str, ...] | None = None
    """The first non-flag argument must be one of these, or start with the words of one."""
    flags: Flags = Flags()
    paths: Literal["workspace", "any"] = "any"
    """Whether every path in the arguments must be inside the workspace."""


class AllowlistEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One allowlist entry."""

    pattern: str
    id: str = ""
    arg_pattern: str | None = None
    args: ArgRule | str | None = None
    """A rule, a preset (`git`), or `any` to skip checking arguments. None allows the program, but
    neither code in its arguments nor sending data elsewhere."""
    children: Children | None = None
    """What the program may start; None means the preset's value, or `any` without a preset."""
    source: str = ""
    """`allow-always` if created by answering an approval prompt."""
    extent: StoredExtent | None = None
    cwd: str = ""
    """For allow-always entries: the directory it is limited to."""
    content: str = ""
    """`sha256:<hex>` of the program file, if the user running it can modify that file."""
    unconfined: bool = False
    """Whether a person approved exactly this call for running outside the sandbox."""
    grants: Grants | None = None
    """Access beyond the sandbox; None means the preset's grants, or the network without a
    preset."""


class ApprovalRules(msgspec.Struct, frozen=True):
    """What is allowed without approval: entries, safe bins, and access to files."""

    entries: tuple[AllowlistEntry, ...] = ()
    safe_bins: tuple[str, ...] = ()
    profiles: Mapping[str, SafeBinProfile] = MappingProxyType({})
    trusted_dirs: tuple[str, ...] = ()
    strict_inline_eval: bool = False
    redirects: Literal["ask", "workspace"] = "ask"
    confines: bool = True
    """Whether the kernel can confine allowlisted programs, or does not need to. If it cannot, only
    harmless programs run without approval, including those that display files."""
    may_read: Callable[[str], bool] = lambda _path: False
    """Whether the file tools may read this absolute path without approval."""
    may_write: Callable[[str], bool] = lambda _path: False
    is_own: Callable[[str], bool] = lambda _path: False
    """Whether a path leads to clawkit's own settings or approvals file."""
    holds_own: Callable[[str], bool] = lambda _path: False


class Match(Struct, frozen=True):
    """Why a program may run."""

    by: By
    rule: str
    """For people, such as `/usr/bin/git (allowlist)`."""
    entry: AllowlistEntry | None = None
    children: Children = "any"
    starts: tuple[str, ...] = ()
    """With `named`: absolute paths of files or directories that it may start."""
    grants: Grants = NO_GRANTS
    changes: bool = True
    depends: str = ""
    """The file-system state that the match relies on, in words; earlier commands must not change
    it."""


class Miss(Struct, frozen=True):
    """Why a program needs approval."""

    reason: str
    to_allow: str = ""
    """The command to type to allow it from now on; empty if there is none."""
    code: str = "miss"


class Judged(Struct, frozen=True):
    """A segment and the results for its programs."""

    segment: Segment
    results: tuple[Match | Miss, ...]
    """One per program, one for a builtin, and one more for each file that is not allowed."""

    @property
    def misses(self) -> tuple[Miss, ...]:
        return tuple(each for each in self.results if isinstance(each, Miss))


class Policy(Struct, frozen=True):
    """Security and ask in force for one call, and where they come from."""

    security: Security
    ask: Ask
    fallback: Literal["deny", "allowlist", "full"] = "deny"
    """Decision when no one answers or no approver is attached."""
    sources: tuple[str, ...] = ()
    """The settings, files or call parameters that determined the values, in words."""
    to_loosen: str = ""
    """The command to type if security is `deny`; empty if that would not help."""


class Offer(Struct, frozen=True):
    """A permanent approval that a person can give, and the entries it would store."""

    extent: StoredExtent
    entries: tuple[AllowlistEntry, ...]
    words: str
    """The rule in one line, for people."""


Place = Literal["sandbox", "entry", "host"]
"""Where a command runs: in the sandbox; on the host, confined, with the grants of allowlist
entries; or on the host, unconfined."""


class Decision(msgspec.Struct, frozen=True):
    """The decision about a command, and why."""

    verdict: Verdict
    policy: Policy
    reason: str
    """For people and the model, without a final period."""
    to_allow: str = ""
    """The command to type to allow it; empty if it is allowed, or nothing would help."""
    code: str = ""
    """Machine-readable: `allowlist`, `miss`, `doubt`, `deny`, `hardline`, `inline-eval`, …"""
    segments: tuple[Judged, ...] = ()
    doubt: Doubt | None = None
    run: str = ""
    programs: tuple[str, ...] | None = None
    """If allowed: the only paths that the kernel lets it start; None for any."""
    human_only: bool = False
    place: Place = "host"
    grants: Grants = NO_GRANTS
    """For the place `entry`: access beyond the sandbox."""
    offers: tuple[Offer, ...] = ()


def sources_of(policy: Policy) -> str:
    """The settings that determined a policy, in words."""
    return ", ".join(policy.sources) or f"security {policy.security!r}, ask {policy.ask!r}"


def refuse_all(policy: Policy) -> Decision | None:
    """The refusal if the policy denies all commands, else None."""
    if policy.security == "deny":
        reason = f"no command may run: {sources_of(policy)}"
        return Decision("deny", policy, reason, policy.to_loosen, code="deny")
    return None


def allow_all(command: str, policy: Policy) -> Decision:
    """The decision to run a command unchanged because every command is allowed."""
    reason = f"every command may run: {sources_of(policy)}"
    return Decision("allow", policy, reason, code="full", run=command)


class Pending(msgspec.Struct, frozen=True):
    """A question that is waiting for an answer."""

    id: str
    question: Question
    created_ms: int
    expires_ms: int
    binding: Mapping[str, Any] = {}
    """What the answer applies to; anything else is refused."""

    @property
    def slug(self) -> str:
        return self.id[:8]

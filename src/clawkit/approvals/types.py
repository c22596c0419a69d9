"""Analysis, allowlist entries and decisions as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from clawkit.config.sections.tools import Ask, SafeBinProfile, Security
from clawkit.core.approval import Question, StoredExtent
from clawkit.process.protocols import NO_GRANTS, Grants

Verdict = Literal["allow", "ask", "deny"]
Children = Literal["any", "named"]
By = Literal["entry", "safe-bin", "look", "builtin", "wrapper"]
Choice = Literal["allow-once", "allow-always", "deny"]


class Doubt(Exception):  # noqa: N818  # it is no error to write a command that is not understood
    """Why a command, or a part of it, cannot be understood for certain."""

    def __init__(self, reason: str, at: int = 0, code: str = "syntax") -> None:
        """`at` is the character where it begins; `code` is a short name for programs, such as
        `substitution`."""
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.code = code


class Arg(NamedTuple):
    """One argument of a program."""

    text: str
    """What it is; for a pattern, how it is written."""
    glob: bool = False
    """Whether the shell makes names of files of it, which cannot be known beforehand."""
    at: int = 0


class Program(msgspec.Struct, frozen=True):
    """A program that a command could start."""

    argv: tuple[Arg, ...]
    resolved: str
    """Absolute path that the name leads to, links unresolved; empty when there is none."""
    real: str
    """The same without links; empty when there is none."""
    cwd: str | None
    """The directory it starts in; None when that depends on how something else ends."""
    assigned: tuple[str, ...] = ()
    """Names of the variables that the command, or its call, sets for it."""
    piped: bool = False
    """Whether it is behind another one in a pipeline."""
    script: tuple[str, ...] = ()
    """Absolute paths of the interpreters that its `#!` line starts, outermost first."""
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
    """A file that the shell itself opens."""

    path: str
    """Absolute, links unresolved; empty when its directory is not known."""
    writes: bool


class Segment(msgspec.Struct, frozen=True):
    """One simple command: what it starts, or what the shell does for it."""

    text: str
    programs: tuple[Program, ...] = ()
    """Wrappers first, then what they start. Empty for what the shell does itself."""
    builtin: str = ""
    files: tuple[FileUse, ...] = ()


class Analysis(msgspec.Struct, frozen=True):
    """Every program a command could start, or why that cannot be told."""

    command: str
    segments: tuple[Segment, ...] = ()
    rebuilt: str = ""
    """The command again from what was understood: all quoted, programs by their absolute paths.
    Empty when there is a doubt."""
    doubt: Doubt | None = None


class Flags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which flags of a program are allowed; `deny` wins."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ArgRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which arguments of a program are allowed. Every key narrows that, so one that is not known
    is an error: left out, it would allow more than was meant."""

    subcommand: tuple[str, ...] | None = None
    """The first argument that is no flag must be one of these, or begin with the words of one."""
    flags: Flags = Flags()
    paths: Literal["workspace", "any"] = "any"
    """Whether whatever names a file must lie in the workspace."""


class Entry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One line of an allowlist."""

    pattern: str
    id: str = ""
    arg_pattern: str | None = None
    args: ArgRule | str | None = None
    """A rule, the name of a preset (`git`), or `any` for no look at the arguments at all. None
    trusts the program, but not with code in its arguments, nor to send data to others."""
    children: Children | None = None
    """What the program may start itself; None is `any`, and for a preset what that says."""
    source: str = ""
    """`allow-always` for what a person said to a question."""
    extent: StoredExtent | None = None
    cwd: str = ""
    """For an allow-always: the directory it is bound to."""
    content: str = ""
    """`sha256:<hex>` of the program file, when it can be changed by whoever runs it."""
    unconfined: bool = False
    """Whether the very same call may also run outside the sandbox, because a person said so."""
    grants: Grants | None = None
    """What the program gets beyond the sandbox; None is the network, and for a preset what that
    names."""


class Rules(msgspec.Struct, frozen=True):
    """What is allowed without a question, beside the entries also how far files may be used."""

    entries: tuple[Entry, ...] = ()
    safe_bins: tuple[str, ...] = ()
    profiles: Mapping[str, SafeBinProfile] = MappingProxyType({})
    trusted_dirs: tuple[str, ...] = ()
    strict_inline_eval: bool = False
    redirects: Literal["ask", "workspace"] = "ask"
    confines: bool = True
    """Whether the kernel can confine what an entry allows, or need not. Where it cannot, only
    programs that do no harm run unasked, among them those that show files."""
    may_read: Callable[[str], bool] = lambda _path: False
    """Whether a file, by absolute path, may be read by the file tools without a question."""
    may_write: Callable[[str], bool] = lambda _path: False
    is_own: Callable[[str], bool] = lambda _path: False
    """Whether a path leads to clawkit's own settings or approvals."""
    holds_own: Callable[[str], bool] = lambda _path: False


class Match(NamedTuple):
    """Why a program may run."""

    by: By
    rule: str
    """In words, such as `/usr/bin/git (allowlist)`."""
    entry: Entry | None = None
    children: Children = "any"
    starts: tuple[str, ...] = ()
    """With `named`: absolute paths, of files or directories, that it may start."""
    grants: Grants = NO_GRANTS
    changes: bool = True
    depends: str = ""
    """What of the file system it is allowed for, in words: nothing may change that meanwhile."""


class Miss(NamedTuple):
    """Why a program may not run without a question."""

    reason: str
    to_allow: str = ""
    """What to type to have it allowed from now on; empty when nothing would."""
    code: str = "miss"


class Judged(NamedTuple):
    """A segment, and what is thought of each of its programs."""

    segment: Segment
    results: tuple[Match | Miss, ...]
    """One for each program, one for a builtin, and one more for every file that is in doubt."""

    @property
    def misses(self) -> tuple[Miss, ...]:
        return tuple(each for each in self.results if isinstance(each, Miss))


class Policy(NamedTuple):
    """Security and ask in force for one call, and where each comes from."""

    security: Security
    ask: Ask
    fallback: Literal["deny", "allowlist", "full"] = "deny"
    """What counts when nobody answers."""
    sources: tuple[str, ...] = ()
    """In words: which setting, document or call made it as strict as it is."""
    to_loosen: str = ""
    """What to type when security is `deny`; empty when that does not help."""


class Offer(NamedTuple):
    """A lasting yes that a person can give, and what it would store."""

    extent: StoredExtent
    entries: tuple[Entry, ...]
    words: str
    """The rule in one line, for the person."""


Place = Literal["sandbox", "entry", "host"]
"""Where a command runs: in the sandbox; on the host, confined and widened by the grants of
allowlist entries; on the host, unconfined."""


class Decision(msgspec.Struct, frozen=True):
    """What becomes of a command, and why."""

    verdict: Verdict
    policy: Policy
    reason: str
    """For the person and the model, without a full stop."""
    to_allow: str = ""
    """What to type to have it allowed; empty when it is, or nothing would."""
    code: str = ""
    """Short, for programs: `allowlist`, `miss`, `doubt`, `deny`, `hardline`, `inline-eval`, …"""
    segments: tuple[Judged, ...] = ()
    doubt: Doubt | None = None
    run: str = ""
    programs: tuple[str, ...] | None = None
    """With a verdict of allow: the only paths the kernel is to let it start; None for any."""
    human_only: bool = False
    place: Place = "host"
    grants: Grants = NO_GRANTS
    """With the place `entry`: what it gets beyond the sandbox."""
    offers: tuple[Offer, ...] = ()


def sources_of(policy: Policy) -> str:
    """The settings that a policy comes from."""
    return ", ".join(policy.sources) or f"security {policy.security!r}, ask {policy.ask!r}"


def refuse_all(policy: Policy) -> Decision | None:
    """The decision where no command may run at all."""
    if policy.security == "deny":
        reason = f"no command may run: {sources_of(policy)}"
        return Decision("deny", policy, reason, policy.to_loosen, code="deny")
    return None


def sandbox_all(command: str, policy: Policy) -> Decision:
    """The decision where no entry could allow a command more than the sandbox does."""
    reason = "it runs in the sandbox"
    return Decision("allow", policy, reason, code="sandbox", run=command, place="sandbox")


def allow_all(command: str, policy: Policy) -> Decision:
    """The decision where every command may run, as it was written."""
    reason = f"every command may run: {sources_of(policy)}"
    return Decision("allow", policy, reason, code="full", run=command)


class Pending(msgspec.Struct, frozen=True):
    """A question that waits for its answer."""

    id: str
    question: Question
    created_ms: int
    expires_ms: int
    binding: Mapping[str, Any] = {}
    """What the answer is about, so that nothing else can be run with it."""

    @property
    def slug(self) -> str:
        return self.id[:8]

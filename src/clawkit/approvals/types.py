"""Analysis, allowlist entries and decisions as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from clawkit.approvals.shell_words import Doubt
from clawkit.config.sections.tools import Ask, SafeBinProfile, Security
from clawkit.core.approval import Question, StoredExtent
from clawkit.process.protocols import NO_GRANTS, Grants

Verdict = Literal["allow", "ask", "deny"]
Children = Literal["any", "named"]
By = Literal["entry", "safe-bin", "look", "builtin", "wrapper", "skill"]
Choice = Literal["allow-once", "allow-always", "deny"]


class Arg(NamedTuple):
    """One argument of a program."""

    text: str
    """What it is; for a pattern, how it is written."""
    glob: bool = False
    """Whether the shell makes names of files of it, which cannot be known beforehand."""
    at: int = 0
    """Where it begins in the command."""


Input = Literal["empty", "pipe", "file", "text"]
"""What a program finds on its standard input: nothing of the command's doing, the output of
another one, a file, or text that the command itself brings along."""


class Program(msgspec.Struct, frozen=True):
    """A program that a command could start."""

    argv: tuple[Arg, ...]
    """With the name, as it was written."""
    resolved: str
    """Absolute path that the name leads to, links unresolved; empty when there is none."""
    real: str
    """The same without links; empty when there is none."""
    cwd: str | None
    """The directory it starts in; None when that depends on how something else ends."""
    assigned: tuple[str, ...] = ()
    """Names of the variables that the command, or its call, sets for it."""
    input: Input = "empty"
    script: tuple[str, ...] = ()
    """Absolute paths of the interpreters that its `#!` line starts, outermost first."""
    wrapper: bool = False
    """Whether it only starts the next program of its segment."""
    at: int = 0

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
    at: int = 0


class Segment(msgspec.Struct, frozen=True):
    """One simple command: what it starts, or what the shell does for it."""

    text: str
    """As it was written."""
    programs: tuple[Program, ...] = ()
    """Wrappers first, then what they start. Empty for what the shell does itself."""
    builtin: str = ""
    files: tuple[FileUse, ...] = ()
    at: int = 0


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
    """Beside /bin and /usr/bin."""
    strict_inline_eval: bool = False
    skills: Mapping[str, str] = MappingProxyType({})
    """Programs of installed skills: by name, the absolute path."""
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
    """Whether they lie somewhere below a directory."""


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
    """What it gets beyond the sandbox."""
    changes: bool = True
    """Whether it may change files."""
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
    auto_allow_skills: bool = False
    sources: tuple[str, ...] = ()
    """In words: which setting, document or call made it as strict as it is."""
    problem: str = ""
    """Why everything is refused: the document cannot be read, or makes no sense."""
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
    """What is to be given to the shell, when it may run."""
    programs: tuple[str, ...] | None = None
    """With a verdict of allow: the only paths the kernel is to let it start; None for any."""
    human_only: bool = False
    """Whether only a person can allow it, no fallback."""
    place: Place = "host"
    grants: Grants = NO_GRANTS
    """With the place `entry`: what it gets beyond the sandbox."""
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """A question that waits for its answer."""

    id: str
    question: Question
    created_ms: int
    expires_ms: int
    binding: Mapping[str, Any] = field(default_factory=dict)
    """What the answer is about, so that nothing else can be run with it."""

    @property
    def slug(self) -> str:
        return self.id[:8]

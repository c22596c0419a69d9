"""Judging commands by the settings and the document, which is read again for every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec.structs import replace

from clawkit.approvals.analyze import analyze
from clawkit.approvals.base import Decision, Entry, Policy, Rules
from clawkit.approvals.combine import combine
from clawkit.approvals.decide import allow_all, decide
from clawkit.approvals.document import (
    NO_DOCUMENT,
    BadDocumentError,
    DocPolicy,
    Document,
    read_document,
)
from clawkit.approvals.hardline import may_be_hardline
from clawkit.approvals.offers import make_offers
from clawkit.approvals.programs import OneLook
from clawkit.approvals.seam import Request
from clawkit.config.sections.exec import Ask, Exec, Security


@dataclass(frozen=True)
class Judge:
    """What one agent's commands are judged by."""

    settings: Exec
    document: str
    """Path of the approvals document."""
    key: str = "tools.exec"
    """Where the settings come from."""
    agent: str = "main"
    may_read: Callable[[str], bool] = lambda _path: False
    may_write: Callable[[str], bool] = lambda _path: False
    is_own: Callable[[str], bool] = lambda _path: False
    holds_own: Callable[[str], bool] = lambda _path: False
    own_names: tuple[str, ...] = ()
    """Names of the files that `is_own` is about."""
    skills: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    more: tuple[Entry, ...] = ()
    """Entries beside those of the document."""
    only_more: bool = False
    """Whether the entries of the document do not count."""
    ignore_floor: bool = False
    """Whether the document's own security and ask do not count."""
    _policies: dict[tuple[DocPolicy, Security | None, Ask | None], Policy] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def judge(self, request: Request) -> Decision:
        """The decision about a command, with everything a person could allow for good."""
        with OneLook():
            return self._judge(request)

    def _judge(self, request: Request) -> Decision:
        try:
            document = read_document(self.document)
        except BadDocumentError as error:
            return Decision("deny", _refuse_all(error), str(error), code="document")
        policy = self._policy(document, request.security, request.ask)
        if (policy.security, policy.ask) == ("full", "off") and not self._is_suspect(request):
            return allow_all(request.command, policy)
        rules = self.rules(document, policy)
        analysis = analyze(
            request.command, cwd=request.cwd, env=request.env, assigned=request.assigned
        )
        home = request.env.get("HOME", "")
        decision = decide(analysis, policy, rules, home=home)
        if decision.verdict == "ask" and (offers := make_offers(decision, rules, home=home)):
            return replace(decision, offers=offers)
        return decision

    def _policy(self, document: Document, security: Security | None, ask: Ask | None) -> Policy:
        floor = (NO_DOCUMENT if self.ignore_floor else document).policy_for(self.agent)
        policy = self._policies.get((floor, security, ask))
        if policy is None:
            policy = self._policies[floor, security, ask] = combine(
                self.settings,
                floor,
                security=security,
                ask=ask,
                key=self.key,
                where=self.document,
            )
        return policy

    def _is_suspect(self, request: Request) -> bool:
        if self.settings.strict_inline_eval:
            return True
        return may_be_hardline(request.command, self.own_names)

    def rules(self, document: Document, policy: Policy) -> Rules:
        """What is allowed without a question, for one command."""
        listed = () if self.only_more else document.entries_for(self.agent)
        settings = self.settings
        return Rules(
            # Mostly one of them is empty, and the sum is the other: a tuple that is known already.
            entries=self.more + listed,
            safe_bins=tuple(settings.safe_bins),
            profiles=settings.safe_bin_profiles,
            trusted_dirs=tuple(settings.safe_bin_trusted_dirs),
            strict_inline_eval=settings.strict_inline_eval,
            skills=self.skills if policy.auto_allow_skills else {},
            redirects=settings.redirects,
            may_read=self.may_read,
            may_write=_Once(self.may_write).__getitem__,
            is_own=_Once(self.is_own).__getitem__,
            holds_own=_Once(self.holds_own).__getitem__,
        )


class _Once(dict[str, bool]):
    """Answers about paths: the same few are asked about again and again."""

    def __init__(self, ask: Callable[[str], bool]) -> None:
        self._ask = ask

    def __missing__(self, path: str) -> bool:
        found = self[path] = self._ask(path)
        return found


def _refuse_all(error: BadDocumentError) -> Policy:
    return Policy("deny", "off", problem=str(error))

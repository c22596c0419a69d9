"""Decisions about commands from the settings and the document, which is reread for every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, cached_property, reduce
from operator import or_

from msgspec import Struct
from msgspec.structs import replace

from clawkit.approvals import file, types
from clawkit.approvals.effective_policy import combine
from clawkit.approvals.hardline import may_be_hardline
from clawkit.approvals.protocols import ExecRequest
from clawkit.config.sections.tools import Ask, Exec, Security
from clawkit.process.protocols import NO_GRANTS

_NO_ENTRY_HELPS = ("access", "detach", "gap", "unconfined")


class Judge(Struct, frozen=True, dict=True):
    """The settings, document and rules for the commands of one agent."""

    settings: Exec
    document: str
    key: str = "tools.exec"
    agent: str = "main"
    may_read: Callable[[str], bool] = lambda _path: False
    may_write: Callable[[str], bool] = lambda _path: False
    is_own: Callable[[str], bool] = lambda _path: False
    holds_own: Callable[[str], bool] = lambda _path: False
    own_names: tuple[str, ...] = ()
    more: tuple[types.AllowlistEntry, ...] = ()
    only_more: bool = False
    skill_programs: Callable[[], Iterable[str]] = tuple
    """Paths of the programs that trusted skills require."""
    confines: bool = True
    """Whether the kernel can confine allowlisted programs, or does not need to."""
    ignore_floor: bool = False
    """Whether to ignore the document's own security and ask."""

    @cached_property
    def _policies(self) -> dict[tuple[file.DocPolicy, Security | None, Ask | None], types.Policy]:
        return {}

    def judge(self, request: ExecRequest) -> types.Decision:
        """The decision about a command, with the permanent approvals on offer."""
        try:
            document = file.read_document(self.document)
        except file.BadDocumentError as error:
            return types.Decision("deny", types.Policy("deny", "off"), str(error), code="document")
        floor = (file.NO_DOCUMENT if self.ignore_floor else document).policy_for(self.agent)
        policy = self._policies.get((floor, request.security, request.ask))
        if policy is None:
            policy = self._policies[floor, request.security, request.ask] = combine(
                self.settings,
                floor,
                security=request.security,
                ask=request.ask,
                key=self.key,
                where=self.document,
            )
        rules = self.rules(document)
        if (known := self._decide_unparsed(request, policy, rules)) is not None:
            return known
        # Imported late: most commands run in the sandbox and need no analysis.
        from clawkit.approvals.expansion import cached_lookups

        with cached_lookups():
            from clawkit.approvals.allow_always import make_offers, offer_access
            from clawkit.approvals.analysis import analyze
            from clawkit.approvals.decide import decide

            analysis = analyze(
                request.command, cwd=request.cwd, env=request.env, assigned=request.assigned
            )
            stored = (each.grants or NO_GRANTS for each in rules.entries if each.extent == "access")
            request = replace(request, granted=reduce(or_, stored, request.granted))
            decision = decide(analysis, policy, rules, request)
            if decision.verdict == "ask" and decision.code == "access":
                return replace(decision, offers=offer_access(decision))
            if decision.verdict != "ask" or decision.code in _NO_ENTRY_HELPS:
                return decision
            return replace(
                decision, offers=make_offers(decision, rules, home=request.env.get("HOME", ""))
            )

    def find_rules(self, request: ExecRequest) -> list[types.AllowlistEntry | None]:
        """The narrowest rules that would allow a command that needs approval."""
        decision = self.judge(request)
        if decision.verdict != "ask":
            return []
        from clawkit.approvals.allow_always import find_rules

        rules = self.rules(file.read_document(self.document))
        return find_rules(decision, rules, home=request.env.get("HOME", ""))

    def _decide_unparsed(
        self, request: ExecRequest, policy: types.Policy, rules: types.ApprovalRules
    ) -> types.Decision | None:
        """The decision, if it does not depend on what the command does."""
        if (policy.security, policy.ask) == ("full", "off") and request.wanted != "sandbox":
            suspect = rules.strict_inline_eval or may_be_hardline(request.command, self.own_names)
            return None if suspect else types.allow_all(request.command, policy)
        if request.wanted == "host" or policy.ask == "always" or rules.strict_inline_eval:
            return None
        if request.access != NO_GRANTS or "detach" in request.modes:
            return None
        if request.wanted == "sandbox" or not rules.entries:
            words, run = "commands in the sandbox need no approval", request.command
            sandboxed = types.Decision(
                "allow", policy, words, code="sandbox", run=run, place="sandbox"
            )
            return types.refuse_all(policy) or sandboxed
        return None

    def rules(self, document: file.ApprovalsDocument) -> types.ApprovalRules:
        """What is allowed without approval, for one command."""
        listed = () if self.only_more else document.entries_for(self.agent)
        if not self.only_more and document.policy_for(self.agent).allows_skills:
            from clawkit.approvals.skill_entries import entries_for

            listed += entries_for(self.skill_programs(), self.may_write)
        settings = self.settings
        return types.ApprovalRules(
            entries=self.more + listed,
            safe_bins=tuple(settings.safe_bins),
            profiles=settings.safe_bin_profiles,
            trusted_dirs=tuple(settings.safe_bin_trusted_dirs),
            strict_inline_eval=settings.strict_inline_eval,
            redirects=settings.redirects,
            confines=self.confines,
            may_read=self.may_read,
            # The same few paths are checked repeatedly.
            may_write=cache(self.may_write),
            is_own=cache(self.is_own),
            holds_own=cache(self.holds_own),
        )

"""Checks how a command would be judged, without running it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from clawkit.agent.assemble import assemble
from clawkit.approvals.effective_policy import resolve_host
from clawkit.approvals.entries import read_entry
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import Confines, ExecRequest
from clawkit.approvals.types import AllowlistEntry, Decision, Judged, Match, Miss, Policy, Program
from clawkit.config.load import Loaded
from clawkit.config.sections.tools import Ask, Security
from clawkit.core.context import Scope
from clawkit.errors import ToolAuthorizationError
from clawkit.process.protocols import BaseEnvironment
from clawkit.runtime import resolve_workspace
from clawkit.services import Services
from clawkit.text import nearest, one_line

_LONG = 32 * 1024
Wanted = Literal["auto", "sandbox", "host"]
NOT_ANALYSED = ("full", "deny", "document", "host")


class Checker:
    """Judges commands by the current settings, or by settings given in a case."""

    def __init__(self, loaded: Loaded, scope: Scope, workspace: str | None = None) -> None:
        """`workspace` replaces the configured one."""
        self._loaded, self._scope, self._workspace = loaded, scope, workspace
        self._workspace_path = resolve_workspace(loaded.config, scope.agent, workspace)
        self._env: dict[str, str] = {}
        self._rules = assemble(loaded.config, scope)
        self.warnings = self._rules.warnings
        self.backend = ""
        """The sandbox backend used for the last case; empty for none."""

    def check(self, case: object) -> Decision:
        """The decision about a case. Raises ValueError for an invalid case."""
        try:
            judge, request = self._prepare(case)
        except ToolAuthorizationError as error:
            return Decision("deny", Policy("deny", "off"), str(error), code=error.reason)
        return judge.judge(request)

    def _prepare(self, case: object) -> tuple[Judge, ExecRequest]:
        given = _read_case(case)
        cwd = os.path.normpath(os.path.join(self._workspace_path, given.cwd or ""))
        # A directory in the case is the workspace, unless one was passed to the constructor.
        place, scope = self._workspace_path if self._workspace else cwd, self._scope
        services = Services(self._loaded, scope, place, rules=self._rules)
        wanted = self._find_place(given, services)
        if given.env is None and not self._env:
            around: Any = services[BaseEnvironment]
            self._env = dict(asyncio.run(around.variables()))
        env = self._env if given.env is None else given.env
        request = ExecRequest(given.command, cwd, env, agent=scope.agent, wanted=wanted)
        return _override(services.judge(), given), request

    def _find_place(self, case: _Case, services: Services) -> Wanted:
        """The place to judge the case for. Raises `ToolAuthorizationError` if none is usable."""
        place = case.place
        if place is None and (case.allowlist is not None or case.safe_bins is not None):
            # Such a case tests the allowlist, which the sandbox does not use.
            place = "host"
        self.backend = ""
        if place == "host":
            return place
        confines: Any = services[Confines]
        self.backend = confines.choice.backend or ""
        if place == "sandbox":
            return place
        if problem := confines.problem:
            raise ToolAuthorizationError(problem, reason="sandbox")
        config, scope = self._loaded.config, self._scope
        override = config.agents.get(scope.agent).tools.exec
        return resolve_host(
            config.tools.exec.merged(override).host,
            None,
            sandboxed=scope.sandboxed,
            elevated=False,
            available=("gateway", "sandbox") if self.backend else ("gateway",),
            node=None,
        ).wanted

    def rules_for(self, record: Mapping[str, Any]) -> list[AllowlistEntry | None]:
        """The entries that would allow a command from the log, if it still needs approval."""
        case = {"command": record.get("command"), "cwd": record.get("cwd"), "place": "host"}
        try:
            judge, request = self._prepare({**case, "security": "allowlist", "ask": "on-miss"})
        except (ValueError, ToolAuthorizationError):
            return []
        return judge.find_rules(request)


class _Case(msgspec.Struct, rename="camel"):
    """A command to judge; None means the current setting."""

    command: str
    cwd: str | None = None
    env: dict[str, str] | None = None
    allowlist: list[Any] | None = None
    safe_bins: list[str] | None = None
    security: Security | None = None
    ask: Ask | None = None
    strict_inline_eval: bool | None = None
    place: Wanted | None = None
    id: str | int | None = None


_CHOICES = {"security": get_args(Security), "ask": get_args(Ask), "place": get_args(Wanted)}
_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(_Case))


def _read_case(case: object) -> _Case:
    """Raises ValueError, with a message to be read after `line N`."""
    if not isinstance(case, dict) or "command" not in case:
        raise ValueError('must be an object like {"command": "ls -la"}')
    for key in case:
        if key not in _KEYS:
            close = " or ".join(map(repr, nearest(key, _KEYS)))
            hint = f"; did you mean {close}?" if close else f"; known: {', '.join(_KEYS)}"
            raise ValueError(f"has the unknown key {one_line(key, 40)!r}{hint}")
    try:
        given = msgspec.convert(case, _Case)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        key = where.strip("`$.")
        hint = f"; use one of {', '.join(_CHOICES[key])}" if key in _CHOICES else ""
        raise ValueError(f"{key}: {what}{hint}") from None
    texts = {"command": given.command, "cwd": given.cwd or "", **(given.env or {})}
    for key, text in texts.items():
        _check_text(key, text)
    return given


def _check_text(key: str, text: str) -> None:
    if "\0" in text:
        raise ValueError(f"{key}: contains a NUL character")
    try:
        size = len(os.fsencode(text))
    except UnicodeEncodeError as error:
        raise ValueError(f"{key}: has a lone surrogate at position {error.start}") from None
    if key == "command" and size > _LONG:
        from clawkit.tools.exec import MAX_COMMAND

        if size >= MAX_COMMAND:
            raise ValueError(f"{key}: is {size:,} bytes; the limit of exec is {MAX_COMMAND - 1:,}")


def _override(judge: Judge, case: _Case) -> Judge:
    """The judge with the settings of the case instead of the configured ones."""
    changes: dict[str, Any] = {}
    if case.security or case.ask:
        security, ask = judge.settings.policy()
        changes = {"mode": None, "security": case.security or security, "ask": case.ask or ask}
    for name in ("safe_bins", "strict_inline_eval"):
        if (value := getattr(case, name)) is not None:
            changes[name] = value
    settings = msgspec.structs.replace(judge.settings, **changes)
    judge = replace(judge, settings=settings, ignore_floor="security" in changes)
    if case.allowlist is not None:
        judge = replace(judge, more=tuple(map(read_entry, case.allowlist)), only_more=True)
    return judge


def to_json(decision: Decision) -> dict[str, Any]:
    given = decision.grants._asdict().items()
    granted = {key: value if value is True else list(value) for key, value in given if value}
    return {
        "verdict": decision.verdict,
        "reason": decision.reason,
        "code": decision.code,
        "toAllow": decision.to_allow,
        "security": decision.policy.security,
        "ask": decision.policy.ask,
        "sources": list(decision.policy.sources),
        "analysis": _analysis(decision),
        "segments": [part for judged in decision.segments for part in _parts(judged)],
        "programs": None if decision.programs is None else list(decision.programs),
        "always": [{"extent": each.extent, "rule": each.words} for each in decision.offers],
        "place": None if decision.verdict == "deny" else decision.place,
        **({"grants": granted} if granted else {}),
    }


def _analysis(decision: Decision) -> dict[str, Any] | None:
    is_seen = decision.segments or decision.doubt is not None
    if decision.code in NOT_ANALYSED or (decision.code == "sandbox" and not is_seen):
        return None
    if (doubt := decision.doubt) is not None:
        return {"ok": False, "reason": doubt.reason, "code": doubt.code, "position": doubt.at}
    # In the sandbox the command is not rebuilt: the shell gets it as written.
    return {"ok": True} if decision.place == "sandbox" else {"ok": True, "rebuilt": decision.run}


def _parts(judged: Judged) -> Iterator[dict[str, Any]]:
    segment = judged.segment
    for program, result in pair_results(judged):
        part: dict[str, Any] = {"text": segment.text, "argv": [], "resolved": ""}
        if program is not None:
            part["argv"] = [arg.text for arg in program.argv]
            part |= {"resolved": program.resolved, "real": program.real, "cwd": program.cwd}
        elif segment.builtin:
            part |= {"argv": [segment.builtin], "builtin": segment.builtin}
        if isinstance(result, Match):
            part |= {"by": result.by, "reason": result.rule, "children": result.children}
        else:
            part |= {"by": None, "reason": result.reason, "code": result.code}
            part["toAllow"] = result.to_allow
        yield part


def pair_results(judged: Judged) -> Iterator[tuple[Program | None, Match | Miss]]:
    """Each result with its program, if it has one."""
    return zip(chain(judged.segment.programs, repeat(None)), judged.results, strict=False)

"""Which security and ask are in force: of the settings, the document and the call, the strictest
counts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import get_args

from clawkit.approvals.base import Policy
from clawkit.approvals.document import DocPolicy
from clawkit.config.sections.exec import Ask, Exec, Security

_STRICTEST_FIRST: tuple[Security, ...] = get_args(Security)
_MOST_ASKING_LAST: tuple[Ask, ...] = get_args(Ask)


def strictest(a: Security, b: Security | None) -> Security:
    """The one that lets less through. Raises ValueError for what is neither."""
    return a if b is None else min(a, b, key=_STRICTEST_FIRST.index)


def most_asking(a: Ask, b: Ask | None) -> Ask:
    """The one that asks a person more often. Raises ValueError for what is neither."""
    return a if b is None else max(a, b, key=_MOST_ASKING_LAST.index)


def combine(
    settings: Exec,
    document: DocPolicy,
    *,
    security: Security | None = None,
    ask: Ask | None = None,
    key: str = "tools.exec",
    where: str = "exec-approvals.json",
) -> Policy:
    """The policy for one call; its own `security` and `ask` can only tighten it.

    `key` is where the settings come from and `where` is the document, for the words.
    """
    configured = settings.policy()
    security_now = strictest(strictest(configured[0], document.security), security)
    ask_now = most_asking(most_asking(configured[1], document.ask), ask)
    sources = [
        *_from_settings(settings, key, security_now, ask_now),
        *_from_document(document, where, configured, security_now, ask_now),
        *_from_call(security, ask, configured, document, security_now, ask_now),
    ]
    return Policy(
        security_now,
        ask_now,
        document.fallback,
        document.auto_allow_skills,
        tuple(sources),
        to_loosen=_loosen(settings, document, key) if security != "deny" else "",
    )


def _loosen(settings: Exec, document: DocPolicy, key: str) -> str:
    """What to type when no command may run because of the settings alone."""
    if document.security == "deny" or settings.policy()[0] != "deny":
        return ""
    name = "mode ask" if settings.mode else "security allowlist"
    return f"clawkit config set {shlex.quote(key)}.{name}"


def _from_settings(settings: Exec, key: str, security: Security, ask: Ask) -> Iterator[str]:
    configured = settings.policy()
    if settings.mode is not None:
        if security in configured or ask in configured:
            yield f"{key}.mode is {settings.mode!r}"
        return
    for name, value, now in zip(("security", "ask"), configured, (security, ask), strict=True):
        if value == now:
            given = getattr(settings, name) is not None
            yield f"{key}.{name} is {value!r}{'' if given else ' by default'}"


def _from_document(
    document: DocPolicy,
    where: str,
    configured: tuple[Security, Ask],
    security: Security,
    ask: Ask,
) -> Iterator[str]:
    if document.security == security != configured[0]:
        yield f"security is {security!r}{_left_out(document, 'security')} in {where}"
    if document.ask == ask != configured[1]:
        yield f"ask is {ask!r}{_left_out(document, 'ask')} in {where}"


def _left_out(document: DocPolicy, name: str) -> str:
    return f", because {name} is left out," if name in document.left_out else ""


def _from_call(
    wanted: Security | None,
    asked: Ask | None,
    configured: tuple[Security, Ask],
    document: DocPolicy,
    security: Security,
    ask: Ask,
) -> Iterator[str]:
    if wanted == security not in (configured[0], document.security):
        yield f"this call asked for security {security!r}"
    if asked == ask not in (configured[1], document.ask):
        yield f"this call asked for ask {ask!r}"

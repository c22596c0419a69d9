"""What `clawkit doctor` checks about models and sessions."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from clawkit.cli.doctor_checks import MAX_AGENTS, Finding, Level, obstacle_at, open_store
from clawkit.cli.models_status import ChosenModel, access, chosen, listening
from clawkit.cli.onboarding.probe import is_at_home, kinds_by_name
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef
from clawkit.config.paths import sessions_file
from clawkit.errors import ClawkitError, ConfigError
from clawkit.models.auth_profiles import AUTH_PROFILES as PROFILES_JSON
from clawkit.models.catalog import Catalog
from clawkit.models.discover import find_local, found_model, local_models
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.providers import MODELS_JSON as MODELS_JSON
from clawkit.net.addresses import parse_url, refusal
from clawkit.net.route import NetError
from clawkit.sessions.location import locate_store
from clawkit.sessions.store import APPLICATION, MIGRATIONS, SessionStore
from clawkit.store import Database
from clawkit.text import human_size, human_time

MAX_CHECKED = 512 * 1024 * 1024
"""Bytes of a store that are checked; beyond that it would take too long."""
_LOOKED_AT = 500
Look = Callable[[], Sequence[str]]
_NO_MODEL = "no model is chosen and no key was found, so only a built-in script answers"
_TO_CHOOSE = "clawkit onboard, or export ANTHROPIC_API_KEY=..."
_OR_KEEP_NOTHING = ", or save nothing: clawkit agent --no-session"


def check_models(loaded: Loaded) -> Iterator[Finding]:
    """Whether each agent has a model that can be asked."""
    agents = list(loaded.config.agents.by_id()) or [loaded.config.agents.default_id()]
    findings: dict[Finding, None] = {}
    # Ollama is asked once, however many agents there are.
    look = cache(lambda: local_models(loaded.env))
    with listening() as remarks:
        for agent in agents[:MAX_AGENTS]:
            try:
                catalog = Catalog.of(loaded, agent)
                choices = chosen(catalog)
                several = len(agents) > 1
                findings |= dict.fromkeys(_check_agent(catalog, choices, look, several=several))
                findings |= dict.fromkeys(_check_providers(catalog, choices))
            except ConfigError as error:
                findings |= dict.fromkeys(_issues(error))
    yield from findings
    for remark in remarks.heard:
        yield Finding("models", "warn", remark, f"correct it in {PROFILES_JSON}, or remove it")


def _issues(error: ConfigError) -> Iterator[Finding]:
    for issue in error.issues:
        yield Finding("models", "error", str(issue), f"edit {issue.file}" if issue.file else "")


def _check_agent(
    catalog: Catalog, choices: Sequence[ChosenModel], look: Look, *, several: bool
) -> Iterator[Finding]:
    """The agent's model and what is used in its place."""
    # An invalid file of credentials is reported once, not once for each provider.
    catalog.credentials.for_provider(OPERATOR.provider)
    whose = f"agent {catalog.agent!r}: " if several else ""
    if not choices:
        yield _check_found(catalog, whose, look)
    for number, choice in enumerate(choices):
        if choice.ref is None:
            what = f"{choice.setting}: {choice.problem}"
            yield Finding("models", "error", what, "clawkit models list --all")
        elif choice.ref != OPERATOR:
            yield from _check_choice(catalog, choice.ref, choice, whose, is_first=not number)


def _check_found(catalog: Catalog, whose: str, look: Look) -> Finding:
    if ref := found_model(catalog):
        key = access(catalog, ref.provider).credentials[0].id
        what = f"{whose}no model is chosen; {ref} is used, by {key}"
    elif ref := find_local(catalog, lambda _env: look()):
        what = f"{whose}no model is chosen; {ref} is used, which runs on this machine"
    else:
        return Finding("models", "warn", f"{whose}{_NO_MODEL}", _TO_CHOOSE)
    return Finding("models", "ok", what, f"clawkit models set {shlex.quote(str(ref))}")


def _check_choice(
    catalog: Catalog, ref: ModelRef, choice: ChosenModel, whose: str, *, is_first: bool
) -> Iterator[Finding]:
    level: Level = "error" if is_first else "warn"
    word = "" if is_first else "fallback "
    try:
        catalog.endpoint(ref)
    except ConfigError as error:
        yield from _issues(error)
        return
    keys = access(catalog, ref.provider)
    if keys.problem:
        yield Finding("models", level, f"{choice.setting}: {keys.problem}")
    elif not keys.credentials:
        what = f"{choice.setting}: {ref.provider} has no credential"
        yield Finding("models", level, what, keys.missing)
    else:
        first = keys.credentials[0]
        rest_s = catalog.credentials.cooldown_s(first)
        if rest_s:
            # Those that rest come last: there is no other one.
            what = (
                f"{choice.setting}: {first.id} was refused and is not used for {human_time(rest_s)}"
            )
            yield Finding("models", "warn", what, "clawkit models status --probe")
        else:
            with_ = "no credential needed" if first.kind == "none" else f"with {first.id}"
            yield Finding("models", "ok", f"{whose}{word}{ref}, {with_}")


def _check_providers(catalog: Catalog, choices: Sequence[ChosenModel]) -> Iterator[Finding]:
    """Providers that are configured: may they be connected to, is there a credential?"""
    chosen_ones = {choice.ref.provider for choice in choices if choice.ref}
    for service in catalog.services.values():
        settings = service.settings
        allow = settings.request.allow_private_network
        for key, url in (
            (service.at("baseUrl"), settings.base_url),
            *(
                (service.at("models") + f"[{id_!r}].baseUrl", each.base_url)
                for id_, each in service.models.items()
            ),
        ):
            if url and (problem := address_problem(url.strip(), allow)):
                yield Finding("models", "error", f"{key}: {problem}", f"correct {key}")
        if service.id in chosen_ones or not (settings.base_url or service.models):
            continue
        keys = access(catalog, service.id)
        if keys.problem:
            yield Finding("models", "warn", keys.problem)
        elif not keys.credentials:
            what = f"the provider {service.id} has no credential, so its models cannot be used"
            yield Finding("models", "warn", what, keys.missing)


def address_problem(url: str, allow_private: bool | None) -> str:
    """Why clawkit does not connect to an address, as far as that is known without a lookup."""
    try:
        target = parse_url(url)
    except NetError as error:
        return str(error)
    encrypted = target.scheme == "https"
    # Where private networks are allowed, the name may be of one.
    is_fine = encrypted or allow_private or is_at_home(target.host)
    kinds = kinds_by_name(target) or ([] if is_fine else ["public"])
    may = {"loopback": allow_private is not False, "private": allow_private is True}
    return next((refusal(kind, encrypted=encrypted, **may) for kind in kinds), "")


def check_sessions(loaded: Loaded, file: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Whether sessions can be saved and read again."""
    try:
        path = locate_store(loaded.config.session.store, env)
    except ConfigError as error:
        yield from (Finding("sessions", "error", str(issue)) for issue in error.issues)
        return
    setting = "session.store" if path != sessions_file(env) else "CLAWKIT_HOME"
    if obstacle := obstacle_at(os.path.dirname(path)):
        what = f"{path} cannot be written, so sessions are not saved: {obstacle.why}"
        yield Finding("sessions", "error", what, f"{obstacle.remedy(setting)}{_OR_KEEP_NOTHING}")
        return
    if not os.path.lexists(path):
        yield Finding("sessions", "ok", f"{path} does not exist yet; the first session creates it")
        return
    quoted = shlex.quote(path)
    if open_store(file, env) == path:
        what = f"{path} is accessible to other users, so sessions are not saved"
        yield Finding("sessions", "error", what, f"chmod 600 {quoted}")
        return
    try:
        yield Finding("sessions", "ok", _look_through(path))
    except ClawkitError as error:
        yield Finding("sessions", "error", str(error), store_remedy(error, path, setting))


def store_remedy(error: ClawkitError, path: str, setting: str) -> str:
    """What helps against an error of the store: only one that is damaged has to go."""
    quoted, cause = shlex.quote(path), error.__cause__
    name = type(cause).__name__
    is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    if is_full or name in ("FullError", "IOError"):
        return f"free some space there: df -h {shlex.quote(os.path.dirname(path))}"
    if isinstance(cause, OSError) or name in ("ReadOnlyError", "CantOpenError"):
        return f"set {setting} to a place that can be written{_OR_KEEP_NOTHING}"
    if name in ("BusyError", "LockedError"):
        return f"stop what uses it: fuser -v {quoted}"
    return f"mv {quoted} {quoted}.old"


def _look_through(path: str) -> str:
    """What is in a store. Raises `ToolError` when it is damaged."""
    size = os.stat(path).st_size
    store = SessionStore(path)
    try:
        found = store.recent(limit=_LOOKED_AT)
    finally:
        store.close()
    number = f"{len(found)} or more" if len(found) == _LOOKED_AT else str(len(found))
    noun = "session" if len(found) == 1 else "sessions"
    said = f"{path}: {number} {noun}, {human_size(size)}"
    if size > MAX_CHECKED:
        return f"{said}; too large to be checked"
    database = Database(path, "the store of sessions", APPLICATION, MIGRATIONS)
    try:
        with database.using() as db:
            verdict = db.execute("PRAGMA quick_check(1)").get
        if verdict != "ok":
            raise database.broken(f"it is damaged: {verdict}")
    finally:
        database.close()
    return said

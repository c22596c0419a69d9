"""What `clawkit doctor` looks at for models and conversations."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from clawkit.cli.checks_places import obstacle_at
from clawkit.cli.finding import Finding, Level
from clawkit.cli.model_choice import Choice, access, chosen, listening
from clawkit.cli.model_local import Look, LookOnce, find_local
from clawkit.cli.onboarding_look import is_at_home
from clawkit.config.load import Loaded, load
from clawkit.config.modelref import ModelRef
from clawkit.config.paths import home, sessions_file
from clawkit.errors import ClawkitError, ConfigError
from clawkit.models.discover import found_model
from clawkit.models.modelsjson import NAME as MODELS_JSON
from clawkit.models.modelsjson import agent_dir
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.profiles import NAME as PROFILES_JSON
from clawkit.models.resolve import Catalog
from clawkit.net.addresses import Kind, kind_of, kind_of_name, parse_url, refusal
from clawkit.net.base import NetError
from clawkit.sessions.place import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.sessions.tables import APPLICATION, MIGRATIONS
from clawkit.store_sqlite import Database
from clawkit.text import human_size, human_time

MAX_AGENTS = 100
MAX_CHECKED = 512 * 1024 * 1024
"""Bytes of a store that are looked through; beyond that it would take too long."""
_LOOKED_AT = 500
_NO_MODEL = "no model is chosen and no key was found, so nothing but a built-in script answers"
_TO_CHOOSE = "clawkit onboard, or export ANTHROPIC_API_KEY=..."
_OR_KEEP_NOTHING = ", or keep nothing: clawkit agent --no-session"


def check_models(loaded: Loaded) -> Iterator[Finding]:
    """Whether each agent has a model that can be asked."""
    agents = list(loaded.config.agents.by_id()) or [loaded.config.agents.default_id()]
    told: dict[Finding, None] = {}
    look = LookOnce()
    with listening() as remarks:
        for agent in agents[:MAX_AGENTS]:
            try:
                catalog = Catalog.of(loaded, agent)
                choices = chosen(catalog)
                several = len(agents) > 1
                told |= dict.fromkeys(_check_agent(catalog, choices, look, several=several))
                told |= dict.fromkeys(_check_providers(catalog, choices))
            except ConfigError as error:
                told |= dict.fromkeys(_issues(error))
    yield from told
    for remark in remarks.heard:
        yield Finding("models", "warn", remark, f"correct it in {PROFILES_JSON}, or remove it")


def _issues(error: ConfigError) -> Iterator[Finding]:
    for issue in error.issues:
        yield Finding("models", "error", str(issue), f"edit {issue.file}" if issue.file else "")


def _check_agent(
    catalog: Catalog, choices: Sequence[Choice], look: Look, *, several: bool
) -> Iterator[Finding]:
    """The agent's model and what is used in its place."""
    # A file of credentials that is broken is told once, not once for each provider.
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
    elif ref := find_local(catalog, look):
        what = f"{whose}no model is chosen; {ref} is used, which runs on this machine"
    else:
        return Finding("models", "warn", f"{whose}{_NO_MODEL}", _TO_CHOOSE)
    return Finding("models", "ok", what, f"clawkit models set {shlex.quote(str(ref))}")


def _check_choice(
    catalog: Catalog, ref: ModelRef, choice: Choice, whose: str, *, is_first: bool
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
        what = f"{choice.setting}: there is no credential for {ref.provider}"
        yield Finding("models", level, what, keys.missing)
    else:
        first = keys.credentials[0]
        rest_s = catalog.credentials.cooldown_s(first)
        if rest_s:
            # Those that rest come last: there is no other one.
            what = f"{choice.setting}: {first.id} was refused and rests for {human_time(rest_s)}"
            yield Finding("models", "warn", what, "clawkit models status --probe")
        else:
            with_ = "no credential needed" if first.kind == "none" else f"with {first.id}"
            yield Finding("models", "ok", f"{whose}{word}{ref}, {with_}")


def _check_providers(catalog: Catalog, choices: Sequence[Choice]) -> Iterator[Finding]:
    """Providers that are configured: may they be connected to, is there a credential?"""
    told = {choice.ref.provider for choice in choices if choice.ref}
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
        if service.id in told or not (settings.base_url or service.models):
            continue
        keys = access(catalog, service.id)
        if keys.problem:
            yield Finding("models", "warn", keys.problem)
        elif not keys.credentials:
            what = f"the provider {service.id} has no credential, so its models cannot be used"
            yield Finding("models", "warn", what, keys.missing)


def address_problem(url: str, allow_private: bool | None) -> str:
    """Why an address is not connected to, as far as that can be told without asking anybody."""
    try:
        target = parse_url(url)
    except NetError as error:
        return str(error)
    encrypted = target.scheme == "https"
    kind: Kind | None = kind_of(target.address) if target.address else kind_of_name(target.host)
    if kind is None:
        # Where private networks are allowed, the name may be of one.
        if encrypted or allow_private or is_at_home(target.host):
            return ""
        kind = "public"
    return refusal(
        kind,
        encrypted=encrypted,
        loopback=allow_private is not False,
        private=allow_private is True,
    )


def agent_files(file: str, env: Mapping[str, str]) -> Iterator[str]:
    """Files of agents that may hold secrets, as far as the configuration tells where they are."""
    for folder in _agent_folders(file, env):
        yield os.path.join(folder, MODELS_JSON)
        yield os.path.join(folder, PROFILES_JSON)


def _agent_folders(file: str, env: Mapping[str, str]) -> list[str]:
    folders: dict[str, None] = {}
    loaded = _load(file, env)
    if loaded is not None:
        agents = loaded.config.agents
        for name in islice((*agents.by_id(), agents.default_id()), MAX_AGENTS):
            try:
                folders[agent_dir(loaded.config, loaded.env, name)] = None
            except ConfigError:
                continue  # told where the models of agents are
    place = os.path.join(home(env), "agents")
    try:
        names = sorted(os.listdir(place))
    except OSError:
        names = []
    return list(folders | {os.path.join(place, name, "agent"): None for name in names[:MAX_AGENTS]})


def _load(file: str, env: Mapping[str, str]) -> Loaded | None:
    try:
        return load(file if os.path.lexists(file) else None, env=env)
    except ConfigError:
        return None


def open_store(file: str, env: Mapping[str, str]) -> str | None:
    """The store of conversations, when other users can get at it."""
    loaded = _load(file, env)
    try:
        path = locate_store(loaded.config.session.store, env) if loaded else sessions_file(env)
        info = os.lstat(path)
    except (ConfigError, OSError):
        return None
    ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
    return path if ours and info.st_mode & 0o077 else None


def check_sessions(loaded: Loaded, file: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Whether conversations can be kept and read again."""
    try:
        path = locate_store(loaded.config.session.store, env)
    except ConfigError as error:
        yield from (Finding("sessions", "error", str(issue)) for issue in error.issues)
        return
    setting = "session.store" if path != sessions_file(env) else "CLAWKIT_HOME"
    if obstacle := obstacle_at(os.path.dirname(path)):
        what = f"{path} cannot be written, so no conversation is kept: {obstacle.why}"
        yield Finding("sessions", "error", what, f"{obstacle.remedy(setting)}{_OR_KEEP_NOTHING}")
        return
    if not os.path.lexists(path):
        yield Finding("sessions", "ok", f"{path} is not there yet; the first conversation makes it")
        return
    quoted = shlex.quote(path)
    if open_store(file, env) == path:
        what = f"{path} is open to other users, so no conversation is kept"
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
        return f"end what uses it: fuser -v {quoted}"
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
    noun = "conversation" if len(found) == 1 else "conversations"
    said = f"{path}: {number} {noun}, {human_size(size)}"
    if size > MAX_CHECKED:
        return f"{said}; too large to be looked through"
    database = Database(path, "the store of sessions", APPLICATION, MIGRATIONS)
    try:
        with database.using() as db:
            verdict = db.execute("PRAGMA quick_check(1)").get
        if verdict != "ok":
            raise database.broken(f"it is damaged: {verdict}")
    finally:
        database.close()
    return said

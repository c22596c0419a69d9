"""The checks of `clawkit doctor` for models, sessions, jobs and the sandbox."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from clawkit.agent.assemble import assemble
from clawkit.cli import doctor_checks as checks
from clawkit.cli.doctor_checks import Finding, Findings, fault, ok, warn
from clawkit.cli.memory import inspect_memory
from clawkit.cli.models import ChosenModel, Source, access, listening, models_in_use
from clawkit.cli.onboarding.probe import is_at_home, kinds_by_name
from clawkit.cli.plugins import survey_config
from clawkit.cli.sandbox_explain import ENGINES, advise, look_at_engine
from clawkit.cli.shared_options import counted
from clawkit.config.load import Loaded
from clawkit.config.model import Config
from clawkit.config.modelref import OPERATOR, ModelRef
from clawkit.config.paths import sessions_file
from clawkit.config.sections.sandbox import SandboxSettings
from clawkit.core.context import Scope, Sender
from clawkit.cron.service import SKIP_VARIABLE
from clawkit.errors import ClawkitError, ConfigError, ToolError
from clawkit.memory.orphaned_indexes import find_orphans
from clawkit.models.catalog import Catalog
from clawkit.models.discover import local_models
from clawkit.models.providers import AUTH_PROFILES as PROFILES_JSON
from clawkit.net.addresses import parse_url, refusal
from clawkit.net.route import NetError
from clawkit.process.environ import find_program
from clawkit.runtime import resolve_workspace
from clawkit.sandbox.confinement import BackendChoice, choose, why_no_bwrap, why_unusable
from clawkit.sandbox.paths import DeniedFiles
from clawkit.session_cron import open_cron
from clawkit.sessions.protocols import locate_store
from clawkit.sessions.schema import APPLICATION, MIGRATIONS
from clawkit.sessions.store import SessionStore
from clawkit.store import Database
from clawkit.text import human_size, human_time, one_line
from clawkit.tools._memory import is_enabled
from clawkit.web.search import table as search

MAX_CHECKED = 512 * 1024 * 1024
"""Larger stores are not checked: it would take too long."""
_MAX_COUNTED = 500
_NO_MODEL = "no model is configured and no API key was found, so the built-in operator answers"
_TO_CHOOSE = "clawkit onboard, or export ANTHROPIC_API_KEY=..."
_OR_KEEP_NOTHING = ", or do not save sessions: clawkit agent --no-session"


def check_plugins(config: Config) -> Findings:
    if config.plugins is None:
        return
    states, issues = survey_config(config.plugins)
    lost = [each for each in states if each.state == "left out" and each.found.origin != "bundled"]
    for each in lost:
        yield warn(f"plugin {each.found.id} at {each.found.location} is left out: {each.reason}")
    for each in states:
        if each.problem:
            again = f"clawkit plugins disable {each.found.id}, or fix it and enable it again"
            yield warn(f"plugin {each.found.id}: {each.problem}", again)
    said = {f"plugins.entries.{each.found.id}" for each in lost}
    yield from (warn(str(issue)) for issue in issues if issue.path not in said)
    running = [each.found.id for each in states if each.state == "on"]
    yield ok(f"plugins in use: {', '.join(running) or 'none'}")


def check_models(loaded: Loaded) -> Findings:
    agents = list(loaded.config.agents.by_id()) or [loaded.config.agents.default_id()]
    findings: dict[Finding, None] = {}
    # Query Ollama once, however many agents there are.
    look = cache(lambda: local_models(loaded.env))
    with listening() as remarks:
        for agent in agents[: checks.MAX_AGENTS]:
            try:
                catalog = Catalog.of(loaded, agent)
                # Read the credentials now: an invalid file is then reported once, not for each
                # provider.
                catalog.credentials.for_provider(OPERATOR.provider)
                source, choices = models_in_use(catalog, lambda _env: look())
                whose = f"agent {agent!r}: " if len(agents) > 1 else ""
                findings |= dict.fromkeys(_check_agent(catalog, source, choices, whose))
                findings |= dict.fromkeys(_check_providers(catalog, choices))
            except ConfigError as error:
                findings |= dict.fromkeys(checks.config_errors(error))
    yield from findings
    for remark in remarks:
        yield warn(remark, f"fix it in {PROFILES_JSON}, or remove it")


def _check_agent(
    catalog: Catalog, source: Source, choices: Sequence[ChosenModel], label: str
) -> Findings:
    for number, choice in enumerate(choices):
        ref = choice.ref
        if ref is None:
            yield fault(f"{choice.setting}: {choice.problem}", "clawkit models list --all")
        elif source == "built-in":
            yield warn(f"{label}{_NO_MODEL}", _TO_CHOOSE)
        elif source != "config":
            by = "which runs on this machine"
            if source == "found":
                by = f"because of {access(catalog, ref.provider).credentials[0].id}"
            what = f"{label}no model is configured; {ref} is used, {by}"
            yield ok(what, f"clawkit models set {shlex.quote(str(ref))}")
        elif ref != OPERATOR:
            yield from _check_choice(catalog, ref, choice.setting, label, is_first=not number)


def _check_choice(
    catalog: Catalog, ref: ModelRef, setting: str, label: str, *, is_first: bool
) -> Findings:
    report, word = (fault, "") if is_first else (warn, "fallback ")
    try:
        catalog.endpoint(ref)
    except ConfigError as error:
        yield from checks.config_errors(error)
        return
    keys = access(catalog, ref.provider)
    if keys.problem:
        yield report(f"{setting}: {keys.problem}")
    elif not keys.credentials:
        yield report(f"{setting}: {ref.provider} has no credential", keys.missing)
    elif rest_s := catalog.credentials.cooldown_s(first := keys.credentials[0]):
        # Credentials in cooldown come last, so there is no other one.
        what = f"{first.id} was rejected and is not used for {human_time(rest_s)}"
        yield warn(f"{setting}: {what}", "clawkit models status --probe")
    else:
        with_ = "no credential needed" if first.kind == "none" else f"with {first.id}"
        yield ok(f"{label}{word}{ref}, {with_}")


def _check_providers(catalog: Catalog, choices: Sequence[ChosenModel]) -> Findings:
    chosen_ones = {choice.ref.provider for choice in choices if choice.ref}
    for service in catalog.services.values():
        settings = service.settings
        allow = settings.request.allow_private_network
        addresses = {service.at("baseUrl"): settings.base_url}
        for id_, each in service.models.items():
            addresses[service.at("models") + f"[{id_!r}].baseUrl"] = each.base_url
        for key, url in addresses.items():
            if url and (problem := address_problem(url.strip(), allow)):
                yield fault(f"{key}: {problem}", f"fix {key}")
        if service.id in chosen_ones or not (settings.base_url or service.models):
            continue
        keys = access(catalog, service.id)
        if keys.problem:
            yield warn(keys.problem)
        elif not keys.credentials:
            what = f"the provider {service.id} has no credential, so its models cannot be used"
            yield warn(what, keys.missing)


def address_problem(url: str, allow_private: bool | None) -> str:
    """Why clawkit refuses to connect to an address, as far as that is known without DNS."""
    try:
        target = parse_url(url)
    except NetError as error:
        return str(error)
    encrypted = target.scheme == "https"
    # If private networks are allowed, the name may belong to one.
    is_fine = encrypted or allow_private or is_at_home(target.host)
    kinds = kinds_by_name(target) or ([] if is_fine else ["public"])
    loopback, private = allow_private is not False, allow_private is True
    refused = (
        refusal(kind, encrypted=encrypted, loopback=loopback, private=private) for kind in kinds
    )
    return next(refused, "")


def check_sessions(loaded: Loaded, env: Mapping[str, str]) -> Findings:
    try:
        path = locate_store(loaded.config.session.store, env)
    except ConfigError as error:
        yield from checks.config_errors(error)
        return
    setting = "session.store" if path != sessions_file(env) else "CLAWKIT_HOME"
    if obstacle := checks.obstacle_at(os.path.dirname(path), setting):
        why, do = obstacle
        what = f"{path} cannot be written, so sessions are not saved: {why}"
        yield fault(what, f"{do}{_OR_KEEP_NOTHING}")
        return
    if not os.path.lexists(path):
        yield ok(f"{path} does not exist yet; the first session creates it")
        return
    if checks.open_mode(path) and os.path.isfile(path):
        what = f"{path} is accessible to other users, so sessions are not saved"
        yield fault(what, f"chmod 600 {shlex.quote(path)}")
        return
    try:
        yield ok(_examine_store(path))
    except ClawkitError as error:
        yield fault(str(error), store_remedy(error, path, setting))


def store_remedy(error: ClawkitError, path: str, setting: str) -> str:
    """How to fix an error of the store; only a damaged one has to be moved away."""
    quoted, cause = shlex.quote(path), error.__cause__
    name = type(cause).__name__
    is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    if is_full or name in ("FullError", "IOError"):
        return f"free some space there: df -h {shlex.quote(os.path.dirname(path))}"
    if isinstance(cause, OSError) or name in ("ReadOnlyError", "CantOpenError"):
        return f"set {setting} to a writable location{_OR_KEEP_NOTHING}"
    if name in ("BusyError", "LockedError"):
        return f"stop the process that uses it: fuser -v {quoted}"
    return f"mv {quoted} {quoted}.old"


def _examine_store(path: str) -> str:
    """What the store contains. Raises `ToolError` if it is damaged."""
    size = os.stat(path).st_size
    store = SessionStore(path)
    try:
        found = store.recent(limit=_MAX_COUNTED)
    finally:
        store.close()
    more = "at least " if len(found) == _MAX_COUNTED else ""
    said = f"{path}: {more}{counted(len(found), 'session')}, {human_size(size)}"
    if size > MAX_CHECKED:
        return f"{said}; too large to check"
    database = Database(path, "the store of sessions", APPLICATION, MIGRATIONS)
    try:
        with database.using() as db:
            verdict = db.execute("PRAGMA quick_check(1)").get
        if verdict != "ok":
            raise database.broken(f"it is damaged: {verdict}")
    finally:
        database.close()
    return said


_LOCAL = ("network", "allow_hosts", "allow_private", "hide_paths", "show_paths", "write_paths")
_USED_BY = {"docker": ENGINES, "ssh": ("ssh",)}
_USED_BY |= dict.fromkeys((*_LOCAL, "limits"), ("bwrap", "landlock"))
"""Settings that only these backends use."""


def check_sandbox(loaded: Loaded, workspace: str | None = None) -> Findings:
    """The sandbox of every agent; findings that several agents share are reported once."""
    seen: dict[Finding, None] = {}
    agents = loaded.config.agents
    for agent in [agents.default_id(), *agents.by_id()][: checks.MAX_AGENTS]:
        seen |= dict.fromkeys(_check_sandbox_of(loaded, agent, workspace))
    yield from seen


def _check_sandbox_of(loaded: Loaded, agent: str, requested: str | None) -> Findings:
    config, agents = loaded.config, loaded.config.agents
    settings, own = agents.sandbox_of(agent), agents.get(agent).sandbox
    key = f"{agents.key_of(agent)}.sandbox" if own is not None else "agents.defaults.sandbox"
    if settings.mode == "off":
        what = f"{key}.mode is 'off': commands run on the host, and need approval"
        yield warn(what, f"clawkit config set {key}.mode auto")
        yield from _check_effect(settings, key, None)
        return
    security, _ = config.tools.exec.merged(agents.get(agent).tools.exec).policy()
    if security == "full" and settings.mode == "auto":
        what = "commands run on the host, unconfined: the exec security is 'full'"
        yield warn(what, "clawkit config set tools.exec.security allowlist")
        return
    try:
        workspace = resolve_workspace(config, agent, requested)
        rules = assemble(config, Scope(agent=agent, sender=Sender(owner=True)))
    except ConfigError:
        return  # reported in the sections workspace and policy
    # Without a state directory nothing is cached: doctor must not write anything.
    choice = choose(settings, workspace=workspace, state="")
    yield from _check_backend(settings, choice, key)
    backend = choice.backend
    can_hide = backend in ("bwrap", None) or settings.access() == "none"
    if rules.denies_files and not can_hide:
        what = (
            "tools.rules denies files to the file tools, but commands can read them: the backend "
            f"{backend} cannot hide single files"
        )
        yield warn(what, "use the backend bwrap (apt-get install bubblewrap)")
    if rules.denies_files and backend == "bwrap" and settings.access() != "none":
        # Raises if it cannot find all files that commands must not see.
        files = DeniedFiles(lambda path: rules.effect_on("read", path, workspace) == "deny")
        try:
            files.find(workspace)
        except ToolError as error:
            yield fault(f"no command can run in the sandbox: {error}")
    yield from _check_effect(settings, key, backend)


def _check_backend(settings: SandboxSettings, choice: BackendChoice, key: str) -> Findings:
    if choice.backend is None:
        problem = why_unusable(settings, choice)
        what = problem or f"no sandbox is available, so commands need approval: {choice.reason}"
        do = f"clawkit config set {key}.backend auto"
        if settings.backend == "auto":
            # If this machine lacks nothing, the workspace is the problem.
            elsewhere = ("", "start clawkit in a project directory, or add --workspace DIR")
            do = next(advise(why_no_bwrap("")), elsewhere)[1]
        yield (fault if problem else warn)(what, do)
        return
    what = f"commands run in the sandbox {choice.backend}"
    if choice.backend == "landlock" and settings.backend == "auto":
        yield ok(what)
        for each in advise(why_no_bwrap("")):
            yield warn(f"a stronger sandbox is not used: {each[0]}", each[1])
        return
    yield ok(f"{what}: {choice.reason}", "clawkit sandbox explain")
    if choice.backend in ENGINES:
        image = settings.docker.image
        if lack := look_at_engine(choice.backend, image):
            yield fault(f"{lack[0]}, so no command can run", lack[1])
        else:
            yield ok(f"{choice.backend} responds and has the image {image!r}")
    elif choice.backend == "ssh" and not settings.ssh.target:
        what = f"{key}.ssh.target is not set, so no command can run"
        yield fault(what, f"clawkit config set {key}.ssh.target user@host")
    elif choice.backend == "ssh" and find_program(settings.ssh.command) is None:
        what = f"{settings.ssh.command} is not installed, so no command can run"
        yield fault(what, "apt-get install openssh-client")


def _check_effect(settings: SandboxSettings, key: str, backend: str | None) -> Findings:
    for field in msgspec.structs.fields(SandboxSettings):
        name, where, why = field.name, f"{key}.{field.encode_name}", ""
        if getattr(settings, name) == getattr(SandboxSettings(), name):
            continue
        if name == "scope" and settings.mode == "auto":
            why = "in mode 'auto' the commands of an agent share one sandbox"
        elif backend not in (*_USED_BY.get(name, (backend,)), None):
            why = f"the backend {backend} does not use it"
        elif name in ("allow_hosts", "allow_private") and settings.network != "allowlist":
            why = f"network is {settings.network!r}, not 'allowlist'"
        if why:
            yield warn(f"{where} has no effect: {why}", f"clawkit config unset {where}")
    if settings.browser.enabled:
        what = f"{key}.browser.enabled has no effect: this build has no browser in the sandbox"
        yield fault(what, f"clawkit config unset {key}.browser")


def check_jobs(loaded: Loaded, env: Mapping[str, str]) -> Findings:
    """Whether scheduled jobs run, and which ones fail; nothing if there are none."""
    service = open_cron(loaded)
    store = service.store
    if not store.exists:
        return
    if checks.open_mode(store.path):
        what = f"{store.path} is accessible to other users, so jobs do not run"
        yield fault(what, f"chmod 600 {shlex.quote(store.path)}")
        return
    try:
        rows = [row for row in store.all() if not row.job.declaration_key or row.job.enabled]
    except ClawkitError as error:
        yield fault(str(error), store_remedy(error, store.path, "CLAWKIT_HOME"))
        return
    finally:
        store.close()
    enabled = [row for row in rows if row.job.enabled]
    said = f"{counted(len(rows), 'job')}, {len(enabled)} enabled"
    if not enabled:
        yield ok(said)
    elif env.get(SKIP_VARIABLE) in ("1", "true"):
        yield warn(f"{said}, and {SKIP_VARIABLE} is set, so they do not run", "Unset it")
    elif not service.is_enabled:
        what = f"{said}, and cron.enabled is false, so they do not run"
        yield warn(what, "clawkit config set cron.enabled true")
    elif not store.owners():
        what = f"{said}, but no scheduler is running"
        yield warn(what, "clawkit gateway start, or clawkit cron serve")
    else:
        yield ok(said)
    for row in rows:
        job, state = row.job, row.state
        name = f"the job {one_line(job.name, 60)!r}"
        if state.auto_disabled and not job.enabled:
            what = f"{name} was disabled: {state.auto_disabled}: {one_line(state.last_error, 200)}"
            yield warn(what, f"fix that, then: clawkit cron enable {job.id[:8]}")
        elif job.enabled and state.consecutive_errors:
            times = counted(state.consecutive_errors, "time")
            what = f"{name} failed {times} in a row: {one_line(state.last_error, 200)}"
            yield warn(what, f"clawkit cron runs {job.id[:8]}")


def check_memory(loaded: Loaded, workspace: str | None) -> Findings:
    """The memory of every agent that uses it."""
    agents = loaded.config.agents
    for agent in agents.ids()[: checks.MAX_AGENTS]:
        whose = f"agent {agent!r}: " if len(agents.ids()) > 1 else ""
        if not is_enabled(loaded.config, agent):
            yield ok(f"{whose}memory is disabled (memory.search.enabled is false)")
            continue
        do = "clawkit memory index --rebuild" + (f" --agent {shlex.quote(agent)}" if whose else "")
        try:
            found = inspect_memory(loaded, agent, workspace)
        except ConfigError as error:  # the workspace, which another check reports
            yield warn(f"{whose}memory was not checked: {error}")
            continue
        except ToolError as error:
            yield fault(f"{whose}{error}", do)
            continue
        by = (
            f"keywords and {found.provider} {found.model}".strip() if found.provider else "keywords"
        )
        notes = counted(found.files + found.pending, "note")
        yield ok(f"{whose}{notes}, searched by {by}")
        for problem in found.problems[: checks.MAX_LISTED]:
            yield warn(f"{whose}{one_line(problem, 300)}", do.removesuffix(" --rebuild"))
    if gone := find_orphans(os.environ):
        number, size = counted(len(gone), "index", "es"), sum(each.size_bytes for each in gone)
        names = ", ".join(one_line(each.workspace, 100) for each in gone[:3])
        more = ", …" if len(gone) > 3 else ""
        what = f"{number} ({human_size(size)}) of workspaces that do not exist: {names}{more}"
        yield warn(what, "clawkit memory prune, unless they are on an unmounted disk")


def check_skills(loaded: Loaded, workspace: str | None) -> Findings:
    from clawkit.cli.skills import find_issues, open_skills

    try:
        found = open_skills(loaded, workspace)
    except ConfigError as error:  # the workspace, which another check reports
        yield warn(f"skills were not checked: {error}")
        return
    if found.skills:
        yield ok(f"{counted(len(found.skills), 'skill')}, {len(found.in_force)} of them offered")
    for each in found.broken[: checks.MAX_LISTED]:
        yield warn(f"{each.file}: {each.problem}", f"clawkit skills check {shlex.quote(each.file)}")
    yield from map(warn, (*found.remarks(), *map(str, find_issues(loaded, workspace))))


def check_search(loaded: Loaded) -> Findings:
    config, env = loaded.config, loaded.env
    if config.tools.web and not config.tools.web.search.enabled:
        yield ok("web search is disabled: tools.web.search.enabled is false")
        return
    named, ready = search.named_provider(config), search.ready_providers(config, env)
    if not (named or ready):
        what = "no search service is configured: web_search asks on first use"
        yield ok(what, "clawkit configure search")
        return
    row = search.PROVIDERS.get(named or ready[0])
    if row is None:
        yield ok(f"web search by the plugin {named}")
        return
    if issues := [*search.find_issues(config)]:
        yield from (fault(str(each)) for each in issues)
        return
    if (row.needs_key or row.needs_address) and row.id not in ready:
        lacks = "address" if row.needs_address else "key"
        setting = f"{row.where}.{'baseUrl' if row.needs_address else 'apiKey'}"
        yield fault(f"web search by {row.name} has no {lacks}", f"set {row.env[0]}, or {setting}")
        return
    more = [] if named else [search.PROVIDERS[each].name for each in ready[1:]]
    after = f"; if it fails, {', '.join(more)}" if more else ""
    yield ok(f"web search by {row.name}{after}")

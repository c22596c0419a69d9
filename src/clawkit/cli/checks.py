"""What `clawkit doctor` looks at. Each check looks at one thing and says what it found."""

from __future__ import annotations

import os
import platform
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from clawkit.agent.assemble import assemble
from clawkit.cli.checks_commands import check_commands
from clawkit.cli.checks_files import check_files
from clawkit.cli.checks_models import agent_files, check_models, check_sessions
from clawkit.cli.checks_places import obstacle_at
from clawkit.cli.finding import Finding, Level
from clawkit.config.alter import content
from clawkit.config.env import substitute
from clawkit.config.include import ReadError, Source, Tree, read_text
from clawkit.config.json5 import Json5Error, format_path
from clawkit.config.known import ROOT, Path, below, is_secret
from clawkit.config.load import Loaded, load
from clawkit.config.migrate import Migration, migrations
from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.paths import home, include_roots
from clawkit.config.secrets import resolve
from clawkit.config.section import SecretRef
from clawkit.config.shape import Shape
from clawkit.core.context import Scope, Sender
from clawkit.errors import ClawkitError, ConfigError, SecretError
from clawkit.fs.inside import open_inside

MAX_AGENTS = 100
MAX_SITUATIONS = 100
"""Beyond these a configuration is too large to be looked at case by case."""
MAX_LISTED = 20
"""Old spellings that are told one by one."""

_VARIABLE = re.compile(r"\$\{?([A-Z_][A-Z0-9_]*)")


class Diagnosis(NamedTuple):
    """Everything that was found, and whether the configuration can be used at all."""

    findings: tuple[Finding, ...]
    config_valid: bool

    @property
    def exit_code(self) -> int:
        """0 when nothing is wrong, 1 when something is, 2 when it is the configuration."""
        if not self.config_valid:
            return 2
        return 1 if any(each.level == "error" for each in self.findings) else 0


def diagnose(
    file: str, named: str | None, env: Mapping[str, str], *, allow_exec: bool
) -> Diagnosis:
    """Look at everything. `named` is the file the person named, if any; `file` the one in use."""
    findings = [*check_platform(), *check_home(env), *check_open_files(file, env)]
    try:
        loaded = load(named, env=env)
    except ConfigError as error:
        findings += _config_errors(error)
        findings += check_old_spellings(file, env)
        return Diagnosis(tuple(findings), False)
    findings += check_config(loaded, file)
    findings += check_old_spellings(file, env)
    findings += check_policy(loaded.config)
    findings += check_secrets(loaded, allow_exec=allow_exec)
    findings += check_workspaces(loaded.config)
    findings += check_files(loaded.config)
    findings += check_commands(loaded.config)
    findings += check_models(loaded)
    findings += check_sessions(loaded, file, env)
    return Diagnosis(tuple(findings), True)


def check_platform() -> Iterator[Finding]:
    system = platform.system()
    what = f"Python {platform.python_version()} on {system} {platform.release()}"
    yield Finding("platform", "ok", what)
    if system != "Linux":
        yield Finding(
            "platform", "warn", f"clawkit is made for Linux; on {system} less is isolated"
        )
    elif not _kernel_resolves_paths():
        yield Finding(
            "platform",
            "warn",
            "the kernel does not offer openat2, so the file tools refuse every symbolic link",
            "use Linux 5.6 or newer; in a container, allow openat2 in its seccomp profile",
        )


def _kernel_resolves_paths() -> bool:
    """Whether a link below a root can be followed; /proc/self is one that is always there."""
    try:
        root = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.close(open_inside(root, "/proc", "self", os.O_PATH | os.O_DIRECTORY))
    except (OSError, ClawkitError):
        return False
    finally:
        os.close(root)
    return True


def check_home(env: Mapping[str, str]) -> Iterator[Finding]:
    path = home(env)
    quoted = shlex.quote(path)
    obstacle = obstacle_at(path)
    try:
        info = os.stat(path)
    except FileNotFoundError:
        if obstacle:
            what = f"{path} is not there and cannot be made: {obstacle.why}"
            yield Finding("home", "error", what, obstacle.remedy("CLAWKIT_HOME"))
        else:
            yield Finding("home", "ok", f"{path} is not there yet; it is made when it is needed")
        return
    except OSError as error:
        yield Finding("home", "error", f"{path} cannot be used: {error.strerror}")
        return
    if not stat.S_ISDIR(info.st_mode):
        yield Finding("home", "error", f"{path} is not a directory", f"mv {quoted} {quoted}.old")
    elif os.geteuid() not in (0, info.st_uid):
        yield Finding("home", "error", f"{path} belongs to another user", "set CLAWKIT_HOME")
    elif obstacle:
        what = f"{path} cannot be written: {obstacle.why}"
        yield Finding("home", "error", what, obstacle.remedy("CLAWKIT_HOME"))
    elif info.st_mode & 0o022:
        what = f"{path} can be changed by other users"
        yield Finding("home", "error", what, f"chmod 700 {quoted}")
    elif info.st_mode & 0o055:
        what = f"{path} can be looked into by other users"
        yield Finding("home", "warn", what, f"chmod 700 {quoted}")
    else:
        yield Finding("home", "ok", f"{path} is yours alone")


def open_files(file: str, env: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Our own files that may hold secrets and that other users can get at, and their modes."""
    for name in (file, os.path.join(home(env), ".env"), *agent_files(file, env)):
        try:
            info = os.lstat(name)
        except OSError:
            continue
        ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        if ours and info.st_mode & 0o077:
            yield name, stat.S_IMODE(info.st_mode)


def check_open_files(file: str, env: Mapping[str, str]) -> Iterator[Finding]:
    for name, mode in open_files(file, env):
        level: Level = "error" if mode & 0o022 else "warn"
        what = f"{name} can be {'changed' if mode & 0o022 else 'read'} by other users"
        yield Finding("home", level, what, f"chmod 600 {shlex.quote(name)}")


def _config_errors(error: ConfigError) -> Iterator[Finding]:
    for issue in error.issues:
        place = f"edit {issue.file}" + (f", line {issue.line}" if issue.line else "")
        yield Finding("config", "error", str(issue), place if issue.file else "")


def check_config(loaded: Loaded, file: str) -> Iterator[Finding]:
    if loaded.file is None:
        yield Finding(
            "config",
            "ok",
            f"{file} is not there, so the defaults apply",
            "clawkit config set tools.profile coding",
        )
    else:
        more = len(loaded.files) - 1
        included = f", with {more} included" if more else ""
        yield Finding("config", "ok", f"{loaded.file} is valid{included}")
    for issue in loaded.warnings:
        yield Finding("config", "warn", str(issue))


def check_old_spellings(file: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Old spellings in the file, which can be brought up to date, and in those it includes."""
    try:
        text = read_text(file)
        ours = migrations(content(text))
        tree = Tree(Source(file, text), include_roots(env))
    except (ReadError, Json5Error):
        return
    known = {each.path for each in ours}
    found = [_old(each, "clawkit doctor --fix") for each in ours]
    for each in migrations(tree.value):
        place, line = tree.locate(each.path)
        if each.path not in known and place != file:
            found.append(_old(each, f"edit {place}, line {line}"))
    yield from found[:MAX_LISTED]
    if len(found) > MAX_LISTED:
        more = len(found) - MAX_LISTED
        what = (
            "there is 1 more old spelling" if more == 1 else f"there are {more} more old spellings"
        )
        yield Finding("config", "warn", what)


def _old(found: Migration, do: str) -> Finding:
    what = f"{format_path(found.path)} is an old spelling: {found.why}"
    return Finding("config", "warn", what, do)


def check_policy(config: Config) -> Iterator[Finding]:
    """Remarks of the policy on every agent, in every situation the configuration knows."""
    agents = list(config.agents.by_id()) or ["main"]
    remarks: dict[str, None] = {}
    situations = (scope for agent in agents[:MAX_AGENTS] for scope in _situations(config, agent))
    for scope in islice(situations, MAX_SITUATIONS):
        try:
            remarks |= dict.fromkeys(assemble(config, scope).warnings)
        except ConfigError as error:
            remarks |= dict.fromkeys(map(str, error.issues))
    for remark in remarks:
        yield Finding("policy", "warn", remark)
    if len(agents) > MAX_AGENTS:
        what = f"only the first {MAX_AGENTS} of {len(agents)} agents were looked at"
        yield Finding("policy", "warn", what)
    if not remarks:
        names = ", ".join(agents[:6]) + (", …" if len(agents) > 6 else "")
        yield Finding("policy", "ok", f"every entry means something, for {names}")


def _situations(config: Config, agent: str) -> Iterator[Scope]:
    """Scopes that between them bring every list of tools into play."""
    owner = Sender(owner=True)
    yield Scope(agent=agent, sender=owner)
    yield Scope(agent=agent, sender=owner, sandboxed=True)
    yield Scope(agent=agent, sender=owner, depth=1)
    tools = config.agents.get(agent).tools
    for key in {**config.tools.by_provider, **tools.by_provider}:
        provider, _, model = key.strip().partition("/")
        ref = ModelRef(normalize_provider(provider), model or "any")
        yield Scope(agent=agent, sender=owner, model=ref)
    for key in {**config.tools.tools_by_sender, **tools.tools_by_sender}:
        yield _from_sender(Scope(agent=agent), key)
    for channel, settings in config.channels.items():
        accounts = [("", settings), *settings.accounts.items()]
        for account, its in accounts:
            for group, policy in its.groups.items():
                scope = Scope(agent=agent, channel=channel, account=account, group=group)
                yield scope
                yield from (_from_sender(scope, key) for key in policy.tools_by_sender)


def _from_sender(scope: Scope, key: str) -> Scope:
    """A scope with the sender that a key of `toolsBySender` names."""
    kind, _, name = key.strip().lower().partition(":")
    if kind == "channel":
        channel, _, sender = name.partition(":")
        return replace(scope, channel=channel, sender=Sender(id=sender))
    if kind in ("id", "e164", "username", "name"):
        named: dict[str, Any] = {kind: name}
        return replace(scope, sender=Sender(**named))
    return replace(scope, sender=Sender(id=key.strip()))


def check_secrets(loaded: Loaded, *, allow_exec: bool) -> Iterator[Finding]:
    for path, value in _secret_references(loaded.raw, ROOT, ()):
        where = format_path(path)
        ref: SecretRef | str = value
        if isinstance(value, dict):
            ref = msgspec.convert(substitute(value, loaded.env), SecretRef)
        if isinstance(ref, SecretRef) and ref.source == "exec" and not allow_exec:
            what = f"{where}: not looked up, because that runs a command"
            yield Finding("secrets", "ok", what, "clawkit doctor --allow-exec")
            continue
        try:
            resolve(ref, loaded.config, loaded.env)
        except SecretError as error:
            yield Finding("secrets", "error", f"{where}: {error}", _how_to_set(ref))
        else:
            yield Finding("secrets", "ok", f"{where}: found")


def _how_to_set(ref: SecretRef | str) -> str:
    if isinstance(ref, str):
        names = _VARIABLE.findall(ref)
    else:
        names = [ref.id] if ref.source == "env" else []
    return f"export {names[0]}=..., or put it into .env in the home directory" if names else ""


def _secret_references(value: Any, shape: Shape, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every place that refers to a secret instead of holding one."""
    if is_secret(shape):
        if isinstance(value, dict) or (isinstance(value, str) and value.startswith("$")):
            yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _secret_references(item, below(shape, key)[1], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secret_references(item, below(shape, index)[1], (*path, index))


def check_workspaces(config: Config) -> Iterator[Finding]:
    """The directories agents are told to work in."""
    places = {"agents.defaults": config.agents.defaults.workspace}
    places |= {f"agent {name!r}": agent.workspace for name, agent in config.agents.by_id().items()}
    for who, place in islice(places.items(), MAX_AGENTS):
        if place is None:
            continue
        path = os.path.abspath(os.path.expanduser(place))
        if os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK):
            yield Finding("workspace", "ok", f"{who} works in {path}")
        elif os.path.isdir(path):
            yield Finding("workspace", "error", f"{who}: {path} may not be read")
        else:
            what = f"{who}: {path} is not a directory"
            yield Finding("workspace", "error", what, f"mkdir -p {shlex.quote(path)}")

"""The checks of `clawkit doctor` for the machine, the configuration, files and commands."""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import util
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from clawkit.agent.assemble import assemble
from clawkit.approvals.effective_policy import combine
from clawkit.approvals.file import BadDocumentError, read_document
from clawkit.approvals.safe_bins import safe_bin_warnings
from clawkit.approvals.types import ApprovalRules, Policy
from clawkit.cli.onboarding.write import find_openclaw
from clawkit.cli.shared_options import counted, workspace_warning
from clawkit.config.file_edit import content
from clawkit.config.json5 import Json5Error, format_path
from clawkit.config.load import Loaded, load
from clawkit.config.lookup import ROOT, Path, below, is_secret
from clawkit.config.migrate import migrations
from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.no_effect import find as no_effect
from clawkit.config.paths import (
    CONFIG_NAME,
    OWN_SECRETS,
    approvals_file,
    commands_dir,
    cron_file,
    home,
    include_roots,
    sessions_file,
)
from clawkit.config.secrets import resolve
from clawkit.config.section import SecretRef, Shape
from clawkit.config.sections.tools import Fs
from clawkit.config.sources import ConfigFile, ConfigTree, ReadError, read_text, substitute
from clawkit.core.context import Scope, Sender
from clawkit.core.paths import is_below
from clawkit.errors import ClawkitError, ConfigError, Issue, SecretError, ToolError
from clawkit.fs.containment import open_inside
from clawkit.fs.search.engines import find_ripgrep
from clawkit.installation import how_to_add
from clawkit.lsp.servers import Programs, ServerCatalog
from clawkit.models.providers import AUTH_PROFILES as PROFILES_JSON
from clawkit.models.providers import MODELS_JSON, agent_dir
from clawkit.process import landlock, records
from clawkit.runtime import external_tools
from clawkit.sessions.protocols import locate_store

MAX_AGENTS = 100
MAX_SITUATIONS = 100
"""A configuration with more than these is too large to check case by case."""
MAX_LISTED = 20
"""Maximum old spellings listed individually."""

_SYSTEM = ("", *["bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"])
_OWN_NAMES = {".clawkit", CONFIG_NAME, *OWN_SECRETS, "sessions.sqlite"}
_VARIABLE = re.compile(r"\$\{?([A-Z_][A-Z0-9_]*)")


Level = Literal["ok", "warn", "error"]


class Finding(NamedTuple):
    level: Level
    what: str
    do: str = ""
    """The remedy: what to type or change; empty if there is nothing to do."""


Findings = Iterator[Finding]
ok, warn, fault = (partial(Finding, each) for each in get_args(Level))


def check_platform() -> Findings:
    system = platform.system()
    yield ok(f"Python {platform.python_version()} on {system} {platform.release()}")
    if system != "Linux":
        yield warn(f"clawkit is designed for Linux; {system} offers less isolation")
    elif not _kernel_resolves_paths():
        yield warn(
            "the kernel has no openat2, so the file tools refuse every symbolic link",
            "use Linux 5.6 or newer; in a container, allow openat2 in its seccomp profile",
        )


def _kernel_resolves_paths() -> bool:
    """Whether a symbolic link below a root can be followed; /proc/self always exists."""
    with suppress(OSError, ClawkitError):
        root = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.close(open_inside(root, "/proc", "self", os.O_PATH | os.O_DIRECTORY))
            return True
        finally:
            os.close(root)
    return False


def check_home(env: Mapping[str, str]) -> Findings:
    path = home(env)
    quoted, obstacle = shlex.quote(path), obstacle_at(path, "CLAWKIT_HOME")
    try:
        info = os.stat(path)
    except FileNotFoundError:
        what = f"{path} does not exist"
        if obstacle:
            yield fault(f"{what} and cannot be created: {obstacle[0]}", obstacle[1])
        else:
            yield ok(f"{what} yet; it is created when needed")
        return
    except OSError as error:
        yield fault(f"{path} cannot be used: {error.strerror}")
        return
    if not stat.S_ISDIR(info.st_mode):
        yield fault(f"{path} is not a directory", "set CLAWKIT_HOME to a directory")
    elif os.geteuid() not in (0, info.st_uid):
        yield fault(f"{path} belongs to another user", "set CLAWKIT_HOME")
    elif obstacle:
        yield fault(f"{path} cannot be written: {obstacle[0]}", obstacle[1])
    elif info.st_mode & 0o077:
        what = "set CLAWKIT_HOME to a directory for clawkit alone"
        yield _open_to_others(path, info.st_mode, f"chmod 700 {quoted}" if is_own(path) else what)
    else:
        yield ok(f"{path} is private")


def is_own(path: str) -> bool:
    """Whether a directory is for clawkit alone, so that its mode may be changed: it is empty, or
    has clawkit's name or files, and is not one of the system or above the user's home."""
    real, user = os.path.realpath(path), os.path.realpath(os.path.expanduser("~"))
    if is_below(os.path.dirname(user), real) or real.split("/")[1] in _SYSTEM:
        return False
    try:
        names = os.listdir(real)
    except OSError:
        return False
    return not names or not _OWN_NAMES.isdisjoint((os.path.basename(real), *names))


def _open_to_others(path: str, mode: int, do: str) -> Finding:
    report, verb = (fault, "changed") if mode & 0o022 else (warn, "read")
    return report(f"{path} can be {verb} by other users", do)


def private_files(file: str, env: Mapping[str, str], *, with_store: bool = False) -> Iterator[str]:
    """clawkit's own files that may contain secrets, according to the configuration."""
    yield from (file, os.path.join(home(env), ".env"))
    folders: dict[str, None] = {}
    store = sessions_file(env)
    # An invalid configuration, or directory of an agent, is reported elsewhere.
    with suppress(ConfigError):
        loaded = load(file if os.path.lexists(file) else None, env=env)
        agents = loaded.config.agents
        for name in islice((*agents.by_id(), agents.default_id()), MAX_AGENTS):
            with suppress(ConfigError):
                folders[agent_dir(loaded.config, loaded.env, name)] = None
        store = ""
        store = locate_store(loaded.config.session.store, env)
    place = os.path.join(home(env), "agents")
    with suppress(OSError):
        names = sorted(os.listdir(place))[:MAX_AGENTS]
        folders |= {os.path.join(place, name, "agent"): None for name in names}
    for folder in folders:
        yield from (os.path.join(folder, name) for name in (MODELS_JSON, PROFILES_JSON))
    if with_store:
        yield from filter(None, (store, cron_file(env)))


def open_mode(path: str) -> int:
    """The mode of a file we own, if other users can access it; otherwise 0."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    is_plain = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
    ours = is_plain and info.st_uid == os.geteuid()
    return stat.S_IMODE(info.st_mode) if ours and info.st_mode & 0o077 else 0


def check_open_files(file: str, env: Mapping[str, str]) -> Findings:
    for name in private_files(file, env):
        if os.path.isfile(name) and (mode := open_mode(name)):
            yield _open_to_others(name, mode, f"chmod 600 {shlex.quote(name)}")


def config_errors(error: ConfigError) -> Findings:
    for issue in error.issues:
        place = f"edit {issue.file}" + (f", line {issue.line}" if issue.line else "")
        if issue.file and not os.path.lexists(issue.file):
            place = "name an existing file with --config or CLAWKIT_CONFIG"
        elif issue.file and not os.access(issue.file, os.R_OK):
            place = f"make it readable: ls -l {shlex.quote(issue.file)}"
        yield fault(str(issue), place if issue.file else "")


def check_config(loaded: Loaded, file: str) -> Findings:
    if loaded.file is None:
        what = f"{file} does not exist, so the defaults apply"
        yield ok(what, "clawkit config set tools.profile coding")
        if other := find_openclaw(loaded.env):
            what = f"{other} exists, but is not used"
            do = f"clawkit onboard copies it, or: export CLAWKIT_CONFIG={shlex.quote(other)}"
            yield warn(what, do)
    else:
        more = len(loaded.files) - 1
        included = f", with {more} included" if more else ""
        yield ok(f"{loaded.file} is valid{included}")
    for issue in loaded.warnings:
        yield warn(str(issue))
    for section, message in no_effect(loaded.config):
        yield warn(f"{section}: {message}")


def check_old_spellings(file: str, env: Mapping[str, str]) -> Findings:
    """Old spellings in the file, which `--fix` can update, and in the files it includes."""
    try:
        text = read_text(file)
        ours = migrations(content(text))
        tree = ConfigTree(ConfigFile(file, text), include_roots(env))
    except (ReadError, Json5Error):
        return
    known = {each.path for each in ours}
    found = [(each, "clawkit doctor --fix") for each in ours]
    for each in migrations(tree.value):
        place, line = tree.locate(each.path)
        if each.path not in known and place != file:
            found.append((each, f"edit {place}, line {line}"))
    for each, do in found[:MAX_LISTED]:
        yield warn(f"{format_path(each.path)} is an old spelling: {each.why}", do)
    if len(found) > MAX_LISTED:
        yield warn(counted(len(found) - MAX_LISTED, "more old spelling"))


def check_policy(config: Config) -> Findings:
    """Warnings of the policy for every agent, in every situation that the configuration names."""
    agents = list(config.agents.by_id()) or ["main"]
    remarks: dict[str, None] = {}
    situations = (scope for agent in agents[:MAX_AGENTS] for scope in _situations(config, agent))
    for scope in islice(situations, MAX_SITUATIONS):
        try:
            remarks |= dict.fromkeys(
                assemble(config, scope, external_tools(config, scope)).warnings
            )
        except ConfigError as error:
            remarks |= dict.fromkeys(map(str, error.issues))
    for remark in remarks:
        yield warn(remark)
    if len(agents) > MAX_AGENTS:
        yield warn(f"only the first {MAX_AGENTS} of {len(agents)} agents were checked")
    if not remarks:
        names = ", ".join(agents[:6]) + (", …" if len(agents) > 6 else "")
        yield ok(f"every entry matches a tool, for {names}")


def policy_issues(config: Config) -> list[Issue]:
    """The same warnings, for commands that change or check the configuration."""
    found = []
    for remark in (each.what for each in check_policy(config) if each.level == "warn"):
        where, _, what = remark.partition(": ")
        found.append(Issue(where, what) if what and " " not in where else Issue("", remark))
    return found


def _situations(config: Config, agent: str) -> Iterator[Scope]:
    """Scopes that together apply every list of tools."""
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
    kind, _, name = key.strip().lower().partition(":")
    if kind == "channel":
        channel, _, sender = name.partition(":")
        return replace(scope, channel=channel, sender=Sender(id=sender))
    named: dict[str, Any] = {"id": key.strip()}
    if kind in ("id", "e164", "username", "name"):
        named = {kind: name}
    return replace(scope, sender=Sender(**named))


def check_secrets(loaded: Loaded, *, allow_exec: bool) -> Findings:
    for path, ref in _secret_references(loaded.raw, ROOT, ()):
        where = format_path(path)
        if isinstance(ref, dict):
            ref = msgspec.convert(substitute(ref, loaded.env), SecretRef)
        if isinstance(ref, SecretRef) and ref.source == "exec" and not allow_exec:
            what = f"{where}: not checked, because that runs a command"
            yield warn(what, "clawkit doctor --allow-exec")
            continue
        try:
            resolve(ref, loaded.config, loaded.env)
        except SecretError as error:
            names = _VARIABLE.findall(ref) if isinstance(ref, str) else []
            if isinstance(ref, SecretRef) and ref.source == "env":
                names = [ref.id]
            do = f"export {names[0]}=..., or set it in {home(loaded.env)}/.env" if names else ""
            yield fault(f"{where}: {error}", do)
        else:
            yield ok(f"{where}: found")


def _secret_references(value: Any, shape: Shape, path: Path) -> Iterator[tuple[Path, Any]]:
    if is_secret(shape):
        if isinstance(value, dict) or (isinstance(value, str) and value.startswith("$")):
            yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _secret_references(item, below(shape, key)[1], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secret_references(item, below(shape, index)[1], (*path, index))


def check_workspaces(config: Config, workspace: str | None = None) -> Findings:
    """Check the configured workspaces, or only the requested one."""
    is_here = workspace is None and config.agents.defaults.workspace is None
    if is_here and (problem := workspace_warning(os.getcwd())):
        what, _, do = problem.partition(". ")
        yield warn(what, do)
    places = {"agents.defaults": config.agents.defaults.workspace}
    places |= {f"agent {name!r}": agent.workspace for name, agent in config.agents.by_id().items()}
    places = places if workspace is None else {"every agent": workspace}
    for who, place in islice(places.items(), MAX_AGENTS):
        if place is None:
            continue
        path = os.path.abspath(os.path.expanduser(place))
        if problem := workspace_warning(path):
            what = f"{who}: {problem.partition('. ')[0]}"
            yield warn(what, "set its workspace to a project directory")
        elif os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK):
            yield ok(f"{who} works in {path}")
        elif os.path.isdir(path):
            yield fault(f"{who}: {path} cannot be read")
        else:
            yield fault(f"{who}: {path} is not a directory", f"mkdir -p {shlex.quote(path)}")


def check_commands(config: Config) -> Findings:
    yield from _check_security(config)
    for folder in config.tools.exec.path_prepend:
        path = os.path.expanduser(folder)
        if not os.path.isabs(path):
            what = f"tools.exec.pathPrepend: {folder!r} is not absolute, so it has no effect"
            yield warn(what, "use an absolute path")
        elif not os.path.isdir(path):
            what = f"tools.exec.pathPrepend: {folder!r} is not a directory"
            yield warn(what, "fix it, or remove it")
    if not os.access("/bin/bash", os.X_OK) and not os.access("/usr/bin/bash", os.X_OK):
        yield warn("bash is not installed, so commands run with sh", "apt-get install bash")
    if not sys.executable:
        what = "Python does not know the path of its own executable, which commands need"
        yield fault(what, "run clawkit with a regular Python installation")
    folder = commands_dir(os.environ)
    if problem := records.distrust(folder):
        yield warn(f"{folder} {problem}", "fix that; until then `clawkit ps` shows nothing")
    yield from check_extra("screen", util.find_spec("pyte"), "full-screen programs cannot be shown")


def check_extra(extra: str, installed: object, lack: str) -> Findings:
    if not installed:
        what = f"{lack}: the extra {extra} is not installed"
        yield warn(what, how_to_add(extra))


def _without_landlock(lack: str) -> Finding:
    what = f"the kernel has no Landlock: {lack}"
    return warn(what, "use Linux 5.13 or newer with Landlock enabled")


def _check_security(config: Config) -> Findings:
    agent, path = config.agents.default_id(), approvals_file(os.environ)
    settings = config.tools.exec.merged(config.agents.get(agent).tools.exec)
    try:
        document = read_document(path)
    except BadDocumentError as error:
        yield fault(f"every command is refused: {error}", "fix the file, or move it away")
        return
    policy = combine(settings, document.policy_for(agent), where=path)
    what = f"{_describe(policy)} ({', '.join(policy.sources)})"
    yield ok(what, policy.to_loosen or "clawkit approvals check 'git log'")
    if policy.security == "allowlist" and not landlock.available():
        yield _without_landlock("allowlisted programs can start any other program")
    rules = ApprovalRules(
        safe_bins=tuple(settings.safe_bins),
        profiles=settings.safe_bin_profiles,
        trusted_dirs=tuple(settings.safe_bin_trusted_dirs),
    )
    for warning in safe_bin_warnings(rules):
        yield warn(warning, "see tools.exec.safeBins")


def _describe(policy: Policy) -> str:
    if policy.security == "deny":
        return "no command may run"
    if policy.ask == "always":
        return "every command needs approval"
    if policy.security == "full":
        return "every command runs without asking, with your permissions"
    others = "is refused" if policy.ask == "off" else "needs approval"
    return f"on the host, allowlisted programs run without asking, everything else {others}"


def check_files(config: Config) -> Findings:
    settings = config.tools.fs
    for name, roots in (("readRoots", settings.read_roots), ("writeRoots", settings.write_roots)):
        for root in roots:
            path = os.path.expanduser(root)
            # Relative ones start at the workspace, and there may be many of those.
            if (os.path.isabs(path) or root.startswith("~")) and not os.path.isdir(path):
                what = f"tools.fs.{name}: {root!r} is not a directory"
                yield warn(what, "fix it, or remove it")
    try:
        if found := find_ripgrep(settings.ripgrep, ()):
            yield ok(f"ripgrep is {found.program}")
        else:
            what = "ripgrep is not installed, so grep and find use a slower search"
            yield warn(what, how_to_add("search"))
    except ToolError as error:
        yield fault(str(error))
    if landlock.available():
        yield ok(f"the kernel confines helper programs (Landlock {landlock.abi()})")
    else:
        yield _without_landlock("searches are slower, and fewer language servers are used")
    yield from _check_servers(settings)
    yield from check_extra("pdf", util.find_spec("pypdfium2"), "PDF files cannot be read")


def _check_servers(settings: Fs) -> Findings:
    if not settings.lsp.enabled:
        return
    programs = Programs((), dict(os.environ))
    known = ServerCatalog(settings.lsp, programs, "", can_hold=landlock.available())
    available = known.available()
    if available:
        yield ok(f"language servers: {', '.join(available)}")
    else:
        what = "no language server was found, so problems after an edit are not reported"
        yield warn(what, how_to_add("lsp"))
    for name, server in settings.lsp.servers.items():
        if server.command and name not in available:
            what = f"tools.fs.lsp.servers.{name}: {server.command[0]!r} cannot be used"
            do = "use the absolute path of a program outside the workspace, or install it"
            yield warn(what, do)


NEEDED = 64 * 1024
"""Free bytes that even the smallest store needs."""


def obstacle_at(folder: str, setting: str) -> tuple[str, str] | None:
    """Why files cannot be written to a directory (which need not exist yet), and how to fix it.

    `setting` is the setting that moves the files elsewhere. Nothing is written.
    """
    place = os.path.abspath(folder)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    move = f"set {setting} to a writable location"
    try:
        disk = os.statvfs(place)
        may_write = os.access(place, os.W_OK | os.X_OK, effective_ids=True)
    except OSError as error:
        return error.strerror or str(error), move
    if f"{os.path.realpath(place)}/".startswith(("/proc/", "/sys/")):
        return "the kernel keeps no files there", move
    if disk.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS), move
    if not may_write:
        return os.strerror(errno.EACCES), move
    # Some file systems do not count blocks or files, and report a total of 0.
    no_room = disk.f_blocks and disk.f_bavail * disk.f_frsize < NEEDED
    if no_room or (disk.f_files and not disk.f_favail):
        return "the disk is full", f"free some space there: df -h {shlex.quote(place)}"
    return None

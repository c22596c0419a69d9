"""What `clawkit doctor` checks about the sandbox."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping

from clawkit.agent.assemble import assemble
from clawkit.cli.doctor_checks import MAX_AGENTS, Finding, Level
from clawkit.cli.sandbox_explain import ENGINES, advise, look_at_engine
from clawkit.config.load import Loaded
from clawkit.config.sections.sandbox import Sandbox
from clawkit.core.context import Scope, Sender
from clawkit.errors import ConfigError, ToolError
from clawkit.runtime import resolve_workspace
from clawkit.sandbox.confinement import Choice, choose, why_no_bwrap, why_unusable
from clawkit.sandbox.hidden_paths import DeniedFiles

_SECTION = "sandbox"
_LOCAL = ("bwrap", "landlock")
_LOCAL_KEYS = {
    "network": "network",
    "allow_hosts": "allowHosts",
    "allow_private": "allowPrivate",
    "hide_paths": "hidePaths",
    "show_paths": "showPaths",
    "write_paths": "writePaths",
    "limits": "limits",
}
"""Settings of the local backends alone."""


def check_sandbox(loaded: Loaded) -> Iterator[Finding]:
    """The sandbox of every agent; what is the same for several is said once."""
    seen: dict[Finding, None] = {}
    agents = loaded.config.agents
    for agent in [agents.default_id(), *agents.by_id()][:MAX_AGENTS]:
        seen |= dict.fromkeys(_check_sandbox_of(loaded, agent))
    yield from seen


def _check_sandbox_of(loaded: Loaded, agent: str) -> Iterator[Finding]:
    settings = loaded.config.agents.sandbox_of(agent)
    agents = loaded.config.agents
    own = agents.get(agent).sandbox
    key = f"{agents.key_of(agent)}.sandbox" if own is not None else "agents.defaults.sandbox"
    if settings.mode == "off":
        what = f"{key}.mode is 'off': commands run on the host, and need approval"
        yield Finding(_SECTION, "warn", what, f"clawkit config set {key}.mode auto")
        yield from _check_effect(settings, key, None)
        return
    config = loaded.config
    security, _ = config.tools.exec.merged(config.agents.get(agent).tools.exec).policy()
    if security == "full" and settings.mode == "auto":
        what = "commands run on the host, unconfined: the security of commands is 'full'"
        yield Finding(_SECTION, "warn", what, "clawkit config set tools.exec.security allowlist")
        return
    try:
        workspace = resolve_workspace(loaded.config, agent)
        rules = assemble(loaded.config, Scope(agent=agent, sender=Sender(owner=True)))
    except ConfigError:
        return  # the sections about workspaces and policy say so
    # Without a state directory nothing is remembered: doctor writes nothing.
    choice = choose(settings, workspace=workspace, state="")
    yield from _check_backend(settings, choice, key)
    backend = choice.backend
    can_hide = backend in ("bwrap", None) or settings.access() == "none"
    if rules.denies_files and not can_hide:
        what = (
            "tools.rules denies files to the file tools, but commands can read them: the backend "
            f"{backend} cannot hide single files"
        )
        do = "use the backend bwrap (apt-get install bubblewrap)"
        yield Finding(_SECTION, "warn", what, do)
    if rules.denies_files and backend == "bwrap" and settings.access() != "none":
        # Whether all files are found that commands must not see.
        files = DeniedFiles(lambda path: rules.effect_on("read", path, workspace) == "deny")
        try:
            files.find(workspace)
        except ToolError as error:
            yield Finding(_SECTION, "error", f"no command can run in the sandbox: {error}")
    yield from _check_effect(settings, key, backend)


def _check_backend(settings: Sandbox, choice: Choice, key: str) -> Iterator[Finding]:
    if choice.backend is None:
        problem = why_unusable(settings, choice)
        level: Level = "error" if problem else "warn"
        what = problem or f"no sandbox is available, so commands need approval: {choice.reason}"
        found = list(advise(why_no_bwrap(""))) if settings.backend == "auto" else []
        do = found[0].do if found else f"clawkit config set {key}.backend auto"
        yield Finding(_SECTION, level, what, do)
        return
    what = f"commands run in the sandbox {choice.backend}"
    if choice.backend == "landlock" and settings.backend == "auto":
        yield Finding(_SECTION, "ok", what)
        for each in advise(why_no_bwrap("")):
            yield Finding(_SECTION, "warn", f"a stronger sandbox is not used: {each[0]}", each.do)
        return
    yield Finding(_SECTION, "ok", f"{what}: {choice.reason}", "clawkit sandbox explain")
    if choice.backend in ENGINES:
        image = settings.docker.image
        if lack := look_at_engine(choice.backend, image):
            yield Finding(_SECTION, "error", f"{lack.missing}, so no command can run", lack.do)
        else:
            yield Finding(_SECTION, "ok", f"{choice.backend} answers and has the image {image!r}")
    elif choice.backend == "ssh":
        yield from _check_ssh(settings, key)


def _check_ssh(settings: Sandbox, key: str) -> Iterator[Finding]:
    if not settings.ssh.target:
        what = f"{key}.ssh.target is not set, so no command can run"
        yield Finding(_SECTION, "error", what, f"clawkit config set {key}.ssh.target user@host")
    elif shutil.which(settings.ssh.command) is None:
        what = f"{settings.ssh.command} is not installed, so no command can run"
        yield Finding(_SECTION, "error", what, "apt-get install openssh-client")


def _check_effect(settings: Sandbox, key: str, backend: str | None) -> Iterator[Finding]:
    """Settings that do nothing with the backend that is used."""
    default = Sandbox()
    is_set = {
        name: getattr(settings, name) != getattr(default, name)
        for name in (*_LOCAL_KEYS, "docker", "ssh", "scope", "allow_hosts")
    }
    useless: dict[str, str] = {}
    if backend is not None and backend not in _LOCAL:
        useless |= {
            _LOCAL_KEYS[name]: f"the backend {backend} does not use it"
            for name in _LOCAL_KEYS
            if is_set[name]
        }
    if is_set["docker"] and backend not in (*ENGINES, None):
        useless["docker"] = f"the backend is {backend}"
    if is_set["ssh"] and backend not in ("ssh", None):
        useless["ssh"] = f"the backend is {backend}"
    if settings.mode == "auto" and is_set["scope"]:
        useless["scope"] = "in mode 'auto' the commands of an agent share one sandbox"
    if settings.network != "allowlist":
        why = f"network is {settings.network!r}, not 'allowlist'"
        lists: Mapping[str, list[str]] = {
            "allowHosts": settings.allow_hosts,
            "allowPrivate": settings.allow_private,
        }
        useless |= {name: why for name, given in lists.items() if given}
    for name, why in useless.items():
        what = f"{key}.{name} has no effect: {why}"
        yield Finding(_SECTION, "warn", what, f"clawkit config unset {key}.{name}")
    if settings.browser.enabled:
        what = f"{key}.browser.enabled has no effect: this build has no browser in the sandbox"
        yield Finding(_SECTION, "error", what, f"clawkit config unset {key}.browser")

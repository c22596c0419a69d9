"""`clawkit sandbox explain`: which sandbox commands run in, why, and what it allows."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from msgspec.structs import replace

from clawkit.agent.assemble import Assembly, assemble
from clawkit.approvals.effective_policy import check_elevated
from clawkit.approvals.protocols import Confines
from clawkit.cli.approvals_check import say_place
from clawkit.cli.shared_options import ResolvedOptions, counted
from clawkit.command_check import Checker, to_json
from clawkit.config.paths import home, login_home
from clawkit.config.sections.sandbox import SandboxSettings
from clawkit.core.context import Scope
from clawkit.errors import ToolAuthorizationError, ToolError
from clawkit.net.host_rules import PACKAGES
from clawkit.process import landlock, seccomp
from clawkit.process.environ import find_program
from clawkit.runtime import resolve_workspace
from clawkit.sandbox.confinement import why_no_bwrap
from clawkit.sandbox.local import find_bwrap
from clawkit.sandbox.paths import SECRETS
from clawkit.services import Services
from clawkit.text import human_size, one_line, printable

_STEP = "tools.sandbox.tools"
_LISTED = 12
_REPORTED_BY_OTHER_KEYS = ("workdir", "mounts")
_MODES = {
    "auto": "commands run in the sandbox; the file tools work on the host, in the workspace",
    "all": "every session runs in the sandbox",
    "non-main": "every session except main runs in the sandbox",
    "off": "commands run on the host",
}


def explain(settings: ResolvedOptions, command: str) -> dict[str, Any]:
    """The report, as JSON data; its `problem` is empty unless commands cannot run."""
    config, scope = settings.loaded.config, settings.scope
    workspace = resolve_workspace(config, scope.agent, settings.workspace)
    assembly = assemble(config, scope)
    services = Services(settings.loaded, scope, workspace, rules=assembly)
    try:
        confines: Any = services[Confines]
        about, problem = _describe(confines, scope, workspace)
        elevated = _describe_elevated(settings)
        own = config.agents.get(scope.agent).tools.exec
        is_full = config.tools.exec.merged(own).policy()[0] == "full"
        advice = _advise(confines.settings, about, elevated)
        found: dict[str, Any] = {
            "docsUrl": "docs/sandbox.md",
            "agentId": scope.agent,
            "sessionKey": scope.session,
            "mainSessionKey": "main",
            "sandbox": about | {"tools": _describe_tools(settings, assembly)},
            "elevated": elevated,
            "problem": problem,
            "unconfined": is_full and not scope.sandboxed,
            "fixIt": [*about.get("hints", ()), *advice],
            "warnings": list(assembly.warnings),
        }
    finally:
        asyncio.run(services.close())
    return found | (_judge(settings, command) if command else {})


def _describe(confines: Any, scope: Scope, workspace: str) -> tuple[dict[str, Any], str]:
    """The sandbox, and why no command can run in it (empty if one can)."""
    settings: SandboxSettings = confines.settings
    choice, problem = confines.choice, confines.problem
    about: dict[str, Any] = {
        "mode": settings.mode,
        "backend": choice.backend,
        "configuredBackend": settings.backend,
        "available": choice.backend is not None,
        "reason": choice.reason,
        "scope": "agent" if settings.mode == "auto" else settings.scope,
        "workspaceAccess": settings.access(),
        "workspaceRoot": settings.workspace_root or os.path.join(home(os.environ), "sandboxes"),
        "effectiveHostWorkspaceRoot": workspace,
        "sessionIsSandboxed": scope.sandboxed,
        "network": settings.network,
        "allowHosts": list(settings.allow_hosts),
        "allowPrivate": list(settings.allow_private),
        "hidePaths": list(settings.hide_paths),
        "showPaths": list(settings.show_paths),
        "writePaths": list(settings.write_paths),
        "gaps": [],
    }
    if choice.backend is not None:
        try:
            sandbox = confines.sandbox
            described = dict(sandbox.describe())
            about |= {
                "scopeKey": described.pop("scope", None),
                **{key: described[key] for key in described if key not in _REPORTED_BY_OTHER_KEYS},
                "runtimeWorkdir": sandbox.workdir,
                "workspaceMounts": [mount._asdict() for mount in sandbox.mounts],
            }
        except ToolError as error:
            about["available"], problem = False, str(error)
    if choice.backend in ENGINES and (
        lack := look_at_engine(choice.backend, settings.docker.image)
    ):
        about["available"], problem = False, "; ".join(lack)
    return about, problem


def _describe_elevated(settings: ResolvedOptions) -> dict[str, Any]:
    config, scope = settings.loaded.config, settings.scope
    general, ours = config.tools.elevated, config.agents.get(scope.agent).tools.elevated
    key = config.agents.key_of(scope.agent)
    failures = []
    if not general.enabled:
        failures.append({"gate": "enabled", "key": "tools.elevated.enabled"})
    if ours is not None and not ours.enabled:
        failures.append({"gate": "enabled", "key": f"{key}.tools.elevated.enabled"})
    if config.agents.defaults.elevated_default == "off":
        failures.append({"gate": "default", "key": "agents.defaults.elevatedDefault"})
    level, reason = "", ""
    try:
        level = check_elevated(config, scope, local=not scope.channel)
    except ToolAuthorizationError as error:
        reason = str(error)
        if not failures:
            failures.append({"gate": "allowFrom", "key": "tools.elevated.allowFrom"})
    return {
        "enabled": general.enabled,
        "channel": scope.channel,
        "allowedByConfig": bool(level),
        "alwaysAllowedByConfig": level == "full",
        "allowFrom": dict(general.allow_from or {}),
        "reason": reason,
        "failures": failures,
    }


def _describe_tools(settings: ResolvedOptions, assembly: Assembly) -> dict[str, Any]:
    """What `tools.sandbox.tools` decides for each tool in a sandboxed session."""
    scope = replace(settings.scope, sandboxed=True)
    verdicts = assemble(settings.loaded.config, scope).decision.verdicts
    said = {
        name: trace
        for name, verdict in verdicts.items()
        for trace in verdict.traces
        if trace.step == _STEP
    }
    names: dict[str, list[str]] = {"allow": [], "deny": []}
    sources: dict[str, dict[str, str]] = {"allow": {}, "deny": {}}
    for name, trace in said.items():
        kind = "allow" if trace.effect == "allow" else "deny"
        names[kind].append(name)
        if "(default" in (trace.entry or ""):
            sources[kind][trace.key] = "default"
        sources[kind].setdefault(trace.key, "global")
    return {
        "inForce": settings.scope.sandboxed,
        **names,
        "sources": {
            kind: [
                {"source": "agent" if key.startswith("agents.") else source, "key": key}
                for key, source in keys.items()
            ]
            for kind, keys in sources.items()
        },
        "available": sorted(assembly.tools),
    }


def _judge(settings: ResolvedOptions, command: str) -> dict[str, Any]:
    checker = Checker(settings.loaded, settings.scope, settings.workspace)
    try:
        decision = checker.check({"command": command})
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    place = say_place(decision, checker.backend)
    said = {"allow": f"runs {place}", "ask": f"asks, then runs {place}", "deny": "is refused"}
    words = f"{said[decision.verdict]}: {decision.reason}"
    return {"command": {"command": command, "inWords": words, **to_json(decision)}}


def _advise(
    settings: SandboxSettings, report: Mapping[str, Any], elevated: Mapping[str, Any]
) -> Iterator[str]:
    key = "clawkit config set agents.defaults.sandbox"
    local = settings.backend in ("auto", "bwrap", "landlock")
    if settings.mode == "off":
        yield f"sandbox commands, so that they need no approval: {key}.mode auto"
    elif report["backend"] != "bwrap" and local:
        yield from map(": ".join, advise(why_no_bwrap(home(os.environ))))
    if not report["available"]:
        if settings.mode != "off" and settings.backend != "auto":
            yield f"let clawkit choose the sandbox: {key}.backend auto"
        return
    if report["backend"] in ("bwrap", "landlock"):
        if settings.network == "none" and report["backend"] == "bwrap":
            yield (
                f"let commands reach package registries: {key}.network allowlist && "
                f"{key}.allowHosts '[\"packages\"]'"
            )
        yield f"let commands read a hidden path: {key}.showPaths '[\"~/.config/gh\"]'"
        yield f"let commands write to another directory: {key}.writePaths '[\"~/other\"]'"
    for each in elevated["failures"]:
        yield f"commands cannot ask to leave the sandbox because of {each['key']}"


def show(report: Mapping[str, Any]) -> None:
    """Print the report for people; long lists of paths as counts per group."""
    about = report["sandbox"]
    if report["unconfined"]:
        click.secho("Commands run on the host, unconfined", bold=True, fg="yellow", nl=False)
        click.echo(": tools.exec.security is 'full', so the sandbox below is not used")
    if about["available"]:
        why = one_line(printable(about["reason"]), 300)
        click.echo(f"{click.style('Sandbox:', bold=True)} {about['backend']} ({why})")
    else:
        click.secho("No sandbox", bold=True, fg="yellow", nl=False)
        click.echo(f": {printable(report['problem'] or about['reason'])}")
    rows = [("mode", f"{about['mode']}: {_MODES[about['mode']]}")]
    rows.append(("agent", f"{report['agentId']}, session {report['sessionKey']}"))
    if about["available"]:
        rows += _say_sandbox(about)
    tools, elevated = about["tools"], report["elevated"]
    if tools["inForce"]:
        for name in ("allow", "deny"):
            keys = ", ".join(each["key"] for each in tools["sources"][name])
            rows.append((f"tools {name}", f"{_list(tools[name])} ({keys or _STEP})"))
    else:
        said = "tools.sandbox.tools does not apply: this session is not sandboxed"
        rows.append(("tools", said))
    said = "allowed, after approval" if elevated["allowedByConfig"] else elevated["reason"]
    if elevated["alwaysAllowedByConfig"]:
        said = "allowed; tools.exec.security alone decides whether you are asked"
    rows.append(("elevated", said))
    for name, text in rows:
        click.echo(f"  {name:<12} {printable(text)}")
    for name, title in (("gaps", "Limitations"), ("fixIt", "To change it")):
        if texts := (about if name == "gaps" else report)[name]:
            click.secho(title, bold=True)
            for text in texts:
                click.echo(f"  - {printable(text)}")
    if "command" in report:
        command = report["command"]
        click.secho("The command", bold=True)
        click.echo(f"  {one_line(printable(command['command']), 100)}")
        click.echo(f"  {printable(command['inWords'])}")


def _say_sandbox(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "workspace", f"{report['effectiveHostWorkspaceRoot']} ({report['workspaceAccess']})"
    yield "workdir", report["runtimeWorkdir"]
    for mount in report["workspaceMounts"]:
        if mount["source"] != mount["target"] or mount["source"] != report["runtimeWorkdir"]:
            how = "writable" if mount["writable"] else "read-only"
            yield "mount", f"{mount['source']} at {mount['target']}, {how}"
    yield "scope", f"{report['scope']} ({report.get('scopeKey')})"
    if "writable" in report:
        private = f"{os.path.realpath(home(os.environ))}/sandboxes/"
        ours = [path for path in report["writable"] if path.startswith(private)]
        others = [path for path in report["writable"] if path not in ours]
        if any(path.endswith("/workspace") for path in ours):
            others.append("a private workspace")
        yield "writable", _list([*others, "private temporary files", "private caches"])
        kinds = Counter(map(_group, report["hidden"])).most_common()
        groups = ", ".join(f"{name} ({number})" for name, number in kinds)
        hidden = counted(len(report["hidden"]), "path")
        yield "hidden", f"{hidden}: {groups}" if kinds else "nothing"
        files = counted(len(report["readOnly"]), "protected file")
        yield "read-only", f"everything else, and {files} in the workspace"
    if "confinement" in report:
        yield "confinement", report["confinement"]
    yield "network", _say_network(report)
    if "limits" in report:
        limits = report["limits"]
        if isinstance(limits, Mapping):
            sizes = {name: value for name, value in limits.items() if value}
            limits = ", ".join(
                f"{name} {human_size(value) if isinstance(value, int) else value}"
                for name, value in sizes.items()
            )
        yield "limits", str(limits or "none")


def _say_network(report: Mapping[str, Any]) -> str:
    if report["backend"] not in ("bwrap", "landlock") or report["network"] != "allowlist":
        return str(report["network"])
    hosts = [
        f"packages ({len(PACKAGES)} hosts)" if each == "packages" else each
        for each in (*report["allowHosts"], *report["allowPrivate"])
    ]
    return f"through the proxy: {_list(hosts) if hosts else 'no host yet'}; others need approval"


def _group(path: str) -> str:
    if path == os.path.realpath(home(os.environ)):
        return "clawkit's own files"
    if path in ("/dev", "/run"):
        return "devices and sockets"
    for own in {os.path.realpath(os.path.expanduser("~")), login_home()}:
        name = os.path.relpath(path, own)
        for group, names in SECRETS.items():
            if name in names:
                return group
    is_home = path == "/root" or os.path.dirname(path) == "/home"
    return "other users" if is_home else "system and other files"


def _list(items: Sequence[str]) -> str:
    more = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return ", ".join(items[:_LISTED]) + more


ENGINES = ("docker", "podman")
_ENGINE_S = 10.0
_SYSCTLS = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or load an AppArmor profile "
        "for bwrap that allows userns",
    ),
)
"""Switches that forbid user namespaces: file, the value that forbids them, how to allow them."""


Advice = tuple[str, str]
"""A problem, and how to fix it."""


def advise(why_no_bwrap: str) -> Iterator[Advice]:
    """Missing requirements for the strongest sandbox; `why_no_bwrap` is empty if bwrap works."""
    elsewhere = "use the backend docker, podman or ssh"
    if platform.system() != "Linux":
        yield "the local backends need Linux", elsewhere
        return
    if not seccomp.available():
        yield f"the local backends do not support {platform.machine()}", elsewhere
        return
    if why_no_bwrap:
        do = "in a container, allow user namespaces in its seccomp profile; or run on the host"
        for file, value, lifted in reversed(_SYSCTLS):
            with suppress(OSError), open(file, encoding="ascii") as setting:
                do = lifted if setting.read(32).strip() == value else do
        do = do if find_bwrap() else "apt-get install bubblewrap"
        yield f"bwrap cannot be used: {why_no_bwrap}", do
    if not landlock.available():
        do = "use Linux 5.13 or newer with landlock in the list of the kernel parameter lsm="
        yield "the kernel has no Landlock", do


def look_at_engine(engine: str, image: str, program: str | None = None) -> Advice | None:
    """The problem with docker or podman; None if it responds and has the image. Blocks."""
    program = program or find_program(engine)
    if program is None:
        package = "docker.io" if engine == "docker" else "podman"
        return f"{engine} is not installed", f"apt-get install {package}"
    if why := _ask_engine(program, "info", "--format", "{{.ID}}" if engine == "docker" else "json"):
        return f"{engine} does not respond ({why})", f"start it, then check: {engine} info"
    if _ask_engine(program, "image", "inspect", "--format", "{{.Id}}", image):
        do = f"clawkit sandbox build --engine {engine} --image {image}"
        return f"{engine} does not have the image {image!r}", do
    return None


def _ask_engine(program: str, *words: str) -> str:
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, timeout=_ENGINE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {_ENGINE_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return (said or f"exit code {done.returncode}") if done.returncode else ""

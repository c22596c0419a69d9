"""The service file that starts the gateway at login: a systemd user unit, or a launchd agent.

It contains paths but no secrets: those are read from the configuration and from `.env` in the home.
"""

from __future__ import annotations

import hashlib
import os
import plistlib
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from clawkit.config.paths import home
from clawkit.errors import ToolInputError
from clawkit.gateway.daemon import OUTPUT_NAME, run_argv

MARK = "Written by `clawkit gateway install`"
STOP_S = 45
"""Longer than a graceful stop takes."""
NAME = "clawkit-gateway"
_UNIT = """\
# {mark}; `clawkit gateway uninstall` removes it.
# Change it with `systemctl --user edit {name}`.
[Unit]
Description=clawkit gateway
After=network.target
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
{environment}
# Restarting does not fix a configuration error (2) or a refusal (3).
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2 3
KillMode=mixed
TimeoutStopSec={stop_s}
# An agent's command that runs out of memory must not stop the gateway.
OOMPolicy=continue
# Core dumps would contain secrets.
LimitCORE=0
# Deliberately not set: NoNewPrivileges and options that imply it (SystemCallFilter, Restrict…,
# Protect…, Private…). The gateway confines commands itself, for which bwrap, rootless podman and
# landlock need namespaces, mounts or set-uid helpers.

[Install]
WantedBy=default.target
"""


class ServiceFile(NamedTuple):
    """A service file, and the commands that make it effective."""

    kind: Literal["systemd", "launchd"]
    name: str
    path: str
    text: str
    enable: tuple[tuple[str, ...], ...]
    """Commands that make it start at login."""
    start: tuple[str, ...]
    restart: tuple[str, ...]
    disable: tuple[tuple[str, ...], ...]
    """Commands that stop it and disable the start at login."""
    forget: tuple[tuple[str, ...], ...]
    """Commands after the file was removed."""


def make_service_file(
    env: Mapping[str, str], config: str | None = None, port: int | None = None
) -> ServiceFile:
    """The service file of this platform and this home. Raises `ToolInputError`."""
    argv = run_argv("service", config or env.get("CLAWKIT_CONFIG") or None, port)
    kept = _environment(env)
    for text in (*argv, *kept.values()):
        if not text.isprintable():
            raise ToolInputError(f"{text!r} cannot be part of a service file; rename it")
    if sys.platform == "darwin":
        return _launchd(env, argv, kept)
    return _systemd(env, argv, kept)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables with paths. None of them is a secret."""
    search = [each for each in env.get("PATH", "").split(os.pathsep) if os.path.isabs(each)]
    found = {"CLAWKIT_HOME": home(env), "PATH": os.pathsep.join(dict.fromkeys(search))}
    found["CLAWKIT_INCLUDE_ROOTS"] = env.get("CLAWKIT_INCLUDE_ROOTS", "")
    return {name: value for name, value in found.items() if value}


def service_name(env: Mapping[str, str]) -> str:
    """Every home has its own service; that of the default home has the short name."""
    usual = home({name: value for name, value in env.items() if name != "CLAWKIT_HOME"})
    if home(env) == usual:
        return NAME
    digest = hashlib.sha256(home(env).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{NAME}-{digest[:8]}"


def _systemd(env: Mapping[str, str], argv: Sequence[str], extra: Mapping[str, str]) -> ServiceFile:
    name = service_name(env)
    own = env.get("HOME") or os.path.expanduser("~")
    base = env.get("XDG_CONFIG_HOME") or os.path.join(own, ".config")
    path = os.path.join(os.path.abspath(base), "systemd", "user", f"{name}.service")
    # systemd expands variables in arguments, but not in the program.
    command = " ".join((quote_unit(argv[0]), *(quote_unit(each, "$") for each in argv[1:])))
    lines = [f"Environment={quote_unit(f'{key}={value}')}" for key, value in extra.items()]
    environment = "\n".join(lines)
    parts = {"mark": MARK, "name": name, "command": command, "environment": environment}
    text = _UNIT.format(**parts, stop_s=STOP_S)
    ctl = ("systemctl", "--user")
    return ServiceFile(
        "systemd",
        name,
        path,
        text,
        ((*ctl, "daemon-reload"), (*ctl, "enable", name)),
        (*ctl, "start", name),
        (*ctl, "restart", name),
        ((*ctl, "disable", "--now", name),),
        ((*ctl, "daemon-reload"),),
    )


def quote_unit(text: str, doubled: str = "") -> str:
    """A value in a unit file, as one word; characters in `doubled` and `%` are written twice."""
    for char in ("\\", '"'):
        text = text.replace(char, f"\\{char}")
    for char in ("%", *doubled):
        text = text.replace(char, char * 2)
    return f'"{text}"'


def _launchd(env: Mapping[str, str], argv: Sequence[str], extra: Mapping[str, str]) -> ServiceFile:
    name = f"io.clawkit.{service_name(env)}"
    own = env.get("HOME") or os.path.expanduser("~")
    path = os.path.join(own, "Library", "LaunchAgents", f"{name}.plist")
    output = os.path.join(home(env), "logs", OUTPUT_NAME)
    agent = {
        "Label": name,
        "ProgramArguments": list(argv),
        "EnvironmentVariables": dict(extra),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": STOP_S,
        "HardResourceLimits": {"Core": 0},
        "StandardOutPath": output,
        "StandardErrorPath": output,
    }
    head, body = plistlib.dumps(agent, sort_keys=False).decode().split("<plist", 1)
    place = f"gui/{os.getuid()}"
    return ServiceFile(
        "launchd",
        name,
        path,
        f"{head}<!-- {MARK} -->\n<plist{body}",
        (),
        ("launchctl", "bootstrap", place, path),
        ("launchctl", "kickstart", "-k", f"{place}/{name}"),
        (("launchctl", "bootout", f"{place}/{name}"),),
        (),
    )

"""npm: looking at packages, running nothing of theirs."""

from __future__ import annotations

import re
from types import MappingProxyType

from clawkit.approvals.allow.presets.base import (
    Call,
    Check,
    Preset,
    make_command,
    no_settings,
    options,
    show,
)

_NPM_TREE = (
    "-a --all --json -l --long -p --parseable --depth=# --omit= --include= -w= --workspace= "
    "--workspaces --package-lock-only --link -g --global --production --dev --no-unicode"
)
_NAME = re.compile(r"(?:@[\w.-]+/)?[\w.-]+(?:@[\w.^~<>=| *-]+)?", re.ASCII)
_NPM_PLAIN = "--json -g --global -l --long"


def _all_of(flags: str, why: str) -> Check:
    names = flags.split()

    def check(call: Call) -> str:
        return "" if all(map(call.has, names)) else why

    return check


def _names(call: Call) -> str:
    """Packages of a registry: everything else is fetched by other programs."""
    for word in call.words:
        if not _NAME.fullmatch(word):
            return f"{show(word)} is not the name of a package"
    return ""


_LS = make_command(_NPM_TREE, check=_names)
_VIEW = make_command("--json -w= --workspace=", check=_names)
NPM = Preset(
    "looking at packages: ls, outdated, view, audit, explain, config get; no scripts run",
    frozenset({"npm", "npm-cli.js"}),
    MappingProxyType(
        {
            **dict.fromkeys(("ls", "list", "la", "ll"), _LS),
            **dict.fromkeys(("view", "info", "show", "v"), _VIEW),
            "outdated": _LS,
            "audit": make_command("--json --omit= --include= --audit-level= --production", most=0),
            "audit signatures": make_command("--json", most=0),
            "explain": _VIEW,
            "why": _VIEW,
            "query": make_command("-w= --workspace=", most=1),
            "search": make_command("--json -l --long -p --parseable --no-description"),
            "root": make_command("-g --global", most=0),
            "prefix": make_command("-g --global", most=0),
            "ping": make_command("", most=0),
            "config get": make_command(_NPM_PLAIN, most=1),
            "config list": make_command(_NPM_PLAIN, most=0),
            "config ls": make_command(_NPM_PLAIN, most=0),
            "get": make_command("", most=1),
            "pack": make_command(
                "--dry-run --ignore-scripts --json",
                most=0,
                check=_all_of(
                    "--dry-run --ignore-scripts", "pack needs --dry-run and --ignore-scripts here"
                ),
            ),
            "version": make_command("--json", most=0),
            "--version": make_command("", most=0),
            "-v": make_command("", most=0),
        }
    ),
    lambda _program: (),
    before=options("-s --silent"),
    interpreters=frozenset({"env", "node", "nodejs"}),
    around=no_settings(".npmrc"),
)

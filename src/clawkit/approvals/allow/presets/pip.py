"""pip: looking at what is installed."""

from __future__ import annotations

from types import MappingProxyType

from clawkit.approvals.allow.presets.base import Preset, make_command, options

_PIP_LIST = (
    "-o --outdated -u --uptodate -e --editable -l --local --user --pre --format= --not-required "
    "--exclude= --exclude-editable --include-editable -v --verbose -q --quiet"
)
_PIP_QUIET = "-v --verbose -q --quiet"
PIP = Preset(
    "looking at what is installed: list, show, check, freeze, index versions; nothing is installed",
    frozenset({"pip"}),
    MappingProxyType(
        {
            "list": make_command(_PIP_LIST, most=0),
            "show": make_command("-f --files", _PIP_QUIET),
            "check": make_command(_PIP_QUIET, most=0),
            "freeze": make_command(
                "-l --local --user --all --exclude-editable --exclude=", _PIP_QUIET, most=0
            ),
            "inspect": make_command("--local --user", _PIP_QUIET, most=0),
            "index versions": make_command("--pre --python-version= --json", _PIP_QUIET, most=1),
            "config list": make_command(_PIP_QUIET, most=0),
            "config get": make_command(_PIP_QUIET, most=1),
            "cache dir": make_command("", most=0),
            "cache info": make_command("", most=0),
            "cache list": make_command("--format=", most=1),
            "debug": make_command("", most=0),
            "--version": make_command("", most=0),
            "-V": make_command("", most=0),
        }
    ),
    lambda _program: (),
    before=options("--no-color --disable-pip-version-check --no-input --isolated"),
    interpreters=frozenset({"env", "python", "pypy"}),
)

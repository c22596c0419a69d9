"""Complete descriptions of how a program may be called, each under a name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from clawkit.approvals.allow.presets.base import Preset, check_preset, show
from clawkit.approvals.allow.presets.cargo import CARGO
from clawkit.approvals.allow.presets.docker import DOCKER
from clawkit.approvals.allow.presets.git import GIT
from clawkit.approvals.allow.presets.git_read import GIT_READ
from clawkit.approvals.allow.presets.npm import NPM
from clawkit.approvals.allow.presets.pip import PIP
from clawkit.approvals.allow.presets.python import PYTHON
from clawkit.approvals.base import Match, Program, Rules

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "git": GIT,
        "git-read": GIT_READ,
        "npm": NPM,
        "pip": PIP,
        "python": PYTHON,
        "cargo": CARGO,
        "docker": DOCKER,
    }
)


def check(name: str, program: Program, rules: Rules) -> Match | str:
    """The match of a call with the preset of that name, or why it does not fit."""
    preset = PRESETS.get(name)
    if preset is None:
        return f"there is no preset {show(name)!r}; there are {', '.join(PRESETS)}"
    return check_preset(name, preset, program, rules)

"""Docker: looking at containers and images."""

from __future__ import annotations

from types import MappingProxyType

from clawkit.approvals.allow.presets.base import Preset, make_command, needs

_LIST = "-a --all -f= --filter= --format= --no-trunc -q --quiet"
_PS = make_command(_LIST, "-n=# --last=# -l --latest -s --size", most=0)
_IMAGES = make_command(_LIST, "--digests --tree", most=1)
_INSPECT = make_command("-f= --format= -s --size --type=")
_LOGS = make_command("--details -f --follow --since= -n= --tail= -t --timestamps --until=", most=1)
_STATS = make_command(
    "-a --all --format= --no-stream --no-trunc",
    check=needs("--no-stream", "stats needs --no-stream here"),
)
_TOP = make_command("", most=1)
_HISTORY = make_command("--format= -H --human --no-trunc -q --quiet", most=1)
_ONE = make_command("", most=1)
_NAMED = make_command("-f= --filter= --format= -q --quiet --no-trunc", most=0)

DOCKER = Preset(
    "looking at containers and images: ps, images, inspect, logs, stats, info; nothing is changed",
    frozenset({"docker"}),
    MappingProxyType(
        {
            **dict.fromkeys(("ps", "container ls", "container list", "container ps"), _PS),
            **dict.fromkeys(("images", "image ls", "image list"), _IMAGES),
            **dict.fromkeys(
                ("inspect", "container inspect", "image inspect", "volume inspect"), _INSPECT
            ),
            "network inspect": make_command("-f= --format= -v --verbose"),
            **dict.fromkeys(("logs", "container logs"), _LOGS),
            **dict.fromkeys(("stats", "container stats"), _STATS),
            **dict.fromkeys(("top", "container top"), _TOP),
            **dict.fromkeys(("diff", "container diff"), _ONE),
            **dict.fromkeys(("port", "container port"), make_command("", most=2)),
            **dict.fromkeys(("history", "image history"), _HISTORY),
            **dict.fromkeys(("volume ls", "network ls"), _NAMED),
            **dict.fromkeys(("info", "system info"), make_command("-f= --format=", most=0)),
            "system df": make_command("--format= -v --verbose", most=0),
            "version": make_command("-f= --format=", most=0),
            **dict.fromkeys(("--version", "-v"), make_command("", most=0)),
        }
    ),
    lambda _program: (),
)

"""Cargo: looking at a project, building nothing of it."""

from __future__ import annotations

import os
from types import MappingProxyType

from clawkit.approvals.allow.presets.base import Preset, make_command, needs, no_settings
from clawkit.approvals.base import Program

_CARGO = "-q --quiet -v --verbose --color= --offline --locked --frozen"
_FEATURES = "-F= --features= --all-features --no-default-features --manifest-path=<"


def _cargo_starts(program: Program) -> tuple[str, ...]:
    """The compiler and the formatter beside it; with rustup they are in its tool chains."""
    folder = os.path.dirname(program.resolved)
    found = [f"{folder}/{name}" for name in ("rustc", "cargo-fmt", "rustfmt")]
    if os.path.basename(program.real) == "rustup":
        found.append(os.path.join(os.path.dirname(folder), "..", ".rustup", "toolchains"))
    return tuple(os.path.normpath(place) for place in found if os.path.exists(place))


CARGO = Preset(
    "looking at a project: metadata, tree, locate-project, search, fmt --check; nothing is built",
    frozenset({"cargo", "rustup"}),
    MappingProxyType(
        {
            "metadata": make_command(
                _CARGO, _FEATURES, "--no-deps --format-version=# --filter-platform=", most=0
            ),
            "tree": make_command(
                _CARGO,
                _FEATURES,
                "-p= --package= --workspace --exclude= -i= --invert= --prune= --depth= --prefix= "
                "--no-dedupe -d --duplicates --charset= -f= --format= -e= --edges= --target=",
                most=0,
            ),
            "locate-project": make_command(
                _CARGO, "--workspace --message-format= --manifest-path=<", most=0
            ),
            "pkgid": make_command(_CARGO, "-p= --package= --manifest-path=<", most=1),
            "read-manifest": make_command(_CARGO, "--manifest-path=<", most=0),
            "search": make_command(_CARGO, "--limit=#"),
            "info": make_command(_CARGO, most=1),
            "fmt": make_command(
                "--check --all -p= --package= -q --quiet -v --verbose --manifest-path=<",
                most=0,
                check=needs("--check", "fmt needs --check here"),
            ),
            "version": make_command("-v --verbose", most=0),
            "--version": make_command("-v --verbose", most=0),
            "-V": make_command("-v --verbose", most=0),
            "--list": make_command("", most=0),
        }
    ),
    _cargo_starts,
    around=no_settings(
        ".cargo/config", ".cargo/config.toml", "rust-toolchain", "rust-toolchain.toml"
    ),
)

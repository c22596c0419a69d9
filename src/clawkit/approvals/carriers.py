"""Programs that start others in ways that cannot be followed from their arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from clawkit.approvals.base import Arg
from clawkit.approvals.operands import may_be, may_be_option, words_of


class Opaque(NamedTuple):
    """It starts, or could start, something that cannot be told from its arguments."""

    reason: str
    """For the person, without a full stop."""
    code: str
    """Short, for programs: `blocked-wrapper`, `carrier`, `remote`, …"""


FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir")

_BLOCKED = words_of(
    """
    sudo sudoedit sudo-rs doas su su-exec runuser run0 pkexec gosu setpriv setuidgid envuidgid
    envdir chpst sg newgrp gksu gksudo kdesu kdesudo beesu capsh runcon aa-exec
    chroot fakechroot fakeroot unshare nsenter bwrap firejail minijail0 nsjail proot systemd-nspawn
    machinectl lxc-attach lxc-execute lxc-start schroot pivot_root switch_root sandbox-exec
    flatpak-spawn
    systemd-run systemd-inhibit systemd-cat start-stop-daemon daemonize daemon dtach abduco tini
    dumb-init catatonit execlineb runsv runsvdir softlimit setlock s6-setsid supervise
    script scriptlive watch xvfb-run unbuffer expect autoexpect rlwrap rlfe winpty tmux tmate
    screen byobu zellij xterm uxterm x-terminal-emulator gnome-terminal konsole alacritty kitty
    xinit startx dbus-run-session dbus-launch ssh-agent gpg-agent keychain sshpass
    torify torsocks tsocks proxychains proxychains4 trickle faketime datefudge
    setarch linux32 linux64 i386 x86_64 uname26 caffeinate xcrun
    numactl cpulimit catchsegv eatmydata nocache ionice chrt taskset setsid prlimit choom uclampset
    coresched schedtool cgexec flock lckdo lockf withlock
    strace ltrace gdb gdbserver lldb perf valgrind rr dtrace bpftrace heaptrack memusage sotruss
    latrace hyperfine multitime ldd
    at batch crontab parallel sem entr watchexec nodemon reflex chokidar onchange concurrently
    run-parts chronic ifne mispipe pee zrun vipe logsave retry socat
    cross-env cross-env-shell env-cmd dotenv dotenvx chamber
    ccache sccache distcc icecc bear scan-build intercept-build libtool
    wine wine64 wine32 box64 box86
    """
)

_REMOTE = words_of(
    """
    ssh slogin autossh mosh rsh remsh rlogin rexec dbclient plink pssh parallel-ssh pdsh clush
    """
)

_CARRIERS = words_of(
    """
    xargs gxargs npx pnpx bunx uvx corepack nix-shell eval source . builtin coproc
    """
)

# Sub-commands that start a program named by the arguments. Some of these tools take short forms.
_STARTERS: dict[str, tuple[str, ...]] = {
    "pipx": ("run",),
    "uv": ("run",),
    "poetry": ("run",),
    "pipenv": ("run", "shell"),
    "conda": ("run",),
    "mamba": ("run",),
    "micromamba": ("run",),
    "hatch": ("run", "shell"),
    "pdm": ("run",),
    "rye": ("run",),
    "pixi": ("run", "exec"),
    "tox": ("exec",),
    "bundle": ("exec",),
    "bundler": ("exec",),
    "gem": ("exec",),
    "direnv": ("exec",),
    "mise": ("exec", "x"),
    "asdf": ("exec",),
    "pyenv": ("exec",),
    "rbenv": ("exec",),
    "nodenv": ("exec",),
    "nix": ("run", "shell", "develop"),
    "guix": ("shell", "environment"),
    "flatpak": ("run", "enter"),
    "snap": ("run",),
    "toolbox": ("run", "enter"),
    "distrobox": ("enter",),
    "deno": ("x", "dx"),
    "composer": ("exec",),
    "ip": ("exec", "-batch"),
}

# Package tools take almost any first word for something to run, so what is ordinary is listed.
_INSTALLS = (
    "install i add remove rm uninstall un update up upgrade link unlink list ls outdated why"
)
_NPM = """
    access adduser audit c cache ci config dedupe deprecate diff dist-tag doctor explain find-dupes
    get in it la ll login logout org owner pack ping pkg prefix profile prune publish query r rb
    rebuild restart root run run-script s sbom se search set shrinkwrap
    star stars start stop t team test token tst undeprecate unpublish unstar v version view whoami
"""
_PNPM = """
    audit bin config c dedupe deploy doctor fetch get help import licenses patch patch-commit
    patch-remove pack prune publish rb rebuild root run run-script set setup start store t test
"""
_YARN = """
    audit autoclean bin cache config constraints dedupe explain help import info licenses pack
    policies publish rebuild run search set start test version versions
"""
_BUN = "audit build info patch patch-commit pm publish run test"
_PACKAGES: dict[str, frozenset[str]] = {
    name: words_of(f"{_INSTALLS} {words}")
    for name, words in {"npm": _NPM, "pnpm": _PNPM, "yarn": _YARN, "bun": _BUN}.items()
}
_QUIET = ("-s", "--silent")
_ABOUT = ("--version", "-v", "--help", "-h")

_KINDS: dict[str, str] = {
    **dict.fromkeys(_BLOCKED, "blocked"),
    **dict.fromkeys(_REMOTE, "remote"),
    **dict.fromkeys(_CARRIERS, "carrier"),
    **dict.fromkeys(("find", "gfind"), "find"),
    **dict.fromkeys(("fd", "fdfind"), "fd"),
    **{name: name for name in (*_STARTERS, *_PACKAGES)},
    "yarnpkg": "yarn",
}
_LOADER = re.compile(r"ld(?:64|32)?(?:-[\w.-]+)?\.so(?:\.\d+)*", re.ASCII)
_VERSION = re.compile(r"[-.]?\d[\d.]*\Z|\.exe\Z|-static\Z", re.ASCII)
_LONGEST = 64


@lru_cache(maxsize=1024)
def _kind(name: str) -> str:
    if (found := _KINDS.get(name)) is not None:
        return found
    if _LOADER.fullmatch(name) or name.startswith(("qemu-", "s6-", "proxychains")):
        return "blocked"
    # `strace-6.1` is strace; only the strict kinds may be guessed like that.
    return _KINDS.get(_VERSION.sub("", name), "")


def carrier_kind(name: str) -> str:
    """What sort of carrier a base name is; empty when it is none."""
    return _kind(name) if len(name) <= _LONGEST else ""


def carried(kind: str, argv: Sequence[Arg]) -> Opaque | None:
    """What a carrier of a kind could start with these arguments; None when nothing else."""
    match kind:
        case "blocked":
            return Opaque("it starts another program under changed conditions", "blocked-wrapper")
        case "remote":
            return Opaque("it runs commands on another machine", "remote")
        case "carrier":
            return Opaque("it starts whatever its arguments or its input say", "carrier")
        case "find":
            starts = any(may_be(arg, FIND_ACTIONS) for arg in argv[1:])
        case "fd":
            starts = any(_executes(arg) for arg in argv[1:])
        case _ if kind in _PACKAGES:
            starts = _runs_package(kind, argv)
        case _:
            starts = any(_begins(arg, _STARTERS[kind]) for arg in argv[1:])
    if not starts:
        return None
    return Opaque(f"with these arguments {kind} starts, or could start, other programs", "carrier")


def _executes(arg: Arg) -> bool:
    """Whether an argument of fd is `-x`, `-X`, a group of letters with them, or `--exec…`."""
    if arg.glob:
        return may_be_option(arg)
    if arg.text.startswith("--"):
        return arg.text.startswith("--exe")
    return arg.text.startswith("-") and ("x" in arg.text or "X" in arg.text)


def _begins(arg: Arg, words: Sequence[str]) -> bool:
    """Whether an argument is one of the words, a short form of one, or unknown."""
    return arg.glob or any(arg.text and word.startswith(arg.text) for word in words)


def _runs_package(tool: str, argv: Sequence[Arg]) -> bool:
    rest = [arg for arg in argv[1:3] if arg.glob or arg.text not in _QUIET]
    if not rest:
        return len(argv) > 1
    text = rest[0].text
    if rest[0].glob:
        return True
    if tool == "bun" and text[0:1] != "-" and ("/" in text or "." in text):
        return False  # a script of one's own, as for any interpreter
    return text not in _PACKAGES[tool] and not (text in _ABOUT and len(argv) == 2)

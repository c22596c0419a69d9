"""Programs that start others: analyzed through, accepted if they only read files, or opaque."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from clawkit.approvals import options as opts
from clawkit.approvals.inline_code import POSIX_SHELLS, SHELLS, family
from clawkit.approvals.types import Arg


class Opaque(NamedTuple):
    """A program that starts, or may start, something its arguments do not show."""

    reason: str
    code: str
    """Machine-readable: `blocked-wrapper`, `carrier`, `remote`, …"""


_BLOCKED = opts.words_of(
    """sudo sudoedit sudo-rs doas su su-exec runuser run0 pkexec gosu setpriv setuidgid envuidgid
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
    wine wine64 wine32 box64 box86"""
)

_REMOTE = opts.words_of(
    "ssh slogin autossh mosh rsh remsh rlogin rexec dbclient plink pssh parallel-ssh pdsh clush"
)
_CARRIERS = opts.words_of(
    "xargs gxargs npx pnpx bunx uvx corepack nix-shell eval source . builtin coproc"
)
# Sub-commands that start a program named in the arguments. Some tools accept abbreviations.
_STARTERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(opts.words_of("pipx uv poetry conda mamba micromamba pdm rye snap"), ("run",)),
    **dict.fromkeys(opts.words_of("tox bundle bundler gem direnv asdf composer"), ("exec",)),
    **dict.fromkeys(("pyenv", "rbenv", "nodenv"), ("exec",)),
    **dict.fromkeys(("pipenv", "hatch"), ("run", "shell")),
    **dict.fromkeys(("flatpak", "toolbox"), ("run", "enter")),
    "pixi": ("run", "exec"),
    "mise": ("exec", "x"),
    "nix": ("run", "shell", "develop"),
    "guix": ("shell", "environment"),
    "distrobox": ("enter",),
    "deno": ("x", "dx"),
    "ip": ("exec", "-batch"),
}

# Package tools run almost any first word, so the ordinary sub-commands are listed instead.
_INSTALLS = (
    "install i add remove rm uninstall un update up upgrade link unlink list ls outdated why"
    " audit publish run test"
)
_PACKAGES: dict[str, frozenset[str]] = {
    name: opts.words_of(f"{_INSTALLS} {words}")
    for name, words in {
        "npm": """
            cache ci config dedupe doctor explain get login logout pack ping pkg prefix prune query
            rebuild root run-script search set start stop t version view whoami
        """,
        "pnpm": "bin config dedupe fetch import licenses pack prune rebuild root start store",
        "yarn": "autoclean bin cache config dedupe import info licenses pack rebuild version",
        "bun": "build info patch patch-commit pm",
    }.items()
}
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
_VERSION = re.compile(r"[-.]?\d[\d.]*\Z|\.exe\Z|-static\Z", re.ASCII)
_LONGEST = 65
_OTHER_KIND = Opaque("its name resolves to a program of another kind", "blocked-wrapper")
_ALWAYS_OPAQUE = {
    "blocked": Opaque("it starts another program in a different context", "blocked-wrapper"),
    "remote": Opaque("it runs commands on another machine", "remote"),
    "carrier": Opaque("its arguments or input decide what it starts", "carrier"),
    "other-shell": Opaque("this shell's language is not understood", "shell"),
}


def _carry(kind: str, argv: Sequence[Arg]) -> Opaque | None:
    """What a carrier may start with these arguments; None if nothing."""
    if kind in _ALWAYS_OPAQUE:
        return _ALWAYS_OPAQUE[kind]
    if kind in _PACKAGES:
        starts = _runs_package(kind, argv)
    elif kind == "find":
        starts = any(opts.may_be(arg, opts.FIND_ACTIONS) for arg in argv[1:])
    elif kind == "fd":
        starts = any(map(_executes, argv[1:]))
    else:
        # Abbreviations count too.
        starts = any(
            arg.glob or (arg.text and any(word.startswith(arg.text) for word in _STARTERS[kind]))
            for arg in argv[1:]
        )
    if not starts:
        return None
    return Opaque(f"with these arguments {kind} may start other programs", "carrier")


def _executes(arg: Arg) -> bool:
    """Whether an argument of fd is `-x`, `-X`, a group of letters with them, or `--exec…`."""
    if arg.glob or arg.text.startswith("--"):
        return arg.text.startswith("--exe") or (arg.glob and opts.may_be_option(arg))
    return arg.text.startswith("-") and "x" in arg.text.lower()


def _runs_package(tool: str, argv: Sequence[Arg]) -> bool:
    """Whether the first word may run something other than the project's own scripts."""
    if len(argv) == 1:
        return False
    first = argv[1].text
    if tool == "bun" and first[:1] != "-" and ("/" in first or "." in first):
        return argv[1].glob  # a local script, as for any interpreter
    known = first in _PACKAGES[tool] or (first in _ABOUT and len(argv) == 2)
    return argv[1].glob or not known


_READERS = opts.words_of(
    "grep cat head tail wc ls stat file du sort md5sum sha256sum basename dirname echo"
)
_PLACE = "{}"
_ELSEWHERE = ("-H", "-L", "-P", "-D", "-O", "-follow", "-files0-from")
"""Options that make find search elsewhere than in its starting points."""
_BEHIND_PATHS = ("-", "(", "!")
_XARGS = opts.make_table(
    flag="-0 -r -t --null --no-run-if-empty --verbose",
    number="-n -L -P --max-args --max-procs",
    attached="--max-lines=",
    place="-I",
)
_XARGS_VALUE = {
    "flag": re.compile(""),
    "place": re.compile(r"\{\}"),
    **dict.fromkeys(("number", "attached"), re.compile(r"\d{1,6}", re.ASCII)),
}
_UNKNOWN = Arg("*", glob=True)


class Carried(NamedTuple):
    """A call that starts another program on files it finds or whose names it reads."""

    outer: tuple[Arg, ...]
    inner: tuple[Arg, ...]
    """The other program; its file arguments are globs below the starting points."""


def read_carried(argv: tuple[Arg, ...]) -> Carried | None:
    """The program that a call of find or xargs starts, if it only reads files; else None."""
    name = opts.base_name(argv[0].text)
    if name == "find":
        texts = [arg.text for arg in argv]
        actions = [at for at, arg in enumerate(argv) if arg.glob or arg.text in opts.FIND_ACTIONS]
        # `-ok` asks, and `-execdir` runs in directories that may contain programs.
        if len(actions) != 1 or texts[actions[0]] != "-exec":
            return None
        if any(text.startswith(_ELSEWHERE) for text in texts[1:]):
            return None
        start = actions[0] + 1
        end = next((at for at in range(start, len(argv)) if texts[at] in (";", "+")), 0)
        if not end or (texts[end] == "+" and texts[end - 1] != _PLACE):
            return None
        paths = next((at for at in range(1, start) if texts[at].startswith(_BEHIND_PATHS)), start)
        roots = texts[1:paths] or ["."]
        files = [Arg(f"{root.rstrip('/')}/**", glob=True) for root in roots]
        inner = _place(argv[start:end], files)
        # File names from find start like its starting points.
        return Carried((*argv[: start - 1], *argv[end + 1 :]), inner) if inner else None
    return _read_xargs(argv) if name == "xargs" else None


def _read_xargs(argv: tuple[Arg, ...]) -> Carried | None:
    at, place = len(argv), ""
    try:
        for option in opts.read_options(argv, _XARGS):
            if option.kind == opts.OPERAND:
                at = option.at
                break
            if option.kind == "place":
                place = option.value
            if not _XARGS_VALUE[option.kind].fullmatch(option.value):
                return None
    except LookupError:
        return None
    inner = _place(argv[at:] if place else (*argv[at:], Arg(_PLACE)), [_UNKNOWN])
    # Arguments of sort can name a program, or a file to write.
    return Carried(argv[:at], inner) if inner and inner[0].text != "sort" else None


def _place(argv: tuple[Arg, ...], files: list[Arg]) -> tuple[Arg, ...] | None:
    if not argv or argv[0].text not in _READERS or argv[0].glob:
        return None
    found: list[Arg] = []
    for arg in argv:
        if _PLACE in arg.text and arg.text != _PLACE:
            return None
        found += files if arg.text == _PLACE else [arg]
    return tuple(found)


class Inner(NamedTuple):
    """What a wrapper starts: the command from the word `at` on, or the shell code in it."""

    at: int
    is_text: bool = False


# Complete for what is accepted; anything else, including `--help` and abbreviations, is a doubt.
_OPTIONS: dict[str, opts.Table] = {
    "env": opts.make_table(),
    "command": opts.make_table(),
    "exec": opts.make_table(),
    "nice": opts.make_table(value="-n --adjustment"),
    "nohup": opts.make_table(),
    "stdbuf": opts.make_table(value="-i -o -e --input --output --error"),
    "timeout": opts.make_table(
        flag="-v -f -p --foreground --preserve-status --verbose",
        value="-k -s --kill-after --signal",
    ),
    "time": opts.make_table(flag="-p -q -v --portability --quiet --verbose", value="-f --format"),
}
_BUILTINS = frozenset({"command", "exec"})
_PROGRAMS = _OPTIONS.keys() - _BUILTINS
_PARTICULAR = _BUILTINS | {"env"}
"""The program that they start must not look like an option."""
_DURATION = re.compile(r"\d{1,9}(?:\.\d{1,9})?[smhd]?", re.ASCII)
_USUAL_PLACES = ("/bin", "/usr/bin")

# Called by any other name, the single coreutils binary takes the program from its options.
_MULTI_CALL = ("busybox", "toybox", "coreutils")
_COREUTILS = opts.words_of(
    """[ arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown chroot cksum comm cp
    csplit cut date dd df dir dircolors dirname du echo env expand expr factor false fmt fold groups
    head hostid hostname id install join kill link ln logname ls md5sum mkdir mkfifo mknod mktemp mv
    nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath
    rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split
    stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname
    unexpand uniq unlink uptime users vdir wc who whoami yes"""
)


def look_through(names: frozenset[str], argv: Sequence[Arg]) -> Inner | Opaque | None:
    """What a program with these base `names` starts; None if it is not a wrapper, and for a shell
    with a script file: see `how_called`."""
    typed = opts.base_name(argv[0].text)
    known = (names | {typed}) - {""}
    shared = {name for name in known if name.startswith(_MULTI_CALL)}
    if shared:
        single = any(name.startswith("coreutils") for name in shared)
        if typed in shared or (single and typed not in _COREUTILS):
            return Opaque("it bundles many programs, and its arguments choose one", "carrier")
        known = frozenset({typed})
    kinds = {_kind(name[:_LONGEST]) for name in known}
    wrappers = kinds - {""}
    if not wrappers:
        return None
    if len(wrappers) > 1:
        return _OTHER_KIND
    kind = wrappers.pop()
    if kind not in _OPTIONS and kind != "shell":
        return _carry(kind, argv)
    found = _shell(argv) if kind == "shell" else _wrapper(kind, argv)
    if not isinstance(found, Inner):
        return found
    if argv[found.at].glob:
        return Opaque("the program to start is a pattern", "glob")
    if len(kinds) > 1:
        return _OTHER_KIND
    place, slash, _ = argv[0].text.rpartition("/")
    # Even through a link, stdbuf loads a library from the directory that it is called by.
    if slash and (place not in _USUAL_PLACES or found.is_text or kind in _BUILTINS):
        return Opaque("it is analyzed only when called by its plain name", "blocked-wrapper")
    if shared and not found.is_text and any(arg.text[:1] == "-" for arg in argv[1 : found.at]):
        return Opaque("the options of this variant are unknown", "blocked-wrapper")
    return found


def starts_programs(names: Iterable[str]) -> bool:
    """Whether a program with one of these base names may start others, which its arguments name."""
    return any(_kind(name) or name.startswith(_MULTI_CALL) for name in names)


@lru_cache(maxsize=1024)
def _kind(name: str) -> str:
    if name in _OPTIONS:
        return name
    if name.startswith("g") and name[1:] in _PROGRAMS:
        return name[1:]
    shell = family(name)
    if shell in SHELLS:
        return "shell" if shell in POSIX_SHELLS else "other-shell"
    if (found := _KINDS.get(name)) is not None:
        return found
    if name.startswith(("qemu-", "s6-", "proxychains")):
        return "blocked"
    # `strace-6.1` is strace; only kinds that are always opaque may be guessed like this.
    return _KINDS.get(_VERSION.sub("", name), "")


def _shell(argv: Sequence[Arg]) -> Inner | Opaque | None:
    if len(argv) == 1 or opts.is_device(argv[1].text):
        return Opaque("the shell reads commands from standard input", "stdin")
    first = argv[1]
    if first.glob:
        return Opaque("what the shell runs is a pattern", "glob")
    if first.text == "-c" and len(argv) == 3 and argv[2].text[:1] not in ("-", "+"):
        return Inner(2, is_text=True)
    if first.text[:1] in ("", "-", "+"):
        return Opaque("the only shell option understood is `-c` with one string", "shell-options")
    return None


def _wrapper(name: str, argv: Sequence[Arg]) -> Inner | Opaque | None:
    first = argv[1] if len(argv) > 1 else Arg("")
    if name == "command" and first.text in ("-v", "-V") and not first.glob:
        return None
    unknown = Opaque(f"these options of {name} are not known to be harmless", "blocked-wrapper")
    try:
        options = opts.read_options(argv, _OPTIONS[name])
        index = next((each.at for each in options if each.kind == opts.OPERAND), len(argv))
    except LookupError:
        return unknown
    if name == "timeout" and index < len(argv):
        if argv[index].glob or not _DURATION.fullmatch(argv[index].text):
            return Opaque("the duration is not a plain number", "blocked-wrapper")
        index += 1
    if index == len(argv):
        if name == "env":
            return Opaque("it prints the environment, which may contain secrets", "environment")
        return Opaque(f"{name} does not name a program", "blocked-wrapper")
    text = argv[index].text
    # In dash, `--` after exec is the name of a program.
    if (name in _PARTICULAR and text.startswith("-")) or (name == "exec" and index > 1):
        return unknown
    if name == "env" and "=" in text:
        return Opaque("it sets variables for what it starts", "assignment")
    return Inner(index)

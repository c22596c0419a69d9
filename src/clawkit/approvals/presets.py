"""Presets: the allowed calls of some programs, and their access beyond the sandbox.

Anything a preset does not list is refused. The preset `look` covers programs that only show files;
it follows the rules of the file tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from clawkit.approvals import options as opts
from clawkit.approvals.arguments import find_code, find_destination, find_steering, read_git, show
from clawkit.approvals.safe_bins import BELOW, PROFILES, ArgumentProfile, read_call, read_profiles
from clawkit.approvals.types import ApprovalRules, Arg, Children, Match, Program
from clawkit.process.protocols import NO_GRANTS, Grants
from clawkit.word_tables import read_words

MAX_FILES = 5_000
_GREP = PROFILES["grep"]
_GREP_TREES = opts.make_table(flag="r --recursive", value="--exclude --exclude-dir --include")
_RECURSIVE = frozenset(("-r", "--recursive"))

LOOKS: Mapping[str, ArgumentProfile | None] = MappingProxyType(
    {
        **read_profiles("looks.txt"),
        "grep": _GREP._replace(options={**_GREP.options, **_GREP_TREES}),
        **{name: PROFILES[name] for name in ("head", "tail", "wc", "sort")},
        # find is read separately; the others open no files.
        **dict.fromkeys(("find", "echo", "basename", "dirname")),
    }
)
_NAMES_ONLY = frozenset(("ls", "find", "du", "tree", "stat"))
_HERE = frozenset(("ls", "find", "du", "tree", "rg"))
"""Without a file argument, they show the current directory."""
_FIND = opts.make_table(
    flag="""-print -print0 -ls -empty -depth -xdev -mount -not -o -or -a -and -prune -true -false
    -daystart -readable -writable -executable -quit""",
    value="""-name -iname -path -ipath -wholename -regex -iregex -regextype -type -maxdepth
    -mindepth -mtime -mmin -atime -amin -ctime -cmin -size -perm -user -group -links
    -inum -printf""",
)
_FIND_SIGNS = ("(", ")", "!")


def check_look(program: Program, rules: ApprovalRules) -> Match | str:
    """A match for a call that only shows readable files, or why it is not one."""
    name, cwd = opts.base_name(program.resolved), program.cwd
    if cwd is None:
        return "cannot determine the directory it runs in; use && after cd"
    profile = LOOKS[name]
    found: list[str] | str = []
    if profile is not None:
        found = _find_files(name, profile, program)
    elif name == "find":
        found = _read_find(program.argv)
    if isinstance(found, str):
        return found
    for file in found:
        path = os.path.join(cwd, file.removesuffix(BELOW))
        if not _may_show(path, rules, names_only=name in _NAMES_ONLY):
            return f"reading {show(file)}, or something in it, needs approval"
    depends = "the files it reads" if found else ""
    return Match("look", f"{name} (read-only)", None, "named", changes=False, depends=depends)


def _may_show(path: str, rules: ApprovalRules, *, names_only: bool) -> bool:
    if not rules.may_read(path):
        return False
    if names_only or not os.path.isdir(path):
        return True
    seen = 0
    for place, folders, files in os.walk(path):
        links = (name for name in folders if os.path.islink(os.path.join(place, name)))
        for name in (*files, *links):
            seen += 1
            if seen > MAX_FILES or not rules.may_read(os.path.join(place, name)):
                return False
    return True


def _find_files(name: str, profile: ArgumentProfile, program: Program) -> list[str] | str:
    call = read_call(name, profile, program, looks=True)
    if isinstance(call, str):
        return call
    has_operand = name in ("grep", "rg") and not call.has_pattern(name)
    here = name in _HERE or not call.flags_seen.isdisjoint(_RECURSIVE)
    return list(call.words[has_operand:]) or (["."] if here else [])


def _read_find(argv: Sequence[Arg]) -> list[str] | str:
    # find does not always treat these as getopt does: an expression may still follow.
    if odd := next((arg.text for arg in argv if arg.text in ("-", "--")), ""):
        return f"not with {odd}"
    places: list[str] = []
    in_expression = False
    try:
        for option in opts.read_options(argv, _FIND, groups=False, permutes=True):
            if option.value == ")" and not in_expression:
                return "not with )"  # find would take it for a file name
            is_place = option.kind == opts.OPERAND and option.value not in _FIND_SIGNS
            in_expression = in_expression or not is_place
            if not is_place:
                continue
            if in_expression or argv[option.at].glob:
                return f"not with {show(option.value)}"
            places.append(option.value)
    except opts.OptionError as error:
        return f"not with {show(error.name)}"
    return places or ["."]


_VERSION = re.compile(r"-?\d[\d.]*\Z")
_NAME = re.compile(r"[A-Za-z0-9@][\w./@{}^~-]*", re.ASCII)
"""Name of a remote or branch: not a URL, and neither forced nor deleted."""


def _list(text: str) -> frozenset[str]:
    return frozenset(each.strip() for line in text.split("\n") for each in line.split(","))


def _only(rows: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    return {key: opts.words_of(text) for key, text in rows.items()}


_ABOUT = dict.fromkeys(("--version", "version", "-V", "-v"), "")


class Preset(NamedTuple):
    """The allowed calls of a program."""

    words: str
    programs: frozenset[str]
    commands: frozenset[str] = frozenset()
    """First one or two words of allowed calls; any other arguments not in `refused` may follow."""
    only: Mapping[str, frozenset[str]] = MappingProxyType(_only(_ABOUT))
    """The same for calls that may have only these other arguments."""
    refused: opts.CommandTable = MappingProxyType({})
    """Refused flags, by the first word of the command."""
    grants: Grants = NO_GRANTS
    """Access beyond the sandbox; `~` is the home directory."""
    children: Children = "any"
    starts: tuple[str, ...] = ()
    """What it may start besides itself if `children` is `named`."""
    interpreters: frozenset[str] = frozenset({"env"})
    """Allowed interpreters if the program is a script."""


_GIT_READ = """status, log, show, diff, whatchanged, shortlog, ls-files, ls-tree, rev-parse, blame
    rev-list, grep, describe, cat-file, merge-base, name-rev, for-each-ref, show-ref, show-branch
    cherry, check-ignore, check-attr, count-objects, diff-tree, diff-index, range-diff
    remote get-url, stash list, stash show, worktree list, notes list, notes show, config --get
    config --get-all, config --list, config -l"""
_GIT_ONLY = {
    "branch": "-a -r -v -vv -l --all --remotes --verbose --list --show-current",
    "tag": "-l -n --list",
    "remote": "-v --verbose",
    "reflog": "",
    **_ABOUT,
}
_GIT_WORK = """add, commit, switch, checkout, restore, reset, rm, mv, branch, tag, merge, rebase
    fetch, cherry-pick, revert, stash, pull, push"""
_GIT_REFUSED = opts.read_table(read_words(__file__, "git_refused.txt"))
_GIT_PARTS = ("/usr/lib/git-core", "/usr/libexec/git-core", "/usr/local/libexec/git-core")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "git-read": Preset(
            "git, read-only commands",
            frozenset({"git"}),
            _list(_GIT_READ),
            _only(_GIT_ONLY),
            children="named",
            starts=_GIT_PARTS,
        ),
        "git": Preset(
            "git, everyday commands",
            frozenset({"git"}),
            _list(f"{_GIT_READ}\n{_GIT_WORK}"),
            _only(_GIT_ONLY),
            _GIT_REFUSED,
            # ssh-agent has access to the keys; the key files stay unreadable.
            Grants(
                network=True,
                sockets=True,
                read=("~/.ssh/known_hosts", "~/.ssh/config", "~/.gitconfig", "~/.config/git"),
            ),
            starts=_GIT_PARTS,
        ),
        "npm": Preset(
            "npm, read-only commands",
            frozenset({"npm", "npm-cli.js"}),
            _list(
                """ls, list, la, ll, view, info, show, v, outdated, audit signatures, explain, why
                query, search, root, prefix, ping, config get, config list, config ls, get"""
            ),
            _only({**_ABOUT, "audit": "--json --production --omit=dev"}),
            grants=Grants(network=True, write=("~/.npm",)),
            interpreters=frozenset({"env", "node", "nodejs"}),
        ),
        "pip": Preset(
            "pip, read-only commands",
            frozenset({"pip"}),
            _list(
                """list, show, check, freeze, inspect, index versions, config list, config get
                cache dir, cache info, cache list, debug"""
            ),
            grants=Grants(network=True, write=("~/.cache/pip",)),
            interpreters=frozenset({"env", "python", "pypy"}),
        ),
        "cargo": Preset(
            "cargo, read-only commands",
            frozenset({"cargo", "rustup"}),
            _list(
                """metadata, tree, locate-project, pkgid, read-manifest, search, info, fmt --check
                --list"""
            ),
            grants=Grants(network=True, write=("~/.cargo/registry", "~/.cargo/git")),
        ),
        "docker": Preset(
            "docker, read-only commands",
            frozenset({"docker"}),
            _list(
                """ps, images, inspect, logs, top, diff, port, history, info, stats --no-stream
                container ls, container list, container ps, container inspect, container logs
                container top, container diff, container port, image ls, image list, image inspect
                image history, volume ls, volume inspect, network ls, network inspect, system df
                system info, version"""
            ),
            grants=Grants(sockets=True, write=("/run/docker.sock", "/var/run/docker.sock")),
        ),
        "python": Preset(
            "python, scripts of the workspace and common modules such as pytest",
            frozenset({"python", "pypy"}),
            _list(
                """-m pytest, -m unittest, -m json.tool, -m py_compile, -m compileall, -m tokenize
                -m tabnanny, -m ast, -m dis"""
            ),
            _only({**_ABOUT, "-m site": "", "-m sysconfig": "", "-m platform": ""}),
        ),
        "look": Preset(
            "reading files in the workspace: ls, cat, grep, find, git status",
            frozenset({"git", *LOOKS}),
        ),
    }
)

FOLLOWING = ("python",)
"""Presets for programs that projects link to, as in a virtual environment: the target of the link
counts."""
_GIT_LOOK = Preset(
    "",
    frozenset({"git"}),
    _list("status, log, diff, show"),
    _only({"branch": _GIT_ONLY["branch"]}),
    children="named",
    starts=_GIT_PARTS,
)


def check_preset(name: str, program: Program, script: str, rules: ApprovalRules) -> Match | str:
    """A match for a call that runs `script`, or why not; empty if the preset is for others."""
    preset = PRESETS.get(name)
    if preset is None:
        return f"unknown preset {show(name)!r}; use one of {', '.join(PRESETS)}"
    bare = {_VERSION.sub("", opts.base_name(path)) for path in (program.resolved, program.real)}
    if not bare <= preset.programs:
        return ""
    runs = (_VERSION.sub("", opts.base_name(each)) for each in program.script)
    if not preset.interpreters.issuperset(runs):
        return f"it is a script, and the preset {name!r} does not list its interpreter"
    link = () if name in FOLLOWING else (program.resolved,)
    if any(map(rules.may_write, (program.real, *program.script, *link))):
        return "the program can be changed without approval"
    if variable := find_steering(program.assigned):
        return f"the variable {show(variable)} could change what it does"
    if name == "look" and "git" not in bare:
        return check_look(program, rules)
    if name == "look":
        preset = _GIT_LOOK
        if not rules.confines:
            return "a repository's configuration can start programs, which run unconfined here"
    if why := _check_call(name, preset, program, script, rules):
        return why
    return Match(
        "look" if name == "look" else "entry",
        f"{show(program.real, 200)} (preset {name})",
        children=preset.children,
        starts=preset.starts,
        grants=preset.grants,
        changes=name not in ("look", "git-read"),
        depends="the files it reads" if script or name == "look" else "",
    )


def _check_call(
    name: str, preset: Preset, program: Program, script: str, rules: ApprovalRules
) -> str:
    arguments = program.argv[1:]
    if is_git := "git" in preset.programs:
        call = read_git(program)
        if isinstance(call, str):
            return call
        arguments = call.arguments or arguments
    words = [arg.text for arg in arguments[:2] if not arg.glob]
    starts = (" ".join(words), *words[:1])
    known = (each for each in starts if each in preset.commands or each in preset.only)
    command = next(known, "")
    rest = arguments[len(command.split()) :]
    if not command:
        if script and rules.may_read(script):
            return ""
        given = show(arguments[0].text) if arguments else "this call"
        return f"the preset {name!r} does not allow {given}"
    if command not in preset.commands:
        other = next((arg.text for arg in rest if arg.text not in preset.only[command]), "")
        return f"the preset {name!r} does not allow {command} with {show(other)}" if other else ""
    if hit := opts.search_table(preset.refused, arguments[0].text, arguments[1:]):
        return f"the preset {name!r} does not allow {show(hit.what)}"
    if is_git and command in ("fetch", "pull", "push"):
        if not all(_NAME.fullmatch(arg.text) or arg.text.startswith("-") for arg in rest):
            return f"the preset {name!r} allows {command} only with names of remotes and branches"
        return find_code(program, rules)
    return find_code(program, rules) or find_destination(program)


def expand_grants(grants: Grants, home: str) -> Grants:
    """Grants with `~` expanded; without a home directory, paths that start with `~` are dropped."""
    start = f"{home.rstrip('/')}/"
    read, write = (
        tuple(
            path.replace("~/", start, 1) if path.startswith("~/") else path
            for path in paths
            if home.startswith("/") or path.startswith("/")
        )
        for paths in (grants.read, grants.write)
    )
    return grants._replace(read=read, write=write)

"""What arguments make more of git than a program that keeps versions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from clawkit.approvals.allow.dangers.sheet import (
    REACHES,
    READS,
    RUNS,
    WRITES,
    Call,
    Sheet,
    find_flag,
    make_sheet,
    read_options,
    words,
)
from clawkit.approvals.allow.repository import (
    REWRITTEN,
    find_hooks,
    find_remotes,
    find_repository,
    is_far,
    repository_notes,
)
from clawkit.approvals.operands import base_name

# Whatever git does not know itself is an alias, or another program.
READING = words(
    """
    annotate blame cat-file check-attr check-ignore check-mailmap check-ref-format cherry column
    count-objects describe diff diff-files diff-index diff-tree fmt-merge-msg for-each-ref fsck
    get-tar-commit-id grep help log ls-files ls-remote ls-tree merge-base merge-tree name-rev
    patch-id range-diff reflog rev-list rev-parse shortlog show show-branch show-index show-ref
    status stripspace var verify-commit verify-pack verify-tag version whatchanged
    """
)
_WRITING = words(
    """
    add am apply archive bisect branch bundle checkout cherry-pick clean clone commit commit-graph
    config fetch format-patch gc init init-db maintenance merge mv notes pack-refs prune pull push
    rebase remote repack request-pull rerere reset restore revert rm sparse-checkout stage stash
    submodule switch symbolic-ref tag update-index worktree
    """
)
_PLUMBING = "is a part of git that nobody needs every day, and puts together any files"
_DENIED: dict[str, str] = {
    **dict.fromkeys(
        words(
            """
            bugreport citool credential credential-cache credential-store cvsexportcommit cvsimport
            cvsserver archimport daemon difftool fast-import fetch-pack filter-branch for-each-repo
            gitk gui gitweb hook http-backend http-fetch http-push imap-send instaweb merge-index
            merge-one-file mergetool p4 quiltimport receive-pack remote-ext remote-fd scalar
            send-email send-pack sh-setup shell svn upload-archive upload-pack web--browse
            """
        ),
        RUNS,
    ),
    **dict.fromkeys(
        words(
            """
            diagnose mailinfo mailsplit merge-file pack-objects unpack-file
            """
        ),
        WRITES,
    ),
    **dict.fromkeys(
        words(
            """
            checkout-index commit-tree fast-export hash-object index-pack interpret-trailers mktag
            mktree multi-pack-index prune-packed read-tree replace unpack-objects update-ref
            update-server-info write-tree
            """
        ),
        _PLUMBING,
    ),
}
# Of the words before the sub-command; git takes these in full only.
_BEFORE = words(
    """
    -P --no-pager --no-replace-objects --no-lazy-fetch --no-optional-locks --no-advice
    --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs
    """
)
_ABOUT = words(
    """
    --version -v --help -h --html-path --man-path --info-path --exec-path
    """
)

_COMMON = make_sheet(
    runs="--exec --extcmd --ext-diff --interactive --open-files-in-pager --receive-pack --textconv "
    "--upload-pack --web",
    writes="--in-place --index-output --output --output-directory --separate-git-dir",
    reads="--add-file --no-index",
    reaches="--unsafe-paths --cacheinfo --index-info --stdin-paths",
    fine="text add index",
)
_BY_COMMAND: dict[str, Sheet] = {
    "archive": make_sheet(runs="--remote", writes="-o"),
    "cat-file": make_sheet(runs="--filters"),
    "clone": make_sheet(runs="--template --config -c -u", values="obj"),
    "config": make_sheet(runs="--edit -e", reads="--file -f --blob"),
    "format-patch": make_sheet(writes="-o", values="vnOUlSGM"),
    "grep": make_sheet(runs="-O", values="ABCefm"),
    "help": make_sheet(runs="-w -i --info"),
    "init": make_sheet(runs="--template"),
    "rebase": make_sheet(runs="-x -i --edit-todo", values="CsX"),
    "update-index": make_sheet(reaches="--stdin -z --force-remove"),
}
_WORDS: dict[str, tuple[str, ...]] = {
    "bisect": ("run", "visualize", "view"),
    "bundle": ("create",),
    "maintenance": ("start", "register", "stop", "unregister"),
    "submodule": ("foreach",),
}
_TRANSPORTS = words("archive bundle clone fetch ls-remote pull push remote submodule")
_TRANSPORT = re.compile(r"[A-Za-z0-9+.-]*::")
_STRATEGIES = frozenset({"ort", "recursive", "resolve", "octopus", "ours", "subtree"})
# Commands that take a strategy, with those of their letters that have values.
_MERGING = {"merge": "msXF", "pull": "sXjo", "rebase": "sXC", "cherry-pick": "m", "revert": "m"}

# Hooks that every command can start, and commands that start no others.
_ANY_HOOKS = frozenset({"*", "post-index-change", "reference-transaction"})
_FEW_HOOKS = READING | words(
    """
    add apply branch clean commit-graph mv notes pack-refs remote rerere reset restore rm
    sparse-checkout stage symbolic-ref tag update-index
    """
)
_NO_HOOKS = words(
    """
    archive bundle clone config format-patch init init-db request-pull
    """
)

# Commands that change nothing but what is named for them, wherever they run.
_ANYWHERE = READING | words("archive bundle config request-pull")
# Those that are given directories to fill, with letters and names that have values.
_FILLING: dict[str, tuple[str, tuple[str, ...]]] = {
    "clone": ("bjo", ("--branch", "--depth", "--origin", "--jobs", "--reference", "--filter")),
    "init": ("b", ("--initial-branch", "--object-format")),
    "init-db": ("b", ("--initial-branch", "--object-format")),
    "worktree": ("bB", ()),
}
# What is read by name, and by whom; a letter stands for something else in other commands.
_FILES = ("--file", "--template", "--contents", "--pathspec-from-file", "--ignore-revs-file")
_FILE_LETTERS: dict[str, tuple[str, str]] = {
    "commit": ("FmtcCuS", "Ft"),
    "merge": ("FmsXS", "F"),
    "tag": ("Fmun", "F"),
    "notes": ("FmcC", "F"),
    "grep": ("ABCefm", "f"),
}

# Settings that name no programs and no files.
_PLAIN_KEYS = words(
    """
    user.name user.email init.defaultbranch pull.rebase pull.ff push.default push.autosetupremote
    push.followtags fetch.prune fetch.prunetags rebase.autosquash rebase.autostash rebase.updaterefs
    merge.ff merge.conflictstyle diff.algorithm diff.renames diff.mnemonicprefix diff.colormoved
    core.autocrlf core.eol core.filemode core.ignorecase core.quotepath core.safecrlf
    core.whitespace core.longpaths core.abbrev core.precomposeunicode log.date log.decorate
    log.abbrevcommit status.short status.branch status.showuntrackedfiles rerere.enabled
    commit.verbose tag.sort branch.sort branch.autosetupmerge branch.autosetuprebase
    help.autocorrect commit.gpgsign tag.gpgsign gc.auto
    """
)
_PLAIN_KEY = re.compile(r"branch\..+\.(?:remote|merge|rebase)|(?:color|advice)\.[a-z.-]+", re.I)
_READS_CONFIG = words(
    """
    -l --list --get --get-all --get-regexp --get-urlmatch --get-color --get-colorbool get list
    """
)
_WRITES_CONFIG = words("set unset rename-section remove-section edit")
_ASKS_CONFIG = words(
    """
    --global --local --system --worktree --show-origin --show-scope --type --bool --int --path
    --null -z --name-only --includes --no-includes --default --bool-or-int
    """
)
_SETS_CONFIG = words("--global --local --add --replace-all --unset --type --bool --int")


def check_git(call: Call) -> str:
    """What git does with these arguments beyond keeping versions; empty when nothing."""
    program, arguments = call.program, call.arguments
    called = base_name(program.name)
    if called.startswith("git-"):
        arguments = (called.removeprefix("git-"), *arguments)
    if program.cwd is None:
        return "it is not certain in which repository it runs; use && after cd"
    folder = program.cwd
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        flag = arguments[index]
        if flag in ("--help", "-h"):
            return _check_command(call, "help", arguments[index + 1 :], folder)
        if flag in _ABOUT and len(arguments) == index + 1:
            return ""
        if flag == "-C" and index + 1 < len(arguments):
            index += 1
            if not call.may_read(arguments[index], folder):
                return f"-C {REACHES}: another directory"
            folder = os.path.join(folder, arguments[index])
        elif flag not in _BEFORE:
            return _before(flag)
        index += 1
    if index == len(arguments):
        return ""
    command, rest = arguments[index], arguments[index + 1 :]
    if why := _check_command(call, command, rest, folder):
        return why
    if folder != program.cwd and (notes := repository_notes(folder)):
        return notes[0]
    return _check_place(call, command, rest, folder) or check_hooks(command, folder)


def _check_place(call: Call, command: str, rest: Sequence[str], folder: str) -> str:
    """Files are only made, changed and deleted where one works."""
    if command in _ANYWHERE:
        return ""
    if command in _FILLING:
        return _check_filled(call, command, rest, folder)
    try:
        repository = find_repository(folder)
    except ValueError as error:
        return str(error)
    for place in (folder, repository.top if repository is not None else folder):
        if not call.may_write(place):
            return f"{command} in a repository that is not in the workspace {WRITES}"
    return ""


def _check_filled(call: Call, command: str, rest: Sequence[str], folder: str) -> str:
    letters, names = _FILLING[command]
    words = [value for flag, value in read_options(rest, letters, names) if not flag]
    if command in ("clone", "worktree"):
        del words[0:1]
    for word in words or ["."]:
        if not call.may_write(word, folder):
            return f"{command} in a directory that is not in the workspace {WRITES}"
        # What is there already becomes a part of the repository.
        place = os.path.join(folder, word)
        parts = [f"{place}/{name}" for name in ("config", "hooks")]
        if command.startswith("init") and any(map(os.path.lexists, parts)):
            return f"{command} could take settings that are there already, and {RUNS}"
    return ""


def _before(flag: str) -> str:
    name = flag.partition("=")[0]
    if name in ("--config-env", "--exec-path", "-p", "--paginate"):
        return f"{name} {RUNS}"
    if name.startswith("-c"):
        return f"-c {RUNS}"
    if name in ("--git-dir", "--work-tree"):
        return f"{name} {REACHES}: another directory"
    return "what the flag before its sub-command does is not known"


def _check_command(call: Call, command: str, rest: Sequence[str], folder: str) -> str:
    if why := _DENIED.get(command):
        return f"{command} {why}"
    if command not in READING and command not in _WRITING:
        return "the sub-command is none of its own: an alias, or another program"
    for sheet in (_COMMON, _BY_COMMAND.get(command)):
        if sheet is not None and (why := find_flag(sheet, rest)):
            return f"{command} {why}"
    for word in _WORDS.get(command, ()):
        if word in rest:
            return f"{command} {word} {RUNS}"
    if command in _TRANSPORTS and any(map(_TRANSPORT.match, rest)):
        return f"an address with :: {RUNS}"
    if why := _check_files(call, command, rest, folder):
        return why
    if command in _MERGING:
        return _check_strategy(command, rest)
    if command == "push":
        return _check_push(rest, folder)
    if command == "config":
        return _check_config(rest)
    if command == "diff":
        return _check_diff(call, rest, folder)
    if command == "symbolic-ref" and sum(not text.startswith("-") for text in rest) > 1:
        return f"{command} {_PLUMBING}"
    return ""


def _check_files(call: Call, command: str, rest: Sequence[str], folder: str) -> str:
    """Files that become a message, or are shown, are ones that may be read."""
    letters, reading = _FILE_LETTERS.get(command, ("", ""))
    for flag, value in read_options(rest, letters, _FILES):
        named = len(flag) > 3 and any(name.startswith(flag) for name in _FILES)
        if (named or (flag[1:] in reading and len(flag) == 2)) and not (
            value == "-" or call.may_read(value, folder)
        ):
            return f"{command} {flag} {READS}"
    return ""


def _check_strategy(command: str, rest: Sequence[str]) -> str:
    """A strategy of another name is a program of its own."""
    for flag, value in read_options(rest, _MERGING[command], ("--strategy",)):
        strategy = len(flag) > 2 and "--strategy".startswith(flag)
        strategy = strategy or (flag == "-s" and "s" in _MERGING[command])
        if strategy and value not in _STRATEGIES:
            return f"{command} with a strategy that is none of its own {RUNS}"
    return ""


def _check_push(rest: Sequence[str], folder: str) -> str:
    found = list(read_options(rest, "o", ("--push-option", "--repo")))
    if any(len(flag) > 4 and "--repo".startswith(flag) for flag, _ in found):
        return f"push --repo {REACHES}"
    return check_push([value for flag, value in found if not flag], folder)


def check_push(words: Sequence[str], folder: str) -> str:
    """Where a push goes: into a directory of this machine, and the hooks there are started."""
    if words and is_far(words[0]):
        return ""
    try:
        repository = find_repository(folder)
        far, near = find_remotes(repository) if repository is not None else ((), ())
    except ValueError as error:
        return str(error)
    if near if not words else (words[0] not in far or REWRITTEN in near):
        return "push into a repository on this machine starts the programs in its hooks"
    return ""


def _check_config(rest: Sequence[str]) -> str:
    """Reading is fine, and so is setting what names no programs."""
    found = list(read_options(rest, "", ("--type", "--default")))
    words = [option.value for option in found if not option.flag]
    flags = {option.flag for option in found if option.flag}
    if flags & _READS_CONFIG or words[:1] in (["get"], ["list"]):
        return ""
    if len(words) < 2 and flags <= _ASKS_CONFIG and _WRITES_CONFIG.isdisjoint(words):
        return ""
    if words[:1] in (["set"], ["unset"]):
        del words[0]
    plain = words and (words[0].lower() in _PLAIN_KEYS or _PLAIN_KEY.fullmatch(words[0]))
    if plain and flags <= _SETS_CONFIG and not any("::" in word for word in words):
        return ""
    return "config changes a setting that could start programs"


def _check_diff(call: Call, rest: Sequence[str], folder: str) -> str:
    """Outside of the repository git compares any two files."""
    outside = [text for text in rest if text.startswith("/") or ".." in text.split("/")]
    if not outside:
        return ""
    try:
        repository = find_repository(folder)
    except ValueError as error:
        return str(error)
    for text in outside:
        try:
            place = os.path.realpath(os.path.join(folder, text))
        except ValueError:
            return f"diff {REACHES}: files elsewhere"
        inside = repository is not None and f"{place}/".startswith(f"{repository.top}/")
        if not inside and not call.may_read(place):
            return f"diff {REACHES}: files elsewhere"
    return ""


def check_hooks(command: str, folder: str) -> str:
    """Which programs of the repository git starts by itself."""
    if command in _NO_HOOKS:
        return ""
    try:
        repository = find_repository(folder)
    except ValueError as error:
        return str(error)
    hooks = find_hooks(repository) if repository is not None else ()
    if command in _FEW_HOOKS:
        hooks = tuple(name for name in hooks if name in _ANY_HOOKS)
    if not hooks:
        return ""
    return f"{command} starts programs of its repository ({', '.join(hooks[:3])} in its hooks)"

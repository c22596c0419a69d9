"""Git, everyday work: without hooks, changed settings, or programs of others but ssh."""

from __future__ import annotations

import os
import re
from types import MappingProxyType

from clawkit.approvals.allow.dangers.git import check_push
from clawkit.approvals.allow.presets.base import Call, Command, Preset, make_command, needs
from clawkit.approvals.allow.presets.git_read import BEFORE, READ, find_parts, make_around
from clawkit.approvals.base import Program

_REMOTE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9@][\w./@{}^~-]*(?::[A-Za-z0-9][\w./-]*)?", re.ASCII)

_NO_EDITOR = (
    *("-m", "--no-edit", "--ff-only", "--squash", "--abort", "--no-commit", "--quit"),
    *("--rebase", "-r"),
)
_MESSAGES = (
    *("-m", "--message", "--no-edit", "--fixup", "-C", "--reuse-message", "-F", "--file"),
    "--dry-run",
)
_QUIET = "-q --quiet -v --verbose"


def _by_name(call: Call) -> str:
    """Remotes by their names, branches by theirs: nothing that is forced, deleted or elsewhere."""
    for index, word in enumerate(call.words):
        if not (_REF if index else _REMOTE).fullmatch(word):
            return f"{call.command} only takes names of remotes and branches here"
    return ""


def _pushes(call: Call) -> str:
    return _by_name(call) or check_push(call.words, call.cwd)


def _merges(call: Call) -> str:
    if not call.has(*_NO_EDITOR):
        return f"{call.command} could open an editor; add --no-edit or --ff-only"
    return ""


def _pulls(call: Call) -> str:
    for flag, value in call.flags:
        if flag in ("--rebase", "-r") and value not in ("", "true", "false", "merges"):
            return f"{flag} with such a value could open an editor"
    return _merges(call) or _by_name(call)


def _commits(call: Call) -> str:
    fixes = (value for flag, value in call.flags if flag == "--fixup")
    if call.has(*_MESSAGES) and not any(":" in value for value in fixes):
        return ""
    return "commit could open an editor; add -m"


def _tags(call: Call) -> str:
    if call.has("-a", "--annotate") and not call.has("-m", "--message", "-F", "--file"):
        return "tag could open an editor; add -m"
    return ""


_WORK: dict[str, Command] = {
    "add": make_command(
        "-A --all --no-all -u --update -n --dry-run -v --verbose -f --force -N --intent-to-add "
        "--refresh --ignore-errors --ignore-missing --renormalize --chmod= --sparse",
        patterns=True,
    ),
    "commit": make_command(
        "-m= --message= -a --all --amend --no-edit -q --quiet -v --verbose --allow-empty "
        "--allow-empty-message --dry-run --short --branch --porcelain --long --author= --date= -s "
        "--signoff --no-signoff --fixup= -C= --reuse-message= -F=< --file=< --reset-author -i "
        "--include -o --only -u[=] --untracked-files[=] --status --no-status --trailer= "
        "--no-gpg-sign",
        patterns=True,
        check=_commits,
    ),
    "switch": make_command(
        "-c= --create= -d --detach --guess --no-guess -q --quiet --progress --no-progress -t "
        "--track[=] --no-track -m --merge --orphan= --ignore-other-worktrees",
        most=2,
    ),
    "checkout": make_command(
        "-b= -d --detach --guess --no-guess -q --quiet --progress --no-progress -t --track[=] "
        "--no-track -m --merge --ours --theirs --orphan= --overlay --no-overlay",
        patterns=True,
    ),
    "restore": make_command(
        "-s= --source= -S --staged -W --worktree -q --quiet --progress --no-progress --ours "
        "--theirs -m --merge --ignore-unmerged --overlay --no-overlay",
        patterns=True,
    ),
    "reset": make_command(
        "-q --quiet --soft --mixed -N --intent-to-add --refresh --no-refresh",
        patterns=True,
    ),
    "rm": make_command(
        "-f --force -n --dry-run -r --cached --ignore-unmatch -q --quiet", patterns=True
    ),
    "mv": make_command("-f --force -k -n --dry-run -v --verbose", patterns=True),
    "branch": make_command(
        "-a --all -r --remotes -v -q --quiet --verbose --list -l --contains=? --no-contains=? "
        "--merged=? --no-merged=? --show-current --sort= --format= --points-at= --column[=] "
        "--no-column -i --ignore-case --color[=] --no-color -m --move -c --copy -d --delete "
        "-u= --set-upstream-to= --unset-upstream -t --track[=] --no-track"
    ),
    "tag": make_command(
        "-l --list -n[=] --contains=? --no-contains=? --merged=? --no-merged=? --sort= --format= "
        "--points-at= --column[=] --no-column -i --ignore-case -a --annotate -m= --message= -F=< "
        "--file=< -d --delete --no-sign",
        check=_tags,
    ),
    "merge": make_command(
        "-m= --ff --no-ff --ff-only --squash --no-squash --commit --no-commit --no-edit --stat "
        "-n --no-stat --abort --quit --signoff -q --quiet -v --verbose --autostash --no-autostash "
        "--allow-unrelated-histories -X= --strategy-option= --no-gpg-sign",
        check=_merges,
    ),
    "rebase": make_command(
        "--onto= --abort --skip --quit --autostash --no-autostash -q --quiet -v --verbose "
        "--stat -n --no-stat --keep-base --root --committer-date-is-author-date --ignore-date "
        "--no-ff -X= --strategy-option= --update-refs",
        most=2,
    ),
    "cherry-pick": make_command(
        "-x -n --no-commit -m=# --mainline=# -s --signoff --ff --allow-empty "
        "--keep-redundant-commits --abort --skip --quit -X= --strategy-option="
    ),
    "revert": make_command(
        "--no-edit -n --no-commit -m=# --mainline=# -s --signoff --abort --skip --quit",
        check=needs(
            "--no-edit --no-commit -n --abort --skip --quit",
            "revert could open an editor; add --no-edit",
        ),
    ),
    "stash": make_command("-u --include-untracked -a --all -q --quiet -k --keep-index", most=0),
    "stash push": make_command(
        "-u --include-untracked -a --all -q --quiet -k --keep-index --no-keep-index -S --staged "
        "-m= --message=",
        patterns=True,
    ),
    "stash pop": make_command("--index -q --quiet", most=1),
    "stash apply": make_command("--index -q --quiet", most=1),
    "stash drop": make_command("-q --quiet", most=1),
    "fetch": make_command(
        _QUIET,
        "--all -p --prune -P --prune-tags -t --tags -n --no-tags --depth=# --deepen=# --unshallow "
        "--dry-run --progress --no-progress -j=# --jobs=# -4 -6 --no-recurse-submodules --atomic "
        "--shallow-since= --porcelain",
        check=_by_name,
    ),
    "pull": make_command(
        _QUIET,
        "--ff-only --ff --no-ff --rebase[=] -r[=] --no-rebase --no-edit --autostash --no-autostash "
        "-p --prune -t --tags --no-tags --depth=# --unshallow --progress --no-progress --stat -n "
        "--no-stat -4 -6 --no-recurse-submodules --squash --no-commit",
        check=_pulls,
    ),
    "push": make_command(
        _QUIET,
        "-u --set-upstream --tags --follow-tags --all --branches -n --dry-run --porcelain "
        "--progress --no-progress --atomic -4 -6",
        check=_pushes,
    ),
}


def _find_parts(program: Program) -> tuple[str, ...]:
    """Its own parts, and what carries it to other machines; its settings are the person's."""
    return (*find_parts(program), *(path for path in ("/usr/bin/ssh",) if os.path.isfile(path)))


GIT = Preset(
    "everyday work in a repository of the workspace, without hooks or changes of its settings",
    frozenset({"git"}),
    MappingProxyType({**READ, **_WORK}),
    _find_parts,
    before=BEFORE,
    moves="-C",
    around=make_around(_WORK),
)

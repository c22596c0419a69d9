"""Git, only looking: nothing in the repository changes."""

from __future__ import annotations

import os
from collections.abc import Container
from types import MappingProxyType

from clawkit.approvals.allow.dangers.git import check_hooks
from clawkit.approvals.allow.presets.base import (
    Call,
    Check,
    Command,
    Preset,
    make_command,
    may_use,
    options,
)
from clawkit.approvals.allow.repository import find_repository, repository_notes
from clawkit.approvals.base import Program

_CORE = ("/usr/lib/git-core", "/usr/libexec/git-core", "/usr/local/libexec/git-core")
_PICK = (
    "--all --branches[=] --tags[=] --remotes[=] --glob= --exclude= -n=# --max-count=# -# --skip=# "
    "--since= --after= --until= --before= --author= --committer= --grep= --all-match --invert-grep "
    "-i --regexp-ignore-case -E --extended-regexp -F --fixed-strings -P --perl-regexp --reverse "
    "--first-parent --merges --no-merges --min-parents=# --max-parents=# --topo-order --date-order "
    "--author-date-order --full-history --simplify-merges --simplify-by-decoration --ancestry-path "
    "--cherry-pick --cherry-mark --cherry --left-right --left-only --right-only --boundary "
    "--no-walk[=] -g --walk-reflogs --not --show-pulls --dense --sparse --remove-empty --parents "
    "--children --objects --count"
)
_SHOW = (
    "--oneline --format= --pretty[=] --abbrev-commit --no-abbrev-commit --abbrev[=] --no-abbrev "
    "--date= --relative-date --decorate[=] --no-decorate --decorate-refs= --graph --no-graph "
    "--source --notes[=] --no-notes --encoding= --expand-tabs[=] --no-expand-tabs --log-size "
    "--clear-decorations --no-mailmap --mailmap"
)
_DIFF = (
    "-p -u --patch -s --no-patch -U=# --unified=# --raw --patch-with-raw --minimal --patience "
    "--histogram --diff-algorithm= --stat[=] --compact-summary --numstat --shortstat --dirstat[=] "
    "--cumulative --summary --patch-with-stat -z --name-only --name-status --submodule[=] "
    "--color[=] --no-color --color-moved[=] --no-color-moved --word-diff[=] --word-diff-regex= "
    "--color-words[=] --no-renames --check --full-index --binary --abbrev[=] -M[=] "
    "--find-renames[=] -C[=] --find-copies[=] --find-copies-harder -D --irreversible-delete "
    "--diff-filter= -S= -G= --pickaxe-all --pickaxe-regex -R --relative[=] --no-relative -a --text "
    "--ignore-cr-at-eol --ignore-space-at-eol -b --ignore-space-change -w --ignore-all-space "
    "--ignore-blank-lines --inter-hunk-context=# -W --function-context --exit-code --quiet "
    "--no-ext-diff --no-textconv --ignore-submodules[=] --src-prefix= --dst-prefix= --no-prefix "
    "--default-prefix --line-prefix= --ita-invisible-in-index -m -c --cc --combined-all-paths "
    "-L= --follow --full-diff -t -r"
)


def _lists_only(call: Call) -> str:
    """Without --list a name is one to make."""
    if call.operands and not call.has("-l", "--list"):
        return f"{call.command} with a name needs --list here"
    return ""


def _reads_config(call: Call) -> str:
    words = call.words
    if call.has("-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch"):
        return ""
    if words[:1] in (["get"], ["list"]) or (len(words) == 1 and "." in words[0]):
        return ""
    return "config is only for reading here"


READ: dict[str, Command] = {
    "status": make_command(
        "-s --short -b --branch --show-stash --porcelain[=] --long -v --verbose -u[=] "
        "--untracked-files[=] --ignore-submodules[=] --ignored[=] -z --column[=] --no-column "
        "--ahead-behind --no-ahead-behind --renames --no-renames --find-renames[=]",
        patterns=True,
    ),
    "log": make_command(_PICK, _SHOW, _DIFF, patterns=True),
    "show": make_command(_PICK, _SHOW, _DIFF, patterns=True),
    "whatchanged": make_command(_PICK, _SHOW, _DIFF, patterns=True),
    "reflog": make_command(_PICK, _SHOW, most=0),
    "reflog show": make_command(_PICK, _SHOW),
    "diff": make_command(
        _DIFF, "--cached --staged --merge-base -1 -2 -3 -0 --base --ours --theirs", patterns=True
    ),
    "diff-tree": make_command(
        _DIFF, "--root --stdin --no-commit-id --pretty[=] --format= --always"
    ),
    "diff-index": make_command(_DIFF, "--cached --merge-base"),
    "diff-files": make_command(_DIFF, "-q -0 -1 -2 -3"),
    "range-diff": make_command(
        _DIFF, "--creation-factor=# --no-dual-color --left-only --right-only"
    ),
    "shortlog": make_command(
        _PICK, "-s --summary -n --numbered -e --email -w[=] --group= -c --committer --format="
    ),
    "rev-list": make_command(
        _PICK, _SHOW, "--header --timestamp --disk-usage[=] --use-bitmap-index"
    ),
    "branch": make_command(
        "-a --all -r --remotes -v -q --verbose --list -l --contains=? --no-contains=? --merged=? "
        "--no-merged=? --show-current --sort= --format= --points-at= --column[=] --no-column "
        "-i --ignore-case --color[=] --no-color --abbrev[=] --no-abbrev",
        check=_lists_only,
    ),
    "tag": make_command(
        "-l --list -n[=] --contains=? --no-contains=? --merged=? --no-merged=? --sort= --format= "
        "--points-at= --column[=] --no-column -i --ignore-case --color[=]",
        check=_lists_only,
    ),
    "ls-files": make_command(
        "-c --cached -d --deleted -m --modified -o --others -i --ignored -s --stage -u --unmerged "
        "-k --killed -t -v -f -z --directory --no-empty-directory --eol --error-unmatch -x= "
        "--exclude= --exclude-standard --full-name --abbrev[=] --format= --deduplicate "
        "--recurse-submodules",
        patterns=True,
    ),
    "ls-tree": make_command(
        "-d -r -t -l --long -z --name-only --name-status --object-only --full-name --full-tree "
        "--abbrev[=] --format=",
        patterns=True,
    ),
    "rev-parse": make_command(
        "--verify -q --quiet --short[=] --abbrev-ref[=] --symbolic --symbolic-full-name --all "
        "--branches[=] --tags[=] --remotes[=] --show-toplevel --show-prefix --show-cdup --git-dir "
        "--absolute-git-dir --git-common-dir --is-inside-work-tree --is-inside-git-dir "
        "--is-bare-repository --is-shallow-repository --show-superproject-working-tree "
        "--show-object-format[=] --path-format= --sq --not --revs-only --no-revs --flags "
        "--no-flags --default= --git-path="
    ),
    "blame": make_command(
        "-b --root --show-stats -L= -l -t -p --porcelain --line-porcelain --incremental --date= "
        "--progress --no-progress -M[=] -C[=] -f --show-name -n --show-number -s -e --show-email "
        "-w --abbrev=# --reverse= --since= --first-parent --color-lines --color-by-age "
        "--ignore-rev=",
        most=3,
    ),
    "grep": make_command(
        "-i --ignore-case -w --word-regexp -v --invert-match -h -H -n --line-number --column -l "
        "--files-with-matches --name-only -L --files-without-match -z --null -c --count -o "
        "--only-matching --color[=] --no-color --break --heading -p --show-function -W "
        "--function-context -A=# --after-context=# -B=# --before-context=# -C=# --context=# -m=# "
        "--max-count=# -# -e= --and --or --not --all-match -q --quiet -E --extended-regexp -G "
        "--basic-regexp -P --perl-regexp -F --fixed-strings -a --text -I -r --recursive "
        "--no-recursive --max-depth=# --cached --untracked --no-exclude-standard "
        "--exclude-standard --full-name --threads=# --recurse-submodules",
        patterns=True,
    ),
    "describe": make_command(
        "--dirty[=] --broken[=] --all --tags --contains --abbrev=# --candidates=# --exact-match "
        "--debug --long --match= --exclude= --always --first-parent"
    ),
    "remote": make_command("-v --verbose", most=0),
    "remote get-url": make_command("--all --push", most=1),
    "stash list": make_command(_PICK, _SHOW, most=0),
    "stash show": make_command(_DIFF, "--include-untracked --only-untracked", most=1),
    "config": make_command(
        "--get --get-all --get-regexp --get-urlmatch -l --list --local --global --system "
        "--worktree --show-origin --show-scope --name-only -z --null --type= --bool --int --path "
        "--default= --includes --no-includes",
        most=3,
        check=_reads_config,
    ),
    "cat-file": make_command("-t -s -e -p --allow-unknown-type", most=2),
    "merge-base": make_command("-a --all --octopus --independent --is-ancestor --fork-point"),
    "merge-tree": make_command("--write-tree --name-only -z --messages --no-messages"),
    "name-rev": make_command("--tags --refs= --exclude= --all --name-only --no-undefined --always"),
    "for-each-ref": make_command(
        "--count=# --sort= --format= --color[=] --points-at= --merged=? --no-merged=? "
        "--contains=? --no-contains=? --ignore-case"
    ),
    "show-ref": make_command(
        "--head --heads --branches --tags -d --dereference -s --hash[=] --verify --abbrev[=] -q "
        "--quiet --exists"
    ),
    "symbolic-ref": make_command("-q --quiet --short --recurse --no-recurse", most=1),
    "show-branch": make_command(
        "-a --all -r --remotes --current --topo-order --list --no-name --more=#"
    ),
    "check-ignore": make_command("-q --quiet -v --verbose -n --non-matching --no-index -z"),
    "check-attr": make_command("-a --all --cached -z"),
    "count-objects": make_command("-v --verbose -H --human-readable", most=0),
    "worktree list": make_command("--porcelain -z -v --verbose", most=0),
    "notes list": make_command("", most=1),
    "notes show": make_command("", most=1),
    "cherry": make_command("-v --abbrev[=]", most=3),
    "version": make_command("--build-options", most=0),
    "--version": make_command("", most=0),
}


def make_around(working: Container[str]) -> Check:
    """A check that the repository belongs to the workspace, and starts nothing by itself."""

    def check(call: Call) -> str:
        if call.cwd != call.program.cwd and (notes := repository_notes(call.cwd)):
            return notes[0]
        try:
            repository = find_repository(call.cwd)
        except ValueError as error:
            return str(error)
        if repository is None:
            return "there is no repository"
        writes = call.command in working
        for folder in (repository.top, repository.folder, repository.common):
            # What may be done in a directory is told by a file that could be there.
            file = os.path.join(folder, "file")
            if not may_use(call, file, writes=writes and folder == repository.top):
                return "its repository is not in the workspace"
        return check_hooks(call.command.partition(" ")[0], call.cwd)

    return check


def find_parts(program: Program) -> tuple[str, ...]:
    """Its own parts, which lie in a directory of their own."""
    prefix = os.path.dirname(os.path.dirname(program.real))
    places = (f"{prefix}/lib/git-core", f"{prefix}/libexec/git-core", *_CORE)
    return tuple(dict.fromkeys(place for place in places if os.path.isdir(place)))


BEFORE = options(
    "-C=< -P --no-pager --no-optional-locks --no-replace-objects --literal-pathspecs "
    "--glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-advice"
)

GIT_READ = Preset(
    "looking at a repository of the workspace, changing nothing",
    frozenset({"git"}),
    MappingProxyType(READ),
    find_parts,
    before=BEFORE,
    moves="-C",
    around=make_around(()),
)

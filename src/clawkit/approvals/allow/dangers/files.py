"""Programs whose work it is to write files: where they may."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from clawkit.approvals.allow.dangers.known import Given, make_known, read_known, take, unknown
from clawkit.approvals.allow.dangers.sheet import (
    DELETES,
    RUNS,
    WRITES,
    Call,
    Option,
    read_options,
)
from clawkit.approvals.operands import base_name

_TAR = make_known(
    """
    -x -c -t -r -u -d -v -z -j -J -a -k -p -h -m -o -S -O -B -i -n -l -w -U
    -f= -C= -b= -X=< -N= -H= -V= -K=
    --extract --get --create --list --append --update --diff --compare --verbose --gzip --gunzip
    --ungzip --bzip2 --xz --lzma --lzip --zstd --auto-compress --no-auto-compress --file=
    --directory= --exclude= --exclude-from=< --exclude-vcs --exclude-vcs-ignores --exclude-caches
    --exclude-backups --exclude-tag= --strip-components= --wildcards --no-wildcards --anchored
    --no-anchored --ignore-case --keep-old-files --skip-old-files --keep-newer-files --overwrite
    --unlink-first --preserve-permissions --same-permissions --no-same-permissions --same-owner
    --no-same-owner --numeric-owner --owner= --group= --mode= --mtime= --sort= --format=
    --totals[=] --checkpoint[=] --to-stdout --touch --dereference --no-recursion --recursion
    --one-file-system --sparse --acls --no-acls --xattrs --no-xattrs --selinux --no-selinux
    --force-local --warning= --utc --full-time --block-number --help --usage --version --label=
    --hard-dereference --occurrence[=] --one-top-level[=] --newer= --newer-mtime= --after-date=
    --blocking-factor= --ignore-zeros
    """
)
_TAKES_OUT = ("-x", "--extract", "--get")
_PUTS_IN = ("-c", "--create", "-r", "--append", "-u", "--update")

_ZIP = make_known(
    """
    -r -q -v -j -y -X -D -u -f -o -x -i -9 -8 -7 -6 -5 -4 -3 -2 -1 -0 -l -S -h -n= -Z=
    --recurse-paths --quiet --verbose --junk-paths --symlinks --help --version --exclude --include
    """
)
_UNZIP = make_known("-l -t -p -c -q -o -n -j -v -u -f -a -b -L -C -x -V -X -K -Z -1 -h -P= -d=")
_UNZIP_SHOWS = ("-l", "-t", "-p", "-c", "-v", "-Z", "-h")

_COPY = make_known(
    """
    -a -b -d -f -i -H -l -L -n -p -P -r -R -s -u -v -x -T -D -c -g= -m= -o= -S= -t= --archive
    --backup[=] --force --interactive --link --dereference --no-dereference --no-clobber
    --preserve[=] --no-preserve= --recursive --reflink[=] --sparse= --symbolic-link --suffix=
    --target-directory= --no-target-directory --update[=] --verbose --one-file-system --debug
    --parents --directory --compare --group= --mode= --owner= --strip --relative --symbolic
    --logical --physical --strip-trailing-slashes --remove-destination --exchange --no-copy
    --attributes-only --help --version
    """
)
_LINKS = ("-s", "-l", "--symbolic", "--symbolic-link", "--link")
_SHOWS = frozenset(("-c", "--stdout", "--to-stdout", "-l", "--list", "-t", "--test"))

_XXD_VALUED = re.compile(r"--?(?:c|cols|g|l|len|o|s|seek|n|name|R)")

_PATCH = make_known(
    """
    -N --forward -R --reverse -s --silent --quiet -u --unified -E --remove-empty-files -b --backup
    -f --force -t --batch -l --ignore-whitespace --dry-run --verbose --binary --merge[=] -p=
    --strip= -i=< --input=< -d= --directory= -o=> --output=> -r=> --reject-file=> -F= --fuzz= -h
    --help -v --version
    """
)


def check_tar(call: Call) -> str:
    """Archives and their files stay where one works."""
    given = _read_tar(call)
    if given.why:
        return given.why
    local = given.has("--force-local")
    archives = given.values("-f", "--file")
    if not local and any(":" in each.partition("/")[0] for each in archives):
        return f"an archive with a colon in its name is on another machine, so it {RUNS}"
    if given.has(*_PUTS_IN) and not all(map(call.may_write, archives)):
        return f"its archive is not in the workspace, and it {WRITES}"
    if given.has(*_TAKES_OUT) and not given.has("-O", "--to-stdout"):
        folders = [".", *given.values("--one-top-level")]
        for folder in given.values("-C", "--directory"):
            folders.append(os.path.join(folders[-1] if folders[-1:] != [""] else ".", folder))
        if not all(call.may_write(folder or ".") for folder in folders):
            return f"where it takes files out, it {WRITES}"
    return ""


def _read_tar(call: Call) -> Given:
    """The first word needs no dash; then the values of its letters follow in their order."""
    first = call.arguments[:1]
    if not first or first[0].startswith("-"):
        return read_known(call, _TAR)
    rest = list(reversed(call.arguments[1:]))
    found: list[Option] = []
    for letter in first[0]:
        kind = _TAR.kinds.get(f"-{letter}")
        why = (
            unknown(f"-{letter}")
            if kind is None
            else take(call, f"-{letter}", kind, None, rest, found)
        )
        if why:
            return Given(found, why)
    given = read_known(call, _TAR, tuple(reversed(rest)))
    return Given([*found, *given.options], given.why)


def check_zip(call: Call) -> str:
    """Which name is the archive depends on its flags, so all of them count."""
    given = read_known(call, _ZIP)
    if not given.why and not all(map(call.may_write, given.operands)):
        return f"outside of the workspace it {WRITES}"
    return given.why


def check_unzip(call: Call) -> str:
    """Files are taken out where one works."""
    given = read_known(call, _UNZIP)
    if given.why or given.has(*_UNZIP_SHOWS) or not given.operands:
        return given.why
    folders = given.values("-d") or ["."]
    return "" if all(map(call.may_write, folders)) else f"where it takes files out, it {WRITES}"


def check_copy(call: Call) -> str:
    """cp, mv, install and ln: what is written, and what is linked to, is where one works."""
    given = read_known(call, _COPY)
    if given.why:
        return given.why
    operands = given.operands
    targets = given.values("-t", "--target-directory")
    if not targets and len(operands) > 1 and not given.has("-d", "--directory"):
        targets, operands = operands[-1:], operands[:-1]
    tool = base_name(call.program.name)
    linking = tool == "ln" or given.has(*_LINKS)
    symbolic = given.has("-s", "--symbolic", "--symbolic-link")
    moves = tool == "mv" or (given.has("-d", "--directory") and tool == "install")
    for target in targets or ["."]:
        if not call.may_write(target):
            return f"outside of the workspace it {WRITES}"
        for name in operands:
            if not call.may_write(f"{target}/{base_name(name.rstrip('/'))}"):
                return f"outside of the workspace it {WRITES}"
            if linking and not _may_link(call, name, target, symbolic=symbolic):
                return f"a link that leads elsewhere {WRITES}"
    if moves and not all(map(call.may_write, operands)):
        return f"outside of the workspace it {WRITES} or {DELETES}"
    return ""


def _may_link(call: Call, name: str, target: str, *, symbolic: bool) -> bool:
    """Whatever could be written through a link must be a file that may be."""
    beside = os.path.dirname(target.rstrip("/"))
    starts = (target, beside) if symbolic else ("",)
    return all(call.may_write(os.path.join(start, name)) for start in starts)


def check_names(call: Call) -> str:
    """Everything named must be a file that may be changed."""
    names = [value for flag, value in read_options(call.arguments, "") if not flag]
    flags = (text for text in call.arguments if text.startswith("--") and "=" in text)
    values = [text.partition("=")[2] for text in flags]
    if all(map(call.may_write, (*names, *filter(None, values)))):
        return ""
    return f"outside of the workspace it {WRITES}"


def check_packer(call: Call) -> str:
    """gzip and the like write beside what they read."""
    flags = {flag for flag, _ in read_options(call.arguments, "")}
    if any(flag == "-o" or flag.startswith("--out") for flag in flags):
        return f"-o {WRITES}"
    return "" if flags & _SHOWS else check_names(call)


def check_dd(call: Call) -> str:
    """What it writes is where one works."""
    for text in call.arguments:
        if text.startswith("of=") and not call.may_write(text[3:]):
            return f"of= {WRITES}"
    return ""


def check_patch(call: Call) -> str:
    """Files are changed where one works."""
    given = read_known(call, _PATCH)
    if given.why:
        return given.why
    folders = given.values("-d", "--directory") or ["."]
    operands = given.operands[:1]
    if not all(map(call.may_write, folders)):
        return f"outside of the workspace it {WRITES}"
    if not all(call.may_write(os.path.join(folders[-1], each)) for each in operands):
        return f"outside of the workspace it {WRITES}"
    return ""


def check_tee(call: Call) -> str:
    """Files that may be changed only."""
    values = [value for flag, value in read_options(call.arguments, "") if not flag]
    return "" if all(map(call.may_write, values)) else f"outside of the workspace it {WRITES}"


def check_sort(call: Call) -> str:
    """Its output may go to a file of the workspace."""
    for flag, value in _long(call, "koStT", "--output"):
        if flag == "-o" and not call.may_write(value):
            return f"{flag} {WRITES}"
    return ""


def check_shuf(call: Call) -> str:
    """Its output may go to a file of the workspace."""
    for flag, value in _long(call, "ion", "--output"):
        if flag == "-o" and not call.may_write(value):
            return f"{flag} {WRITES}"
    return ""


def _long(call: Call, letters: str, name: str) -> Iterator[Option]:
    """Options, with the long form of -o, or a short form of that, told as `-o`."""
    for flag, value in read_options(call.arguments, letters, (name,)):
        is_output = len(flag) > 2 and name.startswith(flag)
        yield Option("-o" if is_output else flag, value)


def check_uniq(call: Call) -> str:
    """A second name is a file to write."""
    names = _names(call, "fsw", ("--skip-fields", "--skip-chars", "--check-chars"))
    return "" if all(map(call.may_write, names[1:])) else f"its second name {WRITES}"


def check_xxd(call: Call) -> str:
    """A second name is a file to write."""
    names = 0
    for before, text in zip(("", *call.arguments), call.arguments, strict=False):
        names += not text.startswith("-") and not _XXD_VALUED.fullmatch(before)
    return f"its second name {WRITES}" if names > 1 else ""


def check_split(call: Call) -> str:
    """Its pieces go where one works."""
    names = _names(
        call, "abCln", ("--suffix-length", "--bytes", "--line-bytes", "--lines", "--number")
    )
    prefix = names[1] if len(names) > 1 else "x"
    return "" if call.may_write(f"{prefix}aa") else f"outside of the workspace it {WRITES}"


def _names(call: Call, letters: str, long: Sequence[str]) -> list[str]:
    return [value for flag, value in read_options(call.arguments, letters, long) if not flag]

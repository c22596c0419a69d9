"""Worktrees of sub-agents: a commit checked out for one task, and the changes that the task made.

A worktree is a separate repository that borrows the objects of the original: it does not use the
settings, hooks or attributes of the original, and nothing is ever written to that. The contents of
a finished worktree may be hostile. So the diff is made with a second git directory, which the
sub-agent cannot reach and which has only our settings, by a git process that the kernel prevents
from writing anywhere else.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from clawkit.config.paths import worktrees_dir
from clawkit.errors import ToolError, ToolInputError
from clawkit.process import landlock
from clawkit.process.confine import start_helper
from clawkit.process.environ import DEFAULT_PATH
from clawkit.process.landlock import SYSTEM, Hold
from clawkit.sessions.subagent_protocols import Worktree
from clawkit.store import private_dir
from clawkit.text import cut, one_line

MAX_SHOWN = 6_000
"""Characters of a patch in a result; the whole patch is in a file."""
MAX_STAT = 2_000
MAX_PATCH = 256 << 20  # bytes
MAX_MEMORY = 4 << 30  # bytes
TIMEOUT_S, PLAN_TIMEOUT_S = 60.0, 5.0  # seconds per git command; planning blocks the event loop
_MAX_READ = 1 << 20  # bytes of a patch that are read
_BINARY = re.compile(r"^GIT binary patch\n(?:[^\n]+\n|\n(?=literal |delta ))*", re.MULTILINE)
# safe.directory guards against programs that a repository makes git run; this git runs none.
_SETTINGS = """core.hooksPath=/dev/null core.fsmonitor=false core.pager=cat protocol.allow=never
    safe.directory=* advice.addEmbeddedRepo=false"""
_OPTIONS = tuple(word for each in _SETTINGS.split() for word in ("-c", each))
_VARIABLES = f"""PATH={DEFAULT_PATH} LC_ALL=C HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1
    GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=none
    GIT_NO_LAZY_FETCH=1 GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0"""
_ENV = dict(each.split("=", 1) for each in _VARIABLES.split())
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_DIFF = ("diff", "--cached", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


class GitError(ToolError):
    """A git command failed."""


def plan_worktree(workspace: str, requester: str) -> Worktree:
    """Plan a worktree of the last commit of the workspace's repository; `requester` is the key of
    the requester. Creates nothing yet. Raises `ToolInputError`."""
    try:
        found = _git("rev-parse", "--show-toplevel", "--absolute-git-dir", cwd=workspace)
        more = ("--path-format=absolute", "--git-path", "objects", "--show-prefix")
        found += _git("rev-parse", *more, cwd=workspace)
    except GitError as error:
        raise ToolInputError(
            f"worktree: {workspace!r} is not in a git repository: {error}"
        ) from None
    try:
        commit = _git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=workspace)
    except GitError:
        raise ToolInputError("worktree: the repository has no commit yet; commit first") from None
    text = found.decode("utf-8", "replace")
    lines = text.split("\n")
    if len(lines) != 5 or "\ufffd" in text:
        raise ToolInputError(
            "worktree: the path of the repository has a line break, or is not text"
        )
    top, git_dir, objects, prefix, _ = lines
    if not _belongs(git_dir, top):
        raise ToolInputError(
            f"worktree: the git directory {git_dir!r} is not in the repository; worktrees of "
            "submodules are not supported"
        )
    place = os.path.join(worktrees_dir(os.environ, requester), os.urandom(8).hex())
    return Worktree(place, top, prefix, objects, commit.decode().strip())


def _belongs(git_dir: str, top: str) -> bool:
    """Whether a git directory belongs to a work tree, and is not merely named by a file in it."""
    if git_dir == os.path.join(top, ".git"):
        return True
    with suppress(OSError), open(os.path.join(git_dir, "gitdir"), encoding="utf-8") as file:
        back = os.path.join(git_dir, file.read(4096).strip())
        return os.path.realpath(back) == os.path.realpath(os.path.join(top, ".git"))
    return False


def make_worktree(worktree: Worktree, is_denied: Callable[[str], bool]) -> None:
    """Check the commit out. `is_denied` says whether a path of the repository must not appear in
    the worktree. Blocks. Raises `ToolError` and leaves the cleanup to `finish_worktree`."""
    tree, own = worktree.tree, os.path.join(worktree.tree, ".git")
    private_dir(tree)
    _git("init", "--quiet", "--template=", ".", cwd=tree, place=worktree.place)
    for name, text in (("objects/info/alternates", worktree.objects), ("HEAD", worktree.commit)):
        os.makedirs(os.path.dirname(os.path.join(own, name)), exist_ok=True)
        with open(os.path.join(own, name), "wb") as file:
            file.write(os.fsencode(f"{text}\n"))
    _git("read-tree", "--reset", "-u", worktree.commit, git_dir=own, worktree=worktree)
    listed = _git("ls-files", "--stage", "-z", git_dir=own, worktree=worktree)
    entries = [line.partition(b"\t") for line in listed.split(b"\0")[:-1]]
    files = [os.fsdecode(entry[2]) for entry in entries]
    if hidden := next(filter(is_denied, files), None):
        raise ToolError(
            f"worktree: tools.rules denies {hidden!r} in the workspace, and its copy would not be "
            "denied; deny it by a path from the workspace"
        )
    if worktree.prefix and not any(each.startswith(worktree.prefix) for each in files):
        raise ToolError(f"worktree: {worktree.prefix!r} is not in the last commit")
    # Moved into place when complete: its existence means that the sub-agent may have worked.
    new = f"{worktree.git_dir}.new"
    shutil.copytree(own, new, symlinks=True)
    # Files added to the empty directory of a submodule must show up in the diff.
    links = b"".join(name + b"\0" for about, _, name in entries if about.startswith(b"160000"))
    remove = ("update-index", "-z", "--force-remove", "--stdin")
    _git(*remove, git_dir=new, worktree=worktree, given=links)
    base = _git("write-tree", git_dir=new, worktree=worktree)
    with open(os.path.join(new, "base"), "wb") as file:
        file.write(base.strip())
    os.rename(new, worktree.git_dir)


def finish_worktree(worktree: Worktree) -> str:
    """Describe the changes in a worktree, with untrusted text quoted; removes the worktree if there
    are none. Blocks; never raises."""
    if not os.path.isdir(worktree.git_dir):
        shutil.rmtree(worktree.place, ignore_errors=True)
        return ""
    place, about = worktree.place, f"its worktree of commit {worktree.commit[:10]}"
    try:
        said = _describe(worktree)
    except (ToolError, OSError) as error:
        said = f"[could not be determined: {error}]"
    if not said:
        with suppress(OSError):
            os.rename(worktree.git_dir, f"{worktree.git_dir}.gone")
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # other worktrees may be left in it
            os.rmdir(os.path.dirname(place))
        return f"It changed nothing in {about}, which was removed."
    apply = f"git -C {shlex.quote(worktree.repository)} apply {shlex.quote(worktree.patch)}"
    lines = [
        f"Changes in {about}, which is kept: {worktree.tree}",
        *(f"> {line}" for line in said.splitlines()),
        f"To apply them to the workspace: {apply}",
        f"To remove it: rm -rf {shlex.quote(place)}",
    ]
    return "\n".join(lines)


def _describe(worktree: Worktree) -> str:
    """A summary of the changes, and the patch as far as there is room; empty for none."""

    def git(*arguments: str, output: str = "") -> str:
        found = _git(*arguments, git_dir=worktree.git_dir, worktree=worktree, output=output)
        return found.decode("utf-8", "replace")

    with open(os.path.join(worktree.git_dir, "base"), encoding="ascii") as file:
        base = file.read()
    with suppress(FileNotFoundError):  # left by a process that was killed
        os.unlink(os.path.join(worktree.git_dir, "index.lock"))
    trouble = ""
    try:
        git("add", "--all", "--ignore-errors", ".")
    except GitError as error:
        trouble = f"[not all of it is known: {error}]"
    git(*_DIFF, "--binary", base, "--", output=worktree.patch)
    stat = git(*_DIFF, "--stat=100", "--stat-count=30", base, "--")
    with open(worktree.patch, "rb") as patch:
        text = _BINARY.sub("(binary)\n", patch.read(_MAX_READ).decode("utf-8", "replace"))
    more = f"[all of it is in {worktree.patch}]" if len(text) > MAX_SHOWN else ""
    parts = (cut(stat.rstrip(), MAX_STAT), cut(text, MAX_SHOWN), more, trouble)
    return "\n".join(filter(None, parts))


def _git(
    *arguments: str,
    cwd: str = "",
    git_dir: str = "",
    worktree: Worktree | None = None,
    place: str = "",
    given: bytes = b"",
    output: str = "",
) -> bytes:
    """Run git and return its output, or write that to the file `output`. It can only write below
    `place`, or the worktree's directory if a worktree is given. Raises `ToolError`; `GitError` if
    git itself failed."""
    program = shutil.which("git", path=DEFAULT_PATH)
    if program is None:
        raise ToolInputError("worktree: git is not installed")
    env, timeout_s = _ENV, TIMEOUT_S if worktree or place else PLAN_TIMEOUT_S
    if worktree is not None:
        env = {**_ENV, "GIT_DIR": git_dir, "GIT_WORK_TREE": worktree.tree}
        cwd, place = worktree.tree, worktree.place
    hold = Hold(read=("/",), run=SYSTEM, write=(place,) if place else ())
    target = os.open(output, _WRITE, 0o600) if output else subprocess.PIPE
    try:
        process = start_helper(
            (program, *_OPTIONS, *arguments),
            cwd=cwd,
            env=env,
            hold=hold if landlock.available() else None,
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise ToolError(f"git cannot be started: {error.strerror}") from None
    finally:
        if output:
            os.close(target)
    with process:
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
            if output:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_PATCH, MAX_PATCH))
        try:
            said, errors = process.communicate(given, timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise ToolError(f"git {arguments[0]} took longer than {timeout_s:g} s") from None
    if process.returncode:
        words = re.sub(r"^(fatal|error): ", "", errors.decode("utf-8", "replace").strip())
        raise GitError(
            one_line(words, 300) or f"git {arguments[0]} ended with {process.returncode}"
        )
    return said or b""

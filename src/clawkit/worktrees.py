"""Worktrees of sub-agents: a commit checked out for one task, and the changes that the task made.

A worktree is a separate repository that borrows the objects of the original: it does not use the
settings, hooks or attributes of the original, and never writes to it. Both may be hostile: the
repository can name any file as its objects, and the finished worktree can name programs to run. So
the kernel lets git read only the `.git` of the repository and write only the worktree, git's error
texts (which may quote files) are not passed on, and the diff is made with a second git directory
that the sub-agent cannot reach.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress

from clawkit.config.paths import worktrees_dir
from clawkit.errors import ToolError, ToolInputError
from clawkit.process import landlock
from clawkit.process.confine import start_helper
from clawkit.process.environ import DEFAULT_PATH
from clawkit.process.landlock import SYSTEM, Hold
from clawkit.sandbox.tree_removal import remove_tree
from clawkit.sessions.subagent_protocols import Worktree
from clawkit.store import private_dir
from clawkit.text import cut, one_line

log = logging.getLogger(__name__)
MAX_SHOWN = 6_000
"""Characters of a patch in a result; the whole patch is in a file."""
MAX_STAT = 2_000
MAX_PATCH = 256 << 20  # bytes
MAX_FILE = 4 << 30  # bytes of any other file that git writes
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
_OWN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEPS = {
    "init": "make a repository",
    "rev-parse": "read the repository",
    "read-tree": "check out the last commit: part of it may be missing, or outside the repository",
    "add": "read all files",
    "diff": "compare the files",
}


class GitError(ToolError):
    """A git command failed."""


def plan_worktree(workspace: str, requester: str) -> Worktree:
    """Plan a worktree of the last commit of a workspace's repository, for a sub-agent of the
    session with the key `requester`; creates nothing. Raises `ToolInputError`."""
    top = real = os.path.realpath(workspace)
    while not os.path.lexists(own := os.path.join(top, ".git")):
        if top == "/":
            raise ToolInputError(f"worktree: {workspace!r} is not in a git repository")
        top = os.path.dirname(top)
    if not real.isprintable():
        raise ToolInputError(
            f"worktree: the path {real!r} has a line break or other characters that are not text"
        )
    if _has_parts_elsewhere(own):
        raise ToolInputError(
            f"worktree: parts of the repository are outside {own!r}, which git may not read. "
            "That is the case in submodules, shared clones and worktrees; use a full clone as the "
            "workspace, or omit `worktree`"
        )
    try:
        found = _git("rev-parse", "--show-toplevel", repository=top)
    except GitError as error:
        raise ToolInputError(
            f"worktree: {error}; {own!r} may be damaged, bare, or include settings from elsewhere"
        ) from None
    if found != os.fsencode(f"{top}\n"):
        raise ToolInputError(f"worktree: {own!r} says that its files are elsewhere (core.worktree)")
    try:
        commit = _git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", repository=top)
    except GitError:
        raise ToolInputError(
            f"worktree: the repository has no commit yet, or none that is in {own!r}; commit first"
        ) from None
    place = os.path.join(worktrees_dir(os.environ, requester), os.urandom(8).hex())
    prefix = "" if real == top else f"{os.path.relpath(real, top)}/"
    return Worktree(place, top, prefix, commit.decode().strip())


def _has_parts_elsewhere(path: str) -> bool:
    """Whether a `.git` refers to other directories. Only for a clear error: git cannot read them,
    even if they are added later."""
    objects = os.path.join(path, "objects")
    links = (os.path.join(path, "commondir"), os.path.join(objects, "info", "alternates"))
    is_link = os.path.isfile(path) or os.path.realpath(objects) != objects
    return is_link or any(map(os.path.lexists, links))


def make_worktree(worktree: Worktree, is_hidden: Callable[[str], bool]) -> None:
    """Check the commit out. `is_hidden` tells whether a path of the repository must not be visible
    in the worktree. Blocks. Raises `ToolError`, and leaves the cleanup to `finish_worktree`."""
    tree, own = worktree.tree, os.path.join(worktree.tree, ".git")
    private_dir(tree)
    _git("init", "--quiet", "--template=", ".", cwd=tree, directory=worktree.place)
    for name, text in (("objects/info/alternates", worktree.objects), ("HEAD", worktree.commit)):
        os.makedirs(os.path.dirname(os.path.join(own, name)), exist_ok=True)
        with open(os.path.join(own, name), "wb") as file:
            file.write(os.fsencode(f"{text}\n"))
    _git("read-tree", "--reset", "-u", worktree.commit, git_dir=own, worktree=worktree)
    listed = _git("ls-files", "--stage", "-z", git_dir=own, worktree=worktree)
    entries = [line.partition(b"\t") for line in listed.split(b"\0")[:-1]]
    files = [os.fsdecode(entry[2]) for entry in entries]
    if hidden := next(filter(is_hidden, files), None):
        raise ToolError(
            f"worktree: tools.rules is stricter about {hidden!r} in the workspace than about its "
            "copy; use a path relative to the workspace in the rule"
        )
    if worktree.prefix and not any(each.startswith(worktree.prefix) for each in files):
        raise ToolError(f"worktree: {worktree.prefix!r} is not in the last commit")
    # Moved into place when complete: its existence means that the sub-agent may have worked.
    new = f"{worktree.git_dir}.new"
    shutil.copytree(own, new, symlinks=True)
    # Files added to the empty directory of a submodule must show up in the diff.
    links = b"".join(name + b"\0" for about, _, name in entries if about.startswith(b"160000"))
    remove = ("update-index", "-z", "--force-remove", "--stdin")
    _git(*remove, git_dir=new, worktree=worktree, stdin=links)
    base = _git("write-tree", git_dir=new, worktree=worktree)
    with open(os.path.join(new, "base"), "wb") as file:
        file.write(base.strip())
    os.rename(new, worktree.git_dir)


def finish_worktree(worktree: Worktree) -> str:
    """Describe the changes in a worktree, with untrusted text quoted; removes the worktree if there
    are none. Blocks; never raises."""
    if not os.path.isdir(worktree.git_dir):
        remove_tree(worktree.place)
        return ""
    place, about = worktree.place, f"its worktree of commit {worktree.commit[:10]}"
    try:
        said = _describe(worktree)
    except (ToolError, OSError) as error:
        said = f"[could not be determined: {error}]"
    if not said:
        with suppress(OSError):
            os.rename(worktree.git_dir, f"{worktree.git_dir}.gone")
        remove_tree(place)
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
    """A summary of the changes, and the patch as far as it fits; empty if nothing changed."""

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
        trouble = f"[incomplete: {error}]"
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
    repository: str = "",
    worktree: Worktree | None = None,
    directory: str = "",
    stdin: bytes = b"",
    output: str = "",
) -> bytes:
    """The output of git, or empty with the output in the file `output`. git can read the `.git` of
    `repository` and write below `directory`; both default to those of the worktree. Raises
    `ToolError`, a `GitError` if git itself failed."""
    program = shutil.which("git", path=DEFAULT_PATH)
    if program is None:
        raise ToolInputError("worktree: git is not installed")
    if not landlock.available():
        raise ToolInputError(
            "worktree: this system has no Landlock (Linux 5.13), and without it a repository could "
            "have git read any file"
        )
    env, timeout_s = _ENV, TIMEOUT_S if worktree or directory else PLAN_TIMEOUT_S
    if worktree is not None:
        env = {**_ENV, "GIT_DIR": git_dir, "GIT_WORK_TREE": worktree.tree}
        cwd, directory, repository = worktree.tree, worktree.place, worktree.repository
    elif repository:
        cwd, env = repository, {**_ENV, "GIT_DIR": os.path.join(repository, ".git")}
    with ExitStack() as opened:

        def open_(path: str, flags: int) -> int:
            fd = os.open(path, flags, 0o600)
            opened.callback(os.close, fd)
            return fd

        try:
            # By descriptor, so that a link that replaces it is not followed.
            own = open_(os.path.join(repository, ".git"), _OWN) if repository else -1
            process = start_helper(
                (program, *_OPTIONS, *arguments),
                cwd=cwd,
                env=env,
                hold=Hold(
                    read=(f"/proc/self/fd/{own}",) if repository else (),
                    run=SYSTEM,
                    write=(directory,) if directory else (),
                ),
                stdin=subprocess.PIPE,
                stdout=open_(output, _WRITE) if output else subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise ToolError(f"git cannot be started: {error}") from None
    with process:
        with suppress(ProcessLookupError, PermissionError):  # a sandbox may forbid it
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
            most = MAX_PATCH if output else MAX_FILE
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
        try:
            said, errors = process.communicate(stdin, timeout_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise ToolError(f"git {arguments[0]} took longer than {timeout_s:g} s") from None
    if process.returncode:
        # git's message may quote any file that git can read, so the model must not see it.
        log.debug("git %s: %s", arguments[0], one_line(errors.decode("utf-8", "replace"), 300))
        step = _STEPS.get(arguments[0], "read the list of files")
        raise GitError(f"git could not {step} (exit code {process.returncode})")
    return said or b""

"""Finds and reads the files that are memory.

Notes are `MEMORY.md`, `memory.md`, `USER.md` and `memory/**/*.md` in the workspace, and the files
in `extraPaths`. Links are followed neither when listing nor when reading, so that notes cannot lead
out of these places.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from clawkit.config.paths import expand
from clawkit.config.sections.plugins import MemoryPath
from clawkit.core.paths import is_below, plain_path
from clawkit.errors import ToolAuthorizationError, ToolError, ToolInputError
from clawkit.fs.containment import open_inside, open_root
from clawkit.fs.roots import has_kept_path, opened, place_of
from clawkit.globs import Glob
from clawkit.memory.protocols import Excerpt
from clawkit.text import human_size

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 200_000
MAX_DEPTH = 32
MAX_PROBLEMS = 100
EXCERPT_LINES, EXCERPT_CHARS = 120, 12_000
_NAMES = ("MEMORY.md", "memory.md", "USER.md")
_FOLDER = "memory"
_RACY_NS = 100_000_000
"""A file that changed this shortly before it was read may change again with the same timestamp,
because kernels count in ticks of a few milliseconds."""
_READ_AGAIN = 3
UNSURE = "?"
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]")
"""Characters in names that are not text, or could fake another line where a path is shown."""


Redact = Callable[[str], str]


class FileRoot(Struct, frozen=True):
    """A directory with notes."""

    folder: str
    """Its real path."""
    prefix: str = ""
    """Prefix of its paths when shown; empty for the workspace."""
    names: tuple[str, ...] = ()
    """Single files."""
    below: str | None = None
    """Subdirectory in which all files that match the glob are notes."""
    glob: Glob | None = None
    """Matches the files; None for Markdown."""

    @property
    def place(self) -> str:
        """The workspace, or an entry of `extraPaths`."""
        is_own = self.names and self.below
        inside = "." if is_own else self.below or self.names[0]
        return os.path.normpath(os.path.join(self.folder, inside))

    def has(self, path: str) -> bool:
        """Whether a normalized path relative to the root is a note."""
        if path in self.names:
            return True
        if self.below is None:
            return False
        inside = path if self.below == "." else path.removeprefix(f"{self.below}/")
        is_inside = self.below == "." or inside != path
        return is_inside and not any(map(_is_hidden, path.split("/"))) and self.wants(inside)

    def wants(self, path: str) -> bool:
        return self.glob.match(path) if self.glob else path.lower().endswith(".md")


class Scan(Struct, frozen=True):
    stamps: Mapping[str, str]
    """Shown path -> a stamp that changes with the file."""
    problems: Sequence[str]


class Note(Struct, frozen=True):
    text: str
    stamp: str
    """Starts with `UNSURE` if the file may have changed without a new timestamp."""


class NoteFiles:
    """The notes of one workspace."""

    def __init__(
        self,
        workspace: str,
        extra: Sequence[str | MemoryPath] = (),
        env: Mapping[str, str] = os.environ,
        *,
        hard_links: bool = True,
        redact: Redact = str,
    ) -> None:
        """Without `hard_links`, files with several names are refused: they may be foreign files.
        `redact` masks secrets in whole files, because a part may contain half of one; it keeps the
        number of lines."""
        self._workspace = os.path.realpath(workspace)
        self._hard_links = hard_links
        self.redact = redact
        own = FileRoot(self._workspace, names=_NAMES, below=_FOLDER)
        self.roots = (own, *(self._extra(each, env) for each in extra))

    def _extra(self, configured: str | MemoryPath, env: Mapping[str, str]) -> FileRoot:
        at = configured if isinstance(configured, MemoryPath) else MemoryPath(path=configured)
        path = at.path if at.path.startswith("~") else os.path.join(self._workspace, at.path)
        place = _resolve(expand(path, env), self._workspace)
        is_own, is_file = is_below(place, self._workspace), os.path.isfile(place)
        folder = os.path.dirname(place) if is_file else place
        folder, prefix = (self._workspace, "") if is_own else (folder, f"{folder.rstrip('/')}/")
        inside = os.path.relpath(place, folder)
        glob = Glob(at.pattern, path=True) if at.pattern else None
        if is_file:
            return FileRoot(folder, prefix, names=(inside,), glob=glob)
        return FileRoot(folder, prefix, below=inside, glob=glob)

    def scan(self) -> Scan:
        """All current notes. Does not raise: directories that cannot be listed are reported as
        problems."""
        stamps: dict[str, str] = {}
        problems: list[str] = []
        for root in self.roots:
            try:
                fd = open_root(root.folder)
            except OSError as error:
                problems.append(f"{root.folder}: cannot be opened: {error.strerror}")
                continue
            try:
                for path, info in _list(fd, root, problems):
                    if len(stamps) >= MAX_FILES:
                        problems.append(
                            f"there are more than {MAX_FILES:,} files; the rest is ignored"
                        )
                        return Scan(stamps, problems[:MAX_PROBLEMS])
                    stamps[root.prefix + path] = _stamp(info)
            finally:
                os.close(fd)
        return Scan(stamps, problems[:MAX_PROBLEMS])

    def read(self, path: str) -> Note:
        """A note by its shown path. Raises `FileNotFoundError`, and `ToolError` if it is not a note
        or cannot be read."""
        root, inside = self._find(path)
        for _ in range(_READ_AGAIN):
            data, info, after = self._bytes(root, inside, path)
            # Another process may be writing, so the content may be incomplete.
            if is_still := _stamp(info) == after:
                break
        is_old = time.time_ns() - info.st_mtime_ns > _RACY_NS
        stamp = f"{'' if is_still and is_old else UNSURE}{_stamp(info)}"
        if b"\0" in data:
            raise ToolError(f"{path}: is a binary file")
        try:
            return Note(self.redact(data.decode("utf-8-sig")), stamp)
        except UnicodeDecodeError as error:
            raise ToolError(f"{path}: is not UTF-8 text (byte {error.start})") from None

    def excerpt(self, path: str, start_line: int, lines: int | None, max_chars: int) -> Excerpt:
        """Lines of a note. Raises `ToolInputError` if it is not a note."""
        try:
            text = self.read(path).text
        except FileNotFoundError:
            check_lines(start_line, lines)
            return Excerpt(path, "", start_line, 0, exists=False)
        return cut_excerpt(path, text, start_line, lines, max_chars)

    def _find(self, path: str) -> tuple[FileRoot, str]:
        whole = os.path.expanduser(plain_path(path)) if path.startswith("~") else plain_path(path)
        whole = os.path.normpath(os.path.join(self._workspace, whole))
        for root in self.roots:
            if is_below(whole, root.folder):
                inside = os.path.relpath(whole, root.folder)
                if root.has(inside):
                    return root, inside
        raise _refused(path)

    def _bytes(self, root: FileRoot, inside: str, path: str) -> tuple[bytes, os.stat_result, str]:
        """The content, the file before it was read, and its stamp afterwards."""
        try:
            with opened(root.folder, inside, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode):
                    raise _refused(path)
                if info.st_nlink > 1 and not self._hard_links:
                    raise ToolAuthorizationError(
                        f"{path}: has {info.st_nlink} names (hard links), so it may be a file from "
                        "elsewhere; copy it, or set tools.fs.hardLinks to 'allow'"
                    )
                # Another hard link may have been removed just now.
                if not (self._hard_links or has_kept_path(fd, place_of(fd), info)):
                    raise ToolInputError(f"{path}: was replaced while it was being read; try again")
                with open(fd, "rb", closefd=False) as file:
                    data = file.read(MAX_FILE_BYTES + 1)
                if len(data) > MAX_FILE_BYTES:
                    raise ToolInputError(
                        f"{path}: is larger than {human_size(MAX_FILE_BYTES)}; split it"
                    )
                return data, info, _stamp(os.fstat(fd))
        except FileNotFoundError:
            raise
        except ToolAuthorizationError as error:
            if error.reason == "outside-workspace":
                raise _refused(path) from None
            raise
        except OSError as error:
            raise ToolInputError(f"{path}: cannot be read: {error.strerror}") from None


def _resolve(path: str, workspace: str, max_links: int = 40) -> str:
    """Resolve the user's links on the way to a place, but keep those inside the workspace, which
    may have come with a repository."""
    found = "/"
    for name in path.split("/"):
        is_own = is_below(found, workspace)
        found = os.path.normpath(os.path.join(found, name))
        if not is_own and max_links and os.path.islink(found):
            target = os.path.join(os.path.dirname(found), os.readlink(found))
            found = _resolve(target, workspace, max_links - 1)
    return found


def _list(
    root_fd: int, root: FileRoot, problems: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """The notes of a root, by their path in it."""
    for name in root.names:
        try:
            info = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(info.st_mode):
            yield name, info
        else:
            problems.append(f"{root.prefix}{name}: is not a regular file")
    folders = [("", 0)] if root.below is not None else []
    while folders:
        inside, depth = folders.pop()
        here = os.path.normpath(os.path.join(root.below or "", inside))
        try:
            fd = open_inside(root_fd, root.folder, here, os.O_RDONLY | os.O_DIRECTORY, links=False)
        except FileNotFoundError:
            continue
        except (OSError, ToolAuthorizationError):
            problems.append(f"{root.prefix}{here}: cannot be listed, or is a link")
            continue
        lead = "" if here == "." else f"{here}/"
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = entry.name
                    if _is_hidden(name):
                        continue
                    path = f"{inside}/{name}" if inside else name
                    if not name.isprintable() and _UNUSABLE.search(name):
                        problems.append(f"{root.prefix}{lead}{name!a}: ignored; rename it")
                    elif (is_wanted := root.wants(path)) and entry.is_file(follow_symlinks=False):
                        yield lead + name, entry.stat(follow_symlinks=False)
                    elif entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH:
                            folders.append((path, depth + 1))
                        else:
                            problems.append(f"{root.prefix}{lead}{name}: ignored, too deep")
                    elif is_wanted:
                        problems.append(f"{root.prefix}{lead}{name}: is a link; links are refused")
        except OSError as error:
            problems.append(f"{root.prefix}{here}: cannot be listed: {error.strerror}")
        finally:
            os.close(fd)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "node_modules"


def _stamp(info: os.stat_result) -> str:
    return f"{info.st_mtime_ns}.{info.st_size}.{info.st_ino}.{info.st_ctime_ns}"


def _refused(path: str) -> ToolAuthorizationError:
    return ToolAuthorizationError(
        f"{path!r} is not an allowed Markdown memory file; use MEMORY.md, USER.md, a file below "
        "memory/, or one in memory.search.extraPaths",
        reason="not-memory",
    )


def check_lines(start_line: int, lines: int | None) -> None:
    if start_line < 1:
        raise ToolInputError("the first line is 1")
    if lines is not None and lines < 1:
        raise ToolInputError("the number of lines must be at least 1")


def cut_excerpt(
    path: str, text: str, start_line: int, lines: int | None, max_chars: int
) -> Excerpt:
    """Some lines of a text, at most `max_chars`. A longer line is truncated."""
    check_lines(start_line, lines)
    whole = text.split("\n")
    if whole[-1] == "":
        whole.pop()
    first = start_line - 1
    kept: list[str] = []
    room = max_chars
    for line in whole[first : first + (lines or EXCERPT_LINES)]:
        if len(line) > room and kept:
            break
        kept.append(line[:room])
        room -= len(line) + 1
        if room <= 0:
            break
    after = first + len(kept)
    shown = "\n".join(kept)
    return Excerpt(path, shown, start_line, len(kept), after + 1 if after < len(whole) else None)

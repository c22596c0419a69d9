"""Changes to settings in the configuration file: what `config set`, `unset` and `patch` do.

First what they do to the text, and what they refuse: a list replaces a list; an object replaces an
object only if no setting is lost by it, at any depth; so do the two lists whose entries have ids.
`replace` allows the loss, `merge` adds the new settings to the old ones.

Then the file: it is locked, the result is checked before and after it is written, the previous
file is kept as a backup, and a failure leaves the file as it was.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from clawkit.config.check import cut_off
from clawkit.config.json5 import Json5Error, format_path, parse, skip_gap
from clawkit.config.load import loads
from clawkit.config.masking import diff
from clawkit.config.paths import include_roots
from clawkit.config.schema import ROOT, Path, aligned, below, find, is_secret, spelled, value_at
from clawkit.config.section import Shape
from clawkit.config.sources import INCLUDE, ReadError, Source, Tree, read_text
from clawkit.config.text_edit import merge_patch, set_value, unset_value
from clawkit.errors import ConfigError, EditError, Issue
from clawkit.store import private_dir, rotate_backups, write_atomic

MAX_LISTED = 6


def set_setting(
    text: str, path: Path, value: Any, *, merge: bool = False, replace: bool = False
) -> str:
    """`text` with one setting set. Raises EditError."""
    found = find(path)
    if found.shape is None:
        raise EditError(f"unknown setting {format_path(path)!r}. {found.hint}")
    root = content(text)
    where = spelled(path, root)
    old = value_at(root, where)
    if merge and old is not None:
        if not _can_merge(old, value, found.path):
            raise EditError(
                f"{format_path(found.path)!r} cannot be merged: only objects can, and lists whose "
                "entries have ids. Use --replace instead of --merge"
            )
        value = _merged(old, value, found.shape, found.path)
        text = _update_entries(text, where, old, value, found.shape, found.path)
    else:
        value = aligned(value, old, found.shape)
        if not replace:
            lost = _lost(old, value, found.shape, found.path)
            _refuse_loss(lost, "Add --merge to keep them, or --replace to drop them")
    return set_value(text, where, value)


def unset_setting(text: str, path: Path) -> str:
    """`text` without one setting. Raises EditError if it is not there."""
    return unset_value(text, spelled(path, content(text)))


def patch_settings(text: str, patch: Mapping[str, Any], *, replace: bool = False) -> str:
    """`text` with a patch merged in, in which null removes a setting. Raises EditError."""
    root = content(text)
    if not isinstance(root, dict):
        raise EditError("the file does not hold an object, so there is nothing to merge into")
    patch = aligned(dict(patch), root, ROOT)
    if not replace:
        lost = _lost_to_patch(root, patch, ROOT, ())
        _refuse_loss(lost, "Write null for what is to go, or add --replace")
    return merge_patch(text, patch)


def patched_paths(patch: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """The settings that a patch is about."""
    for key, value in patch.items():
        if isinstance(value, dict) and value:
            yield from patched_paths(value, (*above, key))
        else:
            yield (*above, key)


def content(text: str) -> Any:
    """The value of a text; an empty object when it holds none yet. Raises Json5Error."""
    return parse(text).value if skip_gap(text, 0) < len(text) else {}


def _has_ids(path: Path) -> bool:
    """Whether this is a list whose entries are known by their ids, not by their places."""
    return path == ("agents", "list") or (
        len(path) == 4 and path[:2] == ("models", "providers") and path[3] == "models"
    )


def _ids(entries: Any) -> dict[str, int]:
    """Id to the index of its entry."""
    found: dict[str, int] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            found.setdefault(entry["id"], index)
    return found


def _refuse_loss(lost: Iterable[str], advice: str) -> None:
    names = list(lost)
    if names:
        more = len(names) - MAX_LISTED
        listed = ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
        raise EditError(f"this would remove {listed}. {advice}")


def _lost(old: Any, new: Any, shape: Shape, path: Path) -> Iterator[str]:
    """The settings in `old` for which `new` has no place."""
    if isinstance(old, dict) and not is_secret(shape):
        for key, value in old.items():
            name, inner = below(shape, key)
            if not isinstance(new, dict) or key not in new:
                yield format_path((*path, key))
            else:
                yield from _lost(value, new[key], inner, (*path, name))
    elif isinstance(old, list) and _has_ids(path):
        kept = _ids(new)
        for key, index in _ids(old).items():
            if key not in kept:
                yield f"{format_path(path)} entry {key!r}"
            else:
                inner = below(shape, index)[1]
                yield from _lost(old[index], new[kept[key]], inner, (*path, index))


def _lost_to_patch(
    old: dict[str, Any], patch: Mapping[str, Any], shape: Shape, path: Path
) -> Iterator[str]:
    for key, value in patch.items():
        if value is None or key not in old:
            continue
        name, inner = below(shape, key)
        where = (*path, name)
        if isinstance(value, dict) and isinstance(old[key], dict):
            yield from _lost_to_patch(old[key], value, inner, where)
        else:
            yield from _lost(old[key], value, inner, where)


def _can_merge(old: Any, new: Any, path: Path) -> bool:
    both_lists = isinstance(old, list) and isinstance(new, list)
    return (isinstance(old, dict) and isinstance(new, dict)) or (both_lists and _has_ids(path))


def _merged(old: Any, new: Any, shape: Shape, path: Path) -> Any:
    if not _can_merge(old, new, path):
        return new
    if isinstance(old, dict):
        result = dict(old)
        for key, value in aligned(new, old, shape).items():
            name, inner = below(shape, key)
            result[key] = _merged(old[key], value, inner, (*path, name)) if key in old else value
        return result
    entries, places = list(old), _ids(old)
    for entry in new:
        at = places.get(entry["id"]) if _ids([entry]) else None
        if at is None:
            entries.append(entry)
        else:
            entries[at] = _merged(old[at], entry, below(shape, at)[1], (*path, at))
    return entries


def _update_entries(text: str, where: Path, old: Any, new: Any, shape: Shape, path: Path) -> str:
    """`text` with changed entries of lists with ids changed one by one, which keeps comments."""
    if not _can_merge(old, new, path):
        return text
    if isinstance(old, dict):
        for key, value in old.items():
            name, inner = below(shape, key)
            text = _update_entries(text, (*where, key), value, new[key], inner, (*path, name))
    else:
        for index, entry in enumerate(old):
            if entry != new[index]:
                text = set_value(text, (*where, index), new[index])
    return text


READONLY = "CLAWKIT_CONFIG_READONLY"
LOCK_WAIT_S = 10.0
LOCK_POLL_S = 0.02
SMALL_BYTES = 512
"""Files of up to this size may shrink by any amount."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Change(NamedTuple):
    """What an edit does, or would do, to a file."""

    file: str
    before: str | None
    """None when there was no file."""
    after: str
    issues: tuple[Issue, ...]
    """What was wrong in the file before and still is, cut off when it is much; an edit never
    adds to it."""
    warnings: tuple[Issue, ...]
    """What is odd now and was not before."""
    written: bool = False

    @property
    def diff(self) -> list[str]:
        """The changed lines in unified form, secrets masked."""
        return diff(self.before or "", self.after, self.file)

    @property
    def backup(self) -> str | None:
        """Where the file before is kept."""
        return f"{self.file}.bak" if self.written and self.before is not None else None


def change(
    file: str,
    edit: Callable[[str], str],
    *,
    paths: Iterable[Path] = (),
    allow_shrink: bool = False,
    dry_run: bool = False,
    env: Mapping[str, str] | None = None,
    wait_s: float = LOCK_WAIT_S,
) -> Change:
    """Apply a text edit to the file at `file`, which is made if there is none.

    `paths` are the settings the edit is about, so that those of included files are refused;
    `wait_s` is how long another editor is waited for. A file with errors may be edited as long
    as the edit adds none. Raises EditError or ConfigError, and then nothing was written.
    """
    env = os.environ if env is None else env
    if dry_run:
        return _prepare(file, edit, paths, allow_shrink, env)[0]
    if env.get(READONLY, "") not in ("", "0"):
        raise EditError(f"the configuration is read-only: {READONLY} is set")
    try:
        if not os.path.isdir(os.path.dirname(file)):
            private_dir(os.path.dirname(file))
        with _locked(file, wait_s):
            prepared, issues = _prepare(file, edit, paths, allow_shrink, env)
            if prepared.before == prepared.after:
                return prepared
            _write(prepared, issues, env)
    except OSError as error:
        where = error.filename or file
        raise EditError(f"{file!r} was not changed: {where!r}: {error.strerror}") from error
    return prepared._replace(written=True)


@contextmanager
def _locked(file: str, wait_s: float) -> Iterator[None]:
    """One editor of a file at a time. The lock ends with the process, whatever ends it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(f"{file}.lock", flags, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EditError(
                        f"{file!r} was not changed: another process is changing it; try again"
                    ) from None
                time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(fd)


def _prepare(
    file: str,
    edit: Callable[[str], str],
    paths: Iterable[Path],
    allow_shrink: bool,
    env: Mapping[str, str],
) -> tuple[Change, list[Issue]]:
    """The change, and everything that is wrong with its result."""
    before = _read(file)
    text = before or ""
    try:
        _refuse_included(file, text, paths, env)
        after = edit(text)
    except Json5Error as error:
        message, hint = (
            f"{error.message} (column {error.column})",
            "Fix this in a text editor first",
        )
        raise ConfigError([Issue("", message, file, error.line, hint)]) from error
    old_size, size = len(text.encode()), len(after.encode())
    if not allow_shrink and old_size > SMALL_BYTES and size < old_size / 2:
        raise EditError(
            f"this would cut the file from {old_size} to {size} bytes; ask for it explicitly if "
            "you mean it"
        )
    issues, warnings = _judge(after, file, env)
    old_issues, old_warnings = ([], []) if before is None else _judge(before, file, env)
    _refuse_new_issues(old_issues, issues)
    known = {(each.path, each.message) for each in old_warnings}
    fresh = [each for each in warnings if (each.path, each.message) not in known]
    shown = cut_off(issues, len(issues))
    return Change(file, before, after, tuple(shown), tuple(fresh)), issues


def _read(file: str) -> str | None:
    """The text of the file, None if there is none. Raises for what must not be replaced."""
    if not os.path.lexists(file):
        return None
    if os.path.islink(file):
        target = os.path.realpath(file)
        raise EditError(f"{file!r} is a symbolic link; name the file itself: {target!r}")
    try:
        return read_text(file)
    except ReadError as error:
        raise ConfigError([Issue("", str(error), file)]) from error


def _refuse_included(file: str, text: str, paths: Iterable[Path], env: Mapping[str, str]) -> None:
    """Settings of an included file are not overridden from here."""
    if INCLUDE not in text and "\\" not in text:
        return
    own = content(text)
    tree = Tree(Source(file, text), include_roots(env)) if own else None
    if tree is None or len(tree.files) == 1:
        return
    for path in paths:
        if where := _included_at(tree, own, path):
            place = "{}:{}".format(*where)
            raise EditError(
                f"{format_path(path)!r} comes from an included file; change it there: {place}"
            )


def _included_at(tree: Tree, own: object, path: Path) -> tuple[str, int] | None:
    """File and line of a setting, or of the nearest thing around it, if our file lacks it.

    Indexes into a list that is joined from several files have no meaning in one of them.
    """
    where = spelled(path, tree.value)
    for end in range(1, len(path) + 1):
        joined = value_at(tree.value, where[:end])
        if joined is None:
            break
        ours = value_at(own, spelled(path[:end], own))
        if ours is None:
            return tree.locate(where[:end])
        shifted = isinstance(joined, list) and isinstance(ours, list) and len(joined) != len(ours)
        if shifted and end < len(path):
            return tree.locate((*where[:end], 0))
    return None


def _judge(text: str, file: str, env: Mapping[str, str]) -> tuple[list[Issue], list[Issue]]:
    """All that is wrong with a text as the content of the file, and what is odd."""
    try:
        return [], loads(text, file=file, env=env, every_error=True).warnings
    except ConfigError as error:
        return list(error.issues), []


def _refuse_new_issues(before: Sequence[Issue], after: Sequence[Issue]) -> None:
    old = {(each.path, each.message) for each in before}
    added = [each for each in after if (each.path, each.message) not in old]
    if not added:
        return
    lines = ["the change was refused: it would make the configuration invalid:"]
    for each in added[:MAX_LISTED]:
        hint = f". {each.hint}" if each.hint else ""
        lines.append(f"  {each.path or 'the file'}: {each.message}{hint}")
    if len(added) > MAX_LISTED:
        lines.append(f"  and {len(added) - MAX_LISTED} more")
    raise EditError("\n".join(lines))


def _write(prepared: Change, issues: Sequence[Issue], env: Mapping[str, str]) -> None:
    file = prepared.file
    if _read(file) != prepared.before:
        raise EditError(f"{file!r} was changed by another process meanwhile; try again")
    mark = b""
    if prepared.before is not None:
        with open(file, "rb") as stream:
            mark = BYTE_ORDER_MARK if stream.read(3) == BYTE_ORDER_MARK else b""
    rotate_backups(file)
    write_atomic(file, mark + prepared.after.encode())
    problem = _verify(prepared, issues, env)
    if problem is not None:
        _put_back(prepared, mark)
        raise EditError(f"{file!r} is unchanged, because the new file failed: {problem}")


def _put_back(prepared: Change, mark: bytes) -> None:
    try:
        if prepared.before is None:
            os.unlink(prepared.file)
        else:
            write_atomic(prepared.file, mark + prepared.before.encode())
    except OSError as error:
        raise EditError(
            f"{prepared.file!r} is invalid and cannot be restored ({error.strerror}); "
            f"the previous file is {prepared.file + '.bak'!r}"
        ) from error


def _verify(prepared: Change, issues: Sequence[Issue], env: Mapping[str, str]) -> str | None:
    """What is wrong with the file that was written; None when it is what it should be.

    `issues` are those it was known to have.
    """
    try:
        written = _read(prepared.file)
    except (ConfigError, EditError) as error:
        return str(error)
    if written != prepared.after:
        return "it does not hold what was written"
    found, _ = _judge(written, prepared.file, env)
    try:
        _refuse_new_issues(issues, found)
    except EditError as error:
        return str(error)
    return None

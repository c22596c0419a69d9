"""Sets, unsets and patches settings in the configuration file.

A list replaces a list. An object replaces an object only if no setting is lost, at any depth; the
same holds for a list whose entries have ids. `replace` allows the loss; `merge` adds the new
settings to the old ones.

The file is locked, the result is validated before it is written, and the previous file is kept as a
backup. If anything fails, the file does not change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clawkit.config import text_edit
from clawkit.config.json5 import Json5Error, format_path, parse, skip_gap
from clawkit.config.load import cut_off, loads
from clawkit.config.lookup import ROOT, Path, aligned, below, find, is_secret, spelled, value_at
from clawkit.config.masking import masked
from clawkit.config.paths import include_roots
from clawkit.config.section import Shape
from clawkit.config.sources import INCLUDE, ConfigFile, ConfigTree, read_config
from clawkit.errors import ConfigError, EditError, Issue
from clawkit.redact import Redactor
from clawkit.store import locked, private_dir, rotate_backups, write_atomic
from clawkit.text import printable

MAX_LISTED = 6
CONTEXT_LINES = 2
MAX_COMPARED = 1_000
"""Lines of a change that a diff shows."""


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
        if not _can_merge(old, value):
            raise EditError(
                f"{format_path(found.path)!r} cannot be merged: only objects, and lists whose "
                "entries have ids, can. Use --replace instead of --merge"
            )
        value = _merged(old, value, found.shape)
    else:
        value = aligned(value, old, found.shape)
        if not replace:
            lost = _lost(old, value, found.shape, found.path)
            _refuse_loss(lost, "Add --merge to keep them, or --replace to drop them")
    return text_edit.set_value(text, where, value)


def unset_setting(text: str, path: Path) -> str:
    """`text` without one setting. Raises EditError if it is not there."""
    return text_edit.unset_value(text, spelled(path, content(text)))


def patch_settings(text: str, patch: Mapping[str, Any], *, replace: bool = False) -> str:
    """`text` with a patch merged in; null removes a setting. Raises EditError."""
    root = content(text)
    patch = aligned(dict(patch), root, ROOT)
    if not replace:
        kept = text_edit.merged(root, _without_nulls(patch))
        advice = "To remove a setting, set it to null; or add --replace"
        _refuse_loss(_lost(root, kept, ROOT, ()), advice)
    return text_edit.merge_patch(text, patch)


def _without_nulls(patch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in patch.items()
        if value is not None
    }


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The leaves of a value at any depth: everything except non-empty objects."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    else:
        yield path, value


def content(text: str) -> Any:
    """The value of a text; an empty object if it contains none yet. Raises Json5Error."""
    return parse(text).value if skip_gap(text, 0) < len(text) else {}


def _ids(entries: Any) -> dict[str, int]:
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
    if isinstance(old, dict) and not is_secret(shape):
        for key, value in old.items():
            name, inner = below(shape, key)
            if not isinstance(new, dict) or key not in new:
                yield format_path((*path, key))
            else:
                yield from _lost(value, new[key], inner, (*path, name))
    else:
        kept = _ids(new)
        for key, index in _ids(old).items():
            if key not in kept:
                yield f"{format_path(path)} entry {key!r}"
            else:
                inner = below(shape, index)[1]
                yield from _lost(old[index], new[kept[key]], inner, (*path, index))


def _can_merge(old: Any, new: Any) -> bool:
    both_lists = isinstance(old, list) and isinstance(new, list)
    both_objects = isinstance(old, dict) and isinstance(new, dict)
    return both_objects or (both_lists and bool(_ids(old) or _ids(new)))


def _merged(old: Any, new: Any, shape: Shape) -> Any:
    if not _can_merge(old, new):
        return new
    if isinstance(old, dict):
        result = dict(old)
        for key, value in aligned(new, old, shape).items():
            result[key] = _merged(old[key], value, below(shape, key)[1]) if key in old else value
        return result
    entries, places = list(old), _ids(old)
    for entry in new:
        at = places.get(entry["id"]) if _ids([entry]) else None
        if at is None:
            entries.append(entry)
        else:
            entries[at] = _merged(old[at], entry, below(shape, at)[1])
    return entries


READONLY = "CLAWKIT_CONFIG_READONLY"
LOCK_WAIT_S = 10.0
SMALL_BYTES = 512
"""Files of up to this size may shrink by any amount."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


_REFUSED = "the change was refused: it would make the configuration invalid:"
Judgement = tuple[tuple[Issue, ...], tuple[Issue, ...]]
"""The errors from before an edit, and its new warnings."""
Judge = Callable[[str | None, str], Judgement]
"""Called with the text before and after an edit; raises to refuse it."""


class ConfigChange(NamedTuple):
    """The effect of an edit on a file."""

    file: str
    before: str | None  # None if the file did not exist
    after: str
    issues: tuple[Issue, ...]  # errors from before the edit, the first of many; an edit adds none
    warnings: tuple[Issue, ...]  # only new ones
    written: bool = False

    @property
    def diff(self) -> list[str]:
        return diff(self.before or "", self.after, self.file)

    @property
    def backup(self) -> str | None:
        return f"{self.file}.bak" if self.written and self.before is not None else None


def change(
    file: str,
    edit: Callable[[str], str],
    *,
    paths: Collection[Path] = (),
    allow_shrink: bool = False,
    dry_run: bool = False,
    env: Mapping[str, str] | None = None,
    wait_s: float = LOCK_WAIT_S,
    judge: Judge | None = None,
) -> ConfigChange:
    """Apply a text edit to a file, which is created if it does not exist.

    `paths` are the settings to be edited: those that come from included files are refused.
    `wait_s` is how long to wait for the lock. A file with errors may be edited as long as the edit
    adds none; `judge` may be stricter. If anything is raised, nothing was written.
    """
    env = os.environ if env is None else env

    def prepare() -> ConfigChange:
        before = _read(file)
        text = before or ""
        try:
            _refuse_included(file, text, paths, env)
            after = edit(text)
            was, size = len(text.encode()), len(after.encode())
            if not allow_shrink and was > SMALL_BYTES and size < was / 2:
                raise EditError(
                    f"this would shrink the file from {was} to {size} bytes; if you mean it, add "
                    "--force (`clawkit config unset`) or --replace (`clawkit config set`, `patch`)"
                )
            found = judge(before, after) if judge else _judge(file, env, before, after)
        except Json5Error as error:
            raise ConfigError([error.issue(file, "Fix it in a text editor first")]) from error
        return ConfigChange(file, before, after, *found)

    if dry_run:
        return prepare()
    if env.get(READONLY, "") not in ("", "0"):
        raise EditError(f"the configuration is read-only: {READONLY} is set")
    try:
        return _write(file, prepare, wait_s)
    except TimeoutError:
        why = "another process is changing it; try again"
        raise EditError(f"{file!r} was not changed: {why}") from None
    except OSError as error:
        where = error.filename or file
        raise EditError(f"{file!r} was not changed: {where!r}: {error.strerror}") from error


def _write(file: str, prepare: Callable[[], ConfigChange], wait_s: float) -> ConfigChange:
    if not os.path.isdir(os.path.dirname(file)):
        private_dir(os.path.dirname(file))
    with locked(f"{file}.lock", wait_s=wait_s):
        prepared = prepare()
        if prepared.before == prepared.after:
            return prepared
        if _read(file) != prepared.before:
            raise EditError(f"{file!r} was changed by another process in the meantime; try again")
        rotate_backups(file)
        write_atomic(file, _byte_order_mark(file) + prepared.after.encode())
    return prepared._replace(written=True)


def _read(file: str) -> str | None:
    """The text of the file; None if it does not exist. Raises if it must not be replaced."""
    if not os.path.lexists(file):
        return None
    if os.path.islink(file):
        target = os.path.realpath(file)
        raise EditError(f"{file!r} is a symbolic link; use its target: {target!r}")
    return read_config(file)


def _refuse_included(file: str, text: str, paths: Collection[Path], env: Mapping[str, str]) -> None:
    if not paths or (INCLUDE not in text and "\\" not in text):
        return
    own = content(text)
    tree = ConfigTree(ConfigFile(file, text), include_roots(env)) if own else None
    if tree is None or len(tree.files) == 1:
        return
    for path in paths:
        if where := _included_at(tree, own, path):
            place = "{}:{}".format(*where)
            raise EditError(
                f"{format_path(path)!r} comes from an included file; change it there: {place}"
            )


def _included_at(tree: ConfigTree, own: object, path: Path) -> tuple[str, int] | None:
    """File and line of a setting, or of its parent, if it is not in the main file. Indexes of a
    list that is merged from several files are meaningless in one of them."""
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


def _judge(file: str, env: Mapping[str, str], before: str | None, after: str) -> Judgement:
    issues, warnings = _issues_of(after, file, env)
    old_issues, old_warnings = ([], []) if before is None else _issues_of(before, file, env)
    added = _added(old_issues, issues)
    lines = [
        f"  {each.path or 'the file'}: {each.message}{each.hint and f'. {each.hint}'}"
        for each in added[:MAX_LISTED]
    ]
    if len(added) > MAX_LISTED:
        lines.append(f"  and {len(added) - MAX_LISTED} more")
    if lines:
        raise EditError("\n".join((_REFUSED, *lines)))
    return tuple(cut_off(issues, len(issues))), tuple(_added(old_warnings, warnings))


def _issues_of(text: str, file: str, env: Mapping[str, str]) -> tuple[list[Issue], list[Issue]]:
    try:
        return [], loads(text, file=file, env=env, every_error=True).warnings
    except ConfigError as error:
        return list(error.issues), []


def _added(before: Sequence[Issue], after: Sequence[Issue]) -> list[Issue]:
    """The issues that are only in `after`, regardless of their lines."""
    old = {(each.path, each.message) for each in before}
    return [each for each in after if (each.path, each.message) not in old]


def _byte_order_mark(file: str) -> bytes:
    if not os.path.exists(file):
        return b""
    with open(file, "rb") as stream:
        return BYTE_ORDER_MARK if stream.read(3) == BYTE_ORDER_MARK else b""


def diff(before: str, after: str, name: str) -> list[str]:
    """A unified diff, with secrets masked after comparing."""
    if before == after:
        return []
    lines, redactor = [f"--- {name}", f"+++ {name}", *_hunks(before, after)], Redactor()
    return [printable(redactor.strict(line.removesuffix("\r"))) for line in lines]


def _hunks(before: str, after: str) -> Iterator[str]:
    from difflib import SequenceMatcher

    old, new = _lines(before), _lines(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    removed, added = (len(each) - head - tail for each in (old, new))
    if max(removed, added) > MAX_COMPARED:  # could take hours
        yield f"@@ -{head + 1},{removed} +{head + 1},{added} @@"
        yield f"{removed:,} lines are replaced by {added:,} lines"
        return
    start, rest = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    old, new = old[start : len(old) - rest], new[start : len(new) - rest]
    shown_old, shown_new = (_lines(_shown(each))[start:] for each in (before, after))
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT_LINES):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{start + i1 + 1},{i2 - i1} +{start + j1 + 1},{j2 - j1} @@"
        for tag, a, b, c, d in group:
            yield from ((" " if tag == "equal" else "-") + line for line in shown_old[a:b])
            if tag != "equal":
                yield from (f"+{line}" for line in shown_new[c:d])


def _common(old: list[str], new: list[str]) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _shown(text: str) -> str:
    """A text with its secrets masked; the number of lines stays the same."""
    try:
        root = parse(text)
    except Json5Error:  # `diff` still redacts every line
        return text
    return text_edit.rewrite(text, root, masked(root.value), keep_lines=True)

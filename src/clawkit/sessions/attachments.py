"""Files attached to a sub-agent's task: validation, and storage that only the sub-agent can read.

They are stored in clawkit's state directory rather than in a workspace, where a symlink could
redirect a write and files could be left behind.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from clawkit.config.paths import attachments_dir
from clawkit.config.sections.tools import Attachments as Settings
from clawkit.errors import ToolError, ToolInputError
from clawkit.sessions.subagent_protocols import Attachment
from clawkit.store import private_dir
from clawkit.text import one_line

MANIFEST = ".manifest.json"
MAX_LISTED = 4_096
"""Maximum characters of the path list in a sub-agent's prompt."""
_MAX_NAME = 255  # bytes
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BASE64 = re.compile("[A-Za-z0-9+/]+={0,2}")
_MOUNT = re.compile(r"[A-Za-z0-9._\-/:]+")


class AttachedFile(msgspec.Struct, frozen=True):
    """A validated and decoded file."""

    name: str
    data: bytes
    mime_type: str = ""


def check_attachments(attached: Sequence[Attachment], limits: Settings) -> tuple[AttachedFile, ...]:
    """Validate and decode the files. Raises `ToolInputError` with an `attachments_…` error code."""
    if len(attached) > limits.max_files:
        raise _refuse("file_count_exceeded", f"maxFiles={limits.max_files}, given {len(attached)}")
    files: dict[str, AttachedFile] = {}
    total = 0
    for each in attached:
        if why := _why_bad(each.name):
            raise _refuse("invalid_name", f"{one_line(each.name, 60)!r} {why}")
        if each.name in files:
            raise _refuse("duplicate_name", repr(each.name))
        data = _decode(each, limits.max_file_bytes)
        if len(data) > limits.max_file_bytes:
            most = f"maxFileBytes={limits.max_file_bytes}"
            raise _refuse("file_bytes_exceeded", f"{each.name!r} has {len(data):,}, {most}")
        total += len(data)
        if total > limits.max_total_bytes:
            raise _refuse("total_bytes_exceeded", f"maxTotalBytes={limits.max_total_bytes}")
        files[each.name] = AttachedFile(each.name, data, each.mime_type)
    found = tuple(files.values())
    # An empty key will do: the attachment directories of all sessions have names of equal length.
    if len(list_files("", [each.name for each in found])) > MAX_LISTED:
        raise _refuse("prompt_paths_exceeded", f"the paths have over {MAX_LISTED:,} characters")
    return found


def _why_bad(name: str) -> str:
    if not name or name in (".", "..", MANIFEST):
        return "cannot be the name of a file here"
    if any(char in "/\\<>" for char in name) or not name.isprintable():
        return "contains a slash, a backslash, < or >, or an invisible character"
    return "is too long" if len(os.fsencode(name)) > _MAX_NAME else ""


def _decode(attachment: Attachment, max_bytes: int) -> bytes:
    if attachment.encoding != "base64":
        try:
            return attachment.content.encode()
        except UnicodeEncodeError:
            why = f"{attachment.name!r} is not valid text"
            raise _refuse("materialization_failed", why) from None
    longest = -(-max_bytes // 3) * 4
    text = "" if len(attachment.content) > 2 * longest else "".join(attachment.content.split())
    if 0 < len(text) <= longest and len(text) % 4 == 0 and _BASE64.fullmatch(text):
        with suppress(binascii.Error):
            return base64.b64decode(text, validate=True)
    why = f"{attachment.name!r}: at most {max_bytes:,} bytes, with padding"
    raise _refuse("invalid_base64_or_too_large", why)


def _refuse(code: str, why: str) -> ToolInputError:
    return ToolInputError(f"attachments_{code}: {why}")


def list_files(key: str, names: Sequence[str], mount: str = "") -> str:
    """List a sub-agent's files for its prompt; `mount` is what the task calls their directory."""
    place = attachments_dir(os.environ, key)
    known = f" (the task may call it {mount})" if _MOUNT.fullmatch(mount) else ""
    lines = (f"- {os.path.join(place, name)}" for name in names)
    return "\n".join([f"These read-only files are attached to the task{known}:", *lines])


def describe(files: Sequence[AttachedFile]) -> dict[str, Any]:
    """Count, sizes and digests, for the result of the call and the manifest."""
    listed = [
        {"name": f.name, "bytes": len(f.data), "sha256": hashlib.sha256(f.data).hexdigest()}
        for f in files
    ]
    return {"count": len(files), "totalBytes": sum(len(f.data) for f in files), "files": listed}


def write_attachments(directory: str, files: Sequence[AttachedFile]) -> None:
    """Write the files to a new directory. On failure, removes it and raises `ToolError`."""
    about = describe(files)
    for facts, each in zip(about["files"], files, strict=True):
        facts.update({"mimeType": one_line(each.mime_type, 100)} if each.mime_type else {})
    manifest = msgspec.json.format(msgspec.json.encode(about))
    try:
        private_dir(os.path.dirname(directory))
        os.mkdir(directory, 0o700)
        for name, data in {MANIFEST: manifest, **{each.name: each.data for each in files}}.items():
            with os.fdopen(os.open(os.path.join(directory, name), _CREATE, 0o600), "wb") as file:
                file.write(data)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise ToolError(f"attachments_materialization_failed: {error.strerror}") from None

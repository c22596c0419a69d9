"""Decode images and documents in a confined process.

Each call starts a process (`decoder.py`). With Landlock, the kernel denies it files and TCP;
memory, time and open files are always limited.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from base64 import b64encode
from typing import IO, Annotated
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from clawkit.content import Image
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.media import decoder, protocols
from clawkit.process.isolated import Isolated, NoAnswerError
from clawkit.text import human_size, one_line

TIMEOUT_S = 30.0
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_CHILDREN = 2
_MAX_HEAD = 64 * 1024
_MAX_PARTS = 64 * 1024 * 1024
_MAX_REASON = 300


class _Head(msgspec.Struct, frozen=True):
    """The first line of an answer. It is untrusted: an attacker may control the decoder."""

    sizes: tuple[Annotated[int, Meta(ge=0, le=_MAX_PARTS)], ...] = ()
    """Sizes of the texts and image data, which follow in order and are empty in the head."""
    reason: str = ""
    missing: str = ""
    picture: protocols.Picture | None = None
    pages: tuple[protocols.DocumentPage, ...] = ()
    total: Annotated[int, Meta(ge=0)] = 0


# Created here, in one thread: msgspec may crash on concurrent first use of a type.
_HEADS = msgspec.json.Decoder(_Head)
_Answer = tuple[_Head, list[bytes]]


class LocalMedia:
    """Decodes on this machine, at most two files at a time."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        # A semaphore belongs to one event loop.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._slots = WeakKeyDictionary()

    async def picture(self, data: bytes, *, max_side: int, max_bytes: int) -> protocols.Picture:
        """The image with sides of at most `max_side` pixels, in at most `max_bytes`.

        The data is returned unchanged if it fits, has a type that models accept, and is upright.
        Otherwise it is converted to PNG or JPEG; of several frames, the first is used.
        """
        _check_size("image", data, protocols.MAX_PICTURE_BYTES)
        head, parts = await self._ask(data, op="picture", max_side=max_side, max_bytes=max_bytes)
        if head.picture is None or len(parts) != 1 or len(parts[0]) > max_bytes:
            raise _broken()
        return replace(head.picture, data=parts[0] or data)

    async def pages(self, data: bytes, first: int, last: int) -> protocols.DocumentPages:
        """The pages from `first` to `last`, counted from 1; at most 50, and none past the end.

        The first five pages without text are rendered as images; of further ones, and of empty
        pages, text and image are both empty.
        """
        _check_size("document", data, protocols.MAX_DOCUMENT_BYTES)
        first = max(1, first)
        if last < first:
            raise ToolInputError(f"there are no pages from {first} to {last}")
        head, parts = await self._ask(data, op="pages", first=first, last=last)
        drawn = [page.picture for page in head.pages if page.picture]
        if not head.pages or len(parts) != len(head.pages) + len(drawn):
            raise _broken()
        left = iter(parts)
        pages = []
        for page in head.pages:
            text = next(left).decode("utf-8", "replace")[: decoder.MAX_PAGE_CHARS]
            picture = replace(page.picture, data=next(left)) if page.picture else None
            pages.append(protocols.DocumentPage(page.number, text, picture))
        return protocols.DocumentPages(tuple(pages), head.total)

    async def _ask(self, data: bytes, **request: object) -> _Answer:
        line = msgspec.json.encode({**request, "size": len(data)}) + b"\n"
        loop = asyncio.get_running_loop()
        async with self._slots.setdefault(loop, asyncio.Semaphore(MAX_CHILDREN)):
            try:
                answer = await make_decoder().ask((line, data), _read_answer, self._timeout_s)
            except TimeoutError:
                raise ToolError(f"decoding took longer than {self._timeout_s:g} s") from None
            except NoAnswerError as error:
                raise explain_end(error.code) from None
            except OSError as error:
                raise ToolError(f"the decoder cannot be started: {error}") from error
        head, _ = answer
        if missing := head.missing:
            name = missing.partition(".")[0]
            if name not in ("pypdfium2", "PIL"):
                raise ToolError(f"the decoder cannot load {one_line(missing, 80)!r}")
            from clawkit.installation import how_to_add

            how = "pip install pillow" if name == "PIL" else how_to_add("pdf")
            raise ToolError(f"{name} is not installed: {how}")
        if head.reason:
            raise ToolInputError(one_line(head.reason, _MAX_REASON))
        return answer


def make_decoder() -> Isolated:
    """The program, with the directories of installed libraries, never the current directory."""
    ours = os.path.dirname(os.path.dirname(msgspec.__file__))
    places = (path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    return Isolated(decoder.__file__, list(dict.fromkeys((ours, *places))))


def _read_answer(answers: IO[bytes]) -> _Answer | None:
    """The answer; None if it is incomplete."""
    line = answers.readline(_MAX_HEAD)
    if not line.endswith(b"\n") and len(line) < _MAX_HEAD:
        return None
    try:
        head = _HEADS.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken() from error
    if sum(head.sizes) > _MAX_PARTS:
        raise _broken()
    parts = [answers.read(size) for size in head.sizes]
    return (head, parts) if tuple(map(len, parts)) == head.sizes else None


def explain_end(code: int) -> ToolError:
    """Why a decoder with this exit code gave no answer."""
    if code == -signal.SIGXCPU:
        return ToolInputError(f"the file takes more than {decoder.MAX_CPU_S} s to decode")
    if code >= 0:
        return ToolError(f"the decoder failed (exit code {code})")
    known = {each.value: each.name for each in signal.Signals}
    name = known.get(-code, f"signal {-code}")
    if code == -signal.SIGKILL:
        return ToolError(f"the decoder failed ({name})")
    return ToolInputError(f"the file cannot be decoded: it crashed the decoder ({name})")


def _check_size(label: str, data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise ToolInputError(
            f"the {label} is {human_size(len(data))}, more than the limit of "
            f"{human_size(max_bytes)}"
        )


def _broken() -> ToolError:
    return ToolError("the decoder sent an invalid answer")


async def load_image(media: protocols.Media, path: str | os.PathLike[str], max_side: int) -> Image:
    """An image from the person's disk, scaled to fit. Raises `ToolInputError`."""

    def read() -> bytes:
        with open(path, "rb") as file:
            return file.read(protocols.MAX_PICTURE_BYTES + 1)

    try:
        data = await in_thread(read)
        picture = await media.picture(data, max_side=max_side, max_bytes=MAX_IMAGE_BYTES)
    except (OSError, ToolInputError) as error:
        why = getattr(error, "strerror", "") or error
        raise ToolInputError(f"{one_line(os.fspath(path), 200)}: {why}") from None
    return Image(b64encode(picture.data).decode(), picture.mime_type)

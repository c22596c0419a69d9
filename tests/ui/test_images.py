"""Pictures in terminals that can show them, and in those that cannot."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from tests.tables import table

from clawkit.content import Image
from clawkit.ui.paint import MAX_SHOWN, describe_image, draw_image, find_protocol

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (50).to_bytes(4) + (70).to_bytes(4) + b"x" * 6_000


def image(data: bytes, kind: str = "image/png") -> Image:
    return Image(b64encode(data).decode(), kind)


@table(
    ("env", "protocol"),
    [
        ({"KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM_PROGRAM": "WezTerm", "TERM": "xterm-256color"}, "iterm"),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x"}, None),
        ({"KITTY_WINDOW_ID": "1", "TERM": "screen-256color"}, None),
        ({"TERM": "xterm"}, None),
        ({}, None),
    ],
)
def test_a_terminal_is_known_by_its_names(env: dict[str, str], protocol: str | None) -> None:
    assert find_protocol(env) == protocol


def test_a_picture_is_described_in_one_line() -> None:
    assert describe_image(image(b"x" * 2048)) == "[image/png, 2 KB]"
    assert describe_image(image(b"", "image/\x1b[2J\u202e")) == "[image/ [2J, 0 B]"


def test_kitty_is_sent_pieces_of_a_png() -> None:
    drawn = draw_image(image(PNG), "kitty")
    pieces = re.findall(r"\x1b_G([^;]*);([A-Za-z0-9+/=]*)\x1b\\", drawn)
    assert pieces[0][0] == "a=T,f=100,q=2,r=4,m=1"
    assert [how for how, _ in pieces[1:]] == ["m=0"]
    assert "".join(text for _, text in pieces) == b64encode(PNG).decode()


def test_iterm_is_sent_the_file() -> None:
    drawn = draw_image(image(b"GIF89a", "image/gif"), "iterm")
    assert drawn == "\x1b]1337;File=inline=1;size=6;height=16:R0lGODlh\a\n"


@table(
    ("picture", "protocol"),
    [
        (image(PNG), None),
        (image(b"GIF89a"), "kitty"),
        (Image("AAAA\x1b\\evil", "image/png"), "iterm"),
        (Image("A" * (MAX_SHOWN * 2), "image/png"), "iterm"),
    ],
)
def test_images_that_cannot_be_shown_are_not_sent(picture: Image, protocol: Any) -> None:
    assert draw_image(picture, protocol) == ""

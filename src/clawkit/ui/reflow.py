"""Redrawing on terminals that wrap what they show again when their width changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from prompt_toolkit.data_structures import Point
from prompt_toolkit.renderer import Renderer

_VARIABLES = (
    *("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "ALACRITTY_WINDOW_ID", "KONSOLE_VERSION"),
    *("WEZTERM_PANE", "WT_SESSION", "ITERM_SESSION_ID"),
)
_TERMS = ("tmux", "xterm-kitty", "alacritty", "foot", "xterm-ghostty", "wezterm")
_PROGRAMS = ("vscode", "Apple_Terminal", "ghostty")


def does_reflow(env: Mapping[str, str]) -> bool:
    """Whether the terminal is known to wrap its rows again. Others may not, and there, erasing too
    many rows would be worse than too few."""
    term = env.get("TERM", "")
    if "XTERM_VERSION" in env or (term.startswith("screen") and "TMUX" not in env):
        return False  # its other variables are those of the terminal it was started from
    is_known = term.startswith(_TERMS) or env.get("TERM_PROGRAM") in _PROGRAMS
    return is_known or any(name in env for name in _VARIABLES)


class ReflowRenderer(Renderer):
    """Finds the start of what it has drawn, even if its rows take more rows now."""

    def erase(self, leave_alternate_screen: bool = True) -> None:
        self._follow()
        super().erase(leave_alternate_screen)

    def render(self, *given: Any, **more: Any) -> None:
        self._follow()
        super().render(*given, **more)

    def _follow(self) -> None:
        columns, before, screen = self.output.get_size().columns, self._last_size, self._last_screen
        if not before or not screen or columns >= before.columns or not does_reflow(os.environ):
            return
        x, y = self._cursor_pos
        rows = (screen.data_buffer[at] for at in range(y))
        ends = (
            max((at for at, cell in row.items() if cell.char != " "), default=0) for row in rows
        )
        above = sum(1 + end // columns for end in ends)
        self._cursor_pos = Point(x % columns, above + x // columns)
        self._last_size = None  # once

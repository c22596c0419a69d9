"""The full-terminal chat: the input line, the live area above it, and the keys.

The input line is shown first, before the rest is loaded. Finished lines are printed above it, into
the terminal's scrollback; the alternate screen is not used.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, Filter, has_focus
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from clawkit.core.tasks import in_thread
from clawkit.terminal_text import wrap
from clawkit.ui.line_input import InputHistory, LineCompleter, history_file
from clawkit.ui.paint import RENDER_ERRORS, Paint
from clawkit.ui.questions import AskedQuestion, Questions, by_key, menu_rows
from clawkit.ui.reflow import ReflowRenderer

if TYPE_CHECKING:
    from clawkit.ui.session import SessionOpener

log = logging.getLogger(__name__)

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
REDRAW_S = 0.03
NEW_S = 0.3
_MAX_INPUT_ROWS = 12
_MAX_MENU_ROWS = 8
_BELOW_QUESTION = 3
"""Rows: an empty one, the input line and the toolbar."""
_SMALL = 20
"""On a screen with fewer rows, a question hides the live area."""
NOT_DRAWN = "(the current activity cannot be shown)"
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "toolbar": "ansibrightblack",
        "queue": "ansibrightblack italic",
        "chosen": "bold",
        "hint": "ansibrightblack",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit ansibrightblack",
        "completion-menu.completion.current": "noinherit bold",
        "completion-menu.meta.completion": "noinherit ansibrightblack",
        "completion-menu.meta.completion.current": "noinherit",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit",
    }
)


OpenFull = Callable[["Prompt"], Awaitable[Any]]
"""Opens a conversation: an `InputHandler` that can also `begin`, `stop` and `close`."""


def open_here(opener: SessionOpener) -> OpenFull:
    """A conversation with an agent in this process."""

    async def open_chat(prompt: Prompt) -> Any:
        # In a thread, so that the input line stays responsive meanwhile.
        for name in ("clawkit.agent_session", "clawkit.ui.tui"):
            await in_thread(importlib.import_module, name)
        from clawkit.ui.tui import TuiChat

        return TuiChat(opener, prompt)

    return open_chat


async def run_full(open_chat: OpenFull, message: str = "", pictures: Sequence[str] = ()) -> int:
    """Run the chat until the person quits; returns the exit code."""
    paint = Paint(colours=not os.environ.get("NO_COLOR"), encoding=sys.stdout.encoding)
    history, completer, early = InputHistory(history_file()), LineCompleter(), InputHandler()
    prompt = Prompt(early, paint, history, completer, sys.stdout)
    loop = asyncio.get_running_loop()
    for each in _ENDINGS:
        loop.add_signal_handler(each, prompt.quit, 128 + each)
    running = asyncio.ensure_future(prompt.run())
    chat: Any = None
    try:
        above = _Above(prompt)
        with redirect_stdout(above), redirect_stderr(above):
            try:
                shown = asyncio.ensure_future(prompt.shown.wait())
                await asyncio.wait((running, shown), return_when=asyncio.FIRST_COMPLETED)
                shown.cancel()
                chat = None if running.done() else await open_chat(prompt)
                if chat is not None:
                    history.begin(chat.redact)
                    completer.source = prompt.handler = chat
                    await chat.begin(message, pictures)
                    for text, later in early.typed:
                        chat.submit(text, later=later)
                    prompt.refresh()
                code = await running
            finally:
                prompt.quit(1)
                if chat is not None:
                    await chat.stop()
                await asyncio.wait({running})
        if chat is not None and chat.failure is not None:
            raise chat.failure
        return code
    finally:
        if chat is not None:
            await chat.close()
        for each in _ENDINGS:
            loop.remove_signal_handler(each)


class _Above(io.TextIOBase):
    """Replaces standard output and error: prints above the input line."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._part = ""

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            # click tries to write bytes, and treats a stream that accepts them as binary.
            raise TypeError(f"a string is needed, not {type(text).__name__}")
        *lines, self._part = f"{self._part}{text}".split("\n")
        for line in lines:
            for row in wrap(line, self._prompt.columns):
                self._prompt.print(self._prompt.paint(row, "dim") + "\n")
        return len(text)

    def isatty(self) -> bool:
        return False


class InputHandler:
    """Receives typed input. This one keeps it until the conversation is open."""

    def __init__(self) -> None:
        self.typed: list[tuple[str, bool]] = []

    def submit(self, text: str, *, later: bool = False) -> None:
        self.typed.append((text, later))

    def interrupt(self) -> bool:
        """Stop the current work; False if there is none."""
        return False

    def take_back(self) -> str | None:
        return self.typed.pop()[0] if self.typed else None

    def live(self, columns: int, rows: int) -> str:
        return ""

    def queue(self) -> list[str]:
        return [f"  queued: {text}" for text, _ in self.typed]

    def toolbar(self) -> str:
        return "starting"


class _BufferedOutput(Vt100_Output):
    """Can hold back output, so that a change of the screen is a single write."""

    is_held = False

    def erase_down(self) -> None:
        # One column to the right: tmux keeps in its scrollback what is erased from the top left
        # corner.
        self.write_raw("\x1b[C\x1b[J\x1b[D\x1b[K")

    def flush(self) -> None:
        # If the terminal is gone, SIGHUP reports it.
        with suppress(OSError):
            if not self.is_held:
                super().flush()


class Prompt:
    def __init__(
        self,
        handler: InputHandler,
        paint: Paint,
        history: History,
        completer: Completer,
        stdout: TextIO,
    ) -> None:
        self.handler = handler
        self.paint = paint
        self.is_armed = False
        """Whether the next Ctrl-C on an empty line quits."""
        self.buffer = Buffer(
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._can_complete),
            enable_history_search=True,
            multiline=True,
            # Once the line is empty again, keys answer the question that is waiting.
            on_text_changed=lambda _: self.attend(),
        )
        self.why = Buffer(multiline=False)
        self.questions = Questions(
            self._show_question, lambda: self.columns, self._asked_changed, self.type_on
        )
        self._output: Any = _BufferedOutput.from_pty(stdout, term=os.environ.get("TERM"))
        # No cursor position requests: on a slow terminal the replies would end up in the input.
        self._output.enable_cpr = False
        self.question_window = Window(
            FormattedTextControl(self._choices, focusable=True, show_cursor=False),
            dont_extend_height=True,
        )
        self.app: Application[int] = Application(
            layout=Layout(self._layout(), focused_element=self.buffer),
            key_bindings=make_keys(self),
            style=_STYLE,
            color_depth=None if paint.colours else ColorDepth.DEPTH_1_BIT,
            input=create_input(sys.stdin),
            output=self._output,
            erase_when_done=True,
            min_redraw_interval=REDRAW_S,
            max_render_postpone_time=REDRAW_S,
            mouse_support=False,
        )
        self.app.renderer = ReflowRenderer(self.app.renderer.style, self._output)
        # Esc is a key by itself, and also the start of escape sequences.
        self.app.ttimeoutlen, self.app.timeoutlen = 0.05, 0.2
        self.app.after_render += self._release
        self._asked_before: AskedQuestion | None = None
        self._is_line_new = False
        """Whether the whole line was typed after the last question."""
        self._drawn: tuple[int, AnyFormattedText] = (-1, "")
        """The render counter, and the live area drawn at that count."""
        self._has_failed = False
        self.shown = asyncio.Event()
        self._shown_s = 0.0

    async def run(self) -> int:
        """Run until the person quits; returns the exit code."""
        try:
            return await self.app.run_async(set_exception_handler=False)
        except EOFError:
            return 0
        finally:
            self._release(self.app)

    def quit(self, code: int = 0) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    @property
    def columns(self) -> int:
        return int(self._output.get_size().columns) or 80

    def print(self, text: str) -> None:
        """Print lines above the input line. They must not contain escape sequences other than
        ours."""
        if self.questions.current is not None:
            self.questions.current.is_apart = True
        if not self.app.is_running or self.app.is_done:
            self._output.write_raw(text)
            self._output.flush()
            return
        self._output.is_held = True
        self.app.renderer.erase()
        self._output.write_raw(text)
        self.app.invalidate()

    def refresh(self) -> None:
        self.app.invalidate()

    @property
    def is_new(self) -> bool:
        """Whether input may have been typed before the prompt appeared."""
        return asyncio.get_running_loop().time() - self._shown_s < NEW_S

    def _release(self, _app: Any) -> None:
        if not self.shown.is_set():
            self._shown_s = asyncio.get_running_loop().time()
        self.shown.set()
        if self._output.is_held:
            self._output.is_held = False
            self._output.flush()

    def _can_complete(self) -> bool:
        text = self.buffer.document.current_line_before_cursor.lstrip(" ")
        return text.startswith("/") or "@" in text

    # Questions

    def _show_question(self, rows: list[str], style: Any) -> None:
        head, *rest = rows
        lines = [self.paint(head, style or "bold"), *(self.paint(row, style) for row in rest)]
        # A question starts a new block and rings the bell; its outcome belongs to that block.
        gap, bell = ("", "") if style else ("\n", "\a")
        self.print(bell + gap + "\n".join(lines) + "\n")

    def _asked_changed(self) -> None:
        asked, text = self.questions.current, self.buffer.text
        if asked is None:
            self._is_line_new = not text
        elif (
            # A single key between two questions was meant for a question, unless more follows.
            asked is not self._asked_before
            and self._is_line_new
            and len(text) == 1
            and by_key(asked.choices, text) is not None
        ):
            asked.typed = text
            self.buffer.reset()
        self._asked_before = asked
        self.attend()
        self.refresh()

    def type_on(self, text: str) -> None:
        """Move text that was typed or pasted at a question, but is not an answer, to the line."""
        self.app.layout.focus(self.buffer)
        self.buffer.insert_text(text.replace("\r\n", "\n").replace("\r", "\n"))

    def attend(self) -> None:
        """Focus the question, unless the person is typing a message."""
        asked, layout = self.questions.current, self.app.layout
        if asked is None or asked.answer.done():
            self.why.reset()
            target: Any = self.buffer
        elif asked.wants_reason:
            target = self.why
        elif layout.has_focus(self.question_window) or not self.buffer.text:
            target = self.question_window
        else:
            target = self.buffer
        if not layout.has_focus(target):
            layout.focus(target)

    def _choices(self) -> AnyFormattedText:
        asked = self.questions.current
        if asked is None:
            return ""
        has_keys = self.app.layout.has_focus(self.question_window)
        room = self._output.get_size().rows - _BELOW_QUESTION
        rows = menu_rows(
            asked.choices, asked.at, asked.shown, self.columns, room - 1, is_apart=asked.is_apart
        )
        if len(rows) >= room and asked.confirms:
            del rows[-1]  # the hint is worth more
        found: StyleAndTextTuples = []
        for text, is_chosen in rows:
            is_marked = is_chosen and has_keys
            shown = f">{text[1:]}" if is_marked else text
            found += [("class:chosen" if is_marked else "", shown), ("", "\n")]
        if len(rows) >= room:
            return found[:-1]
        return [*found, ("class:hint", self._hint(asked, has_keys))]

    def _hint(self, question: AskedQuestion, has_keys: bool) -> str:
        if has_keys and question.confirms:
            return f"  Enter: {question.confirms.words}. Any other key cancels."
        if has_keys and question.is_ready:
            how = "Press a letter, or arrow keys and Enter."
            return f"  {how} No answer within {question.until} means no."
        return "" if has_keys else "  Press Tab to answer, or keep typing."

    # Drawing

    def _layout(self) -> HSplit:
        asking = Condition(lambda: self.questions.current is not None)
        wants_reason = Condition(lambda: has_focus(self.why)())
        search = SearchToolbar()
        line = Window(
            BufferControl(
                self.buffer,
                input_processors=[BeforeInput(f"{self.paint.glyphs.prompt} ", "class:prompt")],
                search_buffer_control=search.control,
                preview_search=True,
            ),
            height=Dimension(min=1, max=_MAX_INPUT_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
        )
        why = Window(
            BufferControl(self.why, input_processors=[BeforeInput("  Why not? ")]),
            height=1,
        )
        return HSplit(
            [
                _shown_if_any(self._live),
                _shown_if_any(
                    lambda: "\n".join(map(self.paint, self.handler.queue())), "class:queue"
                ),
                ConditionalContainer(self.question_window, asking & ~wants_reason),
                ConditionalContainer(why, wants_reason),
                Window(height=1),
                line,
                CompletionsMenu(max_height=_MAX_MENU_ROWS, scroll_offset=1),
                search,
                Window(FormattedTextControl(self._toolbar), height=1, style="class:toolbar"),
            ],
            align=VerticalAlign.TOP,
        )

    def _live(self) -> AnyFormattedText:
        counter = self.app.render_counter
        if self._drawn[0] != counter:
            text = self._draw_live(self._output.get_size().rows)
            self._drawn = (counter, ANSI(f"\n{text}") if text else "")
        return self._drawn[1]

    def _draw_live(self, rows: int) -> str:
        if rows < _SMALL and self.questions.current is not None:
            return ""
        try:
            return self.handler.live(self.columns, max(3, rows // 2))
        except RENDER_ERRORS as error:
            if not self._has_failed:
                self._has_failed = True
                # Later: logging may print above the input line, and the screen is being drawn.
                words = "the current activity cannot be drawn: %r"
                asyncio.get_running_loop().call_soon(log.warning, words, error)
            return NOT_DRAWN

    def _toolbar(self) -> AnyFormattedText:
        if self.is_armed and not self.buffer.text:
            return "Press Ctrl-C again, or Ctrl-D, to end the chat."
        return self.paint(self.handler.toolbar())[: self.columns]


def _shown_if_any(text: Any, style: str = "") -> ConditionalContainer:
    window = Window(FormattedTextControl(text), dont_extend_height=True, style=style)
    return ConditionalContainer(window, Condition(lambda: bool(text())))


def make_keys(prompt: Prompt) -> KeyBindings:
    """Key bindings of the input line, of a question, and of the reason for denying."""
    keys, buffer, questions = KeyBindings(), prompt.buffer, prompt.questions
    is_empty = Condition(lambda: not buffer.text)
    is_armed = Condition(lambda: prompt.is_armed)
    is_waiting = Condition(lambda: questions.current is not None)
    # Tests which of the three has the focus; lambdas, because the windows are created later.
    typing = Condition(lambda: has_focus(prompt.buffer)())
    asked = Condition(lambda: has_focus(prompt.question_window)())
    reason = Condition(lambda: has_focus(prompt.why)())

    def on(names: Iterable[str], when: Filter, do: Callable[[KeyPressEvent], None]) -> None:
        for name in names:
            act = _if_alone(do) if name == "escape" else do
            keys.add(*name.split(), filter=when, eager=name == "c-q")(act)

    on(["enter"], typing, lambda _: _enter(prompt))
    on(["escape enter", "c-j"], typing, lambda _: _newline(prompt))
    on(["c-q"], typing, lambda _: _submit(prompt, later=True))
    on(["up"], typing & is_empty, lambda _: _take_back(prompt))
    on(["tab"], typing & is_waiting, lambda event: event.app.layout.focus(prompt.question_window))
    on(["tab"], typing & ~is_waiting, lambda _: _complete(buffer))
    on(["c-z"], typing, lambda event: event.app.suspend_to_background())
    on(["escape"], typing, lambda _: _escape(prompt))
    on(["c-c", "<sigint>"], typing, lambda _: _interrupt(prompt))
    on(["c-d"], typing & is_empty, lambda _: prompt.quit())
    on([Keys.Any], typing & is_armed, lambda event: _disarm(prompt, event.data))

    on([Keys.Any], asked, lambda event: questions.press(event.data))
    on(["up"], asked, lambda _: questions.press("up"))
    on(["down"], asked, lambda _: questions.press("down"))
    on(["enter"], asked, lambda _: questions.press("enter"))
    on(["escape", "c-d"], asked, lambda _: questions.press("no"))
    on(["c-c", "<sigint>"], asked, lambda _: _stop(prompt))
    on([Keys.BracketedPaste], asked, lambda event: prompt.type_on(event.data))

    on(["enter", "c-j"], reason, lambda _: questions.give_reason(prompt.why.text))
    on(["escape", "c-c", "c-d", "<sigint>"], reason, lambda _: questions.give_reason(""))
    return keys


def _enter(prompt: Prompt) -> None:
    buffer = prompt.buffer
    chosen = buffer.complete_state.current_completion if buffer.complete_state else None
    if chosen is not None and chosen.text.endswith("/"):
        buffer.complete_state = None
    elif buffer.document.text_before_cursor.endswith("\\"):
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
    else:
        _submit(prompt, later=False)


def _newline(prompt: Prompt) -> None:
    if prompt.is_new:
        # Before the prompt took over, the terminal translated Enter to this key.
        _submit(prompt, later=False)
    else:
        prompt.buffer.newline(copy_margin=False)


def _submit(prompt: Prompt, *, later: bool) -> None:
    text = prompt.buffer.text
    prompt.is_armed = False
    if not text.strip():
        prompt.buffer.reset()
        return
    prompt.buffer.reset(append_to_history=True)
    prompt.handler.submit(text.strip("\n"), later=later)
    prompt.attend()


def _take_back(prompt: Prompt) -> None:
    back = prompt.handler.take_back()
    if back is None:
        prompt.buffer.auto_up()
    else:
        prompt.buffer.document = Document(back)


def _complete(buffer: Buffer) -> None:
    state = buffer.complete_state
    if state and len(state.completions) == 1 and state.complete_index is not None:
        # The only completion: accept it, and complete from there.
        buffer.complete_state = state = None
    if state:
        buffer.complete_next()
    else:
        buffer.start_completion(select_first=True)


def _if_alone(do: Callable[[KeyPressEvent], None]) -> Callable[[KeyPressEvent], None]:
    """For Escape itself: Alt with an arrow key is Escape and that key, in one sequence."""
    return lambda event: do(event) if event.data == "\x1b" else None


def _escape(prompt: Prompt) -> None:
    if prompt.buffer.complete_state:
        prompt.buffer.cancel_completion()
    else:
        prompt.handler.interrupt()


def _interrupt(prompt: Prompt) -> None:
    if prompt.is_armed and not prompt.buffer.text:
        prompt.quit()
    elif prompt.handler.interrupt():
        # If there is text in the line, the next Ctrl-C clears it.
        prompt.is_armed = not prompt.buffer.text
    elif prompt.buffer.text:
        prompt.buffer.reset()
    else:
        prompt.is_armed = True


def _disarm(prompt: Prompt, text: str) -> None:
    prompt.is_armed = False
    prompt.buffer.insert_text(text)


def _stop(prompt: Prompt) -> None:
    """Deny, and interrupt the agent so that it does not ask again."""
    prompt.questions.press("no")
    prompt.handler.interrupt()

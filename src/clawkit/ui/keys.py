"""What the keys do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from clawkit.ui.prompt import Prompt

_NO = ("escape", "c-c", "c-d", "<sigint>")


def make_keys(prompt: Prompt) -> KeyBindings:
    """The keys of the line, of a question, and of the reason for a no."""
    keys = KeyBindings()
    _bind_line(keys, prompt)
    _bind_ends(keys, prompt)
    _bind_question(keys, prompt)
    _bind_reason(keys, prompt)
    return keys


def _bind_line(keys: KeyBindings, prompt: Prompt) -> None:
    typing = Condition(lambda: has_focus(prompt.buffer)())
    waiting = Condition(lambda: prompt.questions.current is not None)
    buffer = prompt.buffer

    @keys.add("enter", filter=typing)
    def enter(event: KeyPressEvent) -> None:
        state = buffer.complete_state
        chosen = state.current_completion if state else None
        if chosen is not None and chosen.text.endswith("/"):
            buffer.complete_state = None
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            _submit(prompt, later=False)

    @keys.add("escape", "enter", filter=typing)
    @keys.add("c-j", filter=typing)
    def newline(event: KeyPressEvent) -> None:
        if prompt.is_new:
            # Until then the terminal made this of Enter.
            _submit(prompt, later=False)
        else:
            buffer.newline(copy_margin=False)

    @keys.add("c-q", filter=typing, eager=True)
    def later(event: KeyPressEvent) -> None:
        _submit(prompt, later=True)

    @keys.add("up", filter=typing & Condition(lambda: not buffer.text))
    def up(event: KeyPressEvent) -> None:
        back = prompt.desk.take_back()
        if back is None:
            buffer.auto_up()
        else:
            buffer.text = back
            buffer.cursor_position = len(back)

    @keys.add("tab", filter=typing & waiting)
    def answer(event: KeyPressEvent) -> None:
        event.app.layout.focus(prompt.question_window)

    @keys.add("tab", filter=typing & ~waiting)
    def complete(event: KeyPressEvent) -> None:
        state = buffer.complete_state
        if state and len(state.completions) == 1 and state.complete_index is not None:
            # There is nothing else to choose: it stays, and the line may go on from there.
            buffer.complete_state = state = None
        if state:
            buffer.complete_next()
        else:
            buffer.start_completion(select_first=True)

    @keys.add("c-z", filter=typing)
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def _submit(prompt: Prompt, *, later: bool) -> None:
    text = prompt.buffer.text
    prompt.is_armed = False
    if not text.strip():
        prompt.buffer.reset()
        return
    prompt.buffer.reset(append_to_history=True)
    prompt.desk.submit(text.strip("\n"), later=later)
    prompt.attend()


def _bind_ends(keys: KeyBindings, prompt: Prompt) -> None:
    typing = Condition(lambda: has_focus(prompt.buffer)())
    buffer = prompt.buffer

    @keys.add("escape", filter=typing)
    def escape(event: KeyPressEvent) -> None:
        if buffer.complete_state:
            buffer.cancel_completion()
        else:
            prompt.desk.interrupt()

    @keys.add("c-c", filter=typing)
    @keys.add("<sigint>", filter=typing)
    def interrupt(event: KeyPressEvent) -> None:
        if prompt.is_armed and not buffer.text:
            prompt.quit()
        elif prompt.desk.interrupt():
            prompt.is_armed = True
        elif buffer.text:
            buffer.reset()
        else:
            prompt.is_armed = True

    @keys.add("c-d", filter=typing & Condition(lambda: not buffer.text))
    def end(event: KeyPressEvent) -> None:
        prompt.quit()

    @keys.add(Keys.Any, filter=typing & Condition(lambda: prompt.is_armed))
    def disarm(event: KeyPressEvent) -> None:
        prompt.is_armed = False
        buffer.insert_text(event.data)


def _bind_question(keys: KeyBindings, prompt: Prompt) -> None:
    asked = Condition(lambda: has_focus(prompt.question_window)())

    @keys.add(Keys.Any, filter=asked)
    def letter(event: KeyPressEvent) -> None:
        prompt.questions.press(event.data)

    for name in ("up", "down", "enter"):

        @keys.add(name, filter=asked)
        def move(event: KeyPressEvent, key: str = name) -> None:
            prompt.questions.press(key)

    for name in ("escape", "c-d"):

        @keys.add(name, filter=asked)
        def deny(event: KeyPressEvent) -> None:
            prompt.questions.press("no")

    @keys.add("c-c", filter=asked)
    @keys.add("<sigint>", filter=asked)
    def stop(event: KeyPressEvent) -> None:
        """No to this, and to whatever would come next."""
        prompt.questions.press("no")
        prompt.desk.interrupt()

    @keys.add(Keys.BracketedPaste, filter=asked)
    def paste(event: KeyPressEvent) -> None:
        """What was pasted is no answer."""
        prompt.type_on(event.data.replace("\r\n", "\n").replace("\r", "\n"))


def _bind_reason(keys: KeyBindings, prompt: Prompt) -> None:
    asked = Condition(lambda: has_focus(prompt.why)())

    @keys.add("enter", filter=asked)
    @keys.add("c-j", filter=asked)
    def give(event: KeyPressEvent) -> None:
        prompt.questions.give_reason(prompt.why.text)

    for name in _NO:

        @keys.add(name, filter=asked)
        def nothing(event: KeyPressEvent) -> None:
            prompt.questions.give_reason("")

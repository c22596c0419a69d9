"""Hooks of plugins: hooks on calls join the `Hooks` of a run; others are called from here.

A before-hook fails closed. All others have no effect when they fail or take too long; the problem
is noted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from clawkit.content import Text, ToolResult, User
from clawkit.core.approval import Deny
from clawkit.core.hooks import Hook, Hooks
from clawkit.errors import ClawkitError
from clawkit.plugins.api import ChatMessage, PluginContext
from clawkit.plugins.load import ActivePlugin, PluginSet, describe
from clawkit.plugins.roles import HookName
from clawkit.plugins.watchdog import watching


class PluginHook(Hook, frozen=True):
    """A hook of a plugin. Its failures are noted."""

    active: ActivePlugin
    event: str

    @property
    def name(self) -> str:
        return f"{getattr(self.run, '__name__', 'hook')} of plugin {self.active.id}"

    async def call(self, *arguments: object) -> Any:
        try:
            with watching(self.active):
                return await super().call(*arguments)
        except TimeoutError:
            self.note(f"took longer than {self.timeout_s:g} s")
            raise
        except Exception as error:
            self.note(f"failed: {describe(error)}")
            raise

    def note(self, problem: str) -> None:
        self.active.note(f"its hook {self.event} {problem}")


class MissingGuard(Hook, frozen=True):
    """Blocks all calls, because a plugin that decides about them could not be loaded."""


def with_hooks(hooks: Hooks | None, plugins: PluginSet) -> Hooks:
    """The hooks of a run, with call hooks of exactly these plugins."""
    made = Hooks([*hooks._before], [*hooks._after]) if hooks else Hooks([], [])
    for event, known in (("before_tool_call", made._before), ("after_tool_call", made._after)):
        own = [each for each in known if not isinstance(each, PluginHook | MissingGuard)]
        known[:] = sorted((*own, *hooks_for(plugins, event)), key=lambda each: -each.priority)
    for id_, why in plugins.guards.items():
        said = f"plugin {id_} decides about calls, but is left out: {why}; or disable it"
        made._before.insert(0, MissingGuard(lambda _call, said=said: Deny(said), 0, None, 1.0))
    return made


def hooks_for(plugins: PluginSet, event: str) -> list[PluginHook]:
    """The hooks for an event, highest priority first."""
    found = [
        PluginHook(
            each.run, each.priority, each.tools, active.entry.hooks.timeout_ms / 1000, active, event
        )
        for active in plugins.active.values()
        for each in active.plugin.hooks
        if each.event == event
    ]
    return sorted(found, key=lambda each: -each.priority)


async def tell(
    plugins: PluginSet, event: HookName, context: PluginContext, *args: Any
) -> list[tuple[PluginHook, Any]]:
    """Call the hooks for an event, one after another; yields the result of each that did not
    fail."""
    answers = []
    for hook in hooks_for(plugins, event):
        with suppress(Exception):  # which is noted
            answers.append((hook, await hook.call(*args, hook.active.context(context))))
    return answers


class HookedEnvironment(Struct, frozen=True):
    """The environment of commands, with the variables that plugins add."""

    inner: Any
    plugins: PluginSet
    context: PluginContext
    check: Callable[[Mapping[str, str]], Mapping[str, str]]
    """Raises `ClawkitError` for forbidden variables."""

    async def variables(self) -> Mapping[str, str]:
        found = dict(await self.inner.variables())
        for hook, answer in await tell(self.plugins, "resolve_exec_env", self.context):
            try:
                found |= self.check(msgspec.convert(answer or {}, dict[str, str]))
            except (ClawkitError, msgspec.ValidationError) as error:
                hook.note(f"failed: {error}")
        return found


class SessionHooks:
    """The hooks of plugins about one conversation."""

    def __init__(self, plugins: PluginSet, context: PluginContext) -> None:
        self._plugins, self._context = plugins, context
        self._is_started = False
        guidance = plugins.prompt(context)
        self.guidance = f"{guidance}\n\n" if guidance else ""
        """Prompt text from plugins."""

    async def receive(self, message: User) -> None:
        """A message for the model has arrived; with the first, the session starts."""
        if not self._is_started:
            self._is_started = True
            await tell(self._plugins, "session_start", self._context)
        text = "".join(part.text for part in message.content if isinstance(part, Text))
        await tell(self._plugins, "message_received", self._context, ChatMessage(text))

    async def send(self, text: str) -> str:
        """The text to deliver, after changes by hooks."""
        answers = await tell(self._plugins, "message_sending", self._context, ChatMessage(text))
        return next((each for _, each in reversed(answers) if isinstance(each, str)), text)

    async def end(self) -> None:
        if self._is_started:
            await tell(self._plugins, "session_end", self._context)

    def persist(self, result: ToolResult) -> ToolResult:
        """A result as stored and as seen by the model, after changes by hooks. These must not be
        async; None leaves the result unchanged."""
        found = result
        for hook in hooks_for(self._plugins, "tool_result_persist"):
            try:
                changed = hook.run(found, hook.active.context(self._context))
                if inspect.isawaitable(changed):
                    getattr(changed, "close", lambda: None)()
                    raise TypeError("it must be a plain function, not async")
                if not isinstance(changed, ToolResult | None):
                    raise TypeError(f"it returned {type(changed).__name__}")
                found = changed or found
            except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code
                hook.note(f"failed: {describe(error)}")
        return replace(found, call_id=result.call_id, tool=result.tool)

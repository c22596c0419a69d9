"""An agent: a model, tools and a stored conversation, for Python programs and for the terminal."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from clawkit.agent import system_prompt as prompts
from clawkit.agent.compact import PrunedHistory, settings_of
from clawkit.agent.completion import Completions
from clawkit.agent.events import Event, EventRecorder, Tell, TurnEnded, no_listener
from clawkit.agent.loop import Conversation, Words, limits_of, specs_of
from clawkit.agent.model_selection import ModelSelection, thinking_of
from clawkit.agent.option_checks import check_conversation, check_model, check_thinking
from clawkit.agent.output import AGAIN, name_of, read_output, schema_of
from clawkit.agent.sync_runner import SyncRunner
from clawkit.approvals.protocols import Confines
from clawkit.bundled import select_models
from clawkit.config.load import Loaded
from clawkit.config.model import Config
from clawkit.config.modelref import OPERATOR
from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import Block, Image
from clawkit.core import argument_checks as checks
from clawkit.core.approval import Approver
from clawkit.core.context import Sender
from clawkit.core.hooks import Hooks
from clawkit.core.tool import Tool
from clawkit.delegation import Delegation
from clawkit.errors import OutputError, ToolInputError, TurnError
from clawkit.messenger import SessionMessenger
from clawkit.models.protocols import Model
from clawkit.policy.selectors import Origin, choose_agent
from clawkit.runtime import Toolkit, load_config, make_redactor, resolve_workspace
from clawkit.services import Services
from clawkit.sessions.lanes import Mode as QueueMode
from clawkit.sessions.protocols import Messenger, Session, SessionState, locate_store
from clawkit.sessions.store import LiveSession, SessionStore
from clawkit.sessions.subagent_protocols import Delegates, SpawnRequest
from clawkit.sessions.subagents import Subagents
from clawkit.spawn_setup import wind_up
from clawkit.tools._memory import cites, is_private
from clawkit.turns import Turns, stream_events

if TYPE_CHECKING:
    from clawkit.models.failover import Clock
    from clawkit.plugins.hooks import SessionHooks
    from clawkit.skills.snapshot import SkillSnapshot


Deliver = Callable[[str], Awaitable[None]]
"""Posts text to the people of a session outside a turn of their own."""

T = TypeVar("T")
MessageInput = str | Iterable[Block]
ConfigInput = Config | Loaded | Mapping[str, Any] | str | os.PathLike[str] | None


class Agent:
    """One conversation with a model that has tools. Made by `Agent.open`."""

    def __init__(
        self,
        kit: Toolkit,
        selection: ModelSelection,
        conversation: Conversation,
        live: LiveSession | None = None,
        mode: prompts.Mode = "full",
        instructions: str = "",
        *,
        is_pinned: bool = False,
    ) -> None:
        self.kit = kit
        self.models = selection
        self.conversation = conversation
        self._live = live
        self._telemetry: EventRecorder | None = None
        self.hooks: SessionHooks | None = None  # hooks of plugins
        self._mode: prompts.Mode = mode
        self._instructions = instructions
        self.output_schema = ""  # that the last answer must match; empty for free text
        self._sync = SyncRunner()
        self._is_pinned = is_pinned  # whether the model was requested explicitly
        self._base_config = kit.config  # without the overrides of this conversation
        self.base_loaded = kit.loaded
        self._overrides: dict[str, Any] = {"exec": {}, "elevated": None}
        self._temporary_overrides: Mapping[str, Any] = {}
        self.requested_model: str | Model | None = None
        """The requested model, by name or as an object; None for the configured one."""
        self.parent: Agent | None = None  # the agent that started this sub-agent
        self.delegation: Delegation | None = None  # None if the conversation is not stored
        self.messenger: SessionMessenger | None = None  # the same
        self.deliver: Deliver | None = None
        self.turns = Turns(self)
        self._run_lock = asyncio.Lock()
        self.on_results: Callable[[], None] = lambda: None
        """Called when there are results and no turn is running to read them: call `report`."""
        self.on_subagent_event: Tell = no_listener
        """Called with every event of all sub-agents, each a `SubagentEvent`."""
        self._attach()

    def __repr__(self) -> str:
        return repr(self.kit).replace("Toolkit", type(self).__name__, 1)

    @classmethod
    def open(
        cls,
        config: ConfigInput = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        session: str | None = None,
        keep: bool = True,
        model: str | Model | None = None,
        fallbacks: Iterable[str] = (),
        instructions: str = "",
        thinking: Level | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        channel: str = "",
        account: str = "",
        group: str = "",
        space: str = "",
        sender: Sender | None = None,
        owner: bool = False,
        sandboxed: bool | None = None,
        depth: int = 0,
        tools: Iterable[Tool] = (),
        hooks: Hooks | None = None,
        approver: Approver | None = None,
        tell: Tell | None = None,
        mode: prompts.Mode = "full",
        clock: Clock | None = None,
        allow: Iterable[str] | None = None,
        cwd: str | os.PathLike[str] = "",
        parent: Agent | None = None,
        deliver: Deliver | None = None,
        overrides: bool = True,
        in_gateway: bool = False,
        in_heartbeat: bool = False,
    ) -> Agent:
        """Open or create a conversation.

        `session` is the exact id, key or name of a conversation to continue; an unknown name
        creates one of that name, and None creates one without a name. With `keep` false nothing is
        stored. `model` is `provider/model`, an alias, or a model object; the default is the
        conversation's last model, or else the configured one, one for which there is an API key in
        the environment, or finally `clawkit/operator`. `fallbacks` are used when an explicit
        `model` fails. `instructions` are added to the prompt; `tell` is called with
        every event; `clock` times the retries. `parent` is the agent that started this one as a
        sub-agent, and shares its store and sub-agents. `deliver` is called with text that the model
        posts to the people of this session after an exchange with another session. With `overrides`
        false, the owner's settings for this conversation do not apply. Others: see `Toolkit.open`.

        Raises `ConfigError`, `ToolInputError` for an unknown model or a wrong option, and
        `ConflictError` for a session that another process has open.
        """
        check_model(model, fallbacks)
        check_conversation(session=session, instructions=instructions, thinking=thinking, mode=mode)
        checks.check_limits(max_turns=(max_turns, 1), max_cost=(max_cost, 0))
        checks.check_functions(tell=tell, deliver=deliver)
        checks.check_run(agent, workspace, depth, owner=owner, sandboxed=sandboxed)
        loaded = load_config(config)
        origin = Origin(channel, account, group, sender or Sender(), space)
        name = choose_agent(loaded.config, agent, origin).agent
        place = resolve_workspace(loaded.config, name, workspace)
        redactor = parent.kit.run.redactor if parent else make_redactor(loaded)
        live = None
        if parent is not None and parent.store is not None:
            stored = parent.store.get(session or "", name)
            live = LiveSession(parent.store, stored, shares_store=True)
        elif keep:
            where = locate_store(loaded.config.session.store, os.environ)
            store = SessionStore(where, redactor.text)
            live = LiveSession.open(store, name, session, place)
        is_sibling = parent is not None and parent.kit.run.scope.agent == name
        selection = (
            parent.models if parent and is_sibling else select_models(loaded, name, clock=clock)
        )
        try:
            stored = live.session if live else Session("", "main", name)
            chosen = stored.model_override if model is None else model
            if isinstance(chosen, str):
                using = selection.model(chosen or None, fallbacks=fallbacks)
            else:
                using = chosen
            kit = Toolkit.open(
                loaded,
                workspace=place,
                agent=name,
                session=stored.key,
                model=using.ref,
                context_window=using.facts.window,
                channel=channel,
                account=account,
                group=group,
                sender=sender,
                owner=owner,
                sandboxed=sandboxed,
                depth=depth,
                allow=allow,
                cwd=cwd,
                tools=tools,
                hooks=hooks,
                approver=approver,
                delegates=live is not None,
                in_gateway=in_gateway,
                in_heartbeat=in_heartbeat,
                redactor=redactor,
            )
            settings = loaded.config.agents.get(name)
            talk = Conversation(
                kit.run,
                using,
                "",
                (),
                session=stored.key,
                transcript=live,
                history=live.load() if live else [],
                limits=limits_of(loaded.config, settings, max_turns, max_cost),
                compaction=settings_of(
                    loaded.config, kit.run.scope, partial(selection.model, strict=True)
                ),
                thinking=thinking or thinking_of(loaded.config, settings, stored.thinking),
                usage=stored.usage,
                tell=no_listener if tell is None else tell,
            )
            is_pinned = bool(chosen) or bool(selection.catalog.candidates())
            opened = cls(kit, selection, talk, live, mode, instructions, is_pinned=is_pinned)
            opened.requested_model, opened.deliver = chosen or None, deliver
            if live:
                talk.is_flushed, talk.on_flush = live.is_flushed, live.mark_flushed
            opened._join_tree(parent)
            if parent is not None:
                opened.base_loaded = parent.base_loaded
            state = stored.state
            own = {"exec": state.get("exec") or {}, "elevated": state.get("elevated")}
            # The owner's overrides do not apply to other people in this session.
            if own != opened._overrides and kit.run.scope.sender.owner and overrides:
                opened._set_overrides(own)
            diagnostics, services = loaded.config.diagnostics, kit.run.services
            is_traced = diagnostics.enabled and diagnostics.otel.is_on(os.environ)
            if isinstance(services, Services) and (is_traced or loaded.config.plugins):
                opened._telemetry = services.provide_role("telemetry")
            if opened._telemetry is not None:
                talk.tell = opened._telemetry.beside(talk.tell)
            if (hooked := kit.session_hooks()) is not None:
                opened.hooks, talk.persist = hooked, hooked.persist
            with suppress(RuntimeError):  # no event loop yet: done when the agent is entered
                opened.turns.enter()
        except BaseException:
            if live:
                live.close()
            raise
        return opened

    async def __aenter__(self) -> Agent:
        self.turns.enter()
        try:
            if self.conversation.model.ref == OPERATOR and not self._is_pinned:
                local = await self.models.find_local()
                if local is not None:
                    self._change_model(self.models.model(str(local)))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __enter__(self) -> Agent:
        return self._sync.run(self.__aenter__())

    def __exit__(self, *_error: object) -> None:
        try:
            self._sync.run(self.close())
        finally:
            self._sync.close()

    async def close(self) -> None:
        """Stop everything that runs for this conversation. The stored conversation is kept."""
        try:
            if self.messenger:
                await self.messenger.close()
            await self.turns.lane.close()
            if self.delegation and self.session_id:
                self.delegation.waiting.end()
                self.delegation.subagents.listen(self.session_id, None)
                if self.parent is None:
                    await self.delegation.subagents.close(self.conversation.interrupter)
            if self.hooks is not None:
                await self.hooks.end()
            await self.kit.close()
        finally:
            if self.parent is None or self.parent.models is not self.models:
                await self.models.close()
            self.turns.leave()
            if self._live:
                self._live.close()
            if self._telemetry:
                await self._telemetry.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the configuration, one sentence each."""
        return (*self.kit.warnings, *(self._telemetry.warnings if self._telemetry else ()))

    def post(self, message: Words, *, mode: QueueMode | None = None) -> asyncio.Future[TurnEnded]:
        """Post a message without waiting; the future resolves to the turn that reads it.

        `mode` is how it is handled during a turn: `steer` (read before the model's next answer),
        `followup` (a separate turn afterwards), `collect` (one turn for all waiting messages) or
        `interrupt` (stop the current turn first); the default is `messages.queue.mode`. Cancelling
        the future withdraws an unread message. Raises `ConflictError` if the queue is full.
        """
        return self.turns.post(message, mode)

    async def send(self, message: Words) -> TurnEnded:
        """Run one turn for a message, after any running turn. Cancel the task to abort it."""
        return await self.turns.send(message)

    async def work(self, message: Words, schema: str = "") -> TurnEnded:
        """Run turns for a message until all sub-agents are done and the model has read their
        results; returns the last turn."""
        ended = await self.turns.send(message, schema)
        if ended.how != "done":
            return ended
        return await self.turns.settle(schema, all_turns=self.parent is not None) or ended

    async def settle(self) -> TurnEnded | None:
        """Wait for all turns, sub-agents and messages to other sessions; the model reads the
        reports of sub-agents. Returns the last turn, or None if there was none."""
        return await self.turns.settle()

    @overload
    async def spawn(self, task: str, *, output_type: type[T], **options: Any) -> T: ...
    @overload
    async def spawn(self, task: str, *, output_type: None = None, **options: Any) -> str: ...
    @overload
    async def spawn(self, task: str, *, output_type: Any, **options: Any) -> Any: ...
    async def spawn(self, task: str, *, output_type: Any = None, **options: Any) -> Any:
        """Run a sub-agent and return its result, which the model of this conversation does not see.
        With `output_type` it is an object of that type.

        `options` are those of `SpawnRequest`: `label`, `agent`, `model`, `timeout_s`, …. Waits
        while the maximum number of sub-agents is active. Raises `TurnError` if the sub-agent does
        not complete, `ToolInputError` if it cannot be started.
        """
        if self.delegation is None:
            raise ToolInputError("sub-agents need an agent whose conversation is stored")
        schema = json.loads(schema_of(output_type)) if output_type is not None else None
        request = SpawnRequest(task, output_schema=schema, is_told=False, **options)
        run = await self.delegation.result(request)
        if run.status != "completed":
            raise TurnError(f"sub-agent {run.label!r} {run.status.replace('_', ' ')}: {run.error}")
        return run.text if output_type is None else read_output(output_type, json.dumps(run.output))

    @property
    def has_results(self) -> bool:
        """Whether there are results of sub-agents that the model has not read."""
        return self.delegation is not None and self.delegation.has_results

    async def report(self) -> TurnEnded | None:
        """Run a turn in which the model reads the reports of sub-agents; None if there are none."""
        return await self.turns.report()

    def _join_tree(self, parent: Agent | None) -> None:
        """Join the tree of sessions, below `parent` if this is a sub-agent."""
        if self._live is None:
            return
        self.parent = parent
        session = self._live.session
        if parent is not None and parent.delegation is not None:
            subagents = parent.delegation.subagents
        else:
            subagents = Subagents(session, self._live.store, wind_up)
        self.delegation = delegation = Delegation(self, session, subagents)
        self.delegation.join()
        self.messenger = messenger = SessionMessenger(self, session, self._live.store)
        self.conversation.spent_elsewhere = lambda: delegation.spent_elsewhere() + messenger.spent
        self._attach()

    def stream(self, message: MessageInput, *, tree: bool = False) -> AsyncGenerator[Event]:
        """The events of one turn as they happen; the last one is its `TurnEnded`. With `tree`, also
        those of all sub-agents, until they are done and the model has read their results. Closing
        the iterator aborts the turn."""
        return stream_events(self, message, tree=tree)

    @overload
    async def run(self, message: MessageInput, *, output_type: None = None) -> str: ...
    @overload
    async def run(self, message: MessageInput, *, output_type: type[T]) -> T: ...
    @overload  # for types such as `City | None`, which are not a `type`
    async def run(self, message: MessageInput, *, output_type: Any) -> Any: ...
    async def run(self, message: MessageInput, *, output_type: Any = None) -> Any:
        """Send a message and return the model's last answer, once its sub-agents are done as well;
        with `output_type` (a msgspec struct, a dataclass, a pydantic model) an object of that type.

        Raises `TurnError` if there is no answer. An answer that does not match the type is sent
        back once with the error; if the next one does not match either, raises `OutputError`.
        Concurrent calls run one after the other.
        """
        schema = schema_of(output_type) if output_type is not None else ""
        async with self._run_lock:
            text = await self._answer(message, schema)
            if output_type is None:
                return text
            try:
                return read_output(output_type, text)
            except ValueError as error:
                text = await self._answer(AGAIN.format(error), schema)
            try:
                return read_output(output_type, text)
            except ValueError as error:
                problem = f"the answer does not match {name_of(output_type)}: {error}"
                raise OutputError(problem, text=text) from error

    async def _answer(self, message: MessageInput, schema: str) -> str:
        ended = await self.work(message, schema)
        if ended.how != "done":
            raise TurnError(ended.error or f"the turn ended: {ended.how}", how=ended.how)
        return ended.text

    @overload
    def run_sync(self, message: MessageInput, *, output_type: None = None) -> str: ...
    @overload
    def run_sync(self, message: MessageInput, *, output_type: type[T]) -> T: ...
    @overload
    def run_sync(self, message: MessageInput, *, output_type: Any) -> Any: ...
    def run_sync(self, message: MessageInput, *, output_type: Any = None) -> Any:
        """`run`, for programs without an event loop. Raises RuntimeError if one is running."""
        return self._sync.run(self.run(message, output_type=output_type))

    async def attach(self, path: str | os.PathLike[str]) -> Image:
        """Load an image from the person's disk, scaled to fit. Raises `ToolInputError`."""
        from clawkit.media.local import load_image
        from clawkit.media.protocols import Media

        side = self.kit.config.agents.defaults.image_max_dimension_px
        media: Any = self.kit.run.services[Media]
        return await load_image(media, os.fspath(path), side)  # no number: an open file

    async def update_tools(self) -> None:
        """Offer the tools that MCP servers list now."""
        if await self.kit.update():
            self._attach()

    def refresh(self, schema: str = "") -> None:
        """Bring the prompt and the tools up to date, with a schema for the answer."""
        talk, run = self.conversation, self.kit.run
        if talk.run is not run or not talk.tools:
            talk.run, talk.tools = run, specs_of(run)
        talk.system = self.prompt(schema)
        window = talk.model.facts.window
        if talk.view.window != window:
            talk.view = PrunedHistory(window, self.kit.config.agents.defaults.context_pruning)

    def prompt(self, schema: str = "") -> str:
        """The system prompt as of now, with the JSON Schema of the answer if there is one."""
        run, config = self.kit.run, self.kit.config
        agent, defaults = config.agents.get(run.scope.agent), config.agents.defaults
        files = prompts.read_workspace_files(
            run.workspace,
            prompts.names_of(self._mode, is_private=is_private(run.scope)),
            max_chars=agent.bootstrap_max_chars or defaults.bootstrap_max_chars,
            max_total_chars=agent.bootstrap_total_max_chars or defaults.bootstrap_total_max_chars,
            redact=run.redactor.text,
            may_read=lambda path: self.kit.assembly.lets_read(path, run.workspace),
        )
        confines: Any = run.services[Confines] if run.scope.sandboxed else None
        project = confines.project if confines is not None else ""
        context = prompts.PromptContext(
            run.scope.base(run.workspace),
            run.scope.agent,
            agent.identity.name or agent.name or "",
            agent.identity.theme or "",
            str(self.conversation.model.ref),
            run.scope.sandboxed,
            run.scope.sender.owner,
            defaults.user_timezone or "",
            self._mode,
            (self.hooks.guidance if self.hooks else "") + self._instructions,
            schema or self.output_schema,
            project,
            bool(self.delegation and self.delegation.settings.delegation_mode == "prefer"),
            self.kit.assembly.deferral.directory,
            self.skills.prompt if self.skills else "",
            cites(config, run.scope),
        )
        return prompts.build_prompt(self.kit.assembly.direct, context, files)

    @property
    def skills(self) -> SkillSnapshot | None:
        """The skills of this conversation, as of its last turn; None if there are none."""
        services = self.kit.run.services
        return services.skills if isinstance(services, Services) else None

    def use_model(self, name: str) -> None:
        """Switch to another model from the next request on; empty for the configured one."""
        model = self.models.model(name or None)
        self._change_model(model)
        self.requested_model = name or None
        if self._live:
            self._live.update(model_override=str(model.ref) if name else "")

    def _change_model(self, model: Model) -> None:
        self.conversation.model = model
        self.kit.alter(model=model.ref, context_window=model.facts.window)
        self._attach()
        self.refresh()

    def use_thinking(self, level: Level) -> None:
        """Set the thinking level of this conversation. Raises `ToolInputError` if it is unknown."""
        check_thinking(level)
        self.conversation.thinking = level
        if self._live:
            self._live.update(thinking=level)

    def use_exec(self, changes: Mapping[str, Any]) -> None:
        """Override settings of exec for this conversation; an empty mapping removes the overrides.
        Raises `ConfigError` for an unknown or invalid setting."""
        checks.check_type("changes", changes, Mapping, "a mapping of settings")
        self._set_overrides(self._overrides | {"exec": dict(changes)})

    def use_elevated(self, level: str | None) -> None:
        """Override the elevated mode (off, on, ask, full) of this conversation; None removes it.
        Raises `ConfigError` for an unknown mode."""
        self._set_overrides(self._overrides | {"elevated": level})

    def set_temporary_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Override `exec` and `elevated` on top of `use_exec` and `use_elevated`, without storing
        it; an empty mapping ends it. Raises `ConfigError` for an unknown or invalid setting."""
        self._apply_overrides(self._overrides, overrides)

    @property
    def has_overrides(self) -> bool:
        """Whether the owner has overridden settings in this conversation, or in its parent's."""
        own = {**self._overrides, **self._temporary_overrides}
        is_set = bool(own["exec"]) or own["elevated"] is not None
        return is_set or (self.parent is not None and self.parent.has_overrides)

    def _set_overrides(self, overrides: dict[str, Any]) -> None:
        """Apply overrides to this conversation; they are stored with the conversation."""
        self._apply_overrides(overrides, self._temporary_overrides)
        if self._live:
            self._live.update(state=overrides)

    def _apply_overrides(self, overrides: dict[str, Any], temporary: Mapping[str, Any]) -> None:
        from clawkit.agent.session_overrides import with_overrides

        agent = self.kit.run.scope.agent
        self.kit.alter(config=with_overrides(self._base_config, agent, {**overrides, **temporary}))
        self._overrides, self._temporary_overrides = overrides, temporary
        self._attach()
        self.refresh()

    def _attach(self) -> None:
        """Give tools access to this conversation, and redact what is stored in it."""
        run, talk = self.kit.run, self.conversation
        self.models.learn = run.redactor.learn
        self.models.learn(self.models.catalog.secrets)
        if self._live:
            self._live.store.redact = run.redactor.text
        if isinstance(run.services, Services):
            run.services.fill(SessionState, self._state)
            run.services.fill(Completions, lambda: Completions(self.models, talk))
            if self.delegation is not None:
                run.services.fill(Delegates, lambda: self.delegation)
                run.services.fill(Messenger, lambda: self.messenger)

    def _state(self) -> SessionState:
        from clawkit.session_state import AgentSessionState

        return AgentSessionState(self)

    @property
    def session(self) -> Session | None:
        """The stored session; None if the conversation is not stored."""
        return self._live.session if self._live else None

    @property
    def session_id(self) -> str:
        """The id of the stored session; empty if the conversation is not stored."""
        return self._live.id if self._live else ""

    @property
    def last_number(self) -> int:
        """The number of the last stored message."""
        return self._live.last if self._live else 0

    @property
    def store(self) -> SessionStore | None:
        """The store of the session; None if the conversation is not stored."""
        return self._live.store if self._live else None

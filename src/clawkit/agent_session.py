"""An agent: a model, tools and a stored conversation, for Python programs and for the terminal.

with Agent.open(workspace=".") as agent:
    print(agent.run_sync("What is in this folder?"))
"""

from __future__ import annotations

import asyncio
import os
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from clawkit.agent.compact import KEEP_RECENT_TOKENS, PrunedHistory
from clawkit.agent.compact import Settings as Compaction
from clawkit.agent.events import Event, Tell, TurnEnded
from clawkit.agent.loop import Conversation, NullTranscript, limits_of, no_listener, specs_of
from clawkit.agent.model_selection import Selection
from clawkit.agent.prompt import (
    MAX_CHARS,
    MAX_TOTAL_CHARS,
    Mode,
    Surroundings,
    build_prompt,
    read_workspace_files,
)
from clawkit.agent.session_overrides import with_overrides
from clawkit.approvals.protocols import Confines
from clawkit.config.load import Loaded
from clawkit.config.model import Config
from clawkit.config.sections.agents import Agent as AgentConfig
from clawkit.config.sections.shared import Thinking as Level
from clawkit.content import Block, Image
from clawkit.core.approval import Approver
from clawkit.core.context import Sender
from clawkit.core.hooks import Hooks
from clawkit.core.tasks import in_thread
from clawkit.core.tool import Tool
from clawkit.errors import OutputError, ToolAuthorizationError, ToolInputError, TurnError
from clawkit.media.protocols import MAX_PICTURE_BYTES, Media
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.protocols import Model
from clawkit.runtime import Toolkit, load_config, make_redactor, resolve_workspace
from clawkit.services import Services
from clawkit.sessions.live import LiveSession
from clawkit.sessions.location import locate_store
from clawkit.sessions.protocols import Session, SessionState
from clawkit.sessions.store import SessionStore
from clawkit.telemetry.settings import Telemetry, open_telemetry
from clawkit.text import one_line

if TYPE_CHECKING:
    from clawkit.models.failover import Clock


MAX_IMAGE_BYTES = 5 * 1024 * 1024
WARM_UP_S = 0.2
"""How long a model is waited for before the time is used for something else."""
_AGAIN = (
    "Your last message cannot be used: {}. Answer again with the JSON value alone, as the "
    "instructions about the final answer say."
)
_FENCED = re.compile(r"\A[^{\[]*?```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.S)

T = TypeVar("T")
ConfigInput = Config | Loaded | Mapping[str, Any] | str | os.PathLike[str] | None


class Agent:
    """One conversation with a model that has tools. Made by `Agent.open`."""

    def __init__(
        self,
        kit: Toolkit,
        selection: Selection,
        conversation: Conversation,
        kept: LiveSession | None = None,
        mode: Mode = "full",
        instructions: str = "",
        *,
        is_pinned: bool = False,
    ) -> None:
        self.kit = kit
        self.models = selection
        """Which models there are."""
        self.conversation = conversation
        self._kept = kept
        self._telemetry = Telemetry()
        self._mode: Mode = mode
        self._instructions = instructions
        self._output_schema = ""
        self._runner: asyncio.Runner | None = None
        """The event loop of a program that has none."""
        self._is_pinned = is_pinned
        """Whether this very model was asked for."""
        self._plain = kit.config
        """The configuration without the settings of this conversation alone."""
        self._own: dict[str, Any] = {"exec": {}, "elevated": None}
        self._attach()

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
        instructions: str = "",
        thinking: Level | None = None,
        max_turns: int | None = None,
        max_cost: float | None = None,
        channel: str = "",
        group: str = "",
        sender: Sender | None = None,
        owner: bool = False,
        sandboxed: bool | None = None,
        depth: int = 0,
        tools: Iterable[Tool] = (),
        hooks: Hooks | None = None,
        approver: Approver | None = None,
        tell: Tell | None = None,
        mode: Mode = "full",
        clock: Clock | None = None,
    ) -> Agent:
        """Set up a conversation.

        `session` is the id, the beginning of one, or the name of a conversation to go on with;
        a name that is not known begins one of that name, and None begins one without a name. With
        `keep` false nothing is stored. `model` is `provider/model`, an alias, or a model object;
        left out, it is what the conversation had, else what is configured, else what is found: keys
        in the environment, and at last the built-in `clawkit/operator`. `instructions` are added to
        the system prompt. `tell` is called with every event; `clock` is what retries wait by. The
        others are those of `Toolkit.open`.

        Raises `ConfigError`, `ModelError` for a model that cannot be had, and `ConflictError` for a
        session that another process works in.
        """
        loaded = load_config(config)
        name = loaded.config.agents.choose(agent)
        place = resolve_workspace(loaded.config, name, workspace)
        selection = Selection(loaded, name, clock=clock)
        kept = None
        if keep:
            where = locate_store(loaded.config.session.store, os.environ)
            store = SessionStore(where, make_redactor(loaded).text)
            kept = LiveSession.open(store, name, session, place)
        try:
            stored = kept.session if kept else Session("", "main", name)
            chosen = stored.model_override if model is None else model
            using = selection.model(chosen or None) if isinstance(chosen, str) else chosen
            kit = Toolkit.open(
                loaded,
                workspace=place,
                agent=name,
                session=stored.key,
                model=using.ref,
                context_window=using.facts.window,
                channel=channel,
                group=group,
                sender=sender,
                owner=owner,
                sandboxed=sandboxed,
                depth=depth,
                tools=tools,
                hooks=hooks,
                approver=approver,
            )
            settings = loaded.config.agents.get(name)
            talk = Conversation(
                kit.run,
                using,
                "",
                (),
                session=stored.key,
                transcript=kept or NullTranscript(),
                history=kept.load() if kept else [],
                limits=limits_of(loaded.config, settings, max_turns, max_cost),
                compaction=_compaction(loaded.config, selection),
                thinking=thinking or _thinking(loaded.config, settings, stored.thinking),
                usage=stored.usage,
                tell=no_listener if tell is None else tell,
            )
            is_pinned = bool(chosen) or bool(selection.catalog.candidates())
            made = cls(kit, selection, talk, kept, mode, instructions, is_pinned=is_pinned)
            made.refresh()
            state = stored.state
            own = {"exec": state.get("exec") or {}, "elevated": state.get("elevated")}
            # What the owner has set for themselves is not for others who talk here.
            if own != made._own and kit.run.scope.sender.owner:
                made._use(own)
            made._telemetry = open_telemetry(loaded, name, kit.run.redactor)
            talk.tell = made._telemetry.beside(talk.tell)
        except BaseException:
            if kept:
                kept.close()
            raise
        return made

    async def __aenter__(self) -> Agent:
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
        return self._run_sync(self.__aenter__())

    def __exit__(self, *_error: object) -> None:
        try:
            self._run_sync(self.close())
        finally:
            if self._runner is not None:
                self._runner.close()

    async def close(self) -> None:
        """Stop what runs for this conversation; the conversation itself stays."""
        try:
            await self.kit.close()
        finally:
            await self.models.close()
            if self._kept:
                self._kept.close()
            await self._telemetry.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.kit.warnings, *self._telemetry.warnings)

    async def send(self, said: str | Iterable[Block]) -> TurnEnded:
        """Say something and let the model work until it is done. Cancel the task to abort it."""
        self.conversation.check_idle()
        self.refresh()
        warming = asyncio.ensure_future(self._warm_up())
        try:
            return await self.conversation.turn(said)
        finally:
            warming.cancel()
            await asyncio.wait({warming})

    async def _warm_up(self) -> None:
        """Get ready for a first command while the model thinks."""
        # Not before the request is sent, and not for an answer that comes at once.
        await asyncio.sleep(WARM_UP_S)
        run = self.kit.run
        if "exec" in run.tools and isinstance(run.services, Services):
            await run.services.warm_up()

    async def stream(self, said: str | Iterable[Block]) -> AsyncGenerator[Event]:
        """The events of one turn as they happen; the last one is its `TurnEnded`. Closing the
        iterator aborts the turn."""
        conversation = self.conversation
        conversation.check_idle()
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        before = conversation.tell

        def tell(event: Event) -> None:
            events.put_nowait(event)
            before(event)

        conversation.tell = tell
        turn = asyncio.ensure_future(self.send(said))
        turn.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await turn
        finally:
            turn.cancel()
            await asyncio.wait({turn})
            conversation.tell = before

    @overload
    async def run(self, said: str | Iterable[Block]) -> str: ...
    @overload
    async def run(self, said: str | Iterable[Block], *, output_type: type[T]) -> T: ...
    async def run(self, said: str | Iterable[Block], *, output_type: Any = None) -> Any:
        """The model's last answer to what is said; with `output_type` (a msgspec struct, a
        dataclass, a pydantic model) an object of that type.

        Raises `TurnError` when there is no answer. An answer that is not of the type is sent back
        once with what is wrong with it, and then raises `OutputError`.
        """
        self.conversation.check_idle()
        self._output_schema = _schema_of(output_type) if output_type is not None else ""
        try:
            text = await self._answer(said)
            if output_type is None:
                return text
            try:
                return _read_output(output_type, text)
            except ValueError as error:
                text = await self._answer(_AGAIN.format(error))
            try:
                return _read_output(output_type, text)
            except ValueError as error:
                name = getattr(output_type, "__name__", output_type)
                raise OutputError(f"the answer is not a {name}: {error}", text=text) from error
        finally:
            self._output_schema = ""

    async def _answer(self, said: str | Iterable[Block]) -> str:
        ended = await self.send(said)
        if ended.how != "done":
            raise TurnError(ended.error or f"the turn ended: {ended.how}", how=ended.how)
        return ended.text

    @overload
    def run_sync(self, said: str | Iterable[Block]) -> str: ...
    @overload
    def run_sync(self, said: str | Iterable[Block], *, output_type: type[T]) -> T: ...
    def run_sync(self, said: str | Iterable[Block], *, output_type: Any = None) -> Any:
        """`run`, for programs without an event loop. Raises RuntimeError where one is running."""
        return self._run_sync(self.run(said, output_type=output_type))

    def _run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # One loop for all calls: connections and commands belong to the one they began in.
            self._runner = self._runner or asyncio.Runner()
            return self._runner.run(work)
        work.close()
        raise RuntimeError(
            "an event loop is running here (async code, a notebook): use `async with` and "
            "`await agent.run(…)` instead of `with` and `run_sync`"
        )

    async def attach(self, path: str | os.PathLike[str]) -> Image:
        """A picture from the person's own disk, made to fit. Raises `ToolInputError`."""

        def read() -> bytes:
            with open(path, "rb") as file:
                return file.read(MAX_PICTURE_BYTES + 1)

        media: Any = self.kit.run.services[Media]
        side = self.kit.config.agents.defaults.image_max_dimension_px
        try:
            data = await in_thread(read)
            picture = await media.picture(data, max_side=side, max_bytes=MAX_IMAGE_BYTES)
        except (OSError, ToolInputError) as error:
            why = getattr(error, "strerror", "") or error
            raise ToolInputError(f"{one_line(os.fspath(path), 200)}: {why}") from None
        return Image(b64encode(picture.data).decode(), picture.mime_type)

    def refresh(self) -> None:
        """Have the prompt and the tools say what holds now."""
        talk, run = self.conversation, self.kit.run
        if talk.run is not run or not talk.tools:
            talk.run, talk.tools = run, specs_of(run)
        talk.system = self.prompt()
        window = talk.model.facts.window
        if talk.view.window != window:
            talk.view = PrunedHistory(window, self.kit.config.agents.defaults.context_pruning)

    def prompt(self) -> str:
        """The system prompt as the model would be given it now."""
        run, config = self.kit.run, self.kit.config
        agent, defaults = config.agents.get(run.scope.agent), config.agents.defaults
        files = read_workspace_files(
            run.workspace,
            max_chars=agent.bootstrap_max_chars or defaults.bootstrap_max_chars or MAX_CHARS,
            max_total_chars=agent.bootstrap_total_max_chars
            or defaults.bootstrap_total_max_chars
            or MAX_TOTAL_CHARS,
            redact=run.redactor.text,
        )
        project = ""
        if run.scope.sandboxed:
            confines: Any = run.services[Confines]
            project = confines.project
        around = Surroundings(
            run.workspace,
            run.scope.agent,
            agent.identity.name or agent.name or "",
            agent.identity.theme or "",
            str(self.conversation.model.ref),
            run.scope.sandboxed,
            run.scope.sender.owner,
            defaults.user_timezone or "",
            self._mode,
            self._instructions,
            self._output_schema,
            project,
        )
        return build_prompt(run.tools, around, files)

    def use_model(self, name: str) -> None:
        """Go on with another model, from the next request on; empty for the configured one."""
        model = self.models.model(name or None)
        self._change_model(model)
        if self._kept:
            self._kept.update(model_override=str(model.ref) if name else "")

    def _change_model(self, model: Model) -> None:
        self.conversation.model = model
        self.kit.alter(model=model.ref, context_window=model.facts.window)
        self._attach()
        self.refresh()

    def use_thinking(self, level: Level) -> None:
        """Have the model think more or less, in this conversation."""
        self.conversation.thinking = level
        if self._kept:
            self._kept.update(thinking=level)

    def use_exec(self, changes: Mapping[str, Any]) -> None:
        """Other settings of exec for this conversation alone; an empty mapping takes them back.

        Raises `ConfigError` for an unknown or invalid setting.
        """
        self._use(self._own | {"exec": dict(changes)})

    def use_elevated(self, level: str | None) -> None:
        """Another elevated mode (off, on, ask, full) for this conversation; None takes it back.

        Raises `ConfigError` for an unknown mode.
        """
        self._use(self._own | {"elevated": level})

    def _use(self, own: dict[str, Any]) -> None:
        """Settings that hold for this conversation alone, also when it is resumed."""
        self.kit.alter(config=with_overrides(self._plain, self.kit.run.scope.agent, own))
        self._own = own
        self._attach()
        self.refresh()
        if self._kept:
            self._kept.update(state=own)

    def _attach(self) -> None:
        """Let tools ask about this conversation, and nothing secret get into it."""
        run = self.kit.run
        self.models.learn = run.redactor.learn
        self.models.learn(self.models.catalog.secrets)
        if self._kept:
            self._kept.store.redact = run.redactor.text
        if isinstance(run.services, Services):
            run.services.fill(SessionState, lambda: AgentSessionState(self))

    @property
    def session(self) -> Session | None:
        """The conversation as it is stored; None when it is not."""
        return self._kept.session if self._kept else None

    @property
    def store(self) -> SessionStore | None:
        return self._kept.store if self._kept else None


def _schema_of(output_type: Any) -> str:
    """The JSON Schema of a type. Raises TypeError for what JSON cannot express."""
    if hasattr(output_type, "model_json_schema"):
        schema = output_type.model_json_schema()
    else:
        schema = msgspec.json.schema(output_type)
    return msgspec.json.encode(schema).decode()


def _read_output(output_type: Any, text: str) -> Any:
    """An answer as an object of the type. Raises ValueError that says what is wrong with it."""
    fenced = _FENCED.match(text)
    body = fenced[1] if fenced else text.strip()
    try:
        if hasattr(output_type, "model_validate_json"):
            return output_type.model_validate_json(body)
        return msgspec.json.decode(body, type=output_type)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _compaction(config: Config, selection: Selection) -> Compaction:
    settings = config.agents.defaults.compaction
    return Compaction(
        enabled=settings.enabled,
        keep_recent_tokens=settings.keep_recent_tokens or KEEP_RECENT_TOKENS,
        keep_turns=settings.recent_turns_preserve or 0,
        model=selection.model(settings.model, strict=True) if settings.model else None,
        timeout_s=settings.timeout_seconds or Compaction().timeout_s,
    )


def _thinking(config: Config, agent: AgentConfig, stored: Any) -> Level:
    level = stored or agent.thinking_default or config.agents.defaults.thinking_default or "off"
    return "medium" if level == "adaptive" else level


class AgentSessionState:
    """What tools may know of the conversation, and change."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @property
    def session(self) -> Session:
        scope, usage = self._agent.kit.run.scope, self._agent.conversation.usage
        return self._agent.session or Session("", scope.session, scope.agent, usage=usage)

    @property
    def model(self) -> str:
        return str(self._agent.conversation.model.ref)

    @property
    def auth(self) -> str:
        return self._agent.models.auth(self._agent.conversation.model.ref)

    @property
    def context_tokens(self) -> int:
        return self._agent.conversation.context_tokens

    @property
    def context_window(self) -> int:
        return self._agent.conversation.model.facts.window

    @property
    def queued(self) -> int:
        return self._agent.conversation.queued

    def resolve_model(self, text: str) -> str:
        if not self._agent.kit.run.scope.sender.owner:
            raise ToolAuthorizationError(
                "only the owner chooses the model of a conversation", reason="owner-only"
            )
        if text.strip().lower() == "default":
            return ""
        models = self._agent.models
        ref = models.find(text)
        # A person can put this right; a model that cannot be asked never says another word.
        if ref != OPERATOR and not models.catalog.credentials.has(ref.provider):
            raise ToolInputError(f"{ref} cannot be chosen: there is no credential for it")
        return str(ref)

    def set_model(self, model: str) -> None:
        self._agent.use_model(model)

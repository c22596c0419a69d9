"""The `cron` tool's view of jobs, and the store of jobs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.agent.assemble import Assembly, assemble
from clawkit.agent.model import default_model, find_model
from clawkit.agent.system_prompt import read_workspace_files
from clawkit.config.load import Loaded
from clawkit.config.paths import cron_file, home
from clawkit.config.sections.agents import Agents
from clawkit.config.sections.gateway import Cron
from clawkit.content import Assistant, Text, User
from clawkit.core.context import Scope, Sender
from clawkit.core.tool import CORE, Registered
from clawkit.cron import heartbeat
from clawkit.cron.jobs import RUNNING, AgentTurn, Job, JobAuthor, ScriptPayload
from clawkit.cron.protocols import FILE
from clawkit.cron.schedule import OnExit, Stream
from clawkit.cron.service import CronService, iso
from clawkit.cron.store import CronStore, JobRow, new_run
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.external import wrap_external
from clawkit.sessions.keys import is_heartbeat, parse_key
from clawkit.sessions.protocols import locate_store, session_key
from clawkit.sessions.store import Mail, SessionStore
from clawkit.sessions.subagent_protocols import now_ms
from clawkit.sessions.visibility import Requester, SessionTarget, Sight, may_see
from clawkit.text import cut, one_line, parse_time

if TYPE_CHECKING:
    from clawkit.tools.cron import Params

IN_A_RUN = ("status", "list", "get", "runs", "remove", "next_check")
MAX_CONTEXT, MAX_LINE = 700, 220
CONTEXT = "\n\nRecent context:\n"
HEARTBEATS = "heartbeats"
MAX_WAKE_UPS = 200
"""Maximum wake-ups waiting per agent."""
GUEST = "a client without owner rights"
WEB_ANSWER = "the answer to a web request"
_FROM_OTHERS = ("agent:", "Web request to ", WEB_ANSWER, GUEST)
"""Senders whose messages wait for a person's turn; a heartbeat does not read them."""
_USES = {OnExit: "exec", Stream: "exec", ScriptPayload: "code_execution"}
"""The tools that parts of jobs use."""
PAUSED = "heartbeats are paused; to resume: clawkit heartbeat resume"


def cron_store() -> CronStore:
    """The jobs of this home."""
    return CronStore(cron_file(os.environ))


def open_cron(loaded: Loaded) -> CronService:
    """The jobs of this home, for a process without a scheduler."""
    return CronService(cron_store(), loaded.config.cron or Cron(), now_ms)


def home_workspace(agents: Agents, agent: str) -> str:
    """Where the sessions of an agent work in the gateway: as configured, or in the home."""
    place = agents.get(agent).workspace or agents.defaults.workspace
    return os.path.abspath(os.path.expanduser(place)) if place else f"{home(os.environ)}/workspace"


def heartbeat_facts(
    loaded: Loaded,
    cron: CronService,
    sessions: SessionStore,
    agent: str,
    redact: Callable[[str], str],
) -> tuple[heartbeat.BeatFacts, str]:
    """The settings that an agent's heartbeat depends on, and the summary of the last one."""
    agents, now, store = loaded.config.agents, now_ms(), cron.store
    settings = heartbeat.settings_of(agents, agent)
    zone = heartbeat.zone_of(agents, settings)
    place, scope = home_workspace(agents, agent), Scope(agent=agent, sender=Sender(owner=True))
    files = read_workspace_files(
        place,
        (FILE,),
        redact=redact,
        may_read=lambda path: assemble(loaded.config, scope).lets_read(path, place),
    )
    is_there = bool(files) or os.path.lexists(os.path.join(place, FILE))
    own = store.fact(f"heartbeat:{agent}") if store.exists else {}
    switch = store.fact(HEARTBEATS) if store.exists else {}
    row = cron.heartbeat_job(agent)
    since = (row.state.schedule_activated_at_ms if row else now) or 0
    spent = store.spent(row.job.id, heartbeat.midnight_ms(now, zone), now) if row else (0, 0.0, 0)
    main = sessions.find(session_key(agent, loaded.config.session.main_key))
    mail = sessions.mailbox.unread(main.id, sandboxed=False) if main else ()
    is_on = bool(switch.get("enabled", True))
    facts = heartbeat.BeatFacts(
        settings=settings,
        now_ms=now,
        zone=zone,
        is_meant=agent == agents.default_id() or agents.get(agent).heartbeat is not None,
        text=(files[0].text if files else "") if is_there else None,
        scratch=str(own.get("scratch", "")),
        has_mail=any(not each.sender.startswith(_FROM_OTHERS) for each in mail),
        paused=str(own.get("paused", "")) if is_on else PAUSED,
        said_ms=max(sessions.last_said(agent, now - heartbeat.IDLE_MS), since),
        runs=spent[0],
        cost=spent[1],
        last_ms=spent[2],
    )
    return facts, str(own.get("summary", ""))


def keep_heartbeat(cron: CronService, agent: str, facts: heartbeat.BeatFacts) -> JobRow | None:
    """Update the job of an agent's heartbeat to match its settings; creates it when needed."""
    row = cron.heartbeat_job(agent)
    if row is None and heartbeat.why_off(facts) is None:
        row = cron.wake_job(agent)
    return cron.adjust(row, heartbeat.shape_job(row.job, facts)) if row is not None else None


def switch_heartbeats(cron: CronService, is_on: bool) -> None:
    """Pause or resume the heartbeats of all agents, including those that an error stopped."""
    cron.store.set_fact(HEARTBEATS, {"enabled": is_on})
    for row in cron.store.declared("heartbeat:") if is_on else ():
        name = f"heartbeat:{row.job.agent_id}"
        cron.store.set_fact(name, cron.store.fact(name) | {"paused": ""})


def leave(store: SessionStore, session: str, sender: str, text: str) -> str:
    """Leave a message for the next turn of a session; returns its id."""
    mail = Mail(uuid.uuid4().hex[:16], session, sender, "", text, (sender,), sent_ms=now_ms())
    store.mailbox.put(mail)
    return mail.id


class SessionCron:
    """The tool `cron` for one session. A model sees and changes the jobs of its agent."""

    def __init__(self, loaded: Loaded, scope: Scope, rules: Assembly) -> None:
        """`rules` are those of the session."""
        self._loaded, self._scope, self._rules = loaded, scope, rules
        self._cron = open_cron(loaded)

    def run(self, params: Params) -> dict[str, Any]:
        own = self._own_job()
        if own and params.action not in IN_A_RUN:
            raise ToolAuthorizationError(
                f"a job cannot use {params.action!r}; it can use {', '.join(IN_A_RUN)}"
            )
        if params.action in ("add", "update", "wake"):
            self._check_rights()
        match params.action:
            case "status":
                return self._cron.status()
            case "list":
                return self._cron.list(
                    include_disabled=params.include_disabled,
                    agent=self._visible(params.agent_id),
                    limit=params.limit,
                    offset=params.offset,
                )
            case "add":
                return self._add(params)
            case "wake":
                return self._wake(params)
            case "next_check":
                return self._next_check(params, own)
        if params.action == "runs":
            id_ = self._find(params, own).id if params.job_id else ""
            return self._runs(id_, params)
        job = self._find(params, own)
        match params.action:
            case "get":
                return self._cron.get(job.id)
            case "update":
                if params.patch is None:
                    raise ToolInputError('patch is required, such as {"enabled": false}')
                return self._cron.update(job.id, params.patch, by="model", **self._own)
            case "remove":
                return self._cron.remove(job.id)
        return self._cron.run(job.id, params.run_mode)

    @property
    def _own(self) -> dict[str, Any]:
        return {"agent": self._scope.agent, "sign": self._sign}

    def _visible(self, agent: str) -> str:
        """The agent whose jobs to list; another agent only if its sessions are visible."""
        own, agent = self._scope, agent.strip().lower() or self._scope.agent
        here = Requester("", own.session, own.agent, own.sandboxed, own.depth)
        sight = Sight.of(self._loaded.config, own.agent)
        hidden = may_see(here, SessionTarget("", "", agent), sight) if agent != own.agent else ""
        if hidden:
            raise ToolAuthorizationError(f"the jobs of {one_line(agent, 60)!r}: {hidden}")
        return agent

    def _runs(self, id_: str, params: Params) -> dict[str, Any]:
        """Runs, with the answers to web requests marked as untrusted."""
        page = self._cron.runs(id_, params.limit, params.offset, agent=self._scope.agent)
        for entry in page["entries"]:
            if entry["jobName"].startswith("hook-") and (said := entry.get("summary")):
                entry["summary"] = wrap_external(said, WEB_ANSWER)
        return page

    def _own_job(self) -> str:
        """The job whose run makes this call; empty outside a job."""
        with suppress(ToolInputError):
            key = parse_key(self._scope.session)
            if key.kind == "cron":
                return key.name.split(":")[1]
        return RUNNING.get()

    def _find(self, params: Params, own_job: str) -> Job:
        if not params.job_id:
            raise ToolInputError("jobId (or id) is required")
        job = self._cron.store.find(params.job_id).job
        if (job.agent_id or self._default) != self._scope.agent:
            raise NotFoundError(f"unknown job {one_line(params.job_id, 60)!r} of this agent")
        if job.declaration_key and params.action in ("update", "remove"):
            raise ToolAuthorizationError("clawkit manages this job; change it in the settings")
        if own_job and params.action == "remove" and job.id != own_job:
            raise ToolAuthorizationError("a job can remove only itself")
        return job

    @property
    def _main(self) -> str:
        return session_key(self._scope.agent, self._loaded.config.session.main_key)

    @property
    def _default(self) -> str:
        return self._loaded.config.agents.default_id()

    def _add(self, params: Params) -> dict[str, Any]:
        if not params.job:
            raise ToolInputError("job is required: {name, schedule, payload}")
        now = f" (now: {iso(now_ms())})"
        raw = dict(params.job)
        try:
            if params.context_messages:
                raw = self._with_context(raw, params.context_messages)
            # Elsewhere, such as in a script, there is no session to report to.
            session = self._scope.session if self._scope.session.startswith("agent:") else ""
            return self._cron.add(raw, by="model", session=session, **self._own)
        except ToolAuthorizationError:
            raise
        except ToolInputError as error:
            said = str(error)
            raise ToolInputError(said if "now:" in said else said + now) from None

    def _check_rights(self) -> None:
        """Jobs run with all rights of the agent, so a restricted session must not create them."""
        sandbox = self._loaded.config.agents.sandbox_of(self._scope.agent)
        if limit := self._scope.find_limit(all_sandboxed=sandbox.mode == "all"):
            raise ToolAuthorizationError(
                f"a session {limit} cannot add or change jobs, or wake others: these run with more "
                "rights"
            )

    def _sign(self, job: Job) -> Job:
        """The job with this session as its author. Raises `ToolAuthorizationError` if its runs
        would use tools that this session does not have."""
        uses = {_USES[type(part)] for part in (job.schedule, job.payload) if type(part) in _USES}
        _refuse(uses - self._rules.tools.keys())
        if not isinstance(job.payload, ScriptPayload):
            turn = job.payload if isinstance(job.payload, AgentTurn) else AgentTurn("-")
            own = f"cron:{job.id}:run:{job.id}"
            names = {"isolated": own, "main": self._main, "current": job.session_key}
            target = job.session_target
            self._check_turn(names.get(target, target.removeprefix("session:")), turn)
        return replace(job, author=self._author)

    @property
    def _author(self) -> JobAuthor:
        scope = self._scope
        return JobAuthor(scope.model, scope.sender, scope.withheld)

    def _check_turn(self, session: str, turn: AgentTurn) -> None:
        """Refuse a turn with tools that this session does not have. For turns of jobs, this is only
        an early error: their runs are checked again, with the settings of that time. Wake-ups are
        not: others may share their turn."""
        extra = [each for each in self._rules.registry.values() if each.source != CORE]
        _refuse(lost_tools(self._loaded, self._author, self._scope, session, turn, extra))

    def lacks_of_heartbeats(self) -> bool:
        """Whether heartbeats of this agent have tools that this session does not have."""
        agent = self._scope.agent
        settings = heartbeat.settings_of(self._loaded.config.agents, agent)
        key = settings.session or session_key(agent, "heartbeat")
        try:
            self._check_turn(key, AgentTurn("-", model=settings.model or ""))
        except ToolError:  # also if the sessions cannot be read
            return True
        return False

    def _with_context(self, raw: dict[str, Any], count: int) -> dict[str, Any]:
        """A systemEvent extended by the last messages of this session."""
        payload = dict(raw.get("payload") or {})
        holder, text = (payload, payload.get("text")) if payload else (raw, raw.get("text"))
        if not isinstance(text, str):
            raise ToolInputError("contextMessages is only for a systemEvent payload")
        store = SessionStore(locate_store(self._loaded.config.session.store, os.environ))
        found = store.find(self._scope.session)
        lines, room = list[str](), MAX_CONTEXT
        for entry in reversed(store.history(found.id, 4 * count) if found else ()):
            message = entry.message
            if not isinstance(message, User | Assistant) or len(lines) >= count:
                continue
            said = " ".join(each.text for each in message.content if isinstance(each, Text))
            if said.strip():
                who = "Assistant" if isinstance(message, Assistant) else "User"
                line = f"- {who}: {one_line(said, MAX_LINE - len(who) - 4)}"
                if (room := room - len(line) - 1) < 0:
                    break
                lines.append(line)
        holder["text"] = text + (CONTEXT + "\n".join(reversed(lines)) if lines else "")
        return raw | {"payload": payload} if payload else raw

    def _next_check(self, params: Params, own_job: str) -> dict[str, Any]:
        if not own_job:
            raise ToolInputError("next_check works only in a running job; use update to change one")
        try:
            delay_ms = round(parse_time(params.delay) * 1000)
        except ValueError as error:
            raise ToolInputError(f"delay: {error}") from None
        return self._cron.next_check(own_job, delay_ms)

    def _wake(self, params: Params) -> dict[str, Any]:
        if not params.text.strip():
            raise ToolInputError("text is required: the message for the session")
        key = params.session_key.strip() or self._main
        self._check_turn(key, AgentTurn("-"))
        return wake(self._loaded, self._cron, self._scope.agent, key, params.text, params.mode)


def lost_tools(
    loaded: Loaded, author: JobAuthor, own: Scope, key: str, turn: AgentTurn, more: list[Registered]
) -> list[str]:
    """The tools of a turn in a session that policy would remove for its author; tools that settings
    offer only to some models do not count. `own` is the scope of any session of the agent, whose
    model applies if none is set; `more` are external tools. Raises `ToolInputError`."""
    config, agent = loaded.config, own.agent
    found = SessionStore(locate_store(config.session.store, os.environ)).find(key, agent)
    name = turn.model or (found.model_override if found else "")
    try:
        model = find_model(config, agent, name) if name else None
    except ValueError as error:
        raise ToolInputError(f"payload.model: {error}") from None
    scope = replace(
        own,
        model=model or default_model(config, agent) or own.model,
        sender=Sender(owner=True),
        sandboxed=config.agents.sandbox_of(agent).covers(key),
        withheld=(),
        allow=turn.tools_allow,
        delegates=True,
        in_gateway=True,
    )
    return assemble(config, scope, more).lost_in(config, author.within(scope))


def _refuse(tools: Iterable[str]) -> None:
    if names := ", ".join(sorted(tools)):
        raise ToolAuthorizationError(f"this would use tools that this session lacks: {names}")


def is_wakeable(key: str) -> bool:
    """Whether a session can be woken without a person."""
    parsed = parse_key(key)
    return not (parsed.depth or parsed.kind in ("cron", "hook") or is_heartbeat(key))


def queue_wake_up(
    cron: CronService, agent: str, key: str, text: str, due_ms: int, *, owner: bool = True
) -> None:
    """Raises `ConflictError` if too many are waiting."""
    run = new_run(cron.wake_job(agent), "event", due_ms, text)
    record = replace(run.record, is_guest=not owner)
    cron.store.accept(replace(run, session=key, record=record), MAX_WAKE_UPS)


def wake(
    loaded: Loaded,
    cron: CronService,
    agent: str,
    key: str,
    text: str,
    mode: str,
    *,
    owner: bool = True,
) -> dict[str, Any]:
    """Send a session a text: in a turn of its own now, with or without owner rights, or in its next
    turn. Raises `ToolError` for a session that cannot be woken."""
    if parse_key(key).agent != agent or not is_wakeable(key):
        raise ToolError(f"{key} cannot be woken (unwakeable-session-key)")
    if not text.strip():
        raise ToolInputError("the text must not be empty")
    said = cut(text, 20_000)
    if mode == "now":
        queue_wake_up(cron, agent, key, said, now_ms(), owner=owner)
        note = {} if cron.store.owners() else {"note": "queued until a scheduler runs"}
        return {"ok": True, "mode": mode, **note}
    store = SessionStore(locate_store(loaded.config.session.store, os.environ))
    found = store.find(key)
    if found is None:
        raise NotFoundError(f"there is no session {key} yet; mode 'now' (--now) starts it")
    sender = "a wake-up" if owner else GUEST
    return {"ok": True, "mode": mode, "id": leave(store, found.id, sender, said)}

"""`clawkit sandbox`: which sandbox commands run in, which there are, and running one by hand."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import click
import msgspec

from clawkit.agent.assemble import assemble
from clawkit.approvals.protocols import Confines
from clawkit.cli.options import (
    Settings,
    config_option,
    is_terminal,
    json_option,
    print_json,
    print_table,
    read_settings,
    refuse_commands,
    scope_options,
    warn,
)
from clawkit.config.load import Loaded, load
from clawkit.config.paths import home
from clawkit.config.sections.sandbox import Network
from clawkit.core.context import Scope, Sender
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, NotFoundError, ToolAuthorizationError, ToolError
from clawkit.process.environ import build as build_env
from clawkit.process.protocols import NO_GRANTS, BaseEnvironment, Command, Commands, Exit, Launch
from clawkit.runtime import resolve_workspace
from clawkit.sandbox.local import list_local, remove_local
from clawkit.sandbox.protocols import Instance, SandboxUnavailableError
from clawkit.services import Services
from clawkit.text import human_time, printable

_Engine = Literal["docker", "podman"]
_SLUG = 32


def _open(options: dict[str, Any], session: str | None) -> Settings:
    settings = read_settings(options)
    warn(map(str, settings.loaded.warnings))
    if session is None:
        return settings
    scope, sandboxed = settings.scope, options["sandboxed"]
    if sandboxed is None:
        sandboxed = settings.loaded.config.agents.sandbox_of(scope.agent).covers(session)
    return settings._replace(scope=replace(scope, session=session, sandboxed=sandboxed))


def _join(words: Sequence[str]) -> str:
    """One word is what a shell reads; several are a program and its arguments."""
    try:
        return words[0] if len(words) == 1 else shlex.join(words)
    except ValueError as error:
        raise ClawkitError(str(error)) from None


_session_option = click.option("--session", metavar="KEY", help="Session.  [default: main]")


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@_session_option
@json_option
@scope_options
def explain(command: tuple[str, ...], session: str | None, as_json: bool, **options: Any) -> None:
    """Explain which sandbox commands run in, why, and what it allows.

    With a COMMAND, also where that would run. One word is a shell command; several are a program
    and its arguments.

    Exit code 1 if the configured sandbox is not available.
    """
    from clawkit.cli import sandbox_explain

    settings = _open(options, session)
    found = sandbox_explain.explain(settings, _join(command) if command else "")
    if as_json:
        print_json(found)
    else:
        sandbox_explain.show(found)
    sys.exit(1 if found["problem"] else 0)


@click.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--network",
    type=click.Choice(["none", "full"]),
    help="Network of the command.  [default: as configured]",
)
@_session_option
@scope_options
def run(command: tuple[str, ...], network: Any, session: str | None, **options: Any) -> None:
    """Run a command in the sandbox, as an agent's command would run there.

    One word is a shell command; several are a program and its arguments. Standard input is passed
    on; output and errors both go to standard output. The exit code is that of the command. Ctrl-C
    stops it and everything it started.

    \b
    clawkit sandbox run -- ls ~/.ssh
    clawkit sandbox run 'curl -sS https://example.org | head'
    """
    text = _join(command)
    if not command[0].strip():
        raise click.UsageError("the command is empty")
    if network == "full":
        refuse_commands("widen its sandbox")
    sys.exit(asyncio.run(_run(_open(options, session), text, network)))


@click.command("list")
@json_option
@config_option
def list_sandboxes(as_json: bool, config_file: str | None) -> None:
    """List the sandboxes that exist on this machine, and those of configured backends."""
    found, problems = asyncio.run(find_all(config_file))
    if as_json:
        print_json([_row(each.instance) for each in found])
    elif not found:
        click.echo("No sandbox exists yet; the first command creates one.", err=True)
    else:
        head = ("NAME", "BACKEND", "STATUS", "LAST USED", "AGE")
        print_table(head, [_cells(each.instance) for each in found])
    warn(problems)


def _row(instance: Instance) -> dict[str, Any]:
    return {
        "name": instance.name,
        "backend": instance.backend,
        "scope": instance.scope,
        "createdAtMs": round(instance.created * 1000),
        "lastUsedAtMs": round(instance.used * 1000),
        "running": instance.running,
        "outdated": instance.outdated,
    }


def _cells(instance: Instance) -> tuple[str, ...]:
    def since(then: float) -> str:
        return human_time(max(0.0, time.time() - then)) if then else "?"

    status = "in use" if instance.running else "idle"
    status += ", old settings" if instance.outdated else ""
    name = printable(instance.name, "")
    return name, instance.backend, status, since(instance.used), since(instance.created)


@click.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="All sandboxes.")
@click.option("--session", metavar="KEY", help="Sandboxes of a session.")
@click.option("--agent", metavar="ID", help="Sandboxes of an agent.")
@click.option("--force", is_flag=True, help="Do not ask.")
@json_option
@config_option
def recreate(
    name: str | None,
    everything: bool,
    session: str | None,
    agent: str | None,
    force: bool,
    as_json: bool,
    config_file: str | None,
) -> None:
    """Remove sandboxes with their caches and private workspaces; the next use creates new ones.

    NAME is one that `clawkit sandbox list` shows. Sandboxes in use are not removed.

    Exit code 1 if one could not be removed, or the session or agent has none; 3 if you answer no.
    """
    given = [each for each in (name, session, agent) if each is not None]
    if len(given) + everything != 1:
        raise click.UsageError("give exactly one of NAME, --session, --agent and --all")
    refuse_commands("remove sandboxes")
    found, problems = asyncio.run(find_all(config_file))
    chosen = [
        each
        for each in found
        if everything or is_meant(each.instance, name=name, session=session, agent=agent)
    ]
    warn(problems)
    if name is not None and not chosen:
        raise click.UsageError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
    if not chosen and not everything:
        whose = f"session {session!r}" if agent is None else f"agent {agent!r}"
        raise NotFoundError(f"the {whose} has no sandbox; see `clawkit sandbox list`")
    if chosen and not force and is_terminal(sys.stdin) and not _confirm(chosen):
        click.echo("Nothing was removed.", err=True)
        sys.exit(ToolAuthorizationError.exit_code)
    removed, kept = asyncio.run(remove_all(chosen))
    if as_json:
        print_json({"removed": removed, "notRemoved": kept})
    else:
        click.echo(f"Removed {_count(len(removed))}.")
        for problem in kept.values():
            click.echo(f"clawkit: {printable(problem)}", err=True)
    sys.exit(1 if kept else 0)


def _confirm(chosen: Sequence[FoundSandbox]) -> bool:
    for each in chosen:
        click.echo(f"  {printable(each.instance.name, '')}", err=True)
    whole = "its files" if len(chosen) == 1 else "their files"
    return click.confirm(f"Remove {_count(len(chosen))} with {whole}?", err=True)


def _count(number: int) -> str:
    return "1 sandbox" if number == 1 else f"{number} sandboxes"


def is_meant(
    instance: Instance, *, name: str | None, session: str | None = None, agent: str | None = None
) -> bool:
    """Whether a sandbox is of that name, or belongs to that session or agent."""
    if name is not None:
        return instance.name == name
    about = f"agent:{agent}:workspace:" if agent is not None else f"{session}:workspace:"
    if instance.scope.startswith(about):
        return True
    # Names of local ones are made of the key, shortened, with a hash of it.
    plain = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")[:_SLUG].strip("-")
    body = instance.name.rpartition("-")[0]
    return body == plain or body.startswith(f"{plain}-")


@click.command()
@click.option("--image", metavar="NAME", help="Name of the image.  [default: as configured]")
@click.option("--engine", type=click.Choice(["docker", "podman"]), help="[default: as configured]")
@config_option
def build(image: str | None, engine: _Engine | None, config_file: str | None) -> None:
    """Build the image of the docker and podman backends from this machine's packages."""
    from clawkit.sandbox.engine import build_image

    refuse_commands("build images")
    settings = load(config_file).config.agents.defaults.sandbox
    chosen: _Engine = engine or ("podman" if settings.backend == "podman" else "docker")
    name = image or settings.docker.image
    asyncio.run(build_image(chosen, name, lambda text: click.echo(printable(text), err=True)))
    click.echo(f"Built {printable(name)} with {chosen}.")


_CHUNK = 1 << 16
_LOOK_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _run(settings: Settings, command: str, network: Network | None) -> int:
    """The exit code of the command, or 128 and the number of the signal that killed it."""
    loaded, scope = settings.loaded, settings.scope
    if network is not None:
        loaded = loaded._replace(config=_with_network(settings, network))
    workspace = resolve_workspace(loaded.config, scope.agent, settings.workspace)
    rules = assemble(loaded.config, scope)
    services = Services(loaded, scope, workspace, rules=rules)
    try:
        confines: Any = services[Confines]
        if not confines.has_sandbox:
            said = confines.problem or f"no sandbox is available: {confines.choice.reason}"
            raise SandboxUnavailableError(said)
        if network is not None and confines.choice.backend not in ("bwrap", "landlock"):
            raise ClawkitError(
                f"--network has no effect on the backend {confines.choice.backend!r}, whose "
                "network its own settings decide"
            )
        if scope.sandboxed:
            workspace = services.enter_sandbox()
        around: Any = services[BaseEnvironment]
        base = dict(await around.variables())
        _, hold, env = confines.in_sandbox(NO_GRANTS)
        # Output goes to pipes, whatever terminal this is.
        extra = {**env, "CLAWKIT_SHELL": "sandbox run", "TERM": "dumb"}
        launch = Launch(
            command,
            confines.workspace(),
            build_env(base, {}, path=base["PATH"], extra=extra),
            open_input=sys.stdin is not None,
            hold=hold,
        )
        commands: Any = services[Commands]
        running = await commands.start("sandbox", launch, "sandbox run", background=False)
        return await _attend(running)
    finally:
        await services.close()


def _with_network(settings: Settings, network: Network) -> Any:
    """The configuration with another network for the sandbox of this agent."""
    config, agent = settings.loaded.config, settings.scope.agent
    changed = msgspec.structs.replace(config.agents.sandbox_of(agent), network=network)
    defaults = msgspec.structs.replace(config.agents.defaults, sandbox=changed)
    found = config.agents.by_id().get(agent)
    own = {agent: msgspec.structs.replace(found, sandbox=None)} if found else {}
    agents = msgspec.structs.replace(config.agents, defaults=defaults, listed=[], entries=own)
    return msgspec.structs.replace(config, agents=agents)


async def _attend(command: Command) -> int:
    """Until it ends, or a signal ends it."""
    loop = asyncio.get_running_loop()
    caught: list[int] = []
    ending: set[asyncio.Task[None]] = set()

    def stop(number: int) -> None:
        caught.append(number)
        ending.add(asyncio.ensure_future(command.end()))

    for each in _SIGNALS:
        loop.add_signal_handler(each, stop, each)
    feeding = asyncio.ensure_future(_feed(command))
    try:
        await _show(command)
        exit_ = await command.wait()
        await asyncio.gather(*ending)
    finally:
        feeding.cancel()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
    if caught:
        return 128 + caught[0]
    return _code(command, exit_)


async def _show(command: Command) -> None:
    """Write out what it writes, as it comes."""
    seen = 0
    while True:
        is_over = command.exit is not None
        while data := await command.output.read(seen, _CHUNK):
            seen += len(data)
            if sys.stdout is not None:
                await in_thread(sys.stdout.buffer.write, data)
                await in_thread(sys.stdout.buffer.flush)
        if is_over:
            return
        await command.wait_for_news(seen, _LOOK_S)


async def _feed(command: Command) -> None:
    """Pass on what is typed or piped in."""
    if sys.stdin is None:
        return
    # A command that does not read its input need not take it.
    with suppress(ToolError, OSError):
        while data := await in_thread(os.read, sys.stdin.fileno(), _CHUNK):
            await command.write(data)
        await command.write(b"", eof=True)


def _code(command: Command, exit_: Exit | None) -> int:
    if exit_ is None:
        return 1
    notes = list(exit_.notes)
    if exit_.wanted_network and exit_.code:
        notes.append("the sandbox refused network access; --network full grants it")
    for note in notes:
        click.echo(f"clawkit: {printable(note)}", err=True)
    if exit_.signal:
        return 128 + int(signal.Signals[exit_.signal])
    return exit_.code if exit_.code is not None else 1


_LOCAL = ("auto", "bwrap", "landlock", "openshell", "crabbox")
"""Backends that keep nothing beside the directories of the local ones, or are not supported."""


class FoundSandbox(NamedTuple):
    """A sandbox, and how it is removed."""

    instance: Instance
    remove: Callable[[], Awaitable[None]]


async def find_all(config_file: str | None) -> tuple[list[FoundSandbox], list[str]]:
    """Those of the local backends, and of every other backend that an agent is to use; and why
    some could not be looked for."""
    loaded, state = load(config_file), home(os.environ)
    found = [
        FoundSandbox(each, partial(in_thread, remove_local, state, each.name))
        for each in await in_thread(list_local, state)
    ]
    problems = []
    for agent, backend in _elsewhere(loaded):
        try:
            async with _opened(loaded, agent) as sandbox:
                instances: Sequence[Instance] = await sandbox.list()
            found += (
                FoundSandbox(each, partial(_remove, loaded, agent, each.name)) for each in instances
            )
        except ClawkitError as error:
            problems.append(f"cannot list sandboxes of the backend {backend!r}: {error}")
    return found, problems


def _elsewhere(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """An agent for each backend that is not local."""
    agents, seen = loaded.config.agents, set()
    for agent in (agents.default_id(), *agents.by_id()):
        settings = agents.sandbox_of(agent)
        key = (settings.backend, settings.ssh.target, settings.docker.container_prefix)
        if settings.mode != "off" and settings.backend not in _LOCAL and key not in seen:
            seen.add(key)
            yield agent, settings.backend


async def _remove(loaded: Loaded, agent: str, name: str) -> None:
    async with _opened(loaded, agent) as sandbox:
        await sandbox.remove(name)


@asynccontextmanager
async def _opened(loaded: Loaded, agent: str) -> AsyncIterator[Any]:
    """The sandbox of an agent."""
    scope = Scope(agent=agent, sender=Sender(owner=True))
    services = Services(loaded, scope, resolve_workspace(loaded.config, agent))
    try:
        confines: Any = services[Confines]
        yield confines.sandbox
    finally:
        await services.close()


async def remove_all(chosen: Sequence[FoundSandbox]) -> tuple[list[str], dict[str, str]]:
    """The names of those that were removed, and why the others were not."""
    removed, kept = [], {}
    for each in chosen:
        name = each.instance.name
        try:
            if each.instance.running:
                raise ToolError(f"the sandbox {name!r} is in use; stop its sessions first")
            await each.remove()
            removed.append(name)
        except ClawkitError as error:
            kept[name] = str(error)
    return removed, kept

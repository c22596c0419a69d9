"""`clawkit sandbox`: explain, list and recreate sandboxes, and run a command in one."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import click
from msgspec.structs import replace

from clawkit.agent.assemble import assemble
from clawkit.approvals.protocols import Confines
from clawkit.cli import shared_options as cli
from clawkit.config.load import Loaded, load
from clawkit.config.paths import home
from clawkit.config.sections.sandbox import Network
from clawkit.core.context import Scope, Sender
from clawkit.core.tasks import in_thread
from clawkit.errors import ClawkitError, NotFoundError, ToolError
from clawkit.process.command import Command
from clawkit.process.environ import build as build_env
from clawkit.process.protocols import NO_GRANTS, BaseEnvironment, Commands, Launch
from clawkit.runtime import resolve_workspace
from clawkit.sandbox.local import list_local, remove_local
from clawkit.sandbox.protocols import Instance, SandboxUnavailableError
from clawkit.services import Services
from clawkit.text import human_time, printable

_Engine = Literal["docker", "podman"]
_SLUG = 32


def _open(options: dict[str, Any], session: str) -> cli.ResolvedOptions:
    settings = cli.read_settings(options, session)
    cli.warn(map(str, settings.loaded.warnings))
    return settings


def _join(words: Sequence[str]) -> str:
    """One word is a shell command; several are a program and its arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


_SESSION = click.option("--session", metavar="KEY", default="main", help="Session. Default: main.")


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@_SESSION
@cli.json_option
@cli.scope_options
def explain(command: tuple[str, ...], session: str, as_json: bool, **options: Any) -> None:
    """Explain which sandbox is used, why, and what it allows.

    With COMMAND, also explain where it would run. One word is a shell command; several are a
    program and its arguments.

    Exit code 1 if the configured sandbox is not available.
    """
    from clawkit.cli import sandbox_explain

    settings = _open(options, session)
    found = sandbox_explain.explain(settings, _join(command) if command else "")
    cli.warn(found["warnings"])
    if as_json:
        cli.print_json(found)
    else:
        sandbox_explain.show(found)
    sys.exit(1 if found["problem"] else 0)


@click.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--network",
    type=click.Choice(["none", "full"]),
    help="Network access of the command. Default: as configured.",
)
@_SESSION
@cli.scope_options
def run(command: tuple[str, ...], network: Any, session: str, **options: Any) -> None:
    """Run a command in the sandbox, as if an agent had started it.

    One word is a shell command; several are a program and its arguments. Standard input is passed
    on; output and errors both go to standard output. The exit code is that of the command. Ctrl-C
    stops the command and everything it started.

    \b
    clawkit sandbox run -- ls ~/.ssh
    clawkit sandbox run 'curl -sS https://example.org | head'
    """
    text = _join(command)
    if not command[0].strip():
        raise click.UsageError("the command is empty")
    if network == "full":
        cli.refuse_commands("widen its sandbox")
    sys.exit(asyncio.run(_run(_open(options, session), text, network)))


@click.command("list")
@cli.json_option
@cli.config_option
def list_sandboxes(as_json: bool, config_file: str | None) -> None:
    """List the sandboxes on this machine and those of other configured backends."""
    found, problems = asyncio.run(find_all(load(config_file)))
    if as_json:
        cli.print_json([_row(each) for _, each in found])
    elif not found:
        click.echo("No sandbox exists yet; the first command creates one.", err=True)
    else:
        head = ("NAME", "BACKEND", "STATUS", "LAST USED", "AGE")
        cli.print_table(head, [_cells(each) for _, each in found])
    cli.warn(problems)


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
    status = "in use" if instance.running else "idle"
    status += ", old settings" if instance.outdated else ""
    used, age = (
        human_time(max(0.0, time.time() - then)) if then else "?"
        for then in (instance.used, instance.created)
    )
    return printable(instance.name, ""), instance.backend, status, used, age


@click.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="All sandboxes.")
@click.option("--session", metavar="KEY", help="Sandboxes of a session.")
@click.option("--agent", metavar="ID", help="Sandboxes of an agent.")
@cli.yes_option("--force")
@cli.json_option
@cli.config_option
def recreate(
    everything: bool, yes: bool, as_json: bool, config_file: str | None, **wanted: Any
) -> None:
    """Remove sandboxes with their caches and private workspaces; the next use creates new ones.

    NAME is one that `clawkit sandbox list` shows. Sandboxes in use are not removed.

    Exit code 1 if one could not be removed, or the session or agent has none; 3 if you answer no.
    """
    name, session, agent = (wanted[key] for key in ("name", "session", "agent"))
    if sum(value is not None for value in wanted.values()) + everything != 1:
        raise click.UsageError("give exactly one of NAME, --session, --agent and --all")
    cli.refuse_commands("remove sandboxes")
    loaded = load(config_file)
    found, problems = asyncio.run(find_all(loaded))
    chosen = [(owner, each) for owner, each in found if everything or is_meant(each, **wanted)]
    cli.warn(problems)
    if name is not None and not chosen:
        raise click.UsageError(f"unknown sandbox {name!r}; see `clawkit sandbox list`")
    if not chosen and not everything:
        whose = f"session {session!r}" if agent is None else f"agent {agent!r}"
        raise NotFoundError(f"the {whose} has no sandbox; see `clawkit sandbox list`")
    if chosen and not yes:
        number = cli.counted(len(chosen), "sandbox", "es")
        whole = "its files" if len(chosen) == 1 else "their files"
        names = [each.name for _, each in chosen]
        cli.confirm(f"Remove {number} with {whole}?", "nothing was removed", names)
    removed, kept = asyncio.run(remove_all(loaded, chosen))
    if as_json:
        cli.print_json({"removed": removed, "notRemoved": kept})
    else:
        click.echo(f"Removed {cli.counted(len(removed), 'sandbox', 'es')}.")
        for problem in kept.values():
            click.echo(f"clawkit: {printable(problem)}", err=True)
    sys.exit(1 if kept else 0)


def is_meant(
    instance: Instance, *, name: str | None, session: str | None = None, agent: str | None = None
) -> bool:
    """Whether a sandbox has that name, or belongs to that session or agent."""
    if name is not None:
        return instance.name == name
    about = f"agent:{agent}:workspace:" if agent is not None else f"{session}:workspace:"
    if instance.scope.startswith(about):
        return True
    # The name of a local one is its shortened scope key and a hash.
    plain = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")[:_SLUG].strip("-")
    body = instance.name.rpartition("-")[0]
    return body == plain or body.startswith(f"{plain}-")


@click.command()
@click.option("--image", metavar="NAME", help="Name of the image. Default: as configured.")
@click.option(
    "--engine", type=click.Choice(["docker", "podman"]), help="Default: as configured, else docker."
)
@cli.config_option
def build(image: str | None, engine: _Engine | None, config_file: str | None) -> None:
    """Build the image for docker and podman from this machine's packages."""
    from clawkit.sandbox.engine import build_image

    cli.refuse_commands("build images")
    settings = load(config_file).config.agents.defaults.sandbox
    chosen: _Engine = engine or ("podman" if settings.backend == "podman" else "docker")
    name = image or settings.docker.image
    asyncio.run(build_image(chosen, name, lambda text: click.echo(printable(text), err=True)))
    click.echo(f"Built {printable(name)} with {chosen}.")


_CHUNK = 1 << 16
_LOOK_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _run(settings: cli.ResolvedOptions, command: str, network: Network | None) -> int:
    """The exit code of the command, or 128 plus the number of the signal that killed it."""
    loaded, scope = settings.loaded, settings.scope
    if network is not None:
        loaded = replace(loaded, config=_with_network(settings, network))
    workspace = resolve_workspace(loaded.config, scope.agent, settings.workspace)
    services = Services(loaded, scope, workspace, rules=assemble(loaded.config, scope))
    try:
        confines: Any = services[Confines]
        if not confines.has_sandbox:
            said = confines.problem or f"no sandbox is available: {confines.choice.reason}"
            raise SandboxUnavailableError(said)
        if network is not None and confines.choice.backend not in ("bwrap", "landlock"):
            raise ClawkitError(
                f"--network has no effect on the backend {confines.choice.backend!r}: its own "
                "settings decide"
            )
        if scope.sandboxed:
            services.enter_sandbox()
        around: Any = services[BaseEnvironment]
        base = dict(await around.variables())
        _, hold, env = confines.in_sandbox(NO_GRANTS)
        # Output goes through pipes, even at a terminal.
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


def _with_network(settings: cli.ResolvedOptions, network: Network) -> Any:
    config, agent = settings.loaded.config, settings.scope.agent
    changed = replace(config.agents.sandbox_of(agent), network=network)
    defaults = replace(config.agents.defaults, sandbox=changed)
    found = config.agents.by_id().get(agent)
    own = {agent: replace(found, sandbox=None)} if found else {}
    agents = replace(config.agents, defaults=defaults, listed=[], entries=own)
    return replace(config, agents=agents)


async def _attend(command: Command) -> int:
    """Wait for the command, passing on input, output and signals; returns the exit code."""
    loop = asyncio.get_running_loop()
    ending: dict[int, asyncio.Task[None]] = {}

    def stop(number: int) -> None:
        ending[number] = asyncio.ensure_future(command.end())

    for each in _SIGNALS:
        loop.add_signal_handler(each, stop, each)
    feeding = asyncio.ensure_future(_feed(command))
    try:
        await _show(command)
        exit_ = await command.wait()
        await asyncio.gather(*ending.values())
    finally:
        feeding.cancel()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
    if ending or exit_ is None:
        return 128 + next(iter(ending)) if ending else 1
    notes = list(exit_.notes)
    if exit_.wanted_network and exit_.code:
        notes.append("the sandbox refused network access; --network full grants it")
    for note in notes:
        click.echo(f"clawkit: {printable(note)}", err=True)
    if exit_.signal:
        return 128 + int(signal.Signals[exit_.signal])
    return exit_.code if exit_.code is not None else 1


async def _show(command: Command) -> None:
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
    if sys.stdin is None:
        return
    # The command may end without reading all of its input.
    with suppress(ToolError, OSError):
        while data := await in_thread(os.read, sys.stdin.fileno(), _CHUNK):
            await command.write(data)
        await command.write(b"", eof=True)


_LOCAL = ("auto", "bwrap", "landlock", "openshell", "crabbox")
"""Backends whose sandboxes are all local directories, or which are not supported."""
Found = tuple[str, Instance]
"""An agent whose backend has the sandbox (empty for local backends), and the sandbox."""


async def find_all(loaded: Loaded) -> tuple[list[Found], list[str]]:
    """The sandboxes of the local backends and of all other configured backends, and why some could
    not be listed."""
    found: list[Found] = [("", each) for each in await in_thread(list_local, home(os.environ))]
    problems = []
    agents, seen = loaded.config.agents, set()
    for agent in (agents.default_id(), *agents.by_id()):
        settings = agents.sandbox_of(agent)
        key = (settings.backend, settings.ssh.target, settings.docker.container_prefix)
        if settings.mode == "off" or settings.backend in _LOCAL or key in seen:
            continue
        seen.add(key)
        try:
            async with _opened(loaded, agent) as sandbox:
                found += [(agent, each) for each in await sandbox.list()]
        except ClawkitError as error:
            problems.append(f"cannot list sandboxes of the backend {settings.backend!r}: {error}")
    return found, problems


@asynccontextmanager
async def _opened(loaded: Loaded, agent: str) -> AsyncIterator[Any]:
    scope = Scope(agent=agent, sender=Sender(owner=True))
    services = Services(loaded, scope, resolve_workspace(loaded.config, agent))
    try:
        confines: Any = services[Confines]
        yield confines.sandbox
    finally:
        await services.close()


async def remove_all(loaded: Loaded, chosen: Sequence[Found]) -> tuple[list[str], dict[str, str]]:
    """Remove sandboxes; returns the names of those removed, and why the others were not."""
    removed, kept = [], {}
    for agent, instance in chosen:
        try:
            if instance.running:
                raise ToolError(f"the sandbox {instance.name!r} is in use; stop its sessions first")
            if not agent:
                await in_thread(remove_local, home(os.environ), instance.name)
            else:
                async with _opened(loaded, agent) as sandbox:
                    await sandbox.remove(instance.name)
            removed.append(instance.name)
        except ClawkitError as error:
            kept[instance.name] = str(error)
    return removed, kept

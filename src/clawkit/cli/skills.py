"""`clawkit skills`: which skills there are, why each is offered or not, and installing one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial

import click

from clawkit.cli import shared_options as cli
from clawkit.config.load import Loaded, load
from clawkit.config.paths import abbreviate_home, expand, skills_dir
from clawkit.config.section import suggest
from clawkit.config.sections.skills import SkillLimits, Skills
from clawkit.core.context import Scope
from clawkit.errors import Issue, NotFoundError
from clawkit.runtime import resolve_workspace
from clawkit.services import Services
from clawkit.skills.discovery import SkillRoot
from clawkit.skills.install import place, unpacked
from clawkit.skills.snapshot import SkillSnapshot
from clawkit.text import human_size, one_line, printable

_AGENT = click.option("--agent", help="Agent whose skills are shown. Default: the default one.")
_OPTIONS = (cli.json_option, cli.config_option, cli.workspace_option, _AGENT)
_options = partial(cli.scope_options, options=_OPTIONS)


def open_skills(
    loaded: Loaded, workspace: str | None = None, agent: str | None = None, path: str | None = None
) -> SkillSnapshot:
    """The skills of an agent, or those at a path."""
    name = loaded.config.agents.find(agent)
    services = Services(
        loaded, Scope(agent=name), resolve_workspace(loaded.config, name, workspace)
    )
    if path:
        folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
        return services.run_skills.read([SkillRoot(folder, "extra")])
    return services.skills or services.run_skills.read([])


def find_issues(loaded: Loaded, workspace: str | None = None) -> Iterator[Issue]:
    """Errors in the settings of skills: missing directories and skills."""
    settings = loaded.config.skills or Skills()
    for number, path in enumerate(settings.load.extra_dirs):
        if not os.path.isdir(expand(path, os.environ)):
            yield Issue(f"skills.load.extraDirs[{number}]", f"{path!r} is not a directory")
    if settings.entries:
        agents = (None, *loaded.config.agents.by_id())
        found = [each for name in agents for each in open_skills(loaded, workspace, name).skills]
        known = sorted({each.key for each in found})
        for name in settings.entries:
            if name not in known:
                hint = suggest(name, known, "Skills here")
                yield Issue(f"skills.entries.{name}", "no skill has this key", hint=hint)


@click.command("list")
@_options
def list_skills(
    as_json: bool, config_file: str | None, workspace: str | None, agent: str | None
) -> None:
    """List skills, and how many tokens each costs in the prompt."""
    found = open_skills(load(config_file), workspace, agent)
    rows = [*map(found.describe, found.skills)]
    total = sum(row["tokens"] for row in rows)
    if as_json:
        cli.print_json({"skills": rows, "tokens": total})
        return
    table = []
    for row in rows:
        cells = row["name"], row["source"], row["tokens"], row["missing"] or row["description"]
        table.append([printable(one_line(str(cell), 200), "") for cell in cells])
    if rows:
        cli.print_table(("NAME", "SOURCE", "TOKENS", "DESCRIPTION"), table)
    state = f"{len(found.listed)} in the prompt, about {total} tokens"
    click.echo(f"{cli.counted(len(rows), 'skill')}; {state}." if rows else "No skills found.")
    _warn(found)


def _warn(snapshot: SkillSnapshot) -> None:
    cli.warn(f"{abbreviate_home(each.file)}: {each.problem}" for each in snapshot.broken)


@click.command()
@click.argument("name")
@_options
def info(
    name: str, as_json: bool, config_file: str | None, workspace: str | None, agent: str | None
) -> None:
    """Show everything about a skill, with hints for installing its requirements."""
    found = open_skills(load(config_file), workspace, agent)
    skill = next((each for each in found.skills if each.name.lower() == name.lower()), None)
    if skill is None:
        names = [each.name for each in found.skills]
        hint = cli.suggest(name, names) or "; `clawkit skills list` lists them"
        _warn(found)
        raise NotFoundError(f"unknown skill {one_line(name, 60)!r}{hint}")
    row = found.describe(skill)
    if as_json:
        cli.print_json(row)
        return
    more = {**row.pop("metadata"), **row.pop("fields")}
    for key, value in {**row, **more}.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each not in ("", {}):
                is_data = isinstance(each, dict | bool)
                shown = json.dumps(each, ensure_ascii=False) if is_data else each
                click.echo(printable(f"{key:<14} {one_line(str(shown), 2_000)}", ""))


@click.command()
@click.argument("path", required=False, type=click.Path(exists=True))
@_options
def check(
    path: str | None,
    as_json: bool,
    config_file: str | None,
    workspace: str | None,
    agent: str | None,
) -> None:
    """Check all skills, or the one at PATH: is it valid, and is it offered?

    Exit codes: 0 all can be read, 1 some cannot.
    """
    loaded = load(config_file)
    found = open_skills(loaded, workspace, agent, path)
    issues = [] if path else [*find_issues(loaded, workspace)]
    if as_json:
        broken = [{"file": each.file, "problem": each.problem} for each in found.broken]
        said = {"broken": broken, "issues": [each._asdict() for each in issues]}
        cli.print_json({"skills": [*map(found.describe, found.skills)], **said})
    else:
        for skill in found.skills:
            why = found.why_not(skill)
            click.secho(f"{'out' if why else 'ok':<6} {skill.name}", nl=not why, bold=True)
            if why:
                click.echo(f": {printable(why, '')}")
            for warning in skill.warnings:
                click.echo(f"       {printable(warning, '')}")
        for each in found.broken:
            click.secho(f"error  {printable(each.file, '')}: {printable(each.problem)}", fg="red")
        none = f"{path} contains no SKILL.md" if path and not (found.skills or found.broken) else ""
        cli.warn((*found.remarks(), *map(str, issues), *filter(None, [none])))
        count = cli.counted(len(found.broken), "error")
        click.echo(f"{cli.counted(len(found.skills), 'skill')}, {count}.")
    sys.exit(1 if found.broken or (path and not found.skills) else 0)


@click.command()
@click.argument("path", type=click.Path(exists=True))
@cli.yes_option()
@cli.json_option
@cli.config_option
def install(path: str, yes: bool, as_json: bool, config_file: str | None) -> None:
    """Install the skill in PATH, a directory or a .zip, .skill, .tar.gz or .tgz file.

    It is unpacked, checked and shown before it is installed in clawkit's home. Nothing in it is
    run.
    """
    cli.refuse_commands("install skills")
    skills, root = load(config_file).config.skills, skills_dir(os.environ)
    with unpacked(path, root, skills.limits if skills else SkillLimits()) as (skill, files):
        about = [f"{skill.name}: {skill.description}"]
        about += [
            f"{each.name} ({human_size(each.size)}{', program' if each.is_program else ''})"
            for each in files
        ]
        if not yes:
            cli.confirm("Install it?", "nothing was installed", about)
        target = place(skill, root)
    if as_json:
        cli.print_json({"name": skill.name, "path": target, "files": [e._asdict() for e in files]})
    else:
        click.echo(f"Installed {printable(skill.name, '')} in {abbreviate_home(target)}.")

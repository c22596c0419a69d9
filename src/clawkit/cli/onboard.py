"""`clawkit onboard` and `clawkit configure`: from nothing to a model that answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from clawkit.cli.config import print_diff
from clawkit.cli.onboarding_ask import Asker, Option, can_ask
from clawkit.cli.onboarding_choices import SKIP, Choice, find_choice, unknown_choice
from clawkit.cli.onboarding_custom import APIS
from clawkit.cli.onboarding_flags import Given, read_key, read_setup
from clawkit.cli.onboarding_plan import Key, Setting, Setup, plan
from clawkit.cli.onboarding_trial import Trial, try_model
from clawkit.cli.onboarding_write import (
    Place,
    find_place,
    first_credential,
    preview,
    preview_loaded,
    write,
)
from clawkit.cli.options import config_option, json_option, print_json, refuse_commands, warn
from clawkit.config.change import Change

SECTIONS = ("models", "tools", "approvals")
_NEXT = "Try: clawkit chat"


@click.command(short_help="Choose a model, try it, and write the configuration.")
@click.option("--non-interactive", is_flag=True, help="Ask nothing; everything is in the options.")
@click.option("--auth-choice", metavar="ID", help="Whose models, such as anthropic-api-key.")
@click.option("--api-key", metavar="KEY", help="The key. Other users of the machine can see it.")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--api-key-stdin", is_flag=True, help="Read the key from standard input.")
@click.option("--model", metavar="ID", help="The model. Default: the provider's usual one.")
@click.option("--custom-base-url", metavar="URL", help="Address of a service of your own.")
@click.option("--custom-model-id", metavar="ID", help="Model of that service.")
@click.option("--custom-provider-id", metavar="NAME", help="Name for that service.")
@click.option("--custom-compatibility", type=click.Choice(list(APIS)), help="API it speaks.")
@click.option("--custom-image-input", is_flag=True, help="Its model takes images.")
@click.option("--custom-text-input", is_flag=True, help="Its model takes no images.")
@click.option("--custom-private-network", is_flag=True, help="It is in a private network.")
@click.option("--no-test", is_flag=True, help="Do not ask the model for a word before writing.")
@click.option("--save-anyway", is_flag=True, help="Write also when the model does not answer.")
@json_option
@config_option
def onboard(config_file: str | None, as_json: bool, **options: Any) -> int:
    """Choose a model, try it with one word, and write the configuration.

    In a terminal a few questions are asked; what is found, keys in the environment and an Ollama
    on this machine, is offered first. A key that is typed goes into auth-profiles.json, which only
    you can read. Comments in an existing configuration stay, and the file before is kept.

    Exit codes: 0 written, 1 the model did not answer and nothing was written, 2 wrong usage.

    \b
    clawkit onboard
    clawkit onboard --non-interactive --auth-choice anthropic-api-key
    clawkit onboard --non-interactive --auth-choice zai-api-key --api-key-stdin < key.txt
    """
    refuse_commands()
    given = Given(**options)
    choice = _choice(given.auth_choice)
    place = find_place(config_file)
    if given.non_interactive:
        return _unasked(place, given, choice, as_json)
    _need_terminal("add --non-interactive and --auth-choice, or use `clawkit config set`")
    _refuse_flags(given, as_json)
    with _asking() as asker:
        asker.say("This writes down which model clawkit uses. Ctrl-C ends it, nothing is written.")
        key = read_key(given, choice) if choice else None
        return _asked(asker, place, choice, key)


@click.command(short_help="Change the model, the tools or the approvals, by questions.")
@click.argument("section", type=click.Choice(SECTIONS), required=False)
@config_option
def configure(section: str | None, config_file: str | None) -> int:
    """Change one part of an existing configuration by answering questions.

    SECTION is `models` (provider, key and model, as in `clawkit onboard`), `tools` (which tools
    there are) or `approvals` (which commands run unasked). Without one, it is asked for.
    """
    refuse_commands()
    place = find_place(config_file)
    _need_terminal("use `clawkit config set`, or `clawkit onboard --non-interactive`")
    with _asking() as asker:
        if section is None:
            words = ("provider, key and model", "which tools there are", "which commands run")
            options = [Option(*each) for each in zip(SECTIONS, words, strict=True)]
            section = SECTIONS[asker.choose("What do you want to change?", options)]
        if section == "models":
            return _asked(asker, place, None, None)
        from clawkit.cli.onboarding_sections import ask_approvals, ask_tools

        settings = (ask_tools if section == "tools" else ask_approvals)(asker, place.loaded)
        return _confirm(asker, place, settings, None)


def _choice(text: str | None) -> Choice | None:
    if text is None:
        return None
    found = find_choice(text)
    if found is None:
        raise click.UsageError(f"--auth-choice: {unknown_choice(text)}")
    return found


def _need_terminal(instead: str) -> None:
    if not can_ask():
        raise click.UsageError(f"there is no terminal to ask in; {instead}")
    from clawkit.process.hidden import hide_memory

    hide_memory()


def _refuse_flags(given: Given, as_json: bool) -> None:
    """Options that say what would be asked."""
    if as_json or given.only_unasked:
        name = "--json" if as_json else f"--{given.only_unasked[0].replace('_', '-')}"
        raise click.UsageError(f"{name} goes with --non-interactive only")
    if given.auth_choice is None and (given.api_key or given.api_key_env):
        raise click.UsageError("say with --auth-choice whose key this is")


@contextmanager
def _asking() -> Iterator[Asker]:
    """Whoever ends it before the end is told that nothing was written."""
    asker = Asker()
    try:
        yield asker
    except (KeyboardInterrupt, click.Abort):
        if not asker.is_done:
            asker.say("\nNothing was written.")
        raise


def _asked(asker: Asker, place: Place, choice: Choice | None, key: Key | None) -> int:
    from clawkit.cli.onboarding_flow import ask_setup

    setup = ask_setup(asker, place, choice, key)
    if setup is None:
        asker.say("Nothing was written.")
        return 1
    code = _confirm(asker, place, plan(setup, place.loaded, place.agent), setup)
    if not code and setup.ref:
        asker.say(_NEXT)
    return code


def _confirm(asker: Asker, place: Place, settings: list[Setting], setup: Setup | None) -> int:
    """Show the change, and write it if that is wanted."""
    change = preview(place, settings)
    stores = setup is not None and bool(setup.key.secret)
    if change.before == change.after and not stores:
        asker.say(f"{place.file} says so already; there is nothing to write.")
        return 0
    asker.show(change)
    if stores:
        asker.say(f"The key goes to {place.key_file}, which only you can read.")
    if not asker.yes("Write this?"):
        asker.say("Nothing was written.")
        return 1
    done = write(place, settings, setup)
    asker.is_done = True
    _tell(place, done, setup)
    return 0


def _unasked(place: Place, given: Given, choice: Choice | None, as_json: bool) -> int:
    if choice is None:
        raise click.UsageError("--non-interactive needs --auth-choice; `skip` chooses no model")
    setup = Setup() if choice.id == SKIP else read_setup(place, given, choice)
    settings = plan(setup, place.loaded, place.agent)
    change = preview(place, settings)
    trial = None
    if setup.ref and not given.no_test:
        trial = try_model(preview_loaded(place, change), place.agent, setup.ref, setup.key)
        if not as_json:
            click.echo(trial.words, err=True)
    failed = trial is not None and not trial.ok and not given.save_anyway
    if not failed:
        change = write(place, settings, setup)
    if as_json:
        print_json(_report(place, change, setup, trial, written=not failed))
    elif failed:
        click.echo("Nothing was written; --save-anyway writes all the same.", err=True)
    else:
        print_diff(change)
        _tell(place, change, setup)
    return 1 if failed else 0


def _report(
    place: Place, change: Change, setup: Setup, trial: Trial | None, *, written: bool
) -> dict[str, Any]:
    key = setup.key
    sources = {"env": f"env:{key.name}", "typed": place.key_file, "kept": "kept", "none": "none"}
    return {
        "ok": written,
        "file": place.file,
        "changed": change.before != change.after,
        "written": change.written,
        "backup": change.backup,
        "model": str(setup.ref) if setup.ref else None,
        "key": sources[key.source],
        "test": trial
        and {
            "ok": trial.ok,
            "seconds": round(trial.seconds, 3),
            "kind": trial.kind or None,
            "problem": trial.problem or None,
        },
        "diff": change.diff,
        "warnings": [str(each) for each in change.warnings]
        + (_remarks(place, setup) if written else []),
    }


def _tell(place: Place, done: Change, setup: Setup | None) -> None:
    """What was written where."""
    kept = f"; the file before is {done.backup}" if done.backup else ""
    same = f"{place.file} says so already; it was not changed."
    click.echo(f"Wrote {place.file}{kept}" if done.written else same, err=True)
    if setup and setup.key.secret:
        click.echo(f"Stored the key in {place.key_file}", err=True)
    warn(map(str, done.warnings))
    if setup:
        warn(_remarks(place, setup))


def _remarks(place: Place, setup: Setup) -> list[str]:
    """What keeps the key that was chosen from being the one that is used."""
    first = first_credential(place, setup)
    provider = setup.ref.provider if setup.ref else ""
    return [f"{provider} has another credential, {first}, which is used first"] if first else []

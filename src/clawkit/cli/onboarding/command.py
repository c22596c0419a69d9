"""What `clawkit onboard` and `clawkit configure` do: ask, or read the options, and save."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from clawkit.cli.config import print_diff
from clawkit.cli.onboarding import APIS, SECTIONS
from clawkit.cli.onboarding.probe import (
    KEY_VARIABLE,
    Trial,
    check_address,
    check_name,
    custom_setup,
    known_setup,
    offered_models,
    read_model_id,
    try_setup,
    usual_name,
    window_of,
)
from clawkit.cli.onboarding.questions import (
    Asker,
    Option,
    ask_approvals,
    ask_setup,
    ask_tools,
)
from clawkit.cli.onboarding.write import (
    CUSTOM,
    MAX_KEY,
    SKIP,
    VARIABLE,
    AuthChoice,
    ConfigTarget,
    Key,
    Setting,
    Setup,
    clean_key,
    copy_openclaw,
    find_choice,
    find_openclaw,
    find_place,
    first_credential,
    plan,
    preview,
    read_openclaw,
    unknown_choice,
    write,
)
from clawkit.cli.options import can_ask, print_json, refuse_commands, warn
from clawkit.config.file_edit import Change
from clawkit.config.modelref import parse_ref
from clawkit.errors import ConfigError
from clawkit.models.discover import default_model, infer_images
from clawkit.models.known import PROVIDERS

T = TypeVar("T")

_NEXT = "Try: clawkit chat"


def run_onboard(config_file: str | None, as_json: bool, options: dict[str, Any]) -> int:
    """What `clawkit onboard` does; the exit code."""
    refuse_commands()
    named = options["auth_choice"]
    choice = None if named is None else find_choice(named)
    if named is not None and choice is None:
        raise click.UsageError(f"--auth-choice: {unknown_choice(named)}")
    place = find_place(config_file)
    if options["non_interactive"]:
        return _unasked(place, options, choice, as_json)
    _need_terminal("add --non-interactive and --auth-choice, or use `clawkit config set`")
    if names := ["--json"] if as_json else _only_unasked(options):
        raise click.UsageError(f"{names[0]} requires --non-interactive")
    if choice is None and (options["api_key"] or options["api_key_env"]):
        raise click.UsageError("--auth-choice must say which provider this key is for")
    with _asking() as asker:
        asker.say("This saves which model clawkit uses. Ctrl-C stops it; nothing is written then.")
        if choice is None and _took_openclaw(asker, place):
            return 0
        key = read_key(options, choice) if choice else None
        return _asked(asker, place, choice, key)


def run_configure(section: str | None, config_file: str | None) -> int:
    """What `clawkit configure` does; the exit code."""
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
        settings = (ask_tools if section == "tools" else ask_approvals)(asker, place.loaded)
        return _confirm(asker, place, settings, None)


def _need_terminal(instead: str) -> None:
    if not can_ask():
        raise click.UsageError(f"there is no terminal to ask questions at; {instead}")
    from clawkit.process.process_table import hide_memory

    hide_memory()


def _only_unasked(options: dict[str, Any], start: str = "") -> list[str]:
    """The options that were given, and that are asked for at a terminal."""
    names = ("model", "no_test", "save_anyway", "api_key_stdin")
    custom = (name for name in options if name.startswith("custom_"))
    given = (name for name in (*names, *custom) if options[name] and name.startswith(start))
    return [f"--{name.replace('_', '-')}" for name in given]


@contextmanager
def _asking() -> Iterator[Asker]:
    """Says that nothing was written when it is cancelled."""
    asker = Asker()
    try:
        yield asker
    except (KeyboardInterrupt, click.Abort):
        if not asker.is_done:
            asker.say("\nNothing was written.")
        raise


def _took_openclaw(asker: Asker, place: ConfigTarget) -> bool:
    """Whether the settings of an OpenClaw on this machine were copied, because you wanted that."""
    file = find_openclaw(place.loaded.env)
    if file is None or os.path.lexists(place.file):
        return False
    try:
        text = read_openclaw(file)
    except ConfigError as error:
        asker.say(f"The settings of OpenClaw cannot be copied. {error}")
        return False
    asker.say(
        f"Found {file}. Its settings can be copied to {place.file}; the original does not change."
    )
    if not asker.yes("Use them?"):
        return False
    done = copy_openclaw(place, text)
    asker.is_done = True
    _tell(place, done, None)
    asker.say("Check it: clawkit doctor. Another model: clawkit configure models")
    asker.say(_NEXT)
    return True


def _asked(asker: Asker, place: ConfigTarget, choice: AuthChoice | None, key: Key | None) -> int:
    setup = ask_setup(asker, place, choice, key)
    if setup is None:
        asker.say("Nothing was written.")
        return 1
    code = _confirm(asker, place, plan(setup, place.loaded, place.agent), setup)
    if not code and setup.ref:
        asker.say(_NEXT)
    return code


def _confirm(
    asker: Asker, place: ConfigTarget, settings: list[Setting], setup: Setup | None
) -> int:
    """Show the change, and write it if that is wanted."""
    change = preview(place, settings)
    stores = setup is not None and bool(setup.key.secret)
    if change.before == change.after and not stores:
        asker.say(f"{place.file} already says so; nothing to write.")
        return 0
    asker.show(change)
    if stores:
        asker.say(f"The key is stored in {place.key_file}, which only you can read.")
    if not asker.yes("Write this?"):
        asker.say("Nothing was written.")
        return 1
    done = write(place, settings, setup)
    asker.is_done = True
    _tell(place, done, setup)
    return 0


def _unasked(
    place: ConfigTarget, options: dict[str, Any], choice: AuthChoice | None, as_json: bool
) -> int:
    if choice is None:
        raise click.UsageError("--non-interactive requires --auth-choice; `skip` chooses no model")
    setup = Setup() if choice.id == SKIP else read_setup(place, options, choice)
    settings = plan(setup, place.loaded, place.agent)
    change = preview(place, settings)
    trial = None
    if setup.ref and not options["no_test"]:
        trial = try_setup(place, change, setup, setup.ref)
        if not as_json:
            click.echo(trial.words, err=True)
    failed = trial is not None and not trial.ok and not options["save_anyway"]
    if not failed:
        change = write(place, settings, setup)
    if as_json:
        print_json(_report(place, change, setup, trial, written=not failed))
    elif failed:
        click.echo("Nothing was written; --save-anyway saves it nevertheless.", err=True)
    else:
        print_diff(change)
        _tell(place, change, setup)
    return 1 if failed else 0


def _report(
    place: ConfigTarget, change: Change, setup: Setup, trial: Trial | None, *, written: bool
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


def _tell(place: ConfigTarget, done: Change, setup: Setup | None) -> None:
    """What was written where."""
    kept = f"; the previous file is {done.backup}" if done.backup else ""
    same = f"{place.file} already says so; it was not changed."
    click.echo(f"Wrote {place.file}{kept}" if done.written else same, err=True)
    if setup and setup.key.secret:
        click.echo(f"Stored the key in {place.key_file}", err=True)
    warn(map(str, done.warnings))
    if setup:
        warn(_remarks(place, setup))


def _remarks(place: ConfigTarget, setup: Setup) -> list[str]:
    """What keeps the key that was chosen from being the one that is used."""
    first = first_credential(place, setup)
    provider = setup.ref.provider if setup.ref else ""
    return [f"{provider} has another credential, {first}, which takes precedence"] if first else []


def _check(option: str, check: Callable[[str], T], text: str) -> T:
    """What `check` makes of an option. Raises UsageError."""
    try:
        return check(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def read_key(options: dict[str, Any], choice: AuthChoice) -> Key | None:
    """The key that the options give; None when they give none."""
    text, name = options["api_key"], options["api_key_env"]
    ways = [text is not None, name is not None, options["api_key_stdin"]]
    if sum(ways) > 1:
        raise click.UsageError("use one of --api-key, --api-key-env and --api-key-stdin")
    if any(ways) and choice.is_local:
        raise click.UsageError(f"{choice.id} needs no key")
    if name is not None:
        if not VARIABLE.fullmatch(name):
            raise click.UsageError("--api-key-env takes a name, such as MY_API_KEY")
        return Key("env", name)
    if text is not None:
        warn(["other users can see --api-key in the process list; use --api-key-stdin"])
        return Key("typed", secret=_check("--api-key", clean_key, text))
    if not options["api_key_stdin"]:
        return None
    text = sys.stdin.read(MAX_KEY * 2) if sys.stdin is not None else ""
    return Key("typed", secret=_check("--api-key-stdin", clean_key, text))


def read_setup(place: ConfigTarget, options: dict[str, Any], choice: AuthChoice) -> Setup:
    """What the options ask for. Raises UsageError for what is missing or does not fit."""
    if choice.id == CUSTOM:
        return _read_custom(place, options, choice)
    if names := _only_unasked(options, "custom_"):
        raise click.UsageError(f"{names[0]} requires --auth-choice {CUSTOM}")
    key = read_key(options, choice) or _usual_key(place, choice)
    model = _read_model(place, options["model"], choice)
    return known_setup(place, choice, key, model, look=not options["no_test"])


def _usual_key(place: ConfigTarget, choice: AuthChoice) -> Key:
    if choice.is_local:
        return Key()
    if name := next(filter(place.is_set, choice.env), ""):
        return Key("env", name)
    if place.kept_credential(choice.provider):
        return Key("kept")
    raise click.UsageError(
        f"no key for {choice.provider}: set {' or '.join(choice.env)}, or use --api-key-stdin, or "
        "name another variable with --api-key-env"
    )


def _read_model(place: ConfigTarget, given: str | None, choice: AuthChoice) -> str:
    if given is None:
        usual = default_model(choice.provider)
        found = [usual.id] if usual else offered_models(place, choice)
        if not found:
            raise click.UsageError(f"{choice.provider} lists no models here; name one with --model")
        return found[0]
    model = _check("--model", lambda text: read_model_id(text, choice.provider), given)
    other = parse_ref(model).provider
    has_slashes = any("/" in row.id for row in PROVIDERS[choice.provider].models)
    if other in PROVIDERS and not has_slashes and not choice.is_local:
        raise click.UsageError(f"--model names a model of {other}, not of {choice.provider}")
    return model


def _read_custom(place: ConfigTarget, options: dict[str, Any], choice: AuthChoice) -> Setup:
    url, given = options["custom_base_url"], options["custom_model_id"] or options["model"]
    if not url or not given:
        raise click.UsageError(f"{CUSTOM} needs --custom-base-url and --custom-model-id")
    has_images, has_none = options["custom_image_input"], options["custom_text_input"]
    if has_images and has_none:
        raise click.UsageError("use one of --custom-image-input and --custom-text-input")
    private = options["custom_private_network"]
    address = _check(
        "--custom-base-url", lambda text: check_address(text, resolve=False, private=private), url
    )
    if address.is_private and not private:
        raise click.UsageError(
            f"--custom-base-url: {address.host} is in a private network; to allow that, add "
            "--custom-private-network"
        )
    name = options["custom_provider_id"] or usual_name(address)
    name = _check("--custom-provider-id", check_name, name)
    model = _check("--custom-model-id", lambda text: read_model_id(text, name), given)
    key = read_key(options, choice)
    if key is None:
        key = Key("env", KEY_VARIABLE) if place.is_set(KEY_VARIABLE) else Key()
    if key.source == "none" and not (address.is_near or private):
        if not place.kept_credential(name):
            raise click.UsageError(
                f"no key: set {KEY_VARIABLE}, or use --api-key-stdin or --api-key-env"
            )
        key = Key("kept")
    images = has_images or (bool(infer_images(model)) and not has_none)
    window, _ = window_of(model, url="" if options["no_test"] else address.url)
    api = APIS[options["custom_compatibility"] or "openai"]
    address = address._replace(is_private=private)
    return custom_setup(name, model, key, address, api, images, window)

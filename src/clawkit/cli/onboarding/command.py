"""What `clawkit onboard` and `clawkit configure` do: ask, or read the options, and save."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from clawkit.cli.config import print_diff
from clawkit.cli.onboarding import APIS, SECTIONS
from clawkit.cli.onboarding.probe import (
    ServerAddress,
    Trial,
    check_address,
    is_model,
    try_model,
    window_of,
)
from clawkit.cli.onboarding.questions import (
    KEY_VARIABLE,
    Asker,
    Option,
    bad_name,
    custom_setup,
    kept_credential,
    known_setup,
    offered_models,
    own_id,
    usual_name,
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
    preview_loaded,
    read_openclaw,
    unknown_choice,
    write,
)
from clawkit.cli.options import (
    can_ask,
    print_json,
    refuse_commands,
    warn,
)
from clawkit.config.file_edit import Change
from clawkit.config.modelref import parse_ref
from clawkit.errors import ConfigError
from clawkit.models.discover import default_model, infer_images
from clawkit.models.known import PROVIDERS

_NEXT = "Try: clawkit chat"


def run_onboard(config_file: str | None, as_json: bool, options: dict[str, Any]) -> int:
    """What `clawkit onboard` does; the exit code."""
    refuse_commands()
    given = Given(**options)
    named = given.auth_choice
    choice = None if named is None else find_choice(named)
    if named is not None and choice is None:
        raise click.UsageError(f"--auth-choice: {unknown_choice(named)}")
    place = find_place(config_file)
    if given.non_interactive:
        return _unasked(place, given, choice, as_json)
    _need_terminal("add --non-interactive and --auth-choice, or use `clawkit config set`")
    _refuse_flags(given, as_json)
    with _asking() as asker:
        asker.say("This saves which model clawkit uses. Ctrl-C stops it; nothing is written then.")
        if choice is None and _took_openclaw(asker, place):
            return 0
        key = read_key(given, choice) if choice else None
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
        from clawkit.cli.onboarding.questions import ask_approvals, ask_tools

        settings = (ask_tools if section == "tools" else ask_approvals)(asker, place.loaded)
        return _confirm(asker, place, settings, None)


def _need_terminal(instead: str) -> None:
    if not can_ask():
        raise click.UsageError(f"there is no terminal to ask questions at; {instead}")
    from clawkit.process.process_table import hide_memory

    hide_memory()


def _refuse_flags(given: Given, as_json: bool) -> None:
    """Options that say what would be asked."""
    if as_json or given.only_unasked:
        name = "--json" if as_json else f"--{given.only_unasked[0].replace('_', '-')}"
        raise click.UsageError(f"{name} requires --non-interactive")
    if given.auth_choice is None and (given.api_key or given.api_key_env):
        raise click.UsageError("--auth-choice must say which provider this key is for")


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
    from clawkit.cli.onboarding.questions import ask_setup

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


def _unasked(place: ConfigTarget, given: Given, choice: AuthChoice | None, as_json: bool) -> int:
    if choice is None:
        raise click.UsageError("--non-interactive requires --auth-choice; `skip` chooses no model")
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


class Given(NamedTuple):
    """The options as they were given. The representation does not show the key."""

    non_interactive: bool
    auth_choice: str | None
    api_key: str | None
    api_key_env: str | None
    api_key_stdin: bool
    model: str | None
    custom_base_url: str | None
    custom_model_id: str | None
    custom_provider_id: str | None
    custom_compatibility: str | None
    custom_image_input: bool
    custom_text_input: bool
    custom_private_network: bool
    no_test: bool
    save_anyway: bool

    def __repr__(self) -> str:
        return f"<options for {self.auth_choice}>"

    @property
    def only_unasked(self) -> list[str]:
        """Names of options that were given and are asked for in a terminal."""
        names = ("model", "no_test", "save_anyway", "api_key_stdin")
        custom = (name for name in self._fields if name.startswith("custom_"))
        return [name for name in (*names, *custom) if getattr(self, name)]


def read_key(given: Given, choice: AuthChoice) -> Key | None:
    """The key that the options give; None when they give none."""
    ways = [given.api_key is not None, given.api_key_env is not None, given.api_key_stdin]
    if sum(ways) > 1:
        raise click.UsageError("use one of --api-key, --api-key-env and --api-key-stdin")
    if any(ways) and choice.is_local:
        raise click.UsageError(f"{choice.id} needs no key")
    if given.api_key_env is not None:
        if not VARIABLE.fullmatch(given.api_key_env):
            raise click.UsageError("--api-key-env takes a name, such as MY_API_KEY")
        return Key("env", given.api_key_env)
    text = given.api_key
    if text is not None:
        warn(["other users can see --api-key in the process list; use --api-key-stdin"])
    elif given.api_key_stdin:
        text = sys.stdin.read(MAX_KEY * 2) if sys.stdin is not None else ""
    else:
        return None
    try:
        return Key("typed", secret=clean_key(text))
    except ValueError as error:
        raise click.UsageError(f"{error}") from None


def read_setup(place: ConfigTarget, given: Given, choice: AuthChoice) -> Setup:
    """What the options ask for. Raises UsageError for what is missing or does not fit."""
    if choice.id == CUSTOM:
        return _custom(place, given, choice)
    if name := next((each for each in given.only_unasked if each.startswith("custom_")), ""):
        raise click.UsageError(f"--{name.replace('_', '-')} requires --auth-choice {CUSTOM}")
    key = read_key(given, choice) or _usual_key(place, choice)
    model = _model(place, given, choice)
    return known_setup(place, choice, key, model, look=not given.no_test)


def _usual_key(place: ConfigTarget, choice: AuthChoice) -> Key:
    if choice.is_local:
        return Key()
    for name in choice.env:
        if place.loaded.env.get(name, "").strip():
            return Key("env", name)
    if kept_credential(place, choice.provider):
        return Key("kept")
    names = " or ".join(choice.env)
    raise click.UsageError(
        f"no key for {choice.provider}: set {names}, or use --api-key-stdin, or name another "
        "variable with --api-key-env"
    )


def _model(place: ConfigTarget, given: Given, choice: AuthChoice) -> str:
    if given.model is None:
        usual = default_model(choice.provider)
        found = [usual.id] if usual else offered_models(place, choice)
        if not found:
            raise click.UsageError(f"{choice.provider} lists no models here; name one with --model")
        return found[0]
    model = own_id(given.model.strip(), choice.provider)
    if not is_model(model):
        raise click.UsageError("--model is not a model id")
    other = parse_ref(model).provider
    has_slashes = any("/" in row.id for row in PROVIDERS[choice.provider].models)
    if other in PROVIDERS and not has_slashes and not choice.is_local:
        raise click.UsageError(f"--model names a model of {other}, not of {choice.provider}")
    return model


def _custom(place: ConfigTarget, given: Given, choice: AuthChoice) -> Setup:
    url, model = given.custom_base_url, given.custom_model_id or given.model
    if not url or not model:
        raise click.UsageError(f"{CUSTOM} needs --custom-base-url and --custom-model-id")
    if given.custom_image_input and given.custom_text_input:
        raise click.UsageError("use one of --custom-image-input and --custom-text-input")
    address = _address(url, given)
    name = (given.custom_provider_id or usual_name(address)).lower()
    if problem := bad_name(name):
        raise click.UsageError(f"--custom-provider-id: {problem}")
    model = own_id(model.strip(), name)
    if not is_model(model):
        raise click.UsageError("--custom-model-id is not a model id")
    key = read_key(given, choice)
    if key is None:
        has_key = bool(place.loaded.env.get(KEY_VARIABLE, "").strip())
        key = Key("env", KEY_VARIABLE) if has_key else Key()
    if key.source == "none" and not (address.is_near or address.is_private):
        if not kept_credential(place, name):
            raise click.UsageError(
                f"no key: set {KEY_VARIABLE}, or use --api-key-stdin or --api-key-env"
            )
        key = Key("kept")
    images = bool(infer_images(model)) and not given.custom_text_input
    window, _ = window_of(model, url="" if given.no_test else address.url)
    api = APIS[given.custom_compatibility or "openai"]
    return custom_setup(name, model, key, address, api, images or given.custom_image_input, window)


def _address(url: str, given: Given) -> ServerAddress:
    try:
        address = check_address(url, resolve=False, private=given.custom_private_network)
    except ValueError as error:
        raise click.UsageError(f"--custom-base-url: {error}") from None
    if address.is_private and not given.custom_private_network:
        raise click.UsageError(
            f"--custom-base-url: {address.host} is in a private network; to allow that, add "
            "--custom-private-network"
        )
    return address._replace(is_private=given.custom_private_network)

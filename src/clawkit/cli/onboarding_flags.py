"""The options of `clawkit onboard --non-interactive`, and what they amount to."""

from __future__ import annotations

import sys
from typing import NamedTuple

import click

from clawkit.cli.onboarding_choices import CUSTOM, Choice
from clawkit.cli.onboarding_custom import APIS, KEY_VARIABLE, bad_name, custom_setup, usual_name
from clawkit.cli.onboarding_flow import kept_credential, known_setup, offered_models, own_id
from clawkit.cli.onboarding_look import Address, check_address, is_model, window_of
from clawkit.cli.onboarding_plan import MAX_KEY, VARIABLE, Key, Setup, clean_key
from clawkit.cli.onboarding_write import Place
from clawkit.cli.options import warn
from clawkit.config.modelref import parse_ref
from clawkit.models.discover import default_model, infer_images
from clawkit.models.known import PROVIDERS


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


def read_key(given: Given, choice: Choice) -> Key | None:
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
        warn(["others can see --api-key in the list of processes; better --api-key-stdin"])
    elif given.api_key_stdin:
        text = sys.stdin.read(MAX_KEY * 2) if sys.stdin is not None else ""
    else:
        return None
    try:
        return Key("typed", secret=clean_key(text))
    except ValueError as error:
        raise click.UsageError(f"{error}") from None


def read_setup(place: Place, given: Given, choice: Choice) -> Setup:
    """What the options ask for. Raises UsageError for what is missing or does not fit."""
    if choice.id == CUSTOM:
        return _custom(place, given, choice)
    if name := next((each for each in given.only_unasked if each.startswith("custom_")), ""):
        raise click.UsageError(f"--{name.replace('_', '-')} goes with --auth-choice {CUSTOM}")
    key = read_key(given, choice) or _usual_key(place, choice)
    model = _model(place, given, choice)
    return known_setup(place, choice, key, model, look=not given.no_test)


def _usual_key(place: Place, choice: Choice) -> Key:
    if choice.is_local:
        return Key()
    for name in choice.env:
        if place.loaded.env.get(name, "").strip():
            return Key("env", name)
    if kept_credential(place, choice.provider):
        return Key("kept")
    names = " or ".join(choice.env)
    raise click.UsageError(
        f"there is no key for {choice.provider}: set {names}, or give --api-key-stdin, or with "
        "--api-key-env the name of another variable"
    )


def _model(place: Place, given: Given, choice: Choice) -> str:
    if given.model is None:
        usual = default_model(choice.provider)
        found = [usual.id] if usual else offered_models(place, choice)
        if not found:
            raise click.UsageError(f"{choice.provider} lists no models here; name one by --model")
        return found[0]
    model = own_id(given.model.strip(), choice.provider)
    if not is_model(model):
        raise click.UsageError("--model is not the id of a model")
    other = parse_ref(model).provider
    has_slashes = any("/" in row.id for row in PROVIDERS[choice.provider].models)
    if other in PROVIDERS and not has_slashes and not choice.is_local:
        raise click.UsageError(f"--model names a model of {other}, not of {choice.provider}")
    return model


def _custom(place: Place, given: Given, choice: Choice) -> Setup:
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
        raise click.UsageError("--custom-model-id is not the id of a model")
    key = read_key(given, choice)
    if key is None:
        has_key = bool(place.loaded.env.get(KEY_VARIABLE, "").strip())
        key = Key("env", KEY_VARIABLE) if has_key else Key()
    if key.source == "none" and not (address.is_near or address.is_private):
        key = Key("kept") if kept_credential(place, name) else _no_key()
    images = bool(infer_images(model)) and not given.custom_text_input
    window, _ = window_of(model, url="" if given.no_test else address.url)
    api = APIS[given.custom_compatibility or "openai"]
    return custom_setup(name, model, key, address, api, images or given.custom_image_input, window)


def _no_key() -> Key:
    raise click.UsageError(
        f"there is no key: set {KEY_VARIABLE}, or give --api-key-stdin or --api-key-env"
    )


def _address(url: str, given: Given) -> Address:
    try:
        address = check_address(url, resolve=False, private=given.custom_private_network)
    except ValueError as error:
        raise click.UsageError(f"--custom-base-url: {error}") from None
    if address.is_private and not given.custom_private_network:
        raise click.UsageError(
            f"--custom-base-url: {address.host} is in a private network; if that is meant, add "
            "--custom-private-network"
        )
    return address._replace(is_private=given.custom_private_network)

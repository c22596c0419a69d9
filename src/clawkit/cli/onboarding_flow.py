"""The questions about a model: which provider, which key, which model, and whether it works."""

from __future__ import annotations

from collections.abc import Sequence

from clawkit.cli.onboarding_ask import Asker, Option, counted
from clawkit.cli.onboarding_choices import (
    CHOICES,
    CUSTOM,
    SKIP,
    Choice,
    address_of,
    find_choice,
    unknown_choice,
)
from clawkit.cli.onboarding_look import (
    Shown,
    is_model,
    list_models,
    local_models,
    show_model,
)
from clawkit.cli.onboarding_plan import Key, Setup, clean_key, configured_url, plan
from clawkit.cli.onboarding_trial import try_model
from clawkit.cli.onboarding_write import Place, preview, preview_loaded
from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.errors import ConfigError
from clawkit.models.discover import infer_images, providers_with_keys
from clawkit.models.known import LOCAL_WINDOW, PROVIDERS, base_url_of
from clawkit.models.resolve import Catalog
from clawkit.text import nearest

MOST_LISTED = 12
_AGAIN, _KEY, _MODEL, _OVER, _SAVE, _STOP = (
    Option("try again"),
    Option("another key"),
    Option("another model"),
    Option("begin again"),
    Option("save anyway", "as it is, to be looked at later"),
    Option("stop", "write nothing"),
)
_LIKELY = {"auth": _KEY, "billing": _KEY, "not_found": _MODEL, "setting": _OVER, "refused": _OVER}
"""What helps most against each kind of failure; otherwise to try again."""


def ask_setup(asker: Asker, place: Place, choice: Choice | None, key: Key | None) -> Setup | None:
    """Ask until there is a model that works, or one that is to be saved anyway; None to stop."""
    while True:
        chosen = choice or _ask_choice(asker, place)
        if chosen.id == SKIP:
            return Setup()
        if chosen.id == CUSTOM:
            from clawkit.cli.onboarding_custom import ask_custom

            setup = ask_custom(asker, place, key)
        else:
            chosen = _ask_address(asker, place, chosen) if choice is None else chosen
            given = key or ask_key(asker, place, chosen.provider, chosen.env)
            setup = _known(asker, place, chosen, given)
        settled = _settle(asker, place, chosen, setup)
        if settled is None or settled.ref is not None:
            return settled
        choice = key = None


def _ask_choice(asker: Asker, place: Place) -> Choice:
    env = place.loaded.env
    keys = providers_with_keys(env)
    local = local_models(env)
    found = [Option(name, f"key in {_set_variable(place, PROVIDERS[name].env)}") for name in keys]
    if local:
        words = f"{counted(len(local), 'model')} on this machine, no key needed"
        found.append(Option("ollama", words))
    if not found:
        asker.say("There is no key in the environment, and no Ollama on this machine.")
    others = [name for name in PROVIDERS if name not in keys]
    options = [
        *found,
        Option("another provider", f"{', '.join(others[:4])} and {len(others) - 4} more"),
        Option("custom", "a service of your own, by its address"),
        Option("none", "no model for now"),
    ]
    current = _current(place)
    names = [each.name for each in found]
    default = names.index(current.provider) if current and current.provider in names else 0
    question = "Which provider? Its number or its name"
    while True:
        answer = asker.choose_or_type(question, options, default)
        if answer == len(found):
            asker.say(f"\nProviders: {', '.join(PROVIDERS)}")
            answer = asker.line("Which one? Its name")
        elif isinstance(answer, int):
            answer = options[answer].name
        if isinstance(answer, str) and (choice := find_choice(answer)):
            return choice
        close = nearest(str(answer).lower(), tuple(PROVIDERS))
        asker.say(
            f"There is no provider {answer!r}. Did you mean {' or '.join(close)}?"
            if close
            else unknown_choice(str(answer)).partition("\n")[0]
        )


def _ask_address(asker: Asker, place: Place, choice: Choice) -> Choice:
    """Some services have several addresses, each with its own keys."""
    usual = Choice(choice.id, choice.provider)
    others = [
        each for each in CHOICES.values() if each.provider == choice.provider and each.base_url
    ]
    if not others or choice.base_url:
        return choice
    configured = configured_url(place.loaded, choice.provider)
    urls = [PROVIDERS[choice.provider].base_url, *(each.base_url for each in others)]
    default = urls.index(configured) if configured in urls else 0
    picked = asker.choose("Which address is the key for?", [Option(url) for url in urls], default)
    return [usual, *others][picked]


def _current(place: Place) -> ModelRef | None:
    try:
        return next(iter(Catalog.of(place.loaded, place.agent).candidates()), None)
    except ConfigError:
        return None


def _set_variable(place: Place, names: Sequence[str]) -> str:
    return next((name for name in names if place.loaded.env.get(name, "").strip()), "")


def kept_credential(place: Place, provider: str) -> str:
    """What is in use for a provider already and is no variable; empty for nothing."""
    try:
        found = Catalog.of(place.loaded, place.agent).credentials.for_provider(provider)
    except ConfigError:
        return ""
    return next((str(each.id) for each in found if not each.id.startswith(("env:", "none"))), "")


def ask_key(asker: Asker, place: Place, provider: str, names: Sequence[str]) -> Key:
    """Where the key comes from."""
    if provider in PROVIDERS and PROVIDERS[provider].is_local:
        return Key()
    options = [
        (Option(f"use {name} from the environment", "recommended"), Key("env", name))
        for name in names
        if place.loaded.env.get(name, "").strip()
    ]
    if kept := kept_credential(place, provider):
        options.insert(0, (Option("keep the key that is in use", kept), Key("kept")))
    if options:
        words = f"it is kept in {place.key_file}, which only you can read"
        listed = [*(option for option, _ in options), Option("type a key", words)]
        at = asker.choose(f"The key of {provider}?", listed)
        if at < len(options):
            return options[at][1]
    return type_key(asker, provider, names)


def type_key(asker: Asker, provider: str, names: Sequence[str]) -> Key:
    """A key that is typed unseen; without one, where it will be, or none."""
    empty = f"you will set {names[0]}" if names else "none is needed"
    while True:
        text = asker.secret(f"Key of {provider} (not shown while you type; Enter alone: {empty})")
        if not text:
            return Key("env", names[0]) if names else Key()
        try:
            return Key("typed", secret=clean_key(text))
        except ValueError as error:
            asker.say(f"That cannot be a key: {error}.")


def _known(asker: Asker, place: Place, choice: Choice, key: Key) -> Setup:
    model = _ask_model(asker, place, choice)
    return known_setup(place, choice, key, model, look=True)


def known_setup(place: Place, choice: Choice, key: Key, model: str, *, look: bool) -> Setup:
    """A model of a provider that clawkit knows; with `look`, Ollama is asked about it."""
    url = address_of(choice, configured_url(place.loaded, choice.provider))
    entry = None
    if choice.provider == "ollama" and look:
        origin = base_url_of(PROVIDERS["ollama"], place.loaded.env).removesuffix("/v1")
        entry = _ollama_entry(model, show_model(origin, model))
    return Setup(ModelRef(choice.provider, model), key, url, entry=entry)


def _ollama_entry(model: str, shown: Shown) -> dict[str, object] | None:
    """What has to be written about a model of Ollama; None when what is assumed is right."""
    images = bool(infer_images(model))
    sees = images if shown.images is None else shown.images
    small = 0 < shown.window < LOCAL_WINDOW
    if sees == images and not small:
        return None
    entry: dict[str, object] = {"id": model, "input": ["text", "image"] if sees else ["text"]}
    return entry | ({"contextWindow": shown.window} if small else {})


def offered_models(place: Place, choice: Choice) -> list[str]:
    """Models of a server on this machine."""
    env = place.loaded.env
    if choice.provider == "ollama":
        return local_models(env)
    listing = list_models(base_url_of(PROVIDERS[choice.provider], env), "")
    return list(listing.models) if listing else []


def _ask_model(asker: Asker, place: Place, choice: Choice) -> str:
    rows = [
        Option(row.id, f"{row.name}, {row.context_window:,} tokens{', images' * row.images}")
        for row in PROVIDERS[choice.provider].models
    ]
    if choice.is_local:
        rows = [Option(name) for name in offered_models(place, choice)]
    current = _current(place)
    model = current.id if current and current.provider == choice.provider else ""
    return ask_model_id(asker, rows[:MOST_LISTED], choice.provider, model)


def ask_model_id(asker: Asker, rows: list[Option], provider: str, current: str = "") -> str:
    """The id of a model, out of a list or typed."""
    names = [each.name for each in rows]
    while True:
        if rows:
            default = names.index(current) if current in names else 0
            question = "Which model? Its number, or the id of another one"
            answer = asker.choose_or_type(question, rows, default)
        else:
            answer = asker.line("Which model? Its id", current)
        if isinstance(answer, int):
            return names[answer]
        answer = own_id(answer, provider)
        if is_model(answer) and not answer.isdecimal():
            return answer
        asker.say("That is not the id of a model.")


def own_id(text: str, provider: str) -> str:
    """The id of a model without the provider's name before it."""
    try:
        ref = parse_ref(text)
    except ValueError:
        return text
    return ref.id if ref.provider == provider else text


def _settle(asker: Asker, place: Place, choice: Choice, setup: Setup) -> Setup | None:
    """Try it until it works or somebody has enough. A setup without a model: begin again."""
    while setup.ref is not None:
        change = preview(place, plan(setup, place.loaded, place.agent))
        if setup.key.source == "env" and not place.loaded.env.get(setup.key.name, "").strip():
            asker.say(f"{setup.key.name} is not set here, so this cannot be tried now.")
            return setup
        asker.say(f"\nAsking {setup.ref} for one word …")
        trial = try_model(preview_loaded(place, change), place.agent, setup.ref, setup.key)
        asker.say(trial.words)
        if trial.ok:
            return setup
        options = [_AGAIN, _KEY, _MODEL, _OVER, _SAVE, _STOP]
        if choice.is_local:
            options.remove(_KEY)
        if choice.id == CUSTOM:
            options.remove(_MODEL)
        likely = _LIKELY.get(trial.plain_kind, _AGAIN)
        default = options.index(likely) if likely in options else 0
        do = options[asker.choose("What now?", options, default)]
        if do in (_SAVE, _STOP):
            return setup if do is _SAVE else None
        if do is _OVER:
            break
        if do is _KEY:
            setup = setup._replace(key=type_key(asker, setup.ref.provider, choice.env))
        elif do is _MODEL:
            setup = _known(asker, place, choice, setup.key)
    return Setup()

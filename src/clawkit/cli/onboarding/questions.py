"""The questions of `onboard` and `configure`, on plain lines that every terminal can show."""

from __future__ import annotations

import io
import os
import re
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import click

from clawkit.cli.config import print_diff
from clawkit.cli.onboarding import APIS
from clawkit.cli.onboarding.probe import (
    MAX_WINDOW,
    MIN_WINDOW,
    ModelList,
    OllamaModel,
    ServerAddress,
    check_address,
    is_model,
    list_models,
    local_models,
    route_to,
    show_model,
    try_model,
    window_of,
)
from clawkit.cli.onboarding.write import (
    CHOICES,
    CUSTOM,
    SKIP,
    AuthChoice,
    ConfigTarget,
    Key,
    Setting,
    Setup,
    address_of,
    clean_key,
    configured_url,
    find_choice,
    plan,
    preview,
    preview_loaded,
    unknown_choice,
)
from clawkit.cli.options import counted
from clawkit.config.file_edit import Change
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref
from clawkit.errors import ConfigError
from clawkit.models.catalog import Catalog
from clawkit.models.discover import infer_images, providers_with_keys
from clawkit.models.known import LOCAL_WINDOW, PROVIDERS, base_url_of
from clawkit.text import nearest, printable


class Option(NamedTuple):
    """One of several answers."""

    name: str
    words: str = ""


class Asker:
    """Asks on standard error, reads lines from standard input. Ctrl-C and Ctrl-D end it."""

    def __init__(self) -> None:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        self.is_done = False
        """Whether what was asked for has been written."""
        self._is_plain = os.environ.get("TERM", "dumb") in ("dumb", "unknown")

    def say(self, text: str = "") -> None:
        click.echo(printable(text), err=True)

    def line(self, question: str, default: str = "") -> str:
        """What is typed; Enter alone is the default."""
        while True:
            answer = click.prompt(
                printable(question), default, show_default=bool(default), err=True
            )
            if (text := str(answer).strip()).isprintable():
                return text
            self.say("Please use letters, digits and punctuation only.")

    def secret(self, question: str) -> str:
        """The same, not shown. The echo is off before the question appears."""
        with _unseen():
            click.echo(printable(f"{question}: "), nl=False, err=True)
            text = sys.stdin.readline()
        self.say()
        if not text:
            raise click.Abort
        return text.strip()

    def yes(self, question: str, default: bool = True) -> bool:
        return click.confirm(printable(question), default, err=True)

    def choose(self, question: str, options: Sequence[Option], default: int = 0) -> int:
        """The number of the answer, from 0, by its number or its name."""
        while True:
            found = self.choose_or_type(question, options, default)
            if isinstance(found, int):
                return found
            self.say(f"Please type a number from 1 to {len(options)}.")

    def choose_or_type(
        self, question: str, options: Sequence[Option], default: int = 0
    ) -> int | str:
        """The same, or what was typed if it is none of the answers."""
        self.say()
        for number, each in enumerate(options, 1):
            self.say(f"  {number}) {each.name}" + (f": {each.words}" if each.words else ""))
        text = self.line(question, str(default + 1))
        if text.isdecimal() and len(text) < 5:
            number = int(text)
            return number - 1 if 0 < number <= len(options) else text
        names = [each.name.lower() for each in options]
        return names.index(text.lower()) if text.lower() in names else text

    def show(self, done: Change) -> None:
        """The changed lines."""
        self.say()
        if not self._is_plain:
            print_diff(done)
            return
        for line in done.diff:
            click.echo(line)


@contextmanager
def _unseen() -> Iterator[None]:
    """What is typed does not appear; the terminal is as before afterwards."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    now = termios.tcgetattr(fd)
    now[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, now)
    try:
        yield
    finally:
        # It may be gone by now.
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


MOST_LISTED = 12
_AGAIN, _KEY, _MODEL, _OVER, _SAVE, _STOP = (
    Option("try again"),
    Option("another key"),
    Option("another model"),
    Option("begin again"),
    Option("save anyway", "fix it later"),
    Option("stop", "write nothing"),
)
_LIKELY = {"auth": _KEY, "billing": _KEY, "not_found": _MODEL, "setting": _OVER, "refused": _OVER}
"""What helps most against each kind of failure; otherwise to try again."""


def ask_setup(
    asker: Asker, place: ConfigTarget, choice: AuthChoice | None, key: Key | None
) -> Setup | None:
    """Ask until there is a model that works, or one that is to be saved anyway; None to stop."""
    while True:
        chosen = choice or _ask_choice(asker, place)
        if chosen.id == SKIP:
            return Setup()
        if chosen.id == CUSTOM:
            setup = ask_custom(asker, place, key)
        else:
            chosen = _ask_address(asker, place, chosen) if choice is None else chosen
            given = key or ask_key(asker, place, chosen.provider, chosen.env)
            setup = _known(asker, place, chosen, given)
        settled = _settle(asker, place, chosen, setup)
        if settled is None or settled.ref is not None:
            return settled
        choice = key = None


def _ask_choice(asker: Asker, place: ConfigTarget) -> AuthChoice:
    env = place.loaded.env
    keys = providers_with_keys(env)
    local = local_models(env)
    found = [Option(name, f"key in {_set_variable(place, PROVIDERS[name].env)}") for name in keys]
    if local:
        words = f"{counted(len(local), 'model')} on this machine, no key needed"
        found.append(Option("ollama", words))
    if not found:
        asker.say("Found no key in the environment, and no Ollama on this machine.")
    others = [name for name in PROVIDERS if name not in keys]
    options = [
        *found,
        Option("another provider", f"{', '.join(others[:4])} and {len(others) - 4} more"),
        Option("custom", "your own server, by its address"),
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
            f"Unknown provider {answer!r}. Did you mean {' or '.join(close)}?"
            if close
            else unknown_choice(str(answer)).partition("\n")[0]
        )


def _ask_address(asker: Asker, place: ConfigTarget, choice: AuthChoice) -> AuthChoice:
    """Some services have several addresses, each with its own keys."""
    usual = AuthChoice(choice.id, choice.provider)
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


def _current(place: ConfigTarget) -> ModelRef | None:
    try:
        return next(iter(Catalog.of(place.loaded, place.agent).candidates()), None)
    except ConfigError:
        return None


def _set_variable(place: ConfigTarget, names: Sequence[str]) -> str:
    return next((name for name in names if place.loaded.env.get(name, "").strip()), "")


def kept_credential(place: ConfigTarget, provider: str) -> str:
    """What is in use for a provider already and is no variable; empty for nothing."""
    try:
        found = Catalog.of(place.loaded, place.agent).credentials.for_provider(provider)
    except ConfigError:
        return ""
    return next((str(each.id) for each in found if not each.id.startswith(("env:", "none"))), "")


def ask_key(asker: Asker, place: ConfigTarget, provider: str, names: Sequence[str]) -> Key:
    """Where the key comes from."""
    if provider in PROVIDERS and PROVIDERS[provider].is_local:
        return Key()
    options = [
        (Option(f"use {name} from the environment", "recommended"), Key("env", name))
        for name in names
        if place.loaded.env.get(name, "").strip()
    ]
    if kept := kept_credential(place, provider):
        options.insert(0, (Option("keep the current key", kept), Key("kept")))
    if options:
        words = f"stored in {place.key_file}, which only you can read"
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


def _known(asker: Asker, place: ConfigTarget, choice: AuthChoice, key: Key) -> Setup:
    model = _ask_model(asker, place, choice)
    return known_setup(place, choice, key, model, look=True)


def known_setup(
    place: ConfigTarget, choice: AuthChoice, key: Key, model: str, *, look: bool
) -> Setup:
    """A model of a provider that clawkit knows; with `look`, Ollama is asked about it."""
    url = address_of(choice, configured_url(place.loaded, choice.provider))
    entry = None
    if choice.provider == "ollama" and look:
        origin = base_url_of(PROVIDERS["ollama"], place.loaded.env).removesuffix("/v1")
        entry = _ollama_entry(model, show_model(origin, model))
    return Setup(ModelRef(choice.provider, model), key, url, entry=entry)


def _ollama_entry(model: str, shown: OllamaModel) -> dict[str, object] | None:
    """What has to be written about a model of Ollama; None when what is assumed is right."""
    images = bool(infer_images(model))
    sees = images if shown.images is None else shown.images
    small = 0 < shown.window < LOCAL_WINDOW
    if sees == images and not small:
        return None
    entry: dict[str, object] = {"id": model, "input": ["text", "image"] if sees else ["text"]}
    return entry | ({"contextWindow": shown.window} if small else {})


def offered_models(place: ConfigTarget, choice: AuthChoice) -> list[str]:
    """Models of a server on this machine."""
    env = place.loaded.env
    if choice.provider == "ollama":
        return local_models(env)
    listing = list_models(base_url_of(PROVIDERS[choice.provider], env), "")
    return list(listing.models) if listing else []


def _ask_model(asker: Asker, place: ConfigTarget, choice: AuthChoice) -> str:
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
        asker.say("That is not a model id.")


def own_id(text: str, provider: str) -> str:
    """The id of a model without the provider's name before it."""
    try:
        ref = parse_ref(text)
    except ValueError:
        return text
    return ref.id if ref.provider == provider else text


def _settle(asker: Asker, place: ConfigTarget, choice: AuthChoice, setup: Setup) -> Setup | None:
    """Try it until it works or is accepted as it is. A setup without a model: begin again."""
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


KEY_VARIABLE = "CUSTOM_API_KEY"
_WORDS = {
    "openai": "chat completions, which nearly every server can do",
    "openai-responses": "OpenAI's newer API",
    "anthropic": "messages, as Claude's own service",
    "google": "as Gemini's own service",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def ask_custom(asker: Asker, place: ConfigTarget, key: Key | None) -> Setup:
    """Everything about your own server and the model to use."""
    address = _ask_own_address(asker)
    name = _ask_name(asker, address)
    needs_key = not (address.is_near or address.is_private)
    key = key or ask_key(asker, place, name, (KEY_VARIABLE,) if needs_key else ())
    secret = key.secret or place.loaded.env.get(key.name, "").strip()
    route = route_to(address.url, place.loaded.env, private=address.is_private)
    listing = list_models(address.url, secret, route)
    api = _ask_api(asker, address, listing)
    url = listing.base_url if listing and listing.api == api else address.url
    rows = [Option(each) for each in listing.models][:MOST_LISTED] if listing else []
    model = ask_model_id(asker, rows, name)
    images = infer_images(model)
    if images is None:
        images = asker.yes(f"Does {model} take images?", default=False)
    window, is_sure = window_of(model, listing.models.get(model, 0) if listing else 0, url)
    if not is_sure:
        window = _ask_window(asker, model, window)
    return custom_setup(name, model, key, address._replace(url=url), api, images, window)


def custom_setup(
    name: str, model: str, key: Key, address: ServerAddress, api: str, images: bool, window: int
) -> Setup:
    """What is saved about your own server."""
    entry: dict[str, Any] = {
        "id": model,
        "input": ["text", "image"] if images else ["text"],
        "contextWindow": window,
    }
    ref = ModelRef(name, model)
    return Setup(ref, key, address.url, api, address.is_private, entry)


def _ask_own_address(asker: Asker) -> ServerAddress:
    while True:
        text = asker.line("Address of the API, such as https://llm.example.com/v1")
        try:
            address = check_address(text, resolve=True)
        except ValueError as error:
            asker.say(f"{error}.".replace("..", "."))
            continue
        question = f"{address.host} is in a private network. Let clawkit connect to it?"
        if not address.is_private or asker.yes(question, default=False):
            return address


def usual_name(address: ServerAddress) -> str:
    """A name for a service, made of where it is."""
    host = "local" if address.is_near else address.host
    name = re.sub(r"[^a-z0-9]+", "-", f"{host}-{address.port or ''}".lower()).strip("-")[:48]
    return f"{name}-custom" if is_taken(name) or not name else name


def is_taken(name: str) -> bool:
    """Whether a name is that of a provider which clawkit knows."""
    return normalize_provider(name) in PROVIDERS


def bad_name(name: str) -> str:
    """Why a service cannot have this name; empty when it can."""
    if not _NAME.fullmatch(name):
        return "use lower-case letters, digits, - and _"
    return "clawkit knows a provider of that name; use another one" if is_taken(name) else ""


def _ask_name(asker: Asker, address: ServerAddress) -> str:
    while True:
        name = asker.line("A short name for it", usual_name(address)).lower()
        if not (problem := bad_name(name)):
            return name
        asker.say(f"That name cannot be used: {problem}.")


def _ask_api(asker: Asker, address: ServerAddress, listing: ModelList | None) -> str:
    names = list(APIS)
    guess = "anthropic" if "anthropic" in address.url else "openai"
    if listing:
        guess = next(name for name in names if APIS[name] == listing.api)
        asker.say(f"It answers, with {counted(len(listing.models), 'model')}.")
    options = [Option(name, _WORDS[name]) for name in names]
    return APIS[names[asker.choose("Which API does it speak?", options, names.index(guess))]]


def _ask_window(asker: Asker, model: str, usual: int) -> int:
    while True:
        text = asker.line(f"How many tokens does {model} take?", str(usual))
        digits = text.replace(",", "").replace("_", "")
        if digits.isdecimal() and len(digits) < 10 and MIN_WINDOW <= int(digits) <= MAX_WINDOW:
            return int(digits)
        asker.say(f"Please type a number of {MIN_WINDOW:,} or more, such as 128000.")


_PROFILES = {
    "minimal": "nothing but the status of the session",
    "coding": "files, commands, search, sessions",
    "messaging": "messages and sessions, no files and no commands",
    "full": "everything",
}
# Name, words, then mode, security and ask as they are written.
_MODES: tuple[tuple[str, str, str | None, str | None, str | None], ...] = (
    (
        "ask",
        "commands in the sandbox and on the allowlist run, you are asked about the rest",
        "ask",
        None,
        None,
    ),
    ("always ask", "you are asked about every command", None, "allowlist", "always"),
    (
        "allowlist",
        "commands in the sandbox and on the allowlist run, the rest is refused",
        "allowlist",
        None,
        None,
    ),
    ("deny", "no command runs", "deny", None, None),
    ("full", "every command runs without asking; for disposable machines", "full", None, None),
)


def ask_tools(asker: Asker, loaded: Loaded) -> list[Setting]:
    """Which tools there are, and a few things about them."""
    tools = loaded.config.tools
    names = list(_PROFILES)
    options = [Option(name, words) for name, words in _PROFILES.items()]
    at = names.index(tools.profile) if tools.profile in names else names.index("coding")
    profile = names[asker.choose("Which tools may an agent use?", options, at)]
    settings = [Setting(("tools", "profile"), profile, "Which tools an agent has.")]
    inside = asker.yes("Keep the file tools inside the workspace?", tools.fs.workspace_only)
    if inside != tools.fs.workspace_only:
        words = "Whether the file tools stay inside the workspace."
        settings.append(Setting(("tools", "fs", "workspaceOnly"), inside, words))
    guarded = bool(tools.loop_detection.enabled)
    guard = asker.yes("Stop an agent that repeats the same call without progress?", guarded)
    if guard != guarded:
        words = "Whether calls that repeat without progress are stopped."
        settings.append(Setting(("tools", "loopDetection", "enabled"), guard, words))
    return settings


def ask_approvals(asker: Asker, loaded: Loaded) -> list[Setting]:
    """Which commands run unasked."""
    options = [Option(name, words) for name, words, *_ in _MODES]
    now = [each.name for each in options].index(_mode(*loaded.config.tools.exec.policy()))
    at = asker.choose("What happens when an agent wants to run a command?", options, now)
    question = "Then every command runs, whatever it does. Are you sure?"
    if options[at].name == "full" and not asker.yes(question, default=False):
        return ask_approvals(asker, loaded)
    if at == now:
        return []
    *_, mode, new_security, new_ask = _MODES[at]
    where = ("tools", "exec")
    return [
        Setting((*where, "mode"), mode, "What happens when an agent wants to run a command."),
        Setting((*where, "security"), new_security, "Which commands may run at all."),
        Setting((*where, "ask"), new_ask, "When a person is asked."),
    ]


def _mode(security: str, ask: str) -> str:
    """Which of the answers it is now."""
    if security == "deny":
        return "deny"
    if ask == "always":
        return "always ask"
    if security == "full":
        return "full"
    return "ask" if ask == "on-miss" else "allowlist"

"""The questions of `onboard` and `configure`, on plain lines that every terminal can show."""

from __future__ import annotations

import io
import os
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

import click

from clawkit.cli.config import print_diff
from clawkit.cli.onboarding import APIS
from clawkit.cli.onboarding.probe import (
    KEY_VARIABLE,
    ModelList,
    ServerAddress,
    check_address,
    check_name,
    custom_setup,
    known_setup,
    list_models,
    offered_models,
    read_model_id,
    try_setup,
    usual_name,
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
    clean_key,
    configured_url,
    find_choice,
    plan,
    preview,
    unknown_choice,
)
from clawkit.cli.options import counted
from clawkit.config.file_edit import Change
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef
from clawkit.errors import ConfigError
from clawkit.models.catalog import Catalog
from clawkit.models.discover import (
    MAX_WINDOW,
    MIN_WINDOW,
    infer_images,
    local_models,
    providers_with_keys,
)
from clawkit.models.known import PROVIDERS
from clawkit.net.addresses import env_proxy
from clawkit.net.route import Route
from clawkit.text import nearest, printable

T = TypeVar("T")


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

    def ask(self, question: str, check: Callable[[str], T], default: str = "") -> T:
        """What `check` makes of what is typed; the ValueErrors it raises say what is wrong."""
        while True:
            try:
                return check(self.line(question, default))
            except ValueError as error:
                self.say_again(error)

    def say_again(self, error: ValueError) -> None:
        self.say(f"Please try again: {error}".rstrip(".") + ".")

    def secret(self, question: str) -> str:
        """What is typed, not shown. The echo is off before the question appears."""
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
            setup = _ask_known(asker, place, chosen, given)
        settled = _settle(asker, place, chosen, setup)
        if settled is None or settled.ref is not None:
            return settled
        choice = key = None


def _ask_choice(asker: Asker, place: ConfigTarget) -> AuthChoice:
    env = place.loaded.env
    keys = providers_with_keys(env)
    local = local_models(env)
    found = [
        Option(name, f"key in {next(filter(place.is_set, PROVIDERS[name].env))}") for name in keys
    ]
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
    others = [
        each for each in CHOICES.values() if each.provider == choice.provider and each.base_url
    ]
    if not others or choice.base_url:
        return choice
    configured = configured_url(place.loaded, choice.provider)
    urls = [PROVIDERS[choice.provider].base_url, *(each.base_url for each in others)]
    default = urls.index(configured) if configured in urls else 0
    picked = asker.choose("Which address is the key for?", [Option(url) for url in urls], default)
    return [choice, *others][picked]


def _current(place: ConfigTarget) -> ModelRef | None:
    try:
        return next(iter(Catalog.of(place.loaded, place.agent).candidates()), None)
    except ConfigError:
        return None


def ask_key(asker: Asker, place: ConfigTarget, provider: str, names: Sequence[str]) -> Key:
    """Where the key comes from."""
    if provider in PROVIDERS and PROVIDERS[provider].is_local:
        return Key()
    options = [
        (Option(f"use {name} from the environment", "recommended"), Key("env", name))
        for name in names
        if place.is_set(name)
    ]
    if kept := place.kept_credential(provider):
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
            asker.say_again(error)


def _ask_known(asker: Asker, place: ConfigTarget, choice: AuthChoice, key: Key) -> Setup:
    rows = [
        Option(row.id, f"{row.name}, {row.context_window:,} tokens{', images' * row.images}")
        for row in PROVIDERS[choice.provider].models
    ]
    if choice.is_local:
        rows = [Option(name) for name in offered_models(place, choice)]
    current = _current(place)
    model = current.id if current and current.provider == choice.provider else ""
    model = ask_model_id(asker, rows[:MOST_LISTED], choice.provider, model)
    return known_setup(place, choice, key, model, look=True)


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
        try:
            if not answer.isdecimal():
                return read_model_id(answer, provider)
        except ValueError:
            pass
        asker.say("That is not a model id.")


def _settle(asker: Asker, place: ConfigTarget, choice: AuthChoice, setup: Setup) -> Setup | None:
    """Try it until it works or is accepted as it is. A setup without a model: begin again."""
    while setup.ref is not None:
        change = preview(place, plan(setup, place.loaded, place.agent))
        if setup.key.source == "env" and not place.is_set(setup.key.name):
            asker.say(f"{setup.key.name} is not set here, so this cannot be tried now.")
            return setup
        asker.say(f"\nAsking {setup.ref} for one word …")
        trial = try_setup(place, change, setup, setup.ref)
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
            setup = _ask_known(asker, place, choice, setup.key)
    return Setup()


_WORDS = {
    "openai": "chat completions, which nearly every server can do",
    "openai-responses": "OpenAI's newer API",
    "anthropic": "messages, as Claude's own service",
    "google": "as Gemini's own service",
}


def ask_custom(asker: Asker, place: ConfigTarget, key: Key | None) -> Setup:
    """Everything about your own server and the model to use."""
    address = _ask_own_address(asker)
    name = asker.ask("A short name for it", check_name, usual_name(address))
    needs_key = not (address.is_near or address.is_private)
    key = key or ask_key(asker, place, name, (KEY_VARIABLE,) if needs_key else ())
    secret = key.secret or place.loaded.env.get(key.name, "").strip()
    proxy = env_proxy(address.url, place.loaded.env)
    listing = list_models(address.url, secret, Route(private=address.is_private, proxy=proxy))
    api = _ask_api(asker, address, listing)
    url = listing.base_url if listing and listing.api == api else address.url
    rows = [Option(each) for each in listing.models][:MOST_LISTED] if listing else []
    model = ask_model_id(asker, rows, name)
    images = infer_images(model)
    if images is None:
        images = asker.yes(f"Does {model} take images?", default=False)
    window, is_sure = window_of(model, listing.models.get(model, 0) if listing else 0, url)
    if not is_sure:
        window = asker.ask(f"How many tokens does {model} take?", _read_window, str(window))
    return custom_setup(name, model, key, address._replace(url=url), api, images, window)


def _ask_own_address(asker: Asker) -> ServerAddress:
    while True:
        address = asker.ask(
            "Address of the API, such as https://llm.example.com/v1",
            lambda text: check_address(text, resolve=True),
        )
        question = f"{address.host} is in a private network. Let clawkit connect to it?"
        if not address.is_private or asker.yes(question, default=False):
            return address


def _ask_api(asker: Asker, address: ServerAddress, listing: ModelList | None) -> str:
    names = list(APIS)
    guess = "anthropic" if "anthropic" in address.url else "openai"
    if listing:
        guess = next(name for name in names if APIS[name] == listing.api)
        asker.say(f"It answers, with {counted(len(listing.models), 'model')}.")
    options = [Option(name, _WORDS[name]) for name in names]
    return APIS[names[asker.choose("Which API does it speak?", options, names.index(guess))]]


def _read_window(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    if digits.isdecimal() and len(digits) < 10 and MIN_WINDOW <= int(digits) <= MAX_WINDOW:
        return int(digits)
    raise ValueError(f"type a number of {MIN_WINDOW:,} or more, such as 128000")


_PROFILES = {
    "minimal": "nothing but the status of the session",
    "coding": "files, commands, search, sessions",
    "messaging": "messages and sessions, no files and no commands",
    "full": "everything",
}
_MODES: dict[str, tuple[str, dict[str, str]]] = {
    "ask": (
        "commands in the sandbox and on the allowlist run, you are asked about the rest",
        {"mode": "ask"},
    ),
    "always ask": (
        "you are asked about every command",
        {"security": "allowlist", "ask": "always"},
    ),
    "allowlist": (
        "commands in the sandbox and on the allowlist run, the rest is refused",
        {"mode": "allowlist"},
    ),
    "deny": ("no command runs", {"mode": "deny"}),
    "full": ("every command runs without asking; for disposable machines", {"mode": "full"}),
}
"""What can be chosen: words for it, and the settings of `tools.exec` that make it so."""
_EXEC = {
    "mode": "What happens when an agent wants to run a command.",
    "security": "Which commands may run at all.",
    "ask": "When a person is asked.",
}


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
    names = list(_MODES)
    options = [Option(name, words) for name, (words, _) in _MODES.items()]
    now = names.index(_mode(*loaded.config.tools.exec.policy()))
    while True:
        at = asker.choose("What happens when an agent wants to run a command?", options, now)
        question = "Then every command runs, whatever it does. Are you sure?"
        if names[at] != "full" or asker.yes(question, default=False):
            break
    if at == now:
        return []
    _, chosen = _MODES[names[at]]
    return [Setting(("tools", "exec", key), chosen.get(key), _EXEC[key]) for key in _EXEC]


def _mode(security: str, ask: str) -> str:
    """Which of the answers it is now."""
    if security == "deny":
        return "deny"
    if ask == "always":
        return "always ask"
    if security == "full":
        return "full"
    return "ask" if ask == "on-miss" else "allowlist"

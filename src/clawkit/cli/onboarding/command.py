"""The flow of `clawkit onboard` and `clawkit configure`, with questions or with options."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import click

from clawkit.cli.config import change_to_json, print_diff, say_written
from clawkit.cli.models import model_warnings
from clawkit.cli.onboarding import APIS, SECTIONS, probe, write
from clawkit.cli.onboarding import questions as person
from clawkit.cli.onboarding.write import (
    CUSTOM,
    SKIP,
    ApiKey,
    AuthChoice,
    Setting,
    Setup,
    find_choice,
)
from clawkit.cli.shared_options import can_ask, counted, print_json, refuse_commands, warn
from clawkit.config.file_edit import ConfigChange, change
from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.errors import ConfigError
from clawkit.models import discover
from clawkit.models.catalog import Catalog
from clawkit.models.known import PROVIDERS
from clawkit.net.addresses import env_proxy
from clawkit.net.route import Route

T = TypeVar("T")
Options = Mapping[str, Any]

_NEXT = "Try: clawkit chat"
_NOTHING = "Nothing was written."
_MOST_LISTED = 12
_REMEDIES = {
    **dict.fromkeys(("try again", "another key", "another model", "start over"), ""),
    "save anyway": "fix it later",
    "stop": "write nothing",
}
_LIKELY = {
    "auth": "another key",
    "billing": "another key",
    "not_found": "another model",
    "setting": "start over",
    "refused": "start over",
}
"""The most promising remedy for each kind of failure; the default is to try again."""


def run_onboard(config_file: str | None, as_json: bool, options: Options) -> int:
    refuse_commands()
    try:
        choice = None if options["auth_choice"] is None else find_choice(options["auth_choice"])
    except ValueError as error:
        known = f"Choices: {', '.join(write.CHOICES)}"
        raise click.UsageError(f"--auth-choice: {error}\n{known}") from None
    script = _Script(write.find_place(config_file), options, asks=not options["non_interactive"])
    if not script.asks:
        return script.without_questions(choice, as_json)
    _need_terminal("add --non-interactive and --auth-choice, or use `clawkit config set`")
    if names := ["--json"] if as_json else _only_unasked(options):
        raise click.UsageError(f"{names[0]} requires --non-interactive")
    if choice is None and (options["api_key"] or options["api_key_env"]):
        raise click.UsageError("add --auth-choice to say which provider this key is for")
    with script.interruptible():
        person.say("This saves which model clawkit uses. Ctrl-C stops without writing anything.")
        return 0 if choice is None and script.took_openclaw() else script.with_questions(choice)


def run_configure(section: str | None, config_file: str | None) -> int:
    refuse_commands()
    script = _Script(write.find_place(config_file), {}, asks=True)
    _need_terminal("use `clawkit config set`, or `clawkit onboard --non-interactive`")
    with script.interruptible():
        if section is None:
            section = person.choose("What do you want to change?", SECTIONS)
        if section == "models":
            return script.with_questions(None, is_first=False)
        asks = {"tools": person.ask_tools, "search": person.ask_search}
        ask = asks.get(section, person.ask_approvals)
        return script.confirm(ask(script.target.loaded), None)


def _need_terminal(instead: str) -> None:
    if not can_ask():
        raise click.UsageError(f"there is no terminal to ask questions on; {instead}")
    from clawkit.process.libc import hide_memory

    hide_memory()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")


def _only_unasked(options: Options, start: str = "") -> list[str]:
    names = ("model", "no_test", "save_anyway", "api_key_stdin")
    custom = (name for name in options if name.startswith("custom_"))
    given = (name for name in (*names, *custom) if options[name] and name.startswith(start))
    return [f"--{name.replace('_', '-')}" for name in given]


def _check(option: str, check: Callable[[str], T], text: str) -> T:
    try:
        return check(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


class _Script:
    """Finds provider, key and model, tests and saves them; answers are options or are asked for."""

    def __init__(self, target: write.ConfigTarget, options: Options, *, asks: bool) -> None:
        self.target = target
        self.options = options
        self.asks = asks
        self._is_done = False
        """Whether the change has been written."""

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """If interrupted before the change is written, say so."""
        try:
            yield
        except (KeyboardInterrupt, click.Abort):
            if not self._is_done:
                person.say(f"\n{_NOTHING}")
            raise

    def took_openclaw(self) -> bool:
        """Offer to copy the settings of OpenClaw on this machine; True if they were copied."""
        place = self.target
        file = write.find_openclaw(place.loaded.env)
        if file is None or os.path.lexists(place.file):
            return False
        try:
            text = write.read_openclaw(file)
        except ConfigError as error:
            person.say(f"The OpenClaw configuration cannot be copied. {error}")
            return False
        person.say(f"Found {file}. Its settings can be copied to {place.file}; it is not changed.")
        if not person.confirm("Use them?"):
            return False
        self._tell(change(place.file, lambda before: before or text), None)
        person.say("To check it: clawkit doctor. To change the model: clawkit configure models")
        person.say(_NEXT)
        return True

    def with_questions(self, choice: AuthChoice | None, *, is_first: bool = True) -> int:
        setup = self._ask_until_settled(choice)
        settings = write.plan(setup, self.target.loaded, self.target.agent)
        if is_first and not self.target.searches:
            settings += person.ask_search(self.target.loaded)
        code = self.confirm(settings, setup)
        if not code and setup:
            if is_untested := self._lacks_key(setup):
                written = write.find_place(self.target.file)
                warn(model_warnings(Catalog.of(written.loaded, written.agent), [setup.ref]))
            first = f"First: export {setup.key.name}=YOUR_KEY\n" if is_untested else ""
            person.say(f"{first}{_NEXT}")
        return code

    def _lacks_key(self, setup: Setup) -> bool:
        return setup.key.source == "env" and not self.target.is_set(setup.key.name)

    def confirm(self, settings: list[Setting], setup: Setup | None) -> int:
        """Show the change, and write it if the user agrees; returns the exit code."""
        draft = write.preview(self.target, settings)
        stores = setup is not None and bool(setup.key.secret)
        if draft.before == draft.after and not stores:
            person.say(f"{self.target.file} already has these settings; nothing to write.")
            return 0
        person.say()
        print_diff(draft)
        if stores:
            person.say(f"The key is stored in {self.target.key_file}, which only you can read.")
        if not person.confirm("Write this?"):
            person.say(_NOTHING)
            return 1
        self._tell(write.save(self.target, settings, setup), setup)
        return 0

    def without_questions(self, choice: AuthChoice | None, as_json: bool) -> int:
        if choice is None:
            raise click.UsageError("--non-interactive requires --auth-choice (`skip` for no model)")
        if choice.id != CUSTOM and (names := _only_unasked(self.options, "custom_")):
            raise click.UsageError(f"{names[0]} requires --auth-choice {CUSTOM}")
        setup = None if choice.id == SKIP else self._find_setup(choice)
        settings = write.plan(setup, self.target.loaded, self.target.agent)
        done, trial = write.preview(self.target, settings), None
        if setup and not self.options["no_test"]:
            trial = probe.try_setup(self.target, done, setup)
            if not as_json:
                click.echo(trial.words, err=True)
        failed = trial is not None and not trial.ok and not self.options["save_anyway"]
        if not failed:
            done = write.save(self.target, settings, setup)
        if as_json:
            print_json(self._report(done, setup, trial, written=not failed))
        elif failed:
            click.echo("Nothing was written; --save-anyway saves it regardless.", err=True)
        else:
            print_diff(done)
            self._tell(done, setup)
        return 1 if failed else 0

    def _report(
        self, done: ConfigChange, setup: Setup | None, trial: probe.Trial | None, *, written: bool
    ) -> dict[str, Any]:
        key = setup.key if setup else ApiKey()
        sources = {"env": f"env:{key.name}", "typed": self.target.key_file}
        remarks = write.other_credential(self.target, setup) if setup and written else []
        return {
            "ok": written,
            **change_to_json(done),
            "model": str(setup.ref) if setup else None,
            "key": sources.get(key.source, key.source),
            "test": trial and trial.to_json(),
            "warnings": [*map(str, done.warnings), *remarks],
        }

    def _tell(self, done: ConfigChange, setup: Setup | None) -> None:
        self._is_done = True
        click.echo(say_written(done), err=True)
        if setup and setup.key.secret:
            click.echo(f"Stored the key in {self.target.key_file}", err=True)
        warn(map(str, done.warnings))
        if setup:
            warn(write.other_credential(self.target, setup))

    def _ask_until_settled(self, given: AuthChoice | None) -> Setup | None:
        """Ask until a model works or should be saved anyway; None for no model."""
        while True:
            choice = given or self._ask_address(self._ask_choice())
            if choice.id == SKIP:
                return None
            setup = self._find_setup(choice)
            while failure := self._try(setup):
                useless = "another key" if choice.is_local else ""
                useless = "another model" if choice.id == CUSTOM else useless
                options = {name: words for name, words in _REMEDIES.items() if name != useless}
                remedy = person.choose("What now?", options, _LIKELY.get(failure, ""))
                if remedy == "start over":
                    break
                if remedy == "save anyway":
                    return setup
                if remedy == "stop":
                    person.say(_NOTHING)
                    raise click.exceptions.Exit(1)
                if remedy == "another key":
                    setup = setup._replace(key=self._type_key(setup.ref.provider, choice.env))
                elif remedy == "another model":
                    setup = self._known_setup(choice, setup.key)
            else:
                return setup
            given, self.options = None, {}

    def _try(self, setup: Setup) -> str:
        """The kind of failure of a test request; empty if it works or cannot be tested."""
        draft = write.preview(self.target, write.plan(setup, self.target.loaded, self.target.agent))
        if self._lacks_key(setup):
            person.say(f"{setup.key.name} is not set, so the model cannot be tested now.")
            return ""
        person.say(f"\nAsking {setup.ref} for one word …")
        trial = probe.try_setup(self.target, draft, setup)
        person.say(trial.words)
        return trial.plain_kind

    def _ask_choice(self) -> AuthChoice:
        env = self.target.loaded.env
        keys, local = discover.providers_with_keys(env), discover.local_models(env)
        options = {
            name: f"key in {next(filter(self.target.is_set, PROVIDERS[name].env))}" for name in keys
        }
        if local:
            options["ollama"] = f"{counted(len(local), 'model')} on this machine, no key needed"
        if not options:
            person.say("Found no API key in the environment and no Ollama on this machine.")
        others = [name for name in PROVIDERS if name not in keys]
        options["another provider"] = f"{', '.join(others[:4])} and {len(others) - 4} more"
        options["custom"] = "your own server, by address"
        options["none"] = "no model for now"
        current, question = self._current(), "Which provider? (number or name)"
        usual = current.provider if current else ""
        answer = person.choose(question, options, usual, other=lambda text: _read_choice(text).id)
        if answer == "another provider":
            person.say(f"\nProviders: {', '.join(PROVIDERS)}")
            return person.ask("Which one? (name)", find_choice)
        return find_choice(answer)

    def _ask_address(self, choice: AuthChoice) -> AuthChoice:
        """Ask for the address of providers that have several, each with its own keys."""
        same = (each for each in write.CHOICES.values() if each.provider == choice.provider)
        others = {each.base_url: each for each in same if each.base_url}
        if not others or choice.base_url or not choice.provider:
            return choice
        found = {PROVIDERS[choice.provider].base_url: choice, **others}
        configured = write.configured_url(self.target.loaded, choice.provider)
        question = "Which address is the key for?"
        return found[person.choose(question, dict.fromkeys(found, ""), configured)]

    def _current(self) -> ModelRef | None:
        try:
            return next(iter(Catalog.of(self.target.loaded, self.target.agent).candidates()), None)
        except ConfigError:
            return None

    def _find_setup(self, choice: AuthChoice) -> Setup:
        if choice.id == CUSTOM:
            return self._custom_setup(choice)
        return self._known_setup(choice, self._find_key(choice, choice.provider, choice.env))

    def _find_key(
        self, choice: AuthChoice, provider: str, names: tuple[str, ...], *, needed: bool = True
    ) -> ApiKey:
        """The key from the options, else the one the user chooses, else the usual one."""
        if given := self._given_key(choice):
            return given
        if choice.is_local:
            return ApiKey()
        usual = [ApiKey("env", name) for name in filter(self.target.is_set, names)]
        kept = self.target.kept_credential(provider)
        if self.asks:
            keys = {"keep the current key": ApiKey("kept")} if kept else {}
            keys |= {f"use {key.name} from the environment": key for key in usual}
            options = {name: "recommended" if key.name else kept for name, key in keys.items()}
            options["type a key"] = f"stored in {self.target.key_file}, which only you can read"
            chosen = person.choose(f"Which key for {provider}?", options) if keys else ""
            return keys.get(chosen) or self._type_key(provider, names, needed=needed)
        if usual or not needed:
            return usual[0] if usual else ApiKey()
        if kept:
            return ApiKey("kept")
        raise click.UsageError(
            f"no key for {provider}: set {' or '.join(names)}, or use --api-key-stdin, or name "
            "another variable with --api-key-env"
        )

    def _given_key(self, choice: AuthChoice) -> ApiKey | None:
        text, name = self.options.get("api_key"), self.options.get("api_key_env")
        is_piped = bool(self.options.get("api_key_stdin"))
        ways = (text is not None) + (name is not None) + is_piped
        if ways > 1:
            raise click.UsageError("use one of --api-key, --api-key-env and --api-key-stdin")
        if ways and choice.is_local:
            raise click.UsageError(f"{choice.id} needs no key")
        if name is not None:
            if not write.VARIABLE.fullmatch(name):
                raise click.UsageError("--api-key-env takes a name, such as MY_API_KEY")
            return ApiKey("env", name)
        if text is not None:
            warn(["other users can see --api-key in the process list; use --api-key-stdin"])
            return ApiKey("typed", secret=_check("--api-key", write.clean_key, text))
        if not is_piped:
            return None
        text = sys.stdin.read(write.MAX_KEY * 2) if sys.stdin is not None else ""
        return ApiKey("typed", secret=_check("--api-key-stdin", write.clean_key, text))

    def _type_key(self, provider: str, names: tuple[str, ...], *, needed: bool = True) -> ApiKey:
        """Ask for a key without echo; if left empty, a variable to be set later, or no key."""
        later = ApiKey("env", names[0]) if needed and names else ApiKey()
        empty = f"you set {later.name} later" if later.name else "no key is needed"
        return person.ask_unseen(
            f"Key for {provider} (not shown; leave it empty if {empty})",
            lambda text: ApiKey("typed", secret=write.clean_key(text)) if text else later,
        )

    def _known_setup(self, choice: AuthChoice, key: ApiKey) -> Setup:
        provider, look = choice.provider, not self.options.get("no_test")
        if not self.asks:
            model = self._read_model(choice)
        else:
            rows = {
                row.id: f"{row.name}, {row.context_window:,} tokens{', images' * row.images}"
                for row in PROVIDERS[provider].models
            }
            if choice.is_local:
                rows = dict.fromkeys(probe.offered_models(self.target, choice), "")
            current = self._current()
            usual = current.id if current and current.provider == provider else ""
            model = _ask_model(rows, provider, usual)
        return probe.known_setup(self.target, choice, key, model, look=look)

    def _read_model(self, choice: AuthChoice) -> str:
        provider, given = choice.provider, self.options["model"]
        if given is None:
            usual = discover.default_model(provider)
            found = [usual.id] if usual else probe.offered_models(self.target, choice)
            if not found:
                raise click.UsageError(f"{provider} lists no models here; name one with --model")
            return found[0]
        model = _check("--model", partial(probe.read_model_id, provider=provider), given)
        other = parse_ref(model).provider
        has_slashes = any("/" in row.id for row in PROVIDERS[provider].models)
        if other in PROVIDERS and not has_slashes and not choice.is_local:
            raise click.UsageError(f"--model names a model of {other}, not of {provider}")
        return model

    def _answer(self, option: str, question: str, check: Callable[[str], T], usual: str = "") -> T:
        if self.asks:
            return person.ask(question, check, usual)
        name = f"--{option.replace('_', '-')}"
        return _check(name, check, self.options[option] or usual)

    def _custom_setup(self, choice: AuthChoice) -> Setup:
        options, listing = self.options, None
        given = options.get("custom_model_id") or options.get("model")
        if not self.asks:
            if not (options["custom_base_url"] and given):
                raise click.UsageError(f"{CUSTOM} needs --custom-base-url and --custom-model-id")
            if options["custom_image_input"] and options["custom_text_input"]:
                raise click.UsageError("use one of --custom-image-input and --custom-text-input")
        address = self._own_address()
        usual = probe.usual_name(address)
        name = self._answer("custom_provider_id", "Short name for it", probe.check_name, usual)
        needed = not (address.is_near or address.is_private)
        key = self._find_key(choice, name, (probe.KEY_VARIABLE,), needed=needed)
        if self.asks:
            env = self.target.loaded.env
            secret = key.secret or env.get(key.name, "").strip()
            route = Route(private=address.is_private, proxy=env_proxy(address.url, env))
            listing = probe.list_models(address.url, secret, route)
            api = _ask_api(address.url, listing)
            if listing and listing.api == api:
                address = address._replace(url=listing.base_url)
            model = _ask_model(dict.fromkeys(listing.models if listing else (), ""), name)
        else:
            api, _ = APIS[options["custom_compatibility"] or "openai"]
            read = partial(probe.read_model_id, provider=name)
            model = _check("--custom-model-id", read, given or "")
        url = "" if options.get("no_test") else address.url
        listed = listing.models.get(model, 0) if listing else 0
        window, is_sure = probe.window_of(model, listed, url)
        takes = ["text", "image"] if self._takes_images(model) else ["text"]
        if self.asks and not is_sure:
            question = f"Context window of {model}, in tokens"
            window = person.ask(question, _read_window, str(window))
        entry = {"id": model, "input": takes, "contextWindow": window}
        return Setup(ModelRef(name, model), key, address.url, api, address.is_private, entry)

    def _own_address(self) -> probe.ServerAddress:
        private = bool(self.options.get("custom_private_network"))
        check = partial(probe.check_address, resolve=self.asks, private=private)
        while True:
            question = "Address of the API, such as https://llm.example.com/v1"
            address = self._answer("custom_base_url", question, check)
            where = f"{address.host} is on a private network"
            if self.asks:
                allow = f"{where}. Let clawkit connect to it?"
                if not address.is_private or person.confirm(allow, default=False):
                    return address
            elif address.is_private and not private:
                raise click.UsageError(
                    f"--custom-base-url: {where}; add --custom-private-network to allow it"
                )
            else:
                return address._replace(is_private=private)

    def _takes_images(self, model: str) -> bool:
        by_name = discover.infer_images(model)
        if not self.asks:
            said = self.options["custom_image_input"]
            return said or (bool(by_name) and not self.options["custom_text_input"])
        if by_name is None:
            return person.confirm(f"Does {model} accept images?", default=False)
        return by_name


def _read_choice(text: str) -> AuthChoice:
    try:
        return find_choice(text)
    except ValueError as error:
        hint = "" if str(error).endswith("?") else " Type a number; 'another provider' lists all."
        raise ValueError(f"{error}{hint}") from None


def _ask_model(rows: Mapping[str, str], provider: str, current: str = "") -> str:
    read = partial(probe.read_model_id, provider=provider)
    if not rows:
        return person.ask("Which model? (id)", read, current)
    listed = dict(islice(rows.items(), _MOST_LISTED))
    question = "Which model? (number, or the id of another one)"
    return person.choose(question, listed, current, other=read)


def _ask_api(url: str, listing: probe.ModelList | None) -> str:
    guess = "anthropic" if "anthropic" in url else "openai"
    if listing:
        guess = next(name for name, (api, _) in APIS.items() if api == listing.api)
        person.say(f"The server responds and lists {counted(len(listing.models), 'model')}.")
    options = {name: words for name, (_, words) in APIS.items()}
    return APIS[person.choose("Which API does it speak?", options, guess)][0]


def _read_window(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    least, most = discover.MIN_WINDOW, discover.MAX_WINDOW
    if digits.isdecimal() and len(digits) < 10 and least <= int(digits) <= most:
        return int(digits)
    raise ValueError(f"type a number of {least:,} or more, such as 128000")

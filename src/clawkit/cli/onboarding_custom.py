"""A service that clawkit does not know: its address, its API and one of its models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clawkit.cli.onboarding_ask import Asker, Option, counted
from clawkit.cli.onboarding_flow import MOST_LISTED, ask_key, ask_model_id
from clawkit.cli.onboarding_look import (
    MAX_WINDOW,
    MIN_WINDOW,
    Address,
    Listing,
    check_address,
    list_models,
    route_to,
    window_of,
)
from clawkit.cli.onboarding_plan import Key, Setup
from clawkit.cli.onboarding_write import Place
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.models.base import Api
from clawkit.models.discover import infer_images
from clawkit.models.known import PROVIDERS

KEY_VARIABLE = "CUSTOM_API_KEY"
APIS: Mapping[str, Api] = {
    "openai": "openai-completions",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
}
_WORDS = {
    "openai": "chat completions, which nearly every server can do",
    "openai-responses": "OpenAI's newer API",
    "anthropic": "messages, as Claude's own service",
    "google": "as Gemini's own service",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def ask_custom(asker: Asker, place: Place, key: Key | None) -> Setup:
    """Everything about a service of one's own and the model to use."""
    address = _ask_address(asker)
    name = _ask_name(asker, address)
    key = key or ask_key(asker, place, name, (KEY_VARIABLE,) if not _is_home(address) else ())
    listing = _look(place, address, key)
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
    name: str, model: str, key: Key, address: Address, api: str, images: bool, window: int
) -> Setup:
    """What is written about a service of one's own."""
    entry: dict[str, Any] = {
        "id": model,
        "input": ["text", "image"] if images else ["text"],
        "contextWindow": window,
    }
    ref = ModelRef(name, model)
    return Setup(ref, key, address.url, api, address.is_private, entry)


def _is_home(address: Address) -> bool:
    return address.is_near or address.is_private


def _ask_address(asker: Asker) -> Address:
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


def usual_name(address: Address) -> str:
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


def _ask_name(asker: Asker, address: Address) -> str:
    while True:
        name = asker.line("A short name for it", usual_name(address)).lower()
        if not (problem := bad_name(name)):
            return name
        asker.say(f"That is not a name for it: {problem}.")


def _look(place: Place, address: Address, key: Key) -> Listing | None:
    secret = key.secret or place.loaded.env.get(key.name, "").strip()
    route = route_to(address.url, place.loaded.env, private=address.is_private)
    return list_models(address.url, secret, route)


def _ask_api(asker: Asker, address: Address, listing: Listing | None) -> Api:
    names = list(APIS)
    guess = "anthropic" if "anthropic" in address.url else "openai"
    if listing:
        guess = next(name for name in names if APIS[name] == listing.api)
        asker.say(f"It answers, and lists {counted(len(listing.models), 'model')}.")
    options = [Option(name, _WORDS[name]) for name in names]
    return APIS[names[asker.choose("Which API does it speak?", options, names.index(guess))]]


def _ask_window(asker: Asker, model: str, usual: int) -> int:
    while True:
        text = asker.line(f"How many tokens does {model} take?", str(usual))
        digits = text.replace(",", "").replace("_", "")
        if digits.isdecimal() and len(digits) < 10 and MIN_WINDOW <= int(digits) <= MAX_WINDOW:
            return int(digits)
        asker.say(f"Please type a number of {MIN_WINDOW:,} or more, such as 128000.")

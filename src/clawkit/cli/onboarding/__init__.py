"""`clawkit onboard` and `clawkit configure`: set up a model, tools and approvals."""

from __future__ import annotations

from typing import Any

import click

from clawkit.cli.shared_options import config_option, json_option

SECTIONS = {
    "models": "provider, key and model",
    "tools": "which tools an agent has",
    "approvals": "which commands run",
    "search": "which service searches the web",
}
APIS = {
    "openai": ("openai-completions", "chat completions, which nearly every server supports"),
    "openai-responses": ("openai-responses", "OpenAI's newer API"),
    "anthropic": ("anthropic-messages", "messages, the API of Claude"),
    "google": ("google-generative-ai", "the API of Gemini"),
}
"""Short names of the APIs that a server can speak, each with its id and description."""


@click.command()
@click.option("--non-interactive", is_flag=True, help="Ask no questions; use only the options.")
@click.option("--auth-choice", metavar="ID", help="Provider, such as anthropic-api-key.")
@click.option("--api-key", metavar="KEY", help="API key. Other users of this machine can see it.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--api-key-stdin", is_flag=True, help="Read the API key from standard input.")
@click.option("--model", metavar="ID", help="Model. Default: the provider's default model.")
@click.option("--custom-base-url", metavar="URL", help="Base URL of your own server.")
@click.option("--custom-model-id", metavar="ID", help="Model on that server.")
@click.option("--custom-provider-id", metavar="NAME", help="Name for that server.")
@click.option("--custom-compatibility", type=click.Choice(list(APIS)), help="API of the server.")
@click.option("--custom-image-input", is_flag=True, help="Its model accepts images.")
@click.option("--custom-text-input", is_flag=True, help="Its model accepts text only.")
@click.option("--custom-private-network", is_flag=True, help="It is on a private network.")
@click.option("--no-test", is_flag=True, help="Do not test the model before saving.")
@click.option("--save-anyway", is_flag=True, help="Save even if the model does not answer.")
@json_option
@config_option
def onboard(config_file: str | None, as_json: bool, **options: Any) -> int:
    """Choose a model, ask it for one word, and save it in the configuration.

    In a terminal, it asks a few questions and offers what it finds: API keys in the environment,
    Ollama on this machine, a configuration of OpenClaw. A key that you type is stored in
    auth-profiles.json, which only you can read. Comments in an existing configuration are kept, and
    the previous file is saved as a backup.

    Exit codes: 0 saved, 1 the model did not answer and nothing was written, 2 usage error.

    \b
    clawkit onboard
    clawkit onboard --non-interactive --auth-choice anthropic-api-key
    clawkit onboard --non-interactive --auth-choice zai-api-key --api-key-stdin < key.txt
    """
    from clawkit.cli.onboarding.command import run_onboard

    return run_onboard(config_file, as_json, options)


@click.command()
@click.argument("section", type=click.Choice(list(SECTIONS)), required=False)
@config_option
def configure(section: str | None, config_file: str | None) -> int:
    """Change one part of an existing configuration by answering questions.

    The part is `models` (provider, key and model, as in `clawkit onboard`), `tools` (which tools an
    agent has), `approvals` (which commands run without asking) or `search` (which service searches
    the web). If you leave it out, you are asked.
    """
    from clawkit.cli.onboarding.command import run_configure

    return run_configure(section, config_file)

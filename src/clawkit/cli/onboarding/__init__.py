"""`clawkit onboard` and `clawkit configure`: from nothing to a model that answers."""

from __future__ import annotations

from typing import Any

import click

from clawkit.cli.options import config_option, json_option

SECTIONS = {
    "models": "provider, key and model",
    "tools": "which tools there are",
    "approvals": "which commands run",
}
APIS = {
    "openai": "openai-completions",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
}
"""Names for people of the APIs that a server can speak."""


@click.command()
@click.option(
    "--non-interactive", is_flag=True, help="Ask no questions; the options say everything."
)
@click.option("--auth-choice", metavar="ID", help="The provider, such as anthropic-api-key.")
@click.option("--api-key", metavar="KEY", help="The key. Other users of this machine can see it.")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--api-key-stdin", is_flag=True, help="Read the key from standard input.")
@click.option("--model", metavar="ID", help="The model. Default: the provider's usual one.")
@click.option("--custom-base-url", metavar="URL", help="Address of your own server.")
@click.option("--custom-model-id", metavar="ID", help="Model of that server.")
@click.option("--custom-provider-id", metavar="NAME", help="Name for that server.")
@click.option("--custom-compatibility", type=click.Choice(list(APIS)), help="API it speaks.")
@click.option("--custom-image-input", is_flag=True, help="Its model takes images.")
@click.option("--custom-text-input", is_flag=True, help="Its model takes no images.")
@click.option("--custom-private-network", is_flag=True, help="It is on a private network.")
@click.option("--no-test", is_flag=True, help="Do not ask the model for a word before saving.")
@click.option("--save-anyway", is_flag=True, help="Save even if the model does not answer.")
@json_option
@config_option
def onboard(config_file: str | None, as_json: bool, **options: Any) -> int:
    """Choose a model, ask it for one word, and save it in the configuration.

    In a terminal it asks a few questions, and first offers what it finds: keys in the environment,
    Ollama on this machine, the configuration of OpenClaw. A key that you type is stored in
    auth-profiles.json, which only you can read. Comments in an existing configuration stay, and the
    previous file is kept.

    Exit codes: 0 saved, 1 the model did not answer and nothing was written, 2 wrong usage.

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
    agent has) or `approvals` (which commands run without asking). Without it you are asked.
    """
    from clawkit.cli.onboarding.command import run_configure

    return run_configure(section, config_file)

"""The environment: `env`, `secrets`, `logging` and `diagnostics`."""

import os.path
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.section import Conflict, Name, Positive, Section
from clawkit.config.sections.shared import Headers, Switch


class ShellEnv(Section):
    enabled: bool = False  #: Ask the login shell for variables the environment lacks.
    timeout_ms: Positive = 15_000  #: Milliseconds to wait for the shell.


class Env(Section, forbid_unknown_fields=False):
    """Variables for this configuration, as `NAME: "value"` here or under `vars`."""

    vars: dict[str, str] = {}  #: Variables that are set unless the environment has them.
    shell_env: ShellEnv = ShellEnv()  #: Read missing variables from the login shell.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for name, value in raw.items():
            if name not in ("vars", "shellEnv") and not isinstance(value, str):
                yield name, "a variable must be a string", "Put the value in quotes"


_SOURCES_OF = {
    **dict.fromkeys(("path", "mode", "maxBytes"), ("file",)),
    "allowlist": ("env",),
    "timeoutMs": ("file", "exec"),
}
"""Key -> sources it applies to; all other keys are for exec."""


class PluginIntegration(Section):
    plugin_id: Name  #: Id of the plugin.
    integration_id: Name  #: Which of the plugin's integrations to use.


class SecretProvider(Section):
    """How to read secrets from one source; which keys apply depends on `source`."""

    NEEDED = {"path": ("source", "file")}
    EXCLUSIVE = {"pluginIntegration": "command"}

    source: Literal["env", "file", "exec", "store"]
    """Where they are: environment variables, a file, or a command. `store` fails when used."""
    allowlist: list[str] | None = None  #: env: allowed variables; unset is all, empty is none.
    path: str | None = None  #: file: the file, an absolute path or one with ~.
    mode: Literal["json", "singleValue"] = "json"  #: file: a JSON object, or one secret.
    max_bytes: Annotated[int, Meta(ge=1, le=20_971_520)] = 1_048_576
    """file: maximum size, in bytes."""
    command: str | None = None  #: exec: the program, as an absolute path.
    args: list[str] = []  #: exec: arguments of the program.
    env: dict[str, str] = {}  #: exec: environment variables of the program.
    pass_env: Annotated[
        list[str], Meta(max_length=128)
    ] = []  #: exec: the only inherited variables.
    timeout_ms: Positive = 5_000  #: exec: milliseconds until it fails. No effect for file.
    no_output_timeout_ms: Annotated[int, Meta(ge=1, le=120_000)] | None = None
    """exec: milliseconds without output until it fails."""
    max_output_bytes: Positive = 1_048_576  #: exec: maximum output, in bytes.
    json_only: bool = True  #: exec: refuse output that is not JSON.
    trusted_dirs: Annotated[list[str], Meta(max_length=64)] = []
    """exec: directories the program may be in; empty means any."""
    plugin_integration: PluginIntegration | None = None  #: exec: a plugin instead; fails for now.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        source = raw["source"]
        if source == "store":
            return
        for key in sorted(raw.keys() - {"source"}):
            if source not in _SOURCES_OF.get(key, ("exec",)):
                yield key, f"does not apply to source {source!r}", f"Remove {key}, or change source"
        yield from super().conflicts(raw)
        if source == "exec" and not (raw.get("command") or raw.get("pluginIntegration")):
            yield "command", "missing although source is 'exec'", "Set command"
        if not os.path.isabs(raw.get("command") or "/"):
            yield "command", "not an absolute path", "Use an absolute path, such as /usr/bin/op"


class SecretDefaults(Section):
    env: str = "default"  #: Provider of references with source env.
    file: str = "default"  #: Provider of references with source file.
    exec: str = "default"  #: Provider of references with source exec.


class Secrets(Section):
    """Sources of secrets."""

    providers: dict[str, SecretProvider] = {}  #: Sources of secrets, by name.
    defaults: SecretDefaults = SecretDefaults()  #: Provider used when a reference names none.


Level = Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"]


class Logging(Section):
    """Log messages."""

    level: Level = "info"  #: Lowest level written to the file.
    console_level: Level | None = None  #: Lowest level on the terminal; unset is `level`.
    console_style: Literal["pretty", "compact", "json"] = "pretty"  #: Format on the terminal.
    file: str | None = None  #: Log file; unset is in clawkit's home.
    max_file_bytes: Positive | None = None  #: Size at which a new file is started, in bytes.
    redact_patterns: list[str] = []  #: Patterns of secrets to mask, besides the built-in ones.
    audit: Switch = Switch()  #: The audit log.


class CaptureContent(Section):
    enabled: bool = False  #: Capture content; if false, the settings below have no effect.
    input_messages: bool = False  #: Messages sent to the model.
    output_messages: bool = False  #: Answers of the model.
    tool_inputs: bool = False  #: Parameters of tool calls.
    tool_outputs: bool = False  #: Results and errors of tool calls.


OTLP_ADDRESSES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Otel(Section):
    """Spans for OpenTelemetry: turns, model requests, tool calls."""

    enabled: bool | None = None  #: Send them; unset follows `CLAWKIT_OTEL` and the environment.
    endpoint: Name | None = None  #: Collector; unset is `OTEL_EXPORTER_OTLP_ENDPOINT` or port 4318.
    traces_endpoint: Name | None = None  #: Address for spans; unset is `endpoint` + `/v1/traces`.
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    """Only http/protobuf is supported."""
    headers: Headers = {}  #: Extra headers for the collector; values may be secret references.
    service_name: Name | None = None  #: Service name; unset is `OTEL_SERVICE_NAME`, or clawkit.
    traces: bool = True  #: Send spans.
    sample_rate: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of turns that are sent, 0 to 1; unset is all."""
    flush_interval_ms: Positive | None = None  #: Milliseconds between exports; unset is 5000.
    capture_content: bool | CaptureContent | None = None  #: Include content in spans.

    def is_on(self, env: Mapping[str, str]) -> bool:
        """Whether spans are sent, by these settings or, if they do not say, by `env`."""
        if not self.traces or env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return False
        if self.enabled is not None:
            return self.enabled
        return env.get("CLAWKIT_OTEL") == "1" and any(map(env.get, OTLP_ADDRESSES))

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for key in ("endpoint", "tracesEndpoint"):
            if not raw.get(key, "http://").startswith(("http://", "https://", "$")):
                yield key, "not a URL", "Start it with http:// or https://"


class DiagnosticsSettings(Section):
    """Telemetry about runs."""

    enabled: bool = True  #: Send telemetry, if it is configured.
    otel: Otel = Otel()  #: Spans for OpenTelemetry.

"""Resolves secret references in the configuration when they are used.

Messages name the provider, the source and the id, never anything that was read.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, cast

import msgspec

from clawkit.config.model import Config
from clawkit.config.paths import expand
from clawkit.config.section import SecretRef
from clawkit.config.sections.environment import SecretProvider
from clawkit.config.sources import FromEnv, substitute
from clawkit.errors import SecretError

_SHORTHAND = r"\$([A-Z][A-Z0-9_]{0,127})"
_INDEX = r"0|[1-9][0-9]{0,8}"


def resolve(ref: SecretRef | str, config: Config, env: Mapping[str, str]) -> str:
    """The secret that `ref` refers to. Raises SecretError if it is not available.

    A string is the secret itself; `$NAME`, and a `${NAME}` that was not set when the file was
    loaded, are looked up in `env`, the environment the file was loaded with.
    """
    if isinstance(ref, str):
        shorthand = re.fullmatch(_SHORTHAND, ref)
        if not shorthand:
            found = substitute(ref, env)
            if isinstance(found, FromEnv) and found.missing:
                names = " and ".join(found.missing)
                raise SecretError(f"the environment variable {names} is not set")
            if not found:
                raise SecretError("the secret is an empty string")
            return str(found)
        ref = SecretRef(source="env", id=shorthand[1])
    for key, problem, hint in SecretRef.conflicts(msgspec.to_builtins(ref)):
        raise SecretError(f"secret reference: {key} is {problem}. {hint}")
    name = ref.provider
    if name == "default" and ref.source != "store":
        name = getattr(config.secrets.defaults, ref.source)
    try:
        return _look_up(ref, name, config, env)
    except SecretError as error:
        where = f"secret {ref.id!r} of provider {name!r} (source {ref.source})"
        raise SecretError(f"{where}: {error}") from error


def _look_up(ref: SecretRef, name: str, config: Config, env: Mapping[str, str]) -> str:
    if ref.source == "store":
        raise SecretError("clawkit has no secret store. Use source env, file or exec")
    provider = config.secrets.providers.get(name)
    if provider is None:
        if ref.source != "env" or name != "default":
            raise SecretError("unknown provider: it is not in secrets.providers")
        provider = SecretProvider(source="env")  # the environment needs no settings
    if provider.source != ref.source:
        raise SecretError(f"the provider has source {provider.source}")
    if ref.source == "env":
        if provider.allowlist is not None and ref.id not in provider.allowlist:
            raise SecretError("the variable is not in the provider's allowlist")
        if found := env.get(ref.id):
            return found
        raise SecretError("the environment variable is not set")
    if ref.source == "file":
        data = _read(expand(provider.path or "", env), provider.max_bytes)
        if provider.mode == "singleValue":
            if ref.id != "value":
                raise SecretError("the file contains a single value; its id is 'value'")
            text = decode_text(data)
            if text is None:
                raise SecretError("the file is not UTF-8 text")
            value: Any = text.rstrip("\r\n")
        else:
            value = _follow(decode_json(data), ref.id)
        if not isinstance(value, str) or not value:
            raise SecretError("the value is not a string, or is empty")
        return value
    if provider.plugin_integration is not None:
        plugin = provider.plugin_integration.plugin_id
        raise SecretError(
            f"clawkit cannot ask the plugin {plugin!r} for secrets yet. Use a command instead"
        )
    return ask_command(name, ref.id, provider, env)


def _read(path: str, max_bytes: int) -> bytes:
    """Read a file that no other user could have created or can write to."""
    try:
        link = os.lstat(path)
        real = os.path.realpath(path)
        if link.st_uid not in (0, os.geteuid()) and stat.S_ISLNK(link.st_mode):
            raise SecretError(f"{path!r} is a symbolic link created by another user")
        folder = os.stat(os.path.dirname(real)).st_mode
        if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
            raise SecretError(f"anyone can replace files in {os.path.dirname(real)!r}")
        # Not `open_private`: secrets mounted into containers often belong to another user or group.
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise SecretError(f"{real!r} is not a regular file")
            if mode & stat.S_IWOTH:
                raise SecretError(f"anyone can write to {real!r}; run chmod o-w on it")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise SecretError(f"{path!r} cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise SecretError(f"{path!r} is larger than {max_bytes} bytes")
    return data


def _follow(value: Any, pointer: str) -> Any:
    if value is None:
        raise SecretError("the file is not valid JSON")
    if pointer == "value":
        raise SecretError("the file is JSON; the id must be a pointer such as /a/b")
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and re.fullmatch(_INDEX, step) and int(step) < len(value):
            value = value[int(step)]
        else:
            raise SecretError("the file has nothing at this pointer")
    return value


PROTOCOL_VERSION = 1
_CHUNK_BYTES = 64 * 1024


def ask_command(name: str, secret_id: str, provider: SecretProvider, env: Mapping[str, str]) -> str:
    """Ask the command of provider `name` for the secret with an id. Raises SecretError.

    The command gets `{"protocolVersion": 1, "provider": ..., "ids": [...]}` on standard input
    and answers `{"protocolVersion": 1, "values": {id: secret}}` on standard output. It has only
    the environment variables that the provider names; its standard error is discarded.
    """
    command = trusted_command(provider.command or "", provider.trusted_dirs)
    question = {"protocolVersion": PROTOCOL_VERSION, "provider": name, "ids": [secret_id]}
    child_env = {key: env[key] for key in provider.pass_env if key in env} | provider.env
    output = _run([command, *provider.args], msgspec.json.encode(question), child_env, provider)
    answer = decode_json(output)
    if isinstance(answer, dict) and answer.get("protocolVersion") == PROTOCOL_VERSION:
        values = answer.get("values")
        value = values.get(secret_id) if isinstance(values, dict) else None
    elif not provider.json_only:
        value = (decode_text(output) or "").rstrip("\r\n")
    elif answer is None:
        raise SecretError("the command did not answer with JSON")
    else:
        raise SecretError(f"the command did not answer with protocol version {PROTOCOL_VERSION}")
    if not isinstance(value, str) or not value:
        raise SecretError("the command returned no value for this id")
    return value


def trusted_command(command: str, trusted_dirs: Sequence[str]) -> str:
    """The real path of a program that only root or this user can have placed there."""
    if not os.path.isabs(command):
        raise SecretError(f"the command {command!r} must be an absolute path")
    real = os.path.realpath(command)
    folders = [os.path.realpath(folder) for folder in trusted_dirs]
    if folders and not any(os.path.commonpath((real, folder)) == folder for folder in folders):
        raise SecretError(f"the command {real!r} is not in a directory of trustedDirs")
    try:
        info = os.stat(real)
        if not stat.S_ISREG(info.st_mode) or not os.access(real, os.X_OK):
            raise SecretError(f"the command {real!r} is not an executable file")
        require_private(real, info, sticky_ok=False)
        folder = real
        while folder != "/":
            is_own = folder == real
            folder = os.path.dirname(folder)
            require_private(folder, os.stat(folder), sticky_ok=not is_own)
    except OSError as error:
        raise SecretError(f"the command {real!r} cannot be used: {error.strerror}") from error
    return real


def require_private(path: str, info: os.stat_result, *, sticky_ok: bool) -> None:
    """Raises SecretError if users other than root and this one own or may change `path`."""
    if info.st_uid not in (0, os.geteuid()):
        raise SecretError(f"{path!r} belongs to another user")
    shared = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared and not (sticky_ok and info.st_mode & stat.S_ISVTX):
        raise SecretError(f"other users can write to {path!r}; run chmod go-w on it")


def _run(argv: list[str], question: bytes, env: dict[str, str], provider: SecretProvider) -> bytes:
    import signal
    import subprocess

    try:
        process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise SecretError(f"the command cannot be started: {error.strerror}") from error
    deadline = time.monotonic() + provider.timeout_ms / 1000
    # Not None: both are pipes.
    asking, answering = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    with process:
        try:
            # The command may not read its input. The request fits into the pipe's buffer.
            with suppress(BrokenPipeError):
                asking.write(question)
            asking.close()
            output = _read_output(answering.fileno(), deadline, provider)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SecretError(_too_slow(provider)) from None
        finally:
            if process.returncode is None:
                # The whole process group, so that nothing it started survives.
                os.killpg(process.pid, signal.SIGKILL)
    if code != 0:
        raise SecretError(f"the command failed with exit code {code}")
    return output


def _read_output(fd: int, deadline: float, provider: SecretProvider) -> bytes:
    import selectors

    idle_ms = provider.no_output_timeout_ms or provider.timeout_ms
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            left_s = deadline - time.monotonic()
            if not selector.select(max(0.0, min(left_s, idle_ms / 1000))):
                if left_s > idle_ms / 1000:
                    raise SecretError(f"the command wrote nothing for {idle_ms} ms")
                raise SecretError(_too_slow(provider))
            chunk = os.read(fd, _CHUNK_BYTES)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > provider.max_output_bytes:
                raise SecretError(f"the command wrote over {provider.max_output_bytes} bytes")


def _too_slow(provider: SecretProvider) -> str:
    return f"the command took longer than {provider.timeout_ms} ms"


def decode_json(data: bytes) -> Any:
    """The value of a JSON text; None if it is invalid.

    Raises nothing: the message or the context of an exception could contain the secret.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_text(data: bytes) -> str | None:
    """Decode UTF-8; None if it is invalid, for the same reason."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None

"""Asking a command for a secret: what may be run, and one bounded exchange with it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from clawkit.config.sections.env import SecretProvider
from clawkit.errors import SecretError

if TYPE_CHECKING:
    import subprocess

PROTOCOL_VERSION = 1
_CHUNK_BYTES = 64 * 1024


def ask_command(name: str, secret_id: str, provider: SecretProvider, env: Mapping[str, str]) -> str:
    """What the command of provider `name` answers for one id. Raises SecretError.

    The command gets `{"protocolVersion": 1, "provider": ..., "ids": [...]}` on standard input
    and answers `{"protocolVersion": 1, "values": {id: secret}}` on standard output. It sees
    no environment but what the provider names, and its standard error is thrown away.
    """
    command = trusted_command(provider.command or "", provider.trusted_dirs)
    question = {"protocolVersion": PROTOCOL_VERSION, "provider": name, "ids": [secret_id]}
    child_env = {key: env[key] for key in provider.pass_env if key in env} | provider.env
    output = _run([command, *provider.args], msgspec.json.encode(question), child_env, provider)
    return _answer(output, secret_id, provider.json_only)


def trusted_command(command: str, trusted_dirs: Sequence[str]) -> str:
    """The real path of a program that only root or this user can have put there."""
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
        folder = os.path.dirname(real)
        require_private(folder, os.stat(folder), sticky_ok=False)
        while folder != "/":
            folder = os.path.dirname(folder)
            require_private(folder, os.stat(folder), sticky_ok=True)
    except OSError as error:
        raise SecretError(f"the command {real!r} cannot be used: {error.strerror}") from error
    return real


def require_private(path: str, info: os.stat_result, *, sticky_ok: bool) -> None:
    """Raises SecretError if users other than root and this one own or may change `path`."""
    if info.st_uid not in (0, os.geteuid()):
        raise SecretError(f"{path!r} belongs to another user")
    shared = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared and not (sticky_ok and info.st_mode & stat.S_ISVTX):
        raise SecretError(f"other users may write to {path!r}; run chmod go-w on it")


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
    with process:
        try:
            return _exchange(process, question, provider)
        except subprocess.TimeoutExpired:
            raise SecretError(_too_slow(provider)) from None
        finally:
            if process.returncode is None:
                # Its whole session, so that nothing it started outlives it.
                os.killpg(process.pid, signal.SIGKILL)


def _exchange(process: subprocess.Popen[bytes], question: bytes, provider: SecretProvider) -> bytes:
    deadline = time.monotonic() + provider.timeout_ms / 1000
    # Both are there: they were asked for as pipes.
    asking, answering = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    # It may answer without listening. The question is far smaller than a pipe's buffer.
    with suppress(BrokenPipeError):
        asking.write(question)
    asking.close()
    output = _read(answering.fileno(), deadline, provider)
    code = process.wait(max(0.0, deadline - time.monotonic()))
    if code != 0:
        raise SecretError(f"the command failed with exit code {code}")
    return output


def _read(fd: int, deadline: float, provider: SecretProvider) -> bytes:
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


def _answer(output: bytes, secret_id: str, json_only: bool) -> str:
    answer = decode_json(output)
    if isinstance(answer, dict) and answer.get("protocolVersion") == PROTOCOL_VERSION:
        values = answer.get("values")
        value = values.get(secret_id) if isinstance(values, dict) else None
    elif json_only and answer is None:
        raise SecretError("the command did not answer with JSON")
    elif json_only:
        raise SecretError(f"the command did not answer with protocol version {PROTOCOL_VERSION}")
    else:
        value = (decode_text(output) or "").rstrip("\r\n")
    if not isinstance(value, str) or not value:
        raise SecretError("the command gave no value for this id")
    return value


def decode_json(data: bytes) -> Any:
    """The value of a JSON text; None if it is none.

    No exception leaves this: its message, or what it holds on to, would be the secret.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def decode_text(data: bytes) -> str | None:
    """UTF-8 text, or None for the same reason."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None

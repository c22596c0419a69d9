"""A real OpenSSH server on the loopback interface, with keys and settings of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.lacking import lack
from tests.sandbox.daemons import Daemon

from clawkit.config.sections.sandbox import Ssh

PATIENCE_S = 60.0


class Server(NamedTuple):
    """A server that runs, and what a client needs to get in."""

    folder: Path
    port: int
    pid: int

    @property
    def target(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1:{self.port}"

    @property
    def known_hosts(self) -> str:
        key = (self.folder / "host_key.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {key[0]} {key[1]}\n"

    @property
    def command(self) -> str:
        """ssh, which gives a server on a busy machine more than the five seconds that clawkit
        gives it to say who it is."""
        return str(self.folder / "ssh")

    def settings(self, root: Path, **others: object) -> Ssh:
        values: dict[str, object] = {
            "command": self.command,
            "target": self.target,
            "workspace_root": str(root),
            "identity_file": str(self.folder / "key"),
            "known_hosts_data": self.known_hosts,
            "update_host_keys": False,
        }
        return Ssh(**(values | others))  # type: ignore[arg-type]


_servers: list[Server] = []


def find_sshd() -> str:
    path = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if path is None:
        lack("sshd is not installed")
    return path


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all modules that import it. Stopped after the tests, by its process."""
    if _servers:
        yield _servers[0]
        return
    program = find_sshd()
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host_key", "key", "bare_key", "other_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    (folder / "ssh").write_text(f'#!/bin/sh\nexec ssh -o ConnectTimeout={PATIENCE_S:g} "$@"\n')
    (folder / "ssh").chmod(0o755)
    # A login that finds no programs.
    bare = 'command="PATH=/nowhere /bin/sh -c \\"$SSH_ORIGINAL_COMMAND\\"" '
    keys = [(folder / f"{name}.pub").read_text() for name in ("key", "bare_key")]
    (folder / "authorized_keys").write_text(keys[0] + bare + keys[1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config").write_text(
        f"""
        Port {port}
        ListenAddress 127.0.0.1
        HostKey {folder}/host_key
        AuthorizedKeysFile {folder}/authorized_keys
        PidFile {folder}/pid
        StrictModes no
        UsePAM no
        PasswordAuthentication no
        KbdInteractiveAuthentication no
        PermitRootLogin prohibit-password
        MaxStartups 100
        """
    )
    if os.geteuid() == 0:  # where sshd locks itself in before a login
        os.makedirs("/run/sshd", exist_ok=True)
    process = Daemon([program, "-D", "-e", "-f", str(folder / "config")], folder / "log")
    try:
        end = time.monotonic() + PATIENCE_S
        while not (folder / "pid").exists():
            assert process.is_running, (folder / "log").read_text()
            assert time.monotonic() < end, "sshd does not start"
            time.sleep(0.02)
        _servers.append(Server(folder, port, process.pid))
        yield _servers[0]
    finally:
        process.stop(PATIENCE_S)

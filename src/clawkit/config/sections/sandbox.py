"""The sandbox: `agents.defaults.sandbox`, and `sandbox` of one agent."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Count, Name, Port, Positive, SecretInput, Section

SandboxMode = Literal["off", "non-main", "all", "auto"]
Backend = Literal["auto", "bwrap", "landlock", "docker", "podman", "ssh", "openshell", "crabbox"]
Network = Literal["none", "allowlist", "full"]
Access = Literal["none", "ro", "rw"]


class Ulimit(Section):
    """Soft and hard value of a process limit."""

    soft: Count | None = None  #: Soft limit.
    hard: Count | None = None  #: Hard limit.


class Docker(Section):
    """Containers of the docker and podman backends."""

    image: Name = "clawkit-sandbox:bookworm-slim"  #: Image to run; clawkit never pulls it.
    container_prefix: Name = "clawkit-sbx-"  #: Start of container names.
    workdir: str = "/workspace"  #: Working directory in the container.
    read_only_root: bool = True  #: Make the root file system read-only.
    tmpfs: list[str] = msgspec.field(
        default_factory=lambda: ["/tmp", "/var/tmp", "/run"]  # noqa: S108 - inside the container
    )  #: Directories kept in memory; default /tmp, /var/tmp and /run.
    network: str = "none"  #: Network of the container.
    user: str | None = None  #: User and group as uid:gid; unset is the workspace's owner.
    cap_drop: list[str] = msgspec.field(default_factory=lambda: ["ALL"])  #: Capabilities to drop.
    env: dict[str, str] = msgspec.field(default_factory=lambda: {"LANG": "C.UTF-8"})
    """Environment variables in the container."""
    setup_command: str | list[str] | None = None  #: Commands to run once in a new container.
    pids_limit: Positive | None = None  #: Maximum processes in a container.
    memory: str | int | None = None  #: Maximum memory, such as `1g`.
    memory_swap: str | int | None = None  #: Maximum memory and swap together.
    cpus: float | None = None  #: Processor share, such as 1.5.
    gpus: str | None = None  #: Graphics processors, such as `all`.
    ulimits: dict[str, str | int | Ulimit] = {}  #: Process limits by name: one value, or both.
    seccomp_profile: str | None = None  #: File of a seccomp profile.
    apparmor_profile: str | None = None  #: Name of an AppArmor profile.
    dns: list[str] = []  #: Name servers.
    extra_hosts: list[str] = []  #: Further host names, as name:address.
    binds: list[str] = []  #: Directories to mount, as source:target or source:target:ro.
    dangerously_allow_external_bind_sources: bool = False  #: Allow mounts of outside paths.
    dangerously_allow_reserved_container_targets: bool = False
    """Allow mounts over /workspace and /agent."""
    dangerously_allow_container_namespace_join: bool = False  #: Allow `network: container:<id>`.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        network = raw.get("network") or ""
        joins = raw.get("dangerouslyAllowContainerNamespaceJoin")
        if network == "host" or (network.startswith("container:") and not joins):
            yield "network", f"{network!r} would leave the sandbox", "Use none or a bridge network"
        for key in ("seccompProfile", "apparmorProfile"):
            if raw.get(key) == "unconfined":
                yield key, "'unconfined' would leave the sandbox", f"Remove {key}"


class Ssh(Section):
    """The ssh backend: commands run on another machine."""

    target: str | None = None  #: Machine, as user@host or user@host:port.
    command: Name = "ssh"  #: The ssh program.
    workspace_root: str = "/tmp/clawkit-sandboxes"  # noqa: S108 - on the other machine
    """Directory for workspaces on that machine."""
    strict_host_key_checking: bool = True  #: Refuse unknown host keys.
    update_host_keys: bool = True  #: Learn new keys of known hosts.
    identity_file: str | None = None  #: File of the private key.
    identity_data: SecretInput | None = None  #: The private key itself.
    certificate_file: str | None = None  #: File of the certificate.
    certificate_data: SecretInput | None = None  #: The certificate itself.
    known_hosts_file: str | None = None  #: File of known hosts.
    known_hosts_data: SecretInput | None = None  #: The known hosts themselves.


class SandboxBrowser(Section):
    """A browser in a separate container."""

    ALIASES = {"enableNoVnc": "noVncEnabled"}

    enabled: bool = False  #: Offer a browser to sandboxed sessions.
    image: Name = "clawkit-sandbox-browser:bookworm-slim"  #: Image to run.
    container_prefix: Name = "clawkit-sbx-browser-"  #: Start of container names.
    network: str = "clawkit-sandbox-browser"  #: Network of the container.
    cdp_port: Port = 9222  #: Port of the DevTools protocol.
    cdp_source_range: str | None = None  #: Addresses that may connect to it, as a CIDR range.
    vnc_port: Port = 5900  #: VNC port.
    no_vnc_port: Port = 6080  #: Port of the web view.
    no_vnc_enabled: bool = True  #: Offer the web view.
    headless: bool = False  #: Run without a screen.
    allow_host_control: bool = False  #: Let sandboxed sessions control the host's browser.
    allowed_control_urls: list[str] = []  #: Control addresses sandboxed sessions may use.
    auto_start: bool = True  #: Start it on first use.
    auto_start_timeout_ms: Positive = 12_000  #: Milliseconds to wait for the start.
    binds: list[str] | None = None  #: Mounts; unset uses those of `docker`.


class Prune(Section):
    idle_hours: Annotated[float, Meta(ge=0)] = 24  #: Hours without use; 0 turns it off, default 24.
    max_age_days: Annotated[float, Meta(ge=0)] = 7  #: Days of age; 0 turns it off, default 7.


class SandboxLimits(Section):
    memory_mb: Count = 0  #: Maximum memory of one process, in megabytes; 0 is no limit.
    file_mb: Count = 10_240  #: Largest file a command may write, in megabytes; 0 is no limit.


class SandboxSettings(Section):
    """Isolation of commands and files."""

    mode: SandboxMode = "auto"  #: Never, all but main, always, or if a local backend works.
    backend: Backend = "auto"  #: How to isolate; auto (default) is bwrap, else landlock.
    network: Network = "none"  #: Network of commands: none, the hosts in allowHosts, or full.
    allow_hosts: list[str] = []  #: `name`, `*.example.org` or `name:port`; `packages`: registries.
    allow_private: list[str] = []  #: Allowed private addresses: `10.1.2.3` or `10.1.2.3:8080`.
    hide_paths: list[str] = []  #: Paths that commands cannot read, besides the built-in ones.
    show_paths: list[str] = []  #: Hidden paths that commands may read.
    write_paths: list[str] = []  #: Directories outside the workspace that commands may change.
    limits: SandboxLimits = SandboxLimits()  #: Limits for every process of a command.
    scope: Literal["session", "agent", "shared"] = "session"  #: What shares one sandbox.
    workspace_access: Access | None = None
    """Access to the workspace inside the sandbox; unset is rw in mode auto, else none."""
    workspace_root: str | None = None  #: Private workspaces; unset is in clawkit's home.
    session_tools_visibility: Literal["spawned", "all"] = "spawned"
    """Sessions that a sandboxed session may see: those it started, or all."""
    docker: Docker = Docker()
    ssh: Ssh = Ssh()  #: The ssh backend.
    browser: SandboxBrowser = SandboxBrowser()  #: A browser in a container.
    prune: Prune = Prune()  #: When unused sandboxes are removed.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("allowHosts") or raw.get("allowPrivate"):
            from clawkit.net.host_rules import check_host

            for key in ("allowHosts", "allowPrivate"):
                for host in raw.get(key) or ():
                    if problem := check_host(host, is_private=key == "allowPrivate"):
                        yield key, problem, "Fix or remove it"

    def is_required(self, session: str) -> bool:
        """Whether commands of a session must run in a sandbox, or fail."""
        return self.is_on(session) and (self.mode != "auto" or self.backend != "auto")

    def is_on(self, session: str) -> bool:
        """Whether commands of a session run in a sandbox, if one is available."""
        return self.mode == "auto" or self.covers(session)

    def covers(self, session: str) -> bool:
        """Whether a whole session is sandboxed: its tools and files as well as its commands. In
        mode auto, only commands are."""
        is_main = re.fullmatch("(agent:[^:]+:)?main", session) is not None
        return self.mode == "all" or (self.mode == "non-main" and not is_main)

    def access(self) -> Access:
        """Access to the workspace inside the sandbox, with the default of the mode."""
        return self.workspace_access or ("rw" if self.mode == "auto" else "none")

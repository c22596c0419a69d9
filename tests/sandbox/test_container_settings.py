"""The settings of containers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clawkit.config.sections.sandbox import Docker, SandboxSettings, Ulimit
from clawkit.fs.local import LocalFileSystem
from clawkit.sandbox import engine
from clawkit.sandbox.engine import (
    ContainerPlan,
    EngineName,
    check_image,
    make_name,
    make_plan,
)
from clawkit.sandbox.paths import SandboxContext, SandboxPaths
from clawkit.sandbox.protocols import Mount, SandboxUnavailableError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("ws/data", "ws/.git", "home/.ssh", "home/.config/gh", "link", "other", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / ".netrc").touch()
    (tmp_path / "ws" / "profile.json").touch()
    (tmp_path / "profile.json").touch()
    (tmp_path / "ws" / "to-keys").symlink_to(tmp_path / "home" / ".ssh")
    (tmp_path / "ws" / "to-etc").symlink_to("/etc")
    (tmp_path / "ws" / "to-other").symlink_to(tmp_path / "other")
    return tmp_path.resolve()


def plan(
    place: Path,
    *,
    engine: EngineName = "docker",
    access: Any = "rw",
    user: str = "7:8",
    **docker: Any,
) -> ContainerPlan:
    return plan_of(place / "ws", place, engine=engine, access=access, user=user, **docker)


def plan_of(
    workspace: Path,
    place: Path,
    *,
    engine: EngineName = "docker",
    access: Any = "rw",
    user: str = "7:8",
    shared: Sequence[str] = (),
    **docker: Any,
) -> ContainerPlan:
    context = SandboxContext(
        shared=shared,
        workspace=str(workspace),
        state=str(place / "state"),
        homes=(f"{place}/home",),
        secrets=(),
        spool_dir="",
        files=lambda _mounts: LocalFileSystem(str(workspace)),
    )
    settings = SandboxSettings(mode="all", workspace_access=access, docker=Docker(**docker))
    paths = SandboxPaths(settings, context, "agent:main", engine)
    paths.get_ready()
    return make_plan(engine, paths, link=str(place / "link"), user=user)


def test_the_defaults_leave_nothing_open(place: Path) -> None:
    arguments = plan(place).arguments
    for each in (
        "--init",
        "--read-only",
        "--tmpfs=/tmp",
        "--tmpfs=/var/tmp",
        "--tmpfs=/run",
        "--network=none",
        "--user=7:8",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--pids-limit=1024",
        "--workdir=/workspace",
        f"--volume={place}/ws:/workspace:z",
        f"--volume={place}/link:/.clawkit/link:ro,z",
    ):
        assert each in arguments
    assert not [
        each for each in arguments if each.startswith(("--privileged", "--device", "--cap-add"))
    ]


def test_every_setting_becomes_an_argument(place: Path) -> None:
    found = plan(
        place,
        read_only_root=False,
        tmpfs=["/tmp:size=10m,mode=1777"],
        network="inner",
        user="5",
        cap_drop=["NET_RAW"],
        pids_limit=9,
        memory="1g",
        memory_swap=-1,
        cpus=1.5,
        gpus="all",
        ulimits={"nofile": 10, "nproc": "5:6", "core": Ulimit(soft=1, hard=2)},
        seccomp_profile=str(place / "profile.json"),
        apparmor_profile="mine",
        dns=["1.1.1.1"],
        extra_hosts=["a.test:10.0.0.1", "b.test:::1"],
        binds=[f"{place}/ws/data:/data:ro"],
        workdir="/src",
    ).arguments
    assert "--read-only" not in found
    for each in (
        "--tmpfs=/tmp:size=10m,mode=1777",
        "--network=inner",
        "--user=5",
        "--cap-drop=NET_RAW",
        "--pids-limit=9",
        "--memory=1g",
        "--memory-swap=-1",
        "--cpus=1.5",
        "--gpus=all",
        "--ulimit=nofile=10",
        "--ulimit=nproc=5:6",
        "--ulimit=core=1:2",
        f"--security-opt=seccomp={place}/profile.json",
        "--security-opt=apparmor=mine",
        "--dns=1.1.1.1",
        "--add-host=a.test:10.0.0.1",
        "--add-host=b.test:::1",
        f"--volume={place}/ws/data:/data:ro,z",
        f"--volume={place}/ws:/src:z",
        "--workdir=/src",
    ):
        assert each in found


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("network", "host", "would leave the sandbox"),
        ("network", "container:abc", "would leave the sandbox"),
        ("network", "ns:/proc/1/ns/net", "would leave the sandbox"),
        ("network", "--privileged", "would leave the sandbox"),
        ("seccomp_profile", "unconfined", "would leave the sandbox"),
        ("seccomp_profile", " Unconfined ", "would leave the sandbox"),
        ("seccomp_profile", "/no/such/file", "is not a file"),
        ("seccomp_profile", "PLACE/ws/profile.json", "commands could change it"),
        ("apparmor_profile", "unconfined", "would leave the sandbox"),
        ("apparmor_profile", "x,label=disable", "is invalid"),
        ("user", "root", "is invalid"),
        ("user", "0:0:0", "is invalid"),
        ("cap_drop", ["ALL --privileged"], "is invalid"),
        ("dns", ["example.org"], "not an address"),
        ("extra_hosts", ["name"], "not an address"),
        ("memory", "much", "is invalid"),
        ("cpus", 0, "more than 0"),
        ("ulimits", {"nofile": "many"}, "is invalid"),
        ("ulimits", {"nofile": Ulimit()}, "is invalid"),
        ("ulimits", {"no file": 1}, "is invalid"),
        ("tmpfs", ["tmp"], "cannot be used; use an absolute path like /tmp"),
        ("tmpfs", ["/"], "cannot be used; use an absolute path like /tmp"),
        ("tmpfs", ["/workspace"], "cannot be used; use an absolute path like /tmp"),
        ("tmpfs", ["/.clawkit/code"], "cannot be used; use an absolute path like /tmp"),
        ("tmpfs", ["/tmp:size=1m --privileged"], "is invalid"),
        ("workdir", "relative", "absolute path"),
        ("workdir", "/", "absolute path"),
        ("workdir", "/usr/bin", "absolute path"),
        ("workdir", "/a/../etc", "absolute path"),
        ("workdir", "/agent", "absolute path"),
        ("env", {"A": "x\0y"}, "NUL"),
        ("env", {"A": "x\nB=y"}, "line break"),
        ("env", {"A=B": "x"}, "is invalid"),
    ],
)
def test_settings_that_open_the_container_are_refused(
    place: Path, key: str, value: Any, words: str
) -> None:
    if isinstance(value, str):
        value = value.replace("PLACE", str(place))
    with pytest.raises(SandboxUnavailableError, match=words) as caught:
        plan(place, **{key: value})
    assert str(caught.value).startswith("agents.defaults.sandbox.docker.")


@pytest.mark.parametrize(
    ("bind", "words"),
    [
        ("data:/data", "must be /source:/target"),
        ("PLACE/ws/data", "must be /source:/target"),
        ("PLACE/ws/data:data", "must be /source:/target"),
        ("PLACE/ws/data:/data:shared", "must be /source:/target"),
        ("PLACE/ws/../home/.ssh:/data", "must be /source:/target"),
        ("volume-name:/data", "must be /source:/target"),
        ("/:/host", "would show"),
        ("/etc:/data", "would show '/etc'"),
        ("/etc/ssl:/data:ro", "would show '/etc'"),
        ("/proc:/data", "would show '/proc'"),
        ("/sys/kernel:/data", "would show '/sys'"),
        ("/dev:/data", "would show '/dev'"),
        ("/dev/../dev/sda:/data", "must be /source:/target"),
        ("/root/x:/data", "would show '/root'"),
        ("/boot:/data", "would show '/boot'"),
        ("/run/docker.sock:/var/run/docker.sock", "would show '/run'"),
        ("/var/run/docker.sock:/s", "would show"),
        ("/var:/data", "would show"),
        ("/var/lib/docker/x:/data", "would show '/var/lib/docker'"),
        ("PLACE/home:/data", "would show"),
        ("PLACE/home/.ssh:/data", "would show"),
        ("PLACE/home/.ssh/new/key:/data", "would show"),
        ("PLACE/home/.aws:/data", "would show"),
        ("PLACE/home/.netrc:/data", "would show"),
        ("PLACE/home/.config/gh:/data", "would show"),
        ("PLACE:/data", "would show"),
        ("PLACE/ws/to-keys:/data", "would show"),
        ("PLACE/ws/to-keys/new:/data", "would show"),
        ("PLACE/ws/to-etc/ssl:/data", "would show"),
        ("PLACE/ws/to-other:/data", "outside the workspace"),
        ("PLACE/other:/data", "outside the workspace"),
        ("PLACE/ws/data:/workspace", "reserved for the workspace"),
        ("PLACE/ws/data:/workspace/x", "reserved for the workspace"),
        ("PLACE/ws/data:/agent", "reserved for the workspace"),
        ("PLACE/ws/data:/", "cannot be used; use an absolute path"),
        ("PLACE/ws/data:/.clawkit/code", "cannot be used; use an absolute path"),
        ("PLACE/ws/data:/proc/x", "cannot be used; use an absolute path"),
        ("PLACE/ws/data:/run/podman-init", "cannot be used; use an absolute path"),
        ("PLACE/ws/missing:/data", "does not exist"),
    ],
)
def test_binds_that_reach_too_far_are_refused(place: Path, bind: str, words: str) -> None:
    with pytest.raises(SandboxUnavailableError, match=re.escape(words)):
        plan(place, binds=[bind.replace("PLACE", str(place))])


def test_some_dangerous_settings_can_be_allowed(place: Path) -> None:
    found = plan(
        place,
        binds=[f"{place}/other:/data:ro", f"{place}/ws/data:/workspace/x", f"{place}/other:/data"],
        network="container:abc",
        dangerously_allow_external_bind_sources=True,
        dangerously_allow_reserved_container_targets=True,
        dangerously_allow_container_namespace_join=True,
    )
    assert f"--volume={place}/other:/data:z" in found.arguments  # the last one wins
    assert f"--volume={place}/other:/data:ro,z" not in found.arguments
    assert "--network=container:abc" in found.arguments
    assert [mount.target for mount in found.mounts][-1] == "/workspace/x"
    for bind in (f"{place}/home/.ssh:/data", "/etc:/data"):
        with pytest.raises(SandboxUnavailableError, match="would show"):
            plan(place, binds=[bind], dangerously_allow_external_bind_sources=True)


def test_clawkit_itself_is_never_writable(place: Path) -> None:
    package = Path(engine.__file__).parent.parent
    if package.is_relative_to("/root"):
        pytest.skip("nothing below /root is shown to commands, also not this checkout")
    options: dict[str, Any] = {"dangerously_allow_external_bind_sources": True}
    with pytest.raises(SandboxUnavailableError, match="contains clawkit itself"):
        plan(place, binds=[f"{package}:/data"], **options)
    plan(place, binds=[f"{package}:/data:ro"], **options)
    with pytest.raises(SandboxUnavailableError, match="installed in the workspace"):
        plan_of(package.parent, place)


@pytest.mark.parametrize("access", ["ro", "rw"])
def test_a_workspace_with_secrets_in_it_is_refused(place: Path, access: Any) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"contains .*/home/\.config/gh"):
        plan_of(place / "home", place, access=access)


def test_podman_does_not_run_as_root(place: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match="podman containers do not run as root"):
        plan(place, engine="podman", user="0:0")
    assert "--user=0:0" in plan(place, user="0:0").arguments


def test_odd_variables_are_reported(place: Path) -> None:
    (warning,) = plan(place, env={"KEY": "A1b2" * 20, "LANG": "C"}).warnings
    assert "KEY looks like a key" in warning


def test_the_hashes_follow_the_settings(place: Path) -> None:
    first, same = plan(place), plan(place)
    assert first == same
    other = plan(place, memory="1g")
    assert other.config_hash != first.config_hash
    assert other.mount_hash == first.mount_hash
    assert plan(place, env={"A": "1"}).config_hash != first.config_hash
    assert plan(place, setup_command="true").config_hash != first.config_hash
    assert plan(place, binds=[f"{place}/ws/data:/data"]).mount_hash != first.mount_hash
    (place / "link").rename(place / "old")  # as long as it is there, its number is not used again
    (place / "link").mkdir()
    assert plan(place).mount_hash != first.mount_hash


def test_names_fit_the_engine() -> None:
    assert make_name("clawkit-sbx-", "agent-main-abcdef01") == "clawkit-sbx-agent-main-abcdef01"
    for prefix in ("-x", "a b", "", "x" * 60):
        if prefix:
            with pytest.raises(SandboxUnavailableError, match="containerPrefix"):
                make_name(prefix, "agent-main-abcdef01")
    for name in ("--privileged", "a b", ""):
        with pytest.raises(SandboxUnavailableError, match="image"):
            check_image(name)


def test_directories_that_are_shared_are_mounted_read_only(place: Path) -> None:
    for name in ("skill", "skill:2"):
        (place / "shared" / name).mkdir(parents=True)
    shared = [f"{place}/shared/{name}" for name in ("skill", "skill:2", "gone")]
    found = plan_of(place / "ws", place, shared=shared)
    assert [each for each in found.mounts if "shared" in each.source] == [
        Mount(shared[0], shared[0], False)
    ]


def test_a_path_with_a_colon_cannot_be_mounted(tmp_path: Path) -> None:
    for name in ("ws:1", "link", "home", "state"):
        (tmp_path / name).mkdir()
    with pytest.raises(SandboxUnavailableError, match="colon"):
        plan_of(tmp_path / "ws:1", tmp_path)


def test_both_ways_to_make_the_image_have_the_same_packages() -> None:
    text = (Path(engine.__file__).parent / "image" / "Dockerfile").read_text()
    listed = re.search(r"--no-install-recommends \\\n(.*?)&&", text, re.DOTALL)
    assert listed is not None
    assert listed[1].replace("\\", " ").split() == engine.PACKAGES.split()
    for change in ("ENV LANG=C.UTF-8", "WORKDIR /workspace", 'CMD ["sleep", "infinity"]'):
        assert change in text

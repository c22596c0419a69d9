"""What the errors of an engine mean, and podman."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lacking import lack
from tests.sandbox.dockerd import IMAGE, Box, make_root, open_container

from clawkit.sandbox.engine import Engine, why_not
from clawkit.sandbox.protocols import SandboxUnavailableError


def write_program(place: Path, text: str) -> str:
    program = place / "engine"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///s",
            "this user may not use docker; add the user to the group docker",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///s. Is the docker daemon running?",
            "daemon cannot be reached; start it",
        ),
        ("docker: Error response from daemon: No such image: own:1", "'own:1' does not exist"),
        ("Error: own:1: image not known", "'own:1' does not exist; build or pull it"),
        ("Error: container-init binary not found on the host", "needs catatonit; install it"),
        ("something else\x1b[31m", "docker failed: something else\\u{1b}[31m"),
    ],
)
async def test_errors_contain_advice(tmp_path: Path, said: str, words: str) -> None:
    (tmp_path / "said").write_text(said)
    engine = Engine("docker", write_program(tmp_path, f"cat {tmp_path}/said >&2; exit 1"))
    with pytest.raises(SandboxUnavailableError) as caught:
        await engine.demand("run", image="own:1")
    assert words in str(caught.value)


async def test_a_missing_program_is_named(tmp_path: Path) -> None:
    assert why_not("no-such-engine").startswith("no-such-engine is not installed; install it")
    with pytest.raises(SandboxUnavailableError, match="cannot be started"):
        await Engine("docker", str(tmp_path / "missing")).call("ps")


async def test_calls_end_in_time_and_their_output_is_bounded(tmp_path: Path) -> None:
    slow = Engine("docker", write_program(tmp_path, "exec sleep 60"))
    with pytest.raises(SandboxUnavailableError, match="did not finish within"):
        await slow.call("ps", timeout_s=0.1)
    text = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo out; echo end >&2"
    done = await Engine("docker", write_program(tmp_path, text)).call("ps")
    assert (done.code, done.out, len(done.stderr)) == (0, "out\n", 64 << 10)
    assert done.stderr.endswith("xend\n")


async def test_an_engine_gets_its_own_variables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "mine")
    monkeypatch.setenv("CLAWKIT_TEST_SECRET", "hidden")
    monkeypatch.setenv("LD_PRELOAD", "")
    out = await Engine("docker", write_program(tmp_path, "env")).demand("ps")
    assert "DOCKER_CONTEXT=mine\n" in out
    assert "hidden" not in out
    assert "LD_PRELOAD" not in out


async def test_podman_gets_the_same_arguments(tmp_path: Path) -> None:
    record = f'printf "%s\\n" "$@" >> {tmp_path}/called; echo >> {tmp_path}/called; echo abc; '
    program = write_program(tmp_path, record + '[ "$1" != exec ]')
    (tmp_path / "ws").mkdir()
    os.chown(tmp_path / "ws", 4321, 4321)
    sandbox = open_container(tmp_path, engine="podman", program=program, env={"A": "b c"})
    with pytest.raises(SandboxUnavailableError, match="python3"):
        await Box(sandbox).run("true")
    calls = [call.split("\n") for call in (tmp_path / "called").read_text().split("\n\n")]
    run = calls[0]
    assert run[:3] == ["run", "--detach", "--pull=never"]
    assert run[-3:] == ["--entrypoint=sleep", IMAGE, "infinity"]
    for each in ("--init", "--read-only", "--cap-drop=ALL", "--user=4321:4321", "--network=none"):
        assert each in run
    assert not any("b c" in word for word in run)  # variables go by a file
    assert calls[1][:2] == ["exec", "-i"]


@pytest.fixture(scope="module")
def podman() -> Iterator[str]:
    """The program, with images and containers of its own, at a place whose name is short enough."""
    found = shutil.which("podman")
    if found is None or os.geteuid() != 0 or not shutil.which("catatonit"):
        lack("podman and catatonit are not installed, or tests are not root")
    place = Path(tempfile.mkdtemp(prefix="pm-"))
    roots = f"--root={place}/root --runroot={place}/run"
    program = write_program(place, f'exec {found} {roots} --cgroup-manager=cgroupfs "$@"')
    done = subprocess.run(
        [program, "import", "-", f"localhost/{IMAGE}"],
        input=make_root(python=True),
        capture_output=True,
    )
    if done.returncode:
        lack(f"podman does not work here: {done.stderr.decode()[-300:]}")
    yield program
    subprocess.run([program, "rm", "--all", "--force"], capture_output=True, check=True)
    subprocess.run([program, "rmi", "--all", "--force"], capture_output=True, check=True)
    shutil.rmtree(place, ignore_errors=True)


async def test_commands_run_in_a_container_of_podman(podman: str, tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    os.chown(tmp_path / "ws", 4321, 4321)
    sandbox = open_container(
        tmp_path,
        engine="podman",
        program=podman,
        image=f"localhost/{IMAGE}",
        ulimits={"nofile": "1024:1024", "nproc": "2048:2048"},  # podman's own may be too many
    )
    box = Box(sandbox)
    _, said = await box.run(
        "id -u; pwd; touch /made 2>&1; touch made; grep CapEff /proc/self/status"
    )
    assert said.splitlines()[:2] == ["4321", "/workspace"]
    assert "Read-only file system" in said
    assert "0000000000000000" in said
    assert (tmp_path / "ws" / "made").stat().st_uid == 4321
    assert [each.running for each in await sandbox.list()] == [True]
    subprocess.run([podman, "kill", sandbox.name], capture_output=True, check=True)
    assert (await box.run("echo again"))[1] == "again\n"
    await sandbox.close()
    await sandbox.remove(sandbox.name)
    listed = subprocess.check_output([podman, "ps", "--all", "--format=json"])
    assert json.loads(listed) == []

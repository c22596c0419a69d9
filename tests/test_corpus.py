"""The safety cases: every one is run, or waits for a tool that is not part of this build."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.net.parts import Asked
from tests.web.internet import internet, respond

from clawkit.agent.assemble import assemble
from clawkit.config.load import loads
from clawkit.config.modelref import parse_ref
from clawkit.config.sections.skills import SkillLimits
from clawkit.core.catalog import CATALOG, canonical
from clawkit.core.context import Scope, Sender
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ConfigError, ToolInputError
from clawkit.globs import Glob
from clawkit.redact import Redactor
from clawkit.skills.install import MAX_BYTES, unpacked
from clawkit.testing import Events, open_kit

HERE = Path(__file__).parent / "corpus"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for line in (HERE / "safety.jsonl").read_text(encoding="ascii").split("\n")
    if line
    for case in [json.loads(line)]
}
# Cases that look at what the tool does with its parameters, not at policy.
WAITING = {
    "policy/sub-proto-agent",
    "secret/perm-state",
    *("path/toctou-read", "path/toctou-rename"),  # races: tests/fs/test_races.py runs them for real
    "approval/cron-grant-edit",
    "approval/self-approve-message",
}


ARCHIVES = [name for name, case in CASES.items() if case["input"].get("tool") == "skills.install"]
"""What a person is given to install, so that no call of a tool reads it."""


def is_waiting(case: dict[str, Any]) -> bool:
    """Whether a case needs something this build does not have."""
    if case["id"] in WAITING or case["id"] in ARCHIVES:
        return case["id"] in WAITING
    if case["area"] == "session":
        given = case["input"]
        return not CATALOG[given.get("tool") or given["toolResult"]["tool"]].available
    tool = case["input"].get("tool")
    if case["area"] == "ssrf":
        return not CATALOG[tool].available
    if case["area"] not in ("path", "dos") or not {"policy", "evaluate"}.isdisjoint(case["input"]):
        return False
    return tool is None or tool not in CATALOG or not CATALOG[tool].available


def cases(area: str) -> list[str]:
    mine = (name for name, case in CASES.items() if case["area"] == area)
    return [name for name in mine if name not in ARCHIVES and not is_waiting(CASES[name])]


# Cases about what exec itself decides, after policy has let it through.
EXEC = [
    name
    for name in cases("policy")
    if name.startswith(("policy/env-", "policy/elev-", "policy/host-"))
]


@pytest.mark.parametrize("case_id", EXEC)
async def test_exec(case_id: str, workspace: Path) -> None:
    case = CASES[case_id]
    given, context = case["input"], case["input"].get("context", {})
    sender = Sender(id=context.get("from", ""), e164=context.get("from", ""))
    # Whatever is refused must be refused although every command may run.
    settings = {"security": "full", "ask": "off"} | given["config"]["tools"].get("exec", {})
    config = {"tools": {**given["config"]["tools"], "exec": settings}}
    if "sandboxRuntime" in context:
        config["agents"] = {"defaults": {"sandbox": {"mode": "off"}}}
    async with open_kit(
        workspace,
        config=config,
        channel=context.get("provider", ""),
        sender=sender,
        sandboxed=context.get("sandboxed", False),
    ) as kit:
        result = await kit.call("exec", given["call"]["params"])
    if case["expected"] == "allow":
        assert result.details["status"] == "completed"
        return
    wanted = {"env": "environment", "elev": "elevated", "host": "host"}
    assert result.details["status"] == "blocked"
    assert result.details["deniedReason"] == wanted[case_id[7:].partition("-")[0]]


@pytest.mark.parametrize("case_id", [name for name in cases("policy") if name not in EXEC])
async def test_policy(case_id: str, workspace: Path) -> None:
    case = CASES[case_id]
    given, context = case["input"], case["input"].get("context", {})
    call = given["call"]
    try:
        config = loads(json.dumps(given["config"])).config
    except ConfigError:
        assert case["expected"] == "deny"
        return
    model = context.get("fellBackTo") or (context.get("provider") and context["provider"] + "/x")
    extra = [_dummy(call["tool"])] if canonical(call["tool"]) not in CATALOG else []
    scope = {
        "agent": context.get("agentId") or call.get("job", {}).get("agentId", "main"),
        "model": model,
        "owner": context.get("senderIsOwner", True),
        "depth": context.get("subagentDepth", 0),
        "allow": call.get("job", {}).get("payload", {}).get("toolsAllow"),
    }
    kit = open_kit(workspace, *extra, config=given["config"], **scope)
    result = await kit.call(call["tool"], call["params"])
    assembly = assemble(
        config,
        Scope(
            agent=scope["agent"],
            model=parse_ref(model) if model else None,
            sender=Sender(owner=scope["owner"]),
            depth=scope["depth"],
            allow=scope["allow"] and tuple(scope["allow"]),
        ),
    )
    name = canonical(call["tool"])
    verdict = assembly.decision.verdicts.get(name)
    if case["expected"] == "allow":
        assert verdict is None or verdict.allowed
        assert result.details.get("status") != "blocked"
    elif "given twice" in result.as_text():
        assert result.details["code"] == 400
    else:
        # Not being part of this build is no refusal: policy itself must have said no.
        assert verdict is not None
        assert not verdict.allowed
        assert result.details["status"] == "blocked"
        assert result.details["deniedReason"] == "policy"


def _dummy(name: str) -> Tool:
    async def execute(_params: Any, _ctx: Any) -> str:
        return "ran"

    return Tool(name, "Stands in for a server's tool.", {"properties": {}}, execute)


# Cases with a harm are judged by their effect: tests/sandbox/test_corpus_effects.py.
@pytest.mark.parametrize("case_id", [name for name in cases("path") if "harm" not in CASES[name]])
async def test_path(case_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[case_id]
    ws, out, home = tmp_path / "ws", tmp_path / "out", tmp_path / "homedir"
    link = tmp_path / "wslink"
    ws.mkdir()
    monkeypatch.setenv("HOME", str(home))
    fill: Callable[[str], str] = lambda text: (  # noqa: E731
        text.replace("$WSLINK", str(link))
        .replace("$WS_UPPER", str(ws).upper())
        .replace("$WS", str(ws))
        .replace("$OUT", str(out))
        .replace("$HOME_DIR", str(home))
    )
    setup = fill(case["setup"]).removeprefix("sh:").partition("race:")[0]
    setup, _, root_is_link = setup.partition("workspace root configured as")
    subprocess.run(["bash", "-c", setup.rstrip(" ;")], check=True, cwd=ws)
    params = json.loads(fill(json.dumps(case["input"]["params"])))
    monkeypatch.chdir(ws)
    root = link if root_is_link else ws
    sandbox = case["input"].get("context", {}).get("sandbox", {})
    config = case["input"]["config"]
    if sandbox:
        access = {"workspaceAccess": sandbox["workspaceAccess"]}
        config = {**config, "agents": {"defaults": {"sandbox": access}}}
    before = snapshot(tmp_path)
    async with open_kit(root, config=config, sandboxed=bool(sandbox)) as kit:
        result = await kit.call(case["input"]["tool"], params)
    if case["expected"] == "allow":
        assert not result.is_error, result.as_text()
    else:
        assert snapshot(tmp_path) == before
        assert result.is_error
        assert "CANARY-7f3a" not in json.dumps(result.to_json())
        assert "root:" not in result.as_text()


VARIABLES = [name for name in cases("secret") if "environ" in CASES[name]["input"]]


@pytest.mark.parametrize("case_id", VARIABLES)
async def test_variables(case_id: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CASES[case_id]["input"]["environ"].items():
        monkeypatch.setenv(name, value)
    async with open_kit(workspace) as kit:
        result = await kit.call("exec", {"command": "env; cat /proc/self/environ"})
    assert "PATH=" in result.as_text()
    assert "CANARY" not in result.as_text()


@pytest.mark.parametrize("case_id", [name for name in cases("secret") if name not in VARIABLES])
async def test_secret(case_id: str, workspace: Path) -> None:
    case = CASES[case_id]
    given = case["input"]
    literal = given.get("output") or given.get("error") or given["params"]["command"]

    async def execute(_params: Any, _ctx: Any) -> Result:
        if "error" in given:
            raise RuntimeError(literal)
        return Result.text(literal, output=literal)

    tool = Tool("echo", "Say it.", {"properties": {"command": {"type": "string"}}}, execute)
    events = Events()
    async with open_kit(workspace, tool, on_event=events) as kit:
        result = await kit.call("echo", {"command": literal})
    seen = json.dumps([result.to_json(), *events])
    if case["expected"] == "allow":
        assert result.as_text() == literal == Redactor().strict(literal)
    else:
        assert "CANARY7f3aCANARY" not in seen
        assert "CANARY7F3ACANARY" not in seen


def snapshot(place: Path) -> dict[str, bytes | None]:
    """Everything below a directory; entries that are not files have no content."""
    return {
        str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(place.rglob("*"))
    }


def generate(value: Any) -> Any:
    """A value with its generators carried out."""
    match value:
        case {"$repeat": [str(text), int(times)]}:
            return text * times
        case {"$concat": list(parts)}:
            return "".join(map(generate, parts))
        case dict():
            return {key: generate(each) for key, each in value.items()}
    return value


# What is about judging commands is run with the other commands.
@pytest.mark.parametrize(
    "case_id", [name for name in cases("dos") if "evaluate" not in CASES[name]["input"]]
)
async def test_dos(case_id: str, workspace: Path) -> None:
    given = CASES[case_id]["input"]
    if "policy" in given:
        assert Glob(given["policy"]["deny"][0]).match(given["tool"]) is False
        return
    if "fs" in given:
        subprocess.run(["bash", "-c", given["fs"].replace("$WS", str(workspace))], check=True)
    params = generate(given.get("rawParams") or given["params"])
    before = snapshot(workspace) if "fs" not in given else {}
    async with open_kit(workspace, config={"tools": {"exec": given.get("exec", {})}}) as kit:
        result = await kit.call(given["tool"], params)
    assert len(result.as_text()) <= 64_000
    if CASES[case_id]["expected"] == "blocked":
        assert result.is_error
        assert snapshot(workspace) == before


INJECTED = [name for name in cases("session") if "toolResult" in CASES[name]["input"]]


@pytest.mark.parametrize("case_id", INJECTED)
async def test_pages(case_id: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = CASES[case_id]["input"]
    said = given["toolResult"].get("text") or json.dumps(given["toolResult"])
    page = respond(
        f"<title>unwrapped title</title>{said}<p>visible</p>", "text/html; charset=utf-8"
    )
    names = {"example.com": [["93.184.215.14"]]}
    async with internet(monkeypatch, lambda _asked: page, names), open_kit(workspace) as kit:
        text = (await kit.call("web_fetch", {"url": "http://example.com/"})).as_text()
    before, start, rest = text.partition("<<<EXTERNAL_UNTRUSTED_CONTENT id=")
    inside, end, after = rest.partition("<<<END_EXTERNAL_UNTRUSTED_CONTENT id=")
    assert start
    assert end
    assert "EXTERNAL_UNTRUSTED_CONTENT" not in inside + after.partition("\n")[2]
    for words in given["mustNotContainOutsideWrapper"]:
        assert words not in before + after
        assert words not in inside or "outside" in words or "title" in words


@pytest.mark.parametrize("case_id", cases("ssrf"))
async def test_addresses(case_id: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[case_id]
    given, public = case["input"], "93.184.215.14"
    answers = given.get("responses", {})

    def answer(asked: Asked) -> bytes:
        found = answers.get(f"http://{asked.headers['host']}{asked.line.split()[1]}", {})
        headers = {name.capitalize(): each for name, each in found.get("headers", {}).items()}
        return respond(found.get("body", "ok"), status=found.get("status", 200), **headers)

    names = {name: [found] for name, found in given.get("dns", {}).items()}
    names |= given.get("dnsSequence", {}) | {"evil.test": [[public]]}
    # Certificates are the subject of other tests; what matters here are the addresses.
    params = json.loads(json.dumps(given["params"]).replace("https://", "http://"))
    answers = json.loads(json.dumps(answers).replace("https://", "http://"))
    settings: dict[str, Any] = {"ssrfPolicy": given.get("ssrfPolicy", {})}
    if headers := params.pop("headers", None):
        settings |= {"headers": headers}
        settings["ssrfPolicy"] = {"hostnameAllowlist": ["example.com", "evil.test"]}
    for name, value in given.get("env", {}).items():
        monkeypatch.setenv(name, value)
    config = {"tools": {"web": {"fetch": settings}}}
    async with (
        internet(monkeypatch, answer, names) as net,
        open_kit(workspace, config=config) as kit,
    ):
        result = await kit.call(given["tool"], params)
    allowed = {each for found in names.values() for row in found for each in row}
    assert set(net.connected) <= allowed - {"169.254.169.254"} - {"10.1.2.3"}
    if case["expected"] == "redacted":
        first, second = net.server.asked
        assert "CANARY-7f3a" in first.headers["authorization"]
        assert not {"authorization", "cookie"} & second.headers.keys()
    elif case_id == "ssrf/dns-rebind":
        assert (net.connected, net.looked_up) == (["93.184.215.15"], ["rebind.test"])
    else:
        assert result.is_error == (case["expected"] == "blocked"), result.as_text()


OTHER_SESSIONS = [name for name in cases("session") if name not in INJECTED]


@pytest.mark.parametrize("case_id", ARCHIVES)
def test_archives(case_id: str, tmp_path: Path) -> None:
    given = CASES[case_id]["input"]
    archive = given.get("archive") or given["params"]["archive"]
    path, root = tmp_path / f"skill.{archive['format']}", tmp_path / "skills"
    first = {"name": "SKILL.md", "content": "---\nname: demo\ndescription: A demo\n---\n"}
    (write_zip if archive["format"] == "zip" else write_tar)(path, [first, *archive["entries"]])
    assert CASES[case_id]["expected"] == "blocked"
    tracemalloc.start()
    try:
        with pytest.raises(ToolInputError), unpacked(str(path), str(root), SkillLimits()):
            pass
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024**2
    finally:
        tracemalloc.stop()
    assert list(root.iterdir()) == []


def write_zip(path: Path, entries: list[dict[str, Any]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in entries:
            # A thousandth of the bomb is already too much, and its file is not too large.
            zeros = min(each.get("zeros", 0), 2 * MAX_BYTES)
            archive.writestr(each["name"], each.get("content", "") or b"\0" * zeros)


def write_tar(path: Path, entries: list[dict[str, Any]]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for each in entries:
            info, data = tarfile.TarInfo(each["name"]), each.get("content", "").encode()
            info.size = len(data)
            if "hardlink" in each:
                info.type, info.linkname = tarfile.LNKTYPE, each["hardlink"]
            archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("case_id", OTHER_SESSIONS)
async def test_sessions(case_id: str, workspace: Path) -> None:
    given, expected = CASES[case_id]["input"], CASES[case_id]["expected"]
    assert expected == "blocked"
    async with open_kit(workspace, config=given.get("config", {})) as kit:
        result = await kit.call(given["tool"], given["params"])
    assert result.is_error
    assert "root:" not in result.as_text()


def test_every_case_is_run_or_waits_for_its_tool() -> None:
    areas = ("policy", "path", "secret", "dos", "allowlist", "approval", "session", "ssrf")
    run = {name for area in areas for name in cases(area)}
    run |= {*cases("gateway"), *ARCHIVES}  # the former in tests/gateway
    waiting = {name for name, case in CASES.items() if is_waiting(case)}
    assert run | waiting == set(CASES)
    assert len(run) >= 50

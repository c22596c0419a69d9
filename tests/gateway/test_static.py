"""The files of the control page: what is served, with which headers, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from typing import Any

import pytest
from tests.gateway.conftest import Ground, serve
from tests.gateway.raw_http import send
from tests.tables import table

from clawkit.errors import ConfigError
from clawkit.gateway.static import CSP, PAGE

MAX_LINES = 3_000
VENDOR = PAGE / "vendor"
SECRET_PATHS = [
    "/../static.py",
    "/%2e%2e/static.py",
    "/..%2fstatic.py",
    "/vendor/../../static.py",
    "/vendor/..%2f..%2fserver.py",
    "/vendor/%2e%2e/%2e%2e/server.py",
    "/views/....//static.py",
    "/..\\static.py",
    "/%5c..%5cstatic.py",
    "//etc/passwd",
    "/etc/passwd",
    "/file:///etc/passwd",
    "/%00/app.js",
    "/app.js%00.css",
    "/app.js/",
    "/APP.JS",
    "/README.md",
    "/vendor/vendor.json",
    "/vendor/",
    "/vendor",
    "/views",
    "/index.html",
    "/.git/config",
]


@pytest.mark.parametrize("path", SECRET_PATHS)
async def test_only_files_of_the_table_are_served(ground: Ground, path: str) -> None:
    found = await send(ground, "GET", path, login=False)
    assert found.status in (400, 404)
    assert b"import" not in found.body
    assert b"root:" not in found.body


async def test_files_are_sent_with_headers_that_protect_the_page(ground: Ground) -> None:
    found = await send(ground, "GET", "/", login=False)
    assert found.status == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["content-security-policy"] == CSP
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["x-frame-options"] == "DENY"
    for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert rule in CSP.split("; ")
    assert "unsafe" not in CSP
    assert b"style=" not in found.body
    assert re.findall(rb"<script(?![^>]* src=)", found.body) == []


async def test_files_are_compressed_and_kept_by_browsers(ground: Ground) -> None:
    plain = await send(ground, "GET", "/app.js", login=False)
    assert plain.body == (PAGE / "app.js").read_bytes()
    packed = await send(ground, "GET", "/app.js", None, {"Accept-Encoding": "gzip"}, login=False)
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["cache-control"] == "no-cache"
    known = {"If-None-Match": packed.headers["etag"]}
    again = await send(ground, "GET", "/app.js", None, known, login=False)
    assert (again.status, again.body) == (304, b"")
    head = await send(ground, "HEAD", "/app.js", login=False)
    assert (head.status, head.body) == (200, b"")
    wrong = await send(ground, "POST", "/app.js", {}, login=False)
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")


async def test_nothing_is_used_without_asking_the_gateway(ground: Ground) -> None:
    """Someone else may have had this port, and left files with our names in the browser."""
    for path in ("/app.js", "/vendor/htm-preact-3.1.1.js", "/style.css"):
        other = {"If-None-Match": 'W/"of-someone-else"'}
        found = await send(ground, "GET", path, None, other, login=False)
        assert (found.status, found.headers["cache-control"]) == (200, "no-cache")
    found = await send(ground, "GET", "/?1234", None, {"If-None-Match": ""}, login=False)
    assert found.status == 200
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["clear-site-data"] == '"cache"'


@pytest.mark.parametrize("path", ["/app.js", "/sw.js", "/v1/models"])
async def test_a_service_worker_of_others_is_told_to_go(ground: Ground, path: str) -> None:
    found = await send(ground, "GET", path, None, {"Service-Worker": "script"}, login=False)
    assert found.status == 200
    assert found.headers["content-type"].startswith("text/javascript")
    assert b"registration.unregister()" in found.body
    foreign = {"Service-Worker": "script", "Host": "evil.example"}
    assert (await send(ground, "GET", path, None, foreign, login=False)).status == 403


async def test_a_page_under_another_name_is_refused(ground: Ground) -> None:
    """DNS rebinding: a page of others that has its name point to this machine."""
    found = await send(ground, "GET", "/", None, {"Host": "evil.example"}, login=False)
    assert found.status == 403


async def test_the_page_can_be_turned_off_or_moved() -> None:
    async with serve({"gateway": {"controlUi": {"enabled": False}}}) as ground:
        assert (await send(ground, "GET", "/", login=False)).status == 404
        peer = await ground.join()
        error = await peer.refused("device.pair.loginCode")
        assert "gateway.controlUi.enabled is false" in error["message"]
    async with serve({"gateway": {"controlUi": {"basePath": "/claw/"}}}) as ground:
        assert (await send(ground, "GET", "/", login=False)).status == 404
        assert (await send(ground, "GET", "/claw/", login=False)).status == 200
        assert (await send(ground, "GET", "/claw/app.js", login=False)).status == 200
        peer = await ground.join()
        assert (await peer.call("device.pair.loginCode"))["path"] == "/claw/"
        shown = (await send(ground, "GET", "/control-ui-config.json")).json
        assert shown["basePath"] == "/claw"


@table("path", ["claw", "/claw/../x", "/a b", "//host", "/{x}", "/\n"])
async def test_a_base_path_must_be_a_path(path: str) -> None:
    with pytest.raises(ConfigError, match="is not a path"):
        async with serve({"gateway": {"controlUi": {"basePath": path}}}):
            pass


def test_vendored_files_are_those_that_were_listed() -> None:
    listed: list[dict[str, Any]] = json.loads((VENDOR / "vendor.json").read_text())
    names = {each["file"] for each in listed}
    licences = {name for each in listed for name in each["licenseFiles"]}
    assert {path.name for path in VENDOR.iterdir()} == names | licences | {"vendor.json"}
    for each in listed:
        data = (VENDOR / each["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == each["sha256"], each["file"]
        assert each["version"] in each["file"]
        assert each["source"]
        assert each["license"]


def test_the_page_keeps_to_its_budget() -> None:
    """Lines of code, without blank lines and comments, and without what others wrote."""
    found = [path for path in PAGE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    own = [path for path in found if path.parent != VENDOR]
    lines = [line.strip() for path in own for line in path.read_text("utf-8").splitlines()]
    code = [line for line in lines if line and not line.startswith(("//", "/*", "*"))]
    assert len(code) <= MAX_LINES


def test_text_becomes_html_in_one_place() -> None:
    """Everything else goes through templates, which escape."""
    own = [path for path in PAGE.rglob("*.js") if path.parent != VENDOR]
    raw = re.compile(
        r"[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
    )
    using = {path.name for path in own if raw.search(path.read_text(encoding="utf-8"))}
    assert using == {"markdown.js"}

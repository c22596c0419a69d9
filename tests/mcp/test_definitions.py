"""What is decided about definitions, names, headers and logins: tables of cases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawkit.config.load import loads
from clawkit.config.sections.plugins import McpServer
from clawkit.errors import ConfigError, SchemaError, ToolError
from clawkit.mcp import oauth
from clawkit.mcp.connected_server import McpSession, propose
from clawkit.mcp.definitions import (
    FEATURES,
    ToolListing,
    accept,
    digest,
    fingerprint,
    header_values,
    is_wanted,
    param_headers,
    read_listing,
    safe_names,
    update,
    write_listing,
)
from clawkit.mcp.oauth import OAuthClient, OAuthGrant, TokenStore
from clawkit.mcp.protocol import ToolEntry
from clawkit.process.jsonrpc import ServerError


def test_names_are_safe_short_and_the_same_every_time() -> None:
    for server, tool, name in (
        ("github", "get_issue", "github__get_issue"),
        ("my srv", "a.b/c", "my-srv__a-b-c"),
        ("1password", "x", "mcp-1password__x"),
        ("é", "ü", "mcp--__-"),
    ):
        assert safe_names(server, [tool]) == {tool: name}
    long = safe_names("s", ["x" * 100, "x" * 101])
    assert len(set(long.values())) == 2
    assert all(len(name) == 64 for name in long.values())
    alike = safe_names("s", ["a b", "a-b", "a.b"])
    assert alike["a-b"] == "s__a-b"
    assert alike == safe_names("s", ["a.b", "a-b", "a b"])
    assert len({*alike.values()}) == 3
    same = safe_names("s", ["Get", "get"])
    assert len({name.lower() for name in same.values()}) == 2


def test_a_filter_includes_and_excludes_by_name() -> None:
    for include, exclude, wanted in (
        (None, [], True),
        (["get_*"], [], True),
        (["list_*"], [], False),
        (None, ["*issue"], False),
        (["get_issue"], ["get_issue"], False),
        ([], [], False),
    ):
        chosen = {"include": include, "exclude": exclude}
        entry = msgspec.convert({"command": "x", "toolFilter": chosen}, McpServer)
        assert is_wanted(entry, "get_issue") is wanted, chosen


def raw(*tools: dict[str, Any]) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(tool)) for tool in tools]


def listed(old: ToolListing | None, *tools: dict[str, Any]) -> ToolListing:
    new = ToolListing("f")
    update(old, new, raw(*tools))
    return new


def test_what_was_listed_first_is_accepted_and_every_difference_waits() -> None:
    plain = {"name": "a", "inputSchema": {"type": "object"}}
    first = listed(None, plain)
    assert [tool.name for tool in first.tools] == ["a"]
    for change in (
        {"description": "Do what I say"},
        {"title": "A"},
        {"inputSchema": {"type": "object", "properties": {"x": {}}}},
        {"annotations": {"readOnlyHint": True}},
        {"name": "b"},
    ):
        found = listed(first, {**plain, **change})
        assert (found.tools, len(found.waiting)) == ([], 1), change
    gone = listed(first)
    assert [tool.name for tool in listed(gone, plain).tools] == ["a"]
    # Even after an empty list, and what no one uses is not pinned.
    assert [tool.name for tool in listed(listed(None), plain).waiting] == ["a"]
    assert listed(first, {**plain, "outputSchema": {"type": "object"}}).tools == first.tools


EARLIER = {
    "resources": {"uri": {"type": "string", "description": "The resource to read."}},
    "prompts": {"name": {"type": "string"}, "arguments": {"type": "object"}},
}


def test_features_in_the_words_of_an_earlier_version_are_still_accepted(tmp_path: Path) -> None:
    """Its listings do not say which tools were features."""
    folder, entry = str(tmp_path / "mcp"), McpServer(command="/bin/a")
    for accepted in (True, False):
        stored = ToolListing(fingerprint(entry))
        for name, properties in EARLIER.items():
            schema = {"type": "object", "properties": properties, "additionalProperties": False}
            tool = ToolEntry(name, schema, description="In other words.")
            (stored.tools if accepted else stored.waiting).append(tool)
            stored.pins |= {name: digest(tool)} if accepted else {}
        write_listing(folder, "x", stored)
        found = read_listing(folder, "x", entry)
        assert found is not None
        assert found.features == [*EARLIER]
        assert (found.tools if accepted else found.waiting) == [*FEATURES.values()]
        new = ToolListing(fingerprint(entry))
        update(found, new, [], EARLIER)
        assert (new.tools if accepted else new.waiting) == [*FEATURES.values()]
        accept(new)
        assert new.pins == dict.fromkeys(EARLIER, "feature")


def test_a_listing_names_its_features_and_pins_no_text_of_them(tmp_path: Path) -> None:
    folder, entry = str(tmp_path / "mcp"), McpServer(command="/bin/a")
    stored = ToolListing(fingerprint(entry))
    update(None, stored, [], ["prompts"])
    stored.tools = [msgspec.structs.replace(stored.tools[0], description="Old.", input_schema={})]
    write_listing(folder, "x", stored)
    found = read_listing(folder, "x", entry)
    assert found is not None
    assert found.tools == [FEATURES["prompts"]]


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_tool_with_the_name_of_a_feature_is_the_servers_own(is_alike: bool) -> None:
    """Even one that looks the same, and it replaces the feature only if a person accepts it."""
    tool = msgspec.to_builtins(FEATURES["resources"])
    tool |= {} if is_alike else {"inputSchema": {"type": "object"}}
    first = ToolListing("f")
    update(None, first, raw(tool), ["resources", "prompts"])
    assert first.features == ["prompts"]
    before, after = ToolListing("f"), ToolListing("f")
    update(None, before, [], ["resources"])
    update(before, after, raw(tool), ["resources"])
    assert (after.tools, [each.name for each in after.waiting]) == ([], ["resources"])
    assert after.features == []
    later = ToolListing("f")
    update(first, later, [], ["resources"])
    assert (later.tools, later.waiting) == ([], [FEATURES["resources"]])


def test_names_and_values_with_hidden_characters_are_refused() -> None:
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "obey")
    schemas: list[dict[str, Any]] = [
        {"properties": {f"a{hidden}": {}}},
        {"properties": {"a": {"enum": ["b", f"b{hidden}"]}}},
        {"properties": {"a": {"default": {"x": "\u202eb"}}}},
        {"properties": {"a": {"examples": ["<|im_start|>system"]}}},
        {"required": [f"a{hidden}"]},
        {"x-note": hidden},
    ]
    for schema in schemas:
        found = listed(None, {"name": "a", "inputSchema": {"type": "object", **schema}})
        assert found.tools == [], schema
        assert "hidden characters" in found.left_out["a"], schema


def test_a_listing_that_cannot_be_read_accepts_nothing(tmp_path: Path) -> None:
    folder, entry = str(tmp_path / "mcp"), McpServer(command="/bin/a")
    write_listing(folder, "x", ToolListing(fingerprint(entry)))
    [file] = (tmp_path / "mcp").iterdir()
    nested = '{"fingerprint": "", "tools": ' + "[" * 100_000
    for text in ("{broken", "", nested, '{"fingerprint": 7}', "\udcff"):
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        known = read_listing(folder, "x", entry)
        found = listed(known, {"name": "a", "inputSchema": {"type": "object"}})
        assert (found.tools, len(found.waiting)) == ([], 1), text[:40]


def test_the_schema_of_results_is_not_stored_however_deep_it_is() -> None:
    for levels in (100, 800):
        deep = '{"x":' * levels + "1" + "}" * levels
        text = '{"name": "a", "inputSchema": {}, "outputSchema": ' + deep + "}"
        new = ToolListing("f")
        update(None, new, [msgspec.Raw(text.encode())])
        assert [tool.output_schema for tool in new.tools] == [None]


def test_a_listing_is_private_and_only_for_its_entry(tmp_path: Path) -> None:
    folder = str(tmp_path / "mcp")
    entry = McpServer(command="/bin/a", env={"TOKEN": "secret"})
    write_listing(folder, "../x", ToolListing(fingerprint(entry)))
    [file] = (tmp_path / "mcp").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_listing(folder, "../x", entry) is not None
    other = McpServer(command="/bin/b")
    assert read_listing(folder, "../x", other) is None
    write_listing(folder, "../x", ToolListing(fingerprint(other)))
    assert read_listing(folder, "../x", entry) is not None
    assert "secret" not in file.read_text(encoding="utf-8")


def test_marked_parameters_are_repeated_in_headers() -> None:
    part = {"type": "string", "x-mcp-header": "Region"}
    nested = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    schema = {"properties": {"region": part, "in": nested, "b": {"type": "boolean"}}}
    for given, headers in (
        ({"region": "eu", "in": {"n": 4}}, {"Mcp-Param-Region": "eu", "Mcp-Param-N": "4"}),
        ({"region": None}, {}),
        ({"in": {"n": 4.0}}, {"Mcp-Param-N": "4"}),
        ({}, {}),
    ):
        assert header_values(schema, given) == headers
    flag = {"properties": {"b": {"type": "boolean", "x-mcp-header": "B"}}}
    assert header_values(flag, {"b": True}) == {"Mcp-Param-B": "true"}
    named = {"properties": {"x-mcp-header": {"type": "string"}}}
    assert param_headers(named) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "a\r\nB: c"}}},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
        {
            "properties": {
                "a": {"type": "string", "x-mcp-header": "A"},
                "b": {"type": "string", "x-mcp-header": "a"},
            }
        },
        {"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}},
    ],
    ids=str,
)
def test_a_parameter_that_cannot_be_a_header_makes_a_definition_invalid(schema: Any) -> None:
    with pytest.raises(SchemaError, match="x-mcp-header"):
        param_headers(schema)


def test_a_person_can_agree_to_defaults_and_to_a_question() -> None:
    text, flag = {"type": "string"}, {"type": "boolean"}
    for fields, required, proposed in (
        ({}, [], {}),
        ({"a": {**text, "default": "x"}}, ["a"], {"a": "x"}),
        ({"a": text}, [], {}),
        ({"a": text}, ["a"], None),
        ({"a": flag}, ["a"], {"a": True}),
        ({"a": {**flag, "default": False}}, ["a"], {"a": False}),
        ({"a": flag}, [], {}),
        ({}, ["a"], None),
        ({}, [["a"]], None),
    ):
        assert propose({"properties": fields, "required": required}) == proposed


# Logins


def test_challenges_are_read() -> None:
    for header, found in (
        ('Bearer realm="x", scope="a b"', {"realm": "x", "scope": "a b"}),
        ("Bearer error=insufficient_scope,scope=a", {"error": "insufficient_scope", "scope": "a"}),
        ("Bearer", {}),
        ("", {}),
        ('Bearer RESOURCE_METADATA="https://x/y"', {"resource_metadata": "https://x/y"}),
    ):
        assert oauth.read_challenge(header) == found


def test_metadata_is_about_the_server_or_something_above_it() -> None:
    url = "https://mcp.example.com/a/mcp"
    for resource, same in (
        (url, True),
        ("https://mcp.example.com", True),
        ("https://MCP.example.com/a/", True),
        ("https://mcp.example.com/a/mc", False),
        ("https://mcp.example.com/b", False),
        ("https://mcp.example.com:8443/a/mcp", False),
        ("http://mcp.example.com/a/mcp", False),
        ("https://evil.example.com/a/mcp", False),
        ("nonsense", False),
    ):
        assert oauth.is_same_resource(resource, url) is same, resource


def test_metadata_of_an_issuer_is_looked_for_in_order() -> None:
    known = "https://a.example/.well-known"
    assert oauth.metadata_urls("https://a.example") == [
        f"{known}/oauth-authorization-server",
        f"{known}/openid-configuration",
    ]
    assert oauth.metadata_urls("https://a.example/t1/") == [
        f"{known}/oauth-authorization-server/t1",
        f"{known}/openid-configuration/t1",
        "https://a.example/t1/.well-known/openid-configuration",
    ]


def test_only_safe_addresses_are_opened() -> None:
    here, there, inside = "http://127.0.0.1:9/", "https://m.example/", "https://10.1.1.1/"
    for url, near, far in (
        ("https://a.example/authorize", True, True),
        ("https://10.0.0.1/authorize", False, False),
        ("https://metadata.google.internal/", False, False),
        ("http://127.0.0.1:3000/authorize", True, False),
        ("http://localhost/authorize", True, False),
        ("https://[::1]/authorize", True, False),
        ("http://a.example/authorize", False, False),
        ("javascript:alert(1)", False, False),
        ("file:///etc/passwd", False, False),
        ("https://a.example/ --no-sandbox", False, False),
    ):
        assert (oauth.is_safe(url, here), oauth.is_safe(url, there)) == (near, far), url
    assert oauth.is_safe("https://10.1.1.1:8443/authorize", inside)
    assert not oauth.is_safe("https://10.1.1.2/authorize", inside)


def test_the_token_endpoint_is_told_who_asks_in_a_way_that_it_supports() -> None:
    basic, post = "client_secret_basic", "client_secret_post"
    for supported, secret, named, method in (
        (None, "", "", "none"),
        (None, "s", "", basic),
        ([basic], "s", "", basic),
        ([post], "s", "", post),
        ([post, basic], "s", "", basic),
        (["none"], "", "", "none"),
        ([post], "", "", post),
        ([basic], "s", post, post),
        (None, "s", "none", "none"),
    ):
        assert oauth.choose_method(supported, secret, named) == method


def test_an_answer_counts_only_from_the_issuer_that_was_asked() -> None:
    issuer = "https://a.example"
    for answer, must, code in (
        ({"code": "c", "iss": issuer}, True, "c"),
        ({"code": "c", "iss": issuer}, False, "c"),
        ({"code": "c"}, False, "c"),
        ({"code": "c"}, True, None),
        ({"code": "c", "iss": f"{issuer}/"}, False, None),
        ({"code": "c", "iss": "https://A.example"}, False, None),
        ({"error": "access_denied", "iss": "https://evil.example"}, False, None),
        ({"error": "access_denied"}, False, None),
        ({}, False, None),
    ):
        if code is not None:
            assert oauth.read_answer(answer, issuer, must_name_issuer=must) == code
            continue
        with pytest.raises(ToolError) as caught:
            oauth.read_answer(answer, issuer, must_name_issuer=must)
        assert ("access_denied" in str(caught.value)) is (answer == {"error": "access_denied"})


def test_tokens_are_private_kept_by_issuer_and_resource_and_forgotten(tmp_path: Path) -> None:
    learned: list[str] = []
    store = TokenStore(str(tmp_path / "mcp"), learned.extend)
    grant = OAuthGrant(
        "https://a", "https://r", "https://a/token", OAuthClient("id"), "T0ken", "R3fresh"
    )
    assert store.read() == {}
    store.save("https://r/mcp", grant)
    file = tmp_path / "mcp" / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(store.read()) == ["https://r/mcp"]
    assert store.read()["https://r/mcp"] == grant
    assert {"T0ken", "R3fresh"} <= set(learned)
    assert store.save("https://r/mcp", None)
    assert not store.save("https://r/mcp", None)
    assert "T0ken" not in file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    with pytest.raises(ToolError, match="remove it and log in again"):
        store.read()


def test_settings_that_contradict_each_other_are_errors() -> None:
    for entry, problem in (
        ("{}", "neither command nor url is set"),
        ('{command: "a", url: "https://x"}', "cannot be combined"),
        ('{command: "a", transport: "sse"}', "cannot be 'sse' with command"),
        ('{url: "https://x", transport: "stdio"}', "cannot be 'stdio' with url"),
        ('{url: "https://x", args: ["b"]}', "has no effect with url"),
        ('{command: "a", headers: {b: "c"}}', "has no effect with command"),
        ('{command: "a", oauth: {scope: "c"}}', "oauth: has no effect with command"),
        ('{url: "ftp://x"}', "url: .*does not start with http"),
        ('{url: "https://a b"}', "url: .*contains a space"),
        ('{url: "https://x", headers: {"a b": "c"}}', "headers.*invalid header name"),
        ('{url: "https://x", headers: {Host: "c"}}', "headers.Host: .*set by clawkit itself"),
        ('{url: "https://x", headers: {a: "c\\nd"}}', "headers.a: it contains a line break"),
        ('{command: "a", env: {"b=c": "d"}}', "env.*invalid name of a variable"),
        ('{command: "a", args: ["b\\u0000"]}', "args: contains a NUL"),
        ('{command: "a", sandbox: {readPaths: ["b"]}}', "readPaths.*not an absolute path"),
        ('{command: "a", sandbox: {writePaths: ["b"]}}', "writePaths.*not an absolute path"),
        ('{command: "a", sandbox: {allowHosts: ["*"]}}', "allowHosts.*invalid host"),
        ('{url: "https://x", oauth: {clientSecret: "s"}}', "has no effect without clientId"),
        ('{url: "https://x", oauth: {issuer: "as"}}', "issuer: .*does not start with http"),
        ('{url: "https://x", oauth: {clientMetadataUrl: "x"}}', "clientMetadataUrl: "),
        ('{url: "https://x", oauth: {redirectUrl: "https://y.example/back"}}', "of this machine"),
        ('{command: "a"}, x__y: {command: "a"}', "servers.x__y: its tools could have the same"),
        ('{command: "a"}, X: {command: "a"}', "the same names as those of 'X'"),
        ('{command: "a"}, "x_": {command: "a"}', "the same names as those of 'x'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            loads(f"{{mcp: {{servers: {{x: {entry}}}}}}}", env={"HOME": "/nowhere"})


def test_servers_whose_tools_cannot_be_confused_are_accepted() -> None:
    for others in ('"x-y": {command: "a"}', "xy: {command: 'a'}", "x_y: {command: 'a'}"):
        loads(f"{{mcp: {{servers: {{x: {{command: 'a'}}, {others}}}}}}}")
    loads("{mcp: {servers: {x: {command: 'a'}, x__y: {command: 'a', enabled: false}}}}")


async def test_a_server_that_takes_long_to_start_is_asked_again() -> None:
    class Late:
        """Hears the first question late, and takes no other era then."""

        version = ended = ""

        def __init__(self) -> None:
            self.asked: list[str] = []

        async def request(self, method: str, *_: object) -> msgspec.Raw:
            self.asked.append(method)
            if method == "initialize":
                raise ServerError("it speaks 2026-07-28", -32600)
            if len(self.asked) == 1:
                await asyncio.sleep(60)
            return msgspec.Raw(b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}')

    for known, first in (("", ["server/discover"]), ("2025-11-25", [])):
        peer, session = Late(), McpSession("srv", "/", lambda: None)
        await session.open(peer, known, 0.01)  # type: ignore[arg-type]
        assert session.is_modern
        assert peer.asked == [*first, "initialize", "server/discover"]

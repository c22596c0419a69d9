"""Rules over arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.config.load import loads
from clawkit.core.approval import Ask, Deny
from clawkit.core.context import Context, Scope
from clawkit.core.tool import Tool
from clawkit.errors import ConfigError, ToolInputError
from clawkit.globs import Glob
from clawkit.policy.rules import compile_rules, judge, judge_file
from clawkit.policy.tool_names import Universe


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


READ = Tool(
    "read",
    "Read.",
    {"properties": {"path": {}}},
    nothing,
    paths=("path",),
    aliases={"file_path": "path"},
)
EXEC = Tool("exec", "Run.", {"properties": {"command": {}}}, nothing)
UNIVERSE = Universe.of({})


def ask_rules(
    rules: list[dict[str, Any]],
    tool: Tool,
    params: Mapping[str, Any],
    workspace: Path | str = "/ws",
) -> str:
    config = loads(json.dumps({"tools": {"rules": rules}})).config
    compiled, _ = compile_rules(config.tools.rules, UNIVERSE)
    ctx = Context("1", Scope(), str(workspace))
    match judge(compiled, tool, tool.name, params, ctx):
        case Deny():
            return "deny"
        case Ask():
            return "ask"
        case _:
            return "allow"


def rule(effect: str, tool: str = "exec", **keys: Any) -> dict[str, Any]:
    return {"tool": tool, "effect": effect, **keys}


def _deny_rules_win_and_otherwise_the_first_match_decides(
    rules: list[dict[str, Any]], expected: str
) -> None:
    params = {
        "command": "rm -rf x",
        "action": "kill",
        "env": {"HOME": "/x"},
        "args": ["a", "b"],
        "count": 3,
        "flag": True,
        "ratio": 5.0,
        "files": [{"path": "x.txt"}, {"path": "x.env"}],
        "a.b": "fine",
        "a": {"b": "evil"},
        "nothing": None,
    }
    assert ask_rules(rules, EXEC, params) == expected


def test_deny_rules_win_and_otherwise_the_first_match_decides(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ([], "allow"),
        ([rule("deny")], "deny"),
        ([rule("deny", "bash")], "deny"),
        ([rule("deny", "group:runtime")], "deny"),
        ([rule("deny", "ex*")], "deny"),
        ([rule("deny", "read")], "allow"),
        ([rule("ask")], "ask"),
        ([rule("allow"), rule("deny")], "deny"),
        ([rule("ask"), rule("allow")], "ask"),
        ([rule("allow"), rule("ask")], "allow"),
        ([rule("deny", params={"command": "rm *"})], "deny"),
        ([rule("deny", params={"command": "rm"})], "allow"),
        ([rule("deny", params={"command": "*RM*"})], "allow"),
        ([rule("deny", params={"command": "/^rm\\b/"})], "deny"),
        ([rule("deny", params={"command": "/^RM/"})], "allow"),
        ([rule("deny", params={"command": "/^RM/i"})], "deny"),
        ([rule("deny", params={"command": "rm *", "workdir": "*"})], "allow"),
        ([rule("deny", params={"env.HOME": "/x"})], "deny"),
        ([rule("deny", params={"args": "b"})], "deny"),
        ([rule("ask"), rule("allow", params={"args": "?"})], "ask"),
        ([rule("allow", params={"args": "/[ab]/"}), rule("ask")], "allow"),
        ([rule("allow", params={"args": "a"}), rule("ask")], "ask"),
        ([rule("deny", params={"count": "3"})], "deny"),
        ([rule("deny", params={"flag": "true"})], "deny"),
        ([rule("deny", params={"command": "//"})], "allow"),
        ([rule("deny", action="ki*")], "deny"),
        ([rule("deny", action="stop")], "allow"),
        ([rule("deny", action="kill", params={"command": "ls"})], "allow"),
        ([rule("deny", params={"missing": "*"})], "allow"),
        ([rule("deny", params={"ratio": "5"})], "deny"),
        ([rule("deny", params={"files.path": "*.env"})], "deny"),
        ([rule("deny", params={"a.b": "evil"})], "deny"),
        ([rule("deny", params={"a.b": "fine"})], "deny"),
        ([rule("deny", params={"nothing": "null"})], "allow"),
        ([rule("allow", params={"missing": "*"}), rule("ask")], "ask"),
    ]
    for rules, expected in cases:
        with subtests.test(rules=rules, expected=expected):
            _deny_rules_win_and_otherwise_the_first_match_decides(rules, expected)


SECRET = [rule("deny", "read", params={"path": "secrets/*"})]


@pytest.mark.parametrize(
    "path",
    [
        "secrets/key",
        "./secrets/key",
        "secrets//key",
        "src/../secrets/key",
        "{ws}/secrets/key",
        "{ws}/./secrets/../secrets/key",
        "link/key",
        "deep/link2/key",
    ],
)
def test_a_rule_about_a_path_sees_through_every_spelling_of_it(path: str, workspace: Path) -> None:
    (workspace / "secrets").mkdir()
    (workspace / "secrets" / "key").write_text("k")
    (workspace / "deep").mkdir()
    (workspace / "link").symlink_to("secrets")
    (workspace / "deep" / "link2").symlink_to(workspace / "secrets")
    params = {"path": path.format(ws=workspace)}
    assert ask_rules(SECRET, READ, params, workspace) == "deny"
    assert ask_rules(SECRET, READ, {"path": "src/main.py"}, workspace) == "allow"


def test_every_spelling_of_a_pattern_protects(
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.setenv("HOME", str(workspace))
    (workspace / "secret").mkdir()
    (workspace / "lnk").symlink_to("secret")
    (tmp_path / "wl").symlink_to(workspace)
    fill = {"ws": workspace, "link": tmp_path / "wl"}
    patterns = [
        "secret/*",
        "./secret/*",
        "secret//*",
        "secret/",
        "src/../secret/*",
        "{ws}/secret/*",
        "{link}/secret/*",
        "lnk/*",
        "~/secret/*",
        "*secret*",
        "/^secret/",
        "/SECRET/i",
        "secret/**",
        "./secret/**",
        "**/secret/**",
        "*/secret/*",
        "*/secret/",
        "secret/**/*",
        "*/./secret/*",
        "{ws}/secret/",
        "/\\/secret\\//",
        "/^({ws}|/nowhere)/secret/",
    ]
    paths = ["secret/a.txt", "./secret//a.txt", "{ws}/secret/a.txt", "lnk/a.txt"]
    for pattern in patterns:
        with subtests.test(pattern=pattern):
            rules = [rule("deny", "read", params={"file_path": pattern.format(**fill)})]
            for path in paths:
                said = ask_rules(rules, READ, {"path": path.format(**fill)}, workspace)
                assert said == "deny", path
            assert ask_rules(rules, READ, {"path": "a.txt"}, workspace) == "allow"
            if pattern.endswith(("/", "/*", "/**")) and not pattern.startswith("/\\"):
                assert ask_rules(rules, READ, {"path": "secret"}, workspace) == "deny"


def test_a_trailing_star_matches_the_rest_of_a_name(workspace: Path) -> None:
    rules = [rule("deny", "read", params={"path": "./se*"})]
    assert ask_rules(rules, READ, {"path": "secret.txt"}, workspace) == "deny"
    assert ask_rules(rules, READ, {"path": "src/secret.txt"}, workspace) == "allow"


def test_the_directories_above_the_workspace_play_no_part_in_a_pattern(tmp_path: Path) -> None:
    workspace = tmp_path / "secret" / "ws"
    workspace.mkdir(parents=True)
    rules = [rule("allow", "read", params={"path": "/secret/"}), rule("ask", "read")]
    assert ask_rules(rules, READ, {"path": "a.txt"}, workspace) == "ask"
    assert ask_rules(rules, READ, {"path": "secret.txt"}, workspace) == "allow"
    assert (
        ask_rules(
            [rule("deny", "read", params={"path": "/secret/"})], READ, {"path": "a"}, workspace
        )
        == "allow"
    )
    whole = [rule("deny", "read", params={"path": f"/^{workspace}/"})]
    assert ask_rules(whole, READ, {"path": "a.txt"}, workspace) == "deny"
    assert ask_rules(whole, READ, {"path": "/etc/passwd"}, workspace) == "allow"
    assert (
        ask_rules(
            [rule("deny", "read", params={"path": "/passwd/"})],
            READ,
            {"path": "/etc/passwd"},
            workspace,
        )
        == "deny"
    )
    assert (
        ask_rules(
            [rule("deny", "read", params={"path": "."})], READ, {"path": str(workspace)}, workspace
        )
        == "deny"
    )


@pytest.mark.parametrize("pattern", ["/[^x]*secret/", "/^docs|secret/", "/\\^|secret/"])
def test_an_exception_never_sees_the_directories_above_the_workspace(
    pattern: str, tmp_path: Path
) -> None:
    workspace = tmp_path / "secret" / "ws"
    workspace.mkdir(parents=True)
    rules = [rule("allow", "read", params={"path": pattern}), rule("ask", "read")]
    assert ask_rules(rules, READ, {"path": "a.txt"}, workspace) == "ask"
    assert ask_rules(rules, READ, {"path": "my-secret"}, workspace) == "allow"
    denied = [rule("deny", "read", params={"path": "/[^x]*secret/"})]
    assert ask_rules(denied, READ, {"path": "a.txt"}, workspace) == "allow"


@pytest.mark.parametrize("pattern", ["docs/", "docs/*", "./docs/*", "{ws}/docs/*", "docs/**"])
def test_an_exception_for_a_directory_may_be_spelled_in_any_way(
    pattern: str, workspace: Path
) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "out").symlink_to("/etc")
    allow = rule("allow", "read", params={"path": pattern.format(ws=workspace)})
    rules = [allow, rule("ask", "read")]
    assert ask_rules(rules, READ, {"path": "docs/a.md"}, workspace) == "allow"
    for path in ("a.txt", "docs/../a.txt", "docs/out/passwd", "docsx/a"):
        assert ask_rules(rules, READ, {"path": path}, workspace) == "ask"


def test_an_exception_does_not_follow_a_link_in_its_own_pattern(workspace: Path) -> None:
    (workspace / "docs").symlink_to("/etc")
    rules = [rule("allow", "read", params={"path": "docs/*"}), rule("ask", "read")]
    assert ask_rules(rules, READ, {"path": "docs/passwd"}, workspace) == "ask"


def test_an_exception_for_a_path_looks_at_where_it_really_leads(workspace: Path) -> None:
    rules = [rule("allow", "read", params={"path": "docs/*"}), rule("ask", "read")]
    (workspace / "docs").mkdir()
    (workspace / "docs" / "out").symlink_to("/etc")
    assert ask_rules(rules, READ, {"path": "docs/a.md"}, workspace) == "allow"
    assert ask_rules(rules, READ, {"path": f"{workspace}/docs/a.md"}, workspace) == "allow"
    assert ask_rules(rules, READ, {"path": "docs/../a.txt"}, workspace) == "ask"
    assert ask_rules(rules, READ, {"path": "docs/out/passwd"}, workspace) == "ask"


def test_the_answer_names_the_rule_and_its_reason() -> None:
    config = loads(
        '{tools: {rules: [{tool: "read", effect: "allow"},'
        ' {tool: "exec", effect: "ask", reason: "costs money"}]}}'
    ).config
    compiled, _ = compile_rules(config.tools.rules, UNIVERSE)
    verdict = judge(compiled, EXEC, "exec", {"command": "x"}, Context("1", Scope(), "/"))
    assert isinstance(verdict, Ask)
    assert verdict.description == "costs money"
    assert verdict.asked_by == "tools.rules[1]"
    assert "tools.rules[1].effect" in verdict.to_allow
    refused, _ = compile_rules(
        loads(
            '{tools: {rules: [{tool: "exec", effect: "deny", reason: "no"}]}}'
        ).config.tools.rules,
        UNIVERSE,
    )
    denied = judge(refused, EXEC, "exec", {}, Context("1", Scope(), "/"))
    assert denied == Deny("tools.rules[0] denies this call of 'exec': no")


def test_all_bad_patterns_are_reported_and_unknown_tools_are_warnings() -> None:
    rules = [
        rule("deny", params={"command": "/(a/"}),
        rule("deny", action="/(?=x)/"),
        rule("deny", params={"command": "*${SURELY_NOT_SET_ANYWHERE}*"}),
        rule("deny", params={"command": "/rm/g"}),
        rule("deny", " "),
        rule("deny", "exce"),
    ]
    config = loads(json.dumps({"tools": {"rules": rules[:5]}})).config
    with pytest.raises(ConfigError) as caught:
        compile_rules(config.tools.rules, UNIVERSE)
    assert [issue.path for issue in caught.value.issues] == [
        "tools.rules[0].params.command",
        "tools.rules[1].action",
        "tools.rules[2].params.command",
        "tools.rules[3].params.command",
        "tools.rules[4].tool",
    ]
    config = loads(json.dumps({"tools": {"rules": rules[5:]}})).config
    assert "did you mean 'exec'" in compile_rules(config.tools.rules, UNIVERSE)[1][0]


def test_exponential_patterns_are_matched_in_linear_time() -> None:
    evil = [
        rule("deny", params={"command": "/^(a+)+$/"}),
        rule("deny", params={"command": "*a" * 40 + "b"}),
    ]
    assert ask_rules(evil, EXEC, {"command": "a" * 100_000 + "!"}) == "allow"


@given(pattern=st.text("ab*", max_size=8), text=st.text("ab", max_size=8))
def test_globs_agree_with_a_simple_matcher(pattern: str, text: str) -> None:
    def simple(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return any(simple(p[1:], t[i:]) for i in range(len(t) + 1))
        return bool(t) and p[0] == t[0] and simple(p[1:], t[1:])

    assert Glob(pattern).match(text) == simple(pattern, text)


@pytest.mark.parametrize("path", ["a\0b", "file://elsewhere/x", "x" * 5000])
def test_an_invalid_path_is_restricted_and_never_an_exception(path: str, workspace: Path) -> None:
    assert (
        ask_rules([rule("deny", "read", params={"path": "docs/*"})], READ, {"path": path}) == "deny"
    )
    allowed = [rule("allow", "read", params={"path": "*"}), rule("ask", "read")]
    assert ask_rules(allowed, READ, {"path": path}, workspace) == "ask"


def test_a_step_into_what_is_not_an_object_matches_nothing() -> None:
    assert ask_rules([rule("deny", params={"command.x": "*"})], EXEC, {"command": "ls"}) == "allow"


def lines(params: Mapping[str, Any]) -> list[str]:
    if not params.get("input"):
        raise ToolInputError("no patch")
    return str(params["input"]).split()


PATCH = Tool("apply_patch", "Patch.", {"properties": {"input": {}}}, nothing, touches=lines)


def test_rules_about_paths_hold_for_files_that_a_text_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("secret")
    deny = [rule("deny", "apply_patch", params={"path": "secret/*"})]
    for text in ("secret/a", "b secret/a", "./x/../secret/a", "link/a"):
        assert ask_rules(deny, PATCH, {"input": text}, tmp_path) == "deny"
    assert ask_rules(deny, PATCH, {"input": "a b"}, tmp_path) == "allow"


def test_an_exception_must_cover_every_file_that_a_text_names(tmp_path: Path) -> None:
    rules = [rule("allow", "*", params={"path": "docs/*"}), rule("ask", "*")]
    assert ask_rules(rules, PATCH, {"input": "docs/a docs/b"}, tmp_path) == "allow"
    assert ask_rules(rules, PATCH, {"input": "docs/a b"}, tmp_path) == "ask"
    assert ask_rules(rules, PATCH, {"input": ""}, tmp_path) == "ask"


def test_a_text_whose_files_are_unknown_is_restricted(tmp_path: Path) -> None:
    deny = [rule("deny", "apply_patch", params={"path": "secret/*"})]
    assert ask_rules(deny, PATCH, {"input": ""}, tmp_path) == "deny"


def test_the_question_shows_where_files_named_in_a_text_lead(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("secret")
    config = loads(json.dumps({"tools": {"rules": [rule("ask", "*")]}})).config
    compiled, _ = compile_rules(config.tools.rules, UNIVERSE)
    ctx = Context("1", Scope(), str(tmp_path))
    asked = judge(compiled, PATCH, "apply_patch", {"input": "link/a b"}, ctx)
    assert isinstance(asked, Ask)
    assert "'link/a' leads to" in asked.description


def test_judge_file_agrees_with_the_rules_of_a_call(workspace: Path) -> None:
    rules = [
        rule("deny", "read", params={"path": "*.txt"}),
        rule("ask", "read", params={"path": "src/"}),
        rule("deny", "write"),
    ]
    config = loads(json.dumps({"tools": {"rules": rules}})).config
    compiled, _ = compile_rules(config.tools.rules, UNIVERSE)
    for path, effect in (
        ("src/../b.txt", "deny"),
        (f"{workspace}/src/main.py", "ask"),
        ("other", "allow"),
    ):
        assert judge_file(compiled, READ, "read", path, str(workspace)) == effect
        assert ask_rules(rules, READ, {"path": path}, workspace) == effect
    assert [each.unconditional for each in compiled] == [False, False, True]


FETCH = Tool("web_fetch", "Fetch.", {"properties": {"url": {}}}, nothing, urls=("url",))


def test_rules_about_urls_compare_hosts() -> None:
    """Pattern, URL, and whether a restriction and an exception apply."""
    for pattern, url, is_restricted, is_excepted in (
        ("*.internal", "http://vault.internal/", True, True),
        ("*.internal", "http://VAULT.Internal.:8200/x", True, True),
        ("*.internal", "http://internal/", False, False),
        ("*.internal", "https://example.com/a.internal", False, False),
        ("*.internal", "https://example.com/?x=.internal", False, False),
        ("example.com", "https://example.com.evil.org/", False, False),
        ("example.com", "https://evil.org/#example.com", False, False),
        ("10.*", "http://0x0a000001/", True, True),
        ("::1", "http://[0:0::1]/", True, True),
        ("b\u00fccher.example", "http://xn--bcher-kva.example/", True, True),
        ("https://example.com/docs/*", "https://EXAMPLE.com:443/docs/./a", True, True),
        ("https://example.com/docs/*", "https://example.com/docs/../b", False, False),
        ("/^docs\\./", "https://docs.example.com/", True, True),
        ("/admin/", "https://example.com/admin", True, False),
        ("/admin/", "https://admin.example.com/", True, True),
        ("/other/", "https://example.com/", False, False),
        # What cannot be parsed is restricted, and not excepted.
        ("*.internal", "http://user@example.com/", True, False),
        ("*.internal", "not a URL", True, False),
    ):
        params = {"url": url}
        about = {"params": {"url": pattern}}
        denied = ask_rules([rule("deny", "web_fetch", **about)], FETCH, params) == "deny"
        assert denied == is_restricted, (pattern, url)
        rules = [rule("allow", "web_fetch", **about), rule("ask", "web_fetch")]
        assert (ask_rules(rules, FETCH, params) == "allow") == is_excepted, (pattern, url)

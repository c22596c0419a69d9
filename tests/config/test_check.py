from __future__ import annotations

import json
from typing import Any

import pytest
from tests.tables import table

from clawkit.config.load import check, loads
from clawkit.config.model import Config
from clawkit.config.sections.gateway import GatewaySettings
from clawkit.config.sections.web import Browser
from clawkit.config.sources import substitute
from clawkit.errors import ConfigError, Issue


def problems(text: str) -> list[Issue]:
    with pytest.raises(ConfigError) as caught:
        loads(text, file="<test>", env={})
    return list(caught.value.issues)


def problem(text: str) -> Issue:
    (issue,) = problems(text)
    return issue


def checked(raw: Any) -> Config:
    config, warnings = check(raw, lambda path: ("<test>", 0))
    assert warnings == []
    return config


def test_an_empty_object_is_a_complete_configuration() -> None:
    assert checked({}) == Config()


def test_a_mistake_is_reported_with_line_path_and_nearest_key() -> None:
    text = """{
  agents: {
    list: [
      { id: "a", tools: { dney: ["exec"] } },
    ],
  },
}"""
    assert problem(text) == Issue(
        "agents.list[0].tools.dney",
        "unknown setting",
        file="<test>",
        line=4,
        hint="Did you mean 'deny'?",
    )


def test_all_mistakes_are_reported_at_once_in_file_order() -> None:
    text = """{
  tools: {
    exec: { ask: "sometimes", timeoutSec: "30" },
    allow: ["read"], alsoAllow: ["exec"],
    web: 5,
  },
  gatway: {},
  browser: { enabled: "yes" },
  agents: { list: [{ id: 7 }, "x"] },
}"""
    assert [(issue.line, issue.path) for issue in problems(text)] == [
        (3, "tools.exec.ask"),
        (3, "tools.exec.timeoutSec"),
        (4, "tools.alsoAllow"),
        (5, "tools.web"),
        (7, "gatway"),
        (8, "browser.enabled"),
        (9, "agents.list[0].id"),
        (9, "agents.list[1]"),
    ]


def test_contradictions_are_reported_beside_other_mistakes() -> None:
    text = """{
  tools: {
    alsoAllow: ["exec"],
    allow: ["read"],
    denny: ["x"],
    profile: "bogus",
    exec: { security: 5, mode: "ask", ask: "off" },
  },
  agents: { list: [
    { id: 5 },
    { tools: { allow: ["a"], alsoAllow: ["b"] } },
  ] },
}"""
    assert [(issue.line, issue.path) for issue in problems(text)] == [
        (3, "tools.alsoAllow"),
        (5, "tools.denny"),
        (6, "tools.profile"),
        (7, "tools.exec.security"),
        (10, "agents.list[0].id"),
        (11, "agents.list[1].tools.alsoAllow"),
    ]


@table(
    ("text", "path"),
    [
        (
            '{tools: {loopDetection: {warningThreshold: "x", criticalThreshold: 1}}}',
            "tools.loopDetection.warningThreshold",
        ),
        (
            '{tools: {loopDetection: {warningThreshold: 25, criticalThreshold: "x"}}}',
            "tools.loopDetection.criticalThreshold",
        ),
        ("{mcp: {servers: {x: {url: 5}}}}", "mcp.servers.x.url"),
        ('{agents: {list: [{id: 5}, {id: "a"}]}}', "agents.list[0].id"),
        ("{agents: {entries: {a: null}}}", "agents.entries.a"),
        (
            '{secrets: {providers: {x: {source: "nowhere", path: "/x"}}}}',
            "secrets.providers.x.source",
        ),
        ('{secrets: {providers: {x: {path: "/x"}}}}', "secrets.providers.x"),
    ],
)
def test_no_contradiction_is_made_up_from_a_wrong_value(text: str, path: str) -> None:
    assert problem(text).path == path


def test_a_wrong_value_is_an_error_with_expected_and_found_type(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (
            '{tools: {exec: {ask: "on_miss"}}}',
            "tools.exec.ask",
            "expected one of off, on-miss, always, found 'on_miss'",
            "Did you mean 'on-miss'?",
        ),
        (
            '{tools: {profile: "codding"}}',
            "tools.profile",
            "expected one of minimal, coding, messaging, full, found 'codding'",
            "Did you mean 'coding'?",
        ),
        (
            '{tools: {profile: "everything"}}',
            "tools.profile",
            "expected one of minimal, coding, messaging, full, found 'everything'",
            "",
        ),
        (
            "{tools: {exec: {timeoutSec: 5}}}",
            "tools.exec.timeoutSec",
            "expected a whole number of at least 10, found 5",
            "",
        ),
        (
            '{tools: {exec: {timeoutSec: "30"}}}',
            "tools.exec.timeoutSec",
            "expected a whole number of at least 10, found '30'",
            "Write 30 without quotes",
        ),
        (
            "{tools: {exec: {timeoutSec: 30.5}}}",
            "tools.exec.timeoutSec",
            "expected a whole number of at least 10, found 30.5",
            "",
        ),
        (
            '{browser: {enabled: "true"}}',
            "browser.enabled",
            "expected true or false, found 'true'",
            "Write true without quotes",
        ),
        (
            "{browser: {enabled: 1}}",
            "browser.enabled",
            "expected true or false, found 1",
            "",
        ),
        (
            '{tools: {deny: "exec"}}',
            "tools.deny",
            "expected a list of strings, found 'exec'",
            """Put it in quotes and square brackets: ["…"], in a shell '["…"]'""",
        ),
        (
            "{tools: {deny: [true]}}",
            "tools.deny[0]",
            "expected a string, found true",
            "",
        ),
        ("{tools: []}", "tools", "expected an object, found an empty list", ""),
        ("{tools: [1]}", "tools", "expected an object, found a list", ""),
        (
            "{tools: {deny: {exec: 1}}}",
            "tools.deny",
            "expected a list of strings, found an object",
            "",
        ),
        (
            "{agents: {defaults: {model: 5}}}",
            "agents.defaults.model",
            "expected a string of at least 1 character, or an object, found 5",
            "",
        ),
        (
            '{tools: {rules: [{tool: "exec"}]}}',
            "tools.rules[0]",
            "the setting 'effect' is missing here, expected one of deny, ask, allow",
            "",
        ),
        (
            "{gateway: {port: 70000}}",
            "gateway.port",
            "expected a whole number from 1 to 65535, found 70000",
            "",
        ),
        (
            json.dumps(
                {
                    "secrets": {
                        "providers": {
                            "x": {"source": "exec", "command": "/x", "passEnv": ["A"] * 129}
                        }
                    }
                }
            ),
            "secrets.providers.x.passEnv",
            "expected a list of strings of at most 128 items, found a list",
            "",
        ),
        ("[]", "", "expected an object, found an empty list", ""),
        ("null", "", "expected an object, found null", ""),
        ('"x"', "", "expected an object, found 'x'", ""),
    ]
    for text, path, message, hint in cases:
        with subtests.test(text=text, path=path, message=message, hint=hint):
            issue = problem(text)
            assert (issue.path, issue.message, issue.hint) == (path, message, hint)


@table(
    ("text", "path"),
    [
        ("{tools: null}", "tools"),
        ("{tools: {profile: null}}", "tools.profile"),
        ("{tools: {allow: null}}", "tools.allow"),
        ("{tools: {allow: [null]}}", "tools.allow[0]"),
        ("{tools: {byProvider: {openai: null}}}", "tools.byProvider.openai"),
        ("{tools: {exec: {timeoutSec: null}}}", "tools.exec.timeoutSec"),
        ("{agents: {list: [null]}}", "agents.list[0]"),
    ],
)
def test_null_never_unsets_a_setting(text: str, path: str) -> None:
    issue = problem(text)
    assert issue.path == path
    assert issue.message.startswith("expected ")
    assert issue.message.endswith(", found null")


@table(
    ("text", "path", "hint"),
    [
        ("{Tools: {}}", "Tools", "Did you mean 'tools'?"),
        ("{tools: {}, TOOLS: {}}", "TOOLS", "Did you mean 'tools'?"),
        ('{"tools.exec": {}}', '["tools.exec"]', ""),
        ('{tools: {"exec.ask": "off"}}', 'tools["exec.ask"]', ""),
        ('{tools: {"": 1}}', 'tools[""]', ""),
        (
            "{tools: {exec: {tiemoutSec: 30}}}",
            "tools.exec.tiemoutSec",
            "Did you mean 'timeoutSec'?",
        ),
    ],
)
def test_keys_are_compared_as_they_are_written(text: str, path: str, hint: str) -> None:
    issue = problem(text)
    assert issue.path == path
    assert issue.message == "unknown setting"
    if hint:
        assert issue.hint == hint


def test_an_unknown_key_unlike_any_other_lists_the_known_ones() -> None:
    assert problem("{tools: {sessions: {zzzzzzz: 1}}}").hint == "Settings here: visibility"


def test_a_prototype_key_is_refused_by_the_parser() -> None:
    assert "'__proto__' is not allowed" in problem('{tools: {"__proto__": {}}}').message


def test_snake_case_and_older_names_mean_the_same_setting() -> None:
    for key in ("timeoutSec", "timeout_sec", "timeoutSeconds", "timeout_seconds"):
        assert checked({"tools": {"exec": {key: 77}}}).tools.exec.timeout_sec == 77
    assert checked({"tools": {"by_provider": {"x": {"also_allow": ["y"]}}}}) == checked(
        {"tools": {"byProvider": {"x": {"alsoAllow": ["y"]}}}}
    )


def test_map_keys_are_not_settings() -> None:
    config = checked({"tools": {"byProvider": {"by_provider": {}, "byProvider": {}}}})
    assert list(config.tools.by_provider) == ["by_provider", "byProvider"]


def test_two_spellings_of_one_setting_are_an_error() -> None:
    text = "{tools: {exec: {\n  timeoutSec: 30,\n  timeout_sec: 40,\n}}}"
    assert problem(text) == Issue(
        "tools.exec.timeout_sec",
        "sets the same thing as 'timeoutSec' in this object",
        "<test>",
        3,
        "Keep one of the two; 'timeoutSec' is the documented name",
    )


def test_a_conflict_is_shown_under_the_name_that_was_written() -> None:
    assert problem('{tools: {allow: ["a"], also_allow: ["b"]}}').path == "tools.also_allow"


def test_whole_numbers_may_be_written_with_a_point() -> None:
    config = checked({"tools": {"exec": {"timeoutSec": 30.0}}})
    assert config.tools.exec.timeout_sec == 30
    assert type(config.tools.exec.timeout_sec) is int


@table("number", [10**400, -(10**400), float("nan"), float("inf"), 2**70])
def test_absurd_numbers_are_reported_and_not_printed(number: float) -> None:
    with pytest.raises(ConfigError) as caught:
        checked({"gateway": {"port": number}})
    assert len(str(caught.value)) < 200


def test_free_form_settings_are_taken_as_they_are() -> None:
    settings = {"a": [1, None, {"b": "c"}], "": True}
    config = checked({"plugins": {"entries": {"p": {"config": settings}}}})
    assert config.plugins is not None
    assert config.plugins.entries["p"].config == settings


def test_channels_may_have_their_own_settings() -> None:
    config = checked({"channels": {"telegram": {"botToken": "x", "dmPolicy": "open"}}})
    assert config.channels["telegram"].dm_policy == "open"
    assert problem('{channels: {telegram: {dmPolicy: "opne"}}}').hint == "Did you mean 'open'?"


def test_settings_only_the_reference_has_are_one_warning() -> None:
    text = """{
  acp: { enabled: true },
  tools: { codeMode: "auto" },
  ui: { seamColor: "#fff" },
}"""
    (warning,) = loads(text, env={}).warnings
    assert (warning.line, warning.path) == (2, "acp")
    assert warning.message == "clawkit does not use these settings: acp, tools.codeMode, ui"


def test_a_long_list_of_unused_settings_is_cut() -> None:
    agents = [{"id": f"a{number}", "verboseDefault": "on"} for number in range(60)]
    (warning,) = loads(json.dumps({"agents": {"list": agents}}), env={}).warnings
    assert warning.message.endswith("agents.list[19].verboseDefault and 40 more")


def test_ten_thousand_mistakes_show_fifty() -> None:
    text = "{\n" + "\n".join(f"  wrong{number}: {number}," for number in range(10_000)) + "\n}"
    issues = problems(text)
    assert len(issues) == 51
    assert [issue.line for issue in issues[:50]] == list(range(2, 52))
    assert issues[50].message == "there are 9950 more errors after these"


def test_ten_thousand_wrong_values_show_fifty() -> None:
    issues = problems(json.dumps({"tools": {"deny": [5] * 10_000}}))
    assert [issue.path for issue in issues[:2]] == ["tools.deny[0]", "tools.deny[1]"]
    assert issues[50].message == "there are 9950 more errors after these"


def test_a_thousand_unset_variables_are_fifty_warnings_and_a_number() -> None:
    raw = {"tools": {"deny": ["${GONE}"] * 1000}}
    warnings = loads(json.dumps(raw), env={}).warnings
    assert len(warnings) == 51
    assert warnings[50].message == "there are 950 more warnings like these"


def test_every_error_is_reported_on_request() -> None:
    raw = {"tools": {"deny": [5] * 1000}}
    with pytest.raises(ConfigError) as caught:
        loads(json.dumps(raw), env={}, every_error=True)
    assert [issue.path for issue in caught.value.issues] == [
        f"tools.deny[{i}]" for i in range(1000)
    ]


def test_long_values_and_keys_are_shortened() -> None:
    long = "x" * 1_000_000
    assert len(str(problem(json.dumps({"tools": {"profile": long}})))) < 400
    assert len(str(problem(json.dumps({long: 1})))) < 800
    assert len(str(problem(json.dumps({"tools": {"byProvider": {long: 1}}})))) < 400


@table(
    "text",
    [
        '{gateway: {auth: {token: ["hunter2"]}}}',
        '{models: {providers: {x: {apiKey: ["hunter2"]}}}}',
        '{models: {providers: {x: {baseUrl: "http://x", headers: {Auth: ["hunter2"]}}}}}',
        '{secrets: {providers: {x: {source: "exec", command: "/x", env: {A: ["hunter2"]}}}}}',
        '{tools: {web: {search: {apiKey: {source: "hunter2", id: "X"}}}}}',
        '{env: {vars: {A: {x: "hunter2"}}}}',
        '{tools: {profile: "http://bob:hunter2@host/"}}',
        '{tools: {profile: "PASSWORD=hunter2"}}',
        '{gateway: {port: "${PORT}, password: hunter2"}}',
        json.dumps({"tools": {"profile": f"http://bob:hunter2{'x' * 4000}@host/"}}),
    ],
)
def test_secrets_are_never_shown(text: str) -> None:
    assert "hunter2" not in str(problems(text))


class TestVariables:
    """Settings whose text came from the environment."""

    def check(self, raw: Any) -> Config:
        env = {"PORT": "8080", "ON": "true", "OFF": "0", "WORD": "off", "RATE": "0.5"}
        return checked(substitute(raw, {**env, "BAD": "hunter2"}))

    def test_variables_may_contain_numbers_booleans_and_words(self) -> None:
        assert self.check({"gateway": {"port": "${PORT}"}}).gateway == GatewaySettings(port=8080)
        assert self.check({"browser": {"enabled": "${ON}"}}).browser == Browser(enabled=True)
        assert self.check({"browser": {"enabled": "${OFF}"}}).browser == Browser(enabled=False)
        assert self.check({"tools": {"exec": {"ask": "${WORD}"}}}).tools.exec.ask == "off"

    def test_the_result_is_plain_text(self) -> None:
        config = self.check({"tools": {"allow": ["${WORD}"]}})
        assert config.tools.allow == ["off"]
        assert type(config.tools.allow[0]) is str

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (
                {"gateway": {"port": "${BAD}"}},
                "expected a whole number from 1 to 65535, found the value of '${BAD}'",
            ),
            (
                {"gateway": {"port": "${PORT}0"}},
                "expected a whole number from 1 to 65535, found the value of '${PORT}0'",
            ),
            (
                {"browser": {"enabled": "${BAD}"}},
                "expected true or false, found the value of '${BAD}'",
            ),
            (
                {"tools": {"allow": "${BAD}"}},
                "expected a list of strings, found the value of '${BAD}'",
            ),
            (
                {"gateway": {"port": "${GONE}"}},
                "expected a whole number from 1 to 65535, "
                "but the environment variable GONE is not set",
            ),
            (
                {"tools": {"exec": {"ask": "${GONE}"}}},
                "expected one of off, on-miss, always, "
                "but the environment variable GONE is not set",
            ),
        ],
    )
    def test_errors_show_the_variable_and_not_its_value(self, raw: Any, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.check(raw)
        (issue,) = caught.value.issues
        assert issue.message == message
        assert "hunter2" not in str(caught.value)

    def test_an_unset_one_in_a_text_is_a_warning(self) -> None:
        raw = substitute({"plugins": {"entries": {"p": {"config": {"a": ["${GONE}"]}}}}}, {})
        config, warnings = check(raw, lambda path: ("f", len(path)))
        assert config.plugins is not None
        assert config.plugins.entries["p"].config == {"a": ["${GONE}"]}
        assert [str(warning) for warning in warnings] == [
            "f:6: plugins.entries.p.config.a[0]: the environment variable GONE is not set. "
            "The setting will fail when it is used"
        ]

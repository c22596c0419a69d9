from __future__ import annotations

import base64
import copy
import json
import re
import sys
import threading
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.redact import (
    MASK,
    Redactor,
    compile_pattern,
    header_secrets,
    is_secret_name,
    is_secret_setting,
    mask,
    masking,
    redactor,
)

PLAIN = Redactor()
CANARY = "CANARY7f3aCANARY7f3aCANARY"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYCANARY7f3a"
KEY_LINES = "MIIEpAIBAAKCAQEACANARY7f3aCANARY7f3a\nq0FzxKCANARY7f3aCANARY7f3aabcd\nshort=="


@table(
    ("value", "shown"),
    [("", MASK), ("hunter2", MASK), ("x" * 17, MASK), ("abcdefghijklmnopqr", "abcdef…opqr")],
)
def test_short_secrets_are_hidden_and_long_ones_keep_their_ends(value: str, shown: str) -> None:
    assert mask(value) == shown


# Spelled in two parts, so that no scanner takes this file for a leak.
TOKENS = [
    "sk-" + "proj-CANARY7f3aCANARY7f3aCANARY7f3a",
    "sk-" + "ant-api03-CANARY7f3aCANARY7f3aCANARY7f3a",
    "sk_live_" + "CANARY7f3aCANARY7f3a",
    "rk_test_" + "CANARY7f3aCANARY7f3a",
    "ghp_" + "CANARY7f3aCANARY7f3aCANARY7f3aCAN1",
    "github_pat_" + "11CANARY7f3a_CANARY7f3aCANARY7f3a",
    "glpat-" + "CANARY7f3aCANARY7f3a",
    "glrt-" + "CANARY7f3a.CANARY7f3a",
    "AKIA" + "CANARY7F3ACANARY",
    "ASIA" + "CANARY7F3ACANARY",
    "xoxb-" + "123456789012-CANARY7f3aCANARY",
    "xapp-" + "1-A0CANARY7f3a-CANARY",
    "https://hooks.slack.com/services/" + "T00CANARY/B00CANARY/CANARY7f3aCANARY",
    "https://discord.com/api/webhooks/123456789012/" + "CANARY7f3aCANARY7f3aCANARY",
    "MTCANARY7f3aCANARY7f3aCANARY.G7f3aX." + "CANARY7f3aCANARY7f3aCANARY7f3aCANARY",
    "123456789:" + "AACANARY7f3aCANARY7f3aCANARY7f3aCANA",
    "https://api.telegram.org/bot123456789:" + "AACANARY7f3aCANARY7f3aCANARY7f3aCANA/getMe",
    "AIza" + "CANARY7f3aCANARY7f3aCANARY7f3aCANAR",
    "ya29." + "CANARY7f3aCANARY7f3a",
    "1//0" + "gCANARY7f3aCANARY7f3aCANARY",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJDQU5BUlkifQ.CANARY7f3aCANARY7f3aCANARY7f3aCANARY",
    "hf_" + "CANARY7f3aCANARY7f3aCANARY",
    "gsk_" + "CANARY7f3aCANARY7f3aCANARY",
    "npm_" + "CANARY7f3aCANARY7f3aCANARY7f3aCANARY",
    "SG." + "CANARY7f3aCANARY7f3a.CANARY7f3aCANARY7f3aCANARY",
    "dop_v1_" + "0123456789abcdef0123456789abcdef",
    "dp.pt." + "CANARY7f3aCANARY7f3aCANARY7f3a",
    "dckr_pat_" + "CANARY7f3aCANARY7f3a",
    "tvly-" + "CANARY7f3aCANARY7f3a",
    "ATATT3" + "CANARY7f3aCANARY7f3aCANARY",
    "shpat_" + "CANARY7f3aCANARY7f3aCANARY",
    "hvs." + "CANARY7f3aCANARY7f3aCANARY",
    "tskey-auth-" + "kCANARY7f3aCNTRL-CANARY7f3aCANARY7f3a",
    "tskey-api-" + "kCANARY7f3aCNTRL-CANARY7f3aCANARY7f3a",
    "AGE-SECRET-KEY-1" + "CANARY7F3ACANARY7F3ACANARY",
    "key-" + "0123456789abcdef0123456789abcdef",
]


def test_tokens_of_known_vendors_are_masked_wherever_they_stand(subtests: pytest.Subtests) -> None:
    frames = [
        "{}",
        "the token is {}.",
        '{{"value": "{}"}}',
        "KEY={}\n",
        "({})",
        "**{}**",
        "x {}_",
    ]
    for token in TOKENS:
        for around in frames:
            with subtests.test(token=token, around=around):
                text = around.format(token)
                for shown in (PLAIN.text(text), PLAIN.strict(text)):
                    assert token not in shown
                    assert "7f3aCANARY7f3a" not in shown
                    assert "0123456789abcdef0123" not in shown


def test_values_that_only_a_credential_can_have_are_masked(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (f"Authorization: Bearer {CANARY}", "Authorization: Bearer CANARY…NARY"),
        (f"proxy-authorization: Basic {CANARY}", "proxy-authorization: Basic CANARY…NARY"),
        ("Authorization: Bot hunter", "Authorization: Bot ***"),
        ("Authorization: Custom abc12345", "Authorization: Custom ***"),
        ("authorization: 0123456789", "authorization: ***"),
        (f'{{"Authorization": "Bearer {CANARY}"}}', '{"Authorization": "Bearer CANARY…NARY"}'),
        (f"sent Bearer {CANARY} twice", "sent Bearer CANARY…NARY twice"),
        (
            f"curl -H 'X-Api-Key: {CANARY}' https://example.com",
            "curl -H 'X-Api-Key: CANARY…NARY' https://example.com",
        ),
        ('{\\"x-auth-token\\": \\"hunter22\\"}', '{\\"x-auth-token\\": \\"***\\"}'),
        ("PRIVATE-TOKEN: hunter22", "PRIVATE-TOKEN: ***"),
        ("Set-Cookie: sid=1a2b; Path=/", "Set-Cookie: ***"),
        ("Cookie: a=b; c=d\nnext", "Cookie: ***\nnext"),
        ('{"Cookie": "sid=1a2b"}', '{"Cookie": "***"}'),
        ("curl -H Cookie:'sid=1a2b'", "curl -H Cookie:'***'"),
        ("Cookie: __Host-sid=1a2b", "Cookie: ***"),
        ("postgres://bob:hunter2@db/x", "postgres://bob:***@db/x"),
        ("redis://:hunter2@db", "redis://:***@db"),
        ("ftp://bob:p@ss:word@host/", "ftp://bob:***@host/"),
        (f"https://{CANARY}@example.com", "https://***@example.com"),
        (
            f"401 for https://example.com/?api_key={CANARY}",
            "401 for https://example.com/?api_key=CANARY…NARY",
        ),
        ("/cb?x=1&access_token=hunter2&y=2#z", "/cb?x=1&access_token=***&y=2#z"),
        ("/cb#id_token=hunter2", "/cb#id_token=***"),
        ("?pwd=hunter2", "?pwd=***"),
        (f"?key={CANARY}", "?key=CANARY…NARY"),
        ("user=bob&password=hunter2&x=1", "user=bob&password=***&x=1"),
        ("password=hunter2&user=bob", "password=***&user=bob"),
        ("-d 'client_secret=hunter2'", "-d 'client_secret=***'"),
        ("tool --token hunter2 --verbose", "tool --token *** --verbose"),
        ("tool --api-key=hunter2", "tool --api-key=***"),
        ("tool --password 'two words' x", "tool --password '***' x"),
        ('tool --password "it\'s me" x', 'tool --password "***" x'),
        ("tool --password=the", "tool --password=***"),
        ("tool --pass hunter2", "tool --pass ***"),
        ("curl -u bob:hunter2 https://x", "curl -u bob:*** https://x"),
        ("curl --user bob:hunter2 https://x", "curl --user bob:*** https://x"),
        ("sshpass -p hunter2 ssh bob@host", "sshpass -p *** ssh bob@host"),
        ("sshpass -phunter2 ssh bob@host", "sshpass -p*** ssh bob@host"),
        ("sshpass -p 'two words' ssh bob@host", "sshpass -p '***' ssh bob@host"),
        ("bob:hunter2@tcp(db:3306)/x", "bob:***@tcp(db:3306)/x"),
        ('{"auths": {"r": {"auth": "Ym9iOmh1bnRlcjI="}}}', '{"auths": {"r": {"auth": "***"}}}'),
        ('\\"auth\\":\\"Ym9iOmh1bnRlcjI=\\"', '\\"auth\\":\\"***\\"'),
        ("//registry/:_authToken=hunter2", "//registry/:_authToken=***"),
        ("machine host login bob password hunter2", "machine host login bob password ***"),
        (f"aws_secret_access_key = {AWS_SECRET}", "aws_secret_access_key = wJalrX…7f3a"),
        (f'"SecretAccessKey": "{AWS_SECRET}"', '"SecretAccessKey": "wJalrX…7f3a"'),
        (f"AccountName=x;AccountKey={AWS_SECRET}==", "AccountName=x;AccountKey=wJalrX…3a=="),
    ]
    for text, shown in cases:
        with subtests.test(text=text, shown=shown):
            assert PLAIN.text(text) == shown


def test_ordinary_text_and_source_code_stay_as_they_are(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        "the tokenizer emitted 42 tokens; password prompt shown",
        "tokens: 42",
        "max_tokens=100",
        "password = os.environ['DB_PASSWORD']",
        "api_key: str = field()",
        'config = {"token": load_token(), "secret": "s3cret"}',
        "TOKEN=abc123",
        "Authorization: Bearer $TOKEN",
        'curl -H "Authorization: Bearer ${TOKEN}" https://example.com',
        "curl -H 'X-Api-Key: $KEY'",
        'headers = {"Authorization": f"Bearer {token}"}',
        'headers["x-api-key"] = key',
        "Authorization: Bearer <token>",
        "authorization: Optional[str] = None",
        "Bearer authentication-is-required-here",
        "deploy --token $TOKEN --password=${PASSWORD} --api-key $(cat key)",
        "  --token TOKEN   the token",
        "  --api-key API_KEY",
        "use --password to set it, or --token is required; --secret [value]",
        "--token --verbose",
        "tool --output file.txt --max-tokens 100",
        "https://example.com/?page_token=abc&key=name&sort=asc",
        "https://example.com/?configuration=abc123&region=north",
        "https://example.com:8080/a@b",
        "https://user-name-without-digits@example.com",
        "postgres://bob:$PASSWORD@db/x",
        "git@example.com:team/project.git",
        "docker run -u 1000:1000 image",
        "Cookie: a small file the browser keeps",
        'def output(self, header="Set-Cookie:", sep="\\015\\012"):',
        'print("Set-Cookie:" + name, end="")',
        "sshpass -p $PASSWORD ssh bob@host",
        "sshpass -p PASSWORD ssh bob@host",
        "mkdir -p hunter2",
        '"auth": "oauth2token1", "auth": "none", "auth": "c2VjcmV0"',
        "see bob:hunter2@tcp and later",
        "cache-key: users/42",
        "sk-learn-contrib-packages-for-everyone",
        "risk-assessment-2024-final-version-7",
        "npm_config_registry_timeout_in_seconds",
        "-----BEGIN PRIVATE KEY----- is how such a file begins",
        "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEACANARY7f3a\n-----END CERTIFICATE-----",
        "d41d8cd98f00b204e9800998ecf8427e  file.txt",
        "123e4567-e89b-12d3-a456-426614174000",
        "/usr/lib/python3/dist-packages/module/__init__.py:120",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647",
        "\x1b[31mred\x1b[0m",
        "",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert PLAIN.text(text) is text


def test_logs_hide_the_values_of_secret_names_too(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("TOKEN=abc123", "TOKEN=***"),
        ("export DB_PASSWORD='two words'", "export DB_PASSWORD='***'"),
        ("gateway.auth.token: hunter2", "gateway.auth.token: ***"),
        ('{"apiKey": "hunter2", "n": 1}', '{"apiKey": "***", "n": 1}'),
        ('{\\"apiKey\\": \\"hunter2\\"}', '{\\"apiKey\\": \\"***\\"}'),
        ('"credentials": ["hunter2"]', '"credentials": ["***"]'),
        ("authorization=hunter", "authorization=***"),
        ("HOME=/root\0TOKEN=abc123\0PWD=/srv", "HOME=/root\0TOKEN=***\0PWD=/srv"),
        ("A=1\0TOKEN=a\u200bbc123\0B=2", "A=1\0TOKEN=***\0B=2"),
        ("?token=hunter2&x=1", "?token=***&x=1"),
        ("Cookie: a=b", "Cookie: ***"),
        (f"Authorization: Bearer {CANARY}", "Authorization: Bearer CANARY…NARY"),
    ]
    for text, shown in cases:
        with subtests.test(text=text, shown=shown):
            assert PLAIN.strict(text) == shown


@table(
    "text",
    [
        "the tokenizer emitted 42 tokens; password prompt shown",
        "tokens: 42, max_tokens=100, PWD=/home/bob, sessionKey: main",
        "TOKEN=$OTHER PASSWORD=${PW} SECRET=$(pass show x) PASSWD=${A}${B}",
        "token=null, password: none",
        '{"credentials": {"user": "bob"}}',
        "token: {source: env}",
        "Authorization: Bearer $TOKEN",
    ],
)
def test_logs_keep_what_is_not_a_secret(text: str) -> None:
    assert PLAIN.strict(text) is text


def test_private_keys_lose_everything_between_their_frame(subtests: pytest.Subtests) -> None:
    kinds = ["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", ""]
    joins = ["\n", "\r\n", "\\n"]
    for kind in kinds:
        for join in joins:
            with subtests.test(kind=kind, join=join):
                body = KEY_LINES.replace("\n", join)
                frame = f"{kind}PRIVATE KEY-----"
                key = f"-----BEGIN {frame}{join}{body}{join}-----END {frame}"
                shown = PLAIN.text(f"before {key} after {key}")
                assert "CANARY" not in shown
                assert "short" not in shown
                assert shown.startswith(f"before -----BEGIN {kind}PRIVATE KEY-----")
                assert f"-----END {kind}PRIVATE KEY----- after" in shown


def test_an_encrypted_key_with_headers_is_masked() -> None:
    head = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00CANARY\n\n"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{head}{KEY_LINES}\n-----END RSA PRIVATE KEY-----"
    assert "CANARY" not in PLAIN.text(key)


def test_a_key_cut_short_loses_its_lines_and_keeps_what_follows() -> None:
    shown = PLAIN.text(f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}\nand then some prose")
    assert "CANARY" not in shown
    assert shown.endswith("and then some prose")


@table("hidden", ["\u200b", "\u2060", "\ufeff", "\u00ad", "\x01", "\x1b[01;31m"])
def test_invisible_characters_do_not_protect_a_token(hidden: str) -> None:
    token = TOKENS[0]
    torn = hidden.join(token[i : i + 5] for i in range(0, len(token), 5))
    assert "CANARY7f" not in PLAIN.text(f"it is {torn}!").replace(hidden, "")
    header = f"Authorization: Bea{hidden}rer {CANARY[:9]}{hidden}{CANARY[9:]}"
    assert "CANARY7f" not in PLAIN.text(header).replace(hidden, "")


def test_names_of_secrets_are_known_in_every_spelling(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        *("token", "TOKEN", "access_token", "accessToken", "apiKey", "api_key", "API-KEY"),
        *("apikey", "OPENAI_API_KEY", "x-api-key", "secret", "clientSecret", "client_secret"),
        *("password", "passwd", "PGPASSWORD", "dbPassword", "passphrase", "private_key"),
        *("privateKey", "AWS_SECRET_ACCESS_KEY", "secretKey", "SECRET_KEY_BASE", "authorization"),
        *("Proxy-Authorization", "credentials", "botToken", "gatewayToken", "authtoken"),
        *("_authToken", "refresh_token", "session_token", "set-cookie", "jwt", "MYSQL_PWD"),
        *("creds", "db_creds"),
        *("encryption_key", "token2", "API_KEY_2", "cvv", "cardNumber", "gateway.auth.token"),
    ]
    for name in cases:
        with subtests.test(name=name):
            assert is_secret_name(name)


def test_names_that_only_look_like_secrets_are_left_alone(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        *("tokens", "max_tokens", "maxTokens", "tokenizer", "token_count", "tokenCount", "key"),
        *("keys", "sessionKey", "primary_key", "public_key", "cacheKey", "nextPageToken"),
        *("page_token", "eos_token", "tokenType", "token_url", "passwordFile", "secretName"),
        *("password_policy", "author", "auth", "PWD", "OLDPWD", "pass", "passed", "bypass"),
        *("keyboard", "monkey", "secretary", "number", "-", "_", "42"),
    ]
    for name in cases:
        with subtests.test(name=name):
            assert not is_secret_name(name)


@table("name", ["auth", "pass", "PWD", "cred", "smtpPass", "proxy_auth", "token"])
def test_in_a_configuration_shorter_names_are_secret_too(name: str) -> None:
    assert is_secret_setting(name)


@table("name", ["author", "authMode", "bypass", "passed", "passes", "key", ""])
def test_names_that_only_contain_a_secret_name_are_not_secret(name: str) -> None:
    assert not is_secret_setting(name)


def test_the_end_of_a_very_long_name_decides() -> None:
    assert is_secret_name("x_" * 10_000 + "token")
    assert not is_secret_name("token_" * 10_000 + "count")


@table(
    "lead",
    ["Authorization: Basic ", "x-api-key: ", "?token=", "--password ", '"secret": "', "TOKEN="],
)
def test_very_long_values_are_masked_to_their_end(lead: str) -> None:
    shown = PLAIN.strict(f'{lead}{"ab1-" * 3_000}" after')
    assert len(shown) < 60
    assert "after" in shown


def test_registered_values_are_masked_in_every_common_spelling() -> None:
    value = 'pä"ss/word+1&x'
    redactor = Redactor([value])
    raw = value.encode()
    spellings = [
        value,
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]
    for spelling in spellings:
        shown = redactor.text(f"<{spelling}>")
        assert spelling.rstrip("=") not in shown
        assert len(shown) < len(spelling)


@table("user", ["a", "ab", "abc"])
def test_a_registered_value_inside_longer_base64_is_masked(user: str) -> None:
    value = "hunter2-hunter2-hunter2"
    encoded = base64.b64encode(f"{user}:{value}:rest".encode()).decode()
    shown = Redactor([value]).text(f"X {encoded}")
    assert "…" in shown
    assert encoded[12:24] not in shown


def test_registered_values_that_are_too_short_are_ignored() -> None:
    text = "the pin is 1234567 and more"
    assert Redactor(["1234567", "", "  "]).text(text) is text


def test_the_longest_registered_value_wins() -> None:
    redactor = Redactor(["hunter22", "hunter22-with-a-longer-end"])
    assert redactor.text("hunter22-with-a-longer-end, hunter22") == "hunter…-end, ***"


def test_space_around_a_registered_value_does_not_count() -> None:
    assert Redactor(["hunter22\n"]).text("a hunter22 b") == "a *** b"


def test_configured_patterns_are_masked_too() -> None:
    redactor = Redactor(patterns=[r"ticket-\d+", "/id:([A-Z]{4})/"])
    assert (
        redactor.text("TICKET-12 and id:ABCD but not id:abcd") == "*** and id:*** but not id:abcd"
    )


def test_a_configured_pattern_works_in_long_texts() -> None:
    text = "an ordinary line of text\n" * 500 + "ticket-12\n" + "x" * 5_000
    shown = Redactor(patterns=[r"ticket-\d+"]).text(text)
    assert shown == text.replace("ticket-12", "***")


@table(
    "pattern",
    [
        "(a+)+",
        "(a*)*b",
        "(?:a|b)+",
        "(?P<x>a{2,})*",
        "((a+)b)*",
        "([a)]+)+",
        r"(\)a+){3}",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "(?x) a",
    ],
)
def test_patterns_that_can_take_forever_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="could be very slow"):
        Redactor(patterns=[pattern])


@table("pattern", ["(", "[a", "*a", "a{2,1}"])
def test_broken_patterns_are_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        compile_pattern(pattern)


@table(
    "pattern",
    [r"(ab)+", r"(?:foo|bar)\d+", r"[(+]+x", r"a{,3}b", r"(?<=x)(a+)?", r"(foo+)bar+?", r"\(a+\)+"],
)
def test_harmless_patterns_are_accepted(pattern: str) -> None:
    assert compile_pattern(pattern)


def test_flags_of_a_pattern_are_honoured() -> None:
    assert compile_pattern("/^a.b$/gims").search("x\nA\nB\n")
    assert not compile_pattern("/a/").search("A")


def test_a_pattern_that_matches_nothing_or_a_mask_changes_nothing() -> None:
    redactor = Redactor(patterns=["x*", r"\*"])
    assert redactor.text("a ***** b, nothing else") == "a ***** b, nothing else"


def test_secret_fields_of_objects_are_masked_and_the_object_is_not_changed() -> None:
    data = {
        "name": "bob",
        "apiKey": "hunter2",
        "pin": {"token": 1234, "on": True, "password": None, "secret": ""},
        "list": [{"password": "hunter2"}, f"Bearer {CANARY}", 7],
        "credentials": {"user": "bob", "more": ["x", 2, False]},
        f"sk-{CANARY}": 1,
        "passphrase": object,
        "auth": "Ym9iOmh1bnRlcjI=",
    }
    before = copy.deepcopy(data)
    shown = PLAIN.data(data)
    assert data == before
    assert shown == {
        "name": "bob",
        "apiKey": MASK,
        "pin": {"token": MASK, "on": True, "password": None, "secret": ""},
        "list": [{"password": MASK}, "Bearer CANARY…NARY", 7],
        "credentials": {"user": MASK, "more": [MASK, MASK, False]},
        "sk-CAN…NARY": 1,
        "passphrase": MASK,
        "auth": MASK,
    }


def test_objects_without_secrets_come_back_as_they_are() -> None:
    data = {"a": [1, 2.5, None, {"b": "text"}], "maxTokens": 100, "sessionKey": "main"}
    assert PLAIN.data(data) is data
    frozen = MappingProxyType(data)
    assert PLAIN.data(frozen) is frozen


def test_references_to_secrets_are_not_masked() -> None:
    data = {"token": {"source": "env", "id": "TOKEN"}, "password": "${PW}", "apiKey": "$KEY"}
    assert PLAIN.data(data) is data
    more = {"token": {"source": "env", "id": "TOKEN", "value": "hunter2"}}
    assert "hunter2" not in str(PLAIN.data(more))


def test_strings_in_data_can_be_masked_strictly() -> None:
    assert PLAIN.data({"line": "TOKEN=hunter2"}) == {"line": "TOKEN=hunter2"}
    assert PLAIN.data({"line": "TOKEN=hunter2"}, strict=True) == {"line": "TOKEN=***"}


def test_values_that_are_not_json_become_text() -> None:
    assert PLAIN.data({1: {"x"}, "b": (1, f"Bearer {CANARY}")}) == {
        "1": "{'x'}",
        "b": [1, "Bearer CANARY…NARY"],
    }


def test_data_nested_without_end_is_cut_off() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert "nested too deeply" in str(PLAIN.data(endless))


PIECES = st.sampled_from(
    [
        *TOKENS,
        *(
            "Authorization: ",
            "Bearer ",
            "Basic ",
            "--token ",
            "--password=",
            "?token=",
            "&key=",
            "&",
        ),
        *("TOKEN=", '"apiKey": "', "password: ", "Cookie: a=", "://u:", "@", "-u ", "curl ", "sk-"),
        *("eyJ", ".", "…", "***", "-----BEGIN PRIVATE KEY-----", "-----END", "\u200b", "\x1b[0m"),
        *("$X", "${X}", "{x}", " ", "\n", '"', "'", "\\", "ab1", "hunter22", CANARY, "=", ":", "-"),
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
@example("ghp_AAAAAAAAAAAAAAAAAAAAAAAAAAeyJa-bcdefghijkl.abcdefgh.abcdefgh12")
@example("x-api-key: hunter22,Bearer sk-")
def test_masking_twice_changes_nothing_more(text: str) -> None:
    redactor = Redactor(["hunter22"], [r"ab\d"])
    for masked in (redactor.text, redactor.strict):
        once = masked(text)
        assert masked(once) == once


@given(st.lists(PIECES, max_size=6).map("".join), st.sampled_from(TOKENS))
def test_a_separate_token_is_masked_whatever_surrounds_it(text: str, token: str) -> None:
    assert f" {token} " not in PLAIN.text(f"{text} {token} {text}")


@given(st.text())
def test_any_text_can_be_redacted(text: str) -> None:
    PLAIN.strict(text)
    if not any(char in text for char in "=:-"):
        assert len(PLAIN.text(text)) == len(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | PIECES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PIECES, inner, max_size=3),
        max_leaves=10,
    )
)
def test_any_json_value_can_be_redacted(value: Any) -> None:
    before = copy.deepcopy(value)
    PLAIN.data(value, strict=True)
    assert repr(value) == repr(before)


@pytest.mark.parametrize(
    "piece",
    [
        *("sk-", "sk- ", "-eyJ", "eyJabcdefgh.", "-----BEGIN PRIVATE KEY-----", "?key=", "://a:"),
        *(
            '--token "{{ ',
            "Bearer ",
            "token=",
            "authorization: ",
            '"',
            "-",
            "a",
            "ab/+",
            "cookie: ",
        ),
        *(
            "x-api-key: ",
            '"a=',
            "--password '",
            'password: "',
            "\u200b",
            "\x1b[",
            "curl -u a:",
            "=",
        ),
        *("machine login a password ", "M" + "a" * 25 + ".", "AKIA-", "{", "$(", "a.", "&a=b"),
    ],
)
def test_long_hostile_text_is_masked_in_linear_time(piece: str) -> None:
    # Quadratic work on this much text would run into the time limit of the test itself.
    masked = PLAIN.strict(piece * (200_000 // len(piece)))
    assert PLAIN.strict(masked) == masked


def test_learned_secrets_are_masked_from_then_on() -> None:
    redactor = Redactor(["first-value-of-mine"])
    text = "the plain-second-value is used"
    assert redactor.text(text) is text
    redactor.learn(["plain-second-value"])
    assert "plain-second-value" not in redactor.text(text)
    assert "first-value-of-mine" not in redactor.text("first-value-of-mine")
    assert quote("plain-second-value") not in redactor.text(f"?a={quote('plain-second-value')}")


def test_threads_that_mask_never_hide_what_others_learn() -> None:
    """Neither may two that learn at once lose a value, nor a text be taken for clean that one
    looked at just before."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for round_ in range(20):
            redactor = Redactor()
            secrets = [f"zq{round_:03}x{number:03}kw" for number in range(64)]
            done = threading.Event()

            def mask(redactor: Redactor = redactor, secrets: list[str] = secrets) -> None:
                while not done.is_set():  # noqa: B023  # joined before the next round
                    for secret in secrets:
                        redactor.text(secret)

            def learn(part: list[str], redactor: Redactor = redactor) -> None:
                for secret in part:
                    redactor.learn([secret])

            masking = threading.Thread(target=mask)
            masking.start()
            learning = [threading.Thread(target=learn, args=(secrets[at::4],)) for at in range(4)]
            for thread in learning:
                thread.start()
            for thread in learning:
                thread.join()
            done.set()
            masking.join()
            assert [secret for secret in secrets if redactor.text(secret) == secret] == []
    finally:
        sys.setswitchinterval(before)


class TestTextThatWasSearchedBefore:
    """What a model reads is shown and stored as well: the same object is not searched again."""

    LINE = "the quick brown fox jumps over the lazy dog and says nothing of any interest\n"

    def test_masked_text_is_returned_unchanged(self) -> None:
        redactor = Redactor()
        given = f"{self.LINE}key sk-abcdefghijklmnopqrstuvwxyz0123456789"
        shown = redactor.text(given)
        assert shown != given
        assert redactor.text(shown) is shown
        assert redactor.strict(shown) == Redactor().strict(given)

    def test_a_secret_that_was_learned_since_is_masked(self) -> None:
        redactor = Redactor()
        shown = redactor.text(f"{self.LINE}hunter2hunter2")
        assert "hunter2" in shown
        redactor.learn(["hunter2hunter2"])
        assert "hunter2hunter2" not in redactor.text(shown)
        assert "hunter2hunter2" not in redactor.strict(shown)

    @pytest.mark.parametrize("gap", ["", "\u200b", "\x1b[0m"])
    def test_a_strict_search_still_finds_assignments(self, gap: str) -> None:
        redactor = Redactor()
        given = f"{self.LINE}DB_PASS{gap}WORD=hunter2"
        shown = redactor.text(given)
        assert "hunter2" in shown
        assert "hunter2" not in redactor.strict(shown)
        assert redactor.strict(shown) == Redactor().strict(given)

    def test_many_masked_texts_are_returned_unchanged(self) -> None:
        redactor = Redactor()
        shown = [redactor.text(f"{self.LINE}{number} TOKEN=hunter{number}") for number in range(50)]
        assert [redactor.text(each) for each in shown] == shown
        assert not any("hunter" in redactor.strict(each) for each in shown)


LEADS = re.findall(
    r"\S+| |\n",
    "bearer Authorization: cookie= access account _ key K k = - -- token z b ? & a1b2c3d4e5f6g7h8\n"
    "İ ı ſ \u212a authorızation: acceſſkey: coo\u212aie: é",
)


@given(st.lists(st.sampled_from(LEADS), max_size=12).map("".join))
def test_the_reduced_expression_finds_the_same_as_the_whole_one(text: str) -> None:
    chosen = masking._find_lead(text)
    spans = [found.span() for found in chosen.finditer(text)] if chosen else []
    assert spans == [found.span() for found in re.finditer(masking._LEAD, text)]


@table("code", range(128))
def test_invisible_ascii_is_the_same_in_both_searches(code: int) -> None:
    text = f"a{chr(code)}b"
    assert redactor._has_invisible(text) is bool(re.search(redactor._INVISIBLE, text))


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("Authorization", "Bearer abc", ["Bearer abc", "abc"]),
        ("X-Key", "abc", ["abc", "abc"]),
        ("x-client", "foo", []),
        ("x-client", "clients of the tea house", []),
        ("x-client", "q8Zr.41/unknown-form", ["q8Zr.41/unknown-form"]),
        ("x-client", "Lab 0123456789abcdef", ["0123456789abcdef"]),
        ("Accept", "application/json", []),
        ("accept-language", "en-US,en;q=0.9,de;q=0.8", []),
    ],
)
def test_headers_are_secret_by_name_or_if_they_look_like_tokens(
    name: str, value: str, secrets: list[str]
) -> None:
    assert [*header_secrets({name: value})] == secrets

"""Masks must not be written in place of the secrets that they hide."""

from __future__ import annotations

import random

import pytest

from clawkit.errors import ToolInputError
from clawkit.fs.masks import (
    Masked,
    find_masks,
    first_mask,
    hide_keys,
    is_env_file,
    mask_env,
    mask_settings,
    refuse_masks,
)
from clawkit.redact import Redactor

TOKEN = "ghp_abcdefghijklmnopqrstuvwx1234"
ENV = f"A=1\nAPI_KEY=supersecret\nexport DB_PASSWORD='x y'\nTOKEN={TOKEN}\n"
KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA1234\nabcdefghijklmnopqrst\n"
    "-----END RSA PRIVATE KEY-----\n"
)
REDACTOR = Redactor(["registered-secret-value"])


def test_files_of_settings_are_known_by_name(subtests: pytest.Subtests) -> None:
    for path in [
        ".env",
        "a/.env",
        ".env.local",
        "/x/prod.env",
        ".ENV",
        ".Env.Production",
        ".envrc",
        ".env~",
        ".env-prod",
    ]:
        with subtests.test(path=path):
            assert is_env_file(path)


@pytest.mark.parametrize("path", ["env", "environment.py", ".environment", "a.env.py", ".env/a"])
def test_other_files_are_not(path: str) -> None:
    assert not is_env_file(path)


def test_everything_that_was_masked_in_what_was_shown_is_found() -> None:
    shown = REDACTOR.strict(ENV)
    assert find_masks(ENV, shown, REDACTOR, env=True) == [
        Masked("***", "API_KEY", 2),
        Masked("***", "DB_PASSWORD", 3),
        Masked("ghp_ab…1234", "TOKEN", 4),
    ]


def test_masks_of_any_file_are_found(subtests: pytest.Subtests) -> None:
    for before in [
        "use registered-secret-value here\n",
        "curl -H 'Authorization: Bearer abcdefgh12345678901234' x\n",
        "url = https://user:hunter2@example.com/\n",
        KEY,
        f"text {TOKEN}, more\n",
        f"{TOKEN}:{TOKEN}\n",
    ]:
        with subtests.test(before=before):
            shown = REDACTOR.text(before)
            assert shown != before
            assert find_masks(before, f"new first line\n{shown}", REDACTOR)
            assert not find_masks(before, f"new first line\n{before}", REDACTOR)


def test_masks_behind_another_name_are_found() -> None:
    assert find_masks(ENV, "NEW_API_KEY=***\n", REDACTOR, env=True) == [
        Masked("***", "NEW_API_KEY", 1)
    ]


def test_masks_in_another_form_than_they_were_shown_are_found() -> None:
    before = f"TOKEN={TOKEN}\nDEBUG=1\n"
    assert find_masks(before, "TOKEN=***\nDEBUG=0\n", REDACTOR, env=True) == [
        Masked("***", "TOKEN", 1)
    ]


def test_the_ends_of_a_secret_are_found_without_the_file() -> None:
    assert find_masks(None, 'x = {"apiKey": "sk-abc…wxyz"}', REDACTOR) == [
        Masked("sk-abc…wxyz", "apiKey", 1)
    ]
    assert not find_masks(None, "he said: wait a…minute, please", REDACTOR)


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n***\n\nand ***bold*** text\n",
        "password = '***'  # shown to users\n",
        "wait… what\n",
        "a ** b *** c\n",
    ],
)
@pytest.mark.parametrize("before", [None, "", "# Title\nsome text\n"])
def test_asterisks_and_ellipses_that_are_not_masks_are_accepted(
    text: str, before: str | None
) -> None:
    assert not find_masks(before, text, REDACTOR)


def test_masks_that_the_file_holds_itself_pass() -> None:
    before = f"password=***\nkey: abcdef…wxyz\nTOKEN={TOKEN}\n"
    assert not find_masks(before, before.replace("TOKEN", "KEY_TOKEN"), REDACTOR)


def test_only_the_first_few_masks_are_reported() -> None:
    before = "".join(f"K{n}_TOKEN=secret{n}\n" for n in range(50))
    assert len(find_masks(before, REDACTOR.strict(before), REDACTOR, env=True)) == 5


async def test_the_refusal_names_the_lines_and_the_remedy() -> None:
    before, after = "\nAPI_KEY=secret-1\n", "\nAPI_KEY=***\n"
    with pytest.raises(ToolInputError, match=r"line 2 \('\*\*\*' for 'API_KEY'\).*Use edit"):
        await refuse_masks(before, after, REDACTOR, path=".env", env=True)
    await refuse_masks(after, after, REDACTOR, path=".env", env=True)


def test_private_keys_are_hidden_and_lines_stay_where_they_are() -> None:
    text = f"before\n{KEY}after\n"
    hidden = hide_keys(text)
    assert hidden.split("\n")[2:4] == ["***", "***"]
    assert hidden.count("\n") == text.count("\n")
    assert "MII" not in hidden
    unended = text.partition("-----END")[0]
    assert "MII" not in hide_keys(unended)
    assert hide_keys("no PRIVATE KEY here") == "no PRIVATE KEY here"


def test_a_part_of_a_text_is_masked_like_the_whole() -> None:
    rng = random.Random(1)
    header, end, line = KEY.split("\n")[0], KEY.split("\n")[-2], KEY.split("\n")[1]
    parts = [
        header,
        end,
        line,
        header + line,
        line + end,
        header + header[5:],
        "-----",
        "- -- ----",
        "",
    ]
    parts += [
        "-----BEGIN CERTIFICATE-----",
        "text",
        "----" + header,
        header + "--",
        "PRIVATE KEY-----",
    ]
    for _ in range(500):
        lines = [rng.choice(parts) + "\n" for _ in range(rng.randrange(1, 9))]
        first = rng.randrange(len(lines))
        last = rng.randrange(first, len(lines)) + 1
        start, stop = len("".join(lines[:first])), len("".join(lines[:last]))
        whole = [f"{each}\n" for each in hide_keys("".join(lines)).split("\n")]
        assert hide_keys("".join(lines), start, stop) == "".join(whole[first:last])


def test_the_first_mask_of_a_text_is_reported() -> None:
    assert first_mask("a=*** b=abcdef…wxyz") == "***"
    assert first_mask("b=abcdef…wxyz") == "abcdef…wxyz"
    assert first_mask("b=**** …") == ""


def test_whole_values_of_settings_are_masked_line_for_line(subtests: pytest.Subtests) -> None:
    for text, shown in [
        ("PASSWORD=a b c d\nPORT=1", "PASSWORD=***\nPORT=1"),
        ('DB_PASSWORD="one\ntwo\nthree"\nPORT=1', "DB_PASSWORD=***\n***\n***\nPORT=1"),
        ("export API_KEY='it'\\''s here'", "export API_KEY=***"),
        ("API_KEY=abc # a comment", "API_KEY=***"),
        ("KEY=abc\nPASS=x\nPIN=1234\nAUTH=yes", "KEY=***\nPASS=***\nPIN=***\nAUTH=***"),
        ("API_KEY=\nPORT=1", "API_KEY=\nPORT=1"),
        ("# API_KEY is needed\n\nMODE=dev", "# API_KEY is needed\n\nMODE=dev"),
        ("MONKEY=1\nKEYBOARD=us", "MONKEY=1\nKEYBOARD=us"),
    ]:
        with subtests.test(text=text):
            assert mask_env(text, Redactor()) == shown


def test_a_part_of_a_settings_file_is_shown_without_values() -> None:
    part = "rest of a secret\n# comment\n\nexport MODE=dev\nEMPTY="
    assert mask_settings(part) == "***\n# comment\n\nexport MODE=***\nEMPTY="

"""Secrets in `.env` files are masked in what commands print."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.tables import table

from clawkit.fs.masks import find_secrets, secret_values
from clawkit.testing import open_kit

VALUE = "CANARY-7f3a-long"


@table(
    ("line", "values"),
    [
        (f"API_KEY={VALUE}", [VALUE]),
        (f"export API_KEY='{VALUE}' # mine", [VALUE]),
        (f'DB_PASSWORD="{VALUE} two"', [f"{VALUE} two"]),
        (f"API_KEY={VALUE} # mine", [VALUE]),
        (f"API_KEY: {VALUE}", [VALUE]),
        ("API_KEY=short", []),
        ("API_KEY=$OTHER_VARIABLE", []),
        (f"DEBUG={VALUE}", []),
        ("just words", []),
    ],
)
def test_only_values_of_secret_names_that_are_long_count(line: str, values: list[str]) -> None:
    assert secret_values(line) == values


def test_files_are_found_below_but_not_through_links_or_pipes(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "out"
    for folder in (workspace / "a" / "b", workspace / "node_modules", outside):
        folder.mkdir(parents=True)
    (workspace / "a" / "b" / ".env.local").write_text(f"API_KEY={VALUE}")
    (workspace / "node_modules" / ".env").write_text("API_KEY=of-a-package")
    (outside / ".env").write_text("API_KEY=outside-the-workspace")
    (workspace / "link").symlink_to(outside)
    (workspace / ".env").symlink_to(outside / ".env")
    os.mkfifo(workspace / "pipe.env")
    assert find_secrets(str(workspace)) == [VALUE]
    assert find_secrets(str(tmp_path / "missing")) == []


@pytest.mark.parametrize(
    "command", ["cat .env", "cat < .env", "cut -d= -f2 .env", "rev .env | rev"]
)
async def test_output_of_commands_is_masked(command: str, workspace: Path) -> None:
    (workspace / ".env").write_text(f"API_KEY={VALUE}\nDEBUG=1\n")
    async with open_kit(workspace) as kit:
        result = await kit.call("exec", {"command": command})
        assert result.details["exitCode"] == 0
        assert VALUE not in str(result.to_json())
        code = await kit.call("code_execution", {"code": "print(open('.env').read())"})
        assert "DEBUG=1" in code.as_text()
        assert VALUE not in str(code.to_json())

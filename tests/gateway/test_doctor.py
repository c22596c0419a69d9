"""`clawkit doctor` over the gateway."""

from __future__ import annotations

import os
from pathlib import Path

from tests.gateway.conftest import TOKEN, serve

SECRET = "sk-very-secret-value-123456"


def write(text: str) -> Path:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


async def test_the_findings_are_those_of_the_command_without_secrets() -> None:
    auth = f'gateway: {{auth: {{token: "{TOKEN}", password: "{SECRET}"}}}}'
    file = write(f'{{{auth}, tools: {{deny: ["no_such_tool"]}}}}')
    async with serve(str(file)) as ground:
        peer = await ground.join()
        found = await peer.call("doctor.run")
        assert found["configValid"] is True
        assert any("no_such_tool" in each["what"] for each in found["findings"])
        # The file is read again: the gateway has loaded it when it was still valid.
        file.write_text(f'{{tools: {{profile: "{SECRET}"}}}}', encoding="utf-8")
        found = await peer.call("doctor.run")
        assert (found["ok"], found["configValid"]) == (False, False)
        assert any(each["section"] == "config" for each in found["findings"])
        assert SECRET not in str(found)


async def test_a_configuration_without_a_file_is_not_examined() -> None:
    async with serve({}) as ground:
        peer = await ground.join()
        assert (await peer.refused("doctor.run"))["code"] == "UNAVAILABLE"

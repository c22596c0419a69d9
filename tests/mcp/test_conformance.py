"""The client scenarios of the public conformance suite, in both of its versions.

Each scenario starts a server and runs `conformance_client.py` against it. `make test` runs a few,
`make bench` all. What is expected to fail is named with the reason.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.node import FULL, NEEDS_NODE, NODE, PACKAGES

pytestmark = [NEEDS_NODE, pytest.mark.untraced, pytest.mark.timeout(120)]
CLIENT = Path(__file__).parent / "conformance_client.py"
BOTH = """
initialize tools_call elicitation-sep1034-client-defaults sse-retry auth/metadata-default
auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/basic-cimd
auth/scope-from-www-authenticate auth/scope-from-scopes-supported auth/scope-omitted-when-undefined
auth/scope-step-up auth/scope-retry-limit auth/token-endpoint-auth-basic
auth/token-endpoint-auth-post auth/token-endpoint-auth-none auth/pre-registration
auth/2025-03-26-oauth-metadata-backcompat auth/2025-03-26-oauth-endpoint-fallback
auth/resource-mismatch auth/offline-access-scope auth/offline-access-not-supported
auth/client-credentials-jwt auth/client-credentials-basic
"""
SCENARIOS = {
    "mcp-conformance-2025": f"{BOTH} auth/cross-app-access-complete-flow".split(),
    "mcp-conformance-2026": f"""{BOTH}
    request-metadata auth/authorization-server-migration auth/iss-supported auth/iss-not-advertised
    auth/iss-supported-missing auth/iss-wrong-issuer auth/iss-unexpected auth/iss-normalized
    auth/metadata-issuer-mismatch auth/enterprise-managed-authorization auth/dpop auth/dpop-nonce
    auth/wif-jwt-bearer sep-2322-client-request-state http-standard-headers http-custom-headers
    http-invalid-tool-headers json-schema-ref-no-deref json-schema-2020-12-preservation
    sep-2640-client-no-prefetch sep-2640-client-verify-digest sep-2640-client-verify-size
    sep-2640-client-verify-frontmatter""".split(),
}
_MACHINE = "an extension for programs without a person, which clawkit does not offer"
EXPECTED_FAILURES = {
    ("mcp-conformance-2025", "auth/2025-03-26-oauth-metadata-backcompat"): (
        "its metadata names another issuer than the one that was asked, which the later version of "
        "the suite corrects; clawkit refuses that"
    ),
    **{
        (suite, scenario): _MACHINE
        for suite in SCENARIOS
        for scenario in (
            *("auth/client-credentials-jwt", "auth/client-credentials-basic"),
            *("auth/cross-app-access-complete-flow", "auth/enterprise-managed-authorization"),
            "auth/wif-jwt-bearer",
        )
    },
    **dict.fromkeys(
        (("mcp-conformance-2026", "auth/dpop"), ("mcp-conformance-2026", "auth/dpop-nonce")),
        "tokens that are bound to a key are an extension, which clawkit does not offer",
    ),
}
ALWAYS = {
    ("mcp-conformance-2025", "initialize"),
    ("mcp-conformance-2025", "sse-retry"),
    ("mcp-conformance-2026", "tools_call"),
    ("mcp-conformance-2026", "auth/scope-step-up"),
}


def run_suite(suite: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = PACKAGES / suite / "dist" / "index.js"
    env = {**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [str(NODE), str(program), *arguments], env=env, capture_output=True, text=True, check=False
    )


def cases() -> list[object]:
    marks = [pytest.mark.long, pytest.mark.skipif(not FULL, reason="for make bench")]
    return [
        pytest.param(suite, each, marks=[] if (suite, each) in ALWAYS else marks)
        for suite, scenarios in SCENARIOS.items()
        for each in scenarios
    ]


@pytest.mark.parametrize(("suite", "scenario"), cases())
def test_a_scenario_passes_or_fails_for_a_known_reason(suite: str, scenario: str) -> None:
    command = f"{sys.executable} {CLIENT}"
    done = run_suite(suite, "client", "--command", command, "--scenario", scenario)
    fails = (suite, scenario) in EXPECTED_FAILURES
    assert ("OVERALL: PASSED" in done.stdout + done.stderr) is not fails, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(not FULL, reason="for make bench")
@pytest.mark.parametrize("suite", SCENARIOS)
def test_all_scenarios_of_the_suite_are_here(suite: str) -> None:
    found = re.findall(r"^  - (\S+)", run_suite(suite, "list", "--client").stdout, re.MULTILINE)
    assert sorted(found) == sorted(SCENARIOS[suite])

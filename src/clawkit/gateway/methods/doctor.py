"""The method for `clawkit doctor`: what the command finds, without secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from clawkit.config.paths import home
from clawkit.core.tasks import in_thread
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import GatewayError, NoParams, now_ms
from clawkit.gateway.scopes import ADMIN

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

DOCTOR_S = 120.0


class DoctorReport(Struct, frozen=True, rename="camel"):
    """What the command prints; the rest of it is about `--fix`."""

    ok: bool
    config_valid: bool
    findings: list[dict[str, str]]


async def _run(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    file = caller.gateway.loaded.file
    if file is not None and file.startswith("<"):
        raise GatewayError("UNAVAILABLE", "the configuration does not come from a file")
    report: DoctorReport = await in_thread(_examine, file)
    redact = caller.gateway.redactor.strict
    findings = [{key: redact(each[key]) for key in each} for each in report.findings]
    shown = {"ok": report.ok, "configValid": report.config_valid, "findings": findings}
    return {"ts": now_ms(), **shown}


def _examine(file: str | None) -> DoctorReport:
    """The report of the command, which belongs to a layer above this one. `-P`: modules are not
    imported from the directory it is in."""
    argv = [sys.executable, "-P", "-m", "clawkit", "doctor", "--json"]
    argv += ["--config", file] if file is not None else []
    try:
        done = subprocess.run(  # our own program
            argv,
            cwd=home(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DOCTOR_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=DoctorReport)
    except subprocess.TimeoutExpired:
        what = f"took more than {DOCTOR_S:g} seconds"
    except ValueError:
        what = "printed no report"
    raise GatewayError("UNAVAILABLE", f"clawkit doctor {what}; run it in a terminal")


METHODS = (Method("doctor.run", ADMIN, NoParams, _run, limited=True),)

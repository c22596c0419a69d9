"""A server with the tools that the conformance suite calls. Prints its address, and runs until it
is stopped."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from clawkit import Result, Tool, Toolkit
from clawkit.content import Image, Text
from clawkit.core.approval import Approver
from clawkit.core.context import Context
from clawkit.errors import ToolError
from clawkit.gateway.mcp_standalone import serve_http
from clawkit.mcp_server.served_call import Elicited, current
from clawkit.runtime import load_config

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIA"
    "X8jx0gAAAABJRU5ErkJggg=="
)
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TEXT = {"type": "string"}


def form(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"message": message, "requestedSchema": schema}


async def ask(asked: dict[str, Any], name: str = "question") -> Elicited:
    """Ask as approvals do, with another form."""
    served = current.get()
    if served is None:
        raise ToolError("no one can be asked")
    return await served.elicit(asked, name)


async def simple_text(_params: Any, _ctx: Context) -> str:
    return "This is a simple text response for testing."


async def image(_params: Any, _ctx: Context) -> Image:
    return Image(PIXEL, "image/png")


async def several(_params: Any, _ctx: Context) -> Result:
    return Result((Text("Multiple content types test:"), Image(PIXEL, "image/png")))


async def fail(_params: Any, _ctx: Context) -> str:
    raise ToolError("This tool intentionally returns an error for testing")


async def progress(_params: Any, ctx: Context) -> str:
    for part in (0, 50, 100):
        await ctx.update(f"{part} of 100")
        await asyncio.sleep(0.01)
    return "done"


async def elicit(params: Any, _ctx: Context) -> str:
    said = await ask(form(params["message"], username=TEXT, email=TEXT))
    return f"User response: action: {said.action}, content: {said.content}"


async def elicit_defaults(_params: Any, _ctx: Context) -> str:
    status = {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"}
    asked = form(
        "Please check",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status=status,
        verified={"type": "boolean", "default": True},
    )
    said = await ask(asked)
    return f"Elicitation completed: action={said.action}, content={said.content}"


async def elicit_enums(_params: Any, _ctx: Context) -> str:
    options, values = ["option1", "option2", "option3"], ("value1", "value2", "value3")
    titled = [{"const": value, "title": f"The {value}"} for value in values]
    names = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]}
    asked = form(
        "Please choose",
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", **names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    said = await ask(asked)
    return f"Elicitation completed: action={said.action}, content={said.content}"


async def greet(_params: Any, _ctx: Context) -> str:
    said = await ask(form("What is your name?", name=TEXT), "user_name")
    return f"Hello, {(said.content or {}).get('name')}!"


async def confirm(_params: Any, _ctx: Context) -> str:
    await ask(form("Please confirm", ok={"type": "boolean"}), "confirm")
    return "state-ok"


async def two_rounds(_params: Any, _ctx: Context) -> str:
    name = await ask(form("Step 1: What is your name?", name=TEXT), "step1")
    color = await ask(form("Step 2: What is your favorite color?", color=TEXT), "step2")
    return f"{name.content} {color.content}"


SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "$anchor": "addressDef",
            "properties": {"street": TEXT, "city": TEXT},
        }
    },
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
TOOLS = {
    "test_simple_text": (simple_text, NOTHING),
    "test_image_content": (image, NOTHING),
    "test_multiple_content_types": (several, NOTHING),
    "test_error_handling": (fail, NOTHING),
    "test_tool_with_progress": (progress, NOTHING),
    "test_elicitation": (elicit, {"type": "object", "properties": {"message": TEXT}}),
    "test_elicitation_sep1034_defaults": (elicit_defaults, NOTHING),
    "test_elicitation_sep1330_enums": (elicit_enums, NOTHING),
    "test_streaming_elicitation": (greet, NOTHING),
    "test_logging_tool": (simple_text, NOTHING),
    "test_input_required_result_capabilities": (greet, NOTHING),
    "test_input_required_result_elicitation": (greet, NOTHING),
    "test_input_required_result_request_state": (confirm, NOTHING),
    "test_input_required_result_tampered_state": (confirm, NOTHING),
    "test_input_required_result_multi_round": (two_rounds, NOTHING),
    "json_schema_2020_12_tool": (simple_text, SCHEMA_2020_12),
}


def main() -> None:
    tools = [
        Tool(name, f"For the conformance suite: {name}.", schema, execute)
        for name, (execute, schema) in TOOLS.items()
    ]
    off = {"loopDetection": {"enabled": False}}
    loaded = load_config({"gateway": {"auth": {"mode": "none"}}, "tools": off})

    def open_kit(session: str, _workspace: str, approver: Approver | None) -> Toolkit:
        here = os.getcwd()
        return Toolkit.open(
            loaded,
            workspace=here,
            session=session,
            approver=approver,
            tools=tools,
            allow=["test_*", "json_*"],
        )

    serve_http(loaded, open_kit, int(sys.argv[1]), lambda address: print(address, flush=True))


if __name__ == "__main__":
    main()

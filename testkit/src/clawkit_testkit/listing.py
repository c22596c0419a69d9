"""Lists of models, as servers return them."""

from __future__ import annotations

from typing import Any

import msgspec

from clawkit.testing.answers import encode
from clawkit_testkit.http11 import Received

_CONTEXT = 32_768
_DAY = "2026-01-01T00:00:00Z"


def list_models(received: Received, models: tuple[str, ...], ollama: bool) -> tuple[int, bytes]:
    """Status and body for a request that is not for a model's answer."""
    path = received.path.partition("?")[0]
    if received.method == "GET" and path.endswith("/models"):
        data = [
            {"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "scripted"}
            for name in models
        ]
        return 200, encode({"object": "list", "data": data})
    if ollama and path == "/api/tags":
        return 200, encode({"models": [_tag(name) for name in models]})
    if ollama and path == "/api/show":
        return _show(received, models)
    message = f"Invalid URL ({received.method} {path})"
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return 404, encode({"error": error})


def _tag(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": _DAY,
        "size": 4_683_087_332,
        "digest": "5c" * 32,
        "details": _details(),
    }


def _show(received: Received, models: tuple[str, ...]) -> tuple[int, bytes]:
    try:
        asked = received.body if received.data else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 400, encode({"error": "the body is no JSON"})
    name = asked.get("model") or asked.get("name") if isinstance(asked, dict) else None
    if name is not None and name not in models:
        return 404, encode({"error": f"model '{name}' not found"})
    info = {"general.architecture": "scripted", "scripted.context_length": _CONTEXT}
    capabilities = ["completion", "tools"]
    shown = {"details": _details(), "model_info": info, "capabilities": capabilities}
    return 200, encode(shown | {"parameters": f"num_ctx {_CONTEXT}", "modified_at": _DAY})


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "gguf",
        "family": "scripted",
        "families": ["scripted"],
        "parameter_size": "7.6B",
        "quantization_level": "Q4_K_M",
    }

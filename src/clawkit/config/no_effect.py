"""Settings that are accepted and validated, but have no effect in this version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from clawkit.config.json5 import format_path
from clawkit.config.model import Config

_SEARCH = ("multimodal", "remote.batch", "store.fts")
_AGENT = f"""
contextLimits.postCompactionMaxChars heartbeat.accountId heartbeat.directPolicy heartbeat.to
models.*.streaming {" ".join(f"memorySearch.{each}" for each in _SEARCH)}
subagents.announceTimeoutMs subagents.model.timeoutMs
"""
_ONE_AGENT = f"""{_AGENT}
groupChat identity.avatar {" ".join(f"memory.search.{each}" for each in _SEARCH)}
tools.message tools.exec.grantExpiryDays tools.exec.node tools.exec.reviewer
"""
_KEYS = {
    "": "browser tts",
    "messages.": "ackReaction groupChat responsePrefix tts",
    "agents.defaults.": f"""{_AGENT}
        imageGenerationModel imageModel mediaMaxMb mediaModels pdfMaxMb pdfMaxPages
        pdfModel skipBootstrap""",
    "agents.list.*.": _ONE_AGENT,
    "agents.entries.*.": _ONE_AGENT,
    "approvals.": "exec plugin",
    "commands.": "allowFrom bash bashForegroundMs config debug native ownerAllowFrom text",
    "cron.": "triggers failureAlert.accountId failureAlert.channel",
    "env.": "shellEnv",
    "gateway.": "auth.allowTailscale nodes.browser",
    "hooks.mappings.*.": "channel to",
    "memory.search.": " ".join(_SEARCH),
    "models.": "providers.*.region",
    "logging.": "audit consoleLevel consoleStyle file level maxFileBytes",
    "plugins.entries.*.": "llm.allowAgentIdOverride subagent",
    "secrets.providers.*.": "pluginIntegration",
    "session.": """dmScope identityLinks reset resetByChannel resetByType
        resetTriggers scope sendPolicy""",
    "skills.": "allowBundled load.watchDebounceMs",
    "tools.": """media message exec.grantExpiryDays exec.node exec.reviewer
        toolSearch.codeTimeoutMs""",
}
NO_EFFECT = tuple(f"{below}{name}" for below, names in _KEYS.items() for name in names.split())
"""Settings without effect, with `*` for every entry of a list or map.

When you implement a setting, remove it here. Sandbox settings are not listed: which of them have an
effect depends on the backend, so `clawkit doctor` checks them.
"""
_VERSION = "in this version of clawkit"
_MAX_LISTED = 8


def find(config: Config) -> list[tuple[str, str]]:
    """One warning for each section with settings that have no effect: section name and message.

    A setting that is in the file counts as set, even with its default value.
    """
    tree = msgspec.to_builtins(config)  # leaves out what the file does not set
    paths = [path for key in NO_EFFECT for path in _matches(tree, key)]
    presets = tree.get("hooks", {}).get("presets", ())
    paths += [("hooks", "presets", at) for at, each in enumerate(presets) if each == "gmail"]
    search = tree.get("tools", {}).get("toolSearch")
    if isinstance(search, dict) and search.get("mode") == "code":
        paths.append(("tools", "toolSearch", "mode"))
    found: dict[str, str] = {}
    for section in {str(path[0]): None for path in paths}:
        inside = [format_path(path) for path in paths if path[0] == section]
        if section in inside:
            found[section] = f"this section has no effect {_VERSION}"
            continue
        more = f" and {len(inside) - _MAX_LISTED} more" if len(inside) > _MAX_LISTED else ""
        listed = ", ".join(inside[:_MAX_LISTED]) + more
        found[section] = f"these settings have no effect {_VERSION}: {listed}"
    if any(map(_is_more_than_policy, tree.get("channels", {}).values())):
        found["channels"] = (
            f"chat channels are not supported {_VERSION}; only the tool policies of groups apply"
        )
    return sorted(found.items())


def _matches(value: Any, key: str) -> Iterator[tuple[str | int, ...]]:
    if value is None:
        return
    if not key:
        yield ()
        return
    step, _, rest = key.partition(".")
    entries: Iterable[tuple[str | int, Any]]
    if step == "*":
        entries = enumerate(value) if isinstance(value, list) else value.items()
    else:
        entries = [(step, value.get(step))] if isinstance(value, dict) else ()
    for name, item in entries:
        yield from ((name, *path) for path in _matches(item, rest))


def _is_more_than_policy(channel: dict[str, Any]) -> bool:
    """Whether a channel, or one of its accounts, sets anything except tool policies of groups.

    An empty one had only settings that clawkit does not know, such as a token.
    """
    own = channel.keys() - {"groups", "accounts"}
    groups = channel.get("groups", {}).values()
    return (
        not channel
        or bool(own)
        or any(group.keys() - {"tools", "toolsBySender"} for group in groups)
        or any(map(_is_more_than_policy, channel.get("accounts", {}).values()))
    )

"""The tools themselves, while a directory and a link to the outside trade places at full speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fs.races import Tally, swapping_ground

from clawkit.testing import open_kit

Call = tuple[str, dict[str, Any]]
_OFF = {"tools": {"fs": {"lsp": {"enabled": False}}}}


def looking(number: int) -> Call:
    """A call of read or ls."""
    path = ("dir", "other", "dir/sub/..")[number // 2 % 3]
    return ("read", {"path": f"{path}/f"}) if number % 2 else ("ls", {"path": path})


def changing(number: int) -> Call:
    """A call of write, edit or apply_patch."""
    text = f"inside {number}"
    sections = (
        f"*** Add File: dir/p{number}\n+{text}",
        f"*** Delete File: dir/n{number - 1}",
        f"*** Add File: dir/q{number}/r\n+{text}\n*** Add File: beside{number}\n+{text}",
    )
    calls: tuple[Call, ...] = (
        ("write", {"path": "dir/f", "content": text}),
        ("edit", {"path": "dir/f", "oldText": "inside", "newText": "inside"}),
        ("edit", {"path": "dir/sub/g", "oldText": "i", "newText": "i", "replaceAll": True}),
        ("write", {"path": f"dir/n{number}", "content": text}),
        ("write", {"path": f"other/deep{number}/x", "content": text}),
        ("edit", {"path": "dir/f", "oldText": "inside", "newText": f"inside{number}"}),
        *(("apply_patch", {"input": f"*** Begin Patch\n{s}\n*** End Patch"}) for s in sections),
    )
    return calls[number % len(calls)]


def searching(number: int) -> Call:
    """A call of grep or find."""
    path = (".", "dir", "other")[number // 2 % 3]
    if number % 2:
        return "find", {"pattern": "*", "path": path, "ignored": True}
    return "grep", {"pattern": "inside|SECRET", "path": path, "ignored": True}


async def race(place: Path, count: int, calls: Any) -> Tally:
    """Make `count` calls. Their results and changes must never involve files outside."""
    tally = Tally()
    with swapping_ground(place) as ground:
        async with open_kit(ground.root, config=_OFF) as kit:
            for number in range(count):
                tool, params = calls(number)
                result = await kit.call(tool, params)
                said = json.dumps(result.to_json())
                assert "secret-name" not in said, said
                assert "SECRET" not in said.replace("inside|SECRET", ""), said
                if result.is_error:
                    tally.refused += 1
                else:
                    tally.done += 1
    return tally

"""Skills for tests."""

from __future__ import annotations

from pathlib import Path


def write_skill(root: Path, name: str, *lines: str, folder: str = "", body: str = "Do it.") -> Path:
    """A skill in a directory of its own; returns its file."""
    place = root / (folder or name)
    place.mkdir(parents=True, exist_ok=True)
    head = "\n".join((f"name: {name}", f"description: How to {name}", *lines))
    file = place / "SKILL.md"
    file.write_text(f"---\n{head}\n---\n{body}\n", encoding="utf-8")
    return file

"""The rules of agentskills.io, compared with their reference: clawkit warns, and never refuses."""

from __future__ import annotations

from pathlib import Path

from skills_ref.validator import validate  # type: ignore[import-untyped]
from tests.skills.writing import write_skill

from clawkit.skills.skill import Skill, read_skill

CASES: dict[str, tuple[str, ...]] = {
    "fine": (),
    "with-hyphen": ("license: MIT", "compatibility: Linux", "allowed-tools: Read Write"),
    "Upper": (),
    "double--hyphen": (),
    "-lead": (),
    "under_score": (),
    "a" * 65: (),
    "other-key": ("homepage: https://example.com",),
    "long-compatibility": (f"compatibility: {'x' * 501}",),
    "nested": ("metadata:", "  author: me"),
}


def read(file: Path) -> Skill:
    return read_skill(file.read_text("utf-8"), str(file), "extra", trusted=True)


def test_warnings_agree_with_the_reference(tmp_path: Path) -> None:
    for name, lines in CASES.items():
        file = write_skill(tmp_path, name, *lines)
        assert bool(read(file).warnings) == bool(validate(file.parent)), name


def test_other_deviations_are_named(tmp_path: Path) -> None:
    file = write_skill(tmp_path, "x", f"model: {'y' * 60}", folder="elsewhere")
    said = " ".join(read(file).warnings)
    assert "differs from the directory, 'elsewhere'" in said
    assert "without effect here: model" in said
    assert validate(file.parent)
    file.write_text(f"---\nname: elsewhere\ndescription: {'y' * 1_025}\n---\n", encoding="utf-8")
    found = read(file)
    assert "truncated" in found.warnings[0]
    assert len(found.description) <= 1_024
    assert validate(file.parent)

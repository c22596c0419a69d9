"""The documentation is true: generated parts are current, links lead somewhere, examples run.

Every fenced block is checked by its language. All `console` and `sh` blocks of a page are typed
into one shell, in an empty directory with a home of its own; all `python` blocks of a page share
their names. A comment above a block says what is special about it:

    <!-- not run: why -->     the block is only shown
    <!-- fails: words -->     the configuration is refused, and these words say why
    <!-- file: name -->       the block is written to that file for the shell
    <!-- prints: -->          the text is what the Python block before it prints

A page whose examples change anything begins them with `SCRATCH`, so that whoever types it keeps
their own files and settings.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from scripts.gendocs import ROOT, pages, renewed, slug
from tests.cli.asking import PROGRAM
from tests.tables import table
from tests.test_layers import LAYER

import clawkit
import clawkit.testing
from clawkit.cli.main import main as cli
from clawkit.config.json5 import parse_path
from clawkit.config.load import loads
from clawkit.config.lookup import all_sections, find
from clawkit.config.section import Partial, Section, layout_of
from clawkit.core.catalog import CATALOG, GROUPS, PROFILES
from clawkit.errors import ConfigError

LANGUAGES = {"python", "console", "sh", "json5", "json", "text"}
END = "\x1e"
SCRATCH = 'cd "$(mktemp -d)" && export CLAWKIT_HOME="$(mktemp -d)" CLAWKIT_CONFIG='

_NOTE = re.compile(r"<!-- ([a-z ]+):(.*) -->\n")
_FENCE = re.compile(rf"^((?:{_NOTE.pattern})*)```(\w*)\n((?:(?!```).*\n)*)```$", re.M)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_ROW = re.compile(r"^\| `([^`]+)` \|", re.M)


class Fence(NamedTuple):
    """A fenced block and the comments above it."""

    notes: dict[str, str]
    language: str
    text: str
    line: int


def fences(page: Path) -> list[Fence]:
    text = page.read_text(encoding="utf-8")
    return [
        Fence(
            {kind: words.strip() for kind, words in _NOTE.findall(found[1])},
            language=found[4],
            text=found[5],
            line=text.count("\n", 0, found.start(4)) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in _HEADING.findall(prose(page))}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_blocks(*languages: str) -> list[Path]:
    return [
        page
        for page in pages()
        if any(each.language in languages and "not run" not in each.notes for each in fences(page))
    ]


PACKAGE = "src/clawkit"
every_page = pytest.mark.parametrize("page", pages(), ids=name)


@every_page
def test_generated_parts_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert renewed(text) == text, "run `make docs`"


@every_page
def test_every_link_has_a_target(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        assert target.is_relative_to(ROOT), f"{link}: outside the project"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_module_named_in_architecture_exists() -> None:
    text = read("docs/architecture.md")
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text))
    assert len(named) > 50
    lost = {path for path in named if not any((ROOT / up / path).exists() for up in ("", PACKAGE))}
    assert lost == set()


def test_every_class_named_in_architecture_exists() -> None:
    text = re.sub(r"^```.*?^```$", "", read("docs/architecture.md"), flags=re.M | re.S)
    named = set(re.findall(r"`((?:[a-z_]+\.)*[A-Z]\w*[a-z]\w*)[`.]", text))
    assert len(named) > 30
    classes = {
        f"{path.relative_to(ROOT / PACKAGE).with_suffix('')}.{each}".replace("/", ".")
        for path in (ROOT / PACKAGE).rglob("*.py")
        for each in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.M)
    }
    lost = {each for each in named if not any(f".{full}".endswith(f".{each}") for full in classes)}
    assert lost == set()


def test_architecture_has_every_package_in_its_layer() -> None:
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", read("docs/architecture.md"), re.M)
    named = {each: int(layer) for layer, names in rows for each in re.findall(r"\w+", names)}
    found = {path.stem for path in (ROOT / PACKAGE).iterdir()} - {"README", "py", "__init__"}
    found -= {"__main__", "__pycache__"}
    assert named == {each: LAYER[each] for each in found}


def test_every_package_lists_its_modules_in_a_readme() -> None:
    lost = []
    packages = {path.parent for path in (ROOT / PACKAGE).rglob("*.py")}
    for folder in sorted(packages):
        own = folder / "README.md"
        # A package inside another may be described there.
        text = (own if own.exists() else folder.parent / "README.md").read_text(encoding="utf-8")
        named = {rf"[`/]{path.stem}\.py`" for path in folder.glob("*.py")} - {r"[`/]__init__\.py`"}
        named |= {rf"`{path.name}/" for path in packages if path.parent == folder}
        lost += [f"{folder.name}/{each}" for each in named if not re.search(each, text)]
        lost += [f"{folder.name}: {each}" for each in re.findall(r"`\w+\.py`[.;]", text)]
        prose = [line for line in text.splitlines() if not line.startswith("|")]
        lost += [f"{folder.name}, too long: {line}" for line in prose if len(line) > 120]
    assert lost == [], "not in the README, or there without a word about it"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(prose(page)))
        todo += [(page.parent / link).resolve() for link in links if link and ":" not in link]
    assert set(pages()) - seen == set()


@every_page
def test_every_code_block_has_a_known_language(page: Path) -> None:
    assert {each.language for each in fences(page)} <= LANGUAGES


@pytest.mark.parametrize("page", with_blocks("json5", "json"), ids=name)
def test_configuration_examples_load(page: Path) -> None:
    for each in fences(page):
        if each.language == "json":
            json.loads(each.text)
        if each.language != "json5" or "not run" in each.notes or "$include" in each.text:
            continue
        if "fails" in each.notes:
            with pytest.raises(ConfigError) as caught:
                loads(each.text, env={})
            assert each.notes["fails"] in str(caught.value), f"line {each.line}"
        else:
            loads(each.text, env={})


@pytest.mark.parametrize("page", with_blocks("python"), ids=name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    with asyncio.Runner() as runner:
        for each in fences(page):
            if each.language == "python" and "file" in each.notes:
                (tmp_path / each.notes["file"]).write_text(each.text, encoding="utf-8")
            if each.language == "python" and "not run" not in each.notes:
                printed = run_python(each, page, names, runner)
            if "prints" in each.notes:
                assert_output(each.text, printed, f"{name(page)}:{each.line}")
    if any(os.listdir(each) for each in (tmp_path, os.environ["CLAWKIT_HOME"])):
        before, _, _ = page.read_text(encoding="utf-8").partition("```python")
        assert SCRATCH in before, "the examples change files or settings of whoever types them"


def run_python(fence: Fence, page: Path, names: dict[str, Any], runner: asyncio.Runner) -> str:
    """What a block prints. It may await at its top, as it would inside a coroutine."""
    place = f"{name(page)}:{fence.line}"
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    program = compile(fence.text, place, "exec", flags=flags, dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        if program.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(program, names))
        else:
            exec(program, names)
    return output.getvalue()


@pytest.fixture(scope="module")
def plain() -> dict[str, str]:
    """What the environment has on every page."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    return {"PATH": path, "LANG": "C.UTF-8", "COLUMNS": "80", "TZ": "UTC"}


@pytest.fixture
def bin_(ready: None) -> Path:
    """Where `clawkit` is started without the wait for its imports."""
    return Path(PROGRAM[0]).parent


@pytest.mark.parametrize("page", with_blocks("console", "sh"), ids=name)
def test_shell_examples_print_what_is_shown(
    page: Path, tmp_path: Path, plain: dict[str, str], bin_: Path
) -> None:
    typed = [step for each in fences(page) for step in steps(each)]
    script = tmp_path / "session.sh"
    script.write_text("".join(map(spell, typed)), encoding="utf-8")
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    config = home / "mine.json5"
    config.write_text("{}\n", encoding="utf-8")
    own = {"HOME": home, "TMPDIR": tmp_path, "CLAWKIT_HOME": home / ".clawkit"}
    own["CLAWKIT_CONFIG"] = config
    env = plain | {key: str(value) for key, value in own.items()}
    if name(page) != "README.md":  # what is read first is typed just as it is
        env["PATH"] = f"{bin_}:{env['PATH']}"
    done = subprocess.run(
        ["bash", script], cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True
    )
    outputs = done.stdout.decode().split(f"\n{END}")
    assert len(outputs) == len(typed) + 1, done.stderr.decode()
    for step, output, after in zip(typed, outputs, outputs[1:], strict=False):
        shown = output.partition("\n")[2] if output is not outputs[0] else output
        where = f"{name(page)}:{step.line}: {step.command}"
        if step.expected is None:
            assert after.startswith("0"), f"{where}\n{shown}"
        else:
            assert_output(step.expected, shown, where)
    left = {path for place in (work, home) for path in place.rglob("*")}
    assert left == {config}, f"the examples leave files of their own: begin with `{SCRATCH}`"
    assert config.read_text(encoding="utf-8") == "{}\n"


class Step(NamedTuple):
    """A shell command and its expected output; None if it only has to succeed."""

    command: str
    expected: str | None
    line: int


def steps(fence: Fence) -> Iterator[Step]:
    if "file" in fence.notes:
        text = f"cat > {fence.notes['file']} <<'{END}'\n{fence.text}{END}"
        yield Step(text, None, fence.line)
    elif "not run" in fence.notes:
        return
    elif fence.language == "sh":
        yield Step(fence.text, None, fence.line)
    elif fence.language == "console":
        typed = re.split(r"^\$ ", fence.text, flags=re.M)
        assert typed[0] == "", f"line {fence.line}: a console block begins with a command"
        for each in typed[1:]:
            command, _, expected = each.partition("\n")
            yield Step(command, expected, fence.line)


def spell(step: Step) -> str:
    """A command and a mark after its output; `$?` is still the command's for the next one."""
    return f"{{\n{step.command}\n}} 2>&1\n__=$?; printf '\\n{END}%d\\n' $__; (exit $__)\n"


def assert_output(expected: str, output: str, where: str) -> None:
    """Compare line by line; `…` matches the rest of a line or, on a line of its own, any lines."""
    __tracebackhide__ = True
    pattern = ""
    for line in expected.strip("\n").splitlines():
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(map(re.escape, line.rstrip().split("…"))) + "\n"
    lines = (line.rstrip() for line in output.strip("\n").splitlines())
    text = "".join(f"{line}\n" for line in lines)
    if not re.fullmatch(pattern, text):
        pytest.fail(f"{where}\n--- shown\n{expected.strip()}\n--- printed\n{text.strip()}")


def commands(command: click.Command, path: str) -> Iterator[str]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from commands(found, f"{path} {each}")


def test_every_command_has_a_heading() -> None:
    headings = set(_HEADING.findall(prose(ROOT / "docs" / "cli.md")))
    assert set(commands(cli, "clawkit")) - headings == set()


def test_every_tool_group_and_profile_has_a_row() -> None:
    page = ROOT / "docs" / "reference" / "tools.md"
    rows = set(re.findall(r"^\| \[?`([^`]+)`", page.read_text(encoding="utf-8"), re.M))
    assert {*CATALOG, *GROUPS, *PROFILES} - rows == set()


@table("tool", [each.id for each in CATALOG.values() if each.available])
def test_every_tool_of_this_build_has_a_page(tool: str) -> None:
    text = (ROOT / "docs" / "tools" / f"{tool}.md").read_text(encoding="utf-8")
    assert f"<!-- generated: parameters {tool} -->" in text


def test_every_setting_has_a_row() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    told: set[tuple[str, str]] = set()
    for part in re.split(r"^#+ ", page, flags=re.M)[1:]:
        heading = part.partition("\n")[0].strip("`")
        rows = _ROW.findall(part)
        told |= {owner_of(heading, row) for row in rows} | {("Config", heading.split(".")[0])}
    told = {(cls, key.rstrip("[]")) for cls, key in told}
    assert {(cls.__name__, key) for cls in sections() for key in layout_of(cls).shapes} <= told


def sections() -> Iterator[type[Section]]:
    """All sections, except those that only repeat another one without values."""
    whole = {cls.__name__ for cls in all_sections()}
    for cls in all_sections():
        if not (issubclass(cls, Partial) and cls.__name__.removesuffix("Override") in whole):
            yield cls


def owner_of(heading: str, row: str) -> tuple[str, str]:
    """Class and key of the setting that a row of the reference is about."""
    if heading[0].isupper():
        return heading, row
    path = parse_path(re.sub(r"<\w+>", "x", row).replace("[]", "[0]"))
    parent, setting = find(path[:-1]), find(path)
    assert parent.shape is not None, f"{row}: there is no such setting"
    assert setting.shape is not None, f"{row}: there is no such setting"
    return parent.shape.sections[0].__name__, str(path[-1])


def test_every_public_name_is_explained() -> None:
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    public = {*clawkit.__all__, *clawkit.testing.__all__} - {"__version__"}
    assert {each for each in public if f"`{each}" not in text} == set()

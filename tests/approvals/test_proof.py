"""Observes real commands: if understood, they start and write only what the analysis names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.shellproof import Case, Outcome, check, make_cases, prove
from bench.shellproof_features import FEATURES
from bench.shellproof_parts import ONCE
from bench.shellproof_place import Place
from bench.shellproof_trace import Job, missing, run_all
from msgspec.structs import replace
from tests.lacking import lack
from tests.scale import scaled

from clawkit.approvals.analysis import analyze
from clawkit.approvals.types import Analysis, Arg, Program, Segment

SEEDS = (1001, 1002, 1003, 1004, 1005)
EACH = 400
SHOWN = 5
"""Disagreements that are told at once; one mistake often makes many."""

Forge = Callable[[Analysis], Analysis]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    if absent := missing():
        lack(f"{', '.join(absent)} is not installed")
    return Place(tmp_path_factory.mktemp("proof"))


def analyze_here(text: str, place: Place) -> Analysis:
    scene = place.scenes[0]
    return analyze(text, cwd=scene.cwd, env=scene.env)


@pytest.mark.untraced
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS[: scaled(len(SEEDS))])
def test_nothing_is_started_or_written_that_was_not_named(place: Place, seed: int) -> None:
    outcome = prove(place, EACH, seed)
    assert not outcome.faults, "\n".join(outcome.faults[:SHOWN])
    assert outcome.understood == EACH
    assert outcome.started > EACH


@pytest.mark.timeout(300)
def test_commands_once_analysed_wrongly_are_now_right(place: Place) -> None:
    outcome = Outcome()
    told = [
        Case(text, text, scene, analyze(text, cwd=scene.cwd, env=scene.env))
        for text in ONCE
        for scene in place.scenes
    ]
    check(place, [case for case in told if case.analysis.doubt is None], outcome)
    assert not outcome.faults, "\n".join(outcome.faults[:SHOWN])
    assert outcome.started > len(ONCE)


@pytest.mark.untraced
def test_every_part_of_the_language_occurs_in_what_is_proved(place: Place) -> None:
    outcome = Outcome()
    for seed in SEEDS:
        make_cases(place, EACH, seed, outcome)
        if outcome.features.keys() >= FEATURES:
            break
    assert FEATURES - outcome.features.keys() == set()
    assert 0.2 < outcome.understood / outcome.made < 0.6


def test_what_commands_do_stays_in_the_sandbox(place: Place, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("kept", encoding="utf-8")
    here = Path(__file__)
    before = here.read_bytes()
    tricks = (
        f"echo x > {mine}",
        f"echo x >> {here}",
        f"echo x > {place.root}/bin/new",
        f"/bin/rm -f {place.root}/bin/ls {place.root}/ws/a.txt",
        "echo x > /usr/bin/new",
        "echo x > /new",
        "echo x > /etc/new",
        "echo x > /dev/new",
        f"/bin/kill -9 {os.getpid()}",
        "/bin/mount -t tmpfs none /usr",
        f"/bin/ls {here.parent} {Path.home()}",
        "echo x > /dev/tcp/127.0.0.1/80",
        ":(){ :|:& };:",
        "/bin/head -c 9999999 /dev/zero > big",
    )
    runs = run_all(place, [Job(text, place.scenes[0]) for text in tricks], patience_s=2)
    harmless = {"/bin/rm", ":(){", "/bin/head"}
    for text, run in zip(tricks, runs, strict=True):
        assert run.status != 0 or text.split()[0] in harmless, text
        assert all(path.startswith(f"{place.root}/ws/") for path in run.changed), text
        assert all(len(content) <= 1 << 20 for content in run.changed.values()), text
    assert mine.read_text(encoding="utf-8") == "kept"
    assert here.read_bytes() == before
    assert os.path.exists(f"{place.root}/bin/ls")
    assert Path(place.root, "ws/a.txt").read_text(encoding="utf-8") == "alpha\n"
    assert not os.path.exists(f"{place.root}/bin/new")


def test_each_command_finds_the_files_as_they_were(place: Place) -> None:
    changing = "echo x > a.txt; /bin/rm -r sub; /bin/mkdir new; echo x > ~/new; echo x > /tmp/new"
    looking = "/bin/cat a.txt sub/a.txt; /bin/ls -d new ~/new /tmp/new"
    scene = place.scenes[0]
    first, second = run_all(place, [Job(changing, scene), Job(looking, scene)])
    ws = f"{place.root}/ws"
    assert first.changed[f"{ws}/a.txt"] == "x\n"
    assert {f"{ws}/sub/a.txt", f"{ws}/new", f"{place.root}/home/new", "/tmp/new"} <= set(
        first.changed
    )
    assert second.out == "alpha\nsub\n"
    assert second.changed == {}


def change(make: Callable[[Program], Program]) -> Forge:
    """Change the analysis of every program."""

    def forge(analysis: Analysis) -> Analysis:
        def of(segment: Segment) -> Segment:
            return replace(segment, programs=tuple(make(each) for each in segment.programs))

        return replace(analysis, segments=tuple(of(each) for each in analysis.segments))

    return forge


def rebuild(text: str, old: str = "") -> Forge:
    """Forge the rebuilt command: all of it, or a part."""

    def forge(analysis: Analysis) -> Analysis:
        assert old in analysis.rebuilt
        return replace(analysis, rebuilt=analysis.rebuilt.replace(old, text) if old else text)

    return forge


def drop(index: int) -> Forge:
    def forge(analysis: Analysis) -> Analysis:
        kept = list(analysis.segments)
        del kept[index]
        return replace(analysis, segments=tuple(kept))

    return forge


def drop_files(analysis: Analysis) -> Analysis:
    return replace(analysis, segments=tuple(replace(each, files=()) for each in analysis.segments))


FORGED: list[tuple[str, Forge, str]] = [
    ("ls; cat", drop(1), "it started"),
    ("ls; ls", drop(0), "it started"),
    ("nope || later", drop(1), "it started"),
    ("timeout 5 ls", drop(0), "it started"),
    ("sh -c 'ls; cat'", drop(2), "it started"),
    ("ls a", change(lambda each: replace(each, argv=(each.argv[0], Arg("b")))), "it started"),
    ("ls a", change(lambda each: replace(each, argv=each.argv[:1])), "it started"),
    ("ls *.txt x", change(lambda each: replace(each, argv=each.argv[:2])), ""),
    ("ls *.txt x", change(lambda each: replace(each, argv=each.argv[:1])), "it started"),
    ("ls x *", change(lambda each: replace(each, argv=(*each.argv, Arg("y")))), "it started"),
    (
        "ls",
        change(lambda each: replace(each, resolved="/bin/ls", real="/bin/ls")),
        "it started",
    ),
    ("cd sub && ls", change(lambda each: replace(each, cwd="/")), "it started"),
    ("cd sub; ./tool", change(lambda each: replace(each, cwd="/")), "it started"),
    ("A=1 ls", change(lambda each: replace(each, assigned=())), "it started"),
    ("export A=1; ls", change(lambda each: replace(each, assigned=())), "it started"),
    ("byenv x", change(lambda each: replace(each, script=())), "it started"),
    ("env missing", drop(0), "it tried to start"),
    ("ls > out", drop_files, "it changed"),
    ("echo >> a.txt", drop_files, "it changed"),
    ("{ ls; } > out", drop_files, "it changed"),
    ("ls", rebuild("cat"), "rebuilt: it started"),
    ("ls", rebuild("ls; cat"), "rebuilt: it started"),
    ("echo", rebuild("echo > out"), "rebuilt: it changed"),
    ("ls && cat", rebuild("||", "&&"), "programs: only before"),
    ("true", rebuild("false"), "status: 0, rebuilt 1"),
    ("echo a", rebuild("echo b"), "output: 'a"),
    ("echo a > out", rebuild("echo b > out"), "files: "),
]


@pytest.mark.timeout(300)
def test_a_wrong_analysis_is_detected(place: Place, subtests: pytest.Subtests) -> None:
    honest, forged = [], []
    for number, (text, forge, _) in enumerate(FORGED):
        analysis = analyze_here(text, place)
        assert analysis.doubt is None
        honest.append(Case("honest", text, place.scenes[0], analysis))
        forged.append(Case(f"forged {number}", text, place.scenes[0], forge(analysis)))
    outcome = Outcome()
    check(place, honest, outcome)
    assert outcome.faults == []
    check(place, forged, outcome)
    for number, (text, _, fault) in enumerate(FORGED):
        with subtests.test(text=text, number=number):
            found = [each for each in outcome.faults if each.startswith(f"forged {number}: ")]
            assert bool(found) == bool(fault)
            assert fault in "".join(found)

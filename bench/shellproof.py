"""A differential test that commands never start a program that their analysis did not name.

Generated commands that are understood run in a real shell, in a sandbox, under a tracer; then the
rebuilt commands do. Whatever either starts or writes must have been named.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figure import Figure
from bench.shellproof_check import differences, faults_of, is_shell
from bench.shellproof_features import FEATURES, features_of
from bench.shellproof_make import Maker
from bench.shellproof_place import Place, Scene
from bench.shellproof_trace import Job, Run, run_all
from clawkit.approvals.analysis import analyze
from clawkit.approvals.types import Analysis

COUNT = 50_000
BATCH = 500
TRIES = 8
"""Maximum runs of a pair that differs, because the order of closing and writing a pipe is
random."""


@dataclass
class Outcome:
    """The result of a proof."""

    faults: list[str] = field(default_factory=list)
    made: int = 0
    understood: int = 0
    started: int = 0
    features: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        self.faults += other.faults
        self.made += other.made
        self.understood += other.understood
        self.started += other.started
        self.features += other.features


@dataclass
class Case:
    """An understood command, its analysis, and its observed actions."""

    name: str
    text: str
    scene: Scene
    analysis: Analysis
    ones: list[Run] = field(default_factory=list)
    others: list[Run] = field(default_factory=list)
    """The observed actions of the rebuilt command."""

    @property
    def jobs(self) -> list[Job]:
        return [Job(self.text, self.scene), Job(self.analysis.rebuilt, self.scene)]

    def note(self, one: Run, other: Run) -> None:
        self.ones.append(one)
        self.others.append(other)

    def faults(self) -> list[str]:
        """Actions of the last runs that the analysis does not predict."""
        faults = faults_of(self.analysis, self.ones[-1], self.scene, rebuilt=False)
        again = faults_of(self.analysis, self.others[-1], self.scene, rebuilt=True)
        return faults + [f"rebuilt: {each}" for each in again]

    def differing(self) -> list[str]:
        """The differences of the last runs; empty if any two runs agree."""
        found: list[str] = []
        for one in self.ones:
            for other in self.others:
                found = differences(self.analysis, one, other, self.scene)
                if not found:
                    return found
        return found


def prove(place: Place, count: int, seed: int) -> Outcome:
    """Generate understood commands, and compare each with its actions."""
    outcome = Outcome()
    cpus = sorted(os.sched_getaffinity(0))
    cases = make_cases(place, count, seed, outcome)
    check(place, cases, outcome, cpus[seed % len(cpus)])
    return outcome


def make_cases(place: Place, count: int, seed: int, outcome: Outcome) -> list[Case]:
    plain = place.scenes[0]

    def understood(text: str) -> bool:
        return analyze(text, cwd=plain.cwd, env=plain.env).doubt is None

    maker = Maker(place.root, seed, understood)
    rng = random.Random(seed)
    cases: list[Case] = []
    while len(cases) < count:
        text = maker.command()
        scene = rng.choice(place.scenes)
        outcome.made += 1
        analysis = analyze(text, cwd=scene.cwd, env=scene.env, assigned=scene.assigned)
        if analysis.doubt is None and not _runs_script(analysis):
            outcome.features.update(features_of(text, analysis))
            cases.append(Case(f"seed {seed}, command {outcome.made}", text, scene, analysis))
        elif analysis.doubt is not None and analysis.rebuilt:
            outcome.faults.append(f"{text!r} is in doubt and yet rebuilt")
    outcome.understood += count
    return cases


def _runs_script(analysis: Analysis) -> bool:
    """Whether a shell runs a file, whose content is not part of the command."""
    return any(
        is_shell(program) and not program.wrapper
        for segment in analysis.segments
        for program in segment.programs
    )


def check(place: Place, cases: Sequence[Case], outcome: Outcome, cpu: int | None = None) -> None:
    """Run commands and record actions that were not predicted."""
    for attempt in range(1, TRIES + 1):
        runs = run_all(place, [job for case in cases for job in case.jobs], cpu)
        again = []
        for case, one, other in zip(cases, runs[::2], runs[1::2], strict=True):
            case.note(one, other)
            outcome.started += len(one.starts) + len(other.starts) - 2
            faults = case.faults()
            differing = [] if faults else case.differing()
            if differing and attempt < TRIES:
                again.append(case)
            elif faults or differing:
                outcome.faults.append(describe(case, faults + differing))
        cases = again
        cpu = None  # where more things can come first than on one
        if not cases:
            return


def describe(case: Case, faults: Sequence[str]) -> str:
    """A mismatch, with everything needed to investigate it."""
    said = [
        (program.resolved or "?", [arg.text for arg in program.argv], program.cwd, program.piped)
        for segment in case.analysis.segments
        for program in segment.programs
    ]
    one, other = case.ones[-1], case.others[-1]
    lines = [
        f"{case.name}: {case.text!r}",
        f"  in {case.scene.cwd} with {case.scene.env}",
        *(f"  {fault}" for fault in faults),
        f"  said: {said}",
        f"  rebuilt: {case.analysis.rebuilt!r}",
        f"  did: {[(start.path, start.argv, start.error) for start in one.starts[1:]]}",
        f"  did rebuilt: {[(start.path, start.argv, start.error) for start in other.starts[1:]]}",
        f"  status {one.status}, rebuilt {other.status}; output {one.out!r}, rebuilt {other.out!r}",
    ]
    return "\n".join(lines)


def _work(task: tuple[Place, int, int]) -> Outcome:
    return prove(*task)


def measure(count: int = COUNT, seed: int = 1) -> Iterator[Figure]:
    """Seeds from `seed` on, one per batch of commands."""
    total = Outcome()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clawkit-proof-") as name:
        place = Place(Path(name), foreign=True)
        sizes = [min(BATCH, count - done) for done in range(0, count, BATCH)]
        tasks = [(place, size, seed + number) for number, size in enumerate(sizes)]
        with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
            for outcome in pool.imap_unordered(_work, tasks):
                total.add(outcome)
                for fault in outcome.faults:
                    print(f"\n{fault}", file=sys.stderr)
                spent = time.monotonic() - start
                left = spent / total.understood * (count - total.understood)
                print(
                    f"\rproof: {total.understood:,} of {count:,}, {len(total.faults)} faults, "
                    f"{left:.0f} s left ",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
    print(file=sys.stderr)
    for feature, times in total.features.most_common():
        print(f"proof: {times:>7,} {feature}", file=sys.stderr)
    note = f"{time.monotonic() - start:.0f} s, {total.started:,} starts"
    yield Figure(f"proof, {count:,} commands", len(total.faults), "disagreements", 0, note)
    absent = sorted(FEATURES - total.features.keys())
    yield Figure("proof, parts of the language", len(absent), "missing", 0, ", ".join(absent))
    share = 100 * total.understood / total.made
    note = f"{share:.0f} % of {total.made:,} made"
    yield Figure("proof, commands understood", abs(share - 40), "% off 40 %", 20, note)

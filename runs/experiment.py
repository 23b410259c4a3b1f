"""Evaluating a program from start to end, as one run: what the command line and notebooks call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dspy

from ..data.benchmark import Benchmark
from ..engines.meter import Meter
from ..errors import UserError
from ..programs.identity import program_digest
from ..programs.program import MemoryProgram
from .evaluate import Progress
from .evaluate import evaluate as score
from .external import ANSWERS, Answers, name_in_tables
from .manifest import read_manifest
from .mlflow_log import show
from .pages.html import keep_page
from .pages.page import known_facts, program_changes, run_page, states
from .registry import pinned
from .results import Evaluation
from .runtime import Parent, Runtime
from .setup import RunConfig, parameters, replayed_setup
from .tracking import Tracker
from .workers import evaluate_remotely

Part = Literal["all", "train", "dev", "test"]
ProgressFactory = Callable[[str], Progress | None]
"""Called with the name of each phase; may return a progress callback for it."""


def run_evaluate(
    name: str | Any,
    setup: RunConfig,
    split: Part = "all",
    progress: ProgressFactory = lambda phase: None,
    meter: Meter | None = None,
    parent: Parent | None = None,
) -> Evaluation:
    """Scores a method, a saved program or what else answers (`evaluate`), logged as one MLflow run.

    Args:
        name: What is scored, by its name or itself.
        setup: Data, models, and the method's settings.
        split: Which questions: all, or a part of the split that compile uses.
        progress: Called with the name of each phase.
        meter: Counts the calls; a new one if None.
        parent: The larger run that it is a part of, if it is.
    """
    setup = replayed_setup(setup)
    thing = pinned(name) if isinstance(name, str) else name
    if isinstance(thing, str) and thing.endswith(ANSWERS):
        thing = Answers(thing)
    name, benchmark = name_in_tables(thing), setup.load()
    examples = chosen_examples(setup, benchmark, split)
    if isinstance(thing, Answers):
        examples = thing.attach_answers(benchmark, examples)
    runtime = Runtime.start(setup, "evaluate", name, {"part": split}, meter, parent)
    with runtime.folder.recording():
        program, benchmark = runtime.load_target(thing)
        with closing(program.method):
            found = _tracked(Evaluator(runtime, benchmark, progress, thing), program, examples, split)
    runtime.folder.keep_rows("evaluation", found.rows)
    runtime.folder.update(status="stopped" if found.stopped else "finished", result=found.to_dict())
    return found


def chosen_examples(setup: RunConfig, benchmark: Benchmark, split: Part) -> Sequence[dspy.Example]:
    """The questions an evaluation asks: all of them, or a part of the split; `--test N` alone means the test part."""
    if split == "all" and setup.test is None:
        return benchmark.interleave(benchmark.examples)
    return getattr(setup.split(benchmark), "test" if split == "all" else split)


def compiled_on(folder: str | Path, benchmark: Benchmark) -> bool:
    """Whether a saved program was compiled on the very file of a benchmark."""
    manifest = read_manifest(folder)
    return bool(manifest.optimizer) and manifest.benchmark.get("sha256") == benchmark.source.sha256


@dataclass(frozen=True)
class Evaluator:
    """How the questions of a run are scored.

    Raises:
        UserError: The run has workers, and what it scores, or started from, has no name.
    """

    runtime: Runtime
    benchmark: Benchmark
    progress: ProgressFactory
    target: Any

    def __post_init__(self) -> None:
        if self.runtime.setup.workers != 1 and not isinstance(self.target, str):
            name = name_in_tables(self.target)
            raise UserError(f"{name} is only in this process; leave --workers out, or name it module:thing")

    def __call__(
        self, program: MemoryProgram, examples: Sequence[dspy.Example], phase: str, told: str = ""
    ) -> Evaluation:
        """Scores questions; their rows are filed under the phase, and people are told it, or `told`."""
        runtime, told = self.runtime, told or phase
        return score(
            program,
            self.benchmark,
            examples,
            runtime.meter,
            runtime.setup.threads,
            self.progress(told),
            runtime.folder.store.rows,
            phase,
            runtime.setup.max_failure_rate,
            partial(evaluate_remotely, runtime, self.target) if runtime.setup.workers != 1 else None,
            lambda: self.progress(f"{told}, sessions remembered"),
        )

    def keep_page(
        self,
        tracker: Tracker,
        chosen: Mapping[str, Any],
        program: MemoryProgram,
        phases: Mapping[str, Evaluation],
        questions: str,
        facts: Sequence[tuple[str, str]] = (),
        **about: Any,
    ) -> None:
        """Makes the page of the run, keeps it in the run's folder, and logs it.

        `chosen` are options of its command, `program` is what it ends with, `about` are other arguments of `run_page`.
        """
        command, folder = tracker.tags["command"], self.runtime.folder.path
        told = [
            ("Command", self.runtime.setup.command_line(command, name_in_tables(self.target), chosen)),
            ("Date", f"{datetime.now():%Y-%m-%d %H:%M}"),
            ("MLflow run", tracker.address),
            ("Data", f"{self.benchmark.source.name}, {questions}"),
            *known_facts(tracker.parameters, program_digest(program)),
            *facts,
        ]
        tracker.files(keep_page(folder, run_page(command, folder.name, phases, told, **about)))


def _tracked(scoring: Evaluator, program: MemoryProgram, examples: Sequence[dspy.Example], part: Part) -> Evaluation:
    runtime, benchmark = scoring.runtime, scoring.benchmark
    # The context first: a wrong name of a model or an adapter makes no run.
    logged = parameters(program, runtime.setup, benchmark) | {"part": part}
    with runtime.context(program), runtime.tracked("evaluate", f"{program.name}-{benchmark.name}", logged) as tracker:
        found = scoring(program, examples, part, "evaluating").model_copy(update={"run_id": tracker.run_id})
        tracker.evaluation("evaluation", found)
        same = program_changes(states(program), states(program))
        notes = scoring.target.notes if isinstance(scoring.target, Answers) else []
        told = f"questions: {part}"
        scoring.keep_page(tracker, {"split": part}, program, {"score": found}, told, notes=notes, changes=same)
        show(tracker, benchmark, found, ((program, None),), "evaluation", runtime.setup.traces)
    return found

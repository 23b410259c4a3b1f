"""Evaluating a program from start to end, as one run: what the command line and notebooks call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dspy

from ..data.benchmark import Benchmark
from ..engines.guard import Guard
from ..engines.meter import Meter
from ..errors import UserError
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from .answers import ANSWERS, Answers
from .artifact import versions
from .compare import keep_rows
from .evaluate import Progress
from .evaluate import evaluate as score
from .external import name_in_tables
from .folder import RunFolder
from .lineage import show_evaluation
from .manifest import read_manifest
from .pages.changes import program_changes, states
from .pages.html import keep_page
from .pages.page import run_page
from .registry import pinned
from .report import known_facts
from .results import Evaluation
from .runtime import Runtime
from .setup import Setup, parameters, replayed_setup
from .shards import Sharing
from .tracking import Tracker

Part = Literal["all", "train", "dev", "test"]
Note = Callable[[str], Progress | None]
"""Called with the name of each phase; may return a progress callback for it."""


def evaluate(
    thing: Any, on: str, part: Part = "all", config: Mapping[str, Any] | None = None, **setup: Any
) -> Evaluation:
    """Scores anything that answers questions about a history, on a benchmark; logged as one run.

    Args:
        thing: A callable `(history, question)`, a `dspy.Module`, a class or object with `add` and `search`; or the name
            of these, of a method, a saved program, a file of answers, or the URL of a chat endpoint.
        on: The benchmark.
        part: Which questions: all, or a part of the split that compile uses.
        config: Settings of the thing, e.g. {"timeout": 60}.
        **setup: Data, models and limits: the fields of `runs.setup.Setup`.

    Raises:
        UserError: The thing, the benchmark or a field is none.
    """
    return run_evaluate(thing, Setup(on, **setup), part, config)


def run_evaluate(
    name: str | Any,
    setup: Setup,
    part: Part = "all",
    config: Mapping[str, Any] | None = None,
    note: Note = lambda phase: None,
    allow_code: bool = False,
    meter: Meter | None = None,
    cache: MemoryCache | None = None,
    guard: Guard | None = None,
    tags: Mapping[str, str] | None = None,
    folder: RunFolder | None = None,
) -> Evaluation:
    """Scores a method or a saved program, logged as one MLflow run.

    Args:
        name: A method name, `module:Class`, or a saved program: its folder, or `models:/NAME@ALIAS`. Or what else can
            be scored (`external`), by its name or itself: a callable, a module, a class with `add` and `search`.
        setup: Data and models.
        part: Which questions: all, or a part of the split that compile uses.
        config: Constructor arguments of the method.
        note: Called with the name of each phase.
        allow_code: Whether a saved `module:Class` method may be imported.
        meter: Counts the calls; a new one if None.
        cache: Memories to share with other evaluations; one that the run keeps on disk if None.
        guard: Limits to share with other evaluations; the setup's own if None.
        tags: Labels of the MLflow run, e.g. `nested_in(parent)`.
        folder: Where it is kept, as a part of a larger run, and resumed with that; a new one, or the setup's, if None.
    """
    setup = replayed_setup(setup)
    thing = pinned(name) if isinstance(name, str) else name
    if isinstance(thing, str) and thing.endswith(ANSWERS):
        thing = Answers(thing)
    name, benchmark = name_in_tables(thing), setup.load()
    examples = chosen_examples(setup, benchmark, part)
    if isinstance(thing, Answers):
        examples = thing.given(benchmark, examples)
    chosen = {"part": part, "config": dict(config or {})}
    runtime = Runtime.start(setup, "evaluate", name, chosen, meter, guard, folder)
    with runtime.folder.recording():
        benchmark = runtime.judged(benchmark)
        program = runtime.program(thing, benchmark, config, allow_code, cache)
        benchmark = runtime.company(benchmark, program, allow_code)
        scoring = Scoring(runtime, benchmark, note, sharing(runtime, thing, config, allow_code))
        with closing(program.method):
            found = _tracked(scoring, program, examples, part, tags)
    keep_rows(runtime.folder, "evaluation", found)
    runtime.folder.update(status="stopped" if found.stopped else "finished", result=found.summary())
    return found


def chosen_examples(setup: Setup, benchmark: Benchmark, part: Part) -> Sequence[dspy.Example]:
    """The questions an evaluation asks: all of them, or a part of the split; `--test N` alone means the test part."""
    if part == "all" and setup.test is None:
        return benchmark.interleave(benchmark.examples)
    return getattr(setup.split(benchmark), "test" if part == "all" else part)


def compiled_on(folder: str | Path, benchmark: Benchmark) -> bool:
    """Whether a saved program was compiled on the very file of a benchmark."""
    manifest = read_manifest(folder)
    return bool(manifest.optimizer) and manifest.benchmark.get("sha256") == benchmark.source.sha256


@dataclass(frozen=True)
class Scoring:
    """How the questions of a run are scored."""

    runtime: Runtime
    benchmark: Benchmark
    note: Note
    sharing: Sharing | None
    """What gives them to the run's workers, where it has any."""

    def __call__(
        self, program: MemoryProgram, examples: Sequence[dspy.Example], phase: str, told: str = ""
    ) -> Evaluation:
        """Scores questions.

        Args:
            program: What answers.
            examples: The questions.
            phase: What their rows are filed under.
            told: What people are told of it; the phase if "".
        """
        runtime, told = self.runtime, told or phase
        return score(
            program,
            self.benchmark,
            examples,
            runtime.meter,
            runtime.setup.threads,
            self.note(told),
            runtime.folder.store.rows,
            phase,
            runtime.setup.max_lost,
            self.sharing,
            lambda: self.note(f"{told}, sessions remembered"),
        )


def sharing(runtime: Runtime, name: str | Any, config: Mapping[str, Any] | None, allow_code: bool) -> Sharing | None:
    """What gives the questions of a run to its workers; None where it has none."""
    if runtime.setup.workers == 1:
        return None
    if not isinstance(name, str):
        raise UserError(f"{name_in_tables(name)} is only in this process; leave --workers out, or name it module:thing")
    return Sharing(runtime, name, dict(config or {}), allow_code)


def _tracked(
    scoring: Scoring,
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    part: Part,
    tags: Mapping[str, str] | None,
) -> Evaluation:
    """Scores in an MLflow run."""
    runtime, benchmark = scoring.runtime, scoring.benchmark
    title = f"evaluate-{program.name}-{benchmark.name}-{runtime.folder.mark}"
    # The context first: a wrong name of a model or an adapter makes no run.
    with runtime.context(program), Tracker(title, {"command": "evaluate", **(tags or {})}) as tracker:
        logged = parameters(program, runtime.setup, benchmark) | {"part": part}
        runtime.folder.update(run_id=tracker.run_id, parameters=logged, versions=versions())
        tracker.params(logged)
        found = scoring(program, examples, part, "evaluating").model_copy(update={"run_id": tracker.run_id})
        tracker.evaluation("evaluation", found)
        prompts = states(program)
        facts = [("Run", f"evaluate {program.name} on {benchmark.name}, asking {found.lm}")]
        facts += [("Data", f"{benchmark.source.name}, questions: {part}")]
        facts += known_facts(logged, program.identities.of_program(program))
        name, same = runtime.folder.path.name, program_changes(prompts, prompts)
        page = partial(run_page, "evaluate", name, {"score": found}, facts, changes=same)
        tracker.page(keep_page(runtime.folder.path, page))
        show_evaluation(tracker, program, benchmark, found, logged, runtime.setup.traces)
    return found

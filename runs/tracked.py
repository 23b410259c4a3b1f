"""What MLflow shows of a run beside its numbers: its questions, its programs with their prompts, and traces.

    evaluation   dataset · the program's prompts · its logged model, scored · traces
    compile      dataset · prompts before (alias start) and after (best) · both models, scored · traces of the kept one

It comes last and costs no run anything: a store that cannot take it has the run without it (`Tracker.beyond`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.benchmark import Benchmark
from ..programs.program import MemoryProgram
from .outcome import Compiled
from .results import Evaluation
from .tracking import Tracker
from .tracking_programs import keep_model, keep_prompts, link_made, link_prompts, score_model
from .tracking_questions import keep_questions
from .tracking_store import Store
from .tracking_traces import keep_traces


def show_evaluation(
    tracker: Tracker,
    program: MemoryProgram,
    benchmark: Benchmark,
    found: Evaluation,
    parameters: Mapping[str, Any],
    traces: int | None,
) -> None:
    """Shows an evaluation in its MLflow run.

    Args:
        tracker: The run.
        program: What was scored.
        benchmark: On what.
        found: Its scores.
        parameters: The run's, as `setup.parameters` gives them.
        traces: Of how many questions; None for all.
    """

    def log(store: Store) -> None:
        prompts = keep_prompts(store, program, benchmark.name)
        model = keep_model(store, program, found.lm, parameters, prompts)
        link_prompts(store, prompts)
        score_model(store, model, found, keep_questions(store, benchmark.source, found, model))
        keep_traces(store, found, traces, "evaluation", model)

    tracker.beyond(log)


def show_compile(
    tracker: Tracker,
    start: MemoryProgram,
    kept: MemoryProgram,
    benchmark: Benchmark,
    outcome: Compiled,
    parameters: Mapping[str, Any],
    traces: int | None,
) -> None:
    """Shows a compile in its MLflow run; the alias `best` moves only to a program that was kept for its gain.

    Args:
        tracker: The run.
        start: The program before.
        kept: The program after, or the start.
        benchmark: On what.
        outcome: What came of it.
        parameters: The run's.
        traces: Of how many test questions; None for all.
    """

    def log(store: Store) -> None:
        before = keep_prompts(store, start, benchmark.name, "start")
        first = keep_model(store, start, outcome.start.lm, parameters, before)
        dataset, last = keep_questions(store, benchmark.source, outcome.start, first), first
        score_model(store, first, outcome.start, dataset)
        if outcome.promoted:
            after = keep_prompts(store, kept, benchmark.name, "best")
            last = keep_model(store, kept, outcome.result.lm, parameters, after)
            link_made(store, last, outcome.program)
            score_model(store, last, outcome.result, dataset)
            link_prompts(store, before, after)
        else:
            link_prompts(store, before)
        keep_traces(store, outcome.result, traces, "result", last)

    tracker.beyond(log)

"""What MLflow's pages show of a run beside its scores: prompts, questions and traces.

Prompts and questions that the store has are not sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...data.benchmark import Benchmark
from ..results import Evaluation
from .prompts import ProgramPrompts, log_prompts
from .questions import log_questions
from .store import use_tracking_store
from .traces import log_traces
from .tracker import Tracker


def log_details(
    tracker: Tracker,
    benchmark: Benchmark,
    evaluation: Evaluation,
    programs: Sequence[ProgramPrompts],
    phase: str,
    max_traces: int | None,
) -> None:
    """Log the prompts, questions and traces of a run; if the store refuses them, only warn.

    Args:
        tracker: The MLflow run.
        benchmark: What the program was scored on.
        evaluation: The scores of the questions that are logged.
        programs: The programs whose prompts are linked to the run.
        phase: What the scores are called in the run.
        max_traces: The most questions whose traces are logged; None for all.
    """
    if not tracker.takes_details:
        return
    with tracker.warn_of_errors(), use_tracking_store():
        for program in programs:
            log_prompts(tracker, program, benchmark.name)
        log_questions(tracker, benchmark.source, evaluation)
        log_traces(tracker, evaluation, max_traces, phase)

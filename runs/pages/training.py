"""Makes the document of a training's page: each model's scores and curves, and what was answered before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..results import Evaluation
from ..trained import Trained
from ..trained_row import TrainedRow
from .build import known_facts, run_page
from .page import Curve, Measured, Page, Trial

_CURVES = ("validation", "validation_greedy", "reward", "format_failures")


def training_page(
    outcome: Trained, parameters: Mapping[str, Any], program: str, phases: Mapping[str, Evaluation]
) -> Page:
    """The page of a training.

    Args:
        outcome: What it gave.
        parameters: As `setup.parameters` gives them.
        program: Digest of the program.
        phases: The held-out questions, as the model was before and after; {} where nothing is known of answers.
    """
    first, kept = outcome.rows[0], outcome.kept
    told = f"{first.n} questions about {first.users} held-out users of {outcome.benchmark}"
    curves = (
        Curve(label=row.label, name=key, points=tuple(found))
        for row in outcome.rows
        for key in _CURVES
        if (found := row.curve(key))
    )
    name, facts = outcome.run.name, known_facts(parameters, program)
    title = f"{parameters['program']} on {outcome.benchmark}, {outcome.objective}"
    asked = run_page("train", name, phases, facts) if phases else None
    page = asked or Page(command="train", name=name, title=title, facts=tuple(facts))
    return page.model_copy(
        update={
            "title": title,
            "notes": ("A quick look at what a run gives, too short to tell objectives apart.",) * outcome.quick,
            "verdict": f"{kept.label} was kept; scores are over {told}",
            "trials": tuple(_trial(row, row is kept) for row in outcome.rows),
            "curves": tuple(curves),
        }
    )


def _trial(row: TrainedRow, kept: bool) -> Trial:
    return Trial(
        label=row.label,
        greedy=_measured(row.greedy, row.greedy_interval, row.n),
        sampled=_measured(row.sampled, row.sampled_interval, row.n),
        greedy_failures=row.greedy_failures,
        sampled_failures=row.sampled_failures,
        tokens=row.tokens,
        steps=row.trained_steps,
        seconds=row.seconds,
        kept=kept,
        remarks=row.remarks,
    )


def _measured(value: float, ends: tuple[float, float] | None, n: int) -> Measured:
    low, high = ends or (None, None)
    return Measured(value=value, n=n, low=low, high=high, unit="user" if ends else "")

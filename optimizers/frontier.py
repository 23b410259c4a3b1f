"""The candidates of an optimizer by what they gain and what they cost: score against tokens.

GEPA and `settings` report them. A candidate is *on the frontier* if no other one is as good in
everything and better in something. GEPA's own statistics are recorded while it works, so they are
there if a limit ends it.

    best = [point for point in result.frontier if point.on_frontier]
    best[0].prompt_tokens, best[0].instructions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

FrontierType = Literal["instance", "objective", "hybrid", "cartesian"]
"""By what GEPA keeps candidates to go on from: those that are the best at some question, at some
objective, at either, or at some question by some objective."""

SCORE = "score"
PROMPT_TOKENS = "prompt_tokens"
STORED_WORDS = "stored_words"
"""The names of the objectives."""


@dataclass(frozen=True)
class FrontierPoint:
    """One candidate with its score and its costs, each a mean over the valset."""

    number: int
    """0 is the start."""
    parents: tuple[int, ...]
    """The candidates that it was made from."""
    instructions: Mapping[str, str]
    """By the name of the predictor; only predictors that were tuned."""
    score: float
    """From 0 to 1; a question that failed counts as 0."""
    n: int
    """Questions of the valset that it was scored on."""
    prompt_tokens: float | None
    """Tokens of all prompts that recall and answer a question; None if it answered none.

    Where the metric asks for no answer, the tokens of what is recalled are added. A candidate with
    other settings has the tokens of what it recalls, and nothing else.
    """
    stored_words: float | None = None
    """Words of the memory behind an answer; None if the writing of memories was not tuned."""
    on_frontier: bool = False
    """Whether no other candidate is as good in everything and better in something."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that differ from those of the start, by name."""
    search_milliseconds: float | None = None
    """Time of the searches for a question; None if it does not count."""

    def renumbered(self, number: int) -> FrontierPoint:
        """Return a copy with another number."""
        return replace(self, number=number)


class GepaState(Protocol):
    """What is read of GEPA's state: a list entry for each candidate that it has accepted."""

    program_candidates: list[dict[str, str]]
    prog_candidate_val_subscores: list[dict[Any, float]]
    prog_candidate_objective_scores: list[dict[str, float]]
    parent_program_for_candidate: list[list[int | None]]


class FrontierRecorder:
    """Records the candidates of GEPA after each of its steps, as one of its callbacks.

    Args:
        is_interrupted: Whether calls have been refused since GEPA began. The scores of a candidate
            are wrong then, so it is not recorded.
    """

    def __init__(self, is_interrupted: Callable[[], bool]) -> None:
        self._is_interrupted = is_interrupted
        self._points: list[FrontierPoint] = []

    @property
    def points(self) -> list[FrontierPoint]:
        """The candidates so far, by their numbers."""
        return mark_frontier(self._points)

    def on_iteration_start(self, event: Mapping[str, Any]) -> None:
        """Record the start before the first step."""
        self._record(event["state"])

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        """Record the candidates of a step."""
        self._record(event["state"])

    def on_optimization_end(self, event: Mapping[str, Any]) -> None:
        """Record the start if there was no step."""
        self._record(event["final_state"])

    def _record(self, state: GepaState) -> None:
        if self._is_interrupted():
            return
        for number in range(len(self._points), len(state.program_candidates)):
            self._points.append(_point(state, number))


def _point(state: GepaState, number: int) -> FrontierPoint:
    """Return a candidate of GEPA's state."""
    scores = state.prog_candidate_val_subscores[number]
    # What costs is a negative number there, see `MetricViews`.
    objective_scores = state.prog_candidate_objective_scores[number]
    parents = state.parent_program_for_candidate[number]
    return FrontierPoint(
        number=number,
        parents=tuple(parent for parent in parents if parent is not None),
        instructions=dict(state.program_candidates[number]),
        score=sum(scores.values()) / len(scores) if scores else 0.0,
        n=len(scores),
        prompt_tokens=_cost(objective_scores, PROMPT_TOKENS),
        stored_words=_cost(objective_scores, STORED_WORDS),
    )


def _cost(objective_scores: Mapping[str, float], objective: str) -> float | None:
    """Return what something costs; None if that is not known."""
    score = objective_scores.get(objective)
    # `0 -` and not `-`, because the negative of 0.0 is printed as -0.0.
    return None if score is None else 0 - score


def mark_frontier(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Return the points with `on_frontier` set."""
    marked: list[FrontierPoint] = []
    for point in points:
        is_beaten = any(_beats(other, point) for other in points)
        on_frontier = point.prompt_tokens is not None and not is_beaten
        marked.append(replace(point, on_frontier=on_frontier))
    return marked


def _beats(other: FrontierPoint, point: FrontierPoint) -> bool:
    """Return whether `other` is as good as `point` in everything, and better in something."""
    if other.prompt_tokens is None or point.prompt_tokens is None:
        return False
    # Less is better in all of these. Words and times are known of both points or of neither.
    costs_of_other = (
        -other.score,
        other.prompt_tokens,
        other.stored_words or 0.0,
        other.search_milliseconds or 0.0,
    )
    costs = (
        -point.score,
        point.prompt_tokens,
        point.stored_words or 0.0,
        point.search_milliseconds or 0.0,
    )
    pairs = list(zip(costs_of_other, costs, strict=True))
    is_as_good = all(cost_of_other <= cost for cost_of_other, cost in pairs)
    return is_as_good and costs_of_other != costs

"""Predictors that were not called for any question of a minibatch get no turn in GEPA.

GEPA improves one prompt of a program at a time: its predictors take turns. It learns from the calls
that answered a few questions, the minibatch.
"""

from types import SimpleNamespace
from typing import Any

import mempiler
import pytest
from gepa.utils.stop_condition import MaxCandidateProposalsStopper
from mempiler.optimizers import Gepa
from mempiler.optimizers.gepa_component_selector import CalledPredictors

PREDICTORS = ["writer.extract", "writer.merge", "task.answer"]
"""The predictors of the program, in the order of their turns."""


def state_with_turn_of(predictor: str) -> Any:
    """Return the part of GEPA's state that says whose turn it is."""
    return SimpleNamespace(
        list_of_named_predictors=PREDICTORS,
        named_predictor_id_to_update_next_for_program_candidate=[PREDICTORS.index(predictor)],
    )


def question_that_called(*predictors: str) -> dict[str, Any]:
    """Return a question of the minibatch, in whose trace these predictors were called."""
    # A call is traced as predictor, inputs and outputs.
    calls = [(SimpleNamespace(path=predictor), {}, None) for predictor in predictors]
    return {"trace": calls}


def select(state: Any, minibatch: list[dict[str, Any]]) -> list[str]:
    """Return the predictors that get the turn, as GEPA asks for them."""
    scores = [0.5] * len(minibatch)
    return CalledPredictors()(state, minibatch, scores, 0, {})


@pytest.mark.parametrize(
    ("next_predictor", "selected"),
    [
        ("writer.extract", "writer.extract"),
        ("writer.merge", "task.answer"),
        ("task.answer", "task.answer"),
    ],
)
def test_a_predictor_that_was_not_called_is_passed_over(next_predictor: str, selected: str) -> None:
    """The turns are in the order `writer.extract`, `writer.merge`, `task.answer`."""
    minibatch = [
        question_that_called("writer.extract"),
        question_that_called("task.answer", "writer.extract"),
    ]

    assert select(state_with_turn_of(next_predictor), minibatch) == [selected]


def test_the_predictor_after_the_selected_one_has_the_next_turn() -> None:
    """`task.answer` is the last predictor, so the next turn is that of the first one."""
    state = state_with_turn_of("task.answer")

    select(state, [question_that_called("task.answer")])

    next_turn = state.named_predictor_id_to_update_next_for_program_candidate
    assert next_turn == [PREDICTORS.index("writer.extract")]


def test_if_no_predictor_was_called_the_next_one_gets_its_turn() -> None:
    """The only question of the minibatch called no predictor."""
    state = state_with_turn_of("writer.merge")
    assert select(state, [question_that_called()]) == ["writer.merge"]


def test_a_prompt_that_is_never_called_takes_no_round_of_gepa() -> None:
    """The method fact-store has two prompts that write: one extracts facts, and one merges them.

    Here nothing is merged. GEPA stops after two proposals, one in each round.
    """
    two_proposals = Gepa(
        max_metric_calls=200, extra={"stop_callbacks": [MaxCandidateProposalsStopper(2)]}
    )

    result = mempiler.compile(
        "fact-store",
        benchmark="locomo",
        metric="support",
        stage="write",
        optimizer=two_proposals,
        lm="offline",
        train=12,
        dev=4,
        test=4,
        min_n=4,
        progress=False,
    )

    assert result.usage["calls"]["prompt"] == 2

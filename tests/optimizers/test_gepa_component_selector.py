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


def predictor_with_next_turn(state: Any) -> str:
    """Return whose turn it is by GEPA's state."""
    (number,) = state.named_predictor_id_to_update_next_for_program_candidate
    return PREDICTORS[number]


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
        pytest.param("writer.extract", "writer.extract", id="it was called"),
        pytest.param("writer.merge", "task.answer", id="it was not called"),
    ],
)
def test_a_predictor_that_was_not_called_is_passed_over(next_predictor: str, selected: str) -> None:
    """The turns are in the order `writer.extract`, `writer.merge`, `task.answer`.

    GEPA improves the prompt of one predictor at a time, by what its calls got wrong. Nothing was
    merged for these two questions.
    """
    minibatch = [
        question_that_called("writer.extract"),
        question_that_called("task.answer", "writer.extract"),
    ]

    assert select(state_with_turn_of(next_predictor), minibatch) == [selected]


def test_after_the_last_predictor_the_first_one_has_the_next_turn() -> None:
    """The turns are in the order `writer.extract`, `writer.merge`, `task.answer`."""
    state = state_with_turn_of("task.answer")

    select(state, [question_that_called("task.answer")])

    assert predictor_with_next_turn(state) == "writer.extract"


def test_if_no_predictor_was_called_at_all_the_next_one_gets_its_turn() -> None:
    state = state_with_turn_of("writer.merge")
    question_without_calls = question_that_called()

    assert select(state, [question_without_calls]) == ["writer.merge"]


def test_gepa_proposes_nothing_for_a_prompt_that_is_never_called() -> None:
    """The method fact-store has two prompts that write: one extracts facts, and one merges them.

    Here nothing is merged. GEPA stops after two rounds, and each of them has a proposal. A turn of
    the prompt that merges would be a round without one.
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

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

NAMES = ["writer.extract", "writer.merge", "task.answer"]


def state_at(turn: int) -> Any:
    """Return the part of GEPA's state that says whose turn it is."""
    return SimpleNamespace(
        list_of_named_predictors=NAMES,
        named_predictor_id_to_update_next_for_program_candidate=[turn],
    )


def trajectory(*predictors: str) -> dict[str, Any]:
    """Return a question whose trace has a call of each of the predictors."""
    # A call is traced as predictor, inputs and outputs.
    calls = [(SimpleNamespace(path=predictor), {}, None) for predictor in predictors]
    return {"trace": calls}


def select(state: Any, trajectories: list[dict[str, Any]]) -> list[str]:
    """Return the predictors that get the turn, as GEPA asks for them."""
    scores = [0.5] * len(trajectories)
    return CalledPredictors()(state, trajectories, scores, 0, {})


@pytest.mark.parametrize(
    ("turn", "selected"),
    [
        (0, "writer.extract"),
        # It is the turn of `writer.merge`, which was not called.
        (1, "task.answer"),
        (2, "task.answer"),
    ],
)
def test_a_predictor_that_was_not_called_is_passed_over(turn: int, selected: str) -> None:
    trajectories = [trajectory("writer.extract"), trajectory("task.answer", "writer.extract")]

    assert select(state_at(turn), trajectories) == [selected]


def test_the_predictor_after_the_selected_one_has_the_next_turn() -> None:
    state = state_at(1)

    selected = select(state, [trajectory("task.answer", "writer.extract")])

    assert selected == ["task.answer"]
    # It is the last one, so the first has the next turn.
    assert state.named_predictor_id_to_update_next_for_program_candidate == [0]


def test_if_no_predictor_was_called_the_next_one_gets_its_turn() -> None:
    assert select(state_at(1), [trajectory()]) == ["writer.merge"]


def test_a_prompt_that_is_never_called_takes_no_round_of_gepa() -> None:
    """The method fact-store has a prompt that merges facts.

    Here nothing is merged, so it is not called.
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

    # Each of the two rounds made a proposal.
    assert result.usage["calls"]["prompt"] == 2

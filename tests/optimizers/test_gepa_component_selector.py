"""Predictors that were not called for any question of a minibatch get no turn in GEPA."""

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


def trajectory(*paths: str) -> dict[str, Any]:
    """Return a question whose trace has a call of each of the predictors."""
    return {"trace": [(SimpleNamespace(path=path), {}, None) for path in paths]}


@pytest.mark.parametrize(
    ("turn", "selected"), [(0, "writer.extract"), (1, "task.answer"), (2, "task.answer")]
)
def test_a_predictor_that_was_not_called_is_passed_over(turn: int, selected: str) -> None:
    trajectories = [trajectory("writer.extract"), trajectory("task.answer", "writer.extract")]
    assert CalledPredictors()(state_at(turn), trajectories, [0.5, 0.5], 0, {}) == [selected]


def test_the_predictor_after_the_selected_one_has_the_next_turn() -> None:
    state = state_at(1)
    CalledPredictors()(state, [trajectory("task.answer", "writer.extract")], [0.5], 0, {})
    assert state.named_predictor_id_to_update_next_for_program_candidate == [0]


def test_the_predictor_whose_turn_it_is_is_selected_where_none_was_called() -> None:
    assert CalledPredictors()(state_at(1), [trajectory()], [0.0], 0, {}) == ["writer.merge"]


def test_a_writer_that_merges_nothing_loses_no_round_to_the_prompt_that_merges() -> None:
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

"""Tell GEPA which predictor to change next: predictors take turns, apart from those not called.

GEPA's own `round_robin` gives every predictor its turn. A predictor that was called for no question
of the minibatch has nothing to learn from, so its turn, and the answers of that round, are lost. A
writer that merges facts only in long memories loses half of its rounds so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class CalledPredictors:
    """Selects the predictor whose turn it is, or else the next one that was called."""

    def __call__(
        self,
        state: Any,
        trajectories: Sequence[Mapping[str, Any]],
        subsample_scores: Sequence[float],
        candidate_idx: int,
        candidate: Mapping[str, str],
    ) -> list[str]:
        """Return the name of the predictor that is to get new instructions.

        The parameters have the names that GEPA uses.

        Args:
            state: GEPA's state, a `gepa.core.state.GEPAState`. It knows whose turn it is, and is
                told whose turn is next.
            trajectories: The questions of the minibatch with their traces, as DSPy records them.
            subsample_scores: The scores of these questions.
            candidate_idx: The number of the candidate that is to be changed.
            candidate: Its instructions, by the names of its predictors.
        """
        names: list[str] = state.list_of_named_predictors
        turns = state.named_predictor_id_to_update_next_for_program_candidate
        turn = turns[candidate_idx]
        called = _called_predictors(trajectories)

        selected = turn
        for step in range(len(names)):
            number = (turn + step) % len(names)
            if names[number] in called:
                selected = number
                break

        turns[candidate_idx] = (selected + 1) % len(names)
        return [names[selected]]


def _called_predictors(trajectories: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the paths of all predictors in the traces of some questions."""
    paths: set[str] = set()
    for trajectory in trajectories:
        for predictor, _, _ in trajectory["trace"]:
            paths.add(getattr(predictor, "path", ""))
    return paths

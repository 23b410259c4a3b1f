"""perf/writing.py: what compiling the prompt that writes a memory is worth."""

from __future__ import annotations

from typing import Any

import pytest
from mempiler import benchmark


def test_parts_of_a_conversation_share_no_session(script: Any) -> None:
    writing = script("writing")
    locomo = benchmark("locomo")
    conversation = locomo.examples[0].history

    questions = writing.questions_about_parts(locomo, conversation.id)

    parts = {question.history.id: question.history for question in questions}
    sessions = [item.id for part in parts.values() for item in part.items]
    assert len(parts) == writing.PARTS
    assert len(sessions) == len(set(sessions))
    assert set(sessions) <= {item.id for item in conversation.items}


def test_a_part_is_asked_only_what_it_can_answer(script: Any) -> None:
    writing = script("writing")
    locomo = benchmark("locomo")

    questions = writing.questions_about_parts(locomo, locomo.examples[0].history.id)

    assert questions
    for question in questions:
        assert question.evidence_ids
        for turn_id in question.evidence_ids:
            assert turn_id in question.history.turns


def test_both_directions_are_pooled_into_one_difference(script: Any) -> None:
    """One direction gains .2 on each of its two questions, the other loses .1 on its two."""
    writing = script("writing")
    gaining_cell = {
        "optimizer": "gepa",
        "scores": [["conv-30, part 1", 0.5, 0.7], ["conv-30, part 2", 0.1, 0.3]],
    }
    losing_cell = {
        "optimizer": "gepa",
        "scores": [["conv-26, part 1", 0.5, 0.4], ["conv-26, part 1", 0.9, 0.8]],
    }

    [pooled] = writing.pooled([gaining_cell, losing_cell])

    assert pooled["optimizer"] == "gepa"
    assert pooled["n"] == 4
    assert pooled["difference"]["mean"] == pytest.approx(0.05)
    assert pooled["in each part"] == "-0.10 +0.20 +0.20"


def test_an_optimizer_with_one_direction_is_not_pooled(script: Any) -> None:
    writing = script("writing")
    cell = {"optimizer": "bootstrap", "scores": [["conv-30, part 1", 0.5, 0.7]]}

    assert writing.pooled([cell]) == []

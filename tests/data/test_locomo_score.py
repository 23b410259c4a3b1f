"""What LoCoMo's scores say beside the official numbers, which tests/conformance holds against the released code."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.locomo.benchmark import Locomo


def one_question(folder: Path, category: int, **row: Any) -> Locomo:
    turn = {"speaker": "Ann", "dia_id": "D1:1", "text": "Hello."}
    talk = {"session_1": [turn], "session_1_date_time": "1:56 pm on 8 May, 2023"}
    qa = [{"question": "What?", "evidence": ["D1:1"], "category": category, **row}]
    path = folder / "one.json"
    path.write_text(json.dumps([{"sample_id": "conv-1", "conversation": talk, "qa": qa}]))
    return Locomo.load(path)


@pytest.mark.parametrize("prediction", [dspy.Prediction(), dspy.Prediction(answer=None), dspy.Prediction(answer="")])
def test_no_answer_scores_0_and_is_named(tmp_path: Path, prediction: dspy.Prediction) -> None:
    benchmark = one_question(tmp_path, 4, answer="tea")
    result = benchmark.score(benchmark.examples[0], prediction)
    assert result.value == 0
    assert "No answer" in result.feedback


def test_bleu1_is_reported_against_the_same_gold(tmp_path: Path) -> None:
    benchmark = one_question(tmp_path, 3, answer="Likely no; though she reads")
    assert benchmark.score(benchmark.examples[0], dspy.Prediction(answer="likely no")).parts["bleu1"] == 1


def test_feedback_of_an_adversarial_question_does_not_show_the_trap(tmp_path: Path) -> None:
    benchmark = one_question(tmp_path, 5, adversarial_answer="a trap")
    feedback = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="tea")).feedback
    assert "not mentioned" in feedback
    assert "D1:1" in feedback
    assert "a trap" not in feedback


@pytest.mark.parametrize(("category", "counts"), [(1, True), (2, True), (3, True), (4, True), (5, False)])
def test_only_category_5_is_left_out_of_the_headline(tmp_path: Path, category: int, counts: bool) -> None:
    benchmark = one_question(tmp_path, category, answer="tea")
    assert benchmark.counts(benchmark.examples[0]) is counts

"""LoCoMo's released evaluation (task_eval/evaluation.py) against ours."""

from collections.abc import Callable
from typing import Any

import dspy
import pytest
from mempiler.data.implexconv import rouge_l
from mempiler.data.locomo import LocomoF1
from mempiler.data.text_metrics import evidence_recall, exact_match, words

Agrees = Callable[..., None]


@pytest.mark.vectors("locomo_metrics", "answer-*")
def test_answers(case: dict[str, Any], agrees: Agrees) -> None:
    given = case["input"]
    example = dspy.Example(category=str(given["category"]), answer=str(given["gold"]), evidence=())
    agrees(LocomoF1().score(example, dspy.Prediction(answer=given["answer"])).value)


@pytest.mark.vectors("locomo_metrics", "normalise-*")
def test_words(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(" ".join(words(case["input"]["text"])))


@pytest.mark.vectors("locomo_metrics", "exact-*")
def test_exact_match(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(bool(exact_match(case["input"]["answer"], case["input"]["gold"])))


@pytest.mark.vectors("locomo_metrics", "rouge-*")
def test_what_is_named_rouge_l(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(rouge_l(case["input"]["answer"], case["input"]["gold"]))


@pytest.mark.vectors("locomo_metrics", "recall-*")
def test_recall(case: dict[str, Any], agrees: Agrees) -> None:
    evidence = case["input"]["evidence"]
    # A context of session 3 rests on all its turns, those of the evidence among them.
    sources = [
        [turn for turn in evidence if turn.startswith(f"D{id[1:]}:")] if id.startswith("S") else [id]
        for id in case["input"]["context"] or ()
    ]
    agrees(evidence_recall(evidence, sources, len(sources)))

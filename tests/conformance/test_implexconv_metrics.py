"""ImplexConv's released evaluation (get_baseline_scores.py) against ours."""

from collections.abc import Callable
from typing import Any

import pytest
from dspy import Example, Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.implexconv import AnswerJudged, WordsAndSessions
from mempiler.programs.adapter import adapter

Agrees = Callable[..., None]


def example(answer: str) -> Example:
    return Example(question="Which sport?", answer=answer, reference=answer, evidence=(), category="opposed")


@pytest.mark.vectors("implexconv_metrics", "text-*")
def test_words(case: dict[str, Any], agrees: Agrees) -> None:
    found = WordsAndSessions().score(example(case["input"]["reference"]), Prediction(answer=case["input"]["response"]))
    agrees({"bleu": [found.parts[f"bleu{order}"] for order in (1, 2, 3)], "rouge_l_f": found.parts["rouge_l"]})


@pytest.mark.vectors("implexconv_metrics", "judge-reply-*")
def test_the_verdict_of_a_reply(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    lm = scripted(lambda *call: f"[[ ## reasoning ## ]]\n-\n[[ ## verdict ## ]]\n{case['input']['reply']}")
    scorer = AnswerJudged().bound(lambda kind: kind(lm, adapter()))
    try:
        verdict = scorer.score(example("Archery."), Prediction(answer="Bowls.")).value
    except AdapterParseError:
        verdict = None
    agrees(verdict, None if isinstance(case["expected"], dict) else case["expected"])

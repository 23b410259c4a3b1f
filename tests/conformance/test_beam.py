"""BEAM's released evaluation (compute_metrics.py, report_results.py) against ours."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.beam.reader import ABILITIES
from mempiler.data.beam.scorer import (
    BlindRubricJudge,
    RubricOfficial,
    SameEventJudge,
    align,
    official_table,
    order_scores,
)
from mempiler.programs.adapter import adapter

Agrees = Callable[..., None]


def same_of(case: dict[str, Any], events: list[str], lines: list[str], asked: list[Any]) -> Callable[[str, str], bool]:
    """The pair judge of a case; lines are told apart by their places, and `asked` gets what it is asked."""
    pairs = {(events[event], lines[line]) for event, line in case["input"]["same"]}
    return lambda event, line: (asked.append((event, line)), (event, line) in pairs)[1]


@pytest.mark.vectors("beam", "beam-eo-*", "beam-al-*")
def test_order(case: dict[str, Any], agrees: Agrees) -> None:
    events, lines, asked = case["input"]["reference"], case["input"]["system"], []
    aligned = align(events, lines, same_of(case, events, lines, asked))
    found = {name: None if value != value else value for name, value in order_scores(events, aligned).items()}
    agrees({"aligned": aligned, "pairs_asked": len(asked)} if "aligned" in case["expected"] else found)


@pytest.mark.vectors("beam", "beam-eq-*")
def test_the_verdict_on_a_pair(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    lm = scripted(lambda *call: f"[[ ## verdict ## ]]\n{case['input']['reply']}")
    try:
        agrees(SameEventJudge(lm, adapter())("sowing", "I sowed"))
    except AdapterParseError:
        agrees(None)


@pytest.mark.vectors("beam", "beam-jd-*", "beam-ev-*")
def test_an_answer(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    given = case["input"]
    rubric = given.get("rubric") or [f"item {n}" for n, _ in enumerate(given["replies"])]
    answer = given.get("answer", "An answer.")
    lm = scripted(lambda kind, text, n: given["replies"][n - 1] if n <= len(given["replies"]) else "")
    same = same_of(case, rubric, answer.split("\n"), []) if "same" in given else None
    made = {BlindRubricJudge: BlindRubricJudge(lm, adapter()), SameEventJudge: same}
    scorer = RubricOfficial().bound(made.__getitem__)
    example = dspy.Example(question="?", rubric=rubric, category=given.get("ability", "event_ordering"), evidence=())
    try:
        parts = dict(scorer.score(example, dspy.Prediction(answer=answer)).parts)
    except AdapterParseError:
        agrees(None)
        return
    if same is None:
        agrees({"llm_judge_score": parts["official"]})
    else:
        order = order_scores(rubric, align(rubric, answer.split("\n"), same))
        assert parts["official"] == pytest.approx(order["tau_norm"])
        agrees({**order, "llm_judge_score": parts["rubric_items"]})


@pytest.mark.vectors("beam", "beam-ag-*")
def test_the_table(case: dict[str, Any], agrees: Agrees) -> None:
    chats = case["input"]["chats"]
    found = []
    for name in case["input"]["row_names"]:
        rows = [
            SimpleNamespace(
                id=f"100K/{chat}:{ability}:{n}",
                category=ability,
                failure=None,
                parts={} if value is None else {"it": value},
            )
            for chat, files in chats.items()
            for ability, values in files[name].items()
            for n, value in enumerate(values)
        ]
        means = official_table(cast("Any", rows), "it")
        found.append({"RowName": name, **{ability: means.get(ability) for ability in ABILITIES}})
    agrees(found)

"""BEAM and MemBench: what their released code gives."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import dspy
import pytest
from dspy import Example, Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.beam.reader import ABILITIES
from mempiler.data.beam.scorer import (
    BlindRubricJudge,
    OfficialRubricScorer,
    SameEventJudge,
    align,
    official_table,
    order_scores,
)
from mempiler.data.catalog import benchmark
from mempiler.data.common_scorers import TokenF1
from mempiler.data.membench import MemBenchAccuracy
from mempiler.programs.adapter import adapter
from mempiler.reading.answer import read_answer
from mempiler.reading.choices import chosen_letter
from mempiler.signatures.memory_r2 import AnswerFromMemories

Agrees = Callable[..., None]


def same_of(case: dict[str, Any], events: list[str], lines: list[str], asked: list[Any]) -> Callable[[str, str], bool]:
    """The pair judge of a case; lines are told apart by their places, and `asked` gets what it is asked."""
    pairs = {(events[event], lines[line]) for event, line in case["input"]["same"]}
    return lambda event, line: (asked.append((event, line)), (event, line) in pairs)[1]


@pytest.mark.vectors("beam", "beam-eo-*", "beam-al-*")
def test_the_order_of_events_is_scored_as_released(case: dict[str, Any], agrees: Agrees) -> None:
    events, lines, asked = case["input"]["reference"], case["input"]["system"], []
    aligned = align(events, lines, same_of(case, events, lines, asked))
    found = {name: None if value != value else value for name, value in order_scores(events, aligned).items()}
    agrees({"aligned": aligned, "pairs_asked": len(asked)} if "aligned" in case["expected"] else found)


@pytest.mark.vectors("beam", "beam-eq-*")
def test_the_verdict_on_a_pair_is_read_as_released(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    lm = scripted(lambda *call: f"[[ ## verdict ## ]]\n{case['input']['reply']}")
    try:
        agrees(SameEventJudge(lm, adapter())("sowing", "I sowed"))
    except AdapterParseError:
        agrees(None)


@pytest.mark.vectors("beam", "beam-jd-*", "beam-ev-*")
def test_an_answer_is_scored_as_released(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    given = case["input"]
    rubric = given.get("rubric") or [f"item {n}" for n, _ in enumerate(given["replies"])]
    answer = given.get("answer", "An answer.")
    lm = scripted(lambda kind, text, n: given["replies"][n - 1] if n <= len(given["replies"]) else "")
    same = same_of(case, rubric, answer.split("\n"), []) if "same" in given else None
    made = {BlindRubricJudge: BlindRubricJudge(lm, adapter()), SameEventJudge: same}
    scorer = OfficialRubricScorer().with_judges(made.__getitem__)
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
def test_the_table_is_that_of_the_released_code(case: dict[str, Any], agrees: Agrees) -> None:
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


CHOICES = {"A": "a walk", "B": "a swim", "C": "a nap", "D": "a book"}


@pytest.fixture
def read(tmp_path) -> Callable[..., tuple[Example, ...]]:
    """What is made of one trajectory."""

    def examples(messages: list[Any], targets: list[Any], **options: Any) -> tuple[Example, ...]:
        asked = {"question": "Which?", "answer": "a swim", "choices": CHOICES, "ground_truth": "B"}
        row = {"message_list": messages, "QA": {**asked, "target_step_id": targets}}
        (tmp_path / "simple.json").write_text(json.dumps({"roles": [row]}), encoding="utf-8")
        return benchmark("membench", tmp_path / "simple.json", **options).examples

    return examples


def reward(example: Example, answer: str) -> float:
    """The score of an answer."""
    return MemBenchAccuracy().score(example, Prediction(answer=answer)).value


@pytest.mark.vectors("membench", "mb-rc-*", "mb-ep-*")
def test_reward_and_recall_of_target_steps(case: dict[str, Any], agrees: Agrees, read: Any) -> None:
    (example,), done = read(["word"] * 40, case["input"]["target_step_id"]), case["input"].get("action", case["input"])
    hits = [[f"D1:{step + 1}"] for step in done["memory_index"] or ()]
    recall = MemBenchAccuracy().retrieval_metrics(example, hits).get("target steps@10")
    if "action" in case["input"]:
        ours = {"reward": reward(example, done["response"]), "recall": recall}
        agrees(ours, {name: case["expected"][name] for name in ours})
    else:
        agrees(recall)


@pytest.mark.vectors("membench", "mb-cp-*")
def test_moments_and_answers_of_the_capacity_run(case: dict[str, Any], agrees: Agrees, read: Any) -> None:
    asked = read(case["input"]["message_list"], case["input"]["target_step_id"], capacity=1)
    said = [[turn.text for turn, _ in example.history.turns.values()] for example in asked]
    right = map(reward, asked, case["input"]["answers"])
    pairs = [[len(" ".join(texts).split()), value] for texts, value in zip(said, right, strict=True)]
    agrees({"asked_with_step_id": list(map(len, said)), "tokens_and_correct": pairs})


@pytest.mark.vectors("membench", "mb-sp-*")
def test_what_the_loader_writes_has_the_same_target_steps(case: dict[str, Any], agrees: Agrees, read: Any) -> None:
    (loaded,), (raw,) = (
        read(*map(case[form].get, ("message_list", "target_step_id"))) for form in ("expected", "input")
    )
    agrees(*([one.history.turns[id][0].text for id in one.evidence] for one in (loaded, raw)))


@pytest.mark.vectors("membench", "mb-cl-*", "r2-op-*")
def test_the_option_that_a_reply_chooses(case: dict[str, Any], agrees: Agrees) -> None:
    choices = case["input"].get("choices", CHOICES) or {}
    letter = chosen_letter(case["input"]["reply"], [f"({name}) {text}" for name, text in choices.items()])
    agrees(letter and letter.strip("()").upper())


@pytest.mark.vectors("membench", "r2-it-*", "r2-ex-*", "r2-tu-*", "r2-f1-*")
def test_memory_r2s_turns_answers_and_scores(case: dict[str, Any], agrees: Agrees, read: Any) -> None:
    given, kind = case["input"], case["id"][:5]
    if kind == "r2-ex":
        agrees(read_answer(AnswerFromMemories, given["reply"])[0]["answer"])
    elif kind == "r2-f1":
        gold = Example(answer=given["reference"])
        agrees(TokenF1().score(gold, Prediction(answer=given["prediction"])).value, case["expected"]["f1"])
    elif kind == "r2-tu":
        (example,) = read([*[[]] * given["session_index"], given["session"]], [])
        ours = [(turn.text.partition(" (")[0], turn.id) for turn, _ in example.history.turns.values()]
        agrees(ours, [[turn["text"], turn["dia_id"]] for turn in case["expected"]])
    else:
        (example,) = read(["word"], [0])
        agrees([{"option_acc": reward(example, item["response"])} for item in given["items"]])

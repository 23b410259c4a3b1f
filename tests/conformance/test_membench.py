"""The released code of MemBench, and Memory-R2's for it, against what is read, recalled and scored here."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from dspy import Example, Prediction
from mempiler.data.catalog import benchmark
from mempiler.data.membench import MemBenchAccuracy
from mempiler.data.scorer import TokenF1
from mempiler.reading.answer import read_answer
from mempiler.reading.choices import chosen_letter
from mempiler.signatures.memory_r2 import AnswerFromMemories

Agrees = Callable[..., None]
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
    recall = MemBenchAccuracy().retrieval(example, hits).get("target steps@10")
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

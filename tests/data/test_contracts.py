"""The examples in the docstrings of the contracts of `data/` run as they stand there."""

import inspect
import json
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data import benchmark, dataset, interaction, judge, scorer
from mempiler.errors import UserError
from mempiler.records import History, read_json

TRIVIA = [
    {
        "user": "ann",
        "chat": [[{"role": "user", "name": "Ann", "content": "We moved to Porto."}]],
        "questions": [
            {
                "id": "q1",
                "category": "homes",
                "question": "Where?",
                "city": "Porto",
                "evidence": [],
            },
            {
                "id": "q2",
                "category": "homes",
                "question": "Since when?",
                "city": "",
                "evidence": [],
            },
        ],
    }
]


def run_examples(module: Any, names: dict[str, Any]) -> dict[str, Any]:
    """Run the indented code of a module's docstring; return its names and those that it defines."""
    lines = (inspect.getdoc(module) or "").splitlines()
    code = [line.removeprefix("    ") if line.startswith("    ") else "" for line in lines]
    scope = {"dspy": dspy, **vars(module), **names}
    exec("\n".join(code), scope)
    return scope


def test_the_example_of_a_scorer_scores() -> None:
    names = run_examples(scorer, {"Judge": judge.Judge})
    example = dspy.Example(question="Where?", answer="Porto", city="Porto")

    right = names["NamesTheCity"]().score(example, dspy.Prediction(answer="In Porto."))
    wrong = names["NamesTheCity"]().score(example, dspy.Prediction(answer="At home."))

    assert right == scorer.Score(1.0, "Right.", {"city": 1.0})
    assert wrong == scorer.Score(0.0, "Wrong: name the city, Porto.", {"city": 0.0})


def test_the_example_of_a_judged_scorer_asks_its_judge() -> None:
    names = run_examples(scorer, {"Judge": judge.Judge})
    example = dspy.Example(question="Where?", answer="Porto")

    def verdict(question: str, gold: str, answer: str) -> judge.Verdict:
        return judge.Verdict(gold in answer, "same town")

    judged: Any = names["JudgedRight"]().with_judges(lambda judge_class: verdict)

    assert judged.score(example, dspy.Prediction(answer="In Porto.")) == scorer.Score(
        1.0, "same town"
    )


def test_the_example_of_a_judge_asks_its_model(scripted: Any) -> None:
    class JudgeCity(dspy.Signature):
        """Decide whether an answer names the city."""

        question: str = dspy.InputField()
        answer: str = dspy.InputField()
        verdict: str = dspy.OutputField()

    names = run_examples(judge, {"JudgeCity": JudgeCity})
    lm = scripted(lambda kind, text, n: {"verdict": "yes"})

    assert names["CityJudge"](lm)("Where?", "In Porto.") == judge.Verdict(True)


def test_the_example_of_a_benchmark_loads_and_scores(tmp_path: Path) -> None:
    scorers = run_examples(scorer, {"Judge": judge.Judge})
    names = run_examples(
        benchmark,
        {
            "NamesTheCity": scorers["NamesTheCity"],
            "Finding": dataset.Finding,
            "History": History,
            "read_json": read_json,
        },
    )
    file = tmp_path / "trivia.json"
    file.write_text(json.dumps(TRIVIA), encoding="utf-8")

    trivia = names["Trivia"].load(str(file))

    assert [example.id for example in trivia.examples] == ["q1"]
    assert trivia.conversations == {"ann"}
    assert trivia.score(trivia.examples[0], dspy.Prediction(answer="Porto")).value == 1.0


def test_the_example_of_an_interaction_needs_its_user() -> None:
    class Greeter:
        def __init__(self, lm: Any, adapter: Any) -> None: ...

        def __call__(self, example: dspy.Example) -> str:
            return "Hello"

    names = run_examples(interaction, {"SimulatedUser": Greeter, "UserError": UserError})
    example = dspy.Example(history=None)

    def assistant(**inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answer=f"{inputs['question']} to you")

    def rival(**inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answer="Who are you?")

    unbound = names["SmallTalk"]()
    with pytest.raises(UserError):
        unbound.converse(assistant, example)
    bound = unbound.with_simulated_user(None, None, rival)

    assert bound.converse(assistant, example).toDict() == {
        "answer": "Hello to you",
        "rival": "Who are you?",
    }

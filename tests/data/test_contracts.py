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
            # The reader of the example leaves out a question without its answer.
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
    """Run the indented code of a module's docstring.

    Args:
        module: The module. The code may use what it defines.
        names: What else the code may use.

    Returns:
        All these names, and those that the code defines.
    """
    code_lines: list[str] = []
    for line in inspect.getdoc(module).splitlines():
        # Lines of text become blank, so that errors name the right line.
        is_code = line.startswith("    ")
        code_lines.append(line.removeprefix("    ") if is_code else "")
    scope = {"dspy": dspy, **vars(module), **names}
    exec("\n".join(code_lines), scope)
    return scope


def test_the_example_of_a_scorer_scores() -> None:
    """The example is a class `NamesTheCity`: an answer is right if it names the city."""
    scope = run_examples(scorer, {"Judge": judge.Judge})
    example = dspy.Example(question="Where?", answer="Porto", city="Porto")

    right = scope["NamesTheCity"]().score(example, dspy.Prediction(answer="In Porto."))
    wrong = scope["NamesTheCity"]().score(example, dspy.Prediction(answer="At home."))

    assert right == scorer.Score(1.0, "Right.", {"city": 1.0})
    assert wrong == scorer.Score(0.0, "Wrong: name the city, Porto.", {"city": 0.0})


def test_the_example_of_a_judged_scorer_asks_its_judge() -> None:
    """The example is a class `JudgedRight`: the score is the verdict of its judge."""
    scope = run_examples(scorer, {"Judge": judge.Judge})
    example = dspy.Example(question="Where?", answer="Porto")

    def judge_by_words(question: str, gold: str, answer: str) -> judge.Verdict:
        return judge.Verdict(gold in answer, "same town")

    judged: Any = scope["JudgedRight"]().with_judges(lambda judge_class: judge_by_words)
    score = judged.score(example, dspy.Prediction(answer="In Porto."))

    assert score == scorer.Score(1.0, "same town")


def test_the_example_of_a_judge_asks_its_model(scripted: Any) -> None:
    """The example is a class `CityJudge`, whose model answers "yes"."""

    class JudgeCity(dspy.Signature):
        """Decide whether an answer names the city."""

        question: str = dspy.InputField()
        answer: str = dspy.InputField()
        verdict: str = dspy.OutputField()

    scope = run_examples(judge, {"JudgeCity": JudgeCity})
    lm = scripted(lambda *call: {"verdict": "yes"})

    city_judge = scope["CityJudge"](lm)

    assert city_judge("Where?", "In Porto.") == judge.Verdict(True)


def test_the_example_of_a_benchmark_loads_and_scores(tmp_path: Path) -> None:
    """The example in the docstring of the module `benchmark` is a class `Trivia`."""
    scope_of_scorers = run_examples(scorer, {"Judge": judge.Judge})
    scope = run_examples(
        benchmark,
        {
            "NamesTheCity": scope_of_scorers["NamesTheCity"],
            "Finding": dataset.Finding,
            "History": History,
            "read_json": read_json,
        },
    )
    path = tmp_path / "trivia.json"
    path.write_text(json.dumps(TRIVIA), encoding="utf-8")

    trivia = scope["Trivia"].load(str(path))

    assert [example.id for example in trivia.examples] == ["q1"]
    assert trivia.conversations == {"ann"}
    assert trivia.score(trivia.examples[0], dspy.Prediction(answer="Porto")).value == 1.0


class Greeter:
    """A simulated user who says hello, in place of one that a model plays."""

    def __init__(self, lm: Any, adapter: Any) -> None:
        """Take what a simulated user takes, and use nothing of it."""

    def __call__(self, example: dspy.Example) -> str:
        return "Hello"


def polite_assistant(**inputs: Any) -> dspy.Prediction:
    return dspy.Prediction(answer=f"{inputs['question']} to you")


def rude_rival(**inputs: Any) -> dspy.Prediction:
    return dspy.Prediction(answer="Who are you?")


def test_the_example_of_an_interaction_lets_a_user_talk_with_two_assistants() -> None:
    """The example is a class `SmallTalk`. A user talks with an assistant and with a rival.

    The user says "Hello" to both.
    """
    scope = run_examples(interaction, {"SimulatedUser": Greeter, "UserError": UserError})
    small_talk = scope["SmallTalk"]().with_simulated_user(None, None, rude_rival)

    result = small_talk.converse(polite_assistant, dspy.Example(history=None))

    # The user says "Hello" to both.
    assert result.toDict() == {"answer": "Hello to you", "rival": "Who are you?"}


def test_the_example_of_an_interaction_needs_its_user() -> None:
    """The example `SmallTalk` was given no simulated user here."""
    scope = run_examples(interaction, {"SimulatedUser": Greeter, "UserError": UserError})
    with pytest.raises(UserError):
        scope["SmallTalk"]().converse(polite_assistant, dspy.Example(history=None))

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


def class_in_docstring(module: Any, class_name: str, **names: Any) -> Any:
    """Run the indented code of a module's docstring, and return a class that it defines.

    Args:
        module: The module. The code may use what the module defines.
        class_name: The name of the class.
        **names: What else the code may use.
    """
    code_lines: list[str] = []
    for line in inspect.getdoc(module).splitlines():
        # Lines of text become blank, so that errors name the right line.
        is_code = line.startswith("    ")
        code_lines.append(line.removeprefix("    ") if is_code else "")

    scope = {"dspy": dspy, **vars(module), **names}
    exec("\n".join(code_lines), scope)
    return scope[class_name]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("In Porto.", scorer.Score(1.0, "Right.", {"city": 1.0})),
        ("At home.", scorer.Score(0.0, "Wrong: name the city, Porto.", {"city": 0.0})),
    ],
)
def test_the_example_of_a_scorer_scores(answer: str, expected: scorer.Score) -> None:
    """The docstring of `scorer` defines `NamesTheCity`: an answer is right if it names the city."""
    names_the_city = class_in_docstring(scorer, "NamesTheCity", Judge=judge.Judge)
    example = dspy.Example(question="Where?", answer="Porto", city="Porto")

    assert names_the_city().score(example, dspy.Prediction(answer=answer)) == expected


def test_the_example_of_a_judged_scorer_asks_its_judge() -> None:
    """The docstring of `scorer` defines `JudgedRight`: the score is the verdict of a judge."""
    judged_right = class_in_docstring(scorer, "JudgedRight", Judge=judge.Judge)
    example = dspy.Example(question="Where?", answer="Porto")

    def judge_by_words(question: str, gold: str, answer: str) -> judge.Verdict:
        return judge.Verdict(gold in answer, "same town")

    scorer_with_judge = judged_right().with_judges(lambda judge_class: judge_by_words)
    score = scorer_with_judge.score(example, dspy.Prediction(answer="In Porto."))

    assert score == scorer.Score(1.0, "same town")


def test_the_example_of_a_judge_asks_its_model(scripted: Any) -> None:
    """The docstring of `judge` defines `CityJudge`, which asks a model. This model says "yes"."""

    class JudgeCity(dspy.Signature):
        """Decide whether an answer names the city."""

        question: str = dspy.InputField()
        answer: str = dspy.InputField()
        verdict: str = dspy.OutputField()

    city_judge = class_in_docstring(judge, "CityJudge", JudgeCity=JudgeCity)
    lm = scripted(lambda *call: {"verdict": "yes"})

    verdict = city_judge(lm)(question="Where?", answer="In Porto.")

    assert verdict == judge.Verdict(True)


ROW = {"category": "homes", "question": "Where?", "evidence": []}


def test_the_example_of_a_benchmark_loads_and_scores(tmp_path: Path) -> None:
    """The docstring of `benchmark` defines `Trivia`, which leaves out rows without a city."""
    trivia_class = class_in_docstring(
        benchmark,
        "Trivia",
        NamesTheCity=class_in_docstring(scorer, "NamesTheCity", Judge=judge.Judge),
        Finding=dataset.Finding,
        History=History,
        read_json=read_json,
    )
    user = {
        "user": "ann",
        "chat": [[{"role": "user", "name": "Ann", "content": "We moved to Porto."}]],
        "questions": [{**ROW, "id": "q1", "city": "Porto"}, {**ROW, "id": "q2", "city": ""}],
    }
    path = tmp_path / "trivia.json"
    path.write_text(json.dumps([user]), encoding="utf-8")

    trivia = trivia_class.load(str(path))

    [example] = trivia.examples
    assert example.id == "q1"
    assert trivia.score(example, dspy.Prediction(answer="Porto")).value == 1.0


class Greeter:
    """A simulated user who says hello, in place of one that a model plays."""

    def __init__(self, lm: Any, adapter: Any) -> None:
        """Take what a simulated user takes, and use nothing of it."""

    def __call__(self, example: dspy.Example) -> str:
        return "Hello"


def polite_assistant(question: str, **inputs: Any) -> dspy.Prediction:
    return dspy.Prediction(answer=f"{question} to you")


def rude_assistant(question: str, **inputs: Any) -> dspy.Prediction:
    return dspy.Prediction(answer="Who are you?")


@pytest.fixture
def small_talk_class() -> Any:
    """The class `SmallTalk` in the docstring of `interaction`. Its simulated user says hello."""
    return class_in_docstring(interaction, "SmallTalk", SimulatedUser=Greeter, UserError=UserError)


def test_the_example_of_an_interaction_lets_a_user_talk_with_two_assistants(
    small_talk_class: Any,
) -> None:
    """The user says "Hello" to the assistant that is tested, and to a rival."""
    small_talk = small_talk_class().with_simulated_user(None, None, rival=rude_assistant)

    result = small_talk.converse(polite_assistant, dspy.Example(history=None))

    assert result.answer == "Hello to you"
    assert result.rival == "Who are you?"

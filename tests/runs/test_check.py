"""A check: may a program take the place of the one in use?

Both answer the same questions. The *reference* is the program in use with the model in use. The
check fails if the new program is significantly worse, if there are too few questions to tell, or if
a figure is below its floor. Most programs here are functions, so that no model is asked.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import build, save
from mempiler.errors import BrokenRunError, UserError
from mempiler.runs.check import CheckModels
from mempiler.runs.check_result import Check, CheckRow, compare_with_reference
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import Manifest
from mempiler.runs.results import Evaluation

from .evaluations import RecordingEngine, evaluation, row, script_models

CITIES = ["Lisbon", "Oslo", "Quito", "Hanoi"]


def city_of(user: int) -> str:
    """Return where a user lives."""
    return CITIES[user % len(CITIES)]


def make_examples(count: int) -> list[dspy.Example]:
    """Return a question to each of `count` users: where user 3 lives, for example."""
    examples: list[dspy.Example] = []
    for user in range(count):
        example = dspy.Example(
            user=f"user {user}",
            history=[{"role": "user", "content": f"I live in {city_of(user)}, says {user}."}],
            question=f"Where does user {user} live?",
            answer=city_of(user),
        )
        examples.append(example)
    return examples


def knows_all(history: Any, question: str) -> str:
    """A program that answers every question."""
    return city_of(int(question.split()[3]))


def knows_half(history: Any, question: str) -> str:
    """A program that answers the questions to users with even numbers."""
    user = int(question.split()[3])
    return "I do not know" if user % 2 else city_of(user)


def knows_all_but_two(history: Any, question: str) -> str:
    """A program that answers all questions but those to users 0 and 1."""
    user = int(question.split()[3])
    return "I do not know" if user < 2 else city_of(user)


def always_fails(history: Any, question: str) -> str:
    """A program that is broken."""
    raise RuntimeError("out of order")


def check(program: object, against: object, count: int = 24, **options: Any) -> Check:
    """Check a program on `count` questions, by exact match."""
    return mempiler.check(
        program,
        against=against,
        testset=make_examples(count),
        metric="exact",
        progress=False,
        **options,
    )


# --- what fails and what passes ---------------------------------------------------------------


def test_a_program_that_lost_half_of_the_questions_fails() -> None:
    """Of the 24 questions, the program in use answers all rightly, and the new one half."""
    result = check(knows_half, against=knows_all)

    (decisive_row,) = result.decisive_rows
    assert not result.passed
    assert decisive_row.difference is not None
    assert decisive_row.difference.mean == pytest.approx(-0.5)
    assert decisive_row.problems[0].startswith("worse: -0.500 [")


def test_a_check_that_passed_says_which_loss_it_would_have_noticed() -> None:
    """The program loses two of 24 questions. To be called worse, it would have to lose six."""
    result = check(knows_all_but_two, against=knows_all, count=24)

    (decisive_row,) = result.decisive_rows
    assert result.passed
    assert decisive_row.verdict == "not told apart"
    assert decisive_row.detectable_loss is not None
    assert 6 / 24 < decisive_row.detectable_loss < 0.6
    assert f"in 90% of the cases is {decisive_row.detectable_loss:.3f}" in str(result)


def test_a_check_with_too_few_questions_for_a_verdict_fails() -> None:
    """With ten questions no program could be called worse, so every check would pass."""
    result = check(knows_all, against=knows_all, count=10)

    assert not result.passed
    assert result.decisive_rows[0].problems[0].startswith("too few to tell: ")


def test_the_user_may_allow_a_check_with_few_questions() -> None:
    """`min_n` is the least number of questions for a verdict."""
    result = check(knows_all, against=knows_all, count=10, min_n=10)

    assert result.passed


def test_a_program_below_a_floor_fails_although_it_is_not_worse() -> None:
    """Both programs answer half of the questions rightly, so their score is 0.5."""
    result = check(knows_half, against=knows_half, floors={"score": 0.6})

    assert not result.passed
    (problem,) = result.decisive_rows[0].problems
    assert problem.startswith("score is 0.500 [")
    assert problem.endswith("below the floor 0.6")


def test_a_better_program_passes_although_the_reference_is_below_the_floor() -> None:
    """The reference answers half of the questions rightly, so its score is 0.5."""
    result = check(knows_all, against=knows_half, floors={"score": 0.6})

    assert result.passed
    (decisive_row,) = result.decisive_rows
    assert decisive_row.verdict == "better"


def test_a_program_that_answers_no_question_does_not_pass() -> None:
    result = check(always_fails, against=knows_all, floors={"score": 0.1})

    assert not result.passed
    (broken_row,) = result.broken_rows
    assert broken_row.program == f"{__name__}:always_fails"
    assert broken_row.problems[0].startswith("broken run: 24 of 24 questions failed")


def test_a_reference_that_answers_no_question_is_an_error() -> None:
    with pytest.raises(BrokenRunError, match="24 of 24 questions failed"):
        check(knows_all, against=always_fails)


# --- settings and models ----------------------------------------------------------------------


def test_settings_are_those_of_the_checked_program_and_not_of_the_reference() -> None:
    """A check has a run for each program, whose record has the settings of the method."""
    result = check("turn-rag", against="turn-rag", count=2, set={"k": 3})

    assert result.run is not None
    checked_run, reference_run = sorted(result.run.glob("parts/*"))
    assert RunFolder(checked_run).read()["settings"]["method_settings"] == {"k": 3}
    assert RunFolder(reference_run).read()["settings"]["method_settings"] == {}


def test_several_models_give_a_table_of_programs_and_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the rows of the new program decide; `is_decisive` says so."""
    script_models(monkeypatch, RecordingEngine())

    result = check("turn-rag", against="no-memory", count=2, lms=["openai/large", "openai/small"])

    table = [(row.program, row.lm, row.is_decisive) for row in result.rows]
    assert table == [
        ("no-memory", "openai/large", False),
        ("no-memory", "openai/small", False),
        ("turn-rag", "openai/large", True),
        ("turn-rag", "openai/small", True),
    ]
    assert result.reference is result.rows[0]


def test_a_program_can_be_checked_with_a_smaller_model_against_itself_with_the_larger_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user asks whether the smaller model will do. Each model gets the two questions once."""
    engine = RecordingEngine()
    script_models(monkeypatch, engine)

    result = check(
        "turn-rag",
        against="turn-rag",
        count=2,
        lms=["openai/small"],
        against_lm="openai/large",
    )

    assert [(row.program, row.lm) for row in result.rows] == [
        ("turn-rag", "openai/large"),
        ("turn-rag", "openai/small"),
    ]
    assert len(engine.prompts) == 2 + 2


def save_compiled_with(lm: str, folder: Path) -> str:
    """Save a program as if it had been compiled with a model; return its folder."""
    program = build("turn-rag")
    save(program, folder, Manifest(method="", task="", lms={"task": lm}))
    return str(folder)


def choose_models(reference_program: str, models: list[Any]) -> CheckModels:
    """Return the models of a check, if the user names these for the new program.

    The user names none for the reference, and has set the offline engine as default model.
    """
    return CheckModels.choose(
        reference_program=reference_program,
        models=models,
        reference_model=None,
        default="offline",
    )


def test_the_reference_is_asked_with_the_model_that_it_was_compiled_with(tmp_path: Path) -> None:
    reference = save_compiled_with("openai/large", tmp_path / "program")

    models = choose_models(reference, models=["openai/small"])

    assert models.reference == "openai/large"
    assert models.checked == ("openai/small",)


def test_if_the_user_names_no_model_both_programs_are_asked_with_that_of_the_reference(
    tmp_path: Path,
) -> None:
    reference = save_compiled_with("openai/large", tmp_path / "program")

    models = choose_models(reference, models=[])

    assert models.reference == "openai/large"
    assert models.checked == ("openai/large",)


def test_a_reference_that_was_compiled_offline_is_asked_with_the_first_model_of_the_user(
    tmp_path: Path,
) -> None:
    """The offline engine is only a stand-in for a model, so it is not the model in use."""
    reference = save_compiled_with("offline", tmp_path / "program")

    models = choose_models(reference, models=["openai/large", "openai/small"])

    assert models.reference == "openai/large"


def test_a_model_object_of_the_user_is_asked_in_place_of_its_name(tmp_path: Path) -> None:
    """The reference was compiled with the model of this name. The object knows its server, too."""
    reference = save_compiled_with("openai/large", tmp_path / "program")
    large = dspy.LM("openai/large", api_base="http://127.0.0.1:1")

    models = choose_models(reference, models=[large])

    assert models.reference is large


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"lms": "openai/a"}, "give a list of models", id="a name for the list"),
        pytest.param(
            {"lms": ["openai/a"], "lm": "openai/b"}, "lms names the models already", id="both"
        ),
        pytest.param({"lms": ["openai/a", "openai/a"]}, "is given twice", id="one model twice"),
        pytest.param(
            {"lms": [3]}, "expected the name of a model or a dspy.LM, got int", id="no model"
        ),
        pytest.param(
            {"against_lm": 3},
            "expected the name of a model or a dspy.LM, got int",
            id="no model of the reference",
        ),
        pytest.param({"workers": 2}, "check does not take it", id="an option of other commands"),
        pytest.param({"floors": {"score": "high"}}, "is no finite number", id="no number"),
    ],
)
def test_a_wrong_argument_of_a_check_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(knows_all, against=knows_all, **options)


# --- one store --------------------------------------------------------------------------------


def test_prompts_that_both_programs_have_in_common_are_paid_for_once(stub: Any) -> None:
    """Both programs are turn RAG with `k` = 10, its default, so all three prompts are equal."""
    server = stub()

    check(
        "turn-rag",
        against="turn-rag",
        count=3,
        set={"k": 10},
        lm=server.model,
        api_base=server.url,
        max_calls=3,
    )

    questions = [text for text in server.texts if "Where does user" in text]
    assert len(questions) == 3


def run_to_resume(error: BrokenRunError) -> str:
    """Return the name of the run in a message like "...; resume with --resume NAME"."""
    _, _, rest = str(error).partition("--resume ")
    return rest.split()[0]


def test_a_check_that_reached_its_limit_is_resumed_without_asking_a_question_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both programs get four questions, which takes eight calls; the limit is six."""
    engine = RecordingEngine()
    script_models(monkeypatch, engine)
    options: dict[str, Any] = {"lm": "openai/x", "count": 4, "threads": 1, "set": {"k": 3}}

    with pytest.raises(BrokenRunError, match="nothing was decided: ") as stop:
        check("turn-rag", against="turn-rag", max_calls=6, **options)
    result = check("turn-rag", against="turn-rag", resume=run_to_resume(stop.value), **options)

    assert [row.evaluation.n for row in result.rows] == [4, 4]
    assert len(engine.prompts) == 8


# --- how the result is shown ------------------------------------------------------------------


def evaluation_with_scores(scores: list[float]) -> Evaluation:
    """Return an evaluation of the questions q0, q1, ... with these scores."""
    return evaluation(row(f"q{number}", score) for number, score in enumerate(scores))


ALL_RIGHT = [1.0] * 24
"""The scores of 24 right answers."""
HALF_RIGHT = [1.0, 0.0] * 12
"""The scores of 24 answers of which every second one is right."""


def check_with_scores(*, old: list[float], new: list[float], program: str = "new") -> Check:
    """Return a check of a program against "old", by their scores; the score's floor is 0.9."""
    reference = evaluation_with_scores(old)
    checked = evaluation_with_scores(new)
    decisive_row = CheckRow(program, "openai/x", checked, is_decisive=True)
    return Check(
        benchmark="locomo",
        rows=(
            CheckRow("old", "openai/x", reference),
            compare_with_reference(decisive_row, reference, {"score": 0.9}),
        ),
    )


def test_json_has_a_row_for_each_program_with_its_problems() -> None:
    """The new program has two problems: it is worse, and its score is below the floor 0.9."""
    check_result = check_with_scores(old=ALL_RIGHT, new=HALF_RIGHT)

    result = check_result.to_dict()

    assert result["passed"] is False
    assert result["power"] == 0.9
    reference, checked = result["rows"]
    assert reference["verdict"] == "reference"
    assert checked["difference"]["mean"] == pytest.approx(-0.5)
    assert len(checked["problems"]) == 2


def test_markdown_has_a_heading_a_table_and_the_reasons() -> None:
    result = check_with_scores(old=ALL_RIGHT, new=HALF_RIGHT)

    text = result.to_markdown()

    assert "### check failed: new against old on locomo\n" in text
    assert "\n| old | openai/x | 24 | 1.000 " in text
    assert "\n| new | openai/x | 24 | 0.500 " in text
    assert "\n- failed: new with openai/x: worse: -0.500 " in text


def test_the_name_of_a_program_is_escaped_in_markdown() -> None:
    """A pipe in a name would end the cell of the table, and a tag would be taken as HTML."""
    result = check_with_scores(old=ALL_RIGHT, new=HALF_RIGHT, program="a|b\n<img src=x>`")

    text = result.to_markdown()

    assert "| a\\|b \\<img src=x\\>\\` |" in text
    assert text.count("<img") == text.count("\\<img")


def test_junit_has_a_test_for_the_comparison_and_one_for_each_floor() -> None:
    """The new program is worse, and its score is below the floor 0.9, so both tests fail."""
    result = check_with_scores(old=ALL_RIGHT, new=HALF_RIGHT)

    suite = ElementTree.fromstring(result.to_junit())

    assert suite.get("tests") == "2"
    assert suite.get("failures") == "2"
    assert suite.get("errors") == "0"
    names = [case.get("name") for case in suite]
    assert names == ["not worse than old", "score of at least 0.9"]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("worse: -0.500")


def test_a_passed_check_has_no_failure_in_junit() -> None:
    result = check_with_scores(old=ALL_RIGHT, new=ALL_RIGHT)

    suite = ElementTree.fromstring(result.to_junit())

    assert suite.findall("testcase/failure") == []
    assert len(suite.findall("testcase")) == 2


def test_characters_that_xml_forbids_are_spelled_out_in_junit() -> None:
    """XML allows neither the control character ESC nor half a UTF-16 pair, not even escaped."""
    result = check_with_scores(old=ALL_RIGHT, new=ALL_RIGHT, program='a\x1b[31m"<\ud800&')

    text = result.to_junit()

    case = ElementTree.fromstring(text.encode())[0]
    assert case.get("classname") == 'a\\u001b[31m"<\ufffd& with openai/x'


def test_a_notebook_shows_a_table_in_which_the_name_of_a_program_is_escaped() -> None:
    result = check_with_scores(old=ALL_RIGHT, new=ALL_RIGHT, program="<b>")

    html = result._repr_html_()

    assert html.startswith("<table>")
    assert "<b>" not in html

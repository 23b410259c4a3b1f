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


def fails(history: Any, question: str) -> str:
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
    result = check(knows_half, against=knows_all)

    (decisive_row,) = result.decisive_rows
    assert not result.passed
    assert decisive_row.difference is not None
    assert decisive_row.difference.mean == pytest.approx(-0.5)
    assert decisive_row.problems[0].startswith("worse: -0.500 [")


def test_a_better_program_passes() -> None:
    result = check(knows_all, against=knows_half)

    assert result.passed
    assert result.decisive_rows[0].verdict == "better"


def test_a_small_loss_passes_and_the_result_says_which_loss_would_have_been_noticed() -> None:
    """Two of 24 questions are lost, and six are needed for a verdict."""
    result = check(knows_all_but_two, against=knows_all)

    (decisive_row,) = result.decisive_rows
    assert result.passed
    assert decisive_row.verdict == "not told apart"
    assert decisive_row.detectable_loss is not None
    assert 6 / 24 < decisive_row.detectable_loss < 0.6
    assert f"in 90% of the cases is {decisive_row.detectable_loss:.3f}" in str(result)


def test_too_few_questions_for_a_verdict_fail() -> None:
    """Otherwise such a check would pass whatever happens."""
    result = check(knows_all, against=knows_all, count=10)

    assert not result.passed
    assert result.decisive_rows[0].problems[0].startswith("too few to tell: ")


def test_min_n_allows_fewer_questions() -> None:
    result = check(knows_all, against=knows_all, count=10, min_n=10)

    assert result.passed


def test_a_missed_floor_fails_though_the_program_is_not_worse() -> None:
    """Both programs answer half of the questions rightly, so their score is 0.5."""
    result = check(knows_half, against=knows_half, floors={"score": 0.6})

    assert not result.passed
    assert "score is 0.500 [" in result.decisive_rows[0].problems[0]
    assert result.decisive_rows[0].problems[0].endswith("below the floor 0.6")


def test_floors_are_for_the_checked_program_alone() -> None:
    """The reference scores 0.5, which is below the floor."""
    result = check(knows_all, against=knows_half, floors={"score": 0.6})

    assert result.passed


def test_a_broken_program_has_no_verdict_and_does_not_pass() -> None:
    result = check(fails, against=knows_all, floors={"score": 0.1})

    assert not result.passed
    assert [row.program for row in result.broken_rows] == [f"{__name__}:fails"]
    assert result.broken_rows[0].problems[0].startswith("broken run: 24 of 24 questions failed")


def test_a_broken_reference_is_an_error() -> None:
    with pytest.raises(BrokenRunError, match="24 of 24 questions failed"):
        check(knows_all, against=fails)


# --- settings and models ----------------------------------------------------------------------


def test_settings_are_for_the_checked_program_alone() -> None:
    """The check has a run for each program, in which its settings are recorded."""
    result = check("turn-rag", against="turn-rag", count=2, set={"k": 3})

    assert result.run is not None
    parts = sorted(result.run.glob("parts/*"))
    settings = [RunFolder(part).read()["settings"]["method_settings"] for part in parts]
    assert settings == [{"k": 3}, {}]


def test_several_models_give_a_table_of_programs_and_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_the_same_program_with_another_model_is_asked_once_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The question is whether one may move to the smaller model."""
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
    # Two questions to each model.
    assert len(engine.prompts) == 4


def save_compiled_with(lm: str, folder: Path) -> str:
    """Save a program as if it had been compiled with a model; return its folder."""
    program = build("turn-rag")
    save(program, folder, Manifest(method="", task="", lms={"task": lm}))
    return str(folder)


def test_the_model_in_use_is_the_one_that_the_reference_was_compiled_with(tmp_path: Path) -> None:
    program = save_compiled_with("openai/large", tmp_path / "program")

    models = CheckModels.choose(
        reference_program=program, models=["openai/small"], reference_model=None, default="offline"
    )

    assert models.reference == "openai/large"
    assert models.checked == ("openai/small",)


def test_without_a_model_both_are_asked_with_the_one_in_use(tmp_path: Path) -> None:
    program = save_compiled_with("openai/large", tmp_path / "program")

    models = CheckModels.choose(
        reference_program=program, models=[], reference_model=None, default="offline"
    )

    assert models.all == ("openai/large",)
    assert models.checked == ("openai/large",)


def test_a_program_that_was_compiled_with_the_offline_engine_names_no_model(
    tmp_path: Path,
) -> None:
    """The offline engine is a stand-in for a model, so the first model counts as the one in use."""
    program = save_compiled_with("offline", tmp_path / "program")

    models = CheckModels.choose(
        reference_program=program,
        models=["openai/large", "openai/small"],
        reference_model=None,
        default="offline",
    )

    assert models.reference == "openai/large"


def test_a_model_object_stands_in_for_its_name(tmp_path: Path) -> None:
    """The object knows the address and the key of its server."""
    program = save_compiled_with("openai/large", tmp_path / "program")
    large = dspy.LM("openai/large", api_base="http://127.0.0.1:1")

    models = CheckModels.choose(
        reference_program=program, models=[large], reference_model=None, default="offline"
    )

    assert models.reference is large


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lms": "openai/a"}, "give a list of models"),
        ({"lms": ["openai/a"], "lm": "openai/b"}, "lms names the models already"),
        ({"lms": ["openai/a", "openai/a"]}, "is given twice"),
        ({"lms": [3]}, "expected the name of a model or a dspy.LM, got int"),
        ({"against_lm": 3}, "expected the name of a model or a dspy.LM, got int"),
        ({"workers": 2}, "check does not take it"),
        ({"floors": {"score": "high"}}, "is no finite number"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(knows_all, against=knows_all, **options)


# --- one store --------------------------------------------------------------------------------


def test_equal_prompts_of_both_programs_are_asked_once(stub: Any) -> None:
    """`k` is the same on both sides, though only one side names it."""
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


def test_a_check_that_a_limit_stopped_is_an_error_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = RecordingEngine()
    script_models(monkeypatch, engine)
    options: dict[str, Any] = {"lm": "openai/x", "count": 4, "threads": 1, "set": {"k": 3}}

    with pytest.raises(
        BrokenRunError, match=r"nothing was decided: .*resume with --resume "
    ) as stop:
        check("turn-rag", against="turn-rag", max_calls=6, **options)
    run = str(stop.value).split("--resume ")[1].split()[0]
    result = check("turn-rag", against="turn-rag", resume=run, **options)

    # Four questions to each program: none was asked again.
    assert len(engine.prompts) == 8
    assert [row.evaluation.n for row in result.rows] == [4, 4]


# --- how the result is shown ------------------------------------------------------------------


def evaluation_with_scores(scores: list[float]) -> Evaluation:
    """Return an evaluation of the questions q0, q1, ... with these scores."""
    return evaluation(row(f"q{number}", score) for number, score in enumerate(scores))


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


def test_the_first_line_has_the_outcome() -> None:
    passed = check_with_scores(old=[1.0] * 24, new=[1.0] * 24)
    failed = check_with_scores(old=[1.0] * 24, new=[1.0, 0.0] * 12)

    assert str(passed).startswith("check passed: new against old on locomo\n")
    assert str(failed).startswith("check failed: new against old on locomo\n")


def test_json_has_the_rows_with_their_problems() -> None:
    """The program is worse, and misses the floor 0.9: these are its two problems."""
    check_result = check_with_scores(old=[1.0] * 24, new=[1.0, 0.0] * 12)

    result = check_result.to_dict()

    assert result["passed"] is False
    assert result["power"] == 0.9
    reference, checked = result["rows"]
    assert reference["verdict"] == "reference"
    assert checked["difference"]["mean"] == pytest.approx(-0.5)
    assert len(checked["problems"]) == 2


def test_markdown_has_a_heading_a_table_and_the_reasons() -> None:
    result = check_with_scores(old=[1.0] * 24, new=[1.0, 0.0] * 12)

    lines = result.to_markdown().splitlines()

    assert lines[1] == "### check failed: new against old on locomo"
    assert lines[5].startswith("| old | openai/x | 24 | 1.000 ")
    assert lines[6].startswith("| new | openai/x | 24 | 0.500 ")
    assert lines[8].startswith("- failed: new with openai/x: worse: -0.500 ")


def test_names_cannot_break_the_markdown() -> None:
    """A pipe would end a cell, and HTML would be shown as such."""
    result = check_with_scores(old=[1.0] * 24, new=[1.0, 0.0] * 12, program="a|b\n<img src=x>`")

    text = result.to_markdown()

    assert "| a\\|b \\<img src=x\\>\\` |" in text
    # Every other mention of the name is escaped, too.
    assert text.count("<img") == text.count("\\<img")


def test_junit_has_a_test_for_the_comparison_and_one_for_each_floor() -> None:
    """The program is worse, and misses the floor 0.9: both tests fail."""
    result = check_with_scores(old=[1.0] * 24, new=[1.0, 0.0] * 12)

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
    result = check_with_scores(old=[1.0] * 24, new=[1.0] * 24)

    suite = ElementTree.fromstring(result.to_junit())

    assert suite.findall("testcase/failure") == []
    assert len(suite.findall("testcase")) == 2


def test_characters_that_xml_forbids_are_spelled_out_in_junit() -> None:
    result = check_with_scores(old=[1.0] * 24, new=[1.0] * 24, program='a\x1b[31m"<\ud800&')

    text = result.to_junit()

    case = ElementTree.fromstring(text.encode())[0]
    assert case.get("classname") == 'a\\u001b[31m"<\ufffd& with openai/x'


def test_a_notebook_shows_a_table_in_which_names_are_escaped() -> None:
    result = check_with_scores(old=[1.0] * 24, new=[1.0] * 24, program="<b>")

    html = result._repr_html_()

    assert html.startswith("<table>")
    assert "<b>" not in html

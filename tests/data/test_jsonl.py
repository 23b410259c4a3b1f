"""Your own questions in JSON lines: fields of a line, metrics of your own, files of wrong forms.

Users may bring their own questions: a line has a question, its answer, and the past (a chat) from
which a memory is made. Optional evidence lists the turns that the answer rests on: D1:2 is the
second turn of session 1.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMRateLimitError
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.jsonl import JsonlBenchmark
from mempiler.data.judge import Verdict
from mempiler.data.scorer import Score
from mempiler.errors import DataError, UserError

from .conftest import FixedJudge
from .forms import load, write_files

MESSAGES = [
    {"role": "user", "content": "I like tea."},
    {"role": "assistant", "content": "Noted."},
]
"""A chat with the turns D1:1 and D1:2."""


def row(**fields: Any) -> dict[str, Any]:
    """Return a question about `MESSAGES`, with other or further fields."""
    return {
        "question": "What does the user like?",
        "answer": "tea",
        "messages": MESSAGES,
        **fields,
    }


def row_with_history(history: Any) -> dict[str, Any]:
    """Return the question with a field "history" in place of "messages"."""
    return {"question": "What does the user like?", "answer": "tea", "history": history}


ONE_TURN = {
    "items": [
        {"id": "D1", "turns": [{"id": "D1:1", "speaker": "user", "text": "I like tea."}]},
    ]
}
"""A history with the turn D1:1 alone, in the form of our own records."""


def load_rows(folder: Path, *rows: dict[str, Any]) -> Benchmark:
    """Write rows as JSON lines and load them."""
    return JsonlBenchmark.load(write_files(folder, {"own.jsonl": list(rows)}))


@pytest.mark.parametrize(
    ("content", "turn_ids"),
    [
        pytest.param(row(messages=MESSAGES), ["D1:1", "D1:2"], id="a list of messages"),
        pytest.param(
            row(messages=[MESSAGES, MESSAGES]),
            ["D1:1", "D1:2", "D2:1", "D2:2"],
            id="a list of sessions",
        ),
        pytest.param(row_with_history(ONE_TURN), ["D1:1"], id="a history"),
        pytest.param(row_with_history(MESSAGES), ["D1:1", "D1:2"], id="messages as the history"),
    ],
)
def test_a_past_is_read_in_every_form_that_it_may_have(
    tmp_path: Path, content: dict[str, Any], turn_ids: list[str]
) -> None:
    """`MESSAGES` are two messages. Two lists of them are two sessions, D1 and D2."""
    [example] = load_rows(tmp_path, content).examples
    assert list(example.history.turns) == turn_ids


def test_a_row_may_have_all_fields(tmp_path: Path) -> None:
    full_row = row(evidence=["D1:1"], category="taste", id=7, user="ada")

    [example] = load_rows(tmp_path, full_row).examples

    assert example.id == "7"
    assert example.category == "taste"
    assert example.history.id == "ada"
    assert example.evidence_ids == ("D1:1",)
    assert example.evidence == ("D1:1",)


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    """Some programs take the character U+2028 for the end of a line."""
    [example] = load_rows(tmp_path, row(answer="a\u2028b")).examples
    assert example.answer == "a\u2028b"


def test_a_row_may_have_the_required_fields_only(tmp_path: Path) -> None:
    """The second row names no user, id, category or evidence.

    Its id is made from the content of its history, and from the number of its line.
    """
    _, example = load_rows(tmp_path, row(user="ada"), row()).examples

    assert example.id == f"{example.history.digest[:12]}:2"
    assert example.category == "all"
    assert example.evidence_ids == ()


def test_rows_with_the_same_past_share_one_history(tmp_path: Path) -> None:
    """Two rows say "I like tea." in two forms, so their memory is made only once.

    The third row has a second message.
    """
    as_messages = row(messages=[{"role": "user", "content": "I like tea."}])
    as_history = row_with_history(ONE_TURN)
    longer = row(messages=MESSAGES)

    first, second, third = load_rows(tmp_path, as_messages, as_history, longer).examples

    assert second.history is first.history
    assert third.history is not first.history


def test_questions_of_one_user_are_one_group_even_with_different_pasts(tmp_path: Path) -> None:
    """Questions of a group stay together when they are divided into training and test."""
    benchmark = load_rows(
        tmp_path,
        row(user="ada", messages=MESSAGES),
        row(user="ada", messages=[MESSAGES, MESSAGES]),
        row(user="bo", messages=MESSAGES),
    )
    groups = [benchmark.group(example) for example in benchmark.examples]
    assert groups == ["ada", "ada", "bo"]


def test_unknown_evidence_is_reported_in_the_order_of_the_line(tmp_path: Path) -> None:
    """The chat has the turns D1:1 and D1:2 only, but the evidence names four others."""
    odd_row = row(evidence=["D9:9", "D1:1", "D8:1", "D7:7", "D6:1"])
    path = write_files(tmp_path, {"own.jsonl": [odd_row]})

    messages = [finding.message for finding in check("jsonl", path).findings]

    assert len(messages) == 4
    for message, turn_id in zip(messages, ["D9:9", "D8:1", "D7:7", "D6:1"], strict=True):
        assert message.startswith(f"'{turn_id}' ")


USER_METRICS = """
from dspy.utils.exceptions import LMRateLimitError

def right(example, prediction):
    return example.answer in prediction.answer

def broken(example, prediction):
    return prediction.no_such_field

def unreachable(example, prediction):
    raise LMRateLimitError("slow down")

class Returns:
    nan = staticmethod(lambda example, prediction: float("nan"))
    no_feedback = staticmethod(lambda example, prediction: (0.5, 3))

number = 3
"""


@pytest.fixture
def metric_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `own_metrics` be importable, and `own_broken` raise an error when it is imported."""
    (tmp_path / "own_metrics.py").write_text(USER_METRICS)
    (tmp_path / "own_broken.py").write_text("raise OSError('no\\ndisk')")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_metrics", None)
    sys.modules.pop("own_broken", None)


def score_coffee(folder: Path, metric: str) -> Score:
    """Score the answer "coffee", where "tea" is right, by a metric of the user."""
    benchmark = load(folder, "jsonl", metric=metric)
    return benchmark.score(benchmark.examples[0], dspy.Prediction(answer="coffee"))


@pytest.mark.usefixtures("metric_modules")
def test_a_function_of_the_user_scores(tmp_path: Path) -> None:
    """The function `right` returns whether the gold answer, "tea", is in the program's answer.

    The program answers "coffee". The feedback is made up, since the function gives none.
    """
    score = score_coffee(tmp_path, metric="own_metrics:right")

    assert score.value == 0.0
    assert score.feedback == "Wrong: the gold answer is 'tea'."
    assert set(score.parts) == {"f1", "exact", "right"}


@pytest.mark.usefixtures("metric_modules")
@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        (
            "no_such_module:city",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'$",
        ),
        ("own_broken:city", r"cannot be imported: OSError: no disk \(own_broken.py:"),
        ("own_metrics:number", "is 3, not a function"),
        ("own_metrics:Returns.nan", "returned nan"),
        ("own_metrics:Returns.no_feedback", r"returned \(0.5, 3\)"),
        ("own_metrics:broken", "failed on '.*': AttributeError"),
    ],
)
def test_a_metric_that_cannot_be_loaded_or_gives_no_score_is_refused(
    tmp_path: Path, metric: str, problem: str
) -> None:
    """A metric of one's own is named as MODULE:FUNCTION.

    The module own_broken raises an error when it is imported, and `broken` when it is called.
    """
    with pytest.raises(UserError, match=problem) as refusal:
        score_coffee(tmp_path, metric)
    assert metric in str(refusal.value)


@pytest.mark.usefixtures("metric_modules")
def test_an_error_of_a_model_s_endpoint_inside_a_metric_is_raised_as_it_is(tmp_path: Path) -> None:
    """A metric of the user may ask a model. `unreachable` raises the error of a busy server."""
    with pytest.raises(LMRateLimitError):
        score_coffee(tmp_path, metric="own_metrics:unreachable")


def test_the_judge_decides_the_score_of_the_metric_judge(tmp_path: Path) -> None:
    """The answer is right by its words, but the judge says "wrong", and only that counts."""
    judge = FixedJudge(Verdict(False, "Another drink."))
    benchmark = load(tmp_path, "jsonl", metric="judge").with_judges(lambda judge_class: judge)

    score = benchmark.score(benchmark.examples[0], dspy.Prediction(answer="tea"))

    assert score.value == 0.0
    assert dict(score.parts) == {"f1": 1.0, "exact": 1.0, "judge": 0.0}
    assert score.feedback == "Wrong: the gold answer is 'tea'. The judge says: Another drink."
    assert judge.calls == [("What does the user like?", "tea", "tea")]


def write_text(folder: Path, text: str, name: str = "own.jsonl") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(text)
    return path


def run_suggested_command(message: str) -> None:
    """Run the command with which an error message says that a file can be converted."""
    command = message.partition("convert it: ")[2]
    subprocess.run(command.replace("python", sys.executable, 1), shell=True, check=True)


def test_a_json_array_is_refused_and_the_suggested_command_converts_it(tmp_path: Path) -> None:
    """The error message ends in a command, which writes the file array.converted.jsonl."""
    path = write_text(tmp_path, json.dumps([row()] * 40, indent=1), name="array.json")

    problem = "is a JSON array; expected JSON lines, one object per line"
    with pytest.raises(DataError, match=problem) as refusal:
        JsonlBenchmark.load(path)
    run_suggested_command(str(refusal.value))

    assert len(JsonlBenchmark.load(tmp_path / "array.converted.jsonl").examples) == 40


def test_a_csv_file_is_refused_and_the_suggested_command_converts_it(tmp_path: Path) -> None:
    """The error message ends in a command, which writes the file rows.converted.jsonl."""
    csv = 'question,answer\n"Where, now?",Lisbon\n'
    path = write_text(tmp_path, csv, name="rows.jsonl")

    problem = r"is a CSV file \(its first line: question, answer\)"
    with pytest.raises(DataError, match=problem) as refusal:
        JsonlBenchmark.load(path)
    run_suggested_command(str(refusal.value))

    first_line = (tmp_path / "rows.converted.jsonl").read_text().splitlines()[0]
    assert json.loads(first_line) == {"question": "Where, now?", "answer": "Lisbon"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps([row()] * 40, indent=1), id="a JSON array"),
        pytest.param('question,answer\n"Where, now?",Lisbon\n' * 20, id="a CSV file"),
    ],
)
def test_a_check_reports_a_file_of_another_form_once(tmp_path: Path, text: str) -> None:
    """Otherwise each of its lines would be reported as broken."""
    report = check("jsonl", write_text(tmp_path, text))
    assert [finding.where for finding in report.findings] == ["whole file"]


@pytest.mark.parametrize(
    ("misnamed_row", "message"),
    [
        (
            {"query": "Where?", "gold": "Lisbon", "messages": MESSAGES},
            "line 1: found: query, gold; expected: question, answer",
        ),
        (
            {"question": "Where?", "answer": "Lisbon", "chat": MESSAGES},
            "line 1: found: chat; expected: history or messages",
        ),
        (
            {"query": "Where?", "gold": "Lisbon", "chat": MESSAGES},
            "line 1: found: query, gold, chat; expected: question, answer, history or messages",
        ),
        (
            {"answer": "Lisbon", "messages": MESSAGES},
            "line 1, field 'question': is missing",
        ),
    ],
)
def test_misnamed_fields_are_named_at_once(
    tmp_path: Path, misnamed_row: dict[str, Any], message: str
) -> None:
    """A row needs `question`, `answer`, and `history` or `messages`."""
    with pytest.raises(DataError, match=f"{re.escape(message)}$"):
        load_rows(tmp_path, misnamed_row)


def test_lines_that_are_lists_are_reported_line_by_line(tmp_path: Path) -> None:
    """Every line is JSON, but a line must be an object."""
    report = check("jsonl", write_text(tmp_path, "[1]\n[2]\n"))
    assert [finding.where for finding in report.findings][:2] == ["line 1", "line 2"]

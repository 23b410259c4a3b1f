"""The genuine LoCoMo file, whose licence keeps it out of this repository.

Set MEMPILER_LOCOMO to locomo10.json, or to a part of it that holds conv-26 and conv-30; without it these are skipped.
"""

import os
from collections import Counter

import pytest
from mempiler.data.check import Report, check
from mempiler.data.locomo.benchmark import Locomo
from mempiler.data.locomo.reader import CATEGORIES

PATH = os.environ.get("MEMPILER_LOCOMO", "")
pytestmark = pytest.mark.skipif(not PATH, reason="MEMPILER_LOCOMO does not name the genuine locomo10.json")


@pytest.fixture(scope="module")
def report() -> Report:
    return check("locomo", PATH)


@pytest.fixture(scope="module")
def benchmark() -> Locomo:
    return Locomo.load(PATH)


@pytest.mark.parametrize(
    ("conversation", "kind", "count"),
    [
        ("conv-26", "date without session", 16),
        ("conv-26", "number as answer", 6),
        ("conv-26", "empty evidence", 2),
        ("conv-26", "malformed evidence", 1),
        ("conv-26", "adversarial answer", 2),
        ("conv-30", "duplicate question", 1),
    ],
)
def test_findings_are_those_of_the_file(report: Report, conversation: str, kind: str, count: int) -> None:
    found = [row for row in report.rows if row.where.startswith(conversation) and row.kind == kind]
    assert len(found) == count


def test_the_file_is_fit_to_load(report: Report) -> None:
    assert report.ok


def test_conv_26_has_its_questions_and_sessions(benchmark: Locomo) -> None:
    examples = [example for example in benchmark.examples if example.history.id == "conv-26"]
    assert len(examples) == 199
    assert len(examples[0].history) == 19
    assert Counter(example.category for example in examples) == {"1": 32, "2": 37, "3": 13, "4": 70, "5": 47}


def test_every_session_of_the_file_is_dated_and_in_time_order(benchmark: Locomo) -> None:
    for history in {example.history for example in benchmark.examples}:
        times = [session.time for session in history.items]
        assert all(times)
        assert times == sorted(times)


def test_gold_answers_score_full_marks_but_for_the_lists_with_an_empty_part(benchmark: Locomo) -> None:
    import dspy

    for example in benchmark.examples:
        if example.category != "5" and not example.answer.rstrip().endswith(","):
            gold = example.answer.split(";")[0] if example.category == "3" else example.answer
            assert benchmark.score(example, dspy.Prediction(answer=gold)).value == pytest.approx(1), example.id


def test_all_ten_conversations_count_as_published(report: Report, benchmark: Locomo) -> None:
    if report.counts["conversations"] < 10:
        pytest.skip("MEMPILER_LOCOMO holds a part of the file")
    by_category = [report.counts[f"category {number} {name}"] for number, name in CATEGORIES.items()]
    assert by_category == [282, 321, 96, 841, 446]
    assert (report.counts["sessions"], report.counts["turns"], report.counts["image turns"]) == (272, 5882, 1226)
    assert len([e for e in benchmark.split().test if e.category != "5"]) == 1089

"""The genuine LoCoMo file, whose licence keeps it out of this repository.

Set MEMPILER_LOCOMO to locomo10.json, or to a part of it that holds conv-26 and conv-30; without it these are skipped.
"""

import os
from collections import Counter

import dspy
import pytest
from mempiler.data.check import check
from mempiler.data.locomo.benchmark import Locomo
from mempiler.data.locomo.reader import CATEGORIES

PATH = os.environ.get("MEMPILER_LOCOMO", "")
pytestmark = pytest.mark.skipif(not PATH, reason="MEMPILER_LOCOMO does not name the genuine locomo10.json")


def test_findings_and_counts_are_those_of_the_file() -> None:
    report = check("locomo", PATH)
    assert report.ok
    found = Counter((row.where.split(" ")[0].split(":")[0], row.kind) for row in report.rows)
    assert found["conv-26", "date without session"] == 16
    assert found["conv-26", "number as answer"] == 6
    assert found["conv-30", "duplicate question"] == 1
    if report.counts["conversations"] < 10:
        pytest.skip("MEMPILER_LOCOMO holds a part of the file")
    by_category = [report.counts[f"category {number} {name}"] for number, name in CATEGORIES.items()]
    assert by_category == [282, 321, 96, 841, 446]
    assert (report.counts["sessions"], report.counts["turns"], report.counts["image turns"]) == (272, 5882, 1226)


def test_sessions_are_in_time_order_and_gold_answers_score_full_marks_but_for_lists_with_an_empty_part() -> None:
    benchmark = Locomo.load(PATH)
    for history in {example.history for example in benchmark.examples}:
        times = [session.time for session in history.items]
        assert all(times)
        assert times == sorted(times)
    for example in benchmark.examples:
        if example.category != "5" and not example.answer.rstrip().endswith(","):
            gold = example.answer.split(";")[0] if example.category == "3" else example.answer
            assert benchmark.score(example, dspy.Prediction(answer=gold)).value == pytest.approx(1), example.id

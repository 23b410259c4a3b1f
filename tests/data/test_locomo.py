"""LoCoMo, and MSC-Self-Instruct: what their readers make of the files, and what scores say beside the official ones."""

from datetime import datetime, timedelta

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.check import check
from mempiler.data.judge import Verdict
from mempiler.data.locomo import NOT_MENTIONED, Locomo, LocomoF1, parse_date
from mempiler.data.msc import time_back
from mempiler.errors import UserError

from .conftest import Fixed
from .forms import FORMS, load, write

MONTHS = "January February March April May June July August September October November December"


def test_a_check_counts_what_a_file_holds(tmp_path):
    report = check("locomo", write(tmp_path, FORMS["locomo"]))
    numbers = {"conversations": 1, "sessions": 2, "turns": 3, "image turns": 1, "questions": 1}
    assert (
        report.counts.items()
        >= {**numbers, "category 1 multi-hop": 0, "category 4 single-hop": 1}.items()
    )
    assert report.findings == ()
    assert len(report.counts) == 10


def test_an_adversarial_row_without_answer_gets_the_refusal_as_gold(tmp_path):
    trap = {"question": "Who?", "category": 5, "adversarial_answer": "Bo", "evidence": ["D2:1"]}
    benchmark = load(tmp_path, "locomo", lambda row: row.update(qa=[trap]))
    (example,) = benchmark.examples
    assert example.answer == NOT_MENTIONED
    assert example.adversarial_answer == "Bo"
    feedback = benchmark.score(example, dspy.Prediction(answer="tea")).feedback
    assert "not mentioned" in feedback
    assert "D2:1" in feedback
    assert "Bo" not in feedback


@pytest.mark.parametrize("categories", ["1, 4", ["1", "4"], [1, 4]])
def test_categories_can_be_restricted_and_rows_keep_their_ids(tmp_path, categories):
    def change(row):
        row["qa"] = [{**row["qa"][0], "category": category} for category in (2, 1, 4, 5)]

    examples = load(tmp_path, "locomo", change, categories=categories).examples
    assert [(example.id, example.category) for example in examples] == [
        ("conv-1:1", "1"),
        ("conv-1:2", "4"),
    ]
    assert examples[0].history is examples[1].history


@given(time=st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 1, 1)))
def test_every_english_date_is_read(time):
    half = "pm" if time.hour >= 12 else "am"
    text = f"{time.hour % 12 or 12}:{time:%M} {half} on {time.day} {MONTHS.split()[time.month - 1]}, {time.year}"
    assert parse_date(text) == time.replace(second=0, microsecond=0)


def test_questions_without_readable_evidence_can_be_left_out_as_memory_r2_does(tmp_path):
    def change(row):
        row["qa"] = [
            {**row["qa"][0], "evidence": found} for found in (["D2:1"], [], ["D"], "D77:1")
        ]

    assert [each.id for each in load(tmp_path, "locomo", change, evidenced=True).examples] == [
        "conv-1:0",
        "conv-1:3",
    ]
    assert len(load(tmp_path, "locomo", change).examples) == 4


def test_no_answer_scores_0_and_bleu1_has_the_same_gold_as_f1(tmp_path):
    def change(row):
        row["qa"][0].update(category=3, answer="Likely no; though she reads")

    benchmark = load(tmp_path, "locomo", change)
    nothing = benchmark.score(benchmark.examples[0], dspy.Prediction(answer=None))
    assert nothing.value == 0
    assert "No answer" in nothing.feedback
    assert benchmark.score(benchmark.examples[0], dspy.Prediction(answer="likely no")).parts == {
        "f1": 1,
        "bleu1": 1,
    }


def test_the_label_is_the_score_and_the_judge_sees_the_whole_gold_answer():
    """Token F1 cuts category 3 at the first semicolon; the judge reads the reason behind it too."""
    judge = Fixed(Verdict(True))
    found = Locomo.load(metric="judge").with_judges(lambda kind: judge)
    example = next(example for example in found.examples if example.category == "3").copy(
        answer="Yes; she paints"
    )
    score = found.score(example, dspy.Prediction(answer="never"))
    assert score.value == 1.0
    assert score.parts["judge"] == 1.0
    assert score.parts["f1"] == 0.0
    assert judge.asked == [(example.question, "Yes; she paints", "never")]


def test_category_five_is_left_out_of_the_headline_and_no_judge_is_asked_about_it():
    assert {each.category for each in filter(LocomoF1().in_headline, Locomo.load().examples)} == {
        "1",
        "2",
        "3",
        "4",
    }
    assert {example.category for example in Locomo.load(metric="judge").examples} == {
        "1",
        "2",
        "3",
        "4",
    }
    with pytest.raises(UserError, match="category 5 has no gold answer"):
        Locomo.load(metric="judge", categories="4,5")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("14 days 8 HOURS ago", timedelta(days=14, hours=8)),
        ("2 weeks 30 minutes", timedelta(days=14, minutes=30)),
        ("101 years", None),
        ("99999999999 days", None),
    ],
)
def test_a_time_back_in_words_is_read_as_a_duration(text, span):
    assert time_back(text) == span


def test_a_speaker_keeps_the_place_after_an_empty_turn(tmp_path):
    said = [{"text": "Hi!"}, {"text": None}, {"text": "Bye."}]
    (example,) = load(
        tmp_path, "msc", lambda row: row["previous_dialogs"][0].update(dialog=said)
    ).examples
    turns = [(turn.id, turn.speaker) for turn in example.history.items[0].turns]
    assert turns == [("D1:1", "Speaker 1"), ("D1:3", "Speaker 1")]

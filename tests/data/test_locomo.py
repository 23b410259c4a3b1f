"""LoCoMo: adversarial questions, categories, dates, token metrics and the judge.

LoCoMo asks questions about long conversations of two people. A question has a category from 1 to 5,
and evidence: the turns that hold the answer (D2:1 is the first turn of session 2). Questions of
category 5 are adversarial: they ask about something that was never said. Token F1 compares the
words of an answer with the gold answer; the metric "judge" asks a model whether the answer is
right.

`Locomo.load()` without a file reads the bundled sample.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.benchmark import Benchmark
from mempiler.data.check import check
from mempiler.data.judge import Verdict
from mempiler.data.locomo import NOT_MENTIONED, Locomo, LocomoF1, parse_date
from mempiler.errors import UserError

from .conftest import FixedJudge
from .forms import EXAMPLE_FILES, load, put, write_files

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def test_a_check_counts_what_a_file_holds(tmp_path: Path) -> None:
    """The example file has one conversation with one question."""
    report = check("locomo", write_files(tmp_path, EXAMPLE_FILES["locomo"]))

    assert report.findings == ()
    assert report.counts["conversations"] == 1
    assert report.counts["sessions"] == 2
    assert report.counts["turns"] == 3
    assert report.counts["image turns"] == 1
    assert report.counts["questions"] == 1
    assert report.counts["category 1 multi-hop"] == 0
    assert report.counts["category 4 single-hop"] == 1
    # The five counts above, and one for each of the five categories.
    assert len(report.counts) == 10


ADVERSARIAL_QUESTION = {
    "question": "Who?",
    "category": 5,
    "adversarial_answer": "Bo",
    "evidence": ["D2:1"],
}


def test_the_gold_answer_of_an_adversarial_question_is_the_refusal(tmp_path: Path) -> None:
    """To say that it was not mentioned is right. To answer Bo is wrong."""
    [example] = load(tmp_path, "locomo", put("qa", value=[ADVERSARIAL_QUESTION])).examples
    assert example.answer == NOT_MENTIONED
    assert example.adversarial_answer == "Bo"


def test_the_feedback_on_an_adversarial_question_does_not_name_its_answer(tmp_path: Path) -> None:
    """Optimizers read feedback, and could write the wrong answer Bo into a prompt."""
    loaded = load(tmp_path, "locomo", put("qa", value=[ADVERSARIAL_QUESTION]))

    feedback = loaded.score(loaded.examples[0], dspy.Prediction(answer="tea")).feedback

    assert "not mentioned" in feedback
    assert "D2:1" in feedback
    assert "Bo" not in feedback


@pytest.mark.parametrize("categories", ["1, 4", ["1", "4"], [1, 4]])
def test_some_categories_are_chosen_and_questions_keep_their_ids(
    tmp_path: Path, categories: Any
) -> None:
    """The id conv-1:1 is question 1 of the conversation, counted from 0."""

    def ask_of_four_categories(row: Any) -> None:
        [question] = row["qa"]
        row["qa"] = [{**question, "category": category} for category in (2, 1, 4, 5)]

    first, second = load(tmp_path, "locomo", ask_of_four_categories, categories=categories).examples

    assert (first.id, first.category) == ("conv-1:1", "1")
    assert (second.id, second.category) == ("conv-1:2", "4")
    assert second.history is first.history


@given(time=st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 1, 1)))
def test_every_english_date_is_read(time: datetime) -> None:
    hour = time.hour % 12 or 12
    half_of_day = "pm" if time.hour >= 12 else "am"
    month = MONTHS[time.month - 1]
    text = f"{hour}:{time:%M} {half_of_day} on {time.day} {month}, {time.year}"

    assert parse_date(text) == time.replace(second=0, microsecond=0)


def load_with_evidence(folder: Path, *evidence: Any, **options: Any) -> Benchmark:
    """Load a conversation with a question for each of these lists of evidence."""

    def ask_with_evidence(row: Any) -> None:
        [question] = row["qa"]
        row["qa"] = [{**question, "evidence": turn_ids} for turn_ids in evidence]

    return load(folder, "locomo", ask_with_evidence, **options)


def test_questions_without_readable_evidence_are_kept(tmp_path: Path) -> None:
    """Evidence is a list of turns. "D" names none, and the turn D77:1 does not exist."""
    loaded = load_with_evidence(tmp_path, ["D2:1"], [], ["D"], "D77:1")
    assert len(loaded.examples) == 4


def test_questions_without_readable_evidence_can_be_left_out_as_memory_r2_does(
    tmp_path: Path,
) -> None:
    """Memory-R2 is a method whose authors leave such questions out.

    They keep a question whose evidence can be read, even if there is no such turn.
    """
    loaded = load_with_evidence(tmp_path, ["D2:1"], [], ["D"], "D77:1", evidenced=True)
    assert [example.id for example in loaded.examples] == ["conv-1:0", "conv-1:3"]


def test_no_answer_scores_0(tmp_path: Path) -> None:
    loaded = load(tmp_path, "locomo")

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer=None))

    assert score.value == 0
    assert "No answer" in score.feedback


def test_f1_and_bleu1_compare_with_the_same_part_of_a_gold_answer(tmp_path: Path) -> None:
    """In category 3 the answer ends at the semicolon; what follows is its reason."""

    def ask_for_an_inference(row: Any) -> None:
        row["qa"][0].update(category=3, answer="Likely no; though she reads")

    loaded = load(tmp_path, "locomo", ask_for_an_inference)

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer="likely no"))

    assert score.parts == {"f1": 1, "bleu1": 1}


def test_the_verdict_of_the_judge_is_the_score() -> None:
    """The judge calls "never" right, although it shares no word with the gold answer."""
    judge = FixedJudge(Verdict(True))
    loaded = Locomo.load(metric="judge").with_judges(lambda judge_class: judge)

    score = loaded.score(loaded.examples[0], dspy.Prediction(answer="never"))

    assert score.value == 1.0
    assert score.parts["judge"] == 1.0
    assert score.parts["f1"] == 0.0


def test_the_judge_sees_the_whole_gold_answer() -> None:
    # Token F1 cuts answers of category 3 at the first semicolon. The judge reads the reason
    # behind it too.
    judge = FixedJudge(Verdict(True))
    loaded = Locomo.load(metric="judge").with_judges(lambda judge_class: judge)
    inferences = [example for example in loaded.examples if example.category == "3"]
    example = inferences[0].copy(answer="Yes; she paints")

    loaded.score(example, dspy.Prediction(answer="never"))

    assert judge.calls == [(example.question, "Yes; she paints", "never")]


def test_category_5_is_left_out_of_the_headline() -> None:
    """The questions of category 5 cannot be answered, so the headline score omits them."""
    scorer = LocomoF1()
    counted = [example for example in Locomo.load().examples if scorer.in_headline(example)]
    assert {example.category for example in counted} == {"1", "2", "3", "4"}


def test_no_judge_is_asked_about_category_5() -> None:
    """A judge compares with a gold answer, which these questions lack."""
    examples = Locomo.load(metric="judge").examples
    assert {example.category for example in examples} == {"1", "2", "3", "4"}

    with pytest.raises(UserError, match="category 5 has no gold answer"):
        Locomo.load(metric="judge", categories="4,5")

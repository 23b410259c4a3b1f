"""Token metrics against cases worked by hand, and against properties that hold for any text."""

import pytest
from mempiler.data.text_metrics import exact_match, explain, is_date, squad_f1, squad_words, stem


@pytest.mark.parametrize(
    ("answer", "gold", "f1", "exact"),
    [
        ("The cat sat.", "cat sat", 1, 1),  # articles, case and full stop do not count
        ("cat and dog", "cat dog", 0.8, 0),  # SQuAD keeps "and": 2 shared of 3 and 2: 2*(2/3)/(5/3)
        ("dog cat", "cat dog", 1, 0),  # exact match wants the order too
        ("in Rome", "Rome", 2 / 3, 0),  # precision 1/2, recall 1
        ("the", "a", 1, 1),  # neither holds a word
    ],
)
def test_squad_metrics(answer: str, gold: str, f1: float, exact: float) -> None:
    assert (squad_f1(answer, gold), exact_match(answer, gold)) == (pytest.approx(f1), exact)


def test_dates_are_told_from_what_is_none() -> None:
    assert all(map(is_date, ["7 May 2023", "13 August", "January, 2023", "the summer of 2022", "2023-05-07"]))
    assert not any(map(is_date, ["10 years ago", "she may go", "last Friday", "three", "12345", "march to work"]))


DATE_ADVICE = "absolute date"


@pytest.mark.parametrize(
    ("answer", "gold", "value", "said", "unsaid"),
    [
        ("Rome", "Rome", 1.0, ["Right"], ["D1:3"]),
        ("", "Rome", 0.0, ["No answer", "'Rome'", "turn D1:3"], [DATE_ADVICE]),
        ("Paris", "Rome", 0.0, ["Wrong", "'Rome'", "turn D1:3"], [DATE_ADVICE]),
        ("yesterday", "7 May 2023", 0.0, [DATE_ADVICE, "'7 May 2023'"], []),
        ("8 May 2023", "7 May 2023", 2 / 3, ["Partly right (0.67)", "missing: 7."], [DATE_ADVICE]),
        ("old Rome", "Rome", 2 / 3, ["say only that, without: old."], [DATE_ADVICE, "missing"]),
        ("two cats", "cat, cat", 0.5, ["missing: cat."], ["cats"]),
    ],
)
def test_feedback_names_what_was_wrong(answer: str, gold: str, value: float, said: list, unsaid: list) -> None:
    feedback = explain(answer, gold, value, ["D1:3"], stem=stem)
    assert all(part in feedback for part in said), feedback
    assert not any(part in feedback for part in unsaid), feedback


def test_feedback_compares_the_words_of_its_metric_and_long_evidence_is_cut_short() -> None:
    feedback = explain("cat and dog", "cat dog", 0.8, [f"D1:{n}" for n in range(19)], cut=squad_words)
    assert "without: and." in feedback
    assert feedback.endswith("D1:5 and 13 more.")

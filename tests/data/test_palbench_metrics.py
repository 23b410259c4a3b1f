"""PAL-Bench's numbers, by hand and against NLTK on the same words."""

import time
from math import exp, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.palbench.judges import Compared
from mempiler.data.palbench.metrics import WEIGHTS, bleu, scaled, selection_points, words
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

FEEDBACK = dict(zip(("S1", "S2", "S3", "S4", "S5"), ("pos", "pos", "neg", "neg", "neu"), strict=True))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("用户希望睡得好", ["用户", "希望", "睡得", "好"]),
        ("rest well", ["rest", " ", "well"]),
        ("", []),
    ],
)
def test_words_are_those_of_jieba_blanks_included(text: str, cut: list[str]) -> None:
    assert words(text) == cut


def test_a_long_run_of_one_sign_is_cut_at_once() -> None:
    words("火")
    started = time.process_time()
    assert "".join(words("火" * 60_000)) == "火" * 60_000
    # 12 s before: jieba takes the square of the length.
    assert time.process_time() - started < 3


def test_bleu_by_hand() -> None:
    """The words are a, blank, b, blank, c; shared are 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 fours."""
    one, two, three, four = bleu("a b c", ["a b d"])
    assert one == pytest.approx(4 / 5)
    assert two == pytest.approx(sqrt(4 / 5 * 3 / 4))
    assert three == pytest.approx((4 / 5 * 3 / 4 * 2 / 3) ** 0.33)
    assert four == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_bleu_of_chinese_by_hand_with_brevity_and_smoothing() -> None:
    """用户/希望 of 用户/希望/睡得/好: both words and the pair; .1 for triples and fours, of which there are none."""
    one, two, _, four = bleu("用户希望", ["用户希望睡得好"])
    assert one == pytest.approx(exp(1 - 4 / 2))
    assert two == pytest.approx(exp(1 - 4 / 2))
    assert four == pytest.approx(exp(1 - 4 / 2) * (1 * 1 * 0.1 * 0.1) ** 0.25)


@given(st.text("用户希望睡得好 ab,", min_size=1), st.text("用户希望睡得好 ab,", min_size=1))
def test_bleu_equals_nltk_on_the_same_words(answer: str, gold: str) -> None:
    smooth = SmoothingFunction().method1
    expected = [sentence_bleu([words(gold)], words(answer), w, smooth) for w in WEIGHTS]
    assert bleu(answer, [gold]) == pytest.approx(expected)


def test_every_order_takes_its_own_best_reference() -> None:
    """One reference shares more words, the other a longer run of them."""
    loose, tight = "c-b-a-d", "a-b-x-y-z"
    both = bleu("a-b-c-d", [loose, tight])
    assert both == tuple(map(max, zip(bleu("a-b-c-d", [loose]), bleu("a-b-c-d", [tight]), strict=True)))
    assert bleu("a-b-c-d", [loose])[0] > bleu("a-b-c-d", [tight])[0]


@pytest.mark.parametrize(("answer", "references"), [("", ["好"]), ("好", []), ("好", ["坏"])])
def test_nothing_shared_scores_nothing(answer: str, references: list[str]) -> None:
    assert bleu(answer, references) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("points", "score"),
    [([2, 1, 0.5, 0], 43.75), ([2, 2], 100.0), ([-2, 1], -25.0), ([-2], -100.0), ([1, 0, -1], 0.0), ([], 0.0)],
)
def test_points_are_scaled_as_the_paper_scales_them(points: list[float], score: float) -> None:
    assert scaled(points) == pytest.approx(score)


@pytest.mark.parametrize(
    ("chosen", "points"),
    [
        (("S1", "S2"), 2),
        (("S1", "S5"), 1),
        (("S1", "S3"), 0),
        (("S3", "S4"), -2),
        (("S1",), None),
        (("S1", "S1"), None),
        (("S1", "S9"), None),
    ],
)
def test_selection_points(chosen: tuple[str, ...], points: int | None) -> None:
    assert selection_points(chosen, FEEDBACK) == points


@pytest.mark.parametrize(
    ("own", "other", "margin", "outcome"),
    [
        (7.5, 7.0, 0.0, "win"),
        (7.0, 7.5, 0.0, "lose"),
        (7.0, 7.0, 0.0, "tie"),
        (7.5, 7.0, 0.5, "tie"),
    ],
)
def test_the_higher_mean_wins_unless_within_the_margin(own: float, other: float, margin: float, outcome: str) -> None:
    assert Compared(own, other, 6, margin).outcome == outcome

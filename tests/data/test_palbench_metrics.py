"""PAL-Bench's BLEU against NLTK's on the same words, and the outcome of a comparison."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.data.palbench.benchmark import WEIGHTS, bleu, words
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu


def test_a_long_run_of_one_sign_is_cut_at_once() -> None:
    words("火")
    started = time.process_time()
    assert "".join(words("火" * 60_000)) == "火" * 60_000
    # 12 s before: jieba takes the square of the length.
    assert time.process_time() - started < 3


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

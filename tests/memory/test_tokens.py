import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.memory.words import STOP_WORDS, forget_words, tokens


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("?! ... —", []),
        (" ".join(sorted(STOP_WORDS)), []),
        ("She was running in parks, he runs", ["run", "park", "run"]),
        ("Caroline: I moved_on 2023-05-08!", ["carolin", "move", "2023", "05", "08"]),
        ("ＬＩＳＢＯＮ ﬁnally", ["lisbon", "final"]),
        ("café CAFÉ Straßen", ["café", "café", "straßen"]),
        ("Ann's S", ["ann", "s", "s"]),
        ("Привет мир", ["привет", "мир"]),
        ("我喜欢在周末打篮球", ["喜欢", "周末", "篮球", "打篮球"]),
        ("Ann喜欢parks", ["ann", "喜欢", "park"]),
        # Long runs keep their terms.
        ("あ" * 40 + " ｶﾞ running " + "=" * 100 + "e\u0301" + "\u0301" * 100, ["あ" * 40, "ガ", "run", "é"]),
        ("喜欢" * 400, ["喜欢"] * 400),
        ("x" * 63 + "s " + "x" * 64 + "s", ["x" * 63, "x" * 64 + "s"]),
    ],
)
def test_a_text_becomes_stems_and_chinese_words_without_function_words(text, terms):
    assert tokens(text) == terms


@given(st.text())
def test_any_text_gives_terms_without_function_words_or_blanks(text):
    terms = tokens(text)
    assert all(term and not term.isspace() for term in terms)
    assert tokens(f"The {text} of") == terms


def test_threads_get_the_same_stems():
    words = [f"{stem}{n}{end}" for stem in ("walk", "paint") for n in range(60) for end in ("x s", " ed", "y ing")]
    expected = list(map(tokens, words))
    forget_words()
    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected for found in pool.map(lambda _: list(map(tokens, words)), range(8)))


MARKS = "a" + "\u0301\u0316" * 60_000
HOSTILE = ("火" * 60_000, "y" * 600_000, MARKS, "a" + "\u0301\uff9e" * 60_000)


@pytest.mark.parametrize("text", HOSTILE, ids=["Chinese", "letter", "marks", "half-width marks"])
def test_hostile_text_is_cut_at_once(text):
    tokens("火 first: jieba reads its dictionary")
    started = time.process_time()
    assert tokens(text)
    # Each took 10 to 50 seconds in jieba, the stemmer or Python's normal forms, which take the square of the length.
    assert time.process_time() - started < 4


def test_long_words_are_not_kept():
    tracemalloc.start()
    try:
        tokens(" ".join(f"{n}{'x' * 20_000}" for n in range(200)))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()

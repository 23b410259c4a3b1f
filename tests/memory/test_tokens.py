"""The terms of a text that a search by words compares (`memory.search.tokens`).

A term is the stem of a word: "running" and "runs" are both "run". Function words, such as "the",
are left out. jieba is the library that cuts Chinese texts into words.
"""

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.memory.search.tokens import FUNCTION_WORDS, clear_word_cache, tokens


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("?! ... —", []),
        (" ".join(sorted(FUNCTION_WORDS)), []),
        ("She was running in parks, he runs", ["run", "park", "run"]),
        ("Caroline: I moved_on 2023-05-08!", ["carolin", "move", "2023", "05", "08"]),
        ("ＬＩＳＢＯＮ ﬁnally", ["lisbon", "final"]),
        ("café CAFÉ Straßen", ["café", "café", "straßen"]),
        ("Ann's S", ["ann", "s", "s"]),
        ("Привет мир", ["привет", "мир"]),
        ("我喜欢在周末打篮球", ["喜欢", "周末", "篮球", "打篮球"]),
        ("Ann喜欢parks", ["ann", "喜欢", "park"]),
    ],
)
def test_text_becomes_stems_and_chinese_words_without_function_words(
    text: str, terms: list[str]
) -> None:
    assert tokens(text) == terms


MARKS_AND_SIGNS = "あ" * 40 + " ｶﾞ running " + "=" * 100 + "e\u0301" + "\u0301" * 100
"""Japanese letters, many equal signs, and an "é" with a hundred more accents."""


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        (MARKS_AND_SIGNS, ["あ" * 40, "ガ", "run", "é"]),
        ("喜欢" * 400, ["喜欢"] * 400),
        # Only a word of up to 64 letters is stemmed.
        ("x" * 63 + "s", ["x" * 63]),
        ("x" * 64 + "s", ["x" * 64 + "s"]),
    ],
    ids=["marks and signs", "Chinese", "stemmed", "not stemmed"],
)
def test_very_long_words_and_rows_of_signs_keep_their_terms(text: str, terms: list[str]) -> None:
    assert tokens(text) == terms


@given(st.text())
def test_terms_of_any_text_are_neither_empty_nor_blank(text: str) -> None:
    for term in tokens(text):
        assert term
        assert not term.isspace()


@given(st.text())
def test_function_words_around_any_text_add_no_term(text: str) -> None:
    assert tokens(f"The {text} of") == tokens(text)


def test_threads_get_the_same_stems() -> None:
    """A stemmer keeps the word that it works on in itself, so threads must not share one."""
    words: list[str] = []
    for number in range(1_500):
        words.extend([f"walk{number}s", f"paint{number}ed", f"play{number}ing"])
    text = " ".join(words)
    expected_terms = tokens(text)
    # Without the cache every thread has to stem the words itself.
    clear_word_cache()

    with ThreadPoolExecutor(8) as pool:
        terms_of_threads = list(pool.map(tokens, [text] * 8))

    assert terms_of_threads == [expected_terms] * 8


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("火" * 60_000, id="Chinese"),
        pytest.param("y" * 600_000, id="letter"),
        pytest.param("a" + "\u0301\u0316" * 60_000, id="marks"),
        pytest.param("a" + "\u0301\uff9e" * 60_000, id="half-width marks"),
    ],
)
def test_hostile_text_takes_no_longer_than_others(text: str) -> None:
    # With its first Chinese text, jieba reads its dictionary, which takes a second.
    tokens("火")
    start = time.process_time()

    terms = tokens(text)

    assert terms != []
    # Each took 10 to 50 seconds in jieba, the stemmer or Python's normal forms, whose time grows
    # with the square of the length.
    assert time.process_time() - start < 4


def test_long_words_are_not_cached() -> None:
    """Stems are cached. Two hundred words of 20,000 letters would take 4 MB."""
    text = " ".join(f"{number}{'x' * 20_000}" for number in range(200))

    tracemalloc.start()
    try:
        tokens(text)
        allocated_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert allocated_bytes < 1_000_000


# A text of very many words is hostile too: only its first 5,000 different words are stemmed.


def different_words(count: int) -> str:
    """Return a text of so many words, all of them different."""
    return " ".join(f"word{number}x" for number in range(count))


def test_every_word_of_a_text_of_some_thousand_words_is_stemmed() -> None:
    terms = tokens(f"running {different_words(4_990)} jumping")

    assert terms[-1] == "jump"


def test_new_words_behind_very_many_others_are_not_stemmed() -> None:
    terms = tokens(f"running {different_words(5_010)} jumping running")

    # "running" was stemmed at the beginning of the text, so that its stem is known.
    assert terms[-2:] == ["jumping", "run"]


def test_words_that_come_again_are_stemmed_however_many_they_are() -> None:
    assert tokens("running parks " * 6_000) == ["run", "park"] * 6_000


def test_long_chinese_text_has_words_at_its_beginning_and_pairs_behind() -> None:
    terms = tokens("我喜欢在周末打篮球。" * 2_000)

    assert terms[:4] == ["喜欢", "周末", "篮球", "打篮球"]
    assert terms[-7:] == ["喜欢", "欢在", "在周", "周末", "末打", "打篮", "篮球"]

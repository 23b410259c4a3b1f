import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.memory.tokens import STOP_WORDS, tokens


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("?! ... —", []),
        ("The cat and the dog", ["cat", "dog"]),
        ("She was running in parks, he runs", ["run", "park", "run"]),
        ("Caroline: I moved_on 2023-05-08!", ["carolin", "move", "2023", "05", "08"]),
        ("ＬＩＳＢＯＮ ﬁnally", ["lisbon", "final"]),
        ("café CAFÉ Straßen", ["café", "café", "straßen"]),
        ("Ann's S", ["ann", "s", "s"]),
        ("Привет мир", ["привет", "мир"]),
    ],
)
def test_western_text_becomes_stems(text, terms):
    assert tokens(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("我喜欢在周末打篮球", ["喜欢", "周末", "篮球", "打篮球"]),
        ("的了吗", []),
        ("Ann喜欢parks", ["ann", "喜欢", "park"]),
    ],
)
def test_chinese_is_cut_into_words(text, terms):
    assert tokens(text) == terms


def test_long_chinese_words_are_found_by_their_parts():
    assert set(tokens("清华大学")) & set(tokens("大学"))


def test_cutting_chinese_says_nothing(capfd):
    tokens("今天天气很好")
    assert capfd.readouterr() == ("", "")


@given(st.text())
def test_any_text_gives_terms_without_function_words_or_blanks(text):
    terms = tokens(text)
    assert all(term and not term.isspace() for term in terms)
    assert tokens(f"The {text} of") == terms


def test_function_words_are_no_terms():
    assert tokens(" ".join(sorted(STOP_WORDS))) == []


def test_threads_get_the_same_stems():
    words = [f"{stem}{ending}" for stem in ("walk", "paint", "jump") for ending in ("s", "ed", "ing", "er", "ers")]
    expected = [tokens(f"{word}{n}x {word}") for n in range(40) for word in words]
    results = {}

    def work(slot):
        results[slot] = [tokens(f"{word}{n}x {word}") for n in range(40) for word in words]

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == expected for result in results.values())
    assert len(results) == 8

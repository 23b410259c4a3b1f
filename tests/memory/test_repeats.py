"""Turns that only ask again, or say the same again, stand behind all others in a ranking."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.questions import is_question
from mempiler.memory.search.repeats import MAX_COMPARED_CHARS

QUESTION = "Where do I live?"


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Where do I live?", True),
        ("Really?! Where?", True),
        ("“Where do I live?”", True),
        ("¿Dónde vivo?", True),
        ("我住在哪里？", True),
        ("أين أعيش؟", True),
        ("Πού μένω\u037e", True),
        ("የት ነው የምኖረው፧", True),
        ("where do i live", True),
        ("What's my name", True),
        ("which city do I live in", True),
        ("我住在哪里", True),
        ("你还记得我吗", True),
        ("I live in Lisbon.", False),
        ("I moved to Lisbon. Where do you live?", False),
        ("Where do I live? In Lisbon.", False),
        ("When I moved to Lisbon I sold my car", False),
        ("What a day!", False),
        ("我住在里斯本。", False),
        ("?!", False),
        ("", False),
    ],
)
def test_a_text_asks_if_all_of_its_sentences_do_in_any_script(text: str, asks: bool) -> None:
    assert is_question(text) is asks


def turns(*texts: str, speaker: str = "user", day: int = 1, first: int = 1) -> list[Entry]:
    """Turns of one dialogue each, so that none lends another one anything."""
    return [
        Entry(
            id=f"t{number}",
            kind="turn",
            text=f"{speaker}: {text}",
            speaker=speaker,
            time=datetime(2024, 3, day),
            tags={DIALOGUE: f"t{number}"},
        )
        for number, text in enumerate(texts, first)
    ]


FACT = turns("I live in Lisbon, near the river.", first=100)


class Words:
    """A reranker that likes questions best."""

    name = "words"

    def words(self, query: str) -> Sequence[str]:
        return query.split()

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        return np.array([float("?" in passage[0]) for passage in texts])


def searched(kind: str, entries: Sequence[Entry]) -> Index:
    def compute(texts: Sequence[str]) -> np.ndarray:
        """Near to "live", and nearer the more of the text that is."""
        return np.array([[text.count("live"), len(text.split()) / 5] for text in texts], np.float32)

    embedder = None if kind == "words" else TextEmbedder("live", compute, 2)
    if embedder and kind == "reranked":
        embedder.reranker = Words()
    index = Index(embedder, hybrid=True)
    index.add(entries)
    return index


@pytest.mark.parametrize("kind", ["words", "vectors", "reranked"])
@pytest.mark.parametrize("k", [1, 3, 30])
def test_a_question_that_was_asked_often_stands_behind_what_answers_it(kind: str, k: int) -> None:
    index = searched(kind, [*turns(*["Where do I live?"] * 10, "where do i live"), *FACT])
    (hits,) = index.search([QUESTION], k, -1.0 if kind != "words" else 0.0)
    assert [hit.id for hit in hits][:1] == ["t100"]
    assert len(hits) == min(k, 12)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    (longer,) = index.search([QUESTION], 31, -1.0 if kind != "words" else 0.0)
    assert hits == longer[:k], "a smaller number of hits is the head of a larger one"


def test_other_words_for_the_same_question_count_once() -> None:
    asked = ["Which city do I live in?", "Do I live in a city?", "In which city do I live now?"] * 5
    (hits,) = searched("words", [*turns(*asked), *FACT]).search([QUESTION], 4)
    assert "t100" in [hit.id for hit in hits]


@pytest.mark.parametrize(
    ("told", "query"),
    [("Did you know I live in Lisbon?", QUESTION), ("Weißt du, dass ich jetzt in Lissabon lebe?", "Wo lebe ich?")],
)
def test_a_question_that_tells_something_keeps_its_place(told: str, query: str) -> None:
    entries = [*turns(*[query] * 10), *turns(told, first=50)]
    assert [hit.id for hit in searched("words", entries).search([query], 1)[0]] == ["t50"]


RUN = "I ran along the river."


@pytest.mark.parametrize(
    ("again", "first"),
    [
        (turns("i ran  along the RIVER!", first=2), ["t1", "t9"]),
        (turns(RUN, day=2, first=2), ["t1", "t2"]),
        (turns(RUN, speaker="Bob", first=2), ["t1", "t2"]),
        (turns("I ran along the river twice.", first=2), ["t1", "t2"]),
    ],
    ids=["the same words", "another day", "another speaker", "other words"],
)
def test_what_is_said_once_more_counts_unless_it_is_of_another_day_or_speaker(again, first) -> None:
    entries = [*turns(RUN), *again, *turns("By the river there were many boats and a big old ship.", first=9)]
    (hits,) = searched("words", entries).search(["Who ran along the river?"], 3)
    assert [hit.id for hit in hits][:2] == first
    assert len(hits) == 3


def test_what_an_assistant_says_again_on_another_day_counts_once() -> None:
    said = "I do not know where you live."
    entries = [entry for day in range(1, 11) for entry in turns(said, speaker="assistant", day=day, first=day)]
    (hits,) = searched("words", [*entries, *FACT]).search([QUESTION], 2)
    assert "t100" in [hit.id for hit in hits]


def test_only_turns_are_looked_at_and_only_where_all_signals_count() -> None:
    facts = [entry.model_copy(update={"kind": "fact"}) for entry in turns(*[QUESTION] * 3)]
    hybrid, plain = Index(hybrid=True), Index()
    hybrid.add([*facts, *FACT])
    plain.add([*turns(*[QUESTION] * 3), *FACT])
    for index in (hybrid, plain):
        assert [hit.id for hit in index.search([QUESTION], 4)[0]] == ["t1", "t2", "t3", "t100"]


def test_a_filter_chooses_before() -> None:
    entries = [*turns(QUESTION, first=1), *FACT, *turns(QUESTION, first=200)]
    (hits,) = searched("words", entries).search([QUESTION], 9, where=lambda entry: entry.id != "t1")
    assert [hit.id for hit in hits] == ["t100", "t200"]


def test_a_question_as_long_as_a_book_is_no_repeat() -> None:
    book = "Where do I live, " * MAX_COMPARED_CHARS + "?"
    (hits,) = searched("words", [*turns(book, book), *FACT]).search([QUESTION], 9)
    assert {hit.id for hit in hits[:2]} == {"t1", "t2"}

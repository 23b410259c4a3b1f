"""Turns that only ask again, or say the same again, stand behind all others in a ranking.

If a user has asked a question ten times, these ten turns are more similar to it than any answer. A
search that ranked by similarity alone would find the questions, and not the answer.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.questions import is_question
from mempiler.memory.search.repeats import MAX_COMPARED_CHARS
from mempiler.records import Hit


@pytest.mark.parametrize(
    "text",
    [
        "Where do I live?",
        "Really?! Where?",
        "“Where do I live?”",
        "¿Dónde vivo?",
        "我住在哪里？",
        "أين أعيش؟",
        "Πού μένω\u037e",
        "የት ነው የምኖረው፧",
    ],
)
def test_text_whose_sentences_all_have_question_marks_is_a_question(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "where do i live",
        "What's my name",
        "which city do I live in",
        "我住在哪里",
        "你还记得我吗",
    ],
)
def test_text_without_a_mark_is_a_question_by_its_words(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "I live in Lisbon.",
        "I moved to Lisbon. Where do you live?",
        "Where do I live? In Lisbon.",
        "When I moved to Lisbon I sold my car",
        "What a day!",
        "我住在里斯本。",
        "?!",
        "",
    ],
)
def test_text_with_a_statement_or_without_words_is_no_question(text: str) -> None:
    assert not is_question(text)


def turn(turn_id: str, text: str, speaker: str = "user", day: int = 1) -> Entry:
    """Return a turn that is a dialogue of its own, so that no other one counts for it."""
    return Entry(
        id=turn_id,
        kind="turn",
        text=f"{speaker}: {text}",
        speaker=speaker,
        time=datetime(2024, 3, day),
        tags={DIALOGUE: turn_id},
    )


def turns(*texts: str) -> list[Entry]:
    """Return turns of the user, with the ids turn-1, turn-2, ..."""
    return [turn(f"turn-{number}", text) for number, text in enumerate(texts, 1)]


class QuestionsFirst:
    """A reranker that scores every question higher than every other text."""

    name = "questions first"

    def words(self, query: str) -> Sequence[str]:
        return query.split()

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        is_asking = ["?" in passages[0] for passages in texts]
        return np.array(is_asking, dtype=float)


def living_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return vectors that are the nearer to "live", the larger its share of the words."""
    vectors = [[text.count("live"), len(text.split()) / 5] for text in texts]
    return np.array(vectors, np.float32)


def index_of(entries: Sequence[Entry], embedder: TextEmbedder | None = None) -> Index:
    """Return an index that searches these entries by words, and by vectors if it can."""
    index = Index(embedder, hybrid=True)
    index.add(entries)
    return index


def search_ids(index: Index, query: str, k: int) -> list[str]:
    """Return the ids of the first `k` hits, best first."""
    (hits,) = index.search([query], k)
    return [hit.id for hit in hits]


def embedder_of(signals: str) -> TextEmbedder | None:
    """Return an embedder for "vectors", one with a "reranker", or None for "words" alone."""
    if signals == "words":
        return None
    embedder = TextEmbedder("living", living_vectors, 2)
    if signals == "reranker":
        embedder.reranker = QuestionsFirst()
    return embedder


def search_question_that_was_asked_often(signals: str, k: int) -> list[Hit]:
    """Search an index in which the question stands eleven times, and its answer once."""
    asked_often = ["Where do I live?"] * 10 + ["where do i live"]
    answer = turn("answer", "I live in Lisbon, near the river.")
    index = index_of([*turns(*asked_often), answer], embedder_of(signals))

    # With words alone, only a turn with one of them is a hit; with vectors, every turn is one.
    lowest_score = 0.0 if signals == "words" else -1.0
    (hits,) = index.search(["Where do I live?"], k, lowest_score)
    return hits


@pytest.mark.parametrize("signals", ["words", "vectors", "reranker"])
def test_question_that_was_asked_often_stands_behind_its_answer(signals: str) -> None:
    """Eleven turns ask the question, and one answers it."""
    hits = search_question_that_was_asked_often(signals, k=3)

    assert hits[0].id == "answer"


@pytest.mark.parametrize("signals", ["words", "vectors", "reranker"])
def test_question_that_was_asked_often_is_still_a_hit(signals: str) -> None:
    """Eleven turns ask the question, and one answers it."""
    hits = search_question_that_was_asked_often(signals, k=30)

    assert len(hits) == 12


@pytest.mark.parametrize("signals", ["words", "vectors", "reranker"])
@pytest.mark.parametrize("k", [1, 3, 30])
def test_repeats_do_not_break_the_order_of_scores(signals: str, k: int) -> None:
    """Eleven turns ask a question, and one answers it."""
    hits = search_question_that_was_asked_often(signals, k)

    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("signals", ["words", "vectors", "reranker"])
@pytest.mark.parametrize("k", [1, 3, 30])
def test_search_for_fewer_hits_finds_the_first_ones_of_a_search_for_more(
    signals: str, k: int
) -> None:
    hits = search_question_that_was_asked_often(signals, k)
    more_hits = search_question_that_was_asked_often(signals, k=31)

    assert hits == more_hits[:k]


def test_same_question_in_other_words_counts_once() -> None:
    """Fifteen turns ask, in three wordings. At most one turn of each may stand before the fact."""
    questions = [
        "Which city do I live in?",
        "Do I live in a city?",
        "In which city do I live now?",
    ]
    fact = turn("fact", "I live in Lisbon, near the river.")
    index = index_of([*turns(*questions * 5), fact])

    assert "fact" in search_ids(index, "Where do I live?", k=4)


@pytest.mark.parametrize(
    ("telling_question", "query"),
    [
        ("Did you know I live in Lisbon?", "Where do I live?"),
        ("Weißt du, dass ich jetzt in Lissabon lebe?", "Wo lebe ich?"),
    ],
)
def test_question_that_tells_something_keeps_its_place(telling_question: str, query: str) -> None:
    """The question has words that the query does not have, so it tells something."""
    asked_often = turns(*[query] * 10)
    index = index_of([*asked_often, turn("telling", telling_question)])

    assert search_ids(index, query, k=1) == ["telling"]


def test_same_words_of_the_same_speaker_and_day_count_once() -> None:
    first = turn("first", "I ran along the river.")
    repeat = turn("repeat", "i ran  along the RIVER!")
    boats = turn("boats", "By the river there were many boats and a big old ship.")
    index = index_of([first, repeat, boats])

    ids = search_ids(index, "Who ran along the river?", k=3)

    # The repeat stands behind a turn that fits the question less.
    assert ids == ["first", "boats", "repeat"]


@pytest.mark.parametrize(
    "second",
    [
        turn("second", "I ran along the river.", day=2),
        turn("second", "I ran along the river.", speaker="Bob"),
        turn("second", "I ran along the river twice."),
    ],
    ids=["another day", "another speaker", "other words"],
)
def test_turn_of_another_day_or_speaker_or_in_other_words_keeps_its_place(second: Entry) -> None:
    """The second turn is no repeat, so it stands before a turn that fits the question less."""
    first = turn("first", "I ran along the river.")
    boats = turn("boats", "By the river there were many boats and a big old ship.")
    index = index_of([first, second, boats])

    ids = search_ids(index, "Who ran along the river?", k=3)

    assert ids == ["first", "second", "boats"]


def test_text_that_an_assistant_repeats_on_another_day_counts_once() -> None:
    """What people say again on another day is news. What an assistant says again is not."""
    reply = "I do not know where you live."
    replies = [turn(f"day-{day}", reply, speaker="assistant", day=day) for day in range(1, 11)]
    fact = turn("fact", "I live in Lisbon, near the river.")
    index = index_of([*replies, fact])

    assert "fact" in search_ids(index, "Where do I live?", k=2)


def test_entries_that_are_no_turns_keep_their_places() -> None:
    """Only turns can be repeats, and these are facts: the most similar ones come first."""
    facts = [
        Entry(id="fact-1", kind="fact", text="Where do I live?"),
        Entry(id="fact-2", kind="fact", text="Where do I live?"),
        Entry(id="answer", kind="fact", text="I live in Lisbon, near the river."),
    ]

    ids = search_ids(index_of(facts), "Where do I live?", k=3)

    assert ids == ["fact-1", "fact-2", "answer"]


def test_index_that_is_not_hybrid_leaves_repeats_at_their_places() -> None:
    """Only a hybrid index, which adds several signals to one score, moves repeats back."""
    index = Index(hybrid=False)
    index.add(turns("Where do I live?", "Where do I live?", "I live in Lisbon."))

    ids = search_ids(index, "Where do I live?", k=3)

    assert ids == ["turn-1", "turn-2", "turn-3"]


def test_turn_that_says_the_same_as_a_hidden_turn_is_no_repeat() -> None:
    index = index_of(
        [
            turn("hidden", "I ran along the river."),
            turn("same", "I ran along the river."),
            turn("boats", "By the river there were many boats and a big old ship."),
        ]
    )

    (hits,) = index.search(
        ["Who ran along the river?"], k=9, where=lambda entry: entry.id != "hidden"
    )

    assert [hit.id for hit in hits] == ["same", "boats"]


def test_repeats_stay_behind_other_hits_of_a_filtered_search() -> None:
    index = index_of(
        [
            turn("hidden", "Where do I live?"),
            turn("answer", "I live in Lisbon, near the river."),
            turn("repeat", "Where do I live?"),
        ]
    )

    (hits,) = index.search(["Where do I live?"], k=9, where=lambda entry: entry.id != "hidden")

    assert [hit.id for hit in hits] == ["answer", "repeat"]


def test_question_as_long_as_a_book_is_no_repeat() -> None:
    """Turns longer than `MAX_COMPARED_CHARS` are not compared, so both stay in front."""
    book = "Where do I live, " * MAX_COMPARED_CHARS + "?"
    index = index_of(
        [
            turn("book-1", book),
            turn("book-2", book),
            turn("answer", "I live in Lisbon, near the river."),
        ]
    )

    first_ids = search_ids(index, "Where do I live?", k=2)

    assert set(first_ids) == {"book-1", "book-2"}

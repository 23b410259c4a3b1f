"""Recall where a search finds nothing, and methods that add an embedding model to their words.

A method without an embedding model searches by words. Where no word of a question is found, recall
falls back on the newest entries, so that the model that answers is shown something at all.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
from mempiler import Context, History, MemoryProgram, Session, Turn, build
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.engines.lm import language_model
from mempiler.programs.catalog import preset
from mempiler.programs.names import METHODS

# Fallbacks

# PraMem reads records of behaviour, and no dialogue.
DIALOGUE_METHODS = sorted(
    {
        *METHODS,
        "pgr+turn-rag",
        "pgr+memory-r2",
        "logs+turn-rag",
        "logs+memory-bank",
    }
    - {"no-memory", "pramem"}
)
"""All methods that keep something of a dialogue."""

TEXTS_ABOUT_OTHER_THINGS = [
    "I moved to Lisbon last week with my dog Rex",
    "Yesterday the kettle was repaired",
    "Yesterday the harbour was repaired",
    "Yesterday the violin was repaired",
    "Yesterday the orchard was repaired",
    "Yesterday the bicycle was repaired",
    "Yesterday the lantern was repaired",
    "Yesterday the glacier was repaired",
    "Yesterday the puppet was repaired",
    "Yesterday the saddle was repaired",
    "Yesterday the trumpet was repaired",
]
"""What Ada said in eleven sessions, one text in each: neither of zebras nor of guppies."""


def history_of(texts: Sequence[str]) -> History:
    """Return a history in which Ada says one text a session, on consecutive days."""
    sessions: list[Session] = []
    for number, text in enumerate(texts, 1):
        turn = Turn(id=f"D{number}:1", speaker="Ada", text=text)
        time = datetime(2024, 3, number)
        sessions.append(Session(id=f"D{number}", time=time, turns=(turn,)))
    return History(id="ada", items=tuple(sessions))


def recall(program: MemoryProgram, question: str, texts: Sequence[str]) -> Context:
    """Return what a program recalls for a question about what Ada said."""
    with dspy.context(lm=language_model("offline")):
        return program(history=history_of(texts), question=question).context


@pytest.mark.parametrize("method", DIALOGUE_METHODS)
def test_the_only_text_that_was_said_is_recalled_for_a_question_in_other_words(method: str) -> None:
    """Where a search finds nothing, recall falls back on the newest entries.

    The question shares no word but "I" with the text.
    """
    texts = ["I moved to Lisbon last week with my dog Rex"]

    context = recall(build(method), "Where do I live?", texts)

    assert "D1:1" in context.sources
    assert "Lisbon" in context.text()


@pytest.mark.parametrize("method", DIALOGUE_METHODS)
def test_where_something_is_found_there_is_no_fallback(method: str) -> None:
    """A fallback is the newest entries, which are shown where a search finds nothing.

    Of twelve texts, the last one, D12:1, is about guppies.
    """
    texts = [*TEXTS_ABOUT_OTHER_THINGS, "The aquarium holds three striped guppies"]
    question = "How many striped guppies does the aquarium hold?"

    context = recall(build(method), question, texts)

    assert "D12:1" in context.sources
    assert "fallback" not in context.counts
    assert not any(hit.fallback for hit in context.hits)


@pytest.mark.parametrize(
    "method", ["turn-rag", "session-rag", "memory-r2", "rgmem", "logs+turn-rag", "pgr+turn-rag"]
)
def test_where_nothing_is_found_the_newest_entries_are_shown_and_marked(method: str) -> None:
    """The model is shown something, and a measure of recall can tell that it was not found.

    None of eleven texts is about a zebra. The newest is D11:1, and five are shown at most.
    """
    context = recall(build(method), "Zebra?", TEXTS_ABOUT_OTHER_THINGS)

    assert "D11:1" in context.sources
    assert "D1:1" not in context.sources
    assert 0 < len(context.hits) <= 5
    assert context.counts["fallback"] == len(context.hits)
    for hit in context.hits:
        assert hit.fallback
        assert hit.score == 0.0


def test_measures_of_recall_look_at_a_context_without_its_fallback() -> None:
    """A text that is shown although nothing was found must not count as found."""
    context = recall(build("turn-rag"), "Zebra?", ["I moved to Lisbon"])
    assert [hit.fallback for hit in context.hits] == [True]

    assert context.without_fallback().hits == ()


def test_pgr_shows_the_nearest_facts_if_none_is_near_enough() -> None:
    """PGR compares vectors, so the nearest facts are a better fallback than the newest.

    With `min_score=0.99` no fact is near enough to be found. The oldest text is about guppies.
    """
    texts = ["The aquarium holds three striped guppies", *TEXTS_ABOUT_OTHER_THINGS]
    program = build("pgr", min_score=0.99, augment="none", iterations=1)

    context = recall(program, "striped guppies, how many?", texts)

    assert context.counts["facts"] == 0
    assert context.counts["fallback"] == 5
    assert context.hits[0].sources == ("D1:1",)
    assert all(hit.fallback for hit in context.hits)


@pytest.fixture
def memory_of_kettle_and_move(tmp_path: Path) -> Any:
    """Ada's memory: "The kettle whistles." (D1:1) is written, "I moved to Lisbon." (D2:1) waits."""
    lm = language_model("offline")
    memory = build("turn-rag").memory(tmp_path / "memories.sqlite", "ada", lm=lm)
    memory.add([{"role": "user", "name": "Ada", "content": "The kettle whistles."}])
    memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}], remember=False)
    return memory


def test_a_fallback_shows_waiting_turns_and_those_of_the_memory(
    memory_of_kettle_and_move: Any,
) -> None:
    """Where a search finds nothing, the newest turns are shown, also those not written yet.

    The turn D1:1 is about a kettle, and D2:1, which waits to be written, about a move.
    """
    context = memory_of_kettle_and_move.recall("Zebra?")

    assert context.sources == ("D1:1", "D2:1")
    assert all(hit.fallback for hit in context.hits)


@pytest.mark.parametrize(
    ("question", "source"),
    [
        pytest.param("Which kettle?", "D1:1", id="in-the-memory"),
        pytest.param("Lisbon?", "D2:1", id="waiting"),
    ],
)
def test_where_one_word_is_found_nothing_is_added(
    memory_of_kettle_and_move: Any, question: str, source: str
) -> None:
    """Only where nothing is found, the newest turns are shown.

    The turn D1:1 is about a kettle, and D2:1, which waits to be written, about a move to Lisbon.
    """
    assert memory_of_kettle_and_move.recall(question).sources == (source,)


# Words and vectors


def meaning_embedder(name: str = "meaning") -> TextEmbedder:
    """Return an embedder that knows two meanings, a home and a boat; other texts are far from both.

    Args:
        name: Its name, e.g. that of a real embedder whose thresholds are to be taken.
    """

    def embed(texts: Sequence[str]) -> np.ndarray:
        vectors: list[list[float]] = []
        for text in texts:
            is_about_home = "lisbon" in text.lower() or "live" in text.lower()
            is_about_boat = "boat" in text.lower() or "sail" in text.lower()
            vectors.append([float(is_about_home), float(is_about_boat), 0.2])
        return np.array(vectors, np.float32)

    return TextEmbedder(name, embed, 3)


def search_kind(reader: Any) -> str:
    """Return what a reader searches by: "words", "vectors" or "both"."""
    if reader.indexes.embedder is None:
        return "words"
    if reader.indexes.hybrid:
        return "both"
    return "vectors"


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_an_embedding_model_searches_alone_where_that_is_set(method: str) -> None:
    """A hybrid search is by words and vectors; papers compare baselines that are not hybrid."""
    program = build(method, embedder=meaning_embedder(), hybrid=False)

    assert search_kind(program.method.reader) == "vectors"


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_the_offline_embedder_compares_spelling_so_words_are_searched_alone(method: str) -> None:
    """A search by words is better than by its vectors, so these are not even made."""
    offline_embedder = embedder()

    program = build(method, embedder=offline_embedder, hybrid=False)

    assert search_kind(program.method.reader) == "words"


@pytest.mark.parametrize("method", ["fact-store", "pgr", "memory-r2", "rgmem"])
def test_a_search_with_the_offline_embedder_is_not_hybrid(method: str) -> None:
    """A hybrid search is by words and vectors.

    The vectors of the offline embedder compare spelling, so words would tell the same once more.
    """
    program = build(method, embedder=embedder("offline"))

    assert program.method.reader.hybrid is False


def searching_reader(program: MemoryProgram) -> Any:
    """Return the reader that searches the memory; that of PGR searches with another one."""
    reader: Any = program.method.reader
    return getattr(reader, "inner", reader)


def hits_for_lisbon(program: MemoryProgram) -> list[Any]:
    """Write four texts, of which the first is "I moved to Lisbon", and search for "Lisbon"."""
    texts = ["I moved to Lisbon", "Rye bread is best warm", "My boat leaks", "Oat milk froths"]
    with dspy.context(lm=language_model("offline")):
        memory = program.remember(history_of(texts)).memory
    return searching_reader(program).search(memory, ["Lisbon"], k=3)[0]


@pytest.mark.parametrize("settings", [{}, {"hybrid": True}], ids=["default", "hybrid"])
@pytest.mark.parametrize("method", ["fact-store", "pgr", "memory-r2", "rgmem"])
def test_a_method_with_an_embedding_model_searches_by_words_and_vectors(
    method: str, settings: dict[str, bool]
) -> None:
    """By default a search is by both, if the embedding model compares meanings and not spelling."""
    program = build(method, embedder=meaning_embedder(), **settings)

    assert search_kind(searching_reader(program)) == "both"
    assert program.method.reader.hybrid
    assert hits_for_lisbon(program)


@pytest.mark.parametrize(
    ("method", "benchmark", "kind"),
    [
        ("fact-store", "memoryquest", "vectors"),
        ("pgr", "implexconv", "vectors"),
        ("memory-r2", "locomo", "vectors"),
        ("rgmem", "personamem", "words"),
    ],
)
def test_on_the_benchmark_of_its_paper_a_method_searches_as_the_paper_does(
    method: str, benchmark: str, kind: str
) -> None:
    """A preset is the settings of a method for a benchmark. The papers search by one kind alone."""
    program = build(method, embedder=meaning_embedder(), **preset(method, benchmark))

    assert search_kind(searching_reader(program)) == kind
    assert not program.method.reader.hybrid
    assert hits_for_lisbon(program)


@pytest.mark.parametrize(
    ("method", "embedder_name", "thresholds"),
    [
        # The embedding model of PGR's paper
        (
            "pgr",
            "openai/text-embedding-3-small",
            {"min_score": 0.3, "augment_score": 0.6, "merge_score": 0.8},
        ),
        ("pgr", "minilm", {"min_score": 0.31, "augment_score": 0.75, "merge_score": 0.92}),
        ("memory-r2", "e5", {"min_score": 0.73}),
        ("rgmem", "offline", {"node_cosine": 0.27, "merge_cosine": 0.85}),
        # In "pgr+memory-r2", the settings of Memory-R2 begin with `inner_`.
        ("pgr+memory-r2", "minilm", {"min_score": 0.31, "inner_min_score": 0.16}),
    ],
)
def test_a_method_takes_the_thresholds_that_suit_its_embedder(
    method: str, embedder_name: str, thresholds: dict[str, float]
) -> None:
    """A threshold is the lowest cosine at which two texts count as alike.

    A cosine of 0.5 means much to one embedding model and nothing to another.
    """
    program = build(method, embedder=meaning_embedder(embedder_name))

    assert thresholds.items() <= program.method.config.items()


def test_a_threshold_that_is_set_is_kept_whatever_the_embedder() -> None:
    """A threshold is the lowest cosine at which two texts count as alike: by default 0.31 here."""
    program = build("pgr", embedder=meaning_embedder("minilm"), min_score=0.2)

    assert program.method.config["min_score"] == 0.2

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

MAX_FALLBACK_HITS = 5
"""How many entries are shown where nothing is found."""

MOVE = "I moved to Lisbon last week with my dog Rex"
FISH = "The aquarium holds three striped guppies"

TWELVE_TEXTS = [
    MOVE,
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
    FISH,
]
"""What Ada said in twelve sessions."""


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
    # The question shares no word but "I" with "I moved to Lisbon last week with my dog Rex".
    context = recall(build(method), "Where do I live?", [MOVE])

    assert "D1:1" in context.sources
    assert "Lisbon" in context.text()


@pytest.mark.parametrize("method", DIALOGUE_METHODS)
def test_where_something_is_found_there_is_no_fallback(method: str) -> None:
    question = "How many striped guppies does the aquarium hold?"

    context = recall(build(method), question, TWELVE_TEXTS)

    # The last of the twelve texts is about guppies.
    assert "D12:1" in context.sources
    assert "fallback" not in context.counts
    assert not any(hit.fallback for hit in context.hits)
    assert context.without_fallback() is context


@pytest.mark.parametrize(
    "method", ["turn-rag", "session-rag", "memory-r2", "rgmem", "logs+turn-rag", "pgr+turn-rag"]
)
def test_where_nothing_is_found_the_newest_entries_are_shown_and_marked(method: str) -> None:
    """The model is shown something, and a measure of recall can tell that it was not found."""
    # No text is about a zebra.
    context = recall(build(method), "Zebra?", TWELVE_TEXTS)

    assert "D12:1" in context.sources
    assert "D1:1" not in context.sources
    assert 0 < len(context.hits) <= MAX_FALLBACK_HITS
    assert context.counts["fallback"] == len(context.hits)
    for hit in context.hits:
        assert hit.fallback
        assert hit.score == 0.0

    # Measures of recall look at the context without it.
    context_without_fallback = context.without_fallback()
    assert context_without_fallback.hits == ()
    assert context_without_fallback.notes == context.notes
    assert context_without_fallback.counts == context.counts


def test_a_prompt_shows_a_fallback_as_any_other_line() -> None:
    """The newest text, which is about guppies, is shown alike whether a search finds it or not."""
    fallback_context = recall(build("turn-rag"), "Zebra?", TWELVE_TEXTS)
    search_context = recall(build("turn-rag"), "Which guppies?", TWELVE_TEXTS)

    (line_about_fish,) = [line for line in search_context.text().splitlines() if FISH in line]
    assert line_about_fish in fallback_context.text().splitlines()


def test_pgr_shows_the_nearest_facts_if_none_is_near_enough() -> None:
    """PGR compares vectors, so the nearest facts are a better fallback than the newest."""
    # No fact can be near enough to be found.
    program = build("pgr", min_score=0.99, augment="none", iterations=1)

    context = recall(program, "striped guppies, how many?", TWELVE_TEXTS)

    assert context.counts["facts"] == 0
    assert context.counts["fallback"] == MAX_FALLBACK_HITS
    assert len(context.hits) == MAX_FALLBACK_HITS
    assert context.hits[0].sources == ("D12:1",)
    for hit in context.hits:
        assert hit.fallback
        assert hit.score == 0.0


@pytest.fixture
def memory_with_waiting_turn(tmp_path: Path) -> Any:
    """Ada's memory, in which a turn about a kettle is written and MOVE waits to be written."""
    lm = language_model("offline")
    memory = build("turn-rag").memory(tmp_path / "memories.sqlite", "ada", lm=lm)
    memory.add([{"role": "user", "name": "Ada", "content": "The kettle whistles."}])
    memory.add([{"role": "user", "name": "Ada", "content": MOVE}], remember=False)
    return memory


def test_a_fallback_shows_waiting_turns_and_those_of_the_memory(
    memory_with_waiting_turn: Any,
) -> None:
    """A turn that waits to be written is searched too, since a user has just said it."""
    context = memory_with_waiting_turn.recall("Where do I live?")

    assert context.sources == ("D1:1", "D2:1")
    assert len(context.hits) == 2
    for hit in context.hits:
        assert hit.fallback
        assert hit.score == 0.0


@pytest.mark.parametrize(
    ("question", "source"),
    [
        pytest.param("Which kettle?", "D1:1", id="in-the-memory"),
        pytest.param("Lisbon?", "D2:1", id="waiting"),
    ],
)
def test_where_one_word_is_found_nothing_is_added(
    memory_with_waiting_turn: Any, question: str, source: str
) -> None:
    assert memory_with_waiting_turn.recall(question).sources == (source,)


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
    program = build(method, embedder=embedder(), hybrid=False)

    assert search_kind(program.method.reader) == "words"


@pytest.mark.parametrize("method", ["fact-store", "pgr", "memory-r2", "rgmem"])
def test_a_search_with_the_offline_embedder_is_not_hybrid(method: str) -> None:
    """Its vectors compare spelling, so words beside them would tell much the same twice."""
    assert not build(method, embedder=embedder()).method.reader.hybrid


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
    program = build(method, embedder=meaning_embedder(), **preset(method, benchmark))

    assert search_kind(searching_reader(program)) == kind
    assert not program.method.reader.hybrid
    assert hits_for_lisbon(program)


@pytest.mark.parametrize(
    ("method", "embedder_name", "setting", "threshold"),
    [
        ("pgr", "openai/text-embedding-3-small", "min_score", 0.3),
        ("pgr", "openai/text-embedding-3-small", "augment_score", 0.6),
        ("pgr", "openai/text-embedding-3-small", "merge_score", 0.8),
        ("pgr", "minilm", "min_score", 0.31),
        ("pgr", "minilm", "augment_score", 0.75),
        ("pgr", "minilm", "merge_score", 0.92),
        ("memory-r2", "e5", "min_score", 0.73),
        ("rgmem", "offline", "node_cosine", 0.27),
        ("rgmem", "offline", "merge_cosine", 0.85),
        # Two methods in one program: the one behind the plus sign, too, gets a threshold.
        ("pgr+turn-rag", "minilm", "min_score", 0.31),
        ("pgr+memory-r2", "minilm", "min_score", 0.31),
        ("pgr+memory-r2", "minilm", "augment_score", 0.75),
        ("pgr+memory-r2", "minilm", "inner_min_score", 0.16),
    ],
)
def test_a_method_takes_the_thresholds_that_suit_its_embedder(
    method: str, embedder_name: str, setting: str, threshold: float
) -> None:
    """A threshold is the lowest cosine at which two texts count as alike.

    A cosine of 0.5 means much to one embedding model and nothing to another.
    """
    program = build(method, embedder=meaning_embedder(embedder_name))

    assert program.method.config[setting] == threshold


def test_a_threshold_that_is_set_is_kept_whatever_the_embedder() -> None:
    program = build("pgr", embedder=meaning_embedder("minilm"), min_score=0.2)

    assert program.method.config["min_score"] == 0.2

"""How a search falls back where nothing is found, and which methods add an embedding model to their words."""

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
from mempiler.programs._fallback import MAX_FALLBACK_HITS
from mempiler.programs.catalog import preset
from mempiler.programs.names import METHODS

KEEPING = sorted(
    {*METHODS, "pgr+turn-rag", "pgr+memory-r2", "logs+turn-rag", "logs+memory-bank"}
    - {"no-memory", "pramem"}
)
"""All methods that keep something of a dialogue: PraMem reads behaviour."""
STORY, QUESTION = "I moved to Lisbon last week with my dog Rex", "Where do I live?"
FISH = "The aquarium holds three striped guppies"


def history(*said: str) -> History:
    """One session per text, a day apart."""
    turns = [Turn(id=f"D{n}:1", speaker="Ada", text=text) for n, text in enumerate(said, 1)]
    items = (
        Session(id=f"D{n}", time=datetime(2024, 3, n), turns=(turn,))
        for n, turn in enumerate(turns, 1)
    )
    return History(id="ada", items=tuple(items))


def asked(program: MemoryProgram, question: str, *said: str) -> Context:
    with dspy.context(lm=language_model("offline")):
        return program(history=history(*said), question=question).context


def longer() -> list[str]:
    """Twelve sessions of which one is about fish."""
    things = (
        "kettle",
        "harbour",
        "violin",
        "orchard",
        "bicycle",
        "lantern",
        "glacier",
        "puppet",
        "saddle",
        "trumpet",
    )
    return [STORY, *(f"Yesterday the {thing} was repaired" for thing in things), FISH]


@pytest.mark.parametrize("method", KEEPING)
def test_the_one_thing_that_was_said_is_recalled_in_other_words_and_nothing_beside_what_is_found(
    method: str,
) -> None:
    found = asked(build(method), QUESTION, STORY)
    assert "D1:1" in found.sources
    assert "Lisbon" in found.text()
    found = asked(build(method), "How many striped guppies does the aquarium hold?", *longer())
    assert "D12:1" in found.sources
    assert "fallback" not in found.counts
    assert not any(hit.fallback for hit in found.hits)
    assert found.without_fallback() is found


@pytest.mark.parametrize(
    "method", ["turn-rag", "session-rag", "memory-r2", "rgmem", "logs+turn-rag", "pgr+turn-rag"]
)
def test_where_nothing_is_found_it_is_the_newest_few_and_marked(method: str) -> None:
    found = asked(build(method), "Zebra?", *longer())
    assert {(hit.score, hit.fallback) for hit in found.hits} == {(0.0, True)}
    assert found.counts["fallback"] == len(found.hits) <= MAX_FALLBACK_HITS
    assert "D12:1" in found.sources
    assert "D1:1" not in found.sources
    without = found.without_fallback()
    assert without.hits == ()
    assert without.notes == found.notes
    assert without.counts == found.counts


def test_a_prompt_shows_what_was_not_found_as_any_other_line() -> None:
    said = longer()
    shown, found = (
        asked(build("turn-rag"), question, *said).text()
        for question in ("Zebra?", "Which guppies?")
    )
    assert FISH in found
    assert next(line for line in found.splitlines() if FISH in line) in shown.splitlines()


def test_pgr_falls_back_on_the_facts_nearest_to_the_query_below_tau() -> None:
    program = build("pgr", min_score=0.99, augment="none", iterations=1)
    found = asked(program, "striped guppies, how many?", *longer())
    assert found.counts["facts"] == 0
    assert found.counts["fallback"] == MAX_FALLBACK_HITS
    assert len(found.hits) == MAX_FALLBACK_HITS
    assert found.hits[0].sources == ("D12:1",)
    assert {(hit.score, hit.fallback) for hit in found.hits} == {(0.0, True)}


def test_the_newest_turns_that_wait_come_before_those_of_the_memory(tmp_path: Path) -> None:
    memory = build("turn-rag").memory(tmp_path / "m.sqlite", "ada", lm=language_model("offline"))
    memory.add([{"role": "user", "name": "Ada", "content": "The kettle whistles."}])
    memory.add([{"role": "user", "name": "Ada", "content": STORY}], remember=False)
    assert memory.recall(QUESTION).sources == ("D1:1", "D2:1")
    assert [(hit.score, hit.fallback) for hit in memory.recall(QUESTION).hits] == [
        (0.0, True),
        (0.0, True),
    ]
    # A word of it is enough, and nothing is added then.
    assert memory.recall("Which kettle?").sources == ("D1:1",)
    assert memory.recall("Lisbon?").sources == ("D2:1",)


HOME, AWAY = ("lisbon", "live"), ("boat", "sail")
"""Words of one meaning each."""


def meaning(name: str = "meaning") -> TextEmbedder:
    """An embedder that knows two meanings; everything else is far from both."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        return np.array(
            [[*(any(w in t.lower() for w in ws) for ws in (HOME, AWAY)), 0.2] for t in texts],
            np.float32,
        )

    return TextEmbedder(name, compute, 3)


def talk() -> History:
    said = ("I moved to Lisbon", "Rye bread is best warm", "My boat leaks", "Oat milk froths")
    return History.parse(
        [[{"role": "user", "name": "Ada", "content": text}] for text in said], id="ada"
    )


def searched_by(reader: Any) -> str:
    indexes = reader.indexes
    return "words" if indexes.embedder is None else "both" if indexes.hybrid else "vectors"


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_an_embedding_model_searches_alone_if_it_is_configured_so(method: str) -> None:
    # Without an embedder of meaning there is nothing but words.
    for given, kind in ((meaning(), "vectors"), (embedder(), "words")):
        assert searched_by(build(method, embedder=given, hybrid=False).method.reader) == kind


@pytest.mark.parametrize(
    ("method", "paper", "usual"),
    [
        ("fact-store", "memoryquest", "vectors"),
        ("pgr", "implexconv", "vectors"),
        ("memory-r2", "locomo", "vectors"),
        ("rgmem", "personamem", "words"),
    ],
)
def test_words_and_cosines_add_up_but_on_the_benchmarks_of_a_paper(
    method: str, paper: str, usual: str
) -> None:
    for config, kind in (({}, "both"), (preset(method, paper), usual), ({"hybrid": True}, "both")):
        program = build(method, embedder=meaning(), **config)
        reader: Any = program.method.reader
        reader = getattr(reader, "inner", reader)
        with dspy.context(lm=language_model("offline")):
            memory = program.remember(talk()).memory
        assert searched_by(reader) == kind
        assert program.method.reader.hybrid is (kind == "both")
        assert reader.search(memory, ["Lisbon"], 3)[0]
    # The offline embedder, which compares spelling, adds nothing.
    assert not build(method, embedder=embedder()).method.reader.hybrid


@pytest.mark.parametrize(
    ("method", "embedder", "expected"),
    [
        (
            "pgr",
            "openai/text-embedding-3-small",
            {"min_score": 0.3, "augment_score": 0.6, "merge_score": 0.8},
        ),
        ("pgr+turn-rag", "minilm", {"min_score": 0.31}),
        ("pgr", "minilm", {"min_score": 0.31, "augment_score": 0.75, "merge_score": 0.92}),
        (
            "pgr+memory-r2",
            "minilm",
            {"min_score": 0.31, "augment_score": 0.75, "inner_min_score": 0.16},
        ),
        ("memory-r2", "e5", {"min_score": 0.73}),
        ("rgmem", "offline", {"node_cosine": 0.27, "merge_cosine": 0.85}),
    ],
)
def test_an_embedder_brings_its_thresholds(
    method: str, embedder: str, expected: dict[str, float]
) -> None:
    config = build(method, embedder=meaning(embedder)).method.config
    assert {name: config[name] for name in expected} == expected
    assert build("pgr", embedder=meaning("minilm"), min_score=0.2).method.config["min_score"] == 0.2

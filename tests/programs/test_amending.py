"""What a deletion reaches in the parts of memories that models make of many turns."""

from collections.abc import Callable
from typing import Any

import pytest
from mempiler import build
from mempiler.engines.embedders import embedder
from mempiler.memory.amending import Amendment, Amendments
from mempiler.memory.index import Entry
from mempiler.programs.baselines.written import BankMemory, Digest, SummaryMemory
from mempiler.programs.catalog import needs_embedder
from mempiler.programs.h2memory.memory import Background, HeterogeneousMemory, Principle, Situation, Topic
from mempiler.programs.pramem.memory import Experience, ExperienceMemory
from mempiler.programs.rgmem.memory import Evidence, GraphMemory, Mention, Node, Relation, Theory

SAFE, RAIN = "The code of the safe is falcon", "It rained in the mountains"


def deleted(id: str, kind: str, turns: tuple[str, ...], text: str = SAFE) -> Amendment:
    return Amendment(1, "delete", id, kind, text, turns)


def entries(method: str, memory: Any, *rows: Amendment) -> dict[str, str]:
    reader = build(method, embedder=embedder() if needs_embedder(method) else None).method.reader
    left = reader.amended(memory, Amendments(rows))
    return {entry.id: entry.text for entry in reader.entries(left)}


def graph() -> GraphMemory:
    units = {f"e{n}": Evidence(id=f"e{n}", step=n, fact=t, sources=(f"D{n}:1",)) for n, t in ((1, SAFE), (2, RAIN))}
    bases = GraphMemory().nodes
    bases["b1"] = Node(
        id="b1", name="Home", tier="abstract", own=Theory(sigma=f"keeps it: {SAFE}", evidence=("e1", "e2"))
    )
    bases["b2"] = Node(id="b2", name="Travel", tier="abstract", flow=Theory(sigma="likes rain", evidence=("e1", "e2")))
    bases["n1"] = Node(id="n1", name="safe", tier="general")
    mentions = (Mention(evidence="e1", label=SAFE), Mention(evidence="e2", label="rained"))
    edge = Relation(id="r1", source="b1", target="n1", mentions=mentions, theory=Theory(sigma="uses a safe"))
    return GraphMemory(evidence=units, nodes=bases, relations={"r1": edge})


def lived() -> HeterogeneousMemory:
    return HeterogeneousMemory(
        situations=(
            Situation(id="s1", text=SAFE, aspects=("work",), sources=("L1",)),
            Situation(id="s2", text=RAIN, aspects=("leisure",), sources=("L2",)),
        ),
        background={
            "work": Background(text=f"guards: {SAFE}", situations=("s1",)),
            "leisure": Background(text="walks in the mountains", situations=("s2",)),
        },
        topics=(Topic(id="t1", need=f"to know: {SAFE}", sources=("D1:1",)),),
        principles=(Principle(id="p1", need_type=f"Need: to know: {SAFE}, and others", members=("t1",)),),
    )


def banked() -> BankMemory:
    turns = (Entry(id=f"D1:{n}", text=text, kind="turn", sources=(f"D1:{n}",)) for n, text in ((1, SAFE), (2, RAIN)))
    return BankMemory(
        pieces=tuple(turns),
        digests=(Digest(session="D1", sources=("D1:1", "D1:2")),),
        events=f"Ada told: {SAFE}.",
        portrait="Ada likes the mountains.",
    )


CASES: dict[str, tuple[str, Callable[[], Any], Amendment]] = {
    "graph": ("rgmem", graph, deleted("e1", "fact", ("D1:1",))),
    "situation": ("h2memory", lived, deleted("s1", "situation", ("L1",))),
    "topic": ("h2memory", lived, deleted("t1", "topic", ("D1:1",), f"Need: to know: {SAFE}")),
    "bank": ("memory-bank", banked, deleted("D1:1", "turn", ("D1:1",))),
    "summary": (
        "recursive-summary",
        lambda: SummaryMemory(
            sentences=(
                Entry(id="s1", text=SAFE, kind="sentence", sources=("D1:1",)),
                Entry(id="s2", text=RAIN, kind="sentence", sources=("D2:1",)),
            )
        ),
        deleted("s1", "sentence", ("D1:1",)),
    ),
    "experience": (
        "pramem",
        lambda: ExperienceMemory(
            patterns=(Experience(id="pattern-1", kind="pattern", text=SAFE, sources=("a1",)),),
            alerts=(Experience(id="alert-1", kind="alert", text=RAIN),),
        ),
        deleted("pattern-1", "pattern", ("a1",)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_deleted_entry_is_gone_and_nothing_else(case: str) -> None:
    method, made, row = CASES[case]
    before = made()
    assert set(entries(method, before)) - set(entries(method, before, row)) == {row.entry}
    assert before == made()


def test_labels_in_the_same_words_that_no_search_finds_go_too() -> None:
    rgmem = build("rgmem", embedder=embedder()).method.reader
    found = rgmem.amended(graph(), Amendments([CASES["graph"][2]]))
    assert [mention.label for mention in found.relations["r1"].mentions] == ["", "rained"]


@pytest.mark.parametrize(
    ("entry", "gone"),
    [
        (Entry(id="m9", text=f"{SAFE}.", kind="fact", sources=("D1:1",)), True),  # a rebuild gave another id
        (Entry(id="m9", text=SAFE, kind="fact", sources=("D7:1",)), False),  # said anew in another session
        (Entry(id="m1", text="Ada likes tea", kind="fact", sources=("D7:1",)), False),  # another fact has the id now
        (Entry(id="m1", text="Ada likes tea", kind="fact", sources=("D1:1", "D7:1")), True),  # a writer added to it
        (Entry(id="m9", text=f"He said: {SAFE}!", kind="fact", sources=("D1:1", "D1:2")), False),  # quotes it
        (Entry(id="m9", text="Ada likes tea", kind="fact", sources=("D1:1",)), False),  # beside it in the same turn
    ],
)
def test_what_an_amendment_means(entry: Entry, gone: bool) -> None:
    amend = Amendments([deleted("m1", "fact", ("D1:1",))])
    assert (amend(entry) is None) is gone

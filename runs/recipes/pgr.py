"""PGR's tables: strategies, iterative against base, with and without summary, calls and facts a query.

The baselines of the paper's Table 1 are other systems and not imitated: Mem0 is a row of ours where it is installed,
without the graph that its present version has no more, and with K = 20 as there; GraphRAG and TaciTree have no package
that can be run here. The query-only baseline of its Figure 3 is ours (`fact-store`, K = 20). Human judgements (its
Tables 1 and 2) cannot be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator

from .columns import Column, count, part
from .material import Material
from .papers import printed
from .pictures import Picture, bars
from .recipe import Recipe
from .section import Duel, Section, Variant
from .tables import OurTable

BASELINE, OURS, MEM0 = "query only", "PGR, tree", "Mem0 (no graph)"
VARIANTS = (
    Variant(BASELINE, "fact-store"),
    Variant(OURS, "pgr"),
    Variant("PGR, chain", "pgr", {"strategy": "chain"}),
    Variant("PGR, tree, base", "pgr", {"iterations": 0}),
    Variant("PGR, chain, base", "pgr", {"strategy": "chain", "iterations": 0}),
    Variant("PGR, tree, no summary", "pgr", {"summary": False}),
    Variant("PGR, chain, no summary", "pgr", {"strategy": "chain", "summary": False}),
)
DUELS = (
    Duel("tree over query only", "PGR, tree", "query only"),
    Duel("tree over Mem0 (Table 1)", OURS, MEM0),
    Duel("tree over chain (Table 3)", "PGR, tree", "PGR, chain"),
    Duel("tree: iterative over base (Table 4)", "PGR, tree", "PGR, tree, base"),
    Duel("chain: iterative over base (Table 4)", "PGR, chain", "PGR, chain, base"),
    Duel("tree: with over without summary (Table 5)", "PGR, tree", "PGR, tree, no summary"),
    Duel("chain: with over without summary (Table 5)", "PGR, chain", "PGR, chain, no summary"),
)


EFFORT = (
    Column.mean("LM calls", lambda row: row.recall_counts.get("calls", 0) + 1.0, 2),
    count("first", "facts, phase 1"),
    count("new", "new facts, phase 2"),
    count("rounds"),
)
"""Means of a query as Table 7 counts: the calls of the recall and the answer. `--json` has all counts."""


def effort(material: Material) -> Iterator[OurTable]:
    """Calls and facts a query (Table 7)."""
    rows = tuple((each.label, *(column.cell(each) for column in EFFORT)) for each in material.made.values())
    title = "means a query, as Table 7 counts: calls of the recall and one to answer"
    yield OurTable(title, ("variant", *(column.name for column in EFFORT)), rows)


_SHARES = (("recall", "recall_exact"), ("evidence", "evidence_exact"))
"""Parts of the metric for Figure 3: by a judge, and without one."""


def gap(material: Material) -> Iterator[OurTable | Picture]:
    """Figure 3: recall of the query alone against that of PGR, and in how many queries everything is found."""
    made = [material.made[label] for label in (BASELINE, OURS) if label in material.made]
    known = {name for each in made for name in each.evaluation.metrics()}
    columns = [part(name) for name in next((pair for pair in _SHARES if pair[0] in known), ()) if name in known]
    if not columns:
        return
    rows = tuple((each.label, *(column.cell(each) for column in columns)) for each in made)
    title = f"Figure 3: {material.setup.benchmark}, the query alone against PGR"
    yield OurTable(title, ("variant", *(column.name for column in columns)), rows, _GAP)
    series = {column.name: [each.mean(column.value) for each in made] for column in columns}
    yield Picture("fig3-gap", bars(material.title(title), [each.label for each in made], series))


_GAP = (
    "The paper's picture has MemoryQuest, ImplexConv and PersonaMem-v2 side by side: --on implexconv and --on "
    "personamem-v2 draw theirs. Without a judge, recall is that of the evidence's turns or sessions."
)

PGR = Recipe(
    name="pgr",
    summary="prospection-guided retrieval: its ablations on MemoryQuest",
    sections=(
        Section(
            name="ablations",
            title="PGR's variants",
            benchmark="memoryquest",
            others=("implexconv", "personamem-v2"),
            variants=VARIANTS,
            rivals=(Variant(MEM0, "system:mem0", {"k": 20}),),
            duels=DUELS,
            own=OURS,
            paper=printed("pgr", "ablations"),
            analyses=(effort, gap),
        ),
    ),
    offline_options={
        "memoryquest": {"metric": "evidence"},
        "implexconv": {"metric": "f1"},
        "personamem-v2": {"metric": "mcq"},
    },
)

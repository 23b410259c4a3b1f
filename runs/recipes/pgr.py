"""PGR's tables: strategies, iterative against base, with and without summary, calls and facts a query.

The baselines of the paper's Table 1 (GraphRAG, TaciTree, Mem0 with graph) are other systems and not imitated here; the
query-only baseline of its Figure 3 is (`fact-store`, K = 20). Human judgements (its Tables 1 and 2) cannot be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator

from .columns import Column, count
from .material import Material
from .papers import printed
from .recipe import Recipe
from .section import Duel, Section, Variant
from .tables import OurTable

VARIANTS = (
    Variant("query only", "fact-store"),
    Variant("PGR, tree", "pgr"),
    Variant("PGR, chain", "pgr", {"strategy": "chain"}),
    Variant("PGR, tree, base", "pgr", {"iterations": 0}),
    Variant("PGR, chain, base", "pgr", {"strategy": "chain", "iterations": 0}),
    Variant("PGR, tree, no summary", "pgr", {"summary": False}),
    Variant("PGR, chain, no summary", "pgr", {"strategy": "chain", "summary": False}),
)
DUELS = (
    Duel("tree over query only", "PGR, tree", "query only"),
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
            duels=DUELS,
            own="PGR, tree",
            paper=printed("pgr", "ablations"),
            analyses=(effort,),
        ),
    ),
    offline_options={
        "memoryquest": {"metric": "evidence"},
        "implexconv": {"metric": "f1"},
        "personamem-v2": {"metric": "mcq"},
    },
)

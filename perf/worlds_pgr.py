"""What is claimed of PGR's mechanisms in `world.pgr`; a table of `worlds`.

Predictions follow from how the world is built (`data.worlds.pgr`). The paper reports gains of the policy over the query
alone (Figure 3), of refinement (Table 4) and of the summary (Table 5), and next to none of trees over chains (Table 3);
it says nothing of augmentation, thresholds or consolidation alone. Rounds end when they find fewer than `min_new`
facts: most claims are made where that is 1, so that chance finds of a round do not end the search early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mempiler.runs.statistics import paired
from world_claims import Bench, Claim, Found

METHOD, WORLD = "pgr", "world.pgr"
HOPS = ("hop1", "hop2", "hop3")
IMAGINED = ("prospect", "branch", "left", *HOPS, "alias", "merge")
"""What a tree reaches and the question does not."""
SEVERAL = ("prospect", "branch", *HOPS)
"""Where a thing has at least three facts."""
ON: Mapping[str, Any] = {"min_new": 1}
BASE: Mapping[str, Any] = {"iterations": 0}
CHAIN: Mapping[str, Any] = {"strategy": "chain", **ON}
NEVER = 10_000

READING = (
    Claim("base: no refinement", HOPS, BASE, beside=ON),
    Claim("1 round", HOPS[1:], {"iterations": 1}, beside=ON),
    Claim("2 rounds", HOPS[2:], {"iterations": 2}, beside=ON),
    Claim("3 rounds", (), {"iterations": 3}, beside=ON),
    Claim("a round must find 20", HOPS[1:], {"min_new": 20}, beside=ON),
    Claim("no summary", ("left",), {"summary": False}, beside=ON),
    Claim("no summary, chain", ("order", "left"), {"summary": False}, beside=CHAIN),
    Claim("no augmentation", (), {"augment": "none"}, beside=ON),
    Claim("no augmentation, base", ("alias",), {"augment": "none"}, beside=BASE),
    Claim("query rewritten, base", (), {"augment": "rewrite"}, beside=BASE),
    Claim("nothing is close enough, base", ("alias",), {"augment_score": 1.1}, beside=BASE),
    Claim("10 facts a probe", (), {"k": 10}, beside=ON),
    Claim("tau .3", (), {"min_score": 0.3}, beside=ON),
    Claim("tau .5", (), {"min_score": 0.5}, beside=ON),
    Claim("tau .8", ("prospect", "branch", *HOPS, "alias", "merge"), {"min_score": 0.8}, beside=ON),
)
WRITING = (
    Claim("no consolidation", ("merge",), {"merge_after": NEVER}, beside=ON),
    Claim("nothing is alike (.95)", ("merge",), {"merge_score": 0.95}, beside=ON),
    Claim("a window of a year", ("window",), {"window_days": 365}, beside=ON),
    Claim("updates see 1 known fact", ("count",), {"related": 1}, beside=ON),
    Claim("an update a session", (), {"every": 1}, beside=ON),
    Claim("an update ten sessions", (), {"every": 10}, beside=ON),
)
SILENT = (
    Claim("silent: merge", ("merge",), silent=frozenset({"merged_fact"}), beside=ON),
    Claim("silent: refine", HOPS, silent=frozenset({"updated_tree"}), beside=ON),
    Claim("silent: summarize", ("left",), silent=frozenset({"prospection_summary"}), beside=ON),
    Claim("silent: imagine", ("prospect", "branch", "left", *HOPS, "merge"), silent=frozenset({"tree"}), beside=ON),
)
"""Without first steps a round stands in for them, but only where the query alone finds anything to refine by."""
CLAIMS = (*READING, *WRITING, *SILENT)


def found(users: int) -> list[Found]:
    """The rows of all claims: between strategies and methods of the questions named, else of all."""
    pgr = Bench(METHOD, WORLD, users)
    return [*_strategies(pgr), *_breadth(pgr), *_methods(pgr, users), *pgr.found(CLAIMS)]


def _strategies(pgr: Bench) -> list[Found]:
    """A chain for a tree, and the other way round; what neither is for is the same."""
    tree, chain = pgr.scored(ON).rows, pgr.scored(CHAIN).rows
    return [
        _compared("chain for tree", "branch", tree, chain),
        _compared("tree for chain", "order", chain, tree),
        _compared("chain for tree, base", "left", pgr.scored(BASE).rows, pgr.scored({**CHAIN, **BASE}).rows),
        *(
            _compared("chain for tree", name, tree, chain, lower=False)
            for name in ("prospect", *HOPS, "alias", "merge")
        ),
    ]


def _breadth(pgr: Bench) -> list[Found]:
    """Fewer facts a probe than a thing has."""
    whole = pgr.scored(ON).rows
    probed = {k: pgr.scored({"k": k, **ON}).rows for k in (1, 2)}
    return [_compared(f"facts a probe: {k}", name, whole, found) for k, found in probed.items() for name in SEVERAL]


def _methods(pgr: Bench, users: int) -> list[Found]:
    """The query alone (Figure 3); the policy over the memory of another method (section 3.1)."""
    whole, alone = pgr.scored(ON).rows, Bench("fact-store", WORLD, users).scored({}).rows
    over, turns = (Bench(name, WORLD, users).scored({}).rows for name in ("pgr+turn-rag", "turn-rag"))
    return [
        *(_compared("query alone", name, whole, alone) for name in IMAGINED),
        *(_compared("query alone", name, whole, alone, lower=False) for name in ("direct", "window", "count")),
        *(_compared("query alone, turns", name, over, turns) for name in IMAGINED if name != "merge"),
    ]


def _compared(name: str, category: str, before: Sequence[Any], after: Sequence[Any], lower: bool = True) -> Found:
    """One row of questions of a category."""
    scores = {row.id: row.score for row in after}
    rows = [row for row in before if row.category == category]
    difference = paired([row.score for row in rows], [scores[row.id] for row in rows], [row.group for row in rows])
    return Found(name, category, lower, difference, len(rows))

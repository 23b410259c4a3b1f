"""What is claimed of PGR's mechanisms in `world.pgr`.

Predictions follow from how the world is built (`data.worlds.pgr`). The paper reports gains of the policy over the query
alone (Figure 3), of refinement (Table 4) and of the summary (Table 5), and next to none of trees over chains (Table 3);
it says nothing of augmentation, thresholds or consolidation alone. Rounds end when they find fewer than `min_new`
facts: most claims are made where that is 1, so that chance finds of a round do not end the search early.
"""

from __future__ import annotations

from .claim import Claim, Claims

HOPS = ("hop1", "hop2", "hop3")
IMAGINED = ("prospect", "branch", "left", *HOPS, "alias", "merge")
"""What a tree reaches and the question does not."""
SEVERAL = ("prospect", "branch", *HOPS)
"""Where a thing has at least three facts."""
ON: dict[str, object] = {"min_new": 1}
BASE: dict[str, object] = {"iterations": 0}
CHAIN: dict[str, object] = {"strategy": "chain", **ON}
NEVER = 10_000

READING = (
    Claim("base: no refinement", HOPS, BASE, beside=ON),
    Claim("base: no refinement, chain", HOPS, BASE, beside=CHAIN, keeps=("direct",)),
    Claim("1 round", HOPS[1:], {"iterations": 1}, beside=ON),
    Claim("2 rounds", HOPS[2:], {"iterations": 2}, beside=ON),
    Claim("3 rounds", (), {"iterations": 3}, beside=ON),
    Claim("a round must find 20", HOPS[1:], {"min_new": 20}, beside=ON),
    Claim("no summary", ("left",), {"summary": False}, beside=ON),
    Claim("no summary, chain", ("order", "left"), {"summary": False}, beside=CHAIN),
    Claim("no augmentation", (), {"augment": "none"}, beside=ON),
    Claim("no augmentation, base", ("alias",), {"augment": "none"}, beside=BASE),
    Claim("no augmentation, where it rewrites", ("alias",), {"augment": "none"}, beside={"augment": "rewrite", **BASE}),
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
POLICY = (
    Claim("query alone", IMAGINED, beside=ON, method="fact-store", keeps=("direct", "window", "count")),
    Claim(
        "query alone, turns",
        tuple(name for name in IMAGINED if name != "merge"),
        over="pgr+turn-rag",
        method="turn-rag",
        keeps=(),
    ),
    Claim("chain for tree", ("branch",), CHAIN, beside=ON, keeps=("prospect", *HOPS, "alias", "merge")),
    Claim(
        "tree for chain", ("order",), {"strategy": "tree"}, beside=CHAIN, keeps=("prospect", *HOPS, "alias", "merge")
    ),
    Claim("chain for tree, base", ("left",), CHAIN, beside=BASE, keeps=()),
)
"""The query alone (Figure 3), the policy over another method's memory (section 3.1), strategies (Table 3)."""
BREADTH = tuple(Claim(f"facts a probe: {k}", SEVERAL, {"k": k}, beside=ON, keeps=()) for k in (1, 2))
CLAIMS = (*POLICY, *READING, *BREADTH, *WRITING, *SILENT)
APART = {
    "every": "ours: sessions that one update takes; the paper says nothing of it",
    "augment_k": "the paper gives no number and ablates none: one fact that is close enough names the thing here",
    "hybrid": "ours, off: search by words and cosine together; the paper leaves the store open (section 3)",
}
PGR = Claims("pgr", "world.pgr", CLAIMS, APART)
"""Those of the paper."""

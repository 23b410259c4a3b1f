"""Thresholds for cosines by embedder: a number that one embedder's cosines are compared with says nothing of another's.

    build("pgr", embedder=embedder("minilm"))                  min_score .31, by this table
    build("pgr", embedder=embedder("minilm"), min_score=.2)    .2: whoever names a setting decides
    build("pgr", embedder=embedder("openai/..."))              .3, the method's default, which is its paper's

Chosen with `perf/embedders.py` of commit b9d2176 on the facts and questions of LoCoMo's conv-26, checked on conv-30:

    related   above half of the facts of another conversation      named   above 999 of 1,000 of them
    near      above 19 of 20 of them                               close   half of the evidence is above
    same      one in 10,000 pairs of facts of one conversation is above

Limits: two conversations of one data set, and sentences in English. There is no gold for names: `named` and `same` are
chosen on sentences. `e5` was measured with weights rebuilt from a copy of 4 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[tuple[str, str], str] = {
    ("pgr", "min_score"): "near",
    ("pgr", "augment_score"): "close",
    ("pgr", "merge_score"): "same",
    ("memory_r2", "min_score"): "related",
    ("rgmem", "node_cosine"): "named",
    ("rgmem", "merge_cosine"): "same",
}
"""What each setting of a method's room asks for."""

COSINES: Mapping[str, Mapping[str, float]] = {
    "offline": {"near": 0.13, "named": 0.27, "close": 0.44},
    "minilm": {"related": 0.16, "near": 0.31, "named": 0.44, "close": 0.75, "same": 0.92},
    "e5": {"related": 0.73, "near": 0.77, "named": 0.8, "close": 0.88, "same": 0.98},
}
"""By embedder. What is not here is the method's default: of the offline one, those that were chosen under it."""


def suited(room: str, embedder: str | None) -> dict[str, float]:
    """The settings of a method that its embedder decides about.

    Args:
        room: The folder of `programs` that the method is in.
        embedder: Name of the embedder; None for a search without one.
    """
    cosines = COSINES.get(embedder or "", {})
    return {setting: cosines[rule] for (name, setting), rule in RULES.items() if name == room and rule in cosines}

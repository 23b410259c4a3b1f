"""Thresholds for cosines: their numbers depend on the embedder.

A cosine of 0.7 is high for one embedding model and low for another. So a method of the suite names
the level that a threshold stands for, and the number is that of the embedder, unless it is set.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..memory.search.embedder import Embedder
from .method import Method

LEVELS: Mapping[tuple[str, str], str] = {
    ("pgr", "min_score"): "near",
    ("pgr", "augment_score"): "close",
    ("pgr", "merge_score"): "same",
    ("memory_r2", "min_score"): "related",
    ("rgmem", "node_cosine"): "named",
    ("rgmem", "merge_cosine"): "same",
}
"""The level of each threshold, by the method's folder and the name of the setting."""

COSINES: Mapping[str, Mapping[str, float]] = {
    "offline": {"near": 0.13, "named": 0.27, "close": 0.44},
    "minilm": {"related": 0.16, "near": 0.31, "named": 0.44, "close": 0.75, "same": 0.92},
    "e5": {"related": 0.73, "near": 0.77, "named": 0.8, "close": 0.88, "same": 0.98},
}
"""The cosine of each level, by embedder.

A level that is missing is the method's own default: for the offline embedder, defaults were chosen
with it.

Chosen with `perf/embedders.py` of commit b9d2176 on facts and questions of LoCoMo's conv-26, and
checked on conv-30:

| level     | is above                                                                     |
|-----------|------------------------------------------------------------------------------|
| `related` | half of the facts of another conversation                                    |
| `near`    | 19 of 20 facts of another conversation                                       |
| `named`   | 999 of 1,000 facts of another conversation                                   |
| `close`   | half of the evidence                                                         |
| `same`    | all pairs of facts of one conversation but one in 10,000                     |
"""


def cosine_thresholds(method_class: type[Method], embedder: Embedder | None) -> dict[str, float]:
    """Return the values of a method's cosine thresholds that suit an embedder, by setting.

    A cosine of 0.7 is high for one embedding model and low for another, so thresholds depend on the
    embedder. A setting that is missing in the result keeps the method's default.

    Args:
        method_class: The method; for a method from outside the suite, the result is empty.
        embedder: The embedding model that the method searches with.
    """
    if embedder is None:
        return {}

    # `COSINES` has the embedder's cosine for each level of likeness, such as {"same": 0.92}.
    cosine_by_level = COSINES.get(embedder.name, {})
    folder = _folder_of(method_class)

    # `LEVELS` has the level that each setting stands for: `merge_score` of `pgr` is "same".
    thresholds: dict[str, float] = {}
    for (method_folder, setting), level in LEVELS.items():
        if method_folder != folder:
            continue
        # A folder may have several methods, and not all of them need have the setting.
        if setting not in method_class.Settings.model_fields:
            continue
        if level in cosine_by_level:
            thresholds[setting] = cosine_by_level[level]
    return thresholds


def _folder_of(method_class: type[Method]) -> str:
    """Return the folder of `programs/` that defines a method; "" if it is defined elsewhere."""
    # "mempiler.programs.pgr.method" is split into the folder "pgr" and what stands before it.
    package, _, _ = method_class.__module__.rpartition(".")
    parent, _, folder = package.rpartition(".")
    return folder if parent == __package__ else ""

"""Principles: clusters of needs, each with the type of need and what the user prefers for it (Mem-PAL, M_P).

    vectors of needs ── clusters ──> groups            once, for the topics that are there
    vectors of later needs ── assigned ──> a group each, whose centre moves to the mean of its members

A centre is always the mean of its members' vectors, so it is not stored: `centre` computes it again.

Example:
    >>> import numpy as np
    >>> from mempiler.programs.h2memory.clusters import clusters
    >>> clusters(np.array([[0, 0], [0, 2], [9, 9]], dtype=float), 2, seed=0)
    [[0, 1], [2]]

Limits: the clusters are those of scikit-learn's KMeans from one seed; another release may cut ties otherwise. The
released code repeats KMeans until every cluster has two members, up to a hundred times; here a cluster may have one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from pydantic import BaseModel, ConfigDict

from .outlines import Content

T = TypeVar("T")
RESTARTS = 10
"""Starts of KMeans, of which the best counts."""


class Principle(BaseModel):
    """One type of need, and what the user prefers for it."""

    model_config = ConfigDict(frozen=True)

    id: str
    need_type: str
    preference: str = ""
    """The principle itself; empty where the topics showed no preference."""
    members: tuple[str, ...] = ()
    """Ids of its topics, in the order in which they came in."""

    def text(self, content: Content | None = None) -> str:
        """The type of need alone, or with the principle (also where no content is asked for)."""
        if content == "needs" or not self.preference:
            return f"Type of need: {self.need_type}"
        return f"Type of need: {self.need_type} | Principle: {self.preference}"


def clusters(vectors: np.ndarray, count: int, seed: int) -> list[list[int]]:
    """KMeans: groups of rows, by their first row; no more than there are different rows.

    Args:
        vectors: The rows, of shape [n, dimension].
        count: The most groups.
        seed: Where KMeans starts.
    """
    if not len(vectors):
        return []
    # In double precision, so that equal texts stay equal and nearly equal ones are not split by rounding.
    rows = np.asarray(vectors, dtype=np.float64)
    count = min(count, len(np.unique(rows.round(6), axis=0)))
    if count < 2:
        return [list(range(len(rows)))]
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    means = KMeans(n_clusters=count, n_init=cast("Any", RESTARTS), random_state=seed)
    # A few hundred rows are done before other threads have begun, which then wait busily for one another. OpenMP keeps
    # the number per calling thread: no other one sees it.
    with threadpool_limits(1, user_api="openmp"):
        labels = means.fit_predict(rows)
    found: dict[int, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        found.setdefault(label, []).append(row)
    return list(found.values())


def assigned(
    vectors: np.ndarray, centres: Sequence[np.ndarray], counts: Sequence[int]
) -> tuple[list[int], list[np.ndarray]]:
    """Takes rows in one after the other: each joins the nearest centre, which moves to the mean of its members.

    Args:
        vectors: The new rows, in order.
        centres: The centres so far, at least one; not changed.
        counts: Members of each.

    Returns:
        The number of the centre of each row, the first of equally near ones; and the centres afterwards.
    """
    moved, sizes = [np.asarray(centre, dtype=np.float64) for centre in centres], list(counts)
    found: list[int] = []
    for row in np.asarray(vectors, dtype=np.float64):
        nearest = int(np.argmin([np.linalg.norm(row - centre) for centre in moved]))
        sizes[nearest] += 1
        moved[nearest] = moved[nearest] + (row - moved[nearest]) / sizes[nearest]
        found.append(nearest)
    return found, moved


def sampled(members: Sequence[T], most: int, seed: int) -> list[T]:
    """At most `most` members, drawn by a seed, in their order."""
    if len(members) <= most:
        return list(members)
    chosen = random.Random(seed).sample(range(len(members)), most)
    return [members[n] for n in sorted(chosen)]

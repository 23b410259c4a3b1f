"""Which node a name means: the same words in another form, or nearly the same meaning.

Merging is aggressive, as in the paper (appendix C.7), which gives no rule; this one is our own. Two names are one when
their stems without function words are the same ("Running", "to run"), or when the cosine of their embeddings reaches
the threshold and they hold the same numbers ("Marathon 2022" is not "Marathon 2023"). Concepts are merged with
concepts, events with events.

Example:
    >>> from mempiler.programs.rgmem.entities import Names
    >>> from mempiler.programs.rgmem.memory import Node
    >>> names = Names([Node(id="n4", name="Visiting museums", tier="instance")], {}, min_cosine=0.85)
    >>> names.find("to visit a museum", abstract=False)
    ('n4', False)

Limits: a cosine belongs to its embedder. The offline one compares spelling: it joins "Pottery class" with "Pottery
classes", never "Movies" with "Films".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from ...memory.words import tokens
from .memory import Node

_DIGITS = re.compile(r"\d+")


class Names:
    """The names of a graph's nodes, to which new ones can be added.

    Args:
        nodes: The nodes so far; the user is not among those that are found.
        vectors: Embeddings of all names, also of those asked for, each of length 1 or 0.
        min_cosine: Lowest cosine of names that mean one node.
    """

    def __init__(self, nodes: Iterable[Node], vectors: Mapping[str, np.ndarray], min_cosine: float) -> None:
        self._vectors = vectors
        self._min = min_cosine
        self._exact: dict[tuple[bool, tuple[str, ...]], str] = {}
        self._rows = {True: _Rows(), False: _Rows()}
        self._known: set[str] = set()
        for node in nodes:
            if node.tier != "user":
                self.add(node)

    def add(self, node: Node) -> None:
        """Makes a node's name and aliases known."""
        abstract = node.tier == "abstract"
        for name in (node.name, *node.aliases):
            self._exact.setdefault((abstract, normal(name)), node.id)
        if node.name in self._vectors and node.id not in self._known:
            self._known.add(node.id)
            self._rows[abstract].add(node, self._vectors[node.name])

    def find(self, name: str, abstract: bool) -> tuple[str, bool] | None:
        """The node that a name means, and whether its embedding decided; None for a new one.

        Of several that are near the nearest counts, of equally near ones the first.
        """
        known = self._exact.get((abstract, normal(name)))
        if known is not None:
            return known, False
        rows, vector = self._rows[abstract], self._vectors.get(name)
        if not rows.names or vector is None:
            return None
        cosines = rows.vectors @ vector.astype(np.float64)
        for n in map(int, np.argsort(-cosines, kind="stable")):
            if cosines[n] < self._min - 1e-6:
                return None
            if _DIGITS.findall(rows.names[n]) == _DIGITS.findall(name):
                return rows.ids[n], True
        return None


class _Rows:
    """Names that can be merged into, and their vectors below one another, with room for further ones."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.names: list[str] = []
        self._vectors = np.empty((0, 0))

    @property
    def vectors(self) -> np.ndarray:
        """In double precision, so that a pair of equal texts reaches a threshold of 1."""
        return self._vectors[: len(self.ids)]

    def add(self, node: Node, vector: np.ndarray) -> None:
        if len(self.ids) == len(self._vectors):
            room = np.empty((len(self.ids) + 16, len(vector)))
            self._vectors = np.concatenate([self.vectors, room]) if self.ids else room
        self._vectors[len(self.ids)] = vector
        self.ids.append(node.id)
        self.names.append(node.name)


def normal(name: str) -> tuple[str, ...]:
    """A name as the stems of its words, without case, punctuation and function words (with them if it has no other)."""
    return tuple(tokens(name)) or tuple(name.casefold().split())

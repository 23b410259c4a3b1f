"""Choose the demos that are nearest to the inputs of a call.

DSPy's KNNFewShot replaces the `forward` of a program, which no saved state holds. Here the demos of
a predictor are the pool, and its `nearest` says how many of them a prompt shows.

Demos are compared by their question, since what was recalled for two questions says little about
how near these are. If not all demos have a question, they are compared by the text inputs that all
of them have. BM25 compares the words; an embedding model adds the cosine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dspy
import numpy as np

from ..memory.search.embedder import Embedder, query_vectors
from ..memory.search.scores import standard_scores
from ..memory.search.tokens import tokens
from .single_flight import SingleFlight

MAX_RANKINGS = 256
"""How many pools of demos stay indexed in the process."""


def nearest_demos(
    demos: Sequence[dspy.Example],
    inputs: Mapping[str, Any],
    input_names: Sequence[str],
    count: int,
    embedder: Embedder | None = None,
) -> list[dspy.Example]:
    """Return the demos that are most similar to the inputs of a call, in the order of `demos`.

    Args:
        demos: The demos to choose from.
        inputs: The inputs of the call, by name.
        input_names: The names of the inputs that the predictor declares.
        count: How many demos are chosen.
        embedder: Makes vectors that compare what texts mean; None compares words only.
    """
    names = _compared_inputs(demos, input_names)

    # The index of a pool of demos is made once. Python's ids tell pools apart quickly; the ranking
    # holds its demos, so that no later demo gets the id of one of them.
    embedder_name = None if embedder is None else embedder.name
    demo_ids = tuple(id(demo) for demo in demos)
    ranking = _RANKINGS.get_or_compute(
        (embedder_name, names, demo_ids), lambda: _DemoRanking(demos, names, embedder)
    )

    # A stable sort: of equally near demos, the first are chosen.
    scores = ranking.scores(inputs)
    best_first = np.argsort(-scores, kind="stable")
    chosen_positions = sorted(best_first[:count])
    return [demos[position] for position in chosen_positions]


class _DemoRanking:
    """Scores a pool of demos by how near they are to inputs.

    The pool is a few dozen texts that never change, for which rank-bm25 is enough.

    Args:
        demos: The pool. It is kept, so that the ids of its demos are not reused as long as the
            ranking is cached under them.
        names: The inputs that are compared.
        embedder: Compares what texts mean, if there is one.
    """

    def __init__(
        self, demos: Sequence[dspy.Example], names: Sequence[str], embedder: Embedder | None
    ) -> None:
        from rank_bm25 import BM25Plus

        self._demos = demos
        self._names = names
        self._embedder = embedder

        texts = [_joined_text(demo, names) for demo in demos]
        # A blank demo gets an empty word: a collection without words has no average length.
        words = [tokens(text) or [""] for text in texts]
        self._bm25 = BM25Plus(words)
        if embedder is not None:
            # Demos are embedded as queries, since they are compared with one.
            self._vectors = query_vectors(embedder, texts)

    def scores(self, inputs: Mapping[str, Any]) -> np.ndarray:
        """Return a score for every demo: the higher, the more similar it is to the inputs.

        Scores of words (BM25) and cosines of vectors have different ranges. So both are brought to
        the same mean and spread before they are added.
        """
        text = _joined_text(inputs, self._names)
        word_scores = self._bm25.get_scores(tokens(text))
        if self._embedder is None:
            return word_scores
        cosines = self._vectors @ query_vectors(self._embedder, [text])[0]
        return standard_scores(word_scores) + standard_scores(cosines)


_RANKINGS: SingleFlight[tuple[str | None, tuple[str, ...], tuple[int, ...]], _DemoRanking] = (
    SingleFlight(MAX_RANKINGS)
)
"""Rankings by the name of the embedder, the compared inputs and the ids of the demos."""


def _compared_inputs(demos: Sequence[dspy.Example], input_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the inputs by which demos are compared.

    That is the question alone if every demo has one, since the other inputs say little about how
    similar two questions are. Otherwise it is every input that is a text in all demos.
    """
    names: list[str] = []
    for name in input_names:
        if all(isinstance(demo.get(name), str) for demo in demos):
            names.append(name)

    if "question" in names:
        return ("question",)
    return tuple(names)


def _joined_text(values: Any, names: Sequence[str]) -> str:
    """Return the named inputs of a call or a demo as one text; a missing input adds nothing."""
    return " ".join(str(values.get(name, "")) for name in names)

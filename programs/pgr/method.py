"""PGR: prospection-guided retrieval, over a store of dated facts of its own or over any other method's memory.

    sessions ── every 3 ──> upsert ── every 50 new facts ──> consolidate ──> facts       (`writer`)
    question ── Prospection over search ──> facts and a summary                          (`reader`, `prospection`)

`pgr+METHOD` takes the memory of any other method and calls nothing of it but `search`: all switches of the policy share
one written memory.

Critical path: one update per three sessions of the whole history, in order, and per fifty new facts one merge (its
groups at once); a question takes the calls of `Prospection` and one answer.

Limits: the paper leaves open how many sessions an upsert takes and which cosine joins a cluster; 3 and .8 are ours.

Deviations: an update is shown the 40 known facts that are nearest to what was said, not all of them, so that its prompt
does not grow with the memory (400 facts are some 15,000 tokens); `related` sets the number. Where no probe finds a fact
above tau, the paper recalls nothing; here the five facts nearest to the query are recalled, without another call and
with a score of 0. `hybrid` (off) ranks facts by BM25 and cosine together.

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language Models", section 3.
"""

from __future__ import annotations

from ...memory.index import Embedder
from ..method import Method, Policy
from .prospection import Prospection
from .reader import FactReader, ProspectiveReader
from .writer import PersonalFactWriter


class FactStore(Method):
    """PGR's long-term memory (section 3.2), searched with the query alone: the query-only baseline of Figure 3.

    Args:
        embedder: Vectors of facts and queries.
        every: Sessions per upsert; those that wait are written where the history ends.
        merge_after: New facts after which the memory is consolidated.
        merge_score: Lowest cosine of facts that may be merged.
        window_days: Most days between the latest dates of facts that are merged.
        related: Most known facts that an update is shown, those nearest to what was said.
        k: Facts recalled per query.
        hybrid: Whether facts are ranked by BM25 and cosine together, instead of by cosine as in the paper.
    """

    def __init__(
        self,
        embedder: Embedder,
        every: int = 3,
        merge_after: int = 50,
        merge_score: float = 0.8,
        window_days: int = 7,
        related: int = 40,
        k: int = 20,
        hybrid: bool = False,
    ) -> None:
        writer = PersonalFactWriter(embedder, every, merge_after, merge_score, window_days, related)
        super().__init__(writer, FactReader(k, embedder=embedder, hybrid=hybrid), embedder)


class PGR(Method):
    """The paper's method: prospection over its own store of facts.

    Args:
        embedder: Vectors of facts, queries and probes.
        every: See `FactStore`, as for the next four.
        merge_after: New facts after which the memory is consolidated.
        merge_score: Lowest cosine of facts that may be merged.
        window_days: Most days between the latest dates of facts that are merged.
        related: Most known facts that an update is shown, those nearest to what was said.
        strategy: See `Prospection`, as for all others.
        k: Facts per probe.
        min_score: Lowest cosine of a probe's hit.
        augment: "append", "rewrite" or "none".
        augment_k: Facts that the augmentation sees at most.
        augment_score: Lowest cosine of those facts.
        min_new: The loop ends with a round that finds fewer new facts.
        iterations: Most rounds of refinement.
        summary: Whether the context ends with a prospection summary.
        hybrid: See `FactStore`; `min_score` and `augment_score` stay cosines.
    """

    def __init__(
        self,
        embedder: Embedder,
        every: int = 3,
        merge_after: int = 50,
        merge_score: float = 0.8,
        window_days: int = 7,
        related: int = 40,
        strategy: str = "tree",
        k: int = 5,
        min_score: float = 0.3,
        augment: str = "append",
        augment_k: int = 5,
        augment_score: float = 0.6,
        min_new: int = 5,
        iterations: int = 10,
        summary: bool = True,
        hybrid: bool = False,
    ) -> None:
        writer = PersonalFactWriter(embedder, every, merge_after, merge_score, window_days, related)
        policy = Prospection(strategy, k, min_score, augment, augment_k, augment_score, min_new, iterations, summary)
        super().__init__(writer, ProspectiveReader(FactReader(embedder=embedder, hybrid=hybrid), policy), embedder)


class PGROver(Policy):
    """`pgr+METHOD`: the policy over another method's `search`. Settings of the inner method begin with `inner_`.

    Args:
        inner: The method beneath.
        strategy: See `Prospection`, as for all others.
        k: Hits per probe.
        min_score: Lowest score of a probe's hit.
        augment: "append", "rewrite" or "none".
        augment_k: Hits that the augmentation sees at most.
        augment_score: Lowest score of those.
        min_new: The loop ends with a round that finds fewer new hits.
        iterations: Most rounds of refinement.
        summary: Whether the context ends with a prospection summary.
    """

    def __init__(
        self,
        inner: Method,
        strategy: str = "tree",
        k: int = 5,
        min_score: float = 0.3,
        augment: str = "append",
        augment_k: int = 5,
        augment_score: float = 0.6,
        min_new: int = 5,
        iterations: int = 10,
        summary: bool = True,
    ) -> None:
        policy = Prospection(strategy, k, min_score, augment, augment_k, augment_score, min_new, iterations, summary)
        super().__init__(inner, ProspectiveReader(inner.reader, policy))

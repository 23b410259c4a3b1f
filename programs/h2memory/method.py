"""H2Memory: what a user lives through from device logs, what they need and like from dialogues, on two levels each.

    Logs      ── link ── describe ──> situations (M_G) ── update ──> background, four aspects (M_B)
    Session   ── outline ── refine by situations and background ──> topics (M_T)
    settle    ── cluster ── abstract, or join ── adjust ──> types of need with principles (M_P)
    query     ──> 3 situations of the current session, their backgrounds, 3 topics, their principles

Equations to functions (Mem-PAL, "Memory Construction"; the paper's equations have no numbers):
    Upsilon = LLM(L)                     `logs.situations_of`, `situations.accepted`
    G_1 .. G_g, M_G^j = {s_1 .. s_g}     `situations.components`, `logs.situations_of`
    M_B^(j) = LLM(M_B^(j-1), M_G^j)      `chain.Chain`, `logs.updated`
    F_GB: M_G -> P(M_B)                  `HeterogeneousMemory.behind`
    T = {t_1 .. t_tau}, {r, o, p}        `dialogue.topics_of`, `outlines.Topic`
    r^ = LLM(r, R(s))                    `dialogue.refined`, `dialogue.nearest`
    M_P = {gamma, rho}, clusters C_i     `principles.Principles`, `clusters.clusters`, `.assigned`
    F_TP: M_T -> M_P                     `HeterogeneousMemory.above`
    m = {R(M_G^j), F_GB, R(M_T), F_TP}   `recall.recalled`
    R = LLM(m, Q)                        the task

Critical path, in LM calls that must follow one another: 2 for all items together (link, describe; outlines beside
them), 1 per item of logs to update the background, 1 to refine the last dialogue if no logs follow it, 2 for all
clusters, and 2 per dialogue that joins later. The needs of a dialogue are refined while the background takes in the
logs that come after it, so that only the background is a chain. `HeterogeneousMemory.depth()` counts what a memory
took, and a recall reports it as `depth`. A question takes 1 call, or 2 if its query is a dialogue (`need_summary`).

Logs are those items of kind `Logs` (or `Behavior`) that come before the `Session` they belong to; the current session's
are the last ones of the history. Profiles are passed over: the paper's assistant does not see them.

Deviations: clusters may have one member; vectors have length 1; links are shown by both kinds where the released code
shows one; a need of whose session nothing is known is not refined. Where the history set ends and later sessions begin
to join, the paper's data says. Here `online_month` takes the dialogues of the month in which the history ends as later
ones, as PAL-Set does, if there are enough before them (as many topics as clusters). A stored memory goes on from what
it was when it settled: whatever comes then joins, likewise.

Example:
    >>> program = build("h2memory", task="requirement-restatement", embedder=embedder)
    >>> program(history=history, question="How do I get fitter?").context.counts["situations"]
    3

Limits: for every question about a longer history the principles are made anew, since they settle where it ends; the
rest of the memory is shared. Optimizers see for a question the prompts that link, describe and outline; the others name
no turn, so that no replay shows them. The paper's vectors are those of paraphrase-multilingual-mpnet-base-v2; the
offline embedder compares spelling.

Source: Huang et al., "Mem-PAL: Towards Memory-based Personalized Dialogue Assistants for Long-term User-Agent
Interaction".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dspy

from ...errors import UserError
from ...memory.dense import DenseIndex
from ...memory.index import Embedder, Index
from ...records import Behavior, Context, Hit, Item, Logs, Profile
from ...signatures.h2memory import DescribeSituation, LinkLogs, OutlineTopics, RefineNeed, UpdateBackground
from ...signatures.h2memory_principles import (
    AbstractNeeds,
    AbstractPreferences,
    AdjustNeedType,
    AdjustPrinciple,
    SummarizeNeed,
)
from ..method import Method
from ..predictor import predictor
from .chain import Chain
from .dialogue import PreparedTopics, topics_of
from .logs import PreparedLogs, situations_of
from .memory import HeterogeneousMemory
from .principles import Principles
from .recall import Parts, entries, recalled, whole


class H2Memory(Method):
    """The method.

    Args:
        embedder: Vectors of situations, needs and queries.
        use_situations: Show situations (w/o M_G: the background is still written from them, and found through them).
        use_background: Write and show the background (w/o M_B).
        use_topics: Show topics (w/o M_T: principles are still made from them, and found through them).
        use_principles: Make and show principles (w/o M_P).
        clusters: Most clusters of needs.
        situations: Situations recalled per query, and shown where a need is refined.
        topics: Topics recalled per query.
        sample_per_cluster: Most topics of a cluster that a prompt is shown (released code).
        window: Logs per call of the prompt that links them; it sees as many before them.
        seed: Of clusters and samples.
        clustered: False: a principle for every topic, as for LongMemEval.
        online_month: Whether dialogues of the month in which the history ends join one by one.
        need_summary: Whether a query that is a dialogue is summed up before the search.

    Raises:
        UserError: A setting has no such value.
    """

    Memory = HeterogeneousMemory
    continues = True
    writing = (
        "link",
        "describe",
        "update_background",
        "outline",
        "refine",
        "abstract_need",
        "abstract_preference",
        "adjust_need",
        "adjust_preference",
    )

    def __init__(
        self,
        embedder: Embedder,
        use_situations: bool = True,
        use_background: bool = True,
        use_topics: bool = True,
        use_principles: bool = True,
        clusters: int = 8,
        situations: int = 3,
        topics: int = 3,
        sample_per_cluster: int = 10,
        window: int = 10,
        seed: int = 0,
        clustered: bool = True,
        online_month: bool = True,
        need_summary: bool = True,
    ) -> None:
        super().__init__(embedder)
        for name, number, least in (
            ("clusters", clusters, 1),
            ("situations", situations, 0),
            ("topics", topics, 0),
            ("sample_per_cluster", sample_per_cluster, 1),
            ("window", window, 1),
            ("seed", seed, 0),
        ):
            if number < least:
                raise UserError(f"{name} = {number} is less than {least}")
        if not (use_situations or use_background or use_topics or use_principles):
            raise UserError("use_situations, use_background, use_topics and use_principles are all off; leave one on")
        self.use_situations = use_situations
        self.use_background = use_background
        self.use_topics = use_topics
        self.use_principles = use_principles
        self.clusters = clusters
        self.situations = situations
        self.topics = topics
        self.sample_per_cluster = sample_per_cluster
        self.window = window
        self.seed = seed
        self.clustered = clustered
        self.online_month = online_month
        self.need_summary = need_summary
        self._make_predictors()

    def _make_predictors(self) -> None:
        """Only what the settings use: an optimizer spends nothing on prompts that are never asked."""
        if self._reads_logs:
            self.link = predictor(LinkLogs)
            self.describe = predictor(DescribeSituation)
        if self.use_background:
            self.update_background = predictor(UpdateBackground)
        if self._reads_dialogues:
            self.outline = predictor(OutlineTopics)
        if self._reads_dialogues and self._reads_logs:
            self.refine = predictor(RefineNeed)
        if self.use_principles:
            self.abstract_need = predictor(AbstractNeeds)
            self.abstract_preference = predictor(AbstractPreferences)
        if self.use_principles and self.clustered:
            self.adjust_need = predictor(AdjustNeedType)
            self.adjust_preference = predictor(AdjustPrinciple)
        if self.need_summary:
            self.summarize_need = predictor(SummarizeNeed)

    @property
    def _reads_logs(self) -> bool:
        return self.use_situations or self.use_background

    @property
    def _reads_dialogues(self) -> bool:
        return self.use_topics or self.use_principles

    @property
    def parts(self) -> Parts:
        """What is shown."""
        return Parts(self.use_situations, self.use_background, self.use_topics, self.use_principles)

    def writers(self) -> dict[str, dspy.Predict]:
        """The writing predictors that the settings use, by attribute name."""
        return {name: getattr(self, name) for name in self.writing if hasattr(self, name)}

    def prepare(self, item: Item) -> PreparedLogs | PreparedTopics | None:
        """What an item tells by itself: the situations of logs, the topics of a dialogue."""
        if isinstance(item, Profile):
            return None
        if isinstance(item, Logs | Behavior):
            if not self._reads_logs:
                return PreparedLogs()
            return situations_of(item, self.window, self._ask("link"), self._ask("describe"))
        return topics_of(item, self._ask("outline")) if self._reads_dialogues else PreparedTopics()

    def write(self, memory: HeterogeneousMemory, item: Item, prepared: Any = None) -> HeterogeneousMemory:
        """Takes in logs, which may change the background and refine the needs that wait, or a dialogue's topics."""
        found = self.prepare(item) if prepared is None else prepared
        memory = memory.at(item)
        if found is None:
            return memory
        if isinstance(found, PreparedLogs):
            memory = self._chain.with_logs(memory, item.id, found)
        else:
            memory = memory.with_topics(item.id, found.topics)
            memory = memory.counted(spans_repaired=found.repaired, outlines_empty=found.empty)
        # All items are prepared at once: the deepest of them counts.
        return memory.deeper(prepare=max(0, found.levels - memory.levels.get("prepare", 0)))

    def settle(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """Refines the needs that wait, and gives every topic its principle."""
        memory = self._chain.settled(memory)
        if not self.use_principles:
            return memory
        assert self.embedder is not None
        return Principles(
            lambda name, **inputs: self.attempt(getattr(self, name), **inputs),
            self.embedder,
            self.clusters,
            self.sample_per_cluster,
            self.seed,
            self.clustered,
            self.online_month,
        ).of(memory)

    def search(
        self, memory: HeterogeneousMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """All parts that are shown: situations of all sessions, backgrounds, topics and principles, by cosine."""
        return self._search(memory, queries, k, min_score, ("situation", "background", "topic", "principle"))

    def search_evidence(self, memory: HeterogeneousMemory, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Situations and topics alone: what is abstract rests on so many turns that it would count as everything."""
        return self._search(memory, queries, k, None, ("situation", "topic"))

    def recall(self, memory: HeterogeneousMemory, query: str, **hints: Any) -> Context:
        """The context of a query; nothing, without a call, from an empty memory.

        Args:
            memory: What is recalled from.
            query: What is asked, or the dialogue so far.
            **hints: `content`: "needs" leaves out solutions and preferences; `dialogue`: whether the query is one.

        Returns:
            Hits of situations, backgrounds, topics and principles, in this order; `counts` has how many of each, the
            `tokens` of all, the LM `calls`, and the `depth` of the memory.
        """
        if not (memory.situations or memory.topics):
            return Context()
        calls = 0
        if self.need_summary and hints.get("dialogue"):
            calls, said = 1, self.attempt(self.summarize_need, dialogue_so_far=query)
            query = (" ".join(str(said.current_need or "").split()) if said else "") or query
        index = self.index(memory)
        assert isinstance(index, DenseIndex)
        content = "needs" if hints.get("content") == "needs" else "solutions"
        found = recalled(memory, index, query, self.parts, content, self.situations, self.topics)
        return found.model_copy(update={"counts": {**found.counts, "calls": calls, "depth": memory.depth()}})

    def build_index(self, memory: HeterogeneousMemory) -> Index:
        assert self.embedder is not None
        index = DenseIndex(self.embedder)
        index.add(entries(memory, self.parts))
        return index

    def _search(
        self, memory: HeterogeneousMemory, queries: Sequence[str], k: int, low: float | None, parts: Sequence[str]
    ) -> list[list[Hit]]:
        index = self.index(memory)
        assert isinstance(index, DenseIndex)
        rows = index.search(
            queries, k, 0.0 if low is None else low, lambda e: bool(e.tags["shown"]) and e.tags["part"] in parts
        )
        return [whole(memory, hits) for hits in rows]

    def _ask(self, name: str) -> Any:
        return partial(self.attempt, getattr(self, name))

    @property
    def _chain(self) -> Chain:
        assert self.embedder is not None
        update = self._ask("update_background") if self.use_background else None
        refine = self._ask("refine") if self._reads_dialogues and self._reads_logs else None
        return Chain(update, refine, self.embedder, self.situations, self.use_situations)

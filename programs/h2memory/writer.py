"""How H2Memory writes: logs become situations and background, dialogues become topics, and topics get principles.

    Logs      ── link ── describe ──> situations (M_G) ── update ──> background, four aspects (M_B)
    Session   ── outline ── refine by situations and background ──> topics (M_T)
    settle    ── cluster ── abstract, or join ── adjust ──> types of need with principles (M_P)

Source: Mem-PAL, "Memory Construction".
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...memory.index import Embedder
from ...records import Behavior, Item, Logs, Profile
from ...signatures.h2memory import DescribeSituation, LinkLogs, OutlineTopics, RefineNeed, UpdateBackground
from ...signatures.h2memory_principles import (
    AbstractNeeds,
    AbstractPreferences,
    AdjustNeedType,
    AdjustPrinciple,
)
from ..method import Writer
from ..predictor import predictor
from .chain import Chain
from .dialogue import PreparedTopics, topics_of
from .logs import PreparedLogs, situations_of
from .memory import HeterogeneousMemory
from .principles import Principles


class UserWriter(Writer):
    """Writes all four parts of the memory, or what the switches leave of them.

    Args:
        embedder: Vectors of situations and needs.
        use_situations: Show situations where a need is refined.
        use_background: Write the background.
        use_principles: Make principles.
        dialogues: Whether dialogues are read.
        clusters: Most clusters of needs.
        situations: Situations shown where a need is refined.
        sample_per_cluster: Most topics of a cluster that a prompt is shown.
        window: Logs per call of the prompt that links them.
        seed: Of clusters and samples.
        clustered: False: a principle for every topic.
        online_month: Whether dialogues of the month in which the history ends join one by one.
    """

    Memory = HeterogeneousMemory

    def __init__(
        self,
        embedder: Embedder,
        use_situations: bool,
        use_background: bool,
        use_principles: bool,
        dialogues: bool,
        clusters: int,
        situations: int,
        sample_per_cluster: int,
        window: int,
        seed: int,
        clustered: bool,
        online_month: bool,
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.use_situations = use_situations
        self.use_background = use_background
        self.use_principles = use_principles
        self.clusters = clusters
        self.situations = situations
        self.sample_per_cluster = sample_per_cluster
        self.window = window
        self.seed = seed
        self.clustered = clustered
        self.online_month = online_month
        self._reads_logs = use_situations or use_background
        self._reads_dialogues = dialogues
        self._make_predictors()

    def _make_predictors(self) -> None:
        """Only what the settings use, so that an optimizer does not tune unused prompts."""
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

    def prepare(self, item: Item) -> PreparedLogs | PreparedTopics | None:
        """What is extracted from one item: the situations of logs, the topics of a dialogue."""
        if isinstance(item, Profile):
            return None
        if isinstance(item, Logs | Behavior):
            if not self._reads_logs:
                return PreparedLogs()
            return situations_of(item, self.window, self._ask("link"), self._ask("describe"))
        return topics_of(item, self._ask("outline")) if self._reads_dialogues else PreparedTopics()

    def write(self, memory: HeterogeneousMemory, item: Item, prepared: Any = None) -> HeterogeneousMemory:
        """Writes logs, which may change the background and refine pending needs, or a dialogue's topics."""
        found = self.prepare(item) if prepared is None else prepared
        memory = memory.at(item)
        if found is None:
            return memory
        if isinstance(found, PreparedLogs):
            memory = self._chain.with_logs(memory, item.id, found).left(item, found.lost)
        else:
            memory = memory.with_topics(item.id, found.topics)
            memory = memory.counted(spans_repaired=found.repaired, outlines_empty=found.empty)
            memory = memory.left(item) if found.lost else memory
        # All items are prepared at once: the deepest of them counts.
        return memory.deeper(prepare=max(0, found.levels - memory.levels.get("prepare", 0)))

    def settle(self, memory: HeterogeneousMemory) -> HeterogeneousMemory:
        """Refines the needs that wait, and gives every topic its principle."""
        memory = self._chain.settled(memory)
        if not self.use_principles:
            return memory

        def ask(name: str, **inputs: Any) -> Any:
            return self.attempt(getattr(self, name), **inputs)

        return Principles(
            ask,
            self.embedder,
            self.clusters,
            self.sample_per_cluster,
            self.seed,
            self.clustered,
            self.online_month,
        ).of(memory)

    def _ask(self, name: str) -> Any:
        return partial(self.attempt, getattr(self, name))

    @property
    def _chain(self) -> Chain:
        update = self._ask("update_background") if self.use_background else None
        refine = self._ask("refine") if self._reads_dialogues and self._reads_logs else None
        return Chain(update, refine, self.embedder, self.situations, self.use_situations)

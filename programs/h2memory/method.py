"""H2Memory: what a user lives through from device logs, what they need and like from dialogues, on two levels each.

    Logs      ── link ── describe ──> situations (M_G) ── update ──> background, four aspects (M_B)
    Session   ── outline ── refine by situations and background ──> topics (M_T)
    finalize  ── cluster ── abstract, or join ── adjust ──> types of need with principles (M_P)
    query     ──> 3 situations of the current session, their backgrounds, 3 topics, their principles

Critical path, in LM calls that must follow one another: 2 for all items together (link, describe; outlines beside
them), 1 per item of logs to update the background, 1 to refine the last dialogue if no logs follow it, 2 for all
clusters, and 2 per dialogue that joins later. The needs of a dialogue are refined while the background takes in the
logs that come after it, so that only the background is a chain. A question takes 1 call, or 2 if its query is a
dialogue, which is summed up first.

Logs are those items of kind `Logs` (or `Behavior`) that come before the `Session` they belong to; the current session's
are the last ones of the history. Profiles are passed over: the paper's assistant does not see them.

Limits: for every question about a longer history the principles are made anew, since finalizing makes them; a
stored memory goes on from its finalized form. Optimizers see for a question the prompts that link, describe
and outline; the others name no turn.

Source: Huang et al., "Mem-PAL: Towards Memory-based Personalized Dialogue Assistants for Long-term User-Agent
Interaction".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import dspy

from ...memory.edits import EntryEdits
from ...memory.entry import Entry, hit_as_entry
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...records import Behavior, Context, Hit, Item, Logs, Profile, Query
from ...signatures.chinese import in_language
from ...signatures.h2memory import (
    AbstractNeeds,
    AbstractPreferences,
    AdjustNeedType,
    AdjustPrinciple,
    DescribeSituation,
    LinkLogs,
    OutlineTopics,
    RefineNeed,
    SummarizeNeed,
    UpdateBackground,
)
from ...text import one_line
from .._embedders import offline_embedder
from ..method import Method
from ..reader import EntryReader
from ..writer import ExtractionFailed, Update, Writer
from ..predictor import Predictor, predictor
from ..threads import gather
from .extraction import refined, situations_of, topics_of, updated
from .memory import HeterogeneousMemory, Situation
from .principles import H2WriterSettings, Principles
from .recall import RecallSettings, entries_of, recalled, searched, whole, with_edits


class UserWriterSettings(H2WriterSettings):
    """What decides the memory: how it is written, and whether dialogues are read at all."""

    dialogues: bool


class H2MemorySettings(RecallSettings):
    """What can be set of `H2Memory`."""

    deprecated: ClassVar[Mapping[str, Any]] = {"need_summary": True}
    at_least_one_of = ("use_situations", "use_background", "use_topics", "use_principles")

    def for_writer(self) -> UserWriterSettings:
        """Return the settings that decide what is written."""
        shared = self.restrict_to(H2WriterSettings)
        dialogues = self.use_topics or self.use_principles
        return UserWriterSettings(**shared.model_dump(), dialogues=dialogues)


class UserWriter(Writer[HeterogeneousMemory]):
    """Writes all four parts of the memory, or what the switches leave of them.

    What a dialogue's needs are refined with is there when it comes, but nothing needs the result before the memory
    is finalized. So they wait, and are refined at the same time as the background takes in the logs that come next.
    """

    Memory = HeterogeneousMemory

    settings: UserWriterSettings

    def __init__(self, settings: UserWriterSettings, embedder: Embedder) -> None:
        super().__init__(settings)
        self.embedder = embedder
        self._reads_logs = settings.use_situations or settings.use_background
        self._reads_dialogues = settings.dialogues

        def prompt(signature: type[dspy.Signature]) -> Predictor:
            return predictor(in_language(signature, settings.language))

        # Only what the settings use, so that an optimizer does not tune unused prompts.
        if self._reads_logs:
            self.link = prompt(LinkLogs)
            self.describe = prompt(DescribeSituation)
        if settings.use_background:
            self.update_background = prompt(UpdateBackground)
        if settings.dialogues:
            self.outline = prompt(OutlineTopics)
        if settings.dialogues and self._reads_logs:
            self.refine = prompt(RefineNeed)
        if settings.use_principles:
            self.abstract_need = prompt(AbstractNeeds)
            self.abstract_preference = prompt(AbstractPreferences)
        if settings.use_principles and settings.clustered:
            self.adjust_need = prompt(AdjustNeedType)
            self.adjust_preference = prompt(AdjustPrinciple)

    def extract(self, item: Item) -> Any:
        """What is extracted from one item: situations of logs and the logs without one, topics of a dialogue."""
        if isinstance(item, Profile):
            return None
        if isinstance(item, Logs | Behavior):
            return situations_of(item, self.settings.window, self.call_predictor) if self._reads_logs else ([], set())
        return topics_of(item, self.call_predictor) if self._reads_dialogues else []

    def update(self, memory: HeterogeneousMemory, item: Item, extraction: Any) -> Update[HeterogeneousMemory]:
        """Writes logs, which may change the background and refine pending needs, or a dialogue's topics."""
        memory = memory.at(item)
        if isinstance(item, Profile):
            return Update(memory)
        if isinstance(item, Logs | Behavior):
            situations, lost = extraction
            return Update(self._with_logs(memory, item.id, situations), (item.select_turns(lost),))
        if isinstance(extraction, ExtractionFailed):
            return Update(memory.with_topics(item.id, ()), (item,))
        return Update(memory.with_topics(item.id, extraction))

    def finalize(self, memory: HeterogeneousMemory) -> Update[HeterogeneousMemory]:
        """Refines the needs that wait, and gives every topic its principle."""
        memory = memory.with_needs(self._needs(memory)) if memory.waiting else memory
        if self.settings.use_principles:
            memory = Principles(self.call_predictor, self.embedder, self.settings).of(memory)
        return Update(memory)

    def _with_logs(
        self, memory: HeterogeneousMemory, batch: str, situations: Sequence[Situation]
    ) -> HeterogeneousMemory:
        after = memory.with_situations(batch, situations)
        new = after.situations[len(memory.situations) :]
        calls: list[Callable[[], Any]] = [partial(self._needs, memory)]
        if self.settings.use_background and new:
            calls.append(partial(updated, memory, new, self.call_predictor))
        needs, *updates = gather(calls)
        after = after.with_needs(needs)
        for texts in updates:
            after = after.with_background(texts, new)
        return after

    def _needs(self, memory: HeterogeneousMemory) -> dict[str, str]:
        waiting = [topic for topic in memory.topics if topic.id in memory.waiting]
        if not (waiting and self._reads_dialogues and self._reads_logs):
            return {}
        most, situated = self.settings.situations, self.settings.use_situations
        return refined(memory, waiting, self.call_predictor, self.embedder, most, situated)


class UserReader(EntryReader[HeterogeneousMemory]):
    """Recalls from all four parts, or what the switches leave of them."""

    settings: RecallSettings

    def __init__(self, settings: RecallSettings, embedder: Embedder) -> None:
        indexes = IndexCache(
            embedder,
            parts=lambda memory: searched(memory, settings),
            part_entries=lambda memory, part: entries_of(part, settings),
        )
        super().__init__(indexes=indexes, settings=settings)
        self.summarize_need = predictor(in_language(SummarizeNeed, settings.language))

    def search(
        self, memory: HeterogeneousMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """All parts that are shown: situations of all sessions, backgrounds, topics and principles, by cosine."""
        low = 0.0 if min_score is None else min_score
        rows = self.indexes.search(memory, queries, k, low, lambda entry: bool(entry.tags["shown"]))
        return [whole(memory, hits) for hits in rows]

    def entries(self, memory: HeterogeneousMemory) -> Sequence[Entry]:
        """All parts that are shown, with all that there is to them."""
        hits = [entry.hit() for entry in super().entries(memory) if entry.tags["shown"]]
        return list(map(hit_as_entry, whole(memory, hits)))

    def with_edits(self, memory: HeterogeneousMemory, edits: EntryEdits) -> HeterogeneousMemory:
        return with_edits(memory, edits)

    def recall(self, memory: HeterogeneousMemory, query: Query) -> Context:
        """The context of a query; empty, without a call, for an empty memory.

        A query that is a dialogue is summed up first; one about needs is shown no solutions and preferences.

        Returns:
            Hits of situations, backgrounds, topics and principles, in this order; `counts` has how many of each, the
            `tokens` of all, and the LM `calls`.
        """
        if not (memory.situations or memory.topics):
            return Context()
        calls, probe = 0, query.search_text
        if query.modality == "dialogue":
            calls, said = 1, self.try_call(self.summarize_need, dialogue_so_far=probe)
            probe = one_line(said and said.current_need) or probe
        found = recalled(memory, self.indexes, probe, self.settings, query.about or "solutions")
        return found.model_copy(update={"counts": {**found.counts, "calls": calls}})


class H2Memory(Method):
    """The method; its embedder compares situations, needs and queries."""

    Settings = H2MemorySettings
    embedder_use = "required"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "longmemeval.preference": {"use_situations": False, "use_background": False, "clustered": False}
    }
    """Mem-PAL, appendix C: dialogues without logs, and one principle for every outline."""

    def __init__(self, settings: H2MemorySettings | None = None, embedder: Embedder | None = None) -> None:
        settings = settings or H2MemorySettings()
        embedder = embedder or offline_embedder()
        writer = UserWriter(settings.for_writer(), embedder)
        super().__init__(writer, UserReader(settings, embedder), embedder, settings)

"""The writer of H2Memory (Mem-PAL, "Memory Construction"; appendix E numbers the steps).

    logs      ─> link (1-1) ─> describe (1-2) ─> situations (M_G) ─> update (3) ─> background (M_B)
    dialogue  ─> outline (2-1) ─> refine by situations and background (2-2) ─> topics (M_T)
    finalize  ─> cluster, abstract (4-1, 4-2); or join, adjust (4-3, 4-4) ─> principles (M_P)

`method` says which calls must follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

import dspy
from pydantic import Field

from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.index import Index
from ...memory.tuning_range import TuningRange
from ...records import Behavior, Item, Logs, Profile, latest
from ...signatures.chinese import PromptLanguage, in_language
from ...signatures.h2memory import (
    ASPECTS,
    AbstractNeeds,
    AbstractPreferences,
    AdjustNeedType,
    AdjustPrinciple,
    AspectSummary,
    DescribeSituation,
    LinkLogs,
    OutlineTopics,
    RefineNeed,
    UpdateBackground,
)
from ...text import one_line
from ..predictor import Predictor, predictor
from ..threads import gather
from ..writer import ExtractionFailed, Update, Writer
from .extraction import (
    DialogueExtraction,
    Extraction,
    LogExtraction,
    LogWindow,
    Subgraph,
    connected_subgraphs,
    log_windows,
    topics_from_outlines,
    valid_links,
)
from .memory import HeterogeneousMemory, Link, Situation, Topic, earliest
from .principles import PrincipleMaker, PrincipleSettings


class MemorySettings(PrincipleSettings):
    """How the memory is written, and which parts of it there are."""

    use_situations: bool = Field(
        default=True,
        description="whether situations are shown (M_G, Table 2); off: they still lead to a "
        "background",
    )
    use_background: bool = Field(
        default=True, description="whether the background is written and shown (M_B)"
    )
    use_principles: bool = Field(
        default=True, description="whether principles are made and shown (M_P)"
    )
    situations: Annotated[int, TuningRange(0, 10)] = Field(
        default=3,
        ge=0,
        description="situations recalled per query, and shown where a need is refined",
    )
    language: PromptLanguage = Field(
        default="English",
        description="language of the prompts; what they write is in the language of the texts",
    )
    window: Annotated[int, TuningRange(3, 30, log=True)] = Field(
        default=10,
        ge=1,
        description="logs that one call links; it also sees as many before them (appendix C)",
    )


class UserWriterSettings(MemorySettings):
    """What decides the memory: how it is written, and whether dialogues are read at all."""

    dialogues: bool


@dataclass(frozen=True)
class _NeedContext:
    """What may explain a need, as the prompt that refines it shows it."""

    background: str
    """A line for each aspect; "" if nothing is known."""
    recent_situations: str
    """A line for each situation; "" if there are none."""


class UserWriter(Writer[HeterogeneousMemory, Extraction]):
    """Write all four parts of the memory, or those that the settings leave.

    A need could be refined as soon as its dialogue comes. But nothing reads the refined need before
    the memory is finalized. So needs wait, and are refined while the background takes in the next
    logs.

    Args:
        settings: How the memory is written.
        embedder: Finds the situations near a need, and compares needs.
    """

    Memory = HeterogeneousMemory

    settings: UserWriterSettings

    def __init__(self, settings: UserWriterSettings, embedder: Embedder) -> None:
        super().__init__(settings)
        self.embedder = embedder
        self._reads_logs = settings.use_situations or settings.use_background
        self._reads_dialogues = settings.dialogues

        # Only what the settings use, so that an optimizer does not tune unused prompts.
        if self._reads_logs:
            self.link = self._make_predictor(LinkLogs)
            self.describe = self._make_predictor(DescribeSituation)
        if settings.use_background:
            self.update_background = self._make_predictor(UpdateBackground)
        if self._reads_dialogues:
            self.outline = self._make_predictor(OutlineTopics)
        if self._reads_dialogues and self._reads_logs:
            self.refine = self._make_predictor(RefineNeed)
        if settings.use_principles:
            self.abstract_need = self._make_predictor(AbstractNeeds)
            self.abstract_preference = self._make_predictor(AbstractPreferences)
        if settings.use_principles and settings.clustered:
            self.adjust_need = self._make_predictor(AdjustNeedType)
            self.adjust_preference = self._make_predictor(AdjustPrinciple)

    def _make_predictor(self, signature: type[dspy.Signature]) -> Predictor:
        """Return a predictor with a prompt in the language of the settings."""
        return predictor(in_language(signature, self.settings.language))

    def extract(self, item: Item) -> Extraction:
        """Read situations from logs or topics from a dialogue; None for a profile.

        Behaviour records are read as logs.
        """
        if isinstance(item, Profile):
            return None
        if isinstance(item, Logs | Behavior):
            return self._read_logs(item)
        return self._read_dialogue(item)

    def update(
        self, memory: HeterogeneousMemory, item: Item, extraction: Extraction
    ) -> Update[HeterogeneousMemory]:
        """Return the memory with the situations or topics that `extract` read from an item.

        Situations may also change the background. What could not be read is reported as failed.
        """
        memory = memory.with_time_of(item)
        if extraction is None:  # the item is a profile, which is passed over
            return Update(memory)

        if isinstance(extraction, LogExtraction):
            memory = self._add_logs(memory, item.id, extraction.situations)
            return Update(memory, _failed_logs(item, extraction))

        if isinstance(extraction, ExtractionFailed):
            # The memory must know of the dialogue even without its topics, since logs after a
            # dialogue begin the next session.
            memory = memory.with_failed_dialogue(item.id)
            return Update(memory, failed_items=(item,))
        return Update(memory.with_topics(item.id, extraction.topics))

    def update_with_part(
        self, memory: HeterogeneousMemory, part: Item
    ) -> Update[HeterogeneousMemory]:
        """Return the memory after another try to read a part of an item that failed before.

        Later items may be in the memory by now. So a part of old logs neither begins a session nor
        ends the one before, and a part of a dialogue belongs to the logs that came before it.
        """
        extraction = self.extract(part)
        if isinstance(extraction, LogExtraction):
            memory = self._add_part_of_logs(memory, part.id, extraction.situations)
            return Update(memory, _failed_logs(part, extraction))
        return self.update(memory, part, extraction)

    def finalize(self, memory: HeterogeneousMemory) -> Update[HeterogeneousMemory]:
        """Return the memory with all needs refined and, if switched on, a principle for each topic.

        Nothing is left to do for a memory that was finalized before.
        """
        if memory.waiting:
            memory = memory.with_needs(self._refine_needs(memory))
        if self.settings.use_principles:
            maker = PrincipleMaker(self, self.embedder, self.settings)
            memory = maker.assign_all(memory)
        return Update(memory)

    # M_G, the log graph: steps 1-1 and 1-2.

    def _read_logs(self, item: Item) -> LogExtraction:
        """Group the logs of an item by their links, and describe each group as a situation.

        If no description of a group can be read, its logs are returned as failed.
        """
        if not self._reads_logs:
            return LogExtraction()

        # Step 1-1: ask how logs are linked, in all windows at the same time.
        logs = item.spoken
        windows = log_windows(logs, self.settings.window)
        link_calls = [partial(self._link_logs, window, item.time) for window in windows]
        links: list[Link] = []
        for links_of_window in gather(link_calls):
            links.extend(links_of_window)

        # Step 1-2: describe all groups of linked logs at the same time.
        subgraphs = connected_subgraphs(logs, links)
        describe_calls = [
            partial(self._describe_subgraph, subgraph, item.time) for subgraph in subgraphs
        ]
        situations: list[Situation] = []
        failed_log_ids: set[str] = set()
        for subgraph, situation in zip(subgraphs, gather(describe_calls), strict=True):
            if situation is None:
                failed_log_ids.update(log.id for log in subgraph.logs)
            else:
                situations.append(situation)
        return LogExtraction(tuple(situations), frozenset(failed_log_ids))

    def _link_logs(self, window: LogWindow, time: datetime | None) -> list[Link]:
        """Ask how the logs of a window are linked to earlier logs (step 1-1).

        Args:
            window: The logs, and in `first` the position of the first log that is asked about. Logs
                before that position are only shown.
            time: The time that is shown for logs without one.

        Returns:
            The links, without those that lead to a later or an unknown log; none if no answer can
            be read.
        """
        prediction = self.try_call(
            self.link,
            device_logs="\n".join(log.line(time) for log in window.logs),
            first_log=window.logs[window.first].id,
            last_log=window.logs[-1].id,
        )
        if prediction is None:
            return []
        log_ids = [log.id for log in window.logs]
        return valid_links(log_ids, window.first, prediction.links or [])

    def _describe_subgraph(self, subgraph: Subgraph, time: datetime | None) -> Situation | None:
        """Ask which situation of the user's life a group of linked logs shows (step 1-2).

        Args:
            subgraph: The logs and their links.
            time: The time of logs without one.

        Returns:
            The situation, without an id; None if no answer can be read.
        """
        linked_logs = "\n".join(subgraph.lines(time))
        prediction = self.try_call(self.describe, linked_logs=linked_logs)
        if prediction is None or prediction.found_situation is None:
            return None
        text = one_line(prediction.found_situation.situation)
        if not text:
            return None

        times = [log.time or time for log in subgraph.logs]
        return Situation(
            text=text,
            aspects=tuple(prediction.found_situation.aspects),
            sources=tuple(log.id for log in subgraph.logs),
            links=subgraph.links,
            since=earliest(*times),
            time=latest(*times),
        )

    # T, the topic outlines: step 2-1.

    def _read_dialogue(self, item: Item) -> DialogueExtraction | ExtractionFailed:
        """Ask which needs a dialogue is about, with solutions and preferences (step 2-1).

        A dialogue has no topics if nobody speaks in it, or if the settings need no topics.
        """
        turns = item.spoken
        if not turns or not self._reads_dialogues:
            return DialogueExtraction()

        conversation = "\n".join(turn.line(item.time) for turn in turns)
        prediction = self.try_call(self.outline, conversation=conversation)
        if prediction is None:
            return ExtractionFailed()
        topics = topics_from_outlines(prediction.outlines or [], item)
        return DialogueExtraction(tuple(topics))

    # M_B, the background: step 3; and the refined needs, step 2-2.

    def _add_logs(
        self, memory: HeterogeneousMemory, batch: str, situations: Sequence[Situation]
    ) -> HeterogeneousMemory:
        """Return the memory with new situations, and with a background that takes them in.

        New logs also mean that the session before is over. So the needs of its dialogue are refined
        now, with what was known before these logs.

        Args:
            memory: The memory before the logs.
            batch: Id of the item of logs.
            situations: The situations that were read from it, without ids.
        """
        memory_after = memory.with_situations(batch, situations)
        new_situations = memory_after.situations[len(memory.situations) :]  # these have ids

        # The model is asked about `memory`, as it was before the logs. Its answers change
        # `memory_after`.
        changes_background = self.settings.use_background and bool(new_situations)
        if not changes_background:
            needs = self._refine_needs(memory)
            return memory_after.with_needs(needs)

        # Neither question needs the answer to the other, so both are asked at the same time.
        refine = partial(self._refine_needs, memory)
        summarize = partial(self._summarize_background, memory, new_situations)
        needs, sentences = gather([refine, summarize])
        return memory_after.with_needs(needs).with_background(sentences, new_situations)

    def _add_part_of_logs(
        self, memory: HeterogeneousMemory, batch: str, situations: Sequence[Situation]
    ) -> HeterogeneousMemory:
        """Return the memory with situations of old logs, and with a background that takes them in.

        Needs go on waiting: these logs do not end the session before, and may explain its needs.

        Args:
            memory: The memory before the situations.
            batch: Id of the item of logs, which the memory knows.
            situations: The situations that were read from a part of it, without ids.
        """
        memory_after = memory.with_situations_of_part(batch, situations)
        new_situations = memory_after.situations[len(memory.situations) :]  # these have ids
        if not self.settings.use_background or not new_situations:
            return memory_after

        sentences = self._summarize_background(memory, new_situations)
        return memory_after.with_background(sentences, new_situations)

    def _summarize_background(
        self, memory: HeterogeneousMemory, situations: Sequence[Situation]
    ) -> dict[str, str]:
        """Ask how new situations change what is known of the user's life (step 3).

        Returns:
            The new sentence for each aspect of life that changes, by aspect; none if no answer can
            be read.
        """
        since = earliest(*[situation.since for situation in situations])
        until = latest(*[situation.time for situation in situations])
        prediction = self.try_call(
            self.update_background,
            background_before="\n".join(_background_lines(memory)),
            span_before=_format_span(memory.since, memory.until),
            situations_since=[situation.text for situation in situations],
            span_since=_format_span(since, until),
        )
        if prediction is None:
            return {}

        summaries: Sequence[AspectSummary] = prediction.updating_content or []
        sentences: dict[str, str] = {}
        for summary in summaries:
            if summary.summary.strip():
                sentences[summary.aspect] = one_line(summary.summary)
        return sentences

    def _refine_needs(self, memory: HeterogeneousMemory) -> dict[str, str]:
        """Ask for full wordings of the needs that wait, from the logs that explain them (step 2-2).

        Returns:
            The refined needs by topic id. A topic is left out if no log explains its need, or if no
            answer can be read.
        """
        topics = memory.waiting_topics()
        if not topics or not self._reads_dialogues or not self._reads_logs:
            return {}

        near_situations = self._situations_near(memory, topics)
        topic_ids: list[str] = []
        calls: list[partial[str | None]] = []
        for topic in topics:
            context = self._context_of_need(memory, near_situations[topic.id])
            if context.background or context.recent_situations:
                topic_ids.append(topic.id)
                calls.append(partial(self._refine_need, topic.need, context))

        refined_needs: dict[str, str] = {}
        for topic_id, refined_need in zip(topic_ids, gather(calls), strict=True):
            if refined_need is not None:
                refined_needs[topic_id] = refined_need
        return refined_needs

    def _context_of_need(
        self, memory: HeterogeneousMemory, situations: Sequence[Situation]
    ) -> _NeedContext:
        """Return the texts that explain a need: situations, and the background behind them.

        Args:
            memory: Holds the background.
            situations: The situations nearest to the need.
        """
        background_lines: list[str] = []
        for aspect in memory.aspects_behind(situations):
            background_lines.append(f"{aspect}: {memory.background[aspect].text}")

        # If situations are switched off, they decide which background is shown, and no more.
        situation_lines: list[str] = []
        if self.settings.use_situations:
            situation_lines = [one_line(situation.text) for situation in situations]
        return _NeedContext("\n".join(background_lines), "\n".join(situation_lines))

    def _refine_need(self, need: str, context: _NeedContext) -> str | None:
        """Ask for a full wording of one need, which the dialogue may have stated too briefly.

        Args:
            need: The need as the dialogue stated it.
            context: What was known of the user's life, which may explain the need.

        Returns:
            The full wording; None if no answer can be read.
        """
        prediction = self.try_call(
            self.refine,
            overall_background=context.background,
            recent_situations=context.recent_situations,
            stated_need=need,
        )
        if prediction is None:
            return None
        return one_line(prediction.detailed_need)

    def _situations_near(
        self, memory: HeterogeneousMemory, topics: Sequence[Topic]
    ) -> dict[str, list[Situation]]:
        """Return, by topic id, the situations that are most similar to the need of each topic.

        Only situations from the logs right before the topic's dialogue are searched: they may
        explain what the user needs.
        """
        # `own` holds the ids of the logs before a topic's dialogue. Topics with the same logs share
        # one search index.
        topics_by_logs: dict[tuple[str, ...], list[Topic]] = {}
        for topic in topics:
            topics_by_logs.setdefault(topic.own, []).append(topic)

        near_situations: dict[str, list[Situation]] = {}
        for log_ids, topics_of_session in topics_by_logs.items():
            situations = memory.situations_of(log_ids)
            situations_by_id = {situation.id: situation for situation in situations}
            index = Index(self.embedder)
            index.add(Entry(id=situation.id, text=situation.text) for situation in situations)

            needs = [topic.need for topic in topics_of_session]
            hits_per_need = index.search(needs, self.settings.situations)
            for topic, hits in zip(topics_of_session, hits_per_need, strict=True):
                near_situations[topic.id] = [situations_by_id[hit.id] for hit in hits]
        return near_situations


def _failed_logs(item: Item, extraction: LogExtraction) -> tuple[Item, ...]:
    """Return the logs of an item that no answer could be read about, as an item; () if none."""
    if not extraction.failed_log_ids:
        return ()
    return (item.select_turns(extraction.failed_log_ids),)


def _background_lines(memory: HeterogeneousMemory) -> list[str]:
    """Return what is known of each aspect of life, a line each: "work: is a nurse".

    An aspect of which nothing is known gets a line too: "work:".
    """
    lines: list[str] = []
    for aspect in ASPECTS:
        background = memory.background.get(aspect)
        sentence = background.text if background else ""
        lines.append(f"{aspect}: {sentence}".rstrip())
    return lines


def _format_span(since: datetime | None, until: datetime | None) -> str:
    """Return a span as prompts show it: "2024-01-03 to 2024-02-03", or "unknown"."""
    if since is None or until is None:
        return "unknown"
    return f"{since:%Y-%m-%d} to {until:%Y-%m-%d}"

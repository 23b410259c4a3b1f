"""`logs+METHOD`: device logs beside the memory of any other method.

    write     logs are kept apart; everything else is written by METHOD
    question  what METHOD recalls, then what is shown of earlier logs, then all current logs

The current session is the one whose dialogue is about to begin. Its logs are all that came since
the last dialogue; they stay current after their dialogue, until there are newer ones. Of earlier
logs a query sees the nearest, a summary that a model keeps, or nothing (the setting `earlier`).

Paper: Mem-PAL, appendix C, which gives such logs to its baselines. It prints no prompt for their
summary: that is ours.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import Field, create_model

from ...memory.edits import EntryEdits
from ...memory.entry import Entry
from ...memory.memory import Memory, turn_entries
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.tuning_range import TuningRange
from ...records import Context, Hit, Item, Logs, Query, Session
from ...signatures.baselines import UpdateLogSummary
from .._fallback import MAX_FALLBACK_HITS, as_fallback
from ..method import Method, Policy
from ..predictor import predictor
from ..reader import ANY_COSINE, Reader
from ..settings import EntryCount, Settings
from ..writer import Update, Writer
from .recursive_summary import MAX_SUMMARY_LENGTH, SummaryMemory, keep_summary

EarlierLogs = Literal["search", "summary", "none"]
"""What a query sees of earlier logs: the nearest entries, one summary, or nothing."""

_EARLIER_BY_METHOD: dict[str, EarlierLogs] = {
    "no-memory": "none",
    "recursive-summary": "summary",
}
"""What Mem-PAL shows of earlier logs beside a baseline; beside all others, the nearest entries."""


class LoggedMemory(Memory[Entry]):
    """The memory of the inner method, and the logs beside it.

    The fields of this class are part of the key of stored memories.
    """

    inner: Memory[Any] = Memory()
    """The memory of the inner method; `logged_memory_class` names its class."""
    earlier: tuple[Entry, ...] = ()
    """Log entries of all sessions but the current one, in time order."""
    current: tuple[Entry, ...] = ()
    """Log entries of the current session, in time order."""
    answered: bool = False
    """Whether there was a dialogue after the current logs."""
    log_summary: SummaryMemory = SummaryMemory()
    """The summary of all logs; empty unless the setting `earlier` asks for one."""

    def entries(self) -> list[Entry]:
        return [*self.inner.entries(), *self.logs()]

    def logs(self) -> tuple[Entry, ...]:
        """Return all log entries, in time order."""
        return (*self.earlier, *self.current)

    def with_logs(self, logs: Logs, keep_earlier: bool) -> Self:
        """Return the memory with new logs among those of the current session.

        A session is some logs and the dialogue after them. So logs that follow a dialogue begin a
        new session, and the logs before them become earlier ones.

        Args:
            logs: The new logs.
            keep_earlier: Whether to keep the logs of earlier sessions; otherwise they are dropped.
        """
        new_entries = turn_entries(logs)
        # `answered` says that the current session already has its dialogue.
        begins_session = self.answered
        if not begins_session:
            return self.replace(current=(*self.current, *new_entries))

        earlier_entries = self.logs() if keep_earlier else ()
        return self.replace(earlier=earlier_entries, current=new_entries, answered=False)

    def with_inner(self, inner_update: Update[Any]) -> Update[Self]:
        """Return the update of the inner memory as an update of this one."""
        memory = self.replace(inner=inner_update.memory)
        return Update(memory, inner_update.failed_items)

    def continue_from(self, finalized: Any) -> Self:
        return self.replace(inner=self.inner.continue_from(finalized.inner))


@functools.cache
def logged_memory_class(inner_class: type[Memory[Any]]) -> type[LoggedMemory]:
    """Return the class of memories that hold logs beside a memory of another method.

    It is made once for each inner class, since memories of different classes are never equal.

    Args:
        inner_class: The class of the other method's memories.
    """
    empty_inner = inner_class()
    inner_field = Field(
        # A factory makes a new inner memory for every user. Users who share a default would share
        # its search index too, which would be rebuilt whenever another user is asked.
        default_factory=inner_class,
        # pydantic writes no default into the JSON schema if there is a factory. The schema is part
        # of the key of stored memories, so the default is added to it here.
        json_schema_extra={"default": empty_inner.model_dump(mode="json")},
    )
    # A subclass of `LoggedMemory` that differs in the type and default of its field `inner`.
    return create_model(
        f"Logged{inner_class.__name__}",
        __base__=LoggedMemory,
        inner=(inner_class, inner_field),
    )


class LoggedWriter(Writer[LoggedMemory]):
    """Keep logs apart, and leave everything else to the inner writer.

    Args:
        inner: Writes everything but logs.
        settings: How logs are kept.
    """

    longest_text = MAX_SUMMARY_LENGTH

    settings: LogWriterSettings

    def __init__(self, inner: Writer[Any], settings: LogWriterSettings) -> None:
        super().__init__(settings)
        self.inner = inner
        self.Memory = logged_memory_class(inner.Memory)
        self.recent_mode = inner.recent_mode
        self.shows_entries = inner.shows_entries
        if settings.earlier == "summary":
            self.update_logs = predictor(UpdateLogSummary)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the inner writer, whose name is part of the key of memories."""
        return getattr(self.inner, "embedder", None)

    @property
    def needs_extraction(self) -> bool:
        return self.inner.needs_extraction

    @property
    def needs_finalizing(self) -> bool:
        return self.inner.needs_finalizing

    def extract(self, item: Item) -> Any:
        """Return what the inner writer extracts; nothing from logs."""
        if isinstance(item, Logs):
            return None
        return self.inner.extract(item)

    def update(self, memory: LoggedMemory, item: Item, extraction: Any) -> Update[LoggedMemory]:
        """Return the memory with one more item: logs are kept apart, others go to the inner writer.

        Args:
            memory: The memory before the item.
            item: Logs, or an item for the inner writer.
            extraction: What the inner writer extracted from the item; None for logs.
        """
        if isinstance(item, Logs):
            # Log entries of earlier sessions are kept only if questions search them. With other
            # settings a question is shown a summary of these logs, or nothing.
            keep_earlier = self.settings.earlier == "search"
            memory_with_logs = memory.with_logs(item, keep_earlier)
            return self._summarize(memory_with_logs, item)

        if isinstance(item, Session):
            # The dialogue ends the session of the current logs: further logs begin a new one.
            memory = memory.replace(answered=True)
        inner_update = self.inner.update(memory.inner, item, extraction)
        return memory.with_inner(inner_update)

    def update_with_part(self, memory: LoggedMemory, part: Item) -> Update[LoggedMemory]:
        """Return the memory after another try to write a part of an item that failed before."""
        # Logs themselves are always kept. What failed was the call that puts them into the summary,
        # so only this call is made again.
        if isinstance(part, Logs):
            return self._summarize(memory, part)
        return memory.with_inner(self.inner.update_with_part(memory.inner, part))

    def finalize(self, memory: LoggedMemory) -> Update[LoggedMemory]:
        return memory.with_inner(self.inner.finalize(memory.inner))

    def _summarize(self, memory: LoggedMemory, logs: Logs) -> Update[LoggedMemory]:
        """Return the memory with new logs in the summary of logs, if the settings ask for one.

        Otherwise the memory stays as it is, and the model is not asked.
        """
        # Without a turn that has a text or a caption, there is nothing to summarize.
        if self.settings.earlier != "summary" or not logs.spoken:
            return Update(memory)

        summary_update = self._update_summary(memory.log_summary, logs)
        new_memory = memory.replace(log_summary=summary_update.memory)
        return Update(new_memory, summary_update.failed_items)

    def _update_summary(self, old_summary: SummaryMemory, logs: Logs) -> Update[SummaryMemory]:
        """Ask the model to rewrite the summary of all earlier logs so that it covers new logs too.

        If the model's answer is empty or cannot be read, the old summary stays.
        """
        max_words = self.settings.max_words
        prediction = self.try_call(
            self.update_logs,
            logs_known_before=old_summary.summary,
            new_logs="\n".join(turn.line(logs.time) for turn in logs.spoken),
            max_words=max_words,
        )
        if prediction is None:
            # The answer cannot be read, so the logs will be tried again.
            return Update(old_summary, failed_items=(logs,))

        # The model may leave the field empty; then it is None.
        summary = (prediction.log_summary or "").strip()
        if not summary:
            # An empty answer counts as a failure too, unless the old summary is empty as well.
            return keep_summary(old_summary, logs, "update_logs")
        return Update(old_summary.with_summary(summary, logs, max_words))


class LoggedReader(Reader[LoggedMemory]):
    """Recall what the inner reader recalls, and logs after it.

    Args:
        inner: Reads the memory of the inner method.
        settings: How logs are recalled.
        embedder: Searches logs as the inner method searches; None searches them by words.
    """

    def __init__(
        self, inner: Reader[Any], settings: LogReaderSettings, embedder: Embedder | None
    ) -> None:
        super().__init__(settings)
        self.inner = inner
        self.k = settings.k
        self.hybrid = inner.hybrid
        # A minimum is a cosine, and a hit by words may have any cosine.
        self.min_score = ANY_COSINE if inner.hybrid else 0.0
        self.indexes = IndexCache(embedder, hybrid=inner.hybrid, parts=LoggedMemory.logs)

    def search(
        self,
        memory: LoggedMemory,
        queries: Sequence[str],
        k: int = 10,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Return, for each query, the `k` best hits in the inner memory and the logs, best first.

        Both are searched, and their hits are ranked together by score. The ranking means most if
        the inner method computes scores as the search of logs does.

        Args:
            memory: The inner memory and the logs.
            queries: The texts to search for.
            k: Most hits per query.
            min_score: The lowest score of a hit. None stands for the default of each search.
        """
        # The inner reader fills in a default of its own where `min_score` is None.
        inner_results = self.inner.search(memory.inner, queries, k, min_score)
        if not memory.logs():
            return inner_results

        # The index of the logs has no default, so the default of this reader is filled in here.
        lowest_log_score = self.min_score if min_score is None else min_score
        log_results = self.indexes.search(memory, queries, k, lowest_log_score)

        results: list[list[Hit]] = []
        for inner_hits, log_hits in zip(inner_results, log_results, strict=True):
            hits = sorted([*inner_hits, *log_hits], key=_score, reverse=True)
            results.append(hits[:k])
        return results

    def entries(self, memory: LoggedMemory) -> Sequence[Entry]:
        return [*self.inner.entries(memory.inner), *memory.logs()]

    def with_edits(self, memory: LoggedMemory, edits: EntryEdits) -> LoggedMemory:
        """Return the memory as its user sees it, with entries changed or deleted.

        A user may edit logs, the sentences of their summary, and entries of the inner memory.
        """
        # This changes the log entries.
        edited_memory = super().with_edits(memory, edits)
        # The reader of the inner method knows how edits change the inner memory.
        inner = self.inner.with_edits(memory.inner, edits)
        sentences = edits.amended_entries(memory.log_summary.sentences)
        log_summary = memory.log_summary.replace(sentences=sentences)
        return edited_memory.replace(inner=inner, log_summary=log_summary)

    def recall(self, memory: LoggedMemory, query: Query) -> Context:
        """Return what the inner reader recalls, and after it the logs.

        Logs are shown as their summary, if one is kept, then the logs of earlier sessions that are
        nearest to the query, and then all logs of the current session.
        """
        context = self.inner.recall(memory.inner, query)
        inner_hits = context.hits
        if not inner_hits:
            inner_hits = self._inner_fallback(memory, query)

        hits = (
            *inner_hits,
            *memory.log_summary.hits("log_summary"),
            *self._nearest_earlier_logs(memory, query),
            *_current_logs(memory, query),
        )
        return context.model_copy(update={"hits": hits})

    def _inner_fallback(self, memory: LoggedMemory, query: Query) -> tuple[Hit, ...]:
        """Return a few entries of the inner memory, to show when the inner reader recalls nothing.

        Without logs, `Method.recall` would add such entries to an empty result. With logs the
        result is not empty, so the entries are added here.
        """
        # The inner reader chooses the entries. Turns that the task shows anyway are left out.
        shown_ids = query.shown_turn_ids
        candidates = self.inner.fallback(memory.inner, query)
        new_hits = (hit for hit in candidates if hit.id not in shown_ids)

        # Readers may yield many entries, so only the first few are taken. `as_fallback` marks them
        # as shown although no search returned them.
        first_hits = islice(new_hits, MAX_FALLBACK_HITS)
        return as_fallback(first_hits)

    def _nearest_earlier_logs(self, memory: LoggedMemory, query: Query) -> list[Hit]:
        """Return the logs of earlier sessions that are nearest to a query, best first."""
        if not memory.earlier:
            return []

        # The indexes hold the logs of the current session too, which are shown in any case. So the
        # search is restricted to logs of earlier sessions.
        earlier_ids = {entry.id for entry in memory.earlier}
        hits_per_query = self.indexes.search(
            memory,
            [query.search_text],
            self.k,
            self.min_score,
            where=lambda entry: entry.id in earlier_ids,
        )
        return hits_per_query[0]


def _current_logs(memory: LoggedMemory, query: Query) -> list[Hit]:
    """Return all logs of the current session, without those that the task shows in any case."""
    shown_ids = query.shown_turn_ids
    return [entry.hit() for entry in memory.current if entry.id not in shown_ids]


def _score(hit: Hit) -> float:
    return hit.score


class LogReaderSettings(Settings):
    """How logs are recalled."""

    k: EntryCount = Field(
        default=3,
        description="log entries of earlier sessions per query; 3 is the number of the paper "
        "Mem-PAL",
    )


class LogWriterSettings(Settings):
    """How logs are kept."""

    earlier: EarlierLogs = Field(
        default="search",
        description="what is shown of earlier logs: the nearest, a summary that a model keeps, or "
        "nothing",
    )
    max_words: Annotated[int, TuningRange(50, 1_000, log=True)] = Field(
        default=300,
        ge=1,
        description="most words of a summary of the logs",
    )


class LogSettings(LogWriterSettings, LogReaderSettings):
    """What can be set of `logs+METHOD`."""


class WithLogs(Policy):
    """Keep device logs beside the memory of another method, and recall both."""

    Settings = LogSettings

    def __init__(self, inner: Method, settings: LogSettings | None = None) -> None:
        settings = settings or LogSettings()
        reader = LoggedReader(
            inner.reader,
            settings.restrict_to(LogReaderSettings),
            inner.embedder,
        )
        writer = LoggedWriter(inner.writer, settings.restrict_to(LogWriterSettings))
        super().__init__(inner, reader, writer, settings)

    @classmethod
    def preset(cls, benchmark: str, beneath: str = "") -> dict[str, Any]:
        """Return the setting `earlier` that Mem-PAL uses beside a baseline; {} for other methods.

        Args:
            benchmark: Not used: the setting is the same for every benchmark.
            beneath: The name of the inner method.
        """
        if beneath not in _EARLIER_BY_METHOD:
            return {}
        return {"earlier": _EARLIER_BY_METHOD[beneath]}

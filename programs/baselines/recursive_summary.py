"""Recursive summary: one text per user, rewritten by the model after every session (Wang et al. 2023).

    summary ── + session ── update ──> summary ── + next session ── update ──> ...

The memory never grows, and every answer costs the same few hundred tokens. What it loses is gone: a fact that one
update leaves out cannot be recalled later.

Source: "Recursively summarizing enables long-term dialogue memory in large language models" (arXiv:2308.15022). The
paper hands the summary to a model that goes on chatting; here it is the context of whatever task is asked.

Example:
    >>> program = build("recursive-summary", max_words=150)

Honest limits: models that ignore the word limit have their last sentences cut (`dropped` counts the words). Provenance
is coarse: a sentence is credited to the session after which it was first written in these words, so one that was merely
reworded counts for the later session, and the whole summary rests on all sessions it has taken in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict

from ...memory.device_logs import LogMemory
from ...memory.index import Entry, Index
from ...memory.sparse import SparseIndex
from ...records import Context, Failure, Hit, Item, Turn, format_time
from ...signatures.baselines import UpdateLogSummary, UpdateSummary
from ..method import Method, record_failure
from ..predictor import predictor
from .logs import apart, current_hits, seen

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


class Sentence(BaseModel):
    """One sentence of the summary."""

    model_config = ConfigDict(frozen=True)

    text: str
    sources: tuple[str, ...]
    """Turn ids of the session after which it was first written in these words."""


class Version(BaseModel):
    """One update that was accepted."""

    model_config = ConfigDict(frozen=True)

    sources: tuple[str, ...]
    """Turn ids of the session that it took in."""


class SummaryMemory(BaseModel):
    """The summary of all sessions so far."""

    model_config = ConfigDict(frozen=True)

    sentences: tuple[Sentence, ...] = ()
    versions: tuple[Version, ...] = ()
    """Oldest first; a session whose update failed has none."""
    sessions: int = 0
    """Sessions seen, with those whose update failed."""
    dropped: int = 0
    """Words that were cut off because an update was over the limit."""
    log_summary: SummaryMemory | None = None
    """The summary of all logs, where they are kept apart from the dialogues."""
    logs: LogMemory = LogMemory()
    """Those of the current session, where they are kept apart."""

    @property
    def summary(self) -> str:
        """The whole text."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def sources(self) -> tuple[str, ...]:
        """Turn ids of all sessions taken in, newest session first."""
        return tuple(dict.fromkeys(id for version in reversed(self.versions) for id in version.sources))

    def updated(self, text: str, sources: tuple[str, ...], max_words: int) -> SummaryMemory:
        """The memory after an update that took one more session in."""
        known = {sentence.text: sentence for sentence in self.sentences}
        kept, cut = _within(text, max_words)
        changed = {
            "sentences": tuple(known.get(part) or Sentence(text=part, sources=sources) for part in kept),
            "versions": (*self.versions, Version(sources=sources)),
            "sessions": self.sessions + 1,
            "dropped": self.dropped + cut,
        }
        return self.model_copy(update=changed)

    def unchanged(self) -> SummaryMemory:
        """The memory after a session that added nothing."""
        return self.model_copy(update={"sessions": self.sessions + 1})


class RecursiveSummary(Method):
    """Keeps a summary, rewritten session by session.

    Critical path: one update per session of the whole history, in order, and one answer. An update that stays
    unparseable, or that is empty where there was a summary, leaves the old summary and counts as a failed write.

    Args:
        max_words: Most words of the summary.
        logs: Whether logs are kept apart from the dialogues: then they get a summary of their own, under the same
            limit, and those of the current session are recalled as they are (Mem-PAL, appendix C).
    """

    Memory = SummaryMemory
    writing = ("update", "update_logs")

    def __init__(self, max_words: int = 300, logs: bool = False) -> None:
        super().__init__()
        self.max_words = max_words
        self.logs = logs
        self.update = predictor(UpdateSummary)
        if logs:
            self.update_logs = predictor(UpdateLogSummary)

    def writers(self) -> dict[str, dspy.Predict]:
        """The writing predictors that the settings use, by attribute name."""
        return {name: getattr(self, name) for name in self.writing if hasattr(self, name)}

    def write(self, memory: SummaryMemory, item: Item, prepared: Any = None) -> SummaryMemory:
        memory = _latest(seen(memory, item, self.logs))
        turns = [turn for turn in item.turns if turn.content.strip()]
        if apart(item, self.logs):
            before = memory.log_summary or SummaryMemory()
            after = self._updated("update_logs", before, item, turns, self._read_logs) if turns else before.unchanged()
            return memory.model_copy(update={"log_summary": after})
        return self._updated("update", memory, item, turns, self._read_dialogue) if turns else memory.unchanged()

    def _updated(
        self,
        name: str,
        memory: SummaryMemory,
        item: Item,
        turns: list[Turn],
        read: Callable[..., dspy.Prediction | None],
    ) -> SummaryMemory:
        """A summary that takes in one more item; as it was where the update fails."""
        found = read(memory, item, turns)
        text = "" if found is None else str(found["summary" if name == "update" else "log_summary"] or "").strip()
        if found is not None and memory.sentences and not text:
            message = f"the summary after session {item.id} is empty; the one before it was kept"
            record_failure(Failure(kind="parse", where=name, message=message))
        if not text:
            return memory.unchanged()
        return memory.updated(text, tuple(turn.id for turn in turns), self.max_words)

    def _read_dialogue(self, memory: SummaryMemory, item: Item, turns: list[Turn]) -> dspy.Prediction | None:
        return self.attempt(
            self.update,
            known_before=memory.summary,
            session_date=format_time(item.time) if item.time else "unknown",
            dialogue="\n".join(turn.line() for turn in turns),
            max_words=self.max_words,
        )

    def _read_logs(self, memory: SummaryMemory, item: Item, turns: list[Turn]) -> dspy.Prediction | None:
        return self.attempt(
            self.update_logs,
            logs_known_before=memory.summary,
            new_logs="\n".join(turn.line(item.time) for turn in turns),
            max_words=self.max_words,
        )

    def search(
        self, memory: SummaryMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def recall(self, memory: SummaryMemory, query: str, **hints: Any) -> Context:
        """The whole summary as one hit, whatever the query is; with `logs`, theirs and the current ones after it."""
        parts = {"summary": memory, "log_summary": memory.log_summary}
        hits = [
            Hit(id=id, text=part.summary, score=1.0, sources=part.sources)
            for id, part in parts.items()
            if part is not None and part.sentences
        ]
        return Context(hits=(*hits, *current_hits(memory.logs, hints.get("recent") or ())))

    def build_index(self, memory: SummaryMemory) -> Index:
        index = SparseIndex()
        for letter, part in (("s", memory), ("l", memory.log_summary or SummaryMemory())):
            index.add(
                Entry(id=f"{letter}{n}", text=sentence.text, sources=sentence.sources)
                for n, sentence in enumerate(part.sentences, 1)
            )
        return index


def _latest(memory: SummaryMemory) -> SummaryMemory:
    """The memory without logs of earlier sessions: their summary stands for them."""
    if not memory.logs.earlier:
        return memory
    return memory.model_copy(update={"logs": memory.logs.model_copy(update={"earlier": ()})})


def _within(text: str, max_words: int) -> tuple[list[str], int]:
    """The first sentences that fit, each once, and how many words were cut; a first one that is too long is cut."""
    sentences = dict.fromkeys(" ".join(part.split()) for part in _SENTENCE_END.split(text) if part.strip())
    kept: list[str] = []
    room = max_words
    for sentence in sentences:
        words = sentence.split()
        if len(words) > room:
            if not kept:
                kept.append(" ".join(words[:room]))
            break
        kept.append(sentence)
        room -= len(words)
    total = sum(len(sentence.split()) for sentence in sentences)
    return kept, total - sum(len(sentence.split()) for sentence in kept)

"""Recursive summary: one text per user, rewritten by the model after every session (Wang et al. 2023).

    summary ── + session ── update ──> summary ── + next session ── update ──> ...

The memory never grows, and every answer costs the same few hundred tokens. What it drops is lost: a fact that one
update leaves out cannot be recalled later.

Source: "Recursively summarizing enables long-term dialogue memory in large language models" (arXiv:2308.15022). The
paper hands the summary to a model that continues the chat; here it is the context of any task.

Limits: models that ignore the word limit have their last sentences cut (`dropped` counts the words). Provenance
is coarse: a sentence is credited to the session after which it was first written in these words, so one that was merely
reworded counts for the later session, and the whole summary rests on all sessions written so far.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...memory.amending import Amend
from ...memory.index import Entry
from ...memory.memory import Memory
from ...records import Context, Failure, Hit, Item, Query, format_time
from ...signatures.baselines import UpdateSummary
from ..method import EntryReader, Method, Writer
from ..predictor import predictor
from ..recording import record_failure

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


class SummaryMemory(Memory):
    """The summary of all sessions so far."""

    sentences: tuple[Sentence, ...] = ()
    versions: tuple[Version, ...] = ()
    """Oldest first; a session whose update failed has none."""
    sessions: int = 0
    """Sessions seen, with those whose update failed."""
    dropped: int = 0
    """Words that were cut off because an update was over the limit."""

    @property
    def summary(self) -> str:
        """The whole text."""
        return " ".join(sentence.text for sentence in self.sentences if sentence.text)

    @property
    def sources(self) -> tuple[str, ...]:
        """Turn ids of all sessions written, newest session first."""
        return tuple(dict.fromkeys(id for version in reversed(self.versions) for id in version.sources))

    def hits(self, id: str) -> tuple[Hit, ...]:
        """The whole summary as one hit; none where there is no summary yet."""
        whole = Hit(id=id, text=self.summary, kind="summary", score=1.0, sources=self.sources)
        return (whole,) if self.summary else ()

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

    def entries(self) -> list[Entry]:
        return [
            Entry(id=f"s{n}", text=sentence.text, kind="sentence", sources=sentence.sources)
            for n, sentence in enumerate(self.sentences, 1)
            if sentence.text
        ]

    def amended(self, amend: Amend) -> SummaryMemory:
        """The summary with what is left of its sentences; one that is gone keeps its place, for others are named by it.

        Args:
            amend: Says of a sentence what is left of it.
        """
        left = {entry.id: entry.text for entry in amend.entries(self.entries())}
        texts = [left.get(f"s{n}", "") for n in range(1, len(self.sentences) + 1)]
        kept = (one.model_copy(update={"text": text}) for one, text in zip(self.sentences, texts, strict=True))
        return self.model_copy(update={"sentences": tuple(kept)})


def updated(memory: SummaryMemory, found: Any, field: str, where: str, item: Item, max_words: int) -> SummaryMemory:
    """The memory after an update, unchanged if the update failed.

    Args:
        memory: The summary so far.
        found: What the model said; None where that could not be read.
        field: The output field with the new summary.
        where: The predictor that was asked.
        item: What the update took in.
        max_words: Most words that are kept.
    """
    text = "" if found is None else str(found[field] or "").strip()
    if found is not None and memory.sentences and not text:
        message = f"the {field} after session {item.id} is empty; the one before it was kept"
        record_failure(Failure(kind="parse", where=where, message=message))
    if not text:
        return memory.unchanged() if found is not None and not memory.sentences else memory.unchanged().left(item)
    turns = tuple(turn.id for turn in item.turns if turn.content.strip())
    return memory.updated(text, turns, max_words)


class SummaryWriter(Writer):
    """Rewrites the summary after every session.

    Args:
        max_words: Most words of the summary.
    """

    Memory = SummaryMemory
    longest_text = 40_000

    def __init__(self, max_words: int) -> None:
        super().__init__()
        self.max_words = max_words
        self.update = predictor(UpdateSummary)

    def write(self, memory: SummaryMemory, item: Item, prepared: Any = None) -> SummaryMemory:
        turns = [turn for turn in item.turns if turn.content.strip()]
        if not turns:
            return memory.unchanged()
        found = self.attempt(
            self.update,
            known_before=memory.summary,
            session_date=format_time(item.time) if item.time else "unknown",
            dialogue="\n".join(turn.line() for turn in turns),
            max_words=self.max_words,
        )
        return updated(memory, found, "summary", "update", item, self.max_words)

    def write_piece(self, memory: SummaryMemory, piece: Item) -> SummaryMemory:
        """Takes a piece in; its session was counted before."""
        return super().write_piece(memory, piece).model_copy(update={"sessions": memory.sessions})


class SummaryReader(EntryReader):
    """Recalls the whole summary; `search` finds its sentences."""

    def amended(self, memory: SummaryMemory, amend: Amend) -> SummaryMemory:
        return memory.amended(amend)

    def recall(self, memory: SummaryMemory, query: Query) -> Context:
        return Context(hits=memory.hits("summary"))


class RecursiveSummary(Method):
    """Keeps a summary, rewritten session by session.

    Critical path: one update per session of the whole history, in order, and one answer. An update that stays
    unparseable, or that is empty where there was a summary, leaves the old summary and counts as a failed write.

    Args:
        max_words: Most words of the summary.
    """

    def __init__(self, max_words: int = 300) -> None:
        super().__init__(SummaryWriter(max_words), SummaryReader())


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

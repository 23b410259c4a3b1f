"""MemoryBank: turns and digests that fade unless they are recalled, an account of events, and a portrait of the user.

    dialogue ── digest, personality ──> pieces, notes        (one call each, for all dialogues at the same time)
    dialogue ── what its user says, as queries ──> older pieces are recalled: strength + 1, time anew
    settle   ── merge ──> the account of all events, the portrait of the user
    query    ── cosine, of what is not forgotten ──> the k nearest pieces, the account, the portrait

Source: Zhong et al., "MemoryBank: Enhancing Large Language Models with Long-Term Memory" (AAAI 2024), as Mem-PAL
compares with it (Table 2 and 4). The forgetting curve is in `bank`.

Where this differs from the released code: recalling a query leaves the memory as it is, as in every method here;
strength grows by the recalls that the assistant would have made while the dialogues took place, one per utterance of
the user. What is forgotten is left out of every search and stays stored. The released formula `-t / 5*S` makes strong
pieces fade faster; here it is -t / (5 S). Lots are drawn once per piece, and not at every load. A turn is a piece, not
a turn with its reply; digests are per session instead of per day, and fade by the same rule.

Critical path: one call for all dialogues together, one for both accounts, and the answer.

Example:
    >>> program = build("memory-bank", embedder=embedder("openai/text-embedding-3-small"), forgetting=False)

Honest limits: with the default of five days a piece that was never recalled is gone after a month with probability
.998; of a long history little but the two accounts remains. They are made anew from all digests when the memory
settles, in one call each, which a history of thousands of sessions outgrows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dspy

from ...errors import UserError
from ...memory.dense import DenseIndex
from ...memory.device_logs import turn_entries
from ...memory.index import Embedder, Entry, Index
from ...records import Context, Hit, Item, format_time
from ...signatures.baselines import DigestEvents, InferPersonality, MergeEvents, MergePersonality
from ..gather import gather
from ..method import Method
from ..predictor import predictor
from .bank import BankMemory, Digest, later, tally
from .logs import apart, is_dialogue, log_hits, seen

_SPOKEN_DATE = "%d %B %Y %H:%M"
_WEEKDAY = re.compile(r",\s*\w+day")


@dataclass(frozen=True)
class Told:
    """What a dialogue tells by itself."""

    events: str = ""
    personality: str = ""


class MemoryBank(Method):
    """Recalls the pieces nearest to the query that are not forgotten, with both accounts.

    Args:
        embedder: Vectors of pieces and queries.
        k: Pieces recalled per query, and per utterance while dialogues are written; Mem-PAL's number.
        forgetting: Whether pieces fade.
        days: Days after which a piece of strength 1 is remembered with probability 1/e (the released code's 5).
        seed: Draws the lots of the pieces.
        portrait: Whether the account of events and the portrait of the user are written and shown.
        logs: Whether logs are kept apart from the dialogues: then the `k` nearest log entries of earlier sessions and
            all of the current session follow the pieces (Mem-PAL, appendix C).

    Raises:
        UserError: `days` is not above 0.
    """

    Memory = BankMemory
    writing = ("digest", "infer", "merge_events", "merge_personality")

    def __init__(
        self,
        embedder: Embedder,
        k: int = 3,
        forgetting: bool = True,
        days: float = 5.0,
        seed: int = 0,
        portrait: bool = True,
        logs: bool = False,
    ) -> None:
        super().__init__(embedder)
        if not days > 0:
            raise UserError(f"days = {days} is not above 0")
        self.k = k
        self.forgetting = forgetting
        self.days = days
        self.seed = seed
        self.portrait = portrait
        self.logs = logs
        self.digest = predictor(DigestEvents)
        if portrait:
            self.infer = predictor(InferPersonality)
            self.merge_events = predictor(MergeEvents)
            self.merge_personality = predictor(MergePersonality)

    def writers(self) -> dict[str, dspy.Predict]:
        """The writing predictors that the settings use, by attribute name."""
        return {name: getattr(self, name) for name in self.writing if hasattr(self, name)}

    def prepare(self, item: Item) -> Told:
        """The digest of a dialogue, and what it tells of the user."""
        entries = turn_entries(item)
        if not entries or apart(item, self.logs):
            return Told()
        about = {
            "session_date": format_time(item.time) if item.time else "unknown",
            "spoken": "\n".join(entry.text for entry in entries),
        }
        asked = [(self.digest, "event_digest")] + ([(self.infer, "personality_note")] if self.portrait else [])
        said = gather([lambda ask=ask, name=name: _said(self.attempt(ask, **about), name) for ask, name in asked])
        return Told(*said)

    def write(self, memory: BankMemory, item: Item, prepared: Told | None = None) -> BankMemory:
        """Recalls older pieces by what the user says, then takes in the dialogue."""
        told = self.prepare(item) if prepared is None else prepared
        before = memory
        memory = seen(memory.at(item.time), item, self.logs)
        entries = turn_entries(item)
        if not entries or apart(item, self.logs):
            return memory
        memory = memory.with_recalls(self._recalls(before, memory.now, entries))
        digest = Digest(
            session=item.id,
            time=item.time,
            events=told.events,
            personality=told.personality,
            sources=tuple(entry.id for entry in entries),
        )
        return memory.with_dialogue(entries, digest)

    def settle(self, memory: BankMemory) -> BankMemory:
        """Writes both accounts anew where there are digests that they do not cover."""
        if not self.portrait or memory.settled == len(memory.digests):
            return memory
        events = "\n".join(_dated(one, one.events) for one in memory.digests if one.events)
        notes = "\n".join(_dated(one, one.personality) for one in memory.digests if one.personality)
        overall, portrait = gather(
            [
                lambda: (
                    _said(self.attempt(self.merge_events, event_digests=events), "overall_events") if events else ""
                ),
                lambda: (
                    _said(self.attempt(self.merge_personality, personality_notes=notes), "user_portrait")
                    if notes
                    else ""
                ),
            ]
        )
        changed = {"events": overall or memory.events, "portrait": portrait or memory.portrait}
        return memory.model_copy(update={**changed, "settled": len(memory.digests)})

    def search(
        self, memory: BankMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        """The nearest pieces and logs that are remembered at the time of the latest item."""
        there = self._remembered(memory, memory.now)
        low = 0.0 if min_score is None else min_score
        return self.index(memory).search(queries, k, low, lambda e: not is_dialogue(e) or e.id in there)

    def recall(self, memory: BankMemory, query: str, **hints: Any) -> Context:
        """The context of a query.

        Args:
            memory: What is recalled from; it stays as it is.
            query: What is asked.
            **hints: `date`: when it is asked; else the time of the latest item. `recent`: what the task shows itself.
        """
        index, there = self.index(memory), self._remembered(memory, later(memory.now, time_of(hints.get("date"))))
        found = index.search([query], self.k, 0.0, lambda entry: entry.id in there)[0]
        logs = log_hits(memory.logs, index, query, self.k, hints.get("recent"))
        notes = {"what happened": memory.events, "the user": memory.portrait} if self.portrait else {}
        counts = {"pieces": len(found), "forgotten": len(memory.pieces) - len(there)}
        return Context(hits=(*found, *logs), notes=notes, counts=counts)

    def build_index(self, memory: BankMemory) -> Index:
        assert self.embedder is not None
        index = DenseIndex(self.embedder)
        index.add([*(piece.entry for piece in memory.pieces), *memory.logs.entries])
        return index

    def _remembered(self, memory: BankMemory, now: datetime | None) -> frozenset[str]:
        if not self.forgetting:
            return frozenset(piece.entry.id for piece in memory.pieces)
        return memory.remembered(now, self.days, self.seed)

    def _recalls(self, memory: BankMemory, now: datetime | None, entries: Sequence[Entry]) -> dict[str, int]:
        """How often each piece is recalled while a dialogue takes place; nothing fades where nothing is forgotten."""
        queries = [entry.text for entry in entries if (entry.speaker or "").lower() != "assistant"]
        if not (self.forgetting and memory.pieces and queries):
            return {}
        there = self._remembered(memory, now)
        rows = self.index(memory).search(queries, self.k, 0.0, lambda entry: entry.id in there)
        return tally([hit.id for hit in hits] for hits in rows)


def time_of(date: Any) -> datetime | None:
    """A time from a hint: a datetime, an ISO date, or a date in the words of prompts; None for anything else."""
    if isinstance(date, datetime):
        return date
    text = _WEEKDAY.sub("", str(date or "")).strip()
    for read in (
        datetime.fromisoformat,
        lambda t: datetime.strptime(t, _SPOKEN_DATE),
        lambda t: datetime.strptime(t, "%d %B %Y"),
    ):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _said(found: dspy.Prediction | None, name: str) -> str:
    return "" if found is None else str(found[name] or "").strip()


def _dated(digest: Digest, text: str) -> str:
    when = f"({format_time(digest.time)}) " if digest.time else ""
    return f"{when}{' '.join(text.split())}"

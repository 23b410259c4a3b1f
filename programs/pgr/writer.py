"""How PGR's own store is written: sessions wait for an update, and new facts for a consolidation.

    sessions ── every 3 ──> upsert ── every 50 new facts ──> consolidate ──> facts

Source: Chopra et al., "Thinking Ahead: Prospection-Guided Retrieval of Memory with Language Models", section 3.2.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...errors import UserError
from ...memory.amending import as_left, is_as_written
from ...memory.index import Embedder
from ...memory.indexes import Indexes
from ...records import Failure, Item, Turn, format_time
from ...signatures.pgr import FactChange, KnownFact, MergeFacts, UpdateFacts
from ..gather import gather
from ..method import ANY_COSINE, Writer
from ..predictor import predictor
from ..recording import record_failure
from .memory import Change, PersonalFact, PersonalMemory, clashing, merge_groups


class PersonalFactWriter(Writer):
    """Takes sessions in as dated facts.

    Args:
        embedder: Vectors of facts, for clusters.
        every: Sessions per upsert; those that wait are written where the history ends.
        merge_after: New facts after which the memory is consolidated.
        merge_score: Lowest cosine of facts that may be merged.
        window_days: Most days between the latest dates of facts that are merged.
        related: Most known facts that an update is shown, those nearest to what was said.

    Raises:
        UserError: A setting has no such value.
    """

    Memory = PersonalMemory
    longest_text = 1000
    """A fact is short: a longer text is asked for again, and does not come in."""

    def __init__(
        self, embedder: Embedder, every: int, merge_after: int, merge_score: float, window_days: int, related: int
    ) -> None:
        super().__init__()
        for name, number in (("every", every), ("merge_after", merge_after), ("related", related)):
            if number < 1:
                raise UserError(f"{name} = {number} is less than 1")
        self.embedder = embedder
        self.indexes = Indexes(embedder)
        self.related = related
        self.every = every
        self.merge_after = merge_after
        self.merge_score = merge_score
        self.window_days = window_days
        self.update = predictor(UpdateFacts)
        self.merge = predictor(MergeFacts)

    @property
    def relates(self) -> bool:
        return True

    def write(self, memory: PersonalMemory, item: Item, prepared: Any = None) -> PersonalMemory:
        waiting = memory.model_copy(update={"pending": (*memory.pending, item)})
        return self._upserted(waiting) if len(waiting.pending) >= self.every else waiting

    def settle(self, memory: PersonalMemory) -> PersonalMemory:
        """Writes the waiting sessions."""
        return self._upserted(memory) if memory.pending else memory

    def write_piece(self, memory: PersonalMemory, piece: Item) -> PersonalMemory:
        """Takes a piece in by itself: it does not wait for others."""
        alone = self._upserted(memory.model_copy(update={"pending": (piece,)}))
        return alone.model_copy(update={"pending": memory.pending})

    def _upserted(self, memory: PersonalMemory) -> PersonalMemory:
        said = [(session, turn) for session in memory.pending for turn in session.turns if turn.content.strip()]
        changes: list[Change] = []
        if said:
            known = self._near(memory, [turn for _, turn in said])
            lines = [turn.line(session.time) for session, turn in said]
            found = self.attempt(self.update, existing_facts=known, dialogue="\n".join(lines))
            if found is None:
                return _left(memory)
            facts: list[FactChange] = found.facts or []
            changes = [_change(fact, {each.fact_id for each in known}) for fact in facts]
            for id, times in clashing(changes).items():
                message = f"{times} updates of one answer name {id}; all were kept as new facts"
                record_failure(Failure(kind="parse", where="update", message=message))
        memory = memory.upsert(changes, memory.pending)
        return self._consolidated(memory) if memory.fresh >= self.merge_after else memory

    def _near(self, memory: PersonalMemory, turns: Sequence[Turn]) -> list[KnownFact]:
        """The known facts that an update may concern, oldest first: the nearest to any turn."""
        if len(memory.facts) <= self.related:
            return _all_shown(memory, memory.facts)
        found = self.indexes.search(memory, [turn.content for turn in turns], self.related, ANY_COSINE)
        best = sorted((hit for hits in found for hit in hits), key=lambda hit: -hit.score)
        near = set(list(dict.fromkeys(hit.id for hit in best))[: self.related])
        return _all_shown(memory, [fact for fact in memory.facts if fact.id in near])

    def _consolidated(self, memory: PersonalMemory) -> PersonalMemory:
        """Merges what is alike and close in time; a group whose merge stays unparseable is unchanged.

        Facts that their user amended are merged with none.
        """
        facts = [fact for fact in memory.facts if is_as_written(fact, memory.entry)]
        vectors = self.embedder.embed([fact.info for fact in facts])
        groups = merge_groups(facts, vectors, self.merge_score, self.window_days)
        shown = {fact.id: _shown(fact, fact.info) for fact in facts}

        def merged(ids: Sequence[str]) -> Any:
            return self.attempt(self.merge, similar_facts=[shown[id] for id in ids])

        for ids, said in zip(groups, gather([lambda ids=ids: merged(ids) for ids in groups]), strict=True):
            new = said.merged_fact if said else None
            if new is not None:
                memory = memory.merge(ids, new.info, new.type, new.related_entities)
        return memory.model_copy(update={"fresh": 0})


def _left(memory: PersonalMemory) -> PersonalMemory:
    """The memory whose pending sessions could not be taken in."""
    after = memory.model_copy(update={"pending": ()})
    for session in memory.pending:
        after = after.left(session)
    return after


def _all_shown(memory: PersonalMemory, facts: Sequence[PersonalFact]) -> list[KnownFact]:
    left = [(fact, as_left(fact, memory.entry)) for fact in facts]
    return [_shown(fact, entry.text) for fact, entry in left if entry is not None]


def _shown(fact: PersonalFact, info: str) -> KnownFact:
    when = format_time(fact.latest) if fact.latest else None
    shown = {"fact_id": fact.id, "info": info, "type": fact.type, "frequency": fact.frequency, "date": when}
    return KnownFact.model_validate({**shown, "related_entities": list(fact.entities)})


def _change(fact: FactChange, known: Collection[str]) -> Change:
    """A change; an update of a fact that was not shown names none."""
    id = fact.fact_id.strip()
    named = None if fact.state == "add" else id if id in known else ""
    return Change(fact.info, fact.type, tuple(fact.related_entities), tuple(fact.turn_ids), named)

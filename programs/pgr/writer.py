"""The writer of PGR's long-term memory: sessions become dated facts (section 3.2).

    sessions ── every 3 ──> upsert ── every 50 new facts ──> consolidate ──> facts

A session of more than ten exchanges is written in parts, each of which counts as one session, so
that no update has to read it whole.

Critical path: one update per three sessions of the whole history, in order. A consolidation asks
for all its merges at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from ...memory.edits import amended_entry, is_as_written
from ...memory.search.embedder import Embedder
from ...memory.search.index_cache import IndexCache
from ...memory.tuning_range import TuningRange
from ...records import Failure, Hit, Item, Turn, format_time
from ...signatures.pgr import FactChange, KnownFact, MergedFact, MergeFacts, UpdateFacts
from ...signatures.pgr_examples import update_examples
from ..predictor import predictor
from ..reader import ANY_COSINE
from ..recording import record_failure
from ..settings import EntryCount, Settings
from ..threads import gather
from ..writer import Update, Writer
from .memory import PersonalFact, PersonalMemory, ambiguous_updates, merge_groups


class FactSettings(Settings):
    """How facts are written (section 3.2)."""

    every: Annotated[int, TuningRange(1, 10)] = Field(
        default=3,
        ge=1,
        description="sessions per update; what is left is written at the end of the history",
    )
    exchanges: Annotated[int, TuningRange(2, 30, log=True)] = Field(
        default=10,
        ge=1,
        description="most exchanges (a turn and its reply) that count as one session; "
        "a longer session is cut",
    )
    merge_after: Annotated[int, TuningRange(10, 200, log=True)] = Field(
        default=50, ge=1, description="new facts after which similar facts are merged"
    )
    merge_score: Annotated[float, TuningRange(0.5, 1)] = Field(
        default=0.8, ge=-1, le=1, description="lowest cosine of facts that may be merged"
    )
    window_days: Annotated[int, TuningRange(0, 60)] = Field(
        default=7,
        ge=0,
        description="most days between the latest dates of facts that are merged",
    )
    related: EntryCount = Field(
        default=40,
        description="most known facts that an update is shown, those nearest to what was said",
    )


class PersonalFactWriter(Writer[PersonalMemory, None]):
    """Write sessions as dated facts.

    Args:
        settings: How facts are written.
        embedder: Finds the known facts near a dialogue, and facts that are alike.
    """

    Memory = PersonalMemory
    shows_entries = True
    longest_text = 1000
    """A fact is short: a longer text is asked for again, and does not come in."""

    settings: FactSettings

    def __init__(self, settings: FactSettings, embedder: Embedder) -> None:
        super().__init__(settings)
        self.embedder = embedder
        self.indexes = IndexCache(embedder)
        self.update_facts = predictor(UpdateFacts)
        self.update_facts.demos = update_examples()
        self.merge = predictor(MergeFacts)

    def update(
        self, memory: PersonalMemory, item: Item, extraction: None = None
    ) -> Update[PersonalMemory]:
        """Let a session wait in the memory; write the waiting sessions once there are enough.

        A long session waits in parts, and each part counts as a session. There is no extraction:
        what a session says is read together with the facts that are known by then.
        """
        failed_items: tuple[Item, ...] = ()
        for part in session_parts(item, self.settings.exchanges):
            memory = memory.replace(pending=(*memory.pending, part))
            if len(memory.pending) >= self.settings.every:
                written = self._write_pending(memory)
                memory = written.memory
                failed_items += written.failed_items
        return Update(memory, failed_items)

    def finalize(self, memory: PersonalMemory) -> Update[PersonalMemory]:
        """Write the sessions that still wait at the end of the history."""
        if not memory.pending:
            return Update(memory)
        return self._write_pending(memory)

    def update_with_part(self, memory: PersonalMemory, part: Item) -> Update[PersonalMemory]:
        """Try again to write a part of a session that could not be written before.

        The part is written at once and by itself. Sessions that wait in the memory go on waiting.
        """
        # All sessions in `pending` are written together, so the others are put back afterwards.
        part_alone = memory.replace(pending=(part,))
        written = self._write_pending(part_alone)
        memory_after = written.memory.replace(pending=memory.pending)
        return Update(memory_after, written.failed_items)

    def _write_pending(self, memory: PersonalMemory) -> Update[PersonalMemory]:
        """Turn the pending sessions into facts, with one call of the model.

        If its answer cannot be read, all pending sessions are reported as failed. After enough new
        facts, facts that say the same are merged.
        """
        changes = self._read_changes(memory)
        if changes is None:
            return Update(memory.replace(pending=()), failed_items=memory.pending)

        memory = memory.upsert(changes, memory.pending)
        # `fresh` counts the facts that were added since facts were last merged.
        if memory.fresh >= self.settings.merge_after:
            memory = self._consolidate(memory)
        return Update(memory)

    def _read_changes(self, memory: PersonalMemory) -> list[FactChange] | None:
        """Ask which facts the pending sessions add, and which known facts they change.

        Returns:
            The changes; None if no answer can be read.
        """
        turns: list[Turn] = []
        lines: list[str] = []
        for session in memory.pending:
            for turn in session.spoken:
                turns.append(turn)
                lines.append(turn.line(session.time))
        if not turns:
            return []

        known_facts = self._facts_near(memory, turns)
        prediction = self.try_call(
            self.update_facts, existing_facts=known_facts, dialogue="\n".join(lines)
        )
        if prediction is None:
            return None

        changes = _updates_of_shown_facts(prediction.facts or [], known_facts)

        # Several updates of one fact show that the model has mixed up ids. `upsert`, which gets the
        # changes next, adds new facts instead. Here a failure is recorded, so that it can be seen.
        for fact_id, count in ambiguous_updates(changes).items():
            message = f"{count} updates of one answer name {fact_id}; all were kept as new facts"
            record_failure(Failure(kind="parse", where="update_facts", message=message))
        return changes

    def _facts_near(self, memory: PersonalMemory, turns: Sequence[Turn]) -> list[KnownFact]:
        """Return the known facts nearest to some turns, oldest first, as prompts show them.

        A fact is shown as its user sees it: with the text that the user wrote, or not at all if the
        user deleted it.
        """
        facts = memory.facts
        # Up to `related` facts fit into the prompt, so a search is needed only if there are more.
        if len(facts) > self.settings.related:
            near_ids = self._ids_near(memory, turns)
            facts = tuple(fact for fact in facts if fact.id in near_ids)

        known_facts: list[KnownFact] = []
        for fact in facts:
            # `memory.entry` makes the entry of a fact; `amended_entry` applies the user's edits to
            # it, and returns None if the user deleted it.
            visible_entry = amended_entry(fact, memory.entry)
            if visible_entry is not None:
                known_facts.append(_known_fact(fact, visible_entry.text))
        return known_facts

    def _ids_near(self, memory: PersonalMemory, turns: Sequence[Turn]) -> set[str]:
        """Return the ids of the facts that are nearest to any of the turns.

        The setting `related` says how many ids are returned at most, for all turns together.
        """
        limit = self.settings.related
        queries = [turn.content for turn in turns]

        # The nearest facts may all be near to the same turn, so the search for a single turn may
        # return as many as are wanted for all turns.
        hits: list[Hit] = []
        for hits_of_turn in self.indexes.search(memory, queries, limit, ANY_COSINE):
            hits.extend(hits_of_turn)

        # A fact that is near to several turns has several hits, but counts only once.
        near_ids: set[str] = set()
        for hit in sorted(hits, key=_score, reverse=True):
            if len(near_ids) == limit:
                break
            near_ids.add(hit.id)
        return near_ids

    def _consolidate(self, memory: PersonalMemory) -> PersonalMemory:
        """Return the memory in which facts that are similar and close in time are merged.

        Facts that their user has changed or deleted are left alone, and so are facts for which the
        model's answer cannot be read.
        """
        facts = [fact for fact in memory.facts if is_as_written(fact, memory.entry)]
        vectors = self.embedder.embed([fact.info for fact in facts])
        groups = merge_groups(facts, vectors, self.settings.merge_score, self.settings.window_days)

        facts_by_id = {fact.id: fact for fact in facts}
        merge_calls: list[partial[MergedFact | None]] = []
        for fact_ids in groups:
            group = [facts_by_id[fact_id] for fact_id in fact_ids]
            merge_calls.append(partial(self._ask_for_merge, group))

        # The model is asked about all groups at the same time.
        for fact_ids, merged in zip(groups, gather(merge_calls), strict=True):
            if merged is not None:
                memory = memory.merge(fact_ids, merged.info, merged.type, merged.related_entities)
        return memory.replace(fresh=0)

    def _ask_for_merge(self, facts: Sequence[PersonalFact]) -> MergedFact | None:
        """Ask for one fact that says what several facts say; None if no answer can be read."""
        similar_facts = [_known_fact(fact, fact.info) for fact in facts]
        prediction = self.try_call(self.merge, similar_facts=similar_facts)
        if prediction is None:
            return None
        return prediction.merged_fact


def session_parts(item: Item, exchanges: int) -> list[Item]:
    """Cut a session into parts that are short enough for one prompt.

    A turn stays with its reply: where a cut would fall between them, both go to the later part. A
    short session is returned whole.

    Args:
        item: The session.
        exchanges: Most exchanges of a part; a turn and its reply are one exchange.
    """
    turns = item.turns
    most_turns = 2 * exchanges
    # Exchanges begin with a turn of the speaker who began the session.
    opener = _opening_speaker(turns)

    parts: list[Item] = []
    start = 0
    while len(turns) - start > most_turns:
        end = start + most_turns
        cuts_an_exchange = turns[end - 1].speaker == opener and turns[end].speaker != opener
        if cuts_an_exchange:
            end -= 1
        parts.append(item.select_turns({turn.id for turn in turns[start:end]}))
        start = end

    if not parts:
        return [item]
    rest = item.select_turns({turn.id for turn in turns[start:]})
    return [*parts, rest]


def _opening_speaker(turns: Sequence[Turn]) -> str:
    """Return who speaks first, apart from the system; "" if nobody does."""
    for turn in turns:
        # Sessions of the PersonaMem benchmark open with a system prompt.
        if turn.speaker != "system":
            return turn.speaker
    return ""


def _updates_of_shown_facts(
    changes: Sequence[FactChange], shown_facts: Sequence[KnownFact]
) -> list[FactChange]:
    """Return a model's changes, with updates of facts that it was not shown turned into additions.

    A model that names such a fact has invented or mixed up its id.
    """
    shown_ids = {fact.fact_id for fact in shown_facts}
    checked_changes: list[FactChange] = []
    for change in changes:
        if change.fact_id.strip() in shown_ids:
            checked_changes.append(change)
        else:
            checked_changes.append(change.model_copy(update={"state": "add"}))
    return checked_changes


def _known_fact(fact: PersonalFact, info: str) -> KnownFact:
    """Return a fact as prompts show it, with its most recent date.

    Args:
        fact: The fact.
        info: The text that is shown; another than `fact.info` if the user changed it.
    """
    date = format_time(fact.latest) if fact.latest else None
    return KnownFact.model_validate(
        {
            "fact_id": fact.id,
            "info": info,
            "type": fact.type,
            "frequency": fact.frequency,
            "related_entities": list(fact.entities),
            "date": date,
        }
    )


def _score(hit: Hit) -> float:
    return hit.score

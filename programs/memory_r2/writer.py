"""The writer of Memory-R2: a fact extractor, and a memory manager that edits the memory.

The paper calls these two roles memory formation and memory evolution; both are prompts of one
model. For each part of a session the writer

1. extracts facts from the turns of the part (`ExtractFacts`);
2. relates each fact to the memories of its speaker that are nearest to it (`FactWriter.relate`);
3. asks the manager for operations on these memories (`ManageMemory`), which code applies
   (`FactMemory.apply`).

Extraction does not need the memory, so all parts of all sessions are extracted at once. The manager
needs it, so it sees the parts in order.

In the ablation with a single agent, one prompt (`EditMemory`) replaces extractor and manager. It
reads the turns, which also stand in for the facts of steps 1 and 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Annotated, TypeAlias

import dspy
import numpy as np
from pydantic import Field

from ...memory.edits import amended_entry
from ...memory.entry import EntryFilter, SpeakerIs
from ...memory.search.embedder import Embedder, query_vectors
from ...memory.search.index_cache import IndexCache
from ...memory.tuning_range import TuningRange
from ...records import Hit, Item, Turn, format_time
from ...signatures.memory_r2 import (
    EditMemory,
    ExtractFacts,
    ExtractFactsInContext,
    Fact,
    ManageMemory,
    ManageMemoryInContext,
    NewFact,
    Operation,
    StoredMemory,
)
from ...signatures.memory_r2_examples import (
    editing_examples,
    extraction_examples,
    management_examples,
    without_context,
)
from ..predictor import predictor
from ..recording import record_rejected
from ..settings import EntryCount, Settings
from ..threads import gather
from ..writer import Update, Writer
from .facts import Edit
from .memory import FactMemory

FactsOfPart: TypeAlias = list[Fact] | None
"""The facts of one part of a session; None if the extractor gave no readable answer."""

FactVectors: TypeAlias = Mapping[str, np.ndarray]
"""The embeddings of facts by their texts, each of shape [dimension]."""


class FactSettings(Settings):
    """How facts are written; defaults are the released code's."""

    related: EntryCount = Field(
        default=5,
        description="nearest memories shown for a new fact",
    )
    # The released code's top_k_memories_for_operations.
    related_total: EntryCount = Field(
        default=25,
        description="most memories shown in one call of step 3",
    )
    min_score: Annotated[float, TuningRange(0, 0.9)] = Field(
        default=0.1,
        ge=-1,
        le=1,
        description="lowest cosine that counts, for writing and reading",
    )
    # The released code's max_num_turns.
    parts: Annotated[int, TuningRange(1, 10)] = Field(
        default=4,
        ge=1,
        description="how many parts a session is cut into",
    )
    chunk_turns: Annotated[int | None, TuningRange(1, 40, log=True)] = Field(
        default=None,
        ge=1,
        description="turns of a part; if set, `parts` is ignored",
    )
    earlier: bool = Field(
        default=True,
        description="whether the earlier parts of the session are shown with a part",
    )
    same_speaker: bool = Field(
        default=True,
        description="whether a fact is compared with memories of its speaker alone",
    )
    single_agent: bool = Field(
        default=False,
        description="whether one prompt does both jobs, extracting and managing (the paper "
        "compares this)",
    )
    examples: bool = Field(
        default=False,
        description="whether the writing prompts begin with worked examples (demos)",
    )


@dataclass(frozen=True)
class SessionPart:
    """Some successive turns of a session, which one call of the extractor reads."""

    item: Item
    """The session."""
    earlier_turns: Sequence[Turn]
    """The turns of the session before this part."""
    turns: Sequence[Turn]

    @property
    def dialogue(self) -> str:
        """The turns, one per line."""
        return self._lines_of(self.turns)

    @property
    def earlier_dialogue(self) -> str:
        """The turns before this part, one per line."""
        return self._lines_of(self.earlier_turns)

    @property
    def turn_ids(self) -> set[str]:
        """The ids of the turns."""
        return {turn.id for turn in self.turns}

    def as_item(self) -> Item:
        """Return the session with the turns of this part alone."""
        return self.item.select_turns(self.turn_ids)

    def turns_as_facts(self) -> list[Fact]:
        """Return a fact for each turn that says what the turn says."""
        return [
            Fact(speaker=turn.speaker, turn_id=turn.id, fact=turn.content) for turn in self.turns
        ]

    def with_known_turn(self, fact: Fact) -> Fact:
        """Return a fact with the id of a turn of this part of the session.

        Models shorten ids or make them up. A fact with an unknown id gets the id of the first turn
        of its speaker, or of the first turn of the part if its speaker has none.
        """
        if fact.turn_id in self.turn_ids:
            return fact

        # The speaker of a fact is the person whom it is about.
        turn_id = self.turns[0].id
        for turn in self.turns:
            if turn.speaker == fact.speaker:
                turn_id = turn.id
                break
        return fact.model_copy(update={"turn_id": turn_id})

    def _lines_of(self, turns: Iterable[Turn]) -> str:
        return "\n".join(turn.line(self.item.time) for turn in turns)


class FactWriter(Writer[FactMemory, list[FactsOfPart] | None]):
    """Extract facts and edit a memory of them by operations; see the module's docstring."""

    Memory = FactMemory
    shows_entries = True

    settings: FactSettings

    def __init__(self, settings: FactSettings, embedder: Embedder, indexes: IndexCache) -> None:
        super().__init__(settings)
        self.embedder = embedder
        self.indexes = indexes

        if settings.single_agent:
            self.edit = predictor(EditMemory)
        elif settings.earlier:
            self.extract_facts = predictor(ExtractFactsInContext)
            self.manage = predictor(ManageMemoryInContext)
        else:
            self.extract_facts = predictor(ExtractFacts)
            self.manage = predictor(ManageMemory)

        if settings.examples:
            self._show_examples()

    def _show_examples(self) -> None:
        """Let the prompts begin with worked examples.

        A predictor shows its `demos` before the input.
        """
        if self.settings.single_agent:
            self.edit.demos = editing_examples()
        elif self.settings.earlier:
            self.extract_facts.demos = extraction_examples()
            self.manage.demos = management_examples()
        else:
            # These prompts show no earlier parts of the session, so their examples do not either.
            self.extract_facts.demos = without_context(extraction_examples())
            self.manage.demos = without_context(management_examples())

    @property
    def needs_extraction(self) -> bool:
        """Whether a model extracts facts; a single agent reads the turns themselves."""
        return not self.settings.single_agent

    def extract(self, item: Item) -> list[FactsOfPart]:
        """Return the facts of each part of a session; all parts are read at the same time."""
        return self._extract_parts(self._split(item))

    def update(
        self, memory: FactMemory, item: Item, extraction: list[FactsOfPart] | None
    ) -> Update[FactMemory]:
        """Return the memory with a session in it, and the parts that could not be written."""
        parts = self._split(item)
        # In the ablation with a single agent nothing is extracted beforehand.
        if extraction is None:
            extraction = self._extract_parts(parts)
        return self._write_parts(memory, parts, extraction)

    def update_with_part(self, memory: FactMemory, part: Item) -> Update[FactMemory]:
        """Return the memory with a part of a session in it.

        A session that could not be written is tried again in such parts; none is split further.
        """
        parts = [SessionPart(item=part, earlier_turns=(), turns=part.spoken)]
        return self._write_parts(memory, parts, self._extract_parts(parts))

    def _split(self, item: Item) -> list[SessionPart]:
        """Split a session into at most `parts` parts, or into parts of `chunk_turns` turns."""
        turns = item.spoken
        length = self.settings.chunk_turns
        if length is None:
            # Rounded up, as the released code does: 5 turns in 4 parts become 2, 2 and 1.
            length = max(1, math.ceil(len(turns) / self.settings.parts))

        parts: list[SessionPart] = []
        for start in range(0, len(turns), length):
            part = SessionPart(
                item, earlier_turns=turns[:start], turns=turns[start : start + length]
            )
            parts.append(part)
        return parts

    def _extract_parts(self, parts: Sequence[SessionPart]) -> list[FactsOfPart]:
        """Return the facts of each part; all parts are read at the same time."""
        return gather([partial(self._extract_part, part) for part in parts])

    def _extract_part(self, part: SessionPart) -> list[Fact] | None:
        """Return the facts in one part of a session; None if the model's answer is unreadable.

        With the setting `single_agent` no model is asked, and each turn counts as a fact.
        """
        if self.settings.single_agent:
            return part.turns_as_facts()

        # The setting `earlier`: whether prompts also show the parts of the session before this.
        if self.settings.earlier:
            answer = self.try_call(
                self.extract_facts, earlier=part.earlier_dialogue, dialogue=part.dialogue
            )
        else:
            answer = self.try_call(self.extract_facts, dialogue=part.dialogue)
        if answer is None:
            return None
        return [part.with_known_turn(fact) for fact in answer.facts if fact.fact.strip()]

    def _write_parts(
        self,
        memory: FactMemory,
        parts: Sequence[SessionPart],
        extraction: Sequence[FactsOfPart],
    ) -> Update[FactMemory]:
        """Write the parts of a session into the memory, one after another.

        Args:
            memory: The memory before the session.
            parts: The parts, in their order.
            extraction: The facts of each part; None where they could not be extracted.

        Returns:
            The new memory, and the parts that could not be written: a model's answer could not be
            read, either when the facts of the part were extracted or when the memory was changed.
        """
        vectors = self._embed_facts(extraction)
        earlier_facts: list[Fact] = []
        failed_parts: list[Item] = []
        for part, facts in zip(parts, extraction, strict=True):
            if facts is None:
                failed_parts.append(part.as_item())
                continue

            memory_with_part = self._write_part(memory, part, facts, earlier_facts, vectors)
            if memory_with_part is None:
                failed_parts.append(part.as_item())
            else:
                memory = memory_with_part
            # Prompts of later parts show these facts as what was said before, also if the memory
            # could not be changed. A new list is made, since records of calls may hold the old one.
            earlier_facts = [*earlier_facts, *facts]
        return Update(memory, tuple(failed_parts))

    def _embed_facts(self, extraction: Sequence[FactsOfPart]) -> FactVectors:
        """Return the vectors of all facts of a session, by the texts of the facts.

        One request to the embedder embeds all texts.
        """
        texts: list[str] = []
        for facts_of_part in extraction:
            # None stands for a part of the session for which a model's answer could not be read.
            if facts_of_part is not None:
                texts.extend(fact.fact for fact in facts_of_part)
        if not texts:
            return {}

        distinct_texts = list(dict.fromkeys(texts))
        vectors = query_vectors(self.embedder, distinct_texts)
        return dict(zip(distinct_texts, vectors, strict=True))

    def _write_part(
        self,
        memory: FactMemory,
        part: SessionPart,
        facts: list[Fact],
        earlier_facts: list[Fact],
        vectors: FactVectors,
    ) -> FactMemory | None:
        """Ask a model what the facts of one part change in the memory, and apply its operations.

        Args:
            memory: The memory after the parts before.
            part: The part that the facts were extracted from.
            facts: The facts of the part.
            earlier_facts: The facts of the parts before.
            vectors: The vectors of the facts.

        Returns:
            The new memory; None if no answer can be read.
        """
        if not facts:
            return memory

        related_ids = self.relate(memory, facts, vectors)
        shown_ids = set(chain.from_iterable(related_ids))
        memories = _stored_memories(memory, shown_ids)
        if self.settings.single_agent:
            answer = self._ask_single_agent(part, memories)
        else:
            new_facts = _new_facts(facts, related_ids)
            answer = self._ask_manager(part.item, memories, earlier_facts, new_facts)
        if answer is None:
            return None

        edits = [_edit_of(operation, facts) for operation in answer.operations]
        new_memory = memory.apply(edits, shown_ids, part.item.time)
        self._record_refused_operations(memory, new_memory)
        return new_memory

    def _record_refused_operations(self, before: FactMemory, after: FactMemory) -> None:
        """Record how many of the operations in a model's answer were refused.

        Args:
            before: The memory that the model was asked about.
            after: The memory after the operations of the answer.
        """
        # The predictor that was asked for the operations.
        asked_predictor = self.edit if self.settings.single_agent else self.manage

        # A memory counts the refused operations of all answers since its beginning.
        refused_count = after.counts.get("refused", 0) - before.counts.get("refused", 0)
        record_rejected(asked_predictor, refused_count)

    def _ask_manager(
        self,
        item: Item,
        memories: list[StoredMemory],
        earlier_facts: list[Fact],
        new_facts: list[NewFact],
    ) -> dspy.Prediction | None:
        """Ask the memory manager for operations on the memories it is shown (Figure 7).

        Args:
            item: The session.
            memories: The memories that are related to the new facts.
            earlier_facts: Facts of the parts of the session before; not shown if `earlier` is off.
            new_facts: The facts of the part that is written.

        Returns:
            The answer, with `operations`; None if it cannot be read.
        """
        if self.settings.earlier:
            return self.try_call(
                self.manage,
                session_date=item.date,
                memories=memories,
                earlier_facts=earlier_facts,
                new_facts=new_facts,
            )
        return self.try_call(
            self.manage,
            session_date=item.date,
            memories=memories,
            new_facts=new_facts,
        )

    def _ask_single_agent(
        self, part: SessionPart, memories: list[StoredMemory]
    ) -> dspy.Prediction | None:
        """Ask for operations on memories by the single prompt that reads the turns themselves.

        This is the ablation without a fact extractor. None is returned if no answer can be read.
        """
        earlier_dialogue = part.earlier_dialogue if self.settings.earlier else ""
        return self.try_call(
            self.edit,
            session_date=part.item.date,
            memories=memories,
            earlier=earlier_dialogue,
            dialogue=part.dialogue,
        )

    def relate(
        self, memory: FactMemory, facts: Sequence[Fact], vectors: FactVectors | None = None
    ) -> list[list[str]]:
        """Return for each fact the ids of the memories that are nearest to it, best first.

        The settings limit them: `related` memories per fact, and `related_total` for all facts
        together, where those with the highest cosines stay. `min_score` is the lowest cosine. With
        `same_speaker`, only memories of the speaker of the fact count.

        Args:
            memory: The memory to search.
            facts: The facts of one part.
            vectors: The vectors of the facts, if they are known.
        """
        hits_by_fact = self._nearest_memories(memory, facts, vectors)
        allowed_ids = _best_ids(hits_by_fact, self.settings.related_total)

        related_ids: list[list[str]] = []
        for hits in hits_by_fact:
            related_ids.append([hit.id for hit in hits if hit.id in allowed_ids])
        return related_ids

    def _nearest_memories(
        self, memory: FactMemory, facts: Sequence[Fact], vectors: FactVectors | None
    ) -> list[list[Hit]]:
        """Return for each fact the memories nearest to it.

        They are searched among the memories of the fact's speaker if the setting `same_speaker` is
        on, else among all.
        """
        if not self.settings.same_speaker:
            return self._search(memory, facts, vectors, where=None)

        # All facts of a speaker are searched at once; then they go back to their positions.
        positions_by_speaker: dict[str, list[int]] = {}
        for position, fact in enumerate(facts):
            positions_by_speaker.setdefault(fact.speaker, []).append(position)

        hits_by_position: dict[int, list[Hit]] = {}
        for speaker, positions in positions_by_speaker.items():
            facts_of_speaker = [facts[position] for position in positions]
            hits_by_fact = self._search(memory, facts_of_speaker, vectors, SpeakerIs(speaker))
            hits_by_position.update(zip(positions, hits_by_fact, strict=True))
        return [hits_by_position[position] for position in range(len(facts))]

    def _search(
        self,
        memory: FactMemory,
        facts: Sequence[Fact],
        vectors: FactVectors | None,
        where: EntryFilter | None,
    ) -> list[list[Hit]]:
        """Return for each fact the memories nearest to it, without those that the user has hidden.

        Args:
            memory: The memory to search.
            facts: The facts.
            vectors: Their vectors; without them the index embeds the facts.
            where: Which memories are searched; all if None.
        """
        texts = [fact.fact for fact in facts]
        query_rows = None
        if vectors:
            query_rows = np.stack([vectors[text] for text in texts])  # [facts, dimension]
        hits_by_fact = self.indexes.search(
            memory, texts, self.settings.related, self.settings.min_score, where, query_rows
        )

        visible_ids = _visible_ids(memory, hits_by_fact)
        visible_hits: list[list[Hit]] = []
        for hits in hits_by_fact:
            visible_hits.append([hit for hit in hits if hit.id in visible_ids])
        return visible_hits


def _best_ids(hits_by_fact: Iterable[Sequence[Hit]], limit: int) -> set[str]:
    """Return the ids of the hits with the highest scores, at most `limit` different ones."""
    all_hits: list[Hit] = []
    for hits in hits_by_fact:
        all_hits.extend(hits)
    all_hits.sort(key=attrgetter("score"), reverse=True)

    # A dict keeps the order, so that the first ids are those with the highest scores.
    distinct_ids = dict.fromkeys(hit.id for hit in all_hits)
    return set(islice(distinct_ids, limit))


def _visible_ids(memory: FactMemory, hits_by_fact: Iterable[Sequence[Hit]]) -> set[str]:
    """Return the ids of the memories that were hit and that the user has not hidden."""
    hit_ids: set[str] = set()
    for hits in hits_by_fact:
        hit_ids.update(hit.id for hit in hits)

    visible_ids: set[str] = set()
    for fact in memory.facts_with_ids(hit_ids):
        # The entry as the user sees it: None if the user has hidden it.
        if amended_entry(fact, memory.entry) is not None:
            visible_ids.add(fact.id)
    return visible_ids


def _stored_memories(memory: FactMemory, ids: Iterable[str]) -> list[StoredMemory]:
    """Return memories as the memory manager is shown them.

    What the user reworded has the user's words, and what the user has hidden is left out.
    """
    stored_memories: list[StoredMemory] = []
    for fact in memory.facts_with_ids(ids):
        entry = amended_entry(fact, memory.entry)
        if entry is None:
            continue
        stored_memory = StoredMemory(
            memory_id=fact.id,
            speaker=fact.speaker,
            content=entry.text,
            date=format_time(fact.time) if fact.time else None,
        )
        stored_memories.append(stored_memory)
    return stored_memories


def _new_facts(facts: Sequence[Fact], related_ids: Sequence[list[str]]) -> list[NewFact]:
    """Return new facts as the memory manager is shown them.

    Args:
        facts: The facts.
        related_ids: For each fact, the ids of the memories that are related to it.
    """
    new_facts: list[NewFact] = []
    for fact, memory_ids in zip(facts, related_ids, strict=True):
        new_fact = NewFact(
            speaker=fact.speaker,
            turn_id=fact.turn_id,
            fact=fact.fact,
            related_memory_ids=memory_ids,
        )
        new_facts.append(new_fact)
    return new_facts


def _edit_of(operation: Operation, facts: Sequence[Fact]) -> Edit:
    """Return an operation of the memory manager as an edit that a memory can apply.

    The manager may leave out the speaker. Then it is the speaker of the first fact from the turns
    that the edit rests on.

    Args:
        operation: The operation, as the model answered.
        facts: The new facts that the manager was asked about.
    """
    sources = _sources_of(operation, facts)
    speaker = operation.speaker
    if not speaker:
        speaker = _speaker_of_turns(facts, sources)

    # An inserted fact gets a new id, whatever id the model names.
    memory_id = operation.memory_id
    if operation.op == "INSERT":
        memory_id = None
    return Edit(
        op=operation.op,
        memory_id=memory_id,
        speaker=speaker,
        content=operation.content,
        # A turn without an id cannot be named as a source.
        sources=tuple(turn_id for turn_id in sources if turn_id),
    )


def _sources_of(operation: Operation, facts: Sequence[Fact]) -> tuple[str, ...]:
    """Return the ids of the turns that an operation of the memory manager rests on.

    That is the turn that the operation names, if one of the facts comes from it. Otherwise it is
    the turns of all facts that the manager was asked about.
    """
    turn_ids = tuple(dict.fromkeys(fact.turn_id for fact in facts))

    # A model may name no turn. If it names several, "D1:3, D1:4", the first one counts, as in the
    # code that the paper's authors released.
    named_turn_id = re.split("[,;]", operation.turn_id or "")[0].strip()
    if named_turn_id in turn_ids:
        return (named_turn_id,)
    return turn_ids


def _speaker_of_turns(facts: Sequence[Fact], turn_ids: Collection[str]) -> str:
    """Return the speaker of the first fact that comes from some turns; "" if there is none."""
    for fact in facts:
        if fact.turn_id in turn_ids:
            return fact.speaker
    return ""

"""ConditionMem: what to keep of a dialogue, each item with the condition under which it came up.

    dialogue ── record ──> records (condition, content) ── cosine ──> the k nearest to a query ── reflect ──> context

Source: Yuan et al., "Personalized Large Language Model Assistant with Evolving Conditional Memory" (COLING 2025), as
Mem-PAL compares with it (Table 2 and 4). Only the abstract and summaries of that paper were available, so both prompts
are ours: `signatures.baselines.RecordConditions`, and `ReflectOnRecords` for its self-reflection, which Mem-PAL does
not speak of and which is off by default. The history-based memory of the paper is `turn-rag`; its summary-based one is
not here.

Critical path: one call for all dialogues together (they do not need one another), with `reflection` one more per query,
and the answer.

Limits: records are never merged or withdrawn, so a changed preference leaves two, which differ in date. A
record whose turn is not one of its dialogue rests on all turns of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...memory.index import Embedder, Entry
from ...memory.memory import Memory
from ...records import Context, Hit, Item, Query
from ...signatures.baselines import ConditionalRecord, RecordConditions, ReflectOnRecords
from ..method import EntryReader, Lost, Method, Writer
from ..predictor import predictor


class RecordMemory(Memory):
    """The records of one user."""

    records: tuple[Entry, ...] = ()
    """In the order of the dialogues; ids r1, r2, ..."""

    def with_records(self, item: Item, found: Sequence[ConditionalRecord]) -> RecordMemory:
        """The memory with the records of one more dialogue; one of equal words that is there is not kept twice."""
        turns = {turn.id for turn in item.turns}
        known, new = {entry.text for entry in self.records}, list[Entry]()
        for record in found:
            text, id = _text(record), record.turn_id.strip("[]() ")
            if not text or text in known:
                continue
            known.add(text)
            sources = (id,) if id in turns else tuple(turn.id for turn in item.turns)
            name = f"r{len(self.records) + len(new) + 1}"
            new.append(Entry(id=name, text=text, kind="lesson", sources=sources, time=item.time))
        return self.model_copy(update={"records": (*self.records, *new)})

    def entries(self) -> tuple[Entry, ...]:
        return self.records


class RecordWriter(Writer):
    """Records what each dialogue teaches."""

    Memory = RecordMemory

    def __init__(self) -> None:
        super().__init__()
        self.record = predictor(RecordConditions)

    def prepare(self, item: Item) -> list[ConditionalRecord] | Lost:
        """The records of a dialogue."""
        turns = [turn for turn in item.turns if turn.content.strip()]
        if not turns:
            return []
        found = self.attempt(self.record, past_dialogue="\n".join(turn.line(item.time) for turn in turns))
        return Lost() if found is None else found.records

    def write(self, memory: RecordMemory, item: Item, prepared: Any = None) -> RecordMemory:
        found = self.prepare(item) if prepared is None else prepared
        return memory.left(item) if isinstance(found, Lost) else memory.with_records(item, found)


class RecordReader(EntryReader):
    """Finds the nearest records, and has a model pick those that help.

    Args:
        embedder: Vectors of records and queries.
        k: Records recalled per query.
        reflection: Whether a model picks.
    """

    def __init__(self, embedder: Embedder, k: int, reflection: bool) -> None:
        super().__init__(k, embedder=embedder)
        if reflection:
            self.reflect = predictor(ReflectOnRecords)
        self.reflection = reflection

    def recall(self, memory: RecordMemory, query: Query) -> Context:
        """The nearest records, those that help where there is reflection; `counts` has the LM calls."""
        found = self.search(memory, [query.probe], self.k)[0]
        calls = int(self.reflection and bool(found))
        found = self._helpful(query.probe, found) if calls else found
        return Context(hits=tuple(found), counts={"calls": calls, "records": len(found)})

    def otherwise(self, memory: RecordMemory, query: Query) -> Sequence[Hit]:
        """The newest records; nothing where a model picks, which may pick none."""
        return () if self.reflection else super().otherwise(memory, query)

    def _helpful(self, question: str, found: list[Hit]) -> list[Hit]:
        """Those that the model names, in its order; all of them where it does not answer in the form."""
        said = self.attempt(self.reflect, question=question, candidate_records="\n".join(hit.line() for hit in found))
        if said is None:
            return found
        by_id = {hit.id: hit for hit in found}
        named = dict.fromkeys(str(id).strip("[]() ") for id in said.helpful_ids)
        return [by_id[id] for id in named if id in by_id]


class ConditionMem(Method):
    """Recalls the `k` records nearest to the query.

    Args:
        embedder: Vectors of records and queries.
        k: Records recalled per query; Mem-PAL's number.
        reflection: Whether a model picks, of the records found, those that help.
    """

    def __init__(self, embedder: Embedder, k: int = 3, reflection: bool = False) -> None:
        super().__init__(RecordWriter(), RecordReader(embedder, k, reflection), embedder)


def _text(record: ConditionalRecord) -> str:
    condition, content = (" ".join(part.split()) for part in (record.condition, record.content))
    return f"{content} (when: {condition})" if content and condition else content

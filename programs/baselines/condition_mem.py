"""ConditionMem: what of a dialogue is worth keeping, each thing with the condition under which it came up.

    dialogue ── record ──> records (condition, content) ── cosine ──> the k nearest to a query ── reflect ──> context

Source: Yuan et al., "Personalized Large Language Model Assistant with Evolving Conditional Memory" (COLING 2025), as
Mem-PAL compares with it (Table 2 and 4). Only the abstract and summaries of that paper were at hand, so both prompts
are ours: `signatures.baselines.RecordConditions`, and `ReflectOnRecords` for its self-reflection, which Mem-PAL does
not speak of and which is off by default. The history-based memory of the paper is `turn-rag`; its summary-based one is
not here.

Critical path: one call for all dialogues together (they do not need one another), with `reflection` one more per query,
and the answer.

Example:
    >>> program = build("condition-mem", embedder=embedder("openai/text-embedding-3-small"), logs=True)

Honest limits: records are never merged or withdrawn, so a changed mind leaves two of them, told apart by their dates. A
record whose turn is not one of its dialogue rests on all turns of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...memory.dense import DenseIndex
from ...memory.device_logs import LogMemory
from ...memory.index import Embedder, Entry, Index
from ...records import Context, Hit, Item
from ...signatures.baselines import ConditionalRecord, RecordConditions, ReflectOnRecords
from ..method import Method
from ..predictor import predictor
from .logs import apart, is_dialogue, log_hits, seen


class RecordMemory(BaseModel):
    """The records of one user."""

    model_config = ConfigDict(frozen=True)

    records: tuple[Entry, ...] = ()
    """In the order of the dialogues; ids r1, r2, ..."""
    logs: LogMemory = LogMemory()
    """Logs that are kept apart from the dialogues, where the method does so."""

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
            new.append(Entry(id=name, text=text, sources=sources, time=item.time))
        return self.model_copy(update={"records": (*self.records, *new)})


class ConditionMem(Method):
    """Recalls the `k` records nearest to the query.

    Args:
        embedder: Vectors of records and queries.
        k: Records recalled per query; Mem-PAL's number.
        reflection: Whether a model picks, of the records found, those that help.
        logs: Whether logs are kept apart from the dialogues: then the `k` nearest log entries of earlier sessions and
            all of the current session follow the records (Mem-PAL, appendix C).
    """

    Memory = RecordMemory
    writing = ("record",)

    def __init__(self, embedder: Embedder, k: int = 3, reflection: bool = False, logs: bool = False) -> None:
        super().__init__(embedder)
        self.k = k
        self.reflection = reflection
        self.logs = logs
        self.record = predictor(RecordConditions)
        if reflection:
            self.reflect = predictor(ReflectOnRecords)

    def prepare(self, item: Item) -> list[ConditionalRecord]:
        """The records of a dialogue."""
        turns = [turn for turn in item.turns if turn.content.strip()]
        if not turns or apart(item, self.logs):
            return []
        found = self.attempt(self.record, past_dialogue="\n".join(turn.line(item.time) for turn in turns))
        return [] if found is None else found.records

    def write(self, memory: RecordMemory, item: Item, prepared: list[ConditionalRecord] | None = None) -> RecordMemory:
        found = self.prepare(item) if prepared is None else prepared
        return seen(memory, item, self.logs).with_records(item, found)

    def search(
        self, memory: RecordMemory, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return self.index(memory).search(queries, k, 0.0 if min_score is None else min_score)

    def recall(self, memory: RecordMemory, query: str, **hints: Any) -> Context:
        """The nearest records, those that help where there is reflection, and the logs; `counts` has the LM calls."""
        index = self.index(memory)
        found = index.search([query], self.k, 0.0, is_dialogue)[0]
        calls = int(self.reflection and bool(found))
        if calls:
            found = self._helpful(query, found)
        logs = log_hits(memory.logs, index, query, self.k, hints.get("recent"))
        return Context(hits=(*found, *logs), counts={"calls": calls, "records": len(found)})

    def build_index(self, memory: RecordMemory) -> Index:
        assert self.embedder is not None
        index = DenseIndex(self.embedder)
        index.add([*memory.records, *memory.logs.entries])
        return index

    def _helpful(self, query: str, found: list[Hit]) -> list[Hit]:
        """Those that the model names, in its order; all of them where it does not answer in the form."""
        said = self.attempt(self.reflect, question=query, candidate_records="\n".join(hit.line() for hit in found))
        if said is None:
            return found
        by_id = {hit.id: hit for hit in found}
        named = dict.fromkeys(str(id).strip("[]() ") for id in said.helpful_ids)
        return [by_id[id] for id in named if id in by_id]


def _text(record: ConditionalRecord) -> str:
    condition, content = (" ".join(part.split()) for part in (record.condition, record.content))
    return f"{content} (when: {condition})" if content and condition else content

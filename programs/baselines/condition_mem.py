"""ConditionMem: keep what each dialogue teaches, with the condition under which it matters.

    write     dialogue ── record ──> records such as "has a greyhound (when: a limping dog)"
    question  the `k` records nearest to the query; no LM call

Only the abstract of the paper was available. So the prompt is ours, and the paper's self-reflection
is left out.

Paper: Yuan et al., COLING 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

from pydantic import Field

from ...memory.entry import Entry
from ...memory.memory import Memory
from ...memory.search.embedder import Embedder
from ...records import Item
from ...signatures.baselines import ConditionalRecord, RecordConditions
from ...text import one_line
from .._embedders import offline_embedder
from ..method import Method
from ..predictor import predictor
from ..reader import EntryReader
from ..settings import EntryCount, Settings
from ..writer import ExtractionFailed, Update, Writer

DialogueRecords: TypeAlias = list[ConditionalRecord] | ExtractionFailed
"""What a dialogue teaches, or that no answer could be read."""


# The docstring of this class, and its fields, are part of the key of stored memories.
class RecordMemory(Memory[Entry]):
    """The records of one user."""

    records: tuple[Entry, ...] = ()
    """In the order of the dialogues; ids r1, r2, ..."""

    def entries(self) -> tuple[Entry, ...]:
        return self.records


class RecordWriter(Writer[RecordMemory, DialogueRecords]):
    """Record what each dialogue teaches."""

    Memory = RecordMemory

    def __init__(self) -> None:
        super().__init__()
        self.record = predictor(RecordConditions)

    def extract(self, item: Item) -> DialogueRecords:
        """Ask the model for records of what a dialogue teaches.

        Returns:
            The records; `ExtractionFailed` if the model's answer cannot be read.
        """
        if not item.spoken:
            return []

        dialogue = "\n".join(turn.line(item.time) for turn in item.spoken)
        prediction = self.try_call(self.record, past_dialogue=dialogue)
        if prediction is None:
            return ExtractionFailed()
        return prediction.records

    def update(
        self, memory: RecordMemory, item: Item, extraction: DialogueRecords
    ) -> Update[RecordMemory]:
        """Return the memory with the records of a dialogue added.

        A record in the same words as an earlier one is not added again.
        """
        if isinstance(extraction, ExtractionFailed):
            return Update(memory, failed_items=(item,))

        entries_by_text = {entry.text: entry for entry in memory.records}
        for record in extraction:
            text = _text_of(record)
            if not text or text in entries_by_text:
                continue
            entries_by_text[text] = Entry(
                id=f"r{len(entries_by_text) + 1}",
                text=text,
                kind="lesson",
                sources=_sources_of(record, item),
                time=item.time,
            )
        return Update(memory.replace(records=tuple(entries_by_text.values())))


def _text_of(record: ConditionalRecord) -> str:
    """Return a record as one line, such as "has a greyhound (when: a limping dog)".

    It is "" if the record has no content.
    """
    content = one_line(record.content)
    condition = one_line(record.condition)
    if content and condition:
        return f"{content} (when: {condition})"
    return content


def _sources_of(record: ConditionalRecord, item: Item) -> tuple[str, ...]:
    """Return the id of the turn that a record rests on; the ids of all turns if it names no turn.

    Args:
        record: A record as the model wrote it, with the id of a turn.
        item: The dialogue.
    """
    turn_ids = tuple(turn.id for turn in item.turns)
    # The prompt shows ids in brackets, and a model may copy the brackets.
    named_id = record.turn_id.strip("[]() ")
    if named_id in turn_ids:
        return (named_id,)
    return turn_ids


class RecordSettings(Settings):
    """What can be set of `ConditionMem`."""

    deprecated: ClassVar[Mapping[str, Any]] = {"reflection": False}

    k: EntryCount = Field(
        default=3,
        description="records recalled per query; 3 is the number of the paper Mem-PAL",
    )


class ConditionMem(Method):
    """Recall the `k` records nearest to the query.

    Critical path: one call for all dialogues together, and the answer.
    """

    Settings = RecordSettings
    embedder_use = "required"

    def __init__(
        self, settings: RecordSettings | None = None, embedder: Embedder | None = None
    ) -> None:
        settings = settings or RecordSettings()
        embedder = embedder or offline_embedder()
        reader: EntryReader[RecordMemory] = EntryReader(settings.k, embedder=embedder)
        super().__init__(RecordWriter(), reader, embedder, settings)

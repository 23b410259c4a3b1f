"""The memory of Memory-R2: dated facts about people. Nothing of it is lost.

Each wording that an update replaced is kept with its fact. A deleted fact moves to `removed`. An
edit that could not be applied is counted in `counts`.

    >>> from mempiler.programs.memory_r2.facts import Edit
    >>> from mempiler.programs.memory_r2.memory import FactMemory
    >>> insertion = Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D1:1",))
    >>> memory = FactMemory().apply([insertion])
    >>> update = Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", sources=("D2:4",))
    >>> fact = memory.apply([update], shown_ids=["m1"]).facts[0]
    >>> fact.content, fact.earlier, fact.sources
    ('Ann lives in Porto', ('Ann lives in Lisbon',), ('D1:1', 'D2:4'))
    >>> memory.apply([update], shown_ids=[]).counts
    {'inserted': 1, 'refused': 1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from pydantic import Field, PrivateAttr

from ...memory.entry import Entry
from ...memory.memory import Memory
from ...records.shared_by_copies import SharedByCopies
from .facts import Edit, FactDraft, FactIdsByWording, StoredFact, index_by_wording, positions_of


class WordingIndex(SharedByCopies):
    """An index of one tuple of facts by their wordings.

    A memory gives the index of its facts to the next version, which changes a few wordings. The
    index follows from the facts, so any two are equal: memories are equal if their fields are.

    Args:
        facts: The facts of the memory.
        ids: Their ids by wording; None if they are to be read from the facts.
    """

    def __init__(
        self, facts: tuple[StoredFact, ...] = (), ids: FactIdsByWording | None = None
    ) -> None:
        self.facts = facts
        self.ids = index_by_wording(facts) if ids is None else ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordingIndex)

    def __reduce__(self) -> tuple[type[WordingIndex], tuple[()]]:
        # A memory that comes out of a pickle makes its index anew.
        return WordingIndex, ()


# The docstring is part of the schema that keys of stored memories are made of.
class FactMemory(Memory[StoredFact]):
    """Facts in order of insertion."""

    facts: tuple[StoredFact, ...] = ()
    removed: tuple[StoredFact, ...] = ()
    """Deleted facts with their provenance; never searched."""
    issued: int = 0
    """How many ids were given so far."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Edits by outcome: inserted, merged, updated, deleted, unchanged, refused."""

    _wording_index: WordingIndex = PrivateAttr(default_factory=WordingIndex)

    def apply(
        self,
        edits: Iterable[Edit],
        shown_ids: Collection[str] = (),
        time: datetime | None = None,
    ) -> FactMemory:
        """Return a memory with some edits applied, one after another; outcomes are counted.

        An INSERT of a fact that is there already, in the same letters and of the same speaker,
        merges its sources. An UPDATE unites sources and keeps the date of the first mention. An
        edit without content, or of an id that is not there, is refused.

        Args:
            edits: What to do, in order.
            shown_ids: Ids that the manager saw; an edit of any other fact is refused.
            time: Date of the session that the edits come from.
        """
        draft = FactDraft(self.facts, self._ids_by_wording(), self.issued, shown_ids, time)
        for edit in edits:
            draft.apply_edit(edit)

        edited = self.replace(
            facts=tuple(draft.facts),
            removed=(*self.removed, *draft.removed),
            issued=draft.issued,
            counts=dict(Counter(self.counts) + draft.outcomes),
        )
        # The draft updated the index along with the facts, so it need not be made again.
        edited._wording_index = WordingIndex(edited.facts, draft.ids_by_wording)
        return edited

    def facts_with_ids(self, ids: Iterable[str]) -> list[StoredFact]:
        """Return the facts with some ids, in the order of the memory; unknown ids are left out."""
        return [self.facts[position] for position in positions_of(self.facts, ids)]

    def _ids_by_wording(self) -> FactIdsByWording:
        """Return the index of the facts by their wordings; make it if it is missing."""
        # A copy with other facts, such as `replace` returns, still has the index of the old facts.
        if self._wording_index.facts is not self.facts:
            self._wording_index = WordingIndex(self.facts)
        return self._wording_index.ids

    @property
    def operations(self) -> Mapping[str, int]:
        return self.counts

    def parts(self) -> tuple[StoredFact, ...]:
        return self.facts

    def with_text(self, part: StoredFact, text: str) -> StoredFact:
        return part.replace(content=text, earlier=())

    def entry(self, part: StoredFact) -> Entry:
        return part.entry()

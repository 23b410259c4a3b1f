"""The memory of a method: what it keeps for one user. Authors of a method read this file first.

A memory is a frozen pydantic model. Its JSON is its stored form. Writing never changes a memory but
returns a new one, so earlier memories stay usable: caches, rollouts and snapshots rest on that.

A memory that stores its entries overrides `entries` and nothing else:

    >>> from mempiler import Memory
    >>> from mempiler.memory.entry import Entry
    >>> class Notebook(Memory[Entry]):
    ...     notes: tuple[Entry, ...] = ()
    ...
    ...     def entries(self):
    ...         return self.notes
    ...
    ...     def with_note(self, text, turn_id):
    ...         note = Entry(id=f"n{len(self.notes) + 1}", text=text, sources=(turn_id,))
    ...         return self.replace(notes=(*self.notes, note))
    >>> empty = Notebook()
    >>> notebook = empty.with_note("Ada moved to Lisbon.", "D1:1")
    >>> [entry.text for entry in notebook.entries()]
    ['Ada moved to Lisbon.']
    >>> empty.entries()
    ()

A memory that stores facts of its own, and makes entries of them, names the class of these parts and
overrides `parts`, `entry` and, unless the text of a part is its field `text`, `with_text`:

    >>> from mempiler.memory.memory import MemoryPart
    >>> class Fact(MemoryPart):
    ...     id: str
    ...     content: str
    >>> class FactList(Memory[Fact]):
    ...     facts: tuple[Fact, ...] = ()
    ...
    ...     def parts(self):
    ...         return self.facts
    ...
    ...     def entry(self, part):
    ...         return Entry(id=part.id, text=part.content, kind="fact")
    ...
    ...     def with_text(self, part, text):
    ...         return part.replace(content=text)
    >>> FactList(facts=(Fact(id="f1", content="Ada moved to Lisbon."),)).entries()[0].text
    'Ada moved to Lisbon.'

What a subclass may override:

| member | required? | default |
|---|---|---|
| fields | yes; each with a default, since `MyMemory()` is the empty memory | `failed_items` |
| `entries` | this, or `parts` and `entry` | the entry of each part |
| `parts` | see `entries` | the entries |
| `entry` | with `parts` | the part itself, which must be an `Entry` |
| `with_text` | no | a copy of the part with another `text` |
| `continue_from` | no | the memory before it was finalized |
| `operations` | no | nothing is counted |
| `names_sources` | no | True |

Everything else stays as it is. `replace` and `model_copy` make the next version; both keep the
search index, so that a search of that version costs what changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, cast

from pydantic import BaseModel, JsonValue, PrivateAttr
from typing_extensions import TypeVar

from ..records import AnyItem, Frozen, Item, Session
from ..text import one_line
from .entry import DIALOGUE, Entry
from .search.index_cache import Lineage

PartT = TypeVar("PartT", bound=BaseModel, default=Any)
"""What the entries of a memory are made of, e.g. `StoredFact`; `Entry` where it stores entries."""

_HIT_KINDS = {"logs": "log", "behavior": "record", "profile": "profile"}
"""What a hit that is a turn is called, by the kind of its item; "turn" for every other kind."""


class MemoryPart(Frozen):
    """Base of what a memory is made of, e.g. its facts: a frozen value with `replace`."""


class FailedItem(MemoryPart):
    """An item, or some of its turns, that the writer could not write into a memory.

    Its turns are searched as raw turns, and written again in halves together with the next item.
    """

    item: AnyItem
    """The item, with only those of its turns that are not in the memory."""
    attempts: int = 1
    """How often the writer has failed."""

    def halves(self) -> list[Item]:
        """Return the item as two items, each with half of its turns, for another attempt.

        The item may have failed because its prompt was too long for the model. An item of a single
        turn cannot be divided, and is returned alone.
        """
        turn_ids = [turn.id for turn in self.item.turns]
        middle = (len(turn_ids) + 1) // 2
        first_half = self.item.select_turns(turn_ids[:middle])
        second_half = self.item.select_turns(turn_ids[middle:])

        # The second half of a single turn is empty.
        return [half for half in (first_half, second_half) if half.turns]


class Memory(Frozen, Generic[PartT]):
    """Base of all memories; without arguments it is the empty memory. The module has examples.

    Two memories are equal if their fields are. Which search index serves them does not count.
    """

    names_sources: ClassVar[bool] = True
    """Whether its JSON names, in fields called `sources`, the ids of the turns that it rests on."""

    failed_items: tuple[FailedItem, ...] = ()
    """What could not be written; `programs/retry.py` adds it, and tries it again in halves."""

    _lineage: Lineage = PrivateAttr(default_factory=Lineage)

    @property
    def lineage(self) -> Lineage:
        """The search indexes that this memory shares with its later versions.

        It is neither stored nor compared with the memory.
        """
        return self._lineage

    def with_new_lineage(self) -> Self:
        """Return an equal memory, but with search indexes of its own."""
        separate = copy.copy(self)
        separate._lineage = Lineage()
        return separate

    @property
    def operations(self) -> Mapping[str, int]:
        """How often the writer tried to change the memory, by outcome.

        An example is `{"inserted": 3, "refused": 1}`.
        """
        return {}

    @classmethod
    def lists_entries(cls) -> bool:
        """Return whether this class can list entries: it overrides `entries` or `parts`."""
        base = Memory[Any]
        return cls.entries is not base.entries or cls.parts is not base.parts

    def entries(self) -> Sequence[Entry]:
        """Return all that can be searched in the memory, in a fixed order and with unique ids."""
        # By default, `entries` calls `parts` and `parts` calls `entries`: a subclass overrides one
        # of them. A memory that overrides neither has no entries.
        overrides_parts = type(self).parts is not Memory[Any].parts
        if not overrides_parts:
            return ()
        return tuple(self.entry(part) for part in self.parts())

    def parts(self) -> Sequence[PartT]:
        """Return what the entries are made from, e.g. facts: one part for each entry, in order.

        Parts that did not change must be the same objects in the next version of the memory: the
        search index adds only the new objects.
        """
        return cast("Sequence[PartT]", self.entries())

    def entry(self, part: PartT) -> Entry:
        """Return the entry to search for a part. The same part must always give an equal entry."""
        if not isinstance(part, Entry):
            raise NotImplementedError(
                f"{type(self).__name__} has parts that are no entries; override `entry` too"
            )
        return part

    def with_text(self, part: PartT, text: str) -> PartT:
        """Return a part with another text, which its user wrote to correct the writer's."""
        return part.model_copy(update={"text": text})

    def continue_from(self, finalized: Any) -> Self:
        """Return the memory into which the next item is written: this one, or its finalized form.

        `Writer.finalize` turns a memory into one that answers questions. By default the next item
        is written into the memory as it was before that, so that it does not matter how often a
        memory is finalized. Override this to return `finalized` if finalizing costs work that must
        not be repeated after every item.

        Args:
            finalized: What `Writer.finalize` returned for this memory; of the same class.
        """
        return self


class TurnMemory(Memory[Entry]):
    """Turns as they were said, in time order."""

    turns: tuple[Entry, ...] = ()
    """One entry for each turn: with the id of the turn, and `speaker: words [image caption]`."""

    def with_session(self, item: Item) -> TurnMemory:
        """Return the memory with the turns of another item; turns without words are left out."""
        return self.replace(turns=(*self.turns, *turn_entries(item)))

    def entries(self) -> tuple[Entry, ...]:
        """Return the turns, which are stored as entries."""
        return self.turns


def turn_entries(item: Item) -> tuple[Entry, ...]:
    """Return an entry to search for every turn of an item, except turns without words.

    The turns of a session are tagged as one dialogue, so that a search that finds one of them can
    also return the turns around it.
    """
    item_kind = getattr(item, "kind", "")
    hit_kind = _HIT_KINDS.get(item_kind, "turn")

    tags: dict[str, str] = {}
    if isinstance(item, Session) and item.turns:
        # A dialogue is named after its first turn, because ids of turns are unique, while two
        # sessions may have the same id. An open session may get more turns, but the first stays.
        tags[DIALOGUE] = item.turns[0].id

    entries: list[Entry] = []
    for turn in item.spoken:
        entry = Entry(
            id=turn.id,
            text=one_line(f"{turn.speaker}: {turn.content}"),
            kind=hit_kind,
            sources=(turn.id,),
            time=turn.time or item.time,
            speaker=turn.speaker,
            tags=tags,
        )
        entries.append(entry)
    return tuple(entries)


def stored_sources(memory: BaseModel) -> frozenset[str]:
    """Return the ids of all turns that a memory was made from.

    They are found by going through the JSON of the memory: every field called `sources` is a list
    of such ids. Fields called `removed` are left out: they hold what is no longer in the memory.
    """
    turn_ids: set[str] = set()
    remaining: list[JsonValue] = [memory.model_dump(mode="json")]
    while remaining:
        value = remaining.pop()
        if isinstance(value, list):
            remaining.extend(value)
        elif isinstance(value, dict):
            sources = value.get("sources")
            if isinstance(sources, list):
                turn_ids.update(str(source) for source in sources)
            remaining.extend(part for name, part in value.items() if name != "removed")
    return frozenset(turn_ids)

r"""The contract of writers: how the items of a history get into a memory.

A writer that has a model split each session into sentences, and keeps these:

    import dspy
    from mempiler import Entry, ExtractionFailed, Item, Memory, Update, Writer, predictor

    class Notebook(Memory):
        notes: tuple[Entry, ...] = ()

        def entries(self) -> tuple[Entry, ...]:
            return self.notes

    Sentences = list[str] | ExtractionFailed

    class SentenceWriter(Writer[Notebook, Sentences]):
        Memory = Notebook

        def __init__(self) -> None:
            super().__init__()
            self.split = predictor(dspy.Signature("dialogue -> sentences: list[str]"))

        def extract(self, item: Item) -> Sentences:
            answer = self.try_call(self.split, dialogue="\n".join(item.lines()))
            return ExtractionFailed() if answer is None else answer.sentences

        def update(self, memory: Notebook, item: Item, extraction: Sentences) -> Update[Notebook]:
            if isinstance(extraction, ExtractionFailed):
                return Update(memory, failed_items=(item,))
            notes = list(memory.notes)
            turn_ids = tuple(turn.id for turn in item.turns)
            for sentence in extraction:
                note_id = f"n{len(notes) + 1}"
                notes.append(Entry(id=note_id, text=sentence, sources=turn_ids, time=item.time))
            return Update(memory.replace(notes=tuple(notes)))

Nobody calls the hooks of a writer directly. `programs/writing.py` does, in this order:

    extract(item)                      of all items of a history, at the same time
    update(memory, item, extraction)   item by item, oldest first
    finalize(memory)                   once, before questions are asked

| attribute or hook                  | required? | returns, and the default                     |
|------------------------------------|-----------|----------------------------------------------|
| `Memory`                           | yes       | a subclass of `Memory`; fields have defaults |
| `update(memory, item, extraction)` | yes       | an `Update`: a new memory, and what failed   |
| `extract(item)`                    | no        | what `update` understands; no extraction     |
| `finalize(memory)`                 | no        | an `Update`; of the memory itself            |
| `update_with_part(memory, part)`   | no        | an `Update`; as for any other item           |
| `recent_mode`                      | no        | what becomes of later items; "written"       |
| `shows_entries`                    | no        | whether prompts show entries; False          |
| `longest_text`                     | no        | most characters of an answer; 4000           |

What every writer promises (`mempiler.testing.check_method` checks it):

- No hook changes its arguments. Caches, rollouts and threads share memories.
- The same items and model answers give the same memory: ids are counted, nothing is drawn.
- Finalizing a finalized memory gives an equal memory.
- Turns that cannot be written are reported in `Update.failed_items`. They then stand beside the
  memory, are searched as raw turns, and are tried again in halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, cast

from typing_extensions import TypeVar

from ..errors import UserError
from ..memory.memory import Memory
from ..records import Item
from ._component import Component
from ._relative_dates import resolve_item_dates

MemoryT = TypeVar("MemoryT", bound=Memory)
"""What one method keeps for one user."""

ExtractionT = TypeVar("ExtractionT", default=Any)
"""What `extract` returns for one item; a writer without `extract` need not name it."""

RecentItems = Literal["written", "searched", "left out"]
"""What becomes of items between a history and a question about it, see `Writer.recent_mode`."""


@dataclass(frozen=True)
class ExtractionFailed:
    """What `extract` returns for turns that could not be read; `update` then reports them."""

    turns: frozenset[str] | None = None
    """Ids of the turns; None stands for all turns of the item."""


@dataclass(frozen=True)
class Update(Generic[MemoryT]):
    """What writing an item gives: the next memory, and what is not in it.

    A writer that could not write some turns names them by a part of their item:

        Update(memory, failed_items=(item.select_turns(["D1:3", "D1:4"]),))
    """

    memory: MemoryT
    failed_items: tuple[Item, ...] = ()
    """Items, or parts of items, that are not in the memory because no answer could be read.

    They may be of earlier sessions too: some writers wait for several before they write one.
    """


class Writer(Component, Generic[MemoryT, ExtractionT]):
    """Write the items of a history into a memory; see the module's docstring for the contract."""

    Memory: type[MemoryT]
    """The class of the memories that are written; `Memory()` is the empty one."""
    longest_text = 4000
    recent_mode: RecentItems = "written"
    """What becomes of items that came after the history, where a task `remembers_recent`.

    They are written into the memory, searched beside it as raw turns, or left out.
    """
    shows_entries: bool = False
    """Whether prompts show entries of the memory, in the form that their user left them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "Memory" in vars(cls):
            _check_memory_class(cls.__name__, vars(cls)["Memory"])

    def extract(self, item: Item) -> ExtractionT:
        """Return what can be read from an item without the memory; `update` receives it."""
        # The type of the result is that of a subclass. Without one there is no extraction.
        return cast("ExtractionT", None)

    def update(self, memory: MemoryT, item: Item, extraction: ExtractionT) -> Update[MemoryT]:
        """Return a new memory with one more item in it, and what could not be written.

        Every writer overrides this hook.

        Args:
            memory: The memory so far; it must not be changed.
            item: The next item, as `preprocess` returned it.
            extraction: What `extract` returned for the item; None for a writer without `extract`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update(memory, item, extraction)")

    def finalize(self, memory: MemoryT) -> Update[MemoryT]:
        """Return the memory that questions are asked of; called at the end of a history."""
        return Update(memory)

    def update_with_part(self, memory: MemoryT, part: Item) -> Update[MemoryT]:
        """Return a new memory with a part of an item that could not be written as a whole.

        By default, the part is written as any other item.
        """
        extraction: Any = self.extract(part) if self.needs_extraction else None
        return self.update(memory, part, extraction)

    def preprocess(self, item: Item) -> Item:
        """Return an item as `extract` and `update` receive it.

        Relative dates have the date beside them if prompts show it: "yesterday [7 May 2023]".
        """
        if self.shows_resolved_dates:
            return resolve_item_dates(item)
        return item

    @property
    def config(self) -> dict[str, Any]:
        """The settings by name, which are part of the key of the writer's memories.

        "dates" is among them if prompts show dates beside relative dates, which changes memories.
        """
        settings = super().config
        if self.shows_resolved_dates:
            settings["dates"] = True
        return settings

    @property
    def shows_resolved_dates(self) -> bool:
        """Whether prompts show the date beside each relative date: "yesterday [7 May 2023]"."""
        return self.resolve_dates and self.calls_model

    @property
    def needs_extraction(self) -> bool:
        """Whether `extract` does anything."""
        return type(self).extract is not Writer.extract

    @property
    def needs_finalizing(self) -> bool:
        """Whether `finalize` does anything."""
        return type(self).finalize is not Writer.finalize

    @cached_property
    def calls_model(self) -> bool:
        """Whether writing calls a language model, or a system outside this process."""
        return bool(self.predictors_below())


def _check_memory_class(writer: str, memory_class: Any) -> None:
    """Raise a UserError if a class cannot be the `Memory` of a writer.

    Args:
        writer: The name of the writer's class, for errors.
        memory_class: What the user has set as `Memory`. It has to be a frozen subclass of `Memory`,
            and every field needs a default, since `Memory()` is the empty memory.
    """
    if not (isinstance(memory_class, type) and issubclass(memory_class, Memory)):
        raise UserError(f"{writer}: Memory = {memory_class!r} is no subclass of mempiler.Memory")

    name = memory_class.__name__
    if not memory_class.model_config.get("frozen"):
        raise UserError(
            f"{writer}: {name} is not frozen; a memory never changes, it has a successor"
        )

    fields = memory_class.model_fields.items()
    required = [field_name for field_name, field in fields if field.is_required()]
    if required:
        raise UserError(f"{writer}: {name} needs {', '.join(required)}; give every field a default")

"""What `check_method` finds: a method that keeps its promises, and one broken promise at a time."""

import itertools
import uuid
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from mempiler import Item
from mempiler.errors import UserError
from mempiler.memory.index import Entry
from mempiler.memory.memory import Memory
from mempiler.programs.method import EntryReader, Method, Writer
from mempiler.programs.predictor import predictor
from mempiler.records import Context, Hit, Query
from mempiler.testing import check_method
from pydantic import Field

NOTE = dspy.Signature("dialogue: str -> note: str", "Write down what is worth keeping.")
CHOOSE = dspy.Signature("question: str -> wanted: str", "Say what to look for.")
SET = object.__setattr__


class Notes(Memory):
    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class NoteWriter(Writer):
    """One entry per item: its lines, and a note of the model."""

    Memory: Any = Notes

    def __init__(self) -> None:
        super().__init__()
        self.take = predictor(NOTE)

    def prepare(self, item: Item) -> Any:
        return self.attempt(self.take, dialogue="\n".join(item.lines()))

    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        note = self.prepare(item) if prepared is None else prepared
        return type(memory)(notes=(*memory.notes, self.entry(memory, item, note.note if note else "")))

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        text = "\n".join([*item.lines(), note])
        return Entry(id=f"n{len(memory.notes) + 1}", text=text, sources=tuple(turn.id for turn in item.turns))


class ChoosingReader(EntryReader):
    """Looks for what the model says."""

    def __init__(self) -> None:
        super().__init__(5)
        self.choose = predictor(CHOOSE)

    def recall(self, memory: Any, query: Query) -> Context:
        chosen = self.attempt(self.choose, question=query.text)
        return super().recall(memory, Query(text=chosen.wanted if chosen else query.text))


def test_a_method_that_keeps_its_promises_passes() -> None:
    check_method(Method(NoteWriter(), ChoosingReader()))


def writing(spoil: Callable[[Any, Item, Any], None]) -> type[NoteWriter]:
    """A writer that does something to the memory before, the item, or the memory after."""

    class Writes(NoteWriter):
        def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
            after = super().write(memory, item, prepared)
            spoil(memory, item, after)
            return after

    return Writes


def entering(change: Callable[[Entry], dict[str, Any]]) -> type[NoteWriter]:
    """A writer that changes its entries."""

    class Enters(NoteWriter):
        def entry(self, memory: Any, item: Item, note: str) -> Entry:
            entry = super().entry(memory, item, note)
            return entry.model_copy(update=change(entry))

    return Enters


class SettlesAgain(NoteWriter):
    def settle(self, memory: Any) -> Any:
        return Notes(notes=(*memory.notes, Entry(id=f"end{len(memory.notes)}", text="the end")))


class Unstored(NoteWriter):
    """Keeps what has no JSON form."""

    class Memory(Notes):
        notes: tuple[Entry, ...] = Field(default=(), exclude=True)


class HidesPrompt(NoteWriter):
    """Calls a predictor that is not below it."""

    def __init__(self) -> None:
        super().__init__()
        hidden = predictor(CHOOSE)
        self.ask: Any = lambda question: hidden(question=question)

    def prepare(self, item: Item) -> Any:
        self.attempt(self.ask, question=item.id)
        return super().prepare(item)


class Loses(NoteWriter):
    """Writes nothing where the model's answer cannot be read, and does not say so."""

    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        note = self.prepare(item) if prepared is None else prepared
        return super().write(memory, item, note) if note else memory


def finding(change: Callable[[Any, list[list[Hit]]], list[list[Hit]]]) -> type[EntryReader]:
    """A reader that changes what it finds."""

    class Finds(ChoosingReader):
        def search(self, *args: Any, **options: Any) -> list[list[Hit]]:
            return change(self, super().search(*args, **options))

    return Finds


def asking(reader: Any, found: list[list[Hit]]) -> list[list[Hit]]:
    reader.choose(question="What?")
    return found


def named_itself(_: Any, found: list[list[Hit]]) -> list[list[Hit]]:
    return [[hit.model_copy(update={"sources": (hit.id,)}) for hit in hits] for hits in found]


class RecallsOnce(EntryReader):
    """Takes what it recalled out of the memory."""

    def recall(self, memory: Any, query: Query) -> Context:
        context = super().recall(memory, query)
        SET(memory, "notes", memory.notes[:-1])
        return context


COUNTS = itertools.count()
counted = entering(lambda entry: {"text": f"{entry.text} {next(COUNTS)}"})
WRITERS = [
    (writing(lambda before, _, after: SET(before, "notes", after.notes)), "write changes the memory it is given"),
    (writing(lambda _, item, after: SET(item, "id", f"{item.id}!")), "write changes the item P"),
    (entering(lambda _: {"id": uuid.uuid4().hex}), "the same history gives another memory the second time; count ids"),
    (counted, "items one by one give another memory than all at once; prepare and write must depend"),
    (SettlesAgain, "settling twice is not settling once"),
    (entering(lambda _: {"sources": ("session 1",)}), "the memory names sources that are no turns of the history"),
    (Unstored, "the memory read back from its JSON is not the same; every field must have a JSON form"),
    (HidesPrompt, "writing asks prompts that do not lie below the writer; their changes would leave stale memories"),
    (Loses, "turns are lost where no answer can be read: P:1, L1:1"),
]
READERS = [
    (finding(asking), "search calls the model; only recall may"),
    (finding(lambda _, found: found[:1] * len(found)), "a batch of queries finds something else than"),
    (finding(lambda _, found: [hits[::-1] for hits in found]), "search for k=3 is not the head of search for k=10"),
    (finding(named_itself), "hits rest on sources that are no turns of the history: n1"),
    (RecallsOnce, "recall changes the memory"),
]


@pytest.mark.parametrize(
    ("writer", "reader", "line"),
    [(one, EntryReader, line) for one, line in WRITERS] + [(NoteWriter, one, line) for one, line in READERS],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)
def test_a_broken_promise_is_named(writer: Callable[[], Writer], reader: Callable[[], EntryReader], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_method(Method(writer(), reader()))
    assert line in str(caught.value)

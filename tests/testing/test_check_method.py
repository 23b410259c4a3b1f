"""What `check_method` finds: a method that keeps its promises, and one broken promise at a time."""

import uuid
from collections.abc import Callable, Sequence
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
from pydantic import Field, PrivateAttr


class Note(dspy.Signature):
    """Write down what is worth keeping."""

    dialogue: str = dspy.InputField()
    note: str = dspy.OutputField()


class Choose(dspy.Signature):
    """Say what to look for."""

    question: str = dspy.InputField()
    wanted: str = dspy.OutputField()


class Notes(Memory):
    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class NoteWriter(Writer):
    """One entry per item: its lines, and a note of the model."""

    Memory: Any = Notes

    def __init__(self) -> None:
        super().__init__()
        self.take = predictor(Note)

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
        self.choose = predictor(Choose)

    def recall(self, memory: Any, query: Query) -> Context:
        chosen = self.attempt(self.choose, question=query.text)
        return super().recall(memory, Query(text=chosen.wanted if chosen else query.text))


def test_a_method_that_keeps_its_promises_passes() -> None:
    check_method(Method(NoteWriter(), ChoosingReader()))


class ChangesMemory(NoteWriter):
    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        after = super().write(memory, item, prepared)
        object.__setattr__(memory, "notes", after.notes)
        return after


class ChangesItem(NoteWriter):
    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        after = super().write(memory, item, prepared)
        object.__setattr__(item, "id", f"{item.id}!")
        return after


class DrawsIds(NoteWriter):
    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        return super().entry(memory, item, note).model_copy(update={"id": uuid.uuid4().hex})


class Counts(NoteWriter):
    """Its entries depend on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        self.calls += 1
        return super().entry(memory, item, f"{note} {self.calls}")


class SettlesAgain(NoteWriter):
    def settle(self, memory: Any) -> Any:
        return Notes(notes=(*memory.notes, Entry(id=f"end{len(memory.notes)}", text="the end")))


class NamesStrangers(NoteWriter):
    def entry(self, memory: Any, item: Item, note: str) -> Entry:
        return super().entry(memory, item, note).model_copy(update={"sources": ("session 1",)})


class Unstored(Notes):
    """Keeps what has no JSON form."""

    notes: tuple[Entry, ...] = Field(default=(), exclude=True)


class Forgets(NoteWriter):
    Memory = Unstored


class HidesPrompt(NoteWriter):
    """Calls a predictor that is not below it."""

    def __init__(self) -> None:
        super().__init__()
        hidden = predictor(Choose)
        self.ask: Callable[..., Any] = lambda question: hidden(question=question)

    def prepare(self, item: Item) -> Any:
        self.attempt(self.ask, question=item.id)
        return super().prepare(item)


class Loses(NoteWriter):
    """Writes nothing where the model's answer cannot be read, and does not say so."""

    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        note = self.prepare(item) if prepared is None else prepared
        return super().write(memory, item, note) if note else memory


class AsksInSearch(ChoosingReader):
    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        for query in queries:
            self.choose(question=query)
        return super().search(memory, queries, k, min_score)


class SearchesFirst(EntryReader):
    """Finds for every query of a batch what it finds for the first."""

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return super().search(memory, queries[:1], k, min_score) * len(queries)


class TurnsRound(EntryReader):
    """Gives the worst of its hits first."""

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        return [hits[::-1] for hits in super().search(memory, queries, k, min_score)]


class NamesItself(EntryReader):
    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> list[list[Hit]]:
        found = super().search(memory, queries, k, min_score)
        return [[hit.model_copy(update={"sources": (hit.id,)}) for hit in hits] for hits in found]


class RecallsOnce(EntryReader):
    """Takes what it recalled out of the memory."""

    def recall(self, memory: Any, query: Query) -> Context:
        context = super().recall(memory, query)
        object.__setattr__(memory, "notes", memory.notes[:-1])
        return context


class Kept(Notes):
    """Remembers beside its fields how it was made."""

    _fresh: bool = PrivateAttr(default=False)

    def entries(self) -> tuple[Entry, ...]:
        return self.notes if self._fresh else ()


class KeepsBeside(NoteWriter):
    Memory = Kept

    def write(self, memory: Any, item: Item, prepared: Any = None) -> Any:
        after = super().write(memory, item, prepared)
        after._fresh = True
        return after


@pytest.mark.parametrize(
    ("writer", "reader", "line"),
    [
        (ChangesMemory, EntryReader, "write changes the memory it is given (at item P); return a changed copy"),
        (ChangesItem, EntryReader, "write changes the item P"),
        (DrawsIds, EntryReader, "the same history gives another memory the second time; count ids, draw nothing"),
        (Counts, EntryReader, "items one by one give another memory than all at once; prepare and write must depend"),
        (SettlesAgain, EntryReader, "settling twice is not settling once"),
        (NamesStrangers, EntryReader, "the memory names sources that are no turns of the history: session 1"),
        (Forgets, EntryReader, "the memory read back from its JSON is not the same; every field must have a JSON"),
        (KeepsBeside, EntryReader, "the memory read back from its JSON is not the same; every field must have a JSON"),
        (HidesPrompt, EntryReader, "writing asks prompts that do not lie below the writer; their changes would leave"),
        (Loses, EntryReader, "turns are lost where no answer can be read: D1:1, D1:2"),
        (NoteWriter, AsksInSearch, "search calls the model; only recall may"),
        (NoteWriter, SearchesFirst, "a batch of queries finds something else than the queries one by one"),
        (NoteWriter, TurnsRound, "search for k=3 is not the head of search for k=10"),
        (NoteWriter, NamesItself, "hits rest on sources that are no turns of the history: n1"),
        (NoteWriter, RecallsOnce, "recall changes the memory"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_promise_is_named(writer: Callable[[], Writer], reader: Callable[[], EntryReader], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_method(Method(writer(), reader()))
    assert line in str(caught.value)

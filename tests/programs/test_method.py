"""A method of one's own: its two halves, what is refused of them in one line, and modules of DSPy's inside them."""

from collections.abc import Callable
from typing import Any

import dspy
import pytest
from mempiler import Entry, EntryReader, Item, Memory, MemoryProgram, Method, UserError, Writer, build, predictor
from mempiler.engines.embedders import embedder
from mempiler.memory.memory import TurnMemory
from mempiler.programs.catalog import method_class, preset
from mempiler.programs.predictor import Predictor
from mempiler.programs.tasks.task import QuestionAnswering
from pydantic import ConfigDict, create_model


class Note(dspy.Signature):
    """Write down what is worth keeping."""

    dialogue: str = dspy.InputField()
    note: str = dspy.OutputField()


class Notes(Memory):
    notes: tuple[Entry, ...] = ()

    def entries(self) -> tuple[Entry, ...]:
        return self.notes


class NoteWriter(Writer):
    Memory = Notes

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.ChainOfThought(Note)

    def prepare(self, item: Item) -> Any:
        return self.attempt(self.think, dialogue="\n".join(item.lines()))

    def write(self, memory: Notes, item: Item, prepared: Any = None) -> Notes:
        text = prepared.note if prepared else "?"
        entry = Entry(id=f"n{len(memory.notes) + 1}", text=text, sources=tuple(turn.id for turn in item.turns))
        return Notes(notes=(*memory.notes, entry))


class KeepTurns(Writer):
    Memory = TurnMemory

    def write(self, memory: TurnMemory, item: Item, prepared: Any = None) -> TurnMemory:
        return memory.with_session(item)


class Unsaid(Writer):
    """Names no memory."""


def asking(*places: str) -> Method:
    """A method with one prompt at some places in it."""
    method, ask = Method(KeepTurns(), EntryReader()), predictor(Note)
    for place in places:
        getattr(method, place, method).ask = ask
    return method


HALVES, ALONE = "give super().__init__ a writer and a reader", "a predictor is below the half that calls it, alone"


def halfless() -> Method:
    method = Method(KeepTurns(), EntryReader())
    del method.reader
    return method


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (halfless, f"self.reader is no Reader; {HALVES}"),
        (
            lambda: Method(EntryReader(), EntryReader()),  # pyright: ignore[reportArgumentType]
            f"self.writer is no Writer; {HALVES}",
        ),
        (lambda: Method(Unsaid(), EntryReader()), "names no Memory; set Memory to the class of what it writes"),
        (lambda: asking("method"), f"ask is below neither writer nor reader; {ALONE}"),
        (lambda: asking("writer", "reader"), f"writer.ask is below writer and reader; {ALONE}"),
    ],
    ids=["no reader", "two readers", "no memory", "below neither", "below both"],
)
def test_a_method_put_together_wrongly_is_refused_in_one_line(make: Callable[[], Method], message: str) -> None:
    with pytest.raises(UserError) as caught:
        MemoryProgram(make(), QuestionAnswering())
    assert str(caught.value).partition(": ")[2] == message


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (Notes(), "Mine: Memory = Notes(unwritten=(), notes=()) is no subclass of mempiler.Memory"),
        (
            type("Thawed", (Memory,), {"model_config": ConfigDict(frozen=False)}),
            "Mine: Thawed is not frozen; a memory never changes, it has a successor",
        ),
        (create_model("Needy", __base__=Memory, age=(int, ...)), "Mine: Needy needs age; give every field a default"),
    ],
    ids=["an object", "not frozen", "not of nobody"],
)
def test_a_memory_that_cannot_be_one_is_refused_when_the_class_is_made(memory: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        type("Mine", (Writer,), {"Memory": memory})
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "kind"), [("logs+turn-rag", "WithLogs"), ("pgr+logs+turn-rag", "PGROver")])
def test_a_policy_takes_the_embedder_of_the_method_beneath(name: str, kind: str) -> None:
    assert method_class(name).__name__ == kind
    assert build(name, embedder=embedder()).method.embedder is None
    vectors = embedder()
    assert build(name.replace("turn-rag", "memory-r2"), embedder=vectors).method.embedder is vectors


SMALL = {"chunk_turns": 1, "related": 2, "earlier": False, "same_speaker": False}


@pytest.mark.parametrize(
    ("name", "benchmark", "settings"),
    [
        ("turn-rag", "locomo", {"task.dates": True}),
        ("pgr+turn-rag", "locomo", {}),
        ("pgr+logs+turn-rag", "palbench.select", {"inner_inner_k": 3, "inner_inner_hybrid": False}),
        ("pgr+memory-r2", "memory-env", {f"inner_{name}": value for name, value in SMALL.items()}),
    ],
)
def test_a_preset_suits_a_method_for_a_benchmark(name: str, benchmark: str, settings: dict[str, Any]) -> None:
    assert preset(name, benchmark) == settings
    assert settings.items() <= build(name, embedder=embedder(), **settings).config.items()


@pytest.fixture
def notes() -> MemoryProgram:
    """A program whose writer thinks step by step."""
    return MemoryProgram(Method(NoteWriter(), EntryReader(k=2)), QuestionAnswering())


def test_a_module_of_dspys_inside_a_writer_is_adopted(notes: MemoryProgram) -> None:
    assert set(notes.all_predictors()) == {"method.writer.think.predict", "task.answer"}
    assert notes.writer_names() == {"method.writer.think.predict"}
    assert all(isinstance(one, Predictor) for one in notes.all_predictors().values())
    again = MemoryProgram(Method(NoteWriter(), EntryReader()), QuestionAnswering()).all_predictors()
    assert all(again[name].signature is not one.signature for name, one in notes.all_predictors().items())

"""Methods and programs of one's own: halves, settings, stages, copies, promises, and what is refused in one line."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, cast

import dspy
import pytest
from mempiler import (
    Entry,
    EntryReader,
    History,
    Item,
    Memory,
    MemoryProgram,
    Method,
    Session,
    Settings,
    Turn,
    Update,
    UserError,
    Writer,
    build,
    predictor,
)
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.memory.memory import TurnMemory
from mempiler.programs.catalog import method_class, preset
from mempiler.programs.names import METHODS
from mempiler.programs.predictor import Predictor
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.signatures.answering import AnswerFromContext
from mempiler.testing import check_method
from pydantic import ConfigDict, create_model

from tests.test_testing import NOTE, Notes


class NoteWriter(Writer):
    Memory = Notes

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.ChainOfThought(NOTE)

    def extract(self, item: Item) -> Any:
        return self.try_call(self.think, dialogue="\n".join(item.lines()))

    def update(self, memory: Notes, item: Item, extraction: Any) -> Update[Notes]:
        text = extraction.note if extraction else "?"
        entry = Entry(
            id=f"n{len(memory.notes) + 1}", text=text, sources=tuple(turn.id for turn in item.turns)
        )
        return Update(Notes(notes=(*memory.notes, entry)))


class KeepTurns(Writer):
    Memory = TurnMemory

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        return Update(memory.with_session(item))


class Unsaid(Writer):
    """Names no memory."""


def asking(*places: str) -> Method:
    """A method with one prompt at some places in it."""
    method, ask = Method(KeepTurns(), EntryReader()), predictor(NOTE)
    for place in places:
        getattr(method, place, method).call_predictor = ask
    return method


HALVES, UNUSED = "give super().__init__ a writer and a reader", "nothing calls it here"
ALONE = "a predictor is below the half that calls it, alone"


def halfless() -> Method:
    method = Method(KeepTurns(), EntryReader())
    del method.reader
    return method


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (halfless, f"self.reader is no Reader; {HALVES}"),
        (
            lambda: Method(cast(Any, EntryReader()), EntryReader()),
            f"self.writer is no Writer; {HALVES}",
        ),
        (
            lambda: Method(Unsaid(), EntryReader()),
            "names no Memory; set Memory to the class of what it writes",
        ),
        (
            lambda: type("S", (Method,), {"search": 0})(KeepTurns(), EntryReader()),
            f"search is the reader's; {UNUSED}",
        ),
        (lambda: asking("method"), f"call_predictor is below neither writer nor reader; {ALONE}"),
        (
            lambda: asking("writer", "reader"),
            f"writer.call_predictor is below writer and reader; {ALONE}",
        ),
    ],
    ids=[
        "no reader",
        "two readers",
        "no memory",
        "search of a method",
        "below neither",
        "below both",
    ],
)
def test_a_method_put_together_wrongly_is_refused_in_one_line(
    make: Callable[[], Method], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        MemoryProgram(make(), QuestionAnswering())
    assert str(caught.value).partition(": ")[2] == message


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (
            Notes(),
            "Mine: Memory = Notes(failed_items=(), notes=()) is no subclass of mempiler.Memory",
        ),
        (
            type("Thawed", (Memory,), {"model_config": ConfigDict(frozen=False)}),
            "Mine: Thawed is not frozen; a memory never changes, it has a successor",
        ),
        (
            create_model("Needy", __base__=Memory, age=(int, ...)),
            "Mine: Needy needs age; give every field a default",
        ),
    ],
    ids=["an object", "not frozen", "not of nobody"],
)
def test_a_memory_that_cannot_be_one_is_refused_when_the_class_is_made(
    memory: Any, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        type("Mine", (Writer,), {"Memory": memory})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "kind"), [("logs+turn-rag", "WithLogs"), ("pgr+logs+turn-rag", "PGROver")]
)
def test_a_policy_takes_the_embedder_of_the_method_beneath(name: str, kind: str) -> None:
    assert method_class(name).__name__ == kind
    assert build(name, embedder=embedder()).method.embedder is None
    vectors = embedder()
    assert build(name.replace("turn-rag", "memory-r2"), embedder=vectors).method.embedder is vectors


class PageSettings(Settings):
    k: int = 3


class Paged(Method):
    """A method whose settings are kept."""

    Settings: ClassVar = PageSettings

    def __init__(self, settings: PageSettings | None = None) -> None:
        settings = settings or PageSettings()
        super().__init__(KeepTurns(), EntryReader(settings.k), settings=settings)


class TakesANumber(Method):
    def __init__(self, k: int = 10) -> None:
        super().__init__(KeepTurns(), EntryReader(k))


class TakesAnything(Method):
    def __init__(self, **more: Any) -> None:
        super().__init__(KeepTurns(), EntryReader())


class HidesItsEmbedder(Method):
    def __init__(self, embedder: Any = None) -> None:
        super().__init__(KeepTurns(), EntryReader(embedder=embedder), embedder)


class LosesItsSettings(Paged):
    def __init__(self, settings: PageSettings | None = None) -> None:
        Method.__init__(self, KeepTurns(), EntryReader())


class NamesNoClass(Method):
    def __init__(self, settings: PageSettings | None = None) -> None:
        super().__init__(KeepTurns(), EntryReader(), settings=settings or PageSettings())


class CutsTurns(KeepTurns):
    def __init__(self, max_words=300) -> None:
        super().__init__()


class LosesANumber(Method):
    def __init__(self) -> None:
        super().__init__(CutsTurns(20), EntryReader())


def test_a_custom_method_is_built_with_its_settings() -> None:
    assert build(f"{__name__}:Paged", k=5).method.config == {"k": 5}
    assert Paged().config == {"k": 3}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            TakesANumber,
            "the constructor takes k; make k a field of its Settings class and take `settings` alone",
        ),
        (TakesAnything, "the constructor takes more; make more a field of its Settings class"),
        (
            HidesItsEmbedder,
            'the constructor takes embedder; set embedder_use = "optional" or "required"',
        ),
        (LosesItsSettings, "give its settings to super().__init__, as settings=settings"),
        (NamesNoClass, "names no class of its settings; set Settings = PageSettings"),
        (
            LosesANumber,
            "the constructor takes max_words, which no settings hold; make max_words a field",
        ),
    ],
)
def test_a_constructor_whose_settings_would_be_lost_is_refused(
    kind: type[Method], message: str
) -> None:
    for make in (
        lambda: build(f"{__name__}:{kind.__name__}"),
        lambda: MemoryProgram(kind(), QuestionAnswering()),
    ):  # pyright: ignore[reportCallIssue]
        with pytest.raises(UserError) as caught:
            make()
        assert str(caught.value).partition(": ")[2].startswith(message)


SMALL = {"chunk_turns": 1, "related": 2, "earlier": False, "same_speaker": False}


@pytest.mark.parametrize(
    ("name", "benchmark", "settings"),
    [
        ("turn-rag", "palbench.select", {"k": 3, "hybrid": False}),
        ("turn-rag", "locomo", {}),
        ("pgr+turn-rag", "locomo", {}),
        ("pgr+logs+turn-rag", "palbench.select", {"inner_inner_k": 3, "inner_inner_hybrid": False}),
        ("pgr+memory-r2", "memory-env", {f"inner_{name}": value for name, value in SMALL.items()}),
    ],
)
def test_a_preset_suits_a_method_for_a_benchmark(
    name: str, benchmark: str, settings: dict[str, Any]
) -> None:
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
    assert all(
        again[name].signature is not one.signature for name, one in notes.all_predictors().items()
    )


def test_a_frozen_writer_writes_under_the_lm_of_the_stage(scripted, fact_replies, make_history):
    lm, program = scripted(fact_replies), build("memory-r2", embedder=embedder())
    with dspy.context(lm=lm):
        student = program.staged("read")
        student.remember(make_history(1))
        with dspy.context(lm=lm.copy(rollout_id=5, temperature=1.0)):
            student.remember(make_history(1))
    assert lm.engine.calls["operations"] == 3


def test_two_predictors_with_equal_signatures_are_refused():
    class Twice(QuestionAnswering):
        def __init__(self):
            super().__init__()
            self.again = predictor(AnswerFromContext)

    method = build("turn-rag").method
    with pytest.raises(UserError, match=r"task\.answer and task\.again have equal signatures"):
        MemoryProgram(method, Twice())


@pytest.mark.parametrize("name", [*METHODS, "pgr+turn-rag", "pgr+memory-r2", "logs+memory-bank"])
def test_every_method_keeps_the_promises_of_one(name):
    quicker = {"pramem": {"rounds": 5}, "h2memory": {"clusters": 1}}.get(name, {})
    if name == "pramem":
        # Practice on records whose answers cannot be read is over and counted: they are not practised on again.
        with pytest.raises(
            UserError, match="breaks 1 of its promises: turns are lost where no answer can be read"
        ):
            check_method(name, **quicker)
    else:
        check_method(name, **quicker)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("turn-rag", {"kk": 3}, "'turn-rag' has no setting 'kk'"),
        (
            "pgr+turn-rag",
            {"inner_k": "many"},
            "k = 'many': input should be a valid integer .turns recalled per query; default 10",
        ),
        (
            "memory-r2",
            {"parts": 0},
            "parts = 0: input should be greater than or equal to 1 .how many parts",
        ),
        ("memory-bank", {"days": float("nan")}, "days"),
        (
            "logs+turn-rag",
            {"earlier": "all"},
            "earlier = 'all': input should be 'search', 'summary' or 'none'",
        ),
        ("pramem", {"start": "empty"}, "'pramem' has no setting 'start'"),
        ("pramem", {"patterns": False, "alerts": False}, "patterns and alerts are all off"),
        ("rgmem", {"use_l0": False, "use_l1": False}, "use_l0 and use_l1 are all off"),
        (
            "h2memory",
            {f"use_{part}": False for part in ("situations", "background", "topics", "principles")},
            "all off",
        ),
        ("pgr", {"kk": 1}, "'pgr' has no setting 'kk'; it has: every=3"),
        (
            "turn-rag",
            {"task.reasons": True},
            "task 'question-answering' has no setting 'reasons'; it has: reasoning=",
        ),
        (
            "turn-rag",
            {"task.abstain": 2},
            "task 'question-answering': abstain = 2: input should be a valid boolean",
        ),
    ],
)
def test_settings_without_sense_are_one_line(name, settings, message):
    with pytest.raises(UserError, match=message):
        build(name, embedder=embedder(), **settings)


SAID = [
    [
        {"role": "user", "name": "Ada", "content": "I moved to Lisbon with my dog Rex."},
        {"role": "user", "name": "Bob", "content": "How nice! Do you like the hills?"},
    ],
    [{"role": "user", "name": "Ada", "content": "I bought light running shoes."}],
]


def test_a_history_may_be_plain_json_and_a_program_awaited():
    program, questions = build("turn-rag"), ("Where did Ada move?", "What did Ada buy?")

    async def ask():
        return await asyncio.gather(
            *(program.acall(SAID, question=question) for question in questions)
        )

    with dspy.context(lm=language_model("offline")):
        answers = [found.answer for found in asyncio.run(ask())]
        found = [program(history=SAID, question=question) for question in questions]
        assert found[0].memory == program.remember(History.parse(SAID)).memory
    assert answers == [one.answer for one in found]
    assert "Lisbon" in answers[0]


def test_a_turn_without_a_time_has_that_of_its_session() -> None:
    session_time = datetime(2024, 3, 1)
    turn_time = datetime(2024, 3, 2)
    turns = (
        Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),
        Turn(id="D1:2", speaker="Ada", text="It rains.", time=turn_time),
    )
    history = History(id="ada", items=(Session(id="D1", time=session_time, turns=turns),))
    entries = build("turn-rag").remember(history).memory.entries()
    assert [entry.time for entry in entries] == [session_time, turn_time]


def test_a_writer_that_returns_a_memory_is_refused_with_the_hint_to_return_an_update(
    make_history: Any,
) -> None:
    class Bare(KeepTurns):
        def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Any:
            return memory.with_session(item)

    program = MemoryProgram(Method(Bare(), EntryReader()), QuestionAnswering())
    with pytest.raises(UserError) as caught:
        program.remember(make_history(2))
    assert str(caught.value) == (
        "Bare returned a TurnMemory where an Update is expected; return mempiler.Update(memory)"
    )


def test_a_program_takes_an_embedder_by_its_name() -> None:
    program = build("fact-store", embedder="offline")
    assert program.method.embedder.name == "offline"
    with pytest.raises(UserError):
        build("fact-store", embedder="onnx:nowhere")

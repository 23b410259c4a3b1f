"""Methods and programs of a user's own: how they are put together, and what is refused.

A method has a writer, which stores the items of a history in a memory, and a reader, which searches
the memory. A program is a method and a task, such as answering questions. A predictor is one prompt
of a program. All that would go wrong later, perhaps after paid calls, is refused at once.
"""

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
from mempiler.memory.memory import TurnMemory
from mempiler.programs.catalog import preset
from mempiler.programs.names import METHODS
from mempiler.programs.predictor import Predictor
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.signatures.answering import AnswerFromContext
from mempiler.testing import check_method
from pydantic import ConfigDict

# `NOTE` is a signature, "dialogue -> note"; `Notes` is a memory with a field `notes` of entries.
from tests.test_testing import NOTE, Notes


class NoteWriter(Writer):
    """Keeps one note per session, which a model writes after thinking step by step."""

    Memory = Notes

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.ChainOfThought(NOTE)

    def extract(self, item: Item) -> Any:
        return self.try_call(self.think, dialogue="\n".join(item.lines()))

    def update(self, memory: Notes, item: Item, extraction: Any) -> Update[Notes]:
        entry = Entry(
            id=f"n{len(memory.notes) + 1}",
            text=extraction.note if extraction else "?",
            sources=tuple(turn.id for turn in item.turns),
        )
        return Update(Notes(notes=(*memory.notes, entry)))


class TurnWriter(Writer):
    """Keeps every turn as it was said."""

    Memory = TurnMemory

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        return Update(memory.with_session(item))


# A method needs a writer, a reader, and each predictor below exactly one of them


def test_a_method_without_a_reader_is_refused() -> None:
    """The error says where a reader is given: to the constructor of the base class."""
    method = Method(TurnWriter(), EntryReader())
    del method.reader

    with pytest.raises(UserError, match=r"self\.reader is no Reader; give super"):
        MemoryProgram(method, QuestionAnswering())


def test_a_method_with_a_reader_for_a_writer_is_refused() -> None:
    """A method has a writer, which writes a memory, and a reader, which searches it."""
    method = Method(cast(Any, EntryReader()), EntryReader())

    with pytest.raises(UserError, match=r"self\.writer is no Writer; give super"):
        MemoryProgram(method, QuestionAnswering())


def test_a_writer_that_names_no_memory_is_refused() -> None:
    """A writer names the class of its memories; each history begins with an empty one."""

    class WriterWithoutMemory(Writer):
        """Does not set `Memory`."""

    method = Method(WriterWithoutMemory(), EntryReader())

    with pytest.raises(UserError, match="names no Memory; set Memory to the class"):
        MemoryProgram(method, QuestionAnswering())


def test_a_method_that_defines_a_hook_of_its_reader_is_refused() -> None:
    """A hook is a method that Mempiler calls, here one that it calls on readers alone."""

    class SearchingMethod(Method):
        """Defines `search`, which is only called on readers."""

        def search(self) -> None:
            """Search nothing."""

    method = SearchingMethod(TurnWriter(), EntryReader())

    with pytest.raises(UserError, match="search is the reader's; nothing calls it here"):
        MemoryProgram(method, QuestionAnswering())


def test_a_predictor_beside_writer_and_reader_is_refused() -> None:
    """An optimizer tunes prompts that write or prompts that read; this one would be neither."""
    method: Any = Method(TurnWriter(), EntryReader())
    method.ask = predictor(NOTE)

    with pytest.raises(UserError, match="ask is below neither writer nor reader"):
        MemoryProgram(method, QuestionAnswering())


def test_a_predictor_that_writer_and_reader_share_is_refused() -> None:
    """An optimizer that changes how questions are read would change how memories are written."""
    method: Any = Method(TurnWriter(), EntryReader())
    shared_predictor = predictor(NOTE)
    method.writer.ask = shared_predictor
    method.reader.ask = shared_predictor

    with pytest.raises(UserError, match=r"writer\.ask is below writer and reader"):
        MemoryProgram(method, QuestionAnswering())


# The memory that a writer names


def test_a_memory_that_is_an_object_is_refused_when_the_writer_class_is_made() -> None:
    """A writer names the class of its memories, and here an object of that class."""
    with pytest.raises(UserError, match=r"is no subclass of mempiler\.Memory"):

        class WriterOfAnObject(Writer):
            Memory = cast(Any, Notes())


def test_a_memory_that_can_change_is_refused_when_the_writer_class_is_made() -> None:
    """Written memories are cached and shared, so nobody may change one in place."""

    class ThawedMemory(Memory):
        model_config = ConfigDict(frozen=False)

    with pytest.raises(UserError, match="WriterOfThawed: ThawedMemory is not frozen"):

        class WriterOfThawed(Writer):
            Memory = ThawedMemory


def test_a_memory_without_defaults_is_refused_when_the_writer_class_is_made() -> None:
    """A history begins with the empty memory, which is made without arguments."""

    class AgedMemory(Memory):
        age: int

    with pytest.raises(UserError, match="AgedMemory needs age; give every field a default"):

        class WriterOfAged(Writer):
            Memory = AgedMemory


def test_a_writer_that_returns_a_memory_is_told_to_return_an_update(make_history: Any) -> None:
    """An `Update` is a new memory with what else came of an item, such as failures."""

    class BareMemoryWriter(TurnWriter):
        """Forgets to wrap the memory in an `Update`."""

        def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Any:
            return memory.with_session(item)

    program = MemoryProgram(Method(BareMemoryWriter(), EntryReader()), QuestionAnswering())

    with pytest.raises(UserError) as error:
        program.remember(make_history(sessions=2))

    assert "BareMemoryWriter returned a TurnMemory" in str(error.value)
    assert "return mempiler.Update(memory)" in str(error.value)


# Embedders and settings


@pytest.mark.parametrize("policy", ["logs", "pgr+logs"])
def test_a_policy_takes_the_embedder_of_the_method_beneath(policy: str) -> None:
    """A policy searches the memory of the method beneath it, so it compares texts as that does."""
    offline_embedder = embedder()

    # The offline embedder only compares spelling. So turn-rag searches by words, without vectors,
    # but Memory-R2 needs an embedder.
    over_words = build(f"{policy}+turn-rag", embedder=offline_embedder).method
    over_vectors = build(f"{policy}+memory-r2", embedder=offline_embedder).method

    assert over_words.embedder is None
    assert over_vectors.embedder is offline_embedder


def test_a_program_takes_an_embedder_by_its_name() -> None:
    """An embedder turns texts into vectors; "offline" is one that needs no model."""
    program = build("fact-store", embedder="offline")

    assert program.method.embedder.name == "offline"


class PageSettings(Settings):
    k: int = 3


class PagedMethod(Method):
    """Gives its settings to its base class, as it should."""

    Settings: ClassVar = PageSettings

    def __init__(self, settings: PageSettings | None = None) -> None:
        settings = settings or PageSettings()
        super().__init__(TurnWriter(), EntryReader(settings.k), settings=settings)


class TakesANumber(Method):
    """Takes a setting that is no field of a settings class."""

    def __init__(self, k: int = 10) -> None:
        super().__init__(TurnWriter(), EntryReader(k))


class TakesAnything(Method):
    """Takes settings of any name."""

    def __init__(self, **more: Any) -> None:
        super().__init__(TurnWriter(), EntryReader())


class HidesItsEmbedder(Method):
    """Takes an embedder, but does not set `embedder_use`."""

    def __init__(self, embedder: Any = None) -> None:
        super().__init__(TurnWriter(), EntryReader(embedder=embedder), embedder)


class LosesItsSettings(PagedMethod):
    """Does not give its settings to its base class."""

    def __init__(self, settings: PageSettings | None = None) -> None:
        Method.__init__(self, TurnWriter(), EntryReader())


class NamesNoSettingsClass(Method):
    """Gives its settings to its base class, but does not set `Settings`."""

    def __init__(self, settings: PageSettings | None = None) -> None:
        super().__init__(TurnWriter(), EntryReader(), settings=settings or PageSettings())


class WriterWithANumber(TurnWriter):
    """Takes a number that no settings hold."""

    def __init__(self, max_words: int = 300) -> None:
        super().__init__()


class LosesANumber(Method):
    """Sets a number of its writer, which would not be saved."""

    def __init__(self) -> None:
        super().__init__(WriterWithANumber(20), EntryReader())


def test_a_custom_method_is_built_with_its_settings() -> None:
    """A method of a user's is named by its module and class. Its setting `k` is 3 by default."""
    assert build(f"{__name__}:PagedMethod", k=5).method.config == {"k": 5}
    assert PagedMethod().config == {"k": 3}


@pytest.mark.parametrize(
    ("lossy_method", "message"),
    [
        (TakesANumber, "the constructor takes k; make k a field of its Settings class"),
        (TakesAnything, "the constructor takes more; make more a field of its Settings class"),
        (HidesItsEmbedder, 'the constructor takes embedder; set embedder_use = "optional"'),
        (LosesItsSettings, "give its settings to super().__init__, as settings=settings"),
        (NamesNoSettingsClass, "names no class of its settings; set Settings = PageSettings"),
        (LosesANumber, "the constructor takes max_words, which no settings hold"),
    ],
)
def test_a_method_whose_settings_would_be_lost_is_refused(lossy_method: Any, message: str) -> None:
    """A saved program is built again from its settings alone.

    So a method is refused whose constructor takes more than its settings say, or that does not pass
    its settings on. The name of each class says which of these mistakes it makes.
    """
    class_name = lossy_method.__name__

    with pytest.raises(UserError) as build_error:
        build(f"{__name__}:{class_name}")
    with pytest.raises(UserError) as program_error:
        MemoryProgram(lossy_method(), QuestionAnswering())

    assert message in str(build_error.value)
    assert message in str(program_error.value)


@pytest.mark.parametrize(
    ("method", "benchmark", "settings"),
    [
        ("turn-rag", "palbench.select", {"k": 3, "hybrid": False}),
        (
            "pgr+logs+turn-rag",
            "palbench.select",
            {"inner_inner_k": 3, "inner_inner_hybrid": False},
        ),
        (
            "pgr+memory-r2",
            "memory-env",
            {
                "inner_chunk_turns": 1,
                "inner_related": 2,
                "inner_earlier": False,
                "inner_same_speaker": False,
            },
        ),
    ],
)
def test_a_combined_method_has_the_preset_of_the_method_beneath(
    method: str, benchmark: str, settings: dict[str, Any]
) -> None:
    """A preset is a set of settings that suit a benchmark better than the defaults.

    In "pgr+logs+turn-rag" the method turn-rag is beneath two others, so that the names of its
    settings have `inner_` before them twice.
    """
    assert preset(method, benchmark) == settings

    # The method can be built with its preset.
    config = build(method, embedder=embedder(), **settings).config
    assert settings.items() <= config.items()


@pytest.mark.parametrize(
    ("method", "name", "message"),
    [
        ("pgr", "kk", "'pgr' has no setting 'kk'; it has: every=3"),
        (
            "turn-rag",
            "task.reasons",
            "task 'question-answering' has no setting 'reasons'; it has: reasoning=",
        ),
    ],
)
def test_an_unknown_setting_is_refused_with_the_names_that_there_are(
    method: str, name: str, message: str
) -> None:
    with pytest.raises(UserError) as error:
        build(method, embedder=embedder(), **{name: True})

    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "setting", "message"),
    [
        (
            "pgr+turn-rag",
            {"inner_k": "many"},
            "k = 'many': input should be a valid integer (turns recalled per query; default 10",
        ),
        (
            "memory-r2",
            {"parts": 0},
            "parts = 0: input should be greater than or equal to 1 (how many parts",
        ),
        ("memory-bank", {"days": float("nan")}, "days"),
        (
            "logs+turn-rag",
            {"earlier": "all"},
            "earlier = 'all': input should be 'search', 'summary' or 'none'",
        ),
        (
            "turn-rag",
            {"task.abstain": 2},
            "task 'question-answering': abstain = 2: input should be a valid boolean",
        ),
    ],
)
def test_a_wrong_value_of_a_setting_is_refused_with_what_it_may_be(
    method: str, setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        build(method, embedder=embedder(), **setting)

    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "switches"),
    [
        ("pramem", ["patterns", "alerts"]),
        ("rgmem", ["use_l0", "use_l1"]),
        ("h2memory", ["use_situations", "use_background", "use_topics", "use_principles"]),
    ],
)
def test_a_method_that_would_recall_nothing_is_refused(method: str, switches: list[str]) -> None:
    """Each switch leaves one kind of entries out of what is recalled; here all are off."""
    all_off = dict.fromkeys(switches, False)

    with pytest.raises(UserError, match="all off"):
        build(method, embedder=embedder(), **all_off)


# Predictors and language models of a program


def note_program() -> MemoryProgram:
    """Return a program with two predictors: `think` of its writer, and `answer` of its task."""
    return MemoryProgram(Method(NoteWriter(), EntryReader()), QuestionAnswering())


def test_the_predictors_of_a_dspy_module_inside_a_writer_belong_to_the_program() -> None:
    """A predictor is one prompt. Optimizers find those of a program by their paths."""
    program = note_program()

    predictors = program.all_predictors()

    assert set(predictors) == {"method.writer.think.predict", "task.answer"}
    assert program.writer_names() == {"method.writer.think.predict"}
    for program_predictor in predictors.values():
        assert isinstance(program_predictor, Predictor)


def test_two_programs_share_no_signature() -> None:
    """An optimizer changes the instructions of one program; the other must keep its own."""
    predictors = note_program().all_predictors()
    other_predictors = note_program().all_predictors()

    for name in ("method.writer.think.predict", "task.answer"):
        assert predictors[name].signature is not other_predictors[name].signature


def test_two_predictors_with_equal_signatures_are_refused() -> None:
    """Some of DSPy's optimizers tell predictors apart by their signatures alone."""

    class AnswersTwice(QuestionAnswering):
        """Has a second predictor with the signature of the first."""

        def __init__(self) -> None:
            super().__init__()
            self.again = predictor(AnswerFromContext)

    method = build("turn-rag").method

    with pytest.raises(UserError, match=r"task\.answer and task\.again have equal signatures"):
        MemoryProgram(method, AnswersTwice())


def test_an_optimizer_of_reading_prompts_does_not_have_memories_written_again(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """While only reading is tuned, the writer keeps the language model that was set first.

    The stage "read" of a program shows an optimizer only the prompts that read. Optimizers sample
    answers with copies of the model at another temperature. If the writer took such a copy, each
    memory would be written, and paid for, once more.
    """
    lm = scripted(fact_replies)
    history = make_history(sessions=1)
    with dspy.context(lm=lm):
        student = build("memory-r2", embedder=embedder()).staged("read")
        student.remember(history)
    calls_of_writing = lm.engine.calls["operations"]

    with dspy.context(lm=lm.copy(rollout_id=5, temperature=1.0)):
        student.remember(history)

    assert calls_of_writing > 0
    assert lm.engine.calls["operations"] == calls_of_writing


# Promises of methods, and histories

QUICKER_SETTINGS: dict[str, dict[str, Any]] = {"h2memory": {"clusters": 1}}
"""Settings that make the check of a method quicker, by method."""


@pytest.mark.parametrize(
    "method",
    [
        *(method for method in METHODS if method != "pramem"),
        "pgr+turn-rag",
        "pgr+memory-r2",
        "logs+memory-bank",
    ],
)
def test_every_method_keeps_its_promises(method: str) -> None:
    """`check_method` raises an error if a method loses turns or breaks another promise.

    Users check a method of their own with it.
    """
    check_method(method, **QUICKER_SETTINGS.get(method, {}))


def test_pramem_breaks_one_promise_since_records_are_practised_on_once() -> None:
    """Practice on records whose answers cannot be read is counted, but not repeated."""
    with pytest.raises(
        UserError, match="breaks 1 of its promises: turns are lost where no answer can be read"
    ):
        check_method("pramem", rounds=5)


def test_a_turn_without_a_time_takes_the_time_of_its_session() -> None:
    """Here the first turn has no time, and the second was said a day after the session began."""
    session_time = datetime(2024, 3, 1)
    turn_time = datetime(2024, 3, 2)
    turns = (
        Turn(id="D1:1", speaker="Ada", text="I moved to Lisbon."),
        Turn(id="D1:2", speaker="Ada", text="It rains.", time=turn_time),
    )
    history = History(id="ada", items=(Session(id="D1", time=session_time, turns=turns),))

    entries = build("turn-rag").remember(history).memory.entries()

    assert [entry.time for entry in entries] == [session_time, turn_time]

"""Programs as DSPy modules: stages, copies, refusals."""

import copy
import inspect

import dspy
import pytest
from mempiler import History
from mempiler.engines.embedders import embedder
from mempiler.errors import UnknownNameError, UserError
from mempiler.memory.turns import TurnMemory
from mempiler.programs.catalog import build
from mempiler.programs.method import Method, Reader, Writer
from mempiler.programs.names import METHODS
from mempiler.programs.predictor import predictor
from mempiler.programs.program import MemoryProgram
from mempiler.programs.tasks.task import QuestionAnswering
from mempiler.records import Query
from mempiler.signatures.answering import AnswerFromContext

WRITERS = {"method.writer.extract", "method.writer.manage"}


def memory_r2():
    return build("memory-r2", embedder=embedder())


@pytest.mark.parametrize(
    ("stage", "visible"),
    [("all", WRITERS | {"task.answer"}), ("write", WRITERS), ("read", {"task.answer"})],
)
def test_a_stage_shows_optimizers_only_its_predictors(stage, visible):
    student = memory_r2().staged(stage)
    assert {name for name, _ in student.named_predictors()} == visible
    assert set(student.all_predictors()) == WRITERS | {"task.answer"}
    assert {name for name, _ in student.unfrozen().named_predictors()} == WRITERS | {"task.answer"}


def test_a_stage_without_prompts_is_refused():
    with pytest.raises(UserError, match="no prompt to tune in stage 'write'"):
        build("turn-rag").staged("write")


def test_a_frozen_writer_writes_under_the_lm_of_the_stage(scripted, fact_replies, make_history):
    lm, program = scripted(fact_replies), memory_r2()
    with dspy.context(lm=lm):
        student = program.staged("read")
        student.remember(make_history(1))
        with dspy.context(lm=lm.copy(rollout_id=5, temperature=1.0)):
            student.remember(make_history(1))
    assert lm.engine.calls["operations"] == 3


def test_editing_instructions_in_place_stays_in_one_program():
    first, second = memory_r2(), memory_r2()
    twin = copy.deepcopy(first)
    first.method.writer.extract.signature.instructions = "changed"
    others = [program.method.writer.extract.signature.instructions for program in (twin, second)]
    assert "changed" not in others


def test_copies_share_the_cache_and_the_embedder():
    program = memory_r2()
    twin = program.deepcopy()
    assert twin.cache is program.cache
    assert twin.method.embedder is program.method.embedder


def test_two_predictors_with_equal_signatures_are_refused():
    class Twice(QuestionAnswering):
        def __init__(self):
            super().__init__()
            self.again = predictor(AnswerFromContext)

    method = build("turn-rag").method
    with pytest.raises(UserError, match=r"task\.answer and task\.again have equal signatures"):
        MemoryProgram(method, Twice())


@pytest.mark.parametrize("name", METHODS)
def test_every_constructor_argument_is_kept_as_config(name):
    program = build(name, embedder=embedder())
    parameters = set(inspect.signature(type(program.method).__init__).parameters) - {"self", "embedder"}
    assert set(program.method.config) == parameters


@pytest.mark.parametrize("name", METHODS)
def test_every_method_answers_from_an_empty_history(scripted, name):
    lm = scripted(lambda kind, text, n: {"reasoning": "", "answer": "unknown"})
    with dspy.context(lm=lm):
        prediction = build(name, embedder=embedder())(history=History(id="new"), question="Where?")
    assert prediction.answer == "unknown"
    assert prediction.context.hits == ()
    assert len(lm.engine.prompts) == 1


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("turn-rga", UnknownNameError, "did you mean 'turn-rag'"),
        ("nowhere.at_all:Thing", UserError, "cannot be imported"),
        ("json:JSONDecoder", UserError, "is not a subclass"),
    ],
)
def test_wrong_method_names_are_one_line(name, error, message):
    with pytest.raises(error, match=message):
        build(name)


def test_an_unknown_setting_of_a_method_is_refused():
    with pytest.raises(UserError, match="kk"):
        build("turn-rag", kk=3)


def test_recent_items_are_seen_by_the_task_and_not_remembered(scripted, make_history):
    lm, history = scripted(lambda kind, text, n: {"answer": "x"}), make_history(2)
    past = History(id="past", items=history.items[:1])
    with dspy.context(lm=lm):
        prediction = build("turn-rag")(history=past, recent=history.items[1:], question="Who saw Quito?")
    assert "Quito" in lm.engine.prompts[0][1].split("[[ ## question ## ]]")[0]
    assert all(source.startswith("D1:") for source in prediction.context.sources)


def test_full_context_keeps_the_newest_turns_that_fit(make_history):
    program, history = build("full-context", max_tokens=60), make_history(3)
    memory = program.remember(history).memory
    kept = [hit.id for hit in program.method.reader.recall(memory, Query(text="anything")).hits]
    assert kept == [f"D3:{n}" for n in range(7 - len(kept), 7)]
    assert 0 < len(kept) < 6


def test_a_method_of_ones_own_needs_write_and_search_only(make_history):
    class Keep(Writer):
        Memory = TurnMemory

        def write(self, memory, item, prepared=None):
            return memory.with_session(item)

    class Last(Reader):
        def search(self, memory, queries, k=10, min_score=None):
            return [[entry.hit() for entry in memory.entries()[-k:]] for _ in queries]

    program = MemoryProgram(Method(Keep(), Last()), QuestionAnswering())
    context = program.method.reader.recall(program.remember(make_history(2)).memory, Query(text="Where?"))
    assert [hit.id for hit in context.hits][-1] == "D2:6"

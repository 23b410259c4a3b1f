"""Memories are written once: calls counted at the engine, keys of memories, and replayed calls.

To write a memory costs calls of a model, and many questions are asked about one history. So a
program keeps each memory that it wrote in a cache. The key of a memory covers all that the model of
the writer was shown. DSPy's own cache of answers is off, so every call reaches the engine.
"""

import copy
import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import ServerError
from mempiler import History, Memory, Writer, build
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.programs.adapter import adapter
from mempiler.programs.identity import digest, program_digest, rollout, writer_digest, writer_key
from mempiler.programs.single_flight import SingleFlight
from pydantic import create_model


def memory_r2(**settings: Any) -> Any:
    return build("memory-r2", embedder=embedder(), **settings)


def ask(program: Any, history: Any) -> dspy.Prediction:
    return program(history=history, question="Where was Ann?")


def outcomes_in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    """Make a call in several threads at once; return the results, or the errors in their places."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(copy_context().run, call) for _ in range(count)]
        return [future.exception() or future.result() for future in futures]


# A memory is written once. Memory-R2 cuts each session of six turns into three parts, and has two
# calls for each part: "facts" extracts facts, and "operations" changes the memory by them. A
# question is one more call, "reasoning".


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_many_threads_write_one_memory_once(
    scripted: Any, fact_replies: Any, make_history: Any, temperature: float
) -> None:
    """32 questions about one history come at once; one thread writes, and the others wait.

    To write the memory, Memory-R2 asks once for "facts" of the session, and once for "operations"
    on the memory. Each question is a further call, for "reasoning" and an answer. At a temperature
    above zero, writing twice would give two different memories.
    """
    lm = scripted(fact_replies, delay=0.002, temperature=temperature)
    program = memory_r2(parts=1)
    history = make_history(sessions=1)

    with dspy.context(lm=lm):
        outcomes = outcomes_in_threads(32, lambda: ask(program, history))

    for outcome in outcomes:
        assert isinstance(outcome, dspy.Prediction)
    assert lm.engine.calls == {"facts": 1, "operations": 1, "reasoning": 32}


def test_a_longer_history_continues_from_its_longest_prefix(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """A benchmark asks about the first sessions of a history, and then about more of them.

    With `parts=1` a session is written by one call for "operations" on the memory.
    """
    lm = scripted(fact_replies)
    program = memory_r2(parts=1)

    with dspy.context(lm=lm):
        program.remember(make_history(sessions=2))
        program.remember(make_history(sessions=3))
        program.remember(make_history(sessions=1))

    # None of the three sessions was written twice.
    assert lm.engine.calls["operations"] == 3


def test_sessions_that_are_in_no_memory_yet_are_counted(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """An evaluation says before it begins how many sessions have to be written, and paid for."""
    program = memory_r2()
    history = make_history(sessions=3)

    with dspy.context(lm=scripted(fact_replies)):
        missing_at_first = program.count_missing([history])
        program.remember(make_history(sessions=2))
        missing_after_two_sessions = program.count_missing([history])
        program.remember(history)
        missing_at_the_end = program.count_missing([history, make_history(sessions=1)])

    assert missing_at_first == 3
    assert missing_after_two_sessions == 1
    assert missing_at_the_end == 0


def test_a_history_that_was_changed_is_written_anew() -> None:
    """A memory is cached by what its history says, and not by the id of the history."""
    program = build("turn-rag")

    def texts_of_memory(message: str) -> list[str]:
        history = History.parse([{"role": "user", "content": message}], "ann")
        return [entry.text for entry in program.remember(history).memory.entries()]

    assert texts_of_memory("I live in Lisbon.") == ["user: I live in Lisbon."]
    assert texts_of_memory("I live in Porto.") == ["user: I live in Porto."]
    # The memory of the unchanged history is still there.
    assert texts_of_memory("I live in Lisbon.") == ["user: I live in Lisbon."]


def test_a_failing_write_is_tried_once_for_all_that_wait(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """32 questions to a memory that cannot be written fail after one call, not after 32.

    Memory-R2 changes a memory by "operations", here once for the only session. The endpoint of the
    model is down at that call.
    """

    def fail_slowly(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "operations":
            # Long enough that all threads wait for this call, on a busy machine too.
            time.sleep(2)
            raise ServerError("down")
        return fact_replies(kind, text, n)

    lm = scripted(fail_slowly)
    program = memory_r2(parts=1)
    history = make_history(sessions=1)
    with dspy.context(lm=lm):
        outcomes = outcomes_in_threads(32, lambda: ask(program, history))

    for outcome in outcomes:
        assert isinstance(outcome, Exception)
    assert lm.engine.calls["operations"] == 1


def test_sessions_are_extracted_concurrently(
    scripted: Any, fact_replies: Any, make_history: Any
) -> None:
    """Facts can be extracted from all sessions at once, since that does not need the memory.

    With `parts=1` there is one call for the facts of a session.
    """
    # The barrier lets no call through until four calls are waiting, and breaks after 20 seconds.
    barrier = threading.Barrier(4, timeout=20)

    def wait_for_the_other_sessions(kind: str, text: str, n: int) -> dict[str, Any]:
        if kind == "facts":
            barrier.wait()
        return fact_replies(kind, text, n)

    lm = scripted(wait_for_the_other_sessions)
    with dspy.context(lm=lm):
        memory_r2(parts=1).remember(make_history(sessions=4))

    assert lm.engine.calls["facts"] == 4
    assert not barrier.broken


# The key under which a memory is cached: all that decides what the model of the writer would see


@pytest.fixture
def lm() -> dspy.LM:
    """A model that is never asked."""
    return dspy.LM("openai/x", api_key="one", api_base="http://one")


def key_of(program: Any, lm: dspy.LM, layout: str = "chat") -> str:
    """Return the key of the memories that a program writes under a model and an adapter."""
    with dspy.context(lm=lm, adapter=adapter(layout)):
        return writer_key(program.method.writer)


def test_the_address_of_a_model_does_not_change_the_key(lm: dspy.LM) -> None:
    """The same model answers alike wherever it runs, and for whichever user."""
    program = memory_r2()
    lm_elsewhere = lm.copy(api_key="two", api_base="http://two")

    assert key_of(program, lm_elsewhere) == key_of(program, lm)


@pytest.mark.parametrize("settings", [{"temperature": 0.5}, {"max_tokens": 7}, {"rollout_id": 3}])
def test_settings_of_the_model_change_the_key(lm: dspy.LM, settings: dict[str, Any]) -> None:
    """They change what the model answers, so another memory would be written."""
    program = memory_r2()

    assert key_of(program, lm.copy(**settings)) != key_of(program, lm)


@pytest.mark.parametrize("layout", ["json", "compact"])
def test_the_adapter_changes_the_key(lm: dspy.LM, layout: str) -> None:
    """An adapter decides how a prompt asks for its fields, such as in JSON."""
    program = memory_r2()

    assert key_of(program, lm, layout) != key_of(program, lm)


def test_a_demo_of_a_writing_prompt_changes_the_key(lm: dspy.LM) -> None:
    """A demo is a worked example in a prompt; with it another memory would be written."""
    program = memory_r2()
    changed_program = copy.deepcopy(program)
    changed_program.method.writer.extract_facts.demos = [dspy.Example(dialogue="x", facts=[])]

    assert key_of(changed_program, lm) != key_of(program, lm)


def test_a_demo_of_the_answer_prompt_does_not_change_the_key(lm: dspy.LM) -> None:
    """An optimizer may change how questions are answered, and the memories stay as they are."""
    program = memory_r2()
    changed_program = copy.deepcopy(program)
    changed_program.task.answer.demos = [dspy.Example(question="x", answer="y")]

    assert key_of(changed_program, lm) == key_of(program, lm)


def test_the_words_for_a_field_change_the_key(lm: dspy.LM) -> None:
    """A prompt describes each of its fields, here the output "operations"."""
    program = memory_r2()
    changed_program = copy.deepcopy(program)
    manage = changed_program.method.writer.manage
    manage.signature = manage.signature.with_updated_fields("operations", desc="other words")

    assert key_of(changed_program, lm) != key_of(program, lm)


def test_each_rollout_has_a_key_that_differs_from_all_others(lm: dspy.LM) -> None:
    """Rollouts are several runs on the same question; an optimizer compares them.

    Each writes a memory for itself, or else they would all be alike.
    """
    program = memory_r2()

    key = key_of(program, lm)
    with rollout(0):
        key_of_first_rollout = key_of(program, lm)
    with rollout(1):
        key_of_second_rollout = key_of(program, lm)
    with rollout(0):
        key_of_first_rollout_again = key_of(program, lm)

    assert key_of_first_rollout_again == key_of_first_rollout
    assert len({key, key_of_first_rollout, key_of_second_rollout}) == 3


WRITER_MODULE = """
from mempiler import Update, Writer
from mempiler.memory.memory import TurnMemory


class OwnWriter(Writer):
    Memory = TurnMemory

    def update(self, memory, item, extraction=None):
        return Update({new_memory})
"""


@pytest.fixture
def load_user_writer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """A function that loads a writer from the module of a user.

    `load_user_writer(new_memory="memory")` writes the module anew, with this expression for the
    memory that the writer returns.
    """

    def load(new_memory: str) -> Any:
        path = tmp_path / "own_writer.py"
        path.write_text(WRITER_MODULE.format(new_memory=new_memory))
        spec = importlib.util.spec_from_file_location("own_writer", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "own_writer", module)
        spec.loader.exec_module(module)
        return module.OwnWriter()

    return load


def test_the_code_of_a_writer_changes_the_key_but_not_the_digest(
    load_user_writer: Callable[..., Any],
) -> None:
    """A cache, which goes by the key, must not return what earlier code wrote.

    A store goes by the digest: stored memories stay valid if their user merely tidies the code.
    """
    writer = load_user_writer(new_memory="memory.with_session(item)")
    key = writer_key(writer)
    edited_writer = load_user_writer(new_memory="memory")

    assert writer_key(edited_writer) != key
    assert writer_digest(edited_writer) == writer_digest(writer)


# Digests of programs and writers. A program consists of a writer, which writes the memory of a
# history, and of parts that only read it: a reader, a task and an adapter. There are two digests.
#
# - `writer_digest(writer)` covers what decides which memories are written: settings, prompts and
#   embedder of the writer. A store names it with each memory.
# - `program_digest(program)` covers the method, the task, the adapter and all prompts and settings,
#   those of the writer among them. A saved result names it.


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"model": "a", "seed": 1}) == digest({"seed": 1, "model": "a"})


def test_a_digest_depends_on_the_order_of_a_list() -> None:
    assert digest(["a", "b"]) != digest(["b", "a"])


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        pytest.param("memory-r2", {"read_top": 3}, id="setting-of-the-reader"),
        pytest.param("memory-r2", {"task": "multiple-choice"}, id="task"),
        pytest.param("memory-r2", {"adapter": "json"}, id="adapter"),
        pytest.param("pgr+memory-r2", {}, id="policy"),
    ],
)
def test_changing_how_a_memory_is_read_changes_the_program_digest_alone(
    method: str, arguments: dict[str, Any]
) -> None:
    """The writer digest stays the same, so memories that were written before can still be read."""
    program = memory_r2()
    program_that_reads_differently = build(method, embedder=embedder(), **arguments)

    assert program_digest(program_that_reads_differently) != program_digest(program)
    new_writer_digest = writer_digest(program_that_reads_differently.method.writer)
    assert new_writer_digest == writer_digest(program.method.writer)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        # `related` is the number of known facts that the writer's prompt shows; 5 by default.
        pytest.param("memory-r2", {"related": 2}, id="setting-of-the-writer"),
        pytest.param("fact-store", {}, id="method-with-another-writer"),
    ],
)
def test_changing_how_a_memory_is_written_changes_the_writer_digest_and_the_program_digest(
    method: str, settings: dict[str, Any]
) -> None:
    """The changed writer would write another memory, so it must not be given the old one."""
    program = memory_r2()
    program_that_writes_differently = build(method, embedder=embedder(), **settings)

    new_writer_digest = writer_digest(program_that_writes_differently.method.writer)
    assert new_writer_digest != writer_digest(program.method.writer)
    assert program_digest(program_that_writes_differently) != program_digest(program)


def test_changing_the_embedder_changes_the_writer_digest_alone() -> None:
    """Texts are stored with the vectors of an embedder, and vectors of two cannot be compared.

    A saved result does not depend on that. The two embedders here differ in their names alone.
    """
    program = memory_r2()
    other_embedder = TextEmbedder("other", embedder().embed, 384)
    other_program = build("memory-r2", embedder=other_embedder)

    assert writer_digest(other_program.method.writer) != writer_digest(program.method.writer)
    assert program_digest(other_program) == program_digest(program)


def test_other_instructions_give_another_digest_until_they_are_changed_back() -> None:
    """A digest covers the prompts of a writer. Some optimizers change instructions in place."""
    writer = memory_r2().method.writer
    signature = writer.predictors_below()["extract_facts"].signature
    first_digest = writer_digest(writer)
    first_instructions = signature.instructions

    signature.instructions = "Do as you like."
    assert writer_digest(writer) != first_digest

    signature.instructions = first_instructions
    assert writer_digest(writer) == first_digest


def make_writer(class_name: str, memory_field: str) -> Writer:
    """Return a writer of a new class, whose memories have one field."""
    memory_class = create_model("Kept", __base__=Memory, **{memory_field: (str, "")})
    return type(class_name, (Writer,), {"Memory": memory_class})()


def test_the_class_of_a_writer_and_the_fields_of_its_memory_count_in_the_digest() -> None:
    """Memories are stored under the digest of their writer. Another class may write other ones."""
    writer = make_writer("NoteWriter", memory_field="notes")
    writer_of_other_class = make_writer("OtherWriter", memory_field="notes")
    writer_of_other_memory = make_writer("NoteWriter", memory_field="others")

    assert writer_digest(writer_of_other_class) != writer_digest(writer)
    assert writer_digest(writer_of_other_memory) != writer_digest(writer)


# Calls that wrote a cached memory are replayed into a trace. An optimizer learns from the traced
# calls of a question, and the calls that wrote its memory may have been made for another question.

Trace = list[tuple[Any, dict[str, Any], Any]]
"""What DSPy traces: a predictor, its inputs and its prediction."""


@pytest.fixture
def program() -> Any:
    """Memory-R2 with parts of three turns, so that a session has two."""
    return memory_r2(chunk_turns=3)


def trace_of(program: Any, **inputs: Any) -> Trace:
    """Call a program and return what DSPy traced of the call."""
    with dspy.context(trace=[]):
        program(**inputs)
        return list(dspy.settings.trace)


def inputs_of(trace: Sequence[Any], predictor: Any) -> list[dict[str, Any]]:
    """Return the inputs of the traced calls of a predictor."""
    return [inputs for traced_predictor, inputs, _ in trace if traced_predictor is predictor]


def test_the_calls_that_read_the_evidence_of_a_question_are_replayed_into_its_trace(
    scripted: Any, fact_replies: Any, make_history: Any, program: Any
) -> None:
    """An optimizer learns most from the calls that read the turns with the answer, the evidence.

    Memory-R2 reads a session in parts, here of three turns, with a call to extract facts and a call
    to manage the memory for each. The evidence is the turn D2:5, in the second part of D2.
    """
    history = make_history(sessions=4, turns=6)

    with dspy.context(lm=scripted(fact_replies)):
        # The first question has the memory written.
        trace_of(program, history=history, question="Where?")
        trace = trace_of(program, history=history, question="Where?", evidence_ids=("D2:5",))

    # Of all calls that wrote the memory, the two about this part are replayed, before the answer.
    (extraction_inputs,) = inputs_of(trace, program.method.writer.extract_facts)
    assert "[D2:5]" in extraction_inputs["dialogue"]
    assert len(inputs_of(trace, program.method.writer.manage)) == 1
    last_predictor, _, _ = trace[-1]
    assert last_predictor is program.task.answer


def test_replayed_calls_are_those_of_the_running_copy(
    scripted: Any, fact_replies: Any, make_history: Any, program: Any
) -> None:
    """Optimizers run copies of a program, and look for the calls of their own predictors."""
    history = make_history(sessions=2)
    program_copy = copy.deepcopy(program)

    with dspy.context(lm=scripted(fact_replies)):
        trace_of(program, history=history, question="Where?", evidence_ids=("D1:1",))
        trace = trace_of(program_copy, history=history, question="Where?", evidence_ids=("D1:1",))

    traced_predictors = {id(predictor) for predictor, _, _ in trace}
    assert traced_predictors == {
        id(program_copy.method.writer.extract_facts),
        id(program_copy.method.writer.manage),
        id(program_copy.task.answer),
    }


def test_without_evidence_the_calls_behind_the_best_hits_are_replayed(
    scripted: Any, fact_replies: Any, make_history: Any, program: Any
) -> None:
    """Where no evidence is named, the entries that were recalled tell which calls mattered.

    The turn D2:2 is "I saw Quito with 2 friends", so the call that extracted its fact is replayed.
    """
    with dspy.context(lm=scripted(fact_replies)):
        trace = trace_of(
            program, history=make_history(sessions=3), question="Who saw Quito with 2 friends?"
        )

    extractions = inputs_of(trace, program.method.writer.extract_facts)
    assert any("[D2:2]" in inputs["dialogue"] for inputs in extractions)


def test_an_evaluation_adds_only_the_answers_to_the_trace(
    scripted: Any, fact_replies: Any, make_history: Any, program: Any
) -> None:
    """Only an optimizer, which begins a trace for each question, gets the calls of writing too.

    An evaluation asks many questions under DSPy's own trace, which would grow without end.
    """
    with dspy.context(lm=scripted(fact_replies)):
        calls_before = len(dspy.settings.trace)
        program(history=make_history(sessions=2), question="Where?", evidence_ids=("D1:1",))
        new_calls = dspy.settings.trace[calls_before:]

    [(predictor, _inputs, _prediction)] = new_calls
    assert predictor is program.task.answer


# The cache below: threads that want the same value wait for one that computes it


def test_dropped_values_are_computed_anew() -> None:
    """A `SingleFlight` is a cache whose values are computed when they are first asked for."""
    flight: SingleFlight[str, str] = SingleFlight()
    flight.get_or_compute("a1", compute=lambda: "first")
    flight.get_or_compute("b1", compute=lambda: "other")

    flight.drop(lambda key: key.startswith("a"))

    assert flight.peek("a1") is None
    assert flight.peek("b1") == "other"
    assert flight.get_or_compute("a1", compute=lambda: "second") == "second"


def test_the_least_recently_used_value_is_dropped_first_and_peeking_counts_as_use() -> None:
    """A `SingleFlight` is a cache, here of two values; to peek is to look up a value."""
    flight: SingleFlight[str, str] = SingleFlight(capacity=2)
    flight.get_or_compute("a", compute=lambda: "A")
    flight.get_or_compute("b", compute=lambda: "B")

    assert flight.peek("a") == "A"
    flight.get_or_compute("c", compute=lambda: "C")

    assert flight.peek("a") == "A"
    assert flight.peek("b") is None
    assert flight.peek("c") == "C"

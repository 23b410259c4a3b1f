"""Remembering once: calls counted at the engine, with DSPy's own LM cache off; what the key of a memory holds."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import dspy
import pytest
from dspy.lm15 import ServerError
from mempiler import Memory, MemoryProgram, Update, Writer, build
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.programs.adapter import adapter
from mempiler.memory.memory import TurnMemory
from mempiler.programs.baselines.turn_rag import TurnWriter
from mempiler.programs.cache import MemoryCache
from mempiler.programs.identity import digest, program_digest, rollout, writer_digest, writer_key
from mempiler.programs.single_flight import SingleFlight
from mempiler.records import Item
from pydantic import create_model


def memory_r2(**config):
    return build("memory-r2", embedder=embedder(), **config)


def in_threads(count, call):
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(copy_context().run, call) for _ in range(count)]
        return [future.exception() or future.result() for future in futures]


def ask(program, history):
    return program(history=history, question="Where was Ann?")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_many_threads_write_one_memory_once(scripted, fact_replies, make_history, temperature):
    lm, program, history = (
        scripted(fact_replies, 0.002, temperature=temperature),
        memory_r2(),
        make_history(3),
    )
    with dspy.context(lm=lm):
        outcomes = in_threads(32, lambda: ask(program, history))
    assert all(isinstance(outcome, dspy.Prediction) for outcome in outcomes)
    # Three sessions of six turns are three parts each (of two turns): one extraction and one management per part.
    assert lm.engine.calls == {"facts": 9, "operations": 9, "reasoning": 32}


def test_a_longer_history_continues_from_its_longest_prefix(scripted, fact_replies, make_history):
    lm, program = scripted(fact_replies), memory_r2()
    with dspy.context(lm=lm):
        program.remember(make_history(2))
        program.remember(make_history(3))
        program.remember(make_history(1))
    assert lm.engine.calls["operations"] == 9


def test_items_that_are_in_no_memory_yet_are_counted(scripted, fact_replies, make_history):
    program, history = memory_r2(), make_history(3)
    with dspy.context(lm=scripted(fact_replies)):
        assert program.count_missing([history]) == 3
        program.remember(make_history(2))
        assert program.count_missing([history]) == 1
        program.remember(history)
        assert program.count_missing([history, make_history(1)]) == 0


def test_a_history_that_was_changed_is_written_anew(make_history):
    program, history = build("turn-rag"), make_history(2)
    first_entries = program.remember(history).memory.entries()

    session = history.items[-1]
    turn = session.turns[0].model_copy(update={"text": "I moved to Porto."})
    reworded = session.model_copy(update={"turns": (turn, *session.turns[1:])})
    changed = history.model_copy(update={"items": (*history.items[:-1], reworded)})

    texts = [entry.text for entry in program.remember(changed).memory.entries()]
    assert f"{turn.speaker}: I moved to Porto." in texts
    assert program.remember(history).memory.entries() == first_entries


def test_a_failing_write_is_tried_once_for_all_that_wait(scripted, fact_replies, make_history):
    failing = threading.Event()
    failing.set()

    def reply(kind, text, n):
        if kind == "operations" and failing.is_set():
            time.sleep(2)  # until all wait, on a busy machine too
            raise ServerError("down")
        return fact_replies(kind, text, n)

    lm, program, history = scripted(reply), memory_r2(chunk_turns=6), make_history(1)
    with dspy.context(lm=lm):
        outcomes = in_threads(32, lambda: ask(program, history))
        assert all(isinstance(outcome, Exception) for outcome in outcomes)
        assert lm.engine.calls["operations"] == 1
        failing.clear()
        ask(program, history)
    assert lm.engine.calls == {"facts": 1, "operations": 2, "reasoning": 1}


def demos(*where, **fields):
    """A change of the demos of a predictor."""
    return lambda program: setattr(
        program.all_predictors()[".".join(where)], "demos", [dspy.Example(**fields)]
    )


def other_words(program):
    manage = program.method.writer.manage
    manage.signature = manage.signature.with_updated_fields(
        "operations", prefix="Edits:", desc="other words"
    )


@pytest.mark.parametrize(
    ("change", "settings", "layout", "differs"),
    [
        (lambda program: None, {"api_key": "two", "api_base": "http://two"}, "chat", False),
        (demos("method", "writer", "extract_facts", dialogue="x", facts=[]), {}, "chat", True),
        (other_words, {}, "chat", True),
        (
            demos("method", "writer", "extract_facts", question="x"),
            {},
            "chat",
            False,
        ),  # a demo that is not shown
        (demos("task", "answer", question="x", answer="y"), {}, "chat", False),
        *(
            (lambda program: None, more, "chat", True)
            for more in ({"temperature": 0.5}, {"max_tokens": 7})
        ),
        (lambda program: None, {"rollout_id": 3}, "chat", True),
        *((lambda program: None, {}, layout, True) for layout in ("json", "compact")),
    ],
)
def test_the_key_holds_what_the_writer_lm_would_see(change, settings, layout, differs):
    program, lm = memory_r2(), dspy.LM("openai/x", api_key="one", api_base="http://one")
    with dspy.context(lm=lm, adapter=adapter("chat")):
        before = writer_key(program.method.writer)
    changed = copy.deepcopy(program)
    change(changed)
    with dspy.context(lm=lm.copy(**settings), adapter=adapter(layout)):
        assert (writer_key(changed.method.writer) != before) is differs


def test_sessions_are_extracted_concurrently(scripted, fact_replies, make_history):
    everybody = threading.Barrier(4, timeout=20)

    def reply(kind, text, n):
        if kind == "facts":
            everybody.wait()
        return fact_replies(kind, text, n)

    with dspy.context(lm=scripted(reply)):
        assert len(memory_r2(chunk_turns=6).remember(make_history(4)).memory.facts) == 24


@pytest.fixture
def program():
    return memory_r2(chunk_turns=3)


def traced(program, **inputs):
    with dspy.context(trace=[]):
        program(**inputs)
        return list(dspy.settings.trace)


def shown(trace, predictor):
    return [inputs for p, inputs, _ in trace if p is predictor]


def test_a_cached_memory_replays_the_steps_that_saw_the_gold_evidence(
    scripted, fact_replies, make_history, program
):
    history = make_history(4)
    with dspy.context(lm=scripted(fact_replies)):
        traced(program, history=history, question="Where?")
        trace = traced(program, history=history, question="Where?", evidence_ids=("D2:5",))
    dialogues = [inputs["dialogue"] for inputs in shown(trace, program.method.writer.extract_facts)]
    assert len(dialogues) == 1
    assert "[D2:5]" in dialogues[0]
    assert len(shown(trace, program.method.writer.manage)) == 1
    assert trace[-1][0] is program.task.answer


def test_steps_are_bound_to_the_running_copy_and_their_inputs_are_copies(
    scripted, fact_replies, make_history, program
):
    history, twin = make_history(2), copy.deepcopy(program)
    with dspy.context(lm=scripted(fact_replies)):
        for _, inputs, _ in traced(
            program, history=history, question="Where?", evidence_ids=("D1:1",)
        )[:-1]:
            inputs.clear()
        trace = traced(twin, history=history, question="Where?", evidence_ids=("D1:1",))
    assert all(inputs for _, inputs, _ in trace)
    steps = (twin.method.writer.extract_facts, twin.method.writer.manage, twin.task.answer)
    assert {id(p) for p, _, _ in trace} == {id(p) for p in steps}


def test_without_evidence_the_steps_behind_the_best_hits_are_replayed(
    scripted, fact_replies, make_history, program
):
    with dspy.context(lm=scripted(fact_replies)):
        trace = traced(program, history=make_history(3), question="Who saw Quito with 2 friends?")
    dialogues = [inputs["dialogue"] for inputs in shown(trace, program.method.writer.extract_facts)]
    assert any("[D2:2]" in dialogue for dialogue in dialogues)


def test_plain_evaluation_replays_nothing(scripted, fact_replies, make_history, program):
    with dspy.context(lm=scripted(fact_replies)):
        before = len(dspy.settings.trace)
        for _ in range(3):
            program(history=make_history(2), question="Where?", evidence_ids=("D1:1",))
        assert len(dspy.settings.trace) == before + 3


def test_dropped_values_are_made_anew() -> None:
    flight = SingleFlight()
    for key in ("a1", "a2", "b1"):
        flight.get_or_compute(key, lambda key=key: key.upper())
    flight.drop(lambda key: str(key).startswith("a"))
    assert flight.peek("a1") is None
    assert flight.peek("b1") == "B1"
    assert flight.get_or_compute("a1", lambda: "again") == "again"


def test_the_least_recently_used_value_is_dropped_first_and_peeking_counts_as_use() -> None:
    flight = SingleFlight(capacity=2)
    for key in ("a", "b"):
        flight.get_or_compute(key, key.upper)
    assert flight.peek("a") == "A"
    flight.get_or_compute("c", "c".upper)
    assert [flight.peek(key) for key in ("a", "b", "c")] == ["A", None, "C"]


def made(**config: Any) -> MemoryProgram:
    return build("memory-r2", embedder=embedder(), **config)


@pytest.mark.parametrize(
    ("other", "writes_like", "same"),
    [
        (lambda: made(), True, True),
        (lambda: copy.deepcopy(made()), True, True),
        (lambda: made(read_top=3), True, False),
        (lambda: made(related=2), False, False),
        (lambda: build("memory-r2", "multiple-choice", embedder=embedder()), True, False),
        (lambda: made(adapter="json"), True, False),
        (lambda: build("pgr+memory-r2", embedder=embedder()), True, False),
        (lambda: build("fact-store", embedder=embedder()), False, False),
        (
            lambda: build("memory-r2", embedder=TextEmbedder("other", embedder().embed, 384)),
            False,
            True,
        ),
    ],
    ids=[
        "again",
        "copy",
        "reading setting",
        "writing setting",
        "task",
        "adapter",
        "policy",
        "method",
        "embedder",
    ],
)
def test_digests_change_with_what_a_program_or_its_writer_does(other, writes_like, same) -> None:
    one, two = other(), made()
    assert (writer_digest(one.method.writer) == writer_digest(two.method.writer)) is writes_like
    assert (program_digest(one) == program_digest(two)) is same


def test_an_instruction_changes_a_writer_and_changing_it_back_makes_it_the_same() -> None:
    writer = made().method.writer
    extract = writer.predictors_below()["extract_facts"]
    before, own = writer_digest(writer), extract.signature.instructions
    extract.signature.instructions = "Do as you like."  # in place, as InferRules does
    assert writer_digest(writer) != before
    extract.signature.instructions = own
    assert writer_digest(writer) == before


def test_a_digest_is_of_the_content_and_not_of_the_order_of_its_keys() -> None:
    assert digest({"model": "a", "seed": 1}) == digest({"seed": 1, "model": "a"})
    assert digest(["a", "b"]) != digest(["b", "a"])


def test_class_and_memory_of_a_writer_count() -> None:
    kept, shaped = (
        create_model("Kept", __base__=Memory, **{name: (str, "")}) for name in ("one", "other")
    )
    kinds = [
        type(name, (Writer,), {"Memory": kind})
        for name, kind in (("A", kept), ("B", kept), ("A", shaped))
    ]
    assert len({writer_digest(kind()) for kind in kinds}) == 3


def test_a_rollout_has_a_key_of_its_own_and_so_has_the_code_of_a_writer(
    monkeypatch, scripted, fact_replies
) -> None:
    writer = made().method.writer
    with dspy.context(lm=scripted(fact_replies)):
        identity, keys = writer_digest(writer), [writer_key(writer)]
        for name in (0, 1, 0):
            with rollout(name):
                keys.append(writer_key(writer))
        monkeypatch.setattr("mempiler.programs.identity._source_digest", lambda kind: "other")
        keys.append(writer_key(writer))
        assert writer_digest(writer) == identity
    assert keys[1] == keys[3]
    assert len(set(keys)) == 4


def test_a_history_reports_its_items_to_the_listener_that_was_there_when_it_began(
    make_history,
) -> None:
    cache, written = MemoryCache(), []
    cache.on_write = lambda: written.append("item")

    class EndsTheEvaluation(TurnWriter):
        def update(
            self, memory: TurnMemory, item: Item, extraction: None = None
        ) -> Update[TurnMemory]:
            cache.on_write = None
            return super().update(memory, item, extraction)

    cache.get_or_write(EndsTheEvaluation(), make_history(3))
    assert written == ["item"] * 3

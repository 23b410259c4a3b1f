"""Remembering once: calls counted at the engine, with DSPy's own LM cache off."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import dspy
import pytest
from dspy.lm15 import ServerError
from mempiler.engines.embedders import embedder
from mempiler.programs.adapter import adapter
from mempiler.programs.catalog import build
from mempiler.programs.identity import writer_key


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
    lm, program, history = scripted(fact_replies, 0.002, temperature=temperature), memory_r2(), make_history(3)
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


OTHER_WORDS = {"prefix": "Edits:", "desc": "other words"}
CHANGES = {
    "demos": (lambda writer, task: setattr(writer.extract, "demos", [dspy.Example(dialogue="x", facts=[])]), True),
    "prefix": (
        lambda writer, task: setattr(
            writer.manage, "signature", writer.manage.signature.with_updated_fields("operations", **OTHER_WORDS)
        ),
        True,
    ),
    "unseen demo": (lambda writer, task: setattr(writer.extract, "demos", [dspy.Example(question="x")]), False),
    "reader": (lambda writer, task: setattr(task.answer, "demos", [dspy.Example(question="x", answer="y")]), False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_key_holds_what_the_writer_lm_would_see(scripted, fact_replies, change):
    program, (make, differs) = memory_r2(), CHANGES[change]
    with dspy.context(lm=scripted(fact_replies)):
        before = writer_key(program.method.writer)
        changed = copy.deepcopy(program)
        make(changed.method.writer, changed.task)
        assert (writer_key(changed.method.writer) != before) is differs


@pytest.mark.parametrize(
    ("settings", "name", "differs"),
    [
        ({"temperature": 0.5}, "chat", True),
        ({"max_tokens": 7}, "chat", True),
        ({"rollout_id": 3}, "chat", True),
        ({}, "json", True),
        ({}, "compact", True),
        ({}, "chat", False),
    ],
)
def test_the_key_holds_settings_of_lm_and_adapter(scripted, fact_replies, settings, name, differs):
    program, lm = memory_r2(), scripted(fact_replies)
    with dspy.context(lm=lm, adapter=adapter("chat")):
        before = writer_key(program.method.writer)
    with dspy.context(lm=lm.copy(**settings), adapter=adapter(name)):
        assert (writer_key(program.method.writer) != before) is differs


def test_the_key_does_not_depend_on_the_api_key():
    program, keys = memory_r2(), set()
    for secret in ("one", "two"):
        with dspy.context(lm=dspy.LM("openai/x", api_key=secret, api_base=f"http://{secret}")):
            keys.add(writer_key(program.method.writer))
    assert len(keys) == 1


def test_sessions_are_extracted_concurrently(scripted, fact_replies, make_history):
    everybody = threading.Barrier(4, timeout=20)

    def reply(kind, text, n):
        if kind == "facts":
            everybody.wait()
        return fact_replies(kind, text, n)

    with dspy.context(lm=scripted(reply)):
        assert len(memory_r2(chunk_turns=6).remember(make_history(4)).memory.facts) == 24

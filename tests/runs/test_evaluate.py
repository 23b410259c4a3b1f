"""Evaluations: exact calls, typed failures, and a stop where going on would only cost."""

from collections.abc import Sequence
from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, ServerError
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.runs.evaluate import evaluate

from .evaluations import asked, locomo


def questions(history: Any, count: int) -> list[dspy.Example]:
    """`count` questions with the gold answers "marker 0", "marker 1", ...; turn D1:3 is the evidence of each."""
    evidence = {"focus": ("D1:3",), "evidence": ("D1:3",)}
    return asked(history, count, "Who saw Oslo with question{n}?", answer="marker {n}", **evidence)


def run(lm: Any, examples: Sequence[dspy.Example], method: str = "turn-rag", threads: int = 8, **options: Any) -> Any:
    program = build(method, embedder=embedder())
    with dspy.context(lm=lm):
        return evaluate(program, locomo(examples), examples, lm.meter, threads, **options)


def number(text: str) -> int:
    return int(text.rsplit("question", 1)[1].split("?")[0])


def right(kind: str, text: str, n: int) -> dict[str, Any]:
    return {"answer": f"marker {number(text)}"}


def raising(error: Exception) -> Any:
    def reply(kind: str, text: str, n: int) -> dict[str, Any] | str:
        if number(text) == 1:
            raise error
        return right(kind, text, n)

    return reply


def garbled(kind: str, text: str, n: int) -> dict[str, Any] | str:
    return "no field at all" if "question1?" in text else right(kind, text, n)


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (garbled, "parse", "answer"),
        (raising(ServerError("is down")), "endpoint", "is down"),
        (raising(ContextLengthError("too long")), "too-long", "too long"),
    ],
)
def test_a_failed_question_is_a_row_of_score_zero(scripted, make_history, reply, kind, words):
    found = run(scripted(reply), questions(make_history(1), 4))
    failed = found.rows[1]
    assert (failed.failure.kind, failed.failure.where, failed.score) == (kind, failed.id, 0.0)
    assert words in failed.failure.message
    assert "\n" not in failed.failure.message
    assert [row.failure for row in found.rows if row is not failed] == [None] * 3
    assert (found.failures, found.n, found.score) == (1, 4, 0.75)
    assert found.by_category()["4"]["failures"] == 1


def test_evidence_recall_is_that_of_what_was_shown_and_that_of_the_index(scripted, make_history):
    history = make_history(3)
    examples = questions(history, 2)
    stray = examples[1].copy(focus=("D3:6", "D2:2"), question="Who saw Quito with 2 question1?")
    found = run(scripted(right), [examples[0], stray.with_inputs("history", "question", "focus")])
    assert found.rows[0].recall == {"shown": 1.0, "recall@5": 1.0, "recall@20": 1.0}
    assert found.rows[1].recall["recall@5"] == 0.5
    assert found.retrieval()["recall@5"] == 0.75
    assert found.rows[0].sources[0].startswith("D1:")


@pytest.mark.parametrize(
    ("breaks", "failures", "recall"),
    [("recall", 1, {"shown": 0.5, "recall@5": 1.0, "recall@20": 1.0}), ("write", 2, {"shown": 0.0, "recall@5": 0.0})],
)
def test_a_question_without_a_context_counts_as_nothing_recalled(
    scripted, make_history, monkeypatch, breaks, failures, recall
):
    """Turn RAG that fails to recall for one question, or to write for all."""
    examples, lm, program = questions(make_history(1), 2), scripted(right), build("turn-rag")
    part = program.method.reader if breaks == "recall" else program.method.writer
    real = getattr(part, breaks)

    def broken(memory: Any, what: Any, *rest: Any) -> Any:
        if breaks == "write" or "question0" in what.text:
            raise RuntimeError("cannot go on")
        return real(memory, what, *rest)

    monkeypatch.setattr(part, breaks, broken)
    with dspy.context(lm=lm):
        found = evaluate(program, locomo(examples), examples, lm.meter)
    assert found.failures == failures
    assert found.retrieval().items() >= recall.items()


def test_a_memory_of_summaries_has_no_recall_of_what_is_shown(scripted, make_history):
    lm = scripted(lambda kind, text, n: {kind: "Ann saw Oslo."})
    found = run(lm, questions(make_history(1), 1), "recursive-summary")
    assert "shown" not in found.retrieval()
    assert found.retrieval()["recall@5"] == 1.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_memory_is_written_for_all_threads(scripted, fact_replies, make_history, temperature):
    lm = scripted(fact_replies, 0.002, temperature=temperature)
    found = run(lm, questions(make_history(3), 40), "memory-r2", threads=32)
    # Three sessions of six turns are three parts each: nine extractions, nine managements, forty answers.
    assert lm.engine.calls == {"facts": 9, "operations": 9, "reasoning": 40}
    assert found.summary()["calls"]["task"] == 58
    assert found.write_failures == 0


def test_failed_writes_are_counted_beside_the_score(scripted, fact_replies, make_history):
    def reply(kind: str, text: str, n: int) -> dict[str, Any] | str:
        # Of the last part of a session, which no other part is shown as what was before it.
        return "garbled" if kind == "operations" and "D1:6" in text else fact_replies(kind, text, n)

    found = run(scripted(reply), questions(make_history(2), 3), "memory-r2")
    # Once as it came, and the half that holds the turn once more.
    assert (found.write_failures, found.failures) == (2, 0)
    assert [each.where.split(", ")[1] for each in found.failed_writes] == ["item D1", "item D2"]
    assert [each["kind"] for each in found.summary()["failed_writes"]] == ["parse", "parse"]


def spoiled(kind: str, text: str, n: int) -> dict[str, Any] | str:
    """Four questions: read as it came, bare JSON, read the second time, never read."""
    n = number(text) if "question" in text else 0
    if n == 1:
        return '{"answer": "marker 1"}'
    if n == 3 or (n == 2 and "could not be read" not in text):
        return "no field at all"
    return {"answer": f"marker {n}"}


def test_every_predictor_call_ends_in_one_of_four_ways(scripted, make_history):
    found = run(scripted(spoiled), questions(make_history(1), 4), threads=1)
    assert found.outcomes == {"ok": 1, "salvaged": 1, "asked again": 1, "lost": 1}
    assert found.faults == {"task.answer": {"layout": 1, "parse": 3}}
    summary = found.summary()
    assert (summary["answers"], summary["lost"], summary["broken"]) == ({"task.answer": found.outcomes}, 0.25, True)
    assert not run(scripted(spoiled), questions(make_history(1), 4), max_lost=0.25).broken


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([({"shown": 1.0}, 3), ({"recall@5": 1.0}, 3)], 0.5),
        ([({"recall@5": 1.0}, 3), ({"recall@5": 1.0}, 3)], None),
        ([({"shown": 0.0}, 0), ({"recall@5": 1.0}, 3)], None),
        ([({"shown": 0.0}, 0), ({"shown": 1.0}, 3), ({}, 3)], 0.5),
    ],
    ids=["summaries alone", "a method of summaries", "one that failed", "no evidence named"],
)
def test_recall_of_what_was_shown_is_over_every_question(scripted, make_history, rows, shown):
    found = run(scripted(right), questions(make_history(1), len(rows)))
    changed = [
        row.model_copy(update={"recall": recall, "hits": hits})
        for row, (recall, hits) in zip(found.rows, rows, strict=True)
    ]
    assert found.model_copy(update={"rows": tuple(changed)}).retrieval().get("shown") == shown

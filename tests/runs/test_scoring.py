"""Evaluations: exact calls, typed failures, stores in processes of their own, and the same prompts on every path."""

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import httpx
import pytest
from dspy.lm15 import ContextLengthError, ServerError
from mempiler import (
    Context,
    EntryReader,
    History,
    ProgramError,
    Session,
    Store,
    Turn,
    UserError,
    UserMemory,
    build,
    load,
    save,
)
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM
from mempiler.optimizers.logo_grpo.reward import score_answers
from mempiler.programs.external.program import build_external_program
from mempiler.programs.names import METHODS
from mempiler.programs.tasks.task import Task
from mempiler.runs.scoring import score_questions
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.external import RecordedAnswers, resolve_external
from mempiler.runs.folder import RunFolder
from mempiler.runs.planning import plan_evaluate
from mempiler.serving.http.app import make_app
from mempiler.serving.http.schemas import Question
from mempiler.serving.http.service import Service
from mempiler.serving.settings import Settings

from .evaluations import Listening, asked, locomo, refusal, row
from .evaluations import evaluation as made
from ..run_inputs import run_inputs, with_options


def questions(history: Any, count: int) -> list[dspy.Example]:
    """`count` questions with the gold answers "marker 0", "marker 1", ...; turn D1:3 is the evidence of each."""
    evidence = {"evidence_ids": ("D1:3",), "evidence": ("D1:3",)}
    return asked(history, count, "Who saw Oslo with question{n}?", answer="marker {n}", **evidence)


def run(
    lm: Any,
    examples: Sequence[dspy.Example],
    method: str = "turn-rag",
    threads: int = 8,
    **options: Any,
) -> Any:
    program = build(method, embedder=embedder())
    with dspy.context(lm=lm):
        return score_questions(program, locomo(examples), examples, lm.meter, threads, **options)


def number(text: str) -> int:
    return int(text.rsplit("question", 1)[1].split("?")[0])


def right(kind: str, text: str, n: int) -> dict[str, Any]:
    return {"answer": f"marker {number(text)}"}


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (None, "parse", "answer"),
        (ServerError("is down"), "endpoint", "is down"),
        (ContextLengthError("too long"), "too-long", "too long"),
    ],
)
def test_a_failed_question_is_a_row_of_score_zero(scripted, make_history, error, kind, words):
    def reply(kind: str, text: str, n: int) -> dict[str, Any] | str:
        if number(text) != 1:
            return right(kind, text, n)
        if error is not None:
            raise error
        return "no field at all"

    found = run(scripted(reply), questions(make_history(1), 4))
    failed = found.rows[1]
    assert failed.failure.kind == kind
    assert failed.failure.where == failed.id
    assert failed.score == 0.0
    assert words in failed.failure.message
    assert "\n" not in failed.failure.message
    assert [row.failure for row in found.rows if row is not failed] == [None] * 3
    assert found.failures == 1
    assert found.n == 4
    assert found.score == 0.75
    assert found.by_category()["4"]["failures"] == 1


def test_evidence_recall_is_that_of_what_was_shown_and_that_of_the_index(scripted, make_history):
    history = make_history(3)
    examples = questions(history, 2)
    stray = examples[1].copy(
        evidence_ids=("D3:6", "D2:2"), question="Who saw Quito with 2 question1?"
    )
    found = run(
        scripted(right), [examples[0], stray.with_inputs("history", "question", "evidence_ids")]
    )
    assert found.rows[0].recall == {"shown": 1.0, "recall@5": 1.0, "recall@20": 1.0}
    assert found.rows[1].recall["recall@5"] == 0.5
    assert found.retrieval()["recall@5"] == 0.75
    assert found.rows[0].sources[0].startswith("D1:")


@pytest.mark.parametrize(
    ("breaks", "failures", "recall"),
    [
        ("recall", 1, {"shown": 0.5, "recall@5": 1.0, "recall@20": 1.0}),
        ("update", 2, {"shown": 0.0, "recall@5": 0.0}),
    ],
)
def test_a_question_without_a_context_counts_as_nothing_recalled(
    scripted, make_history, monkeypatch, breaks, failures, recall
):
    """Turn RAG that fails to recall for one question, or to write for all."""
    examples, lm, program = questions(make_history(1), 2), scripted(right), build("turn-rag")
    part = program.method.reader if breaks == "recall" else program.method.writer
    real = getattr(part, breaks)

    def broken(memory: Any, what: Any, *rest: Any) -> Any:
        if breaks == "update" or "question0" in what.text:
            raise RuntimeError("cannot go on")
        return real(memory, what, *rest)

    monkeypatch.setattr(part, breaks, broken)
    with dspy.context(lm=lm):
        found = score_questions(program, locomo(examples), examples, lm.meter)
    assert found.failures == failures
    assert found.retrieval().items() >= recall.items()


def test_one_search_serves_the_answer_and_its_evidence(scripted, make_history, monkeypatch):
    depths, search = [], EntryReader.search

    def counted(self, memory, queries, k=10, min_score=None):
        depths.append(k)
        return search(self, memory, queries, k, min_score)

    monkeypatch.setattr(EntryReader, "search", counted)
    (found,) = run(scripted(right), questions(make_history(), 1)).rows
    assert len(found.sources) == 10
    assert found.recall["recall@5"] == 1
    assert depths == [20]


def test_the_trace_shows_the_context_of_the_prompt(scripted, monkeypatch):
    """Dates are looked for in every hit, so what a prompt showed is not made a second time."""
    contexts: list[Context] = []
    as_shown = Task.context_as_shown

    def counted(task: Task, context: Context) -> Context:
        contexts.append(context)
        return as_shown(task, context)

    monkeypatch.setattr(Task, "context_as_shown", counted)
    session = Session(
        id="D1",
        time=datetime(2024, 1, 3),
        turns=tuple(
            Turn(id=f"D1:{n}", speaker="Ann", text=f"I saw Oslo yesterday, friend {n}")
            for n in range(1, 7)
        ),
    )
    result = run(scripted(right), questions(History(id="ann", items=(session,)), 3))
    assert len(contexts) == 3
    for answered in result.rows:
        assert "yesterday [2 January 2024]" in answered.trace.entries[0].line
        prompt = answered.trace.calls[-1].messages[-1][1]
        assert all(entry.line in prompt for entry in answered.trace.entries)


def test_a_memory_of_summaries_has_no_recall_of_what_is_shown(scripted, make_history):
    lm = scripted(lambda kind, text, n: {kind: "Ann saw Oslo."})
    found = run(lm, questions(make_history(1), 1), "recursive-summary").retrieval()
    assert "shown" not in found
    assert found["recall@5"] == 1.0


@pytest.mark.parametrize("fails", [False, True])
def test_turns_shown_because_nothing_was_found_count_in_no_recall_and_are_marked(
    scripted, make_history, fails
):
    history = make_history(1)
    newest = tuple(history.turns)[-1]
    (question,) = asked(
        history, 1, "Zebra?", answer="none", evidence_ids=(newest,), evidence=(newest,)
    )
    lm = scripted(lambda kind, text, n: "no field at all" if fails else {"answer": "none"})
    (found,) = run(lm, [question]).rows
    assert (found.failure is not None) is fails
    assert found.recall == {"shown": 0.0, "recall@5": 0.0, "recall@20": 0.0}
    assert newest in found.sources
    assert found.recall_counts["fallback"] == found.hits == len(found.trace.entries)
    assert {entry.fallback for entry in found.trace.entries} == {True}
    assert found.trace.recalled_evidence == []
    assert not any(found.trace.is_gold(entry) for entry in found.trace.entries)


def test_turns_that_could_not_be_written_and_were_not_found_count_in_no_recall(
    scripted, make_history
):
    history = make_history(1)
    newest = tuple(history.turns)[-1]
    lost, found = (
        asked(history, 1, question, answer="none", evidence_ids=(newest,), evidence=(newest,))[0]
        for question in ("Zebra?", history.turns[newest][0].text)
    )
    lm = scripted(
        lambda kind, text, n: {"answer": "none"} if kind == "answer" else "no field at all"
    )
    rows = run(
        lm,
        [lost, found.copy(id="found").with_inputs("history", "question", "evidence_ids")],
        "condition-mem",
    ).rows
    assert [row.recall["shown"] for row in rows] == [0.0, 1.0]
    assert [{entry.fallback for entry in row.trace.entries} for row in rows] == [{True}, {False}]


def test_failed_writes_are_counted_beside_the_score(scripted, fact_replies, make_history):
    def reply(kind: str, text: str, n: int) -> dict[str, Any] | str:
        # Of the last part of a session, which no other part is shown as what was before it.
        return "garbled" if kind == "operations" and "D1:6" in text else fact_replies(kind, text, n)

    found = run(scripted(reply), questions(make_history(2), 3), "memory-r2")
    # Once as it came, and the half that holds the turn once more.
    assert found.write_failures == 2
    assert found.failures == 0
    assert [each.where.split(", ")[1] for each in found.failed_writes] == ["item D1", "item D2"]
    assert [each["kind"] for each in found.to_dict()["failed_writes"]] == ["parse", "parse"]


def test_the_size_of_memories_and_their_operations_are_counted(
    scripted, fact_replies, make_history
):
    """Two sessions of six facts; the third part of the first one asks for an entry that is not there."""

    def reply(kind: str, text: str, n: int) -> dict[str, Any] | str:
        if kind == "operations" and "D1:5" in text.rpartition("new_facts")[2]:
            return {
                "operations": [
                    {
                        "op": "DELETE",
                        "memory_id": "m99",
                        "speaker": "",
                        "content": "",
                        "turn_id": "",
                    }
                ]
            }
        return fact_replies(kind, text, n)

    found = run(scripted(reply), questions(make_history(2), 3), "memory-r2")
    assert found.operations["refused"] == 1
    assert set(found.operations) <= {"inserted", "merged", "refused"}
    # Of one memory; every fact has six words: "I saw Oslo with 2 friends".
    assert found.memory_words == 6 * found.operations["inserted"]


def test_every_predictor_call_ends_in_one_of_four_ways(scripted, make_history):
    """Four questions: read as it came, bare JSON, read the second time, never read."""

    def spoiled(kind: str, text: str, n: int) -> dict[str, Any] | str:
        n = number(text)
        said = '{"answer": "marker 1"}' if n == 1 else {"answer": f"marker {n}"}
        return "no field at all" if n == 3 or (n == 2 and "could not be read" not in text) else said

    found = run(scripted(spoiled), questions(make_history(1), 4), threads=1)
    assert found.outcomes == {"ok": 1, "repaired": 1, "retried": 1, "lost": 1}
    assert found.faults == {"task.answer": {"layout": 1, "parse": 3}}
    summary = found.to_dict()
    assert summary["call_outcomes"] == {"task.answer": found.outcomes}
    assert summary["failure_rate"] == 0.25
    assert summary["broken"] is True
    assert not run(scripted(spoiled), questions(make_history(1), 4), max_failure_rate=0.25).broken


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([({"shown": 1.0}, 3), ({"recall@5": 1.0}, 3)], 0.5),
        ([({"recall@5": 1.0}, 3), ({"recall@5": 1.0}, 3)], None),
        ([({"shown": 0.0}, 0), ({"recall@5": 1.0}, 3)], None),
        ([({"shown": 0.0}, 0), ({"shown": 1.0}, 3), ({}, 3)], 0.5),
    ],
)
def test_recall_of_what_was_shown_is_over_every_question(rows, shown):
    found = made(
        row(f"q{n}", recall=recall, hits=hits, sources=("D1:1",))
        for n, (recall, hits) in enumerate(rows)
    )
    assert found.retrieval().get("shown") == shown


MODULE = """
import os, dspy

class Fine:
    def __init__(self):
        self.lines = []
    def add(self, session):
        self.lines += session.lines()
    def search(self, query, k):
        return [{"text": line, "score": 1} for line in self.lines[-k:]]
    def __len__(self):
        return len(self.lines)

class Asking(Fine):
    def add(self, session):
        self.lines.append(dspy.Predict("text -> fact")(text=session.lines()[0]).fact)

class Exit(Fine):
    def add(self, session):
        os._exit(7)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module `mine_to_score`."""
    (tmp_path / "mine_to_score.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mine_to_score", None)


def test_a_store_that_ends_its_process_is_failed_rows(module):
    found = run_evaluate("mine_to_score:Exit", run_inputs("locomo", test=3))
    assert all(row.failure is not None and "status 7" in row.failure.message for row in found.rows)


def test_a_run_that_was_stopped_asks_no_model_again(module):
    def evaluation(**more: Any) -> Any:
        inputs = run_inputs("locomo", test=6, threads=1, **more)
        return run_evaluate("mine_to_score:Asking", with_options(inputs, set={"isolated": False}))

    whole, first = evaluation(), evaluation(max_calls=4)
    assert first.stopped
    run = RunFolder.open(str(first.run_id))
    second = evaluation(resume=str(run.path))
    assert [row.answer for row in second.rows] == [row.answer for row in whole.rows]
    assert second.construction.calls == whole.construction.calls
    assert first.calls["task"] + second.calls["task"] == whole.calls["task"]
    assert run.is_finished


def test_a_summary_of_the_records_before_every_question_is_planned_and_counted_by_user():
    inputs = run_inputs("omnibehavior", test=40)
    plan, found = (
        plan_evaluate("recursive-summary", inputs),
        run_evaluate("recursive-summary", inputs),
    )
    assert plan.calls.low <= found.calls["task"] <= plan.calls.high
    assert found.construction.calls == found.calls["task"] - 40
    # One user's records up to the first asked one are 17 items; each later question has written more.
    assert found.construction.calls > 17 * found.histories
    assert found.histories == len({row.group for row in found.rows})


@pytest.mark.slow
def test_practice_is_planned_once_a_user_and_not_once_an_item():
    inputs = run_inputs("omnibehavior", test=8)
    plan, found = plan_evaluate("pramem", inputs), run_evaluate("pramem", inputs)
    assert found.calls["task"] <= plan.calls.high <= 2 * found.calls["task"]


def test_an_external_system_cannot_be_planned(module):
    with pytest.raises(UserError, match="leave --plan out"):
        plan_evaluate("mine_to_score:Fine", run_inputs("locomo"))


def test_a_program_over_a_shipped_system_is_saved_and_loaded(module, monkeypatch, make_history):
    from mine_to_score import Fine

    factories = {"fine": lambda folder, embedder=None: Fine()}
    monkeypatch.setattr("mempiler.systems.catalog.factory", factories.get)
    program = build_external_program(
        resolve_external("system:fine"), "system:fine", "question-answering", config={"k": 3}
    )
    save(program, module / "program")
    with pytest.raises(ProgramError, match="--allow-code"):
        load(module / "program")
    loaded = load(module / "program", allow_code=True)
    with dspy.context(lm=language_model()):
        assert len(loaded(history=make_history(1), question="Who?").context.hits) == 3
    loaded.method.close()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{"id": "a:4:0", "answer": "x"}, {"id": "a:4:0", "answer": "y"}],
            "line 2: id 'a:4:0' was there already",
        ),
        (
            [{"id": "a:4:0", "answer": "x"}],
            r"id 'a:4:1' is missing \(1 such\); every question needs a line",
        ),
        (
            [{"id": "zz", "answer": "x"}],
            r"id 'zz' is of no question \(1 such\); those .* are like 'a:4:0'",
        ),
        ([{"answer": "x"}], "line 1, field 'id': is missing"),
        ([{"id": "a:4:0"}], "line 1: has no answer; give `answer`, or `error`"),
        ([{"id": "a:4:0", "answer": "x", "cost": -1}], "line 1, field 'cost'"),
    ],
)
def test_recorded_answers_that_do_not_fit_are_one_line(
    rows, problem, make_history, tmp_path
) -> None:
    path, benchmark = tmp_path / "answers.jsonl", locomo(asked(make_history(1, id="a"), 2))
    path.write_text("\n".join(map(json.dumps, rows)))
    assert re.search(
        problem,
        refusal(lambda: RecordedAnswers(path).attach_answers(benchmark, benchmark.examples)),
    )


def test_recorded_answers_get_metrics_and_what_they_took(make_history: Any, tmp_path: Path) -> None:
    rows = [
        {
            "id": "a:4:0",
            "answer": "Bob",
            "recalled": [{"id": "D1:1", "text": "x"}],
            "calls": 2,
            "input_tokens": 9,
        },
        {"id": "a:4:1", "error": "timed out"},
        {"id": "a:4:2", "answer": "Ann", "seconds": 100, "calls": 1, "cost": 0.5},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    benchmark, thing, meter = (
        locomo(asked(make_history(1, id="a"), 3)),
        RecordedAnswers(path),
        Meter(),
    )
    program = build_external_program(thing, path.name, "question-answering")
    with dspy.context(lm=language_model(meter=meter)):
        found = score_questions(
            program, benchmark, thing.attach_answers(benchmark, benchmark.examples), meter, 2
        )
    assert program.method.config["sha256"]
    assert [row.score for row in found.rows] == [1.0, 0.0, 0.0]
    assert found.failures == 1
    assert "timed out" in found.rows[1].failure.message
    assert found.retrieval() == {"shown": pytest.approx(1 / 3)}
    assert found.answering_usage.calls == 3
    assert found.answering_usage.input_tokens == 9
    assert found.rows[2].cost == 0.5
    assert found.answering_usage.seconds > 100


CASES = [
    *((name, "locomo") for name in METHODS if name not in ("pramem", "h2memory")),
    ("pramem", "movielens"),
    pytest.param("h2memory", "palbench.restate", marks=pytest.mark.slow),
    ("logs+session-rag", "palbench.select"),
    ("pgr+turn-rag", "locomo"),
]

SMALLER = {"pramem": {"rounds": 2}}
"""Settings that save time; the paths get the same ones."""


def evaluated(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    score_questions(program, questions, [example], dspy.settings.lm.meter)


def compiled(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    if program.named_predictors():
        teleprompter = dspy.BootstrapFewShot(
            max_bootstrapped_demos=1, max_labeled_demos=0, max_rounds=1
        )
        teleprompter.compile(program.staged("read"), trainset=[example])


def rewarded(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    memory = program.remember(example.history).memory
    score_answers(program, example.history, memory, [example], lambda example, prediction: 0.0)


def from_python(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    stored(program, example, store, "python").ask(**fields_of(example))


def over_http(program: Any, questions: Any, example: dspy.Example, store: Store) -> None:
    user = stored(program, example, store, "http").owner.user
    service = Service(program, store, dspy.settings.lm, settings=Settings(writers=0))

    async def post() -> httpx.Response:
        app = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
            return await client.post(f"/v1/users/{user}/ask", json=fields_of(example))

    answered = asyncio.run(post())
    assert answered.status_code == 200, answered.text


def stored(program: Any, example: dspy.Example, store: Store, user: str) -> UserMemory:
    """The memory of a user whose sessions are the example's history."""
    memory = program.memory(store, user=user)
    for item in example.history:
        memory.add(item, remember=False)
    memory.remember()
    return memory


def fields_of(example: dspy.Example) -> dict[str, Any]:
    return {
        key: value
        for key, value in example.inputs().items()
        if key not in ("history", "evidence_ids")
    }


@pytest.mark.parametrize(("method", "name"), CASES)
@pytest.mark.slow
def test_the_prompts_of_a_question_are_the_same_on_every_path(method, name, tmp_path) -> None:
    questions = benchmark(name)
    example = next(each for each in questions.examples if questions.in_headline(each))
    # Asked at a date: a service would say the present one.
    dated = dspy.Example({"date": "2 June 2031, Monday", **example})
    example = dated.with_inputs("date", *example.inputs().keys())
    heard: dict[str, list[str]] = {}
    ways = [evaluated, compiled, rewarded, from_python]
    ways += [over_http] if fields_of(example).keys() <= Question.model_fields.keys() else []
    with Store(tmp_path / "memories.sqlite") as store:
        for way in ways:
            engine = Listening()
            lm = MeteredLM("offline/test", engine=engine, cache=False, temperature=0.0)
            with dspy.context(lm=lm, trace=None, disable_history=True):
                way(
                    build(method, questions.task, embedder(), **SMALLER.get(method, {})),
                    questions,
                    example,
                    store,
                )
            heard[way.__name__] = sorted(engine.prompts)
    first = heard.pop("evaluated")
    assert first
    assert {way: prompts == first for way, prompts in heard.items()} == dict.fromkeys(heard, True)

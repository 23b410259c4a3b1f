"""How the answers of a program are scored, and that it is prompted alike wherever it is asked.

An evaluation has a row for each question. A question without an answer has a failure in its row.
The trace of a row has what was recalled for the question, and the prompts.

The recall of a question is the share of its evidence (the turns that hold its answer) that stood in
its prompt ("shown"), or was among the first so many hits of a search ("recall@5").

Turn RAG, which most tests score, stores every turn of a history as it was said, without a model.
The model only answers questions.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import httpx
import pytest
from dspy.lm15 import ContextLengthError, ServerError
from mempiler import (
    Context,
    DataError,
    EntryReader,
    Evaluation,
    History,
    Method,
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
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.metered_lm import MeteredLM
from mempiler.optimizers.logo_grpo.reward import score_answers
from mempiler.programs.baselines.turn_rag import TurnWriter
from mempiler.programs.external.program import build_external_program
from mempiler.programs.names import METHODS
from mempiler.programs.program import MemoryProgram
from mempiler.programs.reader import ANY_COSINE
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.external import RecordedAnswers, resolve_external
from mempiler.runs.folder import RunFolder
from mempiler.runs.planning import plan_evaluate
from mempiler.runs.scoring import score_questions
from mempiler.serving.http.app import make_app
from mempiler.serving.http.schemas import Question
from mempiler.serving.http.service import Service
from mempiler.serving.settings import Settings

from ..run_inputs import run_inputs, with_options
from .evaluations import RecordingEngine, locomo, questions_about, row
from .evaluations import evaluation as evaluation_of


def marker_questions(history: History, count: int) -> list[dspy.Example]:
    """Return `count` questions about a history.

    The text of number 2 ends in "question2?" and its gold answer is "marker 2". Turn D1:3 holds
    the evidence of each.
    """
    return questions_about(
        history,
        count,
        "Who saw Oslo with question{n}?",
        answer="marker {n}",
        evidence_ids=("D1:3",),
        evidence=("D1:3",),
    )


def question_with_evidence(
    history: History, text: str, turn_ids: Sequence[str], question_id: str = "q0"
) -> dspy.Example:
    """Return a question about a history whose evidence is in some turns; its answer is "none"."""
    (question,) = questions_about(
        history, 1, text, answer="none", evidence_ids=tuple(turn_ids), evidence=tuple(turn_ids)
    )
    return question.copy(id=question_id).with_inputs("history", "question", "evidence_ids")


def question_number(prompt: str) -> int:
    """Return the number of the question of `marker_questions` that a prompt asks.

    It stands in the last question of the prompt, as in "Who saw Oslo with question2?".
    """
    _, _, end_of_prompt = prompt.rpartition("question")
    number, _, _ = end_of_prompt.partition("?")
    return int(number)


def right_answer(kind: str, text: str, n: int) -> dict[str, str]:
    """A scripted model that answers every question of `marker_questions` rightly."""
    return {"answer": f"marker {question_number(text)}"}


def turn_rag(
    reader: EntryReader | None = None,
    writer: TurnWriter | None = None,
    task: QuestionAnswering | None = None,
) -> MemoryProgram:
    """Return Turn RAG, with parts of a test's own in the place of its parts."""
    return MemoryProgram(
        Method(
            writer or TurnWriter(), reader or EntryReader(10, min_score=ANY_COSINE, hybrid=True)
        ),
        task or QuestionAnswering(),
        name="turn-rag",
    )


def score(
    lm: Any, examples: Sequence[dspy.Example], method: str = "turn-rag", **options: Any
) -> Evaluation:
    """Build a method with the offline embedder, and score its answers to questions."""
    return score_program(build(method, embedder=embedder()), lm, examples, **options)


def score_program(
    program: MemoryProgram,
    lm: Any,
    examples: Sequence[dspy.Example],
    threads: int = 8,
    **options: Any,
) -> Evaluation:
    """Score a program's answers to questions."""
    with dspy.context(lm=lm):
        return score_questions(program, locomo(examples), examples, lm.meter, threads, **options)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        pytest.param(None, "parse", "answer", id="unreadable answer"),
        pytest.param(ServerError("is down"), "endpoint", "is down", id="server error"),
        pytest.param(ContextLengthError("too long"), "too-long", "too long", id="too long prompt"),
    ],
)
def test_a_failed_question_scores_zero_and_the_others_go_on(
    scripted, make_history, error, kind, message
):
    """Of the questions 0 to 3, number 1 fails and the others are answered rightly."""

    def fail_at_question_1(output: str, text: str, n: int) -> dict[str, str] | str:
        if question_number(text) != 1:
            return right_answer(output, text, n)
        if error is not None:
            raise error
        return "no field at all"

    result = score(scripted(fail_at_question_1), marker_questions(make_history(1), 4))

    assert [row.score for row in result.rows] == [1.0, 0.0, 1.0, 1.0]
    assert result.score == 0.75
    assert result.failures == 1
    failure = result.rows[1].failure
    assert failure.kind == kind
    assert message in failure.message


def test_evidence_that_is_found_and_shown_has_a_recall_of_one(scripted, make_history):
    """The evidence D1:3 is about Oslo, like the question.

    A search is measured by its first five and its first twenty hits, a prompt by what it shows.
    """
    (question,) = marker_questions(make_history(3), 1)

    result = score(scripted(right_answer), [question])

    (answered_row,) = result.rows
    assert answered_row.recall == {"shown": 1.0, "recall@5": 1.0, "recall@20": 1.0}


def test_recall_is_the_share_of_the_evidence_that_a_search_finds(scripted, make_history):
    """D2:2 says "I saw Quito with 2 friends", like the question; D3:6 is about another place."""
    question = question_with_evidence(
        make_history(3), "Who saw Quito with 2 question1?", ["D2:2", "D3:6"]
    )

    result = score(scripted(right_answer), [question])

    (answered_row,) = result.rows
    assert answered_row.recall["recall@5"] == 0.5


class ForgetfulReader(EntryReader):
    """A reader that raises an error at question 0."""

    def recall(self, memory: Any, query: Any) -> Context:
        if "question0" in query.text:
            raise RuntimeError("cannot go on")
        return super().recall(memory, query)


def test_a_question_that_fails_before_it_has_a_prompt_showed_no_evidence(scripted, make_history):
    """Of two questions, number 0 fails. A search finds the evidence of both all the same."""
    program = turn_rag(reader=ForgetfulReader(10, min_score=ANY_COSINE, hybrid=True))

    result = score_program(program, scripted(right_answer), marker_questions(make_history(1), 2))

    assert result.failures == 1
    assert result.retrieval() == {"shown": 0.5, "recall@5": 1.0, "recall@20": 1.0}


class BrokenWriter(TurnWriter):
    """A writer that raises an error instead of writing a memory."""

    def update(self, memory: Any, item: Any, extraction: Any = None) -> Any:
        raise RuntimeError("cannot go on")


def test_questions_about_a_memory_that_could_not_be_written_fail_and_recall_nothing(
    scripted, make_history
):
    program = turn_rag(writer=BrokenWriter())

    result = score_program(program, scripted(right_answer), marker_questions(make_history(1), 2))

    assert result.failures == 2
    recall = result.retrieval()
    assert recall["shown"] == 0.0
    assert recall["recall@5"] == 0.0


class CountingReader(EntryReader):
    """A reader that notes how many hits each of its searches is to return."""

    def __init__(self, k: int) -> None:
        super().__init__(k, min_score=ANY_COSINE, hybrid=True)
        self.search_depths: list[int] = []

    def search(
        self, memory: Any, queries: Sequence[str], k: int = 10, min_score: float | None = None
    ) -> Any:
        self.search_depths.append(k)
        return super().search(memory, queries, k, min_score)


def test_one_search_gives_the_hits_for_the_prompt_and_those_for_recall_at_20(
    scripted, make_history
):
    """The prompt shows ten hits. A search for recall@20 needs ten more."""
    reader = CountingReader(k=10)

    result = score_program(
        turn_rag(reader=reader), scripted(right_answer), marker_questions(make_history(), 1)
    )

    (answered_row,) = result.rows
    assert len(answered_row.sources) == 10
    assert "recall@20" in answered_row.recall
    assert reader.search_depths == [20]


def test_the_trace_of_a_question_has_the_lines_that_its_prompt_shows(scripted):
    """The task writes the date beside "yesterday", since the session was on 3 January 2024."""
    turn = Turn(id="D1:1", speaker="Ann", text="I saw Oslo yesterday")
    session = Session(id="D1", time=datetime(2024, 1, 3), turns=(turn,))
    questions = marker_questions(History(id="ann", items=(session,)), 1)

    result = score_program(turn_rag(), scripted(right_answer), questions)

    trace = result.rows[0].trace
    (entry,) = trace.entries
    _, prompt = trace.calls[-1].messages[-1]
    assert "yesterday [2 January 2024]" in entry.line
    assert entry.line in prompt


class CountingTask(QuestionAnswering):
    """A task that counts how often it prepares a context for a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared_contexts = 0

    def context_as_shown(self, context: Context) -> Context:
        self.prepared_contexts += 1
        return super().context_as_shown(context)


def test_a_context_is_prepared_once_for_the_prompt_and_the_trace(scripted, make_history):
    """To find the words like "yesterday", to which dates are added, takes time."""
    task = CountingTask()
    questions = marker_questions(make_history(1), 3)

    score_program(turn_rag(task=task), scripted(right_answer), questions, threads=1)

    assert task.prepared_contexts == len(questions)


def test_a_memory_of_summaries_has_no_recall_of_what_is_shown(scripted, make_history):
    """The method recursive-summary shows a summary of the sessions.

    Nobody can tell if a summary holds the evidence, so "shown" is left out.
    """

    def always_the_same_text(kind: str, text: str, n: int) -> dict[str, str]:
        return {kind: "Ann saw Oslo."}

    questions = marker_questions(make_history(1), 1)

    recall = score(scripted(always_the_same_text), questions, "recursive-summary").retrieval()

    assert "shown" not in recall
    assert recall["recall@5"] == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param({"answer": "none"}, id="the question is answered"),
        pytest.param("no field at all", id="the question fails"),
    ],
)
def test_evidence_that_is_shown_although_the_search_found_nothing_counts_in_no_recall(
    scripted, make_history, reply
):
    """If a search finds nothing, the newest turns are shown instead, as a fallback.

    No turn has the word "Zebra". The evidence is the newest turn, so it is shown by luck.
    """
    history = make_history(1)
    newest_turn_id = list(history.turns)[-1]
    question = question_with_evidence(history, "Zebra?", [newest_turn_id])

    result = score(scripted(lambda kind, text, n: reply), [question])

    (answered_row,) = result.rows
    assert newest_turn_id in answered_row.sources
    assert answered_row.recall == {"shown": 0.0, "recall@5": 0.0, "recall@20": 0.0}
    assert answered_row.trace.recalled_evidence == []


def test_turns_that_are_shown_although_the_search_found_nothing_are_marked(scripted, make_history):
    """No turn has the word "Zebra", so the newest turns are shown instead, as a fallback."""
    history = make_history(1)
    newest_turn_id = list(history.turns)[-1]
    question = question_with_evidence(history, "Zebra?", [newest_turn_id])

    result = score(scripted(lambda kind, text, n: {"answer": "none"}), [question])

    (answered_row,) = result.rows
    entries = answered_row.trace.entries
    assert len(entries) > 0
    assert answered_row.recall_counts["fallback"] == len(entries)
    for entry in entries:
        assert entry.fallback
        assert not answered_row.trace.is_gold(entry)


def reply_to_questions_alone(kind: str, text: str, n: int) -> dict[str, str] | str:
    """A scripted model that answers questions, and whose other answers cannot be read."""
    if kind == "answer":
        return {"answer": "none"}
    return "no field at all"


@pytest.mark.parametrize(
    ("question_text", "recall", "is_fallback"),
    [
        pytest.param("Zebra?", 0.0, True, id="no search hit"),
        pytest.param("I saw Oslo with 6 friends", 1.0, False, id="search hit"),
    ],
)
def test_a_turn_that_could_not_be_written_is_recalled_only_if_a_search_finds_it(
    scripted, make_history, question_text, recall, is_fallback
):
    """The method condition-mem keeps turns as they were said if the model does not write them.

    Prompts show the newest of them always. The newest turn, D1:6, is "I saw Oslo with 6 friends".
    """
    question = question_with_evidence(make_history(1), question_text, ["D1:6"])

    result = score(scripted(reply_to_questions_alone), [question], "condition-mem")

    (answered_row,) = result.rows
    assert answered_row.recall["shown"] == recall
    assert {entry.fallback for entry in answered_row.trace.entries} == {is_fallback}


def test_failed_writes_are_counted_beside_the_score(scripted, fact_replies, make_history):
    """The model never answers readably to a prompt that asks it to write turn D1:6.

    Memory-R2 tries this turn in session D1 and once more with session D2. Questions are answered.
    """

    def reply_with_garbled_writes(kind: str, text: str, n: int) -> dict[str, Any] | str:
        if kind == "operations" and "D1:6" in text:
            return "garbled"
        return fact_replies(kind, text, n)

    result = score(
        scripted(reply_with_garbled_writes), marker_questions(make_history(2), 3), "memory-r2"
    )

    assert result.failures == 0
    assert result.write_failures == 2
    failed_items = [failure.where.split(", ")[1] for failure in result.failed_writes]
    assert failed_items == ["item D1", "item D2"]
    failure_kinds = [failure["kind"] for failure in result.to_dict()["failed_writes"]]
    assert failure_kinds == ["parse", "parse"]


def test_operations_of_a_model_that_are_refused_are_counted(scripted, fact_replies, make_history):
    """The model of Memory-R2 changes a memory by operations, such as INSERT and DELETE.

    One of them asks to delete a memory m99, which does not exist.
    """
    deletion = {"op": "DELETE", "memory_id": "m99", "speaker": "", "content": "", "turn_id": ""}

    def reply_with_one_deletion(kind: str, text: str, n: int) -> dict[str, Any] | str:
        if kind == "operations" and "D1:5" in text.rpartition("new_facts")[2]:
            return {"operations": [deletion]}
        return fact_replies(kind, text, n)

    result = score(
        scripted(reply_with_one_deletion), marker_questions(make_history(2), 3), "memory-r2"
    )

    assert result.operations["refused"] == 1


def test_the_words_of_a_memory_are_counted_once_for_all_its_questions(
    scripted, fact_replies, make_history
):
    """Three questions share one memory. Its facts have six words: "I saw Oslo with 2 friends"."""
    questions = marker_questions(make_history(1), 3)

    result = score(scripted(fact_replies), questions, "memory-r2")

    assert result.operations["inserted"] > 0
    assert result.memory_words == 6 * result.operations["inserted"]


def reply_in_four_ways(kind: str, text: str, n: int) -> dict[str, str] | str:
    """A scripted model that answers questions 0 to 3 in four ways.

    0: as asked for; 1: as bare JSON; 2: readable when it is asked again; 3: never readable.
    """
    number = question_number(text)
    is_second_try = "could not be read" in text
    if number == 1:
        return '{"answer": "marker 1"}'
    if number == 3 or (number == 2 and not is_second_try):
        return "no field at all"
    return {"answer": f"marker {number}"}


def test_every_call_of_a_predictor_ends_in_one_of_four_ways(scripted, make_history):
    """A call is "ok", "repaired", "retried" or "lost".

    A repaired one could be read, but had another layout than was asked for.
    """
    questions = marker_questions(make_history(1), 4)

    result = score(scripted(reply_in_four_ways), questions, threads=1)

    outcomes = {"ok": 1, "repaired": 1, "retried": 1, "lost": 1}
    assert result.outcomes == outcomes
    assert result.to_dict()["call_outcomes"] == {"task.answer": outcomes}


def test_the_faults_of_answers_are_counted(scripted, make_history):
    """Of the answers of `reply_in_four_ways`, one has another layout.

    Three cannot be read: the first answer to question 2, and both answers to question 3.
    """
    questions = marker_questions(make_history(1), 4)

    result = score(scripted(reply_in_four_ways), questions, threads=1)

    assert result.faults == {"task.answer": {"layout": 1, "parse": 3}}


@pytest.mark.parametrize(
    ("options", "is_broken"),
    [
        pytest.param({}, True, id="by default a tenth may fail"),
        pytest.param({"max_failure_rate": 0.25}, False, id="a quarter may fail"),
    ],
)
def test_a_run_is_broken_if_more_calls_fail_than_are_allowed(
    scripted, make_history, options, is_broken
):
    """One of four calls fails: `reply_in_four_ways` gives no readable answer to question 3."""
    questions = marker_questions(make_history(1), 4)

    result = score(scripted(reply_in_four_ways), questions, threads=1, **options)

    assert result.to_dict()["failure_rate"] == 0.25
    assert result.broken is is_broken
    assert result.to_dict()["broken"] is is_broken


ROW_WITH_EVIDENCE = row("q0", recall={"shown": 1.0, "recall@5": 1.0}, hits=3)
"""The prompt showed three hits, and the evidence among them."""
ROW_OF_SUMMARIES = row("q1", recall={"recall@5": 1.0}, hits=3)
"""The prompt showed summaries alone, so nobody can tell if it showed the evidence."""
ROW_WITHOUT_HITS = row("q2", recall={"shown": 0.0}, hits=0)
"""The search found nothing, so the prompt showed no evidence."""
ROW_WITHOUT_KNOWN_EVIDENCE = row("q3", recall={}, hits=3)
"""The benchmark does not say what the evidence of the question is."""


@pytest.mark.parametrize(
    ("rows", "mean_recall"),
    [
        # If a program shows turns at all, summaries alone count as no evidence.
        pytest.param([ROW_WITH_EVIDENCE, ROW_OF_SUMMARIES], 0.5, id="some prompts of summaries"),
        pytest.param([ROW_OF_SUMMARIES, ROW_OF_SUMMARIES], None, id="only prompts of summaries"),
        pytest.param([ROW_WITHOUT_HITS, ROW_OF_SUMMARIES], None, id="summaries or nothing"),
        pytest.param(
            [ROW_WITH_EVIDENCE, ROW_WITHOUT_HITS, ROW_WITHOUT_KNOWN_EVIDENCE],
            0.5,
            id="a question without known evidence is left out",
        ),
    ],
)
def test_the_mean_recall_of_what_prompts_showed(rows, mean_recall):
    recall = evaluation_of(rows).retrieval()

    assert recall.get("shown") == mean_recall


USER_STORES = """
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
"""A user's stores: one that works, one that asks a model, and one that ends its process."""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user's module `user_stores`, which can be imported."""
    (tmp_path / "user_stores.py").write_text(USER_STORES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("user_stores", None)


def test_questions_fail_if_a_store_ends_its_process(user_module):
    """A user's own store runs in another process, which this one ends with `os._exit(7)`."""
    result = run_evaluate("user_stores:Exit", run_inputs("locomo", test=3))

    assert len(result.rows) == 3
    for failed_row in result.rows:
        assert failed_row.failure is not None
        assert "status 7" in failed_row.failure.message


def evaluate_asking_store(**options: Any) -> Evaluation:
    """Evaluate the user's store `Asking`, which asks a model about each session that it adds."""
    inputs = run_inputs("locomo", test=6, threads=1, **options)
    return run_evaluate("user_stores:Asking", with_options(inputs, set={"isolated": False}))


@pytest.mark.usefixtures("user_module")
def test_a_stopped_run_of_a_users_store_is_resumed_without_asking_a_model_twice():
    """The first run stops after four calls."""
    uninterrupted = evaluate_asking_store()

    stopped = evaluate_asking_store(max_calls=4)
    assert stopped.stopped
    resumed = evaluate_asking_store(resume=str(RunFolder.open(str(stopped.run_id)).path))

    assert [row.answer for row in resumed.rows] == [row.answer for row in uninterrupted.rows]
    assert stopped.calls["task"] + resumed.calls["task"] == uninterrupted.calls["task"]


def test_summaries_of_a_users_records_are_counted_once_for_all_questions():
    """In this benchmark, a question is about the records of a user up to some time.

    The program summarizes the records one by one. Each question takes one call besides.
    """
    inputs = run_inputs("omnibehavior", test=16)

    plan = plan_evaluate("recursive-summary", inputs)
    result = run_evaluate("recursive-summary", inputs)

    users = {row.group for row in result.rows}
    assert result.histories == len(users)
    assert result.construction.calls == result.calls["task"] - 16
    assert plan.calls.low <= result.calls["task"] <= plan.calls.high


@pytest.mark.slow
def test_a_plan_of_pramem_counts_the_practice_once_for_each_user():
    """PraMem writes a user's memory in many rounds of practice, when all records are there.

    If a plan counted the practice once for each question, it would expect far more calls.
    """
    inputs = run_inputs("omnibehavior", test=8)

    plan = plan_evaluate("pramem", inputs)
    result = run_evaluate("pramem", inputs)

    assert result.calls["task"] <= plan.calls.high <= 2 * result.calls["task"]


def test_an_external_system_cannot_be_planned(user_module):
    """A plan says before a run how many calls it will make.

    Nobody knows how many a user's own store makes.
    """
    with pytest.raises(UserError, match="leave --plan out"):
        plan_evaluate("user_stores:Fine", run_inputs("locomo"))


def test_a_program_over_a_shipped_system_is_loaded_only_if_its_code_is_allowed(
    user_module, monkeypatch, make_history
):
    """A shipped system is memory software of others, which users name as "system:NAME".

    These systems are installed from the network, so a class of the test takes the place of one.
    """
    from user_stores import Fine

    factories = {"fine": lambda folder, embedder=None: Fine()}
    monkeypatch.setattr("mempiler.systems.catalog.factory", factories.get)
    program = build_external_program(
        resolve_external("system:fine"), "system:fine", "question-answering", config={"k": 3}
    )
    save(program, user_module / "program")

    with pytest.raises(ProgramError, match="--allow-code"):
        load(user_module / "program")

    loaded_program = load(user_module / "program", allow_code=True)
    with dspy.context(lm=language_model()):
        prediction = loaded_program(history=make_history(1), question="Who?")
    assert len(prediction.context.hits) == 3
    loaded_program.method.close()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        pytest.param(
            [{"id": "a:4:0", "answer": "x"}, {"id": "a:4:0", "answer": "y"}],
            "line 2: id 'a:4:0' was there already",
            id="duplicate id",
        ),
        pytest.param(
            [{"id": "a:4:0", "answer": "x"}],
            "id 'a:4:1' is missing (1 such)",
            id="missing id",
        ),
        pytest.param(
            [{"id": "zz", "answer": "x"}],
            "id 'zz' is of no question (1 such)",
            id="unknown id",
        ),
        pytest.param([{"answer": "x"}], "line 1, field 'id': is missing", id="no id"),
        pytest.param([{"id": "a:4:0"}], "line 1: has no answer", id="no answer"),
        pytest.param(
            [{"id": "a:4:0", "answer": "x", "cost": -1}],
            "line 1, field 'cost'",
            id="negative cost",
        ),
    ],
)
def test_recorded_answers_that_do_not_fit_are_refused(lines, problem, make_history, tmp_path):
    """A user may have answers of another system scored, from a file with one line a question.

    There are two questions, with the ids a:4:0 and a:4:1.
    """
    questions = locomo(questions_about(make_history(1, id="a"), 2))
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))

    with pytest.raises((UserError, DataError)) as error:
        RecordedAnswers(path).attach_answers(questions, questions.examples)

    assert problem in str(error.value)


def score_recorded_lines(history: History, folder: Path, *lines: dict[str, Any]) -> Evaluation:
    """Score recorded answers to the questions a:4:0, a:4:1, ... about a history.

    The gold answer of each question is "Bob", and its evidence is turn D1:1.
    """
    path = folder / "answers.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    questions = locomo(questions_about(history, len(lines)))
    recorded_answers = RecordedAnswers(path)
    program = build_external_program(recorded_answers, path.name, "question-answering")
    meter = Meter()
    with dspy.context(lm=language_model(meter=meter)):
        examples = recorded_answers.attach_answers(questions, questions.examples)
        return score_questions(program, questions, examples, meter, 2)


def test_recorded_answers_are_scored_against_the_gold_answer_bob(make_history, tmp_path):
    """A recorded error, as of question 1, counts as a failed question."""
    result = score_recorded_lines(
        make_history(1, id="a"),
        tmp_path,
        {"id": "a:4:0", "answer": "Bob"},
        {"id": "a:4:1", "error": "timed out"},
        {"id": "a:4:2", "answer": "Ann"},
    )

    assert [row.score for row in result.rows] == [1.0, 0.0, 0.0]
    assert result.failures == 1
    assert "timed out" in result.rows[1].failure.message


def test_what_was_recalled_for_recorded_answers_is_measured(make_history, tmp_path):
    """The evidence D1:1 was recalled for one of two questions."""
    result = score_recorded_lines(
        make_history(1, id="a"),
        tmp_path,
        {"id": "a:4:0", "answer": "Bob", "recalled": [{"id": "D1:1", "text": "x"}]},
        {"id": "a:4:1", "answer": "Bob"},
    )

    assert result.retrieval() == {"shown": 0.5}


def test_the_usage_of_recorded_answers_is_added_up(make_history, tmp_path):
    result = score_recorded_lines(
        make_history(1, id="a"),
        tmp_path,
        {"id": "a:4:0", "answer": "Bob", "calls": 2, "input_tokens": 9},
        {"id": "a:4:1", "answer": "Ann", "calls": 1, "seconds": 100, "cost": 0.5},
    )

    assert result.answering_usage.calls == 3
    assert result.answering_usage.input_tokens == 9
    assert result.answering_usage.seconds > 100
    assert result.rows[1].cost == 0.5


def test_a_program_of_recorded_answers_keeps_the_digest_of_its_file(tmp_path):
    """Two files with different answers are two programs."""
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"id": "a:4:0", "answer": "Bob"}))

    program = build_external_program(RecordedAnswers(path), path.name, "question-answering")

    assert program.method.config["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


SMALLER_SETTINGS: Mapping[str, dict[str, Any]] = {"pramem": {"rounds": 2}}
"""Settings that save time, by method; all paths use the same ones."""

AskingPath = Callable[[MemoryProgram, Benchmark, dspy.Example, Store], None]
"""A way to have a program answer a question."""


def evaluate(
    program: MemoryProgram, questions: Benchmark, example: dspy.Example, store: Store
) -> None:
    """Answer the question in an evaluation."""
    score_questions(program, questions, [example], dspy.settings.lm.meter)


def compile_with_dspy(
    program: MemoryProgram, questions: Benchmark, example: dspy.Example, store: Store
) -> None:
    """Answer the question in an optimizer of DSPy's."""
    if not program.named_predictors():
        return
    teleprompter = dspy.BootstrapFewShot(
        max_bootstrapped_demos=1, max_labeled_demos=0, max_rounds=1
    )
    teleprompter.compile(program.staged("read"), trainset=[example])


def compute_reward(
    program: MemoryProgram, questions: Benchmark, example: dspy.Example, store: Store
) -> None:
    """Answer the question for the reward of a training."""
    memory = program.remember(example.history).memory
    score_answers(program, example.history, memory, [example], lambda example, prediction: 0.0)


def ask_in_python(
    program: MemoryProgram, questions: Benchmark, example: dspy.Example, store: Store
) -> None:
    """Ask the question of a user's memory in a store."""
    write_user_memory(program, example, store, "python").ask(**question_fields(example))


def ask_over_http(
    program: MemoryProgram, questions: Benchmark, example: dspy.Example, store: Store
) -> None:
    """Ask the question of a service."""
    user = write_user_memory(program, example, store, "http").owner.user
    service = Service(program, store, dspy.settings.lm, settings=Settings(writers=0))

    async def post_question() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(f"/v1/users/{user}/ask", json=question_fields(example))

    response = asyncio.run(post_question())
    assert response.status_code == 200, response.text


def write_user_memory(
    program: MemoryProgram, example: dspy.Example, store: Store, user: str
) -> UserMemory:
    """Write the history of a question into a user's memory, and return the memory."""
    memory = program.memory(store, user=user)
    for item in example.history:
        memory.add(item, remember=False)
    memory.remember()
    return memory


def question_fields(example: dspy.Example) -> dict[str, Any]:
    """Return the inputs of a question without those that only an evaluation has."""
    fields = dict(example.inputs().items())
    fields.pop("history", None)
    fields.pop("evidence_ids", None)
    return fields


def prompts_of(
    ask: AskingPath,
    program: MemoryProgram,
    questions: Benchmark,
    example: dspy.Example,
    store: Store,
) -> list[str]:
    """Ask a question in one way, and return all prompts that the model got, sorted."""
    engine = RecordingEngine()
    lm = MeteredLM("offline/test", engine=engine, cache=False, temperature=0.0)
    with dspy.context(lm=lm, trace=None, disable_history=True):
        ask(program, questions, example, store)
    return sorted(engine.prompts)


def first_headline_question(questions: Benchmark) -> dspy.Example:
    """Return a question with a date, since a service would add the present one."""
    headline_examples = [
        example for example in questions.examples if questions.in_headline(example)
    ]
    example = headline_examples[0]
    with_date = dspy.Example({"date": "2 June 2031, Monday", **example})
    return with_date.with_inputs("date", *example.inputs().keys())


def ways_to_ask(example: dspy.Example) -> list[AskingPath]:
    """Return the ways to have a question answered besides an evaluation.

    Some tasks have inputs that a service does not take.
    """
    ways: list[AskingPath] = [compile_with_dspy, compute_reward, ask_in_python]
    if question_fields(example).keys() <= Question.model_fields.keys():
        ways.append(ask_over_http)
    return ways


@pytest.mark.parametrize(
    ("method", "benchmark_name"),
    [
        *((name, "locomo") for name in METHODS if name not in ("pramem", "h2memory")),
        ("pramem", "movielens"),
        ("h2memory", "palbench.restate"),
        ("logs+session-rag", "palbench.select"),
        ("pgr+turn-rag", "locomo"),
    ],
)
@pytest.mark.slow
def test_a_question_has_the_same_prompts_wherever_it_is_asked(method, benchmark_name, store):
    """A program may be evaluated, compiled, trained, or asked by a user.

    If it had other prompts there, its score would not hold for what the user gets.
    """
    questions = benchmark(benchmark_name)
    example = first_headline_question(questions)
    settings = SMALLER_SETTINGS.get(method, {})

    def new_program() -> MemoryProgram:
        return build(method, questions.task, embedder(), **settings)

    evaluation_prompts = prompts_of(evaluate, new_program(), questions, example, store)
    assert evaluation_prompts

    for ask in ways_to_ask(example):
        prompts = prompts_of(ask, new_program(), questions, example, store)
        assert prompts == evaluation_prompts, ask.__name__

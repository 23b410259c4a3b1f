"""Other people's systems are scored: stores, functions, modules and endpoints.

A store has the methods `add(session)` and `search(query, k)`, or `ask(question)`. It is written
once for each history: all sessions are added to it. A function or module gets the whole history
with every question. What fails in a system is a failure of its questions.

An evaluation has a row for each question. `failures` are questions that got no answer,
`write_failures` are sessions that could not be added, and `hits` are what was recalled for a
question.
"""

import functools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import Action, Behavior, EndpointError, Entry, History, Item, ProgramError, UserError
from mempiler.data.benchmark import Benchmark
from mempiler.data.catalog import benchmark
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.programs.external._answers import hits_of
from mempiler.programs.external.program import build_external_program
from mempiler.programs.external.signatures import check_store
from mempiler.programs.external.target import load_target
from mempiler.runs.results import Evaluation
from mempiler.runs.scoring import score_questions

from ..runs.evaluations import locomo as locomo_of
from ..runs.evaluations import questions_about

MakeHistory = Callable[..., History]
"""The fixture `make_history`: `make_history(3)` has sessions D1 to D3 of six turns each."""


class Lines:
    """A store of lines; `search` gives the newest."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, session: Any) -> None:
        self.lines += session.lines()

    def search(self, query: str, k: int) -> Any:
        return self.lines[-k:][::-1]

    # An empty store is false, and must be taken for a store all the same.
    def __len__(self) -> int:
        return len(self.lines)


def build_system(target: Any, task: str = "question-answering", **config: Any) -> Any:
    """Return the program of a system that errors call "mine"."""
    return build_external_program(target, "mine", task, config=config)


def score(program: Any, examples: Sequence[dspy.Example], threads: int = 4) -> Evaluation:
    """Ask a program questions, and score its answers as LoCoMo does."""
    return score_on(locomo_of(examples), program, examples, threads)


def score_on(
    chosen_benchmark: Benchmark, program: Any, examples: Sequence[dspy.Example], threads: int
) -> Evaluation:
    """Ask a program questions of a benchmark in some threads; the model is the offline one."""
    meter = Meter()
    with dspy.context(lm=language_model(meter=meter)):
        return score_questions(program, chosen_benchmark, examples, meter, threads)


# Stores.


def test_a_store_is_written_once_however_many_questions_there_are(
    make_history: MakeHistory,
) -> None:
    """A store is a memory system of the user's: sessions are added to it, and it is searched."""
    added_sessions: list[str] = []

    class Recording(Lines):
        def add(self, session: Any) -> None:
            added_sessions.append(session.id)
            super().add(session)

    four_questions = questions_about(make_history(sessions=3), count=4)

    evaluation = score(build_system(Recording), four_questions)

    assert evaluation.n == 4
    assert evaluation.failures == 0
    assert all(row.hits for row in evaluation.rows)
    assert added_sessions == ["D1", "D2", "D3"]


def make_lines(folder: Path) -> Lines:
    """Make a store in a folder, which this one does not need."""
    return Lines()


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(Lines, id="class"),
        pytest.param(Lines(), id="object"),
        pytest.param(make_lines, id="function that makes stores"),
    ],
)
def test_classes_objects_and_functions_that_make_stores_are_stores(
    target: Any, make_history: MakeHistory
) -> None:
    """A store has the methods `add(session)` and `search(query, k)`."""
    program = build_system(target, k=2)

    evaluation = score(program, questions_about(make_history(sessions=2), count=3))

    assert evaluation.failures == 0
    # Two lines are recalled for each question.
    assert [row.hits for row in evaluation.rows] == [2, 2, 2]


def store_that_refuses(*session_ids: str, error: Exception) -> type[Lines]:
    """Return a class of stores that raise an error when these sessions are added."""

    class Picky(Lines):
        def add(self, session: Any) -> None:
            if session.id in session_ids:
                raise error
            super().add(session)

    return Picky


def test_a_session_that_a_store_refuses_is_a_failed_write(make_history: MakeHistory) -> None:
    """All sessions of a history are added to a store; here an error is raised for the second.

    The questions are answered from the other two sessions.
    """
    store = store_that_refuses("D2", error=ValueError("no room\nat all"))

    evaluation = score(build_system(store), questions_about(make_history(sessions=3), count=3))

    assert evaluation.failures == 0
    assert evaluation.write_failures == 1
    [failed_write] = evaluation.failed_writes
    assert "no room at all" in failed_write.message, "on one line"
    assert "1 writes failed" in str(evaluation)


def test_the_questions_fail_if_a_store_refuses_all_sessions(make_history: MakeHistory) -> None:
    """Nothing could be found in such a store."""
    store = store_that_refuses("D1", "D2", "D3", error=ValueError("no room"))

    evaluation = score(build_system(store), questions_about(make_history(sessions=3), count=3))

    assert evaluation.failures == 3
    failure = evaluation.rows[0].failure
    assert failure is not None
    assert "mine: took none of 3 sessions" in failure.message


def test_failed_writes_above_the_allowed_share_break_a_run(make_history: MakeHistory) -> None:
    """A broken run is one whose scores should not be trusted, since too much has failed."""
    store = store_that_refuses("D2", error=OSError("disk full"))

    evaluation = score(build_system(store), questions_about(make_history(sessions=4), count=3))

    assert evaluation.failures == 0
    # One of four sessions could not be written; by default, a tenth may fail.
    assert evaluation.failure_rate == 0.25
    assert evaluation.broken is True
    reason = r"1 of 4 writes failed, .* allows 10%; most often: .*disk full"
    assert re.match(reason, str(evaluation.breakage))

    tolerant_evaluation = evaluation.model_copy(update={"max_failure_rate": 0.25})
    assert not tolerant_evaluation.broken


def test_model_calls_of_a_store_that_then_fails_are_counted(make_history: MakeHistory) -> None:
    """The user pays for these calls, though nothing comes of them."""

    class AskingStore(Lines):
        """A store that asks a model about each session, and then cannot store it."""

        def add(self, session: Any) -> None:
            dspy.Predict("text -> fact")(text=session.lines()[0])
            raise ValueError("no room")

    evaluation = score(
        build_system(AskingStore), questions_about(make_history(sessions=3), count=2)
    )

    assert evaluation.failures == 2
    # One call for each of the three sessions. "task" is the role of the model.
    assert evaluation.construction.calls == 3
    assert evaluation.calls["task"] == 3


# Stores that do not fit: each lacks a parameter, or has one that nobody gives it.


class NeedsAddress(Lines):
    def __init__(self, url: str, key: str) -> None:
        super().__init__()


class AddsNothing(Lines):
    def add(self) -> None:
        pass


class SearchesWithoutK(Lines):
    def search(self, query: str) -> Any:
        return []


class AsksNothing:
    def add(self, session: Any) -> None:
        pass

    def ask(self) -> str:
        return ""


def make_lines_at(folder: Path, url: str) -> Lines:
    return Lines()


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (NeedsAddress, "mine: cannot be made without url, key; .* set a default"),
        (make_lines_at, "mine: cannot be made without url; .* set a default"),
        (AddsNothing, r"mine: add\(self\) -> None cannot be called as add\(self, session\)"),
        (AddsNothing(), r"mine: add\(\) -> None cannot be called as add\(session\)"),
        (
            SearchesWithoutK,
            r"mine: search\(self, query: str\) .* cannot be called as search\(self, query, k\)",
        ),
        (AsksNothing, r"mine: ask\(self\) .* cannot be called as ask\(self, question\)"),
    ],
)
def test_a_store_that_cannot_be_made_or_called_is_refused_before_it_is_asked(
    store: Any, message: str
) -> None:
    """A store is made without arguments or with a folder, and called as `search(query, k)`."""
    with pytest.raises(UserError, match=message):
        build_system(store)


class WrappedStore:
    """A store whose methods are functions in wrappers."""

    def add(self, session: Any) -> None:
        pass

    def search_by(self, order: str, query: str, k: int) -> Any:
        return []

    search = functools.partialmethod(search_by, "newest")


class CachingStore(WrappedStore):
    @functools.lru_cache  # noqa: B019 (one object, for a test)
    def search(self, query: str, k: int) -> Any:
        return []


class DispatchingStore(WrappedStore):
    @functools.singledispatchmethod
    def search(self, query: str, k: int) -> Any:
        return []


class UnusualStore:
    """A store that takes any arguments, has a static method, and sets a method when it is made."""

    def __init__(self, *args: Any, folder: Path, url: str = "", **kwargs: Any) -> None:
        self.search = lambda query, k: []

    @staticmethod
    def add(session: Any) -> None:
        pass

    def search(self, *args: Any) -> Any:
        return []


@pytest.mark.parametrize(
    "store",
    [WrappedStore(), CachingStore(), DispatchingStore(), UnusualStore(folder=Path())],
    ids=lambda store: type(store).__name__,
)
def test_stores_with_unusual_methods_are_accepted_if_they_can_be_called(store: Any) -> None:
    """A wrapper of functools, for example, may fill in an argument or keep results."""
    # An error would be raised if a method could not be called as `search(query, k)`.
    check_store(store, "mine")
    check_store(type(store), "mine")


@pytest.mark.parametrize(
    ("entry_id", "is_reported"),
    [
        pytest.param("note", True, id="id of its own"),
        # Entries that have the id of a turn may be parts of it.
        pytest.param("D1:1", False, id="id of a turn"),
        pytest.param("", False, id="no id"),
    ],
)
def test_entries_of_a_search_with_the_same_id_are_reported_in_one_line(
    make_history: MakeHistory, entry_id: str, is_reported: bool
) -> None:
    """Entries are told apart by their ids. The report warns users of a store that repeats an id."""

    class SameIds(Lines):
        def search(self, query: str, k: int) -> Any:
            return [{"id": entry_id, "text": line} for line in self.lines[:2]]

    evaluation = score(build_system(SameIds), questions_about(make_history(sessions=1), count=2))

    assert evaluation.failures == 0
    report = "2 questions were answered from several entries with the same id, such as 'note'"
    assert (report in str(evaluation)) is is_reported


def check_that_only_the_first_three_failed(evaluation: Evaluation, reason: str) -> None:
    """Check that the first three questions failed for a reason, and the others were answered."""
    first_three_rows = evaluation.rows[:3]
    other_rows = evaluation.rows[3:]
    for row in first_three_rows:
        assert row.failure is not None
        assert reason in row.failure.message
    assert other_rows
    for row in other_rows:
        assert row.failure is None


def store_with_bad_search(search_result: Any) -> type[Lines]:
    """Return a class of stores whose searches give a bad result if there is a session D4.

    An exception is raised. Stores without a session D4 are searched as usual.
    """

    class BadSearch(Lines):
        has_d4 = False

        def add(self, session: Any) -> None:
            super().add(session)
            if session.id == "D4":
                self.has_d4 = True

        def search(self, query: str, k: int) -> Any:
            if not self.has_d4:
                return super().search(query, k)
            if isinstance(search_result, Exception):
                raise search_result
            return search_result

    return BadSearch


@pytest.mark.parametrize(
    ("search_result", "reason"),
    [
        ("a text", "recalled str, expected a list"),
        ([object()], "recalled object without a text"),
        (None, "search returned None, expected a list"),
        (RuntimeError("<script>alert(1)</script>"), "<script>"),
    ],
)
def test_a_search_that_fails_harms_only_the_questions_of_its_history(
    search_result: Any, reason: str, make_history: MakeHistory
) -> None:
    """Each history has a store of its own. Of six questions, three are about the bad history."""
    bad_history = make_history(sessions=4, id="bad")
    good_history = make_history(sessions=2, id="good")
    examples = [*questions_about(bad_history, count=3), *questions_about(good_history, count=3)]

    # Only the bad history has a session D4.
    evaluation = score(build_system(store_with_bad_search(search_result)), examples)

    check_that_only_the_first_three_failed(evaluation, reason)


def test_a_store_that_hangs_harms_only_the_questions_of_its_history(
    make_history: MakeHistory,
) -> None:
    """Each history has a store of its own. Of six questions, three are about the bad history."""
    release = threading.Event()

    class Hanging(Lines):
        def add(self, session: Any) -> None:
            super().add(session)
            # Only the bad history has a fourth session.
            if session.id == "D4":
                release.wait(30)

    bad_history = make_history(sessions=4, id="bad")
    good_history = make_history(sessions=2, id="good")
    examples = [*questions_about(bad_history, count=3), *questions_about(good_history, count=3)]
    evaluation = score(build_system(Hanging, timeout=1.0), examples)
    release.set()

    check_that_only_the_first_three_failed(evaluation, "mine: add: no answer within 1 s")


# Functions and modules.


class Agent(dspy.Module):
    """A module that answers from the first two lines of a history, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.ChainOfThought("passages: list[str], question -> answer")

    def forward(self, history: History, question: str) -> dspy.Prediction:
        lines = [line for item in history for line in item.lines()]
        first_lines = lines[:2]
        answer = self.say(passages=first_lines, question=question).answer
        return dspy.Prediction(answer=answer, recalled=first_lines)


class SilentAgent(Agent):
    """An agent that does not say which lines its model was shown."""

    def forward(self, history: History, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=super().forward(history, question).answer)


# A function may answer with a text, or also say what it has recalled: in a pair or a mapping.


def answers_text(history: History, question: str) -> str:
    return "Bob"


def answers_pair(history: History, question: str) -> tuple[str, list[Any]]:
    recalled_turn = {"id": "D1:1", "text": "x"}
    return "Bob", [recalled_turn]


async def answers_asynchronously(history: History, question: str) -> tuple[str, list[Any]]:
    recalled_entry = Entry(id="7", text="y", sources=("D1:1",))
    return "Bob", [recalled_entry]


def answers_mapping(history: History, question: str) -> dict[str, Any]:
    text_of_no_turn = "Ann: nothing of the kind"
    return {"answer": "Bob", "recalled": [text_of_no_turn]}


@pytest.mark.parametrize("agent", [answers_pair, answers_asynchronously, Agent])
def test_functions_and_modules_that_say_what_they_recalled_are_scored_with_retrieval(
    agent: Any, make_history: MakeHistory
) -> None:
    """The agents recall the turn D1:1, the evidence of all questions.

    What was recalled is traced to a turn by its id, by its sources, or because it is its line.
    """
    evaluation = score(build_system(agent), questions_about(make_history(sessions=2), count=3))

    assert evaluation.n == 3
    assert evaluation.failures == 0
    assert all(row.answer for row in evaluation.rows)
    assert evaluation.retrieval() == {"shown": 1.0}


@pytest.mark.parametrize("agent", [answers_text, answers_mapping])
def test_functions_that_do_not_say_which_turns_they_recalled_are_scored_without_retrieval(
    agent: Any, make_history: MakeHistory
) -> None:
    """One answers with a text alone; the other recalls a text that is in no turn."""
    evaluation = score(build_system(agent), questions_about(make_history(sessions=2), count=3))

    assert evaluation.n == 3
    assert evaluation.failures == 0
    assert evaluation.retrieval() == {}


def says_wrong(history: History, question: str) -> str:
    return "wrong"


def says_wrong_and_recalls(*recalled: Any) -> Callable[..., Any]:
    """Return a function with a wrong answer that says it recalled these entries."""

    def agent(history: History, question: str) -> dict[str, Any]:
        return {"answer": "wrong", "recalled": list(recalled)}

    return agent


def says_wrong_and_recalls_an_empty_list(history: History, question: str) -> tuple[str, list[Any]]:
    return "wrong", []


# Feedback tells an optimizer for what reason an answer is wrong, by the evidence of the question:
# the turn that answers it.


def reason_of_wrong_answer(agent: Any, history: History, evidence_id: str) -> str | None:
    """Return why an agent's answer to a question with this evidence is wrong."""
    [example] = questions_about(
        history,
        count=1,
        answer="something else",
        evidence_ids=(evidence_id,),
        evidence=(evidence_id,),
    )
    [row] = score(build_system(agent), [example]).rows
    assert row.failure is None
    return row.reason


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        pytest.param(
            says_wrong_and_recalls({"id": "D1:1", "text": "x"}), "read", id="recalled the evidence"
        ),
        pytest.param(
            says_wrong_and_recalls({"id": "D1:2", "text": "x"}), "missed", id="another turn"
        ),
        pytest.param(says_wrong_and_recalls(), "missed", id="recalled nothing"),
        pytest.param(says_wrong_and_recalls_an_empty_list, "missed", id="nothing, in a pair"),
        pytest.param(says_wrong_and_recalls("in words of its own"), "unknown", id="no turn"),
        pytest.param(says_wrong, "unknown", id="says nothing of what it recalled"),
    ],
)
def test_feedback_says_whether_the_evidence_of_a_wrong_answer_was_recalled(
    agent: Any, reason: str, make_history: MakeHistory
) -> None:
    """The turn D1:1 is the evidence.

    "read" means that the system recalled the evidence and yet answered wrongly, "missed" that the
    system did not recall the evidence, and "unknown" that nobody knows what the system recalled.
    """
    history = make_history(sessions=2)

    assert reason_of_wrong_answer(agent, history, evidence_id="D1:1") == reason


@pytest.mark.parametrize(("evidence_id", "reason"), [("D1:1", "prompted"), ("D2:3", "unknown")])
def test_feedback_says_whether_the_model_of_a_module_was_shown_the_evidence(
    evidence_id: str, reason: str, make_history: MakeHistory
) -> None:
    """This module does not say what it recalled, but its model is shown the turns D1:1 and D1:2."""
    history = make_history(sessions=2)

    assert reason_of_wrong_answer(SilentAgent, history, evidence_id) == reason


def test_a_function_with_a_parameter_for_options_gets_them(make_history: MakeHistory) -> None:
    """A question of the task "multiple-choice" has options, of which one is the answer."""
    received: dict[str, Any] = {}

    def choose(history: History, question: str, options: list[str]) -> str:
        received["question"] = question
        received["options"] = options
        return "(a)"

    program = build_system(choose, task="multiple-choice")
    program(history=make_history(sessions=1), question="Which?", options=["(a) tea", "(b) ink"])

    assert received["question"] == "Which?"
    assert received["options"] == ["(a) tea", "(b) ink"]


def test_a_function_without_a_parameter_for_options_gets_them_in_the_question(
    make_history: MakeHistory,
) -> None:
    """A question of the task "multiple-choice" has options, of which one is the answer."""
    received_questions: list[str] = []

    def choose(history: History, question: str) -> str:
        received_questions.append(question)
        return "(a)"

    program = build_system(choose, task="multiple-choice")
    program(history=make_history(sessions=1), question="Which?", options=["(a) tea", "(b) ink"])

    assert received_questions == ["Which?\n(a) tea\n(b) ink"]


# Functions with unusual parameters. They answer with the arguments that they were given. The date
# of a question is part of its text, and is passed by name if there is a parameter `date`.


def says_query(history: History, query: str) -> str:
    return query


def says_positional_only(history: History, question: str, query: str = "none", /) -> str:
    return f"{question} {query}"


def says_number_of_options(history: History, question: str, *options: str) -> str:
    return f"{question} {len(options)}"


def says_date(options: History, query: str, *, date: str) -> str:
    return f"{query} on {date}"


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (says_query, "Where? (asked on May 1)"),
        (says_positional_only, "Where? (asked on May 1) none"),
        (says_number_of_options, "Where? (asked on May 1) 0"),
        (says_date, "Where? (asked on May 1) on May 1"),
    ],
)
def test_every_argument_of_a_function_is_passed_once_whatever_its_parameters_are_called(
    agent: Any, answer: str, make_history: MakeHistory
) -> None:
    """An argument passed by position and by name would be a TypeError."""
    program = build_system(agent)

    prediction = program(history=make_history(sessions=1), question="Where?", date="May 1")

    assert prediction.answer == answer


def test_the_question_of_a_module_may_be_called_query(make_history: MakeHistory) -> None:
    """Modules of DSPy name their inputs as they like."""

    class QueryAgent(Agent):
        def forward(self, history: History, query: str) -> dspy.Prediction:
            return super().forward(history, query)

    evaluation = score(build_system(QueryAgent), questions_about(make_history(sessions=2), count=3))

    assert evaluation.failures == 0


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "answered NoneType, expected a text"),
        (b"\xff", "answered bytes"),
        (("Bob", 3), "recalled int"),
        ("\ud800 Lisbon", "half of a surrogate pair"),
    ],
)
def test_a_result_that_is_no_answer_is_a_failure(
    returned: Any, reason: str, make_history: MakeHistory
) -> None:
    """Half of a surrogate pair is a character that no file can store."""

    def agent(history: History, question: str) -> Any:
        return returned

    [row] = score(build_system(agent), questions_about(make_history(sessions=1), count=1)).rows

    assert row.failure is not None
    assert reason in row.failure.message


def test_the_predictors_of_a_module_can_be_optimized() -> None:
    """An optimizer copies a program and changes the predictors of the copy, e.g. their demos.

    The agent has one predictor, `say`. Its path in the program leads over the agent.
    """
    program = build_system(Agent())
    path = "method.reader.answerer.say.predict"
    assert list(program.all_predictors()) == [path]

    copied_program = program.deepcopy()
    demos = [dspy.Example(question="?")]
    copied_program.all_predictors()[path].demos = demos

    assert copied_program.all_predictors()[path].demos == demos
    assert program.all_predictors()[path].demos == []


def test_a_setting_k_is_passed_to_a_module_that_takes_it(
    make_history: MakeHistory,
) -> None:
    """For a store, `k` is how many entries a search returns. This module has another `k`."""

    class CountingAgent(dspy.Module):
        def __init__(self, k: int = 3) -> None:
            super().__init__()
            self.k = k

        def forward(self, history: History, question: str) -> str:
            return f"{self.k} of {len(history)}"

    program = build_system(CountingAgent, k=5)

    assert program(history=make_history(sessions=2), question="How many?").answer == "5 of 2"


class UncopyableLines(Lines):
    def __deepcopy__(self, memo: object) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        (Lines, {"size": 3}, "'mine' has no setting 'size'; it has: timeout=600.0, k=10"),
        (Lines, {"k": 0}, "'mine': k = 0: .* greater than or equal to 1"),
        (answers_text, {"k": 3}, "'mine' has no setting 'k'; it has: timeout"),
        (
            answers_text,
            {"task.reasoning": True},
            r"answers by itself: task\.reasoning does not reach it",
        ),
    ],
)
def test_settings_that_a_system_does_not_have_are_refused(
    target: Any, settings: dict[str, Any], message: str
) -> None:
    """A store has a number of recalled entries, `k`; a function answers by itself and has none."""
    with pytest.raises(UserError, match=message):
        build_system(target, **settings)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (object(), "mine: has neither add and search nor"),
        (UncopyableLines(), "mine: cannot be copied"),
        (load_target("http://127.0.0.1:1/v1"), "'mine': model = '': .*which of its models"),
    ],
)
def test_what_cannot_be_asked_is_refused(target: Any, message: str) -> None:
    """The last one is an endpoint without the name of a model."""
    with pytest.raises(UserError, match=message):
        build_system(target)


def test_a_name_is_loaded_as_a_method_or_as_the_address_of_an_endpoint() -> None:
    """`load_target` returns None for a method of this package, and refuses any other class."""
    assert load_target("turn-rag") is None
    assert load_target("mempiler.programs.baselines.turn_rag:TurnRAG") is None
    assert load_target("http://127.0.0.1:1/v1") is not None
    with pytest.raises(ProgramError, match="Method, and has neither add and search nor the"):
        load_target("json:JSONDecoder")


@pytest.mark.parametrize(
    ("recalled", "sources", "kind"),
    [
        pytest.param(
            "Ann said: I saw Oslo with 1 friends", ("D1:1",), "entry", id="text that quotes a turn"
        ),
        pytest.param("Oslo", (), "summary", id="text too short to be a quotation"),
        pytest.param(
            {"memory": "Bob likes Oslo", "id": "x"}, (), "summary", id="neither quotation nor id"
        ),
        pytest.param(
            {"text": "anything", "sources": ["D1:2", "D9:9"]},
            ("D1:2",),
            "entry",
            id="sources, one of them unknown",
        ),
        pytest.param(
            {"content": "anything", "id": "D1:2", "score": "high"},
            ("D1:2",),
            "entry",
            id="id of a turn",
        ),
    ],
)
def test_recalled_texts_are_matched_to_turns(
    recalled: Any, sources: tuple[str, ...], kind: str, make_history: MakeHistory
) -> None:
    """What a system recalled is an entry with the turns it rests on, or else a summary."""
    # Its turns D1:1 to D1:3 are "I saw Oslo with 1 friends" and so on.
    history = make_history(sessions=1, turns=3)

    [hit] = hits_of([recalled], history)

    assert hit.sources == sources
    assert hit.kind == kind


# Records of behaviour, where each question is asked at another point of one history.


def record_ids(items: Iterable[Item]) -> str:
    """Return the ids of all records of behaviour in some items, each once, as one text."""
    ids: set[str] = set()
    for item in items:
        if isinstance(item, Behavior):
            ids.update(action.id for action in item.actions)
    return " ".join(sorted(ids))


@pytest.mark.parametrize("threads", [1, 8])
def test_an_agent_gets_exactly_the_records_before_the_asked_one(threads: int) -> None:
    """MovieLens asks how a user rated a movie; an agent that got the rating could read it off.

    Questions of a user share a `history`; records between it and a question are its `recent`. The
    agent answers with the ids of the records that it gets.
    """
    movielens = benchmark("movielens")
    # The newest question comes first: if questions shared what was read for one of them, the older
    # ones would get records that only the newer ones may see.
    examples = movielens.split().test[::-1]

    def name_records(history: History, question: str) -> str:
        return record_ids(history)

    program = build_system(name_records, movielens.task)
    evaluation = score_on(movielens, program, examples, threads)

    answers = {row.id: row.answer for row in evaluation.rows}
    assert len(answers) == 60
    assert answers == {
        example.id: record_ids([*example.history, *example.recent]) for example in examples
    }


def video_record(number: int, title: str) -> Action:
    """Return the record that a user liked a video."""
    return Action(id=f"a{number}", scene="video", situation=title, action="liked")


def test_records_after_the_history_of_a_store_are_searched_as_they_are(scripted: Any) -> None:
    """All questions of a user share a store, which cannot go back to what it held before a record.

    So only the history is added to it. Of recent records, the task shows the newest and those that
    bear on the question, as far as they fit into its prompt.
    """
    added_items: list[str] = []

    class Recording(Lines):
        def add(self, session: Any) -> None:
            added_items.append(session.id)
            super().add(session)

    history = History(id="u", items=(Behavior.from_actions("b1", [video_record(1, "old clip")]),))
    zebra = video_record(2, "zebra crossing")
    later_clips = [video_record(number, f"clip {number}") for number in range(3, 24)]
    recent = [Behavior.from_actions("b2", [zebra, *later_clips])]
    program = build_system(Recording, task="behavior-prediction")
    program.task.suffix_tokens = 60
    lm = scripted(lambda *_prompt: {"answer": "Yes"})

    with dspy.context(lm=lm):
        question = "video; a zebra crossing. Like it?"
        program(history=history, recent=recent, question=question, options=["Yes", "No"])

    assert added_items == ["b1"]
    _, last_prompt = lm.engine.prompts[-1]
    assert "zebra crossing => liked" in last_prompt


# Endpoints.


class RememberingServer:
    """The answers of an endpoint that remembers what each user says.

    It answers a question that begins with "Who" with what the user said before it.
    """

    def __init__(self) -> None:
        self.texts_by_user: dict[str, list[str]] = {}

    def __call__(self, body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        texts_of_user = self.texts_by_user.setdefault(body["user"], [])
        texts_of_user.append(text)
        if not text.startswith("Who"):
            return "OK"
        # Ann says the last line of every session.
        text_before_question = texts_of_user[-2]
        return text_before_question.split("Ann: ")[-1]


def program_of_endpoint(url: str) -> Any:
    """Return the program that tells an endpoint the history, and then asks its model "any"."""
    target = load_target(url)
    return build_external_program(target, url, "question-answering", config={"model": "any"})


def test_an_endpoint_is_told_each_history_under_a_user_name_and_then_asked(
    stub: Any, make_history: MakeHistory
) -> None:
    """An endpoint is a chat server that remembers what its users say, each session in a message.

    Every history gets another user name, so that the server can keep the histories apart.
    """
    server = stub(answer=RememberingServer())
    program = program_of_endpoint(server.url)
    one_session = make_history(sessions=1, id="a")
    two_sessions = make_history(sessions=2, id="b")
    examples = [*questions_about(one_session, count=1), *questions_about(two_sessions, count=1)]

    evaluation = score(program, examples, threads=1)

    # The server answers with the last turn that it was told by the user.
    assert [row.answer for row in evaluation.rows] == [
        "I saw Oslo with 6 friends",
        "I saw Quito with 6 friends",
    ]
    users = {request.body["user"] for request in server.requests}
    assert len(users) == 2
    assert all(request.body["metadata"]["session"] for request in server.requests)
    program.method.close()


def test_the_calls_of_an_endpoint_are_counted(stub: Any, make_history: MakeHistory) -> None:
    """An endpoint is told the sessions of a history one by one, before it is asked questions."""
    program = program_of_endpoint(stub(answer=RememberingServer()).url)
    three_questions = questions_about(make_history(sessions=2), count=3)

    evaluation = score(program, three_questions, threads=1)

    assert evaluation.construction.calls == 2
    assert evaluation.construction.input_tokens > 0
    assert evaluation.answering_usage.calls == 3
    program.method.close()


def test_an_endpoint_that_cannot_be_reached_ends_the_run(make_history: MakeHistory) -> None:
    """No other question would do better, so the user is told at once."""
    # No server listens at port 1.
    program = program_of_endpoint("http://127.0.0.1:1/v1")

    with pytest.raises(EndpointError, match="cannot be reached"):
        score(program, questions_about(make_history(sessions=1), count=3))

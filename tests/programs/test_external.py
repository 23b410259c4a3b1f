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
from mempiler.data import behavior
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


def test_a_store_is_written_once_for_each_history_however_many_ask(
    make_history: MakeHistory,
) -> None:
    """A store is a memory system of the user's: sessions are added to it, and it is searched."""
    added_sessions: list[str] = []
    stores_added_to: set[int] = set()

    class Recording(Lines):
        def add(self, session: Any) -> None:
            added_sessions.append(session.id)
            stores_added_to.add(id(self))
            super().add(session)

    three_sessions = make_history(sessions=3, id="a")
    two_sessions = make_history(sessions=2, turns=4, id="b")
    examples = [*questions_about(three_sessions, count=4), *questions_about(two_sessions, count=4)]

    evaluation = score(build_system(Recording), examples)

    assert evaluation.n == 8
    assert evaluation.failures == 0
    assert all(row.hits for row in evaluation.rows)
    # D1 and D2 of both histories, and D3 of the longer one, once each.
    assert sorted(added_sessions) == ["D1", "D1", "D2", "D2", "D3"]
    assert len(stores_added_to) == 2


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
    assert evaluation.histories == 1
    numbers_of_hits = [row.hits for row in evaluation.rows]
    assert numbers_of_hits == [2, 2, 2]


def store_that_refuses(*session_ids: str, error: Exception) -> type[Lines]:
    """Return a class of stores that raise an error when these sessions are added."""

    class Picky(Lines):
        def add(self, session: Any) -> None:
            if session.id in session_ids:
                raise error
            super().add(session)

    return Picky


def test_a_session_that_a_store_refuses_is_a_failed_write(make_history: MakeHistory) -> None:
    """All sessions of a history are added to a store; here an error is raised for the second."""
    store = store_that_refuses("D2", error=ValueError("no room\nat all"))

    evaluation = score(build_system(store), questions_about(make_history(sessions=3), count=3))

    # The questions are answered from the other two sessions.
    assert evaluation.failures == 0
    assert evaluation.write_failures == 1
    # The message is put on one line.
    assert "no room at all" in evaluation.failed_writes[0].message
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


@pytest.mark.parametrize("store_class", [WrappedStore, CachingStore, DispatchingStore])
def test_methods_in_wrappers_of_functools_are_accepted(store_class: Any) -> None:
    """A wrapper may fill in an argument or keep results; it can be called as a store is."""
    # It raises an error if a method cannot be called as needed.
    check_store(store_class, "mine")
    check_store(store_class(), "mine")


class UnusualStore:
    """A store whose methods are no plain methods, but can be called as a store is called."""

    def __init__(self, *args: Any, folder: Path, url: str = "", **kwargs: Any) -> None:
        self.search = lambda query, k: []

    @staticmethod
    def add(session: Any) -> None:
        pass

    def search(self, *args: Any) -> Any:
        return []


@pytest.mark.parametrize(
    "target", [UnusualStore, UnusualStore(folder=Path())], ids=["class", "object"]
)
def test_a_store_with_unusual_signatures_that_fit_is_scored(
    target: Any, make_history: MakeHistory
) -> None:
    """It takes any arguments, has a static method, and sets a method when it is made."""
    evaluation = score(build_system(target), questions_about(make_history(sessions=1), count=1))

    assert evaluation.failures == 0
    assert evaluation.write_failures == 0


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


def check_that_the_first_three_failed(evaluation: Evaluation, reason: str) -> None:
    """Check that three of six questions failed for a reason, and the others were answered."""
    assert len(evaluation.rows) == 6
    first_three_rows = evaluation.rows[:3]
    other_rows = evaluation.rows[3:]
    for row in first_three_rows:
        assert row.failure is not None
        assert reason in row.failure.message
    for row in other_rows:
        assert row.failure is None


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
    bad_history = make_history(sessions=4, turns=6, id="bad")
    good_history = make_history(sessions=2, turns=6, id="good")
    lines_of_bad_history = 4 * 6

    class BadSearch(Lines):
        def search(self, query: str, k: int) -> Any:
            has_bad_history = len(self.lines) == lines_of_bad_history
            if not has_bad_history:
                return super().search(query, k)
            if isinstance(search_result, Exception):
                raise search_result
            return search_result

    examples = [*questions_about(bad_history, count=3), *questions_about(good_history, count=3)]
    evaluation = score(build_system(BadSearch), examples)

    check_that_the_first_three_failed(evaluation, reason)


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

    check_that_the_first_three_failed(evaluation, "mine: add: no answer within 1 s")


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


RECALLED_THE_EVIDENCE = {"shown": 1.0}
"""The scores of retrieval if D1:1, the evidence of all questions, is among what is recalled."""
NO_RETRIEVAL_SCORES: dict[str, float] = {}
"""The scores of retrieval if nobody knows which turns the system has recalled."""


@pytest.mark.parametrize(
    ("agent", "retrieval"),
    [
        (answers_text, NO_RETRIEVAL_SCORES),
        (answers_pair, RECALLED_THE_EVIDENCE),
        (answers_asynchronously, RECALLED_THE_EVIDENCE),
        (Agent, RECALLED_THE_EVIDENCE),
        (answers_mapping, NO_RETRIEVAL_SCORES),
    ],
)
def test_functions_and_modules_are_scored(
    agent: Any, retrieval: dict[str, float], make_history: MakeHistory
) -> None:
    """An answer may come as a text, a pair, a mapping, or from a coroutine function or a module.

    Retrieval is scored if what was recalled can be traced to turns: by an id, by sources, or
    because it is the line of a turn.
    """
    evaluation = score(build_system(agent), questions_about(make_history(sessions=2), count=3))

    assert evaluation.n == 3
    assert evaluation.failures == 0
    assert all(row.answer for row in evaluation.rows)
    assert evaluation.retrieval() == retrieval


def says_wrong(history: History, question: str) -> str:
    return "wrong"


def says_wrong_and_recalls(*recalled: Any) -> Callable[..., Any]:
    """Return a function with a wrong answer that says it recalled these entries."""

    def agent(history: History, question: str) -> dict[str, Any]:
        return {"answer": "wrong", "recalled": list(recalled)}

    return agent


@pytest.mark.parametrize(
    ("agent", "evidence_id", "reason"),
    [
        pytest.param(SilentAgent, "D1:1", "prompted", id="shown to its model"),
        pytest.param(SilentAgent, "D2:3", "unknown", id="not shown to its model"),
        pytest.param(says_wrong, "D1:1", "unknown", id="says nothing"),
        pytest.param(
            says_wrong_and_recalls("in words of its own"),
            "D1:1",
            "unknown",
            id="recalled own words",
        ),
        pytest.param(says_wrong_and_recalls(), "D1:1", "missed", id="recalled nothing"),
        pytest.param(
            says_wrong_and_recalls({"id": "D1:2", "text": "x"}),
            "D1:1",
            "missed",
            id="recalled another turn than the evidence",
        ),
        pytest.param(
            says_wrong_and_recalls({"id": "D1:1", "text": "x"}),
            "D1:1",
            "read",
            id="recalled the evidence",
        ),
    ],
)
def test_feedback_says_whether_the_evidence_of_a_wrong_answer_was_recalled(
    agent: Any, evidence_id: str, reason: str, make_history: MakeHistory
) -> None:
    """The evidence of a question is the id of the turn that answers it.

    "prompted": it was shown to the model. "read": it was recalled, and yet the answer is wrong.
    "missed": other things or nothing were recalled. "unknown": nobody knows what was recalled.
    """
    examples = questions_about(
        make_history(sessions=2),
        1,
        answer="something else",
        evidence_ids=(evidence_id,),
        evidence=(evidence_id,),
    )

    [row] = score(build_system(agent), examples).rows

    assert row.failure is None
    assert row.reason == reason


def test_a_pair_without_recalled_entries_means_that_nothing_was_recalled(
    make_history: MakeHistory,
) -> None:
    """So the reason is "missed". A function that returns a text alone gets the reason "unknown"."""

    def agent(history: History, question: str) -> tuple[str, list[Any]]:
        nothing_recalled: list[Any] = []
        return "wrong", nothing_recalled

    [row] = score(build_system(agent), questions_about(make_history(sessions=2), count=1)).rows

    assert row.failure is None
    assert row.reason == "missed"


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
    ("target", "config", "message"),
    [
        (Lines, {"size": 3}, "'mine' has no setting 'size'; it has: timeout=600.0, k=10"),
        (Lines, {"k": 0}, "'mine': k = 0: .* greater than or equal to 1"),
        (answers_text, {"k": 3}, "'mine' has no setting 'k'; it has: timeout"),
        (
            answers_text,
            {"task.reasoning": True},
            r"answers by itself: task\.reasoning does not reach it",
        ),
        (load_target("http://127.0.0.1:1/v1"), {}, "'mine': model = '': .*which of its models"),
        (object(), {}, "mine: has neither add and search nor"),
        (UncopyableLines(), {}, "mine: cannot be copied"),
    ],
)
def test_settings_and_systems_that_do_not_fit_are_refused(
    target: Any, config: dict[str, Any], message: str
) -> None:
    """The message names the setting that is wrong, or what the system lacks."""
    with pytest.raises(UserError, match=message):
        build_system(target, **config)


def test_a_name_is_loaded_as_a_method_or_as_the_address_of_an_endpoint() -> None:
    """The name of any other class is refused, here the name of a JSON decoder."""
    # None means that the name stands for a method of this package.
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


def actions_of(items: Iterable[Item]) -> list[Action]:
    return [action for item in items if isinstance(item, Behavior) for action in item.actions]


def user_of(history: History) -> str:
    """Return the id of the user, with which the ids of the history's items begin."""
    return history.items[0].id.partition(":")[0]


@pytest.mark.parametrize("threads", [1, 8])
def test_an_agent_that_looks_for_the_asked_record_in_its_history_scores_nothing(
    threads: int,
) -> None:
    """Questions of one user share a history; each is about a record after all it may see.

    A question of MovieLens asks how the user rated a movie. An agent that could see the asked
    record would read the rating from it. This agent looks for it, and must not find it.
    """
    movielens = benchmark("movielens")
    # The newest question comes first: if questions shared what was read for one of them, the older
    # ones would find their records in what the newer ones saw.
    examples = movielens.split().test[::-1]

    def cheat(history: History, question: str) -> str:
        for action in actions_of(history):
            if question.startswith(behavior.format_question(action, "")):
                return action.action.removeprefix("rated ")
        return "not found"

    evaluation = score_on(movielens, build_system(cheat, movielens.task), examples, threads)

    assert len(evaluation.rows) == 60
    assert evaluation.failures == 0
    for row in evaluation.rows:
        assert row.answer == "not found"
        assert row.score == 0.0


@pytest.mark.parametrize("threads", [1, 8])
def test_an_agent_gets_exactly_the_records_before_the_asked_one(threads: int) -> None:
    """A question of OmniBehavior is about one record of a user, and all earlier ones may be seen.

    All questions of a user share a `history`. Records between it and the question are `recent`.
    """
    omnibehavior = benchmark("omnibehavior")
    # The newest question comes first, as above.
    examples = omnibehavior.split().test[::-1]

    # Which records may be seen, by user and question.
    earlier_record_ids: dict[tuple[str, str], list[str]] = {}
    for example in examples:
        earlier_records = actions_of([*example.history, *example.recent])
        user_and_question = (user_of(example.history), example.question)
        earlier_record_ids[user_and_question] = sorted({record.id for record in earlier_records})
    assert len(earlier_record_ids) == len(examples)
    wrong_histories: list[list[str]] = []

    def agent(history: History, question: str) -> str:
        # The lines after the first are the options.
        first_line_of_question = question.splitlines()[0]
        expected_ids = earlier_record_ids[user_of(history), first_line_of_question]
        received_ids = sorted(record.id for record in actions_of(history))
        if received_ids != expected_ids:
            wrong_histories.append(received_ids)
        return "Yes"

    program = build_system(agent, omnibehavior.task)
    evaluation = score_on(omnibehavior, program, examples, threads)

    assert len(evaluation.rows) == len(examples)
    assert evaluation.failures == 0
    assert wrong_histories == []


def video_record(number: int, title: str) -> Action:
    """Return the record that a user liked a video."""
    return Action(id=f"a{number}", scene="video", situation=title, action="liked")


def test_records_after_the_history_of_a_store_are_searched_as_they_are(scripted: Any) -> None:
    """A store cannot go back to what it held before a record, as an earlier question needs it.

    So only the history is added to it, which all questions of a user share. The task shows recent
    records beside what the store finds: those that bear on the question, and the newest.
    """
    added_items: list[str] = []

    class Recording(Lines):
        def add(self, session: Any) -> None:
            added_items.append(session.id)
            super().add(session)

    old_clip = video_record(1, "an old clip")
    zebra = video_record(2, "zebra crossing")
    later_clips = [video_record(number, f"clip {number}") for number in range(3, 24)]
    history = History(id="u", items=(Behavior.from_actions("b1", [old_clip]),))
    recent = [Behavior.from_actions("b2", [zebra, *later_clips])]
    program = build_system(Recording, task="behavior-prediction")
    # Of the recent records, only the newest and those that a search finds fit into the prompt.
    program.task.suffix_tokens = 60
    lm = scripted(lambda kind, text, n: {"answer": "Yes"})

    with dspy.context(lm=lm):
        question = "video; a zebra crossing. Like it?"
        program(history=history, recent=recent, question=question, options=["Yes", "No"])

    # The recent records are not added to the store, and yet one of them is found.
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


def test_an_endpoint_is_told_each_history_under_a_user_name_and_then_asked(
    stub: Any, make_history: MakeHistory
) -> None:
    """An endpoint is a chat server that remembers. Each session is sent as a message of a user.

    Every history gets another user name, under which its questions are asked, too. So the server
    can keep the two histories apart.
    """
    server = stub(answer=RememberingServer())
    program = build_external_program(
        load_target(server.url), server.url, "question-answering", config={"model": "any"}
    )
    two_sessions = make_history(sessions=2, id="a")
    three_sessions = make_history(sessions=3, id="b")
    examples = [*questions_about(two_sessions, count=2), *questions_about(three_sessions, count=2)]

    evaluation = score(program, examples, threads=1)

    assert evaluation.failures == 0
    last_turn_of_second_session = "I saw Quito with 6 friends"
    assert evaluation.rows[0].answer == last_turn_of_second_session
    # One call for each of the five sessions, and one for each of the four questions.
    assert evaluation.construction.calls == 5
    assert evaluation.construction.input_tokens > 0
    assert evaluation.answering_usage.calls == 4
    users = {request.body["user"] for request in server.requests}
    assert len(users) == 2
    assert all(request.body["metadata"]["session"] for request in server.requests)
    program.method.close()


def test_an_endpoint_that_cannot_be_reached_ends_the_run(make_history: MakeHistory) -> None:
    """No other question would do better, so the user is told at once."""
    # No server listens at port 1.
    url = "http://127.0.0.1:1/v1"
    program = build_external_program(
        load_target(url), url, "question-answering", config={"model": "any"}
    )

    with pytest.raises(EndpointError, match="cannot be reached"):
        score(program, questions_about(make_history(sessions=1), count=3))

"""Anything that answers is scored: stores are written once per history, what fails is a failure of its questions."""

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
from mempiler.programs.external._endpoint import Endpoint
from mempiler.programs.external.program import build_external_program
from mempiler.programs.external.signatures import check_store
from mempiler.programs.external.target import load_target
from mempiler.runs.scoring import score_questions
from mempiler.runs.results import Evaluation

from ..runs.evaluations import asked, locomo


class Lines:
    """A store of lines; `search` gives the newest."""

    made = 0

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, session: Any) -> None:
        self.lines += session.lines()

    def search(self, query: str, k: int) -> Any:
        return self.lines[-k:][::-1]

    def __len__(self) -> int:
        return len(self.lines)


def run(program: Any, examples: Sequence[dspy.Example], threads: int = 4) -> Any:
    return evaluated(program, locomo(examples), examples, threads)


def evaluated(
    program: Any, of: Benchmark, examples: Sequence[dspy.Example], threads: int
) -> Evaluation:
    meter = Meter()
    with dspy.context(lm=language_model(meter=meter)):
        return score_questions(program, of, examples, meter, threads)


def test_a_store_is_written_once_for_each_history_however_many_ask(make_history):
    adds: list[tuple[int, str]] = []

    class Counting(Lines):
        def add(self, session: Any) -> None:
            adds.append((id(self), session.id))
            super().add(session)

    histories = [make_history(3, id=name) for name in "ab"]
    histories[1] = make_history(2, turns=4, id="b")
    found = run(
        build_external_program(Counting, "mine", "question-answering"),
        [q for h in histories for q in asked(h, 4)],
    )
    assert found.failures == 0
    assert sorted(said for _, said in adds) == ["D1", "D1", "D2", "D2", "D3"]
    assert len({store for store, _ in adds}) == 2
    assert all(row.hits for row in found.rows)


@pytest.mark.parametrize(
    "thing", [Lines, Lines(), lambda folder: Lines()], ids=["class", "object", "factory"]
)
def test_classes_objects_and_factories_are_stores(thing, make_history):
    found = run(
        build_external_program(thing, "mine", "question-answering", config={"k": 2}),
        asked(make_history(2), 3),
    )
    assert found.failures == 0
    assert [row.hits for row in found.rows] == [2, 2, 2]
    assert found.histories == 1


def test_a_session_that_is_refused_is_a_failed_write_and_all_of_them_a_failure(make_history):
    class Picky(Lines):
        def add(self, session: Any) -> None:
            if session.id == self.bad or self.bad == "all":
                raise ValueError("no room\nat all")
            super().add(session)

        bad = "D2"

    examples = asked(make_history(3), 3)
    found = run(build_external_program(Picky, "mine", "question-answering"), examples)
    assert found.failures == 0
    assert found.write_failures == 1
    assert "no room at all" in found.failed_writes[0].message
    assert "1 writes failed" in str(found)
    Picky.bad = "all"
    found = run(build_external_program(Picky, "mine", "question-answering"), examples)
    assert found.failures == 3
    assert "mine: took none of 3 sessions" in found.rows[0].failure.message


def test_failed_writes_above_the_allowed_share_break_a_run(make_history):
    class Full(Lines):
        def add(self, session: Any) -> None:
            if session.id == "D2":
                raise OSError("disk full")
            super().add(session)

    examples = asked(make_history(4), 3)
    program = build_external_program(Full, "mine", "question-answering")
    found = run(program, examples)
    assert found.failures == 0
    assert found.failure_rate == 0.25
    assert found.broken is True
    assert re.match(r"1 of 4 writes failed, .* allows 10%; most often: .*disk full", found.breakage)

    allowed = found.model_copy(update={"max_failure_rate": 0.25})
    assert not allowed.broken


def test_calls_of_a_store_that_then_fails_are_counted(make_history):
    class Asking(Lines):
        def add(self, session: Any) -> None:
            dspy.Predict("text -> fact")(text=session.lines()[0])
            raise ValueError("no room")

    program = build_external_program(Asking, "mine", "question-answering")
    found = run(program, asked(make_history(3), 2))
    assert found.failures == 2
    assert found.construction.calls == found.calls["task"] == 3


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


def make_at(folder: Path, url: str) -> Any:
    return Lines()


@pytest.mark.parametrize(
    ("store", "line"),
    [
        (NeedsAddress, "mine: cannot be made without url, key; .* set a default"),
        (make_at, "mine: cannot be made without url; .* set a default"),
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
    store: Any, line: str
) -> None:
    with pytest.raises(UserError, match=line):
        build_external_program(store, "mine", "question-answering")


class Wrapped:
    """A store whose methods are functions in wrappers."""

    def add(self, session: Any) -> None:
        pass

    def search_by(self, order: str, query: str, k: int) -> Any:
        return []

    search = functools.partialmethod(search_by, "newest")


class Cached(Wrapped):
    @functools.lru_cache  # noqa: B019 (one object, for a test)
    def search(self, query: str, k: int) -> Any:
        return []


class Dispatching(Wrapped):
    @functools.singledispatchmethod
    def search(self, query: str, k: int) -> Any:
        return []


@pytest.mark.parametrize("store", [Wrapped, Cached, Dispatching])
def test_methods_in_wrappers_of_functools_fit_in_a_class_as_in_an_object(store: Any) -> None:
    check_store(store, "mine")
    check_store(store(), "mine")


class Unusual:
    """A store whose methods are no plain methods, and fit."""

    def __init__(self, *args: Any, folder: Path, url: str = "", **kwargs: Any) -> None:
        self.search = lambda query, k: []

    @staticmethod
    def add(session: Any) -> None:
        pass

    def search(self, *args: Any) -> Any:
        return []


@pytest.mark.parametrize("store", [Unusual, Unusual(folder=Path())])
def test_stores_with_unusual_signatures_that_fit_are_taken(store: Any, make_history: Any) -> None:
    found = run(
        build_external_program(store, "mine", "question-answering"), asked(make_history(1), 1)
    )
    assert found.failures == 0
    assert found.write_failures == 0


@pytest.mark.parametrize(("entry_id", "noticed"), [("note", True), ("D1:1", False), ("", False)])
def test_entries_of_a_search_with_the_same_id_are_noticed_in_one_line(
    make_history, entry_id, noticed
):
    """Entries that have the id of a turn may be parts of it."""

    class SameIds(Lines):
        def search(self, query: str, k: int) -> Any:
            return [{"id": entry_id, "text": line} for line in self.lines[:2]]

    found = run(
        build_external_program(SameIds, "mine", "question-answering"), asked(make_history(1), 2)
    )
    assert (
        "2 questions were answered from several entries with the same id, such as 'note'"
        in str(found)
    ) is noticed
    assert found.failures == 0


class Hostile(Lines):
    """Does one of the things that nothing else may suffer from, in the history of four sessions."""

    how, go = "", threading.Event()

    def __init__(self, folder: Path) -> None:
        super().__init__()

    def add(self, session: Any) -> None:
        super().add(session)
        if session.id == "D4" and self.how == "hangs":
            self.go.wait(30)

    def search(self, query: str, k: int) -> Any:
        wrong: dict[str, Any] = {"text": "a text", "object": [object()], "nothing": None}
        if len(self.lines) == 24 and self.how in wrong:
            return wrong[self.how]
        if len(self.lines) == 24 and self.how == "raises":
            raise RuntimeError("<script>alert(1)</script>")
        return super().search(query, k)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("hangs", "mine: add: no answer within 1 s"),
        ("raises", "<script>"),
        ("text", "recalled str, expected a list"),
        ("object", "recalled object without a text"),
        ("nothing", "search returned None, expected a list"),
    ],
)
def test_a_hostile_store_harms_only_the_questions_of_its_history(
    how, reason, make_history, monkeypatch
):
    monkeypatch.setattr(Hostile, "how", how)
    examples = [
        q for h in (make_history(4, id="bad"), make_history(2, id="good")) for q in asked(h, 3)
    ]
    found = run(
        build_external_program(Hostile, "mine", "question-answering", config={"timeout": 1.0}),
        examples,
    )
    Hostile.go.set()
    assert [row.failure is None for row in found.rows] == [False] * 3 + [True] * 3
    assert all(reason in row.failure.message for row in found.rows[:3])


class Agent(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.ChainOfThought("passages: list[str], question -> answer")

    def forward(self, history: History, question: str) -> dspy.Prediction:
        lines = [line for item in history for line in item.lines()]
        return dspy.Prediction(
            answer=self.say(passages=lines[:2], question=question).answer, recalled=lines[:2]
        )


def plain(history: History, question: str) -> str:
    return "Bob"


async def coroutine(history: History, question: str) -> tuple[str, list[Any]]:
    return "Bob", [Entry(id="7", text="y", sources=("D1:1",))]


@pytest.mark.parametrize(
    ("thing", "recall"),
    [
        (plain, {}),
        (lambda history, question: ("Bob", [{"id": "D1:1", "text": "x"}]), {"shown": 1.0}),
        (coroutine, {"shown": 1.0}),
        (Agent, {"shown": 1.0}),
        (lambda history, question: {"answer": "Bob", "recalled": ["Ann: nothing of the kind"]}, {}),
    ],
    ids=["text", "pair", "coroutine", "class", "mapping"],
)
def test_callables_and_modules_are_scored(thing, recall, make_history):
    found = run(
        build_external_program(thing, "mine", "question-answering"), asked(make_history(2), 3)
    )
    assert found.failures == 0
    assert found.retrieval() == recall
    assert all(row.answer for row in found.rows)


class Silent(Agent):
    """Shows its model the first lines, and does not say so."""

    def forward(self, history: History, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=super().forward(history, question).answer)


@pytest.mark.parametrize(
    ("thing", "turn", "why"),
    [
        (Silent, "D1:1", "prompted"),
        (Silent, "D2:3", "unknown"),
        (lambda history, question: "wrong", "D1:1", "unknown"),
        (
            lambda history, question: {"answer": "wrong", "recalled": ["in words of its own"]},
            "D1:1",
            "unknown",
        ),
        (lambda history, question: ("wrong", []), "D1:1", "missed"),
        (lambda history, question: ("wrong", [{"id": "D1:2", "text": "x"}]), "D1:1", "missed"),
        (lambda history, question: ("wrong", [{"id": "D1:1", "text": "x"}]), "D1:1", "read"),
    ],
    ids=[
        "shown to its model",
        "not shown",
        "a text",
        "own words",
        "nothing recalled",
        "another turn",
        "recalled",
    ],
)
def test_feedback_explains_a_wrong_answer_as_far_as_possible(thing, turn, why, make_history):
    examples = asked(
        make_history(2), 1, answer="something else", evidence_ids=(turn,), evidence=(turn,)
    )
    (row,) = run(build_external_program(thing, "mine", "question-answering"), examples).rows
    assert row.failure is None
    assert row.reason == why


def test_a_module_gets_the_options_that_it_has_a_parameter_for(make_history):
    heard: list[Any] = []

    def chooser(history: History, question: str, options: list[str]) -> str:
        heard.append((question, options))
        return "(a)"

    for thing in (chooser, lambda history, question: heard.append(question) or "(a)"):
        program = build_external_program(thing, "mine", "multiple-choice")
        program(history=make_history(1), question="Which?", options=["(a) tea", "(b) ink"])
    assert heard == [("Which?", ["(a) tea", "(b) ink"]), "Which?\n(a) tea\n(b) ink"]


class QueryAgent(Agent):
    def forward(self, history: History, query: str) -> dspy.Prediction:
        return super().forward(history, query)


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
def test_no_argument_of_a_function_is_passed_by_position_and_by_name(agent, answer, make_history):
    program = build_external_program(agent, "mine", "question-answering")
    prediction = program(history=make_history(1), question="Where?", date="May 1")
    assert prediction.answer == answer


def test_the_question_of_a_module_may_be_called_query(make_history):
    program = build_external_program(QueryAgent, "mine", "question-answering")
    assert run(program, asked(make_history(2), 3)).failures == 0


def actions_of(items: Iterable[Item]) -> list[Action]:
    return [action for item in items if isinstance(item, Behavior) for action in item.actions]


@pytest.mark.parametrize("threads", [1, 8])
def test_an_agent_that_looks_for_the_asked_record_in_its_history_scores_nothing(threads):
    """Questions of one user share a history; each is about a record that comes after all it may see."""
    movielens = benchmark("movielens")
    # The newest first: where histories were shared, the earlier questions would find what the later ones saw.
    examples = movielens.split().test[::-1]

    def cheat(history: History, question: str) -> str:
        for action in actions_of(history):
            if question.startswith(behavior.format_question(action, "")):
                return action.action.removeprefix("rated ")
        return "not found"

    found = evaluated(
        build_external_program(cheat, "cheat", movielens.task), movielens, examples, threads
    )
    assert len(found.rows) == 60
    assert found.failures == 0
    assert {(row.answer, row.score) for row in found.rows} == {("not found", 0.0)}


@pytest.mark.parametrize("threads", [1, 8])
def test_an_agent_is_handed_the_records_before_the_asked_one_and_no_others(threads):
    omnibehavior = benchmark("omnibehavior")
    examples = omnibehavior.split().test[::-1]
    allowed = {
        (user_of(each.history), each.question): [*each.history, *each.recent] for each in examples
    }
    assert len(allowed) == len(examples)
    later_records: list[str] = []

    def agent(history: History, question: str) -> str:
        ids = {
            action.id for action in actions_of(allowed[user_of(history), question.splitlines()[0]])
        }
        later_records.extend(action.id for action in actions_of(history) if action.id not in ids)
        assert len(actions_of(history)) == len(ids)
        return "Yes"

    found = evaluated(
        build_external_program(agent, "agent", omnibehavior.task), omnibehavior, examples, threads
    )
    assert len(found.rows) == len(examples)
    assert found.failures == 0
    assert later_records == []


def test_records_after_the_history_of_a_store_are_searched_as_they_are(scripted):
    """A store cannot go back to what it held before a record, as the earlier question of a user would need."""
    added: list[str] = []

    class Counting(Lines):
        def add(self, session: Any) -> None:
            added.append(session.id)
            super().add(session)

    def record(n: int, title: str) -> Action:
        return Action(id=f"a{n}", scene="video", situation=title, action="liked")

    history = History(
        id="u", items=(Behavior.from_actions("b1", [record(n, f"clip {n}") for n in range(1, 9)]),)
    )
    since = [
        Behavior.from_actions(
            "b2", [record(9, "zebra crossing"), *(record(n, f"clip {n}") for n in range(10, 30))]
        )
    ]
    program = build_external_program(Counting, "mine", "behavior-prediction")
    program.task.suffix_tokens = 60
    lm = scripted(lambda kind, text, n: {"answer": "Yes"})
    with dspy.context(lm=lm):
        program(
            history=history,
            recent=since,
            question="video; a zebra crossing. Like it?",
            options=["Yes", "No"],
        )
    assert added == ["b1"]
    assert "zebra crossing => liked" in lm.engine.prompts[-1][1]


def user_of(history: History) -> str:
    return history.items[0].id.partition(":")[0]


def test_a_result_that_is_no_answer_is_a_failure(make_history):
    wrong = {
        "answered NoneType, expected a text": None,
        "answered bytes": b"\xff",
        "recalled int": ("Bob", 3),
        "half of a surrogate pair": "\ud800 Lisbon",
    }
    for reason, answer in wrong.items():
        program = build_external_program(
            lambda history, question, answer=answer: answer, "mine", "question-answering"
        )
        found = run(program, asked(make_history(1), 1))
        assert reason in found.rows[0].failure.message


def test_predictors_of_a_module_are_the_program_s():
    program = build_external_program(Agent(), "mine", "question-answering")
    assert list(program.all_predictors()) == ["method.reader.answerer.say.predict"]
    copy = program.deepcopy()
    copy.all_predictors()["method.reader.answerer.say.predict"].demos = [dspy.Example(question="?")]
    assert program.all_predictors()["method.reader.answerer.say.predict"].demos == []


def test_a_setting_k_of_a_module_is_its_own_and_no_number_of_entries(make_history):
    class Counting(dspy.Module):
        def __init__(self, k: int = 3) -> None:
            super().__init__()
            self.k = k

        def forward(self, history: History, question: str) -> str:
            return f"{self.k} of {len(history)}"

    program = build_external_program(Counting, "mine", "question-answering", config={"k": 5})
    assert program(history=make_history(2), question="How many?").answer == "5 of 2"


@pytest.mark.parametrize(
    ("thing", "config", "problem"),
    [
        (Lines, {"size": 3}, "'mine' has no setting 'size'; it has: timeout=600.0, k=10"),
        (Lines, {"k": 0}, "'mine': k = 0: .* greater than or equal to 1"),
        (plain, {"k": 3}, "'mine' has no setting 'k'; it has: timeout"),
        (plain, {"task.reasoning": True}, r"answers by itself: task\.reasoning does not reach it"),
        (Endpoint, {}, "'mine': model = '': .*which of its models"),
        (object(), {}, "mine: has neither add and search nor"),
        (
            type("Locked", (Lines,), {"__deepcopy__": lambda self, memo: 1 / 0})(),
            {},
            "mine: cannot be copied",
        ),
    ],
)
def test_settings_and_things_that_do_not_fit_are_refused(thing, config, problem):
    with pytest.raises(UserError, match=problem):
        build_external_program(thing, "mine", "question-answering", config=config)


def test_a_name_stands_for_a_method_an_address_or_an_external_system():
    assert load_target("turn-rag") is None
    assert load_target("mempiler.programs.baselines.turn_rag:TurnRAG") is None
    assert load_target("http://127.0.0.1:1/v1") is not None
    with pytest.raises(ProgramError, match="Method, and has neither add and search nor the"):
        load_target("json:JSONDecoder")


@pytest.mark.parametrize(
    ("recalled", "sources", "kind"),
    [
        ("Ann said: I saw Oslo with 1 friends", ("D1:1",), "entry"),
        ("Oslo", (), "summary"),
        ({"memory": "Bob likes Oslo", "id": "x"}, (), "summary"),
        ({"text": "anything", "sources": ["D1:2", "D9:9"]}, ("D1:2",), "entry"),
        ({"content": "anything", "id": "D1:2", "score": "high"}, ("D1:2",), "entry"),
    ],
)
def test_recalled_texts_are_matched_to_turns(
    recalled: Any, sources: Any, kind: str, make_history: Callable[..., Any]
):
    (hit,) = hits_of([recalled], make_history(1, turns=3))
    assert hit.sources == sources
    assert hit.kind == kind


def remembering() -> Callable[[dict[str, Any]], str]:
    """A server's answers: it remembers what each user says, and answers with what they said last before."""
    said: dict[str, list[str]] = {}

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        before = said.setdefault(body["user"], [])
        before.append(text)
        return before[-2].split("Ann: ")[-1] if text.startswith("Who") else "OK"

    return answer


def test_an_endpoint_is_given_every_history_as_a_user_and_asked(stub, make_history):
    server = stub(answer=remembering())
    program = build_external_program(
        load_target(f"{server.url}"), server.url, "question-answering", config={"model": "any"}
    )
    histories = [make_history(2, id="a"), make_history(3, id="b")]
    found = run(program, [q for h in histories for q in asked(h, 2)], threads=1)
    assert found.failures == 0
    assert found.rows[0].answer == "I saw Quito with 6 friends"
    assert found.construction.calls == 5
    assert found.answering_usage.calls == 4
    assert found.construction.input_tokens > 0
    assert len({body["user"] for _, _, body in server.requests}) == 2
    assert all(body["metadata"]["session"] for _, _, body in server.requests)
    program.method.close()


def test_an_endpoint_that_is_not_there_ends_the_run(make_history, monkeypatch):
    url = "http://127.0.0.1:1/v1"
    program = build_external_program(
        load_target(url), url, "question-answering", config={"model": "any"}
    )
    with pytest.raises(EndpointError, match="cannot be reached"):
        run(program, asked(make_history(1), 3))

"""Choosing between methods: `mempiler.choose`, from Python and on a data file.

Most methods here are functions of a history and a question. They answer "42" to questions that they
know, so no model is asked. A choice has a run of its own, with one below it for each method.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler.errors import BrokenRunError, UnknownNameError, UserError
from mempiler.runs.folder import RunFolder
from mempiler.runs.planning import Plan
from mempiler.runs.tracking.store import client

from ..conftest import tracking_in_mlflow


def number_in(question: str) -> int:
    """Return the number of a question such as "What is fact 7?"."""
    return int(question.rstrip("?").split()[-1])


def knows_everything(history: Any, question: str) -> str:
    """Answer every question rightly."""
    return "42"


def knows_half(history: Any, question: str) -> str:
    """Answer questions with even numbers rightly."""
    return "42" if number_in(question) % 2 == 0 else "no idea"


def knows_other_half(history: Any, question: str) -> str:
    """Answer questions with odd numbers rightly."""
    return "42" if number_in(question) % 2 == 1 else "no idea"


def knows_nothing(history: Any, question: str) -> str:
    """Answer no question rightly."""
    return "no idea"


def always_fails(history: Any, question: str) -> str:
    """Answer no question at all."""
    raise ValueError("out of order")


def make_examples(users: int = 10, questions_each: int = 5) -> list[dspy.Example]:
    """Return the questions "What is fact 0?", "What is fact 1?" and so on, all answered by "42".

    Each user has said one thing, and has so many of the questions.
    """
    examples: list[dspy.Example] = []
    for user in range(users):
        history = [{"role": "user", "content": f"I am user {user}."}]
        for _ in range(questions_each):
            example = dspy.Example(
                history=history,
                question=f"What is fact {len(examples)}?",
                answer="42",
                user=f"user-{user}",
            )
            examples.append(example)
    return examples


def choose(*programs: object, **options: Any) -> mempiler.Choice:
    """Choose between programs, by 50 questions to 10 users if there are no others."""
    # Traces of each question in MLflow take most of the time of a choice.
    defaults = {"testset": make_examples(), "metric": "exact", "lm": "offline", "traces": 0}
    options = {**defaults, **options}
    return mempiler.choose(programs, progress=False, **options)


@pytest.fixture(scope="module")
def choice_won_by_knows_everything() -> mempiler.Choice:
    """A choice between four functions by 140 questions.

    The first round asks all four 21 questions, since a verdict takes 20.
    """
    functions = (knows_nothing, knows_half, knows_everything, knows_other_half)
    with tracking_in_mlflow():
        return choose(*functions, testset=make_examples(users=20, questions_each=7))


def test_the_method_that_answers_best_wins(choice_won_by_knows_everything: mempiler.Choice) -> None:
    """The others are `knows_nothing`, `knows_half` and `knows_other_half`."""
    assert choice_won_by_knows_everything.winner == "tests.runs.test_choose:knows_everything"
    assert choice_won_by_knows_everything.verdict == "better"
    assert choice_won_by_knows_everything.rows[0].score == 1.0


def test_a_choice_asks_for_three_tenths_of_all_answers_at_most(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    """Four methods and 140 questions are 560 answers."""
    assert choice_won_by_knows_everything.all_answers == 560
    assert 0 < choice_won_by_knows_everything.answers <= 168


def test_all_methods_are_asked_the_same_first_questions(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    """Methods that are clearly behind leave after the first round, so they are asked fewer."""
    questions_by_method: list[list[str]] = []
    for method in choice_won_by_knows_everything.rows:
        assert method.evaluation is not None
        questions_by_method.append([row.question for row in method.evaluation.rows])

    shortest = min(questions_by_method, key=len)
    assert shortest
    for questions in questions_by_method:
        assert questions[: len(shortest)] == shortest


def test_the_table_names_the_winner_and_what_a_question_takes(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    text = str(choice_won_by_knows_everything)

    assert "winner: tests.runs.test_choose:knows_everything, better than" in text
    assert "scope: other conversations" in text
    assert "84 of 560 answers" in text
    assert "round 1: clearly behind" in text
    assert "seconds" in text


def test_a_notebook_gets_the_table_as_html(choice_won_by_knows_everything: mempiler.Choice) -> None:
    html = choice_won_by_knows_everything._repr_html_()

    assert html.startswith("<table>")
    assert "knows_everything" in html


def test_the_result_is_json(choice_won_by_knows_everything: mempiler.Choice) -> None:
    result = json.loads(json.dumps(choice_won_by_knows_everything.to_dict()))

    assert result["winner"] == "tests.runs.test_choose:knows_everything"
    assert result["difference"]["verdict"] == "better"
    first, *others = result["programs"]
    assert first["difference"] is None
    assert first["per_question"]["calls"] == 0.0
    assert {other["left_because"] for other in others} == {"clearly behind"}


def test_every_method_has_a_finished_run_below_that_of_the_choice(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    for row in choice_won_by_knows_everything.rows:
        assert row.evaluation is not None
        run = client().get_run(row.evaluation.run_id)
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == choice_won_by_knows_everything.run_id


def test_the_runs_of_the_methods_can_be_compared(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    best, second = choice_won_by_knows_everything.rows[:2]

    comparison = mempiler.compare(str(second.run), str(best.run))

    assert comparison.difference.verdict == "better"
    assert comparison.difference.mean == pytest.approx(
        choice_won_by_knows_everything.difference.mean
    )


def test_the_run_of_a_choice_shows_the_best_two(
    choice_won_by_knows_everything: mempiler.Choice, cli: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = cli("show", str(choice_won_by_knows_everything.run))

    assert code == 0
    assert "B against A" in out
    assert RunFolder.open(str(choice_won_by_knows_everything.run)).is_finished


def test_methods_that_are_not_told_apart_have_no_winner() -> None:
    """Each knows what the other does not, so they are equal on average."""
    examples = make_examples(users=20, questions_each=4)

    choice = choose(knows_half, knows_other_half, knows_nothing, testset=examples)

    assert choice.verdict == "not told apart"
    assert choice.winner is None
    assert "not told apart: tests.runs.test_choose:knows_" in str(choice)


def test_the_cheapest_of_those_that_are_not_told_apart_is_named() -> None:
    """Both methods show the whole of a short history, so they answer alike.

    "pgr+turn-rag" asks the model about every question before it searches, and so takes more calls.
    """
    examples = make_examples(users=5, questions_each=4)

    choice = choose("pgr+turn-rag", "turn-rag", testset=examples, share=1.0)

    assert choice.verdict == "not told apart"
    assert choice.cheapest == "turn-rag"
    assert "the cheapest method left is turn-rag" in choice.statement()


def test_a_small_first_round_is_noted() -> None:
    """A share of .3 of 2 x 20 answers is 12, so both methods are asked 6 questions."""
    choice = choose(
        knows_everything, knows_nothing, testset=make_examples(users=2, questions_each=10)
    )

    assert choice.verdict == "too few to tell"
    assert choice.cheapest is None
    assert "the first round asked only 6 questions" in str(choice)


def test_two_objects_of_one_class_are_told_apart_by_a_number() -> None:
    class Agent(dspy.Module):
        def __init__(self, answer: str) -> None:
            super().__init__()
            self.answer = answer

        def forward(self, history: Any, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=self.answer)

    choice = choose(Agent("no idea"), Agent("42"))

    assert choice.leader.endswith("Agent #2")


# --- plans -------------------------------------------------------------------------------------


def plan(*programs: str) -> Plan:
    """Plan a choice as `choose` makes it."""
    return mempiler.plan_choice(
        programs, make_examples(), metric="exact", lm="offline", progress=False
    )


def test_a_plan_has_the_first_round_at_least_and_the_whole_budget_at_most() -> None:
    """The first round asks each of three methods 7 questions, which takes 21 calls.

    A choice asks for 30 % of all answers at most: here for 45 of 3 x 50.
    """
    methods = ("turn-rag", "session-rag", "no-memory")

    planned = plan(*methods)
    choice = choose(*methods)

    assert planned.calls.low == 21
    assert planned.calls.high == 45
    assert 21 <= choice.usage["calls"]["task"] <= 45


def test_a_plan_counts_the_memories_that_are_written() -> None:
    """Of the three methods, only the fact store asks a model to write memories.

    Each user has five questions. The fact store is asked 7 to 19 of them, so it needs the memories
    of two to four users.
    """
    planned = plan("turn-rag", "fact-store", "no-memory")

    writing = planned.phases["writing memories"]
    # A plan adds a spread of 0.8 to 1.25, since it has seen a sample only.
    assert writing.high / writing.low == pytest.approx((4 * 1.25) / (2 * 0.8))


def test_the_command_prints_a_plan_and_asks_nothing(
    cli: Callable[..., tuple[int, str, str]],
) -> None:
    """LoCoMo's sample has 136 questions that count, so of 272 answers 13 are asked for."""
    options = ("--benchmark", "locomo", "--share", "0.05", "--plan", "--json")

    code, out, _ = cli("choose", "turn-rag", "no-memory", *options)

    assert code == 0
    assert json.loads(out)["calls"] == {"low": 12, "high": 13}


def test_a_system_whose_calls_are_not_known_is_not_planned() -> None:
    with pytest.raises(UserError, match="how many calls it makes is not known before it runs"):
        plan("turn-rag", "http://localhost:1/v1")


# --- order of the questions -----------------------------------------------------------------


def count_users_of_first_round(choice: mempiler.Choice) -> int:
    """Return the number of users about whom the method that left first was asked."""
    evaluation = choice.rows[-1].evaluation
    assert evaluation is not None
    users = {row.group for row in evaluation.rows}
    return len(users)


def test_methods_that_write_without_a_model_are_asked_about_many_users() -> None:
    """Ten users have five questions each. The first round has 7 questions, about 7 of the users."""
    choice = choose("turn-rag", "session-rag", "no-memory")

    assert count_users_of_first_round(choice) == 7


def test_methods_that_write_with_a_model_are_asked_about_one_user_after_the_other() -> None:
    """Ten users have five questions each. The first round has 7 questions: 5 + 2 about two users.

    So only two memories have to be written.
    """
    choice = choose("turn-rag", "fact-store", "no-memory")

    assert count_users_of_first_round(choice) == 2


def test_the_seed_decides_which_questions_are_asked() -> None:
    def asked_questions(seed: int) -> list[str]:
        choice = choose(knows_everything, knows_nothing, seed=seed)
        evaluation = choice.rows[0].evaluation
        assert evaluation is not None
        return [row.question for row in evaluation.rows]

    questions_of_seed_1 = asked_questions(seed=1)

    assert asked_questions(seed=1) == questions_of_seed_1
    assert asked_questions(seed=0) != questions_of_seed_1


def test_questions_outside_of_the_score_are_not_asked() -> None:
    """Questions of LoCoMo's category 5 cannot be answered, and are not in its score."""
    locomo = mempiler.benchmark("locomo")
    counted = [example for example in locomo.examples if locomo.in_headline(example)]

    choice = mempiler.choose(
        ["turn-rag", "no-memory"],
        benchmark="locomo",
        lm="offline",
        share=0.05,
        traces=0,
        progress=False,
    )

    assert len(counted) < len(locomo.examples)
    assert choice.question_count == len(counted)


# --- limits, and going on ---------------------------------------------------------------------


def test_a_limit_holds_for_all_methods_together_and_the_run_can_be_resumed() -> None:
    """Both methods would be asked 15 questions, in one call each."""
    stopped = choose("turn-rag", "session-rag", max_calls=20, threads=1)

    assert stopped.stopped == "max-calls 20"
    assert stopped.usage["calls"]["task"] == 20
    assert f"to resume: --resume {stopped.run.name}" in str(stopped)

    resumed = choose("turn-rag", "session-rag", resume=stopped.run.name, threads=1)

    assert resumed.stopped is None
    assert resumed.answers == 30
    assert resumed.usage["calls"]["task"] == 10


def test_a_choice_in_which_nothing_was_asked_is_refused() -> None:
    choice = choose("turn-rag", "session-rag", max_calls=0)

    with pytest.raises(BrokenRunError, match="nothing was evaluated: max-calls 0"):
        choice.refuse_broken()


def test_a_method_that_fails_too_often_is_no_winner() -> None:
    choice = choose(always_fails, knows_nothing)

    assert choice.winner is None
    assert choice.leader.endswith("always_fails")
    with pytest.raises(BrokenRunError, match="questions failed"):
        choice.refuse_broken()


def test_a_broken_method_that_loses_is_noted() -> None:
    examples = make_examples(users=14, questions_each=5)

    choice = choose(knows_everything, always_fails, testset=examples)

    choice.refuse_broken()
    assert choice.winner is not None
    assert "broken run: tests.runs.test_choose:always_fails: 21 of 21 questions failed" in str(
        choice
    )


# --- mistakes of the user ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("programs", "options", "message"),
    [
        (["turn-rag"], {}, "nothing to choose from: turn-rag; name two methods or more"),
        (["turn-rag", "turn-rag"], {}, "turn-rag: is named twice; name each method once"),
        (
            ["turn-rag", "answers.jsonl"],
            {},
            "answers.jsonl: the answers in this file were paid for",
        ),
        (["turn-rag", "no-memory"], {"share": 0}, "share = 0: no question would be asked"),
        (["turn-rag", "no-memory"], {"share": 1.5}, "share = 1.5: give a finite number, 0 to 1"),
        (["turn-rag", "no-memory"], {"workers": 2}, "workers: choose does not take it"),
        (["turn-rag", "no-memory"], {"margin": 0.1}, "margin: choose does not take it"),
    ],
)
def test_a_mistake_is_refused_in_one_line(
    programs: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        choose(*programs, **options)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_method_is_refused_before_anything_is_asked() -> None:
    asked: list[str] = []

    def takes_notes(history: Any, question: str) -> str:
        asked.append(question)
        return "42"

    with pytest.raises(UnknownNameError, match="turn-rag"):
        choose(takes_notes, "turn-rga")
    assert asked == []


# --- a data file and the offline engine --------------------------------------------------------

THINGS = ("kayak", "piano", "tent", "violin", "ladder", "drone", "mirror", "camera", "bicycle")
CITIES = ("Lisbon", "Porto", "Faro", "Braga", "Evora", "Tomar", "Sintra", "Lagos", "Elvas", "Beja")


def write_moving_things(path: Path, users: int = 10) -> None:
    """Write questions about things of users; most things are moved once, and the new place counts.

    The offline engine mostly answers by the first place that it is shown. Of the methods below,
    `fact-store` shows it the right one most often.
    """
    lines: list[str] = []
    for user in range(users):
        first_places: list[str] = []
        new_places: list[str] = []
        questions: list[dict[str, Any]] = []
        for number, thing in enumerate(THINGS):
            place = CITIES[(user + number) % len(CITIES)]
            new_place = CITIES[(user + 3 * number + 1) % len(CITIES)]
            is_moved = number % 3 != 0
            first_places.append(f"My {thing} is in {place}.")
            if is_moved:
                new_places.append(f"My {thing} is in {new_place}.")
            answer = new_place if is_moved else place
            questions.append({"question": f"Where is my {thing}?", "answer": answer})

        texts = [*first_places, *new_places]
        sessions: list[list[dict[str, str]]] = []
        for start in range(0, len(texts), 4):
            session = [{"role": "user", "content": text} for text in texts[start : start + 4]]
            sessions.append(session)
        for number, question in enumerate(questions):
            line = {
                "user": f"u{user}",
                "id": f"{user}-{number}",
                "messages": sessions,
                "evidence": [],
                **question,
            }
            lines.append(json.dumps(line))
    path.write_text("\n".join(lines))


@pytest.mark.slow
def test_of_six_methods_the_best_is_found_with_three_tenths_of_the_calls(tmp_path: Path) -> None:
    """The other five are evaluated on every question, too, to know which one is the best."""
    methods = [
        "no-memory",
        "truncation",
        "full-context",
        "turn-rag",
        "session-rag",
        "fact-store",
    ]
    data = tmp_path / "moving.jsonl"
    write_moving_things(data)
    options: dict[str, Any] = {"benchmark": "jsonl", "data": data, "lm": "offline"}

    scores: dict[str, float] = {}
    calls = 0
    for method in methods:
        evaluation = mempiler.evaluate(method, progress=False, **options)
        assert evaluation.score is not None
        scores[method] = evaluation.score
        calls += evaluation.calls["task"]
    choice = mempiler.choose(methods, progress=False, **options)

    best, second = sorted(scores, key=lambda method: -scores[method])[:2]
    assert scores[best] > scores[second]
    assert choice.winner == best
    assert choice.usage["calls"]["task"] <= 0.3 * calls

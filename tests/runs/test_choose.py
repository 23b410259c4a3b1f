"""Choosing between methods: `mempiler.choose`, from Python and on a data file.

Most methods here are functions of a history and a question. They answer "42" to questions that they
know, so no model is asked. A choice has a run of its own, with one below it for each method.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    """Return questions to users: "What is fact 0?", "What is fact 1?" and so on.

    The right answer to all questions is "42".
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
    """Choose between programs; without a `testset`, by five questions to each of ten users."""
    # Traces of each question in MLflow take most of the time of a choice.
    defaults = {"testset": make_examples(), "metric": "exact", "lm": "offline", "traces": 0}
    options = {**defaults, **options}
    return mempiler.choose(programs, progress=False, **options)


@pytest.fixture(scope="module")
def choice_won_by_knows_everything() -> mempiler.Choice:
    """A choice between four functions by 140 questions, which `knows_everything` wins.

    The first round asks all four 21 questions, since a verdict takes 20. After it, the other three
    are clearly behind.
    """
    functions = (knows_nothing, knows_half, knows_everything, knows_other_half)
    with tracking_in_mlflow():
        return choose(*functions, testset=make_examples(users=20, questions_each=7))


def test_the_method_that_answers_best_wins(choice_won_by_knows_everything: mempiler.Choice) -> None:
    """The other methods were `knows_nothing`, `knows_half` and `knows_other_half`."""
    choice = choice_won_by_knows_everything

    assert choice.winner == "tests.runs.test_choose:knows_everything"
    assert choice.verdict == "better"
    assert choice.rows[0].score == 1.0


def test_all_methods_are_asked_the_same_questions_first(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    """If methods got different questions, one could win because its questions were easier."""
    questions_by_method: list[list[str]] = []
    for method in choice_won_by_knows_everything.rows:
        assert method.evaluation is not None
        questions_by_method.append([row.question for row in method.evaluation.rows])

    # Methods that left after the first round were asked fewer questions.
    common_length = min(len(questions) for questions in questions_by_method)
    first_method_questions = questions_by_method[0][:common_length]
    assert first_method_questions
    for questions in questions_by_method:
        assert questions[:common_length] == first_method_questions


def test_the_text_of_a_choice_names_the_winner_and_why_the_others_left(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    text = str(choice_won_by_knows_everything)

    assert "winner: tests.runs.test_choose:knows_everything, better than" in text
    assert "scope: other conversations" in text
    # Each of four methods was asked 21 questions in the only round.
    assert "84 of 560 answers" in text
    assert "round 1: clearly behind" in text
    assert "seconds" in text


def test_a_notebook_gets_the_table_as_html(choice_won_by_knows_everything: mempiler.Choice) -> None:
    html = choice_won_by_knows_everything._repr_html_()

    assert html.startswith("<table>")
    assert "knows_everything" in html


def test_a_choice_is_exported_as_json(choice_won_by_knows_everything: mempiler.Choice) -> None:
    result = json.loads(json.dumps(choice_won_by_knows_everything.to_dict()))

    assert result["winner"] == "tests.runs.test_choose:knows_everything"
    assert result["difference"]["verdict"] == "better"
    winner, *others = result["programs"]
    assert winner["difference"] is None
    # The methods are functions, which call no model.
    assert winner["per_question"]["calls"] == 0.0
    assert {other["left_because"] for other in others} == {"clearly behind"}


def test_mlflow_has_a_finished_run_for_each_method_below_the_run_of_the_choice(
    choice_won_by_knows_everything: mempiler.Choice,
) -> None:
    for row in choice_won_by_knows_everything.rows:
        assert row.evaluation is not None
        run = client().get_run(row.evaluation.run_id)
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == choice_won_by_knows_everything.run_id


def test_the_command_show_compares_the_best_two_methods_of_a_choice(
    choice_won_by_knows_everything: mempiler.Choice, cli: Callable[..., tuple[int, str, str]]
) -> None:
    run = str(choice_won_by_knows_everything.run)

    code, out, _ = cli("show", run)

    assert code == 0
    assert "B against A" in out
    assert RunFolder.open(run).is_finished


def test_there_is_no_winner_if_the_best_two_methods_are_equally_good() -> None:
    """`knows_half` and `knows_other_half` answer different questions, but equally many."""
    examples = make_examples(users=20, questions_each=4)

    choice = choose(knows_half, knows_other_half, knows_nothing, testset=examples)

    assert choice.verdict == "not told apart"
    assert choice.winner is None
    assert "not told apart: tests.runs.test_choose:knows_" in str(choice)


def test_of_two_equally_good_methods_the_cheaper_one_is_named() -> None:
    """Both methods show the model the whole of a short history, so they answer alike.

    "pgr+turn-rag" asks the model about every question before it searches, so it takes more calls.
    """
    examples = make_examples(users=5, questions_each=4)

    choice = choose("pgr+turn-rag", "turn-rag", testset=examples, share=1.0)

    assert choice.verdict == "not told apart"
    assert choice.cheapest == "turn-rag"
    assert "the cheapest method left is turn-rag" in choice.statement()


def test_a_choice_with_too_few_questions_for_a_verdict_says_so() -> None:
    """By default three tenths of all answers are asked for: 12 of 2 methods x 20 questions.

    So each method is asked six questions, and a verdict takes twenty.
    """
    examples = make_examples(users=2, questions_each=10)

    choice = choose(knows_everything, knows_nothing, testset=examples)

    assert choice.verdict == "too few to tell"
    assert choice.cheapest is None
    assert "the first round asked only 6 questions" in str(choice)


class ConstantAgent(dspy.Module):
    """A user's program that gives the same answer to every question."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, history: Any, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.answer)


def test_two_objects_of_one_class_are_named_with_a_number() -> None:
    """The second of the two agents knows the right answer, "42"."""
    choice = choose(ConstantAgent("no idea"), ConstantAgent("42"))

    assert choice.leader.endswith("ConstantAgent #2")


# --- plans -------------------------------------------------------------------------------------


def plan(*programs: str) -> Plan:
    """Plan a choice between programs by five questions to each of ten users."""
    return mempiler.plan_choice(
        programs, make_examples(), metric="exact", lm="offline", progress=False
    )


def test_a_plan_of_a_choice_has_the_fewest_and_the_most_calls() -> None:
    """Each of the three methods makes one call per question.

    At least the first round is asked, which has 7 questions for each method. At most three tenths
    of all 150 answers are asked for, which is 45.
    """
    methods = ("turn-rag", "session-rag", "no-memory")

    planned = plan(*methods)
    choice = choose(*methods)

    assert planned.calls.low == 3 * 7
    assert planned.calls.high == 45
    assert planned.calls.low <= choice.usage["calls"]["task"] <= planned.calls.high


def test_a_plan_counts_the_memories_that_a_model_writes() -> None:
    """Of the three methods, only the fact store asks a model to write memories.

    It is asked between 7 and 19 questions, five about each user, which takes the memories of two to
    four users. A plan has seen only a sample, so it widens the range by the factors 0.8 and 1.25.
    """
    planned = plan("turn-rag", "fact-store", "no-memory")

    writing = planned.phases["writing memories"]
    assert writing.high / writing.low == pytest.approx((4 * 1.25) / (2 * 0.8))


def test_the_command_choose_prints_a_plan(cli: Callable[..., tuple[int, str, str]]) -> None:
    """A share of .05 of 2 methods x 136 questions of LoCoMo's sample is 13 answers."""
    options = ("--benchmark", "locomo", "--share", "0.05", "--plan", "--json")

    code, out, _ = cli("choose", "turn-rag", "no-memory", *options)

    assert code == 0
    assert json.loads(out)["calls"] == {"low": 12, "high": 13}


def test_a_choice_with_a_program_behind_an_address_cannot_be_planned() -> None:
    """Nobody knows how many calls to models such a program will make."""
    with pytest.raises(UserError, match="how many calls it makes is not known before it runs"):
        plan("turn-rag", "http://localhost:1/v1")


# --- order of the questions -----------------------------------------------------------------


def count_users_of_first_round(choice: mempiler.Choice) -> int:
    """Return about how many users the method that left first was asked."""
    evaluation = choice.rows[-1].evaluation
    assert evaluation is not None
    users = {row.group for row in evaluation.rows}
    return len(users)


def test_the_first_questions_are_about_many_users_if_writing_memories_is_free() -> None:
    """These three methods write memories without a model.

    There are five questions about each of ten users. The first round has 7 questions, which are
    about 7 users.
    """
    choice = choose("turn-rag", "session-rag", "no-memory")

    assert count_users_of_first_round(choice) == 7


def test_the_first_questions_are_about_few_users_if_a_model_has_to_write_their_memories() -> None:
    """The fact store asks a model to write a memory of each user.

    There are five questions about each of ten users. The first round has 7 questions: all five
    about one user, and two about another.
    """
    choice = choose("turn-rag", "fact-store", "no-memory")

    assert count_users_of_first_round(choice) == 2


def questions_of_choice(seed: int) -> list[str]:
    """Return the questions that the winner of a choice with this seed was asked."""
    choice = choose(knows_everything, knows_nothing, seed=seed)
    evaluation = choice.rows[0].evaluation
    assert evaluation is not None
    return [row.question for row in evaluation.rows]


def test_the_seed_decides_which_questions_are_asked() -> None:
    questions_of_seed_1 = questions_of_choice(seed=1)

    assert questions_of_choice(seed=1) == questions_of_seed_1
    assert questions_of_choice(seed=0) != questions_of_seed_1


def test_questions_that_do_not_count_for_the_score_are_not_asked() -> None:
    """LoCoMo's questions of category 5 cannot be answered, and its score leaves them out."""
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


def test_a_limit_of_calls_holds_for_all_methods_together_and_the_choice_can_be_resumed() -> None:
    """Each of two methods is to be asked 15 questions, in one call each, so 20 calls are too few.

    The resumed choice makes the other ten calls.
    """
    stopped = choose("turn-rag", "session-rag", max_calls=20, threads=1)
    resumed = choose("turn-rag", "session-rag", resume=stopped.run.name, threads=1)

    assert stopped.stopped == "max-calls 20"
    assert stopped.usage["calls"]["task"] == 20
    assert f"to resume: --resume {stopped.run.name}" in str(stopped)
    assert resumed.stopped is None
    assert resumed.answers == 30
    assert resumed.usage["calls"]["task"] == 10


def test_a_choice_that_may_make_no_call_is_broken() -> None:
    choice = choose("turn-rag", "session-rag", max_calls=0)

    with pytest.raises(BrokenRunError, match="nothing was evaluated: max-calls 0"):
        choice.refuse_broken()


def test_a_method_that_always_fails_does_not_win_although_no_other_is_better() -> None:
    """The other method answers every question, but always wrongly."""
    choice = choose(always_fails, knows_nothing)

    assert choice.winner is None
    assert choice.leader.endswith("always_fails")
    with pytest.raises(BrokenRunError, match="questions failed"):
        choice.refuse_broken()


def test_a_method_that_always_fails_is_noted_if_it_loses() -> None:
    """The choice as a whole is not broken, since it has a winner that works."""
    examples = make_examples(users=14, questions_each=5)

    choice = choose(knows_everything, always_fails, testset=examples)

    choice.refuse_broken()  # raises an error if the choice is broken
    assert choice.winner is not None
    note = "broken run: tests.runs.test_choose:always_fails: 21 of 21 questions failed"
    assert note in str(choice)


# --- mistakes of the user ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        pytest.param(
            ["turn-rag"],
            "nothing to choose from: turn-rag; name two methods or more",
            id="one method",
        ),
        pytest.param(
            ["turn-rag", "turn-rag"],
            "turn-rag: is named twice; name each method once",
            id="one method twice",
        ),
        pytest.param(
            ["turn-rag", "answers.jsonl"],
            "answers.jsonl: the answers in this file were paid for",
            id="a file of answers",
        ),
    ],
)
def test_programs_between_which_there_is_no_choice_are_refused(
    programs: list[str], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        choose(*programs)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"share": 0}, "share = 0: no question would be asked"),
        ({"share": 1.5}, "share = 1.5: give a finite number, 0 to 1"),
        ({"workers": 2}, "workers: choose does not take it"),
        ({"margin": 0.1}, "margin: choose does not take it"),
    ],
    ids=str,
)
def test_a_wrong_option_of_a_choice_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        choose("turn-rag", "no-memory", **option)


def test_a_misspelled_method_is_refused_before_any_question_is_asked() -> None:
    asked_questions: list[str] = []

    def takes_notes(history: Any, question: str) -> str:
        asked_questions.append(question)
        return "42"

    with pytest.raises(UnknownNameError, match="turn-rag"):
        choose(takes_notes, "turn-rga")

    assert asked_questions == []


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


class FullEvaluation(NamedTuple):
    """The scores of methods on all questions, and how many calls that took."""

    scores: dict[str, float]
    calls: int

    @property
    def best_first(self) -> list[str]:
        """The methods, the best one first."""
        return sorted(self.scores, key=lambda method: -self.scores[method])


def evaluate_on_all_questions(methods: list[str], **options: Any) -> FullEvaluation:
    """Evaluate methods one after the other, without choosing between them."""
    scores: dict[str, float] = {}
    calls = 0
    for method in methods:
        evaluation = mempiler.evaluate(method, progress=False, **options)
        assert evaluation.score is not None
        scores[method] = evaluation.score
        calls += evaluation.calls["task"]
    return FullEvaluation(scores, calls)


@pytest.mark.slow
def test_of_six_methods_the_best_is_found_with_three_tenths_of_the_calls(tmp_path: Path) -> None:
    """To know which method is the best, all are also evaluated on every question."""
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

    full_evaluation = evaluate_on_all_questions(methods, **options)
    choice = mempiler.choose(methods, progress=False, **options)

    best, second = full_evaluation.best_first[:2]
    assert full_evaluation.scores[best] > full_evaluation.scores[second]
    assert choice.winner == best
    assert choice.usage["calls"]["task"] <= 0.3 * full_evaluation.calls

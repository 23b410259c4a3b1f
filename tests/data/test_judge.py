"""Judges: how they read replies of a model, what they are shown, and many questions at once.

A judge asks a model whether an answer is right, whether a memory acknowledges some references, or
which of two responses is better. References are facts about the user that a good response needs.
`scripted` makes a model whose replies are known.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.data.judge import (
    AcknowledgementJudge,
    GenerousJudge,
    Judge,
    Preference,
    PreferenceJudge,
    ReferenceVerdict,
    StrictAcknowledgementJudge,
    Verdict,
    ask_all,
    preference,
    with_user_facts,
)
from mempiler.programs.adapter import adapter
from mempiler.signatures.judges import Acknowledgement, JudgeAcknowledgement, judge_hash
from pydantic import Field

EXAMPLE = dspy.Example(question="Plan my week", answer="Has a bad knee")


@pytest.mark.parametrize(("word", "correct"), [("CORRECT", True), ("WRONG", False)])
def test_a_judge_reads_the_verdict_and_the_reason(scripted: Any, word: str, correct: bool) -> None:
    lm = scripted(lambda *call: {"reasoning": "The same\ncity.", "verdict": word})

    verdict = Judge(lm, adapter())("Where?", "Lisbon", "In Lisbon")

    assert verdict == Verdict(correct, "The same city.")
    (_, prompt) = lm.engine.prompts[0]
    assert "In Lisbon" in prompt


def test_a_judge_asks_once_more_for_a_verdict_that_it_cannot_read(scripted: Any) -> None:
    """A verdict is CORRECT or WRONG. The model says "yes!" at first."""

    def reply(kind: str, prompt: str, number: int) -> dict[str, str]:
        verdict = "yes!" if number == 1 else "CORRECT"
        return {"reasoning": "The same city.", "verdict": verdict}

    lm = scripted(reply)

    verdict = Judge(lm, adapter())("Where?", "Lisbon", "In Lisbon")

    assert verdict.correct is True
    assert len(lm.engine.prompts) == 2


def test_an_empty_answer_is_wrong_without_a_call(scripted: Any) -> None:
    """The model would call every answer right."""
    lm = scripted(lambda *call: {"reasoning": "The same city.", "verdict": "CORRECT"})

    assert Judge(lm, adapter())("Where?", "Lisbon", " ").correct is False

    assert lm.engine.prompts == []


def test_a_judge_asks_its_own_model_outside_the_trace(scripted: Any) -> None:
    """A trace lists the calls of the program that is optimized; optimizers learn from it.

    The calls of a judge do not belong to the program.
    """
    task_lm = scripted(lambda *call: {})
    judge_lm = scripted(lambda *call: {"reasoning": "The same city.", "verdict": "CORRECT"})

    with dspy.context(lm=task_lm, trace=[]):
        Judge(judge_lm, adapter())("Where?", "Lisbon", "In Lisbon")
        trace = dspy.settings.trace

    assert trace == []
    assert len(task_lm.engine.prompts) == 0
    assert len(judge_lm.engine.prompts) == 1


@pytest.mark.parametrize(("label", "correct"), [("CORRECT", True), ("WRONG", False)])
def test_the_generous_judge_reads_its_label(scripted: Any, label: str, correct: bool) -> None:
    """This judge asks its model for a label, as the judges of some papers do."""
    lm = scripted(lambda *call: {"label": label})
    judge = GenerousJudge(lm, adapter())
    assert judge("Where?", "Lisbon", "By the sea").correct is correct


ABSENT = ReferenceVerdict(present=False, reason="r")
IMPLICIT = ReferenceVerdict(present=True, reason="r")
EXPLICIT = ReferenceVerdict(present=True, explicit=True, reason="r")


KNEE_YES = {"number": 1, "reason": "r", "verdict": "Yes"}
NIGHT_NO = {"number": 2, "reason": "r", "verdict": "No"}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([KNEE_YES, NIGHT_NO], id="in order"),
        pytest.param([NIGHT_NO, KNEE_YES], id="in another order"),
        # Numbers that name no reference are ignored; the order of the list counts.
        pytest.param([{**KNEE_YES, "number": 7}, {**NIGHT_NO, "number": 7}], id="misnumbered"),
    ],
)
def test_each_reference_gets_its_own_verdict(scripted: Any, reply: list[Any]) -> None:
    """A judge is shown numbered references, and says of each whether a memory acknowledges it.

    The memory is about the knee and not about the work at night.
    """
    lm = scripted(lambda *call: {"acknowledgements": reply})
    judge = AcknowledgementJudge(lm, adapter())

    verdicts = judge("Plan", ["Bad knee", "Works\nat night"], "[f0] my knee")

    assert verdicts == (IMPLICIT, ABSENT)
    (_, prompt) = lm.engine.prompts[0]
    assert "1. Bad knee\n2. Works at night" in prompt


@pytest.mark.parametrize(
    ("word", "expected"), [("implicitly", IMPLICIT), ("explicitly", EXPLICIT), ("not", ABSENT)]
)
@pytest.mark.parametrize("is_knee_first", [True, False])
def test_the_strict_judge_says_how_a_reference_is_acknowledged(
    scripted: Any, word: str, expected: ReferenceVerdict, is_knee_first: bool
) -> None:
    """Its model says "implicitly", "explicitly" or "not" of each reference, in any order."""
    about_knee = {"number": 1, "reason": "r", "found": word}
    about_night = {"number": 2, "reason": "r", "found": "not"}
    reply = [about_knee, about_night] if is_knee_first else [about_night, about_knee]
    lm = scripted(lambda *call: {"acknowledgements": reply})
    judge = StrictAcknowledgementJudge(lm, adapter())

    verdicts = judge("Plan", ["Bad knee", "Works at night"], "[f0] my knee")

    assert verdicts == (expected, ABSENT)


def test_the_strict_judge_ignores_numbers_that_name_no_reference(scripted: Any) -> None:
    """Then the order of the list counts."""
    about_knee = {"number": 7, "reason": "r", "found": "explicitly"}
    about_night = {"number": 7, "reason": "r", "found": "not"}
    lm = scripted(lambda *call: {"acknowledgements": [about_knee, about_night]})
    judge = StrictAcknowledgementJudge(lm, adapter())

    verdicts = judge("Plan", ["Bad knee", "Works at night"], "[f0] my knee")

    assert verdicts == (EXPLICIT, ABSENT)


def acknowledgement_judge(scripted: Any, count: int) -> AcknowledgementJudge:
    """Return a judge whose model says yes to that many references, however many there are."""
    acknowledgements = [
        {"number": number, "reason": "r", "verdict": "yes"} for number in range(1, count + 1)
    ]
    lm = scripted(lambda *call: {"acknowledgements": acknowledgements})
    return AcknowledgementJudge(lm, adapter())


@pytest.mark.parametrize("count", [1, 3])
def test_a_reply_about_another_number_of_references_is_unreadable(
    scripted: Any, count: int
) -> None:
    """The judge is asked about two references, and its model speaks of one or of three."""
    judge = acknowledgement_judge(scripted, count)
    problem = f"2 references, but the judge speaks of {count}"
    with pytest.raises(AdapterParseError, match=problem):
        judge("Plan", ["A", "B"], "context")


def test_an_empty_context_acknowledges_nothing_without_a_call(scripted: Any) -> None:
    """The model would say yes to both references."""
    judge = acknowledgement_judge(scripted, count=2)

    verdicts = judge("Plan", ["A", "B"], " ")

    assert [verdict.present for verdict in verdicts] == [False, False]
    assert judge.lm.engine.prompts == []


class SideJudge:
    """A judge of pairs that gives its sides in turn, and records the pairs."""

    def __init__(self, *sides: str) -> None:
        self.sides = sides
        self.pairs: list[tuple[str, str]] = []

    def __call__(self, example: dspy.Example, first: str, second: str) -> Any:
        self.pairs.append((first, second))
        return self.sides[len(self.pairs) - 1]


def test_a_preference_is_the_mean_of_both_orders() -> None:
    """Judges favour what they see first, so each pair is judged a second time the other way round.

    Here A wins as the first one, and ties as the second one.
    """
    judge: Any = SideJudge("first", "tie")

    result = preference(judge, EXAMPLE, "A", "B")

    assert result == Preference(win_share=0.5, loss_share=0.0)
    assert judge.pairs == [("A", "B"), ("B", "A")]


def test_equal_responses_tie_without_a_call() -> None:
    """The responses differ in one blank. This judge has no answer, so it must not be asked."""
    judge: Any = SideJudge()

    result = preference(judge, EXAMPLE, "Rest.", "Rest. ")

    assert result == Preference(win_share=0.0, loss_share=0.0)
    assert judge.pairs == []


@pytest.mark.parametrize(
    ("choice", "side"), [("w3k8", "first"), ("t5n1", "second"), ("tie", "tie")]
)
def test_the_judge_of_pairs_sees_neutral_labels(scripted: Any, choice: str, side: str) -> None:
    """The responses are called w3k8 and t5n1, because "A" or "1" might look better."""
    lm = scripted(lambda *call: {"reasoning": "Better.", "choice": choice})

    assert PreferenceJudge(lm, adapter())(EXAMPLE, "Swim.", "Run.") == side

    (_, prompt) = lm.engine.prompts[0]
    positions = [prompt.index(text) for text in ("w3k8", "Swim.", "t5n1", "Run.")]
    assert positions == sorted(positions)


def reference_of(example: dspy.Example) -> str:
    """Return what a good response to an example takes into account, as lines."""
    return str(example.get("reference") or example.answer)


@pytest.mark.parametrize("name", ["memoryquest", "personamem-v2", "implexconv"])
def test_the_judge_of_pairs_knows_all_that_is_said_of_the_user(scripted: Any, name: str) -> None:
    """A response may use any fact about the user, so the judge gets those of all their questions.

    The user is the first one of a benchmark's sample, who has several questions. The question with
    the most facts is judged.
    """
    benchmark = load_benchmark(name)
    examples = with_user_facts(benchmark.examples, benchmark.group)
    first_user = benchmark.group(examples[0])
    user_examples = [example for example in examples if benchmark.group(example) == first_user]
    example = max(user_examples, key=lambda candidate: len(candidate.facts))
    lm = scripted(lambda *call: {"reasoning": "Better.", "choice": "tie"})

    PreferenceJudge(lm, adapter())(example, "Swim.", "Run.")

    (_, prompt) = lm.engine.prompts[0]
    assert f"[[ ## facts ## ]]\n{example.facts}\n" in prompt
    assert f"[[ ## references ## ]]\n{reference_of(example)}\n" in prompt

    # The facts are references of the user's questions, each once.
    user_references: set[str] = set()
    for user_example in user_examples:
        user_references.update(reference_of(user_example).splitlines())
    facts = example.facts.splitlines()
    assert len(facts) > 1
    assert len(facts) == len(set(facts))
    assert set(facts) <= user_references


def test_the_hash_of_a_judge_changes_with_every_part_of_its_prompt() -> None:
    """Scores can be compared only if their judges had the same prompts, which the hash tells."""

    class ChangedAcknowledgement(Acknowledgement):
        reason: str = Field(default="", description="at length")

    # Only the description of a field differs, not the name of the class.
    ChangedAcknowledgement.__name__ = Acknowledgement.__name__
    ChangedAcknowledgement.__qualname__ = Acknowledgement.__qualname__
    other_instructions = JudgeAcknowledgement.instructions + " Be kind."
    prompts = [
        JudgeAcknowledgement,
        JudgeAcknowledgement.with_updated_fields(
            "acknowledgements", type_=list[ChangedAcknowledgement]
        ),
        JudgeAcknowledgement.with_instructions(other_instructions),
        JudgeAcknowledgement.with_updated_fields("context", desc="what was said"),
    ]

    hashes = {judge_hash(prompt) for prompt in prompts}

    assert len(hashes) == len(prompts)


class RefusedError(Exception):
    """The error of a call that fails."""


def test_many_replies_stand_in_the_order_of_the_questions() -> None:
    """`ask_all` asks many questions at once, in threads."""

    def ask(number: int) -> int:
        # The first question is answered last.
        time.sleep(0.01 * (4 - number))
        return 10 * number

    assert ask_all(ask, [1, 2, 3], threads=3) == [10, 20, 30]


# Threads end in another order each time, so the test is repeated.
@pytest.mark.parametrize("repetition", range(20))
def test_if_many_questions_fail_the_error_of_the_first_one_is_raised(repetition: int) -> None:
    """Eight questions are asked at once, and all of them fail."""
    all_running = threading.Barrier(8)

    def ask(number: int) -> None:
        all_running.wait(timeout=10)
        raise RefusedError(number)

    assert failure_of(ask, count=8) == 0


def test_the_error_of_the_first_question_is_raised_even_if_it_comes_later() -> None:
    """Of two questions that are asked at once, the first one fails last."""
    second_failed = threading.Event()

    def ask(number: int) -> None:
        if number == 0:
            second_failed.wait(timeout=10)
            time.sleep(0.05)
        else:
            second_failed.set()
        raise RefusedError(number)

    assert failure_of(ask, count=2) == 0


def failure_of(ask: Callable[[int], None], count: int) -> int:
    """Ask that many questions at once, and return the number of the one whose error is raised."""
    with pytest.raises(RefusedError) as failure:
        ask_all(ask, range(count), threads=count)
    (number,) = failure.value.args
    return number


def test_after_a_failure_no_further_call_begins() -> None:
    begun: list[int] = []

    def ask(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise RefusedError(number)
        time.sleep(0.01)

    with pytest.raises(RefusedError):
        ask_all(ask, range(100), threads=1)

    # Of a hundred questions a few may have begun before the failure was noticed.
    assert begun[:3] == [0, 1, 2]
    assert len(begun) < 10

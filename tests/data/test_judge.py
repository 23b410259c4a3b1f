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

from .conftest import prompts_to

EXAMPLE = dspy.Example(question="Plan my week", answer="Has a bad knee")


@pytest.mark.parametrize(("word", "is_correct"), [("CORRECT", True), ("WRONG", False)])
def test_a_judge_reads_the_verdict_and_the_reason(
    model_that_replies: Any, word: str, is_correct: bool
) -> None:
    lm = model_that_replies({"reasoning": "The same\ncity.", "verdict": word})
    judge = Judge(lm, adapter())

    verdict = judge(question="Where?", gold_answer="Lisbon", answer="In Lisbon")

    assert verdict == Verdict(is_correct, "The same city.")
    [prompt] = prompts_to(lm)
    assert "In Lisbon" in prompt


def test_a_judge_asks_once_more_for_a_verdict_that_it_cannot_read(scripted: Any) -> None:
    """A verdict is CORRECT or WRONG. The model says "yes!" at first, and then CORRECT."""

    def reply(kind: str, prompt: str, number: int) -> dict[str, str]:
        verdict = "yes!" if number == 1 else "CORRECT"
        return {"reasoning": "The same city.", "verdict": verdict}

    lm = scripted(reply)
    judge = Judge(lm, adapter())

    verdict = judge(question="Where?", gold_answer="Lisbon", answer="In Lisbon")

    assert verdict.correct is True
    assert len(prompts_to(lm)) == 2


def test_an_empty_answer_is_wrong_without_a_call(model_that_replies: Any) -> None:
    lm = model_that_replies({"reasoning": "The same city.", "verdict": "CORRECT"})
    judge = Judge(lm, adapter())

    verdict = judge(question="Where?", gold_answer="Lisbon", answer=" ")

    assert verdict.correct is False
    assert prompts_to(lm) == []


def test_a_judge_asks_its_own_model_outside_the_trace(model_that_replies: Any) -> None:
    """DSPy's trace lists the calls of the program that is optimized, and optimizers learn from it.

    The calls of a judge do not belong to the program.
    """
    program_lm = model_that_replies({})
    judge_lm = model_that_replies({"reasoning": "The same city.", "verdict": "CORRECT"})
    judge = Judge(judge_lm, adapter())

    with dspy.context(lm=program_lm, trace=[]):
        judge(question="Where?", gold_answer="Lisbon", answer="In Lisbon")
        trace = dspy.settings.trace

    assert trace == []
    assert prompts_to(program_lm) == []
    assert len(prompts_to(judge_lm)) == 1


@pytest.mark.parametrize(("label", "is_correct"), [("CORRECT", True), ("WRONG", False)])
def test_the_generous_judge_reads_its_label(
    model_that_replies: Any, label: str, is_correct: bool
) -> None:
    """This judge has the prompt of some papers, which asks for a label and not for a verdict."""
    judge = GenerousJudge(model_that_replies({"label": label}), adapter())

    verdict = judge(question="Where?", gold_answer="Lisbon", answer="By the sea")

    assert verdict.correct is is_correct


ABSENT = ReferenceVerdict(present=False, reason="r")
IMPLICIT = ReferenceVerdict(present=True, reason="r")
EXPLICIT = ReferenceVerdict(present=True, explicit=True, reason="r")

# A judge is asked which of these references a recalled entry about a knee tells.
KNEE_AND_NIGHT = ["Bad knee", "Works at night"]
ENTRY_ABOUT_KNEE = "[f0] my knee"

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
def test_each_reference_gets_its_own_verdict(model_that_replies: Any, reply: list[Any]) -> None:
    """The judge's model says Yes to reference 1, a knee, and No to reference 2, work at night."""
    judge = AcknowledgementJudge(model_that_replies({"acknowledgements": reply}), adapter())

    verdicts = judge("Plan my week", references=KNEE_AND_NIGHT, context=ENTRY_ABOUT_KNEE)

    assert verdicts == (IMPLICIT, ABSENT)


@pytest.mark.parametrize(
    ("word", "expected"), [("implicitly", IMPLICIT), ("explicitly", EXPLICIT), ("not", ABSENT)]
)
@pytest.mark.parametrize("is_knee_first", [True, False])
def test_the_strict_judge_says_how_a_reference_is_acknowledged(
    model_that_replies: Any, word: str, expected: ReferenceVerdict, is_knee_first: bool
) -> None:
    """The model of this judge may speak of the references in any order."""
    about_knee = {"number": 1, "reason": "r", "found": word}
    about_night = {"number": 2, "reason": "r", "found": "not"}
    reply = [about_knee, about_night] if is_knee_first else [about_night, about_knee]
    judge = StrictAcknowledgementJudge(model_that_replies({"acknowledgements": reply}), adapter())

    verdicts = judge("Plan my week", references=KNEE_AND_NIGHT, context=ENTRY_ABOUT_KNEE)

    assert verdicts == (expected, ABSENT)


@pytest.mark.parametrize("count", [1, 3])
def test_a_reply_about_another_number_of_references_is_unreadable(
    model_that_replies: Any, count: int
) -> None:
    """The judge is asked about two references, and its model speaks of one or of three."""
    reply = [{"number": number, "reason": "r", "verdict": "Yes"} for number in range(1, count + 1)]
    judge = AcknowledgementJudge(model_that_replies({"acknowledgements": reply}), adapter())

    problem = f"2 references, but the judge speaks of {count}"
    with pytest.raises(AdapterParseError, match=problem):
        judge("Plan my week", references=KNEE_AND_NIGHT, context=ENTRY_ABOUT_KNEE)


def test_an_empty_context_acknowledges_nothing_without_a_call(model_that_replies: Any) -> None:
    lm = model_that_replies({"acknowledgements": [KNEE_YES, NIGHT_NO]})
    judge = AcknowledgementJudge(lm, adapter())

    verdicts = judge("Plan my week", references=KNEE_AND_NIGHT, context=" ")

    assert [verdict.present for verdict in verdicts] == [False, False]
    assert prompts_to(lm) == []


class ScriptedPairJudge:
    """A judge of pairs that says "first", "second" or "tie" as scripted, and records the pairs."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.pairs: list[tuple[str, str]] = []

    def __call__(self, example: dspy.Example, first: str, second: str) -> Any:
        self.pairs.append((first, second))
        return self.choices[len(self.pairs) - 1]


def test_a_preference_is_the_mean_of_both_orders() -> None:
    """Judges favour what they see first, so each pair is judged a second time the other way round.

    Here A wins when it is shown first, and ties when it is shown second.
    """
    judge: Any = ScriptedPairJudge("first", "tie")

    result = preference(judge, EXAMPLE, "A", "B")

    assert result == Preference(win_share=0.5, loss_share=0.0)
    assert judge.pairs == [("A", "B"), ("B", "A")]


def test_equal_responses_tie_without_a_call() -> None:
    """The responses differ in one space at the end only."""
    judge: Any = ScriptedPairJudge()

    result = preference(judge, EXAMPLE, "Rest.", "Rest. ")

    assert result == Preference(win_share=0.0, loss_share=0.0)
    assert judge.pairs == []


@pytest.mark.parametrize(
    ("choice", "side"), [("w3k8", "first"), ("t5n1", "second"), ("tie", "tie")]
)
def test_the_judge_of_pairs_sees_neutral_labels(
    model_that_replies: Any, choice: str, side: str
) -> None:
    """The responses are called w3k8 and t5n1: a model might prefer what is called "A" or "1"."""
    lm = model_that_replies({"reasoning": "Better.", "choice": choice})
    judge = PreferenceJudge(lm, adapter())

    assert judge(EXAMPLE, first="Swim.", second="Run.") == side

    [prompt] = prompts_to(lm)
    positions = [prompt.index(text) for text in ("w3k8", "Swim.", "t5n1", "Run.")]
    assert positions == sorted(positions)


def example_of_first_user(benchmark_name: str) -> dspy.Example:
    """Return a question of a sample's first user, with all that is known of the user as `facts`."""
    loaded = load_benchmark(benchmark_name)
    examples = with_user_facts(loaded.examples, loaded.group)
    first_user = loaded.group(examples[0])
    user_examples = [example for example in examples if loaded.group(example) == first_user]
    # Facts that are told after a question are not among those of the question.
    return max(user_examples, key=lambda example: len(example.facts))


@pytest.mark.parametrize("name", ["memoryquest", "personamem-v2", "implexconv"])
def test_the_judge_of_pairs_knows_all_that_is_said_of_the_user(
    model_that_replies: Any, name: str
) -> None:
    """A good response may use any fact about the user, so the judge is shown all of them.

    The question itself needs some of the facts, its references.
    """
    example = example_of_first_user(name)
    references = example.get("reference") or example.answer
    lm = model_that_replies({"reasoning": "Better.", "choice": "tie"})
    judge = PreferenceJudge(lm, adapter())

    judge(example, first="Swim.", second="Run.")

    [prompt] = prompts_to(lm)
    assert f"[[ ## facts ## ]]\n{example.facts}\n" in prompt
    assert f"[[ ## references ## ]]\n{references}\n" in prompt


@pytest.mark.parametrize("name", ["memoryquest", "personamem-v2", "implexconv"])
def test_the_facts_about_a_user_are_the_references_of_all_their_questions_each_once(
    name: str,
) -> None:
    loaded = load_benchmark(name)
    references_by_user: dict[str, set[str]] = {}
    for example in loaded.examples:
        references = str(example.get("reference") or example.answer).splitlines()
        references_by_user.setdefault(loaded.group(example), set()).update(references)

    example = example_of_first_user(name)

    facts = example.facts.splitlines()
    assert len(facts) > 1
    assert len(facts) == len(set(facts))
    assert set(facts) <= references_by_user[loaded.group(example)]


class AcknowledgementAtLength(Acknowledgement):
    """The verdict on one reference."""

    reason: str = Field(default="", description="at length")


# A prompt shows the name of the class. Only the description of a field is to differ.
AcknowledgementAtLength.__name__ = Acknowledgement.__name__
AcknowledgementAtLength.__qualname__ = Acknowledgement.__qualname__


@pytest.mark.parametrize(
    "changed_prompt",
    [
        pytest.param(
            JudgeAcknowledgement.with_instructions(JudgeAcknowledgement.instructions + " Be kind."),
            id="instructions",
        ),
        pytest.param(
            JudgeAcknowledgement.with_updated_fields("context", desc="what was said"),
            id="description of a field",
        ),
        pytest.param(
            JudgeAcknowledgement.with_updated_fields(
                "acknowledgements", type_=list[AcknowledgementAtLength]
            ),
            id="description inside the type of a field",
        ),
    ],
)
def test_the_hash_of_a_judge_changes_with_every_part_of_its_prompt(changed_prompt: Any) -> None:
    """Scores can be compared only if their judges had the same prompt. The hash shows that."""
    assert judge_hash(changed_prompt) != judge_hash(JudgeAcknowledgement)


class RefusedError(Exception):
    """The error of a call that fails."""


def test_many_replies_stand_in_the_order_of_the_questions() -> None:
    """`ask_all` asks many questions at once, in threads. The first question is answered last."""

    def ask(number: int) -> int:
        time.sleep(0.01 * (4 - number))
        return 10 * number

    assert ask_all(ask, [1, 2, 3], threads=3) == [10, 20, 30]


def number_of_raised_error(ask: Callable[[int], None], count: int) -> int:
    """Ask the questions 0, 1, ... at once, and return the number of the one whose error is raised.

    `ask` raises a `RefusedError` with the number of its question.
    """
    with pytest.raises(RefusedError) as failure:
        ask_all(ask, range(count), threads=count)
    (number,) = failure.value.args
    return number


# Threads end in another order each time, so the test is repeated.
@pytest.mark.parametrize("repetition", range(20))
def test_if_many_questions_fail_the_error_of_the_first_one_is_raised(repetition: int) -> None:
    """The questions 0 to 7 are asked at once, and all of them fail."""
    all_running = threading.Barrier(8)

    def ask(number: int) -> None:
        all_running.wait(timeout=10)
        raise RefusedError(number)

    assert number_of_raised_error(ask, count=8) == 0


def test_the_error_of_the_first_question_is_raised_even_if_it_comes_later() -> None:
    """The questions 0 and 1 are asked at once. Question 0 fails after question 1."""
    second_failed = threading.Event()

    def ask(number: int) -> None:
        if number == 0:
            second_failed.wait(timeout=10)
            time.sleep(0.05)
        else:
            second_failed.set()
        raise RefusedError(number)

    assert number_of_raised_error(ask, count=2) == 0


def test_after_a_failure_no_further_call_begins() -> None:
    """The third of a hundred calls fails. A few may have begun before that was noticed."""
    begun: list[int] = []

    def ask(number: int) -> None:
        begun.append(number)
        if number == 2:
            raise RefusedError(number)
        time.sleep(0.01)

    with pytest.raises(RefusedError):
        ask_all(ask, range(100), threads=1)

    assert begun[:3] == [0, 1, 2]
    assert len(begun) < 10

"""Intervals and paired comparisons, checked by hand; equal verdicts everywhere; saved runs.

A verdict says whether one program is better than another: "better", "worse", "not told apart" or
"too few to tell". It follows from the differences between their scores of the same questions.

A group is the conversation or the user that a question is about. With six groups or more, an
interval draws whole groups, and else single questions.
"""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import dspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler import History, UserError
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.data.dataset import Split
from mempiler.data.judge import PreferenceJudge
from mempiler.engines.lm import language_model
from mempiler.engines.usage import Usage
from mempiler.programs.adapter import adapter
from mempiler.records import Failure
from mempiler.runs.compare import (
    CONDITIONS,
    ComparedRun,
    FinishedRun,
    compare_runs,
    judge_win_rate,
    load_run,
)
from mempiler.runs.compile_result import CompileResult, OptimizerProblems
from mempiler.runs.folder import RunFolder
from mempiler.runs.gate import gate
from mempiler.runs.manifest import Manifest
from mempiler.runs.pages.html import save_page
from mempiler.runs.pages.page import PAGE_DATA, run_page
from mempiler.runs.promotion import PROMPT_GROWTH, decide_promotion, estimate_remaining_usage
from mempiler.runs.results import Evaluation, difference
from mempiler.runs.rows import Row
from mempiler.runs.statistics import (
    MIN_GROUPS,
    Interval,
    bootstrap_interval,
    compare_paired_scores,
    design_effect,
)

from ..scripted_engine import chat_fields
from .evaluations import evaluation as evaluation_of
from .evaluations import refusal, row


def permutation_p_value(differences: Sequence[float], users: Sequence[str]) -> float:
    """Return p of a program whose scores differ from those of another by these differences."""
    scores = [0.1 + difference for difference in differences]
    baseline_scores = [0.1] * len(differences)
    return compare_paired_scores(scores, baseline_scores, users).p_value


def evaluation_of_scores(scores: Sequence[float], groups: Sequence[str]) -> Evaluation:
    """Return the evaluation of questions q0, q1, ... with these scores, in these groups."""
    rows: list[Row] = []
    for number, (score, group) in enumerate(zip(scores, groups, strict=True)):
        rows.append(row(f"q{number}", score, category="1", group=group))
    return evaluation_of(rows)


@pytest.mark.parametrize(
    ("confidence_level", "low", "high"),
    [
        pytest.param(0.95, 0.0, 1.0, id="95 %: all three means"),
        pytest.param(0.3, 0.5, 0.5, id="30 %: only the mean in the middle"),
    ],
)
def test_interval_of_two_questions_worked_by_hand(
    confidence_level: float, low: float, high: float
) -> None:
    """The bootstrap draws two of the scores 0 and 1 with replacement, many times.

    The means of the samples are 0, 0.5 and 1, with the chances 1/4, 1/2 and 1/4. The interval
    holds the middle share of them, which is the confidence level.
    """
    interval = bootstrap_interval([0, 1], ["ann", "ann"], confidence_level=confidence_level)

    assert interval == Interval(low, high, unit="question")


def test_every_question_counts_the_same_when_groups_are_drawn() -> None:
    """Five users have one question each, which scores 0; the sixth has 95, which score 1.

    Most samples draw the sixth user once, and so 95 right answers among 100. If every user counted
    the same, the mean of these samples would be 1/6.
    """
    scores = [0.0] * 5 + [1.0] * 95
    groups = ["ann", "bob", "cyd", "dan", "eve"] + ["fay"] * 95

    middle_of_samples = bootstrap_interval(scores, groups, confidence_level=0.2)

    assert middle_of_samples == Interval(low=0.95, high=0.95, unit="group")


def test_with_five_conversations_single_questions_are_resampled() -> None:
    """So a verdict speaks of other questions about these conversations."""
    groups = ["ann", "bob", "cyd", "dan", "eve"] * 6

    result = compare_paired_scores([1.0] * 30, [0.0] * 30, groups)

    assert result.interval is not None
    assert result.interval.unit == "question"
    assert result.scope == "other questions about these conversations"


def test_with_six_conversations_whole_conversations_are_resampled() -> None:
    """So a verdict speaks of other conversations."""
    groups = ["ann", "bob", "cyd", "dan", "eve", "fay"] * 5

    result = compare_paired_scores([1.0] * 30, [0.0] * 30, groups)

    assert result.interval is not None
    assert result.interval.unit == "group"
    assert result.scope == "other conversations"


@pytest.mark.parametrize(
    ("user_count", "p_value", "verdict"),
    [
        (5, 2 / 2**5, "not told apart"),  # p = .062
        (6, 2 / 2**6, "better"),  # p = .031
    ],
)
def test_six_users_are_the_fewest_whose_differences_can_be_significant(
    user_count: int, p_value: float, verdict: str
) -> None:
    """A verdict needs p < .05. This is why MIN_GROUPS is 6.

    The permutation test flips the sign of each user's difference. If all users agree, 2 of the 2^k
    ways to flip the signs of k users are as extreme as what was observed.
    """
    one_question_each = [f"user {number}" for number in range(user_count)]

    result = compare_paired_scores(
        [1.0] * user_count, [0.0] * user_count, one_question_each, min_n=1
    )

    assert MIN_GROUPS == 6
    assert result.p_value == pytest.approx(p_value)
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("scores", "users", "effect"),
    [
        pytest.param([1, 1, 0, 0], "aabb", 2.0, id="2 equal scores of each user"),
        pytest.param([1, 1, 1, 0, 0, 0], "aaabbb", 3.0, id="3 equal scores of each user"),
        pytest.param([1, 0, 1, 0], "aabb", 1.0, id="users are alike"),
        pytest.param([1, 0, 1], "abc", 1.0, id="every user has one question"),
    ],
)
def test_the_design_effect_says_how_many_questions_tell_as_much_as_one(
    scores: list[float], users: str, effect: float
) -> None:
    """Each letter is the user whom the question with the score at its place is about.

    If all scores of a user are equal, three of them tell no more than one.
    """
    assert design_effect(scores, list(users)) == pytest.approx(effect)


def test_design_effect_of_users_with_different_numbers_of_questions_worked_by_hand() -> None:
    """The formulas are in the docstring of `design_effect`."""
    scores = [1, 1, 1, 0, 0, 0]
    users = ["ann", "ann", "ann", "ann", "bob", "bob"]

    effect = design_effect(scores, users)

    # The means of Ann and Bob are 3/4 and 0, and that of all questions is 1/2.
    mean_square_between = 4 * (3 / 4 - 1 / 2) ** 2 + 2 * (0 - 1 / 2) ** 2
    mean_square_within = (3 * (1 - 3 / 4) ** 2 + (0 - 3 / 4) ** 2) / (6 - 2)
    # In one mean size every question counts once; the other is that of the analysis of variance.
    weighted_mean_size = (4**2 + 2**2) / 6
    anova_mean_size = 6 - weighted_mean_size
    icc = (mean_square_between - mean_square_within) / (
        mean_square_between + (anova_mean_size - 1) * mean_square_within
    )
    assert effect == pytest.approx(1 + (weighted_mean_size - 1) * icc)


def test_rounding_errors_have_no_design_effect() -> None:
    """0.1 + 0.2 is 0.30000000000000004, so the means of the users differ in their last digit."""
    scores = [0.1 + 0.2, 0.3, 0.3, 0.3]

    assert design_effect(scores, ["ann", "ann", "bob", "bob"]) == 1.0


def test_the_design_effect_stands_beside_the_interval_of_two_conversations() -> None:
    """All 12 answers about Ann are right, and all 12 about Bob are wrong.

    So the 12 questions about a user tell no more than one.
    """
    scores = [1.0] * 12 + [0.0] * 12
    groups = ["ann"] * 12 + ["bob"] * 12

    result = compare_paired_scores(scores, [0.0] * 24, groups)

    assert str(result) == "+0.500 [+0.292, +0.708] (design effect 12.0), p = .00049, n = 24"
    assert result.to_dict()["design_effect"] == pytest.approx(12.0)


def test_one_conversation_has_no_design_effect() -> None:
    scores = [1.0] * 12 + [0.0] * 12

    result = compare_paired_scores(scores, [0.0] * 24, ["ann"] * 24)

    assert result.design_effect is None
    assert "design effect" not in str(result)


def test_a_gain_that_differs_between_two_conversations_has_a_warning() -> None:
    """The program gains 1 on all questions about Ann, and nothing on those about Bob.

    The design effect is 9. So for other users the interval would be wider by its root, 3.
    """
    scores = [1.0] * 9 + [0.0] * 9
    groups = ["ann"] * 9 + ["bob"] * 9

    result = compare_paired_scores(scores, [0.0] * 18, groups)

    assert result.warning is not None
    assert result.warning.endswith(
        "for other conversations the interval would be about 3.0 times as wide"
    )
    assert result.to_dict()["warning"] == result.warning


def test_a_gain_that_is_the_same_in_both_conversations_has_no_warning() -> None:
    scores_of_user = [1.0] * 6 + [0.0] * 6
    groups = ["ann"] * 12 + ["bob"] * 12

    result = compare_paired_scores(scores_of_user * 2, [0.0] * 24, groups)

    assert result.design_effect == 1.0
    assert result.warning is None


def test_a_gain_that_differs_between_six_conversations_has_no_warning() -> None:
    """With six, whole conversations are resampled, so the interval is as wide as it has to be."""
    groups = [user for user in ("ann", "bob", "cyd", "dan", "eve", "fay") for _ in range(4)]
    scores = [1.0] * 12 + [0.0] * 12

    result = compare_paired_scores(scores, [0.0] * 24, groups)

    # All four scores of a user are equal.
    assert result.design_effect == pytest.approx(4.0)
    assert result.warning is None


def test_a_page_of_three_runs_names_the_run_that_a_warning_is_about() -> None:
    """The page calls the runs A, B and C, and compares B and C with A.

    Run B is right about Ann alone, so its gain depends on the user. Run C is always right.
    """
    groups = ["ann"] * 12 + ["bob"] * 12
    run_a = FinishedRun("first", evaluation_of_scores([0.0] * 24, groups), {})
    run_b = FinishedRun("second", evaluation_of_scores([1.0] * 12 + [0.0] * 12, groups), {})
    run_c = FinishedRun("third", evaluation_of_scores([1.0] * 24, groups), {})

    (note,) = compare_runs([run_a, run_b, run_c]).notes

    assert note.startswith("B: The difference varies from conversation to conversation")


def share_of_false_verdicts(*, user_count: int, questions_per_user: int, rounds: int) -> float:
    """Compare two equally good programs many times; return how often a difference is reported.

    The differences of the questions about one user move together: a half of their variance is
    common to all of them.
    """
    rng = np.random.default_rng(0)
    users = [f"user {number}" for number in range(user_count)]
    groups = np.repeat(users, questions_per_user).tolist()
    false_verdicts = 0
    for _ in range(rounds):
        common_to_user = rng.normal(size=(user_count, 1))
        differences = common_to_user + rng.normal(size=(user_count, questions_per_user))
        scores = differences.ravel().tolist()
        result = compare_paired_scores(scores, [0.0] * len(scores), groups)
        if result.verdict in ("better", "worse"):
            false_verdicts += 1
    return false_verdicts / rounds


def test_equally_good_programs_rarely_seem_to_differ() -> None:
    """The level of a verdict is 5 %. Of 200 rounds, up to 9 % are within chance."""
    false_verdicts = share_of_false_verdicts(user_count=6, questions_per_user=10, rounds=200)

    assert false_verdicts <= 0.09


def test_intervals_over_conversations_cover_the_true_mean() -> None:
    """About 95 of 100 intervals should contain the true mean of the scores, which is 0.

    There are five questions about each of thirty users, and the scores of a user move together.
    """
    rng = np.random.default_rng(0)
    groups = [f"user {number // 5}" for number in range(150)]
    rounds = 300
    covered_count = 0
    for _ in range(rounds):
        common_to_user = rng.normal(size=(30, 1))
        scores = common_to_user + rng.normal(size=(30, 5))
        interval = bootstrap_interval(scores.ravel().tolist(), groups)
        assert interval is not None
        if interval.low <= 0 <= interval.high:
            covered_count += 1

    assert 0.9 <= covered_count / rounds <= 0.98


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        pytest.param([0.5] * 6, 2 / 2**6, id="six gains: all plus or all minus"),
        pytest.param([0.5] * 6 + [0.0] * 90, 2 / 2**6, id="six gains and ties, which do not count"),
        pytest.param([0.0, 0.0, 0.0], 1.0, id="only ties"),
        # With at most two minus signs of ten: 1 + 10 + 45 ways. The same number is as far below 0.
        pytest.param([0.8] * 8 + [-0.8] * 2, 2 * 56 / 2**10, id="eight gains and two losses"),
        # The sum is .9. Without a minus it is 1.1; a minus at either .1 gives .9: 3 ways.
        pytest.param([0.1, 0.2, 0.3, 0.4, -0.1], 2 * 3 / 2**5, id="gains of different sizes"),
        # Wherever the large one is negative, the sum is as low as this or lower.
        pytest.param([0.1] * 5 + [-1.0], 1.0, id="five small gains and a large loss"),
    ],
)
def test_permutation_test_worked_by_hand(differences: list[float], p_value: float) -> None:
    """The signs of n differences can be flipped in 2^n ways.

    p is the share of the ways whose sum is as far from 0 as the observed sum, in either direction.
    """
    one_user = ["ann"] * len(differences)

    assert permutation_p_value(differences, one_user) == pytest.approx(p_value, abs=1e-12)


def test_permutation_test_flips_the_signs_of_all_questions_of_a_user_together() -> None:
    """With six users or more. So there are 2^6 ways, although there are 18 questions."""
    users = ["ann", "bob", "cyd", "dan", "eve", "fay"] * 3

    assert permutation_p_value([0.5] * 18, users) == pytest.approx(2 / 2**6)


def test_permutation_test_of_many_questions_draws_samples_and_can_be_repeated() -> None:
    """There are too many ways to flip the signs of 60 differences to try all of them."""
    first_scores = [1.0] * 40 + [0.0] * 20
    second_scores = [0.0] * 40 + [1.0] * 20
    groups = ["ann"] * 60

    result = compare_paired_scores(first_scores, second_scores, groups)

    # The normal approximation for 40 gains of 60: z = (40 - 30 - .5) / 3.873 = 2.453.
    assert result.p_value == pytest.approx(0.0142, abs=0.003)
    assert compare_paired_scores(first_scores, second_scores, groups) == result


def verdict_of(differences: Sequence[float], users: Sequence[str], min_n: int = 20) -> str:
    """Return the verdict on a program whose scores differ from another's by these differences."""
    baseline_scores = [0.0] * len(differences)
    return compare_paired_scores(differences, baseline_scores, users, min_n=min_n).verdict


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.5] * 20, "better"),
        ([-0.5] * 20, "worse"),
        ([0.5, -0.5] * 10, "not told apart"),
        ([0.5] * 19, "too few to tell"),  # by default, twenty questions are needed
    ],
)
def test_verdict_on_questions_about_one_user(differences: list[float], verdict: str) -> None:
    assert verdict_of(differences, ["ann"] * len(differences)) == verdict


def test_one_question_never_has_a_verdict() -> None:
    assert verdict_of([0.5], ["ann"], min_n=1) == "too few to tell"


def test_five_gains_and_ties_are_not_told_apart_although_the_interval_leaves_out_zero() -> None:
    """Five gains have p = .062 in the permutation test; .05 is the limit."""
    differences = [1.0] * 5 + [0.0] * 35

    result = compare_paired_scores(differences, [0.0] * 40, ["ann"] * 40)

    assert result.interval is not None
    assert result.interval.low > 0
    assert result.verdict == "not told apart"


def test_a_large_loss_is_not_told_apart_although_the_permutation_test_is_significant() -> None:
    """Of 16 questions, 15 gain. One large loss lets the interval reach below zero."""
    differences = [0.25] * 12 + [-0.75] + [0.025] * 3

    result = compare_paired_scores(differences, [0.0] * 16, ["ann"] * 16, min_n=16)

    assert result.p_value < 0.05
    assert result.interval is not None
    assert result.interval.low < 0
    assert result.verdict == "not told apart"


@pytest.mark.parametrize(
    ("gain_of_sixth_user", "verdict"), [(0.5, "better"), (0.0, "not told apart")]
)
def test_a_verdict_on_six_users_needs_a_gain_of_every_one(
    gain_of_sixth_user: float, verdict: str
) -> None:
    """Each user counts once, however many questions there are: here four."""
    users = ["ann", "bob", "cyd", "dan", "eve", "fay"]
    gains = [0.5, 0.5, 0.5, 0.5, 0.5, gain_of_sixth_user]

    assert verdict_of(gains * 4, users * 4) == verdict


USERS = ["ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy"]


class ScoredQuestion(NamedTuple):
    """The score of a question, and the user that it is about."""

    score: float
    user: str


scored_questions = st.builds(
    ScoredQuestion,
    score=st.sampled_from([-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]),
    user=st.sampled_from(USERS),
)


@given(
    st.lists(scored_questions, min_size=2, max_size=40),
    st.permutations(range(len(USERS))),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_neither_the_order_of_questions_nor_the_names_of_groups_matter(
    questions: list[ScoredQuestion], user_numbers: list[int], random: Random
) -> None:
    """A registry numbers the groups that a compile knows by name, and both must agree."""
    by_name = compare_paired_scores(
        [question.score for question in questions],
        [0.0] * len(questions),
        [question.user for question in questions],
    )

    shuffled = random.sample(questions, len(questions))
    number_of_user = dict(zip(USERS, user_numbers, strict=True))
    by_number = compare_paired_scores(
        [question.score for question in shuffled],
        [0.0] * len(shuffled),
        [str(number_of_user[question.user]) for question in shuffled],
    )

    assert by_name.interval == by_number.interval
    assert by_name.p_value == by_number.p_value
    assert by_name.verdict == by_number.verdict


def test_scores_that_differ_by_a_rounding_error_are_a_tie() -> None:
    """0.1 + 0.2 is 0.30000000000000004."""
    result = compare_paired_scores([0.1 + 0.2], [0.3], ["ann"])

    assert result.ties == 1


def test_a_comparison_without_questions_has_no_numbers() -> None:
    result = compare_paired_scores([], [], [])

    assert math.isnan(result.mean)
    assert result.interval is None
    assert result.p_value == 1.0
    assert str(result) == "n = 0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [1.0, 0.0], "groups": ["ann"]}, "2 scores but 1 groups"),
        ({"scores": [1.0, math.nan], "groups": ["ann", "ann"]}, "score 1 is nan"),
        (
            {"scores": [1.0, 0.0], "groups": ["ann", "ann"], "confidence_level": 95},
            "level 95 is not between 0 and 1",
        ),
    ],
)
def test_an_interval_of_wrong_values_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        bootstrap_interval(**arguments)


class ComparedQuestion(NamedTuple):
    """A question about a user, with its scores before and after a compile."""

    before: float
    after: float
    user: str


@st.composite
def compared_questions(draw: st.DrawFn) -> list[ComparedQuestion]:
    """Draw questions of which none, some or almost all change for the better or worse."""
    changes = draw(
        st.sampled_from(
            [
                [0.0, 0.5, -0.5],
                [0.0, 0.5, 0.5, 0.5, -0.5],
                [0.3, 0.5],
                [-0.5, -0.3],
            ]
        )
    )
    user_count = draw(st.sampled_from([1, 4, 5, 6, 12]))
    question = st.builds(
        ComparedQuestion,
        before=st.just(0.5),
        after=st.sampled_from([0.5 + change for change in changes]),
        user=st.sampled_from([f"user {number}" for number in range(user_count)]),
    )
    return draw(st.lists(question, min_size=5, max_size=30))


def evaluation_before(questions: Sequence[ComparedQuestion]) -> Evaluation:
    """Return the evaluation of the start program."""
    scores = [question.before for question in questions]
    return evaluation_of_scores(scores, [question.user for question in questions])


def evaluation_after(questions: Sequence[ComparedQuestion]) -> Evaluation:
    """Return the evaluation of the compiled program."""
    scores = [question.after for question in questions]
    return evaluation_of_scores(scores, [question.user for question in questions])


@given(compared_questions(), st.integers(1, 15))
def test_a_compiled_program_replaces_the_old_one_only_if_the_verdict_is_better(
    questions: list[ComparedQuestion], min_n: int
) -> None:
    before = evaluation_before(questions)
    after = evaluation_after(questions)
    verdict = difference(before.headline_rows, after.headline_rows, min_n).verdict

    promotion = decide_promotion(before, after, min_n=min_n)

    is_promoted = promotion.rejection_reason is None
    assert is_promoted == (verdict == "better")


@given(compared_questions(), st.integers(1, 15), st.randoms(use_true_random=False))
def test_the_page_of_a_comparison_has_the_verdict_of_the_difference(
    questions: list[ComparedQuestion], min_n: int, random: Random
) -> None:
    """Questions are paired by their ids, so the order of the rows does not matter."""
    before = evaluation_before(questions)
    after = evaluation_after(questions)
    expected = difference(before.headline_rows, after.headline_rows, min_n)
    shuffled_after = evaluation_of(random.sample(after.rows, len(after.rows)))

    page = compare_runs([FinishedRun("a", before, {}), FinishedRun("b", shuffled_after, {})], min_n)

    assert page.total is not None
    assert page.total.difference.verdict == expected.verdict
    assert page.categories[0].difference.verdict == expected.verdict
    assert page.verdict.endswith(f": {expected.verdict} (scope: {expected.scope})")


@pytest.mark.parametrize(
    ("scores_before", "scores_after", "gate_refusal"),
    [
        pytest.param([0.0] * 20, [1.0] * 20, None, id="better"),
        pytest.param([1.0] * 20, [1.0] * 20, None, id="not told apart"),
        pytest.param([1.0] * 20, [0.0] * 20, "worse", id="worse"),
        pytest.param([0.0], [1.0], "too few to tell", id="one question"),
    ],
)
def test_the_gate_of_a_comparison_refuses_a_run_that_is_worse_or_that_nobody_can_judge(
    scores_before: list[float], scores_after: list[float], gate_refusal: str | None
) -> None:
    """`mempiler compare --gate` fails if the run is refused."""
    groups = ["ann"] * len(scores_before)
    before = evaluation_of_scores(scores_before, groups)
    after = evaluation_of_scores(scores_after, groups)
    compared = difference(before.rows, after.rows)

    assert ComparedRun(FinishedRun("new", after, {}), compared).gate_refusal == gate_refusal


def compile_manifest(
    before: Evaluation, after: Evaluation, *, is_promoted: bool, min_n: int
) -> Manifest:
    """Return what a compile saves with its program, for the gate of the registry.

    The program is the compiled one if it was promoted, and otherwise the one before.
    """
    program: Any = None  # The gate looks at no program.
    result = CompileResult(
        program=program,
        before=before,
        after=after,
        dev=(before, after),
        difference=difference(before.headline_rows, after.headline_rows, min_n),
        scored_on="test",
        promoted=is_promoted,
        folder=Path(),
        candidates=(),
        usage={},
        stopped=None,
        run=Path(),
        run_id="",
        model=None,
        promotion=decide_promotion(before, after, min_n=min_n),
        optimizer_problems=OptimizerProblems("labeled"),
        frontier=(),
    )
    return Manifest(
        method="",
        task="",
        scores={"gate": result.gate()},
        manifest_sha256="new" if is_promoted else "old",
    )


@given(compared_questions(), st.integers(1, 15))
def test_the_gate_of_the_registry_lets_only_a_better_program_pass(
    questions: list[ComparedQuestion], min_n: int
) -> None:
    """A registry keeps the versions of a program.

    Its gate decides whether a new version replaces the current one. It reads the scores of both
    from their manifests, which are saved with the programs.
    """
    before = evaluation_before(questions)
    after = evaluation_after(questions)
    compared = difference(before.headline_rows, after.headline_rows, min_n)
    current_version = compile_manifest(before, after, is_promoted=False, min_n=min_n)
    new_version = compile_manifest(before, after, is_promoted=True, min_n=min_n)

    if compared.verdict == "better":
        decision = gate(new_version, current_version, "models:/m@prod")
        assert decision.line.endswith(f": better (scope: {compared.scope})")
    else:
        with pytest.raises(UserError):
            gate(new_version, current_version, "models:/m@prod")


def test_the_gain_of_a_broken_run_is_rejected() -> None:
    """A run is broken if more than a tenth of its calls failed. Here it is a third."""
    before = evaluation_of_scores([0.0] * 30, ["ann"] * 30)
    after = evaluation_of_scores([1.0] * 30, ["ann"] * 30)
    call_outcomes = {"task.answer": {"ok": 20, "lost": 10}}
    broken = after.model_copy(update={"call_outcomes": call_outcomes})

    reason = decide_promotion(before, broken).rejection_reason

    assert reason is not None
    assert reason.startswith("The compiled program's score is of a broken run")


def test_the_gain_of_a_run_that_was_stopped_is_rejected() -> None:
    before = evaluation_of_scores([0.0] * 30, ["ann"] * 30)
    after = evaluation_of_scores([1.0] * 30, ["ann"] * 30)
    unfinished = after.model_copy(update={"stopped": "max-calls 100"})

    reason = decide_promotion(before, unfinished).rejection_reason

    assert reason is not None
    assert reason.startswith("Not all dev questions were answered")


def questions_about(part: str, *counts: int) -> tuple[dspy.Example, ...]:
    """Return questions about histories: `questions_about("dev", 2, 3)` asks 2 and 3 of two."""
    examples: list[dspy.Example] = []
    for number, count in enumerate(counts):
        history = History(id=f"{part}-{number}", items=())
        examples.extend(dspy.Example(history=history) for _ in range(count))
    return tuple(examples)


def usage_of_writing(calls: int) -> Usage:
    """Return the usage of calls that wrote memories: ten tokens and one second each."""
    return Usage(calls=calls, input_tokens=9 * calls, output_tokens=calls, seconds=calls)


def first_scoring(writing: Usage | None) -> Evaluation:
    """Return the scoring of the start program on four dev questions.

    Each answer took one call, ten tokens and one second.
    """
    rows = tuple(
        Row.model_construct(
            id=str(number), calls=1, prompt_tokens=8, output_tokens=2, answering=1.0
        )
        for number in range(4)
    )
    return Evaluation.model_construct(rows=rows, construction=writing)


def estimate_after_first_scoring(
    *,
    dev: Sequence[int],
    test: Sequence[int],
    writing: Usage | None = None,
    rewrites_memories: bool = False,
) -> Any:
    """Estimate what a compile needs after it has scored the start program on the dev questions.

    The limits of the run have counted 100 calls for this first scoring. Later the compiled program
    is scored on the dev questions, and both programs on the test questions.

    Args:
        dev: The numbers of dev questions about each history. There are four questions in all.
        test: The numbers of test questions about each history.
        writing: The usage of the calls that wrote memories, if any did. Four calls answered.
        rewrites_memories: Whether the compiled program writes memories in another way.
    """
    split = Split(train=(), dev=questions_about("dev", *dev), test=questions_about("test", *test))
    counted = Usage(calls=100, input_tokens=1000, cost=10, seconds=3000)
    return estimate_remaining_usage(first_scoring(writing), counted, split, rewrites_memories)


def test_the_calls_of_later_scorings_are_estimated_from_the_first_one() -> None:
    estimate = estimate_after_first_scoring(dev=[4], test=[6])

    calls_per_question = 100 / 4
    remaining_questions = 4 + 6 + 6  # dev questions once more, and test questions twice
    assert estimate.calls == pytest.approx(calls_per_question * remaining_questions)


@pytest.mark.parametrize(
    ("dev", "test", "rewrites_memories", "memories_to_write"),
    [
        pytest.param([4], [4], False, 1, id="one test memory, for both programs"),
        pytest.param([4], [2, 2], False, 2, id="two test memories, for both programs"),
        pytest.param([4], [4], True, 3, id="one test memory for each program, and a dev memory"),
        pytest.param([2, 2], [4], False, 1, id="one test memory, where dev took two"),
    ],
)
def test_the_calls_that_write_memories_are_estimated_from_the_first_scoring(
    dev: list[int], test: list[int], rewrites_memories: bool, memories_to_write: int
) -> None:
    """In the first scoring, 12 calls wrote memories and 4 answered questions.

    So of the 100 calls that the limits counted, 75 count for the memories, and 25 for the answers.
    """
    estimate = estimate_after_first_scoring(
        dev=dev, test=test, writing=usage_of_writing(12), rewrites_memories=rewrites_memories
    )

    calls_per_memory = 75 / len(dev)
    calls_per_question = 25 / 4
    remaining_questions = 4 + 4 + 4  # dev questions once more, and test questions twice
    assert estimate.calls == pytest.approx(
        calls_per_memory * memories_to_write + calls_per_question * remaining_questions
    )


def test_tokens_cost_and_time_are_estimated_with_some_growth_of_the_prompts() -> None:
    """A call of the first scoring took ten tokens, 0.10, and half a minute."""
    estimate = estimate_after_first_scoring(dev=[4], test=[6])

    assert estimate.tokens == pytest.approx(estimate.calls * 10 * PROMPT_GROWTH)
    assert estimate.cost == pytest.approx(estimate.calls * 0.10 * PROMPT_GROWTH)
    assert estimate.minutes == pytest.approx(estimate.calls * 0.5 * PROMPT_GROWTH)


def finished_run(condition: str, value: str) -> FinishedRun:
    """Return a run of one question that was made under a condition."""
    evaluation = evaluation_of([row("q1", 1.0)], names={"4": "single-hop"})
    return FinishedRun("run", evaluation, {condition: value})


@pytest.mark.parametrize("condition", CONDITIONS)
def test_runs_under_different_conditions_are_compared_with_a_note(condition: str) -> None:
    """A condition is what scores depend on besides the program, such as the model or the data."""
    page = compare_runs([finished_run(condition, "this"), finished_run(condition, "that")])

    (note,) = page.notes
    assert f"{CONDITIONS[condition]}: this and that" in note


def test_runs_under_the_same_condition_are_compared_without_a_note() -> None:
    page = compare_runs([finished_run("lm", "openai/x"), finished_run("lm", "openai/x")])

    assert page.notes == ()


@pytest.fixture
def saved_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """The folder of a finished evaluation of two questions, one of which failed."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    folder = RunFolder.create("evaluate-x", {"command": "evaluate", "options": {"metric": "f1"}})
    failed_question = Failure(kind="parse", where="q2", message="no field")
    failed_write = Failure(kind="parse", where="ann, item D1, extract", message="garbled")
    evaluation = evaluation_of(
        [
            # U+2028 ends a line for `str.splitlines`, but not in JSON.
            row("q1", 1.0, answer="one\u2028two"),
            row("q2", 0.0, failure=failed_question),
        ],
        write_failures=1,
        failed_writes=(failed_write,),
    )
    save_page(folder.path, run_page("evaluate", folder.path.name, {"score": evaluation}))
    folder.update(
        status="finished",
        result=evaluation.to_dict(),
        parameters={"lm": "openai/x", "judge_hash": "ab"},
    )
    return folder


def test_a_saved_run_is_loaded_with_its_result_and_its_conditions(saved_run: RunFolder) -> None:
    """It was made with the model openai/x, the metric f1 and the judge "ab".

    The last characters of its name are enough to find it.
    """
    run = load_run(saved_run.path.name[-4:])

    assert run.name == saved_run.path.name
    assert run.evaluation.to_dict() == saved_run.read()["result"]
    assert run.conditions["lm"] == "openai/x"
    assert run.conditions["metric"] == "f1"
    assert run.conditions["judge_hash"] == "ab"


def test_an_answer_with_a_line_separator_is_loaded_as_one_answer(saved_run: RunFolder) -> None:
    """U+2028 ends a line for `str.splitlines`, but not in JSON. The first of two answers has it."""
    run = load_run(str(saved_run.path))

    assert [row.answer for row in run.evaluation.rows] == ["one\u2028two", "answer"]


@pytest.mark.parametrize(
    "page_content",
    [
        pytest.param(b"none", id="not compressed"),
        pytest.param(gzip.compress(b'{"command": 1}'), id="not a page"),
    ],
)
def test_a_run_with_a_damaged_page_is_refused(saved_run: RunFolder, page_content: bytes) -> None:
    (saved_run.path / PAGE_DATA).write_bytes(page_content)

    message = refusal(load_run, str(saved_run.path))

    assert "is not the page of a run" in message


def test_a_run_without_a_page_is_refused(saved_run: RunFolder) -> None:
    """A comparison reads the scores of a run from its page."""
    (saved_run.path / PAGE_DATA).unlink()

    message = refusal(load_run, str(saved_run.path))

    assert "no result yet (status finished)" in message
    assert "finish it with its own command and --resume" in message


MEMORYQUEST = {"benchmark": "memoryquest", "options": {"metric": "evidence"}}
"""The settings of a run on MemoryQuest."""
FIRST_RUN = "the first run's response"
SECOND_RUN = "the second run's response"


def memoryquest_run(response: str, examples: Sequence[dspy.Example]) -> FinishedRun:
    """Return a run on MemoryQuest that answered every question with the same response."""
    rows = [
        row(str(example.id), question=str(example.question), answer=response)
        for example in examples
    ]
    return FinishedRun(response, evaluation_of(rows), {}, MEMORYQUEST)


def preference_judge(server: Any) -> PreferenceJudge:
    """Return a judge that asks the model of a stub server."""
    judge_lm = language_model(server.model, role="judge", api_base=server.url)
    return PreferenceJudge(judge_lm, adapter("chat"))


def response_named(name: str, prompt: str) -> str:
    """Return the response that a prompt of the judge shows under a name."""
    after_header = prompt.split(f"[[ ## response_{name} ## ]]")[1]
    return after_header.split("[[ ## ")[0].strip()


class ScriptedJudge:
    """A judge that prefers the response of one run, or calls every pair a tie.

    A prompt shows two responses, by the names w3k8 and t5n1; w3k8 is shown first.
    """

    def __init__(self, preferred: str) -> None:
        self.preferred = preferred

    def __call__(self, body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        if self.preferred == "tie":
            choice = "tie"
        elif self.preferred in ("the response shown first", response_named("w3k8", prompt)):
            choice = "w3k8"
        else:
            choice = "t5n1"
        return chat_fields(reasoning="So.", choice=choice)


def win_rate_by(judge: ScriptedJudge, stub: Any) -> Any:
    """Return the win rate of the second of two runs, which answered four questions."""
    examples = load_benchmark("memoryquest").examples[:4]
    return judge_win_rate(
        memoryquest_run(FIRST_RUN, examples),
        memoryquest_run(SECOND_RUN, examples),
        preference_judge(stub(answer=judge)),
    )


def test_a_run_whose_responses_are_all_preferred_wins_every_question(stub: Any) -> None:
    result = win_rate_by(ScriptedJudge(preferred=SECOND_RUN), stub)

    assert result.n == 4
    assert result.wins == 4
    assert result.rate == 1.0


def test_a_run_whose_responses_are_never_preferred_loses_every_question(stub: Any) -> None:
    result = win_rate_by(ScriptedJudge(preferred=FIRST_RUN), stub)

    assert result.losses == 4
    assert result.rate == 0.0


def test_a_judge_that_always_prefers_the_first_response_favours_no_run(stub: Any) -> None:
    """Each pair is judged twice, in both orders, so such a judge gives every question to both."""
    result = win_rate_by(ScriptedJudge(preferred="the response shown first"), stub)

    assert result.ties == 4
    assert result.rate == 0.5
    assert result.tied == 0.0


def test_the_rate_of_ties_is_reported_beside_the_win_rate(stub: Any) -> None:
    result = win_rate_by(ScriptedJudge(preferred="tie"), stub)

    assert result.ties == 4
    assert result.tied == 1.0
    assert result.rate == 0.0


def test_a_question_whose_judging_is_refused_counts_in_no_win_rate(stub: Any) -> None:
    """The judge's server refuses all prompts about the second of three questions."""
    examples = load_benchmark("memoryquest").examples[:3]
    refused_question = str(examples[1].question)

    def refuse_second_question(request_number: int, prompt: str) -> str | None:
        return "400" if refused_question in prompt else None

    result = judge_win_rate(
        memoryquest_run(FIRST_RUN, examples),
        memoryquest_run(SECOND_RUN, examples),
        preference_judge(stub(refuse_second_question)),
    )

    assert result.unreadable == 1
    assert result.n == 2
    assert result.wins + result.ties + result.losses == 2

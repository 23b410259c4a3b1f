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
from mempiler.runs.pages.facts import difference_line
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


def groups_by_turns(names: Sequence[str], count: int) -> list[str]:
    """Return the groups of `count` questions: the names by turns, as in a, b, a, b."""
    return [names[number % len(names)] for number in range(count)]


def evaluation_of_scores(scores: Sequence[float], groups: Sequence[str]) -> Evaluation:
    """Return the evaluation of questions q0, q1, ... with these scores, in these groups."""
    rows: list[Row] = []
    for number, (score, group) in enumerate(zip(scores, groups, strict=True)):
        rows.append(row(f"q{number}", score, category="1", group=group))
    return evaluation_of(rows)


@pytest.mark.parametrize(
    ("confidence_level", "low", "high"),
    [
        # Drawing two of {0, 1} gives the means 0, .5 and 1 with chances 1/4, 1/2 and 1/4.
        (0.95, 0.0, 1.0),
        (0.3, 0.5, 0.5),
    ],
)
def test_interval_of_two_questions_worked_by_hand(
    confidence_level: float, low: float, high: float
) -> None:
    """Samples of the scores are drawn with replacement.

    The interval holds the middle share of their means.
    """
    interval = bootstrap_interval([0, 1], ["a", "a"], confidence_level=confidence_level)

    assert interval == Interval(low, high, "question")


def test_the_mean_of_drawn_groups_counts_every_question() -> None:
    """Five groups have one question each, which scores 0; the sixth has 95, which score 1."""
    scores = [0.0] * 5 + [1.0] * 95
    groups = ["a", "b", "c", "d", "e"] + ["f"] * 95

    # A sample has six groups. If the large one is drawn once, the mean is 95/100. Its chance is
    # .33 to .74 of all samples, so the middle 20 % of the samples are of this kind.
    narrow_interval = bootstrap_interval(scores, groups, confidence_level=0.2)
    assert narrow_interval == Interval(0.95, 0.95, "group")

    # If it is drawn twice, the mean is 190/194. It is never more than 1.
    assert 0.97 < bootstrap_interval(scores, groups).high < 1


@pytest.mark.parametrize(
    ("group_count", "unit", "scope"),
    [
        (1, "question", "other questions about these conversations"),
        (5, "question", "other questions about these conversations"),
        (6, "group", "other conversations"),
    ],
)
def test_from_six_groups_on_groups_are_resampled_and_the_scope_says_so(
    group_count: int, unit: str, scope: str
) -> None:
    """The scope of a verdict says what it speaks of: other conversations, or other questions."""
    groups = [f"user {number % group_count}" for number in range(42)]

    result = compare_paired_scores([1.0] * 42, [0.0] * 42, groups)

    assert result.interval is not None
    assert result.interval.unit == unit
    assert result.scope == scope
    assert result.group_count == group_count
    assert result.statement == f"{result}: better (scope: {scope})"
    assert result.to_dict()["scope"] == scope
    assert result.to_dict()["groups"] == group_count


@pytest.mark.parametrize(
    ("group_count", "p_value", "verdict"),
    [
        # If all groups agree, 2 of the 2^k ways to flip their signs are as extreme.
        (MIN_GROUPS - 1, 2 / 32, "not told apart"),
        (MIN_GROUPS, 2 / 64, "better"),
    ],
)
def test_min_groups_is_the_first_number_with_which_a_difference_can_be_significant(
    group_count: int, p_value: float, verdict: str
) -> None:
    """MIN_GROUPS is 6. A verdict needs p < .05."""
    # Each group has one question, so questions and groups are the same units.
    groups = [f"user {number}" for number in range(group_count)]

    result = compare_paired_scores([1.0] * group_count, [0.0] * group_count, groups, min_n=1)

    assert result.p_value == pytest.approx(p_value)
    assert result.verdict == verdict


# In these cases every letter is the group of one question.
@pytest.mark.parametrize(
    ("scores", "groups", "effect"),
    [
        # Conversations differ, questions of one do not: two questions tell no more than one.
        ([1, 1, 0, 0], "aabb", 2.0),
        ([1, 1, 1, 0, 0, 0], "aaabbb", 3.0),
        # The mean square between is 0 and that within 1/2, so the ICC is negative: nothing is
        # gained by that.
        ([1, 0, 1, 0], "aabb", 1.0),
        # Sizes 3 and 1. The mean square between is 3 (2/3 - 1/2)^2 + (0 - 1/2)^2 = 1/3, and that
        # within is (2 (1/3)^2 + (2/3)^2) / 2 = 1/3 as well.
        ([1, 1, 0, 0], "aaab", 1.0),
        # Sizes 4 and 2. Between: 4/16 + 2/4 = 3/4; within: (3/16 + 9/16) / 4 = 3/16.
        # The weighted mean size is (16 + 4) / 6 = 10/3, that of the analysis of variance
        # (6 - 10/3) / 1 = 8/3. So ICC = (3/4 - 3/16) / (3/4 + 5/3 * 3/16) = 9/17, and the effect
        # is 1 + 7/3 * 9/17 = 38/17.
        ([1, 1, 1, 0, 0, 0], "aaaabb", 38 / 17),
        # No two questions share a conversation.
        ([1, 0, 1], "abc", 1.0),
        # Equal scores, summed in another order: rounding errors are no differences.
        ([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], "aabb", 1.0),
        # There are fewer than two groups.
        ([1, 0, 1], "aaa", None),
        ([], "", None),
    ],
)
def test_design_effect_worked_by_hand(
    scores: list[float], groups: str, effect: float | None
) -> None:
    """The design effect says how many questions tell as much as a single independent one."""
    # `approx(None)` equals None.
    expected = pytest.approx(effect)

    assert design_effect(scores, list(groups)) == expected
    # Compared with a program that scores 0 everywhere, the differences are the scores.
    difference_to_zero = compare_paired_scores(scores, [0.0] * len(scores), list(groups))
    assert difference_to_zero.design_effect == expected


def test_the_design_effect_stands_beside_the_interval_of_two_conversations() -> None:
    """All 12 answers about a are right, and all 12 about b are wrong.

    So the 12 questions of a conversation tell no more than one.
    """
    scores = [1.0] * 12 + [0.0] * 12
    groups = ["a"] * 12 + ["b"] * 12

    result = compare_paired_scores(scores, [0.0] * 24, groups)

    assert str(result) == "+0.500 [+0.292, +0.708] (design effect 12.0), p = .00049, n = 24"
    assert result.to_dict()["design_effect"] == pytest.approx(12.0)


def test_one_conversation_has_no_design_effect() -> None:
    scores = [1.0] * 12 + [0.0] * 12

    result = compare_paired_scores(scores, [0.0] * 24, ["a"] * 24)

    assert "design effect" not in str(result)


def test_a_large_design_effect_has_a_warning() -> None:
    scores = [1.0] * 12 + [0.0] * 12
    groups = ["a"] * 12 + ["b"] * 12

    result = compare_paired_scores(scores, [0.0] * 24, groups)

    # Questions of a conversation agree, so the design effect is 12, and its root 3.46.
    assert result.warning is not None
    assert result.warning.endswith(
        "for other conversations the interval would be about 3.5 times as wide"
    )
    assert result.to_dict()["warning"] == result.warning


def test_equal_conversations_have_no_warning() -> None:
    """Half of the answers about each conversation are right."""
    scores = [1.0] * 12 + [0.0] * 12

    result = compare_paired_scores(scores, [0.0] * 24, ["a", "b"] * 12)

    assert result.design_effect == 1.0
    assert result.warning is None


def test_a_large_design_effect_has_no_warning_if_whole_conversations_are_resampled() -> None:
    scores = [1.0] * 12 + [0.0] * 12
    six_groups_of_four = [f"user {number // 4}" for number in range(24)]

    result = compare_paired_scores(scores, [0.0] * 24, six_groups_of_four)

    assert result.design_effect == pytest.approx(4.0)
    assert result.warning is None


def test_a_page_of_three_runs_names_the_run_that_a_warning_is_about() -> None:
    groups = ["ann"] * 12 + ["bob"] * 12
    runs = [
        FinishedRun("a", evaluation_of_scores([0.0] * 24, groups), {}),
        # This run gains only on questions about Ann, so its gain depends on the conversation.
        FinishedRun("b", evaluation_of_scores([1.0] * 12 + [0.0] * 12, groups), {}),
        FinishedRun("c", evaluation_of_scores([1.0] * 24, groups), {}),
    ]

    (note,) = compare_runs(runs).notes

    assert note.startswith(
        "B: The difference varies from conversation to conversation (design effect 12.0): "
    )


def warnings_of_false_verdicts(
    *, group_count: int, questions_per_group: int, rounds: int
) -> list[str | None]:
    """Compare equal programs many times, and return the warning of each verdict of a difference.

    The true difference is 0, so every such verdict is false. Differences of questions about one
    conversation move together: what they share varies as much as what is their own.
    """
    rng = np.random.default_rng(0)
    group_names = [f"user {number}" for number in range(group_count)]
    groups = np.repeat(group_names, questions_per_group).tolist()
    warnings: list[str | None] = []
    for _ in range(rounds):
        shared_by_group = rng.normal(size=(group_count, 1))
        differences = shared_by_group + rng.normal(size=(group_count, questions_per_group))
        scores = differences.ravel().tolist()
        result = compare_paired_scores(scores, [0.0] * len(scores), groups)
        if result.verdict in ("better", "worse"):
            warnings.append(result.warning)
    return warnings


def test_equal_programs_on_six_conversations_rarely_seem_to_differ() -> None:
    warnings = warnings_of_false_verdicts(group_count=6, questions_per_group=10, rounds=200)

    # The level is 5 %. Of 200 rounds, this allows 2.7 standard errors more.
    assert len(warnings) / 200 <= 0.09


def test_a_false_verdict_on_five_conversations_has_a_warning() -> None:
    # Questions are resampled, which is slow; so they are few here, and the rounds as well.
    warnings = warnings_of_false_verdicts(group_count=5, questions_per_group=6, rounds=30)

    # With five, the verdict speaks of other questions about these conversations, where the programs
    # do differ. The warning says that it tells nothing about other conversations.
    assert len(warnings) / 30 > 0.2
    warned_count = sum(warning is not None for warning in warnings)
    assert warned_count / len(warnings) > 0.9


def coverage_of_the_true_mean(groups: Sequence[str], rounds: int) -> float:
    """Return the share of 95 % intervals that contain the true mean, which is 0.

    Each round draws 150 scores: those of five questions about one of thirty conversations move
    together. `groups` says which questions the interval takes for dependent.
    """
    rng = np.random.default_rng(0)
    covered_count = 0
    for _ in range(rounds):
        shared_by_conversation = rng.normal(size=(30, 1))
        scores = shared_by_conversation + rng.normal(size=(30, 5))
        interval = bootstrap_interval(scores.ravel().tolist(), groups)
        if interval.low <= 0 <= interval.high:
            covered_count += 1
    return covered_count / rounds


def test_intervals_over_conversations_cover_the_true_mean() -> None:
    """The 150 scores are of five questions about each of thirty conversations."""
    conversations = [f"user {number // 5}" for number in range(150)]

    coverage = coverage_of_the_true_mean(conversations, rounds=300)

    assert 0.9 <= coverage <= 0.98


def test_intervals_over_questions_are_too_narrow_for_other_conversations() -> None:
    # With one group, single questions are drawn. This is why groups are drawn where possible.
    coverage = coverage_of_the_true_mean(["all"] * 150, rounds=100)

    assert coverage < 0.85


@pytest.mark.parametrize(
    ("differences", "group_names", "p_value"),
    [
        # 8 of 10 of equal size: 2 x (1 + 10 + 45) / 2^10. Ties do not count.
        ([0.8] * 8 + [-0.8] * 2 + [0.0] * 90, "a", 0.109375),
        # 6 of 6: 2 / 2^6.
        ([0.5] * 6 + [0.0], "a", 0.03125),
        ([0.0] * 3, "a", 1.0),
        # It counts how large differences are, not only how many: wherever the large one is
        # negative, the sum is as low as this or lower.
        ([0.1] * 5 + [-1.0], "a", 1.0),
        # A sum of .9 or more has none of the five below zero, or one of the two smallest: 3 of 32.
        ([0.1, 0.2, 0.3, 0.4, -0.1], "a", 2 * 3 / 32),
        # Six groups are flipped as wholes: all six agree, 2 / 2^6.
        ([0.5] * 20, "abcdef", 0.03125),
        # With five groups, the 20 questions are flipped. None of the random samples is as extreme,
        # and the observed one counts as one of 10,000.
        ([0.5] * 20, "abcde", 2 * 1 / 10_000),
    ],
)
def test_permutation_test_worked_by_hand(
    differences: list[float], group_names: str, p_value: float
) -> None:
    """The signs of the differences are flipped in all ways.

    p is the share of ways whose sum is as far from 0 as the observed one.
    """
    scores = [0.1 + difference for difference in differences]
    baseline_scores = [0.1] * len(differences)
    groups = groups_by_turns(group_names, len(differences))

    result = compare_paired_scores(scores, baseline_scores, groups)

    assert result.p_value == pytest.approx(p_value, abs=1e-12)


def test_permutation_test_of_many_questions_draws_samples_and_can_be_repeated() -> None:
    first_scores = [1.0] * 40 + [0.0] * 20
    second_scores = [0.0] * 40 + [1.0] * 20
    groups = ["a"] * 60

    result = compare_paired_scores(first_scores, second_scores, groups)

    # Normal approximation for 40 of 60 of equal size: z = (40 - 30 - .5) / 3.873 = 2.453.
    assert result.p_value == pytest.approx(0.0142, abs=0.003)
    assert compare_paired_scores(first_scores, second_scores, groups) == result


@pytest.mark.parametrize(
    ("differences", "group_names", "min_n", "verdict"),
    [
        # All questions are about one group, "a", unless more groups are named.
        ([0.5] * 20, "a", 20, "better"),
        ([-0.5] * 20, "a", 20, "worse"),
        ([0.5] * 19, "a", 20, "too few to tell"),
        ([0.5] * 19, "a", 19, "better"),
        ([0.5], "a", 1, "too few to tell"),
        ([0.5, -0.5] * 10, "a", 20, "not told apart"),
        # The interval leaves out zero, but the permutation test does not reject it.
        ([1.0] * 5 + [0.0] * 35, "a", 20, "not told apart"),
        # The same with six groups, of which one ties.
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.0] * 4, "abcdef", 20, "not told apart"),
        # Five groups are too few to resample, so their questions decide.
        ([0.5] * 20, "abcde", 20, "better"),
        # The other way round: p = .024, and one large loss lets the interval reach below zero.
        ([0.25] * 12 + [-0.75] + [0.025] * 3, "a", 16, "not told apart"),
        ([0.5] * 24, "abcdef", 20, "better"),
    ],
)
def test_verdict_requires_interval_permutation_test_and_enough_questions(
    differences: list[float], group_names: str, min_n: int, verdict: str
) -> None:
    groups = groups_by_turns(group_names, len(differences))

    result = compare_paired_scores(differences, [0.0] * len(differences), groups, min_n=min_n)

    assert result.verdict == verdict


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


def test_rounding_noise_is_a_tie() -> None:
    result = compare_paired_scores([0.1 + 0.2], [0.3], ["a"])

    assert result.ties == 1


def test_a_comparison_without_questions_has_no_numbers() -> None:
    result = compare_paired_scores([], [], [])

    assert math.isnan(result.mean)
    assert result.interval is None
    assert result.p_value == 1.0
    assert str(result) == "n = 0"


@pytest.mark.parametrize(
    ("scores", "groups", "options", "message"),
    [
        ([1.0, 0.0], ["a"], {}, "2 scores but 1 groups"),
        ([1.0, math.nan], ["a", "a"], {}, "score 1 is nan"),
        (
            [1.0, 0.0],
            ["a", "a"],
            {"confidence_level": 95},
            "level 95 is not between 0 and 1",
        ),
    ],
)
def test_an_interval_of_wrong_values_is_refused(
    scores: list[float], groups: list[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        bootstrap_interval(scores, groups, **options)


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
def test_a_program_is_promoted_if_its_difference_has_the_verdict_better(
    questions: list[ComparedQuestion], min_n: int
) -> None:
    """A compile makes a new program. It is promoted, which means that it replaces the old one."""
    before = evaluation_before(questions)
    after = evaluation_after(questions)
    verdict = difference(before.headline_rows, after.headline_rows, min_n).verdict

    promotion = decide_promotion(before, after, min_n=min_n)

    is_promoted = promotion.rejection_reason is None
    assert is_promoted == (verdict == "better")


@given(compared_questions(), st.integers(1, 15), st.randoms(use_true_random=False))
def test_a_comparison_of_runs_has_the_verdict_of_their_difference(
    questions: list[ComparedQuestion], min_n: int, random: Random
) -> None:
    """The page of a comparison, its lines and its gate all say what `difference` says."""
    before = evaluation_before(questions)
    after = evaluation_after(questions)
    verdict = difference(before.headline_rows, after.headline_rows, min_n).verdict
    # Questions are paired by their ids, so the order of the rows does not matter.
    shuffled_after = evaluation_of(random.sample(after.rows, len(after.rows)))
    run_before = FinishedRun("a", before, {})
    run_after = FinishedRun("b", shuffled_after, {})

    page = compare_runs([run_before, run_after], min_n)

    assert page.total is not None
    total = page.total.difference
    assert total.verdict == verdict
    assert page.categories[0].difference.verdict == verdict
    assert page.verdict.endswith(f": {verdict} (scope: {total.scope})")
    assert total.interval is not None
    line = difference_line(difference(before.rows, after.rows, min_n))
    assert line.endswith(f": {verdict} (scope: {total.scope})")

    # `compare --gate` refuses a run that is worse, or of which nobody can tell.
    gate_refusal = ComparedRun(run_after, total).gate_refusal
    if verdict in ("worse", "too few to tell"):
        assert gate_refusal == verdict
    else:
        assert gate_refusal is None


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

    Its gate decides whether a new version replaces the current one. It knows both by their
    manifests, the records that are saved with programs.
    """
    before = evaluation_before(questions)
    after = evaluation_after(questions)
    compared = difference(before.headline_rows, after.headline_rows, min_n)
    # The new version is the compiled program, the old one the start program.
    new_manifest = compile_manifest(before, after, is_promoted=True, min_n=min_n)
    old_manifest = compile_manifest(before, after, is_promoted=False, min_n=min_n)

    if compared.verdict == "better":
        decision = gate(new_manifest, old_manifest, "models:/m@prod")
        assert decision.line.endswith(f": better (scope: {compared.scope})")
    else:
        with pytest.raises(UserError):
            gate(new_manifest, old_manifest, "models:/m@prod")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"call_outcomes": {"task.answer": {"ok": 20, "lost": 10}}},
            "The compiled program's score is of a broken run",
            id="broken",
        ),
        pytest.param(
            {"stopped": "max-calls 100"}, "Not all dev questions were answered", id="unfinished"
        ),
    ],
)
def test_the_gain_of_a_broken_or_unfinished_run_is_rejected(
    changes: dict[str, Any], reason: str
) -> None:
    """A run is broken if more than a tenth of its calls failed; here it is a third."""
    before = evaluation_of_scores([0.0] * 30, ["a"] * 30)
    after = evaluation_of_scores([1.0] * 30, ["a"] * 30)
    # Without the changes, the gain is enough.
    assert decide_promotion(before, after).rejection_reason is None

    rejection_reason = decide_promotion(before, after.model_copy(update=changes)).rejection_reason

    assert rejection_reason is not None
    assert rejection_reason.startswith(reason)


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


COUNTED_FOR_FIRST_SCORING = Usage(calls=100, input_tokens=1000, cost=10, seconds=3000)
"""What the limits of the run have counted for the first scoring."""


@pytest.mark.parametrize(
    ("dev_counts", "test_counts", "writing", "rewrites_memories", "calls"),
    [
        # The counts are the questions about each history; each history has one memory.
        pytest.param(
            [4],
            [6],
            None,
            False,
            # 4 + 2 * 6 questions, where 4 questions took all 100 calls.
            100 * 16 / 4,
            id="a program that writes nothing",
        ),
        # In the others, 4 calls answered and 12 wrote: of the 100 calls that were counted, 25 count
        # for answering 4 questions, and 75 for writing all memories of dev. 4 + 2 * 4 questions are
        # still to be answered.
        pytest.param(
            [4],
            [4],
            usage_of_writing(12),
            False,
            25 * 12 / 4 + 75 * 1,
            id="one test memory is written, which both programs use",
        ),
        pytest.param(
            [4],
            [4],
            usage_of_writing(12),
            True,
            25 * 12 / 4 + 75 * 3,
            id="the compiled program writes the dev and the test memory once more",
        ),
        pytest.param(
            [4],
            [2, 2],
            usage_of_writing(12),
            False,
            25 * 12 / 4 + 75 * 2,
            id="two test memories are written",
        ),
        pytest.param(
            [2, 2],
            [4],
            usage_of_writing(12),
            False,
            25 * 12 / 4 + 75 / 2,
            id="one test memory is written, where dev took two",
        ),
        pytest.param(
            [4],
            [4],
            usage_of_writing(0),
            False,
            100 * 12 / 4,
            id="memories are written without a call",
        ),
    ],
)
def test_the_usage_of_later_scorings_is_estimated_from_the_first_one(
    dev_counts: list[int],
    test_counts: list[int],
    writing: Usage | None,
    rewrites_memories: bool,
    calls: float,
) -> None:
    """A compile needs to know if its limits leave enough to score the program that it makes.

    It first scores the start program on the dev questions. Later it scores the compiled program on
    them, and both programs on the test questions.
    """
    split = Split(
        train=(),
        dev=questions_about("dev", *dev_counts),
        test=questions_about("test", *test_counts),
    )

    estimate = estimate_remaining_usage(
        first_scoring(writing), COUNTED_FOR_FIRST_SCORING, split, rewrites_memories
    )

    assert estimate.calls == pytest.approx(calls)
    # A call took ten tokens, 0.10 and half a minute; prompts are expected to grow.
    assert estimate.tokens == pytest.approx(10 * PROMPT_GROWTH * calls)
    assert estimate.cost == pytest.approx(0.1 * PROMPT_GROWTH * calls)
    assert estimate.minutes == pytest.approx(0.5 * PROMPT_GROWTH * calls)


def finished_run(condition: str, value: str) -> FinishedRun:
    """Return a run of one question that was made under a condition."""
    evaluation = evaluation_of([row("q1", 1.0)], names={"4": "single-hop"})
    return FinishedRun("run", evaluation, {condition: value})


@pytest.mark.parametrize("condition", CONDITIONS)
def test_runs_under_different_conditions_are_compared_with_a_note(condition: str) -> None:
    """A condition is what scores depend on besides the program, such as the model or the data."""
    page = compare_runs([finished_run(condition, "one"), finished_run(condition, "other")])

    (note,) = page.notes
    assert f"{CONDITIONS[condition]}: one and other" in note


@pytest.mark.parametrize("condition", CONDITIONS)
def test_runs_under_the_same_condition_are_compared_without_a_note(condition: str) -> None:
    page = compare_runs([finished_run(condition, "one"), finished_run(condition, "one")])

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


def test_a_saved_run_is_loaded_as_it_was(saved_run: RunFolder) -> None:
    """The first of two answers has a line separator, U+2028, and one write has failed.

    The last characters of the name are enough to find a run.
    """
    run = load_run(saved_run.path.name[-4:])

    assert run.name == saved_run.path.name
    assert run.evaluation.to_dict() == saved_run.read()["result"]
    assert [row.answer for row in run.evaluation.rows] == ["one\u2028two", "answer"]
    (failed_write,) = run.evaluation.failed_writes
    assert failed_write.where == "ann, item D1, extract"
    assert run.conditions["lm"] == "openai/x"
    assert run.conditions["judge_hash"] == "ab"
    assert run.conditions["metric"] == "f1"


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
    """The page holds the result of a run, which is shown and compared."""
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


@pytest.mark.parametrize(
    ("preferred", "rate", "tied", "wins", "ties", "losses"),
    [
        (SECOND_RUN, 1.0, 0.0, 4, 0, 0),
        (FIRST_RUN, 0.0, 0.0, 0, 0, 4),
        # Every pair is judged in both orders, so a judge that looks at the order is of no help.
        ("the response shown first", 0.5, 0.0, 0, 4, 0),
        ("tie", 0.0, 1.0, 0, 4, 0),
    ],
)
def test_the_win_rate_counts_whose_responses_are_preferred(
    stub: Any, preferred: str, rate: float, tied: float, wins: int, ties: int, losses: int
) -> None:
    """A model judges each of four questions twice: it sees the two responses in both orders.

    `rate` is the share of judgements for the second run, and `tied` the share for neither. A
    question is won if more of its judgements are for the second run.
    """

    def judge_reply(body: dict[str, Any]) -> str:
        """Choose between the two responses, which prompts name w3k8 and t5n1."""
        shown_first = response_named("w3k8", body["messages"][-1]["content"])
        if preferred == "tie":
            choice = "tie"
        elif preferred in (shown_first, "the response shown first"):
            choice = "w3k8"
        else:
            choice = "t5n1"
        return chat_fields(reasoning="So.", choice=choice)

    examples = load_benchmark("memoryquest").examples[:4]
    judge = preference_judge(stub(answer=judge_reply))

    result = judge_win_rate(
        memoryquest_run(FIRST_RUN, examples), memoryquest_run(SECOND_RUN, examples), judge
    )

    assert result.n == 4
    assert result.rate == rate
    assert result.tied == tied
    assert result.wins == wins
    assert result.ties == ties
    assert result.losses == losses


def test_a_question_whose_judging_is_refused_counts_in_no_win_rate(stub: Any) -> None:
    examples = load_benchmark("memoryquest").examples[:3]
    refused_question = str(examples[1].question)

    def refuse_one_question(request_number: int, prompt: str) -> str | None:
        return "400" if refused_question in prompt else None

    server = stub(refuse_one_question)

    result = judge_win_rate(
        memoryquest_run(FIRST_RUN, examples),
        memoryquest_run(SECOND_RUN, examples),
        preference_judge(server),
    )

    assert result.n == 2
    assert result.unreadable == 1
    assert result.wins + result.ties + result.losses == 2

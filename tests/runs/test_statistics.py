"""Intervals and paired comparisons, against cases worked by hand and a seeded simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.errors import UserError
from mempiler.runs.statistics import Interval, interval, paired


def test_interval_of_two_questions_worked_by_hand() -> None:
    """Drawing two of {0, 1} gives means 0, .5, 1 with chances 1/4, 1/2, 1/4."""
    assert interval([0, 1], ["a", "a"], level=0.95) == Interval(0.0, 1.0, "question")
    assert interval([0, 1], ["a", "a"], level=0.3) == Interval(0.5, 0.5, "question")


def test_group_means_count_every_question() -> None:
    """Four groups hold one 0 each and the fifth 96 ones: drawn once (chances .33 to .74), the mean is 96/100."""
    values, groups = [0.0] * 4 + [1.0] * 96, ["a", "b", "c", "d"] + ["e"] * 96
    assert interval(values, groups, level=0.2) == Interval(0.96, 0.96, "group")
    # Drawn twice it is 192 of 195, and never more than 1.
    whole = interval(values, groups)
    assert whole is not None
    assert 0.98 < whole.high < 1


@pytest.mark.parametrize(("count", "unit"), [(1, "question"), (4, "question"), (5, "group"), (20, "group")])
def test_unit_is_the_group_from_five_groups_on(count: int, unit: str) -> None:
    result = interval([0.0, 1.0] * 20, [f"user {n % count}" for n in range(40)])
    assert result is not None
    assert result.unit == unit


def test_coverage_holds_for_groups_and_not_for_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty conversations of five questions whose scores move together; the true mean is 0."""
    monkeypatch.setattr("mempiler.runs.statistics.RESAMPLES", 400)
    rng, rounds, covered = np.random.default_rng(0), 300, {"group": 0, "question": 0}
    grouped = [str(n // 5) for n in range(150)]
    for _ in range(rounds):
        values = (rng.normal(size=(30, 1)) + rng.normal(size=(30, 5))).ravel().tolist()
        for groups in (grouped, ["one"] * 150):
            result = interval(values, groups)
            assert result is not None
            covered[result.unit] += result.low <= 0 <= result.high
    assert 0.9 <= covered["group"] / rounds <= 0.98
    assert covered["question"] / rounds < 0.85


@pytest.mark.parametrize(
    ("differences", "groups", "p"),
    [
        # Of equal size, 8 of 10: 2 x (1 + 10 + 45) / 2^10; 6 of 6: 2 / 2^6; ties do not count.
        ([0.8] * 8 + [-0.8] * 2, "a", 0.109375),
        ([0.8] * 8 + [-0.8] * 2 + [0.0] * 90, "a", 0.109375),
        ([-0.8] * 8 + [0.8] * 2, "a", 0.109375),
        ([0.5] * 6 + [0.0], "a", 0.03125),
        ([0.5] * 5, "a", 0.0625),
        ([0.5, -0.5], "a", 1.0),
        ([0.0] * 3, "a", 1.0),
        # How much counts, not who won: wherever the large one is below zero, the sum is as low as this or lower.
        ([0.1] * 5 + [-1.0], "a", 1.0),
        # A sum of .9 or more has none of the five below zero, or one of the two smallest: 3 of 32.
        ([0.1, 0.2, 0.3, 0.4, -0.1], "a", 2 * 3 / 32),
        # Whole groups are flipped from five on: 2 / 2^5 for twenty questions, all better; 2 / 2^6 for six groups.
        ([0.5] * 20, "abcde", 0.0625),
        ([0.5] * 24, "abcdef", 0.03125),
        ([0.5] * 20, "abcd", 2 * 1 / 10_000),
    ],
)
def test_permutation_test_worked_by_hand(differences: list[float], groups: str, p: float) -> None:
    names = [groups[n % len(groups)] for n in range(len(differences))]
    result = paired([0.1 + each for each in differences], [0.1] * len(differences), names)
    assert result.p == pytest.approx(p, abs=1e-12)


def test_permutation_test_of_many_questions_is_drawn() -> None:
    """40 of 60 of equal size: the normal approximation gives z = (40 - 30 - .5) / 3.873 = 2.453, p = .0142."""
    a, b, groups = [1.0] * 40 + [0.0] * 20, [0.0] * 40 + [1.0] * 20, ["a"] * 60
    assert paired(a, b, groups).p == pytest.approx(0.0142, abs=0.003)
    assert paired(a, b, groups) == paired(a, b, groups)


@pytest.mark.parametrize(
    ("differences", "groups", "min_n", "verdict"),
    [
        ([0.5] * 20, "a", 20, "better"),
        ([-0.5] * 20, "a", 20, "worse"),
        ([0.5] * 19, "a", 20, "too few to tell"),
        ([0.5] * 19, "a", 19, "better"),
        ([0.5], "a", 1, "too few to tell"),
        ([], "a", 1, "too few to tell"),
        ([0.0] * 20, "a", 20, "not told apart"),
        ([0.5, -0.5] * 10, "a", 20, "not told apart"),
        # The interval leaves out zero, the permutation test does not: five of forty, and five groups.
        ([1.0] * 5 + [0.0] * 35, "a", 20, "not told apart"),
        ([0.5] * 20, "abcde", 20, "not told apart"),
        # The other way round: p = .024, and one large loss lets the interval reach below zero.
        ([0.25] * 12 + [-0.75] + [0.025] * 3, "a", 16, "not told apart"),
        ([0.5] * 24, "abcdef", 20, "better"),
    ],
)
def test_verdict_wants_interval_permutation_test_and_a_least_n(
    differences: list[float], groups: str, min_n: int, verdict: str
) -> None:
    names = [groups[n % len(groups)] for n in range(len(differences))]
    assert paired(differences, [0.0] * len(differences), names, min_n=min_n).verdict == verdict


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 8)), min_size=2, max_size=40),
    st.permutations(range(40)),
)
@settings(max_examples=60, deadline=None)
def test_neither_order_nor_names_of_groups_decide(rows: list[tuple[int, int]], order: list[int]) -> None:
    """What is drawn must be the same: a registry numbers the groups that a compile knows by name."""
    there = paired([score / 4 for score, _ in rows], [0.0] * len(rows), [f"user {group}" for _, group in rows])
    other = [rows[n] for n in order if n < len(rows)]
    back = paired([score / 4 for score, _ in other], [0.0] * len(rows), [str(97 * group % 89) for _, group in other])
    assert (there.interval, there.p, there.verdict) == (back.interval, back.p, back.verdict)


def test_rounding_noise_is_a_tie() -> None:
    assert paired([0.1 + 0.2], [0.3], ["one"]).ties == 1


def test_paired_without_questions_is_not_a_number() -> None:
    result = paired([], [], [])
    assert math.isnan(result.mean)
    assert (result.interval, result.p, str(result)) == (None, 1.0, "n = 0")


@pytest.mark.parametrize(
    ("values", "groups", "options", "message"),
    [
        ([1.0, 0.0], ["a"], {}, "2 scores but 1 groups"),
        ([1.0, math.nan], ["a", "a"], {}, "score 1 is nan"),
        ([1.0, 0.0], ["a", "a"], {"level": 95}, "level 95 is not between 0 and 1"),
    ],
)
def test_wrong_input_is_named(values: list[float], groups: list[str], options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        interval(values, groups, **options)

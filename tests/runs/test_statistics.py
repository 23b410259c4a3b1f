"""Intervals and paired comparisons worked by hand; one verdict in every place; runs read back as they were kept."""

import gzip
import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

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
from mempiler.runs.manifest import Manifest
from mempiler.runs.gate import gate
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

from .evaluations import evaluation as made
from .evaluations import refusal as refused
from .evaluations import row


def test_interval_of_two_questions_worked_by_hand() -> None:
    """Drawing two of {0, 1} gives means 0, .5, 1 with chances 1/4, 1/2, 1/4."""
    assert bootstrap_interval([0, 1], ["a", "a"], confidence_level=0.95) == Interval(
        0.0, 1.0, "question"
    )
    assert bootstrap_interval([0, 1], ["a", "a"], confidence_level=0.3) == Interval(
        0.5, 0.5, "question"
    )


def test_group_means_count_every_question() -> None:
    """Five groups hold one 0 each and the sixth 95 ones: drawn once (chances .33 to .74), the mean is 95/100."""
    values, groups = [0.0] * 5 + [1.0] * 95, ["a", "b", "c", "d", "e"] + ["f"] * 95
    assert bootstrap_interval(values, groups, confidence_level=0.2) == Interval(0.95, 0.95, "group")
    # Drawn twice it is 190 of 194, and never more than 1.
    assert 0.97 < bootstrap_interval(values, groups).high < 1


@pytest.mark.parametrize(
    ("count", "unit", "scope"),
    [
        (1, "question", "other questions about these conversations"),
        (5, "question", "other questions about these conversations"),
        (6, "group", "other conversations"),
    ],
)
def test_from_six_groups_on_groups_are_resampled_and_the_scope_says_so(
    count: int, unit: str, scope: str
) -> None:
    result = compare_paired_scores([1.0] * 42, [0.0] * 42, [f"user {n % count}" for n in range(42)])
    assert result.interval is not None
    assert result.interval.unit == unit
    assert result.scope == scope
    assert result.group_count == count
    assert result.statement == f"{result}: better (scope: {scope})"
    assert result.to_dict()["scope"] == scope
    assert result.to_dict()["groups"] == count


def test_the_smallest_number_of_groups_is_the_first_with_which_a_difference_can_be_significant() -> (
    None
):
    """If all groups agree, 2 of 2^k ways to flip their signs are as extreme: 2/32 with five, 2/64 with six."""
    for size, p_value in ((MIN_GROUPS - 1, 2 / 32), (MIN_GROUPS, 2 / 64)):
        # One question per group, so that questions and groups are the same units.
        result = compare_paired_scores(
            [1.0] * size, [0.0] * size, [str(n) for n in range(size)], min_n=1
        )
        assert result.p_value == pytest.approx(p_value)
        assert (result.verdict == "better") is (size == MIN_GROUPS)


@pytest.mark.parametrize(
    ("scores", "groups", "effect"),
    [
        # Conversations differ, questions of one do not: two questions tell no more than one.
        ([1, 1, 0, 0], "aabb", 2.0),
        ([1, 1, 1, 0, 0, 0], "aaabbb", 3.0),
        # The mean square between is 0 and that within 1/2, so the ICC is negative: nothing is gained by that.
        ([1, 0, 1, 0], "aabb", 1.0),
        # Sizes 3 and 1. Between: 3 (2/3 - 1/2)^2 + (0 - 1/2)^2 = 1/3; within: (2 (1/3)^2 + (2/3)^2) / 2 = 1/3.
        ([1, 1, 0, 0], "aaab", 1.0),
        # Sizes 4 and 2. Between: 4/16 + 2/4 = 3/4; within: (3/16 + 9/16) / 4 = 3/16. The weighted mean size is
        # (16 + 4) / 6 = 10/3, that of the analysis of variance (6 - 10/3) / 1 = 8/3. So ICC = (3/4 - 3/16) /
        # (3/4 + 5/3 * 3/16) = 9/17, and the effect is 1 + 7/3 * 9/17 = 38/17.
        ([1, 1, 1, 0, 0, 0], "aaaabb", 38 / 17),
        # No two questions share a conversation.
        ([1, 0, 1], "abc", 1.0),
        # Equal scores, summed in another order: rounding errors are no differences.
        ([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], "aabb", 1.0),
        ([1, 0, 1], "aaa", None),
        ([], "", None),
    ],
)
def test_design_effect_worked_by_hand(
    scores: list[float], groups: str, effect: float | None
) -> None:
    expected = effect if effect is None else pytest.approx(effect)
    assert design_effect(scores, list(groups)) == expected
    assert (
        compare_paired_scores(scores, [0.0] * len(scores), list(groups)).design_effect == expected
    )


def test_the_design_effect_stands_beside_the_interval_where_there_are_two_conversations() -> None:
    scores = [1.0] * 12 + [0.0] * 12
    two = compare_paired_scores(scores, [0.0] * 24, ["a"] * 12 + ["b"] * 12)
    assert str(two) == "+0.500 [+0.292, +0.708] (design effect 12.0), p = .00049, n = 24"
    assert two.to_dict()["design_effect"] == pytest.approx(12.0)
    assert "design effect" not in str(compare_paired_scores(scores, [0.0] * 24, ["a"] * 24))


def test_a_large_design_effect_is_warned_of_where_questions_were_resampled() -> None:
    scores = [1.0] * 12 + [0.0] * 12
    by_conversation = ["a"] * 12 + ["b"] * 12
    two = compare_paired_scores(scores, [0.0] * 24, by_conversation)
    # The root of 12 is 3.46.
    assert two.warning is not None
    assert two.warning.endswith(
        "for other conversations the interval would be about 3.5 times as wide"
    )
    assert two.to_dict()["warning"] == two.warning

    alternating = compare_paired_scores(scores, [0.0] * 24, ["a", "b"] * 12)
    assert alternating.design_effect == 1.0
    assert alternating.warning is None
    # Six conversations of four: whole conversations are resampled, so there is nothing to warn of.
    six = compare_paired_scores(scores, [0.0] * 24, [str(n // 4) for n in range(24)])
    assert six.design_effect == pytest.approx(4.0)
    assert six.warning is None


def test_a_page_says_which_of_its_runs_the_warning_is_of() -> None:
    """Run b gains on the first of two conversations alone, run c on both."""
    groups = ["ann"] * 12 + ["bob"] * 12
    start = evaluation([(f"q{n}", 0.0, group) for n, group in enumerate(groups)])
    half = evaluation([(f"q{n}", float(group == "ann"), group) for n, group in enumerate(groups)])
    all_of_it = evaluation([(f"q{n}", 1.0, group) for n, group in enumerate(groups)])
    runs = [
        FinishedRun(name, found, {})
        for name, found in (("a", start), ("b", half), ("c", all_of_it))
    ]
    (note,) = compare_runs(runs).notes
    assert note.startswith(
        "B: The difference varies from conversation to conversation (design effect 12.0): "
    )


def test_equal_programs_rarely_differ_and_a_verdict_on_few_conversations_has_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A/A: the true difference is 0, and differences in one conversation move together."""
    monkeypatch.setattr("mempiler.runs.statistics.BOOTSTRAP_SAMPLES", 200)
    monkeypatch.setattr("mempiler.runs.statistics.PERMUTATION_SAMPLES", 200)
    rng = np.random.default_rng(0)
    rounds = 200

    def false_verdicts(group_count: int) -> list[str | None]:
        """The warnings of those rounds in which two equal programs seem to differ."""
        groups = [str(n // 10) for n in range(group_count * 10)]
        warnings: list[str | None] = []
        for _ in range(rounds):
            shared = rng.normal(size=(group_count, 1))
            differences = (shared + rng.normal(size=(group_count, 10))).ravel().tolist()
            result = compare_paired_scores(differences, [0.0] * len(differences), groups)
            if result.verdict in ("better", "worse"):
                warnings.append(result.warning)
        return warnings

    # With six conversations the verdict keeps its level: 5 %, and 2.7 standard errors of 200 rounds.
    assert len(false_verdicts(6)) / rounds <= 0.09
    # With five it speaks of other questions about these, where they do differ. It must say that it is no more.
    warnings = false_verdicts(5)
    assert len(warnings) / rounds > 0.2
    assert sum(warning is not None for warning in warnings) / len(warnings) > 0.9


def test_coverage_holds_for_groups_and_not_for_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty conversations of five questions whose scores move together; the true mean is 0."""
    monkeypatch.setattr("mempiler.runs.statistics.BOOTSTRAP_SAMPLES", 400)
    rng, rounds, covered = np.random.default_rng(0), 300, {"group": 0, "question": 0}
    grouped = [str(n // 5) for n in range(150)]
    for _ in range(rounds):
        values = (rng.normal(size=(30, 1)) + rng.normal(size=(30, 5))).ravel().tolist()
        for groups in (grouped, ["one"] * 150):
            result = bootstrap_interval(values, groups)
            covered[result.unit] += result.low <= 0 <= result.high
    assert 0.9 <= covered["group"] / rounds <= 0.98
    assert covered["question"] / rounds < 0.85


@pytest.mark.parametrize(
    ("differences", "groups", "p"),
    [
        # Of equal size, 8 of 10: 2 x (1 + 10 + 45) / 2^10; 6 of 6: 2 / 2^6; ties do not count.
        ([0.8] * 8 + [-0.8] * 2 + [0.0] * 90, "a", 0.109375),
        ([0.5] * 6 + [0.0], "a", 0.03125),
        ([0.0] * 3, "a", 1.0),
        # How much counts, not who won: wherever the large one is below zero, the sum is as low as this or lower.
        ([0.1] * 5 + [-1.0], "a", 1.0),
        # A sum of .9 or more has none of the five below zero, or one of the two smallest: 3 of 32.
        ([0.1, 0.2, 0.3, 0.4, -0.1], "a", 2 * 3 / 32),
        # Whole groups are flipped from six on: 2 / 2^6 for twenty questions, all better; below, questions are.
        ([0.5] * 20, "abcdef", 0.03125),
        ([0.5] * 20, "abcde", 2 * 1 / 10_000),
    ],
)
def test_permutation_test_worked_by_hand(differences: list[float], groups: str, p: float) -> None:
    names = [groups[n % len(groups)] for n in range(len(differences))]
    result = compare_paired_scores(
        [0.1 + each for each in differences], [0.1] * len(differences), names
    )
    assert result.p_value == pytest.approx(p, abs=1e-12)


def test_permutation_test_of_many_questions_is_drawn() -> None:
    """40 of 60 of equal size: the normal approximation gives z = (40 - 30 - .5) / 3.873 = 2.453, p = .0142."""
    a, b, groups = [1.0] * 40 + [0.0] * 20, [0.0] * 40 + [1.0] * 20, ["a"] * 60
    assert compare_paired_scores(a, b, groups).p_value == pytest.approx(0.0142, abs=0.003)
    assert compare_paired_scores(a, b, groups) == compare_paired_scores(a, b, groups)


@pytest.mark.parametrize(
    ("differences", "groups", "min_n", "verdict"),
    [
        ([0.5] * 20, "a", 20, "better"),
        ([-0.5] * 20, "a", 20, "worse"),
        ([0.5] * 19, "a", 20, "too few to tell"),
        ([0.5] * 19, "a", 19, "better"),
        ([0.5], "a", 1, "too few to tell"),
        ([0.5, -0.5] * 10, "a", 20, "not told apart"),
        # The interval leaves out zero, the permutation test does not: five of forty, and six groups of which one ties.
        ([1.0] * 5 + [0.0] * 35, "a", 20, "not told apart"),
        ([0.5, 0.5, 0.5, 0.5, 0.5, 0.0] * 4, "abcdef", 20, "not told apart"),
        # Five groups are too few to resample, so their questions decide.
        ([0.5] * 20, "abcde", 20, "better"),
        # The other way round: p = .024, and one large loss lets the interval reach below zero.
        ([0.25] * 12 + [-0.75] + [0.025] * 3, "a", 16, "not told apart"),
        ([0.5] * 24, "abcdef", 20, "better"),
    ],
)
def test_verdict_wants_interval_permutation_test_and_a_least_n(
    differences, groups, min_n, verdict
) -> None:
    names = [groups[n % len(groups)] for n in range(len(differences))]
    assert (
        compare_paired_scores(differences, [0.0] * len(differences), names, min_n=min_n).verdict
        == verdict
    )


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 8)), min_size=2, max_size=40),
    st.permutations(range(40)),
)
@settings(max_examples=60, deadline=None)
def test_neither_order_nor_names_of_groups_decide(
    rows: list[tuple[int, int]], order: list[int]
) -> None:
    """What is drawn must be the same: a registry numbers the groups that a compile knows by name."""
    there = compare_paired_scores(
        [score / 4 for score, _ in rows], [0.0] * len(rows), [f"user {group}" for _, group in rows]
    )
    other = [rows[n] for n in order if n < len(rows)]
    back = compare_paired_scores(
        [score / 4 for score, _ in other],
        [0.0] * len(rows),
        [str(97 * group % 89) for _, group in other],
    )
    assert there.interval == back.interval
    assert there.p_value == back.p_value
    assert there.verdict == back.verdict


def test_rounding_noise_is_a_tie_and_no_question_no_number() -> None:
    assert compare_paired_scores([0.1 + 0.2], [0.3], ["one"]).ties == 1
    result = compare_paired_scores([], [], [])
    assert math.isnan(result.mean)
    assert result.interval is None
    assert result.p_value == 1.0
    assert str(result) == "n = 0"


@pytest.mark.parametrize(
    ("values", "groups", "options", "message"),
    [
        ([1.0, 0.0], ["a"], {}, "2 scores but 1 groups"),
        ([1.0, math.nan], ["a", "a"], {}, "score 1 is nan"),
        ([1.0, 0.0], ["a", "a"], {"confidence_level": 95}, "level 95 is not between 0 and 1"),
    ],
)
def test_wrong_input_is_named(
    values: list[float], groups: list[str], options: dict, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        bootstrap_interval(values, groups, **options)


Scored = list[tuple[float, float, int]]
"""Before, after, group."""


def evaluation(scores: list[tuple[str, float, str]]) -> Evaluation:
    """An evaluation of questions by id, score and group."""
    return made(row(id, score, category="1", group=group) for id, score, group in scores)


def manifest(start: Evaluation, compiled: Evaluation, promoted: bool, min_n: int) -> Manifest:
    """What a compile keeps for the gate of the registry."""
    decided, gap = (
        decide_promotion(start, compiled, min_n=min_n),
        difference(start.headline_rows, compiled.headline_rows, min_n),
    )
    program: Any = None  # no program is looked at
    outcome = CompileResult(
        program=program,
        before=start,
        after=compiled,
        dev=(start, compiled),
        difference=gap,
        scored_on="test",
        promoted=promoted,
        folder=Path(),
        candidates=(),
        usage={},
        stopped=None,
        run=Path(),
        run_id="",
        model=None,
        promotion=decided,
        optimizer_problems=OptimizerProblems("labeled"),
        frontier=(),
    )
    return Manifest(
        method="", task="", scores={"gate": outcome.gate()}, manifest_sha256=str(promoted)
    )


def scored() -> st.SearchStrategy[Scored]:
    """Rows in which nothing, little or almost everything changes for the better or worse."""
    gaps = st.sampled_from([[0.0, 0.5, -0.5], [0.0, 0.5, 0.5, 0.5, -0.5], [0.3, 0.5], [-0.5, -0.3]])

    def rows(gaps: list[float], groups: int) -> st.SearchStrategy[Scored]:
        one = st.tuples(
            st.just(0.5), st.sampled_from([0.5 + gap for gap in gaps]), st.integers(0, groups - 1)
        )
        return st.lists(one, min_size=5, max_size=30)

    return st.tuples(gaps, st.sampled_from([1, 4, 5, 6, 12])).flatmap(lambda drawn: rows(*drawn))


@given(scored(), st.integers(1, 15), st.randoms(use_true_random=False))
def test_no_two_places_disagree_on_the_same_rows(rows: Scored, min_n: int, random: Any) -> None:
    start = evaluation(
        [(f"q{n}", before, f"user {group}") for n, (before, _, group) in enumerate(rows)]
    )
    compiled = evaluation(
        [(f"q{n}", after, f"user {group}") for n, (_, after, group) in enumerate(rows)]
    )
    verdict = difference(start.headline_rows, compiled.headline_rows, min_n).verdict

    assert (decide_promotion(start, compiled, min_n=min_n).rejection_reason is None) is (
        verdict == "better"
    )

    shuffled = evaluation(
        [(row.id, row.score, row.group) for row in random.sample(compiled.rows, len(compiled.rows))]
    )
    runs = [FinishedRun("a", start, {}), FinishedRun("b", shuffled, {})]
    page = compare_runs(runs, min_n)
    assert page.total is not None
    assert page.total.difference.verdict == page.categories[0].difference.verdict == verdict
    assert ComparedRun(runs[1], page.total.difference).gate_refusal == (
        verdict if verdict in ("worse", "too few to tell") else None
    )
    scope = page.total.difference.scope
    assert page.verdict.endswith(f": {verdict} (scope: {scope})")
    assert (page.total.difference.interval is not None) is (len(rows) > 1)
    assert difference_line(difference(start.rows, compiled.rows, min_n)).endswith(
        f": {verdict} (scope: {scope})"
    )

    new, old = (manifest(start, compiled, promoted, min_n) for promoted in (True, False))
    try:
        decision = gate(new, old, "models:/m@prod")
    except UserError:
        assert verdict != "better"
    else:
        assert verdict == "better"
        assert decision.line.endswith(f": better (scope: {scope})")


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, None),
        (
            {"call_outcomes": {"task.answer": {"ok": 20, "lost": 10}}},
            "The compiled program's score is of a broken run",
        ),
        ({"stopped": "max-calls 100"}, "Not all dev questions were answered"),
    ],
)
def test_a_gain_of_a_broken_or_unfinished_run_is_none(
    changed: dict[str, Any], refused: str | None
) -> None:
    start, compiled = (
        evaluation([(f"q{n}", score, "a") for n in range(30)]) for score in (0.0, 1.0)
    )
    found = decide_promotion(start, compiled.model_copy(update=changed)).rejection_reason
    if refused is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(refused)


SPENT = Usage(100, 1000, cost=10, seconds=3000)


def questions(*counts: int) -> tuple[dspy.Example, ...]:
    """So many questions about each of some histories."""
    asked = ((History(id=f"{counts}-{n}", items=()), each) for n, each in enumerate(counts))
    return tuple(dspy.Example(history=history) for history, each in asked for _ in range(each))


def answered(n: int, writing: Usage | None) -> Evaluation:
    """An evaluation of n questions that took a call, ten tokens and a second each."""
    ids = count()
    row = {"calls": 1, "prompt_tokens": 8, "output_tokens": 2, "answering": 1.0}
    rows = tuple(Row.model_construct(id=str(next(ids)), **row) for _ in range(n))
    return Evaluation.model_construct(rows=rows, construction=writing)


def written(calls: int) -> Usage:
    return Usage(calls, 9 * calls, calls, seconds=calls)


@pytest.mark.parametrize(
    ("split", "writing", "rewrites", "calls"),
    [
        pytest.param(
            ((4,), (6,)), None, False, 100 * 16 / 4, id="nothing is written: by questions alone"
        ),
        pytest.param(
            ((4,), (4,)), written(12), False, 25 * 12 / 4 + 75 * 1, id="the test memory, once"
        ),
        pytest.param(
            ((4,), (4,)),
            written(12),
            True,
            25 * 12 / 4 + 75 * 3,
            id="and all of them by the result",
        ),
        pytest.param(
            ((4,), (2, 2)),
            written(12),
            False,
            25 * 12 / 4 + 75 * 2,
            id="two memories for the test part",
        ),
        pytest.param(
            ((2, 2), (4,)), written(12), False, 25 * 12 / 4 + 75 / 2, id="the start wrote two"
        ),
        pytest.param(((4,), (4,)), written(0), False, 100 * 12 / 4, id="writing without a call"),
    ],
)
def test_the_usage_of_the_scoring_to_come_is_estimated(
    split, writing, rewrites: bool, calls: float
) -> None:
    dev, test = (questions(*part) for part in split)
    kept = estimate_remaining_usage(answered(4, writing), SPENT, Split((), dev, test), rewrites)
    assert kept.calls == pytest.approx(calls)
    assert kept.tokens == pytest.approx(10 * PROMPT_GROWTH * calls)
    assert kept.cost == pytest.approx(0.1 * PROMPT_GROWTH * calls)
    assert kept.minutes == pytest.approx(0.5 * PROMPT_GROWTH * calls)


MEMORYQUEST = {"benchmark": "memoryquest", "options": {"metric": "evidence"}}


def run(
    rows: Sequence[Row], name: str = "run", conditions: dict[str, Any] | None = None, **changed: Any
) -> FinishedRun:
    return FinishedRun(name, made(rows, names={"4": "single-hop"}, **changed), conditions or {})


@pytest.mark.parametrize("key", CONDITIONS)
def test_runs_under_different_conditions_are_compared_with_a_warning(key):
    rows = [row("q1", 1.0)]
    (note,) = compare_runs(
        [run(rows, conditions={key: "one"}), run(rows, conditions={key: "other"})]
    ).notes
    assert f"{CONDITIONS[key]}: one and other" in note
    assert compare_runs([run(rows, conditions={key: "one"})] * 2).notes == ()


@pytest.fixture
def kept(tmp_path, monkeypatch) -> RunFolder:
    """A finished evaluation of two questions, one failed, with a line break of Unicode in its answer."""
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    folder = RunFolder.create("evaluate-x", {"command": "evaluate", "options": {"metric": "f1"}})
    failure = Failure(kind="parse", where="q2", message="no field")
    found = made(
        [row("q1", 1.0, answer="one\u2028two"), row("q2", 0.0, failure=failure)],
        write_failures=1,
        failed_writes=(Failure(kind="parse", where="ann, item D1, extract", message="garbled"),),
    )
    save_page(folder.path, run_page("evaluate", folder.path.name, {"score": found}))
    folder.update(
        status="finished", result=found.to_dict(), parameters={"lm": "openai/x", "judge_hash": "ab"}
    )
    return folder


def test_a_run_is_read_back_as_it_was_kept(kept):
    found = load_run(kept.path.name[-4:])
    assert found.name == kept.path.name
    assert found.evaluation.to_dict() == kept.read()["result"]
    assert [each.answer for each in found.evaluation.rows] == ["one\u2028two", "answer"]
    assert [each.where for each in found.evaluation.failed_writes] == ["ann, item D1, extract"]
    assert found.conditions["lm"] == "openai/x"
    assert found.conditions["judge_hash"] == "ab"
    assert found.conditions["metric"] == "f1"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda page: page.write_bytes(b"none"), "is not the page of a run"),
        (
            lambda page: page.write_bytes(gzip.compress(b'{"command": 1}')),
            "is not the page of a run",
        ),
        (
            lambda page: page.unlink(),
            "no result yet (status finished); finish it with its own command and --resume",
        ),
    ],
)
def test_a_run_that_is_not_whole_is_refused_in_one_line(kept, harm, words):
    harm(kept.path / PAGE_DATA)
    assert words in refused(load_run, str(kept.path))


@pytest.mark.parametrize(
    ("says", "rate", "tied", "wins", "ties", "losses"),
    [
        ("the second run's", 1.0, 0.0, 4, 0, 0),
        ("the first run's", 0.0, 0.0, 0, 0, 4),
        ("what stands first", 0.5, 0.0, 0, 4, 0),
        ("tie", 0.0, 1.0, 0, 4, 0),
    ],
)
def test_the_win_rate_counts_whose_responses_are_preferred(
    stub, says, rate, tied, wins, ties, losses
) -> None:
    asked = [
        (str(each.id), str(each.question)) for each in load_benchmark("memoryquest").examples[:4]
    ]
    first, second = (
        FinishedRun(
            name,
            made(row(id, question=question, answer=name) for id, question in asked),
            {},
            MEMORYQUEST,
        )
        for name in ("the first run's", "the second run's")
    )

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"].split("[[ ## response_w3k8 ## ]]")[1]
        shown = text.split("[[ ## ")[0].strip()
        choice = (
            "tie" if says == "tie" else "w3k8" if says in (shown, "what stands first") else "t5n1"
        )
        return (
            f"[[ ## reasoning ## ]]\nSo.\n\n[[ ## choice ## ]]\n{choice}\n\n[[ ## completed ## ]]"
        )

    server = stub(answer=answer)
    judge = PreferenceJudge(
        language_model(server.model, role="judge", api_base=server.url), adapter("chat")
    )
    found = judge_win_rate(first, second, judge)
    assert found.n == 4
    assert found.rate == rate
    assert found.tied == tied
    assert found.wins == wins
    assert found.ties == ties
    assert found.losses == losses


def test_a_query_whose_judging_is_refused_counts_in_no_win_rate(stub) -> None:
    examples = load_benchmark("memoryquest").examples[:3]
    first, second = (
        FinishedRun(
            name,
            made(row(str(e.id), question=str(e.question), answer=name) for e in examples),
            {},
            MEMORYQUEST,
        )
        for name in ("the first run's", "the second run's")
    )
    server = stub(lambda n, text: "400" if examples[1].question in text else None)
    judge = PreferenceJudge(
        language_model(server.model, role="judge", api_base=server.url), adapter("chat")
    )
    found = judge_win_rate(first, second, judge)
    assert found.n == 2
    assert found.unreadable == 1
    assert found.wins + found.ties + found.losses == 2

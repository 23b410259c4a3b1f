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
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.engines.spending import Spending
from mempiler.programs.adapter import adapter
from mempiler.records import Failure
from mempiler.runs.compare import BASIS, Recorded, compare, preferences, recorded, refusal
from mempiler.runs.compile import Compiled, OptimizerProblems
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import Manifest
from mempiler.runs.pages.html import keep_page
from mempiler.runs.pages.page import DOCUMENT, difference_line, run_page
from mempiler.runs.promotion import LONGER, promotion, reserve
from mempiler.runs.publish import gate
from mempiler.runs.results import Evaluation, difference
from mempiler.runs.rows import Row
from mempiler.runs.statistics import Interval, interval, paired

from .evaluations import evaluation as made
from .evaluations import refusal as refused
from .evaluations import row


def test_interval_of_two_questions_worked_by_hand() -> None:
    """Drawing two of {0, 1} gives means 0, .5, 1 with chances 1/4, 1/2, 1/4."""
    assert interval([0, 1], ["a", "a"], level=0.95) == Interval(0.0, 1.0, "question")
    assert interval([0, 1], ["a", "a"], level=0.3) == Interval(0.5, 0.5, "question")


def test_group_means_count_every_question() -> None:
    """Four groups hold one 0 each and the fifth 96 ones: drawn once (chances .33 to .74), the mean is 96/100."""
    values, groups = [0.0] * 4 + [1.0] * 96, ["a", "b", "c", "d"] + ["e"] * 96
    assert interval(values, groups, level=0.2) == Interval(0.96, 0.96, "group")
    # Drawn twice it is 192 of 195, and never more than 1.
    assert 0.98 < interval(values, groups).high < 1


@pytest.mark.parametrize(("count", "unit"), [(4, "question"), (5, "group")])
def test_unit_is_the_group_from_five_groups_on(count: int, unit: str) -> None:
    assert interval([0.0, 1.0] * 20, [f"user {n % count}" for n in range(40)]).unit == unit


def test_coverage_holds_for_groups_and_not_for_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty conversations of five questions whose scores move together; the true mean is 0."""
    monkeypatch.setattr("mempiler.runs.statistics.RESAMPLES", 400)
    rng, rounds, covered = np.random.default_rng(0), 300, {"group": 0, "question": 0}
    grouped = [str(n // 5) for n in range(150)]
    for _ in range(rounds):
        values = (rng.normal(size=(30, 1)) + rng.normal(size=(30, 5))).ravel().tolist()
        for groups in (grouped, ["one"] * 150):
            result = interval(values, groups)
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
        # Whole groups are flipped from five on: 2 / 2^5 for twenty questions, all better; 2 / 2^6 for six groups.
        ([0.5] * 20, "abcde", 0.0625),
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
        ([0.5, -0.5] * 10, "a", 20, "not told apart"),
        # The interval leaves out zero, the permutation test does not: five of forty, and five groups.
        ([1.0] * 5 + [0.0] * 35, "a", 20, "not told apart"),
        ([0.5] * 20, "abcde", 20, "not told apart"),
        # The other way round: p = .024, and one large loss lets the interval reach below zero.
        ([0.25] * 12 + [-0.75] + [0.025] * 3, "a", 16, "not told apart"),
        ([0.5] * 24, "abcdef", 20, "better"),
    ],
)
def test_verdict_wants_interval_permutation_test_and_a_least_n(differences, groups, min_n, verdict) -> None:
    names = [groups[n % len(groups)] for n in range(len(differences))]
    assert paired(differences, [0.0] * len(differences), names, min_n=min_n).verdict == verdict


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 8)), min_size=2, max_size=40), st.permutations(range(40)))
@settings(max_examples=60, deadline=None)
def test_neither_order_nor_names_of_groups_decide(rows: list[tuple[int, int]], order: list[int]) -> None:
    """What is drawn must be the same: a registry numbers the groups that a compile knows by name."""
    there = paired([score / 4 for score, _ in rows], [0.0] * len(rows), [f"user {group}" for _, group in rows])
    other = [rows[n] for n in order if n < len(rows)]
    back = paired([score / 4 for score, _ in other], [0.0] * len(rows), [str(97 * group % 89) for _, group in other])
    assert (there.interval, there.p, there.verdict) == (back.interval, back.p, back.verdict)


def test_rounding_noise_is_a_tie_and_no_question_no_number() -> None:
    assert paired([0.1 + 0.2], [0.3], ["one"]).ties == 1
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


Scored = list[tuple[float, float, int]]
"""Before, after, group."""


def evaluation(scores: list[tuple[str, float, str]]) -> Evaluation:
    """An evaluation of questions by id, score and group."""
    return made(row(id, score, category="1", group=group) for id, score, group in scores)


def manifest(start: Evaluation, compiled: Evaluation, promoted: bool, min_n: int) -> Manifest:
    """What a compile keeps for the gate of the registry."""
    decided, gap = promotion(start, compiled, min_n=min_n), difference(start.counted, compiled.counted, min_n)
    rest = (Path(), (), {}, None, Path(), "", None, decided, OptimizerProblems("labeled", None, 0, 0, False))
    outcome = Compiled(start, compiled, (start, compiled), gap, promoted, *rest)
    return Manifest(method="", task="", scores={"gate": outcome.gate()}, manifest_sha256=str(promoted))


def scored() -> st.SearchStrategy[Scored]:
    """Rows in which nothing, little or almost everything changes for the better or worse."""
    gaps = st.sampled_from([[0.0, 0.5, -0.5], [0.0, 0.5, 0.5, 0.5, -0.5], [0.3, 0.5], [-0.5, -0.3]])

    def rows(gaps: list[float], groups: int) -> st.SearchStrategy[Scored]:
        one = st.tuples(st.just(0.5), st.sampled_from([0.5 + gap for gap in gaps]), st.integers(0, groups - 1))
        return st.lists(one, min_size=5, max_size=30)

    return st.tuples(gaps, st.sampled_from([1, 4, 5, 6, 12])).flatmap(lambda drawn: rows(*drawn))


@given(scored(), st.integers(1, 15), st.randoms(use_true_random=False))
def test_no_two_places_disagree_on_the_same_rows(rows: Scored, min_n: int, random: Any) -> None:
    start = evaluation([(f"q{n}", before, f"user {group}") for n, (before, _, group) in enumerate(rows)])
    compiled = evaluation([(f"q{n}", after, f"user {group}") for n, (_, after, group) in enumerate(rows)])
    verdict = difference(start.counted, compiled.counted, min_n).verdict

    assert (promotion(start, compiled, min_n=min_n).refused is None) is (verdict == "better")

    shuffled = evaluation([(row.id, row.score, row.group) for row in random.sample(compiled.rows, len(compiled.rows))])
    runs = [Recorded("a", start, {}), Recorded("b", shuffled, {})]
    page = compare(runs, min_n)
    assert page.total is not None
    assert page.total.difference.verdict == page.categories[0].difference.verdict == verdict
    assert refusal(runs[1], page.total.difference) == (verdict if verdict in ("worse", "too few to tell") else None)
    assert page.verdict.endswith(f": {verdict}")
    assert (page.total.difference.interval is not None) is (len(rows) > 1)
    assert difference_line(difference(start.rows, compiled.rows, min_n)).endswith(f": {verdict}")

    new, old = (manifest(start, compiled, promoted, min_n) for promoted in (True, False))
    try:
        passed = bool(gate(new, old, "models:/m@prod"))
    except UserError:
        passed = False
    assert passed is (verdict == "better")


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, None),
        ({"answers": {"task.answer": {"ok": 20, "lost": 10}}}, "The compiled program's score is of a broken run"),
        ({"stopped": "max-calls 100"}, "Not all dev questions were answered"),
    ],
)
def test_a_gain_of_a_broken_or_unfinished_run_is_none(changed: dict[str, Any], refused: str | None) -> None:
    start, compiled = (evaluation([(f"q{n}", score, "a") for n in range(30)]) for score in (0.0, 1.0))
    found = promotion(start, compiled.model_copy(update=changed)).refused
    assert found is None if refused is None else (found or "").startswith(refused)


SPENT = Spending(100, 1000, cost=10, seconds=3000)


def questions(*counts: int) -> tuple[dspy.Example, ...]:
    """So many questions about each of some histories."""
    asked = ((History(id=f"{counts}-{n}", items=()), each) for n, each in enumerate(counts))
    return tuple(dspy.Example(history=history) for history, each in asked for _ in range(each))


def answered(n: int, writing: Spending | None) -> Evaluation:
    """An evaluation of n questions that took a call, ten tokens and a second each."""
    ids = count()
    row = {"calls": 1, "prompt_tokens": 8, "output_tokens": 2, "answering": 1.0}
    rows = tuple(Row.model_construct(id=str(next(ids)), **row) for _ in range(n))
    return Evaluation.model_construct(rows=rows, construction=writing)


def written(calls: int) -> Spending:
    return Spending(calls, 9 * calls, calls, seconds=calls)


@pytest.mark.parametrize(
    ("split", "writing", "rewrites", "calls"),
    [
        pytest.param(((4,), (6,)), None, False, 100 * 16 / 4, id="nothing is written: by questions alone"),
        pytest.param(((4,), (4,)), written(12), False, 25 * 12 / 4 + 75 * 1, id="the test memory, once"),
        pytest.param(((4,), (4,)), written(12), True, 25 * 12 / 4 + 75 * 3, id="and all of them by the result"),
        pytest.param(((4,), (2, 2)), written(12), False, 25 * 12 / 4 + 75 * 2, id="two memories for the test part"),
        pytest.param(((2, 2), (4,)), written(12), False, 25 * 12 / 4 + 75 / 2, id="the start wrote two"),
        pytest.param(((4,), (4,)), written(0), False, 100 * 12 / 4, id="writing without a call"),
    ],
)
def test_what_is_kept_back(split, writing, rewrites: bool, calls: float) -> None:
    dev, test = (questions(*part) for part in split)
    kept = reserve(answered(4, writing), SPENT, Split((), dev, test), rewrites)
    assert kept.calls == pytest.approx(calls)
    assert kept.tokens == pytest.approx(10 * LONGER * calls)
    assert kept.cost == pytest.approx(0.1 * LONGER * calls)
    assert kept.minutes == pytest.approx(0.5 * LONGER * calls)


MEMORYQUEST = {"benchmark": "memoryquest", "options": {"metric": "evidence"}}


def run(rows: Sequence[Row], name: str = "run", basis: dict[str, Any] | None = None, **changed: Any) -> Recorded:
    return Recorded(name, made(rows, names={"4": "single-hop"}, **changed), basis or {})


@pytest.mark.parametrize("key", BASIS)
def test_what_makes_a_difference_beside_the_programs_is_warned_of(key):
    rows = [row("q1", 1.0)]
    (note,) = compare([run(rows, basis={key: "one"}), run(rows, basis={key: "other"})]).notes
    assert f"{BASIS[key]} does, too: one and other" in note
    assert compare([run(rows, basis={key: "one"})] * 2).notes == ()


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
    keep_page(folder.path, run_page("evaluate", folder.path.name, {"score": found}))
    folder.update(status="finished", result=found.summary(), parameters={"lm": "openai/x", "judge_hash": "ab"})
    return folder


def test_a_run_is_read_back_as_it_was_kept(kept):
    found = recorded(kept.path.name[-4:])
    assert found.name == kept.path.name
    assert found.evaluation.summary() == kept.read()["result"]
    assert [each.answer for each in found.evaluation.rows] == ["one\u2028two", "answer"]
    assert [each.where for each in found.evaluation.failed_writes] == ["ann, item D1, extract"]
    assert (found.basis["lm"], found.basis["judge_hash"], found.basis["metric"]) == ("openai/x", "ab", "f1")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda page: page.write_bytes(b"none"), "is not the page of a run"),
        (lambda page: page.write_bytes(gzip.compress(b'{"command": 1}')), "is not the page of a run"),
        (lambda page: page.unlink(), "no result yet (status finished); finish it with its own command and --resume"),
    ],
)
def test_a_run_that_is_not_whole_is_refused_in_one_line(kept, harm, words):
    harm(kept.path / DOCUMENT)
    assert words in refused(recorded, str(kept.path))


@pytest.mark.parametrize(
    ("says", "rate", "tied", "counts"),
    [
        ("the second run's", 1.0, 0.0, (4, 0, 0)),
        ("the first run's", 0.0, 0.0, (0, 0, 4)),
        ("what stands first", 0.5, 0.0, (0, 4, 0)),
        ("tie", 0.0, 1.0, (0, 4, 0)),
    ],
)
def test_the_win_rate_counts_whose_responses_are_preferred(stub, says, rate, tied, counts) -> None:
    asked = [(str(each.id), str(each.question)) for each in load_benchmark("memoryquest").examples[:4]]
    first, second = (
        Recorded(name, made(row(id, question=question, answer=name) for id, question in asked), {}, MEMORYQUEST)
        for name in ("the first run's", "the second run's")
    )

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"].split("[[ ## response_w3k8 ## ]]")[1]
        shown = text.split("[[ ## ")[0].strip()
        choice = "tie" if says == "tie" else "w3k8" if says in (shown, "what stands first") else "t5n1"
        return f"[[ ## reasoning ## ]]\nSo.\n\n[[ ## choice ## ]]\n{choice}\n\n[[ ## completed ## ]]"

    server = stub(answer=answer)
    judge = PreferenceJudge(language_model(server.model, Meter(), "judge", server.url), adapter("chat"))
    found = preferences(first, second, judge)
    assert (found.n, found.rate, found.tied) == (4, rate, tied)
    assert (found.wins, found.ties, found.losses) == counts

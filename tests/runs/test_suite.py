"""A suite of benchmarks: one score over parts that each run with their own task; its refusals; conversations."""

import json
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.data.catalog import SUITES, benchmark
from mempiler.engines.meter import Meter
from mempiler.errors import DataError, UnknownNameError, UserError
from mempiler.optimizers.compile import Compilation
from mempiler.runs.experiment import run_compile, run_evaluate
from mempiler.runs.planning import plan_compile, plan_evaluate
from mempiler.runs.setup import Setup
from mempiler.runs.suite import part_setups, plan_suite, run_suite

PARTS = ["restate", "generate", "select"]


@pytest.fixture(scope="module")
def found() -> Any:
    """Every part on four topics."""
    meter = Meter()
    return run_suite("turn-rag", Setup(benchmark="palbench", test=4, threads=1), meter=meter), meter


def test_the_score_is_the_plain_mean_of_the_parts_of_a_hundred(found: Any) -> None:
    suite, _ = found
    assert list(suite.parts) == PARTS
    assert suite.by == {name: pytest.approx(100 * suite.parts[name].score) for name in PARTS}
    assert suite.score == pytest.approx(sum(suite.by.values()) / 3)
    assert suite.by["restate"] > 0


def test_the_summary_holds_every_part(found: Any) -> None:
    summary = found[0].summary()
    assert (summary["benchmark"], summary["comparable"]) == ("palbench", False)
    assert summary["score"] == found[0].score
    assert {name: part["score"] for name, part in summary["by"].items()} == found[0].by
    assert [part["n"] for part in summary["by"].values()] == [4, 4, 4]
    assert summary["by"]["select"]["aggregate"]["S-score"] == pytest.approx(found[0].by["select"])


def test_the_parts_are_runs_inside_the_suites(found: Any) -> None:
    from mempiler.runs.tracking import client

    suite, _ = found
    runs = [client().get_run(part.run_id) for part in suite.parts.values()]
    assert {run.data.tags["mlflow.parentRunId"] for run in runs} == {suite.run_id}
    metrics = client().get_run(suite.run_id).data.metrics
    assert metrics["suite.score"] == pytest.approx(suite.score)


def test_recorded_answers_are_those_of_their_part(tmp_path: Path) -> None:
    rows = [
        {"id": str(each.id), "part": name, "answer": f"{name} {each.id}"}
        for name in PARTS
        for each in benchmark(f"palbench.{name}").examples
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = run_suite(str(path), Setup(benchmark="palbench", test=4, threads=1))
    for name, part in found.parts.items():
        assert [row.answer for row in part.rows] == [f"{name} {row.id}" for row in part.rows]
    alone = run_evaluate(str(path), Setup(benchmark="palbench.generate", test=4, threads=1))
    assert [row.answer for row in alone.rows] == [row.answer for row in found.parts["generate"].rows]


@pytest.mark.parametrize("part", ["dialogue", ""])
def test_recorded_answers_to_no_part_are_refused(part: str, tmp_path: Path) -> None:
    rows = [{"id": str(each.id), "part": part, "answer": "x"} for each in benchmark("palbench.restate").examples]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(DataError, match=r"is missing .*; every question needs a line, whose `part` is 'restate'"):
        run_suite(str(tmp_path / "a.jsonl"), Setup(benchmark="palbench", test=4))


def test_a_history_is_written_once_for_all_parts(scripted: Any) -> None:
    meter = Meter()
    run_suite("recursive-summary", Setup(benchmark="palbench", test=2, threads=1), meter=meter)
    examples = benchmark("palbench.restate").split(test=2).test
    chains = {prefix for example in examples for prefix in example.history.prefixes}
    asked = 2 * len(PARTS)
    assert meter.read().by_role()["task"] == len(chains) + asked


def test_a_limit_holds_for_the_parts_together() -> None:
    from mempiler.engines.guard import Limits

    setup = Setup(benchmark="palbench", test=4, threads=1, limits=Limits(max_calls=6))
    suite = run_suite("turn-rag", setup)
    assert [len(part.rows) for part in suite.parts.values()] == [4, 2, 0]
    assert suite.score is None
    assert "max-calls" in suite.summary()["stopped"]


@pytest.mark.parametrize(
    ("options", "takers"),
    [
        ({"language": "en"}, PARTS),
        ({"metric": "bleu4"}, ["restate", "generate"]),
        ({"metric": "g_score"}, ["restate"]),
        ({"metric": "s_score"}, ["select"]),
        ({}, []),
    ],
)
def test_options_go_to_the_parts_that_have_them(options: dict[str, str], takers: list[str]) -> None:
    setups = part_setups(Setup(benchmark="palbench", options=options))
    assert [setup.benchmark for setup in setups.values()] == list(SUITES["palbench"][1])
    assert [name for name, setup in setups.items() if setup.options] == takers


@pytest.mark.parametrize(
    ("options", "says"),
    [({"metric": "rouge"}, "unknown metric of palbench 'rouge'"), ({"length": "32k"}, "unknown option of palbench")],
)
def test_an_option_that_no_part_has_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(UnknownNameError, match=says):
        part_setups(Setup(benchmark="palbench", options=options))


def test_a_suite_is_neither_compiled_on_nor_resumed() -> None:
    with pytest.raises(UserError, match=r"only evaluate takes; name one: palbench\.dialogue, palbench\.generate"):
        run_compile("turn-rag", Setup(benchmark="palbench"))
    with pytest.raises(UserError, match="resume one with --on PART"):
        run_suite("turn-rag", Setup(benchmark="palbench", resume="some-run"))


def test_the_plan_of_a_suite_is_one_per_part() -> None:
    plans = plan_suite("turn-rag", Setup(benchmark="palbench", test=4))
    assert {name: plan.calls.high for name, plan in plans.items()} == dict.fromkeys(PARTS, 4)


def test_a_part_compiles() -> None:
    setup = Setup(benchmark="palbench.select", train=8, dev=2, test=2, threads=1)
    outcome = run_compile("turn-rag", setup, Compilation("labeled"), force=True)
    assert all(row.parts["valid"] == 1 for row in outcome.result.rows)


def test_nothing_compiles_on_a_conversation() -> None:
    setup = Setup(benchmark="palbench.dialogue", judge_lm="offline")
    for attempt in (run_compile, plan_compile):
        with pytest.raises(UserError, match="nothing compiles on it, evaluate on it"):
            attempt("turn-rag", setup, Compilation("labeled"))


def test_a_conversation_is_evaluated_against_a_rival() -> None:
    setup = Setup(
        benchmark="palbench.dialogue", judge_lm="offline", options={"against": "no-memory"}, test=2, threads=1
    )
    found = run_evaluate("turn-rag", setup)
    assert [row.failure for row in found.rows] == [None, None]
    assert all(row.answer.startswith("user: ") and row.answer.count("\n") >= 9 for row in found.rows)
    assert sum(value for name, value in found.aggregate.items() if name.startswith("requirement")) == 2
    replies = sum(row.answer.count("assistant: ") for row in found.rows)
    assert (found.calls["task"], found.calls["prompt"], found.calls["judge"]) == (2 * replies, 2 * replies, 2 * 12)


def test_an_unknown_rival_is_one_line() -> None:
    setup = Setup(benchmark="palbench.dialogue", options={"against": "no-such"}, judge_lm="offline", test=1)
    with pytest.raises(UserError, match="unknown method 'no-such'"):
        run_evaluate("turn-rag", setup)


def test_the_plan_of_a_conversation_counts_both_sides() -> None:
    plan = plan_evaluate("turn-rag", Setup(benchmark="palbench.dialogue", test=2))
    assert plan.calls.high == pytest.approx(2 * 24)


def test_the_command_line_prints_parts_and_mean(capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", "turn-rag", "--on", "palbench", "--test", "2"])
    out = capsys.readouterr().out
    assert all(f"turn-rag on palbench.{name}" in out for name in PARTS)
    assert "S-score" in out
    assert "mean" in out

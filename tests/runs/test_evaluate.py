"""The main jobs end to end: what was planned, what is kept and on disk, what MLflow knows, also when it ends badly."""

import json
from pathlib import Path
from typing import Any

import pytest
from dspy.lm15 import ServerError
from mempiler import EndpointError, UserError, build, load, save
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.meter import Meter
from mempiler.optimizers.compile import CompileConfig
from mempiler.optimizers.call_bounds import Range
from mempiler.runs.compile import KeepOptions, run_compile
from mempiler.runs.evaluate import compiled_on, run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.html import HTML
from mempiler.runs.pages.page import open_page
from mempiler.runs.planning import plan_compile, plan_evaluate, start_program
from mempiler.runs.repeating import command_line
from mempiler.runs.run import Run
from mempiler.runs.inputs import RunInputs
from mempiler.runs.tracking.store import client

from .evaluations import break_optimizer, own_questions, script_models
from ..run_inputs import run_inputs, with_options

LABELED = CompileConfig("labeled")


def learning(kind: str, text: str, n: int) -> dict[str, Any]:
    """Knows the gold answers, but gives them only in the form that a demo shows."""
    asked = text.rsplit("[[ ## question ## ]]", 1)[1].split("?")[0]
    return {
        "answer": f"marker {asked.split()[-1]}"
        if text.count("[[ ## question ## ]]") > 1
        else "no idea"
    }


def stubborn(kind: str, text: str, n: int) -> dict[str, Any]:
    return {"answer": "no idea"}


@pytest.fixture
def scene(tmp_path, monkeypatch, scripted) -> Any:
    """`scene(reply)` makes every model of a run a scripted one, and returns the inputs."""

    def make(reply: Any, **options: Any) -> RunInputs:
        script_models(monkeypatch, scripted(reply).engine)
        data = own_questions(tmp_path)
        return run_inputs(
            benchmark="jsonl", data=data, lm="scripted/test", **{"min_n": 8, **options}
        )

    return make


def last_run() -> Any:
    experiment = client().get_experiment_by_name("mempiler")
    return client().search_runs(
        [experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1
    )[0]


def test_a_gain_on_dev_is_kept_scored_saved_and_logged(tmp_path, scene):
    inputs = scene(learning)
    outcome = run_compile("turn-rag", inputs, LABELED, KeepOptions(tmp_path / "out"))
    summary = outcome.to_dict()
    assert outcome.promoted
    assert summary["before"]["score"] == 0.0
    assert summary["after"]["score"] == 1.0
    assert summary["difference"]["mean"] == 1.0
    assert summary["difference"]["interval"] == [1.0, 1.0]
    assert summary["dev"] == {"before": 0.0, "after": 1.0}
    assert len(load(tmp_path / "out").task.answer.demos) == 8
    manifest = read_manifest(tmp_path / "out")
    assert manifest.optimizer["name"] == "labeled"
    assert manifest.scores["after"]["score"] == 1.0
    assert manifest.benchmark["sizes"] == {"train": 32, "dev": 8, "test": 8}
    assert compiled_on(tmp_path / "out", inputs.benchmark)

    run = client().get_run(outcome.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["program"] == "turn-rag"
    assert run.data.params["optimizer.stage"] == "all"
    assert run.data.metrics["before.score"] == 0.0
    assert run.data.metrics["after.score"] == 1.0
    # What the gain costs: eight demos with their contexts in every prompt.
    sizes = [summary[part]["prompt_tokens"] for part in ("before", "after")]
    assert 0 < 2 * sizes[0] < sizes[1]
    assert [run.data.metrics[f"{part}.prompt_tokens"] for part in ("before", "after")] == sizes
    searching = summary["after"]["search_ms"]
    assert 0 < searching["p50"] <= searching["p95"] == run.data.metrics["after.search_ms_p95"]
    assert run.data.metrics["after.search_ms_cpu"] == searching["cpu"] > 0
    listed = {entry.path for entry in client().list_artifacts(outcome.run_id)}
    assert {"before_rows.jsonl", "after_rows.jsonl", "outcome.json", "program", HTML} <= listed
    inside = {entry.path for entry in client().list_artifacts(outcome.run_id, "program")}
    assert inside == {"program/manifest.json", "program/state.json"}

    # The page shows the questions, and what was changed.
    page, kept = open_page(RunFolder(outcome.run)), (outcome.run / HTML).read_text()
    assert list(page.phases) == ["before", "after"]
    assert [each.changed for each in page.changes] == [True]
    assert any(line.startswith("+Demo 1 of") for line in page.changes[0].diff)
    facts = dict(page.facts)
    assert facts["Command"].startswith(
        "mempiler compile turn-rag --benchmark jsonl --data questions.jsonl --lm scripted/test"
    )
    assert facts["Command"].endswith("--min-n 8 --optimizer labeled --stage all")
    assert facts["MLflow run"].endswith(f"/runs/{outcome.run_id}")
    assert f'<a href="{facts["MLflow run"]}">' in kept
    assert page.total is not None
    assert [each.value for each in page.total.scores] == [outcome.before.score, outcome.after.score]
    assert [question.last.id for question in page.questions] == [
        row.id for row in outcome.after.rows
    ]
    shown = page.questions[0].last.trace
    assert shown is not None
    assert shown.entries[0].line in "\n".join(text for _, text in shown.calls[-1].messages)
    assert str(outcome.run.parent) not in kept
    assert "trace" not in json.loads((outcome.run / "after_rows.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize("force", [False, True])
def test_without_a_gain_the_start_is_kept_unless_forced(tmp_path, scene, force):
    outcome = run_compile(
        "turn-rag", scene(stubborn), LABELED, KeepOptions(tmp_path / "out", force)
    )
    assert outcome.promoted is force
    assert len(load(tmp_path / "out").task.answer.demos) == (8 if force else 0)
    assert bool(read_manifest(tmp_path / "out").optimizer) is force


def raising(error: BaseException) -> Any:
    def raises(*given: Any) -> Any:
        raise error

    return raises


@pytest.mark.parametrize(
    ("optimizer", "reply", "error", "status"),
    [
        (raising(KeyboardInterrupt()), learning, KeyboardInterrupt, "KILLED"),
        (raising(RuntimeError("it\nbroke")), learning, RuntimeError, "FAILED"),
        (learning, raising(ServerError("is down")), EndpointError, "FAILED"),
    ],
)
def test_out_holds_a_program_however_the_compile_ends(
    tmp_path, scene, monkeypatch, optimizer, reply, error, status
):
    break_optimizer(monkeypatch, optimizer)
    with pytest.raises(error):
        run_compile(
            "turn-rag", scene(reply), CompileConfig("broken"), KeepOptions(tmp_path / "out")
        )
    assert load(tmp_path / "out").task.answer.demos == []
    run = last_run()
    told = run.data.tags["error"]
    assert run.info.status == status
    assert (told == "") == (status == "KILLED")
    assert "\n" not in told


@pytest.mark.parametrize(
    ("how", "out", "words"),
    [
        (CompileConfig("labeled", settings={"k": 1}), "out", "has no setting 'k'"),
        (LABELED, "questions.jsonl", "exists and is no saved program"),
    ],
)
def test_a_wrong_request_costs_no_call_and_no_run(tmp_path, scene, how, out, words):
    run_evaluate("no-memory", scene(stubborn, test=1))
    before = last_run().info.run_id
    with pytest.raises(UserError, match=words):
        run_compile(
            "turn-rag",
            scene(raising(AssertionError("a call was made"))),
            how,
            KeepOptions(tmp_path / out),
        )
    assert last_run().info.run_id == before
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


@pytest.mark.parametrize(
    ("part", "options", "asked"), [("all", {}, 48), ("dev", {}, 8), ("all", {"test": 3}, 3)]
)
def test_evaluate_asks_the_part_that_is_named(scene, part, options, asked):
    found = run_evaluate("turn-rag", scene(learning, **options), part)
    assert len(found.rows) == asked
    run = client().get_run(found.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["part"] == part
    assert run.data.metrics["evaluation.calls_task"] == asked


@pytest.mark.parametrize(("options", "abstains"), [({}, True), ({"categories": "1,2,3,4"}, False)])
def test_a_program_declines_only_where_a_benchmark_asks_what_was_never_said(options, abstains):
    inputs = run_inputs(benchmark="locomo", benchmark_set=options)
    program = start_program("turn-rag", inputs, inputs.benchmark)
    assert program.config.get("task.abstain", False) is abstains


def test_a_saved_program_is_evaluated_and_compiled_on_as_it_was(tmp_path, scene):
    inputs = scene(learning)
    outcome = run_compile(
        "turn-rag", with_options(inputs, set={"k": 2}), LABELED, KeepOptions(tmp_path / "out")
    )
    found = run_evaluate(str(tmp_path / "out"), inputs, "test")
    assert found.score == outcome.after.score == 1.0
    again = run_compile(str(tmp_path / "out"), inputs, LABELED, KeepOptions(tmp_path / "again"))
    assert again.before.score == 1.0
    assert again.promoted is False
    assert len(load(tmp_path / "again").task.answer.demos) == 8
    with pytest.raises(UserError, match="keeps its settings"):
        run_evaluate(str(tmp_path / "out"), with_options(inputs, set={"k": 3}))


def test_the_answer_model_answers_and_the_task_model_writes(stub) -> None:
    server = stub()
    inputs = run_inputs(
        benchmark="locomo", test=3, answer_lm=server.model, answer_api_base=server.url
    )
    found = run_evaluate("memory-r2", inputs, "test")
    assert found.calls["answer"] == 3
    assert len(server.texts) == 3
    assert found.calls["task"] > 3
    assert all("first_speaker_memories" in text for text in server.texts)
    assert client().get_run(found.run_id).data.params["answer_lm"] == server.model
    inputs = run_inputs(
        benchmark="memory-env", benchmark_set={"users": 10}, test=2, answer_lm="offline"
    )
    with pytest.raises(
        UserError, match="answers without a prompt of ours: --answer-lm does not reach it"
    ):
        run_evaluate("memory-r2", inputs, "test")


def test_the_command_of_a_run_names_the_options_in_the_order_they_were_set() -> None:
    options = {"zeta": 1, "alpha": 2, "metric": "f1", "mu": 3, "beta": 4, "omega": 5, "eta": 6}
    inputs = run_inputs(benchmark="locomo", benchmark_set=options)
    command = command_line(inputs, "evaluate", "turn-rag", {})
    asked = command.split(" --benchmark locomo ")[1]
    named = [
        f"--benchmark-set {name}={value}" for name, value in options.items() if name != "metric"
    ]
    assert asked == " ".join(["--metric f1", *named])


def test_a_conversation_is_evaluated_against_a_rival() -> None:
    inputs = run_inputs(
        benchmark="palbench.dialogue",
        judge_lm="offline",
        benchmark_set={"against": "no-memory"},
        test=2,
        threads=1,
    )
    assert plan_evaluate("turn-rag", inputs).calls.high == pytest.approx(2 * 24)
    found = run_evaluate("turn-rag", inputs)
    assert [row.failure for row in found.rows] == [None, None]
    assert all(
        row.answer.startswith("user: ") and row.answer.count("\n") >= 9 for row in found.rows
    )
    assert (
        sum(value for name, value in found.aggregate.items() if name.startswith("requirement")) == 2
    )
    replies = sum(row.answer.count("assistant: ") for row in found.rows)
    assert found.calls["task"] == 2 * replies
    assert found.calls["prompt"] == 2 * replies
    assert found.calls["judge"] == 2 * 12


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("config", [{}, {"task.dates": False}])
def test_a_rival_is_shown_the_same_kind_of_lines(
    config: dict[str, Any], saved: bool, tmp_path: Path
) -> None:
    folder = str(tmp_path / "program")
    save(build("turn-rag", "dialogue-reply", **config), folder)
    inputs = run_inputs(
        benchmark="palbench.dialogue", judge_lm="offline", benchmark_set={"against": "turn-rag"}
    )
    inputs = inputs if saved else with_options(inputs, set=config)
    run = Run(inputs, Meter(), BudgetGuard(inputs.config.limits), RunFolder.create("rival", {}))
    program, benchmark = run.load_target(folder if saved else "turn-rag")
    assert benchmark.interaction is not None
    rival: Any = benchmark.interaction.rival
    assert program.task.settings.dates is rival.task.settings.dates is (config == {})


SMALL = run_inputs(benchmark="locomo", train=30, dev=10, test=10, threads=4)


@pytest.mark.parametrize(
    ("method", "how"),
    [
        ("turn-rag", CompileConfig("bootstrap", threads=4)),
        *(
            pytest.param(method, CompileConfig(*how, threads=4), marks=pytest.mark.slow)
            for method, *how in (
                ("turn-rag", "mipro"),
                ("turn-rag", "gepa"),
                ("memory-r2", "bootstrap", "read"),
            )
        ),
    ],
)
def test_the_calls_of_a_compile_lie_in_the_planned_range(method, how):
    plan = plan_compile(method, SMALL, how)
    calls = run_compile(method, SMALL, how).usage["calls"]
    assert plan.calls.low <= sum(calls.values()) - calls["cached"] <= plan.calls.high
    assert plan.calls.high / plan.calls.low <= 4


def test_the_plan_of_an_evaluation_is_close_and_has_minutes_where_an_endpoint_is_asked():
    plan = plan_evaluate("turn-rag", SMALL)
    assert plan.calls == Range(10, 10)
    found = run_evaluate("turn-rag", SMALL)
    assert found.calls["task"] == 10
    assert plan.tokens.low <= sum(found.tokens.values()) <= plan.tokens.high
    assert plan.minutes is None
    minutes = plan_evaluate("turn-rag", with_options(SMALL, lm="openai/gpt-4.1-mini")).minutes
    assert 0 < minutes.low < 1 < minutes.high * 10

"""Compiling and evaluating end to end: what is planned, saved, shown and logged.

The data are questions about six users, eight each: four users are to train, one is dev and one is
test. To compile with the optimizer "labeled" means to show eight training questions with their gold
answers (demos) in every prompt. The new program is kept (promoted) if it is better than the start
program on the dev questions. `out` is the folder in which the user wants it. MLflow keeps a record
of every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from dspy.lm15 import ServerError
from mempiler import EndpointError, UserError, build, load, save
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.meter import Meter
from mempiler.optimizers.call_bounds import Range
from mempiler.optimizers.compile import CompileConfig
from mempiler.runs.compile import CompileResult, KeepOptions, run_compile
from mempiler.runs.evaluate import compiled_on, run_evaluate
from mempiler.runs.folder import RunFolder
from mempiler.runs.inputs import RunInputs
from mempiler.runs.manifest import read_manifest
from mempiler.runs.pages.html import HTML
from mempiler.runs.pages.page import Page, open_page
from mempiler.runs.planning import plan_compile, plan_evaluate, start_program
from mempiler.runs.repeating import command_line
from mempiler.runs.run import Run
from mempiler.runs.tracking.store import client

from ..conftest import tracking_in_mlflow
from ..run_inputs import run_inputs, with_options
from ..scripted_engine import ScriptedEngine
from .evaluations import break_optimizer, own_questions, script_models

LABELED = CompileConfig("labeled")
"""Shows eight training questions with their gold answers (demos) in every prompt."""
QUESTION_FIELD = "[[ ## question ## ]]"


def answer_if_there_are_demos(kind: str, prompt: str, call_number: int) -> dict[str, Any]:
    """Give the gold answer if the prompt shows a demo beside the question; else a wrong one.

    So an optimizer that adds demos raises the score from 0 to 1.
    """
    has_demos = prompt.count(QUESTION_FIELD) > 1
    if not has_demos:
        return {"answer": "no idea"}
    # The question is "What is fact 12?", and its answer "marker 12".
    question = prompt.rpartition(QUESTION_FIELD)[2].partition("?")[0]
    fact_number = question.split()[-1]
    return {"answer": f"marker {fact_number}"}


def always_wrong(kind: str, prompt: str, call_number: int) -> dict[str, Any]:
    """Give a wrong answer, whatever the prompt shows."""
    return {"answer": "no idea"}


def scripted_inputs(data: str, **options: Any) -> RunInputs:
    """Return what a run on a data file is started with; its model has to be scripted.

    `min_n` is the least number of dev questions for a decision; there are eight.
    """
    return run_inputs(benchmark="jsonl", data=data, lm="scripted/test", **{"min_n": 8, **options})


@pytest.fixture
def inputs_with_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that scripts the replies of all models and returns what a run is started with."""

    def make(reply: Any, **options: Any) -> RunInputs:
        script_models(monkeypatch, ScriptedEngine(reply))
        return scripted_inputs(own_questions(tmp_path), **options)

    return make


def raise_when_called(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises `error`, whatever it is called with."""

    def raise_error(*_: Any) -> Any:
        raise error

    return raise_error


def last_mlflow_run() -> Any:
    """Return the newest run in the tracking store."""
    experiment = client().get_experiment_by_name("mempiler")
    runs = client().search_runs(
        [experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1
    )
    return runs[0]


class Gain(NamedTuple):
    """A compile that raised the score from 0 to 1."""

    outcome: CompileResult
    inputs: RunInputs
    out: Path
    """Where the program was saved."""


@pytest.fixture(scope="module")
def compiled_with_gain(tmp_path_factory: pytest.TempPathFactory) -> Gain:
    """A compile of turn RAG whose demos raise the score from 0 to 1."""
    folder = tmp_path_factory.mktemp("gain")
    with tracking_in_mlflow(), pytest.MonkeyPatch.context() as patch:
        script_models(patch, ScriptedEngine(answer_if_there_are_demos))
        inputs = scripted_inputs(own_questions(folder))
        outcome = run_compile("turn-rag", inputs, LABELED, KeepOptions(folder / "out"))
    return Gain(outcome, inputs, folder / "out")


def test_a_gain_is_measured_on_test_and_on_dev(compiled_with_gain: Gain) -> None:
    """The scripted model answers rightly only if the prompt shows demos, which are added."""
    summary = compiled_with_gain.outcome.to_dict()

    assert compiled_with_gain.outcome.promoted
    assert summary["before"]["score"] == 0.0
    assert summary["after"]["score"] == 1.0
    assert summary["difference"]["mean"] == 1.0
    assert summary["difference"]["interval"] == [1.0, 1.0]
    assert summary["dev"] == {"before": 0.0, "after": 1.0}


def test_the_program_of_a_gain_is_saved_with_its_scores(compiled_with_gain: Gain) -> None:
    """It has eight demos. Six users have eight questions each: four train, one dev, one test."""
    program = load(compiled_with_gain.out)
    assert len(program.task.answer.demos) == 8

    manifest = read_manifest(compiled_with_gain.out)
    assert manifest.optimizer["name"] == "labeled"
    assert manifest.scores["after"]["score"] == 1.0
    assert manifest.benchmark["sizes"] == {"train": 32, "dev": 8, "test": 8}
    assert compiled_on(compiled_with_gain.out, compiled_with_gain.inputs.benchmark)


def test_a_compile_logs_settings_scores_and_costs_in_mlflow(compiled_with_gain: Gain) -> None:
    """The demos that were added raise the score from 0 to 1, and make prompts longer."""
    run = client().get_run(compiled_with_gain.outcome.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["program"] == "turn-rag"
    assert run.data.params["optimizer.stage"] == "all"
    metrics = run.data.metrics
    assert metrics["before.score"] == 0.0
    assert metrics["after.score"] == 1.0

    # What the gain costs: eight demos with their contexts in every prompt.
    summary = compiled_with_gain.outcome.to_dict()
    tokens_before = summary["before"]["prompt_tokens"]
    tokens_after = summary["after"]["prompt_tokens"]
    assert tokens_before > 0
    assert tokens_after > 2 * tokens_before
    assert metrics["before.prompt_tokens"] == tokens_before
    assert metrics["after.prompt_tokens"] == tokens_after

    search_times = summary["after"]["search_ms"]
    assert 0 < search_times["p50"] <= search_times["p95"]
    assert search_times["cpu"] > 0
    assert metrics["after.search_ms_p95"] == search_times["p95"]
    assert metrics["after.search_ms_cpu"] == search_times["cpu"]


def test_a_compile_logs_its_rows_its_page_and_its_program_in_mlflow(
    compiled_with_gain: Gain,
) -> None:
    """MLflow keeps files of a run, which it calls artifacts."""
    run_id = compiled_with_gain.outcome.run_id
    artifacts = {entry.path for entry in client().list_artifacts(run_id)}
    assert {"before_rows.jsonl", "after_rows.jsonl", "outcome.json", "program", HTML} <= artifacts

    program_files = {entry.path for entry in client().list_artifacts(run_id, "program")}
    assert program_files == {"program/manifest.json", "program/state.json"}


@pytest.fixture
def page(compiled_with_gain: Gain) -> Page:
    """The page of the compile, which a user opens in a browser."""
    return open_page(RunFolder(compiled_with_gain.outcome.run))


def test_the_page_of_a_compile_shows_what_was_changed(page: Page) -> None:
    """The only prompt has changed: demos were added, as lines with "+" say."""
    assert list(page.phases) == ["before", "after"]
    (change,) = page.changes

    assert change.changed is True
    assert any(line.startswith("+Demo 1 of") for line in change.diff)


def test_the_page_of_a_compile_shows_its_command_and_a_link_to_mlflow(
    compiled_with_gain: Gain, page: Page
) -> None:
    facts = dict(page.facts)
    assert facts["Command"].startswith(
        "mempiler compile turn-rag --benchmark jsonl --data questions.jsonl --lm scripted/test"
    )
    assert facts["Command"].endswith("--min-n 8 --optimizer labeled --stage all")
    assert facts["MLflow run"].endswith(f"/runs/{compiled_with_gain.outcome.run_id}")

    html = (compiled_with_gain.outcome.run / HTML).read_text()
    assert f'<a href="{facts["MLflow run"]}">' in html
    # The page may be given to others, whom the folders of this machine do not concern.
    assert str(compiled_with_gain.outcome.run.parent) not in html


def test_the_page_of_a_compile_shows_every_question_with_its_prompt(
    compiled_with_gain: Gain, page: Page
) -> None:
    outcome = compiled_with_gain.outcome
    assert page.total is not None
    shown_scores = [score.value for score in page.total.scores]
    assert shown_scores == [outcome.before.score, outcome.after.score]
    shown_ids = [question.last.id for question in page.questions]
    assert shown_ids == [row.id for row in outcome.after.rows]

    # The trace of a question holds its recalled entries, and its calls with their messages.
    trace = page.questions[0].last.trace
    assert trace is not None
    prompt = "\n".join(text for _, text in trace.calls[-1].messages)
    assert trace.entries[0].line in prompt


def test_traces_are_not_repeated_in_the_file_of_rows(compiled_with_gain: Gain) -> None:
    """A row is a scored question. Its trace is long, and the store of the run keeps it already."""
    first_line = (compiled_with_gain.outcome.run / "after_rows.jsonl").read_text().splitlines()[0]

    assert "trace" not in json.loads(first_line)


@pytest.mark.parametrize(
    ("force", "saved_demos"),
    [
        pytest.param(False, 0, id="not forced"),
        pytest.param(True, 8, id="forced"),
    ],
)
def test_a_program_without_a_gain_is_saved_only_if_forced(
    tmp_path: Path, inputs_with_replies: Any, force: bool, saved_demos: int
) -> None:
    """Otherwise the start program is saved, which has no demos."""
    inputs = inputs_with_replies(always_wrong)

    outcome = run_compile("turn-rag", inputs, LABELED, KeepOptions(tmp_path / "out", force))

    assert outcome.promoted is force
    assert len(load(tmp_path / "out").task.answer.demos) == saved_demos
    assert bool(read_manifest(tmp_path / "out").optimizer) is force


@pytest.mark.usefixtures("mlflow_tracking")
def test_an_interrupted_compile_leaves_the_start_program_in_out(
    tmp_path: Path, inputs_with_replies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer `broken` is interrupted before it returns a program with demos."""
    break_optimizer(monkeypatch, raise_when_called(KeyboardInterrupt()))
    inputs = inputs_with_replies(answer_if_there_are_demos)

    with pytest.raises(KeyboardInterrupt):
        run_compile("turn-rag", inputs, CompileConfig("broken"), KeepOptions(tmp_path / "out"))

    assert load(tmp_path / "out").task.answer.demos == []
    run = last_mlflow_run()
    assert run.info.status == "KILLED"
    assert run.data.tags["error"] == ""


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize(
    ("optimizer_error", "model_error", "raised"),
    [
        pytest.param(RuntimeError("it\nbroke"), None, RuntimeError, id="the optimizer"),
        pytest.param(None, ServerError("is down"), EndpointError, id="the model"),
    ],
)
def test_a_failed_compile_leaves_the_start_program_in_out(
    tmp_path: Path,
    inputs_with_replies: Any,
    monkeypatch: pytest.MonkeyPatch,
    optimizer_error: Exception | None,
    model_error: Exception | None,
    raised: type[Exception],
) -> None:
    """MLflow keeps the error as one line, although a message may have two."""
    # Where the model fails, no optimizer is reached.
    error = optimizer_error or AssertionError("the optimizer was run")
    break_optimizer(monkeypatch, raise_when_called(error))
    reply = raise_when_called(model_error) if model_error else answer_if_there_are_demos
    inputs = inputs_with_replies(reply)

    with pytest.raises(raised):
        run_compile("turn-rag", inputs, CompileConfig("broken"), KeepOptions(tmp_path / "out"))

    assert load(tmp_path / "out").task.answer.demos == []
    run = last_mlflow_run()
    assert run.info.status == "FAILED"
    assert run.data.tags["error"] != ""
    assert "\n" not in run.data.tags["error"]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize(
    ("compile_config", "out", "message"),
    [
        pytest.param(
            CompileConfig("labeled", settings={"k": 1}),
            "out",
            "has no setting 'k'",
            id="an unknown setting",
        ),
        pytest.param(
            LABELED,
            "questions.jsonl",
            "exists and is no saved program",
            id="an output folder that is a file",
        ),
    ],
)
def test_a_compile_with_wrong_options_makes_no_call_and_no_run(
    tmp_path: Path,
    inputs_with_replies: Any,
    compile_config: CompileConfig,
    out: str,
    message: str,
) -> None:
    # The newest run in MLflow is this one, before the compile and after it.
    run_evaluate("no-memory", inputs_with_replies(always_wrong, test=1))
    run_before = last_mlflow_run().info.run_id
    inputs = inputs_with_replies(raise_when_called(AssertionError("a call was made")))

    with pytest.raises(UserError, match=message):
        run_compile("turn-rag", inputs, compile_config, KeepOptions(tmp_path / out))

    assert last_mlflow_run().info.run_id == run_before
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize(
    ("part", "options", "expected_questions"),
    [
        ("all", {}, 48),
        ("dev", {}, 8),
        ("all", {"test": 3}, 3),
    ],
)
def test_an_evaluation_asks_the_part_that_is_named(
    inputs_with_replies: Any, part: Any, options: dict[str, int], expected_questions: int
) -> None:
    """All six users have 48 questions. `test` is the most questions that are asked."""
    inputs = inputs_with_replies(answer_if_there_are_demos, **options)

    evaluation = run_evaluate("turn-rag", inputs, part)

    assert len(evaluation.rows) == expected_questions
    run = client().get_run(evaluation.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["part"] == part
    assert run.data.metrics["evaluation.calls_task"] == expected_questions


@pytest.mark.parametrize(
    ("benchmark_settings", "may_abstain"),
    [
        pytest.param({}, True, id="all categories"),
        pytest.param({"categories": "1,2,3,4"}, False, id="without the unanswerable category 5"),
    ],
)
def test_a_program_may_abstain_only_where_questions_are_unanswerable(
    benchmark_settings: dict[str, str], may_abstain: bool
) -> None:
    """To abstain means to reply that the history does not say it.

    LoCoMo's category 5 has questions to which this is the right reply.
    """
    inputs = run_inputs(benchmark="locomo", benchmark_set=benchmark_settings)

    program = start_program("turn-rag", inputs, inputs.benchmark)

    assert program.config.get("task.abstain", False) is may_abstain


def test_a_saved_program_is_evaluated_with_the_settings_it_was_compiled_with(
    tmp_path: Path, inputs_with_replies: Any
) -> None:
    """`k` is the number of turns that turn RAG recalls: 2 in the saved program, 10 by default."""
    inputs = inputs_with_replies(answer_if_there_are_demos)
    two_entries = with_options(inputs, set={"k": 2})
    outcome = run_compile("turn-rag", two_entries, LABELED, KeepOptions(tmp_path / "out"))

    evaluation = run_evaluate(str(tmp_path / "out"), inputs, "test")

    assert load(tmp_path / "out").config["k"] == 2
    assert outcome.after.score == 1.0
    assert evaluation.score == 1.0
    with pytest.raises(UserError, match="keeps its settings"):
        run_evaluate(str(tmp_path / "out"), with_options(inputs, set={"k": 3}))


def test_a_saved_program_is_compiled_further_from_its_demos(
    compiled_with_gain: Gain, tmp_path: Path, inputs_with_replies: Any
) -> None:
    """Its score is 1 from the start, so nothing is gained, and it is saved as it was."""
    inputs = inputs_with_replies(answer_if_there_are_demos)

    second = run_compile(
        str(compiled_with_gain.out), inputs, LABELED, KeepOptions(tmp_path / "second")
    )

    assert second.before.score == 1.0
    assert second.promoted is False
    assert len(load(tmp_path / "second").task.answer.demos) == 8


def test_the_answer_model_answers_and_the_task_model_writes(stub: Any) -> None:
    """Memory-R2 writes a memory and answers; a user may let two models do this.

    The answer model is at the server, and the task model is the offline engine. Only prompts that
    answer have the field `first_speaker_memories`.
    """
    server = stub()
    inputs = run_inputs(
        benchmark="locomo", test=3, answer_lm=server.model, answer_api_base=server.url
    )

    evaluation = run_evaluate("memory-r2", inputs, "test")

    assert evaluation.calls["answer"] == 3
    assert len(server.texts) == 3
    assert all("first_speaker_memories" in prompt for prompt in server.texts)
    assert evaluation.calls["task"] > 3
    parameters = RunFolder.open(str(evaluation.run_id)).read()["parameters"]
    assert parameters["answer_lm"] == server.model


def test_an_answer_model_is_refused_where_the_benchmark_writes_the_prompts() -> None:
    """The questions of this benchmark are put to the memory, and no prompt answers them."""
    inputs = run_inputs(
        benchmark="memory-env", benchmark_set={"users": 10}, test=2, answer_lm="offline"
    )

    with pytest.raises(UserError, match="--answer-lm does not reach it"):
        run_evaluate("memory-r2", inputs, "test")


def test_the_command_of_a_run_names_the_options_in_the_order_they_were_set() -> None:
    """The metric has an option of its own, and comes first."""
    settings = {"zeta": 1, "alpha": 2, "metric": "f1", "mu": 3, "beta": 4, "omega": 5, "eta": 6}
    inputs = run_inputs(benchmark="locomo", benchmark_set=settings)

    command = command_line(inputs, "evaluate", "turn-rag", {})

    _, _, options = command.partition(" --benchmark locomo ")
    assert options == (
        "--metric f1"
        " --benchmark-set zeta=1"
        " --benchmark-set alpha=2"
        " --benchmark-set mu=3"
        " --benchmark-set beta=4"
        " --benchmark-set omega=5"
        " --benchmark-set eta=6"
    )


def test_a_conversation_is_evaluated_against_a_rival() -> None:
    """A simulated user talks with the program and with a rival; a judge prefers one of them.

    Here the rival is a program without a memory, and two conversations are judged. The plan takes
    six lines of the user for each side, and as many replies: 24 calls for a conversation. The
    judge, which the plan leaves out, is asked twelve times: six times for each of two qualities.
    """
    inputs = run_inputs(
        benchmark="palbench.dialogue",
        judge_lm="offline",
        benchmark_set={"against": "no-memory"},
        test=2,
        threads=1,
    )
    assert plan_evaluate("turn-rag", inputs).calls.high == pytest.approx(2 * 24)

    evaluation = run_evaluate("turn-rag", inputs)

    assert [row.failure for row in evaluation.rows] == [None, None]
    for row in evaluation.rows:
        assert row.answer.startswith("user: ")
        assert row.answer.count("\n") >= 9
    requirement_counts = [
        value for name, value in evaluation.aggregate.items() if name.startswith("requirement")
    ]
    assert sum(requirement_counts) == 2

    # The program and its rival reply to each line of the simulated user, which is the prompt LM.
    replies = sum(row.answer.count("assistant: ") for row in evaluation.rows)
    assert evaluation.calls["task"] == 2 * replies
    assert evaluation.calls["prompt"] == 2 * replies
    assert evaluation.calls["judge"] == 2 * 12


@pytest.mark.parametrize("is_saved", [False, True], ids=["built", "saved"])
@pytest.mark.parametrize(
    ("settings", "shows_dates"),
    [
        pytest.param({}, True, id="with dates"),
        pytest.param({"task.dates": False}, False, id="without dates"),
    ],
)
def test_a_rival_is_shown_the_same_kind_of_lines_as_the_program(
    settings: dict[str, Any], shows_dates: bool, is_saved: bool, tmp_path: Path
) -> None:
    """If only one of the two saw dates beside "yesterday", the comparison would be unfair."""
    inputs = run_inputs(
        benchmark="palbench.dialogue", judge_lm="offline", benchmark_set={"against": "turn-rag"}
    )
    if is_saved:
        target = str(tmp_path / "program")
        save(build("turn-rag", "dialogue-reply", **settings), target)
    else:
        target = "turn-rag"
        inputs = with_options(inputs, set=settings)
    run = Run(inputs, Meter(), BudgetGuard(inputs.config.limits), RunFolder.create("rival", {}))

    program, benchmark = run.load_target(target)

    assert benchmark.interaction is not None
    rival: Any = benchmark.interaction.rival
    assert program.task.settings.dates is shows_dates
    assert rival.task.settings.dates is shows_dates


SMALL = run_inputs(benchmark="locomo", train=30, dev=10, test=10, threads=4)
"""A run on a part of the bundled sample, with the offline engine."""


@pytest.mark.parametrize(
    ("method", "compile_config"),
    [
        pytest.param("turn-rag", CompileConfig("bootstrap", threads=4), id="bootstrap"),
        pytest.param(
            "turn-rag", CompileConfig("mipro", threads=4), id="mipro", marks=pytest.mark.slow
        ),
        pytest.param(
            "turn-rag", CompileConfig("gepa", threads=4), id="gepa", marks=pytest.mark.slow
        ),
        pytest.param(
            "memory-r2",
            CompileConfig("bootstrap", "read", threads=4),
            id="memory-r2, reading only",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_calls_of_a_compile_lie_in_the_planned_range(
    method: str, compile_config: CompileConfig
) -> None:
    """A plan says before a run how many calls it will make, at least and at most."""
    planned = plan_compile(method, SMALL, compile_config).calls

    calls = run_compile(method, SMALL, compile_config).usage["calls"]

    paid_calls = sum(calls.values()) - calls["cached"]
    assert planned.low <= paid_calls <= planned.high
    # A wider range would say nothing.
    assert planned.high / planned.low <= 4


def test_the_plan_of_an_evaluation_is_close_to_what_it_takes() -> None:
    """Turn RAG makes one call per question, and `SMALL` has ten test questions."""
    plan = plan_evaluate("turn-rag", SMALL)

    evaluation = run_evaluate("turn-rag", SMALL)

    assert plan.calls == Range(10, 10)
    assert evaluation.calls["task"] == 10
    assert plan.tokens.low <= sum(evaluation.tokens.values()) <= plan.tokens.high


def test_a_plan_has_minutes_only_where_an_endpoint_is_asked() -> None:
    """The offline engine takes no time to speak of.

    Ten calls of an endpoint take about a minute: between some seconds and a few minutes.
    """
    with_engine = with_options(SMALL, lm="offline")
    at_endpoint = with_options(SMALL, lm="openai/gpt-4.1-mini")

    minutes_with_engine = plan_evaluate("turn-rag", with_engine).minutes
    minutes_at_endpoint = plan_evaluate("turn-rag", at_endpoint).minutes

    assert minutes_with_engine is None
    assert minutes_at_endpoint is not None
    assert 0 < minutes_at_endpoint.low < 1
    assert minutes_at_endpoint.high > 0.1

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


class GainfulCompile(NamedTuple):
    """A compile of turn RAG that raised the score from 0 to 1."""

    result: CompileResult
    inputs: RunInputs
    out: Path
    """Where the program was saved."""


@pytest.fixture(scope="module")
def compiled_with_gain(tmp_path_factory: pytest.TempPathFactory) -> GainfulCompile:
    """A compile of turn RAG whose eight demos raise the score from 0 to 1."""
    folder = tmp_path_factory.mktemp("gain")
    with tracking_in_mlflow(), pytest.MonkeyPatch.context() as patch:
        script_models(patch, ScriptedEngine(answer_if_there_are_demos))
        inputs = scripted_inputs(own_questions(folder))
        result = run_compile("turn-rag", inputs, LABELED, KeepOptions(folder / "out"))
    return GainfulCompile(result, inputs, folder / "out")


def test_the_gain_of_a_compile_is_measured_on_the_test_and_on_the_dev_questions(
    compiled_with_gain: GainfulCompile,
) -> None:
    """The scripted model answers rightly only if the prompt shows demos, which the compile adds."""
    summary = compiled_with_gain.result.to_dict()

    assert compiled_with_gain.result.promoted
    assert summary["before"]["score"] == 0.0
    assert summary["after"]["score"] == 1.0
    assert summary["difference"]["mean"] == 1.0
    assert summary["difference"]["interval"] == [1.0, 1.0]
    assert summary["dev"] == {"before": 0.0, "after": 1.0}


def test_a_compiled_program_is_saved_with_its_demos_and_with_its_scores(
    compiled_with_gain: GainfulCompile,
) -> None:
    """Six users have eight questions each: four users are to train, one is dev, one is test."""
    program = load(compiled_with_gain.out)
    assert len(program.task.answer.demos) == 8

    manifest = read_manifest(compiled_with_gain.out)
    assert manifest.optimizer["name"] == "labeled"
    assert manifest.scores["after"]["score"] == 1.0
    assert manifest.benchmark["sizes"] == {"train": 4 * 8, "dev": 8, "test": 8}
    assert compiled_on(compiled_with_gain.out, compiled_with_gain.inputs.benchmark)


def test_a_compile_logs_its_settings_and_scores_in_mlflow(
    compiled_with_gain: GainfulCompile,
) -> None:
    run = client().get_run(compiled_with_gain.result.run_id)

    assert run.info.status == "FINISHED"
    assert run.data.params["program"] == "turn-rag"
    assert run.data.params["optimizer.stage"] == "all"
    assert run.data.metrics["before.score"] == 0.0
    assert run.data.metrics["after.score"] == 1.0


def test_a_compile_logs_in_mlflow_what_its_demos_cost(compiled_with_gain: GainfulCompile) -> None:
    """Every prompt has eight demos with their contexts now."""
    summary = compiled_with_gain.result.to_dict()
    metrics = client().get_run(compiled_with_gain.result.run_id).data.metrics

    tokens_before = summary["before"]["prompt_tokens"]
    tokens_after = summary["after"]["prompt_tokens"]
    assert tokens_before > 0
    assert tokens_after > 2 * tokens_before
    assert metrics["before.prompt_tokens"] == tokens_before
    assert metrics["after.prompt_tokens"] == tokens_after
    assert metrics["after.search_ms_p95"] == summary["after"]["search_ms"]["p95"] > 0


def test_a_compile_logs_its_rows_its_page_and_its_program_in_mlflow(
    compiled_with_gain: GainfulCompile,
) -> None:
    run_id = compiled_with_gain.result.run_id

    files = {entry.path for entry in client().list_artifacts(run_id)}
    assert {"before_rows.jsonl", "after_rows.jsonl", "outcome.json", "program", HTML} <= files
    program_files = {entry.path for entry in client().list_artifacts(run_id, "program")}
    assert program_files == {"program/manifest.json", "program/state.json"}


@pytest.fixture
def page(compiled_with_gain: GainfulCompile) -> Page:
    """The page of the compile, which a user opens in a browser."""
    return open_page(RunFolder(compiled_with_gain.result.run))


def test_the_page_of_a_compile_shows_the_demos_that_were_added(page: Page) -> None:
    """Turn RAG has a single prompt, so there is a single change, shown as a diff."""
    assert list(page.phases) == ["before", "after"]
    (change,) = page.changes

    assert change.changed is True
    assert any(line.startswith("+Demo 1 of") for line in change.diff)


def test_the_page_of_a_compile_shows_its_command_and_a_link_to_mlflow(
    compiled_with_gain: GainfulCompile, page: Page
) -> None:
    facts = dict(page.facts)
    assert facts["Command"].startswith(
        "mempiler compile turn-rag --benchmark jsonl --data questions.jsonl --lm scripted/test"
    )
    assert facts["Command"].endswith("--min-n 8 --optimizer labeled --stage all")

    assert facts["MLflow run"].endswith(f"/runs/{compiled_with_gain.result.run_id}")
    html = (compiled_with_gain.result.run / HTML).read_text()
    assert f'<a href="{facts["MLflow run"]}">' in html


def test_the_page_of_a_compile_names_no_folder_of_this_machine(
    compiled_with_gain: GainfulCompile,
) -> None:
    """The page may be given to others."""
    run_folder = compiled_with_gain.result.run

    assert str(run_folder.parent) not in (run_folder / HTML).read_text()


def test_the_page_of_a_compile_shows_every_test_question_and_both_scores(
    compiled_with_gain: GainfulCompile, page: Page
) -> None:
    result = compiled_with_gain.result

    assert page.total is not None
    shown_scores = [score.value for score in page.total.scores]
    assert shown_scores == [result.before.score, result.after.score]
    shown_ids = [question.last.id for question in page.questions]
    assert shown_ids == [row.id for row in result.after.rows]


def test_the_file_of_rows_does_not_repeat_the_long_traces(
    compiled_with_gain: GainfulCompile,
) -> None:
    """The trace of a question has its prompts, and is in the store of the run already."""
    rows_file = compiled_with_gain.result.run / "after_rows.jsonl"
    first_line = rows_file.read_text().splitlines()[0]

    assert "trace" not in json.loads(first_line)


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_compile_that_the_user_interrupts_leaves_the_start_program_in_its_folder(
    tmp_path: Path, inputs_with_replies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user presses Ctrl-C while the optimizer runs. The start program has no demos."""
    break_optimizer(monkeypatch, raise_when_called(KeyboardInterrupt()))
    inputs = inputs_with_replies(answer_if_there_are_demos)

    with pytest.raises(KeyboardInterrupt):
        run_compile("turn-rag", inputs, CompileConfig("broken"), KeepOptions(tmp_path / "out"))

    assert load(tmp_path / "out").task.answer.demos == []
    run = last_mlflow_run()
    assert run.info.status == "KILLED"
    assert run.data.tags["error"] == ""


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_compile_whose_optimizer_fails_leaves_the_start_program_in_its_folder(
    tmp_path: Path, inputs_with_replies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start program has no demos. MLflow keeps the error as one line."""
    break_optimizer(monkeypatch, raise_when_called(RuntimeError("it\nbroke")))
    inputs = inputs_with_replies(answer_if_there_are_demos)

    with pytest.raises(RuntimeError):
        run_compile("turn-rag", inputs, CompileConfig("broken"), KeepOptions(tmp_path / "out"))

    assert load(tmp_path / "out").task.answer.demos == []
    run = last_mlflow_run()
    assert run.info.status == "FAILED"
    assert "it broke" in run.data.tags["error"]


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_compile_whose_model_fails_leaves_the_start_program_in_its_folder(
    tmp_path: Path, inputs_with_replies: Any
) -> None:
    """The model fails when the start program is scored, before any optimizer runs."""
    inputs = inputs_with_replies(raise_when_called(ServerError("is down")))

    with pytest.raises(EndpointError):
        run_compile("turn-rag", inputs, LABELED, KeepOptions(tmp_path / "out"))

    assert load(tmp_path / "out").task.answer.demos == []
    assert last_mlflow_run().info.status == "FAILED"


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
    """An earlier evaluation is the newest run in MLflow before the compile, and also after it."""
    run_evaluate("no-memory", inputs_with_replies(answer_if_there_are_demos, test=1))
    newest_run_before = last_mlflow_run().info.run_id
    inputs = inputs_with_replies(raise_when_called(AssertionError("a call was made")))

    with pytest.raises(UserError, match=message):
        run_compile("turn-rag", inputs, compile_config, KeepOptions(tmp_path / out))

    assert last_mlflow_run().info.run_id == newest_run_before
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize(
    ("part", "most_test_questions", "expected_questions"),
    [
        pytest.param("all", None, 48, id="all questions of six users"),
        pytest.param("dev", None, 8, id="the questions of the dev user"),
        pytest.param("all", 3, 3, id="three questions at most"),
    ],
)
def test_an_evaluation_asks_the_part_of_the_questions_that_is_named(
    inputs_with_replies: Any, part: Any, most_test_questions: int | None, expected_questions: int
) -> None:
    """Six users have eight questions each."""
    inputs = inputs_with_replies(answer_if_there_are_demos, test=most_test_questions)

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
def test_a_program_may_abstain_only_if_there_are_unanswerable_questions(
    benchmark_settings: dict[str, str], may_abstain: bool
) -> None:
    """To abstain means to reply that the history does not say it.

    This is the right reply to LoCoMo's questions of category 5.
    """
    inputs = run_inputs(benchmark="locomo", benchmark_set=benchmark_settings)

    program = start_program("turn-rag", inputs, inputs.benchmark)

    assert program.config.get("task.abstain", False) is may_abstain


def test_a_saved_program_keeps_the_settings_that_it_was_compiled_with(
    tmp_path: Path, inputs_with_replies: Any
) -> None:
    """`k` is the number of turns that turn RAG recalls, which is 10 by default."""
    inputs = inputs_with_replies(answer_if_there_are_demos)
    out = tmp_path / "out"
    run_compile("turn-rag", with_options(inputs, set={"k": 2}), LABELED, KeepOptions(out))

    evaluation = run_evaluate(str(out), inputs, "test")

    assert load(out).config["k"] == 2
    assert evaluation.score == 1.0
    with pytest.raises(UserError, match="keeps its settings"):
        run_evaluate(str(out), with_options(inputs, set={"k": 3}))


def test_a_second_compile_starts_from_the_demos_of_the_first(
    compiled_with_gain: GainfulCompile, tmp_path: Path, inputs_with_replies: Any
) -> None:
    """With its eight demos the program scores 1 already, so the second compile gains nothing."""
    inputs = inputs_with_replies(answer_if_there_are_demos)

    second = run_compile(
        str(compiled_with_gain.out), inputs, LABELED, KeepOptions(tmp_path / "second")
    )

    assert second.before.score == 1.0
    assert second.promoted is False
    assert len(load(tmp_path / "second").task.answer.demos) == 8


def test_with_an_answer_model_the_task_model_only_writes_memories(stub: Any) -> None:
    """Memory-R2 writes a memory and answers; a user may let two models do this.

    The answer model is at the server, and the task model is the offline engine. Only prompts that
    answer have the field `first_speaker_memories`.
    """
    server = stub()
    inputs = run_inputs(
        benchmark="locomo", test=3, answer_lm=server.model, answer_api_base=server.url
    )

    evaluation = run_evaluate("memory-r2", inputs, "test")

    assert len(server.texts) == 3
    assert all("first_speaker_memories" in prompt for prompt in server.texts)
    assert evaluation.calls["answer"] == 3
    assert evaluation.calls["task"] > 3
    parameters = RunFolder.open(str(evaluation.run_id)).read()["parameters"]
    assert parameters["answer_lm"] == server.model


def test_an_answer_model_is_refused_if_the_benchmark_asks_the_memory_directly() -> None:
    """The benchmark `memory-env` searches the memory, and no prompt answers its questions."""
    inputs = run_inputs(
        benchmark="memory-env", benchmark_set={"users": 10}, test=2, answer_lm="offline"
    )

    with pytest.raises(UserError, match="--answer-lm does not reach it"):
        run_evaluate("memory-r2", inputs, "test")


def test_the_command_of_a_run_names_its_settings_in_the_order_in_which_they_were_given() -> None:
    """The metric has an option of its own, which comes first."""
    settings = {"zeta": 1, "alpha": 2, "metric": "f1", "mu": 3}
    inputs = run_inputs(benchmark="locomo", benchmark_set=settings)

    command = command_line(inputs, "evaluate", "turn-rag", {})

    _, _, options = command.partition(" --benchmark locomo ")
    assert options == (
        "--metric f1 --benchmark-set zeta=1 --benchmark-set alpha=2 --benchmark-set mu=3"
    )


def inputs_of_dialogues(against: str, **options: Any) -> RunInputs:
    """Return what a run of the benchmark `palbench.dialogue` is started with.

    A simulated user, which is the prompt LM, talks with the program and with a rival. A judge says
    which of the two was better.
    """
    return run_inputs(
        benchmark="palbench.dialogue",
        judge_lm="offline",
        benchmark_set={"against": against},
        **options,
    )


def test_a_program_is_judged_by_its_conversations_against_those_of_a_rival() -> None:
    """The program and its rival, one without a memory, reply to each line of a simulated user.

    The judge is asked twelve times for each of two conversations: six times for two qualities. The
    aggregate counts the conversations by the requirements that they met.
    """
    inputs = inputs_of_dialogues(against="no-memory", test=2, threads=1)

    evaluation = run_evaluate("turn-rag", inputs)

    assert [row.failure for row in evaluation.rows] == [None, None]
    replies_of_program = sum(row.answer.count("assistant: ") for row in evaluation.rows)
    assert replies_of_program > 0
    assert evaluation.calls["task"] == 2 * replies_of_program
    assert evaluation.calls["prompt"] == 2 * replies_of_program
    assert evaluation.calls["judge"] == 2 * 12
    counts = [
        count for name, count in evaluation.aggregate.items() if name.startswith("requirement")
    ]
    assert sum(counts) == 2


def test_the_plan_of_two_conversations_has_the_calls_of_both_sides() -> None:
    """A conversation has six lines of the user and six replies, with the program and its rival."""
    plan = plan_evaluate("turn-rag", inputs_of_dialogues(against="no-memory", test=2, threads=1))

    calls_of_conversation = (6 + 6) * 2
    assert plan.calls.high == pytest.approx(2 * calls_of_conversation)


def shows_dates(inputs: RunInputs, target: str) -> tuple[bool, bool]:
    """Return whether the program and its rival are shown dates beside words like "yesterday"."""
    run = Run(inputs, Meter(), BudgetGuard(inputs.config.limits), RunFolder.create("rival", {}))
    program, benchmark = run.load_target(target)
    assert benchmark.interaction is not None
    rival: Any = benchmark.interaction.rival
    return program.task.settings.dates, rival.task.settings.dates


@pytest.mark.parametrize("with_dates", [True, False])
def test_a_rival_is_shown_dates_if_the_program_is_shown_them(with_dates: bool) -> None:
    """If only one of the two saw dates beside "yesterday", the comparison would be unfair."""
    inputs = inputs_of_dialogues(against="turn-rag", set={"task.dates": with_dates})

    assert shows_dates(inputs, "turn-rag") == (with_dates, with_dates)


@pytest.mark.parametrize("with_dates", [True, False])
def test_a_rival_is_shown_dates_if_a_saved_program_is_shown_them(
    with_dates: bool, tmp_path: Path
) -> None:
    """The saved program keeps the setting itself, so the run is started without it."""
    target = str(tmp_path / "program")
    save(build("turn-rag", "dialogue-reply", **{"task.dates": with_dates}), target)

    inputs = inputs_of_dialogues(against="turn-rag")

    assert shows_dates(inputs, target) == (with_dates, with_dates)


SMALL = run_inputs(benchmark="locomo", train=30, dev=10, test=10, threads=4)
"""A run with ten test questions of the bundled sample, and with the offline engine."""


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
def test_a_compile_makes_as_many_calls_as_its_plan_has_said(
    method: str, compile_config: CompileConfig
) -> None:
    """A plan gives the fewest and the most calls. If the range were wide, it would say nothing."""
    planned = plan_compile(method, SMALL, compile_config).calls

    calls = run_compile(method, SMALL, compile_config).usage["calls"]

    paid_calls = sum(calls.values()) - calls["cached"]
    assert planned.low <= paid_calls <= planned.high
    assert planned.high / planned.low <= 4


def test_the_plan_of_an_evaluation_has_its_calls_and_tokens() -> None:
    """Turn RAG makes one call per question, and there are ten test questions."""
    inputs = with_options(SMALL, test=10)

    plan = plan_evaluate("turn-rag", inputs)
    evaluation = run_evaluate("turn-rag", inputs)

    assert plan.calls == Range(10, 10)
    assert evaluation.calls["task"] == 10
    assert plan.tokens.low <= sum(evaluation.tokens.values()) <= plan.tokens.high


def test_a_plan_has_minutes_only_if_an_endpoint_is_asked() -> None:
    """Ten calls of an endpoint take between some seconds and a few minutes.

    The offline engine answers by rules, which takes no time to speak of.
    """
    offline = plan_evaluate("turn-rag", with_options(SMALL, lm="offline", test=10))
    at_endpoint = plan_evaluate("turn-rag", with_options(SMALL, lm="openai/gpt-4.1-mini", test=10))

    assert offline.minutes is None
    assert at_endpoint.minutes is not None
    assert 0 < at_endpoint.minutes.low < 1
    assert at_endpoint.minutes.high > 0.1

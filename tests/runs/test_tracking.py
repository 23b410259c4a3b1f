"""What is logged in MLflow: one run per command, its traces, data and prompts, whatever happens.

MLflow is a library that keeps a record of experiments in a store, for users to look at. The record
of a run has parameters, metrics, files (artifacts), and traces of the questions.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import filelock  # noqa: F401 (nothing can be imported within `read_only`)
import pytest
from mempiler.errors import UserError
from mempiler.records import Failure
from mempiler.runs.evaluate import run_evaluate
from mempiler.runs.results import Evaluation
from mempiler.runs.tracking import store
from mempiler.runs.tracking.store import artifact_location, client, tracking_uri, use_tracking_store
from mempiler.runs.tracking.tracker import Tracker

from ..command_line import run_cli
from ..conftest import read_only, tracking_in_mlflow, within
from ..run_inputs import run_inputs
from .evaluations import evaluation, refusal, row

UNREADABLE_ANSWER = Failure(kind="parse", where="q0", message="no field")
"""The failure of a question whose answer could not be read."""


def evaluation_of_three_questions() -> Evaluation:
    """Return an evaluation in which the first question failed, and the second one is right."""
    rows = [
        row("q0", score=0, failure=UNREADABLE_ANSWER),
        row("q1", score=1),
        row("q2", score=0),
    ]
    return evaluation(rows, benchmark="jsonl")


def logged_metrics(logged_evaluation: Evaluation) -> dict[str, float]:
    """Log an evaluation in an MLflow run of its own; return the metrics that the run has then."""
    with Tracker("test-metrics", {"command": "evaluate"}) as tracker:
        tracker.log_evaluation("evaluation", logged_evaluation)
    return client().get_run(tracker.run_id).data.metrics


def download(run_id: str, artifact: str, folder: Path) -> str:
    """Return the text of an artifact of a run."""
    return Path(client().download_artifacts(run_id, artifact, str(folder))).read_text()


LOGGED_PARAMETERS = {"lm": "offline", "long": "x" * 9000, "nothing": None}


@pytest.fixture(scope="module")
def logged_run() -> Any:
    """An MLflow run with `LOGGED_PARAMETERS` and an evaluation of the questions q0, q1 and q2.

    The answer to q0 could not be read.
    """
    with Tracker("test-evaluation", {"command": "evaluate"}) as tracker:
        tracker.log_params(LOGGED_PARAMETERS)
        tracker.log_evaluation("evaluation", evaluation_of_three_questions())
    return client().get_run(tracker.run_id)


def test_a_run_has_tags_of_its_command_program_and_user(logged_run: Any) -> None:
    tags = logged_run.data.tags

    assert tags["command"] == "evaluate"
    assert tags["mlflow.source.name"] == "mempiler"
    assert tags["mlflow.user"]


def test_a_run_has_its_parameters_as_far_as_mlflow_takes_them(logged_run: Any) -> None:
    """MLflow takes no value with more than 6,000 characters."""
    parameters = logged_run.data.params

    assert parameters["lm"] == LOGGED_PARAMETERS["lm"]
    assert parameters["long"] == "x" * 6000


def test_the_scores_of_an_evaluation_are_logged_as_metrics() -> None:
    rows = [
        row("q0", category="single hop", score=0, failure=UNREADABLE_ANSWER),
        row("q1", category="single hop", score=1),
        row("q2", category="multi hop", score=0),
    ]

    metrics = logged_metrics(evaluation(rows))

    assert metrics["evaluation.n"] == 3
    assert metrics["evaluation.failures"] == 1
    assert metrics["evaluation.score"] == pytest.approx(1 / 3)
    assert metrics["evaluation.score_single_hop"] == 1 / 2
    assert metrics["evaluation.score_multi_hop"] == 0
    # The limits of the confidence interval.
    assert metrics["evaluation.score_low"] <= 1 / 3 <= metrics["evaluation.score_high"]


def test_the_recall_of_an_evaluation_is_logged_as_a_metric() -> None:
    """A metric of MLflow has no "@" in its name, so `recall@5` is called `recall_at_5`."""
    rows = [
        row("q0", recall={"recall@5": 1.0}),
        row("q1", recall={"recall@5": 0.0}),
    ]

    metrics = logged_metrics(evaluation(rows))

    assert metrics["evaluation.recall_at_5"] == 1 / 2


def test_the_usage_of_an_evaluation_is_logged_as_metrics() -> None:
    """Calls are logged for each role of a model, and in all."""
    logged_evaluation = evaluation(
        [row("q0")],
        calls={"task": 3, "prompt": 0, "judge": 2, "cached": 0},
        tokens={"input": 1200, "output": 34},
        cost=0.5,
    )

    metrics = logged_metrics(logged_evaluation)

    assert metrics["evaluation.calls_task"] == 3
    assert metrics["evaluation.calls_judge"] == 2
    assert metrics["evaluation.calls"] == 3 + 2
    assert metrics["evaluation.tokens"] == 1200 + 34
    assert metrics["evaluation.cost"] == 0.5


def test_a_cost_that_is_not_known_is_not_logged() -> None:
    metrics = logged_metrics(evaluation([row("q0")], cost=None))

    assert "evaluation.cost" not in metrics


def test_an_evaluation_is_logged_with_its_rows_and_a_summary(
    logged_run: Any, tmp_path: Path
) -> None:
    """The evaluation has the questions q0, q1 and q2. The answer to q0 could not be read."""
    rows_text = download(logged_run.info.run_id, "evaluation_rows.jsonl", tmp_path)

    rows = [json.loads(line) for line in rows_text.splitlines()]
    assert [row["id"] for row in rows] == ["q0", "q1", "q2"]
    assert rows[0]["failure"]["kind"] == "parse"
    summary = download(logged_run.info.run_id, "evaluation.json", tmp_path)
    assert json.loads(summary)["n"] == 3


@pytest.mark.parametrize("uri", ["nowhere://x", "sqlite:////proc/none/x.db"])
def test_a_store_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """`MLFLOW_TRACKING_URI` names the store. It is opened when a run begins."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tracker = Tracker("test-wrong-store")

    message = refusal(tracker.__enter__)

    assert uri in message


def warnings_of_mempiler(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of Mempiler itself, without those of libraries."""
    return [record.getMessage() for record in caplog.records if record.name == "mempiler"]


@pytest.mark.parametrize("call", ["log_batch", "log_text", "log_artifact", "log_artifacts"])
def test_a_store_that_is_lost_during_a_run_costs_one_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
) -> None:
    """The run goes on without its record.

    After the first failure the store is not asked for anything, not even to end the run.
    """
    (tmp_path / "file.txt").write_text("x")
    lost_store = Mock(side_effect=OSError("connection\nlost"))

    with caplog.at_level(logging.WARNING, "mempiler"), Tracker("test-failing") as tracker:
        monkeypatch.setattr(f"mlflow.MlflowClient.{call}", lost_store)
        monkeypatch.setattr("mlflow.MlflowClient.set_terminated", lost_store)
        tracker.log_params({"lm": "offline"})
        tracker.log_evaluation("after", evaluation_of_three_questions())
        tracker.log_file(tmp_path / "file.txt")
        tracker.log_folder(tmp_path, "program")

    assert lost_store.call_count == 1
    (warning,) = warnings_of_mempiler(caplog)
    assert warning.startswith(f"mempiler: MLflow store {tracking_uri()}: ")
    assert "connection lost; the results are in the run's folder" in warning


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        pytest.param(
            "sqlite+pysqlite:////srv/tracking/mlflow.db?timeout=5",
            "file:///srv/tracking/mlartifacts",
            id="beside a database file",
        ),
        pytest.param(
            "sqlite:///mine.db",
            "file://{working_folder}/mlartifacts",
            id="beside a database file in the working folder",
        ),
        pytest.param(
            "postgresql+psycopg://u@host/db",
            "file://{working_folder}/results/mlartifacts",
            id="in the results folder, since this database is no file",
        ),
        pytest.param("http://mlflow:5000", None, id="the server decides"),
    ],
)
def test_the_place_of_files_depends_on_where_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, location: str | None
) -> None:
    """Artifacts are the files that MLflow keeps of runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "results"))
    expected = None if location is None else location.format(working_folder=tmp_path)

    assert artifact_location(uri) == expected


def test_the_store_is_in_the_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the default: no MLFLOW_TRACKING_URI names another store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "results"))

    assert tracking_uri() == f"sqlite:///{tmp_path}/results/mlflow.db"


def test_without_a_results_folder_the_store_is_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MEMPILER_HOME")

    assert tracking_uri() == f"sqlite:///{tmp_path}/runs/local/mlflow.db"


class SlowDatabase:
    """The file of a tracking store, whose tables take a while to create."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mlflow.db"
        self._endless_creation = folder / "endless"
        self._creation_log = folder / "creations"

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def creation_count(self) -> int:
        """How often a process has begun to create the tables."""
        return len(self._creation_log.read_text())

    def let_creation_be_endless(self, is_endless: bool) -> None:
        """Decide whether the tables are never complete from now on."""
        if is_endless:
            self._endless_creation.touch()
        else:
            self._endless_creation.unlink()

    def create_tables(self, new_path: Path) -> None:
        """Take the place of MLflow, which creates its tables in some sixty steps."""
        with self._creation_log.open("a") as log:
            log.write("x")
        new_path.write_text("half")
        while self._endless_creation.exists():
            time.sleep(0.01)
        time.sleep(0.2)
        new_path.write_text("complete")

    def create_in_a_process(self) -> Any:
        """Start a process that creates the database; it inherits what this one has patched."""
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=store.create_database, args=(self.uri,))
        process.start()
        return process

    def half_made_files(self) -> list[Path]:
        """Return the temporary files of processes that create it."""
        return list(self.path.parent.glob(".mlflow-*/mlflow.db"))


@pytest.fixture
def slow_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDatabase:
    """A database that is not there yet, and takes a while to create."""
    database = SlowDatabase(tmp_path)
    monkeypatch.setattr(store, "create_tables", database.create_tables)
    return database


def test_a_process_that_is_killed_while_it_creates_the_database_leaves_nothing(
    slow_database: SlowDatabase,
) -> None:
    """The next process creates the database from the beginning, and removes the half-made one."""
    slow_database.let_creation_be_endless(True)
    process = slow_database.create_in_a_process()
    assert within(20, slow_database.half_made_files)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not slow_database.path.exists()

    slow_database.let_creation_be_endless(False)
    store.create_database(slow_database.uri)

    assert slow_database.path.read_text() == "complete"
    assert slow_database.half_made_files() == []


def test_of_three_processes_that_need_the_database_only_one_creates_it(
    slow_database: SlowDatabase,
) -> None:
    """All three need it before it is there."""
    processes = [slow_database.create_in_a_process() for _ in range(3)]
    for process in processes:
        process.join(timeout=30)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert slow_database.creation_count == 1


def test_a_store_in_a_folder_that_cannot_be_written_is_refused_in_one_line(
    open_folder: Path,
) -> None:
    uri = f"sqlite:///{open_folder}/mlflow.db"
    message = r"^MLflow store sqlite:.*: cannot be made: Permission denied$"
    with read_only(open_folder), pytest.raises(UserError, match=message):
        store.create_database(uri)


# Each of these asks six test questions.
SIZES = ["--train", "6", "--dev", "4", "--test", "6"]
EVALUATE = ["evaluate", "turn-rag", "--benchmark", "locomo", "--split", "test", *SIZES]
COMPILE = ["compile", "turn-rag", "--benchmark", "locomo", "--optimizer", "knn", *SIZES]


def logged_command(*words: str) -> str:
    """Run a command with offline models; return the id of its MLflow run."""
    _, output, _ = run_cli(*words, "--embedder", "offline", "--json")
    return json.loads(output)["run_id"]


@dataclass(frozen=True)
class TrackedRuns:
    """The ids of three runs in an experiment of their own, and a client of their store.

    The first two evaluate the program Turn RAG. The last one compiles it: it adds demos to the
    prompt, which are examples for the model, and evaluates the program before and after.
    """

    evaluated_with_three_traces: str
    evaluated_without_traces: str
    compiled: str
    mlflow: Any
    experiment_id: str

    @property
    def run_ids(self) -> list[str]:
        return [self.evaluated_with_three_traces, self.evaluated_without_traces, self.compiled]

    def traces(self, run_id: str) -> list[Any]:
        """Return the traces of a run."""
        condition = f"attributes.run_id = '{run_id}'"
        return list(self.mlflow.search_traces([self.experiment_id], filter_string=condition))

    def rows(self, run_id: str, prefix: str) -> list[dict[str, Any]]:
        """Return the rows of a run's evaluation."""
        artifacts = Path(self.mlflow.get_run(run_id).info.artifact_uri.removeprefix("file://"))
        lines = (artifacts / f"{prefix}_rows.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def linked_prompts(self, run_id: str) -> list[tuple[str, str]]:
        """Return name and version of each prompt that a run is linked to, because it used it."""
        tags = self.mlflow.get_run(run_id).data.tags
        prompts = json.loads(tags["mlflow.linkedPrompts"])
        return [(prompt["name"], prompt["version"]) for prompt in prompts]


@pytest.fixture(scope="module")
def runs() -> Iterator[TrackedRuns]:
    """Two evaluations, with and without traces, and a compile with all traces."""
    with tracking_in_mlflow(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "tracked")
        evaluated_with_three_traces = logged_command(*EVALUATE, "--traces", "3")
        evaluated_without_traces = logged_command(*EVALUATE, "--traces", "none")
        compiled = logged_command(*COMPILE, "--force", "--traces", "all")
        mlflow = client()
        yield TrackedRuns(
            evaluated_with_three_traces=evaluated_with_three_traces,
            evaluated_without_traces=evaluated_without_traces,
            compiled=compiled,
            mlflow=mlflow,
            experiment_id=mlflow.get_experiment_by_name("tracked").experiment_id,
        )


class Trace:
    """The trace of one question: its steps, which MLflow calls spans, by their names."""

    def __init__(self, mlflow_trace: Any) -> None:
        self.info = mlflow_trace.info
        self.spans: dict[str, Any] = {span.name: span for span in mlflow_trace.data.spans}

    @property
    def question(self) -> Any:
        """The step that contains all others."""
        return self.spans["question"]

    @property
    def prompt(self) -> str:
        """The last message that the model was sent."""
        return self.spans["task.answer"].inputs["messages"][-1]["content"]

    @property
    def model_output(self) -> str:
        """What the model answered."""
        return self.spans["task.answer"].outputs["choices"][0]["message"]["content"]

    @property
    def first_recalled_line(self) -> str:
        """The first entry of the memory that was recalled."""
        return self.spans["recall"].outputs[0]["page_content"]

    @property
    def feedback(self) -> dict[str, Any]:
        """The values by which the answer was assessed, by their names."""
        values: dict[str, Any] = {}
        for assessment in self.info.assessments:
            if assessment.feedback:
                values[assessment.name] = assessment.feedback.value
        return values

    @property
    def expected_response(self) -> str:
        """The answer that was expected."""
        (expectation,) = [
            assessment.expectation
            for assessment in self.info.assessments
            if assessment.name == "expected_response"
        ]
        return expectation.value


@pytest.fixture
def traces(runs: TrackedRuns) -> list[Trace]:
    """The six traces of the compile."""
    traces = [Trace(mlflow_trace) for mlflow_trace in runs.traces(runs.compiled)]
    assert len(traces) == 6
    return traces


def test_a_run_has_as_many_traces_as_the_option_says(runs: TrackedRuns) -> None:
    """Each of the runs asks six test questions. A trace is of one question."""
    assert len(runs.traces(runs.evaluated_with_three_traces)) == 3  # --traces 3
    assert len(runs.traces(runs.evaluated_without_traces)) == 0  # --traces none
    assert len(runs.traces(runs.compiled)) == 6  # --traces all


def test_a_question_consists_of_four_steps_that_follow_one_another(traces: list[Trace]) -> None:
    for trace in traces:
        question = trace.question
        steps = [trace.spans[name] for name in ("remember", "recall", "answer", "score")]

        assert question.parent_id is None
        assert {step.parent_id for step in steps} == {question.span_id}
        assert steps[0].start_time_ns == question.start_time_ns
        for step, next_step in pairwise(steps):
            assert step.end_time_ns == next_step.start_time_ns
        assert steps[-1].end_time_ns == question.end_time_ns


def test_the_step_that_answers_contains_the_call_of_the_model(traces: list[Trace]) -> None:
    for trace in traces:
        answer = trace.spans["answer"]
        call = trace.spans["task.answer"]

        assert call.parent_id == answer.span_id
        assert answer.start_time_ns <= call.start_time_ns <= call.end_time_ns
        assert call.end_time_ns <= trace.question.end_time_ns


def test_a_trace_shows_question_recalled_entries_prompt_and_answer(traces: list[Trace]) -> None:
    for trace in traces:
        assert trace.question.inputs["question"] in trace.prompt
        assert trace.first_recalled_line in trace.prompt
        assert trace.question.outputs in trace.model_output


def test_a_trace_has_the_scores_of_its_question(runs: TrackedRuns, traces: list[Trace]) -> None:
    """An answer is called right if it scores at least one half."""
    rows = {row["id"]: row for row in runs.rows(runs.compiled, "after")}

    for trace in traces:
        row = rows[trace.question.inputs["id"]]
        assert trace.feedback == {
            "right": row["score"] >= 0.5,
            "score": row["score"],
            **row["parts"],
            "evidence_recall": pytest.approx(row["recall"]["shown"]),
        }


def test_a_trace_has_the_gold_answer_of_its_question(
    runs: TrackedRuns, traces: list[Trace]
) -> None:
    rows = {row["id"]: row for row in runs.rows(runs.compiled, "after")}

    for trace in traces:
        assert trace.expected_response == rows[trace.question.inputs["id"]]["gold"]


def test_the_questions_are_one_dataset_that_all_runs_are_linked_to(runs: TrackedRuns) -> None:
    """The runs ask the same six test questions."""
    rows_of_compile = runs.rows(runs.compiled, "after")
    rows_of_evaluation = runs.rows(runs.evaluated_with_three_traces, "evaluation")
    question_ids = {row["id"] for row in rows_of_compile + rows_of_evaluation}

    (dataset,) = runs.mlflow.search_datasets([runs.experiment_id])

    assert dataset.name.split(".")[0] == "locomo"
    assert json.loads(dataset.profile)["num_records"] == len(question_ids)
    assert dataset.tags["benchmark"] == "locomo"
    assert dataset.tags["sample"] == "True"
    for run_id in runs.run_ids:
        (link,) = runs.mlflow.get_run(run_id).inputs.dataset_inputs
        assert json.loads(link.dataset.source) == {"dataset_id": dataset.dataset_id}


NAME_OF_ANSWER_PROMPT = "mempiler.turn-rag.locomo.task.answer"
"""The prompt by which Turn RAG answers questions of LoCoMo. MLflow keeps versions of it."""


def test_a_compile_makes_a_new_version_of_the_prompt_that_it_changed(runs: TrackedRuns) -> None:
    """A compile calls the version before it "start", and the version that it made "best".

    It has added demos to the prompt, which are further messages. The last message asks the
    question.
    """
    start = runs.mlflow.get_prompt_version_by_alias(NAME_OF_ANSWER_PROMPT, "start")
    best = runs.mlflow.get_prompt_version_by_alias(NAME_OF_ANSWER_PROMPT, "best")

    assert start.version < best.version
    assert len(start.template) < len(best.template)
    assert start.template[-1]["content"].count("{{question}}") == 1


def test_an_evaluation_is_linked_to_the_version_of_the_prompt_that_it_used(
    runs: TrackedRuns,
) -> None:
    start = runs.mlflow.get_prompt_version_by_alias(NAME_OF_ANSWER_PROMPT, "start")

    links = runs.linked_prompts(runs.evaluated_with_three_traces)

    assert links == [(NAME_OF_ANSWER_PROMPT, str(start.version))]


def test_a_compile_is_linked_to_the_versions_of_the_prompt_before_and_after(
    runs: TrackedRuns,
) -> None:
    start = runs.mlflow.get_prompt_version_by_alias(NAME_OF_ANSWER_PROMPT, "start")
    best = runs.mlflow.get_prompt_version_by_alias(NAME_OF_ANSWER_PROMPT, "best")

    links = runs.linked_prompts(runs.compiled)

    assert links == [
        (NAME_OF_ANSWER_PROMPT, str(start.version)),
        (NAME_OF_ANSWER_PROMPT, str(best.version)),
    ]


@pytest.mark.usefixtures("mlflow_tracking")
@pytest.mark.parametrize("call", ["create_dataset", "get_prompt"])
def test_a_store_without_datasets_or_prompts_costs_a_run_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """All else of the run is recorded."""
    unsupported = Mock(side_effect=NotImplementedError(f"{call} is not supported"))
    monkeypatch.setattr(f"mlflow.MlflowClient.{call}", unsupported)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", f"without-{call}")

    with caplog.at_level(logging.WARNING, "mempiler"):
        evaluated = run_evaluate("turn-rag", run_inputs(benchmark="locomo", test=3), "test")

    (warning,) = warnings_of_mempiler(caplog)
    assert f"MLflow store {tracking_uri()}: {call} is not supported; " in warning
    run = client().get_run(str(evaluated.run_id))
    assert run.info.status == "FINISHED"
    assert run.data.metrics["evaluation.n"] == evaluated.n


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_run_leaves_neither_key_nor_address_in_its_store(
    stub: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The store keeps data and traces of three questions, but not how their model was asked."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    server = stub()
    inputs = run_inputs(
        benchmark="locomo", test=3, lm=server.model, api_base=server.url, traces=None
    )

    evaluated = run_evaluate("turn-rag", inputs, "test")

    run = client().get_run(str(evaluated.run_id))
    assert run.inputs.dataset_inputs
    assert len(client().search_traces([run.info.experiment_id])) == 3
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".db", ".json", ".jsonl")]
    assert len(files) > 2
    for path in files:
        content = path.read_bytes()
        assert b"sk-very-secret" not in content
        assert server.url.encode() not in content


@pytest.mark.usefixtures("mlflow_tracking")
def test_a_tracked_run_changes_neither_the_environment_nor_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    run_evaluate("turn-rag", run_inputs(benchmark="locomo", test=3), "test")

    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("value", [None, "", "sqlite:///other.db"])
def test_the_variable_that_tells_mlflow_its_store_is_set_only_within_the_block(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """Afterwards it has the value that it had before. None means that it is not set."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if value is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", value)

    with use_tracking_store():
        assert os.environ["MLFLOW_TRACKING_URI"] == tracking_uri()

    assert os.environ.get("MLFLOW_TRACKING_URI") == value

"""Results in the forms of two public harnesses, AMB and OmniMemEval: written, and read again.

A harness runs benchmarks and publishes the results of many systems. If a run is written in the form
of a harness, its results can be published there. Published answers can be scored here, too.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.programs.external.program import build_external_program
from mempiler.records import Failure
from mempiler.runs.compare import FinishedRun
from mempiler.runs.exports.leaderboards import write_harness_results
from mempiler.runs.external import RecordedAnswers
from mempiler.runs.results import Evaluation
from mempiler.runs.scoring import score_questions

from .evaluations import evaluation, refusal, row


class SampleRun(NamedTuple):
    """A run on the bundled sample of a benchmark."""

    benchmark: Any
    run: FinishedRun


def sample_run(benchmark_name: str, **options: Any) -> SampleRun:
    """Return a run whose answers are by turns right, wrong and missing."""
    benchmark = load_benchmark(benchmark_name, **options)
    rows = []
    for number, example in enumerate(benchmark.examples):
        right_answer = str(example.answer)
        wrong_answer = "It is in Lisbon."
        no_answer = ""
        answer = (right_answer, wrong_answer, no_answer)[number % 3]
        failure = None if answer else Failure(kind="endpoint", where="", message="down")
        score = benchmark.score(example, dspy.Prediction(answer=answer)).value
        rows.append(
            row(
                str(example.id),
                score,
                question=example.question,
                gold=str(example.answer),
                answer=answer,
                failure=failure,
                group=benchmark.group(example),
                category=benchmark.category(example),
                in_headline=benchmark.in_headline(example),
                answering=0.5,
                search=2.0,
            )
        )
    scored = evaluation(rows, benchmark=benchmark_name)
    return SampleRun(benchmark, FinishedRun("a-run", scored, {}, {"options": options}))


def score_recorded_answers(path: Path, answers: RecordedAnswers, benchmark: Any) -> Evaluation:
    """Evaluate the answers of a file."""
    meter = Meter()
    examples = answers.attach_answers(benchmark, benchmark.examples)
    program = build_external_program(answers, path.name, benchmark.task)
    with dspy.context(lm=language_model(meter=meter)):
        return score_questions(program, benchmark, examples, meter)


@pytest.mark.parametrize("form", ["amb", "omnimemeval"])
@pytest.mark.parametrize(
    ("benchmark_name", "options", "missing_answers"),
    [
        ("locomo", {}, 24),
        ("longmemeval", {"metric": "f1"}, 4),
        ("beam", {"metric": "evidence"}, 4),
    ],
)
def test_a_run_that_is_written_and_read_again_has_its_answers_and_scores(
    benchmark_name: str, form: str, options: dict[str, str], missing_answers: int, tmp_path: Path
) -> None:
    """Questions outside the headline score are not written.

    So after reading they have no answer: 24 of LoCoMo's, which are those of category 5.
    """
    benchmark, run = sample_run(benchmark_name, **options)
    (path,) = write_harness_results(run, form, tmp_path / "results.json")
    # The harnesses publish compressed files.
    compressed = tmp_path / "results.json.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))

    answers = RecordedAnswers(compressed)
    evaluated = score_recorded_answers(compressed, answers, benchmark)

    written = {row.id: (row.answer, row.score) for row in run.evaluation.headline_rows}
    read_again = {row.id: (row.answer, row.score) for row in evaluated.headline_rows}
    assert written
    assert read_again == written
    question_count = len(benchmark.examples)
    note = f"; {missing_answers} of {question_count} questions have no answer there"
    assert answers.notes[0].endswith(note)


def test_results_for_amb_hold_the_scores(tmp_path: Path) -> None:
    """The run was on the bundled sample, searches took 2 ms, and no judge scored."""
    _, run = sample_run("locomo")

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    results = json.loads(path.read_text())
    assert results["accuracy"] == run.evaluation.score
    assert results["total_queries"] == run.evaluation.n
    assert results["split"] == "sample"
    assert results["avg_retrieve_time_ms"] == 2.0
    assert results["judge_llm"] is None


def test_results_for_amb_hold_the_answers(tmp_path: Path) -> None:
    """The first three answers of `sample_run` are right, wrong and missing."""
    benchmark, run = sample_run("locomo")

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    right, wrong, failed = json.loads(path.read_text())["results"][:3]
    assert right["query_id"] == "sample-1_q0"
    assert right["gold_answers"] == [benchmark.examples[0].answer]
    assert right["correct"] is True
    assert right["score"] == 1.0
    assert right["raw_response"] is None
    assert right["meta"] == {"sample_id": "sample-1", "category": "single-hop"}
    assert right["judge_reason"] == ""
    assert wrong["judge_reason"] == ""
    assert failed["judge_reason"] == "down"


def test_verdicts_of_a_judge_stand_beside_the_answers_of_omnimemeval(tmp_path: Path) -> None:
    """A judge is a model that says of an answer that it is right (1) or wrong (0).

    OmniMemEval keeps such verdicts in a second file.
    """
    _, run = sample_run("locomo")
    # The scores of a run may lie between 0 and 1; those of a judge do not.
    rows = []
    for answered in run.evaluation.rows:
        rows.append(answered.model_copy(update={"score": float(answered.right)}))
    judged = evaluation(rows, benchmark="locomo", judge="openai/x")

    files = write_harness_results(
        FinishedRun("a-run", judged, {}, {}), "omnimemeval", tmp_path / "x_responses.json"
    )

    assert [file.name for file in files] == ["x_responses.json", "x_judged.json"]
    responses_file, verdicts_file = files
    responses = json.loads(responses_file.read_text())["locomo_exp_user_0"]
    verdicts = json.loads(verdicts_file.read_text())["locomo_exp_user_0"]
    statuses = [response["status"] for response in responses[:3]]
    assert statuses == ["success", "success", "skipped"]
    assert responses[0]["category"] == 1
    # Answering took 500 ms, of which 2 ms were the search.
    assert responses[0]["response_duration_ms"] == 498.0
    judgments = [verdict["llm_judgments"]["judgment_1"] for verdict in verdicts[:2]]
    assert judgments == [True, False]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([1], "holds no results as amb or omnimemeval write them"),
        ({"results": [{"query": "What?"}]}, "result 1, field 'answer': is missing"),
        ({"a": [{"question": "What?", "answer": ""}, 3]}, "result 2: is 3, expected an object"),
        (
            {"results": [{"query": "What?", "answer": "x"}]},
            "none of its 1 answers is to a question that is asked",
        ),
    ],
)
def test_a_file_without_results_that_can_be_scored_is_refused(
    content: Any, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    locomo = load_benchmark("locomo")

    def read_answers() -> None:
        RecordedAnswers(path).attach_answers(locomo, locomo.examples)

    message = refusal(read_answers)

    assert problem in message


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    _, run = sample_run("locomo")
    path = tmp_path / "there"
    path.write_text("mine")

    message = refusal(write_harness_results, run, "amb", path)

    assert "there already; choose another name, or give --force" in message
    assert path.read_text() == "mine"


def test_an_existing_file_is_overwritten_if_that_is_allowed(tmp_path: Path) -> None:
    _, run = sample_run("locomo")
    path = tmp_path / "there"
    path.write_text("mine")

    files = write_harness_results(run, "amb", path, overwrite=True)

    assert files == [path]
    assert path.read_text() != "mine"


def test_a_run_whose_questions_are_not_in_the_benchmark_is_not_written(tmp_path: Path) -> None:
    """LoCoMo, the benchmark of this run, has no question `q1`."""
    run = FinishedRun("a-run", evaluation([row("q1")]), {}, {})

    message = refusal(write_harness_results, run, "amb", tmp_path / "amb.json")

    assert "1 questions of a-run are not in" in message
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_a_benchmark_that_the_harness_lacks_is_not_written(tmp_path: Path) -> None:
    _, run = sample_run("msc")

    message = refusal(write_harness_results, run, "omnimemeval", tmp_path / "results.json")

    assert "omnimemeval has no benchmark msc" in message
    assert list(tmp_path.iterdir()) == []

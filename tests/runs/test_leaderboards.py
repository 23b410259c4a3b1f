"""Results in the forms of two public harnesses, AMB and OmniMemEval: written, and read again.

A harness runs benchmarks and publishes the results of many systems. If a run is written in the form
of a harness, its results can be published there. Published answers can be scored here, too. "amb"
is agent-memory-benchmark.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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

WRONG_ANSWER = "It is in Madrid."
NO_ANSWER = ""


def finished_run(
    benchmark: Any,
    answers: Sequence[str],
    judge: str | None = None,
    options: Mapping[str, str] | None = None,
) -> FinishedRun:
    """Return a run with these answers to the first questions of a benchmark.

    Searching took 2 ms, and answering with the search 0.5 s. The endpoint failed for a question
    without an answer, with the message "down". If there is a judge, scores are 1 or 0. The options
    are those of the benchmark.
    """
    rows = []
    for example, answer in zip(benchmark.examples, answers, strict=False):
        failure = None
        if answer == NO_ANSWER:
            failure = Failure(kind="endpoint", where="", message="down")
        score = benchmark.score(example, dspy.Prediction(answer=answer)).value
        if judge is not None:
            score = round(score)
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
    scored = evaluation(rows, benchmark=benchmark.name, judge=judge)
    return FinishedRun("a-run", scored, conditions={}, settings={"options": options or {}})


def answers_by_turns(benchmark: Any) -> list[str]:
    """Return answers to all questions of a benchmark: by turns right, wrong and missing."""
    answers: list[str] = []
    for number, example in enumerate(benchmark.examples):
        right_answer = str(example.answer)
        answers.append((right_answer, WRONG_ANSWER, NO_ANSWER)[number % 3])
    return answers


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
    benchmark = load_benchmark(benchmark_name, **options)
    run = finished_run(benchmark, answers_by_turns(benchmark), options=options)
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
    """Two of four questions are answered rightly. The run is on the bundled sample of LoCoMo."""
    locomo = load_benchmark("locomo")
    first, second, *_ = [str(example.answer) for example in locomo.examples]
    run = finished_run(locomo, answers=[first, second, WRONG_ANSWER, NO_ANSWER])

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    results = json.loads(path.read_text())
    assert results["accuracy"] == 0.5
    assert results["total_queries"] == 4
    assert results["split"] == "sample"
    assert results["avg_retrieve_time_ms"] == 2.0
    # No judge scored.
    assert results["judge_llm"] is None


def test_results_for_amb_hold_the_answers(tmp_path: Path) -> None:
    """The run is on the first three questions of the bundled sample of LoCoMo, a benchmark."""
    locomo = load_benchmark("locomo")
    gold_answer = "Singing in a choir, celestial navigation, playing the accordion"
    partly_right_answer = "Eyelid"  # and wrist, is the answer to the third question
    run = finished_run(locomo, answers=[gold_answer, "It is in Madrid.", partly_right_answer])

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    right, wrong, partly_right = json.loads(path.read_text())["results"]
    assert right["query"] == "Which pastimes does Ingrid have besides her boat?"
    assert right["query_id"] == "sample-1_q0"
    assert right["meta"] == {"sample_id": "sample-1", "category": "single-hop"}
    assert right["gold_answers"] == [gold_answer]
    assert right["answer"] == gold_answer
    assert right["score"] == 1.0
    assert right["correct"] is True
    # Mempiler has nothing for this field.
    assert right["raw_response"] is None
    assert wrong["answer"] == "It is in Madrid."
    assert wrong["correct"] is False
    assert 0 < partly_right["score"] < 1


def test_results_for_amb_say_why_an_answer_is_missing(tmp_path: Path) -> None:
    """The endpoint failed with the message "down" at the question without an answer."""
    locomo = load_benchmark("locomo")
    run = finished_run(locomo, answers=["It is in Madrid.", NO_ANSWER])

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    answered, missing = json.loads(path.read_text())["results"]
    assert answered["judge_reason"] == ""
    assert missing["judge_reason"] == "down"


def test_answers_for_omnimemeval_have_their_status_category_and_time(tmp_path: Path) -> None:
    locomo = load_benchmark("locomo")
    gold_answer = "Singing in a choir, celestial navigation, playing the accordion"
    run = finished_run(locomo, answers=[gold_answer, "It is in Madrid.", NO_ANSWER])

    (path,) = write_harness_results(run, "omnimemeval", tmp_path / "x_responses.json")

    right, wrong, missing = json.loads(path.read_text())["locomo_exp_user_0"]
    assert right["status"] == "success"
    assert wrong["status"] == "success"
    assert missing["status"] == "skipped"
    assert right["category"] == 1
    # Answering took 500 ms, of which 2 ms were the search.
    assert right["response_duration_ms"] == 498.0


def test_verdicts_of_a_judge_stand_in_a_second_file_for_omnimemeval(tmp_path: Path) -> None:
    """A judge is a model that says of an answer that it is right (1) or wrong (0)."""
    locomo = load_benchmark("locomo")
    gold_answer = "Singing in a choir, celestial navigation, playing the accordion"
    run = finished_run(locomo, answers=[gold_answer, "It is in Madrid."], judge="openai/x")

    files = write_harness_results(run, "omnimemeval", tmp_path / "x_responses.json")

    assert [file.name for file in files] == ["x_responses.json", "x_judged.json"]
    _, verdicts_file = files
    right, wrong = json.loads(verdicts_file.read_text())["locomo_exp_user_0"]
    assert right["llm_judgments"]["judgment_1"] is True
    assert wrong["llm_judgments"]["judgment_1"] is False


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
    run = finished_run(load_benchmark("locomo"), answers=[WRONG_ANSWER])
    path = tmp_path / "there"
    path.write_text("mine")

    message = refusal(write_harness_results, run, "amb", path)

    assert "there already; choose another name, or give --force" in message
    assert path.read_text() == "mine"


def test_an_existing_file_is_overwritten_if_that_is_allowed(tmp_path: Path) -> None:
    run = finished_run(load_benchmark("locomo"), answers=[WRONG_ANSWER])
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
    run = finished_run(load_benchmark("msc"), answers=[WRONG_ANSWER])

    message = refusal(write_harness_results, run, "omnimemeval", tmp_path / "results.json")

    assert "omnimemeval has no benchmark msc" in message
    assert list(tmp_path.iterdir()) == []

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
    without an answer, with the message "down".

    Args:
        benchmark: The benchmark, whose metric scores the answers.
        answers: An answer to each of the first questions; `NO_ANSWER` for a failure.
        judge: The model that scored the answers by 1 or 0.
        options: The options of the benchmark.
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


def compress(file: Path) -> Path:
    """Compress a file, as the harnesses publish their results; return the compressed file."""
    compressed = file.with_suffix(".json.gz")
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    return compressed


def headline_answers(scored: Evaluation) -> dict[str, tuple[str, float]]:
    """Return the answer and the score of each question that counts for the score, by its id."""
    return {row.id: (row.answer, row.score) for row in scored.headline_rows}


@pytest.mark.parametrize("form", ["amb", "omnimemeval"])
@pytest.mark.parametrize(
    ("benchmark_name", "options"),
    [
        ("locomo", {}),
        ("longmemeval", {"metric": "f1"}),
        ("beam", {"metric": "evidence"}),
    ],
)
def test_a_run_that_is_written_for_a_harness_and_read_again_has_its_answers_and_scores(
    benchmark_name: str, form: str, options: dict[str, str], tmp_path: Path
) -> None:
    """Questions that do not count for the score are not written, so they have no answer there."""
    benchmark = load_benchmark(benchmark_name, **options)
    run = finished_run(benchmark, answers_by_turns(benchmark), options=options)
    (file,) = write_harness_results(run, form, tmp_path / "results.json")
    compressed = compress(file)

    answers = RecordedAnswers(compressed)
    evaluated = score_recorded_answers(compressed, answers, benchmark)

    assert headline_answers(evaluated)
    assert headline_answers(evaluated) == headline_answers(run.evaluation)
    total = len(benchmark.examples)
    missing = total - len(run.evaluation.headline_rows)
    assert missing > 0
    assert answers.notes[0].endswith(f"; {missing} of {total} questions have no answer there")


def test_results_for_amb_have_the_score_of_the_run(tmp_path: Path) -> None:
    """Two of the four answers are right. No judge has scored them."""
    locomo = load_benchmark("locomo")
    first, second, *_ = [str(example.answer) for example in locomo.examples]
    run = finished_run(locomo, answers=[first, second, WRONG_ANSWER, NO_ANSWER])

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    results = json.loads(path.read_text())
    assert results["accuracy"] == 0.5
    assert results["total_queries"] == 4
    assert results["split"] == "sample"
    assert results["avg_retrieve_time_ms"] == 2.0
    assert results["judge_llm"] is None


GOLD_ANSWER = "Singing in a choir, celestial navigation, playing the accordion"
"""The right answer to the first question of LoCoMo's sample."""


def test_results_for_amb_have_the_answers_with_their_questions(tmp_path: Path) -> None:
    """The answers are right, wrong, and half right: LoCoMo's third answer is eyelid and wrist."""
    run = finished_run(
        load_benchmark("locomo"), answers=[GOLD_ANSWER, "It is in Madrid.", "Eyelid"]
    )

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    right, wrong, half_right = json.loads(path.read_text())["results"]
    assert right["query"] == "Which pastimes does Ingrid have besides her boat?"
    assert right["query_id"] == "sample-1_q0"
    assert right["meta"] == {"sample_id": "sample-1", "category": "single-hop"}
    assert right["gold_answers"] == [GOLD_ANSWER]
    assert right["answer"] == GOLD_ANSWER
    assert right["score"] == 1.0
    assert right["correct"] is True
    # Mempiler has nothing for this field.
    assert right["raw_response"] is None
    assert wrong["correct"] is False
    assert 0 < half_right["score"] < 1


def test_results_for_amb_say_why_an_answer_is_missing(tmp_path: Path) -> None:
    """The endpoint failed with the message "down" at the question without an answer."""
    locomo = load_benchmark("locomo")
    run = finished_run(locomo, answers=["It is in Madrid.", NO_ANSWER])

    (path,) = write_harness_results(run, "amb", tmp_path / "amb.json")

    answered, missing = json.loads(path.read_text())["results"]
    assert answered["judge_reason"] == ""
    assert missing["judge_reason"] == "down"


def test_answers_for_omnimemeval_have_their_status_category_and_time(tmp_path: Path) -> None:
    """Answering took 500 ms, of which 2 ms were the search."""
    run = finished_run(
        load_benchmark("locomo"), answers=[GOLD_ANSWER, "It is in Madrid.", NO_ANSWER]
    )

    (path,) = write_harness_results(run, "omnimemeval", tmp_path / "x_responses.json")

    right, wrong, missing = json.loads(path.read_text())["locomo_exp_user_0"]
    assert right["status"] == "success"
    assert wrong["status"] == "success"
    assert missing["status"] == "skipped"
    assert right["category"] == 1
    assert right["response_duration_ms"] == 500.0 - 2.0


def test_verdicts_of_a_judge_are_in_a_second_file_for_omnimemeval(tmp_path: Path) -> None:
    """A judge is a model that says of an answer that it is right or wrong."""
    run = finished_run(
        load_benchmark("locomo"), answers=[GOLD_ANSWER, "It is in Madrid."], judge="openai/x"
    )

    files = write_harness_results(run, "omnimemeval", tmp_path / "x_responses.json")

    assert [file.name for file in files] == ["x_responses.json", "x_judged.json"]
    _, verdicts_file = files
    right, wrong = json.loads(verdicts_file.read_text())["locomo_exp_user_0"]
    assert right["llm_judgments"]["judgment_1"] is True
    assert wrong["llm_judgments"]["judgment_1"] is False


def attach_answers(path: Path) -> None:
    """Read the results in a file, as answers to the questions of LoCoMo's sample."""
    locomo = load_benchmark("locomo")
    RecordedAnswers(path).attach_answers(locomo, locomo.examples)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param([1], "holds no results as amb or omnimemeval write them", id="another form"),
        pytest.param(
            {"results": [{"query": "What?"}]},
            "result 1, field 'answer': is missing",
            id="a result without an answer",
        ),
        pytest.param(
            {"a": [{"question": "What?", "answer": ""}, 3]},
            "result 2: is 3, expected an object",
            id="a number in place of a result",
        ),
        pytest.param(
            {"results": [{"query": "What?", "answer": "x"}]},
            "none of its 1 answers is to a question that is asked",
            id="an answer to another question",
        ),
    ],
)
def test_a_file_whose_results_cannot_be_scored_is_refused(
    content: Any, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))

    message = refusal(attach_answers, path)

    assert problem in message


def test_results_do_not_overwrite_an_existing_file(tmp_path: Path) -> None:
    run = finished_run(load_benchmark("locomo"), answers=[WRONG_ANSWER])
    path = tmp_path / "there"
    path.write_text("mine")

    message = refusal(write_harness_results, run, "amb", path)

    assert "there already; choose another name, or give --force" in message
    assert path.read_text() == "mine"


def test_results_overwrite_an_existing_file_if_the_user_allows_it(tmp_path: Path) -> None:
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

"""Results in the forms of two public harnesses: written of a run, they get the same scores as recorded answers."""

import gzip
import json
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark as load_benchmark
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.programs.external.program import build_external_program
from mempiler.records import Failure
from mempiler.runs.compare import FinishedRun
from mempiler.runs.scoring import score_questions
from mempiler.runs.exports.leaderboards import write_harness_results
from mempiler.runs.external import RecordedAnswers

from .evaluations import evaluation, refusal, row


def run(name: str, **options: Any) -> tuple[Any, FinishedRun]:
    """A run on a sample of which every third question is right, and every third failed."""
    asked, rows = load_benchmark(name, **options), []
    for n, example in enumerate(asked.examples):
        said = (str(example.answer), "It is in Lisbon.", "")[n % 3]
        about = {
            "question": example.question,
            "gold": str(example.answer),
            "answer": said,
            "search": 2.0,
        }
        about |= {
            "group": asked.group(example),
            "category": asked.category(example),
            "in_headline": asked.in_headline(example),
        }
        about["failure"] = None if said else Failure(kind="endpoint", where="", message="down")
        score = asked.score(example, dspy.Prediction(answer=said)).value
        rows.append(row(str(example.id), score, answering=0.5, **about))
    return asked, FinishedRun("a-run", evaluation(rows, benchmark=name), {}, {"options": options})


@pytest.mark.parametrize("form", ["amb", "omnimemeval"])
@pytest.mark.parametrize(
    ("name", "options", "left"),
    [("locomo", {}, 24), ("longmemeval", {"metric": "f1"}, 4), ("beam", {"metric": "evidence"}, 4)],
)
def test_a_run_that_is_written_and_read_again_has_its_scores(name, form, options, left, tmp_path):
    asked, ran = run(name, **options)
    (path,) = write_harness_results(ran, form, tmp_path / "results.json")
    packed = tmp_path / "results.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    thing, meter = RecordedAnswers(packed), Meter()
    examples = thing.attach_answers(asked, asked.examples)
    with dspy.context(lm=language_model(meter=meter)):
        found = score_questions(
            build_external_program(thing, packed.name, asked.task), asked, examples, meter
        )
    again, before = (
        {each.id: (each.answer, each.score) for each in one.headline_rows}
        for one in (found, ran.evaluation)
    )
    assert again == before
    assert thing.notes[0].endswith(
        f"; {left} of {len(asked.examples)} questions have no answer there"
    )


def test_results_for_amb_hold_the_scores_and_the_answers(tmp_path):
    asked, ran = run("locomo")
    found = json.loads(write_harness_results(ran, "amb", tmp_path / "amb.json")[0].read_text())
    assert found["accuracy"] == ran.evaluation.score
    assert found["total_queries"] == ran.evaluation.n
    assert found["split"] == "sample"
    assert found["avg_retrieve_time_ms"] == 2.0
    assert found["judge_llm"] is None
    one = found["results"][0]
    assert one["query_id"] == "sample-1_q0"
    assert one["gold_answers"] == [asked.examples[0].answer]
    assert one["correct"] is True
    assert one["score"] == 1.0
    assert one["raw_response"] is None
    assert one["meta"] == {"sample_id": "sample-1", "category": "single-hop"}
    assert [each["judge_reason"] for each in found["results"][:3]] == ["", "", "down"]


def test_verdicts_of_a_judge_stand_beside_the_answers_of_omnimemeval(tmp_path):
    rows = [
        each.model_copy(update={"score": float(each.right)})
        for each in run("locomo")[1].evaluation.rows
    ]
    judged = FinishedRun("a-run", evaluation(rows, benchmark="locomo", judge="openai/x"), {}, {})
    files = write_harness_results(judged, "omnimemeval", tmp_path / "x_responses.json")
    assert [file.name for file in files] == ["x_responses.json", "x_judged.json"]
    said, verdicts = (json.loads(file.read_text())["locomo_exp_user_0"] for file in files)
    assert [each["status"] for each in said[:3]] == ["success", "success", "skipped"]
    assert said[0]["category"] == 1
    assert said[0]["response_duration_ms"] == 498.0
    assert [each["llm_judgments"]["judgment_1"] for each in verdicts[:2]] == [True, False]


@pytest.mark.parametrize(
    ("content", "words"),
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
def test_a_file_that_is_no_such_results_is_one_line(content, words, tmp_path):
    path, asked = tmp_path / "r.json", load_benchmark("locomo")
    path.write_text(json.dumps(content))
    assert words in refusal(lambda: RecordedAnswers(path).attach_answers(asked, asked.examples))


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (there := tmp_path / "there").write_text("mine")
    ran, strange = run("locomo")[1], FinishedRun("a-run", evaluation([row("q1")]), {}, {})
    assert "there already; choose another name, or give --force" in refusal(
        write_harness_results, ran, "amb", there
    )
    assert "1 questions of a-run are not in" in refusal(
        write_harness_results, strange, "amb", there
    )
    assert "omnimemeval has no benchmark msc" in refusal(
        write_harness_results, run("msc")[1], "omnimemeval", there
    )
    assert there.read_text() == "mine"
    assert write_harness_results(ran, "amb", there, overwrite=True) == [there]

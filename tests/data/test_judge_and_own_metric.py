"""Metrics of `--on jsonl` beyond tokens: a judge that the runner sets, and a function of one's own."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMError
from mempiler.data.benchmark import Benchmark
from mempiler.data.jsonl.benchmark import JsonlBenchmark
from mempiler.data.judge import Judge, Verdict
from mempiler.errors import UserError
from mempiler.programs.adapter import adapter
from mempiler.signatures.judges import JudgeAnswer, judge_hash

ROW = {"messages": [{"role": "user", "content": "I moved to Lisbon."}], "question": "Where?", "answer": "Lisbon"}

METRICS = """
from dspy.utils.exceptions import LMRateLimitError

def city(example, prediction):
    return example.answer in prediction.answer

def coached(example, prediction):
    return 0.25, "Name the city, not the country."

def too_high(example, prediction):
    return 1.5

def not_a_number(example, prediction):
    return float("nan")

def words(example, prediction):
    return "good"

def no_feedback(example, prediction):
    return 0.5, 3

def broken(example, prediction):
    return prediction.no_such_field

def unreachable(example, prediction):
    raise LMRateLimitError("slow down")

class Nested:
    @staticmethod
    def always(example, prediction):
        return 1

number = 3
"""


class FixedJudge:
    """A judge with one opinion."""

    hash = "fixed"

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, question: str, gold_answer: str, answer: str) -> Verdict:
        self.asked.append((question, gold_answer, answer))
        return self.verdict


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads a benchmark of one question; `own_metrics` can be imported, and is forgotten afterwards."""
    (tmp_path / "own_metrics.py").write_text(METRICS)
    (tmp_path / "own_broken.py").write_text("raise OSError('no\\ndisk')")
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(ROW))
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda metric: JsonlBenchmark.load(path, metric=metric)
    for name in ("own_metrics", "own_broken"):
        sys.modules.pop(name, None)


def score(benchmark: Benchmark, answer: str) -> Any:
    return benchmark.score(benchmark.examples[0], dspy.Prediction(answer=answer))


@pytest.mark.parametrize(
    ("metric", "answer", "value", "feedback"),
    [
        ("own_metrics:city", "In Lisbon", 1.0, "Right: the answer says what the gold answer says."),
        ("own_metrics:city", "Portugal", 0.0, "Wrong: the gold answer is 'Lisbon'."),
        ("own_metrics:coached", "Portugal", 0.25, "Name the city, not the country."),
        ("own_metrics:Nested.always", "Portugal", 1.0, "Right: the answer says what the gold answer says."),
    ],
)
def test_a_function_of_ones_own_scores(load: Any, metric: str, answer: str, value: float, feedback: str) -> None:
    benchmark = load(metric)
    found = score(benchmark, answer)
    assert (found.value, found.feedback) == (value, feedback)
    assert set(found.parts) == {"f1", "exact", benchmark.scorer.title.rpartition(":")[2].rpartition(".")[2]}
    assert (benchmark.scorer.title, bool(benchmark.scorer.asked), benchmark.scorer.judge_hash) == (metric, False, None)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("no_such_module:city", "cannot be imported: ModuleNotFoundError: .*; is its folder on PYTHONPATH"),
        ("own_metrics:town", "cannot be imported: AttributeError"),
        ("own_broken:city", "cannot be imported: OSError: no disk"),
        ("own_metrics:number", "is 3, not a function"),
    ],
)
def test_a_metric_that_cannot_be_had_is_refused_in_one_line(load: Any, metric: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        load(metric)
    assert metric in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("too_high", "returned 1.5"),
        ("not_a_number", "returned nan"),
        ("words", "returned 'good'"),
        ("no_feedback", r"returned \(0.5, 3\)"),
        ("broken", "failed on '.*': AttributeError"),
    ],
)
def test_a_result_that_is_no_score_is_refused(load: Any, function: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        score(load(f"own_metrics:{function}"), "Lisbon")


def test_an_endpoint_failure_inside_a_metric_stays_one(load: Any) -> None:
    with pytest.raises(LMError):
        score(load("own_metrics:unreachable"), "Lisbon")


@pytest.mark.parametrize(
    ("verdict", "value", "feedback"),
    [
        (Verdict(True), 1.0, "Right: the answer says what the gold answer says."),
        (Verdict(False, "Another city."), 0.0, "Wrong: the gold answer is 'Lisbon'. The judge says: Another city."),
    ],
)
def test_the_judge_that_was_set_decides(load: Any, verdict: Verdict, value: float, feedback: str) -> None:
    benchmark = load("judge")
    judge = FixedJudge(verdict)
    benchmark = benchmark.bound(lambda kind: judge)
    found = score(benchmark, "Porto")
    assert (found.value, found.feedback) == (value, feedback)
    assert dict(found.parts) == {"f1": 0.0, "exact": 0.0, "judge": value}
    assert judge.asked == [("Where?", "Lisbon", "Porto")]
    assert benchmark.scorer.judge_hash == "fixed"


@pytest.mark.parametrize(
    ("said", "correct"),
    [
        ({"reasoning": "The same\ncity.", "verdict": "CORRECT"}, True),
        ({"reasoning": "Another city.", "verdict": "WRONG"}, False),
    ],
)
def test_a_judge_asks_its_own_model_outside_the_trace(scripted: Any, said: dict[str, str], correct: bool) -> None:
    task, model = scripted(lambda *call: {}), scripted(lambda *call: said)
    with dspy.context(lm=task, trace=[]):
        verdict = Judge(model, adapter())("Where?", "Lisbon", "In Lisbon")
        assert dspy.settings.trace == []
    assert verdict == Verdict(correct, " ".join(said["reasoning"].split()))
    assert (len(task.engine.prompts), len(model.engine.prompts)) == (0, 1)
    assert "In Lisbon" in model.engine.prompts[0][1]


def test_an_empty_answer_is_wrong_without_a_call(scripted: Any) -> None:
    model = scripted(lambda *call: {"verdict": "CORRECT"})
    assert Judge(model)("Where?", "Lisbon", " ").correct is False
    assert model.engine.prompts == []


def test_a_malformed_verdict_is_asked_for_once_more(scripted: Any) -> None:
    said = [{"reasoning": "", "verdict": "yes!"}, {"reasoning": "", "verdict": "CORRECT"}]
    assert Judge(scripted(lambda kind, text, n: said.pop(0)), adapter())("Where?", "Lisbon", "Lisbon").correct
    assert said == []


@pytest.mark.parametrize(
    "changed",
    [
        JudgeAnswer.with_instructions(JudgeAnswer.instructions + " Be kind."),
        JudgeAnswer.with_updated_fields("answer", desc="what was said"),
        JudgeAnswer.with_updated_fields("verdict", type_=str),
        JudgeAnswer.delete("reasoning"),
    ],
    ids=["instructions", "description", "type", "field"],
)
def test_the_hash_of_a_judge_changes_with_its_prompt(changed: type[dspy.Signature]) -> None:
    assert judge_hash(changed) != judge_hash(JudgeAnswer)
    assert len(judge_hash(changed)) == 64

"""Your own questions: the forms a line may have, shared histories, and a metric of one's own."""

import sys

import dspy
import pytest
from dspy.utils.exceptions import LMError
from mempiler.data.jsonl import JsonlBenchmark
from mempiler.errors import UserError

from .forms import CHAT, FORMS, load, write

OWN = {"items": [{"id": "D1", "turns": [{"id": "D1:1", "speaker": "user", "text": "I like tea."}]}]}
ROW = FORMS["jsonl"]["own.jsonl"][0]


def rows(folder, *changes):
    found = [{key: value for key, value in {**ROW, **change}.items() if value is not ...} for change in changes]
    return JsonlBenchmark.load(write(folder, {"own.jsonl": found}))


@pytest.mark.parametrize(
    ("columns", "turns"),
    [
        ({}, ["D1:1", "D1:2"]),
        ({"messages": [CHAT, CHAT]}, ["D1:1", "D1:2", "D2:1", "D2:2"]),
        ({"messages": ..., "history": OWN}, ["D1:1"]),
        ({"messages": ..., "history": CHAT}, ["D1:1", "D1:2"]),
    ],
)
def test_forms_of_the_past(tmp_path, columns, turns):
    assert list(rows(tmp_path, columns).examples[0].history.turns) == turns


def test_a_full_row_and_a_bare_one_that_is_named_by_its_past_and_line(tmp_path):
    full, bare = rows(
        tmp_path, {"evidence": ["D1:1"], "category": "taste", "id": 7, "user": "ada", "answer": "a\u2028b"}, {}
    ).examples
    assert set(full.inputs().keys()) == {"history", "question", "focus"}
    # A line separator inside a text does not cut the line.
    assert (full.id, full.category, full.answer) == ("7", "taste", "a\u2028b")
    assert (full.history.id, full.focus, full.evidence) == ("ada", ("D1:1",), ("D1:1",))
    assert bare.id == f"{bare.history.digest[:12]}:2"
    assert (bare.category, bare.focus) == ("all", ())


def test_equal_pasts_are_one_history_and_pasts_of_one_user_one_conversation(tmp_path):
    short = {"messages": CHAT[:1]}
    examples = rows(tmp_path, short, {"messages": ..., "history": OWN}, {}).examples
    assert examples[0].history is examples[1].history
    assert examples[0].history is not examples[2].history
    benchmark = rows(tmp_path, {"user": "ada"}, {"user": "ada", **short}, {"user": "bo"})
    assert [benchmark.group(example) for example in benchmark.examples] == ["ada", "ada", "bo"]


METRICS = """
from dspy.utils.exceptions import LMRateLimitError

def right(example, prediction):
    return example.answer in prediction.answer

def coached(example, prediction):
    return 0.25, "Name the drink."

def broken(example, prediction):
    return prediction.no_such_field

def unreachable(example, prediction):
    raise LMRateLimitError("slow down")

class Returns:
    nan = staticmethod(lambda example, prediction: float("nan"))
    no_feedback = staticmethod(lambda example, prediction: (0.5, 3))

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Loads a benchmark with a metric of `own_metrics`, which is forgotten afterwards; scores an answer."""
    (tmp_path / "own_metrics.py").write_text(METRICS)
    (tmp_path / "own_broken.py").write_text("raise OSError('no\\ndisk')")
    monkeypatch.syspath_prepend(tmp_path)

    def score(metric, answer="coffee"):
        benchmark = load(tmp_path, "jsonl", metric=metric)
        assert (benchmark.scorer.title, benchmark.scorer.judge_hash) == (metric, None)
        return benchmark.score(benchmark.examples[0], dspy.Prediction(answer=answer))

    yield score
    for name in ("own_metrics", "own_broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "answer", "value", "feedback"),
    [("right", "coffee", 0.0, "Wrong: the gold answer is 'tea'."), ("coached", "coffee", 0.25, "Name the drink.")],
)
def test_a_function_of_ones_own_scores(own, name, answer, value, feedback):
    found = own(f"own_metrics:{name}", answer)
    assert (found.value, found.feedback) == (value, feedback)
    assert set(found.parts) == {"f1", "exact", name.rpartition(".")[2]}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("no_such_module:city", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'$"),
        ("own_broken:city", "cannot be imported: OSError: no disk \\(own_broken.py:"),
        ("own_metrics:number", "is 3, not a function"),
        ("own_metrics:Returns.nan", "returned nan"),
        ("own_metrics:Returns.no_feedback", r"returned \(0.5, 3\)"),
        ("own_metrics:broken", "failed on '.*': AttributeError"),
    ],
)
def test_a_metric_that_cannot_be_had_or_gives_no_score_is_refused_in_one_line(own, metric, message):
    with pytest.raises(UserError, match=message) as refusal:
        own(metric)
    assert metric in str(refusal.value)


def test_an_endpoint_failure_inside_a_metric_stays_one(own):
    with pytest.raises(LMError):
        own("own_metrics:unreachable")

"""LongMemEval's released evaluation (eval_utils.py, evaluate_qa.py, print_qa_metrics.py) against ours."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from dspy import Prediction
from dspy.utils.exceptions import AdapterParseError
from mempiler.data.longmemeval import TYPES, LongMemEval, LongMemEvalJudge, dcg, retrieval_metrics
from mempiler.errors import DataError
from mempiler.programs.adapter import adapter
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row

Agrees = Callable[..., None]
RULES = {
    "every step": "plain",
    "one too many": "time",
    "newest state": "update",
    "rubric": "rubric",
    "cannot be answered": "abstention",
}
"""What the prompt of each of the five says, and the released name of it."""


@pytest.mark.vectors("longmemeval_metrics", "retrieval-[!r]*")
def test_sessions(case: dict[str, Any], agrees: Agrees) -> None:
    given = case["input"]
    found = retrieval_metrics(given["ranked"], given["gold"], given["sessions"], given["k"])
    agrees({name.partition("@")[0]: value for name, value in found.items()})


@pytest.mark.vectors("longmemeval_metrics", "turn2session-*")
def test_turns_as_sessions(case: dict[str, Any], agrees: Agrees) -> None:
    given = case["input"]
    ranked, gold, turns = (
        [id.partition("_")[0] for id in given[name]] for name in ("ranked_turns", "gold_turns", "turns")
    )
    found = retrieval_metrics(ranked, gold, turns, given["k"], turns=True)
    agrees({name.partition("@")[0]: value for name, value in found.items()})


@pytest.mark.vectors("longmemeval_metrics", "dcg-*")
def test_dcg(case: dict[str, Any], agrees: Agrees) -> None:
    agrees(dcg(case["input"]["relevances"], case["input"]["k"]))


@pytest.mark.vectors("longmemeval_metrics", "judge-single-*", "judge-multi-*", "judge-temporal-*", "judge-knowledge-*")
def test_the_prompt_of_a_question(case: dict[str, Any], agrees: Agrees, tmp_path: Path, scripted: Any) -> None:
    loaded = LongMemEval.load(written(tmp_path, case["input"]))
    lm, systems = scripted(lambda *call: {"verdict": "yes"}), list[str]()
    complete = lm.engine.complete
    lm.engine.complete = lambda request: (systems.append(str(request.system)), complete(request))[1]
    loaded = loaded.bound(lambda kind: kind(lm, adapter()))
    loaded.score(loaded.examples[0], Prediction(answer="In May."))
    # The rule of time comes with that of every step.
    agrees(next(name for rule, name in reversed(RULES.items()) if rule in systems[0]))


@pytest.mark.vectors("longmemeval_metrics", "judge-unknown-*")
def test_an_unknown_type_is_refused(case: dict[str, Any], agrees: Agrees, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="question_type"):
        LongMemEval.load(written(tmp_path, case["input"]))
    agrees(True, "error" in case["expected"])


@pytest.mark.vectors("longmemeval_metrics", "judge-reply-*")
def test_the_verdict_of_a_reply(case: dict[str, Any], agrees: Agrees, scripted: Any) -> None:
    lm = scripted(lambda *call: f"[[ ## verdict ## ]]\n{case['input']['reply']}")
    try:
        verdict = LongMemEvalJudge(lm, adapter())("multi-session", "How many?", "3", "Three.").correct
    except AdapterParseError:
        verdict = None
    agrees(verdict)


@pytest.mark.vectors("longmemeval_metrics", "sums-*")
def test_sums(case: dict[str, Any], agrees: Agrees) -> None:
    rows = [
        answered(row["question_id"], float(row["correct"]), category=row["question_type"])
        for row in case["input"]["rows"]
    ]
    sums = LongMemEval.load().scorer.aggregate(rows)
    types = evaluation(*rows, expected=TYPES).by_category()
    agrees(
        {
            "task_averaged": sums["task-averaged accuracy"],
            "overall": sums["overall accuracy"],
            "abstention": sums.get("abstention accuracy"),
            "by_type": {name: found["score"] for name, found in types.items()},
        }
    )


@pytest.mark.vectors("longmemeval_metrics", "retrieval-report-*")
def test_the_mean_of_a_retrieval_metric(case: dict[str, Any], agrees: Agrees) -> None:
    rows = [
        answered(row["question_id"], 0.0, recall={"recall_all@5": row["value"]})
        for row in case["input"]["recall_all_at_5"]
    ]
    agrees(evaluation(*rows).retrieval()["recall_all@5"])


def written(folder: Path, question: Mapping[str, str]) -> Path:
    """A file with one question."""
    said = {"role": "user", "content": "We moved in May.", "has_answer": True}
    row = {
        **question,
        "question": "When did we move?",
        "answer": "May",
        "question_date": "2023/04/10 (Mon) 23:07",
        "haystack_dates": ["2023/03/01 (Wed) 09:30"],
        "haystack_session_ids": ["answer_a"],
        "haystack_sessions": [[said]],
        "answer_session_ids": ["answer_a"],
    }
    path = folder / "longmemeval_oracle.json"
    path.write_text(json.dumps([row]), encoding="utf-8")
    return path


def answered(id: str, accuracy: float, **changes: Any) -> Row:
    """A question that was answered."""
    whole = {"group": id, "category": "multi-session", "counts": True, "question": "?", "gold": "", "answer": ""}
    found = {"score": accuracy, "parts": {"accuracy": accuracy}, "recall": {}, "sources": (), "seconds": 0.0}
    return Row(id=id, **{**whole, **found, **changes})


def evaluation(*rows: Row, expected: tuple[str, ...] = ()) -> Evaluation:
    """The rows as an evaluation."""
    return Evaluation(
        program="p",
        benchmark="longmemeval",
        lm="lm",
        embedder=None,
        comparable=False,
        rows=rows,
        calls={},
        tokens={},
        cost=None,
        write_failures=0,
        seconds=0.0,
        expected=expected,
    )

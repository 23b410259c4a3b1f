"""Traces of a run's questions in MLflow, made of what the run keeps, when it is known which answers are wrong.

    question ┬ remember   waiting for the memory                                what was asked to write it is not here
             ├ recall     entries as documents ┬ calls, by their time
             ├ answer                          ├
             └ score                           └ calls of judges
      scores, the gold answer and evidence as assessments

Nothing is traced while questions are asked: a few traces, wrong answers first, are worth the milliseconds that each of
them costs at the end. Texts are bounded as in the page of a run (`seen`).
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from .pages.reasons import REASONS, hit, reason
from .results import RECALL_AT, SHOWN, Evaluation, Row
from .seen import ANSWER, Asked, Moments, Seen, shortened
from .tracking_questions import EXPECTED
from .tracking_store import Store

TRACES = 20
"""Questions whose traces are logged, unless a run or the environment says otherwise."""
_PREVIEW = 900
"""Longest text in the table of traces."""
_AT_ONCE = 20
_LABEL = 200
"""Longest value of a tag."""


@dataclass(frozen=True)
class _Step:
    """A span: seconds are since the question began."""

    name: str
    kind: str
    start: float
    end: float
    inputs: Any
    outputs: Any
    attributes: Mapping[str, Any]
    error: str | None = None
    within: str | None = None
    """The step that it is a part of; None: the question."""


def default_traces() -> int | None:
    """What `MEMPILER_TRACES` says, or else `TRACES`."""
    return traces_in(os.environ.get("MEMPILER_TRACES") or str(TRACES))


def traces_in(text: str) -> int | None:
    """The number of questions that a text means; None for all of them.

    Raises:
        UserError: It is neither a number nor "all" nor "none".
    """
    if text == "all":
        return None
    if text != "none" and not text.isdecimal():
        raise UserError(f"traces of {text!r} questions: give a number, all or none")
    return 0 if text == "none" else int(text)


def sample(rows: Sequence[Row], most: int | None) -> list[Row]:
    """The questions whose traces are logged: wrong ones first, else in order.

    Args:
        rows: All of them.
        most: How many; None for all.
    """
    return sorted(rows, key=lambda row: row.right)[:most]


def keep_traces(store: Store, evaluation: Evaluation, most: int | None, phase: str, model: str | None = None) -> int:
    """Logs traces of questions with their assessments, linked to the run.

    Args:
        store: Where the run is.
        evaluation: What became of the questions.
        most: How many; None for all.
        phase: What the scores are called in the run.
        model: The logged model that answered.

    Returns:
        How many were logged.
    """
    chosen, tracking = sample(evaluation.rows, most), store.tracking
    for n in range(0, len(chosen), _AT_ONCE):
        made = [_trace(store, evaluation, row, phase, model) for row in chosen[n : n + _AT_ONCE]]
        for info, _ in made:
            tracking.start_trace(info)
        tracking.log_spans(store.experiment, [span for _, spans in made for span in spans])
    return len(chosen)


def _trace(store: Store, evaluation: Evaluation, row: Row, phase: str, model: str | None) -> tuple[Any, list[Any]]:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    seen, id = row.seen or Seen(), secrets.token_hex(16)
    moments = seen.moments or Moments(began=time.time() - row.seconds)
    question, answer = shortened(row.question, ANSWER), shortened(row.answer, ANSWER)
    error = None if row.failure is None else f"{row.failure.kind}: {shortened(row.failure.message, ANSWER)}"
    asked = {"question": question, "id": row.id}
    steps = list(_steps(evaluation, row, seen, moments))
    whole = _Step("question", "CHAIN", 0.0, row.seconds, asked, answer, {"cost": row.cost}, error)
    about = {"category": evaluation.names.get(row.category, row.category), "conversation": row.group, "phase": phase}
    info = TraceInfo(
        trace_id=f"tr-{id}",
        trace_location=TraceLocation.from_experiment_id(store.experiment),
        request_time=int(moments.began * 1000),
        state=TraceState.OK if error is None else TraceState.ERROR,
        request_preview=shortened(question, _PREVIEW),
        response_preview=shortened(answer, _PREVIEW),
        execution_duration=int(row.seconds * 1000),
        trace_metadata={"mlflow.sourceRun": store.run_id, **({"mlflow.modelId": model} if model else {})},
        tags={"mlflow.traceName": evaluation.program, **{key: value[:_LABEL] for key, value in about.items()}},
        assessments=list(_assessments(evaluation, row, seen)),
    )
    return info, _spans(id, moments.began, whole, steps)


def _steps(evaluation: Evaluation, row: Row, seen: Seen, moments: Moments) -> Iterator[_Step]:
    """What a question went through, as far as it is known when."""
    remembered = moments.remembered or 0.0
    recalled = remembered if moments.recalled is None else moments.recalled
    answered = row.seconds if moments.answered is None else moments.answered
    question = {"question": shortened(row.question, ANSWER)}
    if moments.remembered is not None:
        size = {"entries": row.stored, "bytes": row.disk}
        yield _Step("remember", "MEMORY", 0.0, remembered, {"conversation": row.group}, size, {})
    if moments.recalled is not None or seen.entries:
        yield _Step("recall", "RETRIEVER", remembered, recalled, question, _documents(seen), row.recall)
    yield _Step("answer", "CHAIN", recalled, answered, question, {"answer": shortened(row.answer, ANSWER)}, {})
    if moments.answered is not None:
        scored = {"score": row.score, **row.parts}
        yield _Step("score", "EVALUATOR", answered, row.seconds, {"gold": shortened(row.gold, ANSWER)}, scored, {})
    for call in seen.calls:
        judged = moments.answered is not None and call.at >= answered
        within = "score" if judged else "recall" if moments.recalled is not None and call.at < recalled else "answer"
        yield _call(call, within, evaluation.lm)


def _call(call: Asked, within: str, lm: str) -> _Step:
    usage = {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens}
    attributes: dict[str, Any] = {"outcome": call.outcome}
    if any(usage.values()):
        attributes["mlflow.chat.tokenUsage"] = {**usage, "total_tokens": sum(usage.values())}
    if within != "score":
        # By the name that MLflow has for it, it would look its price up, which takes seconds and is known already.
        attributes["model"] = lm
    messages = [{"role": role, "content": text} for role, text in call.messages]
    said = {"choices": [{"message": {"role": "assistant", "content": call.answer}}]}
    error = call.error if call.outcome == "lost" else None
    return _Step(
        call.predictor or "call",
        "CHAT_MODEL",
        call.at,
        call.at + call.seconds,
        {"messages": messages},
        said,
        attributes,
        error,
        within,
    )


def _documents(seen: Seen) -> list[dict[str, Any]]:
    """The recalled entries as MLflow shows documents."""
    return [
        {
            "page_content": each.line,
            "metadata": {
                "kind": each.kind,
                "sources": list(each.sources),
                "gold": bool(set(seen.evidence) & set(each.sources)),
            },
        }
        for each in seen.entries
    ]


def _assessments(evaluation: Evaluation, row: Row, seen: Seen) -> Iterator[Any]:
    """Scores, what became of the question, whether its evidence was recalled, and the gold answer."""
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    code = AssessmentSource(source_type="CODE", source_id="mempiler")
    judge = AssessmentSource(source_type="LLM_JUDGE", source_id=evaluation.judge) if evaluation.judge else code
    told = seen.feedback or None
    yield Feedback(name="right", value=row.right, source=judge, rationale=REASONS[reason(row)])
    yield Feedback(name="score", value=row.score, source=judge, rationale=told)
    for name, value in row.parts.items():
        yield Feedback(name=name, value=value, source=judge if "judge" in name else code)
    found = hit(row)
    if found:
        share = row.recall.get(SHOWN, row.recall.get(f"recall@{max(RECALL_AT)}"))
        yield Feedback(name="evidence_hit", value=found == "all", source=code, rationale=f"{found} of it was recalled")
        yield Feedback(name="evidence_recall", value=share, source=code)
    yield Expectation(name=EXPECTED, value=shortened(row.gold, ANSWER), source=code)


def _spans(trace: str, began: float, whole: _Step, steps: Sequence[_Step]) -> list[Any]:
    """The question and its steps as MLflow's spans."""
    root = secrets.token_hex(8)
    ids = {step.name: secrets.token_hex(8) for step in steps if step.within is None}
    found = [_span(trace, root, None, began, whole)]
    for step in steps:
        id, parent = (ids[step.name], root) if step.within is None else (secrets.token_hex(8), ids[step.within])
        found.append(_span(trace, id, parent, began, step))
    return found


def _span(trace: str, id: str, parent: str | None, began: float, step: _Step) -> Any:
    from mlflow.entities import Span

    named = {
        "mlflow.traceRequestId": f"tr-{trace}",
        "mlflow.spanType": step.kind,
        "mlflow.spanInputs": step.inputs,
        "mlflow.spanOutputs": step.outputs,
    }
    start, end = (int((began + seconds) * 1e9) for seconds in (step.start, max(step.start, step.end)))
    return Span.from_dict(
        {
            "trace_id": _encoded(trace),
            "span_id": _encoded(id),
            "parent_span_id": None if parent is None else _encoded(parent),
            "name": step.name,
            "start_time_unix_nano": start,
            "end_time_unix_nano": end,
            "events": [],
            "status": {"code": f"STATUS_CODE_{'OK' if step.error is None else 'ERROR'}", "message": step.error or ""},
            "attributes": {key: json.dumps(value) for key, value in {**named, **step.attributes}.items()},
            "links": [],
        }
    )


def _encoded(number: str) -> str:
    return base64.b64encode(bytes.fromhex(number)).decode()

"""Traces of a run's questions in MLflow, made of what the run keeps, when it is known which answers are wrong.

    question ┬ remember   waiting for the memory                                what was asked to write it is not here
             ├ recall     entries as documents ┬ calls, by their time
             ├ answer                          ├
             └ score                           └ calls of judges
      scores, the gold answer and evidence as assessments

Nothing is traced while questions are asked: a few traces, wrong answers first, are worth the milliseconds that each of
them costs at the end. Texts are bounded as in the page of a run (`seen`). Spans go to the store many at once: ended one
by one, as `mlflow.start_span` does it, a trace takes 200 ms on SQLite in place of 12.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from .results import Evaluation
from .rows import REASONS, RECALL_AT, SHOWN, Row
from .seen import ANSWER, Asked, Moments, Seen, shortened
from .tracking import Tracker, tracking_uri

TRACES = 20
"""Questions whose traces are logged, unless a run or the environment says otherwise."""
EXPECTED = "expected_response"
"""What MLflow calls a gold answer."""
_PREVIEW = 900
"""Longest text in the table of traces."""
_AT_ONCE = 20
_LABEL = 200
"""Longest value of a tag."""


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


def keep_traces(tracker: Tracker, evaluation: Evaluation, most: int | None, phase: str, model: str | None) -> None:
    """Logs traces of questions with their assessments, linked to the run.

    Args:
        tracker: The run.
        evaluation: What became of the questions.
        most: How many; None for all.
        phase: What the scores are called in the run.
        model: The logged model that answered.
    """
    from mlflow.tracing.client import TracingClient

    chosen, client = sample(evaluation.rows, most), TracingClient(tracking_uri())
    for n in range(0, len(chosen), _AT_ONCE):
        spans: list[Any] = []
        for row in chosen[n : n + _AT_ONCE]:
            traced = _question(evaluation, row)
            client.start_trace(_info(tracker, evaluation, row, traced, phase, model))
            spans += traced.spans
        client.log_spans(tracker.experiment, spans)


@dataclass(frozen=True)
class _Trace:
    """The spans of a question that began at this time, in seconds since the epoch."""

    began: float
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    spans: list[Any] = field(default_factory=list)

    def add(
        self,
        name: str,
        kind: str,
        times: tuple[float, float],
        inputs: Any,
        outputs: Any,
        within: str | None,
        error: str | None = None,
        **attributes: Any,
    ) -> str:
        """Adds a span within another one, its times in seconds since the question began; returns its id."""
        from mlflow.entities import Span

        id, trace = secrets.token_hex(8), f"tr-{self.id}"
        told = {"traceRequestId": trace, "spanType": kind, "spanInputs": inputs, "spanOutputs": outputs}
        told = {f"mlflow.{key}": value for key, value in told.items()} | attributes
        start, end = (int((self.began + seconds) * 1e9) for seconds in (times[0], max(times)))
        span = {
            "trace_id": _encoded(self.id),
            "span_id": _encoded(id),
            "parent_span_id": None if within is None else _encoded(within),
            "name": name,
            "start_time_unix_nano": start,
            "end_time_unix_nano": end,
            "status": {"code": f"STATUS_CODE_{'OK' if error is None else 'ERROR'}", "message": error or ""},
            "attributes": {key: json.dumps(value) for key, value in told.items()},
        }
        self.spans.append(Span.from_dict(span))
        return id


def _encoded(number: str) -> str:
    return base64.b64encode(bytes.fromhex(number)).decode()


def _question(evaluation: Evaluation, row: Row) -> _Trace:
    """What a question went through, as far as it is known when."""
    seen = row.seen or Seen()
    moments = seen.moments or Moments(began=time.time() - row.seconds)
    question, answer, gold = (shortened(text, ANSWER) for text in (row.question, row.answer, row.gold))
    remembered = moments.remembered or 0.0
    recalled = remembered if moments.recalled is None else moments.recalled
    answered = row.seconds if moments.answered is None else moments.answered
    made, asked = _Trace(moments.began), {"question": question}
    whole = made.add(
        "question", "CHAIN", (0.0, row.seconds), {**asked, "id": row.id}, answer, None, _error(row), cost=row.cost
    )
    parents = {"recall": whole, "answer": whole, "score": whole}
    if moments.remembered is not None:
        made.add("remember", "MEMORY", (0.0, remembered), {"conversation": row.group}, None, whole)
    if moments.recalled is not None or seen.entries:
        span = remembered, recalled
        parents["recall"] = made.add("recall", "RETRIEVER", span, asked, _documents(seen), whole, None, **row.recall)
    parents["answer"] = made.add("answer", "CHAIN", (recalled, answered), asked, {"answer": answer}, whole)
    if moments.answered is not None:
        scored, span = {"score": row.score, **row.parts}, (answered, row.seconds)
        parents["score"] = made.add("score", "EVALUATOR", span, {"gold": gold}, scored, whole)
    for call in seen.calls:
        judged = moments.answered is not None and call.at >= answered
        within = "score" if judged else "recall" if moments.recalled is not None and call.at < recalled else "answer"
        # By the name that MLflow has for a judge, it would look its price up, which takes seconds and is known already.
        _add_call(made, call, parents[within], {} if judged else {"model": evaluation.lm})
    return made


def _add_call(made: _Trace, call: Asked, within: str, attributes: dict[str, Any]) -> None:
    usage = {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens}
    if any(usage.values()):
        attributes["mlflow.chat.tokenUsage"] = {**usage, "total_tokens": sum(usage.values())}
    messages = [{"role": role, "content": text} for role, text in call.messages]
    said = {"choices": [{"message": {"role": "assistant", "content": call.answer}}]}
    error, times = call.error if call.outcome == "lost" else None, (call.at, call.at + call.seconds)
    name = call.predictor or "call"
    made.add(name, "CHAT_MODEL", times, {"messages": messages}, said, within, error, outcome=call.outcome, **attributes)


def _documents(seen: Seen) -> list[dict[str, Any]]:
    """The recalled entries as MLflow shows documents."""
    return [
        {
            "page_content": each.line,
            "metadata": {
                "kind": each.kind,
                "sources": list(each.sources),
                "gold": seen.is_gold(each),
            },
        }
        for each in seen.entries
    ]


def _info(tracker: Tracker, evaluation: Evaluation, row: Row, made: _Trace, phase: str, model: str | None) -> Any:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    about = {"category": evaluation.names.get(row.category, row.category), "conversation": row.group, "phase": phase}
    return TraceInfo(
        trace_id=f"tr-{made.id}",
        trace_location=TraceLocation.from_experiment_id(tracker.experiment),
        request_time=int(made.began * 1000),
        state=TraceState.OK if row.failure is None else TraceState.ERROR,
        request_preview=shortened(row.question, _PREVIEW),
        response_preview=shortened(row.answer, _PREVIEW),
        execution_duration=int(row.seconds * 1000),
        trace_metadata={"mlflow.sourceRun": tracker.run_id, **({"mlflow.modelId": model} if model else {})},
        tags={"mlflow.traceName": evaluation.program, **{key: value[:_LABEL] for key, value in about.items()}},
        assessments=list(_assessments(evaluation, row)),
    )


def _error(row: Row) -> str | None:
    return None if row.failure is None else f"{row.failure.kind}: {shortened(row.failure.message, ANSWER)}"


def _assessments(evaluation: Evaluation, row: Row) -> Iterator[Any]:
    """Scores, what became of the question, whether its evidence was recalled, and the gold answer."""
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    code = AssessmentSource(source_type="CODE", source_id="mempiler")
    judge = AssessmentSource(source_type="LLM_JUDGE", source_id=evaluation.judge) if evaluation.judge else code
    told = (row.seen and row.seen.feedback) or None
    yield Feedback(name="right", value=row.right, source=judge, rationale=REASONS[row.reason])
    yield Feedback(name="score", value=row.score, source=judge, rationale=told)
    for name, value in row.parts.items():
        yield Feedback(name=name, value=value, source=judge if "judge" in name else code)
    if row.hit:
        share = row.recall.get(SHOWN, row.recall.get(f"recall@{max(RECALL_AT)}"))
        yield Feedback(
            name="evidence_hit", value=row.hit == "all", source=code, rationale=f"{row.hit} of it was recalled"
        )
        yield Feedback(name="evidence_recall", value=share, source=code)
    yield Expectation(name=EXPECTED, value=shortened(row.gold, ANSWER), source=code)

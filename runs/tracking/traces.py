"""The way of each question to its score, as a trace in MLflow.

    question ┬ remember
             ├ recall     entries as documents ┬ calls, by their time
             ├ answer                          ├
             └ score                           └ calls of judges

Traces are built from the rows when all questions are answered. Their spans are sent many at once:
with `mlflow.start_span` a trace takes 200 ms on SQLite, in this way 12 ms.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..question_trace import (
    MAX_ANSWER_LENGTH,
    Entry,
    LMCall,
    QuestionTrace,
    Timings,
    shorten,
)
from ..results import Evaluation
from ..rows import REASONS, RECALL_AT, SHOWN_RECALL, Row
from .questions import EXPECTED
from .store import tracking_uri
from .tracker import Tracker

if TYPE_CHECKING:
    from mlflow.entities import Assessment, Span, TraceInfo

_PREVIEW_LENGTH = 900
"""Characters of the longest text in the table of traces."""
_MAX_TAG_LENGTH = 200
"""Characters of the longest value of a tag."""
_TRACES_PER_REQUEST = 20


def log_traces(
    tracker: Tracker, evaluation: Evaluation, max_traces: int | None, phase: str
) -> None:
    """Log the traces of questions with their assessments; questions with wrong answers go first.

    Args:
        tracker: The MLflow run, to which the traces are linked.
        evaluation: The scored questions.
        max_traces: The most questions whose traces are logged; None for all.
        phase: What the scores are called in the run.
    """
    from mlflow.tracing.client import TracingClient

    wrong_first = sorted(evaluation.rows, key=lambda row: row.right)
    rows = wrong_first[:max_traces]
    client = TracingClient(tracking_uri())

    for start in range(0, len(rows), _TRACES_PER_REQUEST):
        spans: list[Span] = []
        for row in rows[start : start + _TRACES_PER_REQUEST]:
            trace = _RowTrace(evaluation, row)
            step_spans = trace.add_steps()
            trace.add_calls(step_spans)
            client.start_trace(_trace_info(tracker, trace, phase))
            spans.extend(trace.spans)
        client.log_spans(tracker.experiment_id, spans)


@dataclass(frozen=True)
class _Step:
    """What a span shows: a step on the way of a question. Times are seconds since it began."""

    name: str
    kind: str
    """The type of the span by MLflow's names, e.g. "RETRIEVER"."""
    start: float
    end: float
    inputs: Any
    outputs: Any
    parent: str | None
    """Id of the span that it belongs to; None for the question as a whole."""
    error: str | None = None
    """Why it failed; None if it did not."""
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _StepSpans:
    """Ids of the spans to which calls belong; of a step without a span, the question's."""

    recall: str
    answer: str
    score: str


class _RowTrace:
    """The trace of one question.

    Args:
        evaluation: The evaluation that the question belongs to.
        row: The question.
    """

    def __init__(self, evaluation: Evaluation, row: Row) -> None:
        self.evaluation = evaluation
        self.row = row
        self.spans: list[Span] = []
        self._id = secrets.token_hex(16)

        self._details = row.trace or QuestionTrace()
        # Runs of earlier versions did not record the times of the steps.
        self._times = self._details.moments or Timings(began=time.time() - row.seconds)

        # Nothing was recalled: the step takes no time.
        self._recalled_at = self._times.remembered or 0.0
        if self._times.recalled is not None:
            self._recalled_at = self._times.recalled
        # No answer came: it was waited for until the end.
        self._answered_at = row.seconds
        if self._times.answered is not None:
            self._answered_at = self._times.answered

    @property
    def trace_id(self) -> str:
        """The id of the trace in MLflow."""
        return f"tr-{self._id}"

    @property
    def began(self) -> float:
        """When the question began, in seconds since the epoch."""
        return self._times.began

    def add_steps(self) -> _StepSpans:
        """Add the spans of the question and of the steps that it reached."""
        row = self.row
        times = self._times
        question = {"question": shorten(row.question, MAX_ANSWER_LENGTH)}
        answer = shorten(row.answer, MAX_ANSWER_LENGTH)

        error = None
        if row.failure is not None:
            error = f"{row.failure.kind}: {shorten(row.failure.message, MAX_ANSWER_LENGTH)}"
        root = self._add(
            _Step(
                name="question",
                kind="CHAIN",
                start=0.0,
                end=row.seconds,
                inputs={**question, "id": row.id},
                outputs=answer,
                parent=None,
                error=error,
                attributes={"cost": row.cost},
            )
        )

        if times.remembered is not None:
            self._add(
                _Step(
                    name="remember",
                    kind="MEMORY",
                    start=0.0,
                    end=times.remembered,
                    inputs={"conversation": row.group},
                    outputs=None,
                    parent=root,
                )
            )

        recall = root
        if times.recalled is not None or self._details.entries:
            recall = self._add(
                _Step(
                    name="recall",
                    kind="RETRIEVER",
                    start=times.remembered or 0.0,
                    end=self._recalled_at,
                    inputs=question,
                    outputs=[self._document_of(entry) for entry in self._details.entries],
                    parent=root,
                    attributes=dict(row.recall) if self._details.is_recall_known else {},
                )
            )

        answer_span = self._add(
            _Step(
                name="answer",
                kind="CHAIN",
                start=self._recalled_at,
                end=self._answered_at,
                inputs=question,
                outputs={"answer": answer},
                parent=root,
            )
        )

        score = root
        if times.answered is not None:
            score = self._add(
                _Step(
                    name="score",
                    kind="EVALUATOR",
                    start=times.answered,
                    end=row.seconds,
                    inputs={"gold": shorten(row.gold, MAX_ANSWER_LENGTH)},
                    outputs={"score": row.score, **row.parts},
                    parent=root,
                )
            )

        return _StepSpans(recall=recall, answer=answer_span, score=score)

    def add_calls(self, step_spans: _StepSpans) -> None:
        """Add the spans of language-model calls, each within the step that was running."""
        for call in self._details.calls:
            self._add_call(call, step_spans)

    def _is_judge_call(self, call: LMCall) -> bool:
        """Tell whether a call began after the answer, when only judges are asked."""
        return self._times.answered is not None and call.at >= self._answered_at

    def _parent_of_call(self, call: LMCall, step_spans: _StepSpans) -> str:
        """Return the id of the step in which a call began; the time of the call tells which."""
        if self._is_judge_call(call):
            return step_spans.score
        if self._times.recalled is not None and call.at < self._recalled_at:
            return step_spans.recall
        return step_spans.answer

    def _add_call(self, call: LMCall, step_spans: _StepSpans) -> None:
        """Add the span of a language-model call below the step that made it."""
        attributes: dict[str, Any] = {"outcome": call.outcome}
        # A judge has no "model": MLflow would look up the price of that name, which takes seconds
        # and is known already.
        if not self._is_judge_call(call):
            attributes["model"] = self.evaluation.lm
        if call.input_tokens or call.output_tokens:
            attributes["mlflow.chat.tokenUsage"] = {
                "input_tokens": call.input_tokens,
                "output_tokens": call.output_tokens,
                "total_tokens": call.input_tokens + call.output_tokens,
            }

        messages = [{"role": role, "content": text} for role, text in call.messages]
        reply = {"message": {"role": "assistant", "content": call.answer}}
        self._add(
            _Step(
                name=call.predictor or "call",
                kind="CHAT_MODEL",
                start=call.at,
                end=call.at + call.seconds,
                inputs={"messages": messages},
                outputs={"choices": [reply]},
                parent=self._parent_of_call(call, step_spans),
                error=call.error if call.outcome == "lost" else None,
                attributes=attributes,
            )
        )

    def _document_of(self, entry: Entry) -> dict[str, Any]:
        """Return a recalled entry as MLflow shows what a retriever found."""
        metadata = {
            "kind": entry.kind,
            "sources": list(entry.sources),
            "gold": self._details.is_gold(entry),
            "fallback": entry.fallback,
        }
        return {"page_content": entry.line, "metadata": metadata}

    def _add(self, step: _Step) -> str:
        """Add the span of a step; return its id."""
        from mlflow.entities import Span

        span_id = secrets.token_hex(8)
        attributes = {
            "mlflow.traceRequestId": self.trace_id,
            "mlflow.spanType": step.kind,
            "mlflow.spanInputs": step.inputs,
            "mlflow.spanOutputs": step.outputs,
            **step.attributes,
        }
        status = {"code": "STATUS_CODE_OK", "message": ""}
        if step.error is not None:
            status = {"code": "STATUS_CODE_ERROR", "message": step.error}

        span = {
            "trace_id": _base64_of(self._id),
            "span_id": _base64_of(span_id),
            "parent_span_id": None if step.parent is None else _base64_of(step.parent),
            "name": step.name,
            "start_time_unix_nano": self._nanoseconds(step.start),
            # No span ends before it starts.
            "end_time_unix_nano": self._nanoseconds(max(step.start, step.end)),
            "status": status,
            "attributes": {name: json.dumps(value) for name, value in attributes.items()},
        }
        self.spans.append(Span.from_dict(span))
        return span_id

    def _nanoseconds(self, seconds: float) -> int:
        """Return a time in nanoseconds since the epoch, from seconds since the question began."""
        return int((self.began + seconds) * 1e9)


def _base64_of(hex_digits: str) -> str:
    return base64.b64encode(bytes.fromhex(hex_digits)).decode()


def _trace_info(tracker: Tracker, trace: _RowTrace, phase: str) -> TraceInfo:
    """Return what the table of traces shows of a question, with its assessments."""
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    evaluation = trace.evaluation
    row = trace.row
    category = evaluation.names.get(row.category, row.category)
    return TraceInfo(
        trace_id=trace.trace_id,
        trace_location=TraceLocation.from_experiment_id(tracker.experiment_id),
        request_time=int(trace.began * 1000),
        state=TraceState.OK if row.failure is None else TraceState.ERROR,
        request_preview=shorten(row.question, _PREVIEW_LENGTH),
        response_preview=shorten(row.answer, _PREVIEW_LENGTH),
        execution_duration=int(row.seconds * 1000),
        trace_metadata={"mlflow.sourceRun": tracker.run_id},
        tags={
            "mlflow.traceName": evaluation.program,
            "category": category[:_MAX_TAG_LENGTH],
            "conversation": row.group[:_MAX_TAG_LENGTH],
            "phase": phase[:_MAX_TAG_LENGTH],
        },
        assessments=_assessments(evaluation, row),
    )


def _assessments(evaluation: Evaluation, row: Row) -> list[Assessment]:
    """Return what MLflow shows of the quality of an answer.

    These are the scores, the share of the evidence that was recalled, and the expected answer.
    """
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    # MLflow wants to know who assessed: the code of the metric, or a judge.
    code = AssessmentSource(source_type="CODE", source_id="mempiler")
    scorer = code
    if evaluation.judge:
        scorer = AssessmentSource(source_type="LLM_JUDGE", source_id=evaluation.judge)

    metric_feedback = row.trace.feedback if row.trace is not None else ""
    assessments: list[Assessment] = [
        Feedback(name="right", value=row.right, source=scorer, rationale=REASONS[row.reason]),
        Feedback(name="score", value=row.score, source=scorer, rationale=metric_feedback or None),
    ]
    for name, value in row.parts.items():
        # The score of a judge has "judge" in its name. Other parts, such as "f1", are computed.
        source = scorer if "judge" in name else code
        assessments.append(Feedback(name=name, value=value, source=source))

    # The extent is "" if the question names no evidence, or if it is not known what was recalled.
    if row.recall_extent:
        rationale = f"{row.recall_extent} of it was recalled"
        assessments.append(
            Feedback(
                name="evidence_recall",
                value=_evidence_recall(row),
                source=code,
                rationale=rationale,
            )
        )

    gold = shorten(row.gold, MAX_ANSWER_LENGTH)
    assessments.append(Expectation(name=EXPECTED, value=gold, source=code))
    return assessments


def _evidence_recall(row: Row) -> float | None:
    """Return the share of the gold evidence that was recalled, as `Row.recall_extent` counts it.

    This is the share that the prompt showed. Where the prompt showed summaries alone, which name no
    turns, it is the share that the plain search found.
    """
    if SHOWN_RECALL in row.recall:
        return row.recall[SHOWN_RECALL]
    return row.recall.get(f"recall@{max(RECALL_AT)}")

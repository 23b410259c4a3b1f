"""Logs a run's questions, prompts and traces to MLflow, wrong answers first.

    question ┬ remember
             ├ recall     entries as documents ┬ calls, by their time
             ├ answer                          ├
             └ score                           └ calls of judges

What is there already is not sent again. A prompt is what the program's adapter sends; for "auto", which asks the
endpoint first, what "chat" does. Traces are made of what the run keeps, when all is answered, and their spans go to the
store many at once: ended one by one, as `mlflow.start_span` does it, a trace takes 200 ms on SQLite in place of 12.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.dataset import Source
from ..programs.adapter import adapter as make_adapter
from ..programs.predictor import is_for
from ..programs.program import MemoryProgram
from ..programs.state import signature_of
from .results import Evaluation
from .rows import ANSWER, REASONS, RECALL_AT, SHOWN, QuestionTrace, Row, Timings, shortened
from .tracking import Tracker, tracking_uri, use_tracking_store

_DIGEST = "mempiler.digest"
_SENT = "mempiler.questions."
"""What the tag of a dataset begins with that names a set of questions."""
_EXPERIMENTS = "_mlflow_experiment_ids"
"""The tag by which an experiment's page finds its prompts."""
_LONGEST = 40_000
"""Longest text of a prompt: the registry takes 100,000 characters of JSON."""

_EXPECTED = "expected_response"
"""What MLflow calls a gold answer."""
_PREVIEW = 900
"""Longest text in the table of traces."""
_AT_ONCE = 20
_LABEL = 200
"""Longest value of a tag."""

Messages = list[dict[str, str]]


def show(
    tracker: Tracker,
    benchmark: Benchmark,
    found: Evaluation,
    programs: tuple[tuple[MemoryProgram, str | None], ...],
    phase: str,
    traces: int | None,
) -> None:
    """Shows a run in MLflow.

    Args:
        tracker: The run.
        benchmark: On what it scored.
        found: The scores whose questions are shown.
        programs: Whose prompts are linked to the run, each with the alias that points to them from here on.
        phase: What the scores are called in the run.
        traces: Of how many questions; None for all.
    """
    if tracker.failed is not None:
        return
    with tracker.optional(), use_tracking_store():
        for program, alias in programs:
            for prompt in _prompts(tracker, program, benchmark.name, alias):
                tracker.client.link_prompt_version_to_run(tracker.run_id, prompt)
        _questions(tracker, benchmark.source, found)
        _keep_traces(tracker, found, traces, phase)


def _prompts(tracker: Tracker, program: MemoryProgram, benchmark: str, alias: str | None) -> list[Any]:
    client, found = tracker.client, []
    prefix = _plain("mempiler", program.name, benchmark)
    for path, predictor in program.all_predictors().items():
        name, messages = f"{prefix}.{_plain(*path.split('.'))}", _prompt(predictor, program.adapter)
        version = _version(tracker, name, messages)
        if alias is not None:
            client.set_prompt_alias(name, alias, version.version)
        found.append(version)
    return found


def _version(tracker: Tracker, name: str, messages: Messages) -> Any:
    client, digest, here = tracker.client, _digest(messages), f",{tracker.experiment},"
    prompt = client.get_prompt(name)
    if prompt is None:
        prompt = client.create_prompt(name, tags={_EXPERIMENTS: here})
    experiments = prompt.tags.get(_EXPERIMENTS, ",")
    if here not in experiments:
        client.set_prompt_tag(name, _EXPERIMENTS, experiments + here[1:])
    same = f"name = '{name}' AND tags.`mlflow.prompt.is_prompt` = 'true' AND tags.`{_DIGEST}` = '{digest}'"
    known = client.search_model_versions(same, max_results=1)
    if known:
        return client.get_prompt_version(name, known[0].version)
    room = _LONGEST // len(messages)
    bounded = [{**each, "content": shortened(each["content"], room)} for each in messages]
    return client.create_prompt_version(name, bounded, tags={_DIGEST: digest, "mlflow.run_id": tracker.run_id})


def _prompt(predictor: dspy.Predict, adapter: str) -> Messages:
    signature, path = signature_of(predictor), str(getattr(predictor, "path", ""))
    inputs: dict[str, Any] = {name: "{{" + name + "}}" for name in signature.input_fields}
    demos: list[Any] = [demo for demo in predictor.demos if is_for(demo, path)]
    try:
        messages = make_adapter("chat" if adapter == "auto" else adapter).format(signature, demos, inputs)
        return [{"role": str(each["role"]), "content": str(each["content"])} for each in messages]
    except Exception:  # inputs that adapters take apart, e.g. a history of messages or a picture
        return [{"role": "system", "content": signature.instructions}]


def _questions(tracker: Tracker, source: Source, evaluation: Evaluation) -> None:
    """The dataset of a benchmark's file, which grows by these questions, is an input of the run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    client, name = tracker.client, _plain(evaluation.benchmark, source.sha256[:8])
    known = client.search_datasets([tracker.experiment], f"name = '{name}'", max_results=1)
    about = {"benchmark": evaluation.benchmark, "sha256": source.sha256, "sample": str(source.sample)}
    dataset = known[0] if known else client.create_dataset(name, tracker.experiment, about)
    tag = _SENT + _digest(sorted(row.id for row in evaluation.rows))
    if tag not in (dataset.tags or {}):
        dataset.merge_records([_record(row, evaluation) for row in evaluation.rows])
        client.set_dataset_tags(dataset.dataset_id, {tag: str(len(evaluation.rows))})
        dataset = client.get_dataset(dataset.dataset_id)
    named = json.dumps({"dataset_id": dataset.dataset_id})
    shown = Dataset(dataset.name, dataset.digest, "mlflow_evaluation_dataset", named)
    inputs = [DatasetInput(shown, [InputTag("mlflow.data.context", "evaluation")])]
    client.log_inputs(tracker.run_id, datasets=inputs)


def _record(row: Row, evaluation: Evaluation) -> dict[str, Any]:
    """A question; its id tells it from an equal one about another conversation."""
    expected: dict[str, Any] = {_EXPECTED: shortened(row.gold, ANSWER)}
    if row.trace is not None and row.trace.evidence:
        expected["evidence"] = list(row.trace.evidence)
    return {
        "inputs": {"question": shortened(row.question, ANSWER), "id": row.id},
        "expectations": expected,
        "tags": {"category": evaluation.names.get(row.category, row.category), "conversation": row.group},
    }


def _plain(*parts: str) -> str:
    """A name of plain letters, as MLflow's registries ask for: parts are joined by dots."""
    return ".".join(re.sub(r"[^A-Za-z0-9_-]+", "-", part.replace(".", "-")).strip("-") or "-" for part in parts)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:16]


def _keep_traces(tracker: Tracker, evaluation: Evaluation, most: int | None, phase: str) -> None:
    """Logs traces of so many questions, or of all, wrong ones first, with their assessments, linked to the run."""
    from mlflow.tracing.client import TracingClient

    chosen, client = sorted(evaluation.rows, key=lambda row: row.right)[:most], TracingClient(tracking_uri())
    for n in range(0, len(chosen), _AT_ONCE):
        spans: list[Any] = []
        for row in chosen[n : n + _AT_ONCE]:
            traced = _question(evaluation, row)
            client.start_trace(_info(tracker, evaluation, row, traced, phase))
            spans += traced.spans
        client.log_spans(tracker.experiment, spans)


@dataclass(frozen=True)
class _Trace:
    began: float
    """Seconds since the epoch."""
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
        numbers = (self.id, id, within)
        ids = [None if one is None else base64.b64encode(bytes.fromhex(one)).decode() for one in numbers]
        told = {"traceRequestId": trace, "spanType": kind, "spanInputs": inputs, "spanOutputs": outputs}
        told = {f"mlflow.{key}": value for key, value in told.items()} | attributes
        start, end = (int((self.began + seconds) * 1e9) for seconds in (times[0], max(times)))
        span = {
            **dict(zip(("trace_id", "span_id", "parent_span_id"), ids, strict=True)),
            "name": name,
            "start_time_unix_nano": start,
            "end_time_unix_nano": end,
            "status": {"code": f"STATUS_CODE_{'OK' if error is None else 'ERROR'}", "message": error or ""},
            "attributes": {key: json.dumps(value) for key, value in told.items()},
        }
        self.spans.append(Span.from_dict(span))
        return id


def _question(evaluation: Evaluation, row: Row) -> _Trace:
    seen = row.trace or QuestionTrace()
    moments = seen.moments or Timings(began=time.time() - row.seconds)
    question, answer, gold = (shortened(text, ANSWER) for text in (row.question, row.answer, row.gold))
    remembered = moments.remembered or 0.0
    recalled = remembered if moments.recalled is None else moments.recalled
    answered = row.seconds if moments.answered is None else moments.answered
    made, asked = _Trace(moments.began), {"question": question}
    failed = None if row.failure is None else f"{row.failure.kind}: {shortened(row.failure.message, ANSWER)}"
    whole = made.add(
        "question", "CHAIN", (0.0, row.seconds), {**asked, "id": row.id}, answer, None, failed, cost=row.cost
    )
    parents = {"recall": whole, "answer": whole, "score": whole}
    if moments.remembered is not None:
        made.add("remember", "MEMORY", (0.0, remembered), {"conversation": row.group}, None, whole)
    if moments.recalled is not None or seen.entries:
        about = [
            {"kind": e.kind, "sources": list(e.sources), "gold": seen.is_gold(e), "fallback": e.fallback}
            for e in seen.entries
        ]
        lines = [{"page_content": e.line, "metadata": m} for e, m in zip(seen.entries, about, strict=True)]
        span = remembered, recalled
        recall = row.recall if seen.is_recall_known else {}
        parents["recall"] = made.add("recall", "RETRIEVER", span, asked, lines, whole, None, **recall)
    parents["answer"] = made.add("answer", "CHAIN", (recalled, answered), asked, {"answer": answer}, whole)
    if moments.answered is not None:
        scored, span = {"score": row.score, **row.parts}, (answered, row.seconds)
        parents["score"] = made.add("score", "EVALUATOR", span, {"gold": gold}, scored, whole)
    for call in seen.calls:
        judged = moments.answered is not None and call.at >= answered
        within = "score" if judged else "recall" if moments.recalled is not None and call.at < recalled else "answer"
        # By the name that MLflow has for a judge, it would look its price up, which takes seconds and is known already.
        attributes: dict[str, Any] = {} if judged else {"model": evaluation.lm}
        usage = {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens}
        if any(usage.values()):
            attributes["mlflow.chat.tokenUsage"] = {**usage, "total_tokens": sum(usage.values())}
        messages = [{"role": role, "content": text} for role, text in call.messages]
        said = {"choices": [{"message": {"role": "assistant", "content": call.answer}}]}
        made.add(
            call.predictor or "call",
            "CHAT_MODEL",
            (call.at, call.at + call.seconds),
            {"messages": messages},
            said,
            parents[within],
            call.error if call.outcome == "lost" else None,
            outcome=call.outcome,
            **attributes,
        )
    return made


def _info(tracker: Tracker, evaluation: Evaluation, row: Row, made: _Trace, phase: str) -> Any:
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
        trace_metadata={"mlflow.sourceRun": tracker.run_id},
        tags={"mlflow.traceName": evaluation.program, **{key: value[:_LABEL] for key, value in about.items()}},
        assessments=list(_assessments(evaluation, row)),
    )


def _assessments(evaluation: Evaluation, row: Row) -> Iterator[Any]:
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    code = AssessmentSource(source_type="CODE", source_id="mempiler")
    judge = AssessmentSource(source_type="LLM_JUDGE", source_id=evaluation.judge) if evaluation.judge else code
    told = (row.trace and row.trace.feedback) or None
    yield Feedback(name="right", value=row.right, source=judge, rationale=REASONS[row.reason])
    yield Feedback(name="score", value=row.score, source=judge, rationale=told)
    for name, value in row.parts.items():
        yield Feedback(name=name, value=value, source=judge if "judge" in name else code)
    if row.hit:
        share = row.recall.get(SHOWN, row.recall.get(f"recall@{max(RECALL_AT)}"))
        yield Feedback(name="evidence_recall", value=share, source=code, rationale=f"{row.hit} of it was recalled")
    yield Expectation(name=_EXPECTED, value=shortened(row.gold, ANSWER), source=code)

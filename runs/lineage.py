"""What a run in MLflow is about: its questions as a dataset, its programs as logged models, and their prompts.

    evaluation   dataset · the program's prompts · its logged model, scored · traces
    compile      dataset · prompts before (alias start) and after (best) · both models, scored · traces of the kept one

    predictor ── rendered, its inputs as {{names}} ──> mempiler.METHOD.BENCHMARK.PREDICTOR, version by digest
    program, model ── digest ──> LoggedModel, linked to the runs that made and scored it
    benchmark, sha256 of its data ──> dataset locomo.1a2b3c4d: question, gold answer, evidence, category

What is there already is not sent again: prompts that have not changed, programs that are scored again with the same
model, sets of questions that were asked before. A prompt is what the program's adapter sends; for "auto", which asks
the endpoint first, what "chat" does. All of it comes last and costs no run anything (`Tracker.optional`).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.dataset import Source
from ..programs.adapter import adapter as make_adapter
from ..programs.predictor import is_for
from ..programs.program import MemoryProgram
from ..programs.state import signature_of
from .results import Evaluation
from .rows import SHOWN, Row
from .seen import ANSWER, shortened
from .traces import EXPECTED, keep_traces
from .tracking import Tracker, at_store

_DIGEST = "mempiler.digest"
_SENT = "mempiler.questions."
"""What the tag of a dataset begins with that names a set of questions."""
_EXPERIMENTS = "_mlflow_experiment_ids"
"""The tag by which an experiment's page finds its prompts."""
_LONGEST = 90_000
"""Longest text of a prompt that the registry takes."""
_OWN = {"task", "embedder", "adapter"}
"""Parameters of a run that belong to its program."""

Messages = list[dict[str, str]]


def show_evaluation(
    tracker: Tracker,
    program: MemoryProgram,
    benchmark: Benchmark,
    found: Evaluation,
    parameters: Mapping[str, Any],
    traces: int | None,
) -> None:
    """Shows an evaluation in its MLflow run.

    Args:
        tracker: The run.
        program: What was scored.
        benchmark: On what.
        found: Its scores.
        parameters: The run's, as `setup.parameters` gives them.
        traces: Of how many questions; None for all.
    """
    if tracker.failed is not None:
        return
    with tracker.optional(), at_store():
        model = _model(tracker, program, benchmark, found.lm, parameters)
        _scored(tracker, model, found, _questions(tracker, benchmark.source, found, model))
        keep_traces(tracker, found, traces, "evaluation", model)


def show_compile(
    tracker: Tracker,
    start: MemoryProgram,
    kept: MemoryProgram,
    benchmark: Benchmark,
    scores: tuple[Evaluation, Evaluation],
    saved: Path | None,
    parameters: Mapping[str, Any],
    traces: int | None,
) -> None:
    """Shows a compile in its MLflow run; the alias `best` moves only to a program that was kept for its gain.

    Args:
        tracker: The run.
        start: The program before.
        kept: The program after, or the start.
        benchmark: On what.
        scores: Of both on the test questions.
        saved: The folder of the program after; None where the start was kept.
        parameters: The run's.
        traces: Of how many test questions; None for all.
    """
    from mlflow.entities import LoggedModelOutput

    if tracker.failed is not None:
        return
    with tracker.optional(), at_store():
        client, (before, after) = tracker.client, scores
        model = _model(tracker, start, benchmark, before.lm, parameters, "start")
        dataset = _questions(tracker, benchmark.source, before, model)
        _scored(tracker, model, before, dataset)
        if saved is not None:
            model = _model(tracker, kept, benchmark, after.lm, parameters, "best")
            client.log_outputs(tracker.run_id, [LoggedModelOutput(model, 0)])
            client.log_model_artifacts(model, str(saved))
            _scored(tracker, model, after, dataset)
        keep_traces(tracker, after, traces, "result", model)


def _model(
    tracker: Tracker,
    program: MemoryProgram,
    benchmark: Benchmark,
    lm: str,
    parameters: Mapping[str, Any],
    alias: str | None = None,
) -> str:
    """The id of the logged model that a program is with a language model, and its prompts, made where there are none.

    The run is linked with the prompts; the alias points to them from here on.
    """
    prompts, client = _prompts(tracker, program, benchmark.name, alias), tracker.client
    for prompt in prompts:
        client.link_prompt_version_to_run(tracker.run_id, prompt)
    identity = program.identities.of_program(program)
    digest = _digest([identity, lm])
    known = client.search_logged_models([tracker.experiment], f"tags.`{_DIGEST}` = '{digest}'", max_results=1)
    if known:
        return known[0].model_id
    own = {key: str(value) for key, value in parameters.items() if key in _OWN or key.startswith(("method.", "lm."))}
    tags = {_DIGEST: digest, "mempiler.program": identity}
    name = _plain(program.name)
    model = client.create_logged_model(tracker.experiment, name, tracker.run_id, tags, {**own, "lm": lm}, "agent")
    for prompt in prompts:
        client.link_prompt_version_to_model(prompt.name, str(prompt.version), model.model_id)
    client.finalize_logged_model(model.model_id, "READY")
    return model.model_id


def _prompts(tracker: Tracker, program: MemoryProgram, benchmark: str, alias: str | None) -> list[Any]:
    """The versions of a program's prompts in the registry."""
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
    """The version of a prompt that these messages are, made where there is none."""
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
    return client.create_prompt_version(
        name, _bounded(messages), tags={_DIGEST: digest, "mlflow.run_id": tracker.run_id}
    )


def _prompt(predictor: dspy.Predict, adapter: str) -> Messages:
    """The prompt of a predictor as messages, its inputs by their names."""
    signature, path = signature_of(predictor), str(getattr(predictor, "path", ""))
    inputs: dict[str, Any] = {name: "{{" + name + "}}" for name in signature.input_fields}
    demos: list[Any] = [demo for demo in predictor.demos if is_for(demo, path)]
    try:
        messages = make_adapter("chat" if adapter == "auto" else adapter).format(signature, demos, inputs)
        return [{"role": str(each["role"]), "content": str(each["content"])} for each in messages]
    except Exception:  # inputs that adapters take apart, e.g. a history of messages or a picture
        return [{"role": "system", "content": signature.instructions}]


def _bounded(messages: Messages) -> Messages:
    """The messages, each cut as far as it takes for the registry to hold them."""
    room = _LONGEST
    found = messages
    while len(json.dumps(found)) > _LONGEST and room:
        room //= 2
        found = [{**each, "content": shortened(each["content"], room)} for each in messages]
    return found


def _questions(tracker: Tracker, source: Source, evaluation: Evaluation, model: str) -> Any:
    """The dataset of a benchmark's file, which grows by these questions; the run gets it and the model as inputs."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

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
    client.log_inputs(tracker.run_id, datasets=inputs, models=[LoggedModelInput(model)])
    return dataset


def _record(row: Row, evaluation: Evaluation) -> dict[str, Any]:
    """A question as a dataset has it; its id tells it from an equal one about another conversation."""
    expected: dict[str, Any] = {EXPECTED: shortened(row.gold, ANSWER)}
    if row.seen is not None and row.seen.evidence:
        expected["evidence"] = list(row.seen.evidence)
    return {
        "inputs": {"question": shortened(row.question, ANSWER), "id": row.id},
        "expectations": expected,
        "tags": {"category": evaluation.names.get(row.category, row.category), "conversation": row.group},
    }


def _scored(tracker: Tracker, model: str, evaluation: Evaluation, dataset: Any) -> None:
    """Links what a program scored to its model: the run's numbers, on these questions."""
    from mlflow.entities import Metric

    shown = evaluation.retrieval().get(SHOWN)
    found = {"score": evaluation.score, **evaluation.metrics(), "evidence_recall": shown}
    about = {"model_id": model, "run_id": tracker.run_id}
    about |= {"dataset_name": dataset.name, "dataset_digest": dataset.digest}
    now = int(time.time() * 1000)
    metrics = [
        Metric(_plain(name).replace("-", "_"), float(value), now, 0, **about)
        for name, value in found.items()
        if value is not None and value == value
    ]
    tracker.client.log_batch(tracker.run_id, metrics=metrics)


def _plain(*parts: str) -> str:
    """A name of plain letters, as MLflow's registries ask for: parts are joined by dots."""
    return ".".join(re.sub(r"[^A-Za-z0-9_-]+", "-", part.replace(".", "-")).strip("-") or "-" for part in parts)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:16]

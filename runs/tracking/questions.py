"""The questions of a benchmark as a dataset in MLflow.

A file of a benchmark is one dataset. Every run adds the questions that are not in it yet, and has
the dataset as an input.
"""

from __future__ import annotations

import json
from typing import Any

from ...data.dataset import Source
from ..question_trace import MAX_ANSWER_LENGTH, shorten
from ..results import Evaluation
from ..rows import Row
from .names import registry_name, short_digest
from .tracker import Tracker

EXPECTED = "expected_response"
"""MLflow's name for a gold answer."""

_SENT_TAG = "mempiler.questions."
"""Beginning of the names of tags of a dataset. Each names a set of questions that is in it."""


def log_questions(tracker: Tracker, source: Source, evaluation: Evaluation) -> None:
    """Add the questions of an evaluation to the dataset of their file; make it an input of the run.

    Args:
        tracker: The MLflow run.
        source: The file of the benchmark.
        evaluation: The scored questions.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    client = tracker.client
    name = registry_name(evaluation.benchmark, source.sha256[:8])
    experiments = [tracker.experiment_id]
    datasets = client.search_datasets(experiments, f"name = '{name}'", max_results=1)
    if datasets:
        dataset = datasets[0]
    else:
        tags = {
            "benchmark": evaluation.benchmark,
            "sha256": source.sha256,
            "sample": str(source.sample),
        }
        dataset = client.create_dataset(name, tracker.experiment_id, tags)

    question_ids = sorted(row.id for row in evaluation.rows)
    sent_tag = _SENT_TAG + short_digest(question_ids)
    if sent_tag not in (dataset.tags or {}):
        dataset.merge_records([_record_of(row, evaluation) for row in evaluation.rows])
        client.set_dataset_tags(dataset.dataset_id, {sent_tag: str(len(evaluation.rows))})
        dataset = client.get_dataset(dataset.dataset_id)

    reference = json.dumps({"dataset_id": dataset.dataset_id})
    input_dataset = Dataset(dataset.name, dataset.digest, "mlflow_evaluation_dataset", reference)
    context = InputTag("mlflow.data.context", "evaluation")
    client.log_inputs(tracker.run_id, datasets=[DatasetInput(input_dataset, [context])])


def _record_of(row: Row, evaluation: Evaluation) -> dict[str, Any]:
    """Return a question as a record of the dataset."""
    expectations: dict[str, Any] = {EXPECTED: shorten(row.gold, MAX_ANSWER_LENGTH)}
    if row.trace is not None and row.trace.evidence:
        expectations["evidence"] = list(row.trace.evidence)
    return {
        # The id distinguishes equal questions about different conversations.
        "inputs": {
            "question": shorten(row.question, MAX_ANSWER_LENGTH),
            "id": row.id,
        },
        "expectations": expectations,
        "tags": {
            "category": evaluation.names.get(row.category, row.category),
            "conversation": row.group,
        },
    }

"""The questions of a benchmark as a dataset in MLflow.

A file of a benchmark is one dataset. Every run adds the questions that are not in it yet, and has
the dataset as an input.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...data.dataset import Source
from ..question_trace import MAX_ANSWER_LENGTH, shorten
from ..results import Evaluation
from ..rows import Row
from .names import registry_name, short_digest
from .tracker import Tracker

if TYPE_CHECKING:
    from mlflow.entities import EvaluationDataset

EXPECTED = "expected_response"
"""MLflow's name for a gold answer."""

_SENT_TAG = "mempiler.questions."
"""Beginning of the names of tags of a dataset. Each names a set of questions that is in it."""


def log_questions(tracker: Tracker, source: Source, evaluation: Evaluation) -> None:
    """Show the questions of an evaluation in MLflow, as a dataset that is an input of the run.

    Args:
        tracker: The MLflow run.
        source: The file of the benchmark.
        evaluation: The scored questions.
    """
    dataset = _open_dataset(tracker, source, evaluation)
    dataset = _add_questions(tracker, dataset, evaluation)
    _log_input(tracker, dataset)


def _open_dataset(tracker: Tracker, source: Source, evaluation: Evaluation) -> EvaluationDataset:
    """Return the dataset of a benchmark's file, which is created if there is none."""
    name = registry_name(evaluation.benchmark, source.sha256[:8])
    experiments = [tracker.experiment_id]
    datasets = tracker.client.search_datasets(experiments, f"name = '{name}'", max_results=1)
    if datasets:
        return datasets[0]

    tags = {
        "benchmark": evaluation.benchmark,
        "sha256": source.sha256,
        "sample": str(source.sample),
    }
    return tracker.client.create_dataset(name, tracker.experiment_id, tags)


def _add_questions(
    tracker: Tracker, dataset: EvaluationDataset, evaluation: Evaluation
) -> EvaluationDataset:
    """Add the questions of an evaluation to a dataset, and return the dataset as it is then.

    Sending many questions takes time. So each set of questions is sent once: a tag of the dataset,
    with a digest of their ids, says that it is there.
    """
    question_ids = sorted(row.id for row in evaluation.rows)
    sent_tag = _SENT_TAG + short_digest(question_ids)
    if sent_tag in (dataset.tags or {}):
        return dataset

    dataset.merge_records([_record_of(row, evaluation) for row in evaluation.rows])
    tracker.client.set_dataset_tags(dataset.dataset_id, {sent_tag: str(len(evaluation.rows))})
    # The digest of the dataset changes with its records.
    return tracker.client.get_dataset(dataset.dataset_id)


def _log_input(tracker: Tracker, dataset: EvaluationDataset) -> None:
    """Make a dataset an input of the run, so that MLflow's pages show it there."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    reference = json.dumps({"dataset_id": dataset.dataset_id})
    input_dataset = Dataset(dataset.name, dataset.digest, "mlflow_evaluation_dataset", reference)
    context = InputTag("mlflow.data.context", "evaluation")
    tracker.client.log_inputs(tracker.run_id, datasets=[DatasetInput(input_dataset, [context])])


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

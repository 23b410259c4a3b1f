"""The questions of a run as an MLflow evaluation dataset: one per data file, which grows by the questions of each run.

    benchmark, sha256 of its data ──> locomo.1a2b3c4d     question, gold answer, evidence, category

Questions that are there are not sent again: a tag of the dataset names every set of questions that was.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..data.dataset import Source
from .results import Evaluation, Row
from .seen import ANSWER, shortened
from .tracking_store import Store, plain_name

EXPECTED = "expected_response"
"""What MLflow calls a gold answer."""
_SENT = "mempiler.questions."
"""What the tag begins with that names a set of questions."""
_AT_ONCE = 500


def keep_questions(store: Store, source: Source, evaluation: Evaluation, model: str) -> Any:
    """Puts an evaluation's questions into the dataset of their file; the run gets it and the model as inputs.

    Args:
        store: Where the run is.
        source: The file.
        evaluation: Whose questions.
        model: The logged model that was asked them.

    Returns:
        The dataset.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

    client, name = store.client, plain_name(evaluation.benchmark, source.sha256[:8])
    known = client.search_datasets([store.experiment], f"name = '{name}'", max_results=1)
    about = {"benchmark": evaluation.benchmark, "sha256": source.sha256, "sample": str(source.sample)}
    dataset = known[0] if known else client.create_dataset(name, store.experiment, about)
    tag = _SENT + _digest(evaluation)
    if tag not in (dataset.tags or {}):
        records = [_record(row, evaluation) for row in evaluation.rows]
        for n in range(0, len(records), _AT_ONCE):
            store.tracking.upsert_dataset_records(dataset.dataset_id, records[n : n + _AT_ONCE])
        client.set_dataset_tags(dataset.dataset_id, {tag: str(len(records))})
        dataset = client.get_dataset(dataset.dataset_id)
    named = json.dumps({"dataset_id": dataset.dataset_id})
    shown = Dataset(dataset.name, dataset.digest, "mlflow_evaluation_dataset", named)
    inputs = [DatasetInput(shown, [InputTag("mlflow.data.context", "evaluation")])]
    client.log_inputs(store.run_id, datasets=inputs, models=[LoggedModelInput(model)])
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


def _digest(evaluation: Evaluation) -> str:
    ids = sorted(row.id for row in evaluation.rows)
    return hashlib.sha256("\n".join(ids).encode("utf-8", "replace")).hexdigest()[:16]

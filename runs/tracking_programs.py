"""The programs of a run in MLflow: each predictor's prompt in the prompt registry, and the program as a logged model.

    predictor ── rendered, its inputs as {{names}} ──> mempiler.METHOD.BENCHMARK.PREDICTOR, version by digest
    program, model ── digest ──> LoggedModel, linked to the runs that made and scored it

A prompt that has not changed makes no new version, and a program that is scored again with the same language model no
new model. The prompt is what the program's adapter sends; for "auto", which asks the endpoint first, what "chat" does.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dspy

from ..programs.adapter import adapter as make_adapter
from ..programs.predictor import is_for
from ..programs.program import MemoryProgram
from ..programs.state import signature_of
from .results import SHOWN, Evaluation
from .seen import shortened
from .tracking_store import Store, plain_name

_DIGEST = "mempiler.digest"
_VERSION = "mempiler.version."
"""What the tag of a prompt begins with that names the version of a digest."""
_LINKED = "mlflow.linkedPrompts"
_EXPERIMENTS = "_mlflow_experiment_ids"
"""The tag by which an experiment's page finds its prompts."""
_LONGEST = 90_000
"""Longest text of a prompt that the registry takes."""

Messages = list[dict[str, str]]
Versions = Mapping[str, int]
"""Versions of prompts by name."""


def keep_prompts(store: Store, program: MemoryProgram, benchmark: str, alias: str | None = None) -> Versions:
    """Puts the prompts of a program into the registry, as far as they are not there.

    Args:
        store: Where the run is.
        program: Whose prompts.
        benchmark: What it is tuned or scored on.
        alias: Points to these versions from here on.
    """
    found: dict[str, int] = {}
    prefix, predictors = plain_name("mempiler", program.name, benchmark), program.all_predictors()
    there = store.client.search_prompts(f"name LIKE '{prefix}.%'") if predictors else []
    known = {prompt.name: dict(prompt.tags) for prompt in there}
    for path, predictor in predictors.items():
        name = f"{prefix}.{plain_name(*path.split('.'))}"
        found[name] = _version(store, name, _prompt(predictor, program.adapter), known.get(name))
        if alias is not None:
            store.client.set_prompt_alias(name, alias, found[name])
    return found


def link_prompts(store: Store, *versions: Versions) -> None:
    """Links prompts to the run."""
    linked = linked_prompts(*versions)
    if linked:
        store.tag(_LINKED, linked)


def linked_prompts(*versions: Versions) -> str:
    """Versions of prompts as MLflow's tags name them; "" for none."""
    named = dict.fromkeys((name, str(version)) for each in versions for name, version in each.items())
    return json.dumps([{"name": name, "version": version} for name, version in named]) if named else ""


def _version(store: Store, name: str, messages: Messages, tags: Mapping[str, str] | None) -> int:
    """The version of a prompt that these messages are, made where there is none; `tags` are those of a prompt there."""
    client, digest, here = store.client, _digest(messages), f",{store.experiment},"
    if tags is None:
        client.create_prompt(name, tags={_EXPERIMENTS: here})
        tags = {_EXPERIMENTS: here}
    if here not in tags.get(_EXPERIMENTS, ""):
        client.set_prompt_tag(name, _EXPERIMENTS, tags.get(_EXPERIMENTS, ",") + here[1:])
    if _VERSION + digest in tags:
        return int(tags[_VERSION + digest])
    version = client.create_prompt_version(
        name, _bounded(messages), tags={_DIGEST: digest, "mlflow.run_id": store.run_id}
    )
    client.set_prompt_tag(name, _VERSION + digest, str(version.version))
    return int(version.version)


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


def keep_model(store: Store, program: MemoryProgram, lm: str, parameters: Mapping[str, Any], prompts: Versions) -> str:
    """The logged model that a program is with a language model, made where there is none.

    Args:
        store: Where the run is.
        program: The program.
        lm: What tables call the language model.
        parameters: The run's, of which the program's own are kept.
        prompts: Versions of its prompts.

    Returns:
        The model's id.
    """
    client, digest = store.client, _digest([program.identities.of_program(program), lm])
    known = client.search_logged_models([store.experiment], f"tags.`{_DIGEST}` = '{digest}'", max_results=1)
    if known:
        return known[0].model_id
    own = {key: str(value) for key, value in parameters.items() if key in _OWN or key.startswith(("method.", "lm."))}
    tags = {_DIGEST: digest, "mempiler.program": program.identities.of_program(program)}
    linked = linked_prompts(prompts)
    tags |= {_LINKED: linked} if linked else {}
    name = plain_name(program.name)
    model = client.create_logged_model(store.experiment, name, store.run_id, tags, {**own, "lm": lm}, "agent")
    client.finalize_logged_model(model.model_id, "READY")
    return model.model_id


_OWN = {"task", "embedder", "adapter"}
"""Parameters of a run that belong to its program."""


def score_model(store: Store, model: str, evaluation: Evaluation, dataset: Any) -> None:
    """Links what a program scored to its model: the run's numbers, on these questions."""
    from mlflow.entities import Metric

    found = {"score": evaluation.score, **evaluation.metrics(), **_recall(evaluation)}
    about = {"model_id": model, "run_id": store.run_id, "dataset_name": dataset.name, "dataset_digest": dataset.digest}
    now = int(time.time() * 1000)
    metrics = [
        Metric(plain_name(name).replace("-", "_"), float(value), now, 0, **about)
        for name, value in found.items()
        if value is not None and value == value
    ]
    store.client.log_batch(store.run_id, metrics=metrics)


def _recall(evaluation: Evaluation) -> dict[str, float]:
    shown = evaluation.retrieval().get(SHOWN)
    return {} if shown is None else {"evidence_recall": shown}


def link_made(store: Store, model: str, program: Path) -> None:
    """Says that a run made a model, which holds a saved program."""
    from mlflow.entities import LoggedModelOutput

    store.client.log_outputs(store.run_id, [LoggedModelOutput(model, 0)])
    store.client.log_model_artifacts(model, str(program))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:16]

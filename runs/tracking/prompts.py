"""The prompts of a program in MLflow's prompt registry.

Each predictor has a prompt there, named `mempiler.PROGRAM.BENCHMARK.PREDICTOR`. A prompt that
differs from all its earlier versions becomes a new version. Every version that a run used is linked
to the run.

A version holds the messages that the adapter of the program sends, with `{{question}}` and the like
in the place of inputs. The adapter "auto" asks the endpoint before it knows what to send; for it,
the messages of "chat" are logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dspy

from ...programs.adapter import adapter as make_adapter
from ...programs.predictor import is_for
from ...programs.program import MemoryProgram
from ...programs.state import signature_of
from ..question_trace import shorten
from .names import registry_name, short_digest
from .tracker import Tracker

if TYPE_CHECKING:
    from mlflow.entities.model_registry import PromptVersion

_DIGEST_TAG = "mempiler.digest"
"""Tag of a version of a prompt: the digest of its messages."""
_EXPERIMENTS_TAG = "_mlflow_experiment_ids"
"""Tag of a prompt: ids of the experiments whose pages show it, with a comma around each."""
_MAX_PROMPT_CHARACTERS = 40_000
"""Characters of the longest prompt: the registry takes 100,000 characters of JSON."""

Messages = list[dict[str, Any]]
"""Chat messages, each with `role` and `content`."""


@dataclass(frozen=True)
class ProgramPrompts:
    """A program whose prompts are logged."""

    program: MemoryProgram
    alias: str | None = None
    """The alias that points to these versions of its prompts from now on, if any."""


def log_prompts(tracker: Tracker, prompts: ProgramPrompts, benchmark: str) -> None:
    """Register the prompts of a program for a benchmark, and link them to the run."""
    client = tracker.client
    program = prompts.program
    prefix = registry_name("mempiler", program.name, benchmark)

    versions: list[PromptVersion] = []
    for path, predictor in program.all_predictors().items():
        name = f"{prefix}.{registry_name(*path.split('.'))}"
        version = _register_prompt(tracker, name, _messages_of(predictor, program.adapter))
        if prompts.alias is not None:
            client.set_prompt_alias(name, prompts.alias, version.version)
        versions.append(version)

    for version in versions:
        client.link_prompt_version_to_run(tracker.run_id, version)


def _register_prompt(tracker: Tracker, name: str, messages: Messages) -> PromptVersion:
    """Return the version of a prompt with these messages, which is created if there is none."""
    client = tracker.client
    prompt = client.get_prompt(name)
    if prompt is None:
        prompt = client.create_prompt(name, tags={_EXPERIMENTS_TAG: f",{tracker.experiment_id},"})
    experiments = prompt.tags.get(_EXPERIMENTS_TAG, ",")
    if f",{tracker.experiment_id}," not in experiments:
        client.set_prompt_tag(name, _EXPERIMENTS_TAG, f"{experiments}{tracker.experiment_id},")

    digest = short_digest(messages)
    same_messages = " AND ".join(
        [
            f"name = '{name}'",
            "tags.`mlflow.prompt.is_prompt` = 'true'",
            f"tags.`{_DIGEST_TAG}` = '{digest}'",
        ]
    )
    same_versions = client.search_model_versions(same_messages, max_results=1)
    if same_versions:
        version = client.get_prompt_version(name, same_versions[0].version)
        if version is not None:
            return version

    max_characters = _MAX_PROMPT_CHARACTERS // len(messages)
    template: Messages = []
    for message in messages:
        template.append({**message, "content": shorten(message["content"], max_characters)})
    tags = {
        _DIGEST_TAG: digest,
        "mlflow.run_id": tracker.run_id,
    }
    return client.create_prompt_version(name, template, tags=tags)


def _messages_of(predictor: dspy.Predict, adapter_name: str) -> Messages:
    """Return the messages that a predictor sends, with its inputs' names in place of inputs."""
    signature = signature_of(predictor)
    path = str(getattr(predictor, "path", ""))
    inputs: dict[str, Any] = {name: "{{" + name + "}}" for name in signature.input_fields}
    demos: list[Any] = [demo for demo in predictor.demos if is_for(demo, path)]
    adapter = make_adapter("chat" if adapter_name == "auto" else adapter_name)
    try:
        messages = adapter.format(signature, demos, inputs)
        return [{"role": str(m["role"]), "content": str(m["content"])} for m in messages]
    except Exception:
        # The adapter takes some inputs apart, for example a history of messages or a picture, and
        # fails on their names.
        return [{"role": "system", "content": signature.instructions}]

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
    """Return the version of a prompt that has these messages; create what is not there.

    The prompt is shown on the pages of the experiment from now on.
    """
    _show_in_experiment(tracker, name)
    # The digest is that of the whole messages, so versions that differ only in what is cut off are
    # different versions.
    digest = short_digest(messages)
    version = _find_version(tracker, name, digest)
    if version is not None:
        return version

    tags = {
        _DIGEST_TAG: digest,
        "mlflow.run_id": tracker.run_id,
    }
    return tracker.client.create_prompt_version(name, _shorten_messages(messages), tags=tags)


def _show_in_experiment(tracker: Tracker, name: str) -> None:
    """Let the pages of the run's experiment show a prompt, which is created if there is none."""
    experiment = tracker.experiment_id
    prompt = tracker.client.get_prompt(name)
    if prompt is None:
        tracker.client.create_prompt(name, tags={_EXPERIMENTS_TAG: f",{experiment},"})
        return

    # The tag is a list such as ",1,12,". MLflow searches it for an id with its commas.
    experiments = prompt.tags.get(_EXPERIMENTS_TAG, ",")
    if f",{experiment}," not in experiments:
        tracker.client.set_prompt_tag(name, _EXPERIMENTS_TAG, f"{experiments}{experiment},")


def _find_version(tracker: Tracker, name: str, digest: str) -> PromptVersion | None:
    """Return the version of a prompt whose messages have this digest; None if there is none."""
    # MLflow stores versions of prompts as versions of models, with a tag that tells them apart.
    conditions = [
        f"name = '{name}'",
        "tags.`mlflow.prompt.is_prompt` = 'true'",
        f"tags.`{_DIGEST_TAG}` = '{digest}'",
    ]
    same_versions = tracker.client.search_model_versions(" AND ".join(conditions), max_results=1)
    if not same_versions:
        return None
    return tracker.client.get_prompt_version(name, same_versions[0].version)


def _shorten_messages(messages: Messages) -> Messages:
    """Return messages that are short enough for the registry, each cut to an equal part."""
    max_characters = _MAX_PROMPT_CHARACTERS // len(messages)
    short_messages: Messages = []
    for message in messages:
        short_messages.append({**message, "content": shorten(message["content"], max_characters)})
    return short_messages


def _messages_of(predictor: dspy.Predict, adapter_name: str) -> Messages:
    """Return the prompt of a predictor as a template: "{{question}}" stands for the question.

    If no template can be made, the messages are its instructions alone.
    """
    signature = signature_of(predictor)
    # Double braces mark variables in MLflow's templates.
    placeholders: dict[str, Any] = {name: "{{" + name + "}}" for name in signature.input_fields}
    # A demo may be reserved for a predictor. Those of other predictors are not shown.
    path = str(getattr(predictor, "path", ""))
    demos: list[Any] = [demo for demo in predictor.demos if is_for(demo, path)]
    adapter = make_adapter("chat" if adapter_name == "auto" else adapter_name)

    try:
        formatted = adapter.format(signature, demos, placeholders)
        messages: Messages = []
        for message in formatted:
            messages.append({"role": str(message["role"]), "content": str(message["content"])})
        return messages
    except Exception:
        # Some inputs are not plain text, e.g. a picture or a list of messages. The adapter fails if
        # it gets a placeholder for one of these.
        return [{"role": "system", "content": signature.instructions}]

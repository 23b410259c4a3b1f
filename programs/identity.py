"""Digests of a program and of what a model sees of it.

They are keys of caches, stored memories, journals and manifests, so they leave out what changes no
answer: demos that no prompt shows, and the key, address and headers of a model's client. Every
question asks for the digests of prompts, so these are kept as long as a prompt stays the same.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import dspy
from pydantic import BaseModel, TypeAdapter

from .. import __version__
from ._component import Component
from ._context import current_program_context, program_context
from .single_flight import SingleFlight
from .state import dump_predictor, signature_of
from .writer import Writer

_UNSEEN_SETTINGS = re.compile(
    r"^api_|key|token$|headers|base_url|secret|password|^timeout$", re.IGNORECASE
)
"""Settings of a client that do not reach the model."""

_SOURCE_LOCK = threading.Lock()
"""Held while a source is looked for.

Python 3.11 raises a SystemError if two threads parse Python at once.
"""


class _DigestedPrompt(NamedTuple):
    """The digest of a prompt, and what its key names by id.

    Signature and demos are kept so that their ids are not reused while the digest is.
    """

    digest: str
    signature: type[dspy.Signature]
    demos: tuple[Any, ...]


_PROMPTS: SingleFlight[Any, _DigestedPrompt] = SingleFlight(capacity=256)


@contextmanager
def rollout(name: str | int) -> Generator[None]:
    """Keep the memories of one rollout apart from those of its siblings, for a block of code.

    If the current model samples (temperature above 0), it gets a rollout id of its own as well, so
    that DSPy's cache does not hand one rollout the answers of another.

    Args:
        name: What tells the rollout from the others of its group.
    """
    lm = dspy.settings.lm
    if lm is not None and lm.kwargs.get("temperature"):
        outer_id = lm.kwargs.get("rollout_id") or ""
        lm = lm.copy(rollout_id=f"{outer_id}/{name}")
    with program_context(rollout=str(name)), dspy.context(lm=lm):
        yield


def prompt_digest(predictor: dspy.Predict) -> str:
    """Return a digest of what a model sees of a prompt, without inputs and the adapter's form."""
    signature = signature_of(predictor)
    demos = tuple(predictor.demos)

    def digest_prompt() -> _DigestedPrompt:
        state = dump_predictor(predictor).model_dump(mode="json")
        schemas = [_schema_digest(field.annotation) for field in signature.fields.values()]
        return _DigestedPrompt(digest([state, schemas]), signature, demos)

    key = (
        id(signature),
        # The instructions: InferRules edits them in place, so that the signature's id stays.
        signature.__doc__,
        tuple(id(demo) for demo in demos),
        _call_settings(predictor),
        getattr(predictor, "nearest", None),
    )
    return _PROMPTS.get_or_compute(key, digest_prompt).digest


def writer_digest(writer: Writer) -> str:
    """Return a digest of what decides the memories of a writer, but for model and adapter."""
    components: list[Any] = []
    prompts: dict[str, str] = {}
    for path, module in writer.named_sub_modules():
        if isinstance(module, Component):
            components.append([_class_name(type(module)), module.config])
        elif isinstance(module, dspy.Predict):
            prompts[path.removeprefix("self.")] = prompt_digest(module)

    embedder = getattr(writer, "embedder", None)
    embedder_name = getattr(embedder, "name", None)
    return digest([components, prompts, embedder_name, _schema_digest(writer.Memory)])


def program_digest(program: Any) -> str:
    """Return a digest of a program: method, task, adapter and every prompt."""
    prompts: dict[str, str] = {}
    for name, predictor in program.all_predictors().items():
        prompts[name] = prompt_digest(predictor)
    return digest([program.name, program.config, program.task.name, program.adapter, prompts])


def writer_key(writer: Writer) -> str:
    """Return the key of the memories that a writer makes of any history in the current context.

    It covers the writer, and the models and the adapter that `dspy.settings` has now.
    """
    models: dict[str, Any] = {}
    for name, predictor in writer.predictors_below().items():
        models[name] = _model_identity(predictor.lm or dspy.settings.lm)

    return digest(
        [
            writer_digest(writer),
            _source_digest(type(writer)),
            _adapter_identity(dspy.settings.adapter or dspy.ChatAdapter()),
            models,
            current_program_context().rollout,
        ]
    )


def digest(parts: Any) -> str:
    """Return the sha256 of anything that has a JSON form, in hexadecimal."""
    text = json.dumps(parts, sort_keys=True, default=jsonable)
    return hashlib.sha256(text.encode()).hexdigest()


def jsonable(value: Any) -> Any:
    """Return the JSON form of a record, or else the value's text; a `default=` for json.dumps."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def _call_settings(predictor: dspy.Predict) -> str:
    """Return what is set of the calls of a predictor, and of its fields, as text."""
    if not predictor.config and not predictor.fields:
        return ""
    return json.dumps([predictor.config, predictor.fields], sort_keys=True, default=str)


def _class_name(class_in_digest: type) -> str:
    """Return how a digest names a class.

    A class of the suite goes by its own name, so that it may move to another module.
    """
    is_of_suite = class_in_digest.__module__.startswith(f"{__package__}.")
    if is_of_suite:
        return class_in_digest.__qualname__
    return f"{class_in_digest.__module__}:{class_in_digest.__qualname__}"


def _adapter_identity(adapter: dspy.Adapter) -> str:
    """Return what decides the form of prompts: the adapter's class and its plain attributes."""
    attributes: list[tuple[str, Any]] = []
    for name, value in sorted(vars(adapter).items()):
        if isinstance(value, bool | int | str | None):
            attributes.append((name, value))
    return f"{_class_name(type(adapter))}{attributes}"


def _model_identity(lm: Any) -> dict[str, Any]:
    """Return what decides a model's answers; nothing if there is no model."""
    if lm is None:
        return {}
    settings = {
        name: value for name, value in lm.kwargs.items() if not _UNSEEN_SETTINGS.search(name)
    }
    engine = getattr(lm, "engine", None)
    weights_version = getattr(engine, "weights_version", None)
    return {"model": lm.model, "kwargs": settings, "weights": weights_version}


@functools.lru_cache(maxsize=1024)
def _schema_digest(annotation: Any) -> str:
    return digest(TypeAdapter(annotation).json_schema())


@functools.cache
def _source_digest(writer_class: type) -> str:
    """Return a digest of the version and of the source of a class, if Python finds its source."""
    try:
        with _SOURCE_LOCK:
            source = inspect.getsource(writer_class)
    except (OSError, TypeError):
        return __version__
    return digest([__version__, source])

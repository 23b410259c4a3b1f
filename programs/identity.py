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
    """Keep the code of a block from sharing memories and answers with other rollouts.

    A rollout is one of several runs of a program on the same question. They are compared, so each
    has to write its own memory.

    Args:
        name: Tells the rollout from the others of its group.
    """
    lm = dspy.settings.lm

    # A model that samples gets an id for the rollout, which is part of the key of DSPy's cache.
    # Otherwise the cache would give one rollout the answers of another.
    if lm is not None and lm.kwargs.get("temperature"):
        # Rollouts may be nested, so the id holds that of the outer rollout too.
        outer_id = lm.kwargs.get("rollout_id") or ""
        lm = lm.copy(rollout_id=f"{outer_id}/{name}")

    with program_context(rollout=str(name)), dspy.context(lm=lm):
        yield


def prompt_digest(predictor: dspy.Predict) -> str:
    """Return a digest of what a model sees of a predictor: instructions, fields, demos, settings.

    Two predictors with equal digests write the same prompts for the same inputs and adapter. The
    digest is kept until something in the predictor changes, since every question asks for it.
    """
    signature = signature_of(predictor)
    demos = tuple(predictor.demos)

    def digest_prompt() -> _DigestedPrompt:
        state = dump_predictor(predictor).model_dump(mode="json")
        schemas = [_schema_digest(field.annotation) for field in signature.fields.values()]
        return _DigestedPrompt(digest([state, schemas]), signature, demos)

    # Python's ids are quick to compare. The cached digest keeps signature and demos alive, so that
    # no other object gets their ids.
    key = (
        id(signature),
        # The instructions are part of the key too: DSPy's InferRules edits them inside the same
        # signature class.
        signature.__doc__,
        tuple(id(demo) for demo in demos),
        _call_settings(predictor),
        getattr(predictor, "nearest", None),
    )
    return _PROMPTS.get_or_compute(key, digest_prompt).digest


def writer_digest(writer: Writer) -> str:
    """Return a digest of all that decides what a writer writes, without the model and the adapter.

    That is the classes and settings of its components, its prompts, its embedder, and the class of
    its memories.
    """
    components: list[Any] = []
    prompts: dict[str, str] = {}
    for path, module in writer.named_sub_modules():
        if isinstance(module, Component):
            components.append([_class_name(type(module)), module.config])
        elif isinstance(module, dspy.Predict):
            prompts[path.removeprefix("self.")] = prompt_digest(module)

    # Not every writer has an embedder.
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
    """Return the part of a cache key that stands for how memories are written now.

    Two writers with equal keys write the same memory of the same history. So the key covers the
    writer and its code, the models and the adapter that DSPy has now, and the rollout.
    """
    models: dict[str, Any] = {}
    for name, predictor in writer.predictors_below().items():
        # A model that is bound to a predictor is asked instead of DSPy's.
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
    """Return the settings of a predictor's calls and fields as text; "" if there are none."""
    if not predictor.config and not predictor.fields:
        return ""
    return json.dumps([predictor.config, predictor.fields], sort_keys=True, default=str)


def _class_name(class_in_digest: type) -> str:
    """Return the name that stands for a class in a digest.

    It has the module only for classes of users. A class of the suite may move to another module
    without changing the digests of saved programs.
    """
    is_of_suite = class_in_digest.__module__.startswith(f"{__package__}.")
    if is_of_suite:
        return class_in_digest.__qualname__
    return f"{class_in_digest.__module__}:{class_in_digest.__qualname__}"


def _adapter_identity(adapter: dspy.Adapter) -> str:
    """Return a text that tells adapters apart that form prompts in different ways.

    It holds the class and those attributes of the adapter that are numbers, texts or truth values.
    """
    attributes: list[tuple[str, Any]] = []
    for name, value in sorted(vars(adapter).items()):
        if isinstance(value, bool | int | str | None):
            attributes.append((name, value))
    return f"{_class_name(type(adapter))}{attributes}"


def _model_identity(lm: Any) -> dict[str, Any]:
    """Return what decides a model's answers: its name, its settings and the version of its weights.

    Keys, addresses and headers of the client are left out. Without a model, the result is empty.
    """
    if lm is None:
        return {}

    settings: dict[str, Any] = {}
    for name, value in lm.kwargs.items():
        if not _UNSEEN_SETTINGS.search(name):
            settings[name] = value

    # Only a model that is trained in this process has an engine with a version.
    engine = getattr(lm, "engine", None)
    weights_version = getattr(engine, "weights_version", None)
    return {"model": lm.model, "kwargs": settings, "weights": weights_version}


@functools.lru_cache(maxsize=1024)
def _schema_digest(annotation: Any) -> str:
    return digest(TypeAdapter(annotation).json_schema())


@functools.cache
def _source_digest(writer_class: type) -> str:
    """Return a digest of Mempiler's version and of the source of a writer's class.

    Python has no source of classes that were typed into an interpreter. For these, the version
    alone is returned.
    """
    try:
        with _SOURCE_LOCK:
            source = inspect.getsource(writer_class)
    except (OSError, TypeError):
        return __version__
    return digest([__version__, source])

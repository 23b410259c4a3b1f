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
from collections.abc import Generator, Hashable
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
    """Keep the code of a `with` block from sharing memories and answers with other rollouts.

    A rollout is one of several runs of a program on the same question. The runs are compared, so
    every run has to write a memory for itself.

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

    Two predictors with equal digests write the same prompts for the same inputs and adapter. Every
    question asks for the digest, so it is cached, under a key that is quicker to compute.
    """
    signature = signature_of(predictor)
    demos = tuple(predictor.demos)

    def digest_prompt() -> _DigestedPrompt:
        state = dump_predictor(predictor).model_dump(mode="json")
        schemas = [_schema_digest(field.annotation) for field in signature.fields.values()]
        # The key has the ids of these objects. Python may give the id of a deleted object to
        # another one, so the cache holds the objects as long as the digest.
        return _DigestedPrompt(digest([state, schemas]), signature, demos)

    key = _prompt_key(predictor, signature, demos)
    return _PROMPTS.get_or_compute(key, digest_prompt).digest


def _prompt_key(
    predictor: dspy.Predict, signature: type[dspy.Signature], demos: tuple[Any, ...]
) -> Hashable:
    """Return the key of a predictor's digest in the cache; it differs once the prompt has changed.

    Signature and demos are named by their Python ids, which are quicker to compare than contents.

    Args:
        predictor: The predictor.
        signature: The signature of the predictor.
        demos: The demos of the predictor.
    """
    demo_ids = tuple(id(demo) for demo in demos)
    # DSPy's InferRules edits the instructions of a signature in place, and the id stays the same.
    # A signature has its instructions as docstring.
    instructions = signature.__doc__
    # Only Mempiler's own predictors have this attribute: how many demos a prompt shows, those that
    # are nearest to its inputs. A plain `dspy.Predict` shows all.
    shown_demo_count = getattr(predictor, "nearest", None)
    return (id(signature), instructions, demo_ids, _call_settings(predictor), shown_demo_count)


def writer_digest(writer: Writer) -> str:
    """Return a digest of what decides which memories a writer writes, besides model and adapter.

    It covers the classes and settings of the writer's components, its prompts, the name of its
    embedder, and the fields of its memories.
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

    The name of a user's class begins with its module. A class of Mempiler is named without, so
    that it can move to another module and saved programs keep their digests.
    """
    is_class_of_mempiler = class_in_digest.__module__.startswith(f"{__package__}.")
    if is_class_of_mempiler:
        return class_in_digest.__qualname__
    return f"{class_in_digest.__module__}:{class_in_digest.__qualname__}"


def _adapter_identity(adapter: dspy.Adapter) -> str:
    """Return a text with the class and the options of an adapter.

    Adapters of different classes, or with different options, may turn the same inputs into
    different prompts, so they must get different texts.
    """
    attributes: list[tuple[str, Any]] = []
    for name, value in sorted(vars(adapter).items()):
        # Options are truth values, whole numbers, texts or None. Other attributes, such as
        # callbacks, are left out: the text of an object may differ from process to process.
        if isinstance(value, bool | int | str | None):
            attributes.append((name, value))
    return f"{_class_name(type(adapter))}{attributes}"


def _model_identity(lm: Any) -> dict[str, Any]:
    """Return what decides a model's answers: its name, its settings and the version of its weights.

    Keys, addresses and headers of the client are left out. The result is empty if `lm` is None.
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
    """Return a digest of Mempiler's version and of the source code of a writer's class.

    If Python cannot find the source, as for a class that was typed into an interpreter, the version
    itself is returned.
    """
    try:
        with _SOURCE_LOCK:
            source = inspect.getsource(writer_class)
    except (OSError, TypeError):
        return __version__
    return digest([__version__, source])

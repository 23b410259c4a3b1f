"""Digests of a program and of what a model sees of it: keys of caches, stored memories, journals and manifests.

A demo that no prompt shows changes nothing, and neither does the key, address or header of a client. Digests of prompts
are remembered by identity, since every question asks for them.
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
from typing import Any

import dspy
from pydantic import BaseModel, TypeAdapter

from .. import __version__
from ._context import current_program_context, program_context
from .writer import Writer
from .component import Component
from .state import dump_predictor, signature_of
from .single_flight import SingleFlight

_UNSEEN = re.compile(r"^api_|key|token$|headers|base_url|secret|password|^timeout$", re.IGNORECASE)
"""Settings of a client that do not reach the model."""


@contextmanager
def rollout(name: str | int) -> Generator[None]:
    """Scope of one rollout of a reinforcement-learning group: memories are not shared across scopes.

    Where the current LM samples (temperature above 0), it also gets a rollout id of its own, so that DSPy's LM cache
    does not hand one rollout the answers of another.

    Args:
        name: What tells the rollout from its siblings.
    """
    lm = dspy.settings.lm
    if lm is not None and lm.kwargs.get("temperature"):
        lm = lm.copy(rollout_id=f"{lm.kwargs.get('rollout_id') or ''}/{name}")
    with program_context(rollout=str(name)), dspy.context(lm=lm):
        yield


_PROMPTS = SingleFlight(capacity=256)
"""Digests of prompts, as long as what they are made from is the same."""


def prompt_digest(predictor: dspy.Predict) -> str:
    """Digest of what a model sees of a prompt, but for its inputs and the adapter's form."""
    signature, demos = signature_of(predictor), tuple(predictor.demos)
    config, fields = predictor.config, predictor.fields
    settings = json.dumps([config, fields], sort_keys=True, default=str) if config or fields else ""
    # Instructions, which are its docstring, are named beside the signature: InferRules edits them in place.
    key = (id(signature), signature.__doc__, tuple(map(id, demos)), settings, vars(predictor).get("nearest"))

    def make() -> tuple[Any, str]:
        types = [_schema(field.annotation) for field in signature.fields.values()]
        # Signature and demos are kept beside the digest, so that their ids are not reused while it is cached.
        return (signature, demos), digest([dump_predictor(predictor).model_dump(mode="json"), types])

    return _PROMPTS.get_or_compute(key, make)[1]


def writer_digest(writer: Writer) -> str:
    """Digest of what decides the memories that a writer makes, but for the model and the adapter."""
    embedder = getattr(getattr(writer, "embedder", None), "name", None)
    about: list[Any] = []
    asked: dict[str, str] = {}
    for path, one in writer.named_sub_modules():
        if isinstance(one, Component):
            # One of the suite may move to another module, and is the same.
            kind, ours = type(one), type(one).__module__.startswith(f"{__package__}.")
            name = kind.__qualname__ if ours else f"{kind.__module__}:{kind.__qualname__}"
            about.append([name, one.config])
        elif isinstance(one, dspy.Predict):
            asked[path.removeprefix("self.")] = prompt_digest(one)
    return digest([about, asked, embedder, _schema(writer.Memory)])


def program_digest(program: Any) -> str:
    """Digest of a program: method, task, adapter and every prompt."""
    predictors = {name: prompt_digest(one) for name, one in sorted(program.all_predictors().items())}
    return digest([program.name, program.config, program.task.name, program.adapter, predictors])


def writer_key(writer: Writer) -> str:
    """What a written memory depends on besides the history, under the model and adapter of the context."""
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    predictors = writer.predictors_below()
    lms = {name: _lm_key(predictor.lm or dspy.settings.lm) for name, predictor in predictors.items()}
    form = {name: value for name, value in vars(adapter).items() if isinstance(value, bool | int | str | None)}
    layout = f"{type(adapter).__module__}.{type(adapter).__qualname__}{sorted(form.items())}"
    return digest([writer_digest(writer), _source_digest(type(writer)), layout, lms, current_program_context().rollout])


def digest(parts: Any) -> str:
    """sha256 of anything that has a JSON form."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=jsonable).encode()).hexdigest()


def jsonable(value: Any) -> Any:
    """`default=` of json.dumps for records and everything else."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def _lm_key(lm: Any) -> dict[str, Any]:
    if lm is None:
        return {}
    kwargs = {name: value for name, value in lm.kwargs.items() if not _UNSEEN.search(name)}
    weights = getattr(getattr(lm, "engine", None), "weights_version", None)
    return {"model": lm.model, "kwargs": kwargs, "weights": weights}


@functools.lru_cache(maxsize=1024)
def _schema(annotation: Any) -> str:
    return digest(TypeAdapter(annotation).json_schema())


_PARSING = threading.Lock()
"""Python 3.11 fails with a SystemError where two threads parse Python at once, as looking for a source does."""


@functools.cache
def _source_digest(kind: type) -> str:
    try:
        with _PARSING:
            return digest([__version__, inspect.getsource(kind)])
    except (OSError, TypeError):
        return __version__

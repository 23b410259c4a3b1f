"""What a written memory depends on, as one digest, and the scope that tells one rollout from another.

`writer_key` renders the prompts of the writing predictors as the LM would see them, so every teleprompter change
(instructions, demos, field descriptions, adapter, model, temperature, rollout id) gives a new key, and a demo that no
prompt shows gives none. API keys, addresses and headers never enter it.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
from pydantic import BaseModel

from .. import __version__
from ..memory.flight import Flight
from .method import Method
from .state import field_states, signature_of

_rollout: contextvars.ContextVar[str] = contextvars.ContextVar("rollout", default="")
_UNSEEN = re.compile(r"^api_|key|token$|headers|base_url|secret|password|^timeout$", re.IGNORECASE)
"""Settings of a client, of which the model sees nothing."""


@contextmanager
def rollout(name: str | int) -> Iterator[None]:
    """Scope of one rollout of a reinforcement-learning group: memories are not shared across scopes.

    Where the current LM samples (temperature above 0), it also gets a rollout id of its own, so that DSPy's LM cache
    does not hand one rollout the answers of another.

    Args:
        name: What tells the rollout from its siblings.
    """
    token = _rollout.set(str(name))
    lm = dspy.settings.lm
    try:
        if lm is not None and lm.kwargs.get("temperature"):
            lm = lm.copy(rollout_id=f"{lm.kwargs.get('rollout_id') or ''}/{name}")
        with dspy.context(lm=lm):
            yield
    finally:
        _rollout.reset(token)


def writer_key(method: Method, memo: Flight | None = None) -> str:
    """Digest of everything that the written memory depends on, except the history.

    Args:
        method: The method whose writing predictors are described.
        memo: Keeps digests of rendered prompts between calls, since every question asks for the key.

    Returns:
        A hex digest. API keys and addresses are not part of it.
    """
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    parts: list[Any] = [
        f"{type(method).__module__}:{type(method).__qualname__}",
        _source_digest(type(method)),
        method.config,
        getattr(method.embedder, "name", None),
        _rollout.get(),
    ]
    for name, predictor in sorted(method.writers().items()):
        lm = predictor.lm or dspy.settings.lm
        parts += [name, _lm_key(lm), {**predictor.config}, {**predictor.fields}, getattr(predictor, "nearest", None)]
        parts.append(_prompt_digest(predictor, adapter, Flight() if memo is None else memo))
    return _digest(parts)


def _prompt_digest(predictor: dspy.Predict, adapter: dspy.Adapter, memo: Flight) -> str:
    """Digest of the rendered prompt; rendering it costs milliseconds, so it is remembered by identity."""
    signature, demos = signature_of(predictor), tuple(predictor.demos)
    name = _adapter_key(adapter)

    def render() -> tuple[Any, str]:
        blank = {field: f"<{field}>" for field in signature.input_fields}
        fields = [field.model_dump() for field in field_states(signature)]
        # Signature and demos are kept in the value, so that their ids stay theirs while the digest is known.
        return (signature, demos), _digest([adapter.format(signature, list(demos), blank), fields, name])

    # Instructions are named as well: InferRules edits them in place.
    return memo.once((id(signature), signature.instructions, tuple(map(id, demos)), name), render)[1]


def _lm_key(lm: Any) -> dict[str, Any]:
    if lm is None:
        return {}
    kwargs = {name: value for name, value in lm.kwargs.items() if not _UNSEEN.search(name)}
    weights = getattr(getattr(lm, "engine", None), "weights_version", None)
    return {"model": lm.model, "kwargs": kwargs, "weights": weights}


def _adapter_key(adapter: dspy.Adapter) -> str:
    settings = {name: value for name, value in vars(adapter).items() if isinstance(value, bool | int | str | None)}
    return f"{type(adapter).__module__}.{type(adapter).__qualname__}{sorted(settings.items())}"


@functools.cache
def _source_digest(kind: type) -> str:
    try:
        return _digest([__version__, inspect.getsource(kind)])
    except (OSError, TypeError):
        return __version__


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=jsonable).encode()).hexdigest()


def jsonable(value: Any) -> Any:
    """`default=` of json.dumps for records and everything else."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)

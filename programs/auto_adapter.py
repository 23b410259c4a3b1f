"""The adapter of named models: answers held to a JSON schema where the endpoint can, else the chat layout.

    first request of a model ── one small question with a schema ──> JSON that fits   every answer under a schema
                                                                └──> anything else    chat

Constrained decoding cannot leave the form, so nothing is lost to it. OpenAI, vLLM, llama.cpp and Ollama take the same
`response_format`; tables of models know nothing of local servers, so the endpoint itself is asked, once. A signature
whose outputs no strict schema can describe (an open mapping) is asked for in the chat layout.

Limits: models that run in this process are not asked: they are not held to schemas. A resumed run takes what it found
out before from its own answers, also at another address.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Mapping
from typing import Any, cast

import dspy
from dspy.utils.exceptions import LMInvalidRequestError, LMUnsupportedFeatureError, LMUnsupportedModelError
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

from ..engines.taken import taking
from ..memory.flight import Flight
from ..reading.kinds import annotated
from .correcting import Correcting, CorrectingAdapter

QUESTION = "Does a lion live in the wild? Say so in a short sentence."
"""Asks for prose: an endpoint that passes over the schema answers in prose."""
_FITTING: dict[str, Any] = {
    "type": "object",
    "properties": {"animal": {"type": "string", "enum": ["lion", "cat"]}, "wild": {"type": "boolean"}},
    "required": ["animal", "wild"],
    "additionalProperties": False,
}
_IDLE = frozenset(
    ("title", "description", "default", "examples", "discriminator", "uniqueItems", "minLength", "maxLength", "format")
)
"""Keywords that strict schemas may not hold, or that tell a decoder nothing; the reader checks values anyway."""


class Endpoints:
    """Which endpoints hold a model to a schema; shared by threads and by copies of an adapter."""

    def __init__(self) -> None:
        self._flight = Flight()
        self._found: dict[tuple[str, str], bool] = {}

    def hold(self, lm: Any) -> bool:
        """Whether the endpoint of a model holds it to a schema; the first caller asks, the others wait.

        Raises:
            LMError: The endpoint failed; the next caller asks again.
        """
        key = (str(lm.model), _address(lm))

        def ask() -> bool:
            self._found[key] = _known(lm)
            return self._found[key]

        return self._flight.once(key, ask)

    def found(self) -> dict[str, str]:
        """What was found out: model name -> "schema" or "chat"."""
        return {model: "schema" if held else "chat" for (model, _), held in sorted(self._found.items())}

    def __deepcopy__(self, memo: object = None) -> Endpoints:
        return self

    def __reduce__(self) -> tuple[type[Endpoints], tuple[()]]:
        return Endpoints, ()


class SchemaAdapter(Correcting, dspy.JSONAdapter):
    """Prompts of `dspy.JSONAdapter`, answers held to a schema by the endpoint and read tolerantly.

    Args:
        schema: Of the outputs.
        corrections: How often an answer that cannot be read is asked for again.
    """

    layout = "json"

    def __init__(self, schema: Mapping[str, Any], corrections: int = 1) -> None:
        super().__init__(corrections, use_native_function_calling=False)
        self.schema = schema

    def _prepare_response_format(self, lm: Any, lm_kwargs: dict[str, Any], signature: Any) -> None:
        # DSPy's own choice goes by tables of known models.
        lm_kwargs["response_format"] = _response_format("answer", self.schema)


class AutoAdapter(CorrectingAdapter):
    """Answers under a schema where the endpoint can, else `CorrectingAdapter`.

    Args:
        corrections: How often an answer that cannot be read is asked for again.
    """

    def __init__(self, corrections: int = 1) -> None:
        super().__init__(corrections)
        self.endpoints = Endpoints()

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        return self.chosen(lm, signature)(lm, lm_kwargs, signature, demos, inputs)

    async def acall(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        chosen = await asyncio.to_thread(self.chosen, lm, signature)
        return await chosen.acall(lm, lm_kwargs, signature, demos, inputs)

    def chosen(self, lm: Any, signature: type[dspy.Signature]) -> Correcting:
        """The adapter for a model and a signature; the endpoint is asked if it has not been.

        Raises:
            LMError: The endpoint failed.
        """
        schema = output_schema(cast("Any", signature)) if _is_client(lm) else None
        held = schema is not None and self.endpoints.hold(lm)
        found = SchemaAdapter(schema, self.corrections) if schema and held else CorrectingAdapter(self.corrections)
        found._rendered = self._rendered
        return found


@functools.lru_cache(maxsize=512)
def output_schema(signature: type[dspy.Signature]) -> dict[str, Any] | None:
    """The strict JSON schema of a signature's outputs: one object, in order, all of them required.

    Returns:
        The schema; None where a strict one cannot say what an output is: an open mapping, any value, a tuple.
    """
    try:
        kinds = [(name, "validation", TypeAdapter(annotated(field))) for name, field in signature.output_fields.items()]
        found, shared = TypeAdapter.json_schemas(cast("Any", kinds))
        outputs = {name: _strict(found[name, "validation"]) for name in signature.output_fields}
        shapes = {name: _strict(shape) for name, shape in shared.get("$defs", {}).items()}
    except (_OpenError, PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError):
        return None
    schema = {"type": "object", "properties": outputs, "required": list(outputs), "additionalProperties": False}
    return {**schema, "$defs": shapes} if shapes else schema


class _OpenError(Exception):
    """Raised if a strict schema cannot describe a value."""


def _strict(node: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a schema as strict decoding takes it: objects closed, all properties required, no idle keywords."""
    known = {key: value for key, value in node.items() if key not in _IDLE}
    if not known or known.keys() & {"prefixItems", "allOf", "patternProperties"}:
        raise _OpenError
    if "$ref" in known:
        return {"$ref": known["$ref"]}
    for either in ("oneOf", "anyOf"):
        if either in known:
            return {"anyOf": [_strict(part) for part in known[either]]}
    if known.get("type") == "array":
        return {**known, "items": _strict(known.get("items", {}))}
    if known.get("type") == "object":
        if "properties" not in known:
            raise _OpenError
        parts = {name: _strict(part) for name, part in known["properties"].items()}
        return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
    return known


def _known(lm: Any) -> bool:
    """Whether an endpoint holds answers to a schema; a run that is resumed or replayed has its answer already."""
    if getattr(lm, "answers", None) is None:
        return _holds(lm)
    # The same question for all copies of the model, by which an optimizer samples in other ways.
    alone = lm.copy(rollout_id=None)
    alone.kwargs["temperature"] = None
    return _holds(alone)


def _holds(lm: Any) -> bool:
    """Asks an endpoint for an answer under a schema.

    Raises:
        LMError: It failed, which says nothing of what it can.
    """
    try:
        # Whoever happens to ask first, it is no part of their work.
        with taking():
            # DSPy's cache goes by the name of a model, and another server may have answered for it before.
            said: Any = lm(QUESTION, response_format=_response_format("fits", _FITTING), cache=False)
    except LMUnsupportedModelError:
        raise
    except (LMInvalidRequestError, LMUnsupportedFeatureError):
        return False
    text = said[0].get("text") if isinstance(said[0], dict) else said[0]
    try:
        value: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    found = cast("dict[str, Any]", value)
    return found.keys() == {"animal", "wild"} and found["animal"] in ("lion", "cat") and isinstance(found["wild"], bool)


def _response_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def _is_client(lm: Any) -> bool:
    """Whether a model is asked over the network."""
    engine = getattr(lm, "engine", None)
    return isinstance(engine, str) or hasattr(engine, "address")


def _address(lm: Any) -> str:
    return str(getattr(lm.engine, "address", None) or lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or "")

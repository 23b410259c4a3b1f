"""The adapters programs run under, by name; and `auto`, that of named models.

`auto` has answers held to a JSON schema of the outputs where the endpoint takes it, else asks in the chat layout. No
table knows local servers, so the schema is tried, and what came of it is remembered by endpoint, model and outputs.
Outputs that no strict schema describes (an open mapping) and models of this process are asked in the chat layout.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Generator, Mapping
from typing import Any, cast

import dspy
from dspy.utils.exceptions import LMInvalidRequestError, LMUnsupportedFeatureError, LMUnsupportedModelError
from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

from ..errors import UnknownNameError
from ..reading.kinds import annotated
from .compact_adapter import CompactAdapter
from .correcting import Correcting, CorrectingAdapter, JsonAdapter
from .failing import kind_of

_IDLE = frozenset(
    ("title", "description", "default", "examples", "discriminator", "uniqueItems", "minLength", "maxLength", "format")
)
"""Keywords that strict schemas may not hold, or that tell a decoder nothing; the reader checks values anyway."""
REFUSALS = (LMInvalidRequestError, LMUnsupportedFeatureError)


class Endpoints:
    """Which schemas the endpoints of models take; shared by threads and by copies of an adapter."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], bool] = {}

    def takes(self, lm: Any, outputs: str) -> bool | None:
        """Whether the endpoint of a model takes the schema of some outputs; None where it was not tried."""
        known = self._found.get((lm.model, _address(lm), outputs))
        return self._found.get((lm.model, "", outputs)) if known is None else known

    def note(self, lm: Any, outputs: str, takes: bool) -> None:
        """Remembers what came of a try."""
        self._found[lm.model, _address(lm), outputs] = takes

    def found(self) -> dict[str, dict[str, str]]:
        """What was found out: model name -> outputs -> "schema" or "chat"."""
        found: dict[str, dict[str, str]] = {}
        for (model, _, outputs), takes in sorted(self._found.items()):
            found.setdefault(model, {})[outputs] = "schema" if takes else "chat"
        return found

    def include(self, found: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over what was found out before or elsewhere, for any address of a model."""
        for model, known in found.items():
            self._found |= {(model, "", outputs): kind == "schema" for outputs, kind in known.items()}

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
        form = {"name": "answer", "strict": True, "schema": self.schema}
        lm_kwargs["response_format"] = {"type": "json_schema", "json_schema": form}


class AutoAdapter(CorrectingAdapter):
    """Answers under a schema where the endpoint takes it, else as `CorrectingAdapter` asks for them.

    Args:
        corrections: How often an answer that cannot be read is asked for again.
    """

    def __init__(self, corrections: int = 1) -> None:
        super().__init__(corrections)
        self.endpoints = Endpoints()

    def _steps(
        self, lm: Any, signature: type[dspy.Signature], inputs: Mapping[str, Any]
    ) -> Generator[Correcting, None, None]:
        under, outputs = self._under_schema(lm, signature)
        if under is not None:
            try:
                yield from under._steps(lm, signature, inputs)
                self.endpoints.note(lm, outputs, takes=True)
                return
            except REFUSALS as error:
                # Taken before, or the prompt or the model: no refusal of the schema.
                other = isinstance(error, LMUnsupportedModelError) or kind_of(error) == "too-long"
                if other or self.endpoints.takes(lm, outputs):
                    raise
        yield from super()._steps(lm, signature, inputs)
        if under is not None:
            # The schema was refused and not the prompt.
            self.endpoints.note(lm, outputs, takes=False)

    def _under_schema(self, lm: Any, signature: type[dspy.Signature]) -> tuple[SchemaAdapter | None, str]:
        """What asks under a schema, if anything may, and the name of the outputs."""
        schema = output_schema(cast("Any", signature)) if _is_client(lm) else None
        if schema is None:
            return None, ""
        outputs = _named(schema)
        if self.endpoints.takes(lm, outputs) is False:
            return None, outputs
        found = SchemaAdapter(schema, self.corrections)
        found._rendered = self._rendered
        return found, outputs


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


def _named(schema: Mapping[str, Any]) -> str:
    """The outputs of a schema, and what tells it from another one of the same."""
    return f"{', '.join(schema['properties'])} {hashlib.sha256(json.dumps(schema).encode()).hexdigest()[:8]}"


def _is_client(lm: Any) -> bool:
    """Whether a model is asked over the network."""
    engine = getattr(lm, "engine", None)
    return isinstance(engine, str) or hasattr(engine, "address")


def _address(lm: Any) -> str:
    return str(getattr(lm.engine, "address", None) or lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or "")


ADAPTERS = {
    "auto": AutoAdapter,
    "chat": CorrectingAdapter,
    "json": JsonAdapter,
    "compact": CompactAdapter,
}


def adapter(name: str = "chat") -> dspy.Adapter:
    """Makes the adapter of a name that a manifest or `--adapter` gives.

    Raises:
        UnknownNameError: There is no such adapter.
    """
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ADAPTERS)
    return ADAPTERS[name]()

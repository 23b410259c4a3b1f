"""A predictor's tuned state as plain JSON, and back: instructions, fields and demos.

Demos are dumped and validated by the types of the predictor's own fields, so that after loading they are the same
models they were before and render to the same prompt. Keys of a demo that the predictor has no field for (a labelled
example's history, for one) are left out, and so are demos that no prompt would show.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.adapters.utils import get_annotation_name
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from ..errors import ProgramError
from .predictor import Predictor


class FieldState(BaseModel):
    """One field of a signature as it is saved."""

    name: str
    kind: str
    """"in" or "out"."""
    type: str
    shape: str
    """Digest of the type's JSON schema, so that a change inside a nested model is seen."""
    desc: str
    prefix: str


class PredictorState(BaseModel):
    """Everything a teleprompter can change in one predictor."""

    instructions: str
    fields: list[FieldState]
    demos: list[dict[str, Any]]
    decisions: dict[str, Any] = {}
    """DSPy's per-field decision settings."""
    config: dict[str, Any] = {}
    nearest: int | None = None
    """How many of the demos a prompt shows (`predictor.Predictor`)."""


@dataclass(frozen=True)
class ParsedState:
    """A predictor's state, checked and ready to be assigned."""

    signature: type[dspy.Signature]
    demos: list[dspy.Example]
    decisions: dict[str, Any]
    config: dict[str, Any]
    nearest: int | None = None


def signature_of(predictor: dspy.Predict) -> type[dspy.Signature]:
    """The signature class of a predictor, with the type that DSPy's annotations lose."""
    return predictor.signature


def field_states(signature: type[dspy.Signature]) -> list[FieldState]:
    """The fields of a signature in order."""
    states: list[FieldState] = []
    for name, info in signature.fields.items():
        extra: Mapping[str, Any] = {} if callable(info.json_schema_extra) else info.json_schema_extra or {}
        states.append(
            FieldState(
                name=name,
                kind="in" if name in signature.input_fields else "out",
                type=get_annotation_name(info.annotation),
                shape=_shape(info.annotation),
                desc=str(extra.get("desc", "")),
                prefix=str(extra.get("prefix", "")),
            )
        )
    return states


def fingerprint(signature: type[dspy.Signature]) -> list[list[str]]:
    """What must not change between saving and loading: each field's name, direction, type and shape."""
    return [[field.name, field.kind, field.type, field.shape] for field in field_states(signature)]


def dump_predictor(predictor: dspy.Predict) -> PredictorState:
    """The state of a predictor; its LM is never part of it."""
    signature = signature_of(predictor)
    return PredictorState(
        instructions=signature.instructions,
        fields=field_states(signature),
        demos=[dump_values(signature, demo) for demo in own_demos(predictor)],
        decisions=dict(predictor.fields),
        config={name: value for name, value in predictor.config.items() if not name.startswith("api_")},
        nearest=getattr(predictor, "nearest", None),
    )


def parse_predictor(predictor: dspy.Predict, state: PredictorState, name: str) -> ParsedState:
    """Checks a saved state against the predictor it is meant for, without touching the predictor.

    Raises:
        ProgramError: A field differs, or a demo does not fit its field's type; the message names the predictor, what
            was saved and what the code has.
    """
    signature = signature_of(predictor)
    saved = [[field.name, field.kind, field.type, field.shape] for field in state.fields]
    check_fields(name, saved, fingerprint(signature))
    signature = signature.with_instructions(state.instructions)
    for field in state.fields:
        signature = signature.with_updated_fields(field.name, desc=field.desc, prefix=field.prefix)
    demos = [load_values(signature, demo, name) for demo in state.demos]
    if state.nearest is not None and not isinstance(predictor, Predictor):
        raise ProgramError(f"predictor {name}: saved with nearest demos, but the code's predictor cannot choose any")
    return ParsedState(signature, demos, state.decisions, state.config, state.nearest)


def load_predictor(predictor: dspy.Predict, state: ParsedState) -> None:
    """Assigns a checked state."""
    predictor.signature = state.signature
    predictor.demos = list(state.demos)
    predictor.fields = dict(state.decisions)
    predictor.config = {**predictor.config, **state.config}
    if state.nearest is not None:
        predictor.nearest = state.nearest  # pyright: ignore[reportAttributeAccessIssue]


def check_fields(name: str, saved: list[list[str]], code: list[list[str]]) -> None:
    """Compares two fingerprints of the predictor `name`.

    Raises:
        ProgramError: They differ; the message names the first field that does.
    """
    if saved == code:
        return
    for before, now in zip(saved, code, strict=False):
        if before != now:
            inside = "of another shape inside" if before[:3] == now[:3] else _field(now)
            raise ProgramError(
                f"predictor {name}: saved field {_field(before)}, but the code has {inside}; "
                "compile again with this version, or install the one that saved it"
            )
    extra = (saved if len(saved) > len(code) else code)[min(len(saved), len(code))]
    side = "saved" if len(saved) > len(code) else "the code"
    raise ProgramError(f"predictor {name}: only {side} has the field {_field(extra)}; compile again with this version")


def own_demos(predictor: dspy.Predict) -> list[Any]:
    """The demos a prompt of this predictor shows: those with at least one input and one output of its own."""
    inputs, outputs = signature_of(predictor).input_fields, signature_of(predictor).output_fields
    return [demo for demo in predictor.demos if any(k in demo for k in inputs) and any(k in demo for k in outputs)]


def dump_values(signature: type[dspy.Signature], values: Any) -> dict[str, Any]:
    """JSON of those values that the signature has fields for."""
    dumped: dict[str, Any] = {}
    for name, info in signature.fields.items():
        if name in values:
            kind: Any = Any if values[name] is None else info.annotation
            dumped[name] = TypeAdapter(kind).dump_python(values[name], mode="json", warnings=False)
    if values.get("augmented"):
        dumped["augmented"] = True
    return dumped


def load_values(signature: type[dspy.Signature], values: Mapping[str, Any], name: str) -> dspy.Example:
    """Typed values from their JSON.

    Raises:
        ProgramError: A value does not fit the type of its field.
    """
    loaded: dict[str, Any] = {}
    for key, value in values.items():
        kind: Any = signature.fields[key].annotation if key in signature.fields and value is not None else Any
        try:
            loaded[key] = TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ProgramError(f"predictor {name}: a saved demo does not fit its field {key!r}: {reason}") from error
    return dspy.Example(**loaded)


def _shape(annotation: Any) -> str:
    schema = TypeAdapter(annotation).json_schema()
    return hashlib.sha256(json.dumps(_without_prose(schema), sort_keys=True).encode()).hexdigest()[:12]


def _without_prose(schema: JsonValue) -> JsonValue:
    """A JSON schema without titles and descriptions of its types: rewording those changes no demo."""
    if isinstance(schema, list):
        return [_without_prose(part) for part in schema]
    if isinstance(schema, dict):
        return {
            k: _without_prose(v)
            for k, v in schema.items()
            if not (k in ("title", "description") and isinstance(v, str))
        }
    return schema


def _field(fingerprint: list[str]) -> str:
    name, kind, type_, _ = fingerprint
    return f"{name!r} ({kind}, {type_})"

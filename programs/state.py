"""What a teleprompter can change in a predictor, as plain JSON, and back.

    state = dump_predictor(predictor)
    state.model_dump(mode="json")                           # instructions, fields, demos, ...
    parse_predictor(predictor, state, "task.answer").assign_to(predictor)

Demos that no prompt would show are left out. A state cannot decide where a request goes: it holds
no settings but those of sampling, and no demo with an image or a file, which may lie at any
address.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any, Literal, cast

import dspy
from dspy.adapters.decision_state import DecisionState
from dspy.adapters.utils import get_annotation_name
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from ..errors import ProgramError
from ..text import one_line
from ._sampling import sampling_error
from .field_values import dump_values, load_values, names_file
from .predictor import Predictor, is_for

_SHAPE_DIGITS = 12
"""How many digits of a type's digest are saved."""


class FieldState(BaseModel):
    """One field of a signature as it is saved."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Literal["in", "out"]
    type: str
    shape: str
    """Digest of the type's JSON schema, so that a change inside a nested model is seen."""
    desc: str
    prefix: str


class PredictorState(BaseModel):
    """Everything a teleprompter can change in one predictor."""

    model_config = ConfigDict(extra="forbid")

    instructions: str
    fields: list[FieldState]
    demos: list[dict[str, Any]]
    decisions: dict[str, Any] = {}
    """DSPy's per-field decision settings."""
    config: dict[str, Any] = {}
    """Settings of sampling, see `Sampling`."""
    nearest: Annotated[int, Field(strict=True, ge=0, le=100_000)] | None = None
    """How many of the demos a prompt shows (`predictor.Predictor`)."""


@dataclass(frozen=True)
class ParsedState:
    """A saved state that fits its predictor: typed, and ready to be assigned."""

    signature: type[dspy.Signature]
    demos: list[dspy.Example]
    decisions: Mapping[str, Any]
    config: Mapping[str, Any]
    nearest: int | None

    def assign_to(self, predictor: dspy.Predict) -> None:
        """Let a predictor ask as the state says; settings that the state does not name stay."""
        predictor.signature = self.signature
        predictor.demos = self.demos
        predictor.fields = dict(self.decisions)
        predictor.config = {**predictor.config, **self.config}
        if isinstance(predictor, Predictor):
            predictor.nearest = self.nearest


def signature_of(predictor: dspy.Predict) -> type[dspy.Signature]:
    """Return the signature class of a predictor, with the type that DSPy's annotations lose."""
    return cast("type[dspy.Signature]", predictor.signature)


def copy_signature(predictor: dspy.Predict) -> type[dspy.Signature]:
    """Return an equal signature class that no other predictor has.

    DSPy's InferRules edits the instructions of a signature class in place.
    """
    signature = signature_of(predictor)
    return signature.with_instructions(signature.instructions)


def field_states(signature: type[dspy.Signature]) -> list[FieldState]:
    """Return the fields of a signature in order."""
    states: list[FieldState] = []
    for name, field in signature.fields.items():
        extra = field.json_schema_extra
        texts: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
        state = FieldState(
            name=name,
            kind="in" if name in signature.input_fields else "out",
            type=get_annotation_name(field.annotation),
            shape=_shape_digest(field.annotation),
            desc=str(texts.get("desc", "")),
            prefix=str(texts.get("prefix", "")),
        )
        states.append(state)
    return states


def fingerprint(fields: Sequence[FieldState]) -> list[list[str]]:
    """Return what must not change between saving and loading: name, kind, type and shape."""
    return [[field.name, field.kind, field.type, field.shape] for field in fields]


def own_demos(predictor: dspy.Predict) -> list[dspy.Example]:
    """Return the demos that a prompt of this predictor shows.

    These are meant for it, and have at least one of its inputs and one of its outputs.
    """
    signature = signature_of(predictor)
    path = getattr(predictor, "path", "")
    demos: list[dspy.Example] = []
    for demo in predictor.demos:
        has_input = any(name in demo for name in signature.input_fields)
        has_output = any(name in demo for name in signature.output_fields)
        if is_for(demo, path) and has_input and has_output:
            demos.append(demo)
    return demos


def dump_predictor(predictor: dspy.Predict) -> PredictorState:
    """Return the state of a predictor; its language model is never part of it.

    What a saved program may not hold is left out: demos with a file, settings other than those of
    sampling, and decisions that do not fit the fields.
    """
    signature = signature_of(predictor)
    dumped_demos = [dump_values(signature, demo) for demo in own_demos(predictor)]
    decisions = dict(predictor.fields)
    if _decisions_error(signature, decisions) is not None:
        decisions = {}

    config: dict[str, Any] = {}
    for name, value in predictor.config.items():
        if sampling_error(name, value) is None:
            config[name] = value

    return PredictorState(
        instructions=signature.instructions,
        fields=field_states(signature),
        demos=[demo for demo in dumped_demos if not names_file(demo)],
        decisions=decisions,
        config=config,
        nearest=getattr(predictor, "nearest", None),
    )


def parse_predictor(predictor: dspy.Predict, state: PredictorState, name: str) -> ParsedState:
    """Check a saved state against the predictor that it is meant for, which stays as it is.

    Args:
        predictor: The predictor that is to have the state.
        state: What was saved.
        name: The predictor's name, for errors.

    Returns:
        The state, which can be assigned once those of all predictors are checked.

    Raises:
        ProgramError: A field differs, a demo does not fit its field's type, or the state holds
            settings that are none of sampling. The message names the predictor, what was saved
            and what the code has.
    """
    _check_config(state.config, name)
    _check_fields(state.fields, signature_of(predictor), name)

    signature = _with_saved_texts(signature_of(predictor), state)
    demos = [load_values(signature, demo, name) for demo in state.demos]
    error = _decisions_error(signature, state.decisions)
    if error is not None:
        raise ProgramError(
            f"predictor {name}: saved decisions do not fit its fields: {error}; compile again"
        )
    return ParsedState(signature, demos, state.decisions, state.config, state.nearest)


def _check_config(config: Mapping[str, Any], name: str) -> None:
    """Raise a ProgramError if a saved setting is none of sampling, or out of its bounds."""
    for setting, value in config.items():
        reason = sampling_error(setting, value)
        if reason is not None:
            raise ProgramError(
                f"predictor {name}: saved setting {setting!r:.80}: {reason}; "
                "a saved program may hold settings of sampling only, save it again without"
            )


def _check_fields(saved: Sequence[FieldState], signature: type[dspy.Signature], name: str) -> None:
    """Raise a ProgramError if the saved fields are not those of the predictor in the code."""
    for saved_field, field in zip_longest(saved, field_states(signature)):
        if _is_same_field(saved_field, field):
            continue

        in_code = _describe_field(field)
        if _describe_field(saved_field) == in_code:
            in_code = "of another shape inside"
        raise ProgramError(
            f"predictor {name}: saved field {_describe_field(saved_field)}, "
            f"but the code has {in_code}; "
            "compile again with this version, or install the one that saved it"
        )


def _is_same_field(saved: FieldState | None, field: FieldState | None) -> bool:
    """Return whether both are there and agree in what must not change."""
    if saved is None or field is None:
        return False
    return fingerprint([saved]) == fingerprint([field])


def _describe_field(field: FieldState | None) -> str:
    if field is None:
        return "none"
    return f"{field.name!r} ({field.kind}, {field.type})"


def _with_saved_texts(
    signature: type[dspy.Signature], state: PredictorState
) -> type[dspy.Signature]:
    """Return a signature with the saved instructions, and the saved texts of its fields."""
    signature = signature.with_instructions(state.instructions)
    for field in state.fields:
        # DSPy declares each further argument as a dict, and takes any value.
        texts: Any = {"desc": field.desc, "prefix": field.prefix}
        signature = signature.with_updated_fields(field.name, **texts)
    return signature


def _decisions_error(signature: type[dspy.Signature], decisions: dict[str, Any]) -> str | None:
    """Return why decision settings do not fit a signature; None if they do."""
    try:
        DecisionState(signature, decisions)
    except (ValueError, TypeError, KeyError) as error:
        return one_line(error, 200)
    return None


def _shape_digest(annotation: Any) -> str:
    """Return a digest of a type's JSON schema."""
    schema = _without_prose(TypeAdapter(annotation).json_schema())
    text = json.dumps(schema, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_SHAPE_DIGITS]


def _without_prose(schema: JsonValue) -> JsonValue:
    """Return a JSON schema without titles and descriptions, which do not change its shape."""
    if isinstance(schema, list):
        return [_without_prose(part) for part in schema]
    if not isinstance(schema, dict):
        return schema

    shape: dict[str, JsonValue] = {}
    for name, part in schema.items():
        # A field of a nested model may be called "title": its schema is no text.
        is_prose = name in ("title", "description") and isinstance(part, str)
        if not is_prose:
            shape[name] = _without_prose(part)
    return shape

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
from functools import lru_cache
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
        """Give a predictor the prompt and the settings of this state.

        Settings of sampling that the state does not name stay as they are.
        """
        predictor.signature = self.signature
        predictor.demos = self.demos
        # DSPy keeps settings for single output fields in `fields`; it calls them decision settings.
        predictor.fields = dict(self.decisions)
        predictor.config = {**predictor.config, **self.config}
        # How many demos a prompt shows; a plain `dspy.Predict` shows all.
        if isinstance(predictor, Predictor):
            predictor.nearest = self.nearest


def signature_of(predictor: dspy.Predict) -> type[dspy.Signature]:
    """Return the signature class of a predictor; DSPy declares no type for the attribute."""
    return cast("type[dspy.Signature]", predictor.signature)


def copy_signature(predictor: dspy.Predict) -> type[dspy.Signature]:
    """Return a copy of a predictor's signature class, to give to another predictor.

    Predictors must not share a class, since DSPy's InferRules edits its instructions in place.
    """
    signature = signature_of(predictor)
    return signature.with_instructions(signature.instructions)


def field_states(signature: type[dspy.Signature]) -> list[FieldState]:
    """Return the state of each field of a signature that a saved program holds, in their order.

    It is the field's name, its type, whether it is an input or an output, and its texts in prompts.
    """
    states: list[FieldState] = []
    for name, field in signature.fields.items():
        # DSPy keeps the description and the prefix of a field in this dict. In a field that was
        # made by pydantic alone it may be None or a function, which holds no such texts.
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
    """Return of each field what has to be the same in a saved program and in the code.

    That is its name, its kind (input or output), its type, and the digest of the type's schema.
    """
    return [[field.name, field.kind, field.type, field.shape] for field in fields]


def shows_demos(predictor: dspy.Predict) -> bool:
    """Return whether prompts of a predictor can show demos; texts of other systems have none."""
    return not isinstance(predictor, Predictor) or predictor.shows_demos


def own_demos(predictor: dspy.Predict) -> list[dspy.Example]:
    """Return those demos of a predictor that its prompts show.

    Optimizers give one list of demos to all predictors of a program. A prompt shows a demo if it
    has at least one of the predictor's inputs and one of its outputs, and if it is not reserved for
    another predictor.
    """
    signature = signature_of(predictor)
    if not shows_demos(predictor):
        return []
    # A plain `dspy.Predict` has no path.
    path = getattr(predictor, "path", "")
    demos: list[dspy.Example] = []
    for demo in predictor.demos:
        has_input = any(name in demo for name in signature.input_fields)
        has_output = any(name in demo for name in signature.output_fields)
        if is_for(demo, path) and has_input and has_output:
            demos.append(demo)
    return demos


def dump_predictor(predictor: dspy.Predict) -> PredictorState:
    """Return what is saved of a predictor: its prompt and its settings, but no language model.

    A saved program must not decide where requests go. So demos with an image or a file, which may
    lie at any address, are left out, and so are all settings but those of sampling.
    """
    signature = signature_of(predictor)
    demos: list[dict[str, Any]] = []
    for demo in own_demos(predictor):
        dumped_demo = dump_values(signature, demo)
        if not names_file(dumped_demo):
            demos.append(dumped_demo)

    # DSPy's "decisions" are settings for single output fields, which a predictor has in `fields`.
    # DSPy refuses to load them if they do not fit the signature, so they are not saved then.
    decisions = dict(predictor.fields)
    if _decisions_error(signature, decisions) is not None:
        decisions = {}

    sampling_settings: dict[str, Any] = {}
    for name, value in predictor.config.items():
        if sampling_error(name, value) is None:
            sampling_settings[name] = value

    # How many demos a prompt shows; None for all. Only our own predictors can limit them.
    nearest = predictor.nearest if isinstance(predictor, Predictor) else None

    return PredictorState(
        instructions=signature.instructions,
        fields=field_states(signature),
        demos=demos,
        decisions=decisions,
        config=sampling_settings,
        nearest=nearest,
    )


def parse_predictor(predictor: dspy.Predict, state: PredictorState, name: str) -> ParsedState:
    """Return a saved state in the types of a predictor, after checking that the two fit.

    The predictor is not changed. Whoever loads a program first parses the states of all predictors
    and then assigns them, so that an error leaves the program as it was.

    Args:
        predictor: The predictor that is to get the state.
        state: What was saved.
        name: The predictor's name, for errors.

    Raises:
        ProgramError: The fields are not those of the code, a value of a demo does not fit its
            field, or a setting is not allowed. The message names the predictor, what was saved and
            what the code has.
    """
    _check_config(state.config, name)
    _check_fields(state.fields, signature_of(predictor), name)

    signature = _with_saved_texts(signature_of(predictor), state)
    demos = [load_values(signature, demo, name) for demo in state.demos]

    # Decisions are settings that DSPy keeps for single fields.
    error = _decisions_error(signature, state.decisions)
    if error is not None:
        raise ProgramError(
            f"predictor {name}: saved decisions do not fit its fields: {error}; compile again"
        )
    return ParsedState(signature, demos, state.decisions, state.config, state.nearest)


def _check_config(config: Mapping[str, Any], name: str) -> None:
    """Raise a ProgramError if a saved program holds a setting that it must not set.

    Only settings of sampling are allowed, such as the temperature, and within their bounds. With
    others, such as the address of the model, a stranger's file could send the user's words away.
    """
    for setting, value in config.items():
        # None if the setting is allowed.
        reason = sampling_error(setting, value)
        if reason is not None:
            raise ProgramError(
                f"predictor {name}: saved setting {setting!r:.80}: {reason}; "
                "a saved program may hold settings of sampling only, save it again without"
            )


def _check_fields(saved: Sequence[FieldState], signature: type[dspy.Signature], name: str) -> None:
    """Raise a ProgramError if saved fields differ from the fields of the signature in the code.

    Args:
        saved: The saved fields, in order.
        signature: The predictor's signature in the code.
        name: The predictor's name, for the error.
    """
    # If one side has fewer fields, None stands for each that is missing.
    for saved_field, field in zip_longest(saved, field_states(signature)):
        if _is_same_field(saved_field, field):
            continue

        in_code = _describe_field(field)
        if in_code == _describe_field(saved_field):
            # Name and type are the same. So the type is a model that has other fields now.
            in_code = "of another shape inside"
        raise ProgramError(
            f"predictor {name}: saved field {_describe_field(saved_field)}, "
            f"but the code has {in_code}; "
            "compile again with this version, or install the one that saved it"
        )


def _is_same_field(saved: FieldState | None, field: FieldState | None) -> bool:
    """Return whether two fields agree in all that must not change; None is a missing field."""
    if saved is None or field is None:
        return False
    return fingerprint([saved]) == fingerprint([field])


def _describe_field(field: FieldState | None) -> str:
    """Return a field as errors name it, e.g. "'answer' (out, str)"; "none" for a missing field."""
    if field is None:
        return "none"
    return f"{field.name!r} ({field.kind}, {field.type})"


def _with_saved_texts(
    signature: type[dspy.Signature], state: PredictorState
) -> type[dspy.Signature]:
    """Return a signature with the instructions, descriptions and prefixes of a saved state.

    These are the texts that an optimizer may have rewritten.
    """
    fields_in_code = field_states(signature)
    signature = signature.with_instructions(state.instructions)
    for field, field_in_code in zip(state.fields, fields_in_code, strict=True):
        # DSPy makes a new class for each field that is updated, which takes milliseconds.
        if field == field_in_code:
            continue
        # Typed as `Any`: DSPy's annotation asks for dictionaries, but texts are right.
        texts: Any = {"desc": field.desc, "prefix": field.prefix}
        signature = signature.with_updated_fields(field.name, **texts)
    return signature


def _decisions_error(signature: type[dspy.Signature], decisions: dict[str, Any]) -> str | None:
    """Return why DSPy's settings per field do not fit a signature; None if they do."""
    try:
        DecisionState(signature, decisions)
    except (ValueError, TypeError, KeyError) as error:
        return one_line(error, 200)
    return None


def _shape_digest(annotation: Any) -> str:
    """Return a digest that changes if a type, or a field inside it, changes.

    Changed descriptions do not count.
    """
    try:
        hash(annotation)
    except TypeError:
        # A type such as `Annotated[str, []]` cannot be the key of a cache.
        return _compute_shape_digest(annotation)
    return _cached_shape_digest(annotation, repr(annotation))


@lru_cache(maxsize=1000)
def _cached_shape_digest(annotation: Any, spelling: str) -> str:
    """Return the digest of a type.

    Args:
        annotation: The type.
        spelling: Its `repr`, by which the cache tells equal types of different schemas apart, such
            as `int | str` and `str | int`.
    """
    return _compute_shape_digest(annotation)


def _compute_shape_digest(annotation: Any) -> str:
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
        # A nested model may have a field called "title". Its value is a schema, not a text.
        is_prose = name in ("title", "description") and isinstance(part, str)
        if not is_prose:
            shape[name] = _without_prose(part)
    return shape

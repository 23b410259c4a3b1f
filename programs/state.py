"""A predictor's tuned state as plain JSON, and back: instructions, fields and demos.

Demos are dumped and validated by the types of the predictor's own fields, so that they render to the same prompt; keys
it has no field for are left out, and so are demos that no prompt would show. A state cannot decide where a request
goes: only settings of sampling are kept, and no demo that shows an image or a file, which may lie at any address.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Literal, cast

import dspy
from dspy.adapters.decision_state import DecisionState
from dspy.adapters.types.base_type import CUSTOM_TYPE_START_IDENTIFIER as MARKER
from dspy.adapters.utils import get_annotation_name
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from ..errors import ProgramError
from ..text import one_line
from .predictor import Predictor, is_for

AUGMENTED = "augmented"
"""Key of a demo that an optimizer made, beside its fields."""


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


def signature_of(predictor: dspy.Predict) -> type[dspy.Signature]:
    """The signature class of a predictor, with the type that DSPy's annotations lose."""
    return cast("type[dspy.Signature]", predictor.signature)


def field_states(signature: type[dspy.Signature]) -> list[FieldState]:
    """The fields of a signature in order."""
    states: list[FieldState] = []
    for name, info in signature.fields.items():
        extra: Mapping[str, Any] = {} if callable(info.json_schema_extra) else info.json_schema_extra or {}
        schema = json.dumps(_without_prose(TypeAdapter(cast("Any", info.annotation)).json_schema()), sort_keys=True)
        states.append(
            FieldState(
                name=name,
                kind="in" if name in signature.input_fields else "out",
                type=get_annotation_name(info.annotation),
                shape=hashlib.sha256(schema.encode()).hexdigest()[:12],
                desc=str(extra.get("desc", "")),
                prefix=str(extra.get("prefix", "")),
            )
        )
    return states


def fingerprint(fields: Sequence[FieldState]) -> list[list[str]]:
    """What must not change between saving and loading: each field's name, direction, type and shape."""
    return [[field.name, field.kind, field.type, field.shape] for field in fields]


def dump_predictor(predictor: dspy.Predict) -> PredictorState:
    """The state of a predictor; its LM is never part of it."""
    signature = signature_of(predictor)
    demos = [dump_values(signature, demo) for demo in own_demos(predictor)]
    return PredictorState(
        instructions=signature.instructions,
        fields=field_states(signature),
        demos=[demo for demo in demos if not _marked(demo)],
        decisions={} if _wrong_decisions(signature, predictor.fields) else dict(predictor.fields),
        config={key: value for key, value in predictor.config.items() if _refused(key, value) is None},
        nearest=getattr(predictor, "nearest", None),
    )


def parse_predictor(predictor: dspy.Predict, state: PredictorState, name: str) -> Callable[[], None]:
    """Checks a saved state against the predictor it is meant for, without touching the predictor.

    Returns:
        What assigns the state, once those of all predictors are checked.

    Raises:
        ProgramError: A field differs, a demo does not fit its field's type, or the state holds what is no prompt and no
            setting of sampling; the message names the predictor, what was saved and what the code has.
    """
    signature: Any = signature_of(predictor)
    for setting, value in state.config.items():
        if reason := _refused(setting, value):
            raise ProgramError(
                f"predictor {name}: saved setting {setting!r:.80}: {reason}; "
                "a saved program may hold settings of sampling only, save it again without"
            )
    for before, now in zip_longest(fingerprint(state.fields), fingerprint(field_states(signature))):
        if before != now:
            inside = "of another shape inside" if before and now and before[:3] == now[:3] else _field(now)
            raise ProgramError(
                f"predictor {name}: saved field {_field(before)}, but the code has {inside}; "
                "compile again with this version, or install the one that saved it"
            )
    signature = signature.with_instructions(state.instructions)
    for field in state.fields:
        signature = signature.with_updated_fields(field.name, desc=field.desc, prefix=field.prefix)
    demos = [load_values(signature, demo, name) for demo in state.demos]
    wrong = _wrong_decisions(signature, state.decisions)
    if wrong:
        raise ProgramError(f"predictor {name}: saved decisions do not fit its fields: {wrong}; compile again")

    def assign() -> None:
        predictor.signature, predictor.demos = signature, demos
        predictor.fields = dict(state.decisions)
        predictor.config = {**predictor.config, **state.config}
        if isinstance(predictor, Predictor):
            predictor.nearest = state.nearest

    return assign


def _field(fingerprint: list[str] | None) -> str:
    return "none" if fingerprint is None else f"{fingerprint[0]!r} ({fingerprint[1]}, {fingerprint[2]})"


def own_demos(predictor: dspy.Predict) -> list[Any]:
    """The demos a prompt of this predictor shows: meant for it, with at least one input and one output of its own."""
    inputs, outputs = signature_of(predictor).input_fields, signature_of(predictor).output_fields
    mine = [demo for demo in predictor.demos if is_for(demo, getattr(predictor, "path", ""))]
    return [demo for demo in mine if any(k in demo for k in inputs) and any(k in demo for k in outputs)]


@functools.lru_cache(maxsize=1024)
def type_adapter(kind: Any) -> TypeAdapter[Any]:
    """Reads and dumps a type; making one takes longer than most values."""
    return TypeAdapter(kind)


def dump_values(signature: type[dspy.Signature], values: Any) -> dict[str, Any]:
    """JSON of those values that the signature has fields for."""
    dumped: dict[str, Any] = {}
    for name, info in signature.fields.items():
        if name in values:
            kind: Any = Any if values[name] is None else info.annotation
            dumped[name] = type_adapter(kind).dump_python(values[name], mode="json", warnings=False)
    if values.get(AUGMENTED):
        dumped[AUGMENTED] = True
    return dumped


def load_values(signature: type[dspy.Signature], values: Mapping[str, Any], name: str) -> dspy.Example:
    """Typed values from their JSON.

    Raises:
        ProgramError: A value belongs to no field, does not fit the type of its field, or stands for a file.
    """
    loaded: dict[str, Any] = {}
    for key, value in values.items():
        if key not in signature.fields and (key, value) != (AUGMENTED, True):
            raise ProgramError(f"predictor {name}: a saved demo has {key!r:.80}, which is none of its fields")
        kind: Any = signature.fields[key].annotation if key in signature.fields and value is not None else Any
        try:
            loaded[key] = type_adapter(kind).validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ProgramError(f"predictor {name}: a saved demo does not fit its field {key!r}: {reason}") from error
    example = dspy.Example(loaded)
    if _marked(dump_values(signature, example)):
        raise ProgramError(f"predictor {name}: a saved demo holds the address of a file or image; take the demo out")
    return example


def _marked(value: JsonValue) -> bool:
    return MARKER in json.dumps(value, ensure_ascii=False)


def _wrong_decisions(signature: type[dspy.Signature], decisions: dict[str, Any]) -> str | None:
    try:
        DecisionState(signature, decisions)
    except (ValueError, TypeError, KeyError) as error:
        return one_line(error, 200)
    return None


def _without_prose(schema: JsonValue) -> JsonValue:
    if isinstance(schema, list):
        return [_without_prose(part) for part in schema]
    if isinstance(schema, dict):
        prose = {key for key in ("title", "description") if isinstance(schema.get(key), str)}
        return {key: _without_prose(part) for key, part in schema.items() if key not in prose}
    return schema


def prompts_text(states: Mapping[str, PredictorState]) -> str:
    """What every predictor is asked with, whole.

    Args:
        states: By the predictor's name, as `manifest.read_states` gives those of a saved program.
    """
    return "\n\n".join("\n".join(_predictor(name, state)) for name, state in states.items()) + "\n"


def _predictor(name: str, state: PredictorState) -> Iterator[str]:
    yield f"{name}\n{'=' * len(name)}\n\n{state.instructions}"
    fields = (f"{field.kind} {field.name} ({field.type}): {field.desc}" for field in state.fields)
    yield "\n" + "\n".join(fields)
    settings = {**state.config, **state.decisions, "nearest": state.nearest}
    told = [f"{key} = {_value(value)}" for key, value in settings.items() if value is not None]
    if told:
        yield f"\nSettings: {', '.join(told)}"
    for number, demo in enumerate(state.demos, 1):
        title = f"Demo {number} of {len(state.demos)}{', made by the program' if demo.get(AUGMENTED) else ''}"
        yield f"\n{title}\n{'-' * len(title)}"
        yield from (f"{field.name}: {_value(demo[field.name])}" for field in state.fields if field.name in demo)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_Word = Annotated[str, Field(max_length=200)]


class Sampling(BaseModel):
    """The settings of a request that a saved program may hold, with their bounds; None is the provider's default.

    Whatever a predictor's `config` holds becomes part of its requests. An address, a header, a key, a provider or the
    name of a model there would decide where a user's words go: those come from whoever runs the program.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=100_000)
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    n: int | None = Field(None, ge=1, le=64)
    stop: _Word | Annotated[list[_Word], Field(max_length=16)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    reasoning_effort: Annotated[str, Field(pattern="^(none|minimal|low|medium|high|xhigh|max)$")] | None = None
    rollout_id: int | _Word | None = None
    """DSPy's mark of an answer that is sampled anew; it is sent to no one."""


def _refused(name: str, value: Any) -> str | None:
    if name not in Sampling.model_fields:
        return f"is none of {', '.join(Sampling.model_fields)}"
    try:
        Sampling.model_validate({name: value})
    except ValidationError as error:
        return f"{error.errors()[0]['msg'][0].lower()}{error.errors()[0]['msg'][1:]}"
    return None

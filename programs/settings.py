"""What can be set of a method: one model, from which constructor, `--set`, presets, manifests, docs and errors come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ..errors import UserError

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """Base of the settings of a method: every field has a default, its range, and a description."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    kind: ClassVar[str] = "method"
    """Of what they are, in errors."""
    retired: ClassVar[Mapping[str, Any]] = {}
    """Settings that programs saved by earlier versions name, each with the value that is what happens now."""

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, given: dict[str, Any]) -> dict[str, Any]:
        kept = given.keys() - {name for name, value in cls.retired.items() if given.get(name) == value}
        return {name: value for name, value in given.items() if name in kept}

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any]) -> Self:
        """The settings of what has this name from what was set of it.

        Raises:
            UserError: It has no such setting, or the value is out of its range.
        """
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
        wrong = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            has = ", ".join(f"{each}={field.default}" for each, field in cls.model_fields.items())
            raise UserError(f"{cls.kind} {name!r} has no setting {wrong!r}; it has: {has}")
        said = first["msg"].removeprefix("Value error, ").replace("Input", "input")
        if not wrong:
            raise UserError(f"{cls.kind} {name!r}: {said}")
        field = cls.model_fields[wrong]
        told = "; ".join(filter(None, (field.description, f"default {field.default!r}")))
        raise UserError(f"{cls.kind} {name!r}: {wrong} = {first['input']!r}: {said} ({told})")

    def only(self, kind: type[S]) -> S:
        """Those of the settings that another model has too: what a writer is made with decides its memories."""
        return kind.model_validate({name: getattr(self, name) for name in kind.model_fields})

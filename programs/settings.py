"""Settings: what can be set of a method or a task.

A settings class is a pydantic model. Every field states its type, default, range and description
once. Constructors, `--set NAME=VALUE`, saved programs, docs and error messages read them there.

    class NoteSettings(Settings):
        k: EntryCount = Field(10, description="notes recalled per query")
        max_words: int = Field(300, ge=1, description="most words of a note")

    NoteSettings.from_values("notes", {"k": 20})     # what `--set k=20` does
    NoteSettings.from_values("notes", {"kk": 20})    # UserError: method 'notes' has no setting 'kk'
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic_core import ErrorDetails

from ..errors import UserError
from ..memory.results import MAX_PAGE_SIZE as MOST_ENTRIES
from ..memory.search.embedder import Embedder
from .predictor import semantic_embedder

SettingsT = TypeVar("SettingsT", bound="Settings")

EntryCount = Annotated[int, Field(ge=1, le=MOST_ENTRIES)]
"""How many entries of a memory are shown or recalled.

The upper limit keeps a saved program from showing a model all of a large memory.
"""

_NOT_SETTINGS = ("embedder", "inner")
"""Constructor arguments that a method is made of."""


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    kind: ClassVar[str] = "method"
    """What the settings belong to, as error messages call it."""
    deprecated: ClassVar[Mapping[str, Any]] = {}
    """Retired settings by name, each with the value that describes what happens today.

    Programs saved by earlier versions may still name them with that value.
    """
    at_least_one_of: ClassVar[tuple[str, ...]] = ()
    """Names of switches that may not all be off."""

    @model_validator(mode="before")
    @classmethod
    def _drop_deprecated(cls, values: dict[str, Any]) -> dict[str, Any]:
        current: dict[str, Any] = {}
        for name, value in values.items():
            is_deprecated = name in cls.deprecated and cls.deprecated[name] == value
            if not is_deprecated:
                current[name] = value
        return current

    @model_validator(mode="after")
    def _check_switches(self) -> Self:
        switches = self.at_least_one_of
        if switches and not any(getattr(self, name) for name in switches):
            raise ValueError(f"{' and '.join(switches)} are all off; leave one on")
        return self

    @classmethod
    def from_values(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Return the settings of the method or task called `name`; defaults fill the gaps.

        Raises:
            UserError: There is no such setting, or a value is out of its range.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors()[0]

        # Raised outside the except block, so that pydantic's report is not shown beside it.
        raise UserError(cls._describe_error(name, first))

    @classmethod
    def _describe_error(cls, name: str, error: ErrorDetails) -> str:
        owner = f"{cls.kind} {name!r}"
        setting = str(error["loc"][0]) if error["loc"] else ""
        if error["type"] == "extra_forbidden":
            known = (f"{known}={field.default}" for known, field in cls.model_fields.items())
            return f"{owner} has no setting {setting!r}; it has: {', '.join(known)}"

        message = error["msg"].removeprefix("Value error, ").replace("Input", "input")
        if not setting:
            return f"{owner}: {message}"

        field = cls.model_fields[setting]
        hint = f"default {field.default!r}"
        if field.description:
            hint = f"{field.description}; {hint}"
        return f"{owner}: {setting} = {error['input']!r}: {message} ({hint})"

    @classmethod
    def for_class(cls, owner: type) -> type[Self]:
        """Return these settings extended by one for each constructor argument of `owner`.

        Arguments that the object is made of (an embedder, an inner method) are left out. The range
        of an argument is the one in its `Annotated` type.
        """
        fields: dict[str, Any] = {}
        annotated_types = _annotated_arguments(owner)
        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        for parameter in parameters:
            name = parameter.name
            is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if is_variadic or name in _NOT_SETTINGS or name in cls.model_fields:
                continue

            default = parameter.default
            if default is parameter.empty:
                default = ...
            setting_type = type(default) if isinstance(default, bool | int | float | str) else Any
            fields[name] = (annotated_types.get(name, setting_type), default)
        return create_model(owner.__name__, __base__=cls, **fields)

    def restrict_to(self, settings_class: type[SettingsT]) -> SettingsT:
        """Return those of the settings that `settings_class` has too.

        A writer is made with its own settings only, since they decide the key of its memories.
        """
        shared = {name: getattr(self, name) for name in settings_class.model_fields}
        return settings_class.model_validate(shared)


class SearchSettings(Settings):
    """Settings of methods that search by cosine, by words, or by both."""

    hybrid: bool | None = Field(
        None, description="whether BM25 and cosine add up; by default with an embedding model"
    )

    def uses_fusion(self, embedder: Embedder | None) -> bool:
        """Return whether BM25 and cosine add up with this embedder."""
        if self.hybrid is None:
            return semantic_embedder(embedder) is not None
        return self.hybrid


def _annotated_arguments(owner: type) -> dict[str, Any]:
    """Return the types of those constructor arguments that are `Annotated`, by name."""
    try:
        hints = get_type_hints(owner.__init__, include_extras=True)
    except NameError:
        # A user's class may import the names of its hints for type checkers alone.
        return {}
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}

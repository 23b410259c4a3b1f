"""Settings: what can be set of a method or a task.

A settings class is a pydantic model. Every field states its type, default, range and description
once. Constructors, `--set NAME=VALUE`, saved programs, docs and error messages read them there.

    class NoteSettings(Settings):
        k: EntryCount = Field(default=10, description="notes recalled per query")
        max_words: int = Field(default=300, ge=1, description="most words of a note")

    NoteSettings.from_values("notes", {"k": 20})     # what `--set k=20` does
    NoteSettings.from_values("notes", {"kk": 20})    # UserError: method 'notes' has no setting 'kk'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticSerializationError

from ..errors import UserError
from ..memory.results import MAX_PAGE_SIZE as MOST_ENTRIES
from ..memory.search.embedder import Embedder
from ..memory.search.weights import DEFAULT_WEIGHTS, SignalWeights
from ..memory.tuning_range import TuningRange
from ._embedders import semantic_embedder

SettingsT = TypeVar("SettingsT", bound="Settings")

EntryCount = Annotated[int, Field(ge=1, le=MOST_ENTRIES), TuningRange(1, 50, log=True)]
"""How many entries of a memory are shown or recalled.

The upper limit keeps a saved program from showing a model all of a large memory.
"""

DOT = "."
"""Stands between the name of a group of settings and that of a setting in it: "search.month"."""


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
        """Leave out retired settings if their value describes what happens today anyway.

        Programs that earlier versions have saved may still name them. With another value, a retired
        setting is refused like an unknown one.
        """
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

    @model_validator(mode="after")
    def _check_saveable(self) -> Self:
        """Raise a UserError if a setting has a value that JSON cannot hold."""
        for name in self.model_fields_set:
            try:
                # One setting at a time, so that the message can name it.
                self.model_dump_json(include={name})
            except PydanticSerializationError:
                value = getattr(self, name)
                raise UserError(
                    f"{type(self).__name__}: the setting {name} = {value!r} cannot be saved; "
                    "use numbers, texts, lists or dicts"
                ) from None
        return self

    @classmethod
    def from_values(cls, name: str, values: Mapping[str, Any]) -> Self:
        """Return the settings with some values; all others have their defaults.

        Args:
            name: The name of the method or task, for errors.
            values: The values by name, as `--set` or a saved program has them.

        Raises:
            UserError: There is no such setting, or a value is out of its range.
        """
        try:
            return cls.model_validate(cls._grouped(values))
        except ValidationError as error:
            first = error.errors()[0]

        # Raised outside of the `except` block: there, Python would show pydantic's report too.
        raise UserError(cls._describe_error(name, first))

    @classmethod
    def _grouped(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values with those of a group together: {"search.month": 3} as a part of "search".

        Names that begin with no group stay as they are.
        """
        grouped: dict[str, Any] = {}
        dotted: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            group, dot, member = name.partition(DOT)
            if dot and group in cls.model_fields:
                dotted.setdefault(group, {})[member] = value
            else:
                grouped[name] = value

        for group, members in dotted.items():
            others = grouped.get(group, {})
            if isinstance(others, BaseModel):
                others = {name: getattr(others, name) for name in type(others).model_fields}
            grouped[group] = {**others, **members}
        return grouped

    def with_values(self, name: str, changes: Mapping[str, Any]) -> Self:
        """Return the settings with other values of some.

        Args:
            name: As for `from_values`, like the errors.
            changes: The other values by name.
        """
        values = {field: getattr(self, field) for field in type(self).model_fields}
        return self.from_values(name, {**values, **changes})

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the defaults by name; after them those of groups, as in "search.month"."""
        defaults: dict[str, Any] = {}
        defaults_in_groups: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if isinstance(field.default, BaseModel):
                for member in type(field.default).model_fields:
                    defaults_in_groups[f"{name}{DOT}{member}"] = getattr(field.default, member)
            else:
                defaults[name] = field.default
        return {**defaults, **defaults_in_groups}

    @classmethod
    def _describe_error(cls, name: str, error: ErrorDetails) -> str:
        """Return what is wrong with a setting in one line, with its range and its default.

        Args:
            name: The name of the method or task.
            error: What pydantic reports.
        """
        owner = f"{cls.kind} {name!r}"
        # An error that concerns several settings has no location.
        setting = str(error["loc"][0]) if error["loc"] else ""

        if error["type"] == "extra_forbidden":
            defaults = [f"{known}={default}" for known, default in cls.defaults().items()]
            return f"{owner} has no setting {setting!r}; it has: {', '.join(defaults) or 'none'}"

        # As the end of a sentence, without pydantic's prefix for errors of validators.
        message = error["msg"].removeprefix("Value error, ").replace("Input", "input")
        if not setting:
            return f"{owner}: {message}"

        field = cls.model_fields[setting]
        hint = f"default {field.default!r}"
        if field.description:
            hint = f"{field.description}; {hint}"
        return f"{owner}: {setting} = {error['input']!r}: {message} ({hint})"

    def restrict_to(self, settings_class: type[SettingsT]) -> SettingsT:
        """Return an object of `settings_class`, with the values that its settings have here.

        A method has settings for its writer and its reader. The writer gets only those that it
        reads, since all settings of a writer are part of the key of its memories.
        """
        shared = {name: getattr(self, name) for name in settings_class.model_fields}
        return settings_class.model_validate(shared)


class SearchWeights(Settings):
    """The weights of a method's search, in a group of settings with names like `search.month`."""

    search: SignalWeights = Field(
        default=DEFAULT_WEIGHTS,
        description="how much each signal of a search counts: `search.speaker`, `search.month` and "
        "others, which the page *Tune settings* lists",
    )

    @model_serializer(mode="wrap")
    def _leave_out_default_weights(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the settings as plain data, without the weights if they are the defaults.

        Programs were saved without weights at first. Their digests stay the same in this way.
        """
        values: dict[str, Any] = dump(self)
        if self.search == DEFAULT_WEIGHTS:
            values.pop("search", None)
        return values


class SearchSettings(SearchWeights):
    """Settings of methods that search by cosine, by words, or by both."""

    hybrid: bool | None = Field(
        default=None,
        description="whether BM25 and cosine are added up; null: on the benchmarks of the paper as "
        "in the paper, elsewhere yes unless the embedder is the offline one",
    )

    def uses_fusion(self, embedder: Embedder | None) -> bool:
        """Return whether BM25 and cosine add up with this embedder."""
        if self.hybrid is None:
            return semantic_embedder(embedder) is not None
        return self.hybrid

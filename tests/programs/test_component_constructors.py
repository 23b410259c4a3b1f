"""A component takes settings and objects, and no plain data that its settings should hold.

Components are writers, readers and methods. Only what stands in settings is saved with a program,
so a component whose constructor takes a number or a text beside them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from mempiler import EntryReader, Item, Memory, Method, Settings, Update, Writer
from mempiler.errors import UserError
from mempiler.memory.search.embedder import Embedder

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class NotebookMemory(Memory):
    """An empty memory."""


class NotebookWriter(Writer):
    """A writer that writes nothing."""

    Memory = NotebookMemory

    def update(self, memory: Any, item: Item, extraction: Any = None) -> Update[Any]:
        return Update(memory)


class LengthSettings(Settings):
    max_words: int = 300


# Writers whose constructor takes plain data. The argument is always called `words`.


class OptionalNumber(NotebookWriter):
    def __init__(self, words: int | None = None) -> None:
        super().__init__()


class ListOfTexts(NotebookWriter):
    def __init__(self, words: list[str]) -> None:
        super().__init__()


class NumbersByName(NotebookWriter):
    def __init__(self, words: dict[str, int]) -> None:
        super().__init__()


class Choice(NotebookWriter):
    def __init__(self, words: Literal["few", "many"]) -> None:
        super().__init__()


class Folder(NotebookWriter):
    def __init__(self, words: Path) -> None:
        super().__init__()


class DefaultWithoutType(NotebookWriter):
    def __init__(self, words=()) -> None:
        super().__init__()


class PositionalArguments(NotebookWriter):
    def __init__(self, *words: Embedder) -> None:
        super().__init__()


class NamedArguments(NotebookWriter):
    def __init__(self, **words: Any) -> None:
        super().__init__()


class NumberBesideSettings(NotebookWriter):
    def __init__(self, settings: LengthSettings, words: int) -> None:
        super().__init__(settings)


class NumberBesideUnknownType(NotebookWriter):
    """The type of `other` cannot be looked up when the program runs."""

    def __init__(self, words: int, other: OnlyForTypeCheckers) -> None:
        super().__init__()


@pytest.mark.parametrize(
    "writer",
    [
        OptionalNumber(),
        ListOfTexts(["a"]),
        NumbersByName({"a": 1}),
        Choice("few"),
        Folder(Path()),
        DefaultWithoutType(),
        PositionalArguments(),
        NamedArguments(),
        NumberBesideSettings(LengthSettings(), words=3),
        NumberBesideUnknownType(words=3, other=None),  # pyright: ignore[reportArgumentType]
    ],
    ids=lambda writer: type(writer).__name__,
)
def test_a_constructor_that_takes_plain_data_beside_settings_is_refused(writer: Writer) -> None:
    """Only settings are saved with a program, so other numbers or texts would be lost."""
    with pytest.raises(UserError) as error:
        writer.check_settings()
    assert str(error.value) == (
        f"{type(writer).__name__}: the constructor takes words, which no settings hold; "
        "make words a field of a Settings class, and give super().__init__ an object of it"
    )


class TakesObjects(NotebookWriter):
    """A writer whose arguments are settings and objects."""

    def __init__(
        self,
        settings: LengthSettings,
        embedder: Embedder | None = None,
        inner: Writer | None = None,
        writers: Sequence[Writer] | None = None,
        writers_by_name: dict[str, Writer] | None = None,
        make_writer: Callable[[str], Writer] | None = None,
        other: Any = None,
    ) -> None:
        super().__init__(settings)


class HoldsItsArgument(NotebookWriter):
    """A writer that takes a number, and keeps it in settings of the same name."""

    def __init__(self, max_words: int = 300) -> None:
        super().__init__(LengthSettings(max_words=max_words))


@pytest.mark.parametrize(
    "component",
    [
        TakesObjects(LengthSettings()),
        HoldsItsArgument(max_words=20),
        EntryReader(k=5, min_score=0.1, hybrid=True),
        NotebookWriter(),
    ],
    ids=lambda component: type(component).__name__,
)
def test_a_component_with_settings_and_objects_is_accepted(component: Any) -> None:
    """Objects such as embedders are given to a program anew when it is loaded."""
    component.check_settings()


class ForgetsItsSettings(NotebookWriter):
    """A writer that does not pass its settings on."""

    def __init__(self, settings: LengthSettings) -> None:
        super().__init__()


def test_a_writer_that_does_not_keep_its_settings_is_refused() -> None:
    """Settings that a component drops could not be saved with the program."""
    method = Method(ForgetsItsSettings(LengthSettings()), EntryReader())
    with pytest.raises(UserError) as error:
        method.check()
    assert str(error.value) == (
        "ForgetsItsSettings: takes settings but does not keep them; "
        "give them to super().__init__(settings)"
    )


class OptionalSettings(NotebookWriter):
    """A writer that can do without settings."""

    def __init__(self, settings: LengthSettings | None = None) -> None:
        super().__init__(settings)


def test_a_writer_with_optional_settings_may_be_made_without_settings() -> None:
    """Its settings then have their defaults."""
    method = Method(OptionalSettings(), EntryReader())

    # It raises no error.
    method.check()

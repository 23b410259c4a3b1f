"""The numbers of a memory system are settings of its program, which an optimizer can tune.

A system is a store of the user's with `add` and `search`. It declares its numbers in `NUMBERS`, and
takes the present ones as `numbers`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import dspy
import mempiler
import pytest
from mempiler import History, UserError, build
from mempiler.engines.lm import language_model
from mempiler.optimizers import SettingsSearch
from mempiler.programs.external.numbers import RESERVED_NAMES
from mempiler.programs.external.program import build_external_program
from mempiler.programs.program import MemoryProgram
from mempiler.programs.tunable import tunable_settings
from mempiler.records import Session, Turn
from mempiler.runs.compile_result import CompileResult
from mempiler.runs.external import isolate_stores

MakeHistory = Callable[..., History]
"""The fixture `make_history`: `make_history(3)` has sessions D1 to D3 of six turns each."""

NEWEST = {"default": 1, "low": 1, "high": 4}
"""The declaration of a number: its default, and the least and the largest value."""


class NewestLines:
    """A store that keeps the newest lines of each session, and finds all that it has kept."""

    NUMBERS: ClassVar[Any] = {"newest": NEWEST}

    def __init__(self, numbers: dict[str, int]) -> None:
        self.newest = numbers["newest"]
        self.lines: list[str] = []

    def add(self, session: Any) -> None:
        self.lines += [turn.text for turn in session.turns][-self.newest :]

    def search(self, query: str, k: int) -> list[str]:
        return self.lines


def build_system(target: Any, **config: Any) -> MemoryProgram:
    """Return the program of a system that errors call "mine:Store"."""
    return build_external_program(target, "mine:Store", "question-answering", config=config)


def count_recalled(program: MemoryProgram, history: History) -> int:
    """Return how many lines a program recalls."""
    with dspy.context(lm=language_model("offline")):
        return len(program(history=history, question="Where?").context.hits)


# What a store is given.


def test_a_number_is_a_setting_of_the_program(make_history: MakeHistory) -> None:
    """The store keeps the `newest` lines of each session, by default one, and recalls them all."""
    history = make_history(1)

    by_default = build_system(NewestLines)
    by_setting = build_system(NewestLines, newest=3)

    assert count_recalled(by_default, history) == 1
    assert count_recalled(by_setting, history) == 3
    assert by_setting.config["newest"] == 3


def test_each_value_of_a_number_has_a_store_of_its_own(make_history: MakeHistory) -> None:
    """The store keeps the `newest` lines of each session, by default one, and recalls them all.

    Copies of a program with other numbers share its folder.
    """
    history = make_history(1)
    program = build_system(NewestLines)
    copy_with_four = program.with_settings({"newest": 4})

    assert count_recalled(program, history) == 1
    assert count_recalled(copy_with_four, history) == 4
    assert count_recalled(program, history) == 1


def test_a_store_in_a_process_of_its_own_is_given_its_numbers(make_history: MakeHistory) -> None:
    """The store keeps the `newest` lines of each session, and recalls all of them."""
    isolated = isolate_stores(f"{__name__}:NewestLines", NewestLines)

    program = build_system(isolated, newest=3)

    assert count_recalled(program, make_history(1)) == 3


def test_other_settings_of_a_system_cannot_be_changed_later() -> None:
    """Only `k`, how many entries are recalled, and the declared numbers of the store can be."""
    with pytest.raises(UserError, match="timeout cannot be changed any more; these can: k, newest"):
        build_system(NewestLines).with_settings({"timeout": 5.0})


# What is tuned.


def test_k_and_the_numbers_can_be_tuned() -> None:
    """An optimizer has to write the stores anew for another number, but not for another `k`."""
    tunable = tunable_settings(build_system(NewestLines).method)

    assert list(tunable) == ["k", "newest"]
    assert tunable["newest"].is_whole
    assert tunable["newest"].values.low == 1
    assert tunable["newest"].values.high == 4
    assert tunable["newest"].is_of_writer
    assert not tunable["k"].is_of_writer


def question(number: int) -> dspy.Example:
    """Return a question whose answer stands in the turn before the last one."""
    texts = ["Hello.", f"I moved to City{number}.", "Bye."]
    turns = tuple(
        Turn(id=f"D1:{place}", speaker="Ann", text=text) for place, text in enumerate(texts)
    )
    return dspy.Example(
        history=History(id=f"user-{number}", items=(Session(id="D1", turns=turns),)),
        question="Where did Ann move?",
        answer=f"City{number}",
    )


@pytest.fixture(scope="module")
def tuned() -> CompileResult:
    """A compile that tunes the number `newest`; two lines of each session hold the answer."""
    return mempiler.compile(
        NewestLines,
        trainset=[question(number) for number in range(4)],
        valset=[question(number) for number in range(4, 10)],
        testset=[question(10)],
        metric="support",
        optimizer=SettingsSearch(names=["newest"], num_trials=6, max_context_tokens=100),
        lm="offline",
        min_n=6,
        progress=False,
    )


def test_the_optimizer_settings_finds_a_better_number(tuned: CompileResult) -> None:
    """The answer is recalled as soon as two lines of each session are kept; one is the default."""
    assert tuned.promoted
    assert tuned.program.config["newest"] >= 2


def test_a_tuned_number_is_saved_with_the_program(tuned: CompileResult, tmp_path: Path) -> None:
    tuned.save(tmp_path / "program")

    loaded = mempiler.load(tmp_path / "program", allow_code=True)

    assert loaded.config == tuned.program.config


def test_the_export_of_a_tuned_system_sets_the_number_that_was_found(tuned: CompileResult) -> None:
    """An export is Python code that makes the store."""
    variables: dict[str, Any] = {}

    exec(tuned.export(), variables)

    assert variables["store"].newest == tuned.program.config["newest"]


# What is refused.


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        pytest.param(None, "takes numbers but declares none", id="no declaration"),
        pytest.param([3], "give a mapping by name", id="a list"),
        pytest.param({"newest": 3}, 'give {"default": 3, "low": 1, "high": 20}', id="a number"),
        pytest.param({"the newest": NEWEST}, "a name is a Python name", id="no Python name"),
        pytest.param({"k": NEWEST}, "'k', which means something else", id="a setting"),
        pytest.param({"copy": NEWEST}, "'copy', which means something else", id="a method"),
        pytest.param({"cache": NEWEST}, "'cache', which means something else", id="an argument"),
        pytest.param(
            {"newest": {**NEWEST, "high": "4"}}, "default, low and high are numbers", id="a text"
        ),
        pytest.param(
            {"newest": {**NEWEST, "default": 5}}, "the default is between them", id="outside"
        ),
        pytest.param(
            {"newest": {"default": 0, "low": 0, "high": 4, "log": True}},
            'with "log", low is above 0',
            id="no logarithm",
        ),
    ],
)
def test_numbers_that_are_declared_wrongly_are_refused(numbers: Any, reason: str) -> None:
    """A store declares each number by name, with its default and its range."""

    class Wrong(NewestLines):
        NUMBERS: ClassVar = numbers

    with pytest.raises(UserError, match=f"^mine:Store: .*{reason}"):
        build_system(Wrong)


def test_the_reserved_names_are_the_arguments_of_build() -> None:
    """`build` takes settings by name, so no number may have the name of another argument."""
    named_arguments = [name for name in inspect.signature(build).parameters if name != "config"]

    assert list(RESERVED_NAMES) == named_arguments


def test_a_value_of_another_kind_is_refused() -> None:
    """The number `newest` is declared as a whole number."""
    with pytest.raises(UserError, match=r"newest = 2\.5: .*whole|newest = 2\.5: .*integer"):
        build_system(NewestLines, newest=2.5)

"""Which settings of a method can be tuned, and copies of a program with other settings."""

from typing import Annotated, Any, Literal

import dspy
import pytest
from mempiler import Method, Settings, TuningRange, build
from mempiler.errors import UserError
from mempiler.memory.memory import TurnMemory
from mempiler.programs.baselines.turn_rag import TurnWriter
from mempiler.programs.identity import program_digest, writer_digest
from mempiler.programs.names import METHODS
from mempiler.programs.reader import EntryReader
from mempiler.programs.tunable import tunable_settings
from mempiler.records import History, Session, Turn
from pydantic import Field

NAMES = [*METHODS, "pgr+turn-rag", "logs+pgr+turn-rag"]


class NoteSettings(Settings):
    """A setting of each kind."""

    k: Annotated[int, TuningRange(1, 20, log=True)] = 10
    share: Annotated[float, TuningRange(0, 1)] = Field(default=0.5, description="a share")
    newest: bool | None = None
    order: Literal["old", "new"] = "old"
    seed: int = 0
    """Without a range."""


class Notes(Method):
    """A method of a user's with these settings."""

    Settings = NoteSettings

    def __init__(self, settings: NoteSettings | None = None) -> None:
        settings = settings or NoteSettings()
        reader: EntryReader[TurnMemory] = EntryReader(settings.k)
        super().__init__(TurnWriter(), reader, settings=settings)


def test_numbers_with_a_range_and_settings_with_few_values_can_be_tuned() -> None:
    tunable = tunable_settings(Notes())

    values = {name: setting.values for name, setting in tunable.items()}
    assert values == {
        "k": TuningRange(1, 20, log=True),
        "share": TuningRange(0, 1),
        "newest": (None, False, True),
        "order": ("old", "new"),
    }
    assert [name for name, setting in tunable.items() if setting.is_whole] == ["k"]


def test_a_range_includes_the_present_value() -> None:
    tunable = tunable_settings(Notes(NoteSettings(k=200)))

    assert tunable["k"].values == TuningRange(1, 200, log=True)


def test_settings_of_the_writer_are_those_that_change_its_memories() -> None:
    tunable = tunable_settings(build("memory-r2").method)

    of_writer = {name for name, setting in tunable.items() if setting.is_of_writer}
    assert {"related", "parts", "min_score"} <= of_writer
    assert {"read_top", "hybrid", "search.speaker"} & of_writer == set()


def test_settings_that_change_a_prompt_cannot_be_tuned() -> None:
    tunable = tunable_settings(build("pgr").method)

    assert "k" in tunable
    assert {"strategy", "augment", "summary"} & tunable.keys() == set()


def test_settings_beneath_a_policy_have_a_prefix() -> None:
    tunable = tunable_settings(build("logs+pgr+turn-rag").method)

    assert {"k", "inner_k", "inner_inner_k", "inner_inner_search.month"} <= tunable.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_program_with_equal_settings_is_an_equal_program(name: str) -> None:
    program = build(name)

    assert program_digest(program.with_settings({})) == program_digest(program)


def test_a_copy_with_other_settings_keeps_the_prompts() -> None:
    program = build("turn-rag")
    (predictor,) = program.predictors()
    predictor.demos = [dspy.Example(context="c", question="q", answer="a")]

    copy = program.with_settings({"k": 3, "search.month": 4})

    (copied_predictor,) = copy.predictors()
    assert copied_predictor.demos == predictor.demos
    assert (copy.config["k"], copy.config["search"]["month"]) == (3, 4.0)
    assert (program.config["k"], "search" in program.config) == (10, False)


def test_a_setting_beneath_a_policy_is_changed_by_its_prefix() -> None:
    program = build("logs+pgr+turn-rag").with_settings({"inner_inner_k": 3})

    assert program.config == build("logs+pgr+turn-rag", inner_inner_k=3).config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"kk": 3}, "method 'TurnRAG' has no setting 'kk'", id="name"),
        pytest.param({"k": 0}, "method 'TurnRAG': k = 0", id="value"),
        pytest.param({"search.month": -1}, "search weight month = -1", id="weight"),
        pytest.param({"search.moth": 1}, "did you mean 'month'", id="name of a weight"),
    ],
)
def test_other_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build("turn-rag").with_settings(changes)


# The weights of a search as settings.

TURNS = (
    Turn(id="ann", speaker="Ann", text="Bob, I love jazz."),
    Turn(id="bob", speaker="Bob", text="Ann, I love jazz."),
)


def first_hit(**settings: Any) -> str:
    """Return the id of the turn that turn RAG recalls for a question about Ann."""
    program = build("turn-rag", k=1, **settings)
    history = History(id="h", items=(Session(id="s", turns=TURNS),))
    question = dspy.Example(history=history, question="What does Ann say of jazz?")
    recalled = program.recall_for(question.with_inputs("history", "question"))
    return recalled.context.hits[0].id


def test_a_weight_decides_what_is_recalled() -> None:
    assert first_hit(**{"search.speaker": 0}) == "bob"
    assert first_hit(**{"search.speaker": 5}) == "ann"
    assert first_hit(search={"speaker": 5}) == "ann"


def test_default_weights_are_left_out_of_what_is_saved() -> None:
    """Programs that were saved before there were weights keep their digest."""
    assert build("turn-rag").config == {"k": 10, "hybrid": True, "task.dates": True}
    assert build("turn-rag", **{"search.speaker": 2}).config == build("turn-rag").config


def test_weights_are_no_part_of_the_key_of_memories() -> None:
    for name in ("turn-rag", "session-rag", "fact-store", "pgr", "memory-r2", "rgmem"):
        changed = build(name, **{"search.speaker": 5})
        assert writer_digest(changed.method.writer) == writer_digest(build(name).method.writer)


def test_weights_that_json_has_read_are_the_same_weights() -> None:
    """In JSON, the steps between neighbours are texts: {"-1": 0.2}."""
    config = build("turn-rag", **{"search.speaker": 5}).config
    assert config["search"]["neighbour_shares"] == {"1": 0.5, "2": 0.2, "-1": 0.2}

    assert build("turn-rag", **config).config == config

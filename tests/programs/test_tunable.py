"""Which settings of a method can be tuned, and copies of a program with other settings."""

import json
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
    k: Annotated[int, TuningRange(1, 20, log=True)] = 10
    share: Annotated[float, TuningRange(0, 1)] = Field(default=0.5, description="a share")
    newest: bool | None = None
    order: Literal["old", "new"] = "old"
    seed: int = 0


class Notes(Method):
    """A method of a user's: `k` is a number with a range, `seed` one without, and so on."""

    Settings = NoteSettings

    def __init__(self, settings: NoteSettings | None = None) -> None:
        settings = settings or NoteSettings()
        reader: EntryReader[TurnMemory] = EntryReader(settings.k)
        super().__init__(TurnWriter(), reader, settings=settings)


def test_numbers_with_a_range_and_settings_with_few_values_can_be_tuned() -> None:
    """A method of a user declares the settings k, share, newest, order and seed.

    Of these, `seed` is a number without a range, so an optimizer would not know what to try.
    """
    tunable = tunable_settings(Notes())

    values_to_try = {name: setting.values for name, setting in tunable.items()}
    assert values_to_try == {
        "k": TuningRange(1, 20, log=True),
        "share": TuningRange(0, 1),
        "newest": (None, False, True),
        "order": ("old", "new"),
    }


def test_a_tunable_setting_says_whether_it_is_a_whole_number() -> None:
    """An optimizer must not set `k`, a number of hits, to 3.5."""
    tunable = tunable_settings(Notes(NoteSettings(k=10, share=0.5)))

    assert tunable["k"].is_whole is True
    assert tunable["share"].is_whole is False


def test_a_range_includes_the_present_value() -> None:
    """The declared range of `k` is 1 to 20, but a user has set it to 200."""
    tunable = tunable_settings(Notes(NoteSettings(k=200)))

    assert tunable["k"].values == TuningRange(1, 200, log=True)


@pytest.mark.parametrize(
    ("name", "is_of_writer"),
    [
        pytest.param("related", True, id="known facts that the prompt of writing shows"),
        pytest.param("parts", True, id="parts in which a session is read"),
        pytest.param("read_top", False, id="facts that are recalled"),
        pytest.param("hybrid", False, id="search by words and vectors"),
        pytest.param("search.speaker", False, id="weight of the speaker in a search"),
    ],
)
def test_settings_of_the_writer_are_those_that_change_its_memories(
    name: str, is_of_writer: bool
) -> None:
    """A writer makes the memory of a history. To try another value, the memory is written anew."""
    tunable = tunable_settings(build("memory-r2").method)

    assert tunable[name].is_of_writer is is_of_writer


@pytest.mark.parametrize("name", ["strategy", "augment", "summary"])
def test_settings_that_change_a_prompt_cannot_be_tuned(name: str) -> None:
    """An optimizer may have rewritten the prompt, and its text would not fit another value."""
    method = build("pgr").method

    assert name in method.config
    assert name not in tunable_settings(method)


def test_settings_beneath_a_policy_have_a_prefix() -> None:
    """In "logs+pgr+turn-rag" the policy logs stands over the policy PGR, and that over turn-rag.

    Each has a setting `k`, the number of its hits.
    """
    tunable = tunable_settings(build("logs+pgr+turn-rag").method)

    assert {"k", "inner_k", "inner_inner_k", "inner_inner_search.month"} <= tunable.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_without_changes_is_an_equal_program(name: str) -> None:
    """The digest of a program covers its settings and its prompts."""
    program = build(name)

    program_copy = program.with_settings({})

    assert program_digest(program_copy) == program_digest(program)


def test_a_copy_with_other_settings_has_these_and_the_program_keeps_its_own() -> None:
    """An optimizer tries settings on copies of a program."""
    program = build("turn-rag", k=10)

    changed_program = program.with_settings({"k": 3, "search.month": 4})

    assert changed_program.config["k"] == 3
    assert changed_program.config["search"]["month"] == 4.0
    assert program.config["k"] == 10
    assert "search" not in program.config


def test_a_copy_with_other_settings_keeps_the_prompts() -> None:
    """An optimizer may have added demos to a prompt: worked examples that it shows."""
    program = build("turn-rag")
    (predictor,) = program.predictors()
    demo = dspy.Example(context="c", question="q", answer="a")
    predictor.demos = [demo]

    (predictor_of_copy,) = program.with_settings({"k": 3}).predictors()

    assert predictor_of_copy.demos == [demo]


def test_a_setting_beneath_a_policy_is_changed_by_its_prefix() -> None:
    """In "logs+pgr+turn-rag" turn-rag stands beneath two policies, so it has the prefix twice.

    The setting `k` without a prefix is that of the first policy, logs.
    """
    program = build("logs+pgr+turn-rag").with_settings({"k": 5, "inner_inner_k": 3})

    assert program.config == build("logs+pgr+turn-rag", k=5, inner_inner_k=3).config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"kk": 3}, "method 'TurnRAG' has no setting 'kk'", id="name"),
        pytest.param({"k": 0}, "method 'TurnRAG': k = 0", id="value"),
        pytest.param({"search.month": -1}, "search weight month = -1", id="weight"),
        pytest.param({"search.moth": 1}, "did you mean 'month'", id="name of a weight"),
    ],
)
def test_settings_that_do_not_exist_or_have_wrong_values_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    """The message names the setting and what is wrong with it."""
    program = build("turn-rag")

    with pytest.raises(UserError, match=message):
        program.with_settings(changes)


# The weights of a search as settings.


@pytest.mark.parametrize(
    ("settings", "recalled_id"),
    [
        # By its words alone, the turn that names Ann is nearer.
        pytest.param({"search.speaker": 0}, "to-ann", id="no weight"),
        pytest.param({"search.speaker": 5}, "by-ann", id="a weight"),
        pytest.param({"search": {"speaker": 5}}, "by-ann", id="a weight in a mapping"),
    ],
)
def test_the_weight_of_the_speaker_decides_which_turn_is_recalled(
    settings: dict[str, Any], recalled_id: str
) -> None:
    """The question is what Ann says of jazz. One turn is by Ann, and another one names her.

    The weight says how much more a turn counts if it is by the person whom the question names.
    """
    turns = (
        Turn(id="by-ann", speaker="Ann", text="Bob, I love jazz."),
        Turn(id="to-ann", speaker="Bob", text="Ann, I love jazz."),
    )
    history = History(id="h", items=(Session(id="s", turns=turns),))
    program = build("turn-rag", k=1, **settings)
    example = dspy.Example(history=history, question="What does Ann say of jazz?")

    [hit] = program.recall_for(example.with_inputs("history", "question")).context.hits

    assert hit.id == recalled_id


def test_default_weights_are_left_out_of_what_is_saved() -> None:
    """Programs that were saved before there were weights keep their digest.

    By default the weight of the speaker is 2.
    """
    config = build("turn-rag").config
    config_with_default_weight = build("turn-rag", **{"search.speaker": 2}).config

    assert config_with_default_weight == config
    assert not any(name.startswith("search") for name in config)


@pytest.mark.parametrize(
    "name", ["turn-rag", "session-rag", "fact-store", "pgr", "memory-r2", "rgmem"]
)
def test_weights_of_a_search_are_no_part_of_the_key_of_memories(name: str) -> None:
    """Memories are stored under a digest of their writer, and a weight only changes how to search.

    If it were a part of the digest, all memories would be written, and paid for, anew.
    """
    program = build(name)
    changed_program = build(name, **{"search.speaker": 5})

    assert writer_digest(changed_program.method.writer) == writer_digest(program.method.writer)


def test_weights_that_json_has_read_are_the_same_weights() -> None:
    """A saved program is built again from its config, which was written as JSON.

    The weights of neighbouring turns have numbers as keys, which are texts in JSON: {"-1": 0.2}.
    """
    config = build("turn-rag", **{"search.speaker": 5}).config
    config_from_json = json.loads(json.dumps(config))

    assert build("turn-rag", **config_from_json).config == config

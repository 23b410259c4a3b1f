"""Memories as values: the entries of turns, what finalizing leaves, and their search index.

A writer adds one item after the other to a memory: a session of turns, device logs, a profile, or
records of actions. Then it finalizes the memory, which makes the form that questions are answered
from. `continue_from` says into which of the two the next item is written.
"""

import pickle
from typing import Any

import pytest
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.memory import Memory, TurnMemory
from mempiler.programs.baselines.logs import logged_memory_class
from mempiler.programs.pramem.memory import ExperienceMemory
from mempiler.records import Action, AnyItem, Behavior, Logs, Profile, Session, Turn


class NoteMemory(Memory[Entry]):
    """A memory that holds some texts."""

    notes: tuple[str, ...] = ()


# The method `logs+METHOD` keeps device logs beside the memory of another method, the inner memory.


def test_next_item_is_written_into_the_inner_memory_before_it_was_finalized() -> None:
    """Most memories are finalized anew after every item, and so is one beside logs."""
    logged_class: Any = logged_memory_class(NoteMemory)
    memory = logged_class(inner=NoteMemory(notes=("rye",)))
    finalized = logged_class(inner=NoteMemory(notes=("summary of rye",)))

    continued = memory.continue_from(finalized)

    assert continued.inner is memory.inner


def test_next_item_is_written_into_the_finalized_inner_memory_of_pramem() -> None:
    """To finalize PraMem's memory takes many calls of a model, which must not be repeated."""
    logged_class: Any = logged_memory_class(ExperienceMemory)
    memory = logged_class(inner=ExperienceMemory())
    finalized = logged_class(inner=ExperienceMemory())

    continued = memory.continue_from(finalized)

    assert continued.inner is finalized.inner


def test_empty_inner_memories_of_logs_share_no_search_index() -> None:
    """Two users of `logs+turn-rag` begin with equal memories, each with its own search index.

    The attribute `lineage` holds the index.
    """
    logged_class: Any = logged_memory_class(TurnMemory)

    memory = logged_class()
    other_memory = logged_class()

    assert memory == other_memory
    assert memory.inner.lineage is not other_memory.inner.lineage


# The entries of a memory of turns.


def turn(turn_id: str) -> Turn:
    return Turn(id=turn_id, speaker="Ann", text="I moved to Lisbon.")


def memory_of(*items: AnyItem) -> TurnMemory:
    """Return a memory to which these items were added, one after the other."""
    memory = TurnMemory()
    for item in items:
        memory = memory.with_session(item)
    return memory


def test_entry_of_a_turn_has_its_id_and_is_its_own_source() -> None:
    session = Session(id="x", turns=(turn("x:1"),))

    (entry,) = memory_of(session).entries()

    assert entry.id == "x:1"
    assert entry.sources == ("x:1",)


LIKED_CLIP = Action(id="x:1", scene="video", situation="a clip", action="liked")


@pytest.mark.parametrize(
    ("item", "expected_kind"),
    [
        (Session(id="x", turns=(turn("x:1"),)), "turn"),
        (Logs(id="x", turns=(turn("x:1"),)), "log"),
        (Profile(id="x", turns=(turn("x:1"),)), "profile"),
        (Behavior.from_actions("x", [LIKED_CLIP]), "record"),
    ],
    ids=["session", "logs", "profile", "actions"],
)
def test_kind_of_an_entry_says_of_which_item_it_is(item: AnyItem, expected_kind: str) -> None:
    (entry,) = memory_of(item).entries()

    assert entry.kind == expected_kind
    assert entry.hit().kind == expected_kind


@pytest.mark.parametrize(
    "item",
    [
        Logs(id="x", turns=(turn("x:1"),)),
        Profile(id="x", turns=(turn("x:1"),)),
        Behavior.from_actions("x", [LIKED_CLIP]),
    ],
    ids=["logs", "profile", "actions"],
)
def test_turns_of_logs_profiles_and_actions_belong_to_no_dialogue(item: AnyItem) -> None:
    (entry,) = memory_of(item).entries()

    assert DIALOGUE not in entry.tags


def test_entries_stand_in_the_order_in_which_items_were_added() -> None:
    memory = memory_of(
        Session(id="x", turns=(turn("x:1"), turn("x:2"))),
        Logs(id="l", turns=(turn("l:1"),)),
        Profile(id="p", turns=(turn("p:1"),)),
    )

    assert [entry.id for entry in memory.entries()] == ["x:1", "x:2", "l:1", "p:1"]


def test_two_sessions_of_the_same_id_are_two_dialogues() -> None:
    """Turns of one dialogue are neighbours in a search."""
    memory = memory_of(
        Session(id="x", turns=(turn("x:1"), turn("x:2"))),
        Session(id="x", turns=(turn("x:3"),)),
    )

    dialogues = [entry.tags[DIALOGUE] for entry in memory.entries()]
    # A dialogue is named by its first turn.
    assert dialogues == ["x:1", "x:1", "x:3"]


# Versions with the same lineage share one search index. A changed memory is a new version.


def test_next_version_shares_the_search_index() -> None:
    """The attribute `lineage` holds the index, to which a search adds only what is new."""
    memory = NoteMemory(notes=("rye",))

    replaced = memory.replace(notes=("oats",))
    copied = memory.model_copy(update={"notes": ("oats",)})

    assert replaced.lineage is memory.lineage
    assert copied.lineage is memory.lineage


def test_memory_with_a_new_search_index_is_equal() -> None:
    """The attribute `lineage` holds the index."""
    memory = NoteMemory(notes=("rye",))

    separate_memory = memory.with_new_lineage()

    assert separate_memory == memory
    assert separate_memory.lineage is not memory.lineage


def test_memory_comes_back_from_a_pickle_without_its_search_index() -> None:
    memory = NoteMemory(notes=("rye",))

    unpickled_memory = pickle.loads(pickle.dumps(memory))

    assert unpickled_memory == memory
    assert unpickled_memory.lineage is not memory.lineage

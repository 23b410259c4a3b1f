"""Memories: frozen values whose JSON is their stored form, and what further items are written into."""

from typing import Any

import pytest
from mempiler.engines.embedders import embedder
from mempiler.memory.index import DIALOGUE
from mempiler.memory.memory import Memory, TurnMemory, turn_entries
from mempiler.programs.baselines.retrieval import logged
from mempiler.programs.catalog import build
from mempiler.programs.names import METHODS
from mempiler.programs.pramem.memory import ExperienceMemory
from mempiler.records import Action, Behavior, Logs, Profile, Session, Turn


class Notes(Memory):
    notes: tuple[str, ...] = ()


@pytest.mark.parametrize("name", METHODS)
def test_the_memory_of_somebody_unknown_is_empty_and_can_be_stored(name: str) -> None:
    kind = build(name, embedder=embedder()).method.writer.Memory
    assert issubclass(kind, Memory)
    assert not [entry for entry in kind().entries() if entry.sources]
    assert kind.model_validate_json(kind().model_dump_json()) == kind()


@pytest.mark.parametrize("inner", [Notes, ExperienceMemory])
def test_beneath_logs_the_inner_memory_says_how_it_goes_on(inner: type[Any]) -> None:
    kind = logged(inner)
    before, settled = kind(answered=True), kind(inner=inner())
    found = before.resumed(settled)
    assert found.answered
    assert found.inner is before.inner.resumed(settled.inner)


TURN = Turn(id="x:1", speaker="Ann", text="I  moved\nto Lisbon.", caption="a street")


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (Session(id="x", turns=(TURN,)), "turn"),
        (Logs(id="x", turns=(TURN,)), "log"),
        (Profile(id="x", turns=(TURN,)), "profile"),
        (Behavior.of("x", [Action(id="x:1", scene="video", situation="a clip", action="liked")]), "record"),
    ],
)
def test_turns_are_kept_as_what_they_are(item: Any, kind: str) -> None:
    (entry,) = turn_entries(item)
    assert (entry.id, entry.kind, entry.sources) == ("x:1", kind, ("x:1",))
    assert TurnMemory().with_session(item).entries() == (entry,)
    assert entry.hit().kind == kind


def test_the_turns_of_a_session_are_a_dialogue_and_those_of_logs_are_none() -> None:
    said = tuple(Turn(id=f"D1:{n}", speaker="Ann", text=f"word {n}") for n in range(2))
    logs = Logs(id="L1", turns=(Turn(id="L1:1", speaker="phone", text="call"),))
    memory = TurnMemory().with_session(Session(id="D1", turns=said)).with_session(logs)
    # Two sessions of one id are two dialogues.
    memory = memory.with_session(Session(id="D1", turns=(Turn(id="D9:1", speaker="Ann", text="later"),)))
    first, second, log, other = (entry.tags.get(DIALOGUE, "") for entry in memory.entries())
    assert first == second != ""
    assert log == ""
    assert other not in ("", first)

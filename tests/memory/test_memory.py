"""Memories: frozen values whose JSON is their stored form, and what further items are written into."""

from typing import Any

import pytest
from mempiler.memory.index import DIALOGUE
from mempiler.memory.memory import Memory, TurnMemory
from mempiler.programs.baselines.retrieval import logged
from mempiler.programs.pramem.memory import ExperienceMemory
from mempiler.records import Action, Behavior, Logs, Profile, Session, Turn


class Notes(Memory):
    notes: tuple[str, ...] = ()


@pytest.mark.parametrize("inner", [Notes, ExperienceMemory])
def test_beneath_logs_the_inner_memory_says_how_it_goes_on(inner: type[Any]) -> None:
    kind = logged(inner)
    before, settled = kind(answered=True), kind(inner=inner())
    found = before.resumed(settled)
    assert found.answered
    assert found.inner is before.inner.resumed(settled.inner)


def test_turns_are_kept_as_what_they_are_and_those_of_a_session_are_a_dialogue() -> None:
    said = [Turn(id=f"x:{n}", speaker="Ann", text="I  moved\nto Lisbon.", caption="a street") for n in range(6)]
    items: list[Any] = [
        Session(id="x", turns=tuple(said[:2])),
        Logs(id="x", turns=(said[2],)),
        Profile(id="x", turns=(said[3],)),
        Behavior.of("x", [Action(id="x:4", scene="video", situation="a clip", action="liked")]),
        Session(id="x", turns=(said[5],)),  # two sessions of one id are two dialogues
    ]
    memory = TurnMemory()
    for item in items:
        memory = memory.with_session(item)
    found = [(entry.id, entry.kind, entry.tags.get(DIALOGUE, "")) for entry in memory.entries()]
    kinds = ("turn", "turn", "log", "profile", "record", "turn")
    dialogues = ("x:0", "x:0", "", "", "", "x:5")
    assert found == [(f"x:{n}", kind, in_) for n, (kind, in_) in enumerate(zip(kinds, dialogues, strict=True))]
    assert all(entry.sources == (entry.id,) and entry.hit().kind == entry.kind for entry in memory.entries())

"""Dated facts: upsert and consolidation, exact in ids, frequencies and provenance."""

from datetime import datetime

import numpy as np
import pytest
from mempiler.programs.pgr.memory import PersonalFact, PersonalMemory, merge_groups
from mempiler.records import Session, Turn
from mempiler.signatures.pgr import FactChange


def session(n, day=None, turns=2):
    time = datetime(2024, 3, day, 18, 30) if day else None
    said = tuple(Turn(id=f"D{n}:{t}", speaker="Ann", text="words") for t in range(1, turns + 1))
    return Session(id=f"D{n}", time=time, turns=said)


def change(info, type="Identity", entities=(), sources=(), updates=""):
    about = {"related_entities": list(entities), "turn_ids": list(sources)}
    return FactChange(info=info, type=type, fact_id=updates, state="update" if updates else "add", **about)


def fact(id, *days, frequency=1, hour=9):
    dates = tuple(datetime(2024, 3, day, hour) for day in days)
    return PersonalFact(id=id, info=f"info {id}", type="Goal", frequency=frequency, dates=dates, sources=(f"T{id}",))


BASE = PersonalMemory().upsert(
    [
        change("Ann lives in Lisbon", "Identity", ["Lisbon"], ["D1:1"]),
        change("Ann likes tea", "Preference", ["tea"], ["D2:2"]),
    ],
    [session(1, 1), session(2, 5)],
)


@pytest.mark.parametrize(
    ("said", "frequencies"),
    [
        (change("Ann has a dog"), [1, 1, 1]),
        (change("Ann lives in Porto", updates="f1"), [2, 1]),
        (change("ann lives  in lisbon."), [2, 1]),
        (change("Ann sings", "Interest", updates="f9"), [1, 1, 1]),
        (change("  ", "Goal"), [1, 1]),
    ],
)
def test_each_change_is_applied(said, frequencies):
    assert [fact.frequency for fact in BASE.upsert([said], [session(3, 9)]).facts] == frequencies
    assert [(fact.id, fact.sources) for fact in BASE.facts] == [("f1", ("D1:1",)), ("f2", ("D2:2",))]


def test_an_update_unites_dates_sessions_and_turns_and_keeps_the_old_wording():
    said = change("Ann lives in Porto", "Identity", ["Porto"], ["[D3:2]"], "f1")
    updated = BASE.upsert([said], [session(3, 9)]).facts[0]
    assert (updated.info, updated.earlier) == ("Ann lives in Porto", ("Ann lives in Lisbon",))
    assert (updated.sessions, updated.sources) == (("D1", "D3"), ("D1:1", "D3:2"))
    assert updated.entities == ("Lisbon", "Porto")
    assert [time.day for time in updated.dates] == [1, 9]


def test_several_updates_of_one_fact_at_once_are_new_facts_and_leave_it_as_it_was():
    changes = [change(f"Ann saw place {n}", "Activity", (), ["D3:1"], "f1") for n in range(18)]
    memory = BASE.upsert(changes, [session(3, 9)])
    assert memory.facts[:2] == BASE.facts
    assert [fact.info for fact in memory.facts[2:]] == [change.info for change in changes]
    assert memory.upsert(changes[:1], [session(4)]).facts[0].frequency == 2


@pytest.mark.parametrize(
    ("facts", "vectors", "groups"),
    [
        ([fact("f1", 1), fact("f2", 8)], [[1, 0], [1, 0]], [("f1", "f2")]),
        ([fact("f1", 1), fact("f2", 9)], [[1, 0], [1, 0]], []),
        ([fact("f1", 1, hour=8), fact("f2", 8, hour=23)], [[1, 0], [1, 0]], [("f1", "f2")]),
        ([fact("f1", 1), fact("f2", 3)], [[1, 0], [0, 1]], []),
        ([fact("f1", 1), fact("f2", 20), fact("f3", 2, 20)], [[1, 0]] * 3, [("f2", "f3")]),
        ([fact("f1", 20), fact("f2", 13), fact("f3", 5)], [[1, 0]] * 3, [("f1", "f2")]),
        ([fact("f1", 1), fact("f2", 7), fact("f3", 13), fact("f4", 14)], [[1, 0]] * 4, [("f1", "f2"), ("f3", "f4")]),
        ([fact("f1", 1), fact("f2"), fact("f3")], [[1, 0]] * 3, [("f2", "f3")]),
        ([fact("f1", 1), fact("f2", 2), fact("f3", 3)], [[1, 0], [0.8, 0.6], [0.28, 0.96]], [("f1", "f2", "f3")]),
        ([fact("f1", 1), fact("f2", 2), fact("f3", 3)], [[1, 0], [0.79, 0.613], [0.28, 0.96]], [("f2", "f3")]),
        ([], np.zeros((0, 2)), []),
    ],
    ids=[
        *("seven days", "eight days", "calendar days", "unlike", "latest date counts", "order of facts does not count"),
        *("span from the first", "undated apart", "transitive", "edge of the cosine", "none"),
    ],
)
def test_which_facts_merge(facts, vectors, groups):
    assert merge_groups(facts, np.array(vectors, dtype=np.float32), 0.8) == groups


def test_a_merge_sums_frequencies_and_unites_provenance_under_the_highest_id():
    facts = (fact("f2", 1, frequency=3), fact("f9", 2), fact("f10", 2, 4, frequency=2), fact("f3", 1))
    memory = PersonalMemory(facts=facts, issued=10).merge(["f10", "f2", "f9"], "all in one", "Identity", ["one", "one"])
    assert [fact.id for fact in memory.facts] == ["f10", "f3"]
    merged = memory.facts[0]
    assert (merged.frequency, merged.merged, merged.sources) == (6, ("f2", "f9", "f10"), ("Tf2", "Tf9", "Tf10"))
    assert ([time.day for time in merged.dates], merged.entities) == ([1, 2, 4], ("one",))
    assert merged.type == "Goal"  # none of the parts was an identity
    again = memory.merge(["f10", "f3"], "all", "Goal").facts[0]
    assert (again.merged, again.earlier[-2:]) == (("f2", "f9", "f10", "f3"), ("all in one", "info f3"))

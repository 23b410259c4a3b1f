"""The experience document: records and positions, entries, the pool."""

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.pramem.memory import ExperienceMemory, suffix
from mempiler.records import Action, estimate_tokens


def action(n, words=3):
    return Action(
        id=f"a{n}",
        time=datetime(2024, 1, 1, n % 24),
        scene="video",
        situation=f"clip {n}",
        action=" ".join(["w"] * words),
    )


def actions(count):
    return tuple(action(n) for n in range(1, count + 1))


def test_entries_get_ids_by_kind_that_are_never_given_twice():
    memory = ExperienceMemory().with_entries("pattern", [("Likes jazz", ("a1",)), ("Likes  JAZZ", ("a2",)), (" ", ())])
    memory = memory.with_entries("alert", [("I overrate jazz", ())])
    assert [(part.id, part.kind, part.sources) for part in memory.experiences] == [
        ("pattern-1", "pattern", ("a1",)),
        ("alert-1", "alert", ()),
    ]
    emptied = memory.replaced("pattern", [])
    assert emptied.with_entries("pattern", [("Likes rock", ())]).patterns[0].id == "pattern-2"


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(0, 300))
def test_a_suffix_is_as_many_records_as_its_budget_holds(words, tokens):
    records = tuple(action(n, count) for n, count in enumerate(words, 1))
    found = suffix(records, tokens)
    taken = sum(estimate_tokens(record.turn().line()) + 1 for record in found)
    assert found == records[len(records) - len(found) :]
    assert taken <= tokens
    rest = records[: len(records) - len(found)]
    assert not rest or taken + estimate_tokens(rest[-1].turn().line()) + 1 > tokens


def test_a_covered_memory_keeps_what_later_samples_show_and_the_position():
    memory = ExperienceMemory().with_records(actions(40))
    assert (memory.total, memory.waiting) == (40, 40)
    covered = memory.covered(100)
    assert covered.records == suffix(actions(40), 100)
    assert (covered.total, covered.practised, covered.waiting) == (40, 40, 0)
    assert covered.with_records(actions(2)).waiting == 2

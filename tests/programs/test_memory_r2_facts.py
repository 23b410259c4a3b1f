"""Memories of facts edited by operations: nothing lost silently, nothing changed in place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.programs.memory_r2.memory import Edit, FactMemory

BASE = FactMemory().apply(
    [
        Edit("INSERT", speaker="Ann", content="Ann lives in Lisbon", sources=("D1:1",)),
        Edit("INSERT", speaker="Bob", content="Bob plays the cello", sources=("D1:2",)),
    ]
)


@pytest.mark.parametrize(
    ("edit", "shown", "outcome", "contents"),
    [
        (Edit("INSERT", speaker="Ann", content="Ann has a dog", sources=("D2:1",)), [], "inserted", 3),
        (Edit("INSERT", speaker="Ann", content="Ann lives in  Lisbon ", sources=("D2:1",)), [], "merged", 2),
        (Edit("INSERT", speaker="Ann", content="  "), [], "refused", 2),
        (Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", ("D2:1",)), ["m1"], "updated", 2),
        (Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", ("D2:1",)), [], "refused", 2),
        (Edit("UPDATE", "m9", "Ann", "x"), ["m9"], "refused", 2),
        (Edit("UPDATE", "m1", "Ann", ""), ["m1"], "refused", 2),
        (Edit("DELETE", "m2"), ["m2"], "deleted", 1),
        (Edit("DELETE", "m2"), ["m1"], "refused", 2),
        (Edit("NONE"), [], "unchanged", 2),
    ],
)
def test_each_operation_does_what_it_says_and_is_counted(edit, shown, outcome, contents):
    memory = BASE.apply([edit], shown)
    assert memory.counts[outcome] == BASE.counts.get(outcome, 0) + 1
    assert len(memory.facts) == contents


def test_an_update_keeps_both_provenances_the_old_wording_and_the_first_date():
    fact = BASE.apply([Edit("UPDATE", "m1", "Ann", "Ann lives in Porto", ("D2:1",))], ["m1"]).facts[0]
    assert (fact.sources, fact.earlier, fact.time) == (("D1:1", "D2:1"), ("Ann lives in Lisbon",), BASE.facts[0].time)


edits = st.builds(
    Edit,
    op=st.sampled_from(["INSERT", "UPDATE", "DELETE", "NONE"]),
    memory_id=st.sampled_from([None, "m1", "m2", "m3", "m4", "zz"]),
    speaker=st.sampled_from(["Ann", "Bob"]),
    content=st.sampled_from(["", "a", " a ", "b", "Ann lives in Lisbon"]),
    sources=st.lists(st.sampled_from(["D1:1", "D2:1", "D3:1"]), max_size=2).map(tuple),
)


@given(st.lists(edits, max_size=12), st.lists(st.sampled_from(["m1", "m2", "m3", "m4"]), max_size=4))
def test_no_source_is_ever_lost_and_every_edit_is_counted(batch, shown):
    before = BASE.model_dump_json()
    memory = BASE.apply(batch, shown)
    kept = {source for fact in (*memory.facts, *memory.removed) for source in fact.sources}
    assert {"D1:1", "D1:2"} <= kept
    assert sum(memory.counts.values()) == sum(BASE.counts.values()) + len(batch)
    assert BASE.model_dump_json() == before
    assert len({fact.id for fact in memory.facts}) == len(memory.facts)

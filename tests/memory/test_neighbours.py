"""Turns of a dialogue lend one another their scores: worked by hand, kept up to date, and never across dialogues."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.memory import sparse
from mempiler.memory.index import DIALOGUE, Entry
from mempiler.memory.neighbours import ALONE, Neighbours, Shares
from mempiler.memory.sparse import SparseIndex
from mempiler.memory.turns import TurnMemory
from mempiler.records import Logs, Session, Turn

WORDS = ("lisbon", "jazz", "piano", "river")


def turn(id: str, text: str, dialogue: str = "D1") -> Entry:
    return Entry(id=id, text=text, tags={DIALOGUE: dialogue} if dialogue else {})


def index_of(entries: Sequence[Entry], shares: Shares | None = None) -> SparseIndex:
    index = SparseIndex(shares)
    index.add(entries)
    return index


def linked(*dialogues: str) -> Neighbours:
    found = Neighbours()
    for row, dialogue in enumerate(dialogues):
        found.put(row, dialogue)
    return found


def test_each_turn_gets_its_shares_of_the_two_before_it_and_the_one_after_it() -> None:
    lent = linked("a", "a", "a", "a").lent(np.array([10.0, 0.0, 4.0, 0.0]), Shares())
    assert lent.tolist() == [10.0, 0.5 * 10 + 0.2 * 4, 4 + 0.2 * 10, 0.5 * 4]


def test_nothing_is_lent_across_dialogues_or_to_what_is_no_turn() -> None:
    lent = linked("a", "b", "", "a", "").lent(np.array([10.0, 0.0, 0.0, 0.0, 1.0]), Shares(before=(0.5,), after=()))
    assert lent.tolist() == [10.0, 0.0, 0.0, 5.0, 1.0]


def test_who_lends_nothing_changes_nothing() -> None:
    scores = np.array([3.0, 0.0])
    assert linked("a", "a").lent(scores, ALONE).tolist() == [3.0, 0.0]
    assert linked().lent(np.zeros(0), Shares()).tolist() == []


def test_an_answer_is_found_by_the_question_before_it() -> None:
    rows = [turn("q", "did you get that job"), turn("a", "yes, I start on Monday"), turn("other", "rain again", "D2")]
    assert [hit.id for hit in index_of(rows).search(["the job"], k=5)[0]] == ["q", "a"]
    assert [hit.id for hit in index_of(rows, ALONE).search(["the job"], k=5)[0]] == ["q"]


def test_a_hit_by_neighbours_has_half_their_score() -> None:
    found = index_of([turn("q", "jazz"), turn("a", "oat milk"), *(turn(f"x{n}", "river", "") for n in range(5))])
    first, second = found.search(["jazz"], k=5)[0]
    assert (first.id, second.id, second.score) == ("q", "a", pytest.approx(first.score / 2))


def test_a_filter_leaves_out_a_turn_and_not_what_it_lends() -> None:
    found = index_of([turn("q", "jazz"), turn("a", "oat milk"), turn("b", "rye")])
    assert [hit.id for hit in found.search(["jazz"], k=5, where=lambda entry: entry.id != "q")[0]] == ["a", "b"]


entries = st.lists(
    st.tuples(st.integers(0, 14), st.lists(st.sampled_from(WORDS), max_size=3), st.sampled_from(["", "a", "b", "c"])),
    max_size=16,
)
steps = st.lists(st.one_of(entries, st.sets(st.integers(0, 14))), max_size=5)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([1, sparse.MANY]))
def test_an_index_that_changed_is_the_one_that_was_always_so(changes: list[object], many: int) -> None:
    index, kept, before = SparseIndex(), dict[str, Entry](), sparse.MANY
    sparse.MANY = many
    try:
        for change in changes:
            if isinstance(change, set):
                gone = [f"e{n}" for n in change]
                kept = {id: entry for id, entry in kept.items() if id not in gone}
                index.remove(gone)
            else:
                assert isinstance(change, list)
                new = [turn(f"e{n}", " ".join(words), dialogue) for n, words, dialogue in change]
                kept |= {entry.id: entry for entry in new}
                index.add(new)
    finally:
        sparse.MANY = before
    rebuilt, queries = index_of(list(kept.values())), [*WORDS, "lisbon river"]
    assert index.ids == tuple(kept)
    assert index.scores(queries).tolist() == rebuilt.scores(queries).tolist()
    assert index.search(queries, k=9) == rebuilt.search(queries, k=9)
    assert rebuilt.scores(queries) == pytest.approx(by_hand(list(kept.values()), queries), abs=1e-9)


def by_hand(rows: list[Entry], queries: list[str]) -> np.ndarray:
    """What every entry is lent, one at a time."""
    own = index_of(rows, ALONE).scores(queries)
    total = own.copy()
    for n, row in enumerate(rows):
        same = [m for m, other in enumerate(rows) if row.dialogue and other.dialogue == row.dialogue]
        at = same.index(n) if same else 0
        for step, share in ((-1, 0.5), (-2, 0.2), (1, 0.2)):
            if same and 0 <= at + step < len(same):
                total[:, n] += share * own[:, same[at + step]]
    return total


def test_the_turns_of_a_session_are_a_dialogue_and_those_of_logs_are_none() -> None:
    said = tuple(Turn(id=f"D1:{n}", speaker="Ann", text=f"word {n}") for n in range(2))
    logs = Logs(id="L1", turns=(Turn(id="L1:1", speaker="phone", text="call"),))
    memory = TurnMemory().with_session(Session(id="D1", turns=said)).with_session(logs)
    # Two sessions of one id are two dialogues.
    memory = memory.with_session(Session(id="D1", turns=(Turn(id="D9:1", speaker="Ann", text="later"),)))
    first, second, log, other = (entry.dialogue for entry in memory.entries())
    assert first == second != ""
    assert log == ""
    assert other not in ("", first)

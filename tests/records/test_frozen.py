"""Frozen values: no public operation changes a record, and a copy describes its own fields.

Records are the values that all parts of the product share, such as a `Turn`, a `History` or a
`Query`. Memories are found again by digests of records. So a record that changed would be a bug,
and so would a copy with the digest of its original.

A test with `for_every_type` runs for every class of records, with drawn values. `COPIES` are the
ways to copy a record, `CHANGES` the ways to copy it with other values.
"""

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler import Entry, Memory
from mempiler.records import (
    Action,
    Behavior,
    Context,
    Failure,
    History,
    Hit,
    Item,
    Logs,
    Profile,
    Query,
    Record,
    Session,
    Turn,
)
from mempiler.records.context import FailureKind
from mempiler.records.query import About, Modality
from pydantic import BaseModel, Field, PrivateAttr, ValidationError

# Few values, so that records are made fast and often agree in some of their fields.
TEXTS = st.sampled_from(("", "a", "D1:1", "Ann moved", "名前"))
TEXT_TUPLES = st.lists(TEXTS, max_size=2).map(tuple)
TIMES = st.sampled_from((None, datetime(2024, 1, 1), datetime(2024, 5, 6, 7, 8, tzinfo=UTC)))
TURNS = st.builds(Turn, id=TEXTS, speaker=TEXTS, text=TEXTS, caption=st.none() | TEXTS, time=TIMES)
TURN_TUPLES = st.lists(TURNS, max_size=2).map(tuple)
ACTIONS = st.builds(
    Action,
    id=TEXTS,
    time=TIMES,
    scene=TEXTS,
    situation=TEXTS,
    action=TEXTS,
    questions=st.none() | TEXT_TUPLES,
)


def items_of(kind: type[Item]) -> st.SearchStrategy[Any]:
    return st.builds(kind, id=TEXTS, time=TIMES, turns=TURN_TUPLES)


# The turns of a batch are made of its actions without validation, unlike all others.
BEHAVIORS = st.builds(Behavior.from_actions, id=TEXTS, actions=st.lists(ACTIONS, max_size=2))
ITEM_TUPLES = st.lists(
    st.one_of(items_of(Session), items_of(Logs), items_of(Profile), BEHAVIORS), max_size=2
).map(tuple)
HITS = st.builds(
    Hit,
    id=TEXTS,
    text=TEXTS,
    kind=st.sampled_from(("turn", "fact", "summary")),
    score=st.floats(0, 1),
    sources=TEXT_TUPLES,
    time=TIMES,
    speaker=st.none() | TEXTS,
    label=TEXTS,
    block=TEXTS,
)
QUERIES = st.builds(
    Query,
    text=TEXTS,
    options=TEXT_TUPLES,
    date=TIMES | TEXTS,
    speakers=TEXT_TUPLES,
    dialogue=TEXTS,
    modality=st.sampled_from(get_args(Modality)),
    about=st.none() | st.sampled_from(get_args(About)),
    shown_items=ITEM_TUPLES,
    new_items=ITEM_TUPLES,
    extra=st.dictionaries(TEXTS, TEXTS | st.integers() | st.lists(TEXTS, max_size=2), max_size=2),
)
RECORDS: dict[type[Record], st.SearchStrategy[Any]] = {
    Action: ACTIONS,
    Behavior: BEHAVIORS,
    Context: st.builds(
        Context,
        hits=st.lists(HITS, max_size=2).map(tuple),
        notes=st.dictionaries(TEXTS, TEXTS, max_size=2),
        counts=st.dictionaries(TEXTS, st.integers(), max_size=2),
    ),
    Failure: st.builds(
        Failure, kind=st.sampled_from(get_args(FailureKind)), where=TEXTS, message=TEXTS
    ),
    History: st.builds(History, id=TEXTS, items=ITEM_TUPLES),
    Hit: HITS,
    Item: items_of(Item),
    Logs: items_of(Logs),
    Profile: items_of(Profile),
    Query: QUERIES,
    Session: items_of(Session),
    Turn: TURNS,
    Entry: st.builds(Entry, id=TEXTS, text=TEXTS, tags=st.dictionaries(TEXTS, TEXTS, max_size=2)),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "model_copy": lambda record: record.model_copy(),
    "deep model_copy": lambda record: record.model_copy(deep=True),
    "copy": lambda record: record.copy(),
    "pickle": lambda record: pickle.loads(pickle.dumps(record)),
}
CHANGES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "model_copy": lambda record, update: record.model_copy(update=update),
    "deep model_copy": lambda record, update: record.model_copy(update=update, deep=True),
    "copy": lambda record, update: record.copy(update=update),
    "of a copy": lambda record, update: copy.copy(record).model_copy(update=update),
    "of a deep copy": lambda record, update: copy.deepcopy(record).model_copy(update=update),
}
ARGUMENTS = {
    "at": (datetime(2024, 1, 1),),
    "select_turns": (("a", "D1:1"),),
    "with_kinds": ("turn",),
}
"""Of methods that need some."""


def for_every_type(test: Callable[..., None]) -> Any:
    """Run a test for every class in `RECORDS`, with 20 drawn sets of values each."""
    examples = settings(max_examples=20)(given(data=st.data())(test))
    return pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)(examples)


def record_types(kind: type[Record] = Record) -> Iterator[type[Record]]:
    for child in kind.__subclasses__():
        yield child
        yield from record_types(child)


def content(record: BaseModel) -> tuple[str, str]:
    """Return all that a record holds, and which of its fields were given."""
    return record.model_dump_json(), record.model_dump_json(exclude_unset=True)


def public_names(record: BaseModel, *kinds: Any) -> list[str]:
    """Return the members of a record's class, of some kinds, that are not pydantic's."""
    own = sorted(set(dir(type(record))) - set(dir(BaseModel)))
    return [
        name
        for name in own
        if isinstance(inspect.getattr_static(type(record), name), kinds) and name[0] != "_"
    ]


def computed(record: BaseModel) -> dict[str, Any]:
    """Return the properties of a record, by name. Cached properties are computed by this."""
    return {name: getattr(record, name) for name in public_names(record, property, cached_property)}


def fresh(record: Any, **changes: Any) -> Any:
    """Return a record that is made anew of the same fields, apart from some changes."""
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    return type(record)(**{**fields, **changes})


def test_every_class_of_records_is_tested_in_this_file() -> None:
    """A new class has to be added to `RECORDS`."""
    of_the_room = {
        kind for kind in record_types() if kind.__module__.startswith("mempiler.records.")
    }
    assert of_the_room - RECORDS.keys() == set()


@for_every_type
def test_a_copy_of_a_record_is_another_object_that_is_equal(
    kind: type[Record], data: st.DataObject
) -> None:
    """`COPIES` are six ways to copy a record, such as `copy.copy` and pickle."""
    record = data.draw(RECORDS[kind])
    said = computed(record)
    for name, copied in {name: make(record) for name, make in COPIES.items()}.items():
        assert copied is not record, name
        assert copied == record, name
        assert content(copied) == content(record), name
        assert computed(copied) == said, name


@for_every_type
def test_a_changed_copy_equals_a_new_record_and_leaves_the_original_as_it_was(
    kind: type[Record], data: st.DataObject
) -> None:
    """One field gets the value that another record has in it.

    Properties such as a digest are cached. The changed copy must not have those of the original.
    """
    record, other = data.draw(RECORDS[kind]), data.draw(RECORDS[kind])
    before, said = content(record), computed(record)
    field = data.draw(st.sampled_from(list(kind.model_fields)))
    update = {field: getattr(other, field)}
    for name, change in CHANGES.items():
        changed, expected = change(record, update), fresh(record, **update)
        assert changed == expected, name
        assert changed.model_dump_json() == expected.model_dump_json(), name
        assert computed(changed) == computed(expected), name
        assert content(record) == before, name
        assert computed(record) == said, name


@for_every_type
def test_no_method_changes_a_record(kind: type[Record], data: st.DataObject) -> None:
    """All public methods are called, with `ARGUMENTS` if they need some."""
    record = data.draw(RECORDS[kind])
    before, said = content(record), computed(record)
    for name in public_names(record, type(content)):
        getattr(record, name)(*ARGUMENTS.get(name, ()))
    assert content(record) == before
    assert computed(record) == said


@for_every_type
def test_no_field_of_a_record_can_be_set_or_deleted(
    kind: type[Record], data: st.DataObject
) -> None:
    record = data.draw(RECORDS[kind])
    before = content(record)
    for field in kind.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(record, field, getattr(record, field))
        with pytest.raises(ValidationError, match="frozen"):
            delattr(record, field)
    assert content(record) == before


MUTATIONS: list[Callable[[Any], Any]] = [
    lambda found: found.__setitem__("a", "b"),
    lambda found: found.__delitem__("a"),
    lambda found: found.__ior__({"a": "b"}),
    lambda found: found.clear(),
    lambda found: found.pop("a"),
    lambda found: found.popitem(),
    lambda found: found.setdefault("b", "c"),
    lambda found: found.update(a="b"),
]
SESSION = Session(id="D1", turns=(Turn(id="a", speaker="Ann", text="I moved to Lisbon."),))
MAPPINGS: dict[str, Callable[[], Any]] = {
    "notes of a context": lambda: Context(notes={"a": "1"}).notes,
    "counts of a context": lambda: Context(counts={"a": 1}).counts,
    "extra of a query": lambda: Query(text="Where?", extra={"a": 1}).extra,
    "tags of an entry": lambda: Entry(id="e", text="x", tags={"a": "1"}).tags,
    "of a changed copy": lambda: Context().model_copy(update={"notes": {"a": "1"}}).notes,
    "of a deep copy": lambda: copy.deepcopy(Context(notes={"a": "1"})).notes,
    "turns of a history": lambda: History(id="h", items=(SESSION,)).turns,
}


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_a_mapping_in_a_record_cannot_be_changed(mapping: Callable[[], Any]) -> None:
    """`MUTATIONS` are all ways to change a dictionary."""
    found = mapping()
    before = dict(found)
    for mutate in MUTATIONS:
        with pytest.raises((TypeError, AttributeError)):
            mutate(found)
    assert dict(found) == before == {"a": found["a"]}


def test_a_record_does_not_change_with_the_values_it_was_made_of() -> None:
    """The dictionary and the list that a record was made of are changed afterwards."""
    notes, hits = {"a": "1"}, [Hit(id="h1", text="x")]
    made = Context(notes=notes)
    changed = made.model_copy(update={"notes": notes, "hits": hits})
    notes["a"], hits[:] = "2", []
    assert made.notes == changed.notes == {"a": "1"}
    assert [hit.id for hit in changed.hits] == ["h1"]


def test_a_list_in_a_deep_copy_of_a_query_is_not_the_list_of_the_query() -> None:
    """A benchmark may put any value into `extra`, also one that can be changed, such as a list."""
    query = Query(text="Where?", extra={"places": ["Lisbon"]})
    copy.deepcopy(query).extra["places"].append("Porto")
    assert query.extra == {"places": ["Lisbon"]}


def test_a_changed_history_has_another_digest() -> None:
    """The digest tells histories with other items apart, whatever their ids are.

    `prefixes` are the digests of the first item, of the first two items, and so on.
    """
    later = Session(id="D2", turns=(Turn(id="b", speaker="Bob", text="I like it."),))
    history = History(id="h", items=(SESSION,))
    assert list(history.turns) == ["a"]
    assert history.digest == History(id="other", items=(SESSION,)).digest
    longer = history.model_copy(update={"items": (SESSION, later)})
    assert len(history) == 1
    assert list(history.turns) == ["a"]
    assert list(longer.turns) == ["a", "b"]
    assert longer.prefixes == History(id="h", items=(SESSION, later)).prefixes
    assert longer.digest != history.digest
    reworded = SESSION.model_copy(
        update={"turns": (Turn(id="a", speaker="Ann", text="I moved to Porto."),)}
    )
    assert history.model_copy(update={"items": (reworded,)}).digest not in (
        history.digest,
        longer.digest,
    )


def test_copies_of_a_history_share_its_items_and_digests_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A history may have thousands of items, so copies must be cheap."""
    items = tuple(SESSION.model_copy(update={"id": f"D{n}"}) for n in range(2000))
    history = History(id="h", items=items)
    first = history.digest
    for make in (copy.copy, copy.deepcopy, lambda value: copy.deepcopy([value])[0]):
        assert make(history).items is history.items
    # What an item says of itself is computed once, for all histories that hold it.
    monkeypatch.setattr(Item, "model_dump_json", lambda self: pytest.fail("an item is read again"))
    assert copy.deepcopy(history).digest == history.digest == first


@pytest.mark.parametrize("update", [{"digest": "0" * 64}, {"txt": "x"}])
def test_a_copy_with_an_unknown_field_is_refused(update: dict[str, Any]) -> None:
    """A digest is computed and no field of a session; `txt` is a slip of the pen."""
    with pytest.raises(
        TypeError, match=f"Session has no field {next(iter(update))}; it has: id, time, turns"
    ):
        SESSION.model_copy(update=update)


class Notes(Memory):
    """A memory with a field that can be changed, a private value, and a cached property."""

    notes: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    _author: str = PrivateAttr("Ann")

    @cached_property
    def words(self) -> list[str]:
        return [word for note in self.notes for word in note.split()]


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES.keys())
def test_a_copied_memory_computes_its_cached_words_itself(make: Callable[[Any], Any]) -> None:
    """`words` is computed once for each memory, and then kept."""
    memory = Notes(notes=("rye bread",), counts={"added": 1})
    memory._author = "Bob"
    assert memory.words == ["rye", "bread"]
    copied = make(memory)
    assert copied == memory
    assert copied._author == "Bob"
    assert copied.words == memory.words
    assert copied.words is not memory.words


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_memory_computes_anew_and_is_searched_by_the_same_index(
    change: Callable[..., Any],
) -> None:
    """Memories with the same `lineage` share their search indexes.

    So a memory that has a new note is searched without embedding the old notes again.
    """
    memory = Notes(notes=("rye bread",), counts={"added": 1})
    assert memory.words == ["rye", "bread"]
    changed = change(memory, {"notes": ("oat milk",)})
    assert memory.notes == ("rye bread",)
    assert changed.notes == ("oat milk",)
    assert changed.words == ["oat", "milk"]
    assert changed.lineage is memory.lineage


def test_a_deep_copy_of_a_memory_shares_no_dictionary() -> None:
    memory = Notes(counts={"added": 1})
    copy.deepcopy(memory).counts["added"] = 2
    assert memory.counts == {"added": 1}

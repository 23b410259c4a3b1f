"""Frozen values: no public operation changes a record, and a copy describes its own fields.

Records are the values that all parts of the product share, such as a `Turn`, a `History` or a
`Query`. Memories are found again by digests of records. So a record that changed would be a bug,
and so would a copy with the digest of its original.

A test with `for_every_record_class` runs for every class of records, with random values. Besides
fields a record has properties, such as a digest, which are computed from its fields. Some are
cached in the record.
"""

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from types import FunctionType
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
RECORDS_BY_CLASS: dict[type[Record], st.SearchStrategy[Any]] = {
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
WAYS_TO_COPY: dict[str, Callable[[Any], Any]] = {
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "model_copy": lambda record: record.model_copy(),
    "deep model_copy": lambda record: record.model_copy(deep=True),
    "copy": lambda record: record.copy(),
    "pickle": lambda record: pickle.loads(pickle.dumps(record)),
}
WAYS_TO_COPY_WITH_CHANGES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "model_copy": lambda record, update: record.model_copy(update=update),
    "deep model_copy": lambda record, update: record.model_copy(update=update, deep=True),
    "copy": lambda record, update: record.copy(update=update),
    "of a copy": lambda record, update: copy.copy(record).model_copy(update=update),
    "of a deep copy": lambda record, update: copy.deepcopy(record).model_copy(update=update),
}
ARGUMENTS_OF_METHODS = {
    "at": (datetime(2024, 1, 1),),
    "select_turns": (("a", "D1:1"),),
    "with_kinds": ("turn",),
}
"""Of methods that need some."""


def for_every_record_class(test: Callable[..., None]) -> Any:
    """Run a test for every class in `RECORDS_BY_CLASS`, with 20 drawn sets of values each."""
    examples = settings(max_examples=20)(given(data=st.data())(test))
    return pytest.mark.parametrize(
        "record_class", RECORDS_BY_CLASS, ids=lambda kind: kind.__name__
    )(examples)


def record_types(kind: type[Record] = Record) -> Iterator[type[Record]]:
    """Yield all classes below this one."""
    for child in kind.__subclasses__():
        yield child
        yield from record_types(child)


def fields_as_json(record: BaseModel) -> tuple[str, str]:
    """Return all fields of a record, and those that were given when it was made."""
    return record.model_dump_json(), record.model_dump_json(exclude_unset=True)


def public_names(record: BaseModel, *kinds: Any) -> list[str]:
    """Return the members of a record's class, of some kinds, that are not pydantic's."""
    kind_of_record = type(record)
    names: list[str] = []
    for name in sorted(set(dir(kind_of_record)) - set(dir(BaseModel))):
        member = inspect.getattr_static(kind_of_record, name)
        if isinstance(member, kinds) and not name.startswith("_"):
            names.append(name)
    return names


def properties_of(record: BaseModel) -> dict[str, Any]:
    """Return the properties of a record, by name.

    Cached properties are computed by this, so that a copy could take them over from the record.
    """
    names = public_names(record, property, cached_property)
    return {name: getattr(record, name) for name in names}


def new_record(kind: type[Record], record: Any, update: dict[str, Any]) -> Any:
    """Return a record that is made anew of the fields of another one, apart from an update."""
    fields = {name: getattr(record, name) for name in kind.model_fields}
    return kind(**{**fields, **update})


def test_every_class_of_records_is_tested_in_this_file() -> None:
    """A new class has to be added to `RECORDS_BY_CLASS`."""
    untested_classes: list[type[Record]] = []
    for record_class in record_types():
        is_of_product = record_class.__module__.startswith("mempiler.records.")
        if is_of_product and record_class not in RECORDS_BY_CLASS:
            untested_classes.append(record_class)

    assert untested_classes == []


@for_every_record_class
def test_a_copy_of_a_record_is_another_object_that_is_equal(
    record_class: type[Record], data: st.DataObject
) -> None:
    """Records are the values that all parts of the product share, such as a `Turn` or a `History`.

    A random record is copied in six ways, such as `copy.copy` and pickle. Properties, such as a
    digest, are computed from the fields, and have to be equal as well.
    """
    record = data.draw(RECORDS_BY_CLASS[record_class])
    properties = properties_of(record)

    for way, make_copy in WAYS_TO_COPY.items():
        copied = make_copy(record)
        assert copied is not record, way
        assert copied == record, way
        assert fields_as_json(copied) == fields_as_json(record), way
        assert properties_of(copied) == properties, way


@for_every_record_class
def test_a_changed_copy_equals_a_new_record_and_leaves_the_original_as_it_was(
    record_class: type[Record], data: st.DataObject
) -> None:
    """Memories are found again by digests of records, which are cached in the record.

    So a changed copy must not take over the digest of its original. A random record is copied in
    five ways, and one field of the copy gets a random value.
    """
    original = data.draw(RECORDS_BY_CLASS[record_class])
    other = data.draw(RECORDS_BY_CLASS[record_class])
    field = data.draw(st.sampled_from(list(record_class.model_fields)))
    update = {field: getattr(other, field)}
    new = new_record(record_class, original, update)
    fields_before = fields_as_json(original)
    properties_before = properties_of(original)

    for way, make_changed_copy in WAYS_TO_COPY_WITH_CHANGES.items():
        changed = make_changed_copy(original, update)
        assert changed == new, way
        assert changed.model_dump_json() == new.model_dump_json(), way
        assert properties_of(changed) == properties_of(new), way
        assert fields_as_json(original) == fields_before, way
        assert properties_of(original) == properties_before, way


@for_every_record_class
def test_no_method_changes_a_record(record_class: type[Record], data: st.DataObject) -> None:
    """Records are shared by threads and caches, so none may change.

    All public methods of a random record are called, one after the other.
    """
    record = data.draw(RECORDS_BY_CLASS[record_class])
    fields_before = fields_as_json(record)
    properties_before = properties_of(record)

    for name in public_names(record, FunctionType):
        method = getattr(record, name)
        method(*ARGUMENTS_OF_METHODS.get(name, ()))

    assert fields_as_json(record) == fields_before
    assert properties_of(record) == properties_before


@for_every_record_class
def test_no_field_of_a_record_can_be_set_or_deleted(
    record_class: type[Record], data: st.DataObject
) -> None:
    record = data.draw(RECORDS_BY_CLASS[record_class])
    fields_before = fields_as_json(record)

    for field in record_class.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(record, field, getattr(record, field))
        with pytest.raises(ValidationError, match="frozen"):
            delattr(record, field)

    assert fields_as_json(record) == fields_before


WAYS_TO_CHANGE_A_DICTIONARY: list[Callable[[Any], Any]] = [
    lambda mapping: mapping.__setitem__("a", "b"),
    lambda mapping: mapping.__delitem__("a"),
    lambda mapping: mapping.__ior__({"a": "b"}),
    lambda mapping: mapping.clear(),
    lambda mapping: mapping.pop("a"),
    lambda mapping: mapping.popitem(),
    lambda mapping: mapping.setdefault("b", "c"),
    lambda mapping: mapping.update(a="b"),
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


@pytest.mark.parametrize("make_mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_a_mapping_in_a_record_cannot_be_changed(make_mapping: Callable[[], Any]) -> None:
    """A mapping, such as the notes of a context, has the one key "a".

    It is changed in all ways in which a dictionary can be, such as `update` and `pop`.
    """
    mapping = make_mapping()
    items_before = dict(mapping)

    for change in WAYS_TO_CHANGE_A_DICTIONARY:
        with pytest.raises((TypeError, AttributeError)):
            change(mapping)

    assert dict(mapping) == items_before


def test_a_record_does_not_change_with_the_values_it_was_made_of() -> None:
    notes = {"a": "1"}
    context = Context(notes=notes)

    notes["a"] = "2"

    assert context.notes == {"a": "1"}


def test_a_copy_does_not_change_with_the_values_it_was_made_of() -> None:
    notes = {"a": "1"}
    hits = [Hit(id="h1", text="x")]
    changed_copy = Context().model_copy(update={"notes": notes, "hits": hits})

    notes["a"] = "2"
    hits.clear()

    assert changed_copy.notes == {"a": "1"}
    assert [hit.id for hit in changed_copy.hits] == ["h1"]


def test_the_digest_of_a_history_does_not_depend_on_its_id() -> None:
    """The digest tells histories with other items apart, whatever their ids are."""
    history = History(id="h", items=(SESSION,))
    same_items = History(id="other", items=(SESSION,))

    assert history.digest == same_items.digest


def test_a_history_with_a_reworded_session_has_another_digest() -> None:
    """A memory that was written from other words must not be found for this history."""
    turn = Turn(id="a", speaker="Ann", text="I moved to Lisbon.")
    reworded_turn = Turn(id="a", speaker="Ann", text="I moved to Porto.")

    history = History(id="h", items=(Session(id="D1", turns=(turn,)),))
    reworded_history = History(id="h", items=(Session(id="D1", turns=(reworded_turn,)),))

    assert reworded_history.digest != history.digest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("digest", "0" * 64),
        ("txt", "x"),
    ],
)
def test_a_copy_with_an_unknown_field_is_refused(field: str, value: str) -> None:
    """A digest is computed and no field of a session; `txt` is a slip of the pen."""
    with pytest.raises(TypeError, match=f"Session has no field {field}; it has: id, time, turns"):
        SESSION.model_copy(update={field: value})


class Notes(Memory):
    """A memory with a field that can be changed, a private value, and a cached property."""

    notes: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    _author: str = PrivateAttr("Ann")

    @cached_property
    def words(self) -> list[str]:
        return [word for note in self.notes for word in note.split()]


@pytest.mark.parametrize("make_copy", WAYS_TO_COPY.values(), ids=WAYS_TO_COPY.keys())
def test_a_copied_memory_computes_its_cached_words_itself(make_copy: Callable[[Any], Any]) -> None:
    """`words` is a list that is computed once for each memory, and then kept with it.

    Two memories must not share that list. A memory is copied in six ways, such as `copy.copy`.
    """
    memory = Notes(notes=("rye bread",), counts={"added": 1})
    memory._author = "Bob"
    assert memory.words == ["rye", "bread"]

    copied = make_copy(memory)

    assert copied == memory
    assert copied._author == "Bob"
    assert copied.words == memory.words
    assert copied.words is not memory.words


@pytest.mark.parametrize(
    "make_changed_copy", WAYS_TO_COPY_WITH_CHANGES.values(), ids=WAYS_TO_COPY_WITH_CHANGES.keys()
)
def test_a_changed_memory_computes_anew_and_is_searched_by_the_same_index(
    make_changed_copy: Callable[..., Any],
) -> None:
    """The cached words of a changed copy are those of its own notes.

    Memories with the same `lineage` share their search indexes. So a memory that has a new note is
    searched without embedding the old notes again.
    """
    memory = Notes(notes=("rye bread",), counts={"added": 1})
    assert memory.words == ["rye", "bread"]

    changed = make_changed_copy(memory, {"notes": ("oat milk",)})

    assert memory.notes == ("rye bread",)
    assert changed.notes == ("oat milk",)
    assert changed.words == ["oat", "milk"]
    assert changed.lineage is memory.lineage


def test_a_deep_copy_of_a_memory_shares_no_dictionary() -> None:
    memory = Notes(counts={"added": 1})

    copy.deepcopy(memory).counts["added"] = 2

    assert memory.counts == {"added": 1}

"""Answers that a store keeps for feedback: what is kept, and how it goes.

An answer rests on turns (`sources`), or on all turns of its user (`rests_on_all`), as one from a
summary does. "s:1" is the first turn of the session "s".
"""

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, DataError, Session, Store, StoreError, Turn
from mempiler.memory import answers as limits
from mempiler.memory.answers import EntrySources, KeptAnswer, StoredFeedback, new_answer_id
from mempiler.memory.store.owner import Owner
from mempiler.serving.memories.transfer import export_users, import_users

from ..conftest import read_only
from .conftest import ADA, BOB, session


def answer_resting_on(*turn_ids: str, **fields: Any) -> KeptAnswer:
    """Return an answer that rests on some turns: "s:1" is the first turn of the session "s"."""
    values: dict[str, Any] = {
        "id": new_answer_id(),
        "question": "Where does Ada live?",
        "answer": "Lisbon",
        "memory_version": "v",
        "position": 1,
        "sources": turn_ids,
        **fields,
    }
    return KeptAnswer(**values)


def keep_answer(store: Store, answer: KeptAnswer, owner: Owner = ADA) -> bool:
    """Keep an answer that was given a moment ago."""
    return store.answers.keep(owner, answer, store.forgetting.count())


def kept_ids(store: Store, owner: Owner = ADA) -> list[str]:
    return [answer.id for answer in store.transfer.dump(owner).answers]


def rated_ids(store: Store, owner: Owner = ADA) -> list[str]:
    return [feedback.answer for feedback in store.transfer.dump(owner).feedback]


def add_sessions_s_and_t(store: Store) -> None:
    """Add two sessions of Ada, "s" and "t", of one turn each: "s:1" and "t:1"."""
    store.items.add(ADA, session("I moved to Lisbon.", id="s"))
    store.items.add(ADA, session("I like tea.", id="t"))


def bytes_of_files(folder: Path) -> bytes:
    """Return the contents of all files in a folder."""
    return b"".join(path.read_bytes() for path in folder.iterdir())


# What is kept.


def test_an_answer_comes_back_as_it_was_kept(store: Store) -> None:
    add_sessions_s_and_t(store)
    answer = answer_resting_on(
        "s:1",
        open_turns={"chat": 3},
        entries=(EntrySources(id="fact-1", sources=("s:1",)),),
    )

    assert keep_answer(store, answer)

    assert store.answers.find(ADA, answer.id) == answer


def test_an_answer_is_not_found_for_another_user(store: Store) -> None:
    add_sessions_s_and_t(store)
    answer = answer_resting_on("s:1")
    keep_answer(store, answer, owner=ADA)

    assert store.answers.find(BOB, answer.id) is None


def test_no_answer_is_kept_for_a_user_of_whom_nothing_is_stored(store: Store) -> None:
    assert not keep_answer(store, answer_resting_on())
    assert store.users.list_all() == []


def test_turns_that_were_never_stored_are_no_sources(store: Store) -> None:
    """A client may show a model messages that belong to no stored session."""
    add_sessions_s_and_t(store)
    answer = answer_resting_on("s:1", "never-stored:1")
    keep_answer(store, answer)

    kept = store.answers.find(ADA, answer.id)

    assert kept is not None
    assert kept.sources == ("s:1",)


def test_the_newest_answers_of_a_user_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_sessions_s_and_t(store)
    monkeypatch.setattr("mempiler.memory.store.answers.MAX_ANSWERS", 2)
    first = answer_resting_on()
    second = answer_resting_on()
    third = answer_resting_on()

    for answer in (first, second, third):
        keep_answer(store, answer)

    assert kept_ids(store) == [second.id, third.id]


def test_feedback_goes_with_an_answer_for_which_there_is_no_more_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_sessions_s_and_t(store)
    monkeypatch.setattr("mempiler.memory.store.answers.MAX_ANSWERS", 1)
    first = answer_resting_on()
    second = answer_resting_on()

    for answer in (first, second):
        keep_answer(store, answer)
        store.answers.rate(ADA, StoredFeedback(answer.id, right=True))

    assert rated_ids(store) == [second.id]


def test_an_answer_replaces_the_one_of_its_id_and_the_feedback_on_it(store: Store) -> None:
    add_sessions_s_and_t(store)
    answer = answer_resting_on()
    keep_answer(store, answer)
    store.answers.rate(ADA, StoredFeedback(answer.id, right=True))

    keep_answer(store, replace(answer, answer="Porto"))

    (kept,) = store.transfer.dump(ADA).answers
    assert kept.answer == "Porto"
    assert rated_ids(store) == []


# Feedback.


def test_feedback_replaces_earlier_feedback_on_the_answer(store: Store) -> None:
    add_sessions_s_and_t(store)
    answer = answer_resting_on()
    keep_answer(store, answer)
    store.answers.rate(ADA, StoredFeedback(answer.id, right=True))

    correction = StoredFeedback(answer.id, right=False, correction="Porto")
    assert store.answers.rate(ADA, correction)

    assert store.transfer.dump(ADA).feedback == (correction,)


def test_feedback_on_an_answer_that_is_not_kept_is_not_stored(store: Store) -> None:
    add_sessions_s_and_t(store)
    assert not store.answers.rate(ADA, StoredFeedback(new_answer_id(), right=True))
    assert rated_ids(store) == []


def test_users_who_rated_an_answer_are_listed_by_tenant(store: Store) -> None:
    zoe_of_acme = Owner("zoe", tenant="acme")
    ada_of_globex = Owner("ada", tenant="globex")
    silent_of_acme = Owner("silent", tenant="acme")
    for owner in (zoe_of_acme, ada_of_globex, silent_of_acme):
        store.items.add(owner, session("hello"))
        answer = answer_resting_on()
        keep_answer(store, answer, owner)
        if owner != silent_of_acme:
            store.answers.rate(owner, StoredFeedback(answer.id, right=True))

    assert store.answers.owners_with_feedback() == [zoe_of_acme, ada_of_globex]
    assert store.answers.owners_with_feedback("acme") == [zoe_of_acme]


# Forgetting.


def test_a_forgotten_session_takes_the_answers_that_rest_on_it(store: Store) -> None:
    add_sessions_s_and_t(store)
    from_s = answer_resting_on("s:1")
    from_t = answer_resting_on("t:1")
    from_both = answer_resting_on("s:1", "t:1")
    from_a_summary = answer_resting_on(rests_on_all=True)
    for answer in (from_s, from_t, from_both, from_a_summary):
        keep_answer(store, answer)
        store.answers.rate(ADA, StoredFeedback(answer.id, right=True))

    store.forgetting.forget_session(ADA, "s")

    assert kept_ids(store) == [from_t.id]
    assert rated_ids(store) == [from_t.id]


def test_a_forgotten_session_takes_feedback_whose_useful_entries_rest_on_it(store: Store) -> None:
    """The answer rests on session "t", and the user says that an entry of "s" would have helped.

    The correction may quote that entry, so it must be forgotten with session "s".
    """
    add_sessions_s_and_t(store)
    answer = answer_resting_on("t:1")
    keep_answer(store, answer)
    entry_of_s = EntrySources(id="s:1", sources=("s:1",))
    store.answers.rate(
        ADA, StoredFeedback(answer.id, correction="Lisbon", useful_entries=(entry_of_s,))
    )

    store.forgetting.forget_session(ADA, "s")

    assert kept_ids(store) == []
    assert rated_ids(store) == []


def test_a_replaced_session_takes_the_answers_that_rest_on_its_old_turns(store: Store) -> None:
    add_sessions_s_and_t(store)
    keep_answer(store, answer_resting_on("s:1"))

    new_turn = Turn(id="new", speaker="Ada", text="I moved to Porto.")
    store.items.replace(ADA, Session(id="s", turns=(new_turn,)))

    assert kept_ids(store) == []


def forget_user(store: Store) -> None:
    store.forgetting.forget_user(ADA)


def forget_session(store: Store) -> None:
    store.forgetting.forget_session(ADA, "s")


def test_an_answer_from_before_a_session_was_forgotten_is_not_kept(store: Store) -> None:
    add_sessions_s_and_t(store)
    forget_count = store.forgetting.count()
    forget_session(store)

    assert not store.answers.keep(ADA, answer_resting_on("s:1"), forget_count)
    assert kept_ids(store) == []


def test_an_answer_from_before_its_user_was_forgotten_is_refused(store: Store) -> None:
    add_sessions_s_and_t(store)
    forget_count = store.forgetting.count()
    forget_user(store)

    with pytest.raises(ConflictError, match="'ada' was forgotten while this was under way"):
        store.answers.keep(ADA, answer_resting_on("s:1"), forget_count)
    assert store.users.list_all() == []


@pytest.mark.parametrize("forget", [forget_user, forget_session])
def test_feedback_from_before_something_was_forgotten_is_refused(
    store: Store, forget: Callable[[Store], None]
) -> None:
    add_sessions_s_and_t(store)
    answer = answer_resting_on("t:1")
    keep_answer(store, answer)
    forget_count = store.forgetting.count()
    forget(store)

    with pytest.raises(ConflictError, match="was forgotten while this was under way"):
        store.answers.rate(ADA, StoredFeedback(answer.id, right=True), forget_count)
    assert rated_ids(store) == []


@pytest.mark.parametrize("forget", [forget_user, forget_session])
def test_no_byte_of_a_forgotten_answer_and_its_feedback_stays(
    tmp_path: Path, forget: Callable[[Store], None]
) -> None:
    """The texts are so long that each row takes several pages of the file."""
    secret_entries = (EntrySources(id="SECRET-entry", sources=("s:1",)),)
    with Store(tmp_path / "memories.sqlite") as store:
        store.items.add(ADA, session("hello", id="s"))
        for _ in range(20):
            answer = answer_resting_on(
                "s:1",
                question="SECRET question " * 300,
                answer="SECRET answer " * 300,
                entries=secret_entries,
            )
            feedback = StoredFeedback(
                answer.id, correction="SECRET correction " * 300, useful_entries=secret_entries
            )
            keep_answer(store, answer)
            store.answers.rate(ADA, feedback)
        assert b"SECRET" in bytes_of_files(tmp_path)

        forget(store)

        assert b"SECRET" not in bytes_of_files(tmp_path)


# Export and import.


def exported_lines(store: Store) -> list[str]:
    file = io.StringIO()
    export_users(store, file)
    return file.getvalue().splitlines()


@pytest.fixture
def lines_with_feedback(store: Store) -> list[str]:
    """An export of Ada, with an answer and the feedback on it."""
    add_sessions_s_and_t(store)
    answer = answer_resting_on("s:1", open_turns={"chat": 1})
    keep_answer(store, answer)
    store.answers.rate(ADA, StoredFeedback(answer.id, correction="Porto"))
    return exported_lines(store)


def test_further_answers_come_after_an_imported_one(
    lines_with_feedback: list[str], tmp_path: Path
) -> None:
    with Store(tmp_path / "other.sqlite") as other_store:
        import_users(other_store, lines_with_feedback, "file")
        (imported_id,) = kept_ids(other_store)

        further_answer = answer_resting_on()
        keep_answer(other_store, further_answer)

        assert kept_ids(other_store) == [imported_id, further_answer.id]


def with_answer_twice(user: dict[str, Any]) -> None:
    user["answers"] *= 2


def with_feedback_twice(user: dict[str, Any]) -> None:
    user["feedback"] *= 2


def without_answers(user: dict[str, Any]) -> None:
    del user["answers"]


def with_malformed_id(user: dict[str, Any]) -> None:
    user["answers"][0]["id"] = "ans_1"


def with_long_question(user: dict[str, Any]) -> None:
    user["answers"][0]["question"] = "x" * (limits.MAX_ANSWER_LENGTH + 1)


def with_nul(user: dict[str, Any]) -> None:
    user["feedback"][0]["correction"] = "a\0b"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_answer_twice, "two answers of one id"),
        (with_feedback_twice, "feedback twice on one answer"),
        (without_answers, "feedback on an answer that is not there"),
        (with_malformed_id, "answers.0.id"),
        (with_long_question, "answers.0.question"),
        (with_nul, "NUL"),
    ],
)
def test_answers_that_no_store_has_kept_are_not_imported(
    lines_with_feedback: list[str],
    change: Callable[[dict[str, Any]], None],
    message: str,
    tmp_path: Path,
) -> None:
    header, line = lines_with_feedback
    user = json.loads(line)
    change(user)

    with Store(tmp_path / "other.sqlite") as other_store:
        with pytest.raises(DataError, match=message):
            import_users(other_store, [header, json.dumps(user)], "file")
        assert other_store.users.list_all() == []


# Stores from before there were these tables.


@pytest.fixture
def older_store(open_folder: Path) -> Path:
    """A store of version 1 of the tables, in which Ada has a session."""
    path = open_folder / "memories.sqlite"
    with Store(path) as store:
        store.items.add(ADA, session("I moved to Lisbon.", id="s"))
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "DROP TABLE mempiler_answers; DROP TABLE mempiler_feedback;"
            "UPDATE mempiler_version SET version_num = '1'"
        )
    return path


def test_an_older_store_gets_the_tables_that_it_lacks(older_store: Path) -> None:
    with Store(older_store) as store:
        assert keep_answer(store, answer_resting_on("s:1"))
        assert [stored.item.id for stored in store.items.list_all(ADA)] == ["s"]


def test_an_older_store_that_cannot_be_written_is_refused_with_the_fix(older_store: Path) -> None:
    with (
        read_only(older_store.parent),
        pytest.raises(StoreError, match=r"version 1, .* open it once where it can be written"),
    ):
        Store(older_store)

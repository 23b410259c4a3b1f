"""Answers that users may rate, and their feedback.

    store.answers.keep(ada, answer)                   # True: it is kept
    store.answers.rate(ada, StoredFeedback(answer.id, right=False, correction="Porto"))
    store.transfer.dump(ada).feedback                 # what Ada said

An answer may quote the turns that it was made from, that is, messages of its user. So it is deleted
with them:

* Forgetting a user deletes all answers of the user.
* Forgetting a session deletes the answers that were made from a turn of the session (`sources`),
  and those that were made from a summary, because nothing says which turns that came from
  (`rests_on_all`). An answer is deleted, too, if the feedback on it names an entry that was made
  from a turn of the session.

Feedback is deleted with its answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from ...errors import ConflictError
from ..answers import MAX_ANSWERS, EntrySources, KeptAnswer, StoredFeedback
from .database import Database, Transaction, read_row
from .forget_log import (
    any_session_key,
    check_not_forgotten,
    is_forgotten_since,
    read_forget_count,
)
from .owner import Owner
from .times import from_timestamp, to_timestamp
from .user_rows import lock_user

_ANSWER = TypeAdapter(KeptAnswer)
_FEEDBACK = TypeAdapter(StoredFeedback)


class KeptAnswers:
    """Keeps answers of users, and what the users said about them.

    Args:
        database: Where they are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, owner: Owner, answer: KeptAnswer, forget_count: int) -> bool:
        """Store an answer, and delete the oldest answers beyond `MAX_ANSWERS`.

        An answer with the same id is replaced, and the feedback on it is deleted.

        Args:
            owner: The user who asked.
            answer: The answer.
            forget_count: `Forgetting.count()` when the memory was read.

        Returns:
            Whether it was stored. It is not if nothing is stored of the user, or if a session of
            the user was forgotten since the memory was read: the answer may quote the session.

        Raises:
            ConflictError: The user was forgotten since the memory was read.
        """
        with self._database.write_transaction() as transaction:
            is_known = lock_user(transaction, owner) is not None
            check_not_forgotten(transaction, owner, forget_count)
            if is_forgotten_since(transaction, [any_session_key(owner)], forget_count):
                return False
            if not is_known:
                return False

            # Turns that were never stored may be shown to a model, but cannot be forgotten.
            stored_ids = _stored_turn_ids(transaction, owner, set(answer.sources))
            stored_sources = tuple(turn for turn in answer.sources if turn in stored_ids)
            answer = replace(answer, sources=stored_sources)

            transaction.execute("delete_answer", owner, id=answer.id)
            last_number = _last_number(transaction, owner)
            # Delete as many as are necessary for at most `MAX_ANSWERS` with the new one.
            last_deleted = last_number + 1 - MAX_ANSWERS
            transaction.execute("delete_old_answers", owner, last_number=last_deleted)
            transaction.execute("delete_feedback_without_answer", owner)
            insert_answers(transaction, owner, [answer], last_number)
            return True

    def find(self, owner: Owner, answer_id: str) -> KeptAnswer | None:
        """Return a kept answer of a user; None if there is none with this id.

        Raises:
            StoreError: The row is damaged.
        """
        # One statement needs no transaction.
        with self._database.read_without_transaction() as connection:
            return _read_answer(connection, owner, answer_id)

    def rate(self, owner: Owner, feedback: StoredFeedback, forget_count: int | None = None) -> bool:
        """Store feedback on an answer. It replaces earlier feedback on the same answer.

        Feedback may name useful entries, which the caller has looked up in a memory. It is refused
        if something was forgotten since then, because an entry may quote what was forgotten.

        Args:
            owner: The user.
            feedback: The feedback.
            forget_count: `Forgetting.count()` when the caller read the memory. By default the count
                as it is now, for a caller that read none.

        Returns:
            Whether it was stored. It is not if there is no such answer.

        Raises:
            ConflictError: The user, or a session of the user, was forgotten since the memory was
                read.
        """
        if forget_count is None:
            forget_count = read_forget_count(self._database)
        with self._database.write_transaction() as transaction:
            # Nobody can forget the user, or a session, while the row is locked.
            lock_user(transaction, owner)
            check_not_forgotten(transaction, owner, forget_count)
            _check_no_session_forgotten(transaction, owner, forget_count)

            if _read_answer(transaction, owner, feedback.answer) is None:
                return False
            write_feedback(transaction, owner, [feedback])
            return True

    def owners_with_feedback(self, tenant: str | None = None) -> list[Owner]:
        """Return the users who rated an answer, in the order of their tenants and names.

        Args:
            tenant: Only users of this tenant; users of all tenants if None.
        """
        # One statement needs no transaction.
        with self._database.read_without_transaction() as connection:
            rows = connection.execute("select_owners_with_feedback").all()
        owners = [Owner.stored(row.user, row.tenant) for row in rows]
        return [owner for owner in owners if tenant in (None, owner.tenant)]


def read_answers(transaction: Transaction, owner: Owner) -> list[KeptAnswer]:
    """Return all kept answers of a user, oldest first.

    Raises:
        StoreError: A row is damaged.
    """
    rows = transaction.execute("select_answers", owner)
    return [read_row("answers", owner, row, _parse_answer, "number") for row in rows]


def read_feedback(transaction: Transaction, owner: Owner) -> list[StoredFeedback]:
    """Return all feedback of a user, oldest first.

    Raises:
        StoreError: A row is damaged.
    """
    rows = transaction.execute("select_feedback", owner)
    return [read_row("feedback", owner, row, _parse_feedback, "answer") for row in rows]


def insert_answers(
    transaction: Transaction, owner: Owner, answers: Sequence[KeptAnswer], last_number: int = 0
) -> None:
    """Store answers of a user whose row is locked.

    Args:
        transaction: The transaction that stores them.
        owner: The user.
        answers: The answers, oldest first. None of them may be stored already.
        last_number: The number of the user's last answer before them; 0 for none.
    """
    rows: list[dict[str, object]] = []
    for number, answer in enumerate(answers, last_number + 1):
        row = dict(vars(answer))
        row["number"] = number
        row["open_turns"] = json.dumps(answer.open_turns)
        row["entries"] = _entries_json(answer.entries)
        row["sources"] = json.dumps(answer.sources)
        row["rests_on_all"] = int(answer.rests_on_all)
        row["at"] = to_timestamp(answer.at)
        rows.append(row)
    transaction.execute_many("insert_answer", owner, rows)


def write_feedback(
    transaction: Transaction, owner: Owner, feedback: Sequence[StoredFeedback]
) -> None:
    """Store feedback on kept answers; it replaces earlier feedback on them.

    The user's row must be locked.
    """
    rows: list[dict[str, object]] = []
    for rating in feedback:
        rows.append(
            {
                "answer": rating.answer,
                "is_right": None if rating.right is None else int(rating.right),
                "correction": rating.correction,
                "useful_entries": _entries_json(rating.useful_entries),
                "at": to_timestamp(rating.at),
            }
        )
    transaction.execute_many("upsert_feedback", owner, rows)


def delete_answers_from_deleted_turns(transaction: Transaction, owner: Owner) -> None:
    """Delete the answers that may quote a deleted turn, and the feedback on them.

    Call it after turns of the user were deleted.

    Raises:
        StoreError: A row is damaged.
    """
    answers = read_answers(transaction, owner)
    quotable_turns = _quotable_turns(answers, read_feedback(transaction, owner))

    all_quotable_turns: set[str] = set()
    for turn_ids in quotable_turns.values():
        all_quotable_turns.update(turn_ids)
    stored_turns = _stored_turn_ids(transaction, owner, all_quotable_turns)

    for answer in answers:
        # A turn that is no longer stored was deleted.
        may_quote_deleted_turn = not quotable_turns[answer.id] <= stored_turns
        # An answer from a summary may quote any turn of the user, so also the deleted one.
        if may_quote_deleted_turn or answer.rests_on_all:
            transaction.execute("delete_answer", owner, id=answer.id)
    transaction.execute("delete_feedback_without_answer", owner)


def _quotable_turns(
    answers: Sequence[KeptAnswer], feedback: Sequence[StoredFeedback]
) -> dict[str, set[str]]:
    """Return the ids of the turns that an answer or the feedback on it may quote, by the answer."""
    turn_ids_by_answer: dict[str, set[str]] = {}
    for answer in answers:
        turn_ids_by_answer[answer.id] = set(answer.sources)
    for rating in feedback:
        # A user may correct an answer in the words of the entries that the feedback calls useful.
        # Those words come from the turns that the entries were made from.
        for entry in rating.useful_entries:
            turn_ids_by_answer[rating.answer].update(entry.sources)
    return turn_ids_by_answer


def _check_no_session_forgotten(transaction: Transaction, owner: Owner, forget_count: int) -> None:
    """Refuse feedback from a memory that was read before a session of its user was forgotten.

    Args:
        transaction: The transaction that stores the feedback.
        owner: The user.
        forget_count: How often anybody had been forgotten in the store when the memory was read.

    Raises:
        ConflictError: A session of the user was forgotten since.
    """
    if is_forgotten_since(transaction, [any_session_key(owner)], forget_count):
        raise ConflictError(
            f"a session of user {owner.user!r} was forgotten while this was under way; "
            "give the feedback again"
        )


def _stored_turn_ids(transaction: Transaction, owner: Owner, turn_ids: set[str]) -> set[str]:
    """Return those of some turn ids under which the store still has a turn of the user."""
    rows = transaction.select_in_batches("select_turn_ids", owner, sorted(turn_ids))
    return {row.turn for row in rows}


def _last_number(transaction: Transaction, owner: Owner) -> int:
    """Return the number of a user's last kept answer; 0 if there is none."""
    number: int | None = transaction.execute("select_last_answer_number", owner).scalar()
    return number or 0


def _read_answer(transaction: Transaction, owner: Owner, answer_id: str) -> KeptAnswer | None:
    """Return a kept answer of a user; None if there is none with this id.

    Raises:
        StoreError: The row is damaged.
    """
    row = transaction.execute("select_answer", owner, id=answer_id).first()
    if row is None:
        return None
    return read_row("answers", owner, row, _parse_answer, "number")


def _parse_answer(row: Row[Any]) -> KeptAnswer:
    """Return the answer of a row.

    Raises:
        ValueError: A column holds no JSON, or a value that no answer has.
        TypeError: A column holds a value of another type.
    """
    return _ANSWER.validate_python(
        {
            "id": row.id,
            "question": row.question,
            "answer": row.answer,
            "memory_version": row.memory_version,
            "position": row.position,
            "open_turns": json.loads(row.open_turns),
            "entries": json.loads(row.entries),
            "sources": json.loads(row.sources),
            "rests_on_all": bool(row.rests_on_all),
            "at": from_timestamp(row.at),
        }
    )


def _parse_feedback(row: Row[Any]) -> StoredFeedback:
    """Return the feedback of a row.

    Raises:
        ValueError: A column holds no JSON, or a value that no feedback has.
        TypeError: A column holds a value of another type.
    """
    return _FEEDBACK.validate_python(
        {
            "answer": row.answer,
            "right": None if row.is_right is None else bool(row.is_right),
            "correction": row.correction,
            "useful_entries": json.loads(row.useful_entries),
            "at": from_timestamp(row.at),
        }
    )


def _entries_json(entries: Sequence[EntrySources]) -> str:
    """Return entries with their sources as JSON."""
    return json.dumps([asdict(entry) for entry in entries])

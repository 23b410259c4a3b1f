"""Answers that users may rate, and their feedback.

    store.answers.keep(ada, answer)                   # True: it is kept
    store.answers.rate(ada, StoredFeedback(answer.id, right=False, correction="Porto"))
    store.transfer.dump(ada).feedback                 # what Ada said

An answer quotes what users said, so it goes where that goes. Forgetting a user deletes all answers
and feedback of the user. Forgetting a session deletes the answers that rest on a turn of it, or
may: nothing says which turns a summary rests on. Feedback goes with its answer.
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
        """Store an answer; older ones than the newest `MAX_ANSWERS` of the user are deleted.

        An answer that has the same id is replaced, and the feedback on it is deleted.

        Args:
            owner: The user who asked.
            answer: The answer.
            forget_count: `Forgetting.count()` when the memory was read from which it was answered.

        Returns:
            Whether it was stored. If not, nothing is stored of the user, or a session of the user
            was forgotten since: the answer may rest on it.

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
            # With the new answer there are at most `MAX_ANSWERS`.
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
        with self._database.read_without_transaction() as transaction:
            return _read_answer(transaction, owner, answer_id)

    def rate(self, owner: Owner, feedback: StoredFeedback, forget_count: int | None = None) -> bool:
        """Store what a user said about an answer; it replaces earlier feedback on the answer.

        Args:
            owner: The user.
            feedback: The feedback.
            forget_count: `Forgetting.count()` when the caller looked for the useful entries; by
                default the count as it is now.

        Returns:
            Whether it was stored. If not, there is no such answer.

        Raises:
            ConflictError: The user, or a session of the user, was forgotten since the caller began.
        """
        if forget_count is None:
            forget_count = read_forget_count(self._database)
        with self._database.write_transaction() as transaction:
            lock_user(transaction, owner)
            check_not_forgotten(transaction, owner, forget_count)
            if is_forgotten_since(transaction, [any_session_key(owner)], forget_count):
                raise ConflictError(
                    f"a session of user {owner.user!r} was forgotten while this was under way; "
                    "give the feedback again"
                )
            if _read_answer(transaction, owner, feedback.answer) is None:
                return False
            insert_feedback(transaction, owner, [feedback])
            return True

    def owners_with_feedback(self, tenant: str | None = None) -> list[Owner]:
        """Return the users who rated an answer, in the order of their tenants and names.

        Args:
            tenant: The users of this tenant; of all tenants if None.
        """
        with self._database.read_without_transaction() as transaction:
            rows = transaction.execute("select_owners_with_feedback").all()
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
    """Return what a user said about answers, oldest first.

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


def insert_feedback(
    transaction: Transaction, owner: Owner, feedback: Sequence[StoredFeedback]
) -> None:
    """Store feedback on answers that are kept. The user's row must be locked."""
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


def delete_unfounded_answers(transaction: Transaction, owner: Owner) -> None:
    """Delete answers that rest on a turn which is not stored any more, or may; and their feedback.

    Call it after turns of the user were deleted. A correction may quote what the useful entries
    say, so their turns count as well.

    Raises:
        StoreError: A row is damaged.
    """
    answers = read_answers(transaction, owner)
    sources_by_answer = {answer.id: set(answer.sources) for answer in answers}
    for rating in read_feedback(transaction, owner):
        for entry in rating.useful_entries:
            sources_by_answer[rating.answer].update(entry.sources)

    all_sources = set[str]().union(*sources_by_answer.values())
    stored_ids = _stored_turn_ids(transaction, owner, all_sources)
    for answer in answers:
        is_founded = stored_ids.issuperset(sources_by_answer[answer.id])
        if answer.rests_on_all or not is_founded:
            transaction.execute("delete_answer", owner, id=answer.id)
    transaction.execute("delete_feedback_without_answer", owner)


def _stored_turn_ids(transaction: Transaction, owner: Owner, turn_ids: set[str]) -> set[str]:
    """Return which of some ids belong to stored turns of a user."""
    rows = transaction.select_in_batches("select_turn_ids", owner, sorted(turn_ids))
    return {row.turn for row in rows}


def _last_number(transaction: Transaction, owner: Owner) -> int:
    """Return the number of a user's last kept answer; 0 if there is none."""
    number: int | None = transaction.execute("select_last_answer_number", owner).scalar()
    return number or 0


def _read_answer(transaction: Transaction, owner: Owner, answer_id: str) -> KeptAnswer | None:
    row = transaction.execute("select_answer", owner, id=answer_id).first()
    if row is None:
        return None
    return read_row("answers", owner, row, _parse_answer, "number")


def _parse_answer(row: Row[Any]) -> KeptAnswer:
    """Return the answer of a row; a damaged row raises a `ValueError` or the like."""
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
    """Return the feedback of a row; a damaged row raises a `ValueError` or the like."""
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

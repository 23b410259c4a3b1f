"""Questions from feedback: what users said about answers, as rows of the benchmark `jsonl`.

    export = export_questions("memories.sqlite", "questions.jsonl")
    print(export.questions, "questions of", export.users, "users")

A row has the question, what was stored when it was asked (its history), and the right answer: the
user's correction, or the answer itself if the user said that it was right. Its evidence is the
turns of the entries that the user called useful. `docs/questions.md` describes the form.

What a user has forgotten, deleted or reworded is not exported. Histories lack deleted turns, and
have the new words of reworded turns. A right answer may quote an entry, so a question is left out
if the user changed an entry of it after giving the right answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import ConflictError, UserError
from ..memory.answers import KeptAnswer, StoredFeedback
from ..memory.edits import Amendments, active_amendments
from ..memory.store.owner import Owner
from ..memory.store.records import UserDump
from ..memory.store.store import Store
from ..records import Item, Turn
from ..records.atomic_file import atomic_write
from .pages.html import GENERATOR
from .pages.review import ReviewedQuestion, render_review_page
from .results_folder import refuse_foreign_file

ROW_MARK = '{"id":"ans_'
"""The beginning of every exported file.

A file of reviewed rows has another beginning. It holds a person's work, so it is not overwritten
unless the caller asks for that.
"""

_OWNER_ONLY = 0o600
"""The permissions of the files: only their owner may read what users said."""
_MAX_TRIES = 5
"""How often the store is read, at most, if users are forgotten while it is read."""


@dataclass(frozen=True)
class QuestionsExport:
    """How many questions were exported from a store, and how many were left out."""

    path: Path
    """The file of the rows. With a review page it is not written, but the reviewer's work."""
    review: Path | None = None
    """The review page, if one was asked for."""
    questions: int = 0
    """How many rows there are."""
    users: int = 0
    """How many users they are from."""
    right: int = 0
    """Rows whose answer was right, as the user said."""
    corrected: int = 0
    """Rows whose answer is the user's correction."""
    without_answer: int = 0
    """Questions left out because the right answer is not known."""
    without_history: int = 0
    """Questions left out because nothing is stored from before the question."""
    changed: int = 0
    """Questions left out because the user deleted or reworded an entry that the right answer may
    quote."""

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and paths as JSON data."""
        values = asdict(self)
        values["path"] = str(self.path)
        values["review"] = None if self.review is None else str(self.review)
        return values


@dataclass
class _Collection:
    """The rows of all users so far, and counts of the questions that were left out."""

    rows: list[ReviewedQuestion] = field(default_factory=list[ReviewedQuestion])
    users: int = 0
    without_answer: int = 0
    without_history: int = 0
    changed: int = 0


def export_questions(
    store: Store | str | Path,
    out: str | Path,
    *,
    tenant: str | None = None,
    review: str | Path | None = None,
    overwrite: bool = False,
) -> QuestionsExport:
    """Write the feedback in a store as questions, for the benchmark `jsonl`.

    Args:
        store: A `Store`, the path of an SQLite file, or `postgresql://...`.
        out: The file of JSON lines.
        tenant: Only users of this tenant; those of all tenants if None.
        review: An HTML page in which a person accepts, corrects or drops each row. If it is given,
            only the page is written. The person downloads the accepted rows, and puts them at
            `out`.
        overwrite: Whether to overwrite a file that this function did not write.

    Raises:
        UserError: There is no such store, or a file cannot be written.
        StoreError: The store cannot be read.
    """
    path = Path(out)
    review_path = None if review is None else Path(review)
    if review_path is None:
        _refuse_foreign_rows(path, overwrite)
    else:
        refuse_foreign_file(review_path, GENERATOR, overwrite)

    with _opened(store) as opened_store:
        collection = _collect_without_forgotten(opened_store, tenant)
    if review_path is None:
        _write_rows(path, collection.rows)
    else:
        with atomic_write(review_path, _OWNER_ONLY) as file:
            file.write(render_review_page(collection.rows, path.name))

    categories = [question.row["category"] for question in collection.rows]
    return QuestionsExport(
        path=path,
        review=review_path,
        questions=len(collection.rows),
        users=collection.users,
        right=categories.count("right"),
        corrected=categories.count("corrected"),
        without_answer=collection.without_answer,
        without_history=collection.without_history,
        changed=collection.changed,
    )


@contextmanager
def _opened(store: Store | str | Path) -> Iterator[Store]:
    """Yield a store; one that is named is opened, and closed after the block.

    Raises:
        UserError: There is no such file. Opening it would create an empty store.
    """
    if isinstance(store, Store):
        yield store
        return

    address = str(store)
    is_file = "://" not in address
    if is_file and not Path(address).expanduser().is_file():
        raise UserError(f"{address}: no store here; give the path or address of a store")
    with Store(address) as opened_store:
        yield opened_store


def _refuse_foreign_rows(path: Path, overwrite: bool) -> None:
    """Refuse to overwrite a file that holds other rows than those of an earlier export."""
    # An export without any feedback is an empty file.
    is_empty_file = path.is_file() and path.stat().st_size == 0
    if not is_empty_file:
        refuse_foreign_file(path, ROW_MARK, overwrite)


def _write_rows(path: Path, questions: Sequence[ReviewedQuestion]) -> None:
    with atomic_write(path, _OWNER_ONLY) as file:
        for question in questions:
            line = json.dumps(question.row, ensure_ascii=False, separators=(",", ":"))
            file.write(f"{line}\n")


def _collect_without_forgotten(store: Store, tenant: str | None) -> _Collection:
    """Return the rows of all users. If a user is forgotten meanwhile, read the store again.

    Raises:
        ConflictError: During each of several tries a user was forgotten.
    """
    for _ in range(_MAX_TRIES):
        forget_count = store.forgetting.count()
        collection = _collect(store, tenant)
        if store.forgetting.count() == forget_count:
            return collection
    raise ConflictError("users were forgotten all the time while the store was read; try again")


def _collect(store: Store, tenant: str | None) -> _Collection:
    """Return the rows of all users of a tenant, or of all tenants if it is None."""
    collection = _Collection()
    for owner in store.answers.owners_with_feedback(tenant):
        row_count = len(collection.rows)
        feedback = _UserFeedback(store.transfer.dump(owner))
        # Users of different tenants may have the same name.
        user = owner.user if tenant is not None else _unique_name(owner)
        feedback.add_rows(collection, user)
        if len(collection.rows) > row_count:
            collection.users += 1
    return collection


def _unique_name(owner: Owner) -> str:
    """Return a name for a user that no user of another tenant has."""
    if owner.tenant == "default":
        return owner.user
    return f"{owner.tenant}/{owner.user}"


class _UserFeedback:
    """Makes rows from the feedback of one user, without what the user has deleted.

    Args:
        dump: Everything that is stored of the user.
    """

    def __init__(self, dump: UserDump) -> None:
        self._dump = dump
        self._amendments = Amendments(active_amendments(dump.amendments))
        # Most items belong to the histories of many questions, so their JSON is kept.
        self._whole_items: dict[int, dict[str, Any] | None] = {}

    def add_rows(self, collection: _Collection, user: str) -> None:
        """Add a row for each rated answer of the user, or count why there is none.

        Args:
            collection: The rows and counts are added to it.
            user: The name of the user in the rows.
        """
        feedback_by_answer = {feedback.answer: feedback for feedback in self._dump.feedback}
        for answer in self._dump.answers:
            feedback = feedback_by_answer.get(answer.id)
            if feedback is None:
                continue
            correct_answer = _correct_answer(answer, feedback)
            if not correct_answer:
                collection.without_answer += 1
                continue

            given_at = answer.at if feedback.correction is None else feedback.at
            if self._is_any_source_changed_after(given_at, answer, feedback):
                # The right answer may quote what the user has deleted or reworded.
                collection.changed += 1
                continue

            items = self._items_before(answer)
            if not items:
                collection.without_history += 1
                continue
            row = {
                "id": answer.id,
                "user": user,
                "question": answer.question,
                "answer": correct_answer,
                "evidence": _evidence(feedback, items),
                "category": "right" if feedback.correction is None else "corrected",
                "history": {"id": user, "items": items},
            }
            # A correction may be newer than the change, but what was answered is older.
            is_answer_outdated = self._is_any_source_changed_after(answer.at, answer, feedback)
            given_answer = "" if is_answer_outdated else answer.answer
            collection.rows.append(ReviewedQuestion(row, given_answer))

    def _is_any_source_changed_after(
        self, time: datetime | None, answer: KeptAnswer, feedback: StoredFeedback
    ) -> bool:
        """Return whether the user changed an entry of a question after a time.

        The entries of a question are those that its answer was made from, and those that its user
        called useful. To change an entry is to delete or reword it.
        """
        turn_ids = set(answer.sources)
        for entry in feedback.useful_entries:
            turn_ids.update(entry.sources)

        for amendment in self._amendments.active:
            common_turn_ids = turn_ids.intersection(amendment.sources)
            is_of_question = answer.rests_on_all or len(common_turn_ids) > 0
            if is_of_question and _may_be_later(amendment.at, time):
                return True
        return False

    def _items_before(self, answer: KeptAnswer) -> list[dict[str, Any]]:
        """Return the items that were stored when a question was asked, as JSON data.

        If a session was still open at that time, only its turns before the question are returned.
        """
        items: list[dict[str, Any] | None] = []
        for stored in self._dump.items:
            if stored.position <= answer.position:
                items.append(self._whole_item(stored.position, stored.item))
            elif stored.item.id in answer.open_turns:
                # The session was open when the question was asked, and has ended.
                items.append(self._visible_item(stored.item, answer.open_turns[stored.item.id]))
        for session in self._dump.open:
            if session.id in answer.open_turns:
                items.append(self._visible_item(session, answer.open_turns[session.id]))
        return [item for item in items if item is not None]

    def _whole_item(self, position: int, item: Item) -> dict[str, Any] | None:
        """Return all visible turns of an item as JSON data; None if there are none."""
        if position not in self._whole_items:
            self._whole_items[position] = self._visible_item(item, len(item.turns))
        return self._whole_items[position]

    def _visible_item(self, item: Item, turn_count: int) -> dict[str, Any] | None:
        """Return the first turns of an item as JSON data, without those that the user deleted.

        Returns:
            The item with those of its first `turn_count` turns that are left; None if none is.
        """
        turns: list[Turn] = []
        for turn in item.turns[:turn_count]:
            visible_turn = self._visible_turn(turn)
            if visible_turn is not None:
                turns.append(visible_turn)
        if not turns:
            return None

        visible_item = item.select_turns({turn.id for turn in turns})
        visible_item = visible_item.model_copy(update={"turns": tuple(turns)})
        return visible_item.model_dump(mode="json", exclude_none=True)

    def _visible_turn(self, turn: Turn) -> Turn | None:
        """Return a turn with the words that its user gave it last; None if it must not be shown.

        It must not be shown if the user deleted it, or deleted an entry that was made from it.
        """
        amended_turn = self._amendments.amended_turn(turn)
        if amended_turn is None:
            return None

        is_reworded = amended_turn is not turn
        if is_reworded:
            return amended_turn
        # A turn with its old words is hidden if an entry that was made from it was deleted.
        is_hidden = turn.id in self._amendments.hidden_turn_ids
        return None if is_hidden else turn


def _may_be_later(change: datetime | None, time: datetime | None) -> bool:
    """Return whether a change may have been made after a time.

    Answers and feedback are dated in whole seconds, and None is an unknown time. In doubt the
    result is True: it is better to leave a question out than to export what its user deleted.
    """
    if change is None or time is None:
        return True
    return change >= time


def _correct_answer(answer: KeptAnswer, feedback: StoredFeedback) -> str:
    """Return the right answer to a question; "" if it is not known."""
    if feedback.correction is not None:
        return feedback.correction.strip()
    if feedback.right:
        return answer.answer.strip()
    return ""


def _evidence(feedback: StoredFeedback, items: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ids of the turns of the useful entries, without turns that no item has."""
    shown_ids: set[str] = set()
    for item in items:
        shown_ids.update(turn["id"] for turn in item["turns"])

    evidence: list[str] = []
    for entry in feedback.useful_entries:
        for turn_id in entry.sources:
            if turn_id in shown_ids and turn_id not in evidence:
                evidence.append(turn_id)
    return evidence

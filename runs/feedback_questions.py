"""Questions from feedback: what users said about answers, as rows of the benchmark `jsonl`.

    export = export_questions("memories.sqlite", "questions.jsonl")
    print(export.questions, "questions of", export.users, "users")

A row has the question, the past as it was when the question was asked, and the right answer: the
correction of the user, or the answer itself if the user said that it was right. The turns behind
the entries that the user called useful are its evidence. `docs/questions.md` describes the form.

Nothing comes out of what was forgotten, and nothing of what a user deleted. Turns that the user
reworded have their new words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
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
"""The beginning of every file of ours. A reviewed file begins otherwise: it is a person's work, and
is not overwritten without being asked."""

_OWNER_ONLY = 0o600
"""The rights of the files: only their owner may read what users said."""
_MAX_TRIES = 5
"""How often the store is read again because somebody was forgotten meanwhile."""


@dataclass(frozen=True)
class QuestionsExport:
    """What came of the feedback in a store."""

    path: Path
    """Where the rows are; with a review page, where the reviewed rows should go."""
    review: Path | None = None
    """The review page; then `path` is not written."""
    questions: int = 0
    """How many rows there are."""
    users: int = 0
    """How many users they are from."""
    right: int = 0
    """Rows whose answer the user called right."""
    corrected: int = 0
    """Rows with a correction of the user."""
    without_answer: int = 0
    """Feedback without a row: the right answer is not known."""
    without_history: int = 0
    """Feedback without a row: nothing is stored that was said before the question."""
    changed: int = 0
    """Feedback without a row: the user has since changed an entry that the answer rests on."""

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and paths as JSON data."""
        values = asdict(self)
        values["path"] = str(self.path)
        values["review"] = None if self.review is None else str(self.review)
        return values


@dataclass
class _Collection:
    """The rows of all users so far, and the feedback that gave none."""

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
        overwrite: Whether files may be overwritten that this function did not write.

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
    """Return the rows of all users, none of whom was forgotten while the store was read.

    Raises:
        ConflictError: Somebody is forgotten all the time.
    """
    for _ in range(_MAX_TRIES):
        forget_count = store.forgetting.count()
        collection = _collect(store, tenant)
        if store.forgetting.count() == forget_count:
            return collection
    raise ConflictError("users were forgotten all the time while the store was read; try again")


def _collect(store: Store, tenant: str | None) -> _Collection:
    """Return the rows of all users of a tenant, or of all tenants."""
    collection = _Collection()
    for owner in store.answers.owners_with_feedback(tenant):
        row_count = len(collection.rows)
        history = _VisibleHistory(store.transfer.dump(owner))
        # With one tenant, its name says nothing. With several, two may have a user of one name.
        user = owner.user if tenant is not None else _name_of(owner)
        history.add_rows(collection, user)
        if len(collection.rows) > row_count:
            collection.users += 1
    return collection


def _name_of(owner: Owner) -> str:
    """Return a name for a user that is another one in every tenant."""
    if owner.tenant == "default":
        return owner.user
    return f"{owner.tenant}/{owner.user}"


class _VisibleHistory:
    """What a user said, as it may be shown: without deleted turns, others perhaps reworded.

    Args:
        dump: Everything that is stored of the user.
    """

    def __init__(self, dump: UserDump) -> None:
        self._dump = dump
        self._amendments = Amendments(active_amendments(dump.amendments))
        # Most questions have most items in their past, so each item is written as JSON once.
        self._whole_items: dict[int, dict[str, Any] | None] = {}

    def add_rows(self, collection: _Collection, user: str) -> None:
        """Add a row for each feedback of the user that gives one; count the others.

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

            # What was answered may quote what the user has deleted since. A correction does not.
            is_changed = self._has_changed_since(answer)
            if is_changed and feedback.correction is None:
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
            given_answer = "" if is_changed else answer.answer
            collection.rows.append(ReviewedQuestion(row, given_answer))

    def _has_changed_since(self, answer: KeptAnswer) -> bool:
        """Return whether the user has changed an entry that an answer rests on, since then."""
        for amendment in self._amendments.active:
            is_later = answer.at is None or amendment.at is None or amendment.at >= answer.at
            shares_turns = not set(amendment.sources).isdisjoint(answer.sources)
            if is_later and (answer.rests_on_all or shares_turns):
                return True
        return False

    def _items_before(self, answer: KeptAnswer) -> list[dict[str, Any]]:
        """Return the items that were stored when a question was asked, as JSON data.

        Of a session that was open then, only the turns before the question are returned.
        """
        items: list[dict[str, Any] | None] = []
        for stored in self._dump.items:
            if stored.position <= answer.position:
                items.append(self._whole_item(stored.position, stored.item))
            elif stored.item.id in answer.open_turns:
                # The session has ended since then.
                items.append(self._visible_item(stored.item, answer.open_turns[stored.item.id]))
        for session in self._dump.open:
            if session.id in answer.open_turns:
                items.append(self._visible_item(session, answer.open_turns[session.id]))
        return [item for item in items if item is not None]

    def _whole_item(self, position: int, item: Item) -> dict[str, Any] | None:
        if position not in self._whole_items:
            self._whole_items[position] = self._visible_item(item, len(item.turns))
        return self._whole_items[position]

    def _visible_item(self, item: Item, turn_count: int) -> dict[str, Any] | None:
        """Return the first turns of an item as JSON data; None if no turn may be shown."""
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
        """Return a turn as it may be shown; None if its words were deleted."""
        amended_turn = self._amendments.amended_turn(turn)
        if amended_turn is None or turn.id not in self._amendments.hidden_turn_ids:
            return amended_turn
        # An entry that rests on the turn was deleted, or the turn has new words.
        has_new_words = amended_turn is not turn
        return amended_turn if has_new_words else None


def _correct_answer(answer: KeptAnswer, feedback: StoredFeedback) -> str:
    """Return the right answer to a question as far as it is known; "" if it is not."""
    if feedback.correction is not None:
        return feedback.correction.strip()
    if feedback.right:
        return answer.answer.strip()
    return ""


def _evidence(feedback: StoredFeedback, items: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ids of the turns behind the useful entries, as far as some items have them."""
    shown_ids = {turn["id"] for item in items for turn in item["turns"]}
    evidence: list[str] = []
    for entry in feedback.useful_entries:
        evidence.extend(turn_id for turn_id in entry.sources if turn_id in shown_ids)
    return list(dict.fromkeys(evidence))

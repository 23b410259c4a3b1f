"""Single entries of a user's memory, `memory.entries`: listing by page, editing, and their history.

Ids never change and give the order of entries, numbers in them as numbers (`D1:9` before `D1:10`).
So a page goes on behind the last id of the page before, whatever was added or deleted in between.

Example:
    >>> import mempiler
    >>> program = mempiler.build("turn-rag")
    >>> memory = program.memory(store="memories.sqlite", user="ada", lm="offline")
    >>> memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}], id="chat")
    Added(id='chat', position=1, new=True)
    >>> memory.entries.update("chat:1", "I moved to Porto.", by="Ada").new
    'Ada: I moved to Porto.'
    >>> [entry.text for entry in memory.entries.list().entries]
    ['Ada: I moved to Porto.']
    >>> memory.entries.undo("chat:1").what
    'undo'
    >>> [change.what for change in memory.entries.history("chat:1")]
    ['written', 'update', 'undo']
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias, Unpack

from ...errors import ConflictError, UserError
from ...memory.edits import Amendment
from ...memory.entry_choice import EntryChoice
from ...memory.names import MAX_AUTHOR_LENGTH, plain_line
from ...memory.results import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    EntryChange,
    EntryPage,
    ListedEntry,
    Origin,
)
from ...memory.store.owner import Owner
from ...validation import check_number
from .entry_changes import Deletion, EntryChanger, Rewording, Undo
from .memories import Memories
from .view import CurrentEntry, MemoryView

MAX_TRIES = 50
"""How often a change is tried again, because another one came first or a session was forgotten."""
LONGEST_PAGE = 1_000_000
"""Most characters of the texts of a page of entries, or of hits over HTTP."""

_DIGITS = re.compile(r"([0-9]{1,18})")

SortKey: TypeAlias = tuple[int | str, ...]


def sort_key(entry_id: str) -> SortKey:
    """Return a key that sorts entry ids with the numbers in them as numbers.

    The key of `D1:10` is ("D", 1, ":", 10, "", -1, "D1:10"), which comes after that of `D1:9`.
    Texts and numbers take turns in every key, so no text is compared with a number.
    """
    key: list[int | str] = []
    for place, part in enumerate(_DIGITS.split(entry_id)):
        # `split` returns text and numbers in turns, a text first.
        is_number = place % 2 == 1
        key.append(int(part) if is_number else part)

    # -1 stands where a longer id has its next number, so the shorter id comes first.
    key.append(-1)
    # `D1` and `D01` have the same parts, and are told apart by the id itself.
    key.append(entry_id)
    return tuple(key)


def number_that_fits(texts: Iterable[str]) -> int:
    """Return how many texts fit into `LONGEST_PAGE` characters together; the first always does."""
    number = 0
    characters = 0
    for text in texts:
        characters += len(text)
        if number and characters > LONGEST_PAGE:
            break
        number += 1
    return number


class UserEntries:
    """The entries of one user's memory; `UserMemory.entries` makes it.

    Args:
        memories: Program, store and language model.
        owner: The user whose entries they are.
        view: The memory that reading methods show; as it is at each call if None.
        forget_count: What `Forgetting.count` was when the work began. A change is refused if the
            user was forgotten since; None counts from the call.
    """

    def __init__(
        self,
        memories: Memories,
        owner: Owner,
        view: MemoryView | None = None,
        forget_count: int | None = None,
    ) -> None:
        self._memories = memories
        self._store = memories.store
        self._owner = owner
        self._bound_view = view
        self._forget_count = forget_count

    def get(self, entry_id: str) -> ListedEntry | None:
        """Return an entry of the memory, or a turn that is not in it yet; None if there is none.

        Args:
            entry_id: As `list`, `search` and the evidence of an answer give it.
        """
        view = self._view()
        entry = view.entries().get(entry_id)
        if entry is None:
            return None
        (listed_entry,) = self._with_sessions(view, [entry])
        return listed_entry

    def list(
        self,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE_SIZE,
        **choice: Unpack[EntryChoice],
    ) -> EntryPage:
        """Return entries in the order of their ids, a page at a time.

        An entry that is there all the time is listed once, whatever is added or deleted meanwhile.

        Args:
            cursor: `next` of the page before; None for the first page.
            limit: Most entries, 1 to 1000; fewer where their texts are long.
            **choice: `where`, `since` and `until`, as in `UserMemory.ask`.

        Raises:
            UserError: The limit, the cursor or a condition is invalid.
        """
        check_number("limit", limit, 1, MAX_PAGE_SIZE)
        if cursor == "":
            raise UserError(
                "the cursor is empty; give `next` of the page before, or none for the first page"
            )

        memory_filter = self._memories.filter_for(self._owner, **choice)
        view = self._view()
        entries = view.entries()

        chosen_ids = [
            entry_id
            for entry_id, current in entries.items()
            if memory_filter.is_empty or memory_filter.edited_entry(current.entry) is not None
        ]
        if cursor is not None:
            last_key = sort_key(cursor)
            chosen_ids = [entry_id for entry_id in chosen_ids if sort_key(entry_id) > last_key]

        page_ids = heapq.nsmallest(limit, chosen_ids, key=sort_key)
        page_ids = page_ids[
            : number_that_fits(entries[entry_id].entry.text for entry_id in page_ids)
        ]
        page = self._with_sessions(view, [entries[entry_id] for entry_id in page_ids])

        is_last_page = len(page_ids) == len(chosen_ids)
        return EntryPage(entries=page, next=None if is_last_page else page_ids[-1])

    def update(self, entry_id: str, text: str, by: str = "") -> EntryChange | None:
        """Give an entry another text, now and after every further session.

        Args:
            entry_id: Its id.
            text: Its new text, on one line. For a turn, both "Ada: I moved." and "I moved." do.
            by: Who makes the change, for the history.

        Returns:
            The change, or None if there is no such entry.

        Raises:
            UserError: The text is empty, too long or the present one; or the entry cannot be
                changed by itself, e.g. a summary, which is made from turns.
            ConflictError: The user was forgotten meanwhile, or others keep changing entries.
        """
        return self._make_change(Rewording(entry_id, text), by)

    def delete(self, entry_id: str, by: str = "") -> EntryChange | None:
        """Hide an entry, and what else says the same, until the deletion is undone.

        `docs/production/python.md` says what a deletion reaches. `UserMemory.forget_session` erases
        what was said.

        Args:
            entry_id: Its id.
            by: Who makes the change, for the history.

        Returns:
            The change, or None if there is no such entry.

        Raises:
            UserError: The method's entries cannot be deleted one by one.
            ConflictError: As of `update`.
        """
        return self._make_change(Deletion(entry_id), by)

    def undo(self, entry_id: str, by: str = "") -> EntryChange | None:
        """Take back the last change of an entry, of those that were not taken back before.

        Args:
            entry_id: The id of the entry. One that was deleted is known by its id too.
            by: Who makes the change, for the history.

        Returns:
            The change, or None if there is nothing to take back.

        Raises:
            ConflictError: The user was forgotten meanwhile, or others keep changing entries.
        """
        return self._make_change(Undo(entry_id), by)

    def history(
        self, entry_id: str, after: int | None = None, limit: int = DEFAULT_PAGE_SIZE
    ) -> tuple[EntryChange, ...]:
        """Return how an entry was written, and each change since, oldest first.

        Args:
            entry_id: Its id.
            after: The `number` of the last change of the page before; None for the first page.
            limit: Most changes, 1 to 1000.

        Returns:
            The changes; () if there is no such entry and never was.

        Raises:
            UserError: The limit is invalid.
        """
        check_number("limit", limit, 1, MAX_PAGE_SIZE)
        entry = self.get(entry_id)
        amendments = [
            amendment
            for amendment in self._store.amendments.list_all(self._owner)
            if amendment.entry == entry_id
        ]

        written_at = None if entry is None else entry.time
        changes: list[EntryChange] = []
        if amendments:
            # The memory shows the changed text, or no entry any more. What was written first is
            # what the first change replaced.
            first = amendments[0]
            changes.append(_written(first.old_text, first.sources, written_at))
        elif entry is not None:
            changes.append(_written(entry.text, entry.turns, written_at))
        changes.extend(_as_change(amendment) for amendment in amendments)

        if after is not None:
            changes = [change for change in changes if change.number > after]
        return tuple(changes[:limit])

    def _view(self) -> MemoryView:
        """Return the memory that reading methods show."""
        return self._bound_view or self._memories.view(self._owner)

    def _make_change(self, change: EntryChanger, by: str) -> EntryChange | None:
        """Store a change of an entry; return None if there is nothing to change.

        The change quotes the entry as it is in the memory. So if another change is stored first, or
        a session of the user is forgotten, the entry is read again and the change is tried again.

        Raises:
            ConflictError: The user was forgotten since the work began, or others keep changing
                entries.
        """
        forget_count_of_work = self._forget_count
        if forget_count_of_work is None:
            forget_count_of_work = self._store.forgetting.count()
        author = plain_line("by", by, MAX_AUTHOR_LENGTH) if by else ""

        for _ in range(MAX_TRIES):
            view = self._memories.view(self._owner)
            amendment = change.amendment(view)
            if amendment is None:
                return None

            numbered = replace(
                amendment,
                number=view.snapshot.last_amendment + 1,
                at=datetime.now(UTC).replace(tzinfo=None),
                by=author,
            )
            # Raises if the user was forgotten since the work began. It stores nothing if another
            # change has this number already, or a session was forgotten since the entry was read.
            is_stored = self._store.amendments.append(
                self._owner,
                numbered,
                forget_count_of_work,
                entry_forget_count=view.snapshot.forget_count,
            )
            if is_stored:
                return _as_change(numbered)

        user = self._owner.user
        raise ConflictError(f"entries of user {user!r} are being changed all the time; try again")

    def _with_sessions(
        self, view: MemoryView, entries: Sequence[CurrentEntry]
    ) -> tuple[ListedEntry, ...]:
        """Return entries together with the sessions that they come from."""
        turn_ids = {turn_id for current in entries for turn_id in current.entry.sources}
        session_by_turn = self._sessions_of_turns(view, turn_ids)

        listed_entries: list[ListedEntry] = []
        for current in entries:
            entry = current.entry
            # By id, so that a session of several turns is listed once.
            sessions: dict[str, Origin] = {}
            for turn_id in entry.sources:
                session = session_by_turn.get(turn_id)
                if session is not None:
                    sessions[session.id] = session

            listed_entry = ListedEntry(
                id=entry.id,
                text=entry.text,
                kind=entry.kind,
                time=entry.time,
                speaker=entry.speaker,
                turns=entry.sources,
                sessions=tuple(sessions.values()),
                waiting=current.is_pending,
            )
            listed_entries.append(listed_entry)
        return tuple(listed_entries)

    def _sessions_of_turns(self, view: MemoryView, turn_ids: Set[str]) -> dict[str, Origin]:
        """Return the session of each turn, by the id of the turn."""
        session_by_turn: dict[str, Origin] = {}
        for item in view.pending.items:
            for turn in item.turns:
                if turn.id in turn_ids:
                    session_by_turn[turn.id] = Origin(id=item.id)

        # The store knows the metadata too, so what it says of a turn comes last, and wins.
        stored_sessions = self._store.metadata.sessions_of_turns(self._owner, sorted(turn_ids))
        for turn_id, session in stored_sessions.items():
            session_by_turn[turn_id] = Origin(id=session.id, metadata=session.metadata)
        return session_by_turn


def _written(text: str, turns: tuple[str, ...], at: datetime | None) -> EntryChange:
    """Return the first line of a history: how the entry was written."""
    return EntryChange(what="written", text=text, at=at, turns=turns)


def _as_change(amendment: Amendment) -> EntryChange:
    """Return the line of the history that shows an amendment."""
    return EntryChange(
        what=amendment.action,
        text=amendment.old_text,
        new=amendment.new_text,
        at=amendment.at,
        by=amendment.by,
        turns=amendment.sources,
        number=amendment.number,
    )

"""The routes of single entries of a memory: list, read, correct, delete, undo, history."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from ...memory.results import EntryChange, EntryHistory, EntryPage, ListedEntry
from ..memories.user_memory import UserMemory
from .request_context import BEARER_TOKEN, CurrentContext, UserName
from .responses import bind_known_user, json_response, require_found
from .schemas import ERRORS, By, ChangedEntry, EntryId, HistoryQuery, Listing, NewText

router = APIRouter(
    prefix="/v1/users/{user}/entries",
    tags=["entries"],
    dependencies=[BEARER_TOKEN],
    responses=ERRORS,
)


@router.get("", summary="List the entries of a memory", response_model=EntryPage)
async def list_entries(
    user: UserName, context: CurrentContext, listing: Annotated[Listing, Query()]
) -> Response:
    """List entries, and turns that are not in the memory yet, by id.

    Pages do not shift while others are added. A page ends before its limit if its texts are longer
    than a million characters together.
    """
    memory = context.memory(user)

    def list_page() -> Response:
        entries = bind_known_user(memory).entries
        return json_response(entries.list(listing.cursor, listing.limit, **listing.as_kwargs))

    return await context.run_store_call(list_page)


@router.get("/{entry}", summary="Read an entry")
async def get_entry(user: UserName, entry: EntryId, context: CurrentContext) -> ListedEntry:
    """Read one entry, with the sessions and turns that it rests on."""
    memory = context.memory(user)
    listed_entry = await context.run_store_call(lambda: bind_known_user(memory).entries.get(entry))
    return require_found(listed_entry, "entry")


@router.patch("/{entry}", summary="Change the text of an entry")
async def update_entry(
    user: UserName, entry: EntryId, body: NewText, context: CurrentContext
) -> ChangedEntry:
    """Give an entry another text. A rebuild and further sessions do not bring the old one back."""

    def update(memory: UserMemory) -> ChangedEntry:
        change = memory.entries.update(entry, body.text, body.by)
        return _changed_entry(memory, entry, change)

    return await context.run_user_write(user, update)


@router.delete("/{entry}", summary="Delete an entry")
async def delete_entry(
    user: UserName, entry: EntryId, context: CurrentContext, by: By = ""
) -> ChangedEntry:
    """Hide an entry, and other entries that say the same, until the deletion is undone.

    To erase what somebody said for good, forget the session.
    """

    def delete(memory: UserMemory) -> ChangedEntry:
        change = memory.entries.delete(entry, by)
        return _changed_entry(memory, entry, change)

    return await context.run_user_write(user, delete)


@router.post("/{entry}/undo", summary="Undo the last change of an entry")
async def undo_entry(
    user: UserName, entry: EntryId, context: CurrentContext, by: By = ""
) -> ChangedEntry:
    """Take back the last change that stands."""

    def undo(memory: UserMemory) -> ChangedEntry:
        change = memory.entries.undo(entry, by)
        return _changed_entry(memory, entry, change)

    return await context.run_user_write(user, undo)


@router.get("/{entry}/history", summary="Read the history of an entry", response_model=EntryHistory)
async def entry_history(
    user: UserName, entry: EntryId, context: CurrentContext, page: Annotated[HistoryQuery, Query()]
) -> Response:
    """Tell from which turns an entry was written, and who changed it when."""
    memory = context.memory(user)
    return await context.run_store_call(lambda: json_response(_history_page(memory, entry, page)))


def _changed_entry(memory: UserMemory, entry: str, change: EntryChange | None) -> ChangedEntry:
    change = require_found(change, "entry")
    return ChangedEntry(entry=entry, changes=(change,), now=memory.entries.get(entry))


def _history_page(memory: UserMemory, entry: str, page: HistoryQuery) -> EntryHistory:
    """Return a page of the changes of an entry.

    Raises:
        HTTPException: There is no such entry (404).
    """
    changes = memory.entries.history(entry, page.after, page.limit)
    if not changes:
        # No such entry, or `page.after` is its last change. Every entry has at least one change.
        first_changes = memory.entries.history(entry, limit=1)
        require_found(first_changes, "entry")

    next_page = changes[-1].number if len(changes) == page.limit else None
    return EntryHistory(entry=entry, changes=changes, next=next_page)

"""The routes for the entries of a user's memory, one by one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC
from typing import Annotated

from fastapi import APIRouter, Query

from ..programs.entries import MOST, PAGE, Listed
from .access import Memory, Places
from .entry_bodies import Entries, EntryId, ListedEntry
from .refusals import UNKNOWN_ENTRY
from .users import known

router = APIRouter(prefix="/v1/users/{user}/entries", tags=["entries"])


@router.get("", summary="List the entries of a memory")
async def list_entries(
    memory: Memory,
    work: Places,
    cursor: Annotated[str | None, Query(min_length=1, max_length=2048)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = PAGE,
) -> Entries:
    """Entries and turns that are not in the memory yet, by id; pages do not shift while others are added."""
    found = await work.storing(lambda: memory.list(cursor, limit, known(memory)))
    return Entries(entries=[_shown(one) for one in found.entries], next=found.next)


@router.get("/{entry}", summary="Read an entry")
async def get_entry(entry: EntryId, memory: Memory, work: Places) -> ListedEntry:
    """One entry, with the sessions and turns that it rests on."""
    found = await work.storing(lambda: memory.get(entry, known(memory)))
    if found is None:
        raise UNKNOWN_ENTRY()
    return _shown(found)


def _shown(found: Listed) -> ListedEntry:
    time = found.time.replace(tzinfo=UTC) if found.time else None
    return ListedEntry.model_validate({**asdict(found), "time": time})

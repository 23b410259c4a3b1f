"""The routes for the entries of a user's memory, one by one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import ValidationError

from ..memory.amending import Amendment
from ..memory.listed import PAGE, Listed
from ..programs.entries import MOST
from ..programs.user_memory import UserMemory
from ..records import parse_json
from .access import GUARD, Memory, Places
from .bodies import Chosen, Text
from .entry_bodies import By, Entries, EntryHistory, EntryId, ListedEntry, NewText, Since, Until
from .refusals import UNKNOWN_ENTRY, malformed
from .users import known

router = APIRouter(prefix="/v1/users/{user}/entries", tags=["entries"], dependencies=[GUARD])


async def conditions(
    where: Annotated[
        Text | None,
        Query(description="A JSON object of conditions, as a search takes them", examples=['{"year": 2025}']),
    ] = None,
) -> dict[str, Any]:
    """The conditions of an address, checked and refused as those of a body.

    Raises:
        Refusal: 400.
    """
    try:
        return Chosen(where=None if where is None else parse_json(where, "where")).conditions
    except ValidationError as error:
        raise malformed(error.errors()) from error


@router.get("", summary="List the entries of a memory")
async def list_entries(
    memory: Memory,
    work: Places,
    where: Annotated[dict[str, Any], Depends(conditions)],
    cursor: Annotated[str | None, Query(min_length=1, max_length=2048)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = PAGE,
    since: Since = None,
    until: Until = None,
) -> Entries:
    """Entries and turns that are not in the memory yet, by id; pages do not shift while others are added."""
    chosen = {"where": where, "since": since, "until": until}
    found = await work.storing(lambda: memory.list(cursor, limit, known(memory), **chosen))
    return Entries(entries=[_shown(one) for one in found.entries], next=found.next)


@router.get("/{entry}", summary="Read an entry")
async def get_entry(entry: EntryId, memory: Memory, work: Places) -> ListedEntry:
    """One entry, with the sessions and turns that it rests on."""
    found = await work.storing(lambda: memory.get(entry, known(memory)))
    if found is None:
        raise UNKNOWN_ENTRY()
    return _shown(found)


@router.patch("/{entry}", summary="Change the text of an entry")
async def update_entry(entry: EntryId, body: NewText, memory: Memory, work: Places) -> EntryHistory:
    """Gives an entry another text; a rebuild and further sessions do not bring the old one back."""
    return await work.writing(memory, lambda memory: _changed(memory, entry, memory.update(entry, body.text, body.by)))


@router.delete("/{entry}", summary="Delete an entry")
async def delete_entry(entry: EntryId, memory: Memory, work: Places, by: By = "") -> EntryHistory:
    """Takes an entry out, with what else holds the same, until it is undone; forgetting a session erases it."""
    return await work.writing(memory, lambda memory: _changed(memory, entry, memory.delete(entry, by)))


@router.post("/{entry}/undo", summary="Undo the last change of an entry")
async def undo_entry(entry: EntryId, memory: Memory, work: Places, by: By = "") -> EntryHistory:
    """Takes back the last change that stands."""
    return await work.writing(memory, lambda memory: _changed(memory, entry, memory.undo(entry, by)))


@router.get("/{entry}/history", summary="Read the history of an entry")
async def entry_history(entry: EntryId, memory: Memory, work: Places) -> EntryHistory:
    """From which turns it was written, and who changed it when."""
    return await work.storing(lambda: _history(memory, entry))


def _changed(memory: UserMemory, entry: str, made: Amendment | None) -> EntryHistory:
    if made is None:
        raise UNKNOWN_ENTRY()
    return _history(memory, entry)


def _history(memory: UserMemory, entry: str) -> EntryHistory:
    found = memory.history(entry)
    if not found:
        raise UNKNOWN_ENTRY()
    rows = [{**asdict(event), "at": event.at.replace(tzinfo=UTC) if event.at else None} for event in found]
    return EntryHistory.model_validate({"entry": entry, "changes": rows})


def _shown(found: Listed) -> ListedEntry:
    time = found.time.replace(tzinfo=UTC) if found.time else None
    return ListedEntry.model_validate({**asdict(found), "time": time})

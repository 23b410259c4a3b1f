"""The routes for users and their memories: add sessions, ask, read, list, forget."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Response

from ..memory import stored
from ..memory.incoming import now
from ..programs.live import View
from ..programs.shown import memory_shown
from ..programs.user_memory import UserMemory
from ..records import Context, Hit, format_time
from ..records.items import Turn
from .access import GUARD, Memory, Places, Served, Tenant
from .bodies import (
    Answer,
    Evidence,
    Forgotten,
    Found,
    MemoryState,
    Name,
    NewSession,
    Question,
    Search,
    Sessions,
    SessionState,
    Source,
    Stored,
    Users,
    UserState,
)
from .refusals import UNKNOWN_SESSION, UNKNOWN_USER, Refusal
from .service import Service

router = APIRouter(prefix="/v1/users", tags=["memories"], dependencies=[GUARD])


@router.get("", summary="List the users of the token's tenant")
async def list_users(service: Served, tenant: Tenant, work: Places) -> Users:
    """Users with what is stored of each, in order of their names."""
    found = await work.storing(lambda: service.store.users(tenant))
    return Users(users=[_state(one) for one in found])


@router.get("/{user}", summary="Counts of a user")
async def show_user(memory: Memory, work: Places) -> UserState:
    """How many sessions are stored, queued and failed."""
    found = await work.storing(memory.status)
    if found is None:
        raise UNKNOWN_USER()
    return _state(found)


@router.delete("/{user}", summary="Forget a user")
async def forget_user(memory: Memory, work: Places) -> Forgotten:
    """Deletes everything of a user: sessions, open turns, memory."""
    found = await work.storing(memory.forget)
    if not found:
        raise UNKNOWN_USER()
    return _receipt(memory.owner.user, found)


@router.post("/{user}/sessions", status_code=201, summary="Add a session", responses={200: {"model": Stored}})
async def add_session(body: NewSession, service: Served, memory: Memory, response: Response, work: Places) -> Stored:
    """Stores a session durably; it is found by questions at once, and written into the memory in the background."""
    check_length(len(body.messages), service)
    messages = [message.model_dump(exclude_none=True) for message in body.messages]
    new: dict[str, Any] = {"id": body.id, "metadata": body.metadata}
    added = await work.writing(memory, lambda memory: memory.add(messages, remember=False, **new))
    service.worker.wake()
    response.status_code = 201 if added.new else 200
    return Stored(id=added.id, position=added.position, new=added.new)


@router.get("/{user}/sessions", summary="List the sessions of a user")
async def list_sessions(service: Served, memory: Memory, work: Places) -> Sessions:
    """The sessions of a user and how far each got."""
    return Sessions(sessions=await work.storing(lambda: _sessions(service, memory)))


@router.post("/{user}/sessions/{session}/end", summary="End an open session")
async def end_session(session: Name, service: Served, memory: Memory, work: Places) -> Stored:
    """Ends a session of the chat, which otherwise ends by itself when it goes idle."""
    added = await work.writing(memory, lambda memory: memory.end(session, remember=False))
    if added is None:
        raise UNKNOWN_SESSION()
    service.worker.wake()
    return Stored(id=added.id, position=added.position, new=added.new)


@router.delete("/{user}/sessions/{session}", summary="Forget a session")
async def forget_session(session: Name, service: Served, memory: Memory, work: Places) -> Forgotten:
    """Deletes a session; a memory that holds something of it is written anew from the others."""
    found = await work.storing(lambda: memory.forget_session(session, remember=False))
    if not found:
        raise UNKNOWN_SESSION()
    service.worker.wake()
    return _receipt(session, found)


@router.get("/{user}/memory", summary="Read the memory of a user")
async def read_memory(service: Served, memory: Memory, work: Places) -> MemoryState:
    """The memory that questions are answered from."""
    return await work.storing(lambda: _memory(service, memory))


@router.post("/{user}/ask", summary="Ask about a user")
async def ask(body: Question, service: Served, memory: Memory, work: Places) -> Answer:
    """Answers from the memory, and from what is not in it yet; with the turns that each recalled thing rests on."""
    return await work.asking(lambda _: _answer(body, service, memory))


@router.post("/{user}/search", summary="Search the memory of a user")
async def search(body: Search, memory: Memory, work: Places) -> Found:
    """Entries of the memory, and turns that are not in it yet, with the turns that each rests on; no answer is made."""
    return await work.asking(lambda _: _found(body, memory))


def check_length(messages: int, service: Service) -> None:
    """Refuses requests of too many messages.

    Raises:
        Refusal: 413.
    """
    if messages > service.settings.max_turns:
        raise Refusal(413, f"{messages} messages are too many; send at most {service.settings.max_turns}")


def evidence(memory: UserMemory, context: Context, seen: View) -> list[Evidence]:
    """What was recalled, each with the turns it rests on, as far as they are still there."""
    turns = memory.sources(context.sources, seen)
    return [Evidence.model_validate(_shown(hit, turns)) for hit in context.hits]


def _shown(hit: Hit, turns: Mapping[str, Turn]) -> dict[str, Any]:
    sources = [_source(turns[id]) for id in hit.sources if id in turns]
    about = {"kind": hit.kind, "label": hit.label, "speaker": hit.speaker, "time": _utc(hit.time)}
    return {"id": hit.id, "text": hit.text, "score": round(hit.score, 4), **about, "sources": sources}


def _found(body: Search, memory: UserMemory) -> Found:
    seen = known(memory)
    found = memory.search(body.query, body.k, body.since, body.until, seen, body.conditions)
    turns = memory.sources({id for hits in found for hit in hits for id in hit.sources}, seen)
    rows = [[_shown(hit, turns) for hit in hits] for hits in found]
    return Found.model_validate(dict(zip(("entries", "waiting"), rows, strict=True)))


def _answer(body: Question, service: Service, memory: UserMemory) -> Answer:
    seen = known(memory)
    fields: dict[str, Any] = {"date": body.date or format_time(now())}
    if body.options:
        fields["options"] = body.options
    chosen = {"where": body.conditions, "since": body.since, "until": body.until}
    found = memory.ask(body.question, seen=seen, **chosen, **fields)
    service.note(memory, body.question, str(found.answer))
    return Answer(answer=str(found.answer), evidence=evidence(memory, found.context, seen))


def known(memory: UserMemory) -> View:
    """What a user's memory holds.

    Raises:
        Refusal: 404: nothing is stored of the user.
    """
    seen = memory.look()
    if not seen.known:
        raise UNKNOWN_USER()
    return seen


def _memory(service: Service, memory: UserMemory) -> MemoryState:
    seen = known(memory)
    return MemoryState(
        user=memory.owner.user,
        method=service.program.name,
        memory=memory_shown(service.program, seen),
        waiting=len(seen.snapshot.waiting) + len(seen.snapshot.open),
    )


def _sessions(service: Service, memory: UserMemory) -> list[SessionState]:
    snapshot = service.store.read(memory.owner, lambda version: True)
    if not snapshot.version:
        raise UNKNOWN_USER()
    ended = [
        SessionState(id=one.item.id, state=one.state, turns=len(one.item.turns))
        for one in service.store.items(memory.owner)
    ]
    return ended + [SessionState(id=one.id, state="open", turns=len(one.turns)) for one in snapshot.open]


def _receipt(name: str, found: stored.Forgotten) -> Forgotten:
    about = {"sessions": found.sessions, "turns": found.turns, "erased": found.erased, "held_by": found.held_by}
    return Forgotten.model_validate({"forgotten": name, **about})


def _source(turn: Turn) -> Source:
    return Source(id=turn.id, speaker=turn.speaker, text=turn.content, time=_utc(turn.time))


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time else None


def _state(found: Any) -> UserState:
    return UserState(
        user=found.owner.user,
        sessions=found.items,
        queued=found.queued,
        partial=found.partial,
        failed=found.failed,
        open_turns=found.open_turns,
        position=found.position,
        updated=found.updated,
    )

"""The routes for users, their memories and the entries of these: add sessions, ask, search, correct, forget; agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, TypeAdapter
from starlette.exceptions import HTTPException
from starlette.routing import Route

from ...async_bridge import in_thread
from ...engines.call_context import Deadline
from ...memory.results import (
    DEFAULT_PAGE_SIZE,
    Added,
    Answer,
    EntryChange,
    EntryHistory,
    EntryPage,
    FoundEvidence,
    ListedEntry,
    MemoryState,
    MemoryStatus,
    Receipt,
    Sessions,
    Users,
)
from ...memory.incoming_items import utc_now
from ...records import format_time
from .schemas import (
    After,
    By,
    ChangedEntry,
    EntryId,
    HistoryQuery,
    Limit,
    Listing,
    Name,
    NewSession,
    NewText,
    Question,
    Search,
)
from ..memories.entries import number_that_fits
from ..memories.view import redacted_memory
from .request_context import BEARER_TOKEN, CurrentContext, RequestContext, UserName
from .service import Service
from ..memories.user_memory import UserMemory

T = TypeVar("T")
TOOLS, HEADER = "/v1/mcp", "Mempiler-User"

router = APIRouter(prefix="/v1/users", tags=["memories"], dependencies=[BEARER_TOKEN])
entries = APIRouter(prefix="/v1/users/{user}/entries", tags=["entries"], dependencies=[BEARER_TOKEN])


@router.get("", summary="List the users of the token's tenant")
async def list_users(caller: CurrentContext, after: After = "", limit: Limit = DEFAULT_PAGE_SIZE) -> Users:
    """Users with what is stored of each, in order of their names."""
    found = await caller.run_store_call(lambda: caller.service.store.users.page(caller.tenant, after, limit))
    return Users(users=tuple(found), next=found[-1].user if len(found) == limit else None)


@router.get("/{user}", summary="Counts of a user")
async def show_user(user: UserName, caller: CurrentContext) -> MemoryStatus:
    """How many sessions are stored, queued and failed."""
    return _there(await caller.run_store_call(caller.memory(user).status), "user")


@router.delete("/{user}", summary="Forget a user")
async def forget_user(user: UserName, caller: CurrentContext) -> Receipt:
    """Deletes everything of a user: sessions, open turns, memory."""
    return _there(await caller.run_store_call(caller.memory(user).forget), "user")


@router.post("/{user}/sessions", status_code=201, summary="Add a session", responses={200: {"model": Added}})
async def add_session(user: UserName, body: NewSession, caller: CurrentContext, response: Response) -> Added:
    """Stores a session durably; it is found by questions at once, and written into the memory in the background."""
    caller.check_message_count(len(body.messages))
    caller.check_text_lengths(message.content for message in body.messages)
    messages = [message.model_dump(exclude_none=True) for message in body.messages]
    added = await caller.run_user_write(user, lambda memory: memory.add(messages, body.id, False, body.metadata))
    caller.service.worker.wake()
    response.status_code = 201 if added.new else 200
    return added


@router.get("/{user}/sessions", summary="List the sessions of a user")
async def list_sessions(user: UserName, caller: CurrentContext) -> Sessions:
    """The sessions of a user and how far each got."""
    return await caller.run_store_call(lambda: Sessions(sessions=known(caller.memory(user)).sessions()))


@router.post("/{user}/sessions/{session}/end", summary="End an open session")
async def end_session(user: UserName, session: Name, caller: CurrentContext) -> Added:
    """Ends a session of the chat, which otherwise ends by itself when it goes idle."""
    added = await caller.run_user_write(user, lambda memory: memory.end(session, remember=False))
    caller.service.worker.wake()
    return _there(added, "session")


@router.delete("/{user}/sessions/{session}", summary="Forget a session")
async def forget_session(user: UserName, session: Name, caller: CurrentContext) -> Receipt:
    """Deletes a session; a memory that holds something of it is written anew from the others."""
    found = await caller.run_store_call(lambda: caller.memory(user).forget_session(session, remember=False))
    caller.service.worker.wake()
    return _there(found, "session")


@router.get("/{user}/memory", summary="Read the memory of a user", response_model=MemoryState)
async def read_memory(user: UserName, caller: CurrentContext) -> Response:
    """The memory that questions are answered from."""
    return await caller.run_store_call(lambda: _in_json(_memory(caller.memory(user))))


@router.post("/{user}/ask", summary="Ask about a user", response_model=Answer)
async def ask(user: UserName, body: Question, caller: CurrentContext) -> Response:
    """Answers from the memory, and from what is not in it yet; with the turns that each recalled thing rests on."""
    caller.check_text_lengths([body.question, *(body.options or ())])
    return await caller.run_model_work(lambda _: in_thread(lambda: _in_json(_answer(body, caller.memory(user)))))


@router.post("/{user}/search", summary="Search the memory of a user", response_model=FoundEvidence)
async def search(user: UserName, body: Search, caller: CurrentContext) -> Response:
    """Entries of the memory, and turns that are not in it yet, with the turns that each rests on; no answer is made.

    Fewer than `k` come where their texts are longer than a million characters together.
    """
    caller.check_text_lengths([body.query])
    return await caller.run_model_work(lambda _: in_thread(lambda: _in_json(_found(body, caller.memory(user)))))


@entries.get("", summary="List the entries of a memory", response_model=EntryPage)
async def list_entries(user: UserName, caller: CurrentContext, listing: Annotated[Listing, Query()]) -> Response:
    """Entries and turns that are not in the memory yet, by id; pages do not shift while others are added.

    A page ends before its limit where its texts are longer than a million characters together.
    """
    memory = caller.memory(user)

    def page() -> Response:
        return _in_json(known(memory).entries.list(listing.cursor, listing.limit, **listing.as_kwargs))

    return await caller.run_store_call(page)


@entries.get("/{entry}", summary="Read an entry")
async def get_entry(user: UserName, entry: EntryId, caller: CurrentContext) -> ListedEntry:
    """One entry, with the sessions and turns that it rests on."""
    memory = caller.memory(user)
    return _there(await caller.run_store_call(lambda: known(memory).entries.get(entry)), "entry")


@entries.patch("/{entry}", summary="Change the text of an entry")
async def update_entry(user: UserName, entry: EntryId, body: NewText, caller: CurrentContext) -> ChangedEntry:
    """Gives an entry another text; a rebuild and further sessions do not bring the old one back."""
    return await caller.run_user_write(
        user, lambda memory: _changed(memory, entry, memory.entries.update(entry, body.text, body.by))
    )


@entries.delete("/{entry}", summary="Delete an entry")
async def delete_entry(user: UserName, entry: EntryId, caller: CurrentContext, by: By = "") -> ChangedEntry:
    """Takes an entry out, with what else holds the same, until it is undone; forgetting a session erases it."""
    return await caller.run_user_write(user, lambda memory: _changed(memory, entry, memory.entries.delete(entry, by)))


@entries.post("/{entry}/undo", summary="Undo the last change of an entry")
async def undo_entry(user: UserName, entry: EntryId, caller: CurrentContext, by: By = "") -> ChangedEntry:
    """Takes back the last change that stands."""
    return await caller.run_user_write(user, lambda memory: _changed(memory, entry, memory.entries.undo(entry, by)))


@entries.get("/{entry}/history", summary="Read the history of an entry", response_model=EntryHistory)
async def entry_history(user: UserName, entry: EntryId, caller: CurrentContext, page: Annotated[HistoryQuery, Query()]) -> Response:
    """From which turns it was written, and who changed it when."""
    return await caller.run_store_call(lambda: _in_json(_history(caller.memory(user), entry, page)))


def known(memory: UserMemory) -> UserMemory:
    """A user's memory as it is now.

    Raises:
        HTTPException: 404: nothing is stored of the user.
    """
    seen = memory.view()
    _there(seen.snapshot.version, "user")
    return memory.bind_view(seen)


def _in_json(record: BaseModel) -> Response:
    """Make the response of a record, in the thread that made the record: a large one would hold up the event loop."""
    return Response(record.model_dump_json(by_alias=True), media_type="application/json")


def _found(body: Search, memory: UserMemory) -> FoundEvidence:
    found = known(memory).search(body.query, body.k, body.fallback, **body.as_kwargs)
    entries = found.entries[: number_that_fits(hit.text for hit in found.entries)]
    waiting = found.pending[: number_that_fits(hit.text for hit in found.pending)]
    return FoundEvidence(entries=memory.evidence(entries), waiting=memory.evidence(waiting))


def _answer(body: Question, memory: UserMemory) -> Answer:
    fields: dict[str, Any] = {"date": body.date or format_time(utc_now())}
    if body.options:
        fields["options"] = body.options
    found = known(memory).ask(body.question, **body.as_kwargs, **fields)
    return Answer(answer=str(found.answer), evidence=memory.evidence(found.context.hits))


def _memory(memory: UserMemory) -> MemoryState:
    seen = known(memory).view()
    return MemoryState(
        user=memory.owner.user,
        method=memory.program.name,
        memory=redacted_memory(seen),
        waiting=len(seen.snapshot.pending_items) + len(seen.snapshot.open_sessions),
    )


def _changed(memory: UserMemory, entry: str, made: EntryChange | None) -> ChangedEntry:
    return ChangedEntry(entry=entry, changes=(_there(made, "entry"),), now=memory.entries.get(entry))


def _history(memory: UserMemory, entry: str, page: HistoryQuery) -> EntryHistory:
    changes = memory.entries.history(entry, page.after, page.limit)
    _there(changes or memory.entries.history(entry, limit=1), "entry")
    following = changes[-1].number if len(changes) == page.limit else None
    return EntryHistory(entry=entry, changes=changes, next=following)


def _there(found: T | None, what: str) -> T:
    """What was found, or the refusal where there is no such thing."""
    if not found:
        raise HTTPException(404, f"there is no such {what}")
    return found


def tools_route(service: Service) -> tuple[Any, Route]:
    """The tools of `mcp` over HTTP, for agents, and their route: token and header say whose memory they reach.

    A request carries all there is to know of it, so any process of a service answers any: no sessions, no streams.
    POST alone: the SDK would open a stream without end for every GET, outside of all pools and limits.
    """
    from ..mcp import memory_tools  # an extra
    from mcp.server.transport_security import TransportSecuritySettings  # isort: skip

    async def run_tool(request: Any, tool: Callable[[UserMemory], Awaitable[T]]) -> T:
        try:
            (given,) = request.headers.getlist(HEADER)
            user = TypeAdapter(Name).validate_python(given)
        except ValueError as error:
            raise HTTPException(400, f"say whose memory it is in one header: {HEADER}: NAME") from error
        caller = await RequestContext.of(request)
        memory = caller.memory(user)

        async def use_bound_memory(_: Deadline) -> T:
            await in_thread(memory.bind_view)
            return await tool(memory)

        try:
            return await caller.run_model_work(use_bound_memory, memory)
        finally:
            service.worker.wake()

    tools = memory_tools(run_tool, remember=False)
    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # by the application
    app = tools.streamable_http_app(
        streamable_http_path=TOOLS, json_response=True, stateless_http=True, transport_security=guarded
    )
    (found,) = (one for one in app.routes if isinstance(one, Route))
    return tools, Route(TOOLS, found.endpoint, methods=["POST"])

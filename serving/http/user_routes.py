"""The routes of users and their memories: add sessions, ask, search, forget."""

from __future__ import annotations

from typing import Any

import dspy
from fastapi import APIRouter, Response

from ...async_bridge import in_thread
from ...engines.call_context import Deadline
from ...memory.incoming_items import utc_now
from ...memory.results import (
    DEFAULT_PAGE_SIZE,
    Added,
    Answer,
    Feedback,
    FoundEvidence,
    MemoryState,
    MemoryStatus,
    Receipt,
    Sessions,
    Users,
)
from ...records import format_time
from ..memories.entries import number_that_fits
from ..memories.redaction import redacted_memory
from ..memories.user_memory import UserMemory
from .request_context import BEARER_TOKEN, CurrentContext, UserName
from .responses import bind_known_user, json_response, require_found
from .schemas import ERRORS, After, Limit, Name, NewFeedback, NewSession, Question, Search

router = APIRouter(
    prefix="/v1/users", tags=["memories"], dependencies=[BEARER_TOKEN], responses=ERRORS
)


@router.get("", summary="List the users of the token's tenant")
async def list_users(
    context: CurrentContext, after: After = "", limit: Limit = DEFAULT_PAGE_SIZE
) -> Users:
    """List users with what is stored of each, in order of their names."""
    users = await context.run_store_call(
        lambda: context.service.store.users.page(context.tenant, after, limit)
    )
    next_page = users[-1].user if len(users) == limit else None
    return Users(users=tuple(users), next=next_page)


@router.get("/{user}", summary="Counts of a user")
async def show_user(user: UserName, context: CurrentContext) -> MemoryStatus:
    """Count how many sessions are stored, queued and failed."""
    status = await context.run_store_call(context.memory(user).status)
    return require_found(status, "user")


@router.delete("/{user}", summary="Forget a user")
async def forget_user(user: UserName, context: CurrentContext) -> Receipt:
    """Delete everything of a user: sessions, open turns, memory."""
    receipt = await context.run_store_call(context.memory(user).forget)
    return require_found(receipt, "user")


@router.post(
    "/{user}/sessions",
    status_code=201,
    summary="Add a session",
    responses={200: {"model": Added}},
)
async def add_session(
    user: UserName, body: NewSession, context: CurrentContext, response: Response
) -> Added:
    """Store a session durably.

    Questions find it at once; it is written into the memory in the background.
    """
    context.check_message_count(len(body.messages))
    context.check_text_lengths(message.content for message in body.messages)
    messages = [message.model_dump(exclude_none=True) for message in body.messages]

    def add(memory: UserMemory) -> Added:
        return memory.add(messages, body.id, remember=False, metadata=body.metadata)

    added = await context.run_user_write(user, add)
    context.service.worker.wake()
    if not added.new:
        response.status_code = 200
    return added


@router.get("/{user}/sessions", summary="List the sessions of a user")
async def list_sessions(user: UserName, context: CurrentContext) -> Sessions:
    """List the sessions of a user, and how far each got."""
    memory = context.memory(user)
    return await context.run_store_call(
        lambda: Sessions(sessions=bind_known_user(memory).sessions())
    )


@router.post("/{user}/sessions/{session}/end", summary="End an open session")
async def end_session(user: UserName, session: Name, context: CurrentContext) -> Added:
    """End a session of the chat, which otherwise ends by itself when it goes idle."""
    added = await context.run_user_write(user, lambda memory: memory.end(session, remember=False))
    context.service.worker.wake()
    return require_found(added, "session")


@router.delete("/{user}/sessions/{session}", summary="Forget a session")
async def forget_session(user: UserName, session: Name, context: CurrentContext) -> Receipt:
    """Delete a session. A memory that holds something of it is written anew from the others."""
    memory = context.memory(user)
    receipt = await context.run_store_call(lambda: memory.forget_session(session, remember=False))
    context.service.worker.wake()
    return require_found(receipt, "session")


@router.get("/{user}/memory", summary="Read the memory of a user", response_model=MemoryState)
async def read_memory(user: UserName, context: CurrentContext) -> Response:
    """Read the memory that questions are answered from."""
    memory = context.memory(user)
    return await context.run_store_call(lambda: json_response(_memory_state(memory)))


@router.post("/{user}/ask", summary="Ask about a user", response_model=Answer)
async def ask(user: UserName, body: Question, context: CurrentContext) -> Response:
    """Answer from the memory, and from turns that are not in it yet.

    The answer comes with what was recalled for it, and with the turns that this evidence rests on.
    """
    context.check_text_lengths([body.question, *(body.options or ())])
    memory = context.memory(user)
    # The fields of the program's task. The filter (`body.as_kwargs`) says what may be recalled.
    query: dict[str, Any] = {"date": body.date or format_time(utc_now())}
    if body.options:
        query["options"] = body.options

    async def answer(_: Deadline) -> Response:
        await in_thread(lambda: bind_known_user(memory))
        prediction = await memory.aask(body.question, **body.as_kwargs, **query)
        return await in_thread(lambda: json_response(_answer_with_evidence(memory, prediction)))

    return await context.run_model_work(answer)


@router.post("/{user}/feedback", summary="Rate an answer")
async def give_feedback(user: UserName, body: NewFeedback, context: CurrentContext) -> Feedback:
    """Store what the user says about an answer; it replaces earlier feedback on this answer.

    Answers are kept only for tenants that have opted in.
    """
    return await context.run_user_write(user, lambda memory: memory.feedback(**body.model_dump()))


@router.post("/{user}/search", summary="Search the memory of a user", response_model=FoundEvidence)
async def search(user: UserName, body: Search, context: CurrentContext) -> Response:
    """Find entries of the memory, and turns that are not in it yet, without an answer.

    Each comes with the turns that it rests on. Fewer than `k` come if their texts are longer than a
    million characters together.
    """
    context.check_text_lengths([body.query])
    memory = context.memory(user)

    async def search_memory(_: Deadline) -> Response:
        return await in_thread(lambda: json_response(_search_hits(memory, body)))

    # An embedder may be asked for the vector of the query, so this is work on a model.
    return await context.run_model_work(search_memory)


def _memory_state(memory: UserMemory) -> MemoryState:
    """Return what questions are answered from, and how many sessions are not in it yet.

    Raises:
        HTTPException: Nothing is stored of the user (404).
    """
    view = bind_known_user(memory).view()
    queued_sessions = len(view.snapshot.pending_items)
    open_sessions = len(view.snapshot.open_sessions)
    return MemoryState(
        user=memory.owner.user,
        method=memory.program.name,
        memory=redacted_memory(view),
        waiting=queued_sessions + open_sessions,
    )


def _answer_with_evidence(memory: UserMemory, prediction: dspy.Prediction) -> Answer:
    evidence = memory.evidence(prediction.context.hits)
    return Answer(answer=str(prediction.answer), evidence=evidence, answer_id=prediction.answer_id)


def _search_hits(memory: UserMemory, body: Search) -> FoundEvidence:
    """Return what a search finds, as far as its texts fit into one response."""
    result = bind_known_user(memory).search(body.query, body.k, body.fallback, **body.as_kwargs)
    entries = result.entries[: number_that_fits(hit.text for hit in result.entries)]
    pending = result.pending[: number_that_fits(hit.text for hit in result.pending)]
    return FoundEvidence(entries=memory.evidence(entries), waiting=memory.evidence(pending))

"""A running chat as sessions of a memory: which turns are new, to which session they belong, and the answer.

A client of the chat sends the whole conversation again with every turn. What follows its last answer is new; what comes
before was stored when it was new, or before this service was asked, and is shown to the model only.

    user says ──> stored in the open session ──> recall + answer ──> answer stored ──> sent, or the end of its stream

One session of a user is open at a time. It ends when `metadata.session` names another, or after the session gap; its
turns are then queued to be remembered. Until they are, they are searched as they were said.

A client that repeats a request whose answer it never got says nothing twice: turns that stand unanswered at the end of
the session are not stored again, and a request marked as a repetition gets the answer that is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..engines.endpoint.deadline import Deadline
from ..errors import ConflictError
from ..memory.incoming import now, turns_of
from ..memory.metadata import Scalar
from ..programs.streaming import Words, wanted
from ..records import Context, Session, Turn, format_time
from .chat_bodies import ChatRequest, Own
from .user_memory import UserMemory

ASSISTANT = "assistant"


@dataclass(frozen=True)
class Request:
    """What a chat request says."""

    instructions: tuple[str, ...]
    """System messages; shown to the model, never stored."""
    before: tuple[Turn, ...]
    """The conversation up to the last answer; turns without ids."""
    new: tuple[Turn, ...]
    """The user's new messages; the last is the question."""
    session: str | None = None
    """The session it belongs to; the open one if None."""
    repeated: bool = False
    """Whether the client marks this as a repetition."""
    metadata: Mapping[str, Scalar] | None = None
    """Added to what is said of the session."""
    chosen: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What of the memory is looked at: `where`, `since`, `until`, as `UserMemory.ask` takes them."""


@dataclass(frozen=True)
class Heard:
    """What was said, stored; and what to answer it from."""

    session: str
    said: tuple[Turn, ...]
    """The new turns, as they are stored."""
    before: tuple[Turn, ...]
    """Those that were stored in the session before them."""
    given: str | None = None
    """The answer that a repeated request got before."""


def request_of(body: ChatRequest, repeated: bool = False) -> Request:
    """Splits OpenAI's messages; those without text are left out, and what tools say.

    Args:
        body: What a client sent.
        repeated: Whether it was sent before.
    """
    messages, own = body.said(), body.mempiler or Own()
    said = [message for message in messages if message["role"] in ("user", ASSISTANT)]
    last = max((n for n, message in enumerate(said) if message["role"] == ASSISTANT), default=-1)
    other = (message["content"] for message in messages if message["role"] in ("system", "developer"))
    before, new = turns_of(said[: last + 1]), turns_of(said[last + 1 :])
    return Request(
        instructions=tuple(text for text in other if text),
        before=tuple(before),
        new=tuple(new),
        session=body.metadata.session if body.metadata else None,
        repeated=repeated,
        metadata=own.metadata,
        chosen={"where": own.conditions, "since": own.since, "until": own.until},
    )


def converse(
    memory: UserMemory, request: Request, gap: timedelta, deadline: Deadline, words: Words | None = None
) -> tuple[str, Context, Heard]:
    """Stores what is said, answers by the program, and stores the answer.

    Args:
        memory: Whose it is.
        request: What is said; its last new turn is the question.
        gap: Time without a turn after which a session is over.
        deadline: A late answer is not stored, since the client does not get it.
        words: Takes the words of the answer as they come.

    Returns:
        The answer, what it rests on, and what was stored before it. Of a user who is forgotten while this goes on
        nothing is stored, and the answer is given all the same.

    Raises:
        MempilerError: See `UserMemory.say`, `UserMemory.ask` and `Words.rest`; what was said is stored unless saying it
            failed.
    """
    heard = hear(memory, request, gap)
    if heard.given is not None:
        return heard.given, Context(), heard
    question = heard.said[-1]
    shown = _shown(heard.session, request, heard.before, heard.said[:-1])
    recent = [Session(id=heard.session, turns=shown)] if shown else []
    asking = {"asked": [question.id], "date": format_time(now())}
    with wanted(words):
        found = memory.ask(question.content, recent, **asking, **request.chosen)
    if words is not None:
        words.rest(str(found.answer))
    answered(memory, request, heard, str(found.answer), deadline)
    return str(found.answer), found.context, heard


def hear(memory: UserMemory, request: Request, gap: timedelta) -> Heard:
    """Stores what is said in the session it belongs to; arguments and errors as of `converse`.

    The memory is then looked at as it was, with what is said now.
    """
    seen = memory.look()
    memory.begin(seen)
    session = _session(memory, seen.snapshot.open, request.session, gap)
    given = _given(session, request) if session else None
    if session and given is not None:
        return Heard(session.id, (), session.turns, given)
    before: tuple[Turn, ...] = session.turns if session else ()
    new = len(request.new)
    if session and new and _same(before[-new:], request.new):
        return Heard(session.id, before[-new:], before)
    id = session.id if session else request.session or f"chat-{_token()}"
    if not new:
        return Heard(id, (), before)
    id, said = _say(memory, id, request.new, request.metadata)
    before = before if session and id == session.id else ()
    turns = (*before, *said)
    memory.begin(seen.saying(Session(id=id, time=turns[0].time, turns=turns)))
    return Heard(id, said, before)


def answered(memory: UserMemory, request: Request, heard: Heard, answer: str, deadline: Deadline) -> None:
    """Stores an answer, unless it is late, or its session was forgotten meanwhile."""
    turns = [] if deadline.passed else turns_of([{"role": ASSISTANT, "content": answer}])
    if not turns:
        return
    try:
        memory.say(heard.session, turns, not (heard.said or heard.before), request.metadata)
    except ConflictError:
        if any(item.id == heard.session for item in memory.items()):
            _say(memory, heard.session, turns, request.metadata)


def _session(memory: UserMemory, opened: Sequence[Session], wanted: str | None, gap: timedelta) -> Session | None:
    """The open session to continue, None if one begins; all others of the user end."""
    time = now()
    mine = [
        session
        for session in opened
        if time - gap <= _last(session) <= time + gap
        and (wanted is None or session.id == wanted or session.id.startswith(f"{wanted}~"))
    ]
    chosen = max(mine, key=_last, default=None)
    for session in opened:
        if session is not chosen:
            memory.end(session.id, remember=False)
    return chosen


def _say(
    memory: UserMemory, session: str, turns: Sequence[Turn], metadata: Mapping[str, Scalar] | None
) -> tuple[str, tuple[Turn, ...]]:
    """Stores turns; those of an ended session begin a continuation of it, `NAME~...`, unless the user was forgotten."""
    try:
        return session, memory.say(session, turns, metadata=metadata)
    except ConflictError:
        session = f"{session.partition('~')[0]}~{_token()}"
    try:
        return session, memory.say(session, turns, metadata=metadata)
    except ConflictError:
        # A session of this name there cannot be: the user was forgotten.
        return session, tuple(turn.model_copy(update={"id": f"{session}:{n}"}) for n, turn in enumerate(turns, 1))


def _given(session: Session, request: Request) -> str | None:
    """The answer that a repeated request got before, if it is the last thing that was said."""
    *before, last = session.turns
    # What follows the results of tools says nothing new; it goes on from what was said last.
    asked = request.new or request.before[-1:]
    same = bool(asked) and last.speaker == ASSISTANT and _same(before[-len(asked) :], asked)
    return last.content if request.repeated and same else None


def _shown(session: str, request: Request, stored: Sequence[Turn], said: Sequence[Turn]) -> tuple[Turn, ...]:
    """The conversation as the model sees it; stored turns keep their ids, so that they are not shown twice."""
    known = {(turn.speaker, turn.text): turn for turn in stored}
    system = [
        Turn(id=f"instructions:{n}", speaker="system", text=text) for n, text in enumerate(request.instructions, 1)
    ]
    before = [
        known.get((turn.speaker, turn.text)) or turn.model_copy(update={"id": f"{session}:before-{n}"})
        for n, turn in enumerate(request.before, 1)
    ]
    return (*system, *before, *said)


def _same(stored: Sequence[Turn], new: Sequence[Turn]) -> bool:
    return [(turn.speaker, turn.text) for turn in stored] == [(turn.speaker, turn.text) for turn in new]


def _last(session: Session) -> datetime:
    return session.turns[-1].time or session.time or datetime.min


def _token() -> str:
    return uuid.uuid4().hex[:12]

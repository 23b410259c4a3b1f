"""Map a running chat to sessions of a memory: which turns are new, and what becomes of the answer.

The messages after the last answer in a request are new; those before are only shown to the model.
A user has one open session at a time, which is searched as it was said until it ends.

A client that repeats a request says nothing twice: turns at the end of the session that have no
answer yet are not stored again. A request that is marked as a repetition gets the stored answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import dspy

from ...async_bridge import in_thread, run_bridged
from ...engines.call_context import Deadline
from ...errors import ConflictError
from ...memory.incoming_items import turns_from_messages, utc_now
from ...programs.answer_stream import AnswerStream
from ...programs.streaming import send_answer_to
from ...records import Context, Session, Turn, format_time
from ..memories.user_memory import UserMemory
from ..memories.view import MemoryView
from .schemas import ChatRequest, RequestExtension, ResponseExtension

ASSISTANT = "assistant"


class Conversation:
    """The conversation of one chat request, in the session that it belongs to.

    `store_new_turns` comes first, then either `ask` or `recall`, then `store_answer`. What tools
    say is left out. If the user is forgotten meanwhile, nothing is stored, but there is an answer.

    Args:
        memory: The memory of the user.
        body: The request.
        session_gap: Time without a turn after which a session is over.
        is_repetition: Whether the client marks the request as a repetition.
    """

    def __init__(
        self,
        memory: UserMemory,
        body: ChatRequest,
        session_gap: timedelta,
        is_repetition: bool = False,
    ) -> None:
        self.memory = memory
        self.body = body
        self.session_id = ""
        """The session of the conversation, once `store_new_turns` was called."""
        self._session_gap = session_gap
        self._is_repetition = is_repetition
        self._extension = body.mempiler or RequestExtension()
        self._earlier_turns: list[Turn] = []
        """The messages up to the last answer in the request."""
        self._new_turns: list[Turn] = []
        """The messages after it; the last one is the question."""
        self._session_turns: tuple[Turn, ...] = ()
        """The turns that the session had before this request."""
        self._stored_turns: tuple[Turn, ...] = ()
        """The new turns as they are stored."""

    def store_new_turns(self) -> str | None:
        """Store the new turns in their session; of a repeated request, return the stored answer.

        From then on, the memory is seen as it was when this began, with the new turns. This takes
        long for a thousand messages, so it is called in a thread.

        Raises:
            MempilerError: See `UserMemory.say`; nothing was stored.
        """
        self._earlier_turns, self._new_turns = _split_at_last_answer(self.body)

        view = self.memory.view()
        self.memory.bind_view(view)
        session_name = self.body.metadata.session if self.body.metadata else None
        session = self._session_to_continue(view.snapshot.open_sessions, session_name or "")
        self._end_other_sessions(view.snapshot.open_sessions, session)

        if session is None:
            self.session_id = session_name or f"chat-{_random_suffix()}"
        else:
            self.session_id = session.id
            self._session_turns = session.turns
            if self._is_repetition:
                stored_answer = self._stored_answer()
                if stored_answer is not None:
                    return stored_answer

            if self._are_new_turns_stored():
                # Their answer failed, or is not there yet.
                self._stored_turns = self._session_turns[-len(self._new_turns) :]
                return None

        if self._new_turns:
            self._store_in_session(view)
        return None

    async def ask(self, answer_stream: AnswerStream | None) -> dspy.Prediction:
        """Answer the question by the program; errors are those of `UserMemory.ask`.

        Args:
            answer_stream: Takes the words of the answer as they come; None if nobody reads them.
        """
        question = self._stored_turns[-1]
        shown_turns = await in_thread(self._shown_turns)
        recent: list[Session] = []
        if shown_turns:
            recent.append(Session(id=self.session_id, turns=shown_turns))

        with send_answer_to(answer_stream):
            return await self.memory.aask(
                question.content,
                recent,
                asked=[question.id],
                date=format_time(utc_now()),
                **self._extension.as_kwargs,
            )

    async def recall(self) -> Context:
        """Return what a language model is shown beside the request, without what the request has."""
        user_texts = [message.text for message in self.body.messages if message.role == "user"]
        questions = [text for text in user_texts if text.strip()]
        if not questions:
            return Context()

        shown_texts = {(message.role, message.text) for message in self.body.messages}
        turn_ids = {turn.id for turn in self._stored_turns}
        for turn in self._session_turns:
            if (turn.speaker, turn.text) in shown_texts:
                turn_ids.add(turn.id)

        recall = partial(
            self.memory.recall,
            questions[-1],
            format_time(utc_now()),
            asked=turn_ids,
            **self._extension.as_kwargs,
        )
        return await run_bridged(recall)

    def store_answer(self, answer: str, context: Context, deadline: Deadline) -> ResponseExtension:
        """Store an answer, and return the field `mempiler` of its response.

        Nothing is stored if the user or the session was forgotten, or if the client gave up.

        Args:
            answer: The whole answer.
            context: What was recalled for it.
            deadline: When the client gives up.
        """
        turns: list[Turn] = []
        if not deadline.passed:
            turns = turns_from_messages([{"role": ASSISTANT, "content": answer}])
        if turns:
            self._store_answer_turns(turns)
        evidence = self.memory.evidence(context.hits)
        return ResponseExtension(session=self.session_id, evidence=evidence)

    # The session

    def _session_to_continue(
        self, open_sessions: Sequence[Session], session_name: str
    ) -> Session | None:
        """Return the open session to which the request belongs; None if a new one begins."""
        now = utc_now()
        candidates: list[Session] = []
        for session in open_sessions:
            # A session in the future was dated by a wrong clock.
            is_recent = abs(now - _last_time(session)) <= self._session_gap
            if is_recent and _has_name(session, session_name):
                candidates.append(session)
        return max(candidates, key=_last_time, default=None)

    def _end_other_sessions(
        self, open_sessions: Sequence[Session], continued: Session | None
    ) -> None:
        """End all open sessions of the user but one, and leave the writing to a worker."""
        for session in open_sessions:
            if session is not continued:
                self.memory.end(session.id, remember=False)

    def _stored_answer(self) -> str | None:
        """Return the answer to this request, if it is the last turn of the session."""
        *turns_before, last_turn = self._session_turns
        if last_turn.speaker != ASSISTANT:
            return None

        # A request that ends with results of tools has no new turns. It goes on from its last turn.
        question = self._new_turns or self._earlier_turns[-1:]
        if not question or not _say_the_same(turns_before[-len(question) :], question):
            return None
        return last_turn.content

    def _are_new_turns_stored(self) -> bool:
        """Return whether the session ends with the new turns, from an earlier try."""
        if not self._new_turns:
            return False
        return _say_the_same(self._session_turns[-len(self._new_turns) :], self._new_turns)

    def _store_in_session(self, view: MemoryView) -> None:
        """Store the new turns, and let the memory be seen as in the view, with them."""
        stored = self._say(self._new_turns)
        if stored.session_id != self.session_id:
            # The session ended meanwhile, and another one continues it.
            self.session_id = stored.session_id
            self._session_turns = ()
        self._stored_turns = stored.turns

        turns = (*self._session_turns, *self._stored_turns)
        session = Session(id=self.session_id, time=turns[0].time, turns=turns)
        self.memory.bind_view(view.with_open_session(session))

    def _say(self, turns: Sequence[Turn]) -> _StoredTurns:
        """Store turns in the session, or in one that continues it (`NAME~...`) if it has ended.

        If the user was forgotten, nothing is stored, and the turns are returned as if they were.
        """
        name = self.session_id.partition("~")[0]
        continuation_id = f"{name}~{_random_suffix()}"
        for session_id in (self.session_id, continuation_id):
            with suppress(ConflictError):
                stored = self.memory.say(session_id, turns, metadata=self._extension.metadata)
                return _StoredTurns(session_id, stored)

        # The continuation cannot have ended, since its name is new: the user was forgotten.
        numbered_turns: list[Turn] = []
        for number, turn in enumerate(turns, start=1):
            turn_id = f"{continuation_id}:{number}"
            numbered_turns.append(turn.model_copy(update={"id": turn_id}))
        return _StoredTurns(continuation_id, tuple(numbered_turns))

    def _store_answer_turns(self, turns: Sequence[Turn]) -> None:
        # A session that has turns is there, unless it ended or was forgotten. Then the answer must
        # not begin it anew.
        may_begin = not (self._stored_turns or self._session_turns)
        try:
            self.memory.say(
                self.session_id, turns, begin=may_begin, metadata=self._extension.metadata
            )
        except ConflictError:
            has_ended = any(item.id == self.session_id for item in self.memory.items())
            if has_ended:
                self._say(turns)

    # What the program is shown

    def _shown_turns(self) -> tuple[Turn, ...]:
        """Return the conversation before the question, as the program is shown it."""
        # Turns that are stored keep their ids, so that they are not recalled as well.
        known_turns = {(turn.speaker, turn.text): turn for turn in self._session_turns}
        earlier_turns: list[Turn] = []
        for number, turn in enumerate(self._earlier_turns, start=1):
            known_turn = known_turns.get((turn.speaker, turn.text))
            if known_turn is None:
                turn_id = f"{self.session_id}:before-{number}"
                known_turn = turn.model_copy(update={"id": turn_id})
            earlier_turns.append(known_turn)

        return (*self._instructions(), *earlier_turns, *self._stored_turns[:-1])

    def _instructions(self) -> list[Turn]:
        """Return the system messages as turns."""
        system_messages = [
            message for message in self.body.messages if message.role in ("system", "developer")
        ]
        texts = [message.text for message in system_messages if message.text]
        return [
            Turn(id=f"instructions:{number}", speaker="system", text=text)
            for number, text in enumerate(texts, start=1)
        ]


class _StoredTurns(NamedTuple):
    """Turns with their ids and times, and the session in which they are."""

    session_id: str
    turns: tuple[Turn, ...]


class _SplitTurns(NamedTuple):
    """The turns of a request."""

    earlier: list[Turn]
    """Up to the last answer."""
    new: list[Turn]


def _split_at_last_answer(body: ChatRequest) -> _SplitTurns:
    """Return the texts of user and assistant, split behind the last answer."""
    messages: list[dict[str, str]] = []
    earlier_count = 0
    for message in body.messages:
        if message.role not in ("user", ASSISTANT):
            continue
        fields = {"role": message.role, "content": message.text}
        if message.name:
            fields["name"] = message.name
        messages.append(fields)
        if message.role == ASSISTANT:
            earlier_count = len(messages)

    return _SplitTurns(
        earlier=turns_from_messages(messages[:earlier_count]),
        new=turns_from_messages(messages[earlier_count:]),
    )


def _last_time(session: Session) -> datetime:
    return session.turns[-1].time or session.time or datetime.min


def _has_name(session: Session, name: str) -> bool:
    """Return whether an open session has a name, or continues one of this name; any has ""."""
    return not name or session.id == name or session.id.startswith(f"{name}~")


def _say_the_same(stored_turns: Sequence[Turn], turns: Sequence[Turn]) -> bool:
    stored_texts = [(turn.speaker, turn.text) for turn in stored_turns]
    return stored_texts == [(turn.speaker, turn.text) for turn in turns]


def _random_suffix() -> str:
    return uuid.uuid4().hex[:12]

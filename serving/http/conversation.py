"""Maps a running chat to sessions of a memory: which turns are new, and what the answer is.

What follows the last answer of a request is new; what comes before is shown to the model only. One session of a user is
open at a time, and searched as it was said until it ends. A client that repeats a request says nothing twice: turns
that stand unanswered are not stored again, and a request marked as a repetition gets the answer that is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import dspy

from ...engines.call_context import Deadline
from ...errors import ConflictError
from ...memory.incoming_items import utc_now, turns_from_messages
from ...programs.answer_stream import AnswerStream
from ...programs.streaming import send_answer_to
from ...records import Context, Session, Turn, format_time
from .schemas import ChatRequest, RequestExtension, ResponseExtension
from ..memories.user_memory import UserMemory

ASSISTANT = "assistant"


@dataclass
class Conversation:
    """What one request of a chat says, in the session that it belongs to; what tools say is left out.

    Of a user who is forgotten while this goes on nothing is stored, and the answer is given all the same.
    """

    memory: UserMemory
    body: ChatRequest
    """What a client sent."""
    session_gap: timedelta
    """Time without a turn after which a session is over."""
    repeated: bool = False
    """Whether the client marks it as a repetition."""
    session: str = field(default="", init=False)
    """The session it belongs to, once it is heard."""
    _extension: RequestExtension = field(default_factory=RequestExtension, init=False)
    _earlier: list[Turn] = field(default_factory=list[Turn], init=False)
    """The conversation up to the last answer."""
    _new: list[Turn] = field(default_factory=list[Turn], init=False)
    """The user's new messages; the last is the question."""
    _before: tuple[Turn, ...] = field(default=(), init=False)
    """What was stored in the session before it."""
    _said: tuple[Turn, ...] = field(default=(), init=False)
    """The new turns, as they are stored."""

    def store_new_turns(self) -> str | None:
        """Stores what is said in the session it belongs to; the memory is then looked at as it was, with that.

        Returns:
            The answer that a repeated request got before; None for any other.

        Raises:
            MempilerError: See `UserMemory.say`; nothing was stored.
        """
        # Of a thousand messages this takes long: not in the event loop.
        said = [
            {"role": message.role, "content": message.text, **({"name": message.name} if message.name else {})}
            for message in self.body.messages
            if message.role in ("user", ASSISTANT)
        ]
        last = max((n for n, message in enumerate(said) if message["role"] == ASSISTANT), default=-1)
        self._earlier, self._new = turns_from_messages(said[: last + 1]), turns_from_messages(said[last + 1 :])
        self.session = (self.body.metadata and self.body.metadata.session) or ""
        self._extension = self.body.mempiler or self._extension
        seen = self.memory.view()
        self.memory.bind_view(seen)
        session = self._continued(seen.snapshot.open_sessions)
        if session is not None:
            self.session, self._before = session.id, session.turns
            if self.repeated and (given := self._given()) is not None:
                return given
            if self._new and _same(self._before[-len(self._new) :], self._new):
                self._said = self._before[-len(self._new) :]
                return None
        self.session = self.session or f"chat-{_token()}"
        if self._new:
            id, self._said = self._say(self._new)
            if id != self.session:
                self.session, self._before = id, ()
            turns = (*self._before, *self._said)
            self.memory.bind_view(seen.with_open_session(Session(id=id, time=turns[0].time, turns=turns)))
        return None

    def ask(self, words: AnswerStream | None) -> dspy.Prediction:
        """Answers by the program; errors as of `UserMemory.ask`.

        Args:
            words: Takes the words of the answer as they come.
        """
        *said, question = self._said
        shown = self._shown(said)
        recent = [Session(id=self.session, turns=shown)] if shown else []
        with send_answer_to(words):
            return self.memory.ask(
                question.content, recent, asked=[question.id], date=format_time(utc_now()), **self._extension.as_kwargs
            )

    def recall(self) -> Context:
        """What a language model is shown beside the request; what stands in that is left out."""
        texts = [message.text for message in self.body.messages if message.role == "user" and message.text.strip()]
        if not texts:
            return Context()
        there = {(message.role, message.text) for message in self.body.messages}
        shown = {turn.id for turn in (*self._before, *self._said) if (turn.speaker, turn.text) in there}
        asked = shown | {turn.id for turn in self._said}
        return self.memory.recall(texts[-1], format_time(utc_now()), asked=asked, **self._extension.as_kwargs)

    def store_answer(self, answer: str, context: Context, deadline: Deadline) -> ResponseExtension:
        """Stores an answer that rests on a context, unless its session was forgotten, or the client does not get it."""
        turns = [] if deadline.passed else turns_from_messages([{"role": ASSISTANT, "content": answer}])
        if turns:
            try:
                self.memory.say(self.session, turns, not (self._said or self._before), self._extension.metadata)
            except ConflictError:
                if any(item.id == self.session for item in self.memory.items()):
                    self._say(turns)
        return ResponseExtension(session=self.session, evidence=self.memory.evidence(context.hits))

    def _continued(self, opened: Sequence[Session]) -> Session | None:
        """The open session to continue, None if one begins; all others of the user end."""
        time, named = utc_now(), self.session
        last = {session.id: session.turns[-1].time or session.time or datetime.min for session in opened}
        mine = [
            session
            for session in opened
            if time - self.session_gap <= last[session.id] <= time + self.session_gap
            and (not named or session.id == named or session.id.startswith(f"{named}~"))
        ]
        chosen = max(mine, key=lambda session: last[session.id], default=None)
        for session in opened:
            if session is not chosen:
                self.memory.end(session.id, remember=False)
        return chosen

    def _say(self, turns: Sequence[Turn]) -> tuple[str, tuple[Turn, ...]]:
        """Stores turns; those of an ended session begin a continuation, `NAME~...`, unless the user was forgotten."""
        new = f"{self.session.partition('~')[0]}~{_token()}"
        for session in (self.session, new):
            with suppress(ConflictError):
                return session, self.memory.say(session, turns, metadata=self._extension.metadata)
        # A session of this name there cannot be: the user was forgotten.
        return new, tuple(turn.model_copy(update={"id": f"{new}:{n}"}) for n, turn in enumerate(turns, 1))

    def _given(self) -> str | None:
        """The answer to this request, if it is the last thing that was said."""
        *before, last = self._before
        # What follows the results of tools says nothing new; it goes on from what was said last.
        asked = self._new or self._earlier[-1:]
        same = bool(asked) and last.speaker == ASSISTANT and _same(before[-len(asked) :], asked)
        return last.content if same else None

    def _shown(self, said: Sequence[Turn]) -> tuple[Turn, ...]:
        """The conversation as the program sees it; stored turns keep their ids, so that they are not shown twice."""
        known = {(turn.speaker, turn.text): turn for turn in self._before}
        texts = (message.text for message in self.body.messages if message.role in ("system", "developer"))
        system = [
            Turn(id=f"instructions:{n}", speaker="system", text=text)
            for n, text in enumerate((text for text in texts if text), 1)
        ]
        before = [
            known.get((turn.speaker, turn.text)) or turn.model_copy(update={"id": f"{self.session}:before-{n}"})
            for n, turn in enumerate(self._earlier, 1)
        ]
        return (*system, *before, *said)


def _same(stored: Sequence[Turn], new: Sequence[Turn]) -> bool:
    return [(turn.speaker, turn.text) for turn in stored] == [(turn.speaker, turn.text) for turn in new]


def _token() -> str:
    return uuid.uuid4().hex[:12]

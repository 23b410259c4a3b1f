"""Map a running chat to sessions of a memory: which turns are new, and what becomes of the answer.

The messages after the last answer in a request are new; those before are only shown to the model.
A user has one open session at a time, which is searched as it was said until it ends.

A client that repeats a request says nothing twice: turns at the end of the session that have no
answer yet are not stored again. A request that is marked as a repetition gets the stored answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import dspy

from ...async_bridge import run_bridged
from ...engines.call_context import Deadline
from ...errors import ConflictError
from ...memory.answers import answer_id_of_turn, new_answer_id
from ...memory.incoming_items import turns_from_messages, utc_now
from ...programs.answer_stream import AnswerStream
from ...programs.streaming import send_answer_to
from ...records import Context, Session, Turn, format_time
from ..memories.user_answers import GivenAnswer
from ..memories.user_memory import UserMemory
from .schemas import ChatRequest, RequestExtension, ResponseExtension

ASSISTANT = "assistant"


class Conversation:
    """The conversation of one chat request, in the session that it belongs to.

    The methods are called in this order: `enter_session`, `stored_answer` and `store_new_turns`,
    then either `turns_before_question` and `ask`, or `recall`, then `store_answer`. What tools say
    is left out. If the user is forgotten meanwhile, nothing is stored, but there is an answer.

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
        """The session of the conversation; "" before `enter_session`."""
        self._session_gap = session_gap
        self._is_repetition = is_repetition
        self._extension = body.mempiler or RequestExtension()
        self._earlier_turns: list[_EarlierTurn] = []
        """The messages up to the last answer in the request."""
        self._new_turns: list[Turn] = []
        """The messages after it; the last one is the question."""
        self._session_turns: tuple[Turn, ...] = ()
        """The turns that the session had before this request."""
        self._stored_turns: tuple[Turn, ...] = ()
        """The new turns as they are stored, with ids and times; () before `store_new_turns`."""
        self._random_answer_id = new_answer_id()

    # The three steps before a model is asked. They take long for a thousand messages, so they are
    # called in a thread.

    def enter_session(self) -> None:
        """Find the session that the request continues, or choose the name of a new one.

        All other open sessions of the user end. From now on the memory is read as it is at this
        moment.
        """
        split_turns = _split_at_last_answer(self.body)
        self._earlier_turns = split_turns.earlier
        self._new_turns = split_turns.new

        view = self.memory.view()
        self.memory.bind_view(view)
        open_sessions = view.snapshot.open_sessions
        session_name = self.body.metadata.session if self.body.metadata else None
        session = self._session_to_continue(open_sessions, session_name or "")
        self._end_other_sessions(open_sessions, session)

        if session is not None:
            self.session_id = session.id
            self._session_turns = session.turns
        else:
            self.session_id = session_name or f"chat-{_random_suffix()}"

    def stored_answer(self) -> str | None:
        """Return the answer that is stored if the client repeats a request that was answered.

        None if the request is no repetition, or was not answered. A user may well say the same
        words twice, so only a request that the client marks counts as a repetition.
        """
        if not self._is_repetition or not self._session_turns:
            return None
        last_turn = self._session_turns[-1]
        if last_turn.speaker != ASSISTANT:
            return None

        # A request that ends with results of tools has no new turns, since these results are no
        # turns. It is recognised by the turn before them.
        question = [_content_of(turn) for turn in self._new_turns]
        if not question:
            question = [turn.stored_content for turn in self._earlier_turns[-1:]]
        if not _ends_with(self._session_turns[:-1], question):
            return None
        return last_turn.content

    def store_new_turns(self) -> None:
        """Store the new turns in the session, unless an earlier try of the request did.

        From now on the memory is read with the new turns.

        Raises:
            MempilerError: See `UserMemory.say`; nothing was stored.
        """
        if not self._new_turns:
            return
        new_contents = [_content_of(turn) for turn in self._new_turns]
        if _ends_with(self._session_turns, new_contents):
            # The session ends with a question that has no answer: the earlier try has failed, or
            # is still being answered. What it stored is seen already.
            self._stored_turns = self._session_turns[-len(self._new_turns) :]
            return

        stored = self._store_turns(self._new_turns)
        if stored.session_id != self.session_id:
            # The session ended meanwhile, and a new one continues it, which has no earlier turns.
            self.session_id = stored.session_id
            self._session_turns = ()
        self._stored_turns = stored.turns

        # The memory is not read again, which takes longer, and would show what other requests have
        # stored since this one began.
        turns = (*self._session_turns, *self._stored_turns)
        session = Session(id=self.session_id, time=turns[0].time, turns=turns)
        view_with_new_turns = self.memory.view().with_open_session(session)
        self.memory.bind_view(view_with_new_turns)

    # The answer

    @property
    def answer_id(self) -> str:
        """The id of the answer, which a repetition of the request gets, too.

        Call `enter_session` before, and `store_new_turns` for a request that was not answered yet.
        """
        question = self._question_turn()
        if question is None:
            # The request asks nothing in words, e.g. by an image alone.
            return self._random_answer_id
        owner = self.memory.owner
        return answer_id_of_turn(owner.tenant, owner.user, question.id)

    def _question_turn(self) -> Turn | None:
        """Return the turn of the session that asks the question; None if there is none."""
        if self._stored_turns:
            return self._stored_turns[-1]

        # The request repeats one that was answered, or ends with what tools say.
        question = self._last_user_text()
        for turn in reversed(self._session_turns):
            if turn.text == question and turn.speaker != ASSISTANT:
                return turn
        return None

    def _last_user_text(self) -> str:
        """Return the words of the user's last message that has any; "" if none has."""
        user_texts = [message.text for message in self.body.messages if message.role == "user"]
        questions = [text for text in user_texts if text.strip()]
        return questions[-1] if questions else ""

    def turns_before_question(self) -> tuple[Turn, ...]:
        """Return the messages of the request before the question, as turns for the program.

        These are the system messages, all messages up to the last answer, and the messages after
        that answer except the last one, which is the question. For a thousand messages this takes
        a while, so it is called in a thread.
        """
        # The program does not recall turns that it is shown anyway, and compares them by their ids.
        # So a message that the session has already stored is shown with its stored id.
        stored_by_content = {_content_of(turn): turn for turn in self._session_turns}
        earlier_turns: list[Turn] = []
        for number, earlier_turn in enumerate(self._earlier_turns, start=1):
            stored_turn = stored_by_content.get(earlier_turn.stored_content)
            if stored_turn is not None:
                earlier_turns.append(stored_turn)
            else:
                turn_id = f"{self.session_id}:before-{number}"
                earlier_turns.append(earlier_turn.turn.model_copy(update={"id": turn_id}))

        new_turns_before_question = self._stored_turns[:-1]
        return (*self._instructions(), *earlier_turns, *new_turns_before_question)

    async def ask(
        self, turns_before_question: Sequence[Turn], answer_stream: AnswerStream | None
    ) -> dspy.Prediction:
        """Answer the question by the program; errors are those of `UserMemory.ask`.

        The request must end with a text of the user, and its new turns must be stored.

        Args:
            turns_before_question: What the program is shown before the question, and does not
                recall.
            answer_stream: Takes the words of the answer as they come; None if nobody reads them.
        """
        question = self._stored_turns[-1]
        recent: list[Session] = []
        if turns_before_question:
            recent.append(Session(id=self.session_id, turns=tuple(turns_before_question)))

        with send_answer_to(answer_stream):
            return await self.memory.aask(
                question.content,
                recent,
                # Otherwise the stored question would be recalled as its own answer.
                asked=[question.id],
                date=format_time(utc_now()),
                answer_id=self.answer_id,
                **self._extension.as_kwargs,
            )

    async def recall(self) -> Context:
        """Return what the memory holds about the user's last message, for a language model.

        What the request itself shows the model is left out.
        """
        question = self._last_user_text()
        if not question:
            return Context()

        recall = partial(
            self.memory.recall,
            question,
            format_time(utc_now()),
            # Turns with these ids are not recalled.
            asked=self._ids_of_turns_in_request(),
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
        return ResponseExtension(
            session=self.session_id, evidence=evidence, answer_id=self.answer_id
        )

    def keep_answer(self, answer: str, context: Context) -> None:
        """Keep the answer of a language model for feedback; `ask` keeps those of the program.

        Args:
            answer: The whole answer.
            context: What was recalled for it.
        """
        question_turn = self._question_turn()
        if question_turn is None or not answer:
            return
        given = GivenAnswer(
            id=self.answer_id,
            question=question_turn.text,
            answer=answer,
            context=context,
            shown_turns=frozenset(self._ids_of_turns_in_request()),
            asking_turns=frozenset({question_turn.id}),
        )
        self.memory.keep_answer(given, self.memory.view())

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

    # Storing

    def _store_turns(self, turns: Sequence[Turn]) -> _StoredTurns:
        """Store turns in the session or, if that has ended, in a new one that continues it.

        If the user was forgotten meanwhile, nothing is stored. The turns are returned with ids all
        the same, because the request is answered nevertheless.
        """
        stored_turns = self._try_to_store(self.session_id, turns)
        if stored_turns is not None:
            return _StoredTurns(self.session_id, stored_turns)

        # A session `NAME` is continued by `NAME~...`, and that one by another `NAME~...`.
        name = self.session_id.partition("~")[0]
        continuation_id = f"{name}~{_random_suffix()}"
        stored_turns = self._try_to_store(continuation_id, turns)
        if stored_turns is None:
            # No session of this new name can have ended, so it was the user who was forgotten.
            stored_turns = _with_ids(turns, continuation_id)
        return _StoredTurns(continuation_id, stored_turns)

    def _try_to_store(self, session_id: str, turns: Sequence[Turn]) -> tuple[Turn, ...] | None:
        """Store turns in a session, which begins if it is not there, and return them as stored.

        None if nothing was stored, because the session has ended or the user was forgotten.
        """
        try:
            return self.memory.say(session_id, turns, metadata=self._extension.metadata)
        except ConflictError:
            return None

    def _store_answer_turns(self, turns: Sequence[Turn]) -> None:
        """Store an answer in the session of its question.

        If the session has ended since the question was stored, the answer is stored in a new
        session that continues the old one. If the session was forgotten, the answer is not stored.
        """
        # A session without turns is not in the store yet, and the answer creates it. That happens
        # if the user sent nothing that is stored, such as an image alone. A session with turns was
        # stored; if it is missing now, it was forgotten, and the answer must not create it again.
        is_session_stored = bool(self._stored_turns or self._session_turns)
        try:
            self.memory.say(
                self.session_id,
                turns,
                begin=not is_session_stored,
                metadata=self._extension.metadata,
            )
        except ConflictError:
            # Raised for an ended session as well as for a forgotten one.
            if self._has_session_ended():
                self._store_turns(turns)

    def _has_session_ended(self) -> bool:
        """Return whether the session has ended; False if it is open or was forgotten."""
        # A session becomes an item when it ends. Of a forgotten one there is nothing.
        return any(item.id == self.session_id for item in self.memory.items())

    # What is shown to models

    def _ids_of_turns_in_request(self) -> set[str]:
        """Return the ids of the session's turns that are messages of the request.

        Clients drop the oldest messages of long chats, so the session has turns that are not.
        """
        contents_in_request = {turn.stored_content for turn in self._earlier_turns}
        contents_in_request.update(_content_of(turn) for turn in self._new_turns)

        turn_ids = {turn.id for turn in self._stored_turns}
        for turn in self._session_turns:
            if _content_of(turn) in contents_in_request:
                turn_ids.add(turn.id)
        return turn_ids

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


class _Content(NamedTuple):
    """What was said and by whom, which tells whether a message is a turn that is stored."""

    speaker: str
    text: str


class _EarlierTurn(NamedTuple):
    """A message that stands before the end of the last answer in a request."""

    turn: Turn
    """As it is shown: with the name that the client gives its speaker."""
    is_answer: bool

    @property
    def stored_content(self) -> _Content:
        """The content under which a session has stored it, if it has."""
        # A client may give answers a name, such as that of a model. They are stored without one.
        speaker = ASSISTANT if self.is_answer else self.turn.speaker
        return _Content(speaker, self.turn.text)


class _SplitTurns(NamedTuple):
    """The turns of a request."""

    earlier: list[_EarlierTurn]
    """Up to the last answer."""
    new: list[Turn]


def _split_at_last_answer(body: ChatRequest) -> _SplitTurns:
    """Return the texts of user and assistant, split behind the last answer."""
    earlier_turns: list[_EarlierTurn] = []
    new_turns: list[Turn] = []
    for message in body.messages:
        if message.role not in ("user", ASSISTANT):
            continue
        fields = {"role": message.role, "content": message.text}
        if message.name:
            fields["name"] = message.name
        # A message without a text gives no turn.
        turns = turns_from_messages([fields])

        if message.role == "user":
            new_turns.extend(turns)
            continue
        # What seemed new stands before this answer.
        earlier_turns.extend(_EarlierTurn(turn, is_answer=False) for turn in new_turns)
        earlier_turns.extend(_EarlierTurn(turn, is_answer=True) for turn in turns)
        new_turns.clear()
    return _SplitTurns(earlier_turns, new_turns)


def _last_time(session: Session) -> datetime:
    return session.turns[-1].time or session.time or datetime.min


def _has_name(session: Session, name: str) -> bool:
    """Return whether an open session has a name, or continues one of this name; any has ""."""
    return not name or session.id == name or session.id.startswith(f"{name}~")


def _content_of(turn: Turn) -> _Content:
    return _Content(turn.speaker, turn.text)


def _ends_with(session_turns: Sequence[Turn], contents: list[_Content]) -> bool:
    """Return whether the last turns of a session have these contents; False for no contents."""
    if not contents:
        return False
    last_turns = session_turns[-len(contents) :]
    return [_content_of(turn) for turn in last_turns] == contents


def _with_ids(turns: Sequence[Turn], session_id: str) -> tuple[Turn, ...]:
    """Return turns with the ids that they would have as the first turns of a session."""
    numbered_turns: list[Turn] = []
    for number, turn in enumerate(turns, start=1):
        numbered_turns.append(turn.model_copy(update={"id": f"{session_id}:{number}"}))
    return tuple(numbered_turns)


def _random_suffix() -> str:
    return uuid.uuid4().hex[:12]

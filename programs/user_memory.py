"""The durable memory of one user: the Python API of production.

    add(session) ── stored and queued ──> remembered now, or by a worker later
    say(session, messages) ... end(session)     the same for an open chat, turn by turn
    ask(question)   memory, and the turns that are not in it yet ──> answer, with what it rests on
    search(query)   the same ──> entries, and no answer

When `add` or `say` returns, the item is on disk. A question is answered from the settled memory, and from the raw
turns that are not in it yet (found as turn RAG finds them): new turns are usable before a model has written them.

Example:
    >>> import mempiler
    >>> from mempiler.engines.models import language_model
    >>> memory = mempiler.build("turn-rag").memory(store="memories.sqlite", user="ada", lm=language_model("offline"))
    >>> memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
    Added(id='D1', position=1, new=True)
    >>> memory.ask("Where did Ada move?").answer
    'I moved to Lisbon.'

Every method may be called from any number of threads, and has an asyncio form with an `a` before its name: `aask` holds
no thread while a model answers, and what reads, searches or writes runs in a few threads. Objects are cheap: make one
per request.

Limits: what a process has in memory of a user is dropped when that process forgets the user, or sees that another one
did (when it next asks for anybody); until then it stays there, unseen. A model's provider keeps what it keeps.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime
from typing import Any, Self, TypeVar

import dspy

from ..engines.lanes import taking_turns
from ..engines.threads import in_thread
from ..engines.vectors import kept_on
from ..memory.incoming import Messages, incoming, now, turns_of
from ..memory.memory import Memory
from ..memory.metadata import Scalar
from ..memory.store import Store
from ..memory.stored import Added, Forgotten, Owner, Summary
from ..records import Context, Found, Item, Query, Turn
from . import live, searching
from .leavings import leaving_nothing, notice
from .live import View, amended, drop, looked_at, stamp_of, view
from .program import MemoryProgram
from .recalling import recalled
from .remember_queued import LEASE, remember_queued, writing_context
from .stored_steps import Remembered
from .user_entries import UserEntries
from .words import as_they_come

T = TypeVar("T")


class UserMemory(UserEntries):
    """One user's memory in a store; `MemoryProgram.memory` makes it.

    Args:
        program: Writes and reads the memory.
        store: Keeps it.
        owner: Whose it is.
        lm: The language model; that of `dspy.settings` at the time of each call if None.
        lease: Seconds after which another worker may take over a write that died, and no longer than which `add` waits
            for one.
        since: What `Store.forgets` was when this began, e.g. a request: nothing is stored if the user was forgotten
            since. Otherwise each call begins anew.
        stop: Checked before every session that is written; if True, the rest stays queued.
    """

    def __init__(
        self,
        program: MemoryProgram,
        store: Store,
        owner: Owner,
        lm: Any = None,
        lease: float = LEASE,
        since: int | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.program, self.store, self.owner = program, store, owner
        self._lm, self._lease, self._since, self._stop = lm, lease, since, stop

    def add(
        self,
        session: Item | Messages,
        id: str | None = None,
        remember: bool = True,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Stores a session, and writes it into the memory.

        Args:
            session: A session, logs, ... of `mempiler.records`, or messages; messages without a time are of now.
            id: Names the session: adding the same one again under its id changes nothing, so a call that failed can
                be repeated. Without an id every call adds a new session.
            remember: False leaves the writing to a worker, and returns as soon as the session is stored.
            metadata: A few plain values by name, by which searches and questions choose sessions (`where`).

        Raises:
            ConflictError: The id belongs to a session with other content; or the user was forgotten meanwhile.
            UserError: The session is empty or malformed, or its metadata are.
            StoreError: It could not be stored, and is not.
            LMError: The endpoint failed. The session is stored; it will be remembered with the next one.
        """
        item, digest = incoming(session, id, metadata)
        added = self.store.add(self.owner, item, digest, self._since, metadata)
        if remember:
            self.remember()
        return added

    def say(
        self,
        session: str,
        messages: Messages | Sequence[Turn],
        begin: bool = True,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> tuple[Turn, ...]:
        """Stores turns of an open session, and returns them with their ids and times.

        Args:
            session: Its id.
            messages: What was said; messages without a time are of now.
            begin: Whether a session that is not there begins; False for an answer, whose user may be forgotten by now.
            metadata: As of `add`; added to those of the session.

        Raises:
            ConflictError: The session has ended, or is not there and is not to begin; or the user was forgotten
                meanwhile.
            UserError: A message is malformed, or the metadata are.
            StoreError: Nothing was stored.
        """
        turns = [turn for part in messages for turn in ([part] if isinstance(part, Turn) else turns_of([part]))]
        time = now()
        dated = [turn if turn.time else turn.model_copy(update={"time": time}) for turn in turns]
        return self.store.append(self.owner, session, dated, begin, self._since, metadata)

    def end(self, session: str, remember: bool = True) -> Added | None:
        """Ends a session, which is then remembered as `add` does; None if there is no such open session."""
        added = self.store.end(self.owner, session)
        if added is not None and remember:
            self.remember()
        return added

    def begun(self, seen: View | None = None) -> Self:
        """The same for one piece of work, e.g. a request: it stores nothing if the user is forgotten from now on.

        Args:
            seen: Of `look`, with which the work began; now if None.
        """
        if self._since is not None:
            return self
        begun = copy.copy(self)
        begun._since = self.store.forgets() if seen is None else seen.snapshot.forgets
        return begun

    def remember(self) -> Remembered:
        """Writes all items that are queued for this user.

        What another worker is writing is waited for, no longer than the lease; the rest stays queued then.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the remedy.
            LMError: The endpoint failed; what is not written stays queued.
        """
        return remember_queued(self.store, self.program, self.owner, self._lm, self._lease, self._stop)

    def look(self) -> View:
        """The memory and what is not in it yet, read once for several uses.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the remedy.
        """
        with leaving_nothing(self.program, self.store, self._lm):
            return amended(self.program, self.store, view(self.program, self.store, self.owner))

    def ask(
        self,
        question: str = "",
        recent: Sequence[Item] = (),
        asked: Sequence[str] = (),
        seen: View | None = None,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **query: Any,
    ) -> dspy.Prediction:
        """Answers from the memory and from what is not in it yet.

        Args:
            question: The question, or request, of the program's task.
            recent: Items that the answer's prompt shows as they are, e.g. the running conversation.
            asked: Ids of stored turns that are the question itself: they would be recalled as its answer.
            seen: What it is answered from, of `look`; what is there now if None.
            where: Conditions of the metadata of sessions (`memory.metadata`): only what rests on such a session.
            since: Only what is of this moment or later; moments without a zone are in UTC.
            until: Only what is from before this moment.
            **query: Further query fields of the task, e.g. `options`, `date`.

        Returns:
            The task's outputs, the recalled `context` (raw turns at its end), and the `memory` it came from.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the remedy.
            UserError: A field of the task is missing, or a condition is malformed.
        """
        seen = self._chosen(seen or self.look(), where, since, until)
        with self._working(seen):
            asking = self._query(seen, _fields(question, query), recent)
            answer = self.program.answer(seen.settled, asking, seen.waiting.but(asked))
        return answer

    def recall(
        self,
        query: str,
        date: Any = None,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        asked: Collection[str] = (),
        seen: View | None = None,
    ) -> Context:
        """What `ask` would answer from: the method's hits, then those among turns that are not in the memory yet.

        Args:
            query: What is asked.
            date: When.
            where: As in `ask`.
            since: As in `ask`.
            until: As in `ask`.
            asked: Ids of stored turns that whoever asks has before them: they are not recalled.
            seen: What is recalled from, of `look`; what is there now if None.
        """
        seen = self._chosen(seen or self.look(), where, since, until)
        with self._working(seen):
            wanted = Query(text=query, date=date, speakers=_speakers(seen))
            found = recalled(self.program.method, seen.settled, wanted, seen.waiting.but(asked)).whole()
        return found

    def search(
        self,
        query: str,
        k: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        seen: View | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Found:
        """Finds the entries nearest to a query, without an answer and without a language model.

        Args:
            query: What is looked for.
            k: Most entries of the memory, and most turns that are not in it yet.
            since: Only what is of this moment or later; moments without a zone are in UTC.
            until: Only what is from before this moment.
            seen: What is searched, of `look`; what is there now if None.
            where: Conditions of the metadata of sessions (`memory.metadata`): only what rests on such a session.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the remedy.
            UserError: `k` is not a number from 1 to 1000, or a condition is malformed.
            EndpointError: The embedder cannot be reached.
        """
        within, seen = self._within(where, since, until), seen or self.look()
        with self._working(seen):
            found = searching.search(self.program.method, seen.settled, seen.waiting, query, k, within)
        return found

    def sources(self, ids: Collection[str], seen: View) -> dict[str, Turn]:
        """Turns that something rests on, by id, each with a time; those that were forgotten or deleted are left out.

        Args:
            ids: Of the turns.
            seen: What was recalled or searched, of `look`.
        """
        wanted = frozenset(ids) - (seen.amendments.withheld if seen.amendments else frozenset())
        items = seen.waiting.items
        waiting = {turn.id: turn.at(item.time) for item in items for turn in item.turns if turn.id in wanted}
        with leaving_nothing(self.program, self.store, self._lm, seen.snapshot.forgets):
            return waiting | live.sources(self.program, self.store, seen, wanted - waiting.keys())

    def read(self) -> Memory:
        """The memory that questions are answered from; the blank one of the method for an unknown user."""
        return self.look().settled

    def items(self) -> tuple[Item, ...]:
        """The raw sessions that were not forgotten, oldest first."""
        return tuple(stored.item for stored in self.store.items(self.owner))

    def status(self) -> Summary | None:
        """How many sessions are stored, queued and failed; None for an unknown user."""
        return next(iter(self.store.users(self.owner.tenant, self.owner.user)), None)

    def forget(self) -> Forgotten:
        """Deletes everything of the user: raw sessions, memory, index, cached texts.

        What is under way for the user, in any process, stores nothing any more.

        Returns:
            What was deleted, and whether its bytes are gone; false for an unknown user.
        """
        return self._forgotten(self.store.forget(self.owner))

    def forget_session(self, id: str, remember: bool = True) -> Forgotten:
        """Deletes one session, and writes the memory anew from the others if it was in it; false if unknown."""
        forgotten = self._forgotten(self.store.forget_item(self.owner, id))
        if forgotten and remember:
            self.remember()
        return forgotten

    def rebuild(self, force: bool = False) -> Remembered:
        """Writes the memory anew from the raw sessions, if another program wrote it; always with `force`.

        Until it is done, questions are answered from the raw turns, and from what has been rebuilt. A rebuild that was
        killed continues with the next call of `remember` or `rebuild`, forced or not.
        """
        own = stamp_of(self.program)
        stamp = self.store.read(self.owner, lambda version: True).stamp
        foreign = stamp is not None and not stamp.writes_like(own)
        planned = next(iter(self.store.rebuilds(own.writer, self.owner.tenant, self.owner.user)), None)
        if foreign or (planned and not planned.begun) or (force and not planned):
            self.store.reset(self.owner, own.writer if force or planned else "")
            drop(self.program, self.store, self.owner)
        done = self.remember()
        if force or planned:
            self.store.end_rebuild(self.owner)
        return done

    def retry(self) -> Remembered:
        """Tries again what could not be written before: failed sessions, and turns that could not be taken in.

        Raises:
            ProgramError: Another program, embedder or version wrote the memory; the message has the remedy.
            LMError: The endpoint failed; what is not written stays as it is.
        """
        self.store.requeue(self.owner)
        return remember_queued(self.store, self.program, self.owner, self._lm, self._lease, self._stop, retry=True)

    async def aadd(
        self,
        session: Item | Messages,
        id: str | None = None,
        remember: bool = True,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """`add` for asyncio."""
        return await in_thread(lambda: self.add(session, id, remember, metadata))

    async def asay(
        self, session: str, messages: Messages | Sequence[Turn], metadata: Mapping[str, Scalar] | None = None
    ) -> tuple[Turn, ...]:
        """`say` for asyncio."""
        return await in_thread(lambda: self.say(session, messages, metadata=metadata))

    async def aend(self, session: str, remember: bool = True) -> Added | None:
        """`end` for asyncio."""
        return await in_thread(lambda: self.end(session, remember))

    async def aask(
        self,
        question: str = "",
        recent: Sequence[Item] = (),
        asked: Sequence[str] = (),
        seen: View | None = None,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **query: Any,
    ) -> dspy.Prediction:
        """`ask` for asyncio: the store is read and the memory searched in a thread, and none waits for the answer."""

        def look() -> View:
            return self._chosen(seen or self.look(), where, since, until)

        found = await in_thread(look)
        with self._working(found):
            asking = await in_thread(lambda: self._query(found, _fields(question, query), recent))
            answer = await self.program.aanswer(found.settled, asking, found.waiting.but(asked))
        return answer

    async def astream(self, question: str = "", **asked: Any) -> AsyncGenerator[str]:
        """The answer of `aask` in parts, while the model writes them; arguments and errors as there.

        Raises:
            AnswerChangedError: The answer is another one than its beginning, which was given already.
        """
        async with aclosing(as_they_come(lambda: self.aask(question, **asked))) as parts:
            async for part in parts:
                yield part

    async def arecall(
        self,
        query: str,
        date: Any = None,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Context:
        """`recall` for asyncio."""
        return await in_thread(lambda: self.recall(query, date, where, since, until))

    async def asearch(
        self,
        query: str,
        k: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Found:
        """`search` for asyncio."""
        return await in_thread(lambda: self.search(query, k, since, until, where=where))

    async def aforget(self) -> Forgotten:
        """`forget` for asyncio."""
        return await in_thread(self.forget)

    async def aforget_session(self, id: str, remember: bool = True) -> Forgotten:
        """`forget_session` for asyncio."""
        return await in_thread(lambda: self.forget_session(id, remember))

    def _query(self, seen: View, fields: dict[str, Any], recent: Sequence[Item]) -> Query:
        """The query of a caller's fields; the raw items are read only for tasks that show the history's end."""
        task = self.program.task
        stored = self.store.items(self.owner) if task.shows_history else []
        items = (one.item for one in stored)
        return task.query(fields, seen.left(items), recent, _speakers(seen))

    def _chosen(
        self, seen: View, where: Mapping[str, Any] | None, since: datetime | None, until: datetime | None
    ) -> View:
        """What of a memory is looked at."""
        return looked_at(self.program, self.store, seen, self._within(where, since, until))

    def _forgotten(self, receipt: Forgotten) -> Forgotten:
        notice(self.program, self.store, self.store.forgets(), self._lm)
        return receipt

    @contextmanager
    def _working(self, seen: View) -> Generator[None]:
        nothing_left = leaving_nothing(self.program, self.store, self._lm, seen.snapshot.forgets)
        asking = taking_turns(("asks", self.owner))  # not behind what the same user has said
        shelf = kept_on(live.shelf(self.program, self.store, seen))
        with nothing_left, writing_context(self.program, self._lm), asking, shelf:
            yield


def _fields(question: str, query: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task that a caller gives."""
    return {**({"question": question} if question else {}), **query}


def _speakers(seen: View) -> tuple[str, ...]:
    said = (turn.speaker for item in seen.waiting.items for turn in item.turns)
    return tuple(dict.fromkeys((*(seen.document.speakers if seen.document else ()), *said)))

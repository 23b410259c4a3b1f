"""The durable memory of one user: the Python API of production.

A question is answered from the finalized memory and from the pending items, which are not in it
yet: what was said can be used before a model has written it into the memory. Methods may be called
from any number of threads; objects are cheap.

Example:
    >>> import mempiler
    >>> from mempiler.engines.lm import language_model
    >>> lm = language_model("offline")
    >>> memory = mempiler.build("turn-rag").memory(store="memories.sqlite", user="ada", lm=lm)
    >>> memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
    Added(id='D1', position=1, new=True)
    >>> memory.ask("Where did Ada move?").answer
    'I moved to Lisbon.'
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, Unpack

import dspy

from ...async_bridge import in_thread, off_loop, run_bridged
from ...memory.answers import check_answer_id, new_answer_id
from ...memory.entry_choice import EntryChoice
from ...memory.incoming_items import Messages, read_incoming_item, turns_from_messages, utc_now
from ...memory.memory import Memory
from ...memory.metadata import Scalar
from ...memory.results import (
    Added,
    Evidence,
    Feedback,
    MemoryStatus,
    Receipt,
    SessionStatus,
    Source,
)
from ...memory.store.owner import Owner
from ...memory.store.store import Store
from ...programs.program import MemoryProgram
from ...programs.streaming import stream_answer
from ...records import Context, Hit, Item, Query, SearchResult, Turn
from ..settings import LEASE
from .entries import UserEntries
from .memories import Memories
from .queue_writer import WriteCounts
from .user_answers import GivenAnswer, UserAnswers, feedback_is_off
from .view import MemoryView
from .writing import write_user_queue

P = ParamSpec("P")
T = TypeVar("T")


def _for_asyncio(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a method for asyncio that runs the given one in a thread."""

    @functools.wraps(method)
    async def run_in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(lambda: method(*args, **kwargs))

    return run_in_thread


class UserMemory:
    """One user's memory in a store; `MemoryProgram.memory` makes it.

    Methods that read or write the memory raise a `ProgramError` if another program, embedder or
    version wrote it; the message has the fix.

    Args:
        memories: Program, store and language model.
        owner: The user.
        lease: Seconds after which another worker may take over a write that died; `add` waits for
            another worker no longer than that.
        stop: Checked before every session that is written; if True, the rest stays queued.
        feedback: Whether answers are kept in the store, so that `feedback` can rate them.
    """

    def __init__(
        self,
        memories: Memories,
        owner: Owner,
        lease: float = LEASE,
        stop: Callable[[], bool] = lambda: False,
        feedback: bool = False,
    ) -> None:
        self.memories = memories
        self.owner = owner
        self.program = memories.program
        self.store = memories.store
        self._lease = lease
        self._stop = stop
        self.keeps_answers = feedback
        """Whether answers are kept, so that `feedback` can rate them."""
        # Both are None until `bind_view`.
        self._forget_count: int | None = None
        self._bound_view: MemoryView | None = None

    @classmethod
    def of(
        cls,
        program: MemoryProgram,
        store: Store | str | Path,
        user: str,
        tenant: str,
        lm: str | dspy.BaseLM | None = None,
        feedback: bool = False,
    ) -> Self:
        """Return the memory of a user; arguments are those of `MemoryProgram.memory`."""
        return cls(Memories(program, store, lm), Owner(user, tenant), feedback=feedback)

    def bind_view(self, view: MemoryView | None = None) -> Self:
        """Make this the memory of one piece of work, e.g. of one request, and return it.

        The first call notes how often somebody has been forgotten. If the user is forgotten while
        the work goes on, the store refuses what the work wants to store.

        Args:
            view: The memory that all reading methods use from now on, so that the work sees one
                state of it. If None, they read the store at each call.
        """
        if self._forget_count is None:
            if view is None:
                self._forget_count = self.store.forgetting.count()
            else:
                self._forget_count = view.snapshot.forget_count
        if view is not None:
            self._bound_view = view
        return self

    def view(self) -> MemoryView:
        """Return the view of `bind_view`, or else the memory as it is now."""
        return self._bound_view or self.memories.view(self.owner)

    @property
    def entries(self) -> UserEntries:
        """The entries of the memory, one by one, e.g. `memory.entries.update(entry_id, text)`."""
        return UserEntries(self.memories, self.owner, self._bound_view, self._forget_count)

    def add(
        self,
        session: Item | Messages,
        id: str | None = None,  # noqa: A002 (the public name)
        remember: bool = True,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store a session, and write it into the memory.

        Args:
            session: A session, logs, ... of `mempiler.records`, or messages; messages without a
                time are of now.
            id: Names the session: adding the same one again under its id changes nothing, so a call
                that failed can be repeated. Without an id every call adds a new session.
            remember: False leaves the writing to a worker, and returns as soon as the session is
                stored.
            metadata: A few plain values by name, by which searches and questions choose sessions
                (`where`).

        Raises:
            ConflictError: The id belongs to a session with other content; or the user or the
                session was forgotten meanwhile.
            UserError: The session is empty or malformed, or its metadata are.
            StoreError: It could not be stored, and is not.
            LMError: The endpoint failed. The session is stored; it will be remembered with the next
                one.
        """
        incoming = read_incoming_item(session, id, metadata)
        added = self.store.items.add(
            self.owner, incoming.item, incoming.digest, self._forget_count, metadata
        )
        if remember:
            self.remember()
        return added

    def replace(
        self,
        session: Item | Messages,
        id: str | None = None,  # noqa: A002 (the public name)
        remember: bool = True,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store a session in the place of the one with its id; add it if there is none.

        The old session is forgotten. The store holds either the old or the new one at any moment,
        also if this process is killed. If the old one was in the memory, the memory is written
        anew. The same session again changes nothing.

        Args:
            session: As of `add`.
            id: The id of both sessions; that of `session` if None.
            remember: As of `add`.
            metadata: Of the new session; nothing is kept of the old one's.

        Raises:
            UserError: There is no id, or the session or its metadata are malformed.
            ConflictError: The user or the session was forgotten meanwhile.
            StoreError: The session could not be stored; the old one is there.
            LMError: The endpoint failed. The new session is stored; it will be remembered with the
                next one.
        """
        incoming = read_incoming_item(session, id, metadata)
        added = self.store.items.replace(
            self.owner, incoming.item, incoming.digest, self._forget_count, metadata
        )
        # If there was an old session, it was forgotten.
        self._drop_caches_if_forgotten()
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
        """Store turns of an open session, and return them with their ids and times.

        Args:
            session: The id of the session.
            messages: What was said: turns, or messages of a chat. Those without a time are of now.
            begin: Whether to begin a session that does not exist. Pass False to store an answer:
                its session began with the question, and is gone if the user was forgotten since.
            metadata: As of `add`; added to those of the session.

        Raises:
            ConflictError: The session has ended; or it does not exist, and `begin` is False; or the
                user or the session was forgotten meanwhile.
            UserError: A message is malformed, or the metadata are.
            StoreError: Nothing was stored.
        """
        turns: list[Turn] = []
        for message in messages:
            if isinstance(message, Turn):
                turns.append(message)
            else:
                # One by one: a message may stand between turns, and its order must stay.
                turns.extend(turns_from_messages([message]))

        now = utc_now()
        dated_turns = [
            turn if turn.time else turn.model_copy(update={"time": now}) for turn in turns
        ]
        return self.store.open_sessions.append(
            self.owner, session, dated_turns, begin, self._forget_count, metadata
        )

    def end(self, session: str, remember: bool = True) -> Added | None:
        """End an open session, and write it into the memory as `add` does.

        Return None if there is no such open session.
        """
        added = self.store.open_sessions.end(self.owner, session)
        if added is not None and remember:
            self.remember()
        return added

    def remember(self) -> WriteCounts:
        """Write all queued items of this user into the memory, and return what was written.

        If another worker writes this user, it is waited for, no longer than the lease. What is not
        written then stays queued.

        Raises:
            LMError: The endpoint failed; the rest stays queued.
        """
        return write_user_queue(self.memories, self.owner, self._lease, self._stop)

    def ask(
        self,
        question: str = "",
        recent: Sequence[Item] = (),
        asked: Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        answer_id: str | None = None,
        **query: Any,
    ) -> dspy.Prediction:
        """Answer from the memory, and from the items that are not in it yet.

        Args:
            question: The question, or request, of the program's task.
            recent: Items that the answer's prompt shows as they are, e.g. the running conversation.
            asked: Ids of stored turns that ask this question. They are not recalled: nothing is
                more similar to a question than the question itself.
            where: Conditions of the metadata of sessions (`memory.metadata`): only what rests on
                such a session is recalled.
            since: Only what is of this moment or later; moments without a zone are in UTC.
            until: Only what is from before this moment.
            answer_id: The id of the answer, from `new_answer_id`; a new one if None. An answer that
                was kept under the same id is replaced.
            **query: Further query fields of the task, e.g. `options`, `date`.

        Returns:
            The task's outputs, the recalled `context`, the `memory` that it came from, and the
            `answer_id`. Raw turns that are not in the memory yet stand at the end of the context.

        Raises:
            UserError: A field of the task is missing, or a condition or the `answer_id` is
                malformed.
        """
        answer_id = new_answer_id() if answer_id is None else check_answer_id(answer_id)

        def read_store() -> tuple[MemoryView, Query]:
            view = self.memories.filtered_view(self.view(), where=where, since=since, until=until)
            return view, self._query(view, question, query, recent)

        # Under asyncio the event loop must not wait for the store. But every change to a thread
        # costs time, so one thread reads both, and none is used if nothing has to be read.
        has_view = self._bound_view is not None and not (where or since or until)
        if has_view and not self.program.task.shows_history:
            view, task_query = read_store()
        else:
            view, task_query = off_loop(read_store)

        pending_items = view.pending.without_turns(asked)
        with self.memories.user_context(view, asks=True):
            prediction = self.program.answer(view.finalized, task_query, pending_items)

        prediction.answer_id = answer_id
        if self.keeps_answers:
            recent_turns = {turn.id for item in recent for turn in item.turns}
            given = GivenAnswer(
                id=answer_id,
                question=question,
                answer=str(prediction.get("answer", "")),
                context=prediction.context,
                shown_turns=frozenset({*recent_turns, *asked}),
                asking_turns=frozenset(asked),
                shows_history=self.program.task.shows_history,
            )
            off_loop(lambda: self.keep_answer(given, view))
        return prediction

    async def aask(
        self,
        question: str = "",
        recent: Sequence[Item] = (),
        asked: Sequence[str] = (),
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        answer_id: str | None = None,
        **query: Any,
    ) -> dspy.Prediction:
        """Answer as `ask` does, for asyncio.

        `ask` runs bridged (see `async_bridge`): where it waits for a model, it is suspended like a
        coroutine, and the event loop goes on. Only reading the store and searching the memory take
        a thread.
        """
        call = functools.partial(
            self.ask,
            question,
            recent=recent,
            asked=asked,
            where=where,
            since=since,
            until=until,
            answer_id=answer_id,
            **query,
        )
        return await run_bridged(call)

    async def astream(self, question: str = "", **asked: Any) -> AsyncGenerator[str]:
        """Yield the answer of `aask` in parts, while the model writes them.

        Arguments and errors are those of `aask`. Whoever wants to rate the answer gives its
        `answer_id`.

        Raises:
            AnswerChangedError: The parts that were yielded are not the beginning of the answer.
        """
        async with aclosing(stream_answer(lambda: self.aask(question, **asked))) as parts:
            async for part in parts:
                yield part

    def keep_answer(self, given: GivenAnswer, view: MemoryView) -> bool:
        """Keep an answer for feedback, if answers are kept here.

        `ask` keeps its answers by itself. This is for answers that a language model gave from what
        `recall` returned.

        Args:
            given: The answer.
            view: The memory that it was given from.

        Returns:
            Whether it was kept. No error is raised if it cannot be.
        """
        if not self.keeps_answers:
            return False
        return UserAnswers(self.memories, view).keep(given)

    def feedback(
        self,
        answer_id: str,
        right: bool | None = None,
        correction: str | None = None,
        useful_entries: Sequence[str] = (),
    ) -> Feedback:
        """Store what the user says about an answer; it replaces earlier feedback on the answer.

        `mempiler questions` makes questions of it, from which a program can be compiled.

        Args:
            answer_id: The `answer_id` of the answer.
            right: Whether it was right; None leaves that open.
            correction: What it should have been. Such an answer counts as wrong.
            useful_entries: Ids of entries, or of stored turns, that hold what the right answer
                needs.

        Returns:
            The feedback, with the version of the memory that the answer was given from.

        Raises:
            ConflictError: Answers are not kept here; or something of the user was forgotten while
                this was under way.
            UnknownAnswerError: There is no such answer, or it is not kept any more.
            UserError: The feedback says nothing, is too long, or names an unknown entry.
        """
        if not self.keeps_answers:
            raise feedback_is_off(self.owner.tenant)
        answers = UserAnswers(self.memories, self.view())
        return answers.rate(answer_id, right, correction, useful_entries)

    def recall(
        self,
        query: str,
        date: Any = None,
        asked: Collection[str] = (),
        **choice: Unpack[EntryChoice],
    ) -> Context:
        """Return what `ask` would answer from: the method's hits, then hits among pending turns.

        Args:
            query: The question.
            date: When it is asked.
            asked: Ids of stored turns that ask this question, and are not recalled.
            **choice: `where`, `since` and `until`, as in `ask`.
        """
        # Under asyncio the event loop must not wait for the store.
        view = off_loop(lambda: self.memories.filtered_view(self.view(), **choice))
        pending_items = view.pending.without_turns(asked)
        method_query = Query(text=query, date=date, speakers=view.speakers)
        with self.memories.user_context(view, asks=True):
            recalled = self.program.method.recall(view.finalized, method_query, pending_items)
            return recalled.full_context()

    def search(
        self, query: str, k: int = 10, fallback: bool = False, **choice: Unpack[EntryChoice]
    ) -> SearchResult:
        """Find the entries nearest to a query, without an answer and without a language model.

        Args:
            query: What is looked for.
            k: The most entries of the memory, and the most pending turns.
            fallback: Whether to return the newest few instead, as `ask` shows them, if the method
                decides that no hit can answer the query: e.g. if there is none, or all of them
                repeat the query.
            **choice: `where`, `since` and `until`, as in `ask`.

        Raises:
            UserError: `k` is not a number from 1 to 1000, or a condition is malformed.
            EndpointError: The embedder cannot be reached.
        """
        memory_filter = self.memories.filter_for(self.owner, **choice)
        view = self.view()
        # A search takes turns like a question, although it asks no language model.
        with self.memories.user_context(view, asks=True):
            # The whole memory is searched, and its hits are filtered: its index is there already.
            result = view.search(query, k, memory_filter)
            if not fallback:
                return result
            # The newest of a memory cannot be filtered afterwards: all of them may be hidden.
            filtered_view = self.memories.filtered_view(view, **choice)
            return filtered_view.with_fallback(query, result)

    aadd = _for_asyncio(add)
    asearch = _for_asyncio(search)

    def evidence(self, hits: Sequence[Hit]) -> tuple[Evidence, ...]:
        """Return hits with the turns that they rest on.

        Turns are left out that the user deleted or reworded, or that were forgotten.
        """
        turns = self._visible_turns(hits)
        evidence: list[Evidence] = []
        for hit in hits:
            # A turn that is missing was deleted, reworded or forgotten.
            hit_turns = [turns[turn_id] for turn_id in hit.sources if turn_id in turns]
            sources = [
                Source(id=turn.id, speaker=turn.speaker, text=turn.content, time=turn.time)
                for turn in hit_turns
            ]
            fields = dict(hit)
            fields["sources"] = sources
            fields["score"] = round(hit.score, 4)
            evidence.append(Evidence.model_validate(fields))
        return tuple(evidence)

    def _visible_turns(self, hits: Sequence[Hit]) -> dict[str, Turn]:
        """Return the turns that are the sources of some hits, by id.

        Turns that are hidden or forgotten are left out.
        """
        view = self.view()
        turn_ids = {turn_id for hit in hits for turn_id in hit.sources}
        if view.amendments is not None:
            turn_ids -= view.amendments.hidden_turn_ids

        # The view has the pending turns, those that are not in the memory yet.
        turns: dict[str, Turn] = {}
        for item in view.pending.items:
            for turn in item.turns:
                if turn.id in turn_ids:
                    turns[turn.id] = turn.at(item.time)

        # The store has the others, except those of forgotten sessions.
        missing_ids = sorted(turn_ids - turns.keys())
        stored_turns = self.store.items.turns(self.owner, missing_ids)
        for turn_id, stored in stored_turns.items():
            turns[turn_id] = stored.turn.at(stored.item.time)
        return turns

    def read(self) -> Memory:
        """Return the memory that questions are answered from; an empty one for an unknown user."""
        return self.view().finalized

    def items(self) -> tuple[Item, ...]:
        """Return the raw sessions that were not forgotten, oldest first."""
        return tuple(stored.item for stored in self.store.items.list_all(self.owner))

    def sessions(self) -> tuple[SessionStatus, ...]:
        """Return how far the sessions got, oldest first, open ones last."""
        statuses: list[SessionStatus] = []
        for stored in self.store.items.list_all(self.owner):
            turn_count = len(stored.item.turns)
            statuses.append(SessionStatus(id=stored.item.id, state=stored.state, turns=turn_count))
        for session in self.store.open_sessions.list_all(self.owner):
            turn_count = len(session.turns)
            statuses.append(SessionStatus(id=session.id, state="open", turns=turn_count))
        return tuple(statuses)

    def status(self) -> MemoryStatus | None:
        """Return how many sessions are stored, queued and failed; None for an unknown user."""
        return next(iter(self.store.users.list_all(self.owner.tenant, self.owner.user)), None)

    def forget(self) -> Receipt:
        """Delete everything of the user: raw sessions, memory, index, cached texts.

        Work for the user that is still running, in this process or another, can no longer store
        anything.

        Returns:
            What was deleted, and whether its bytes are gone. `bool(receipt)` is False for an
            unknown user.
        """
        receipt = self.store.forgetting.forget_user(self.owner)
        self.memories.forget_failures(self.owner)
        self._drop_caches_if_forgotten()
        return receipt

    def forget_session(
        self,
        id: str,  # noqa: A002 (the public name)
        remember: bool = True,
    ) -> Receipt:
        """Delete one session; if it was in the memory, write the memory anew from the others.

        Args:
            id: The id of the session.
            remember: False leaves the writing to a worker.

        Returns:
            What was deleted, and whether its bytes are gone. As a boolean, the receipt is False for
            an unknown session.
        """
        receipt = self.store.forgetting.forget_session(self.owner, id)
        self._drop_caches_if_forgotten()
        if receipt and remember:
            self.remember()
        return receipt

    def rebuild(self, force: bool = False) -> WriteCounts:
        """Write the memory anew from the raw sessions if another program wrote it.

        Until it is done, questions are answered from the raw turns, and from what has been rebuilt.
        If a rebuild is killed, what is left stays queued: the next call of `remember` goes on with
        it, and so does a call of this without `force`. With `force` it begins again.

        Args:
            force: Whether to write it anew also if this program wrote it.
        """
        # The stamp says what wrote the memory; None if there is none.
        stamp = self.store.memories.stamp(self.owner)
        is_foreign = stamp is not None and not stamp.writes_like(self.memories.writer_fingerprint)
        if force or is_foreign:
            # This queues all sessions again.
            self.store.memories.reset(self.owner)
            self.memories.drop(self.owner)
        return self.remember()

    def retry(self) -> WriteCounts:
        """Try failed sessions, and turns that could not be written, once more."""
        self.store.queue.requeue_failed(self.owner)
        return write_user_queue(self.memories, self.owner, self._lease, self._stop, retry=True)

    def _drop_caches_if_forgotten(self) -> None:
        """Drop what this process keeps of its users, after something may have been forgotten."""
        self.memories.drop_forgotten(self.store.forgetting.count())

    def _query(
        self,
        view: MemoryView,
        question: str,
        further_fields: Mapping[str, Any],
        recent: Sequence[Item],
    ) -> Query:
        """Build the query for the program's task from the arguments of `ask`.

        Args:
            view: The memory as it is read for this query.
            question: The question; "" for a task that has none.
            further_fields: The other fields of the task.
            recent: What was said last and is shown to the program.
        """
        task = self.program.task
        fields: dict[str, Any] = {}
        if question:
            fields["question"] = question
        fields.update(further_fields)

        past: tuple[Item, ...] = ()
        # The history is long, so it is only read for tasks that show its end.
        if task.shows_history:
            stored_items = self.store.items.list_all(self.owner)
            past = view.visible_items(stored.item for stored in stored_items)
        return task.query(fields, history=past, new_items=recent, speakers=view.speakers)

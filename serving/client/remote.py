"""One user's memory in a service, under the methods of a memory of this process: each sends one of `verbs`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...memory.listed import PAGE, EntryEvent, Listed, Page
from ...memory.metadata import Scalar
from ...memory.stored import Added, Forgotten, Summary
from ...records import Found, Item
from .verbs import Answered, Messages, SessionState, Verbs

if TYPE_CHECKING:
    from .client import AsyncClient, Client


class RemoteMemory:
    """One user's memory in a service; `Client.memory` makes it. Methods are those of `mempiler.UserMemory`."""

    def __init__(self, client: Client, user: str) -> None:
        self._send, self._verbs = client.send, Verbs(user)

    def add(
        self, session: Item | Messages, id: str | None = None, *, metadata: Mapping[str, Scalar] | None = None
    ) -> Added:
        """Stores a session; it is found at once, and remembered in the background."""
        return self._send(self._verbs.add(session, id, metadata))

    def end(self, session: str) -> Added | None:
        """Ends a session of the chat; None if there is no such open session."""
        return self._send(self._verbs.end(session))

    def ask(
        self,
        question: str,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **query: Any,
    ) -> Answered:
        """Answers from the memory; `query` holds further fields of the task, `options` or `date`."""
        chosen = {"where": where, "since": since, "until": until}
        return self._send(self._verbs.ask(question, chosen, query))

    def search(
        self,
        query: str,
        k: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> Found:
        """Finds the entries nearest to a query, and turns that wait; no answer is made."""
        chosen = {"where": where, "since": since, "until": until}
        return self._send(self._verbs.search(query, k, chosen))

    def list(
        self,
        cursor: str | None = None,
        limit: int = PAGE,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Page:
        """Entries in the order of their ids, a page at a time; none for an unknown user."""
        chosen = {"where": where, "since": since, "until": until}
        return self._send(self._verbs.list(cursor, limit, chosen))

    def get(self, entry: str) -> Listed | None:
        """An entry by its id; None if there is none."""
        return self._send(self._verbs.get(entry))

    def update(self, entry: str, text: str, by: str = "") -> EntryEvent | None:
        """Gives an entry another text; None if there is no such entry."""
        return self._send(self._verbs.update(entry, text, by))

    def delete(self, entry: str, by: str = "") -> EntryEvent | None:
        """Takes an entry out until it is undone; None if there is no such entry."""
        return self._send(self._verbs.delete(entry, by))

    def undo(self, entry: str, by: str = "") -> EntryEvent | None:
        """Takes the last change of an entry back that stands; None if there is none."""
        return self._send(self._verbs.undo(entry, by))

    def history(self, entry: str) -> tuple[EntryEvent, ...]:
        """What became of an entry, oldest first; () if there is none."""
        return self._send(self._verbs.history(entry))

    def read(self) -> Mapping[str, Any]:
        """The memory that questions are answered from, as JSON; empty for an unknown user."""
        return self._send(self._verbs.read())

    def sessions(self) -> tuple[SessionState, ...]:
        """The sessions and how far each got, oldest first, open ones last."""
        return self._send(self._verbs.sessions())

    def status(self) -> Summary | None:
        """How many sessions are stored, queued and failed; None for an unknown user."""
        return self._send(self._verbs.status())

    def forget(self) -> Forgotten:
        """Deletes everything of the user; false for an unknown one."""
        return self._send(self._verbs.forget())

    def forget_session(self, id: str) -> Forgotten:
        """Deletes one session; false if it is unknown."""
        return self._send(self._verbs.forget_session(id))


class AsyncRemoteMemory:
    """One user's memory in a service; `AsyncClient.memory` makes it. Methods are those of `mempiler.UserMemory`."""

    def __init__(self, client: AsyncClient, user: str) -> None:
        self._send, self._verbs = client.send, Verbs(user)

    async def aadd(
        self, session: Item | Messages, id: str | None = None, *, metadata: Mapping[str, Scalar] | None = None
    ) -> Added:
        """Stores a session; it is found at once, and remembered in the background."""
        return await self._send(self._verbs.add(session, id, metadata))

    async def aend(self, session: str) -> Added | None:
        """Ends a session of the chat; None if there is no such open session."""
        return await self._send(self._verbs.end(session))

    async def aask(
        self,
        question: str,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **query: Any,
    ) -> Answered:
        """Answers from the memory; `query` holds further fields of the task, `options` or `date`."""
        chosen = {"where": where, "since": since, "until": until}
        return await self._send(self._verbs.ask(question, chosen, query))

    async def asearch(
        self,
        query: str,
        k: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> Found:
        """Finds the entries nearest to a query, and turns that wait; no answer is made."""
        chosen = {"where": where, "since": since, "until": until}
        return await self._send(self._verbs.search(query, k, chosen))

    async def alist(
        self,
        cursor: str | None = None,
        limit: int = PAGE,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Page:
        """Entries in the order of their ids, a page at a time; none for an unknown user."""
        chosen = {"where": where, "since": since, "until": until}
        return await self._send(self._verbs.list(cursor, limit, chosen))

    async def aget(self, entry: str) -> Listed | None:
        """An entry by its id; None if there is none."""
        return await self._send(self._verbs.get(entry))

    async def aupdate(self, entry: str, text: str, by: str = "") -> EntryEvent | None:
        """Gives an entry another text; None if there is no such entry."""
        return await self._send(self._verbs.update(entry, text, by))

    async def adelete(self, entry: str, by: str = "") -> EntryEvent | None:
        """Takes an entry out until it is undone; None if there is no such entry."""
        return await self._send(self._verbs.delete(entry, by))

    async def aundo(self, entry: str, by: str = "") -> EntryEvent | None:
        """Takes the last change of an entry back that stands; None if there is none."""
        return await self._send(self._verbs.undo(entry, by))

    async def ahistory(self, entry: str) -> tuple[EntryEvent, ...]:
        """What became of an entry, oldest first; () if there is none."""
        return await self._send(self._verbs.history(entry))

    async def aread(self) -> Mapping[str, Any]:
        """The memory that questions are answered from, as JSON; empty for an unknown user."""
        return await self._send(self._verbs.read())

    async def asessions(self) -> tuple[SessionState, ...]:
        """The sessions and how far each got, oldest first, open ones last."""
        return await self._send(self._verbs.sessions())

    async def astatus(self) -> Summary | None:
        """How many sessions are stored, queued and failed; None for an unknown user."""
        return await self._send(self._verbs.status())

    async def aforget(self) -> Forgotten:
        """Deletes everything of the user; false for an unknown one."""
        return await self._send(self._verbs.forget())

    async def aforget_session(self, id: str) -> Forgotten:
        """Deletes one session; false if it is unknown."""
        return await self._send(self._verbs.forget_session(id))

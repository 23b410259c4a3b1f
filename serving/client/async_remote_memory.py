"""One user's memory in a service, for asyncio: the methods of `RemoteMemory`, awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, Unpack

from ...memory.entry_choice import EntryChoice
from ...memory.incoming_items import Messages
from ...memory.metadata import Scalar
from ...memory.results import (
    DEFAULT_PAGE_SIZE,
    Added,
    Answer,
    EntryChange,
    EntryPage,
    Feedback,
    ListedEntry,
    MemoryStatus,
    Receipt,
    SessionStatus,
)
from ...records import Item, SearchResult
from .api_request import ApiRequest
from .user_requests import EntryRequests, UserRequests

T = TypeVar("T")


class AsyncSend(Protocol):
    """Sends a request and returns its result: `AsyncClient.send`."""

    async def __call__(self, request: ApiRequest[T], /) -> T:
        """Send a request."""
        ...


class AsyncRemoteMemory:
    """One user's memory in a service; `AsyncClient.memory` makes it.

    The methods are those of `mempiler.UserMemory`. They raise what `AsyncClient.send` raises.

    Args:
        send: Sends a request.
        user: The name of the user.

    Raises:
        UserError: The name cannot stand in an address.
    """

    def __init__(self, send: AsyncSend, user: str) -> None:
        self._send = send
        self._requests = UserRequests(user)

    @property
    def entries(self) -> AsyncRemoteEntries:
        """The entries of the memory, one by one: `await memory.entries.list()`, ..."""
        return AsyncRemoteEntries(self._send, self._requests.entries)

    async def add(
        self,
        session: Item | Messages,
        id: str | None = None,  # noqa: A002 (the public name)
        *,
        metadata: Mapping[str, Scalar] | None = None,
    ) -> Added:
        """Store a session. It is found at once, and written into the memory in the background.

        Args:
            session: A session, or messages.
            id: Makes the call repeatable: a session is stored once under its id.
            metadata: A few plain values by name, e.g. `{"channel": "phone"}`.

        Raises:
            ConflictError: Another session is stored under the id.
        """
        return await self._send(self._requests.add(session, id, metadata))

    async def end(self, session: str) -> Added | None:
        """End a session of the chat; None if there is no such open session."""
        return await self._send(self._requests.end(session))

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        date: str | None = None,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Answer:
        """Answer from the memory.

        Args:
            question: The question, or request, of the program's task.
            options: What to choose from, if the task is a choice.
            date: When it is asked, in words; now if it is None.
            where: Conditions of the metadata of sessions.
            since: Only what is of this moment or later.
            until: Only what is from before this moment.
        """
        return await self._send(self._requests.ask(question, options, date, where, since, until))

    async def feedback(
        self,
        answer_id: str,
        right: bool | None = None,
        correction: str | None = None,
        useful_entries: Sequence[str] = (),
    ) -> Feedback:
        """Store what the user says about an answer; it replaces earlier feedback on the answer.

        Args:
            answer_id: The `answer_id` of the answer.
            right: Whether it was right; None leaves that open.
            correction: What it should have been. Such an answer counts as wrong.
            useful_entries: Ids of entries, or of stored turns, that hold what the right answer
                needs.

        Raises:
            ConflictError: The service keeps no answers of this tenant.
            UserError: There is no such answer, or the feedback cannot be stored.
        """
        return await self._send(
            self._requests.feedback(answer_id, right, correction, useful_entries)
        )

    async def search(
        self, query: str, k: int = 10, fallback: bool = False, **choice: Unpack[EntryChoice]
    ) -> SearchResult:
        """Find the entries, and the turns not yet written into the memory, nearest to a query.

        No language model is asked.

        Args:
            query: What is looked for.
            k: The most entries, and the most turns.
            fallback: Whether to return the newest few instead if the service decides that no hit
                can answer the query.
            **choice: `where`, `since` and `until`, as in `ask`.
        """
        return await self._send(self._requests.search(query, k, fallback, **choice))

    async def read(self) -> Mapping[str, object]:
        """Return the memory that questions are answered from, as JSON; {} for an unknown user."""
        return await self._send(self._requests.read())

    async def sessions(self) -> tuple[SessionStatus, ...]:
        """Return how far the sessions got, oldest first, open ones last."""
        return await self._send(self._requests.sessions())

    async def status(self) -> MemoryStatus | None:
        """Return how many sessions are stored, queued and failed; None for an unknown user."""
        return await self._send(self._requests.status())

    async def forget(self) -> Receipt:
        """Delete everything of the user. The receipt is false for an unknown user."""
        return await self._send(self._requests.forget())

    async def forget_session(
        self,
        id: str,  # noqa: A002 (the public name)
    ) -> Receipt:
        """Delete one session. The receipt is false for an unknown session."""
        return await self._send(self._requests.forget_session(id))


class AsyncRemoteEntries:
    """The entries of one user's memory in a service; `AsyncRemoteMemory.entries` makes it.

    The methods are those of `mempiler.UserMemory.entries`.

    Args:
        send: Sends a request.
        requests: Builds the requests.
    """

    def __init__(self, send: AsyncSend, requests: EntryRequests) -> None:
        self._send = send
        self._requests = requests

    async def list(
        self,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE_SIZE,
        **choice: Unpack[EntryChoice],
    ) -> EntryPage:
        """Return entries in the order of their ids, a page at a time; none for an unknown user.

        Args:
            cursor: `next` of the page before; None for the first page.
            limit: The most entries of the page.
            **choice: `where`, `since` and `until`, as in `AsyncRemoteMemory.ask`.
        """
        return await self._send(self._requests.list(cursor, limit, **choice))

    async def get(self, entry_id: str) -> ListedEntry | None:
        """Return an entry by its id; None if there is none."""
        return await self._send(self._requests.get(entry_id))

    async def update(self, entry_id: str, text: str, by: str = "") -> EntryChange | None:
        """Give an entry another text; None if there is no such entry."""
        return await self._send(self._requests.update(entry_id, text, by))

    async def delete(self, entry_id: str, by: str = "") -> EntryChange | None:
        """Hide an entry until that is undone; None if there is no such entry."""
        return await self._send(self._requests.delete(entry_id, by))

    async def undo(self, entry_id: str, by: str = "") -> EntryChange | None:
        """Take back the last change of an entry that is in force; None if there is none."""
        return await self._send(self._requests.undo(entry_id, by))

    async def history(
        self, entry_id: str, after: int | None = None, limit: int = DEFAULT_PAGE_SIZE
    ) -> tuple[EntryChange, ...]:
        """Return how an entry was written and each change since; () if there is no such entry.

        Args:
            entry_id: The id of the entry.
            after: `number` of the last change of the page before; None for the first page.
            limit: The most changes of the page.
        """
        return await self._send(self._requests.history(entry_id, after, limit))

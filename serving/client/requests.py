"""The client's HTTP requests: one per operation of a user's memory, and how its response is read.

A call is sent again where that cannot do a thing twice: after 429 and 503 nothing was done for it, and one that got no
answer may be repeatable. Bodies have the form that the service checks them by.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from ...errors import ConflictError, EndpointError, MempilerError, ServiceError, UserError
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
    SessionStatus,
)
from ...memory.incoming_items import Messages
from ...memory.metadata import Scalar
from ...memory.names import storable_text
from ...records import Item, SearchResult, Session
from ...secret_values import Secrets
from ...validation import validation_message
from ...memory.entry_choice import EntryChoice
from ..http.schemas import EntryFilter, Name, NewSession, NewText, Question, Search

T = TypeVar("T")
P = ParamSpec("P")
RemoteT = TypeVar("RemoteT")

NOTHING_DONE = (429, 503)
"""Statuses of requests that were refused before anything was done for them."""
LONGEST_PAUSE = 30.0
"""Most seconds between two attempts, whatever the service asks for."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_WRONG = object()


@dataclass(frozen=True)
class ApiRequest(Generic[T]):
    """One request."""

    method: str
    path: str
    read: Callable[[Any], T]
    """Makes the result of the JSON of an answer."""
    body: Any = None
    params: Mapping[str, str | int] | None = None
    missing: Any = _WRONG
    """What the result is where the service knows no such user, session or entry; an error if nothing is given."""
    repeatable: bool = True
    """Whether it may be sent again after it was sent once. A deletion is not: its second receipt would say that there
    was nothing to delete."""

    def pause(self, found: httpx.Response | httpx.HTTPError, attempt: int) -> float | None:
        """Seconds until it may be sent again; None where it may not."""
        pause = min(LONGEST_PAUSE, 0.2 * 2**attempt)
        if isinstance(found, httpx.HTTPError):
            return pause if self.repeatable or isinstance(found, _NOT_SENT) else None
        if found.status_code not in NOTHING_DONE:
            return None
        asked = found.headers.get("Retry-After", "")
        return min(LONGEST_PAUSE, float(asked)) if asked.isdecimal() else pause

    def result(self, found: httpx.Response | httpx.HTTPError, secrets: Secrets) -> T:
        """What the last attempt came to.

        Args:
            found: The response, or why there is none.
            secrets: What the service was sent, and no error may show.

        Raises:
            MempilerError: The call failed.
        """
        if isinstance(found, httpx.HTTPError):
            secrets.hide_in_error(found)
            raise ServiceError(f"the service did not answer: {type(found).__name__} {found}") from found
        if not found.is_success:
            return self._refused(found, secrets)
        try:
            return self.read(found.json())
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ServiceError(f"{self.method} {self.path}: what answers here is no service of Mempiler") from error

    def _refused(self, response: httpx.Response, secrets: Secrets) -> T:
        status = response.status_code
        try:
            message = secrets.hide(str(response.json()["error"]["message"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            message = f"status {status}, in no form of a service of Mempiler; look at the address"
            raise ServiceError(message, status) from None
        if status == 404 and self.missing is not _WRONG:
            return self.missing
        if status in (408, *NOTHING_DONE) or (status >= 500 and status != 502):
            raise ServiceError(message, status)
        kinds: Mapping[int, type[MempilerError]] = {409: ConflictError, 502: EndpointError}
        raise kinds.get(status, UserError)(message)


class RemoteMemory:
    """One user's memory in a service; `Client.memory` makes it. Methods are those of `mempiler.UserMemory`.

    Args:
        send: Makes a call.
        user: Whose it is.

    Raises:
        UserError: The name cannot stand in an address.
    """

    def __init__(self, send: Callable[[ApiRequest[Any]], Any], user: str) -> None:
        self._api = _UserApi(send, user)

    @property
    def entries(self) -> RemoteEntries:
        """The entries of the memory, one by one: `memory.entries.list()`, `.update(id, text)`, ..."""
        return RemoteEntries(self._api)

    def add(
        self, session: Item | Messages, id: str | None = None, *, metadata: Mapping[str, Scalar] | None = None
    ) -> Added:
        """Stores a session; it is found at once, and remembered in the background."""
        messages: Any = session
        if isinstance(session, Session):
            id = id or session.id or None
            messages = [
                {"role": "user", "name": turn.speaker, "content": turn.content, "time": turn.time or session.time}
                for turn in session.turns
            ]
        elif isinstance(session, Item):
            raise UserError(f"{session.id!r} is no session but {type(session).__name__}; a service takes sessions only")
        body = _body("session", NewSession, id=id, messages=messages, metadata=metadata)
        return self._api.call("POST", "/sessions", Added.model_validate, body, repeatable="id" in body)

    def end(self, session: str) -> Added | None:
        """Ends a session of the chat; None if there is no such open session."""
        return self._api.call("POST", f"{self._session(session)}/end", Added.model_validate, missing=None, repeatable=False)

    def ask(
        self,
        question: str,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **query: Any,
    ) -> Answer:
        """Answers from the memory; `query` holds further fields of the task, `options` or `date`."""
        body = _body("question", Question, question=question, where=where, since=since, until=until, **query)
        return self._api.call("POST", "/ask", Answer.model_validate, body)

    def search(self, query: str, k: int = 10, fallback: bool = False, **choice: Unpack[EntryChoice]) -> SearchResult:
        """Finds the entries nearest to a query, and turns that wait; no answer is made.

        With `fallback`, the newest few are given where nothing found may answer the query.
        """
        body, nothing = _body("search", Search, query=query, k=k, fallback=fallback, **choice), SearchResult((), ())
        return self._api.call("POST", "/search", lambda found: FoundEvidence(**found).search_result, body, missing=nothing)

    def read(self) -> Mapping[str, Any]:
        """The memory that questions are answered from, as JSON; empty for an unknown user."""
        return self._api.call("GET", "/memory", lambda found: MemoryState(**found).memory, missing={})

    def sessions(self) -> tuple[SessionStatus, ...]:
        """The sessions and how far each got, oldest first, open ones last."""
        return self._api.call("GET", "/sessions", lambda found: Sessions(**found).sessions, missing=())

    def status(self) -> MemoryStatus | None:
        """How many sessions are stored, queued and failed; None for an unknown user."""
        return self._api.call("GET", "", MemoryStatus.model_validate, missing=None)

    def forget(self) -> Receipt:
        """Deletes everything of the user; false for an unknown one."""
        return self._forget("", self._api.user)

    def forget_session(self, id: str) -> Receipt:
        """Deletes one session; false if it is unknown."""
        return self._forget(self._session(id), id)

    def _session(self, id: str) -> str:
        return f"/sessions/{quote(_name('session', id), safe='')}"

    def _forget(self, path: str, name: str) -> Receipt:
        unknown = Receipt(forgotten=name, known=False)
        return self._api.call("DELETE", path, Receipt.model_validate, missing=unknown, repeatable=False)


class RemoteEntries:
    """The entries of one user's memory in a service; `RemoteMemory.entries` makes it.

    Methods are those of `mempiler.UserMemory.entries`.
    """

    def __init__(self, api: _UserApi) -> None:
        self._api = api

    def list(
        self, cursor: str | None = None, limit: int = DEFAULT_PAGE_SIZE, **choice: Unpack[EntryChoice]
    ) -> EntryPage:
        """Return entries in the order of their ids, a page at a time; none for an unknown user."""
        params: dict[str, Any] = {"limit": limit}
        if cursor is not None:
            params["cursor"] = cursor
        params |= _body("list", EntryFilter, **choice)
        if "where" in params:
            params["where"] = json.dumps(params["where"])
        return self._api.call("GET", "/entries", EntryPage.model_validate, params=params, missing=EntryPage())

    def get(self, entry_id: str) -> ListedEntry | None:
        """Return an entry by its id; None if there is none."""
        return self._api.call("GET", _entry_path(entry_id), ListedEntry.model_validate, missing=None)

    def update(self, entry_id: str, text: str, by: str = "") -> EntryChange | None:
        """Give an entry another text; None if there is no such entry."""
        path = _entry_path(entry_id)
        return self._change("PATCH", path, body=_body("update", NewText, text=text, by=by))

    def delete(self, entry_id: str, by: str = "") -> EntryChange | None:
        """Hide an entry until that is undone; None if there is no such entry."""
        return self._change("DELETE", _entry_path(entry_id), params={"by": by})

    def undo(self, entry_id: str, by: str = "") -> EntryChange | None:
        """Take back the last change of an entry that is in force; None if there is none."""
        return self._change("POST", f"{_entry_path(entry_id)}/undo", params={"by": by})

    def history(
        self, entry_id: str, after: int | None = None, limit: int = DEFAULT_PAGE_SIZE
    ) -> tuple[EntryChange, ...]:
        """Return how an entry was written and each change since; () if there is no such entry."""
        params = {"limit": limit}
        if after is not None:
            params["after"] = after
        path = f"{_entry_path(entry_id)}/history"
        return self._api.call("GET", path, _changes, params=params, missing=())

    def _change(
        self, method: str, path: str, body: Any = None, params: Mapping[str, str] | None = None
    ) -> EntryChange | None:
        # Made twice, a change would report something else than the first time.
        return self._api.call(
            method, path, _last_change, body, params=params or {}, missing=None, repeatable=False
        )


class _UserApi:
    """The routes of one user in a service.

    Raises:
        UserError: The name of the user cannot stand in an address.
    """

    def __init__(self, send: Callable[[ApiRequest[Any]], Any], user: str) -> None:
        self.user = _name("user", user)
        self._send = send
        self._path = f"/v1/users/{quote(self.user, safe='')}"

    def call(self, method: str, path: str, read: Callable[[Any], Any], body: Any = None, **options: Any) -> Any:
        """Send a request to a route below the user's; `options` are further fields of `ApiRequest`."""
        return self._send(ApiRequest(method, self._path + path, read, body, **options))


def _entry_path(entry_id: str) -> str:
    """Return the route of an entry.

    Raises:
        UserError: The id cannot stand in an address.
    """
    # Callers without types pass anything.
    is_text = isinstance(entry_id, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_text or entry_id in ("", ".", "..") or "/" in entry_id:
        raise UserError(f"entry {entry_id!a:.100}: over HTTP an id is a text without a slash, and more than dots")
    return f"/entries/{quote(storable_text(entry_id), safe='')}"


def _changes(response: Any) -> tuple[EntryChange, ...]:
    return EntryHistory(**response).changes


def _last_change(response: Any) -> EntryChange:
    return EntryHistory(**response).changes[-1]


def _body(what: str, form: type[Any], **given: Any) -> dict[str, Any]:
    """A request's body in the form that the service checks it by."""
    try:
        body = form(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise UserError(f"{what}: {validation_message(error)}") from None
    return body.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _name(what: str, name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise UserError(f"{what} {name!a:.100} cannot stand in an address: {validation_message(error)}") from None


class _Awaited(Generic[RemoteT]):
    """Base of what is over a client for asyncio, where every call returns something to be awaited."""

    _remote: RemoteT


def _awaited(
    method: Callable[Concatenate[RemoteT, P], T],
) -> Callable[Concatenate[_Awaited[RemoteT], P], Awaitable[T]]:
    """Return the form for asyncio of a method."""

    @wraps(method)
    async def call(self: _Awaited[RemoteT], *args: P.args, **kwargs: P.kwargs) -> T:
        response: Any = method(self._remote, *args, **kwargs)
        return await response

    return call


class AsyncRemoteMemory(_Awaited[RemoteMemory]):
    """One user's memory in a service; `AsyncClient.memory` makes it. Methods are those of `mempiler.UserMemory`."""

    def __init__(self, send: Callable[[ApiRequest[Any]], Any], user: str) -> None:
        self._remote = RemoteMemory(send, user)

    @property
    def entries(self) -> AsyncRemoteEntries:
        """The entries of the memory, one by one: `await memory.entries.alist()`, ..."""
        return AsyncRemoteEntries(self._remote.entries)

    aadd = _awaited(RemoteMemory.add)
    aend = _awaited(RemoteMemory.end)
    aask = _awaited(RemoteMemory.ask)
    asearch = _awaited(RemoteMemory.search)
    aread = _awaited(RemoteMemory.read)
    asessions = _awaited(RemoteMemory.sessions)
    astatus = _awaited(RemoteMemory.status)
    aforget = _awaited(RemoteMemory.forget)
    aforget_session = _awaited(RemoteMemory.forget_session)


class AsyncRemoteEntries(_Awaited[RemoteEntries]):
    """The entries of one user's memory in a service; `AsyncRemoteMemory.entries` makes it."""

    def __init__(self, entries: RemoteEntries) -> None:
        self._remote = entries

    alist = _awaited(RemoteEntries.list)
    aget = _awaited(RemoteEntries.get)
    aupdate = _awaited(RemoteEntries.update)
    adelete = _awaited(RemoteEntries.delete)
    aundo = _awaited(RemoteEntries.undo)
    ahistory = _awaited(RemoteEntries.history)

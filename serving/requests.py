"""What can be asked of a service: one request each, how its answer is read, and when it may be sent again.

    Call ──> response ── 2xx ──> its value
                      ── 429, 503: nothing was done ──> again, as the service asks
                      ── else ──> an error of `mempiler.errors`, with the service's own words
         ──> no response ── it was not sent, or may be sent twice ──> again

A call is sent again where that cannot do a thing twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from ..errors import ConflictError, EndpointError, MempilerError, ServiceError, UserError
from ..memory.amending import storable
from ..memory.entries import (
    PAGE,
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
    Users,
)
from ..memory.metadata import Scalar, checked_conditions, checked_metadata
from ..memory.stored import ADDRESSABLE, Owner, name_of
from ..records import Found, Item, Session

T = TypeVar("T")

NOTHING_DONE = (429, 503)
"""Statuses of requests that were refused before anything was done for them."""
LONGEST_PAUSE = 30.0
"""Most seconds between two attempts, whatever the service asks for."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_WRONG = object()
"""That it is an error where the service knows no such user, session or entry."""

Messages = Sequence[Mapping[str, Any]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request."""

    method: str
    path: str
    read: Callable[[Any], T]
    """Makes the result of the JSON of an answer."""
    body: Any = None
    params: Mapping[str, str | int] | None = None
    """What stands behind the `?` of the address."""
    missing: Any = _WRONG
    """What the result is where the service knows no such user, session or entry."""
    repeatable: bool = True
    """Whether it may be sent again after it was sent once. A deletion is not: its second receipt would say that there
    was nothing to delete."""

    def result(self, found: httpx.Response | httpx.HTTPError, attempts_left: int, pause: float) -> T | Pause:
        """What an attempt came to: the result, or a pause before the next one.

        Raises:
            MempilerError: The call failed.
        """
        if isinstance(found, httpx.HTTPError):
            if attempts_left and (self.repeatable or isinstance(found, _NOT_SENT)):
                return Pause(min(LONGEST_PAUSE, pause))
            raise ServiceError(f"the service did not answer: {type(found).__name__} {found}") from found
        if found.status_code == 404 and self.missing is not _WRONG and _problem(found):
            return self.missing
        if found.status_code in NOTHING_DONE and attempts_left:
            return Pause(_asked(found.headers.get("Retry-After"), pause))
        if not found.is_success:
            raise _error(found)
        try:
            return self.read(found.json())
        except (ValueError, LookupError, TypeError) as error:
            raise ServiceError(f"{self.method} {self.path}: what answers here is no service of Mempiler") from error


@dataclass(frozen=True)
class Pause:
    """That a call is to be sent again after some seconds."""

    seconds: float


class Requests:
    """What can be asked of one user's memory, each as the one request that it is; both clients send these.

    Args:
        user: Whose it is.

    Raises:
        UserError: The name cannot stand in an address.
    """

    def __init__(self, user: str) -> None:
        self._user, self._at = Owner(user).user, f"/v1/users/{_segment('user', user)}"

    def add(
        self, session: Item | Messages, id: str | None = None, *, metadata: Mapping[str, Scalar] | None = None
    ) -> Call[Added]:
        """Stores a session; it is found at once, and remembered in the background."""
        given = id or (session.id if isinstance(session, Item) else "")
        said = {"id": given, "metadata": checked_metadata(metadata)}
        body = {"messages": _messages(session), **{name: value for name, value in said.items() if value}}
        return Call("POST", f"{self._at}/sessions", Added.model_validate, body, repeatable=bool(given))

    def end(self, session: str) -> Call[Added | None]:
        """Ends a session of the chat; None if there is no such open session."""
        path = f"{self._at}/sessions/{_segment('session', session)}/end"
        return Call("POST", path, Added.model_validate, missing=None, repeatable=False)

    def ask(
        self,
        question: str,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **query: Any,
    ) -> Call[Answer]:
        """Answers from the memory; `query` holds further fields of the task, `options` or `date`."""
        given = {name: value for name, value in query.items() if value is not None}
        body = {"question": question, **_chosen(where, since, until), **given}
        return Call("POST", f"{self._at}/ask", Answer.model_validate, body)

    def search(
        self,
        query: str,
        k: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> Call[Found]:
        """Finds the entries nearest to a query, and turns that wait; no answer is made."""
        body, nothing = {"query": query, "k": k, **_chosen(where, since, until)}, Found((), ())
        return Call("POST", f"{self._at}/search", lambda found: FoundEvidence(**found).found, body, missing=nothing)

    def list(
        self,
        cursor: str | None = None,
        limit: int = PAGE,
        *,
        where: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Call[EntryPage]:
        """Entries in the order of their ids, a page at a time; none for an unknown user."""
        params = {"limit": limit, **({} if cursor is None else {"cursor": cursor}), **_chosen(where, since, until)}
        if "where" in params:
            params["where"] = json.dumps(params["where"])
        return Call("GET", f"{self._at}/entries", EntryPage.model_validate, params=params, missing=EntryPage())

    def get(self, entry: str) -> Call[ListedEntry | None]:
        """An entry by its id; None if there is none."""
        return Call("GET", self._entry(entry), ListedEntry.model_validate, missing=None)

    def update(self, entry: str, text: str, by: str = "") -> Call[EntryChange | None]:
        """Gives an entry another text; None if there is no such entry."""
        return Call("PATCH", self._entry(entry), _last_change, {"text": text, "by": by}, missing=None, repeatable=False)

    def delete(self, entry: str, by: str = "") -> Call[EntryChange | None]:
        """Takes an entry out until it is undone; None if there is no such entry."""
        return Call("DELETE", self._entry(entry), _last_change, None, {"by": by}, missing=None, repeatable=False)

    def undo(self, entry: str, by: str = "") -> Call[EntryChange | None]:
        """Takes the last change of an entry back that stands; None if there is none."""
        return Call(
            "POST", f"{self._entry(entry)}/undo", _last_change, None, {"by": by}, missing=None, repeatable=False
        )

    def history(self, entry: str) -> Call[tuple[EntryChange, ...]]:
        """What became of an entry, oldest first; () if there is none."""
        return Call("GET", f"{self._entry(entry)}/history", lambda found: EntryHistory(**found).changes, missing=())

    def read(self) -> Call[Mapping[str, Any]]:
        """The memory that questions are answered from, as JSON; empty for an unknown user."""
        return Call("GET", f"{self._at}/memory", lambda found: MemoryState(**found).memory, missing={})

    def sessions(self) -> Call[tuple[SessionStatus, ...]]:
        """The sessions and how far each got, oldest first, open ones last."""
        return Call("GET", f"{self._at}/sessions", lambda found: Sessions(**found).sessions, missing=())

    def status(self) -> Call[MemoryStatus | None]:
        """How many sessions are stored, queued and failed; None for an unknown user."""
        return Call("GET", self._at, MemoryStatus.model_validate, missing=None)

    def forget(self) -> Call[Receipt]:
        """Deletes everything of the user; false for an unknown one."""
        return self._forget(self._at, self._user)

    def forget_session(self, id: str) -> Call[Receipt]:
        """Deletes one session; false if it is unknown."""
        return self._forget(f"{self._at}/sessions/{_segment('session', id)}", id)

    def _entry(self, entry: str) -> str:
        # Callers without types pass anything.
        if not isinstance(entry, str) or entry in ("", ".", "..") or "/" in entry:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(f"entry {entry!a:.100}: over HTTP an id is a text without a slash, and more than dots")
        return f"{self._at}/entries/{quote(storable(entry), safe='')}"

    def _forget(self, path: str, name: str) -> Call[Receipt]:
        unknown = Receipt(forgotten=name, known=False)
        return Call("DELETE", path, Receipt.model_validate, missing=unknown, repeatable=False)


def _last_change(found: Any) -> EntryChange:
    return EntryHistory(**found).changes[-1]


def users() -> Call[list[MemoryStatus]]:
    """The users of the token's tenant."""
    return Call("GET", "/v1/users", lambda found: list(Users(**found).users))


def _error(response: httpx.Response) -> MempilerError:
    """The error of a response that is none of a success."""
    status, problem = response.status_code, _problem(response)
    message = problem or f"status {status}, in no form of a service of Mempiler; look at the address"
    if not problem or status in (408, *NOTHING_DONE) or (status >= 500 and status != 502):
        return ServiceError(message, status)
    kinds: Mapping[int, type[MempilerError]] = {409: ConflictError, 502: EndpointError}
    return kinds.get(status, UserError)(message)


def _problem(response: httpx.Response) -> str:
    """What the service says is wrong; "" if it is something else that answers."""
    try:
        found = response.json()["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


def _asked(header: str | None, otherwise: float) -> float:
    try:
        seconds = float(header or otherwise)
    except ValueError:
        return otherwise
    return min(LONGEST_PAUSE, max(0.0, seconds)) if math.isfinite(seconds) else otherwise


def _segment(what: str, name: str) -> str:
    """A name as a part of an address.

    Raises:
        UserError: It is no name, or could be taken for more than one part.
    """
    name = name_of(what, name)
    if not re.fullmatch(ADDRESSABLE, name):
        raise UserError(
            f"{what} {name!r}: over HTTP a name is letters, digits and _ . @ : + = ~ | -, without a dot first"
        )
    return quote(name, safe="")


def _messages(session: Item | Messages) -> list[dict[str, Any]]:
    """A session as the messages that are sent.

    Raises:
        UserError: It is another item than a session, or no list of messages.
    """
    if isinstance(session, Session):
        turns = session.turns
        messages: Messages = [
            {"role": "user", "name": turn.speaker, "content": turn.content, "time": turn.time or session.time}
            for turn in turns
        ]
    elif isinstance(session, Item):
        raise UserError(f"{session.id!r} is no session but {type(session).__name__}; a service takes sessions only")
    # Callers without types pass anything.
    elif isinstance(session, str | Mapping) or not all(isinstance(message, Mapping) for message in session):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"expected a session or a list of messages, got {type(session).__name__}")
    else:
        messages = session
    return [_dated(message) for message in messages]


def _dated(message: Mapping[str, Any]) -> dict[str, Any]:
    time = message.get("time")
    dated = {**message, "time": time.isoformat() if isinstance(time, datetime) else time}
    return {name: value for name, value in dated.items() if value is not None}


def _chosen(where: Mapping[str, Any] | None, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    """What of a memory is looked at, as it is sent.

    Raises:
        UserError: The conditions are malformed.
    """
    checked_conditions(where)
    conditions = {name: dict(one) if isinstance(one, Mapping) else one for name, one in (where or {}).items()}
    moments = {"since": since, "until": until}
    sent = {name: at.isoformat() for name, at in moments.items() if at is not None}
    return {**({"where": conditions} if conditions else {}), **sent}

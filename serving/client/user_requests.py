"""The requests for one user's memory: each method returns the `ApiRequest` of one operation.

Bodies are checked here by the schemas of the service, so that a mistake is found before anything
is sent. `RemoteMemory` and `AsyncRemoteMemory` send these requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from ...errors import UserError
from ...memory.entry_choice import EntryChoice
from ...memory.incoming_items import Messages
from ...memory.metadata import Scalar
from ...memory.names import storable_text
from ...memory.results import (
    Added,
    Answer,
    EntryChange,
    EntryHistory,
    EntryPage,
    Feedback,
    FoundEvidence,
    ListedEntry,
    MemoryState,
    MemoryStatus,
    Receipt,
    Sessions,
    SessionStatus,
    Users,
)
from ...records import Item, SearchResult, Session
from ...validation import validation_message
from ..http.schemas import (
    Body,
    EntryFilter,
    Name,
    NewFeedback,
    NewSession,
    NewText,
    Question,
    Search,
)
from .api_request import ApiRequest

T = TypeVar("T")

_NAME = TypeAdapter[str](Name)


def users_request(after: str) -> ApiRequest[Users]:
    """Return the request for the page of users whose names come after a name; "" for the first."""
    return ApiRequest("GET", "/v1/users", Users.model_validate, params={"after": after})


class UserRequests:
    """Builds the requests for the memory of one user.

    Args:
        user: The name of the user.

    Raises:
        UserError: The name cannot stand in an address.
    """

    def __init__(self, user: str) -> None:
        self._user = _checked_name("user", user)
        self._path = f"/v1/users/{quote(self._user, safe='')}"
        self.entries = EntryRequests(self._path)

    def add(
        self,
        session: Item | Messages,
        session_id: str | None,
        metadata: Mapping[str, Scalar] | None,
    ) -> ApiRequest[Added]:
        """Return the request that stores a session.

        Raises:
            UserError: It is no session, or the service would refuse its id, messages or metadata.
        """
        if isinstance(session, Session):
            session_id = session_id or session.id or None
            messages: object = _messages_of(session)
        elif isinstance(session, Item):
            raise UserError(
                f"{session.id!r} is no session but {type(session).__name__}; "
                "a service takes sessions only"
            )
        else:
            messages = session

        fields = {"id": session_id, "messages": messages, "metadata": metadata}
        body = _checked_body("session", NewSession, fields)
        return ApiRequest(
            "POST",
            f"{self._path}/sessions",
            Added.model_validate,
            body,
            # With an id, the service recognizes a session that it has stored already. Fields that
            # are None are not in the body.
            is_repeatable="id" in body,
        )

    def end(self, session_id: str) -> ApiRequest[Added | None]:
        """Return the request that ends a session of the chat."""
        return ApiRequest[Added | None](
            "POST",
            f"{self._session_path(session_id)}/end",
            Added.model_validate,
            result_if_missing=None,
            is_repeatable=False,
        )

    def ask(
        self,
        question: str,
        options: Sequence[str] | None,
        date: str | None,
        where: Mapping[str, Any] | None,
        since: datetime | None,
        until: datetime | None,
    ) -> ApiRequest[Answer]:
        """Return the request that answers a question from the memory."""
        fields = {
            "question": question,
            "options": options,
            "date": date,
            "where": where,
            "since": since,
            "until": until,
        }
        body = _checked_body("question", Question, fields)
        return ApiRequest("POST", f"{self._path}/ask", Answer.model_validate, body)

    def feedback(
        self,
        answer_id: str,
        right: bool | None,
        correction: str | None,
        useful_entries: Sequence[str],
    ) -> ApiRequest[Feedback]:
        """Return the request that stores what the user says about an answer."""
        fields = {
            "answer_id": answer_id,
            "right": right,
            "correction": correction,
            "useful_entries": list(useful_entries),
        }
        body = _checked_body("feedback", NewFeedback, fields)
        # The same feedback twice is the same as once, so the request is repeatable.
        return ApiRequest("POST", f"{self._path}/feedback", Feedback.model_validate, body)

    def search(
        self, query: str, k: int, fallback: bool, **choice: Unpack[EntryChoice]
    ) -> ApiRequest[SearchResult]:
        """Return the request that finds the entries nearest to a query."""
        fields = {"query": query, "k": k, "fallback": fallback, **choice}
        body = _checked_body("search", Search, fields)
        return ApiRequest(
            "POST",
            f"{self._path}/search",
            _search_result,
            body,
            result_if_missing=SearchResult(entries=(), pending=()),
        )

    def read(self) -> ApiRequest[Mapping[str, object]]:
        """Return the request for the memory as JSON."""
        return ApiRequest[Mapping[str, object]](
            "GET", f"{self._path}/memory", _memory, result_if_missing={}
        )

    def sessions(self) -> ApiRequest[tuple[SessionStatus, ...]]:
        """Return the request for the sessions and how far each got."""
        return ApiRequest("GET", f"{self._path}/sessions", _sessions, result_if_missing=())

    def status(self) -> ApiRequest[MemoryStatus | None]:
        """Return the request for the counts of sessions."""
        return ApiRequest[MemoryStatus | None](
            "GET", self._path, MemoryStatus.model_validate, result_if_missing=None
        )

    def forget(self) -> ApiRequest[Receipt]:
        """Return the request that deletes everything of the user."""
        return _deletion(self._path, self._user)

    def forget_session(self, session_id: str) -> ApiRequest[Receipt]:
        """Return the request that deletes one session."""
        return _deletion(self._session_path(session_id), session_id)

    def _session_path(self, session_id: str) -> str:
        return f"{self._path}/sessions/{quote(_checked_name('session', session_id), safe='')}"


def _deletion(path: str, name: str) -> ApiRequest[Receipt]:
    """Return the request that deletes a user or a session.

    Args:
        path: The route of what is deleted.
        name: Its name, for the receipt if the service does not know it.
    """
    return ApiRequest(
        "DELETE",
        path,
        Receipt.model_validate,
        result_if_missing=Receipt(forgotten=name, known=False),
        # The receipt of a second deletion would say that there was nothing to delete.
        is_repeatable=False,
    )


class EntryRequests:
    """Builds the requests for single entries of a memory.

    Args:
        user_path: The route of the user.
    """

    def __init__(self, user_path: str) -> None:
        self._path = f"{user_path}/entries"

    def list(
        self, cursor: str | None, limit: int, **choice: Unpack[EntryChoice]
    ) -> ApiRequest[EntryPage]:
        """Return the request for a page of entries."""
        params: dict[str, Any] = {"limit": limit}
        if cursor is not None:
            params["cursor"] = cursor

        params.update(_checked_body("list", EntryFilter, choice))
        if "where" in params:
            params["where"] = json.dumps(params["where"])
        return ApiRequest(
            "GET",
            self._path,
            EntryPage.model_validate,
            params=params,
            result_if_missing=EntryPage(),
        )

    def get(self, entry_id: str) -> ApiRequest[ListedEntry | None]:
        """Return the request for one entry."""
        return ApiRequest[ListedEntry | None](
            "GET", self._entry_path(entry_id), ListedEntry.model_validate, result_if_missing=None
        )

    def update(self, entry_id: str, text: str, by: str) -> ApiRequest[EntryChange | None]:
        """Return the request that gives an entry another text."""
        path = self._entry_path(entry_id)
        body = _checked_body("update", NewText, {"text": text, "by": by})
        return ApiRequest[EntryChange | None](
            "PATCH", path, _last_change, body, result_if_missing=None, is_repeatable=False
        )

    def delete(self, entry_id: str, by: str) -> ApiRequest[EntryChange | None]:
        """Return the request that deletes an entry: it is hidden until that is undone."""
        return ApiRequest[EntryChange | None](
            "DELETE",
            self._entry_path(entry_id),
            parse=_last_change,
            params={"by": by},
            result_if_missing=None,
            # A second deletion would find no entry, and answer that it is unknown.
            is_repeatable=False,
        )

    def undo(self, entry_id: str, by: str) -> ApiRequest[EntryChange | None]:
        """Return the request that takes back the last change of an entry."""
        return ApiRequest[EntryChange | None](
            "POST",
            f"{self._entry_path(entry_id)}/undo",
            _last_change,
            params={"by": by},
            result_if_missing=None,
            is_repeatable=False,
        )

    def history(
        self, entry_id: str, after: int | None, limit: int
    ) -> ApiRequest[tuple[EntryChange, ...]]:
        """Return the request for a page of the changes of an entry."""
        params: dict[str, str | int] = {"limit": limit}
        if after is not None:
            params["after"] = after
        path = f"{self._entry_path(entry_id)}/history"
        return ApiRequest("GET", path, _changes, params=params, result_if_missing=())

    def _entry_path(self, entry_id: str) -> str:
        """Return the route of an entry.

        Raises:
            UserError: The id cannot stand in an address.
        """
        # Callers without type checks may pass anything.
        is_text = isinstance(entry_id, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_text or entry_id in ("", ".", "..") or "/" in entry_id:
            raise UserError(
                f"entry {entry_id!a:.100}: over HTTP an id is a text without a slash, "
                "and more than dots"
            )
        return f"{self._path}/{quote(storable_text(entry_id), safe='')}"


# Checks of what is sent.


def _checked_name(kind: str, name: str) -> str:
    """Return the name of a user or a session in the form in which it is stored.

    Raises:
        UserError: The name cannot stand in an address.
    """
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        reason = validation_message(error)
        raise UserError(f"{kind} {name!a:.100} cannot stand in an address: {reason}") from None


def _checked_body(what: str, schema: type[Body], fields: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields that are set as JSON, if the service's schema accepts them.

    Args:
        what: What is sent, for the message.
        schema: The form that the service expects.
        fields: All fields; None stands for one that is not set.

    Raises:
        UserError: The service would refuse them.
    """
    set_fields = {name: value for name, value in fields.items() if value is not None}
    try:
        body = schema.model_validate(set_fields)
    except ValidationError as error:
        raise UserError(f"{what}: {validation_message(error)}") from None
    return body.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _messages_of(session: Session) -> list[dict[str, object]]:
    """Return the turns of a session as messages; a turn without a time has that of the session.

    All have the role "user". It is the name that says who speaks: a session is the conversation of
    any speakers, also of several people.
    """
    messages: list[dict[str, object]] = []
    for turn in session.turns:
        message = {
            "role": "user",
            "name": turn.speaker,
            "content": turn.content,
            "time": turn.time or session.time,
        }
        messages.append(message)
    return messages


# Results of what comes back.


def _search_result(response: Any) -> SearchResult:
    return FoundEvidence.model_validate(response).search_result


def _memory(response: Any) -> Mapping[str, object]:
    return MemoryState.model_validate(response).memory


def _sessions(response: Any) -> tuple[SessionStatus, ...]:
    return Sessions.model_validate(response).sessions


def _changes(response: Any) -> tuple[EntryChange, ...]:
    return EntryHistory.model_validate(response).changes


def _last_change(response: Any) -> EntryChange:
    return EntryHistory.model_validate(response).changes[-1]

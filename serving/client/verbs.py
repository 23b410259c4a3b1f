"""What can be asked of a service: each verb of a memory as the one request that it is.

`Client` and `AsyncClient` send the same requests; results are the records that a memory of this process returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from ...errors import UserError
from ...memory.listed import EntryEvent, Listed, Page
from ...memory.metadata import Conditions, Scalar, checked_metadata
from ...memory.stored import Added, Forgotten, Owner, Summary
from ...records import Context, Found, Hit, Item, Session
from .call import Call, entry_segment, segment

Messages = Sequence[Mapping[str, Any]]
"""OpenAI-style messages: `role`, `content`, and perhaps `name` and `time`."""


@dataclass(frozen=True)
class Answered:
    """An answer and what it rests on, by the names that they have in the prediction of a memory of this process."""

    answer: str
    context: Context


@dataclass(frozen=True)
class SessionState:
    """How far a session got: open, queued, remembered, partial or failed."""

    id: str
    state: str
    turns: int


def users() -> Call[list[Summary]]:
    """The users of the token's tenant."""
    return Call("GET", "/v1/users", lambda found: [_summary(one) for one in found["users"]])


class Verbs:
    """The verbs of one user's memory.

    Args:
        user: Whose it is.

    Raises:
        UserError: The name cannot stand in an address.
    """

    def __init__(self, user: str) -> None:
        self._owner, self._at = Owner(user), f"/v1/users/{segment('user', user)}"

    def add(self, session: Item | Messages, id: str | None, metadata: Mapping[str, Scalar] | None) -> Call[Added]:
        given = id or (session.id if isinstance(session, Item) else "")
        body = {"messages": _messages(session), **({"id": given} if given else {})}
        if said := checked_metadata(metadata):
            body["metadata"] = said
        return Call("POST", f"{self._at}/sessions", _ADDED.validate_python, body, repeatable=bool(given))

    def end(self, session: str) -> Call[Added | None]:
        path = f"{self._at}/sessions/{segment('session', session)}/end"
        return Call("POST", path, _ADDED.validate_python, missing=lambda: None, repeatable=False)

    def ask(self, question: str, chosen: Mapping[str, Any], query: Mapping[str, Any]) -> Call[Answered]:
        given = {name: value for name, value in query.items() if value is not None}
        return Call("POST", f"{self._at}/ask", _answered, {"question": question, **_chosen(**chosen), **given})

    def search(self, query: str, k: int, chosen: Mapping[str, Any]) -> Call[Found]:
        body = {"query": query, "k": k, **_chosen(**chosen)}
        return Call("POST", f"{self._at}/search", _found, body, missing=lambda: Found((), ()))

    def list(self, cursor: str | None, limit: int, chosen: Mapping[str, Any]) -> Call[Page]:
        params = {"limit": limit, **({} if cursor is None else {"cursor": cursor}), **_chosen(**chosen)}
        if "where" in params:
            params["where"] = json.dumps(params["where"])
        return Call("GET", f"{self._at}/entries", _page, params=params, missing=Page)

    def get(self, entry: str) -> Call[Listed | None]:
        return Call("GET", self._entry(entry), _listed, missing=lambda: None)

    def update(self, entry: str, text: str, by: str) -> Call[EntryEvent | None]:
        body = {"text": text, "by": by}
        return Call("PATCH", self._entry(entry), _last, body, missing=lambda: None, repeatable=False)

    def delete(self, entry: str, by: str) -> Call[EntryEvent | None]:
        params = {"by": by}
        return Call("DELETE", self._entry(entry), _last, params=params, missing=lambda: None, repeatable=False)

    def undo(self, entry: str, by: str) -> Call[EntryEvent | None]:
        path, params = f"{self._entry(entry)}/undo", {"by": by}
        return Call("POST", path, _last, params=params, missing=lambda: None, repeatable=False)

    def history(self, entry: str) -> Call[tuple[EntryEvent, ...]]:
        return Call("GET", f"{self._entry(entry)}/history", _events, missing=tuple)

    def read(self) -> Call[dict[str, Any]]:
        return Call("GET", f"{self._at}/memory", lambda found: dict(found["memory"]), missing=dict)

    def sessions(self) -> Call[tuple[SessionState, ...]]:
        return Call("GET", f"{self._at}/sessions", _states, missing=tuple)

    def status(self) -> Call[Summary | None]:
        return Call("GET", self._at, _summary, missing=lambda: None)

    def forget(self) -> Call[Forgotten]:
        return self._delete(self._at)

    def forget_session(self, id: str) -> Call[Forgotten]:
        return self._delete(f"{self._at}/sessions/{segment('session', id)}")

    def _entry(self, entry: str) -> str:
        return f"{self._at}/entries/{entry_segment(entry)}"

    def _delete(self, path: str) -> Call[Forgotten]:
        unknown = Forgotten(self._owner, known=False)
        return Call("DELETE", path, self._forgotten, missing=lambda: unknown, repeatable=False)

    def _forgotten(self, found: Any) -> Forgotten:
        counts = (found["sessions"], found["turns"], found["erased"], found["held_by"])
        return Forgotten(self._owner, True, *counts)


_ADDED = TypeAdapter(Added)
_LISTED, _EVENT = TypeAdapter(Listed), TypeAdapter(EntryEvent)


def _messages(session: Item | Messages) -> list[dict[str, Any]]:
    """A session as the messages that are sent.

    Raises:
        UserError: It is another item than a session, or no list of messages.
    """
    if not isinstance(session, Item):
        # Callers without types pass anything.
        if isinstance(session, str | Mapping) or not all(isinstance(message, Mapping) for message in session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(f"expected a session or a list of messages, got {type(session).__name__}")
        return [{**message, **_moment(message.get("time"))} for message in session]
    if not isinstance(session, Session):
        raise UserError(f"{session.id!r} is no session but {type(session).__name__}; a service takes sessions only")
    return [
        {"role": "user", "name": turn.speaker, "content": turn.content, **_moment(turn.time or session.time)}
        for turn in session.turns
    ]


def _chosen(where: Mapping[str, Any] | None, since: datetime | None, until: datetime | None) -> dict[str, Any]:
    """What of a memory is looked at, as it is sent.

    Raises:
        UserError: The conditions are malformed.
    """
    Conditions.parse(where)
    conditions = {name: dict(one) if isinstance(one, Mapping) else one for name, one in (where or {}).items()}
    return {**({"where": conditions} if conditions else {}), **_moments(since=since, until=until)}


def _moments(**moments: datetime | None) -> dict[str, str]:
    return {name: at.isoformat() for name, at in moments.items() if at is not None}


def _moment(time: Any) -> dict[str, Any]:
    return {} if time is None else {"time": time.isoformat() if isinstance(time, datetime) else time}


def _summary(found: Any) -> Summary:
    counts = {name: found[name] for name in ("queued", "partial", "failed", "open_turns", "position", "updated")}
    return Summary(Owner.stored(found["user"], ""), items=found["sessions"], stamp=None, **counts)


def _states(found: Any) -> tuple[SessionState, ...]:
    return tuple(SessionState(one["id"], one["state"], one["turns"]) for one in found["sessions"])


def _answered(found: Any) -> Answered:
    return Answered(found["answer"], Context(hits=tuple(map(_hit, found["evidence"]))))


def _found(found: Any) -> Found:
    return Found(*(tuple(map(_hit, found[name])) for name in ("entries", "waiting")))


def _page(found: Any) -> Page:
    return Page(tuple(map(_listed, found["entries"])), found["next"])


def _listed(found: Any) -> Listed:
    return replace(_LISTED.validate_python(found), time=_plain(found["time"]))


def _events(found: Any) -> tuple[EntryEvent, ...]:
    return tuple(replace(_EVENT.validate_python(one), at=_plain(one["at"])) for one in found["changes"])


def _last(found: Any) -> EntryEvent:
    return _events(found)[-1]


def _hit(found: Any) -> Hit:
    about = {name: found[name] for name in ("id", "text", "kind", "score", "label", "speaker")}
    return Hit(**about, time=_plain(found["time"]), sources=tuple(source["id"] for source in found["sources"]))


def _plain(time: str | None) -> datetime | None:
    """A moment of an answer as the records hold it: in UTC, without a zone."""
    return datetime.fromisoformat(time).replace(tzinfo=None) if time else None

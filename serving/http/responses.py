"""What routes answer with: a record as JSON, or 404."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ..memories.user_memory import UserMemory

T = TypeVar("T")


def json_response(record: BaseModel) -> Response:
    """Return the response that holds a record.

    It is called in the thread that made the record: FastAPI would write the JSON in the event loop,
    and a large record would hold up all other requests.
    """
    return Response(record.model_dump_json(by_alias=True), media_type="application/json")


def require_found(result: T | None, kind: str) -> T:
    """Return a result, unless it is empty because there is no such thing.

    Args:
        result: A false value, such as None or an empty tuple, if nothing was found.
        kind: What was looked for, e.g. "entry".

    Raises:
        HTTPException: Nothing was found (404).
    """
    if not result:
        raise HTTPException(404, f"there is no such {kind}")
    return result


def bind_known_user(memory: UserMemory) -> UserMemory:
    """Bind a memory to its view at this moment, and return it.

    Raises:
        HTTPException: Nothing is stored of the user (404).
    """
    view = memory.view()
    # The version is "" for a user of whom nothing is stored.
    require_found(view.snapshot.version, "user")
    return memory.bind_view(view)

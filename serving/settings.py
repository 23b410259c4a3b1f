"""Limits of one service process: each is an option of `mempiler serve`, and a variable MEMPILER_*."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from ..validation import MAX_SECONDS

LEASE = 120.0
"""Seconds after which another process may write the sessions of a user whom a killed one was writing."""
AT_ONCE = 128
"""Users that are written at the same time."""
MAX_MESSAGES = 10_000
"""Messages of which no request can have more, however the limit is set."""

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Count = Annotated[int, Field(ge=0)]
Some = Annotated[int, Field(ge=1)]


class Settings(BaseModel, frozen=True, extra="forbid"):
    """Limits and habits of one service process; a field's description is the help of its option."""

    session_gap: Seconds = Field(default=30.0, description="minutes without a turn after which a chat session ends")
    timeout: Seconds = Field(
        default=60.0, description="seconds for a request; a call to the model should be given less"
    )
    max_body: Some = Field(default=1_000_000, description="bytes of a request")
    max_values: Some = Field(default=20_000, description="JSON values of a request: objects, lists, texts, numbers")
    max_turns: int = Field(default=1000, ge=1, le=MAX_MESSAGES, description="messages of a request")
    max_text: Some = Field(default=100_000, description="characters of a message, a question or a query")
    threads: Some = Field(default=32, description="questions and chats that are worked on at the same time")
    queue: Count = Field(default=512, description="questions and chats that wait for a thread")
    store_threads: Some = Field(default=8, description="other requests that are worked on at the same time")
    store_queue: Count = Field(default=256, description="other requests that wait for a thread")
    tenant_share: float = Field(
        default=0.5, ge=0, le=1, description="part of threads and places that one of several tenants may hold"
    )
    keep_alive: Seconds = Field(
        default=30.0, description="seconds after which a connection without a request is closed"
    )
    writers: Count = Field(
        default=AT_ONCE, description="users that are written at the same time; 0 leaves that to other processes"
    )
    lease: float = Field(
        default=LEASE, ge=1, le=600, description="seconds until others write whom a killed process was writing"
    )
    grace: float = Field(
        default=20.0, ge=0, le=MAX_SECONDS, description="seconds to finish what is in progress when stopped"
    )
    mcp: bool = Field(default=False, description="let agents reach memories as tools, at /v1/mcp (extra: mcp)")

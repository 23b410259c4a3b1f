"""Limits of one service process: options of `mempiler serve`, and variables `MEMPILER_*`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from ..validation import MAX_SECONDS

LEASE = 120.0
"""Seconds after which another process may write the sessions of a user, if the process that was
writing them was killed."""
AT_ONCE = 128
"""Users that are written at the same time."""
MAX_MESSAGES = 10_000
"""The most messages of a request, whatever `max_turns` allows."""

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]


class Settings(BaseModel, frozen=True, extra="forbid"):
    """Limits of one service process; the description of a field is the help of its option."""

    # What one request may be.
    timeout: Seconds = Field(
        default=60.0,
        description="seconds for a request; a call to the model should be given less",
    )
    max_body: PositiveCount = Field(default=1_000_000, description="bytes of a request")
    max_values: PositiveCount = Field(
        default=20_000, description="JSON values of a request: objects, lists, texts, numbers"
    )
    max_turns: int = Field(default=1000, ge=1, le=MAX_MESSAGES, description="messages of a request")
    max_text: PositiveCount = Field(
        default=100_000, description="characters of a message, a question or a query"
    )
    keep_alive: Seconds = Field(
        default=30.0, description="seconds after which a connection without a request is closed"
    )

    feedback: bool = Field(
        default=False,
        description="keep answers, so that users can rate them; a tenant may be set apart from this"
        " in the token file",
    )

    # How many requests are in progress.
    threads: PositiveCount = Field(
        default=32, description="questions and chats that are worked on at the same time"
    )
    queue: Count = Field(default=512, description="questions and chats that wait for their turn")
    store_threads: PositiveCount = Field(
        default=8, description="other requests that are worked on at the same time"
    )
    store_queue: Count = Field(default=256, description="other requests that wait for their turn")
    tenant_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="part of all requests in progress that one of several tenants may have",
    )

    # What a tenant may use, in all processes together.
    tenant_requests_per_minute: int | None = Field(
        default=None, ge=0, le=10**9, description="requests of a tenant in a minute"
    )
    tenant_max_usd_per_day: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        description="US dollars of a tenant's model calls in a day of UTC",
    )

    # The background worker, and the end of the process.
    session_gap: Seconds = Field(
        default=30.0, description="minutes without a turn after which a chat session ends"
    )
    writers: Count = Field(
        default=AT_ONCE,
        description="users that are written at the same time; 0 leaves that to other processes",
    )
    lease: float = Field(
        default=LEASE,
        ge=1,
        le=600,
        description="seconds until others write whom a killed process was writing",
    )
    grace: float = Field(
        default=20.0,
        ge=0,
        le=MAX_SECONDS,
        description="seconds to finish what is in progress when stopped",
    )

    mcp: bool = Field(
        default=False, description="let agents reach memories as tools, at /v1/mcp (extra: mcp)"
    )

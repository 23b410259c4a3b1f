"""Which entries of a memory a question, a search or a list looks at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict


class EntryChoice(TypedDict, total=False):
    """Conditions on entries; without one, all entries are looked at.

    They are arguments of a search, e.g. `memory.search("Lisbon", where={"channel": "phone"})`.
    """

    where: Mapping[str, Any] | None
    """Conditions on the metadata of sessions: only entries that rest on such a session."""
    since: datetime | None
    """Only entries of this moment or later. A moment without a zone is in UTC."""
    until: datetime | None
    """Only entries from before this moment."""

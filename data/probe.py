"""Reads objects with uncertain field names: by known names, then by likely ones, reporting which matched.

    {"timestamp": "2024-03-05", "mood": "good"} ── Probe.named ──> {"date": "2024-03-05"}
                                                    remarks: 'timestamp' is read as 'date'; 'mood' is not read

For file forms that were described but not seen. A remark about a name is made once, however many objects have it.

Example:
    >>> from mempiler.data.probe import Probe
    >>> probe = Probe({"session": {"date": ("timestamp",)}}, lambda finding: None)
    >>> probe.named("session", {"timestamp": "2024-03-05", "mood": "good"}, "session 1")
    {'date': '2024-03-05'}

Limits: a likely name may mean something else; the remarks are there to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .dataset import Finding, Note

_DATES = ("%B %d, %Y", "%d %B %Y", "%b %d, %Y", "%d %b %Y", "%Y/%m/%d", "%m/%d/%Y")


class Probe:
    """Reads the objects of one file; remembers what it has remarked on.

    Args:
        aliases: For each kind of object its names, and by which other names each may go.
        note: Called with each remark.
    """

    def __init__(self, aliases: Mapping[str, Mapping[str, tuple[str, ...]]], note: Note) -> None:
        self._aliases = aliases
        self._note = note
        self._told: set[tuple[str, str]] = set()

    def named(self, kind: str, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The object under our own names, without what is not read.

        Args:
            kind: A key of the aliases.
            row: The object as it is in the file.
            where: Its place, for remarks.
        """
        known, left = {}, dict(row)
        for name, others in self._aliases[kind].items():
            given = next((each for each in (name, *others) if each in left), None)
            if given is None:
                continue
            known[name] = left.pop(given)
            if given != name:
                self._tell("other name", kind, given, where, f"{given!r} of a {kind} is read as {name!r}")
        for name in left:
            self._tell("unknown key", kind, str(name), where, f"{name!r} of a {kind} is not read")
        return known

    def _tell(self, finding: str, kind: str, name: str, where: str, message: str) -> None:
        if (kind, name) not in self._told:
            self._told.add((kind, name))
            self._note(Finding(finding, where, message))


def read_date(value: Any) -> datetime | None:
    """The moment that a date means, its time zone left out; None if unknown.

    ISO dates, "March 5, 2024", "5 March 2024" and "2024/03/05" are known; "03/05/2024" is read as in the US.
    """
    text = str(value or "").strip()
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        pass
    for form in _DATES:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    return None

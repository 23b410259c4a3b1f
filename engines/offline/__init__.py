"""The offline engine: answers without weights, key or network.

    request ─ prompt ─> fields, types, demos ─ view ─> query, material ─ fill ─> values ─ render ─> reply

`engine` says what it is and is not; `answers` finds text, `votes` chooses among options by what came of like cases,
`groups` says what several records share, `lessons` learns lists from demos, `units` and `dates` read lines, records and
time expressions.
"""

from .engine import AsyncOfflineEngine, OfflineEngine

__all__ = ["AsyncOfflineEngine", "OfflineEngine"]

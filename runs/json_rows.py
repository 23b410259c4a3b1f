"""What the tables of a run need of their file; `run_store.RunStore` is such a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class JsonRows(Protocol):
    """Rows in a few tables. A row has a scope, an id and a JSON value."""

    def get(self, table: str, scope: str, row_id: str) -> Any | None:
        """Return the value of a row, or None."""
        ...

    def put(self, table: str, scope: str, row_id: str, value: Any) -> None:
        """Write and commit a row."""
        ...

    def all(self, table: str, scope: str) -> list[Any]:
        """Return the values of all rows of a scope, in the order of the numbers in their ids."""
        ...

    def ids(self, table: str, scope: str, ids: Sequence[str]) -> set[str]:
        """Return those of some ids that have a row."""
        ...

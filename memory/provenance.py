"""Which turns a memory rests on, for any memory: the ids in every `sources` of its JSON form."""

from __future__ import annotations

from pydantic import BaseModel, JsonValue


def stored_sources(memory: BaseModel) -> frozenset[str]:
    """Ids of all turns that something in the memory names as its source; removed entries do not count."""
    found: set[str] = set()
    _collect(memory.model_dump(mode="json"), found)
    return frozenset(found)


def _collect(value: JsonValue, found: set[str]) -> None:
    if isinstance(value, list):
        for part in value:
            _collect(part, found)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name == "sources" and isinstance(part, list):
                found.update(str(source) for source in part)
            elif name != "removed":
                _collect(part, found)

"""The adapters that programs run under, by name.

    with dspy.context(adapter=adapter("json")):
        program(history=history, question="Where does Ada live?")

| name      | prompts ask for                              | an unreadable answer |
|-----------|----------------------------------------------|----------------------|
| `chat`    | headers, `[[ ## answer ## ]]`                | is asked for again   |
| `json`    | a JSON object                                | is asked for again   |
| `auto`    | JSON under a schema where that works, headers | is asked for again   |
| `compact` | the bare value, in short prompts for small models | is an error     |
"""

from __future__ import annotations

import dspy

from ..errors import UnknownNameError
from ._correcting_adapter import CorrectingAdapter
from ._json_adapter import JsonAdapter
from .auto_adapter import AutoAdapter
from .compact_adapter import CompactAdapter

ADAPTERS: dict[str, type[dspy.Adapter]] = {
    "auto": AutoAdapter,
    "chat": CorrectingAdapter,
    "json": JsonAdapter,
    "compact": CompactAdapter,
}
"""Adapters by the name that `--adapter` and manifests give."""


def adapter(name: str = "chat") -> dspy.Adapter:
    """Return a new adapter.

    Raises:
        UnknownNameError: There is no adapter of this name.
    """
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ADAPTERS)
    return ADAPTERS[name]()

"""The adapters programs run under, by name."""

from __future__ import annotations

import dspy

from ..errors import UnknownNameError
from .auto_adapter import AutoAdapter
from .compact_adapter import CompactAdapter
from .correcting import CorrectingAdapter, JsonAdapter

ADAPTERS = {
    "auto": AutoAdapter,
    "chat": CorrectingAdapter,
    "json": JsonAdapter,
    "compact": CompactAdapter,
}


def adapter(name: str = "chat") -> dspy.Adapter:
    """Makes the adapter of a name that a manifest or `--adapter` gives.

    Raises:
        UnknownNameError: There is no such adapter.
    """
    if name not in ADAPTERS:
        raise UnknownNameError("adapter", name, ADAPTERS)
    return ADAPTERS[name]()

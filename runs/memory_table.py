"""The memories of histories in the store of a run.

A memory is stored as what has changed since the memory before it, which it names by its version. If
the memory before it has been written again, its version is another one, and the changes are not
used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

import dspy

from ..engines.usage import Usage
from ..errors import UserError
from ..memory.changes import apply_changes, diff
from ..memory.memory import Memory
from ..programs.cache import CachedMemory, MemoryKey, WriteCall
from ..programs.field_values import dump_values, load_values
from ..programs.state import signature_of
from ..programs.writer import Writer
from ..records import Item
from .json_rows import JsonRows

_TABLE = "nodes"


class MemoryTable:
    """Memories by the key of their writer and the digest of the items in them.

    It is the `programs.cache.MemoryStore` of a run.

    Args:
        file: The file with the memories.
    """

    def __init__(self, file: JsonRows) -> None:
        self._file = file

    def number_of_longest_stored(self, key: str, prefixes: Sequence[str]) -> int:
        """Return which of some prefixes is the longest that has a stored memory.

        Args:
            key: The key of the writer.
            prefixes: Digests of prefixes of a history, from the shortest to the longest.

        Returns:
            The number of that prefix: 1 for the first of `prefixes`, 2 for the second, and so on; 0
            if none has a stored memory.
        """
        stored_prefixes = self._file.ids(_TABLE, key, prefixes)
        longest = 0
        for number, prefix in enumerate(prefixes, start=1):
            if prefix in stored_prefixes:
                longest = number
        return longest

    def get(
        self, key: MemoryKey, writer: Writer[Any], item: Item | None, parent: CachedMemory
    ) -> CachedMemory | None:
        """Return a stored memory; None if it is not there or cannot be used any more.

        Args:
            key: The key of the writer, and the digest of all items that are in the memory.
            writer: The writer, which knows the class of the memory.
            item: The item that was written last; None for a finalized memory.
            parent: The memory that this one was written from. The record may hold only what has
                changed since.
        """
        record = self._file.get(_TABLE, *key)
        if record is None:
            return None

        # The parent may have been written again since. Then the changes do not fit it.
        if "changes" in record and record.get("base") != parent.version:
            return None

        predictors = writer.predictors_below()
        try:
            memory = _load_memory(record, writer, parent)
            write_calls = tuple(_load_write_call(predictors, call) for call in record["steps"])
            usage = Usage(**record.get("taken", {}))
        except (ValueError, TypeError, KeyError, IndexError, UserError):
            # An older version of the method's code wrote the record. It may lack values that this
            # version needs, or hold values of another type.
            return None

        return CachedMemory(
            memory=memory,
            item=item,
            write_calls=write_calls,
            parent=parent,
            version=record.get("version", ""),
            usage=usage,
        )

    def put(self, key: MemoryKey, writer: Writer[Any], node: CachedMemory) -> CachedMemory:
        """Store a memory, and return it with a new version.

        Args:
            key: The key of the writer, and the digest of all items that are in the memory.
            writer: The writer of the memory.
            node: The memory. It has no failures: `MemoryCache` stores no memory that a failed call
                left incomplete.
        """
        version = uuid4().hex
        record: dict[str, Any] = {"version": version}

        parent = node.parent
        if parent is not None and parent.version:
            record["base"] = parent.version
            record["changes"] = diff(parent.memory, node.memory)
        else:
            # The parent cannot be read from the store again, so this memory is stored as a whole.
            record["memory"] = node.memory.model_dump(mode="json")

        # The calls of the writer's predictors, by their names below it, and what the item took.
        predictors = writer.predictors_below()
        record["steps"] = [_dump_write_call(predictors, call) for call in node.write_calls]
        record["taken"] = asdict(node.usage)

        self._file.put(_TABLE, *key, record)
        return replace(node, version=version)


def _load_memory(record: dict[str, Any], writer: Writer[Any], parent: CachedMemory) -> Memory:
    """Return the memory of a record.

    Args:
        record: It holds either the whole memory, or what has changed since the parent.
        writer: The writer, which knows the class of the memory.
        parent: The memory that the record was written from.
    """
    if "changes" in record:
        return apply_changes(parent.memory, record["changes"])
    return writer.Memory.model_validate(record["memory"])


def _dump_write_call(predictors: Mapping[str, dspy.Predict], call: WriteCall) -> dict[str, Any]:
    """Return a call of a predictor as JSON."""
    signature = signature_of(predictors[call.predictor])
    values = {**call.inputs, **call.prediction.toDict()}
    return {"predictor": call.predictor, "values": dump_values(signature, values)}


def _load_write_call(predictors: Mapping[str, dspy.Predict], record: dict[str, Any]) -> WriteCall:
    """Return a call of a predictor from its JSON."""
    name = record["predictor"]
    signature = signature_of(predictors[name])
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for field, value in load_values(signature, record["values"], name).items():
        if field in signature.input_fields:
            inputs[field] = value
        if field in signature.output_fields:
            outputs[field] = value
    return WriteCall(name, inputs, dspy.Prediction(**outputs))

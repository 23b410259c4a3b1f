"""The store of a run: LM answers, written memories and answered questions, in one SQLite file of its folder.

Resume is replay: the same command runs again from its seed, and calls that the file holds are not repeated. Every
row is committed at once (write-ahead log), so a killed process loses only calls that were in flight.

    answers    digest of a call (model, messages, settings, rollout id) and its number -> the provider's answer
    nodes      writer key and history prefix                            -> memory and the steps that wrote it
    rows       phase and question id                                    -> the scored row
    vectors    embedder and digest of a text                            -> what it made of it

A node holds what changed since the node before it, which it names: where that was written again with another result,
it is not used.
"""

from __future__ import annotations

import base64
import copy
import json
import sqlite3
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import dspy

from ..engines.usage import Usage
from ..errors import DataError, UserError
from ..memory.changes import apply_changes, diff
from ..memory.memory import Memory
from ..programs.writer import Writer
from ..programs.cache import CachedMemory, WriteCall
from ..programs.field_values import dump_values, load_values
from ..programs.state import signature_of
from ..programs.single_flight import SingleFlight
from ..records import Item
from ..records.shared_by_copies import SharedByCopies
from .rows import Row

_TABLES = "CREATE TABLE IF NOT EXISTS {name} (scope TEXT, id TEXT, value TEXT, PRIMARY KEY (scope, id)) WITHOUT ROWID"
_LONG = 1000
"""Characters from which on a value is compressed."""
_AT_ONCE = 500
"""Ids that are looked up with one statement."""


class RunStore:
    """The four tables of a run; its methods raise as it does, where the file is damaged or cannot be used any more.

    Args:
        path: The SQLite file; created if it is not there.

    Raises:
        UserError: It cannot be opened or written.
        DataError: It is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            for name in ("answers", "nodes", "rows", "vectors"):
                self._database.execute(_TABLES.format(name=name))
        except sqlite3.OperationalError as error:
            raise UserError(f"{path}: cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: is no file of a run: {error}") from error
        self.answers = AnswerTable(self)
        self.nodes = NodeTable(self)
        self.rows = RowTable(self)

    def part(self, name: str) -> RunStore:
        """The same file for a part of the run: rows of its own, memories and equal answers are those of all parts."""
        found = copy.copy(self)
        found.answers, found.rows = AnswerTable(self, f"{name}:"), RowTable(self, f"{name}:")
        return found

    def get(self, table: str, scope: str, id: str) -> Any | None:
        """The JSON value of a row, or None."""
        found = self._execute("read", f"SELECT value FROM {table} WHERE scope=? AND id=?", (scope, id))
        if not found:
            return None
        value = found[0][0]
        try:
            return json.loads(zlib.decompress(value) if isinstance(value, bytes) else value)
        except (zlib.error, ValueError) as error:
            raise DataError(f"{self.path}: is damaged: {error}; delete it, or start a new run") from error

    def put(self, table: str, scope: str, id: str, value: Any) -> None:
        """Writes and commits a row."""
        text = json.dumps(value, ensure_ascii=False)
        # Steps repeat what was said before them, and prompts repeat it again.
        kept = text if len(text) < _LONG else zlib.compress(text.encode(), 1)
        self._execute("written", f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", (scope, id, kept))

    def all(self, table: str, scope: str) -> list[Any]:
        """The JSON values of all rows of a scope, in the order of the numbers that end their ids."""
        found = self._execute("read", f"SELECT id FROM {table} WHERE scope=?", (scope,))
        parted = sorted((part, int(number), id) for (id,) in found for part, _, number in [id.rpartition(":")])
        return [self.get(table, scope, id) for _, _, id in parted]

    def ids(self, table: str, scope: str, ids: Sequence[str]) -> set[str]:
        """Those of some ids that have a row."""
        found: set[str] = set()
        for at in range(0, len(ids), _AT_ONCE):
            some = ids[at : at + _AT_ONCE]
            marks = ",".join("?" * len(some))
            statement = f"SELECT id FROM {table} WHERE scope=? AND id IN ({marks})"
            found |= {id for (id,) in self._execute("read", statement, (scope, *some))}
        return found

    def _execute(self, what: str, statement: str, values: tuple[str | bytes, ...]) -> list[Any]:
        try:
            with self._lock:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            raise UserError(f"{self.path}: cannot be {what}: {error}; put that right and resume the run") from error
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.path}: is damaged: {error}; delete it, or start a new run") from error

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._database.close()


@dataclass(eq=False)
class AnswerTable(SharedByCopies):
    """Answers of LM calls.

    Where DSPy's own LM cache is on, equal calls are one call, here as there. Where it is off, the second of two equal
    calls has an answer of its own, filed under its number: merging them would rob sampling of its variety. Numbers are
    counted within a part of the run: one that is done is not there to count when the run is resumed.
    """

    store: RunStore
    part: str = ""
    _flight: SingleFlight = field(default_factory=lambda: SingleFlight(capacity=10_000))
    _lock: Any = field(default_factory=threading.Lock)
    _made: Counter[str] = field(default_factory=Counter[str])

    def get_or_compute(
        self, key: str, compute: Callable[[], dict[str, Any]], merged: bool = False
    ) -> tuple[dict[str, Any], bool]:
        """The record of a call, by its digest, and whether it was there before; equal calls may share one answer."""
        number = "0"
        if not merged:
            with self._lock:
                number = f"{self.part}{self._made[key]}"
                self._made[key] += 1
        made = False

        def make() -> dict[str, Any]:
            nonlocal made
            record = self.store.get("answers", key, number)
            if record is None:
                made, record = True, compute()
                self.store.put("answers", key, number, record)
            return record

        # A call that has a number of its own is nobody else's.
        return self._flight.get_or_compute((key, number), make) if merged else make(), not made

    def all(self, key: str) -> list[dict[str, Any]]:
        """The records of all calls of a digest, in the order in which they were made."""
        return self.store.all("answers", key)


@dataclass(eq=False)
class NodeTable:
    """Nodes of the memory cache."""

    store: RunStore

    def count_stored(self, key: str, prefixes: Sequence[str]) -> int:
        """How many of a history's prefixes there are up to the last one that has a node."""
        found = self.store.ids("nodes", key, prefixes)
        return max((n for n, prefix in enumerate(prefixes, 1) if prefix in found), default=0)

    def get(self, key: tuple[str, str], writer: Writer, item: Item | None, parent: CachedMemory) -> CachedMemory | None:
        """Reads a node; None if it is not there, or was written by code that has changed since."""
        found = self.store.get("nodes", *key)
        if found is None:
            return None
        predictors = writer.predictors_below()
        try:
            memory = _read(found, writer, parent)
            steps = tuple(_load_step(predictors, step) for step in found["steps"])
        except (ValueError, TypeError, KeyError, IndexError, UserError):
            return None
        taken = Usage(**found.get("taken", {}))
        return memory and CachedMemory(memory, item, steps, (), parent, found.get("version", ""), taken)

    def put(self, key: tuple[str, str], writer: Writer, node: CachedMemory) -> CachedMemory:
        """Writes a node that has no failure: the whole memory only where the one before cannot be made again."""
        predictors, parent = writer.predictors_below(), node.parent
        steps, version = [_dump_step(predictors, step) for step in node.write_calls], uuid4().hex
        if parent is not None and parent.version:
            held: dict[str, Any] = {"base": parent.version, "changes": diff(parent.memory, node.memory)}
        else:
            held = {"memory": node.memory.model_dump(mode="json")}
        self.store.put("nodes", *key, {"version": version, **held, "steps": steps, "taken": asdict(node.usage)})
        return replace(node, version=version)


@dataclass(eq=False)
class RowTable:
    """The journal: rows of questions that were answered in a phase of the run, or of a part of it."""

    store: RunStore
    part: str = ""

    def known(self, phase: str, ids: Sequence[str]) -> dict[str, Row]:
        """The rows of those questions that were answered, by their ids."""
        scope = self.part + phase
        found = ((id, self.store.get("rows", scope, id)) for id in self.store.ids("rows", scope, ids))
        return {id: Row.model_validate(row) for id, row in found if row is not None}

    def put(self, phase: str, row: Row) -> None:
        """Writes the row of a question that was answered; failed ones are tried again when the run is resumed."""
        if row.failure is None:
            self.store.put("rows", self.part + phase, row.id, row.model_dump(mode="json"))


@dataclass(eq=False)
class VectorTable:
    """What an embedder made of texts, as an `engines.call_context.VectorCache`, and what there is to know of it."""

    store: RunStore
    embedder: str

    @property
    def about(self) -> dict[str, Any] | None:
        """What was written down of the embedder; None for one that the run did not use."""
        return self.store.get("vectors", self.embedder, "")

    def describe(self, about: dict[str, Any]) -> None:
        """Writes down what there is to know of the embedder."""
        self.store.put("vectors", self.embedder, "", about)

    def read(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The vectors that are there, by key."""
        known = self.store.ids("vectors", self.embedder, [key.hex() for key in keys])
        found = {bytes.fromhex(id): self.store.get("vectors", self.embedder, id) for id in known}
        return {key: base64.b64decode(str(value)) for key, value in found.items()}

    def write(self, vectors: Mapping[bytes, bytes]) -> None:
        """Writes vectors by key."""
        for key, content in vectors.items():
            self.store.put("vectors", self.embedder, key.hex(), base64.b64encode(content).decode())


def _read(found: dict[str, Any], writer: Writer, parent: CachedMemory) -> Memory | None:
    if "changes" not in found:
        return writer.Memory.model_validate(found["memory"])
    return apply_changes(parent.memory, found["changes"]) if found["base"] == parent.version else None


def _dump_step(predictors: Mapping[str, dspy.Predict], step: WriteCall) -> dict[str, Any]:
    signature = signature_of(predictors[step.predictor])
    values = {**step.inputs, **step.prediction.toDict()}
    return {"predictor": step.predictor, "values": dump_values(signature, values)}


def _load_step(predictors: Mapping[str, dspy.Predict], step: dict[str, Any]) -> WriteCall:
    name = step["predictor"]
    signature = signature_of(predictors[name])
    values = dict(load_values(signature, step["values"], name))
    inputs = {key: value for key, value in values.items() if key in signature.input_fields}
    outputs = {key: value for key, value in values.items() if key in signature.output_fields}
    return WriteCall(name, inputs, dspy.Prediction(**outputs))

"""Plays a recording: every call gets the answer of then, and one that the recording does not have ends the run."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from dspy.clients.call_result import CallResult

from ... import __version__
from ...engines.embedders import OFFLINE, TextEmbedder
from ...engines.guard import Guard
from ...engines.meter import MeteredLM
from ...engines.models import is_local
from ...errors import DataError, UserError
from .calls import Numbers, asked, result_of
from .file import Answer, Call, Model, Refused, Source, Vector, public_name, read_header, read_lines, text_key
from .recorder import Models

QUOTED = 80
"""Characters of a prompt that a message quotes."""


class Player:
    """A recording that is played; read whole, and used from many threads.

    Args:
        path: The file.

    Raises:
        DataError: It is no recording.
        UserError: It is cut short.
    """

    live = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = read_header(path)
        self._numbers = Numbers()
        self._calls: dict[tuple[str, int], Call] = {}
        self._last: dict[str, Call] = {}
        self._parts: defaultdict[str, list[list[str]]] = defaultdict(list)
        self._sources: dict[str, Source] = {}
        self._vectors: dict[str, dict[str, np.ndarray]] = {}
        self._lock = threading.Lock()
        self._missing: UserError | None = None
        for line in read_lines(path):
            self._take(line)

    def begin(self, models: Models) -> None:
        """Nothing: the models are those of the header."""

    def model(self, role: str, name: str) -> str:
        """The name by which the model of a role is made: its recorded one.

        Raises:
            UserError: The role has none.
        """
        found = self._model(role)
        if found is None or is_local(found.model):
            raise UserError(f"--replay {self.path}: was recorded without a {role} model: {self.header.command_line}")
        return name if name == OFFLINE else found.model

    def fitted(self, role: str, lm: MeteredLM) -> MeteredLM:
        """The model, with the sizes that the recorded one had."""
        found = self._model(role)
        if found is not None:
            lm.window = found.window
            lm.kwargs |= {} if found.max_tokens is None else {"max_tokens": found.max_tokens}
        return lm

    def _model(self, role: str) -> Model | None:
        models = self.header.models
        return models.get(role) or (models.get("task") if role == "prompt" else None)

    def admitted(self, lm: MeteredLM, call: Any, make: Callable[[], CallResult]) -> Callable[[], CallResult]:
        """Finds a call; as `Tape.admitted`."""
        known = asked(lm, call)
        key, number = known["key"], self._numbers.next(known["key"])
        line, last = self._calls.get((key, number)), self._last.get(key)
        if line is None and last is not None and number > last.number and not isinstance(last.found, Answer):
            line = last
        if line is None:
            raise self._miss(self._reason(known, call, last is not None), lm.guard)
        found = line.found
        if isinstance(found, Refused):
            lm.guard.refuse(found.reason, found.struck)
        lm.guard.admit()
        return lambda: result_of(lm, found)

    def embedder(self, name: str, make: Callable[[], Any], guard: Guard) -> Any:
        """The recorded embedder of a name; the offline one, which makes no call, is made.

        Raises:
            UserError: There is none.
        """
        if name == OFFLINE:
            return make()
        source = self._sources.get(public_name(name))
        if source is None:
            raise UserError(f"--replay {self.path}: holds no vectors of {name}: {self.header.command_line}")
        vectors = self._vectors.get(source.name, {})
        (dimension,) = {len(row) for row in vectors.values()} or {source.dimension}

        def compute(texts: Sequence[str]) -> np.ndarray:
            missing = next((text for text in texts if text_key(text) not in vectors), None)
            if missing is not None:
                near = "data, options or earlier answers differ"
                raise self._miss(f"no vector of {source.name} for the text {_words(missing)!r}: {near}", guard)
            return np.stack([vectors[text_key(text)] for text in texts])

        return TextEmbedder(name, compute, dimension, source.pair, query=source.query, passage=source.passage)

    def close(self, finished: bool) -> None:
        """Ends a run from which a call was missing, whatever has become of the error.

        Raises:
            UserError: A call was missing.
        """
        if finished and self._missing is not None:
            raise self._missing

    def _take(self, line: Call | Source | Vector) -> None:
        if isinstance(line, Source):
            self._sources[line.name] = line
        elif isinstance(line, Vector):
            rows, row = self._vectors.setdefault(line.name, {}), line.array(self.path)
            if any(len(other) != len(row) for other in [next(iter(rows.values()), row)]):
                raise DataError(f"{self.path}: holds vectors of several lengths; record again")
            rows[line.key] = row
        else:
            self._calls[line.key, line.number] = line
            if line.number >= self._last.setdefault(line.key, line).number:
                self._last[line.key] = line
            self._parts[line.by].append(line.parts)

    def _miss(self, reason: str, guard: Guard) -> UserError:
        of = "" if self.header.version == __version__ else f" with Mempiler {self.header.version}"
        command = self.header.command_line
        with self._lock:
            told = f"--replay {self.path}: has {reason}; recorded{of}: {command}; repeat it with --record"
            self._missing = self._missing or UserError(told)
        guard.stop(self._missing)
        return self._missing

    def _reason(self, known: Mapping[str, Any], call: Any, again: bool) -> str:
        """What is missing, and what is nearest to it."""
        by, parts = known["by"], known["parts"]
        messages = call.legacy.get("messages") or [{}]
        recorded = self._parts.get(by, [])
        if again:
            near = "it was not asked so often"
        elif any(parts in each for each in self._parts.values()):
            near = "the same prompt was recorded with other settings or another model"
        elif not recorded:
            near = "no call of it was recorded"
        elif any(each[:1] == parts[:1] for each in recorded):
            near = "its instructions were recorded, but not with this input: data, options or earlier answers differ"
        else:
            near = f"its instructions have changed since its {len(recorded)} calls were recorded"
        begins = _words(messages[-1].get("content"))
        return f"no answer for a call of {by} ({known['role']}) that begins {begins!r}: {near}"

    def __deepcopy__(self, memo: object = None) -> Self:
        return self


def _words(text: Any) -> str:
    """The first words of a prompt or a text."""
    if isinstance(text, list):
        text = next((part.get("text") for part in text if isinstance(part, dict) and part.get("text")), "")
    line = " ".join(str(text or "").split())
    return line if len(line) <= QUOTED else f"{line[:QUOTED].rstrip()} ..."

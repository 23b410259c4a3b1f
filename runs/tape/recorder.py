"""Writes the calls of a run into a new recording."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from dspy.clients.call_result import CallResult
from dspy.utils.exceptions import LMError

from ...engines.embedders import OFFLINE, TextEmbedder
from ...engines.guard import Guard
from ...engines.meter import MeteredLM
from ...engines.models import context_window
from ...errors import BudgetError, UserError
from .calls import Numbers, answer_of, asked, error_of, failure_of
from .file import Answer, Call, Failed, Header, Model, Refused, Source, Vector, Writer, pack, public_name, text_key

Models = Mapping[str, tuple[str, MeteredLM]]
"""By role: a model as it was asked for, and the model."""


class Recorder:
    """A recording that is being made; may be used from many threads.

    Args:
        path: The file.
        header: Makes its first line when the models are known.

    Raises:
        UserError: The file is there already, or cannot be written.
    """

    live = True

    def __init__(self, path: Path, header: Callable[[dict[str, Model]], Header]) -> None:
        self._writer = Writer(path)
        self._numbers = Numbers()
        self._header: Callable[[dict[str, Model]], Header] | None = header
        self._lock = threading.Lock()
        self._vectors: dict[tuple[str, str], np.ndarray] = {}

    def begin(self, models: Models) -> None:
        """Writes the header, if it is not written.

        Raises:
            UserError: Two models would be taken for one.
        """
        known: dict[str, tuple[str, Any]] = {}
        for _, lm in models.values():
            place = lm.model, lm.kwargs.get("api_base")
            if known.setdefault(public_name(lm.model), place) != place:
                raise UserError(f"--record: two servers have a model {public_name(lm.model)!r}; rename one of the two")
        header, self._header = self._header, None
        if header is not None:
            found = {role: _model(name, lm) for role, (name, lm) in models.items()}
            self._writer.write(header(found))

    def model(self, role: str, name: str) -> str:
        """The name by which the model of a role is made: its own."""
        return name

    def fitted(self, role: str, lm: MeteredLM) -> MeteredLM:
        """The model itself."""
        return lm

    def admitted(self, lm: MeteredLM, call: Any, make: Callable[[], CallResult]) -> Callable[[], CallResult]:
        """Asks the guard, and returns what makes the call and writes it down; as `Tape.admitted`."""
        known = asked(lm, call)
        known["number"] = self._numbers.next(known["key"])
        try:
            lm.guard.admit()
        except BudgetError as error:
            self._writer.write(Call(**known, found=Refused(reason=str(error), struck=lm.guard.struck)))
            raise
        return lambda: self._made(lm, known, make)

    def embedder(self, name: str, make: Callable[[], Any], guard: Guard) -> Any:
        """An embedder that asks the one that `make` makes, and writes its vectors down; None if that makes none."""
        inner = make()
        if inner is None or inner.name == OFFLINE:
            return inner
        shown = public_name(inner.name)
        unrelated = None if inner.unrelated is None else [float(number) for number in inner.unrelated]
        beginnings = {"query": inner.query, "passage": inner.passage}
        self._writer.write(Source(name=shown, dimension=inner.dimension, unrelated=unrelated, **beginnings))

        def compute(texts: Sequence[str]) -> np.ndarray:
            return self._embedded(shown, texts, inner.embed_as_given(texts))

        return TextEmbedder(inner.name, compute, inner.dimension, inner.unrelated, **beginnings)

    def close(self, finished: bool) -> None:
        """Ends the file.

        Args:
            finished: Whether the run came to its end, so that the recording can be played.
        """
        self._writer.close(finished)

    def _made(self, lm: MeteredLM, known: dict[str, Any], make: Callable[[], CallResult]) -> CallResult:
        started = time.perf_counter()

        def write(found: Answer | Failed) -> None:
            self._writer.write(Call(**known, found=found, seconds=round(time.perf_counter() - started, 3)))

        try:
            result = make()
        except LMError as error:
            failed = failure_of(lm, error)
            write(failed)
            if not failed.message:
                raise
            # What is said of a refused prompt is data of the run: the same now as when it is played.
            raise error_of(lm, failed) from error
        write(answer_of(lm, result))
        return result

    def _embedded(self, name: str, texts: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """The first vector of each text, which is the one that is written: a batch may change the last digit."""
        keys = [(name, text_key(text)) for text in texts]
        for key, row in zip(keys, rows, strict=True):
            with self._lock:
                known = self._vectors.setdefault(key, row) is not row
            if not known:
                self._writer.write(Vector(name=name, key=key[1], vector=pack(row)))
        return np.stack([self._vectors[key] for key in keys])

    def __deepcopy__(self, memo: object = None) -> Self:
        return self


def _model(name: str, lm: MeteredLM) -> Model:
    sizes = {"max_tokens": lm.kwargs.get("max_tokens"), "window": context_window(lm)}
    return Model(lm=public_name(name), model=public_name(lm.model), **sizes)

"""Replays a finished run: every call and every vector is taken from its store, and one that it lacks ends the run.

    run A ── answers by request digest, vectors by text ──> run.sqlite
    run B, --replay A ── the same requests ──> the same answers; no network, no weights, no key

Equal requests get the answers of then in the order in which they were made. Of a call that failed there is no answer,
so a replay ends at it; a model that can be trained has no recorded weights.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from dspy.clients.call_result import CallResult

from ..engines.call import Call
from ..engines.embedders import OFFLINE, TextEmbedder
from ..engines.limits import BudgetGuard
from ..engines.metered_lm import MeteredLM
from ..engines.model_names import is_local
from ..engines.vector_cache import CachedVectors
from ..errors import UserError
from ..records.shared_by_copies import SharedByCopies
from .folder import RUN, RunFolder
from .run_store import VectorTable

QUOTED = 80
"""Characters of a prompt that a message quotes."""


class Replay(SharedByCopies):
    """A run whose answers are given again; may be used from many threads.

    Args:
        run: The run, as `RunFolder.open` takes it.
        guard: Ends the replay where an answer is missing.

    Raises:
        UserError: There is no such run, or it was not recorded.
    """

    def __init__(self, run: str, guard: BudgetGuard) -> None:
        self._folder, self._guard = RunFolder.open(run), guard
        self._models: dict[str, dict[str, Any]] = self._folder.read().get("models", {})
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def model(self, role: str, name: str) -> str:
        """The name by which the model of a role is made: the one it had."""
        found = self._model(role)
        if found is None or is_local(found["model"]):
            raise UserError(f"--replay {self._folder.path.name}: ran without a {role} model that can be replayed")
        return name if name == OFFLINE else str(found["model"])

    def fitted(self, role: str, lm: MeteredLM) -> MeteredLM:
        """The model, with the sizes that the one of then had."""
        found = self._model(role) or {}
        lm.window = found.get("window")
        lm.kwargs |= {"max_tokens": found["max_tokens"]} if found.get("max_tokens") is not None else {}
        return lm

    def answer(self, call: Call) -> CallResult:
        """The answer to a call; a call that the run lacks ends the replay."""
        key = call.key
        with self._lock:
            number = self._asked[key]
            self._asked[key] += 1
        found = self._folder.store.answers.all(key)
        if number >= len(found):
            about = "was not asked so often" if found else "was not asked"
            raise self._missing(f"{call.lm.role} model {about}: {_beginning(call)!r}")
        made = CallResult.load(found[number])
        # It is counted as the call that it was.
        made.cache_hit, made.usage = False, dict(found[number].get("usage") or {})
        return made

    def embedder(self, name: str) -> TextEmbedder:
        """The embedder of then, with the vectors that it made."""
        table = VectorTable(self._folder.store, name)
        about = table.about
        if about is None:
            raise UserError(f"--replay {self._folder.path.name}: holds no vectors of {name}")

        def missing(texts: Sequence[str]) -> np.ndarray:
            raise self._missing(f"no vector of {name} was made for {texts[0][:QUOTED]!r}")

        cached_vectors = CachedVectors(None, table)
        return TextEmbedder(
            name,
            missing,
            cached_vectors=cached_vectors,
            query_prefix=about["query"],
            passage_prefix=about["passage"],
        )

    def _model(self, role: str) -> dict[str, Any] | None:
        return self._models.get(role) or (self._models.get("task") if role == "prompt" else None)

    def _missing(self, what: str) -> UserError:
        name = self._folder.path.name
        error = UserError(f"--replay {name}: {what}; data, options, prompts or earlier answers differ from that run's")
        self._guard.stop(error)
        return error


def note_model(folder: RunFolder, role: str, asked: str, lm: MeteredLM) -> None:
    """Writes down which model a role had, for a replay."""
    models = folder.read().get("models", {})
    sizes = {"max_tokens": lm.kwargs.get("max_tokens"), "window": lm.window}
    found = {"lm": asked, "model": lm.model, **sizes}
    if models.get(role) != found:
        folder.update(models={**models, role: found})


def recording_embedder(embedder: TextEmbedder, folder: RunFolder) -> TextEmbedder:
    """An embedder whose vectors the run keeps; the offline one, and any where there is no run, as it is.

    A text that the run knows already, e.g. of before it was killed, is not embedded again.
    """
    if embedder.name == OFFLINE or not (folder.path / RUN).is_file():
        return embedder
    table = VectorTable(folder.store, embedder.name)
    table.describe({"query": embedder.query_prefix, "passage": embedder.passage_prefix})
    recording = TextEmbedder(
        embedder.name,
        embedder.embed_prefixed,
        embedder.dimension,
        CachedVectors(None, table),
        embedder.query_prefix,
        embedder.passage_prefix,
    )
    recording.reranker = embedder.reranker
    return recording


def _beginning(call: Call) -> str:
    messages = call.request["messages"]
    text = messages[-1].get("content")
    if isinstance(text, list):
        text = next((part.get("text") for part in text if isinstance(part, dict) and part.get("text")), "")
    return " ".join(str(text or "").split())[:QUOTED]

"""Replay of a finished run: every answer and every vector is taken from its store.

    run A ── answers by request digest, vectors by text ──> run.sqlite
    run B, --replay A ── the same requests ──> the same answers; no network, no weights, no key

Equal requests get their answers in the order in which the run got them. The replay ends at the
first request without an answer. A call that failed has none, so a replay ends there, too. A model
that was trained cannot be replayed: its weights are not recorded.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NoReturn

from dspy.clients.call_result import CallResult

from ..engines.call import Call
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import TextEmbedder
from ..engines.limits import BudgetGuard
from ..engines.metered_lm import MeteredLM
from ..engines.model_names import OFFLINE as OFFLINE_LM
from ..engines.model_names import is_local, is_offline
from ..engines.vector_cache import CachedVectors
from ..errors import UserError
from ..records.shared_by_copies import SharedByCopies
from .folder import RUN, RunFolder
from .vector_table import Prefixes, VectorTable

_QUOTED_CHARACTERS = 80
"""Characters of a prompt that a message quotes."""


@dataclass(frozen=True)
class RecordedModel:
    """The model of a role, as the record of a run has it."""

    lm: str
    """The name that the user gave."""
    model: str
    """The name of the model that was loaded."""
    max_tokens: int | None
    window: int | None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RecordedModel:
        """Return the model of its part of `run.json`."""
        return cls(
            lm=record.get("lm", ""),
            model=record["model"],
            max_tokens=record.get("max_tokens"),
            window=record.get("window"),
        )


class Replay(SharedByCopies):
    """A run whose answers are given once more; may be used from many threads.

    Args:
        run: The run, as `RunFolder.open` takes it.
        guard: Ends the replay when an answer is missing.

    Raises:
        UserError: There is no such run, or it was not recorded.
    """

    def __init__(self, run: str, guard: BudgetGuard) -> None:
        self._folder = RunFolder.open(run)
        self._guard = guard
        self._lock = threading.Lock()
        self._replayed_calls: Counter[str] = Counter()
        """How often each call was replayed, by its digest."""

        models = self._folder.read().get("models", {})
        self._models: dict[str, RecordedModel] = {
            role: RecordedModel.from_record(record) for role, record in models.items()
        }

    def model_name(self, role: str) -> str:
        """Return the name of the model that a replay loads for a role.

        A replay finds a recorded answer by the request that it answered, and the request contains
        the name of the model. So this is the name in the requests, which may differ from the name
        that the user gave: requests to "gguf:qwen" contain "openai/qwen", for example.

        Args:
            role: What the model is used for, e.g. "task" or "judge".

        Raises:
            UserError: The run had no model for the role, or one with weights of its own.
        """
        model = self._recorded_model(role).model
        # The requests have the full name of the offline engine, but it is loaded as "offline".
        if is_offline(model):
            return OFFLINE_LM
        return model

    def restore_sizes(self, role: str, lm: MeteredLM) -> None:
        """Give a model the lengths of prompts and answers that the model of the run had.

        Raises:
            UserError: The run had no model for the role, or one with weights of its own.
        """
        recorded = self._recorded_model(role)
        lm.window = recorded.window
        if recorded.max_tokens is not None:
            lm.kwargs["max_tokens"] = recorded.max_tokens

    def answer(self, call: Call) -> CallResult:
        """Return the recorded answer to a call.

        If the run made the same call several times, its answers are returned in the same order.

        Raises:
            UserError: The run did not make this call, or not as often. The replay ends.
        """
        key = call.key
        with self._lock:
            earlier_calls = self._replayed_calls[key]
            self._replayed_calls[key] += 1

        recorded_answers = self._folder.store.answers.all(key)
        if earlier_calls >= len(recorded_answers):
            difference = "was not asked so often" if recorded_answers else "was not asked"
            raise self._end(f"{call.lm.role} model {difference}: {_beginning_of_prompt(call)!r}")

        record = recorded_answers[earlier_calls]
        result = CallResult.load(record)
        # The replay reports the usage of the recorded run, so the answer is counted as the paid
        # call that it was then, and not as an answer from a cache.
        result.cache_hit = False
        result.usage = dict(record.get("usage") or {})
        return result

    def embedder(self, name: str) -> TextEmbedder:
        """Return an embedder that only knows the vectors that it computed in the run.

        It computes none: the replay ends at the first text without a vector.

        Raises:
            UserError: The run did not use it.
        """
        table = VectorTable(self._folder.store, name)
        prefixes = table.read_prefixes()
        if prefixes is None:
            raise UserError(f"--replay {self._folder.path.name}: holds no vectors of {name}")
        return TextEmbedder(
            name,
            compute=partial(self._refuse_to_embed, name),
            # The table belongs to this embedder, so its keys need not say which one it is.
            cached_vectors=CachedVectors(identity=None, file=table),
            query_prefix=prefixes.query,
            passage_prefix=prefixes.passage,
        )

    def _refuse_to_embed(self, embedder: str, texts: Sequence[str]) -> NoReturn:
        """End the replay, because the run has no vector of a text."""
        raise self._end(f"no vector of {embedder} was made for {texts[0][:_QUOTED_CHARACTERS]!r}")

    def _recorded_model(self, role: str) -> RecordedModel:
        """Return the model that the run had for a role.

        Raises:
            UserError: The run had no model for the role, or one with weights of its own.
        """
        recorded = self._models.get(role)
        if recorded is None and role == "prompt":
            # Without a prompt model, the task model writes the proposals.
            recorded = self._models.get("task")
        if recorded is None or is_local(recorded.model):
            raise UserError(
                f"--replay {self._folder.path.name}: "
                f"ran without a {role} model that can be replayed"
            )
        return recorded

    def _end(self, reason: str) -> UserError:
        """Let the guard refuse all further calls; return the error for the caller to raise."""
        name = self._folder.path.name
        cause = "data, options, prompts or earlier answers differ from that run's"
        error = UserError(f"--replay {name}: {reason}; {cause}")
        self._guard.stop(error)
        return error


def record_model(folder: RunFolder, role: str, name: str, lm: MeteredLM) -> None:
    """Write the model of a role into the record of a run, for its replay.

    Args:
        folder: The run.
        role: What the model is used for.
        name: The name that the user gave.
        lm: The model.
    """
    models = folder.read().get("models", {})
    recorded = RecordedModel(name, lm.model, lm.kwargs.get("max_tokens"), lm.window)
    record = asdict(recorded)
    if models.get(role) != record:
        folder.update(models={**models, role: record})


def recording_embedder(embedder: TextEmbedder, folder: RunFolder) -> TextEmbedder:
    """Return an embedder that does the same, and keeps its vectors in the store of a run.

    So a run that is resumed does not embed a text again, and a run can be replayed without its
    embedder.

    Args:
        embedder: The embedder. The offline one is returned as it is, since computing its vectors
            takes no longer than reading them.
        folder: The run. The embedder is also returned as it is if the folder holds none, as while a
            run is only planned.
    """
    if embedder.name == OFFLINE_EMBEDDER or not (folder.path / RUN).is_file():
        return embedder

    table = VectorTable(folder.store, embedder.name)
    # `Replay.embedder` has nothing but this table to make the embedder from.
    table.write_prefixes(Prefixes(embedder.query_prefix, embedder.passage_prefix))
    recording = TextEmbedder(
        embedder.name,
        compute=embedder.embed_prefixed,
        dimension=embedder.dimension,
        # The table belongs to this embedder, so its keys need not say which one it is.
        cached_vectors=CachedVectors(identity=None, file=table),
        query_prefix=embedder.query_prefix,
        passage_prefix=embedder.passage_prefix,
    )
    recording.reranker = embedder.reranker
    return recording


def _beginning_of_prompt(call: Call) -> str:
    """Return the first characters of the last message of a call."""
    content = call.request["messages"][-1].get("content")
    if isinstance(content, list):
        content = _first_text(content)
    words = str(content or "").split()
    return " ".join(words)[:_QUOTED_CHARACTERS]


def _first_text(parts: Sequence[Any]) -> str:
    """Return the first text among the parts of a message; "" if there is none."""
    for part in parts:
        if isinstance(part, dict) and part.get("text"):
            return part["text"]
    return ""

"""Counts calls, tokens and cost of language models, at the LM boundary.

Every model of a run is a `MeteredLM` with a role (task, prompt, judge) and shares the run's `Meter`. Copies that
optimizers make (other temperature, rollout id) keep counting into the same meter; answers from DSPy's cache are
counted apart, with no tokens and no cost.

Example:
    >>> from mempiler.engines.meter import Meter
    >>> from mempiler.engines.models import language_model
    >>> meter = Meter()
    >>> _ = language_model("offline", meter=meter)("question: Where?")
    >>> meter.read().calls["task"]
    1
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

import dspy
from dspy.clients.call_result import CallResult
from dspy.clients.execution import aexecute, execute, finalize, prepare
from dspy.utils.callback import with_callbacks
from dspy.utils.exceptions import LMAuthError, LMConfigurationError, LMInvalidRequestError, LMUnsupportedModelError

from ..errors import UserError
from ..reading.cut import marked
from ..records import estimate_tokens
from .endpoint.engine import Engine
from .endpoint.loop import NobodyWaitsError
from .guard import Guard, Spent
from .hearing import told
from .taken import note_call
from .threads import in_thread

Role = Literal["task", "prompt", "judge"]
ROLES: tuple[Role, ...] = ("task", "prompt", "judge")
ANSWER = 2048
"""Tokens that are reserved for an answer at least, where nothing bounds it."""
PROMPT = 2
"""How many times its estimated tokens are reserved for a prompt: tokenizers differ."""
MOST_TOLD = 10**12
"""Tokens that no call takes: an endpoint that says so, or less than none, has not told them."""


@dataclass(frozen=True)
class Usage:
    """What was used up to one moment, or between two."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls that reached a model, by role."""
    cached: int = 0
    """Calls that DSPy's LM cache answered."""
    failed: int = 0
    """Calls that raised, retries of the client library not counted."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    """US dollars, of those calls whose price is known."""
    unpriced: int = 0
    """Calls whose price is not known (offline and local engines among them)."""
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Predictor calls by predictor and outcome: ok, salvaged, asked again, lost."""
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What was wrong with answers, by predictor and kind."""
    told_tokens: int = 0
    """Those of `input_tokens` of which the server said how many it had in its own cache."""
    reused_tokens: int = 0
    """Those that it had."""
    estimated: int = 0
    """Calls of which the endpoint did not say how many tokens they took; theirs are estimated."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)})

    def by_role(self) -> dict[str, int]:
        """Calls by role with zeros, and the cached ones: what reports print; "embedding" where an endpoint was."""
        return {**{role: self.calls[role] for role in ROLES}, **self.calls, "cached": self.cached}


class Meter:
    """Thread-safe counters of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = Usage()
        self._answers: Counter[tuple[str, str]] = Counter()
        self._faults: Counter[tuple[str, str]] = Counter()
        self.longest = 0
        """Tokens of the longest answer so far."""

    def read(self) -> Usage:
        """The counters now; subtract two readings to get the usage between them."""
        with self._lock:
            return replace(self._usage, answers=self._answers.copy(), faults=self._faults.copy())

    def add(
        self, role: str, usage: dict[str, Any], cost: float | None, calls: int = 1, estimated: bool = False
    ) -> None:
        """Counts calls that reached a model; `estimated` where the endpoint did not tell their usage."""
        reused = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        told = 0 if reused is None else int(usage.get("prompt_tokens") or 0)
        with self._lock:
            self.longest = max(self.longest, int(usage.get("completion_tokens") or 0))
            old = self._usage
            self._usage = replace(
                old,
                calls=old.calls + Counter({role: calls}),
                input_tokens=old.input_tokens + int(usage.get("prompt_tokens") or 0),
                output_tokens=old.output_tokens + int(usage.get("completion_tokens") or 0),
                told_tokens=old.told_tokens + told,
                reused_tokens=old.reused_tokens + int(reused or 0),
                cost=old.cost + (cost or 0.0),
                unpriced=old.unpriced + (cost is None),
                estimated=old.estimated + calls * estimated,
            )

    def include(self, used: Usage) -> None:
        """Counts what another process has used."""
        with self._lock:
            whole = replace(self._usage, answers=self._answers, faults=self._faults) + used
            self._usage, self._answers, self._faults = whole, whole.answers, whole.faults

    def add_answer(self, predictor: str, outcome: str, faults: Counter[str]) -> None:
        """Counts a predictor call by how it ended."""
        with self._lock:
            self._answers[predictor, outcome] += 1
            self._faults.update({(predictor, kind): count for kind, count in faults.items()})

    def add_cached(self) -> None:
        """Counts one call that the cache answered."""
        self._bump("cached")

    def add_failed(self) -> None:
        """Counts one call that raised."""
        self._bump("failed")

    def _bump(self, name: str) -> None:
        with self._lock:
            self._usage = replace(self._usage, **{name: getattr(self._usage, name) + 1})

    def __deepcopy__(self, memo: object = None) -> Meter:
        return self

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()


class Answers(Protocol):
    """Answers of earlier calls, kept by the run; `runs.run_store` has one over SQLite."""

    def once(
        self, key: str, compute: Callable[[], dict[str, Any]], merged: bool = False
    ) -> tuple[dict[str, Any], bool]:
        """The record of a call, created if missing, and whether it existed."""
        ...


class Replayed(Protocol):
    """A run whose answers are given again; `runs.replay` has one over its store."""

    def answer(self, lm: MeteredLM, call: Any) -> CallResult:
        """The answer to a prepared call.

        Raises:
            UserError: The run has none.
        """
        ...


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls, asks the guard before each, and looks into the run's answers first.

    Args:
        model: As `dspy.LM` takes it.
        meter: Where calls are counted.
        role: What the model is used for.
        guard: Refuses calls over budget or to an unreachable endpoint; one without limits if None.
        answers: Answers of earlier calls of the run, so that a resumed run calls the model only for missing ones.
        prices: US dollars per input and output token, for answers that come without a cost.
        replay: A run whose answers are given instead of any call.
        **settings: Everything else that `dspy.LM` takes.
    """

    window: int | None = None
    """Tokens that a prompt and its answer may have together, where the model's server is one of this process."""

    def __init__(
        self,
        model: str,
        meter: Meter,
        role: Role = "task",
        guard: Guard | None = None,
        answers: Answers | None = None,
        prices: tuple[float, float] | None = None,
        replay: Replayed | None = None,
        **settings: Any,
    ) -> None:
        self.meter = meter
        self.prices = prices
        self.role: Role = role
        self.guard = guard or Guard()
        self.answers = answers
        self.replay = replay
        super().__init__(model, **settings)

    @with_callbacks
    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        # The three steps of dspy.BaseLM.__call__, because only their result has cache hits and cost.
        call = self._prepared(prompt, messages, kwargs)
        return self._finished(messages or prompt, call, self._result(call))

    def _prepared(self, prompt: Any, messages: Any, kwargs: dict[str, Any], asynchronous: bool = False) -> Any:
        call = prepare(self, prompt, messages, self._seeded(kwargs), asynchronous=asynchronous)
        if isinstance(self.engine, Engine):
            # DSPy's cache has it in its keys, though it is none of the request.
            call.legacy["timeout"] = self.engine.endpoint.silence
        return call

    def _result(self, call: Any) -> CallResult:
        """The result of a call, of the run's answers where it is among them."""
        if self.answers is None:
            return self._paid(call)
        try:
            key, cached = digest_of(request_of(self, call)), bool(call.cache)
            record, known = self.answers.once(key, lambda: self._paid(call).dump(), cached)
        except UserError as error:
            # Optimizers would take a failing store for a wrong answer, and continue with calls that are lost.
            self.guard.stop(error)
            raise
        result = CallResult.load(record)
        if known:
            self.meter.add_cached()
        else:
            # CallResult.load marks what it loads as a cache hit; this one was made just now.
            result.cache_hit = False
        return result

    @with_callbacks
    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        call = self._prepared(prompt, messages, kwargs, asynchronous=True)
        # Where there are limits a call may have to wait for those in flight.
        if self.replay is not None or self.answers is not None or self._blocks or self.guard.limits:
            return self._finished(messages or prompt, call, await in_thread(lambda: self._result(call)))
        async with self.guard.lane(self.endpoint).aplace():
            self.guard.admit()
            try:
                result = await aexecute(self, call)
            except Exception as error:
                self._failed(error)
                raise
        return self._finished(messages or prompt, call, self._counted(call, result))

    def _finished(self, asked: Any, call: Any, result: CallResult) -> Any:
        """What a caller is given; who listens and who takes it hear of it."""
        return told(asked, marked(finalize(self, call, _heard(self, call, result)), result))

    @property
    def _blocks(self) -> bool:
        """Whether it is an engine of this process without a counterpart for asyncio."""
        return self._async_engine_spec is None and hasattr(self.engine, "complete")

    @property
    def endpoint(self) -> str:
        """What answers its calls: an address, or else the provider."""
        if isinstance(self.engine, Engine):
            return self.engine.address
        return str(self.kwargs.get("api_base") or self.kwargs.get("base_url") or self.model.partition("/")[0])

    def dump_state(self) -> dict[str, Any]:
        """That of a `dspy.LM` of the same name: an address is nothing that a program keeps."""
        if isinstance(self.engine, Engine):
            return self.copy(engine="auto").dump_state()
        return super().dump_state()

    def _paid(self, call: Any) -> CallResult:
        # A place first: who waits for one has asked for nothing yet, and is refused when the guard trips meanwhile.
        with self.guard.lane(self.endpoint).place(), self.guard.reserving(self._expected(call)):
            return self._admitted(call)

    def _expected(self, call: Any) -> Spent:
        """What a call takes at most, going by the length of its prompt and of the answers so far."""
        if not self.guard.limits:
            return Spent()
        most = call.legacy.get("max_tokens") or call.legacy.get("max_completion_tokens")
        asked, answer = PROMPT * _prompt_tokens(self, call), call.n * max(most or ANSWER, self.meter.longest)
        return Spent(call.n - 1, asked + answer, self.priced(None, asked, answer) or 0.0)

    def _admitted(self, call: Any) -> CallResult:
        self.guard.admit()
        try:
            result = execute(self, call) if self.replay is None else self.replay.answer(self, call)
        except Exception as error:
            self._failed(error)
            raise
        return self._counted(call, result)

    def _failed(self, error: Exception) -> None:
        self.meter.add_failed()
        if isinstance(error, NobodyWaitsError) or self.replay is not None:
            return
        if isinstance(error, LMInvalidRequestError) and not isinstance(error, LMUnsupportedModelError):
            return  # this prompt is refused, for its content or length; the endpoint is well
        if isinstance(error, LMConfigurationError):
            # A key that is not set is as final as one that is refused, and the guard ends the run for those.
            names = " or ".join(getattr(error, "env_keys", ()))
            error = LMAuthError(f"there is none; set {names}" if names else error.message, model=error.model)
        self.guard.failed(error)

    def _counted(self, call: Any, result: CallResult) -> CallResult:
        if isinstance(self.engine, Engine) and self.replay is None:
            self.engine.settle(result)
        if result.cache_hit:
            self.meter.add_cached()
            self.guard.free()
            return result
        usage = result.usage or {}
        # DSPy asks canonical engines once per candidate (`n`), within one call.
        calls = max(1, len(result.responses))
        sent, generated, estimated = _tokens(self, call, result, _told(usage))
        cost = self.priced(None if estimated else result.cost, sent, generated)
        counted = {**usage, "prompt_tokens": sent, "completion_tokens": generated}
        self.meter.add(self.role, counted, cost, calls, estimated)
        self.guard.worked(max(0 if estimated else int(usage.get("total_tokens") or 0), sent + generated), cost, calls)
        return result

    def priced(self, cost: float | None, input_tokens: int, output_tokens: int) -> float | None:
        """What a call cost, or else what its tokens cost; None if no price is known."""
        if cost is not None or self.prices is None:
            return cost
        return input_tokens * self.prices[0] + output_tokens * self.prices[1]

    def _seeded(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Gives the offline engine a seed per rollout, so that a resumed run samples what an unbroken one would."""
        merged = {**self.kwargs, **kwargs}
        rollout = merged.get("rollout_id")
        if rollout is None or not merged.get("temperature") or not getattr(self.engine, "seedable", False):
            return kwargs
        return {**kwargs, "seed": zlib.crc32(str(rollout).encode())}

    def __deepcopy__(self, memo: object = None) -> MeteredLM:
        return self.copy()


def _heard(lm: MeteredLM, call: Any, result: CallResult) -> CallResult:
    """Tells the running piece of work of a call; an answer from a cache has lost its usage, but not its response."""
    usage = [response.usage for response in result.responses[:1]]
    told = [(each.input_tokens or 0, each.output_tokens or 0) for each in usage]
    found = next((each for each in told if any(each)), None) or _told(result.usage or {})
    sent, generated, estimated = _tokens(lm, call, result, found)
    note_call(sent, generated, lm.priced(None if estimated else result.cost, sent, generated))
    return result


def _told(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of the prompt and of the answer, as an endpoint says."""
    return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)


def _tokens(lm: MeteredLM, call: Any, result: CallResult, told: tuple[int, int]) -> tuple[int, int, bool]:
    """Tokens of a call's prompt and answer, and whether they are estimated: the endpoint has not told them."""
    if any(told) and all(0 <= count < MOST_TOLD for count in told):
        return (*told, False)
    said = json.dumps(result.outputs, ensure_ascii=False, default=str)
    return _prompt_tokens(lm, call), estimate_tokens(said), True


def _prompt_tokens(lm: MeteredLM, call: Any) -> int:
    """About how many tokens a call sends, the schema that its answer has to fit included."""
    return estimate_tokens(json.dumps(request_of(lm, call), ensure_ascii=False, default=_schema))


def request_of(lm: MeteredLM, call: Any) -> dict[str, Any]:
    """What the answer of a prepared call depends on, without addresses, keys and timeouts."""
    client = ("api_", "base_url", "timeout")
    key = {name: value for name, value in call.key(lm, False).items() if not name.startswith(client)}
    weights = getattr(lm.engine, "weights_version", None)
    if weights is not None:
        key["weights"] = weights
    return key


def digest_of(request: dict[str, Any]) -> str:
    """A digest of what an answer depends on."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=_schema).encode()).hexdigest()


def _schema(value: Any) -> Any:
    """Response formats are model classes; their schema is what the endpoint sees."""
    return value.model_json_schema() if hasattr(value, "model_json_schema") else str(value)

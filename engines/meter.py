"""Counts calls, tokens and cost of language models; copies of a model count into the same meter."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dspy
from dspy.clients.call_result import CallResult
from dspy.utils.callback import with_callbacks
from dspy.utils.exceptions import LMError

from ..errors import UserError
from ..reading.cut_texts import mark_cut_texts
from ..records.shared_by_copies import SharedByCopies
from .call import Call
from .call_context import call_context, current_context, record_usage
from .endpoint.endpoint import BODY, Engine
from .endpoint.loop import in_thread
from .limits import BudgetGuard
from .prices import TokenPrices
from .token_counts import token_number
from .usage import Role, Usage, UsageReport

ANSWER = 2048
"""Tokens that are reserved for an answer at least, where nothing bounds it."""
PROMPT = 2
"""How many times its estimated tokens are reserved for a prompt: tokenizers differ."""


class Meter(SharedByCopies):
    """Thread-safe counters of one run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usage = UsageReport()
        self.longest = 0
        """Tokens of the longest answer so far."""

    def read(self) -> UsageReport:
        """The counters now; subtract two readings to get the usage between them."""
        return self._usage

    def include(self, used: UsageReport) -> None:
        """Counts what was used, here or in another process."""
        with self._lock:
            self._usage += used

    def add_answer(self, predictor: str, outcome: str, faults: Counter[str]) -> None:
        """Counts a predictor call by how it ended."""
        of_kinds = Counter({(predictor, kind): count for kind, count in faults.items()})
        self.include(UsageReport(answers=Counter({(predictor, outcome): 1}), faults=of_kinds))

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls, asks the guard before each, and looks into the run's answers first.

    Args:
        model: As `dspy.LM` takes it.
        meter: Where calls are counted.
        role: What the model is used for.
        guard: Refuses calls over budget or to an unreachable endpoint; one without limits if None.
        answers: Has those of earlier calls (`get_or_compute` of `runs.run_store`): a resumed run asks for missing ones only.
        prices: US dollars per input and output token, for answers that come without a cost.
        replay: Gives the answer to a call instead of any model; see `runs.replay`.
        **settings: Everything else that `dspy.LM` takes.
    """

    window: int | None = None
    """Tokens that a prompt and its answer may have together, where the model's server is one of this process."""

    def __init__(
        self,
        model: str,
        meter: Meter,
        role: Role = "task",
        guard: BudgetGuard | None = None,
        answers: Any = None,
        prices: TokenPrices | None = None,
        replay: Callable[[Call], CallResult] | None = None,
        **settings: Any,
    ) -> None:
        self.meter, self.guard, self.prices = meter, guard or BudgetGuard(), prices
        self.role: Role = role
        self.answers, self.replay = answers, replay
        self._blocks = settings.get("async_engine") is None
        super().__init__(model, **settings)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        call = Call(self, prompt, messages, self._seeded(kwargs))
        ask = partial(super().__call__, prompt, messages=messages, **{**call.kwargs, "cache": False})
        with call_context(running_call=call):
            return self._finished(call, self._result(call, ask))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        # Where there are limits a call may have to wait for those in flight.
        if self.replay is not None or self.answers is not None or self._blocks or self.guard.has_limits:
            with dspy.context(send_stream=None):  # a thread has no way to the stream of a loop
                return await in_thread(lambda: self(prompt, messages=messages, **kwargs))
        call = Call(self, prompt, messages, kwargs)
        with call_context(running_call=call):
            async with self.guard.slots(self.endpoint).aslot():
                with self.admitted():
                    known = await in_thread(call.cached) if call.cache else None
                    if known is None:
                        with dspy.context(disable_history=False):
                            call.outputs = await super().acall(prompt, messages=messages, **{**kwargs, "cache": False})
                result = self._kept(call, known)
            return self._finished(call, result)

    def update_history(self, entry: dict[str, Any]) -> None:
        """Keeps a call as DSPy does, with its cost, which DSPy does not know of an engine."""
        call = current_context().running_call
        if call is not None and call.result is None:
            result = call.answered(entry)
            if isinstance(self.engine, Engine):
                self.engine.add_cost(result)
            entry |= {"usage": result.usage, "cost": result.cost, "cost_details": result.cost_details}
        if call is None or not call.quiet:
            super().update_history(entry)

    @property
    def endpoint(self) -> str:
        """What answers its calls: an address, or else the provider."""
        return getattr(self.engine, "address", None) or self.model.partition("/")[0]

    def dump_state(self) -> dict[str, Any]:
        """That of a `dspy.LM` of the same name: an address is nothing that a program keeps."""
        if not isinstance(self.engine, Engine):
            return super().dump_state()
        state = self.copy(engine="auto").dump_state()
        state.pop(BODY, None)
        return state

    def priced(self, cost: float | None, input_tokens: int, output_tokens: int) -> float | None:
        """What a call cost, or else what its tokens cost; None if no price is known."""
        if cost is not None or self.prices is None:
            return cost
        return input_tokens * self.prices.input + output_tokens * self.prices.output

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Lets a call through that is in the limits, see `BudgetGuard.admit`; one that fails is counted."""
        self.guard.admit()
        try:
            yield
        except LMError as error:
            self.meter.include(UsageReport(failed=1))
            self.guard.record_failure(error)
            raise

    def _result(self, call: Call, ask: Callable[[], Any]) -> CallResult:
        if self.answers is None:
            return self._paid(call, ask)
        made: list[CallResult] = []

        def compute() -> dict[str, Any]:
            made.append(self._paid(call, ask))
            return made[0].dump()

        try:
            record, _ = self.answers.get_or_compute(call.key, compute, call.cache)
        except UserError as error:
            # Optimizers would take a failing store for a wrong answer, and continue with calls that are lost.
            self.guard.stop(error)
            raise
        if made:
            return made[0]
        self.meter.include(UsageReport(cached=1))
        return CallResult.load(record)

    def _paid(self, call: Call, ask: Callable[[], Any]) -> CallResult:
        # A place first: who waits for one has asked for nothing yet, and is refused when the guard trips meanwhile.
        with self.guard.slots(self.endpoint).slot(), self.guard.reserve(self._expected(call)):
            with self.admitted():
                known = call.cached() if self.replay is None else self.replay(call)
                if known is None:
                    with dspy.context(disable_history=False):
                        call.outputs = ask()
            return self._kept(call, known)

    def _kept(self, call: Call, known: CallResult | None) -> CallResult:
        """Counts a result; one that is new is kept by DSPy's cache."""
        if known is not None and known.cache_hit:
            self.meter.include(UsageReport(cached=1))
            self.guard.release()
            return known
        result = call.result = known or call.result
        assert result is not None  # DSPy has told of it by `update_history`
        if call.cache and known is None:
            dspy.cache.put(call.cache_key, result.dump())

        tokens = call.tokens
        # DSPy asks engines once per candidate (`n`), within one call.
        calls = max(1, len(result.responses))
        # The provider's price of tokens that it reports wrong is wrong, too.
        cost = None if tokens.estimated else result.cost
        self.count(tokens.prompt, tokens.answer, result.usage or {}, cost, calls, tokens.estimated)
        return result

    def count(
        self,
        sent: int,
        generated: int,
        usage: dict[str, Any] | None = None,
        cost: float | None = None,
        calls: int = 1,
        estimated: bool = False,
    ) -> None:
        """Counts calls that were answered, by their tokens and what else their usage tells."""
        cost, usage = self.priced(cost, sent, generated), usage or {}
        reused = token_number((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
        self.meter.longest = max(self.meter.longest, generated)
        self.meter.include(
            UsageReport(
                Counter({self.role: calls}),
                input_tokens=sent,
                output_tokens=generated,
                cost=cost or 0.0,
                unpriced=int(cost is None),
                cache_reported_tokens=0 if reused is None else sent,
                cached_tokens=min(reused or 0, sent),
                estimated=calls * estimated,
            )
        )
        total = 0 if estimated else token_number(usage.get("total_tokens")) or 0
        self.guard.record_success(max(total, sent + generated), cost, calls)

    def _expected(self, call: Call) -> Usage:
        """What a call takes at most, going by the length of its prompt and of the answers so far."""
        if not self.guard.has_limits:
            return Usage()
        most = call.request.get("max_tokens") or call.request.get("max_completion_tokens")
        asked, answer = PROMPT * call.prompt_tokens, call.n * max(most or ANSWER, self.meter.longest)
        return Usage(call.n - 1, asked, answer, self.priced(None, asked, answer) or 0.0)

    def _finished(self, call: Call, result: CallResult) -> Any:
        call.result = result
        if call.outputs is None:
            call.outputs = self._given(call.prompt, messages=call.messages, **call.kwargs)
        tokens = call.tokens
        cost = self.priced(None if tokens.estimated else result.cost, tokens.prompt, tokens.answer)
        record_usage(Usage(1, tokens.prompt, tokens.answer, cost or 0.0, int(cost is None)))
        answers = mark_cut_texts(call.outputs, result)
        on_call = current_context().on_call
        if on_call is not None:
            on_call(call.messages or call.prompt, answers, call.samples)
        return answers

    @with_callbacks
    def _given(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        # Callbacks and history hear of an answer that was known like of any other.
        call: Any = current_context().running_call
        if not call.quiet:
            self.update_history(call.entry(call.result))
        return call.result.outputs

    def _seeded(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Gives the offline engine a seed per rollout, so that a resumed run samples what an unbroken one would."""
        merged = {**self.kwargs, **kwargs}
        rollout = merged.get("rollout_id")
        if rollout is None or not merged.get("temperature") or not getattr(self.engine, "seedable", False):
            return kwargs
        return {**kwargs, "seed": zlib.crc32(str(rollout).encode())}

    def __deepcopy__(self, memo: object = None) -> MeteredLM:
        return self.copy()

"""Language models that count their calls, keep to limits, and reuse the answers of a run."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dspy
from dspy.clients.call_result import CallResult
from dspy.utils.callback import with_callbacks
from dspy.utils.exceptions import LMError

from ..async_bridge import is_bridged, run_bridged, wait_for
from ..reading.cut_texts import mark_cut_texts
from . import pipeline
from .async_models import ask_in_thread
from .call import Call
from .call_context import adapter_call_to, call_context, current_context, record_usage
from .dspy_internals import BODY_FIELDS, async_engine_of
from .endpoint.engine import Engine
from .limits import BudgetGuard
from .meter import Meter
from .prices import TokenPrices
from .token_counts import token_number
from .usage import Role, Usage, UsageReport

RESERVED_ANSWER_TOKENS = 2048
"""Tokens that are reserved for an answer at least, where nothing bounds it."""
RESERVED_PROMPT_FACTOR = 2
"""How many times its estimated tokens are reserved for a prompt: tokenizers differ."""


@dataclass(frozen=True)
class Metering:
    """How the calls of a model are counted, limited, and answered by what is known."""

    meter: Meter = field(default_factory=Meter)
    """Where calls are counted."""
    role: Role = "task"
    """What the model is used for."""
    guard: BudgetGuard = field(default_factory=BudgetGuard)
    """Refuses calls over budget or to an unreachable endpoint."""
    answers: pipeline.AnswerStore | None = None
    """The answers of earlier calls of the run."""
    prices: TokenPrices | None = None
    """US dollars per token, for answers that come without a cost."""
    replay: Callable[[Call], CallResult] | None = None
    """Gives the answer to a call instead of any model; see `runs.replay`."""
    uses_shared_cache: bool = True
    """Whether DSPy's cache, which all runs share, may hold the answers."""


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls and asks a guard before each.

    `pipeline` shows the way of a call. Only what gets to the engine costs.

    Under asyncio, `acall` awaits the engine. A model without an engine for asyncio makes the whole
    call in a thread. So no call waits for a thread while it holds a slot that all threads may be
    waiting for.

        lm = MeteredLM("test/counting", Metering(meter), engine=engine, temperature=0.5)

    Args:
        model: As `dspy.LM` takes it.
        metering: How its calls are counted and limited; with a meter of its own, and without
            limits, if None.
        **settings: Everything else that `dspy.LM` takes.
    """

    window: int | None = None
    """Tokens of a prompt and its answer together, at most; known of models in this process only."""

    def __init__(self, model: str, metering: Metering | None = None, **settings: Any) -> None:
        metering = metering or Metering()
        self.meter = metering.meter
        self.role: Role = metering.role
        self.guard = metering.guard
        self.answers = metering.answers
        self.prices = metering.prices
        self.replay = metering.replay
        self.uses_shared_cache = metering.uses_shared_cache
        super().__init__(model, **settings)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        if is_bridged() and async_engine_of(self) is None:
            return ask_in_thread(partial(self, prompt, messages=messages, **kwargs))

        call = Call(self, prompt, messages, self._with_seed(kwargs))
        # The adapter may have asked a model of the user's, which asks this one something else.
        with call_context(running_call=call, adapter_call=adapter_call_to(self)):
            result = self._pipeline().complete(call)
            return self._finish(call, result)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        return await run_bridged(partial(self, prompt, messages=messages, **kwargs))

    def _pipeline(self) -> pipeline.Step:
        """Return the steps that a call takes to its result."""
        step: pipeline.Step
        if self.replay is not None:
            step = pipeline.WithinLimits(self, pipeline.Replay(self.replay))
        else:
            step = pipeline.WithinLimits(self, pipeline.Engine(self))
            if self.uses_shared_cache:
                step = pipeline.Cache(self, step)
        if self.answers is not None:
            step = pipeline.RunAnswers(self, self.answers, step)
        return step

    def ask_engine(self, call: Call) -> Any:
        """Make a call by DSPy, and return its answers; `update_history` sets its result."""
        # The pipeline reads DSPy's cache.
        arguments = {**call.kwargs, "messages": call.messages, "cache": False}
        if is_bridged():
            return wait_for(super().acall(call.prompt, **arguments))
        return super().__call__(call.prompt, **arguments)

    def update_history(self, entry: dict[str, Any]) -> None:
        """Keep a call as DSPy does, with its cost, which DSPy does not know of an engine."""
        call = current_context().running_call
        if call is not None and call.result is None:
            result = call.set_result(entry)
            if isinstance(self.engine, Engine):
                self.engine.add_cost(result)
            entry["usage"] = result.usage
            entry["cost"] = result.cost
            entry["cost_details"] = result.cost_details
        if call is None or not call.is_hidden:
            super().update_history(entry)

    @property
    def endpoint(self) -> str:
        """What answers its calls: an address, or else the provider."""
        return getattr(self.engine, "address", None) or self.model.partition("/")[0]

    def dump_state(self) -> dict[str, Any]:
        """Return the state of a `dspy.LM` of the same name: no program keeps an address."""
        if not isinstance(self.engine, Engine):
            return super().dump_state()
        state = self.copy(engine="auto").dump_state()
        state.pop(BODY_FIELDS, None)
        return state

    def priced(self, cost: float | None, input_tokens: int, output_tokens: int) -> float | None:
        """Return what a call cost, or else what its tokens cost; None if no price is known."""
        if cost is not None or self.prices is None:
            return cost
        return input_tokens * self.prices.input + output_tokens * self.prices.output

    @contextmanager
    def admitted(self) -> Generator[None]:
        """Admit the block's call (see `BudgetGuard.admit`), and count it if it fails."""
        self.guard.admit()
        try:
            yield
        except LMError as error:
            self.meter.include(UsageReport(failed=1))
            self.guard.record_failure(error)
            raise

    def count_result(self, call: Call, result: CallResult) -> None:
        """Count the result of a call, by its engine or of a replay."""
        call.result = result
        tokens = call.tokens
        self.count(
            tokens.prompt,
            tokens.answer,
            usage=result.usage or {},
            # The provider's price of tokens that it reports wrong is wrong, too.
            cost=None if tokens.estimated else result.cost,
            # DSPy asks engines once per candidate (`n`), within one call.
            calls=max(1, len(result.responses)),
            estimated=tokens.estimated,
        )

    def count(
        self,
        prompt_tokens: int,
        answer_tokens: int,
        usage: dict[str, Any] | None = None,
        cost: float | None = None,
        calls: int = 1,
        estimated: bool = False,
    ) -> None:
        """Count calls that were answered.

        Args:
            prompt_tokens: Tokens of the prompts.
            answer_tokens: Tokens of the answers.
            usage: What else the endpoint reports, as OpenAI's `usage`.
            cost: US dollars; None takes that of the tokens, where prices are known.
            calls: How many they are.
            estimated: Whether the tokens are estimates, and `usage` is not believed.
        """
        usage = usage or {}
        cost = self.priced(cost, prompt_tokens, answer_tokens)
        details = usage.get("prompt_tokens_details") or {}
        tokens_in_server_cache = token_number(details.get("cached_tokens"))
        reports_cache = tokens_in_server_cache is not None

        self.meter.longest = max(self.meter.longest, answer_tokens)
        self.meter.include(
            UsageReport(
                Counter({self.role: calls}),
                input_tokens=prompt_tokens,
                output_tokens=answer_tokens,
                cost=cost or 0.0,
                unpriced=int(cost is None),
                cache_reported_tokens=prompt_tokens if reports_cache else 0,
                cached_tokens=min(tokens_in_server_cache or 0, prompt_tokens),
                estimated=calls if estimated else 0,
            )
        )

        total = 0
        if not estimated:
            total = token_number(usage.get("total_tokens")) or 0
        self.guard.record_success(max(total, prompt_tokens + answer_tokens), cost, calls)

    def expected_usage(self, call: Call) -> Usage:
        """Return what a call uses at most, by the length of its prompt and of earlier answers."""
        if not self.guard.has_limits:
            # Nothing is estimated. Should a limit come before the call is made, that shows.
            return Usage(unpriced=1)
        request = call.request
        max_tokens = request.get("max_tokens") or request.get("max_completion_tokens")
        return self.largest_usage(call.prompt_tokens, max_tokens, call.n)

    def largest_usage(self, prompt_tokens: int, max_tokens: int | None, answers: int) -> Usage:
        """Return what a call uses at most.

        Args:
            prompt_tokens: Our estimate of the tokens of its prompt.
            max_tokens: The most tokens of an answer; None if the call says nothing.
            answers: For how many answers (`n`) the call asks.
        """
        tokens_per_answer = max(max_tokens or RESERVED_ANSWER_TOKENS, self.meter.longest)

        reserved_prompt = RESERVED_PROMPT_FACTOR * prompt_tokens
        reserved_answers = answers * tokens_per_answer
        cost = self.priced(None, reserved_prompt, reserved_answers)
        # `BudgetGuard.admit` counts the first of the answers.
        return Usage(
            answers - 1, reserved_prompt, reserved_answers, cost or 0.0, unpriced=int(cost is None)
        )

    def _finish(self, call: Call, result: CallResult) -> Any:
        """Tell everybody who listens of a call that has a result; return its answers."""
        call.result = result
        if call.outputs is None:
            call.outputs = self._pretend_to_ask(call.prompt, messages=call.messages, **call.kwargs)

        tokens = call.tokens
        reported_cost = None if tokens.estimated else result.cost
        cost = self.priced(reported_cost, tokens.prompt, tokens.answer)
        record_usage(Usage(1, tokens.prompt, tokens.answer, cost or 0.0, int(cost is None)))

        answers = mark_cut_texts(call.outputs, result)
        on_call = current_context().on_call
        if on_call is not None:
            on_call(call.messages or call.prompt, answers, call.samples)
        return answers

    @with_callbacks
    def _pretend_to_ask(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Return an answer that was known; callbacks and history hear of it as of any other."""
        call: Any = current_context().running_call
        if not call.is_hidden:
            self.update_history(call.history_entry(call.result))
        return call.result.outputs

    def _with_seed(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Add a seed that belongs to the rollout, for engines that take one.

        So a resumed run samples what an unbroken one would.
        """
        merged = {**self.kwargs, **kwargs}
        rollout = merged.get("rollout_id")
        takes_seed = getattr(self.engine, "seedable", False)
        if rollout is None or not merged.get("temperature") or not takes_seed:
            return kwargs
        return {**kwargs, "seed": zlib.crc32(str(rollout).encode())}

    def __deepcopy__(self, memo: object = None) -> MeteredLM:
        return self.copy()

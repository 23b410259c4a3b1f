"""An estimate of a run before it starts: ranges of LM calls, tokens and cost.

Sizes are measured, not guessed: the start program runs on a few questions under the offline engine, which costs
nothing and shows how many calls a question and an item of a history take, and how long their prompts are. `effort`
turns an optimizer's settings into a range of program runs and proposals; prices come from litellm's table.

Calls that a cache answers are part of the range; they are free. Corrections of malformed answers and retries are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.meter import Meter
from ..engines.models import language_model
from ..engines.prices import token_prices
from ..programs.adapter import adapter as make_adapter
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from ..records import History

SAMPLED_ITEMS = 3
"""Items of a history that are written to measure what writing takes."""
SAMPLED_QUESTIONS = 8


@dataclass(frozen=True)
class Range:
    """From `low` to `high`."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        """The range, multiplied."""
        return Range(self.low * factor, self.high * factor)


NOTHING = Range(0, 0)


@dataclass(frozen=True)
class Size:
    """What one question and one item take, and the tokens of an average call."""

    read_calls: float
    read_tokens: float
    """Tokens, in and out, of answering one question."""
    output_share: float
    """Share of output tokens."""
    write_calls: float
    write_tokens: float
    """Tokens of writing one item."""


@dataclass(frozen=True)
class Effort:
    """What an optimizer does."""

    runs: Range
    """Program runs on a question."""
    writings: Range = NOTHING
    """How often the memories of its questions are written anew."""
    proposals: Range = NOTHING
    """Calls of the prompt LM."""
    recalls: Range = NOTHING
    """Questions that are recalled and not answered, for labelled demos."""


@dataclass(frozen=True)
class Plan:
    """Ranges for a whole run."""

    calls: Range
    tokens: Range
    usd: Range | None
    """None where litellm knows no price."""
    phases: Mapping[str, Range]
    """Calls by phase."""

    def summary(self) -> dict[str, Any]:
        """Plain JSON."""

        def pair(range: Range | None) -> dict[str, float] | None:
            return None if range is None else {"low": round(range.low, 4), "high": round(range.high, 4)}

        phases = {name: pair(range) for name, range in self.phases.items()}
        return {"calls": pair(self.calls), "tokens": pair(self.tokens), "usd": pair(self.usd), "phases": phases}


def measure(program: MemoryProgram, benchmark: Benchmark, examples: Sequence[dspy.Example]) -> Size:
    """Runs a program on a few questions under the offline engine and measures what they take.

    Args:
        program: The start of the run; its cache is not touched.
        benchmark: Where the questions come from.
        examples: Questions to take a few of.
    """
    probe = program.deepcopy()
    probe.cache = MemoryCache()
    meter = Meter()
    chosen = benchmark.interleave(examples)[:SAMPLED_QUESTIONS]
    short = {
        example.history.id: _shortened(example.history, bool(program.method.writer.predictors_below()))
        for example in chosen
    }
    adapter = make_adapter(program.adapter)
    with dspy.context(lm=language_model(meter=meter), adapter=adapter, trace=None, disable_history=True):
        for history in short.values():
            probe.remember(history)
        written = meter.read()
        for example in chosen:
            probe(**{**example.inputs(), "history": short[example.history.id]})
        read = meter.read() - written
    items = sum(len(history) for history in short.values()) or 1
    tokens = read.input_tokens + read.output_tokens
    return Size(
        read_calls=sum(read.calls.values()) / max(1, len(chosen)),
        read_tokens=tokens / max(1, len(chosen)),
        output_share=read.output_tokens / max(1, tokens),
        write_calls=sum(written.calls.values()) / items,
        write_tokens=(written.input_tokens + written.output_tokens) / items,
    )


def evaluation_plan(size: Size, examples: Sequence[dspy.Example], lm: str) -> Plan:
    """The plan of scoring a program on questions."""
    questions, items = len(examples), _items(examples)
    calls = Range(questions * size.read_calls, questions * size.read_calls)
    written = Range(items * size.write_calls * 0.8, items * size.write_calls * 1.25)
    tokens = Range(0.7, 1.4).times(questions * size.read_tokens + items * size.write_tokens)
    phases = {"answering": calls, "writing memories": written}
    return Plan(_rounded(calls + written), tokens, price(lm, tokens, size.output_share), phases)


def compile_plan(
    size: Size,
    effort: Effort,
    learned: Sequence[dspy.Example],
    dev: Sequence[dspy.Example],
    test: Sequence[dspy.Example],
    lm: str,
    rewrites: bool,
) -> Plan:
    """The plan of a compile: scoring before and after, and the optimizer between.

    Args:
        size: What one question and one item take.
        effort: What the optimizer does.
        learned: The questions it learns from.
        dev: Dev questions, scored before and after.
        test: Test questions, scored before, and after if the result is kept.
        lm: The task model, for prices.
        rewrites: Whether the optimizer may change writing prompts, so that memories are written anew.
    """
    held = _items([*dev, *test]) * size.write_calls
    written = effort.writings if rewrites else Range(min(1, effort.writings.low), min(1, effort.writings.high))
    before = (len(dev) + len(test)) * size.read_calls
    phases = {
        "scoring before": Range(before + held * 0.8, before + held * 1.25),
        # Of the calls that a question takes, recalling takes all but the answer; of tried questions it is known then.
        f"optimizing on {len(learned)} questions": effort.runs.times(size.read_calls)
        + Range(0, effort.recalls.high).times(max(0.0, size.read_calls - 1)),
        "writing training memories": Range(written.low * 0.8, written.high * 1.25).times(
            _items(learned) * size.write_calls
        ),
        "proposals": effort.proposals,
        "scoring after": Range(len(dev) * size.read_calls, before + (held * 1.25 if rewrites else 0.0)),
    }
    calls = NOTHING
    for part in phases.values():
        calls = calls + part
    each = (size.read_tokens + size.write_tokens) / max(1.0, size.read_calls + size.write_calls)
    # Demos make prompts longer: up to four times, as measured with 16 demos.
    tokens = Range(calls.low * each * 0.7, calls.high * each * 4)
    return Plan(_rounded(calls), tokens, price(lm, tokens, size.output_share), phases)


def price(lm: str, tokens: Range, output_share: float) -> Range | None:
    """What so many tokens cost by litellm's price table; None where it does not know the model."""
    prices = token_prices(lm)
    return None if prices is None else tokens.times(prices[0] * (1 - output_share) + prices[1] * output_share)


def _shortened(history: History, written: bool) -> History:
    """A history to measure with: whole where writing costs no call."""
    return History(id=history.id, items=history.items[:SAMPLED_ITEMS]) if written else history


def _items(examples: Sequence[dspy.Example]) -> int:
    return sum(len(history) for history in {example.history for example in examples})


def _rounded(calls: Range) -> Range:
    return Range(int(calls.low), int(calls.high + 0.999))

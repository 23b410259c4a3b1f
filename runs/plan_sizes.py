"""Measure how many calls and tokens a program takes for a question or an item, at no cost.

    sizes = measure_program(program, benchmark, examples)
    sizes.answering.calls                                    # calls for one question
    estimate_writing(program, examples, sizes).tokens        # tokens for writing all memories

A copy of the program answers a few questions with the offline engine. Its answers are of no use,
but its prompts are real ones, so they show how many calls there are and how long they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dspy

from ..data.benchmark import Benchmark
from ..engines.lm import language_model
from ..engines.meter import Meter
from ..engines.usage import Usage, UsageReport
from ..optimizers.call_bounds import Range
from ..programs.adapter import adapter as make_adapter
from ..programs.cache import CachedMemory, MemoryCache
from ..programs.program import MemoryProgram
from ..records import History

SAMPLED_ITEMS = 3
"""Items of a history that are written to measure what writing takes."""
SAMPLED_QUESTIONS = 8
"""Questions that are answered to measure what answering takes."""


@dataclass(frozen=True)
class Work:
    """How many calls and tokens something takes."""

    calls: float
    tokens: float
    """Tokens of prompts and answers together."""

    def __add__(self, other: Work) -> Work:
        return Work(self.calls + other.calls, self.tokens + other.tokens)

    def times(self, count: float) -> Work:
        """Return what it takes to do this `count` times."""
        return Work(count * self.calls, count * self.tokens)


@dataclass(frozen=True)
class ProgramSizes:
    """What each kind of work of a program takes."""

    answering: Work
    """Answering one question."""
    writing: Work
    """Writing one item into a memory."""
    finalizing: Work
    """Finalizing one memory."""
    output_share: float
    """Share of the tokens of answering that are output."""

    @property
    def mean_tokens_per_call(self) -> float:
        """Tokens of a mean call: one question, one item and one finalizing together."""
        work = self.answering + self.writing + self.finalizing
        return work.tokens / max(1.0, work.calls)

    def tokens_of(self, calls: Range, spread: Range) -> Range:
        """Return the range of tokens that a range of calls takes.

        Args:
            calls: The fewest and the most calls.
            spread: How far the tokens of a call may be from the mean, as factors.
        """
        return Range(
            calls.low * self.mean_tokens_per_call * spread.low,
            calls.high * self.mean_tokens_per_call * spread.high,
        )


def measure_program(
    program: MemoryProgram, benchmark: Benchmark, examples: Sequence[dspy.Example]
) -> ProgramSizes:
    """Answer a few of the questions with the offline engine, and count calls and tokens.

    A copy of the program answers them, with a cache of its own.
    """
    sample = benchmark.interleave(examples)[:SAMPLED_QUESTIONS]
    histories = _shortened_histories(program, sample)
    probe = program.deepcopy()
    probe.cache = MemoryCache()
    meter = Meter()
    memories: dict[str, CachedMemory] = {}
    adapter = make_adapter(program.adapter)
    lm = language_model(meter=meter)
    with dspy.context(lm=lm, adapter=adapter, trace=None, disable_history=True):
        for history_id, history in histories.items():
            memories[history_id] = probe.remember(history)
        writing_usage = meter.read()

        for example in sample:
            history_id = example.history.id
            arguments = {**example.inputs(), "history": histories[history_id]}
            probe(**arguments, remembered=memories[history_id])
        answering_usage = meter.read() - writing_usage

    sizes = _sizes_from_usage(
        answering_usage,
        writing_usage,
        memories,
        question_count=len(sample),
        item_count=sum(len(history) for history in histories.values()),
    )
    if benchmark.interaction is None:
        return sizes
    return _sizes_in_conversation(sizes, benchmark.interaction.replies)


def _shortened_histories(
    program: MemoryProgram, examples: Sequence[dspy.Example]
) -> dict[str, History]:
    """Return the histories of questions by their ids, cut to `SAMPLED_ITEMS`.

    A few items show what writing an item takes. Histories stay whole where the writer has no
    prompts, because writing calls no model then.
    """
    has_prompts = bool(program.method.writer.predictors_below())
    limit = SAMPLED_ITEMS if has_prompts else None
    histories: dict[str, History] = {}
    for example in examples:
        history = example.history
        histories[history.id] = History(id=history.id, items=history.items[:limit])
    return histories


def _sizes_from_usage(
    answering: UsageReport,
    writing: UsageReport,
    memories: Mapping[str, CachedMemory],
    *,
    question_count: int,
    item_count: int,
) -> ProgramSizes:
    """Divide what was measured by the numbers of questions, items and memories.

    Args:
        answering: What answering the questions took.
        writing: What writing and finalizing the memories took.
        memories: The memories, by the ids of their histories.
        question_count: Questions that were answered.
        item_count: Items that were written.
    """
    finalizing = Usage()
    for memory in memories.values():
        # A memory has the usage of its last step. That wrote an item, or else it was finalizing.
        is_finalized = memory.item is None
        if is_finalized:
            finalizing += memory.usage

    writing_total = _total(writing)
    # A difference below zero is taken for nothing.
    item_calls = max(0, writing_total.calls - finalizing.calls)
    item_tokens = max(0, writing_total.tokens - finalizing.tokens)
    answering_total = _total(answering)
    questions = max(1, question_count)
    items = max(1, item_count)
    histories = max(1, len(memories))
    return ProgramSizes(
        answering=Work(answering_total.calls / questions, answering_total.tokens / questions),
        writing=Work(item_calls / items, item_tokens / items),
        finalizing=Work(finalizing.calls / histories, finalizing.tokens / histories),
        output_share=answering.output_tokens / max(1, answering_total.tokens),
    )


def _total(usage: UsageReport) -> Work:
    """Return the calls of all roles, and the tokens in and out."""
    return Work(sum(usage.calls.values()), usage.input_tokens + usage.output_tokens)


def _sizes_in_conversation(sizes: ProgramSizes, replies: float) -> ProgramSizes:
    """Return the sizes where a question is a conversation with a simulated user.

    The user talks with two assistants: the program and a rival, which is counted as if it were the
    program.

    Args:
        sizes: The sizes where a question is answered once.
        replies: How often each assistant replies.
    """
    assistant_replies = 2 * replies
    # Before each reply the user writes: one more call, counted with the tokens of the reply.
    calls_per_reply = sizes.answering.calls + 1
    tokens_per_reply = 2 * sizes.answering.tokens
    answering = Work(
        calls=assistant_replies * calls_per_reply,
        tokens=assistant_replies * tokens_per_reply,
    )
    return replace(sizes, answering=answering)


def estimate_writing(
    program: MemoryProgram, examples: Sequence[dspy.Example], sizes: ProgramSizes
) -> Work:
    """Return what writing and finalizing the memories of some questions takes."""
    items = sizes.writing.times(_count_items(program, examples))
    memory_count = len({program.history_of(example) for example in examples})
    return items + sizes.finalizing.times(memory_count)


def _count_items(program: MemoryProgram, examples: Sequence[dspy.Example]) -> int:
    """Count the items that are written for the memories of some questions.

    These are the items of every history. Some programs also write the recent items of a question:
    `program.history_of` returns the history with these behind it.
    """
    histories = {example.history for example in examples}
    history_item_count = sum(len(history) for history in histories)

    # A history has a prefix for each item, which stands for this item and all those before it. So a
    # set of prefixes counts an item once that several questions have after the same history.
    history_prefixes: set[str] = set()
    for history in histories:
        history_prefixes.update(history.prefixes)
    written_prefixes: set[str] = set()
    for example in examples:
        written_prefixes.update(program.history_of(example).prefixes)

    recent_item_count = len(written_prefixes - history_prefixes)
    return history_item_count + recent_item_count

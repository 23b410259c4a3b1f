"""Measure how many calls and tokens a program takes for a question or an item, at no cost.

    mean_work = measure_program(program, benchmark, examples)
    mean_work.answering.calls                                # calls for one question
    estimate_writing(program, examples, mean_work).tokens    # tokens for writing all memories

A copy of the program answers a few questions with the offline engine. Its answers are of no use,
but its prompts are real ones, so they show how many calls there are and how long they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
"""Items of a history that are written to measure what writing takes, without finalizing."""
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
class MeanWork:
    """What each kind of work of a program takes on average."""

    answering: Work
    """Answering one question."""
    writing: Work
    """Writing one item into a memory."""
    finalizing: Work
    """Finalizing the memory of a whole history."""
    output_share: float
    """Share of output among the tokens of answering. Costs take it for the share of all calls."""

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
) -> MeanWork:
    """Measure what answering a question, writing an item and finalizing a memory take on average.

    A copy of the program writes a few memories and answers a few of the questions. It asks the
    offline engine and has a cache of its own, so nothing is paid for, and the program keeps nothing
    of it.
    """
    sample = benchmark.interleave(examples)[:SAMPLED_QUESTIONS]
    histories = _measured_histories(program, sample)
    probe = program.deepcopy()
    if not benchmark.scorer.needs_answer:
        probe = probe.recalling_only()
    probe.cache = MemoryCache()
    meter = Meter()
    memories: dict[str, CachedMemory] = {}
    adapter = make_adapter(program.adapter)
    lm = language_model(meter=meter)
    with dspy.context(lm=lm, adapter=adapter, trace=None, disable_history=True):
        # All memories are written first, so that the calls of writing and those of answering can be
        # told apart.
        for digest, history in histories.items():
            memories[digest] = probe.remember(history)
        writing_usage = meter.read()

        for example in sample:
            digest = example.history.digest
            arguments = {**example.inputs(), "history": histories[digest]}
            probe(**arguments, remembered=memories[digest])
        answering_usage = meter.read() - writing_usage

    mean_work = _divide_usage(
        answering_usage,
        writing_usage,
        list(memories.values()),
        question_count=len(sample),
        item_count=_count_written_items(histories.values()),
    )
    if benchmark.interaction is None:
        return mean_work
    # Here each question was answered once. In a run, a simulated user talks about it instead.
    return _work_of_conversations(mean_work, benchmark.interaction.replies)


def _measured_histories(
    program: MemoryProgram, examples: Sequence[dspy.Example]
) -> dict[str, History]:
    """Return the histories that are written to measure a program, by the digests of whole ones.

    They are those of the questions. Where a few items show what writing an item takes, they are cut
    to `SAMPLED_ITEMS`. Ids would not do: one user's questions may be about different histories.
    """
    writer = program.method.writer
    # Without prompts, writing calls no model, so whole histories are quickly written. And where
    # memories are finalized, that may take more calls the more items there are: `h2memory` asks
    # about each topic. Only whole histories show how many.
    calls_no_model = not writer.predictors_below()
    needs_whole_histories = calls_no_model or writer.needs_finalizing
    limit = None if needs_whole_histories else SAMPLED_ITEMS

    histories: dict[str, History] = {}
    for example in examples:
        history = example.history
        histories[history.digest] = History(id=history.id, items=history.items[:limit])
    return histories


def _divide_usage(
    answering: UsageReport,
    writing: UsageReport,
    memories: Sequence[CachedMemory],
    *,
    question_count: int,
    item_count: int,
) -> MeanWork:
    """Divide what was measured by the numbers of questions, items and memories.

    Args:
        answering: What answering the questions took.
        writing: What writing and finalizing the memories took.
        memories: The last memory of each history. Histories with equal items share one.
        question_count: Questions that were answered.
        item_count: Items that were written.
    """
    finalizing = Usage()
    different_memories = {id(memory): memory for memory in memories}
    for memory in different_memories.values():
        # `memory.usage` is that of the last step alone. If the writer finalizes its memories, the
        # last step did that, and has no item. If it does not, the last step wrote an item.
        is_finalized = memory.item is None
        if is_finalized:
            finalizing += memory.usage

    # Writing was metered as a whole: what finalizing did not take, the items took.
    writing_total = _total(writing)
    item_calls = writing_total.calls - finalizing.calls
    item_tokens = writing_total.tokens - finalizing.tokens

    answering_total = _total(answering)
    questions = max(1, question_count)
    items = max(1, item_count)
    memory_count = max(1, len(different_memories))
    return MeanWork(
        answering=Work(answering_total.calls / questions, answering_total.tokens / questions),
        writing=Work(item_calls / items, item_tokens / items),
        finalizing=Work(finalizing.calls / memory_count, finalizing.tokens / memory_count),
        output_share=answering.output_tokens / max(1, answering_total.tokens),
    )


def _total(usage: UsageReport) -> Work:
    """Return the calls of all roles, and the tokens in and out."""
    return Work(sum(usage.calls.values()), usage.input_tokens + usage.output_tokens)


def _work_of_conversations(mean_work: MeanWork, replies: float) -> MeanWork:
    """Return the mean work where a question is a conversation with a simulated user.

    The user talks with two assistants: the program and a rival, which is counted as if it were the
    program.

    Args:
        mean_work: The mean work where a question is answered once.
        replies: How often each assistant replies.
    """
    reply = mean_work.answering
    # Before each reply the user writes a message. It takes one call, which is counted with as many
    # tokens as the reply.
    message = Work(calls=1, tokens=reply.tokens)
    number_of_replies = 2 * replies
    conversation = (message + reply).times(number_of_replies)
    return replace(mean_work, answering=conversation)


def estimate_writing(
    program: MemoryProgram, examples: Sequence[dspy.Example], mean_work: MeanWork
) -> Work:
    """Return what writing and finalizing the memories of some questions takes."""
    # With the recent items of each question, if the program writes these into the memory.
    histories = [program.history_of(example) for example in examples]
    item_count = _count_written_items(histories)
    memory_count = len({history.digest for history in histories})
    return mean_work.writing.times(item_count) + mean_work.finalizing.times(memory_count)


def _count_written_items(histories: Iterable[History]) -> int:
    """Count the items that are written for the memories of some histories.

    Histories that begin with the same items share the memories of this beginning, so its items are
    written once. For example, [a, b, c] and [a, b, d] take four writings: a, b, c and d.
    """
    # A prefix is the digest of an item and of all items before it, so each writing has its own.
    written_prefixes: set[str] = set()
    for history in histories:
        written_prefixes.update(history.prefixes)
    return len(written_prefixes)

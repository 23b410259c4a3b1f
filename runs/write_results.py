"""How the memories of histories were written: failures, usage, and the size of the memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import dspy

from ..engines.usage import Usage
from ..memory.word_count import count_memory_words
from ..programs.cache import CachedMemory
from ..programs.program import MemoryProgram
from ..programs.recording import ExternalError
from ..records import Failure, History
from .write_precision import StoredEntries, read_stored_entries


@dataclass(frozen=True)
class WriteResult:
    """How the memory of one history was written."""

    failures: tuple[Failure, ...] = ()
    """What could not be written."""
    usage: Usage = field(default_factory=Usage)
    """What writing took. A beginning that an earlier history shares is counted there."""
    words: int | None = None
    """Words of the memory; None if nothing was written, or the memory cannot be read here."""
    operations: Mapping[str, int] = field(default_factory=dict[str, int])
    """Operations on the memory by their outcome, if the method counts them."""
    store_writes: int = 0
    """Sessions that a user's own store was given; 0 for Mempiler's methods."""
    entries: StoredEntries | None = None
    """The entries of the memory; None unless the metric is about them and the memory lists them."""


@dataclass(frozen=True)
class WriteTotals:
    """How the different histories of some questions were written, taken together."""

    failures: tuple[Failure, ...]
    usage: Usage
    tokens_by_group: Mapping[str, float]
    """Tokens of `usage`, by the group of the questions about each history."""
    num_histories: int
    mean_words: float | None
    """Mean number of words of a memory; None if no memory could be read."""
    operations: Mapping[str, int]
    store_writes: int
    entries: Mapping[History, StoredEntries]
    """The entries of the memories by the history of the questions, as far as they are known."""


@dataclass(frozen=True)
class _WrittenMemories:
    """The memories that were written on the way to the end of one history."""

    memories: Sequence[CachedMemory] = ()
    """From the empty one to the last one; none if writing failed."""
    wasted_usage: Usage = field(default_factory=Usage)
    """What calls took that were made in vain."""


def collect_write_results(
    program: MemoryProgram, histories: Sequence[History], reads_entries: bool = False
) -> dict[History, WriteResult]:
    """Return, for each history, how the writing of its memory went: what it took, what failed.

    The memories are in the cache already if any question asked for them. Histories that begin alike
    share their first memories, which count for the first of these histories alone.

    Args:
        program: The program that remembers.
        histories: What was remembered.
        reads_entries: Whether the results say what the memories hold.
    """
    results: dict[History, WriteResult] = {}
    # The ids of Python objects. They stay unique, since the cache keeps all memories alive.
    counted: set[int] = set()
    for history in histories:
        written = _written_memories(program, history)
        new_memories = [memory for memory in written.memories if id(memory) not in counted]
        counted.update(id(memory) for memory in new_memories)
        result = _make_write_result(program, history, written, new_memories)
        if reads_entries:
            result = replace(result, entries=read_stored_entries(program, history))
        results[history] = result
    return results


def _written_memories(program: MemoryProgram, history: History) -> _WrittenMemories:
    """Return every memory that was written on the way to the end of a history.

    There are none if the writer calls no model, or if writing fails.
    """
    if not program.method.writer.calls_model:
        return _WrittenMemories()

    try:
        last_memory = program.remember(history)
    except ExternalError as error:
        return _WrittenMemories(wasted_usage=error.usage)
    except (Exception, SystemExit):
        # SystemExit too: code of the user's may call `exit`. The same error has failed all
        # questions about the history, and is counted as their failure.
        return _WrittenMemories()
    return _WrittenMemories(last_memory.ancestors())


def _make_write_result(
    program: MemoryProgram,
    history: History,
    written: _WrittenMemories,
    new_memories: Sequence[CachedMemory],
) -> WriteResult:
    """Return how a history was written.

    Args:
        program: The program that remembers.
        history: The history.
        written: All its memories; none if writing failed, or if it calls no model.
        new_memories: Those of them that are not counted for an earlier history.
    """
    # If a user's store failed as a whole, there are no memories, but its calls were paid for.
    usage = written.wasted_usage
    failures: list[Failure] = []
    for memory in new_memories:
        failures.extend(_located_failures(history, memory))
        usage += memory.usage
    if not written.memories:
        return WriteResult(tuple(failures), usage)

    # A user's own store keeps its memory outside of this process, where its words cannot be
    # counted. A search that is not free is that of such a store.
    is_own_system = not program.method.reader.is_search_free
    words: int | None = None
    operations: dict[str, int] = {}
    if not is_own_system:
        # The last memory holds all that was written.
        last_memory = written.memories[-1].memory
        words = count_memory_words(last_memory)
        operations = dict(last_memory.operations)

    # A store is given every session of the history.
    store_writes = len(history) if program.method.writes_stores else 0
    return WriteResult(tuple(failures), usage, words, operations, store_writes)


def _located_failures(history: History, memory: CachedMemory) -> list[Failure]:
    """Return what failed for one memory; each failure says the history and the item too."""
    step = f"item {memory.item.id}" if memory.item else "settling"
    failures: list[Failure] = []
    for failure in memory.failures:
        where = f"{history.id}, {step}, {failure.where}"
        failures.append(failure.model_copy(update={"where": where}))
    return failures


def total_write_results(
    program: MemoryProgram,
    examples: Sequence[dspy.Example],
    remote_results: Mapping[str, WriteResult],
    group_of: Callable[[dspy.Example], str],
    reads_entries: bool = False,
) -> WriteTotals:
    """Return how the histories of questions were written, taken together.

    Some questions have what came after the history written too, so one history may be written in
    several lengths. All of them count for usage and failures. Only the longest one counts as a
    history with a memory.

    Args:
        program: The program that remembers.
        examples: The questions.
        remote_results: How other processes wrote histories, by the id of a question about each.
        group_of: Returns the conversation or user of a question.
        reads_entries: Whether the result says what the memories hold.
    """
    results: dict[History, WriteResult] = {}
    # The group of the first question about each history.
    histories: dict[History, str] = {}
    longest: dict[History, History] = {}
    for example in examples:
        history = program.history_of(example)
        histories.setdefault(history, group_of(example))
        if str(example.id) in remote_results:
            results[history] = remote_results[str(example.id)]
        if len(history) >= len(longest.get(example.history, ())):
            longest[example.history] = history

    local_histories = [history for history in histories if history not in results]
    with dspy.context(trace=None, disable_history=True):
        results.update(collect_write_results(program, local_histories, reads_entries))

    failures: list[Failure] = []
    usage = Usage()
    tokens_by_group: dict[str, float] = {}
    store_writes = 0
    for history, group in histories.items():
        failures.extend(results[history].failures)
        usage += results[history].usage
        tokens = results[history].usage.tokens
        tokens_by_group[group] = tokens_by_group.get(group, 0.0) + tokens
        store_writes += results[history].store_writes

    word_counts: list[int] = []
    operations: Counter[str] = Counter()
    entries: dict[History, StoredEntries] = {}
    for asked_history, history in longest.items():
        result = results[history]
        operations.update(result.operations)
        if result.entries is not None:
            entries[asked_history] = result.entries
        words = result.words
        if words is not None:
            word_counts.append(words)

    return WriteTotals(
        failures=tuple(failures),
        usage=usage,
        tokens_by_group=tokens_by_group,
        num_histories=len(longest),
        mean_words=sum(word_counts) / len(word_counts) if word_counts else None,
        operations=dict(operations),
        store_writes=store_writes,
        entries=entries,
    )

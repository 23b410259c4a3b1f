"""The raw completions of a block of code, as they were sampled: what reinforcement learning trains on.

DSPy's traces hold parsed fields; a completion that cannot be parsed is lost there, and one that can is rendered anew.
Inside `capture()`, every completion of a local model is recorded: token ids, log-probabilities, text, also the
malformed and the empty ones. Threads started with a copied context (`programs.gather`, `asyncio.to_thread`) write into
the same list; DSPy's own thread pools copy only DSPy's settings, so open a `capture()` inside each of their tasks.

With nested blocks, the innermost gets the samples. Samples stand in the order in which calls ended, which differs from
run to run where calls ran at the same time. A call answered by a cache has no sample.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...records.scope import holding

_samples: contextvars.ContextVar[list[Sample] | None] = contextvars.ContextVar("samples", default=None)


@dataclass(frozen=True)
class Sample:
    """One completion of a local model."""

    messages: tuple[dict[str, str], ...] = field(repr=False)
    """What was asked, as {role, content}; empty where the model was sampled by token ids alone."""
    prompt_ids: tuple[int, ...] = field(repr=False)
    completion_ids: tuple[int, ...] = field(repr=False)
    """What was sampled, the end-of-sequence token included where the model set one."""
    logprobs: tuple[float, ...] = field(repr=False)
    """Of each of `completion_ids` under the distribution it was drawn from, the temperature included; at temperature 0
    under the distribution at temperature 1. Natural logarithms."""
    text: str
    """The completion without its end-of-sequence token."""
    finished: bool
    """Whether the model ended it, rather than the limit of tokens."""


@contextmanager
def capture() -> Iterator[list[Sample]]:
    """Collects the completions that local models give to calls of the block."""
    samples: list[Sample] = []
    with holding(_samples, samples):
        yield samples


def record(sample: Sample) -> None:
    """Adds a completion to the list of the innermost `capture`, if there is one."""
    samples = _samples.get()
    if samples is not None:
        samples.append(sample)

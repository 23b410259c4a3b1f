"""How many calls an optimizer makes: at least, and at most.

    bounds = optimizer.call_bounds(job)
    bounds.answers.high         # the program answers at most so many questions

The bounds follow from an optimizer's settings and the numbers of its questions. They are wide
rather than exact: how often DSPy tries depends on what the models answer.

- *At least* counts a prompt once, because a run never pays twice for the same prompt. So scoring
  two equal candidates costs as much as scoring one.
- *At most* assumes that no prompt repeats. It leaves out corrections, retries and judges.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """A number that is not known exactly: at least `low`, at most `high`."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        """Return both ends multiplied by `factor`."""
        return Range(self.low * factor, self.high * factor)


NOTHING = Range(0, 0)


@dataclass(frozen=True)
class CallBounds:
    """What an optimizer asks for, each as a range."""

    answers: Range = NOTHING
    """Questions that the program answers."""
    recalls: Range = NOTHING
    """Questions that are recalled but not answered, for labelled demos."""
    memory_writings: Range = NOTHING
    """How often the memories of all its questions are written; half of them count as 0.5."""
    proposals: Range = NOTHING
    """Calls of the prompt model."""

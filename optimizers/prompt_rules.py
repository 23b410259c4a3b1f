"""What the prompts of a candidate must not be: copies of training questions, or too long.

An instruction that repeats a training question or its answer scores well on that question and helps
with no other one. So a text is refused if it has eight words in a row of a training question or
answer; demos, which are such questions, are not concerned. Words in a row that stand in three or
more training questions are no copy: they are the form of the questions, and state the task.

A prompt is too long if all prompts of the program together are more than `max_growth` times as long
as those of the start.

A rule is applied at three places, and the first that applies counts:

    proposal of the prompt LM     is asked for again, and given up in the end (`proposals.py`)
    candidate to be scored        answers no question, and costs nothing (`history.py`)
    program that is returned      is not promoted (`compile.py`)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import dspy

from ..data.word_splitting import words_by_script
from ..programs.program import MemoryProgram
from ..programs.state import own_demos, signature_of
from ..records import estimate_tokens
from .demo_lengths import tokens_of_fields

MIN_COPIED_WORDS = 8
"""So many words in a row are a copy."""
MIN_FORM_QUESTIONS = 3
"""Words in a row that stand in so many training questions are the form of these questions."""

_NOT_OF_THE_QUESTION = ("history", "recent", "evidence_ids", "remembered")
"""Inputs of a program that are no words of the question."""

BrokenRule = Literal["copy", "length"]


class PromptRules:
    """The rules for the prompts of one program, and how often they were broken; safe under threads.

    Args:
        start: The program that is compiled.
        examples: The training questions.
        max_growth: How many times as long as the prompts of `start` those of a candidate may be;
            None is no limit.
    """

    def __init__(
        self,
        start: MemoryProgram,
        examples: Sequence[dspy.Example] = (),
        max_growth: float | None = None,
    ) -> None:
        self.max_growth = max_growth
        self.copies = 0
        """Proposals and candidates that were refused as copies."""
        self.too_long = 0
        """Proposals and candidates that were refused for their length."""
        self._examples = examples
        self._start_tokens = prompt_tokens(start)
        self._start_instructions: dict[str, str] = {}
        for name, predictor in start.all_predictors().items():
            self._start_instructions[name] = signature_of(predictor).instructions

        self._lock = threading.Lock()
        self._counted: set[tuple[str, ...]] = set()
        """The prompts of the candidates that were counted: they may be scored several times."""

    def refuse_proposal(self, text: str) -> BrokenRule | None:
        """Return which rule an instruction breaks in any program, and count it; None if none."""
        rule = self._broken_by_text(text)
        self._count(rule)
        return rule

    def refuse_instructions(self, instructions: Mapping[str, str]) -> BrokenRule | None:
        """Return which rule the start breaks with other instructions, and count it; None if none.

        Args:
            instructions: New instructions by the name of their predictor.
        """
        tokens = self._start_tokens
        for name, text in instructions.items():
            tokens += estimate_tokens(text) - estimate_tokens(self._start_instructions[name])
        rule: BrokenRule | None = "length" if self.is_too_long(tokens) else None
        if rule is None and any(self._is_copy(text) for text in instructions.values()):
            rule = "copy"
        self._count(rule)
        return rule

    def refuse_program(self, program: MemoryProgram) -> str | None:
        """Return in words which rule a program breaks, and count it once; None if none."""
        instructions: list[str] = []
        for predictor in program.all_predictors().values():
            instructions.append(signature_of(predictor).instructions)

        tokens = prompt_tokens(program)
        rule: BrokenRule | None = None
        reason: str | None = None
        if self.is_too_long(tokens):
            rule = "length"
            growth = tokens / max(1, self._start_tokens)
            reason = (
                f"The prompts are {growth:.1f} times as long as those of the start"
                f" (--max-prompt-growth is {self.max_growth:g})"
            )
        elif any(self._is_copy(text) for text in instructions):
            rule = "copy"
            reason = (
                f"An instruction has {MIN_COPIED_WORDS} or more words in a row"
                " of a training question or answer"
            )

        key = (*instructions, str(tokens))
        with self._lock:
            is_new = key not in self._counted
            self._counted.add(key)
        if is_new:
            self._count(rule)
        return reason

    def is_too_long(self, tokens: int) -> bool:
        """Return whether prompts of so many tokens in all are longer than they may be."""
        if self.max_growth is None:
            return False
        return tokens > self.max_growth * max(1, self._start_tokens)

    def _broken_by_text(self, text: str) -> BrokenRule | None:
        # What the text takes the place of is not known here. So only its own length is looked at.
        if self.is_too_long(estimate_tokens(text)):
            return "length"
        return "copy" if self._is_copy(text) else None

    def _is_copy(self, text: str) -> bool:
        return not self._forbidden_runs.isdisjoint(runs_of_words(text))

    def _count(self, rule: BrokenRule | None) -> None:
        with self._lock:
            self.copies += rule == "copy"
            self.too_long += rule == "length"

    @cached_property
    def _forbidden_runs(self) -> frozenset[str]:
        """The runs of words of training questions and answers that no instruction may have.

        What the instructions of the start already say is no copy, nor is the form of questions.
        """
        question_counts: Counter[str] = Counter()
        for example in self._examples:
            runs: set[str] = set()
            for text in _texts_of(example):
                runs.update(runs_of_words(text))
            question_counts.update(runs)

        forbidden: set[str] = set()
        for run, question_count in question_counts.items():
            if question_count < MIN_FORM_QUESTIONS:
                forbidden.add(run)
        for text in self._start_instructions.values():
            forbidden.difference_update(runs_of_words(text))
        return frozenset(forbidden)


class _PromptLength:
    """The estimated tokens of one predictor's prompts, which can be made to show fewer demos."""

    def __init__(self, predictor: dspy.Predict) -> None:
        signature = signature_of(predictor)
        self._predictor = predictor
        self._instruction_tokens = estimate_tokens(signature.instructions)
        self._demos = own_demos(predictor)
        self._demo_tokens: list[int] = []
        for demo in self._demos:
            shown_fields = {name: demo[name] for name in signature.fields if name in demo}
            self._demo_tokens.append(tokens_of_fields(shown_fields))

        nearest = getattr(predictor, "nearest", None)
        self.chooses_demos = nearest is not None
        """Whether it shows the demos that are nearest to a question, and not all."""
        self.shown = len(self._demos)
        """How many demos a prompt shows."""
        if nearest is not None:
            self.shown = min(nearest, self.shown)
            # Which demos are nearest is not known here, so the longest ones count.
            self._demo_tokens.sort(reverse=True)
        self.shown_before = self.shown
        """How many it showed at first."""

    @property
    def tokens(self) -> int:
        """The tokens of the instructions and of the demos that a prompt shows."""
        return self._instruction_tokens + sum(self._demo_tokens[: self.shown])

    def drop_demo(self) -> int:
        """Count one demo less, the last one, and return its tokens."""
        self.shown -= 1
        return self._demo_tokens[self.shown]

    def shorten_predictor(self) -> None:
        """Let the predictor show as many demos as are counted."""
        if not self.chooses_demos:
            self._predictor.demos = self._demos[: self.shown]
            return
        # It goes on choosing from all of its demos, if it shows any.
        self._predictor.nearest = self.shown  # pyright: ignore[reportAttributeAccessIssue]
        if self.shown == 0:
            self._predictor.demos = []


def prompt_tokens(program: MemoryProgram) -> int:
    """Return the estimated tokens of all instructions and demos of a program.

    A predictor that chooses its demos for each question counts with the longest ones.
    """
    return sum(_PromptLength(predictor).tokens for predictor in program.all_predictors().values())


def drop_demos_beyond_growth(program: MemoryProgram, rules: PromptRules) -> list[str]:
    """Remove the last demos of a program one by one, until its prompts are short enough.

    Each is taken from the predictor that shows most. A predictor that chooses its demos for each
    question keeps them all, and shows fewer. The instructions alone may be too long still.

    Args:
        program: The program; its predictors are changed.
        rules: How long its prompts may be.

    Returns:
        A line for each predictor that shows fewer demos than before.
    """
    lengths: dict[str, _PromptLength] = {}
    for name, predictor in program.all_predictors().items():
        lengths[name] = _PromptLength(predictor)

    tokens = sum(length.tokens for length in lengths.values())
    while rules.is_too_long(tokens):
        longest = max(lengths.values(), key=lambda length: length.shown)
        if longest.shown == 0:
            break
        tokens -= longest.drop_demo()

    notes: list[str] = []
    for name, length in lengths.items():
        if length.shown == length.shown_before:
            continue
        length.shorten_predictor()
        demos = "nearest demos" if length.chooses_demos else "demos"
        notes.append(
            f"{name}: {length.shown} of {length.shown_before} {demos} fit"
            f" --max-prompt-growth {rules.max_growth:g}"
        )
    return notes


def _texts_of(example: dspy.Example) -> Iterable[str]:
    """Yield the words of a training question, of its choices if it has any, and of its answer."""
    fields = dict(example.inputs().items())
    for name in _NOT_OF_THE_QUESTION:
        fields.pop(name, None)
    for value in (*fields.values(), example.get("answer")):
        yield from _texts_in(value)


def _texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return [item for item in value if isinstance(item, str)]
    return []


def runs_of_words(text: str) -> set[str]:
    """Return every `MIN_COPIED_WORDS` words in a row of a text, as metrics compare words."""
    words = words_by_script(text)
    last_start = len(words) - MIN_COPIED_WORDS
    return {" ".join(words[start : start + MIN_COPIED_WORDS]) for start in range(last_start + 1)}

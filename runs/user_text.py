"""Find text of users in the prompts of a compiled program.

A program that was compiled on questions of users may show them to everybody: as demos, which are
questions with the history that was recalled and the answer, or as a passage in an instruction. Who
forgets a user cannot take such text out of a program again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import dspy

from ..optimizers.prompt_rules import MIN_COPIED_WORDS, MIN_FORM_QUESTIONS, runs_of_words
from ..programs.program import MemoryProgram
from ..programs.state import own_demos, signature_of


def find_user_text(
    compiled: MemoryProgram, start: MemoryProgram, examples: Sequence[dspy.Example]
) -> str | None:
    """Say what the prompts of a compiled program hold of users' text; None if nothing is found.

    What the start has is not looked at. A passage is eight words in a row of a turn, a question or
    an answer. Words of three users and more are no passage: they are a form of speech. A shorter
    text, such as a name, is not found.

    Args:
        compiled: The compiled program.
        start: The program that it was compiled from.
        examples: The questions of its compile.
    """
    new_demos = _count_new_demos(compiled, start)
    if new_demos:
        return f"{new_demos} demos, which are questions of users"

    passages = _passages_of_users(examples)
    for instruction in _instructions(start):
        passages.difference_update(runs_of_words(instruction))
    for instruction in _instructions(compiled):
        if not passages.isdisjoint(runs_of_words(instruction)):
            return f"{MIN_COPIED_WORDS} words in a row of a user"
    return None


def _count_new_demos(compiled: MemoryProgram, start: MemoryProgram) -> int:
    """Return how many demos of the compiled program are not those of the start."""
    start_predictors = start.all_predictors()
    new_demos = 0
    for name, predictor in compiled.all_predictors().items():
        start_demos = own_demos(start_predictors[name])
        for demo in own_demos(predictor):
            if demo not in start_demos:
                new_demos += 1
    return new_demos


def _instructions(program: MemoryProgram) -> Iterable[str]:
    """Yield the texts that the prompts of a program begin with."""
    for predictor in program.all_predictors().values():
        signature = signature_of(predictor)
        yield signature.instructions
        # Some optimizers change the label of a field.
        for field in signature.fields.values():
            extra = field.json_schema_extra
            if isinstance(extra, dict):
                yield str(extra.get("prefix", ""))
                yield str(extra.get("desc", ""))


def _passages_of_users(examples: Sequence[dspy.Example]) -> set[str]:
    """Return the words in a row that only few users have said, asked or been answered."""
    texts_by_user: dict[str, set[str]] = {}
    for example in examples:
        texts = texts_by_user.setdefault(example.history.id, set())
        texts.add(str(example.question))
        texts.add(str(example.answer))
        for turn, _ in example.history.turns.values():
            texts.add(turn.content)

    user_counts: Counter[str] = Counter()
    for texts in texts_by_user.values():
        passages_of_user: set[str] = set()
        for text in texts:
            passages_of_user |= runs_of_words(text)
        user_counts.update(passages_of_user)
    return {passage for passage, count in user_counts.items() if count < MIN_FORM_QUESTIONS}

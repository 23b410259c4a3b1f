"""Find text of users in the prompts of a compiled program.

A program that was compiled on questions of users may contain text of these users, and is shown to
everybody. The text is in its demos, which are questions with what was recalled and the answer, or
it was copied into an instruction. Forgetting a user does not remove such text from the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import dspy

from ..optimizers.prompt_rules import MIN_COPIED_WORDS, runs_of_words
from ..programs.program import MemoryProgram
from ..programs.state import own_demos, signature_of

MIN_USERS_OF_COMMON_PHRASE = 3
"""What so many users have said alike is a figure of speech, and tells nothing of any of them."""


def find_user_text(
    compiled: MemoryProgram, start: MemoryProgram, examples: Sequence[dspy.Example]
) -> str | None:
    """Describe the text of users in the prompts of a compiled program; None if none is found.

    Found are demos, and passages in instructions: eight words in a row that one or two users said,
    asked or were answered. A shorter text, such as a name, is not found.

    Args:
        compiled: The compiled program.
        start: The program that it was compiled from. Text that it contains already is not reported.
        examples: The questions of the compile, with the histories of their users.
    """
    new_demos = _count_new_demos(compiled, start)
    if new_demos:
        return f"{new_demos} demos, which are questions of users"

    passages = _private_passages(examples)
    for text in _prompt_texts(start):
        passages -= runs_of_words(text)
    for text in _prompt_texts(compiled):
        copied_passages = passages & runs_of_words(text)
        if copied_passages:
            return f"{MIN_COPIED_WORDS} words in a row of a user"
    return None


def _count_new_demos(compiled: MemoryProgram, start: MemoryProgram) -> int:
    """Return how many demos of the compiled program the start does not have."""
    start_predictors = start.all_predictors()
    new_demos = 0
    for name, predictor in compiled.all_predictors().items():
        start_demos = own_demos(start_predictors[name])
        for demo in own_demos(predictor):
            if demo not in start_demos:
                new_demos += 1
    return new_demos


def _prompt_texts(program: MemoryProgram) -> Iterable[str]:
    """Yield the instructions of a program, and the labels and descriptions of its fields."""
    for predictor in program.all_predictors().values():
        signature = signature_of(predictor)
        yield signature.instructions
        # Some optimizers change the label of a field.
        for field in signature.fields.values():
            extra = field.json_schema_extra
            if isinstance(extra, dict):
                yield str(extra.get("prefix", ""))
                yield str(extra.get("desc", ""))


def _private_passages(examples: Sequence[dspy.Example]) -> set[str]:
    """Return the passages that could tell something of one user: few users have them in common."""
    user_counts: Counter[str] = Counter()
    for texts in _texts_by_user(examples).values():
        passages_of_user: set[str] = set()
        for text in texts:
            passages_of_user |= runs_of_words(text)
        user_counts.update(passages_of_user)

    private_passages: set[str] = set()
    for passage, user_count in user_counts.items():
        if user_count < MIN_USERS_OF_COMMON_PHRASE:
            private_passages.add(passage)
    return private_passages


def _texts_by_user(examples: Sequence[dspy.Example]) -> dict[str, set[str]]:
    """Return all that each user said, asked or was answered, by the id of the user."""
    texts_by_user: dict[str, set[str]] = {}
    for example in examples:
        texts = texts_by_user.setdefault(example.history.id, set())
        texts.add(str(example.question))
        texts.add(str(example.answer))
        for turn, _ in example.history.turns.values():
            texts.add(turn.content)
    return texts_by_user

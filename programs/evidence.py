"""How far the gold evidence of a question got: into the memory, the recalled context, or a prompt.

Nothing is said that is not known. Our own methods name the turns behind what they store and recall.
A program that is not ours may answer without reporting what it recalled, or recall facts in its own
words. What stood in a prompt is seen in the inputs of its calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import dspy
from pydantic import BaseModel

from ..memory.memory import Memory, stored_sources
from ..records import Context, History
from ..text import one_line
from ._relative_dates import resolve_line_dates

EvidenceStep = Literal["never stored", "stored but not recalled", "not recalled", "recalled"]
MIN_WORDS_LENGTH = 16
"""Fewest characters by which a turn is recognized: "Yes." is in many texts."""


def reports_recall(memory: Memory, context: Context) -> bool:
    """Return whether a context tells from which turns of the conversation all of it comes.

    If it does, a turn that it does not name was surely not recalled. Otherwise nobody can say.

    Args:
        memory: The memory that was asked.
        context: What was recalled from the memory: hits, each with the ids of its turns (sources).
    """
    # A user's own system may answer without telling what it recalled. Then this is False.
    if not context.is_reported:
        return False

    # True for a memory that stores the ids of the turns with every fact: all hits have sources.
    if memory.names_sources:
        return True

    # In any other memory, a hit without sources may come from any turn.
    return all(hit.sources for hit in context.hits)


def evidence_steps(
    turn_ids: Iterable[str], memory: Memory | None, context: Context | None
) -> dict[str, EvidenceStep]:
    """Return for some turns how far they got: into the memory, or into what was recalled from it.

    Args:
        turn_ids: Ids of the turns, mostly of a question's gold evidence.
        memory: The memory that was asked; None if it is not known.
        context: What was recalled for the question; None if it is not known.

    Returns:
        By turn id, the step that the turn reached, such as "stored but not recalled". Turns of
        which nothing is known are left out.
    """
    wanted_ids = list(turn_ids)
    if not wanted_ids or memory is None or context is None:
        return {}

    recalled = set(context.sources)
    is_reported = reports_recall(memory, context)
    stored = stored_sources(memory) if memory.names_sources else None

    steps: dict[str, EvidenceStep] = {}
    for turn_id in wanted_ids:
        if turn_id in recalled:
            steps[turn_id] = "recalled"
        elif not is_reported:
            # The context does not name all recalled turns, so this turn may be among them or not.
            continue
        elif stored is None:
            # The memory of a user's own system does not tell which turns are in it.
            steps[turn_id] = "not recalled"
        elif turn_id in stored:
            steps[turn_id] = "stored but not recalled"
        else:
            steps[turn_id] = "never stored"
    return steps


def turns_in_inputs(
    inputs: Sequence[Mapping[str, Any]], turn_ids: Iterable[str], history: History
) -> list[str]:
    """Return the ids of those turns that a model was shown in its prompts.

    A turn was shown if the inputs contain its id in brackets, such as "[D1:3]", or its words.

    Args:
        inputs: The inputs of each call of the model.
        turn_ids: Ids of the turns to look for.
        history: The history that has the turns.
    """
    texts: list[str] = []
    for values in inputs:
        texts.extend(_texts(values))
    prompt_text = one_line("\n".join(texts)).casefold()
    if not prompt_text:
        return []

    shown_ids: list[str] = []
    for turn_id in turn_ids:
        is_named = f"[{turn_id}]".casefold() in prompt_text
        if is_named or any(words in prompt_text for words in _wordings(turn_id, history)):
            shown_ids.append(turn_id)
    return shown_ids


def _wordings(turn_id: str, history: History) -> list[str]:
    """Return the texts by which a turn is recognized in a prompt, on one line in small letters.

    Prompts show a turn as it was said, or with dates beside its relative dates. So both texts are
    returned. Texts that are too short to tell the turn from others are left out.
    """
    if turn_id not in history.turns:
        return []
    turn, item = history.turns[turn_id]

    # The content of a turn without a text is the caption of its image.
    original_text = turn.text or turn.content
    # Relative dates are counted from the time of the turn, or else from that of its session.
    text_with_dates = resolve_line_dates(turn.at(item.time)).text

    texts = (original_text, text_with_dates)
    wordings = [one_line(text).casefold() for text in texts]
    return [words for words in wordings if len(words) >= MIN_WORDS_LENGTH]


def _texts(value: Any) -> Iterator[str]:
    """Yield every text inside the value of an input: in records, lists and dictionaries too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from _texts(value.model_dump(mode="json"))
    elif isinstance(value, Mapping | dspy.Example):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _texts(part)
    else:
        yield str(value)

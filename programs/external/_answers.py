"""What systems and agents return, read as hits and answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import dspy

from ...records import Context, History, Hit
from ...text import one_line
from ..recording import ExternalError

TEXT_FIELDS = ("text", "memory", "content", "page_content")
"""How systems call the text of what they recalled."""

TURN_ID_FIELDS = ("sources", "ids")
"""How systems call the list of turns that a text rests on."""

MIN_QUOTE_LENGTH = 16
"""Characters that a text must have to be looked for inside another: "Yes." is in many."""

MAX_HITS = 1000
"""Most hits that are read of what one search returned."""


class Answer(NamedTuple):
    """What a system answered by itself."""

    outputs: dict[str, Any]
    """The outputs of the task, "answer" among them."""
    recalled: Any
    """What the answer rests on, as a search returns it; None if the system does not say."""


def read_answer(returned: Any) -> Answer:
    """Return what a system answered, and what it recalled for the answer.

    Args:
        returned: A mapping or `dspy.Prediction` with the answer in `answer`, and with what was
            recalled in `recalled` or `context`; a pair (answer, recalled); or an answer alone.

    Raises:
        ExternalError: The answer is no text, number or list, or cannot be stored.
    """
    answer = _split_answer(returned)

    value = answer.outputs.get("answer")
    if isinstance(value, int | float):
        answer.outputs["answer"] = str(value)
    elif not isinstance(value, str | list):
        kind = type(value).__name__
        raise ExternalError(f"answered {kind}, expected a text or (text, recalled)")
    _check_texts(answer.outputs)

    if isinstance(answer.recalled, Context):
        return Answer(answer.outputs, answer.recalled.hits)
    return answer


def _split_answer(returned: Any) -> Answer:
    """Split what a system returned into its answer and what it recalled, without checking them."""
    if isinstance(returned, dspy.Prediction | Mapping):
        outputs = dict(returned.items())
        # Programs of ours also return the memory, which is no output and was not recalled.
        outputs.pop("memory", None)

        # What was recalled is in `recalled`, or else in `context`. Neither is an output, so both
        # are taken out.
        recalled = outputs.pop("context", None)
        if "recalled" in outputs:
            recalled = outputs.pop("recalled")
        return Answer(outputs, recalled)

    if isinstance(returned, tuple) and len(returned) == 2:
        answer, recalled = returned
        return Answer({"answer": answer}, recalled)
    return Answer({"answer": returned}, None)


def _check_texts(outputs: Mapping[str, Any]) -> None:
    """Raise an ExternalError if a text has no UTF-8 form, and so could not be stored."""
    try:
        json.dumps(outputs, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise ExternalError(
            "the answer holds half of a surrogate pair; replace it by a whole character"
        ) from None


def hits_of(recalled: Any, history: History) -> tuple[Hit, ...]:
    """Convert the result of a system's search to hits, in the same order.

    Args:
        recalled: The result: a list, or a mapping with a list in `results`. Its elements are texts,
            hits, or mappings or objects with a text. None stands for an empty list.
        history: The history that was searched.

    Raises:
        ExternalError: There is no list, or an element of it has no text.
    """
    if recalled is None:
        return ()
    results = recalled.get("results") if isinstance(recalled, Mapping) else recalled
    # A text is iterable too, but its elements are letters.
    if isinstance(results, str | bytes) or not isinstance(results, Iterable):
        kind = type(recalled).__name__
        raise ExternalError(f"recalled {kind}, expected a list of texts or entries")

    hits: list[Hit] = []
    # A result may be a generator that never ends, so no more than `MAX_HITS` elements are read.
    for result in islice(results, MAX_HITS):
        hit = result if isinstance(result, Hit) else _hit(result, history)
        hits.append(hit)
    return tuple(hits)


def _hit(result: Any, history: History) -> Hit:
    """Convert a text or an entry that a system recalled to a hit.

    The entry may name its turns by id; otherwise turns that it quotes are looked up in the history.
    They become the sources of the hit. A hit without sources is a `summary`, which is left out when
    it is measured how much of the evidence was recalled.
    """
    text = _text(result)
    turn_ids = _named_turn_ids(result, history)
    if not turn_ids:
        turn_ids = _quoted_turn_ids(text, history)

    # An entry without an id gets one that is made from its text.
    hit_id = one_line(str(_field(result, "id") or ""))
    if not hit_id:
        digest = hashlib.sha256(text.encode()).hexdigest()
        hit_id = f"M{digest[:6]}"

    score = _field(result, "score")
    return Hit(
        id=hit_id,
        text=text,
        kind="entry" if turn_ids else "summary",
        score=float(score) if isinstance(score, int | float) else 0.0,
        sources=turn_ids,
    )


def _field(result: Any, name: str) -> Any:
    """Return a field of a mapping, as Mem0 returns them, or of an object; None if it has none."""
    if isinstance(result, Mapping):
        return result.get(name)
    return getattr(result, name, None)


def _text(result: Any) -> str:
    """Return the text of what a system recalled: a text, or an entry with one of `TEXT_FIELDS`.

    Raises:
        ExternalError: The entry has no text.
    """
    if isinstance(result, str):
        return result
    for name in TEXT_FIELDS:
        text = _field(result, name)
        if isinstance(text, str):
            return text

    kind = type(result).__name__
    expected = ", ".join(TEXT_FIELDS)
    raise ExternalError(f"recalled {kind} without a text; expected one of {expected}")


def _named_turn_ids(result: Any, history: History) -> tuple[str, ...]:
    """Return the ids of the turns of the history that a recalled entry names, each id once.

    An entry may list ids of turns in the fields `TURN_ID_FIELDS`, or have the id of a turn as its
    own id. Other ids, e.g. of entries, are left out.

    Args:
        result: What a system recalled: a text, or an entry with fields.
        history: The history that was searched.
    """
    # A text has no fields that could name turns.
    if isinstance(result, str):
        return ()

    names: list[str] = []
    for field in TURN_ID_FIELDS:
        ids = _field(result, field)
        if isinstance(ids, list | tuple):
            names.extend(str(turn_id) for turn_id in ids)
    names.append(str(_field(result, "id") or ""))

    unique_names = dict.fromkeys(names)
    return tuple(name for name in unique_names if name in history.turns)


def _quoted_turn_ids(text: str, history: History) -> tuple[str, ...]:
    """Return the ids of the turns that a text repeats, quotes, or is a quotation of.

    Upper and lower case, and the number of spaces, make no difference.
    """
    words = one_line(text).casefold()
    turn_ids: list[str] = []
    # With each turn comes its item, which is not needed here.
    for turn_id, (turn, _) in history.turns.items():
        turn_words = one_line(turn.text or turn.content).casefold()
        if not turn_words:
            continue
        if words == turn_words or _quotes(words, turn_words) or _quotes(turn_words, words):
            turn_ids.append(turn_id)
    return tuple(turn_ids)


def _quotes(text: str, quote: str) -> bool:
    """Return whether a text holds another one that is long enough to be a quotation."""
    return len(quote) >= MIN_QUOTE_LENGTH and quote in text

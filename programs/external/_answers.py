"""What systems and agents return, read as hits and answers."""

from __future__ import annotations

import hashlib
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
    """Read what a system returned: an answer, a pair (answer, recalled), or fields by name.

    Fields are those of a mapping or a `dspy.Prediction`. What was recalled is in `recalled`, or
    else in `context`.

    Raises:
        ExternalError: The answer is no text, number or list.
    """
    recalled = None
    if isinstance(returned, dspy.Prediction | Mapping):
        outputs = {name: value for name, value in returned.items() if name != "memory"}
        context = outputs.pop("context", None)
        recalled = outputs.pop("recalled", context)
    elif isinstance(returned, tuple) and len(returned) == 2:
        answer, recalled = returned
        outputs = {"answer": answer}
    else:
        outputs = {"answer": returned}

    answer = outputs.get("answer")
    if isinstance(answer, int | float):
        outputs["answer"] = str(answer)
    elif not isinstance(answer, str | list):
        kind = type(answer).__name__
        raise ExternalError(f"answered {kind}, expected a text or (text, recalled)")
    if isinstance(recalled, Context):
        recalled = recalled.hits
    return Answer(outputs, recalled)


def hits_of(recalled: Any, history: History) -> tuple[Hit, ...]:
    """Return the hits of what a search returned, in its order.

    Args:
        recalled: A list, or a mapping with a list of `results`, of texts, hits, or mappings or
            objects with a text. None stands for an empty list.
        history: The history that was searched.

    Raises:
        ExternalError: It is no list, or something in it has no text.
    """
    if recalled is None:
        return ()
    results = recalled.get("results") if isinstance(recalled, Mapping) else recalled
    if isinstance(results, str | bytes) or not isinstance(results, Iterable):
        kind = type(recalled).__name__
        raise ExternalError(f"recalled {kind}, expected a list of texts or entries")

    hits: list[Hit] = []
    for result in islice(results, MAX_HITS):
        hit = result if isinstance(result, Hit) else _hit(result, history)
        hits.append(hit)
    return tuple(hits)


def _hit(result: Any, history: History) -> Hit:
    """Return a text or an entry as a hit.

    It rests on the turns that it names, or else on those that it quotes or that quote it. If there
    are none, as when a model put a fact into other words, it is a `summary`. Summaries are left out
    of evidence recall.
    """
    text = _text(result)
    result_id = str(_field(result, "id") or "")
    score = _field(result, "score")
    turn_ids = _named_turn_ids(result, history) or _quoted_turn_ids(text, history)
    return Hit(
        id=one_line(result_id) or f"M{hashlib.sha256(text.encode()).hexdigest()[:6]}",
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
    """Return the ids of turns of the history that an entry names, its own id last."""
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
    """Return the ids of turns whose words are those of a text, or inside it, or hold it."""
    words = one_line(text).casefold()
    turn_ids: list[str] = []
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

"""What a system recalled, as hits that name the turns they rest on, where that can be told.

By ids first: `sources`, `ids` or `id` that are turns of the history. Else by text: a recalled text that holds the words
of a turn, or is held by one, rests on it. What matches no turn, e.g. a fact that a model put into other words, is a
`summary`: it speaks of no turn in particular, and evidence recall is not told from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, cast

from ...records import History, Hit, one_line
from ..failing import ExternalError

TEXTS = ("text", "memory", "content", "page_content")
"""What systems call the text of what they recalled."""
LONG = 16
"""Characters that a text must have to be looked for in another: "Yes." is in many."""
MOST = 1000
"""Most things that are taken of what one search returned."""


def hits_of(found: Any, history: History) -> tuple[Hit, ...]:
    """The hits of what a search returned, in its order.

    Args:
        found: A list of texts, entries, mappings or objects with a text; None for nothing.
        history: Whose turns they may rest on.

    Raises:
        ExternalError: It is no list, or holds something without a text.
    """
    listed: Any = _getter(found)("results") if isinstance(found, Mapping) else () if found is None else found
    if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
        raise ExternalError(f"recalled {type(cast(object, found)).__name__}, expected a list of texts or entries")
    return tuple(_hit(each, history) for each in islice(cast("Iterable[Any]", listed), MOST))


def _hit(recalled: Any, history: History) -> Hit:
    if isinstance(recalled, Hit):
        return recalled
    get = _getter({"text": recalled} if isinstance(recalled, str) else recalled)
    text = next((value for name in TEXTS if isinstance(value := get(name), str)), None)
    if text is None:
        raise ExternalError(f"recalled {type(recalled).__name__} without a text; expected one of {', '.join(TEXTS)}")
    own, score = str(get("id") or ""), get("score")
    listed: list[Any] = [each for name in ("sources", "ids") if isinstance(each := get(name), list | tuple)]
    named = [*(str(each) for ids in listed for each in ids), own]
    sources = tuple(dict.fromkeys(each for each in named if each in history.turns)) or _turns_with(text, history)
    return Hit(
        id=one_line(own) or f"M{hashlib.sha256(text.encode()).hexdigest()[:6]}",
        text=text,
        kind="entry" if sources else "summary",
        score=float(score) if isinstance(score, int | float) else 0.0,
        sources=sources,
    )


def _getter(recalled: Any) -> Callable[[str], Any]:
    """Reads a field of a mapping, as Mem0 gives them, or of an object; None where it has none."""
    if isinstance(recalled, Mapping):
        return cast("Mapping[str, Any]", recalled).get
    return lambda name: getattr(recalled, name, None)


def _turns_with(text: str, history: History) -> tuple[str, ...]:
    """Turns whose words are in a text, or that the text is words of."""
    text = one_line(text).casefold()
    words = {id: one_line(turn.text or turn.content).casefold() for id, (turn, _) in history.turns.items()}
    return tuple(
        id
        for id, said in words.items()
        if said and (said == text or (len(said) >= LONG and said in text) or (len(text) >= LONG and text in said))
    )

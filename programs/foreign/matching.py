"""What a system recalled, as hits that name the turns they rest on, where that can be told.

By ids first: `sources`, `ids` or `id` that are turns of the history. Else by text: a recalled text that holds the words
of a turn, or is held by one, rests on it. What matches no turn, e.g. a fact that a model put into other words, is a
`summary`: it speaks of no turn in particular, and evidence recall is not told from it.

Example:
    >>> from mempiler.programs.foreign.matching import hits_of
    >>> from mempiler.records import History
    >>> history = History.from_messages([{"role": "user", "content": "I moved to Lisbon last May."}])
    >>> found = ["user: I moved to Lisbon last May.", {"text": "Likes tea.", "id": "7"}]
    >>> [hit.sources for hit in hits_of(found, history)]
    [('D1:1',), ()]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

from ...records import History, Hit, one_line
from .searchable import ForeignError

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
        ForeignError: It is no list, or holds something without a text.
    """
    if isinstance(found, Mapping):
        found = cast("Mapping[str, Any]", found).get("results", found)  # as Mem0 wraps its list
    if found is None:
        return ()
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        kind = type(cast("object", found)).__name__
        raise ForeignError(f"recalled {kind}, expected a list of texts or entries")
    listed = islice(cast("Iterable[Any]", found), MOST)
    return tuple(_hit(each, history) for each in listed)


def _hit(recalled: Any, history: History) -> Hit:
    if isinstance(recalled, Hit):
        return recalled
    text = (
        recalled
        if isinstance(recalled, str)
        else next((v for n in TEXTS if isinstance(v := _get(recalled, n), str)), None)
    )
    if text is None:
        raise ForeignError(f"recalled {type(recalled).__name__} without a text; expected one of {', '.join(TEXTS)}")
    own = str(_get(recalled, "id") or "")
    named = [str(each) for each in (*_ids(_get(recalled, "sources")), *_ids(_get(recalled, "ids")), own)]
    sources = tuple(dict.fromkeys(each for each in named if each in history.turns)) or _said(text, history)
    score = _get(recalled, "score")
    return Hit(
        id=one_line(own) or f"M{hashlib.sha256(text.encode()).hexdigest()[:6]}",
        text=text,
        kind="entry" if sources else "summary",
        score=float(score) if isinstance(score, int | float) else 0.0,
        sources=sources,
    )


def _get(recalled: Any, name: str) -> Any:
    if isinstance(recalled, str):
        return None
    if isinstance(recalled, Mapping):
        return cast("Mapping[str, Any]", recalled).get(name)
    return getattr(recalled, name, None)


def _ids(value: Any) -> list[Any]:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list | tuple) else []


def _said(text: str, history: History) -> tuple[str, ...]:
    """Turns whose words are in a text, or that the text is words of."""
    text = _plain(text)
    return tuple(
        id
        for id, (turn, _) in history.turns.items()
        if (said := _plain(turn.text or turn.content))
        and (said == text or (len(said) >= LONG and said in text) or (len(text) >= LONG and text in said))
    )


def _plain(text: str) -> str:
    return one_line(text).casefold()

"""What is shown where a memory finds nothing that may answer a query.

"Where do I live?" shares no word with "I moved to Lisbon". Whoever tells a memory little, and asks
about it in other words, is shown the little that it has. That also holds when the question is asked
again: by then the question itself and the replies to it are stored and found, but answer nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..memory.entry import DIALOGUE, Entry
from ..memory.search.repeats import RepeatFilter, query_words, repeats_query
from ..memory.search.speakers import is_assistant
from ..records import Hit

FEW = 5
"""Most entries that are shown where nothing was found."""


@dataclass(frozen=True)
class Fallback:
    """What is shown for want of an answer."""

    informative_ids: frozenset[str]
    """Ids of the hits that are shown all the same: replies to an earlier asking of the query."""
    entries: tuple[Hit, ...]
    """Further entries of the memory, marked as fallback."""
    raw_turns: tuple[Hit, ...]
    """Further turns that are not in the memory yet, marked as fallback."""

    def entries_after(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """Return what is shown of the memory, where a search of it found these hits."""
        return (*self._informative(hits), *self.entries)

    def extra_raw_turns(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """Return what is shown of the pending turns, where a search of them found these hits."""
        return (*self._informative(hits), *self.raw_turns)

    def _informative(self, hits: Iterable[Hit]) -> list[Hit]:
        return [hit for hit in hits if hit.id in self.informative_ids]


def as_fallback(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Mark hits as shown only because nothing was found: they have a score of 0."""
    return tuple(hit.model_copy(update={"fallback": True, "score": 0.0}) for hit in hits)


def prior_reply_ids(
    query: str, hits: Iterable[Hit], entries: Iterable[Entry]
) -> frozenset[str] | None:
    """Return which turns are replies to an earlier asking of a query, if no hit may answer it.

    Args:
        query: What is searched for.
        hits: What was found.
        entries: All turns, those of a dialogue in their order. They are read only if all that the
            hits say was said by an assistant.

    Returns:
        Ids of the turns by which an assistant replied. None if a hit may answer the query: it is
        neither such a reply nor the query itself.
    """
    repeats = RepeatFilter(query)
    new_hits = [hit for hit in hits if repeats.register(hit)]
    if not all(is_assistant(hit.speaker) for hit in new_hits):
        return None

    reply_ids = frozenset(_replies_to(query, entries))
    if any(hit.id not in reply_ids for hit in new_hits):
        return None
    return reply_ids


def _replies_to(query: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the ids of the turns by which an assistant replied when a query was asked before."""
    words = query_words(query)
    for turn, reply in pairwise(entries):
        if is_assistant(turn.speaker) or not is_assistant(reply.speaker):
            continue
        is_same_dialogue = DIALOGUE in turn.tags and turn.tags[DIALOGUE] == reply.tags.get(DIALOGUE)
        if is_same_dialogue and repeats_query(turn, words):
            yield reply.id


def newest_statements(
    query: str, hits: Iterable[Hit], excluded_ids: Collection[str], limit: int
) -> tuple[Hit, ...]:
    """Return the newest hits that say something new.

    Args:
        query: What is searched for; to ask it again says nothing new.
        hits: Newest first.
        excluded_ids: Ids of hits that are shown anyway.
        limit: Most hits.
    """
    repeats = RepeatFilter(query)
    statements: list[Hit] = []
    for hit in hits:
        if len(statements) == limit:
            break
        if hit.id not in excluded_ids and repeats.register(hit):
            statements.append(hit)
    return tuple(statements)

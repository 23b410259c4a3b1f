"""What is shown where a memory finds nothing that may answer a query.

"Where do I live?" shares no word with "I moved to Lisbon": whoever tells a memory one thing, and asks about it in other
words, is shown the little that it has. That holds when the question is asked again, too: by then the question itself
and the replies to it are stored, and are found, but answer nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """Ids of the hits of the search that say something new: replies to the query, when it was asked before."""
    entries: tuple[Hit, ...]
    """Further entries of the memory, marked."""
    raw: tuple[Hit, ...]
    """Further turns that are not in the memory yet, marked."""

    def entries_after(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """What is shown of the memory where a search found these hits."""
        return (*(hit for hit in hits if hit.id in self.informative_ids), *self.entries)

    def extra_raw_turns(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """What is shown of the turns that are not in the memory where a search found these hits."""
        return (*(hit for hit in hits if hit.id in self.informative_ids), *self.raw)


def as_fallback(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Mark hits as shown only because nothing was found: they have a score of 0."""
    return tuple(hit.model_copy(update={"fallback": True, "score": 0.0}) for hit in hits)


def prior_reply_ids(query: str, hits: Sequence[Hit], entries: Iterable[Entry]) -> frozenset[str] | None:
    """Ids of what an assistant replied when a query was asked before, if no hit is more than that or the query itself.

    Args:
        query: What is searched for.
        hits: What was found.
        entries: All turns, those of a dialogue in their order; looked at only where nobody else said a hit.

    Returns:
        None if a hit may answer the query.
    """
    said = RepeatFilter(query)
    new = [hit for hit in hits if said.register(hit)]
    if not all(is_assistant(hit.speaker) for hit in new):
        return None
    replies = frozenset(replies_to(query, entries))
    return replies if replies.issuperset(hit.id for hit in new) else None


def replies_to(query: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Ids of the turns by which an assistant replied when a query was asked before."""
    words = query_words(query)
    for turn, reply in pairwise(entries):
        if not is_assistant(reply.speaker) or is_assistant(turn.speaker):
            continue
        is_same_dialogue = DIALOGUE in turn.tags and turn.tags[DIALOGUE] == reply.tags.get(DIALOGUE)
        if is_same_dialogue and repeats_query(turn, words):
            yield reply.id


def newest_sayings(query: str, hits: Iterable[Hit], left_out: frozenset[str], most: int) -> tuple[Hit, ...]:
    """The first few of some hits that say something new.

    Args:
        query: What is searched for.
        hits: Newest first.
        left_out: Ids of hits that are shown anyway.
        most: How many at most.
    """
    said, newest = RepeatFilter(query), list[Hit]()
    for hit in hits:
        if len(newest) == most:
            break
        if hit.id not in left_out and said.register(hit):
            newest.append(hit)
    return tuple(newest)

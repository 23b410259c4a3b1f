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

MAX_FALLBACK_HITS = 5
"""Most entries and turns that are shown where nothing was found."""


@dataclass(frozen=True)
class Fallback:
    """What is shown instead of the hits of a search, since none of them may answer the query."""

    reply_ids: frozenset[str]
    """Ids of the hits that are shown all the same: replies to an earlier asking of the query."""
    entries: tuple[Hit, ...]
    """Further entries of the memory, marked as fallback."""
    raw_turns: tuple[Hit, ...]
    """Further turns that are not in the memory yet, marked as fallback."""

    def entries_instead_of(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """Return what is shown of the memory instead of the hits that a search of it returned."""
        return (*self._replies_among(hits), *self.entries)

    def raw_turns_instead_of(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """Return what is shown of the pending turns instead of the hits of a search in them."""
        return (*self._replies_among(hits), *self.raw_turns)

    def _replies_among(self, hits: Iterable[Hit]) -> list[Hit]:
        return [hit for hit in hits if hit.id in self.reply_ids]


def as_fallback(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Mark hits as shown only because nothing was found: they have a score of 0."""
    return tuple(hit.model_copy(update={"fallback": True, "score": 0.0}) for hit in hits)


def prior_reply_ids(
    query: str, hits: Iterable[Hit], entries: Iterable[Entry]
) -> frozenset[str] | None:
    """Return the ids of earlier replies to a query, or None if a search found a possible answer.

    A user who asks the same question twice has a stored question and a stored reply of the
    assistant. Both are similar to the query, but neither is an answer.

    Args:
        query: The text that was searched for.
        hits: What the search returned.
        entries: All stored turns, the turns of a dialogue in order. They are read only if they can
            matter, since there may be many.
    """
    repeats = RepeatFilter(query)
    new_hits: list[Hit] = []
    for hit in hits:
        if not repeats.register(hit):
            continue
        # What a user said, other than the question itself, may be the answer.
        if not is_assistant(hit.speaker):
            return None
        new_hits.append(hit)

    # So may what an assistant said, unless it only replied to the same question.
    reply_ids = frozenset(_replies_to(query, entries))
    if any(hit.id not in reply_ids for hit in new_hits):
        return None
    return reply_ids


def _replies_to(query: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the ids of an assistant's turns that directly follow the same question of a user.

    Args:
        query: The question.
        entries: All stored turns, the turns of a dialogue in order.
    """
    words = query_words(query)
    for turn, next_turn in pairwise(entries):
        is_reply = not is_assistant(turn.speaker) and is_assistant(next_turn.speaker)
        if not is_reply:
            continue

        # Entries that are no turns of a dialogue have no such tag.
        dialogue = turn.tags.get(DIALOGUE)
        is_same_dialogue = dialogue is not None and next_turn.tags.get(DIALOGUE) == dialogue
        if is_same_dialogue and repeats_query(turn, words):
            yield next_turn.id


def newest_statements(
    query: str, hits: Iterable[Hit], excluded_ids: Collection[str], limit: int
) -> tuple[Hit, ...]:
    """Return the newest hits that say something, without repetitions.

    A turn that only asks the query again, or repeats what a newer turn says, is left out.

    Args:
        query: The text that is searched for.
        hits: Entries or turns, newest first.
        excluded_ids: Ids of hits that are left out, since they are shown anyway.
        limit: The most hits to return.
    """
    repeats = RepeatFilter(query)
    statements: list[Hit] = []
    for hit in hits:
        if len(statements) == limit:
            break
        if hit.id not in excluded_ids and repeats.register(hit):
            statements.append(hit)
    return tuple(statements)

"""Shortens a recalled context around the evidence of a question, so that it can be a demo."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Context, Hit, estimate_tokens

MAX_HITS = 6
"""Hits that a shortened context has at most, unless more of them hold evidence."""


def shorten_context(
    context: Context,
    evidence_ids: Sequence[str],
    max_tokens: int,
    max_hits: int = MAX_HITS,
) -> Context:
    """Return a part of the context that holds the evidence and fits `max_tokens`.

    The best hit for each turn of evidence stays, however long it is, so the result may exceed
    `max_tokens`. Without evidence the first hit stays. In what is left, the notes stay if all of
    them fit; then the hits that stand nearest to the evidence are added.
    """
    hits = context.hits
    if len(hits) <= max_hits and estimate_tokens(context.text()) <= max_tokens:
        return context

    evidence_positions = _evidence_positions(hits, evidence_ids)
    free_tokens = max_tokens
    for position in evidence_positions:
        free_tokens -= _tokens_of_hit(hits[position])

    notes = {}
    note_tokens = estimate_tokens(Context(notes=context.notes).text())
    if note_tokens <= free_tokens:
        notes = context.notes
        free_tokens -= note_tokens

    chosen_positions = set(evidence_positions)
    for position in _nearest_first(len(hits), evidence_positions):
        tokens = _tokens_of_hit(hits[position])
        if len(chosen_positions) < max_hits and tokens <= free_tokens:
            chosen_positions.add(position)
            free_tokens -= tokens

    # The hits stay in their order.
    chosen_hits = tuple(hits[position] for position in sorted(chosen_positions))
    return Context(hits=chosen_hits, notes=notes)


def _nearest_first(hit_count: int, evidence_positions: set[int]) -> list[int]:
    """Return the positions of the other hits, those that are nearest to evidence first."""

    def distance_to_evidence(position: int) -> tuple[int, int]:
        distance = min(abs(position - other) for other in evidence_positions)
        # Of two hits at the same distance, the one that was recalled first.
        return distance, position

    other_positions = set(range(hit_count)) - evidence_positions
    return sorted(other_positions, key=distance_to_evidence)


def _evidence_positions(hits: Sequence[Hit], evidence_ids: Sequence[str]) -> set[int]:
    """Return the position of the best hit for each turn of evidence, or else the first position."""
    positions: set[int] = set()
    for turn_id in evidence_ids:
        position = _best_position(hits, turn_id)
        if position is not None:
            positions.add(position)
    if not positions and hits:
        positions.add(0)
    return positions


def _best_position(hits: Sequence[Hit], turn_id: str) -> int | None:
    """Return the position of the first hit that holds a turn; None if none does.

    A hit that is not evidence itself, such as a summary, counts only where no other holds the turn.
    """
    first_other = None
    for position, hit in enumerate(hits):
        if turn_id not in hit.sources:
            continue
        if hit.is_evidence:
            return position
        if first_other is None:
            first_other = position
    return first_other


def _tokens_of_hit(hit: Hit) -> int:
    # One more for the line break.
    return estimate_tokens(hit.line()) + 1

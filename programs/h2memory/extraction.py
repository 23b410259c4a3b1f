"""What H2Memory reads from one item by itself: the log graph of logs, or the topics of a dialogue.

Nothing here asks a model. Functions prepare prompts and repair answers: a model may claim links
that are impossible, or topics that leave turns out.

    logs      ─> `log_windows` ─ links claimed ─> `valid_links` ─> `connected_subgraphs`
    dialogue  ─ outlines drafted ─> `topics_from_outlines`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from ...records import Item, Turn
from ...signatures.h2memory import DraftOutline, LogLinks
from ...text import one_line
from ..writer import ExtractionFailed
from .memory import Link, LinkKind, Situation, Solution, Topic

LINK_KINDS: tuple[LinkKind, ...] = get_args(LinkKind)


@dataclass(frozen=True)
class LogExtraction:
    """What was read from an item of logs."""

    situations: tuple[Situation, ...] = ()
    """M_G^j, without ids."""
    failed_log_ids: frozenset[str] = frozenset()
    """Ids of the logs that are in no situation, because no answer could be read."""


@dataclass(frozen=True)
class DialogueExtraction:
    """What was read from a dialogue."""

    topics: tuple[Topic, ...] = ()
    """T, without ids and not refined."""


Extraction = LogExtraction | DialogueExtraction | ExtractionFailed | None
"""What was read from an item; None for a profile, which is passed over."""


@dataclass(frozen=True)
class LogWindow:
    """Some logs of a session whose links are asked for, with the logs before them."""

    logs: tuple[Turn, ...]
    """All logs that the prompt shows, oldest first."""
    first: int
    """The position of the first log whose links are asked for; those before it are only shown."""


@dataclass(frozen=True)
class Subgraph:
    """A connected subgraph G_i of a log graph."""

    logs: tuple[Turn, ...]
    """Its nodes, oldest first."""
    links: tuple[Link, ...]
    """Its edges."""

    def lines(self, time: datetime | None) -> list[str]:
        """Return a line for every log, which ends with its links.

            [L1:4] (3 May 2024, Friday 13:00) phone: refund <caused_by L1:1, L1:2; follows L1:3>

        Args:
            time: When logs without a time of their own were written.
        """
        return [log.line(time) + self._links_of(log.id) for log in self.logs]

    def _links_of(self, log_id: str) -> str:
        """Return the links of a log as the end of its line; "" if it has none."""
        parts: list[str] = []
        for kind in LINK_KINDS:
            earlier_ids: list[str] = []
            for link in self.links:
                if link.later == log_id and link.kind == kind:
                    earlier_ids.append(link.earlier)
            if earlier_ids:
                parts.append(f"{kind} {', '.join(earlier_ids)}")

        if not parts:
            return ""
        return f" <{'; '.join(parts)}>"


def log_windows(logs: Sequence[Turn], size: int) -> list[LogWindow]:
    """Return windows of `size` logs, each shown with up to `size` logs before it (appendix C).

    The first log has no predecessor. So there is nothing to ask for if it is the only one.
    """
    if len(logs) < 2:
        return []

    windows: list[LogWindow] = []
    for start in range(0, len(logs), size):
        shown_from = max(0, start - size)
        shsubgraph_logs = tuple(logs[shown_from : start + size])
        windows.append(LogWindow(shsubgraph_logs, first=start - shown_from))
    return windows


def valid_links(log_ids: Sequence[str], first: int, claims: Sequence[LogLinks]) -> list[Link]:
    """Return the claimed links that are possible, ordered by later log, then by earlier log.

    A link goes from a log that was asked about to an earlier log that was shown. Two logs have one
    link: where caused_by holds, follows is left out (step 1-1, rule 3).

    Args:
        log_ids: Ids of the logs that the prompt showed, oldest first.
        first: The position of the first log that was asked about.
        claims: The links that a model claims.
    """
    positions = {log_id: position for position, log_id in enumerate(log_ids)}
    links: dict[tuple[str, str], Link] = {}
    for link in _claimed_links(claims):
        later = positions.get(link.later)
        earlier = positions.get(link.earlier)
        if later is None or earlier is None:
            continue
        if later >= first and earlier < later:
            # The first link of two logs stays, and those of caused_by come first.
            links.setdefault((link.later, link.earlier), link)

    return sorted(links.values(), key=lambda link: (positions[link.later], positions[link.earlier]))


def _claimed_links(claims: Sequence[LogLinks]) -> list[Link]:
    """Return all claimed links: those of caused_by, then those of follows."""
    caused_by_links: list[Link] = []
    follows_links: list[Link] = []
    for claim in claims:
        for earlier in claim.caused_by:
            caused_by_links.append(Link(later=claim.log_id, kind="caused_by", earlier=earlier))
        for earlier in claim.follows:
            follows_links.append(Link(later=claim.log_id, kind="follows", earlier=earlier))
    return caused_by_links + follows_links


def connected_subgraphs(logs: Sequence[Turn], links: Sequence[Link]) -> list[Subgraph]:
    """Return the connected subgraphs {G_1, ..., G_g} of a log graph, by their first log.

    A log without links is a subgraph of its own.

    Args:
        logs: All logs of the session, oldest first.
        links: The relation set Υ.
    """
    # Number every log, and let logs that a link joins have the same number.
    numbers = {log.id: number for number, log in enumerate(logs)}
    for link in links:
        earlier_number = numbers[link.earlier]
        later_number = numbers[link.later]
        for log_id, number in numbers.items():
            if number == later_number:
                numbers[log_id] = earlier_number

    logs_by_number: dict[int, list[Turn]] = {}
    links_by_number: dict[int, list[Link]] = {}
    for log in logs:
        logs_by_number.setdefault(numbers[log.id], []).append(log)
    for link in links:
        links_by_number.setdefault(numbers[link.later], []).append(link)

    subgraphs: list[Subgraph] = []
    for number, subgraph_logs in logs_by_number.items():
        subgraph_links = links_by_number.get(number, [])
        subgraphs.append(Subgraph(tuple(subgraph_logs), tuple(subgraph_links)))
    return subgraphs


def topics_from_outlines(drafts: Sequence[DraftOutline], item: Item) -> list[Topic]:
    """Return the topics T of a dialogue, without ids; an outline without a need is left out."""
    outlines = [draft for draft in drafts if draft.requirement.strip()]
    spans = [outline.turn_span for outline in outlines]
    turn_ids = [turn.id for turn in item.spoken]

    topics: list[Topic] = []
    for outline, sources in zip(outlines, turns_of_topics(spans, turn_ids), strict=True):
        topic = Topic(
            need=one_line(outline.requirement),
            solutions=_solutions_of(outline),
            preference=one_line(outline.preference),
            sources=sources,
            time=item.time,
        )
        topics.append(topic)
    return topics


def _solutions_of(outline: DraftOutline) -> tuple[Solution, ...]:
    """Return the solutions of an outline; one without words is left out."""
    solutions: list[Solution] = []
    for draft in outline.solution_list:
        if draft.solution.strip():
            solution = Solution(
                text=one_line(draft.solution),
                feedback=one_line(draft.user_feedback),
                kind=draft.feedback_type,
            )
            solutions.append(solution)
    return tuple(solutions)


def turns_of_topics(
    spans: Sequence[Sequence[str]], turn_ids: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return the ids of the turns of each topic, so that the topics cover the dialogue.

    The first topic begins with the dialogue. A topic ends where a later one begins, and the last
    ends with the dialogue. A topic that begins nowhere, or before the previous one, shares the
    turns of that one.

    Args:
        spans: For each topic, the ids of the turns that a model named as its first and its last.
        turn_ids: Ids of all turns of the dialogue.
    """
    starts = _starts_of_topics(spans, turn_ids)
    turns: list[tuple[str, ...]] = []
    for start in starts:
        later_starts = [other for other in starts if other > start]
        end = min(later_starts, default=len(turn_ids))
        turns.append(tuple(turn_ids[start:end]))
    return turns


def _starts_of_topics(spans: Sequence[Sequence[str]], turn_ids: Sequence[str]) -> list[int]:
    """Return the position of the first turn of each topic, in ascending order."""
    positions = {turn_id: position for position, turn_id in enumerate(turn_ids)}
    starts: list[int] = []
    for span in spans:
        if not starts:
            starts.append(0)
            continue
        named_positions = [positions[turn_id] for turn_id in span if turn_id in positions]
        named_start = min(named_positions, default=0)
        starts.append(max(named_start, starts[-1]))
    return starts

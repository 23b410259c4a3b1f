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
        """Return the logs as a prompt shows them, a line each, with links to earlier logs.

            [L1:4] (3 May 2024, Friday 13:00) phone: refund <caused_by L1:1, L1:2; follows L1:3>

        Args:
            time: The time that is shown for logs without one.
        """
        return [log.line(time) + self._links_of(log.id) for log in self.logs]

    def _links_of(self, log_id: str) -> str:
        """Return the links of one log to earlier logs: " <caused_by L1:1, L1:2; follows L1:3>".

        A log without links gets "".
        """
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
    """Cut logs into windows of `size` logs; a model is asked for links window by window.

    A window also shows up to `size` logs before it, since links lead to earlier logs (appendix C).
    A single log can have no link, so it needs no window.
    """
    if len(logs) < 2:
        return []

    windows: list[LogWindow] = []
    for start in range(0, len(logs), size):
        shown_start = max(0, start - size)
        shown_logs = tuple(logs[shown_start : start + size])
        # `first` counts from the first log that is shown.
        windows.append(LogWindow(shown_logs, first=start - shown_start))
    return windows


def valid_links(log_ids: Sequence[str], first: int, claims: Sequence[LogLinks]) -> list[Link]:
    """Return the links between logs that a model claims, without impossible ones.

    A link leads from a log that the model was asked about back to an earlier log in the prompt.
    Between two logs there is one link: "caused_by" wins over "follows" (step 1-1, rule 3). The
    links are ordered by the later log, then by the earlier one.

    Args:
        log_ids: Ids of the logs in the prompt, oldest first.
        first: The position of the first log that the model was asked about; those before it were
            shown for context.
        claims: The links that the model claims, by log.
    """
    positions = {log_id: position for position, log_id in enumerate(log_ids)}
    links: dict[tuple[str, str], Link] = {}
    for link in _claimed_links(claims):
        later_position = positions.get(link.later)
        earlier_position = positions.get(link.earlier)
        if later_position is None or earlier_position is None:
            continue
        was_asked_about = later_position >= first
        leads_back = earlier_position < later_position
        if was_asked_about and leads_back:
            # Of two links between the same logs the first stays, and "caused_by" comes first.
            links.setdefault((link.later, link.earlier), link)

    return sorted(links.values(), key=lambda link: (positions[link.later], positions[link.earlier]))


def _claimed_links(claims: Sequence[LogLinks]) -> list[Link]:
    """Return all links that a model claims: first all "caused_by", then all "follows"."""
    caused_by_links: list[Link] = []
    follows_links: list[Link] = []
    for claim in claims:
        for earlier_id in claim.caused_by:
            caused_by_links.append(Link(later=claim.log_id, kind="caused_by", earlier=earlier_id))
        for earlier_id in claim.follows:
            follows_links.append(Link(later=claim.log_id, kind="follows", earlier=earlier_id))
    return caused_by_links + follows_links


def connected_subgraphs(logs: Sequence[Turn], links: Sequence[Link]) -> list[Subgraph]:
    """Group logs that links join, directly or through other logs; each group is a subgraph.

    A log without links is a group by itself. The groups are ordered by their first log.

    Args:
        logs: All logs of a session, oldest first.
        links: All links between them.
    """
    # At first every log has a group number for itself. Each link then merges the groups of its two
    # logs: all logs in the group of the later log get the number of the earlier log's group.
    group_numbers = {log.id: number for number, log in enumerate(logs)}
    for link in links:
        earlier_group = group_numbers[link.earlier]
        later_group = group_numbers[link.later]
        for log_id, group in group_numbers.items():
            if group == later_group:
                group_numbers[log_id] = earlier_group

    logs_by_group: dict[int, list[Turn]] = {}
    links_by_group: dict[int, list[Link]] = {}
    for log in logs:
        group = group_numbers[log.id]
        logs_by_group.setdefault(group, []).append(log)
    for link in links:
        group = group_numbers[link.later]
        links_by_group.setdefault(group, []).append(link)

    subgraphs: list[Subgraph] = []
    for group, group_logs in logs_by_group.items():
        group_links = links_by_group.get(group, [])
        subgraphs.append(Subgraph(tuple(group_logs), tuple(group_links)))
    return subgraphs


def topics_from_outlines(drafts: Sequence[DraftOutline], item: Item) -> list[Topic]:
    """Return the topics of a dialogue, from the outlines that a model drafted of them.

    An outline without a need is left out. The memory gives the topics their ids later.
    """
    outlines = [draft for draft in drafts if draft.requirement.strip()]
    spans = [outline.turn_span for outline in outlines]
    turn_ids = [turn.id for turn in item.spoken]
    turns_by_topic = turns_of_topics(spans, turn_ids)

    topics: list[Topic] = []
    for outline, sources in zip(outlines, turns_by_topic, strict=True):
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
    """Return the solutions that a dialogue proposed for one need; empty drafts are left out."""
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
    """Return the ids of the turns of each topic; together the topics cover the whole dialogue.

    A model names the first and last turn of a topic, and may leave gaps. So a topic is taken to
    end where the next one starts. Topics that start with the same turn have the same turns.

    Args:
        spans: For each topic, the ids of its first and last turn as the model named them.
        turn_ids: Ids of all turns of the dialogue.
    """
    # Positions in `turn_ids`, in ascending order. Where the model named no turn of the dialogue, or
    # one before the previous topic, a topic has the start of the previous topic.
    starts = _starts_of_topics(spans, turn_ids)
    turns: list[tuple[str, ...]] = []
    for start in starts:
        # Only greater positions: the next topic may have the same start.
        later_starts = [other for other in starts if other > start]
        end = min(later_starts, default=len(turn_ids))
        turns.append(tuple(turn_ids[start:end]))
    return turns


def _starts_of_topics(spans: Sequence[Sequence[str]], turn_ids: Sequence[str]) -> list[int]:
    """Return the position of the first turn of each topic, in ascending order.

    The first topic starts with the dialogue, whatever the model says. A later topic starts with the
    earliest turn that the model names for it, but never before the previous topic.

    Args:
        spans: For each topic, the ids of its first and last turn as the model named them.
        turn_ids: Ids of all turns of the dialogue.
    """
    positions = {turn_id: position for position, turn_id in enumerate(turn_ids)}
    starts: list[int] = []
    for span in spans:
        if not starts:
            starts.append(0)
            continue

        previous_start = starts[-1]
        named_positions = [positions[turn_id] for turn_id in span if turn_id in positions]
        named_start = min(named_positions, default=previous_start)
        starts.append(max(named_start, previous_start))
    return starts

"""From device logs to situations, and from situations to the background (Mem-PAL, steps 1-1, 1-2 and 3).

    logs ── link, all windows at once ──> groups ── describe, all at once ──> situations
    background so far, situations ── update ──> background

Nothing here needs the memory but the update of the background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import dspy

from ...records import Item, Turn
from ...signatures.h2memory import AspectSummary, LogLinks, aspects_of
from ..gather import gather
from .memory import HeterogeneousMemory, earliest, latest
from .situations import ASPECTS, KINDS, Aspect, Claim, Link, Situation, Window, accepted, components, windows

Ask = Callable[..., dspy.Prediction | None]
"""Calls one predictor; None where its output stays unparseable."""


@dataclass(frozen=True)
class PreparedLogs:
    """What is extracted from one item of logs."""

    situations: tuple[Situation, ...] = ()
    refused: int = 0
    """Links that were claimed and cannot be."""
    unplaced: int = 0
    """Situations without an aspect."""
    levels: int = 0
    """LM calls that had to follow one another."""
    lost: tuple[str, ...] = ()
    """Ids of the logs that no situation could be made of."""


def situations_of(item: Item, size: int, link: Ask, describe: Ask) -> PreparedLogs:
    """M_G of one session: a situation for every group of linked logs.

    Args:
        item: The logs.
        size: Logs per window.
        link: Calls the prompt that links logs.
        describe: Calls the prompt that describes a group; logs of a group that gets none are `lost`.
    """
    logs = [turn for turn in item.turns if turn.content.strip()]
    if not logs:
        return PreparedLogs()
    ids = [log.id for log in logs]
    # The first log has no predecessor: alone it has no link to ask for.
    parts = windows(len(logs), size) if len(logs) > 1 else []
    found = gather([lambda part=part: _linked(logs, item.time, part, link) for part in parts])
    links = [edge for edges, _ in found for edge in edges]
    groups = components(ids, links)
    drawn = gather([lambda group=group: _described(logs, item.time, group, links, describe) for group in groups])
    situations = tuple(situation for situation in drawn if situation is not None)
    lost = tuple(id for group, one in zip(groups, drawn, strict=True) if one is None for id in group)
    return PreparedLogs(
        situations=situations,
        refused=sum(refused for _, refused in found),
        unplaced=sum(not situation.aspects for situation in situations),
        levels=1 + bool(parts),
        lost=lost,
    )


def background_lines(memory: HeterogeneousMemory) -> str:
    """The background as the update sees it: all four aspects, the unknown ones empty."""
    known = {aspect: background.text for aspect, background in memory.background.items()}
    return "\n".join(f"{aspect}: {known.get(aspect, '')}".rstrip() for aspect in ASPECTS)


def updated(memory: HeterogeneousMemory, situations: Sequence[Situation], update: Ask) -> tuple[dict[Aspect, str], int]:
    """M_B(j) from M_B(j-1) and the situations of session j.

    Returns:
        The new sentence of each aspect that changes, and how many aspects were named without one. Output that stays
        unparseable changes nothing.
    """
    said = update(
        background_before=background_lines(memory),
        span_before=_span(memory.since, memory.until),
        situations_since=[situation.text for situation in situations],
        span_since=_span(
            earliest(situation.since for situation in situations), latest(situation.time for situation in situations)
        ),
    )
    if said is None:
        return {}, 0
    return _changes(said.updating_aspects or [], said.updating_content or [])


def _changes(named: Sequence[str], written: Sequence[AspectSummary]) -> tuple[dict[Aspect, str], int]:
    texts: dict[Aspect, str] = {part.aspect: " ".join(part.summary.split()) for part in written if part.summary.strip()}
    return texts, len(set(aspects_of(list(named))) - set(texts))


def _linked(logs: Sequence[Turn], time: datetime | None, part: Window, link: Ask) -> tuple[list[Link], int]:
    """The links of one window; none where the output stays unparseable."""
    said = link(
        device_logs="\n".join(log.line(time) for log in logs[part.shown : part.stop]),
        first_log=logs[part.first].id,
        last_log=logs[part.stop - 1].id,
    )
    rows: Sequence[LogLinks] = (said.links or []) if said else []
    claims = [Claim(row.log_id, tuple(row.caused_by), tuple(row.follows)) for row in rows]
    return accepted([log.id for log in logs], part, claims)


def _described(
    logs: Sequence[Turn], time: datetime | None, group: Sequence[str], links: Sequence[Link], describe: Ask
) -> Situation | None:
    chosen = [log for log in logs if log.id in group]
    own = [link for link in links if link.later in group]
    said = describe(linked_logs="\n".join(log.line(time) + _tail(log.id, own) for log in chosen))
    text = " ".join(said.found_situation.situation.split()) if said and said.found_situation else ""
    if not said or not text:
        return None
    times = [log.time or time for log in chosen]
    aspects = tuple(said.found_situation.aspects)
    return Situation(
        text=text,
        aspects=aspects,
        sources=tuple(group),
        links=tuple(own),
        since=earliest(times),
        time=latest(times),
    )


def _tail(id: str, links: Sequence[Link]) -> str:
    """` <caused_by l1, l2; follows l3>`, or nothing."""
    kinds = {kind: [link.earlier for link in links if (link.later, link.kind) == (id, kind)] for kind in KINDS}
    said = "; ".join(f"{kind} {', '.join(ids)}" for kind, ids in kinds.items() if ids)
    return f" <{said}>" if said else ""


def _span(since: datetime | None, until: datetime | None) -> str:
    if since is None or until is None:
        return "unknown"
    return f"{since:%Y-%m-%d} to {until:%Y-%m-%d}"

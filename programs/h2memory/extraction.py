"""What H2Memory extracts: from logs situations and background, from a dialogue topics and their needs in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from ...memory.index import Embedder, Entry, Index
from ...records import Item, Turn, latest, one_line
from ...signatures.h2memory import AspectSummary, DraftOutline, LogLinks
from ..gather import gather
from ..method import Lost
from ..predictor import Ask
from .memory import ASPECTS, KINDS, Aspect, HeterogeneousMemory, Link, Situation, Solution, Topic, earliest

Span = tuple[int, int]
"""Positions of the first and the last turn, both included."""


@dataclass(frozen=True)
class Window:
    """Positions in a list of logs: `shown` to `stop` are shown, `first` to `stop` are asked about."""

    shown: int
    first: int
    stop: int


def windows(count: int, size: int) -> list[Window]:
    """Cuts `count` logs into windows of at most `size`, each shown with the `size` logs before it."""
    return [Window(max(0, n - size), n, min(n + size, count)) for n in range(0, count, size)]


def accepted(ids: Sequence[str], window: Window, claims: Sequence[LogLinks]) -> list[Link]:
    """The claimed links of one window that can be, by log and kind, each once.

    Left out are links of a log that was not asked about, links to a log that was not shown or is not earlier, and
    follows where caused_by holds.
    """
    place = {id: n for n, id in enumerate(ids)}
    found: dict[tuple[str, str], Link] = {}
    for kind in KINDS:
        for row in claims:
            log = _plain(row.log_id)
            for other in map(_plain, getattr(row, kind)):
                later, earlier = place.get(log, -1), place.get(other, -1)
                if window.first <= later < window.stop and window.shown <= earlier < later:
                    found.setdefault((log, other), Link(later=log, kind=kind, earlier=other))
    return sorted(found.values(), key=lambda link: (place[link.later], place[link.earlier]))


def components(ids: Sequence[str], links: Iterable[Link]) -> list[list[str]]:
    """The groups of logs that links join, by their first log; within a group oldest first."""
    groups = {log: [log] for log in ids}
    for link in links:
        a, b = groups[link.earlier], groups[link.later]
        if a is not b:
            a += b
            groups.update(dict.fromkeys(b, a))
    distinct = {id(group): group for group in groups.values()}.values()
    return [sorted(group, key=ids.index) for group in distinct]


def _plain(id: str) -> str:
    return id.strip("[]()<> \"'")


def situations_of(item: Item, size: int, ask: Ask) -> tuple[list[Situation], set[str]]:
    """M_G of one session: a situation for every group of linked logs, and the logs of groups that got none."""
    logs = item.spoken
    ids = [log.id for log in logs]
    # The first log has no predecessor: alone it has no link to ask for.
    parts = windows(len(logs), size) if len(logs) > 1 else []
    found = gather([lambda part=part: _linked(logs, item.time, part, ask) for part in parts])
    links = [edge for edges in found for edge in edges]
    groups = components(ids, links)
    drawn = gather([lambda group=group: _described(logs, item.time, group, links, ask) for group in groups])
    lost = {id for group, one in zip(groups, drawn, strict=True) if one is None for id in group}
    return [situation for situation in drawn if situation is not None], lost


def background_lines(memory: HeterogeneousMemory) -> str:
    """The background as the update sees it: all four aspects, the unknown ones empty."""
    known = {aspect: background.text for aspect, background in memory.background.items()}
    return "\n".join(f"{aspect}: {known.get(aspect, '')}".rstrip() for aspect in ASPECTS)


def updated(memory: HeterogeneousMemory, situations: Sequence[Situation], ask: Ask) -> dict[Aspect, str]:
    """M_B(j) from M_B(j-1) and the situations of session j: the new sentence of each aspect that changes."""
    until = latest(*(situation.time for situation in situations))
    said = ask(
        "update_background",
        background_before=background_lines(memory),
        span_before=_span(memory.since, memory.until),
        situations_since=[situation.text for situation in situations],
        span_since=_span(earliest(situation.since for situation in situations), until),
    )
    written: Sequence[AspectSummary] = said.updating_content or [] if said else []
    return {part.aspect: one_line(part.summary) for part in written if part.summary.strip()}


def _linked(logs: Sequence[Turn], time: datetime | None, part: Window, ask: Ask) -> list[Link]:
    """The links of one window; none where the output stays unparseable."""
    said = ask(
        "link",
        device_logs="\n".join(log.line(time) for log in logs[part.shown : part.stop]),
        first_log=logs[part.first].id,
        last_log=logs[part.stop - 1].id,
    )
    return accepted([log.id for log in logs], part, (said.links or []) if said else [])


def _described(
    logs: Sequence[Turn], time: datetime | None, group: Sequence[str], links: Sequence[Link], ask: Ask
) -> Situation | None:
    chosen = [log for log in logs if log.id in group]
    own = [link for link in links if link.later in group]
    said = ask("describe", linked_logs="\n".join(log.line(time) + _tail(log.id, own) for log in chosen))
    text = one_line(said.found_situation.situation) if said and said.found_situation else ""
    if not said or not text:
        return None
    times = [log.time or time for log in chosen]
    about = {"aspects": tuple(said.found_situation.aspects), "sources": tuple(group), "links": tuple(own)}
    return Situation(text=text, since=earliest(times), time=latest(*times), **about)


def _tail(id: str, links: Sequence[Link]) -> str:
    """` <caused_by l1, l2; follows l3>`, or nothing."""
    kinds = {kind: [link.earlier for link in links if (link.later, link.kind) == (id, kind)] for kind in KINDS}
    said = "; ".join(f"{kind} {', '.join(ids)}" for kind, ids in kinds.items() if ids)
    return f" <{said}>" if said else ""


def _span(since: datetime | None, until: datetime | None) -> str:
    if since is None or until is None:
        return "unknown"
    return f"{since:%Y-%m-%d} to {until:%Y-%m-%d}"


def topics_of(item: Item, ask: Ask) -> list[Topic] | Lost:
    """T of one dialogue; outlines without a need are left out."""
    turns = item.spoken
    if not turns:
        return []
    said = ask("outline", conversation="\n".join(turn.line(item.time) for turn in turns))
    if said is None:
        return Lost()
    drafts: Sequence[DraftOutline] = said.outlines or []
    kept = [draft for draft in drafts if draft.requirement.strip()]
    ids = [turn.id for turn in turns]
    spans = tiled([span(draft.turn_span, ids) for draft in kept], len(ids))
    rows = zip(kept, spans, strict=True)
    return [_topic(draft).changed(sources=tuple(ids[a : b + 1]), time=item.time) for draft, (a, b) in rows]


def refined(
    memory: HeterogeneousMemory, topics: Sequence[Topic], ask: Ask, embedder: Embedder, k: int, situated: bool
) -> dict[str, str]:
    """The needs of topics in full, all at once, by topic id; a topic of an unknown session keeps its need.

    A prompt is shown the `k` situations that are nearest, if it is `situated`, and the backgrounds that they lead to.
    """
    near = nearest(memory, topics, embedder, k)
    inputs = {
        topic.id: {
            "overall_background": "\n".join(f"{a}: {memory.background[a].text}" for a in memory.behind(near[topic.id])),
            "recent_situations": "\n".join(one_line(situation.text) for situation in near[topic.id])
            if situated
            else "",
            "stated_need": topic.need,
        }
        for topic in topics
    }
    asked = [id for id, given in inputs.items() if given["overall_background"] or given["recent_situations"]]
    said = gather([lambda id=id: ask("refine", **inputs[id]) for id in asked])
    return {id: one_line(one.detailed_need) for id, one in zip(asked, said, strict=True) if one}


def nearest(
    memory: HeterogeneousMemory, topics: Sequence[Topic], embedder: Embedder, k: int
) -> dict[str, list[Situation]]:
    """R(s): the situations of a topic's own session that are nearest to its need, by topic id."""
    found: dict[str, list[Situation]] = {topic.id: [] for topic in topics}
    known = {situation.id: situation for situation in memory.situations}
    for own in dict.fromkeys(topic.own for topic in topics):
        index = Index(embedder)
        index.add(Entry(id=situation.id, text=situation.text) for situation in memory.of(own))
        mine = [topic for topic in topics if topic.own == own]
        for topic, hits in zip(mine, index.search([topic.need for topic in mine], k), strict=True):
            found[topic.id] = [known[hit.id] for hit in hits]
    return found


def _topic(draft: DraftOutline) -> Topic:
    solutions = [
        Solution(text=one_line(one.solution), feedback=one_line(one.user_feedback), kind=one.feedback_type)
        for one in draft.solution_list
        if one.solution.strip()
    ]
    return Topic(need=one_line(draft.requirement), solutions=tuple(solutions), preference=one_line(draft.preference))


def span(named: Sequence[str], ids: Sequence[str]) -> Span | None:
    """The positions that a model's first and last turn id stand for, in any order; None if neither is a turn."""
    place = {id: n for n, id in enumerate(ids)}
    found = [place[id] for id in named if id in place]
    return (min(found), max(found)) if found else None


def tiled(spans: Sequence[Span | None], turns: int) -> list[Span]:
    """Spans that tile a dialogue of at least one turn, as near to the given ones, one per topic, as there are.

    Where a topic begins counts: it ends where the next one begins, the first begins with the dialogue, the last ends
    with it. Topics without a span share the turns around them evenly; the order of topics is kept. If there are more
    topics than turns, some share a turn.
    """
    starts = _starts([None if one is None else one[0] for one in spans], turns)
    return [(start, max(start, after - 1)) for start, after in zip(starts, [*starts[1:], turns], strict=False)]


def _starts(given: Sequence[int | None], turns: int) -> list[int]:
    """Ascending positions, from 0, each its own as long as there are enough."""
    count = len(given)
    known = {0: 0, **{n: start for n, start in enumerate(given) if n and start is not None}, count: turns}
    starts: list[int] = []
    for n, start in enumerate(np.interp(range(count), list(known), list(known.values())).round().astype(int).tolist()):
        # At least one turn for each topic before and behind, where there are so many.
        low = starts[-1] + 1 if starts else 0
        starts.append(min(max(start, low), max(turns - (count - n), 0)))
    return starts

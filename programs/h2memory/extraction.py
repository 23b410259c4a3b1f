"""H2Memory's extraction: situations and background from logs, topics and needs from dialogues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import accumulate

from ...memory.entry import Entry
from ...memory.search.embedder import Embedder
from ...memory.search.index import Index
from ...records import Item, Turn, latest
from ...signatures.h2memory import AspectSummary, DraftOutline, LogLinks
from ...text import one_line
from ..writer import ExtractionFailed
from .._component import CallPredictor
from ..threads import gather
from .memory import ASPECTS, KINDS, Aspect, HeterogeneousMemory, Link, Situation, Solution, Topic, earliest


def accepted(ids: Sequence[str], first: int, claims: Sequence[LogLinks]) -> list[Link]:
    """The claimed links of some logs that can be, by log and kind, each once.

    Left out are links of a log that was not asked about, which are those from `first` on, links to a log that was not
    shown or is not earlier, and follows where caused_by holds.
    """
    place = {id: n for n, id in enumerate(ids)}
    found: dict[tuple[str, str], Link] = {}
    for kind in KINDS:
        for row in claims:
            for other in getattr(row, kind):
                later, earlier = place.get(row.log_id, -1), place.get(other, -1)
                if first <= later and 0 <= earlier < later:
                    found.setdefault((row.log_id, other), Link(later=row.log_id, kind=kind, earlier=other))
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


def situations_of(item: Item, size: int, ask: CallPredictor) -> tuple[list[Situation], set[str]]:
    """M_G of one session: a situation for every group of linked logs, and the logs of groups that got none."""
    logs = item.spoken
    ids = [log.id for log in logs]
    # The first log has no predecessor: alone it has no link to ask for.
    parts = range(0, len(logs), size) if len(logs) > 1 else ()
    found = gather(
        [lambda n=n: _linked(logs[max(0, n - size) : n + size], min(n, size), item.time, ask) for n in parts]
    )
    links = [edge for edges in found for edge in edges]
    groups = components(ids, links)
    drawn = gather([lambda group=group: _described(logs, item.time, group, links, ask) for group in groups])
    lost = {id for group, one in zip(groups, drawn, strict=True) if one is None for id in group}
    return [situation for situation in drawn if situation is not None], lost


def updated(memory: HeterogeneousMemory, situations: Sequence[Situation], ask: CallPredictor) -> dict[Aspect, str]:
    """M_B(j) from M_B(j-1) and the situations of session j: the new sentence of each aspect that changes."""
    until = latest(*(situation.time for situation in situations))
    known = {aspect: background.text for aspect, background in memory.background.items()}
    said = ask(
        "update_background",
        background_before="\n".join(f"{aspect}: {known.get(aspect, '')}".rstrip() for aspect in ASPECTS),
        span_before=_span(memory.since, memory.until),
        situations_since=[situation.text for situation in situations],
        span_since=_span(earliest(situation.since for situation in situations), until),
    )
    written: Sequence[AspectSummary] = said.updating_content or [] if said else []
    return {part.aspect: one_line(part.summary) for part in written if part.summary.strip()}


def _linked(logs: Sequence[Turn], first: int, time: datetime | None, ask: CallPredictor) -> list[Link]:
    """The links of the logs from one on, to all that are shown; none where the output stays unparseable."""
    said = ask(
        "link",
        device_logs="\n".join(log.line(time) for log in logs),
        first_log=logs[first].id,
        last_log=logs[-1].id,
    )
    return accepted([log.id for log in logs], first, (said.links or []) if said else [])


def _described(
    logs: Sequence[Turn], time: datetime | None, group: Sequence[str], links: Sequence[Link], ask: CallPredictor
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


def topics_of(item: Item, ask: CallPredictor) -> list[Topic] | ExtractionFailed:
    """T of one dialogue; outlines without a need are left out."""
    turns = item.spoken
    if not turns:
        return []
    said = ask("outline", conversation="\n".join(turn.line(item.time) for turn in turns))
    if said is None:
        return ExtractionFailed()
    drafts: Sequence[DraftOutline] = said.outlines or []
    kept = [draft for draft in drafts if draft.requirement.strip()]
    sources = tiled([draft.turn_span for draft in kept], [turn.id for turn in turns])
    return [_topic(draft, own, item.time) for draft, own in zip(kept, sources, strict=True)]


def refined(
    memory: HeterogeneousMemory, topics: Sequence[Topic], ask: CallPredictor, embedder: Embedder, k: int, situated: bool
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


def _topic(draft: DraftOutline, sources: tuple[str, ...], time: datetime | None) -> Topic:
    solutions = [
        Solution(text=one_line(one.solution), feedback=one_line(one.user_feedback), kind=one.feedback_type)
        for one in draft.solution_list
        if one.solution.strip()
    ]
    about = {"solutions": tuple(solutions), "preference": one_line(draft.preference)}
    return Topic(need=one_line(draft.requirement), sources=sources, time=time, **about)


def tiled(named: Sequence[Sequence[str]], ids: Sequence[str]) -> list[tuple[str, ...]]:
    """The turns of each topic, whose first and last one a model named, in the order of the topics.

    They tile the dialogue: where a topic begins counts; it ends where a later one begins, the first begins with the
    dialogue, the last ends with it. One that begins nowhere, or before the one before it, shares the turns of that one.
    """
    place = {id: n for n, id in enumerate(ids)}
    first = (min((place[id] for id in each if id in place), default=0) for each in named[1:])
    starts = list(accumulate(first, max, initial=0))[: len(named)]
    return [tuple(ids[start : min((later for later in starts if later > start), default=None)]) for start in starts]

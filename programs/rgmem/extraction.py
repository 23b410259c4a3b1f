"""From a session to units of evidence and their places in the graph (f_seg, f_synth, f_extract; Eq. 4 and 5).

    session ── segments ──> synthesize ──> fact, conclusions ──> extract ──> paths ──> label ──> labelled paths

Segmentation is by rule: pieces of equal length, of at most `segment_turns` turns. Nothing here needs the memory, so all
segments of all sessions run at once; of one segment the three calls follow one another.

Example:
    >>> from mempiler.programs.rgmem.extraction import segments
    >>> from mempiler.records import Session, Turn
    >>> session = Session(id="D1", turns=tuple(Turn(id=f"D1:{n}", speaker="Ann", text="Hello") for n in range(20)))
    >>> [len(piece) for piece in segments(session, 8)]
    [7, 7, 6]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import dspy

from ...records import Item, Turn, format_time, one_line
from ...signatures.rgmem import DrawnConclusion
from ...signatures.rgmem_graph import EntityPath, PathSegment, SegmentLabel
from ..method import Lost
from .graph_update import GraphPath
from .memory import Conclusion, Evidence

Ask = Callable[..., dspy.Prediction | None]
"""Calls one predictor; None where its output stays unparseable."""


@dataclass(frozen=True)
class Draft:
    """One unit that has no id yet, with its paths."""

    fact: str
    conclusions: tuple[Conclusion, ...] = ()
    time: datetime | None = None
    sources: tuple[str, ...] = ()
    paths: tuple[GraphPath, ...] = ()

    def evidence(self, id: str, step: int) -> Evidence:
        """The unit under an id."""
        return Evidence(
            id=id, step=step, fact=self.fact, conclusions=self.conclusions, time=self.time, sources=self.sources
        )


def segments(item: Item, most: int) -> list[list[Turn]]:
    """f_seg: the turns with words in as few pieces of at most `most` as there can be, equal in length up to one."""
    turns = [turn for turn in item.turns if turn.content.strip()]
    pieces = -(-len(turns) // most)
    cuts = [-(-len(turns) * n // pieces) for n in range(pieces + 1)] if pieces else []
    return [turns[a:b] for a, b in pairwise(cuts)]


def synthesized(turns: Sequence[Turn], time: datetime | None, synthesize: Ask) -> Draft | Lost | None:
    """f_synth: one segment as a unit; None where there is nothing in it worth keeping."""
    said = synthesize(dialogue="\n".join(turn.line(time) for turn in turns))
    if said is None:
        return Lost(frozenset(turn.id for turn in turns))
    ids = [turn.id for turn in turns]
    conclusions: list[DrawnConclusion] = said.conclusions or []
    drawn = [_conclusion(one, ids) for one in conclusions if one.text.strip()]
    fact = " ".join(str(said.fact or "").split())
    if not fact and not drawn:
        return None
    unique = {conclusion.text.casefold(): conclusion for conclusion in reversed(drawn)}
    return Draft(fact, tuple(reversed(unique.values())), turns[0].time or time, tuple(ids))


def placed(draft: Draft, extract: Ask, label: Ask) -> Draft:
    """f_extract: the unit with its labelled paths; without any where the model gave none."""
    text = fragment(draft)
    said = extract(fragment=text)
    drawn: list[EntityPath] = said.entity_paths or [] if said else []
    paths = tuple(path for path in dict.fromkeys(map(_path, drawn)) if path.events)
    if not paths:
        return draft
    parts = _segments(paths)
    labelled = label(fragment=text, segments=[part for row in parts for part in row])
    edges: list[SegmentLabel] = labelled.edge_labels or [] if labelled else []
    labels = {one.segment_id.strip("[]() "): one.label for one in edges}
    return replace(
        draft,
        paths=tuple(
            replace(path, labels=tuple(labels.get(part.segment_id, "") for part in row))
            for path, row in zip(paths, parts, strict=True)
        ),
    )


def fragment(draft: Draft) -> str:
    """A unit as prompts show it: the fact, then the conclusions with the turns they rest on."""
    when = f"({format_time(draft.time)}) " if draft.time else ""
    lines = [one_line(f"{when}{draft.fact}")] if draft.fact else []
    return "\n".join([*lines, *(conclusion_line(one, draft.time) for one in draft.conclusions)])


def conclusion_line(conclusion: Conclusion, time: datetime | None) -> str:
    """`[D1:3] (8 May 2023, Monday) Ann likes jazz`; the turn ids also show an optimizer which step saw the evidence."""
    when = f"({format_time(time)}) " if time else ""
    return one_line(f"[{', '.join(conclusion.sources)}] {when}{conclusion.text}")


def _conclusion(drawn: DrawnConclusion, ids: Sequence[str]) -> Conclusion:
    named = [id.strip("[]() ") for id in drawn.turn_ids]
    sources = tuple(id for id in dict.fromkeys(named) if id in ids) or tuple(ids)
    return Conclusion(text=" ".join(drawn.text.split()), high=drawn.relevance == "high", sources=sources)


def _path(path: EntityPath) -> GraphPath:
    concepts = tuple(" ".join(name.split()) for name in path.concepts if name.strip())
    return GraphPath(path.base, concepts, tuple(" ".join(name.split()) for name in path.events if name.strip()))


def _segments(paths: Sequence[GraphPath]) -> list[list[PathSegment]]:
    """The segments that lead to an event, by path, numbered through all of them; equal ones count each."""
    found: list[list[PathSegment]] = []
    number = 0
    for path in paths:
        way = [path.concepts[-1] if path.concepts else path.base, *path.events]
        row: list[Any] = []
        for source, target in pairwise(way):
            number += 1
            whole = " > ".join(["User", path.base, *path.names])
            row.append(PathSegment(segment_id=f"s{number}", source=source, target=target, path=whole))
        found.append(row)
    return found

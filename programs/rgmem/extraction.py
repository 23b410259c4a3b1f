"""RGMem's extraction: from a session to units of evidence and their paths in the graph.

    session ── f_seg ──> segments ── f_synth ──> units of evidence (Eq. 4)
    unit    ── f_extract ──> labelled paths (Eq. 5), which `graph.add_units` adds to a graph

A segment becomes one unit of evidence, whoever speaks. Its paths are extracted for each person it
says something of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import dspy

from ...records import Item, Turn, format_time
from ...signatures.rgmem import DrawnConclusion, EntityPath, PathSegment, SegmentLabel
from ...text import one_line
from ..predictor import Predictor
from ..writer import ExtractionFailed
from .graph import GraphPath
from .memory import USER, Conclusion, Evidence

_BRACKETS_AND_SPACE = "[]() "
"""What models put around ids and names."""


class ExtractionPrompts(Protocol):
    """The prompts of a writer that extract evidence and paths, and how they are called.

    A writer has only those prompts that its settings use.
    """

    synthesize: Predictor
    extract_paths: Predictor
    label: Predictor

    def try_call(self, predictor: dspy.Module, **inputs: Any) -> dspy.Prediction | None:
        """Call a predictor; None if no answer can be read."""
        ...


def split_into_segments(item: Item, max_turns: int) -> list[list[Turn]]:
    """Split the turns of a session that hold words into segments (f_seg, section 3.3.1).

    There are as few segments of at most `max_turns` as there can be; their lengths differ by at
    most one turn.
    """
    turns = list(item.spoken)
    if not turns:
        return []

    # Segments lie between successive cuts: 10 turns in 3 segments are cut at 0, 4, 7 and 10.
    segment_count = math.ceil(len(turns) / max_turns)
    cuts = [math.ceil(len(turns) * number / segment_count) for number in range(segment_count + 1)]
    return [turns[start:end] for start, end in pairwise(cuts)]


def synthesize(
    turns: Sequence[Turn],
    time: datetime | None,
    prompts: ExtractionPrompts,
    users: str = USER,
    people: Sequence[str] = (),
) -> Evidence | ExtractionFailed | None:
    """Return the unit of evidence that a model finds in one segment of a conversation.

    A unit of evidence is a fact with conclusions, the sentences that can be drawn from the segment
    (f_synth, Eq. 4).

    Args:
        turns: The segment.
        time: When it was said, for turns without a time of their own.
        prompts: The writer with the prompts.
        users: What the prompt calls those whom conclusions are drawn about.
        people: The speakers whom a conclusion may be attributed to; empty where there is one graph
            for all.

    Returns:
        A unit of evidence, which gets its id and step when it enters a memory. None if nothing is
        worth keeping; an `ExtractionFailed` with all turns if no usable answer came.
    """
    turn_ids = tuple(turn.id for turn in turns)
    dialogue = "\n".join(turn.line(time) for turn in turns)
    answer = prompts.try_call(prompts.synthesize, users=users, dialogue=dialogue)
    if answer is None:
        return ExtractionFailed(frozenset(turn_ids))

    fact = one_line(answer.fact)
    conclusions = _read_conclusions(answer.conclusions or [], turns, people)
    if not fact and not conclusions:
        return None

    return Evidence(
        id="",
        step=0,
        fact=fact,
        conclusions=conclusions,
        time=turns[0].time or time,
        sources=turn_ids,
    )


def _read_conclusions(
    drawn_conclusions: Sequence[DrawnConclusion], turns: Sequence[Turn], people: Sequence[str]
) -> tuple[Conclusion, ...]:
    """Return the different conclusions that a model drew from a segment and that have words.

    A repeated conclusion stands where it was repeated last, with the person and the turns that it
    had at first.
    """
    conclusions_by_text: dict[str, Conclusion] = {}
    for drawn in drawn_conclusions:
        if not drawn.text.strip():
            continue
        conclusion = _to_conclusion(drawn, turns, people)
        text = conclusion.text.casefold()
        # Taken out and put in again, so that it moves to the end of the dict.
        first_conclusion = conclusions_by_text.pop(text, conclusion)
        conclusions_by_text[text] = first_conclusion
    return tuple(conclusions_by_text.values())


def _to_conclusion(
    drawn: DrawnConclusion, turns: Sequence[Turn], people: Sequence[str]
) -> Conclusion:
    """Return a conclusion as a memory stores it, from one that a model drew from a segment.

    Its sources are the turns of the segment that the model names, or all turns if it names none.
    """
    turn_ids = [turn.id for turn in turns]
    named_ids = dict.fromkeys(name.strip(_BRACKETS_AND_SPACE) for name in drawn.turn_ids)
    sources = [turn_id for turn_id in named_ids if turn_id in turn_ids]
    if not sources:
        sources = turn_ids

    speakers = [turn.speaker for turn in turns if turn.id in sources]
    return Conclusion(
        text=one_line(drawn.text),
        high=drawn.relevance == "high",
        person=_person_of(drawn, speakers, people),
        sources=tuple(sources),
    )


def _person_of(drawn: DrawnConclusion, speakers: Sequence[str], people: Sequence[str]) -> str:
    """Return whom a conclusion is about, or "" if that is not known.

    That is the person whom the model names. If it names nobody we know, and the turns that the
    conclusion rests on have a single speaker, it is about the speaker.

    Args:
        drawn: The conclusion, as the model drew it.
        speakers: The speakers of the turns that it rests on.
        people: Those whom a conclusion may be attributed to.
    """
    people_by_name = {_bare_name(person): person for person in people}
    named_person = people_by_name.get(_bare_name(drawn.speaker))
    if named_person is not None:
        return named_person

    is_one_speaker = len(set(speakers)) == 1
    if is_one_speaker and speakers[0] in people:
        return speakers[0]
    return ""


def _bare_name(name: str) -> str:
    """Return a name in lower case, without spaces and brackets at its ends.

    Models put brackets around names, and some names end in one, so neither counts in a comparison.
    """
    return name.strip(_BRACKETS_AND_SPACE).casefold()


def extract_paths(
    unit: Evidence,
    prompts: ExtractionPrompts,
    person: str = USER,
    user: str | None = None,
    linked: bool = True,
) -> tuple[GraphPath, ...]:
    """Ask a model where a unit of evidence belongs in one person's graph, and return the paths.

    A unit of evidence is what one part of a conversation says. A path leads from a broad topic over
    narrower topics to events, and the edge to an event has a label that says what happened (Eq. 5).

    Args:
        unit: The unit of evidence, with the conclusions drawn from it.
        prompts: The writer with the prompts.
        person: Whose graph it is.
        user: What the prompts call the person, if that is not the name.
        linked: If True, a conclusion counts for an edge only if the model says that it is about
            this edge. If False, or if the model says so of no edge at all, all conclusions about
            the person count for every edge.

    Returns:
        The paths that have events; none where the model gave none.
    """
    user = user or person
    # The first call of the model gives the paths. It returns None if the answer is not usable.
    fragment = format_fragment(unit, person)
    answer = prompts.try_call(prompts.extract_paths, user=user, fragment=fragment)
    entity_paths: list[EntityPath] = []
    if answer is not None:
        entity_paths = answer.entity_paths or []

    # A dict, so that equal paths are labelled once.
    unique_paths: dict[GraphPath, None] = {}
    for entity_path in entity_paths:
        path = _to_graph_path(entity_path, person)
        if path.events:
            unique_paths[path] = None
    if not unique_paths:
        return ()
    # A second call of the model gives the labels.
    return _label_paths(list(unique_paths), unit, prompts, user, linked)


def _to_graph_path(entity_path: EntityPath, person: str) -> GraphPath:
    """Return a path of a model's answer as the graph takes it, without names that are empty."""
    concepts = [one_line(name) for name in entity_path.concepts if name.strip()]
    events = [one_line(name) for name in entity_path.events if name.strip()]
    return GraphPath(entity_path.base, tuple(concepts), tuple(events), person=person)


class _EdgeLabel(NamedTuple):
    """What a model says of an edge: a label, and positions of the conclusions about the edge."""

    text: str
    conclusions: tuple[int, ...]


_NO_LABEL = _EdgeLabel(text="", conclusions=())
"""Stands for the label of an edge that the model left out."""


def _label_paths(
    paths: Sequence[GraphPath],
    unit: Evidence,
    prompts: ExtractionPrompts,
    user: str,
    linked: bool,
) -> tuple[GraphPath, ...]:
    """Return the paths with the labels that a model gives to their edges to events.

    With a label, the model names those conclusions of the unit of evidence that are about the edge.

    Args:
        paths: Paths in one person's graph.
        unit: The unit of evidence that the paths were extracted from.
        prompts: The writer with the prompts.
        user: What the prompt calls the person.
        linked: Whether the paths note which conclusions are about which edge.
    """
    person = paths[0].person
    segments_by_path = _path_segments(paths, user)
    all_segments: list[PathSegment] = []
    for segments in segments_by_path:
        all_segments.extend(segments)

    answer = prompts.try_call(
        prompts.label,
        user=user,
        fragment=format_numbered_fragment(unit, person),
        segments=all_segments,
    )
    labels: dict[str, _EdgeLabel] = {}
    if answer is not None:
        labels = _read_labels(answer.edge_labels or [], unit, person)

    # A model that names no conclusions with any label has left out this part of its answer. Then
    # nothing is noted, and all conclusions count for each edge.
    names_conclusions = any(label.conclusions for label in labels.values())
    notes_conclusions = linked and names_conclusions
    labelled_paths: list[GraphPath] = []
    for path, segments in zip(paths, segments_by_path, strict=True):
        edge_labels = [labels.get(segment.segment_id, _NO_LABEL) for segment in segments]
        labelled_paths.append(_with_labels(path, edge_labels, notes_conclusions))
    return tuple(labelled_paths)


def _read_labels(
    segment_labels: Sequence[SegmentLabel], unit: Evidence, person: str
) -> dict[str, _EdgeLabel]:
    """Return the labels in a model's answer, by the ids that the prompt gave to the edges.

    A label says what happened, and names the conclusions that are about the edge.

    Args:
        segment_labels: The labels, as the model wrote them.
        unit: The unit of evidence that the model was shown.
        person: The model was shown the conclusions of the unit that are about this person.
    """
    labels: dict[str, _EdgeLabel] = {}
    for segment_label in segment_labels:
        segment_id = segment_label.segment_id.strip(_BRACKETS_AND_SPACE)
        conclusions = _positions_of_conclusions(segment_label.conclusions, unit, person)
        labels[segment_id] = _EdgeLabel(segment_label.label, conclusions)
    return labels


def _with_labels(
    path: GraphPath, edge_labels: Sequence[_EdgeLabel], notes_conclusions: bool
) -> GraphPath:
    """Return a path with the labels of its edges to events, and the conclusions about them.

    Args:
        path: The path.
        edge_labels: What a model says of the edge to each event, in the order of the events.
        notes_conclusions: Whether only the conclusions that the model names count as being about
            an edge. If not, all about the person count.
    """
    texts: list[str] = []
    conclusions_per_edge: list[tuple[int, ...] | None] = []
    for edge_label in edge_labels:
        texts.append(edge_label.text)
        if notes_conclusions:
            conclusions_per_edge.append(edge_label.conclusions)
        else:
            # None stands for all conclusions about the person.
            conclusions_per_edge.append(None)
    return replace(path, labels=tuple(texts), linked=tuple(conclusions_per_edge))


def _path_segments(paths: Sequence[GraphPath], user: str) -> list[list[PathSegment]]:
    """Return the edges to events in some paths, as a prompt shows them; a list for each path.

    A path leads from a fixed topic (`base`) over narrower topics to events. The ids of edges, s1,
    s2, ..., run on through all paths, so an edge that two paths share has two ids.
    """
    # Paths begin with the name of the user. Several users who share a graph are called "Ann and Bob
    # (they share ...)"; the remark in brackets is left out.
    root_name = user.partition(" (")[0]
    segments_by_path: list[list[PathSegment]] = []
    segment_count = 0
    for path in paths:
        # A path has topics first (the base, then narrower concepts), and then events.
        topics = [path.base, *path.concepts]
        whole_path = " > ".join([root_name, *topics, *path.events])

        # The first edge to an event leads from the lowest topic, the others from event to event.
        segments: list[PathSegment] = []
        for source, target in pairwise([topics[-1], *path.events]):
            segment_count += 1
            segment = PathSegment(
                segment_id=f"s{segment_count}", source=source, target=target, path=whole_path
            )
            segments.append(segment)

        segments_by_path.append(segments)
    return segments_by_path


def _positions_of_conclusions(
    references: Sequence[str], unit: Evidence, person: str
) -> tuple[int, ...]:
    """Return the positions, in a unit of evidence, of the conclusions that an answer refers to.

    The prompt showed a conclusion as `[c1, D1:3] ...`: with its id, and the ids of the turns of
    conversation that it rests on. Some models refer to it by its id, others by the id of a turn.

    Args:
        references: The ids in the model's answer, "c1" or "D1:3", maybe in brackets.
        unit: The unit of evidence that the model was shown.
        person: The model was shown the conclusions about this person; others do not count.
    """
    ids = {reference.strip(_BRACKETS_AND_SPACE) for reference in references}
    positions: list[int] = []
    for position in unit.conclusions_about(person):
        turn_ids = unit.conclusions[position].sources
        is_named_by_id = _conclusion_id(position) in ids
        is_named_by_turn = not ids.isdisjoint(turn_ids)
        if is_named_by_id or is_named_by_turn:
            positions.append(position)
    return tuple(positions)


def people_concerned(unit: Evidence, people: Sequence[str]) -> list[str]:
    """Return the people in whose graphs a unit of evidence belongs.

    These are the people whom its conclusions are about. They are all people if there are no
    conclusions, or if it is not known whom one of them is about.
    """
    named_people = {conclusion.person for conclusion in unit.conclusions}
    is_person_unknown = "" in named_people
    if not named_people or is_person_unknown:
        return list(people)
    return [person for person in people if person in named_people]


def format_fragment(unit: Evidence, person: str = USER) -> str:
    """Return a unit of evidence as prompts show it: its fact, then conclusions on a person."""
    lines = _fact_lines(unit)
    for position in unit.conclusions_about(person):
        lines.append(format_conclusion(unit.conclusions[position], unit.time))
    return "\n".join(lines)


def format_numbered_fragment(unit: Evidence, person: str) -> str:
    """Return a unit of evidence as prompts show it: its fact, then conclusions on a person.

    The conclusions have ids c1, c2, ..., by which a model's answer can refer to them.
    """
    lines = _fact_lines(unit)
    for position in unit.conclusions_about(person):
        conclusion_id = _conclusion_id(position)
        lines.append(format_conclusion(unit.conclusions[position], unit.time, conclusion_id))
    return "\n".join(lines)


def _conclusion_id(position: int) -> str:
    """Return the id that prompts give to a unit's conclusion at a position."""
    return f"c{position + 1}"


def _fact_lines(unit: Evidence) -> list[str]:
    """Return the line of a prompt for the fact of a unit of evidence; none if it has no fact."""
    if not unit.fact:
        return []
    return [one_line(f"{time_prefix(unit.time)}{unit.fact}")]


def format_conclusion(
    conclusion: Conclusion, time: datetime | None, conclusion_id: str | None = None
) -> str:
    """Return a conclusion as a line of a prompt: `[c1, D1:3] (8 May 2023, Monday) Ann likes jazz`.

    The ids of the turns that it rests on, here D1:3, let optimizers find the prompts in which a
    model was shown these turns.

    Args:
        conclusion: The conclusion.
        time: When it was said.
        conclusion_id: An id by which the model may refer to it, here c1; left out if None.
    """
    ids = list(conclusion.sources)
    if conclusion_id is not None:
        ids.insert(0, conclusion_id)
    return one_line(f"[{', '.join(ids)}] {time_prefix(time)}{conclusion.text}")


def time_prefix(time: datetime | None) -> str:
    """Return a date as prompts show it before a text; "" if it is not known."""
    if time is None:
        return ""
    return f"({format_time(time)}) "

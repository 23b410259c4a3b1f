"""Prompts of RGMem that turn a unit of evidence into paths of its knowledge graph and label their edges (L1).

Source: RGMem, appendix D, "Extract entities prompt" and "Extract relations prompt", every rule in our own words. A path
is typed instead of a list of (name, type): base concept, further concepts, events. So the three tiers, the order of
the tiers and the eleven base concepts are held by the type, and the labels "has profile in" and "has subclass", which
the paper's second prompt fixes, are written by code (`graph_update`): the prompt asks for event labels only.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, get_args

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import Shown

Base = Literal[
    "Personal Identity and Traits",
    "Health and Wellness",
    "Goals and Plans",
    "Consumption and Finance",
    "Dining",
    "Interests and Entertainment",
    "Travel and Commute",
    "Social Relationships",
    "Work and Study",
    "Values and Beliefs",
    "Assets and Environment",
]


def _nearest_base(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    known = {base.lower(): base for base in get_args(Base)}
    plain = " ".join(value.replace("&", "and").lower().split())
    near = [plain] if plain in known else difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    return known[near[0]] if near else value


class EntityPath(BaseModel):
    """One way from the user down to something concrete."""

    base: Annotated[Base, BeforeValidator(_nearest_base)] = Field(description="the base concept right below the user")
    concepts: list[str] = Field(default=[], description="further abstract concepts, from wide to narrow")
    events: list[str] = Field(description="the general event, then the instance; an entity under its kind stands alone")


class ExtractEntityPaths(dspy.Signature):
    """Build the part of a personal knowledge graph that a memory fragment belongs to: paths that give context.

    Find every concrete thing in the fragment (events, places, books, organisations, plans, states, ...), and for each
    trace all paths that lead to it from the user, through concepts, down to the thing itself.

    Three tiers; keep them apart:
    - abstract concept: a label that files knowledge, like a folder. Nobody can do or live through it. Test: one can say
      "this is a category of ...". The base concepts and everything between them and the events are abstract.
    - general event: the standard name of an activity or interest that can be repeated (Running, Reading, Museum
      Visiting). It gathers instances. Test: one can do it in general.
    - instance event: one unique happening, or something with a proper name (a certain race, a book, a museum). It ends
      its path. Test: it has a name, a theme, or a time and place of its own.
    Where there is an instance of an activity, its general event has to stand above it.

    Several sides of one thing, a path each:
    - a thing with a name gets two paths at least: one that says what it is (Books, then the title), one that says in
      which activity it came up (Reading, then the title);
    - an event that joins an activity and a theme is filed under both: a charity race for mental health under Running
      and under Mental Health Awareness.

    Make paths logical and rich: put concepts that mean something between the base concept and the event (Interests and
    Entertainment, Sports, Running). The user is the matter; where two people talk, both count as the user. Others
    belong in it only as far as they deal with the user, share a plan with them or touch their state (Social
    Relationships, then the person, then what they plan); leave everything else out, and give no path that you decided
    against. Names are concise noun phrases in a standard form, without dates, times or other particulars.
    """

    fragment: str = dspy.InputField(desc="one thing per line: [ids of turns] (date) what is known")
    entity_paths: list[EntityPath] = dspy.OutputField(desc="complete paths; empty if the fragment holds nothing")


class PathSegment(BaseModel):
    """Two neighbours of a path, the lower one an event."""

    segment_id: str
    source: str
    target: str
    path: str
    """The whole path, for context."""


class SegmentLabel(BaseModel):
    """What a segment's edge says."""

    segment_id: Annotated[str, Shown("segments")] = ""
    label: str


class LabelSegments(dspy.Signature):
    """Label the edges of given paths so that a single edge answers detailed questions about what the user did.

    The paths are fixed; go through their segments and write for each the most accurate and telling label of the edge
    from source to target, with the whole fragment in view. An edge is a snapshot of its event, seen from the source:
    - gather what happened, who took part, where, when, and above all why: a reason, cause or motive that the fragment
      gives has to be in the label;
    - take in particulars that stand further down the path too, so that every label can be understood alone.
    Form, for everything that involves the user: user, a verb phrase for what they do, feel or are (participated in,
    created, avoids eating, is, cherishes), then blocks of preposition and detail (with, at, on, in, as, for; due to,
    because of, for reason of): user [verb phrase] ([preposition] [detail]) ...
    Where two people talk, the name of the one it is about takes the place of "user".
    - descriptive, Therapeutic Activities to Pottery: user attended pottery class with friend at community center on
      2023-10-27
    - causal, Food to Steak: user avoids eating due to allergy
    Labels come straight from the text: infer and imagine nothing. Be factual and specific, no vague words; blocks are
    concise (with friend, not with their close friend).
    """

    fragment: str = dspy.InputField(desc="one thing per line: [ids of turns] (date) what is known")
    segments: list[PathSegment] = dspy.InputField()
    edge_labels: list[SegmentLabel] = dspy.OutputField(desc="one per segment")

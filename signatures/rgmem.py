"""Prompts of RGMem: evidence out of dialogue (L0), its graph (L1), its three operators, the plan of a retrieval (L2).

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents", appendix D, every
rule and field in our own words; the paper prints no prompt for the synthesis of evidence (f_synth, section 3.3.1) and
none for the variant w/o RG: those two are ours. Where two people talk (LoCoMo), both count as the user.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, get_args

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import Shown

Layer = Literal["summary", "inference", "conclusions", "history"]
LAYERS: tuple[Layer, ...] = ("summary", "inference", "conclusions", "history")


def _relevance(value: Any) -> Any:
    lower = value.strip().lower() if isinstance(value, str) else value
    return "high" if lower is True or lower == "salient" else "base" if lower is None else lower


class DrawnConclusion(BaseModel):
    """One thing about the user that follows from an episode."""

    text: str = Field(description="one sentence that names whom it is about and can be understood alone")
    relevance: Annotated[Literal["base", "high"], BeforeValidator(_relevance)] = Field(
        default="base", description="high: says something of who the user is, likes, wants or is going through"
    )
    turn_ids: Annotated[list[str], Shown("dialogue")] = Field(
        default=[], description="ids of the turns it follows from, as they stand in brackets"
    )


class SynthesizeEvidence(dspy.Signature):
    """Turn one stretch of dialogue into a unit of memory: what happened, and what it says about the user.

    The fact is objective: who did, said, planned or decided what, where, with whom, when and why, in one dense
    paragraph, without judging. Names, numbers, titles and quantities stay as they were said; what is said relative to
    the day of the dialogue ("yesterday", "next month") is written as the calendar date it means, as YYYY-MM-DD.
    The conclusions are about the user. Where two people talk, both count as the user: name the person in each.
    - base: what the dialogue says outright about them (facts of their life, events, acquaintances, plans);
    - high: signals from which a lasting picture of the person is made (preferences and aversions, changes of mind and
      their reasons, habits, goals, values, limits, feelings that come back).
    One thing per conclusion, none twice. Greetings, courtesies and what an assistant explains about the world are left
    out; what an assistant says counts only where it bears on the user. Nothing is made up.
    """

    dialogue: str = dspy.InputField(desc="turns, one per line: [turn id] (date) speaker: words")
    fact: str = dspy.OutputField(desc="the paragraph; empty if nothing happened that is worth keeping")
    conclusions: list[DrawnConclusion] = dspy.OutputField(desc="in the order of the turns; may be empty")


def _known_layers(value: Any) -> Any:
    value = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(value, list):
        return value
    lower = [str(layer).strip().lower() for layer in value]
    named = [{"conclusion": "conclusions", "summaries": "summary", "inferences": "inference"}.get(n, n) for n in lower]
    return [layer for layer in dict.fromkeys(named) if layer in LAYERS]


class Keyword(BaseModel):
    """One thing to look for."""

    name: str
    retrieve: Annotated[list[Layer], BeforeValidator(_known_layers)] = Field(
        default=[], description="layers of the graph to read for it; empty: it is looked for in texts alone"
    )


class PlanRetrieval(dspy.Signature):
    """Plan how a memory is searched for a question: which keywords, and which layer of it each one goes to.

    The memory has texts (facts and conclusions from conversations) and a graph of abstract concepts, activities and
    events. Take the question apart, and the options too where it comes with some, in three stages.

    1. Gather keywords from all of it:
       - the nouns and verbs that carry meaning; nouns also as synonyms and wider terms (charity race: competition,
         event), verbs also in other forms and as what belongs to them (paint: painted, painting, artwork); names of
         people, places and titles stay as they are and are not widened;
       - for the search in texts: times, places and other particulars. A full date is taken apart into the wording of
         the question, YYYY-MM-DD, YYYY-MM and YYYY, a keyword each. Words for the tense of the question: history,
         record for the past; plan, schedule for what is to come. Words that only ask for a time (when, time, date) are
         worth nothing: leave them out;
       - concepts under which an architect of the graph would have filed the matter (paint, sunrise: Art Creation,
         Interests and Entertainment; visit, museum: Cultural Activities, Leisure Plan, Travel and Commute).
    2. See what the question is after, and choose the few strongest keywords for the graph: those, nouns and concepts
       first, that may themselves be the name of a concept or an event in it.
       - an overview, the whole of something: summary
       - why, how things hang together: inference
       - what, is it so: conclusions
       - what happened, the particulars of an event: history
    3. Give each of these chosen keywords its layers, several where the question is manifold. All other keywords get
       none: they are looked for in the texts.
    """

    question: str = dspy.InputField(desc="what is asked, with its options if it has some")
    keywords: list[Keyword] = dspy.OutputField(desc="all keywords, the strongest first")


class RewriteConceptSummary(dspy.Signature):
    """Rewrite the summary of what is known about the user under one concept, so that it takes in the new evidence.

    Everything that is known goes into one text: what was there before and what is new. Where two people talk, both
    count as the user: name the person in every sentence.
    """

    concept: str = dspy.InputField()
    summary_before: str = dspy.InputField(desc="the summary so far; may be empty")
    new_evidence: list[str] = dspy.InputField(desc="what has come in since, one thing per line")
    concept_summary: str = dspy.OutputField()


class AnswerFromScales(dspy.Signature):
    """Answer the question from what a memory of several scales recalls, told in blocks.

    - Evidence, with dates: what happened. It decides about particulars: who, what, where, when.
    - Conclusions: what a single episode shows of somebody.
    - Summaries by concept: what holds over many episodes, and how it came to change. They answer questions about the
      whole.
    - Inferred traits and restrictions: what is likely, and what is to be avoided. They help to judge what somebody
      would like or do, and prove no event.

    Where blocks disagree, dated evidence is right, the latest first. Use the exact words of the context where they
    answer the question; where no line says it outright, infer the answer from what the lines do say. A relative time
    in a line ("yesterday", "last week") counts from the date of that line: work it out, and answer with the day, the
    month or the year. Mind of whom a line speaks.
    """

    context: str = dspy.InputField(desc="recalled lines under the headings of their blocks; may be empty")
    question: str = dspy.InputField()
    answer: str = dspy.OutputField(desc="the answer alone, without a full sentence around it")


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
    conclusions: Annotated[list[str], Shown("fragment")] = Field(
        default=[], description="ids (c1, c2, ...) of the fragment's conclusions that are about this edge; may be none"
    )


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
    With each label go the conclusions of the fragment that are evidence of how its two entities hang together, and no
    others: what is told of running is none of an edge to a job.
    """

    fragment: str = dspy.InputField(
        desc="one thing per line: (date) what happened, then [conclusion, ids of turns] (date) what is known"
    )
    segments: list[PathSegment] = dspy.InputField()
    edge_labels: list[SegmentLabel] = dspy.OutputField(desc="one per segment")


class InferRelation(dspy.Signature):
    """Bring one slice of a user's profile up to date: what the relation of two entities says about the user.

    Other systems will use the slice as it stands, to recommend and to converse: dense and actionable.
    - If there is no inference before, lay the foundation: the facts about the user that the evidence establishes.
    - If there is one, work the new evidence in, and say how it changes, confirms or develops what was understood
      before ("this changes the earlier understanding ...", "this further confirms ..."). That is a must.
    Every piece of evidence begins with its form. A conclusion is a plain sentence. A raw event is the label of an edge:
    either an objective verb phrase (takes place at), or a verb with the user's stance towards it (categorizes event,
    anticipated by user).
    Where two people talk, both count as the user: name the person in every sentence, and mix up nothing of the two.

    The fact summary is a single concise paragraph of the present state and how it came to change, with everything that
    matters in the new evidence. The inferred traits are what lies beneath: traits, interests or preferences, shared or
    latent, also likely future ones; think of what could be recommended on them. State the trait alone, not why.
    """

    source_entity: str = dspy.InputField()
    target_entity: str = dspy.InputField()
    inference_before: str = dspy.InputField(desc="the slice so far: facts, then inferred traits; empty the first time")
    new_evidence: list[str] = dspy.InputField(desc="conclusions and raw events, oldest first")
    fact_summary: str = dspy.OutputField(desc="one paragraph")
    inferred_traits: str = dspy.OutputField(desc="one trait or interest per line")


class AbstractConcept(dspy.Signature):
    """Write or renew what is known of a user within one broad domain, the trunk, from evidence about its branches.

    It is read by another system: dense, structured facts, no analysis, no literary language.
    - General facts hold for the trunk as a whole: what comes back across branches - themes, motives, values.
    - Specific facts hold for one branch, cannot be generalised, and would be missed. Group them under themes that you
      make up from what they are about (Regarding Resilience and Adaptability: ...).
    Evidence: inferences and conclusions are true as given; a raw event is something the user did. What comes already
    summarised is raw material like the rest, to be synthesised anew.
    - State facts directly. No phrase of an analyst ("the user's core practice is", "this demonstrates"), none about
      the text itself ("the summary is", "based on the evidence").
    - Synthesise, do not copy: rephrase into dense, complete facts; two that express one idea (one tells an act, one
      calls it resilience) become one stronger fact.
    - Where two people talk, both count as the user: name the person in every fact. A fact of one is no fact of the
      other.
    If there is knowledge from before, build on it: let new evidence make facts more exact ("long-term hobby" becomes
    "hobby of over seven years") or correct them, add what is new, keep what is unique and still holds though the
    evidence does not mention it (a plan, for one), and then rewrite both parts as the present, complete understanding.
    """

    core_entity: str = dspy.InputField(desc="the trunk")
    general_before: str = dspy.InputField(desc="general facts so far; may be empty")
    specific_before: str = dspy.InputField(desc="specific facts so far; may be empty")
    new_evidence: list[str] = dspy.InputField(desc="inferences first, then conclusions and raw events not yet in them")
    general_facts: str = dspy.OutputField(desc="one fact per line")
    specific_facts: str = dspy.OutputField(desc="one theme per line, with a colon and its facts; may be empty")


class SubSummary(BaseModel):
    """One microstate: what is known under a sub-concept."""

    name: str
    common: str
    """Its dominant pattern (Sigma)."""
    particular: str = ""
    """What does not fit into it (Delta)."""


class IntegrateConcept(dspy.Signature):
    """Distil one profile of the user for a parent concept out of the summaries below it: a portrait, not a report.

    It guides other systems in talking to this user, so it is about what drives the user and what limits them.
    1. Microstates. Take every sub-summary as one. A sub-summary may itself come from a lower level and hold a
       macro-law, synergies or tensions: ignore and strip that structure, keep the facts and observations in it, and
       treat them as peers of the others. Nothing is said twice.
    2. Relations. Synergy: what the microstates reinforce together - traits, values, motives. Tension: conflicts,
       contradictions, competition for time, money or strength that the user has to live with.
       If there is only one microstate, look inside it: what sustains it, and what it demands - the particular,
       countable cost (time, money, effort, what is given up) of keeping up the good in it. No general outside conflict
       ("with time and energy") unless the input spells it out.
    3. Synthesis. The macro-law joins all into one statement; if the sub-summaries cover only a narrow part of the
       concept, it has to say so. Synergy becomes core traits: direct, affirmative statements of traits and motives.
       Tension becomes restrictions: practical principles for other systems, what to avoid and what balance to keep.
    Where two people talk, both count as the user: say in every statement of whom it holds, by name.
    Concise and actionable, much signal and no filler: no literary sentences, no abstractions, no repeated explanation.
    """

    core_entity: str = dspy.InputField(desc="the parent concept")
    sub_summaries: list[SubSummary] = dspy.InputField()
    macro_law: str = dspy.OutputField(desc="one statement")
    core_traits: str = dspy.OutputField(desc="one per line")
    restrictions: str = dspy.OutputField(desc="one per line")

"""Prompts of RGMem outside its graph: evidence out of dialogue (L0), the plan of a retrieval (L2), the flat ablation.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents", appendix D. Every
rule and field of "The Prompt Of Multi-Scale Observations" is carried over in our own words; the paper prints no prompt
for the synthesis of evidence (f_synth, section 3.3.1) and none for the variant w/o RG: those two are ours.

Limits: the paper's user is one person who talks to an assistant. LoCoMo has two people, so both count as the user, and
everything that is noted names whom it is about.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

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

    Everything that is known goes into one text: what was there before and what is new.
    """

    concept: str = dspy.InputField()
    summary_before: str = dspy.InputField(desc="the summary so far; may be empty")
    new_evidence: list[str] = dspy.InputField(desc="what has come in since, one thing per line")
    concept_summary: str = dspy.OutputField()

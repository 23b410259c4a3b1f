"""Prompts of RGMem's three operators: infer a relation (R_K1), abstract a concept (R_K2), flow upward (R_K3).

Source: RGMem, appendix D, every rule in our own words. Parts that the paper lays out as text under headers are an
output each here, a line per item: fact summary and inferred traits (K1), general and specific facts (K2),
macro-law, core traits and restrictions (K3).
"""

from __future__ import annotations

import dspy
from pydantic import BaseModel


class InferRelation(dspy.Signature):
    """Bring one slice of a user's profile up to date: what the relation of two entities says about the user.

    Other systems will use the slice as it stands, to recommend and to converse: dense and actionable.
    - If there is no inference before, lay the foundation: the facts about the user that the evidence establishes.
    - If there is one, work the new evidence in, and say how it changes, confirms or develops what was understood
      before ("this changes the earlier understanding ...", "this further confirms ..."). That is a must.
    Every piece of evidence begins with its form. A conclusion is a plain sentence. A raw event is the label of an edge:
    either an objective verb phrase (takes place at), or a verb with the user's stance towards it (categorizes event,
    anticipated by user).

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
    Concise and actionable, much signal and no filler: no literary sentences, no abstractions, no repeated explanation.
    """

    core_entity: str = dspy.InputField(desc="the parent concept")
    sub_summaries: list[SubSummary] = dspy.InputField()
    macro_law: str = dspy.OutputField(desc="one statement")
    core_traits: str = dspy.OutputField(desc="one per line")
    restrictions: str = dspy.OutputField(desc="one per line")

"""The prompts of RGMem, in the order in which the method asks them.

Source: Tian et al., "RGMem: Renormalization Group-inspired Memory Evolution for Language Agents",
appendix D. Every rule and field is carried over in our own words.

- L0, evidence: `SynthesizeEvidence`, for each stretch of dialogue (f_synth, section 3.3.1).
- L1, the graph: `ExtractEntityPaths` places the evidence, then `LabelSegments` labels its edges.
- The operators, where enough evidence has gathered: `InferRelation` (R_K1) for an edge,
  `AbstractConcept` (R_K2) and `IntegrateConcept` (R_K3) for a concept. `RewriteConceptSummary`
  replaces them in the variant without RG.
- L2, retrieval, for each question: `PlanRetrieval`, then `AnswerFromScales`.

The paper prints no prompt for the synthesis of evidence, for the answer, and for the variant
without RG; those three are ours. So is the input `user` or `users`, which says whose profile is
written: "user", or the name of a person where people talk with one another.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Literal, get_args

import dspy
from pydantic import BaseModel, BeforeValidator, Field

from ..reading.ids import IdFrom

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
"""The abstract concepts directly below the user."""

Layer = Literal["summary", "inference", "conclusions", "history"]
"""A layer of the graph, which a keyword can be looked for in."""

LAYERS: tuple[Layer, ...] = ("summary", "inference", "conclusions", "history")

_LAYER_SYNONYMS = {
    "conclusion": "conclusions",
    "summaries": "summary",
    "inferences": "inference",
}


def _parse_relevance(value: object) -> object:
    """Return a relevance; null is read as "base", and "salient" or true as "high"."""
    if value is None:
        return "base"
    if value is True:
        return "high"
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    return "high" if word == "salient" else word


def _parse_base(value: object) -> object:
    """Return the base concept whose name is nearest, or the value itself for pydantic to refuse."""
    if not isinstance(value, str):
        return value

    bases_by_name = {base.lower(): base for base in get_args(Base)}
    name = " ".join(value.replace("&", "and").lower().split())
    if name in bases_by_name:
        return bases_by_name[name]
    matches = difflib.get_close_matches(name, bases_by_name, n=1, cutoff=0.6)
    return bases_by_name[matches[0]] if matches else value


def _parse_layers(value: object) -> object:
    """Return the layers that a model named, each once; other names are left out."""
    if value is None:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        return value

    layers: list[str] = []
    for name in names:
        word = str(name).strip().lower()
        layer = _LAYER_SYNONYMS.get(word, word)
        if layer in LAYERS and layer not in layers:
            layers.append(layer)
    return layers


class DrawnConclusion(BaseModel):
    """One thing that the dialogue shows about a user."""

    text: str = Field(
        description="one sentence that names the user and can be understood on its own"
    )
    relevance: Annotated[Literal["base", "high"], BeforeValidator(_parse_relevance)] = Field(
        default="base", description="high if it says something lasting about the user, else base"
    )
    speaker: str = Field(default="", description="the user it is about, by name")
    turn_ids: Annotated[list[str], IdFrom("dialogue")] = Field(
        default=[], description="ids of the turns that show it, as given in brackets"
    )


class EntityPath(BaseModel):
    """One path from the user down to something concrete."""

    base: Annotated[Base, BeforeValidator(_parse_base)] = Field(
        description="the base concept directly below the user"
    )
    concepts: list[str] = Field(
        default=[], description="further abstract concepts, from broad to narrow; may be empty"
    )
    events: list[str] = Field(
        description="for an instance of an activity: the general event, then the instance; for any "
        "other named thing whose concepts already say what it is: the instance alone"
    )


class PathSegment(BaseModel):
    """One edge to label: two neighbours on a path. The lower one is an event."""

    segment_id: str = Field(description="its id, e.g. s1")
    source: str = Field(description="the upper node")
    target: str = Field(description="the lower node, an event")
    path: str = Field(description="the whole path, for context")


class SegmentLabel(BaseModel):
    """The label of one segment."""

    segment_id: Annotated[str, IdFrom("segments")] = Field(
        default="", description="id of the segment, e.g. s1"
    )
    label: str = Field(
        description="the label of the edge; empty if the fragment says nothing about it"
    )
    conclusions: Annotated[list[str], IdFrom("fragment")] = Field(
        default=[],
        description="ids (c1, c2, ...) of the conclusions that are evidence for this edge; may be "
        "empty",
    )


class SubSummary(BaseModel):
    """What is known under one sub-concept."""

    name: str = Field(description="the sub-concept")
    common: str = Field(description="its dominant pattern")
    """Sigma in the paper."""
    particular: str = Field(
        default="", description="what does not fit into the pattern; may be empty"
    )
    """Delta in the paper."""


class Keyword(BaseModel):
    """One thing to look for."""

    name: str = Field(description="the keyword: a word, a short phrase or a date")
    retrieve: Annotated[list[Layer], BeforeValidator(_parse_layers)] = Field(
        default=[], description="layers of the graph to read for it; empty to search the text only"
    )


USER_DESCRIPTION = (
    'the person the profile is about: a name, or the word "user"; always refer to '
    "the person this way"
)


class SynthesizeEvidence(dspy.Signature):
    """Turn a stretch of dialogue into one memory: a fact that says what happened, and conclusions about the users.

    You are given the names of the users and the dialogue. Write two things.

    Fact. Write one dense paragraph that reports what happened: who did, said, planned or decided what, where, with
    whom, when and why. Report it objectively and do not judge. Keep names, numbers, titles and quantities as they were
    said. Replace a relative time such as "yesterday" or "next month" with the date it means: YYYY-MM-DD, or YYYY-MM or
    YYYY if no day is known. Count from the date of the turn.

    Conclusions. List what the dialogue tells about each user. Name the user in every conclusion. Give each one a
    relevance:
    - high: something lasting about the user, even if stated outright, such as a preference or dislike, a change of mind
      and its reason, a habit, a goal, a value, a limit, or a recurring feeling;
    - base: any other fact that the dialogue states, such as an event, an acquaintance or a plan.

    Each conclusion states one thing. Do not repeat a conclusion. Leave out greetings and courtesies. If one speaker is
    an assistant, leave out its explanations of general matters and use its words only where they concern a user. Do not
    make anything up.
    """

    users: str = dspy.InputField(desc="the speakers to draw conclusions about")
    dialogue: str = dspy.InputField(desc="one turn per line: [turn id] (date) speaker: words")
    fact: str = dspy.OutputField(desc="one paragraph; empty if nothing worth remembering happened")
    conclusions: list[DrawnConclusion] = dspy.OutputField(
        desc="in the order of the turns; empty if there are none"
    )


class ExtractEntityPaths(dspy.Signature):
    """Place a fragment of memory in a knowledge graph about a user, as a list of paths.

    You are given the user and the fragment. Find every specific thing in the fragment: events, places, books,
    organisations, plans, states and so on. For each one, write every path that leads to it from the user: a base
    concept, further concepts, then events.

    There are three kinds of nodes:
    - An abstract concept is a label that classifies knowledge, like a folder. Nobody can do or experience it. Test: it
      completes the sentence "this is a category of ...". Base concepts are abstract concepts.
    - A general event is the standard name of an activity or interest that can be repeated (Running, Reading, Museum
      Visiting). It collects instances. Test: it makes sense to say that the user does it regularly.
    - An instance is one particular event, or a named thing (a certain race, a book, a museum). It is the end of a path.
      Test: it has a name, a theme, or a time and place of its own.

    For an instance of an activity, the general event must come directly before it in the path. For any other named
    thing whose concepts already say what it is, give the instance alone.

    Many things belong on several paths:
    - Give a thing with a name at least two paths: one that says what it is (Books, then the title), and one that says
      in which activity it came up (Reading, then the title).
    - If an event combines an activity with a theme, write one path for each (a swim for clean oceans: one path through
      Swimming, one through Environmental Protection).

    Rules for paths:
    - Each path must be logical and reasonably deep. Put useful concepts between the base concept and the event
      (Interests and Entertainment, Sports, Running).
    - The graph is about the user. Include another person only if they deal with the user directly, share a plan with
      the user, or affect the user's situation (base: Social Relationships; concepts: the person; events: their plan).
      Ignore everything else, and do not output a path for it.
    - Node names are short noun phrases in a standard form. Names contain no dates or times. Name an instance by its
      proper name or theme.
    """

    user: str = dspy.InputField(desc=USER_DESCRIPTION)
    fragment: str = dspy.InputField(
        desc='first line: "(date) what happened"; each further line: "[turn ids] (date) conclusion"'
    )
    entity_paths: list[EntityPath] = dspy.OutputField(
        desc="complete paths; empty if there is nothing to place"
    )


class LabelSegments(dspy.Signature):
    """Label the edges of a knowledge graph about a user, so that one edge alone can answer detailed questions.

    You are given the user, a fragment of memory, and segments: edges from a source to a target. Do not add, drop or
    change segments. Write the most accurate and informative label for each one. Read the whole fragment for this.

    A label summarises the event, worded as a statement that leads from the source to the target:
    - Collect all details that matter: what happened, who took part, where, when, and above all why. If the fragment
      gives a reason, cause or motive, put it into the label.
    - Include details that appear further down the path, so that each label can be understood on its own.

    If the user takes part in the event, the label has this form, with as many details as there are:
        NAME [verb phrase] ([preposition] [detail]) ([preposition] [detail])
    NAME is the name of the user. The verb phrase says what the user does, feels or is (participated in, created, avoids
    eating, is, cherishes). Use simple prepositions such as with, at, from, on, in, as and for; for a reason, use due to
    or because of. Do not write the brackets. Two examples, for a user who is called "user":
    - Crafts to Knitting: user learned knitting from grandmother at her house on 2023-11-04
    - Music to Concert: user missed concert because of a cold

    If the user does not take part in the event, write an objective verb phrase that leads from the source to the
    target, with the same kinds of details (takes place at the town hall on 2023-11-04).

    Take every label from the fragment; do not infer or imagine anything. If the fragment says nothing about an edge,
    leave its label empty. Be factual and specific, and avoid vague words. Keep details short (with sister, not: with
    her beloved sister).

    For each label, also list the conclusions of the fragment that are evidence for this edge, and no others. For
    example, a conclusion about running is not evidence for an edge that leads to a job.
    """

    user: str = dspy.InputField(desc=USER_DESCRIPTION)
    fragment: str = dspy.InputField(
        desc='first line: "(date) what happened"; each further line: "[conclusion id, turn ids] '
        '(date) conclusion"'
    )
    segments: list[PathSegment] = dspy.InputField(
        desc="the edges to label, each with its whole path"
    )
    edge_labels: list[SegmentLabel] = dspy.OutputField(desc="one entry per segment")


class InferRelation(dspy.Signature):
    """Update one part of a user's profile: what the relation between two entities says about the user.

    You are given the user, the two entities, what was inferred from the relation before, and new evidence. Other
    systems use your text directly, for recommendations and conversations. Make it dense and practical.
    - If there is no earlier inference, state the basic facts about the user that the evidence shows.
    - If there is one, combine it with the new evidence. The fact summary must say how the new evidence changes,
      confirms or extends the earlier understanding ("this is new: ...", "this confirms that ...", "until now ..., from
      now on ...").

    Each line of evidence starts with its type. A conclusion is a plain sentence. A raw event says what happened between
    two entities: it names both, then tells what the user did or felt, or states an objective fact (takes place at ...).
    Keep to this user; a fact about another person is not a fact about the user.

    Write two things:
    - Fact summary: one short paragraph about the present state and how it has changed. Include everything relevant in
      the new evidence.
    - Inferred traits: underlying traits, interests and preferences, including unstated ones, ones common to both
      entities, and ones likely to develop. Favour traits that help to choose recommendations. State each trait only,
      without your reasoning.
    """

    user: str = dspy.InputField(desc=USER_DESCRIPTION)
    source_entity: str = dspy.InputField(desc="the broader entity: a concept or an activity")
    target_entity: str = dspy.InputField(
        desc="the narrower entity: an activity, an event or a named thing"
    )
    inference_before: str = dspy.InputField(
        desc="the earlier fact summary and inferred traits; empty the first time"
    )
    new_evidence: list[str] = dspy.InputField(desc="conclusions and raw events, oldest first")
    fact_summary: str = dspy.OutputField(desc="one paragraph")
    inferred_traits: str = dspy.OutputField(desc="one trait or interest per line")


class AbstractConcept(dspy.Signature):
    """Update what is known about a user in one broad domain, from evidence about its parts.

    You are given the user, the domain, the facts so far, and new evidence. Think of the domain as a trunk, and of its
    parts as branches. Focus on the trunk. Mention a single branch only under specific facts. Another system reads the
    result, so write dense, structured facts in plain language, without analysis.

    Write two lists:
    - General facts are true of the whole trunk. They come from themes, motives and values that recur in several
      branches.
    - Specific facts are true of one branch only and cannot be generalised, but the profile would be incomplete without
      them. Group them under themes that you name yourself. Begin each line with the theme and a colon, for example
      "Resilience and Adaptability: ...".

    How to read the evidence: take inferences and conclusions as true. A raw event says what happened between two
    entities. If the evidence contains a finished summary, do not copy it: accept its facts and combine them afresh.

    How to write:
    - State facts directly. Do not write like an analyst ("this shows that the user ..."), and do not write about the
      text ("in summary", "the evidence says").
    - Synthesise instead of copying: rephrase and combine into dense, complete facts. If two facts express the same idea
      (one reports an action, one calls it resilience), merge them into one stronger fact.
    - Keep to this user. A fact about another person is not a fact about the user.

    If there are facts so far, build on them. Use the new evidence to make them more exact ("plays chess" becomes "has
    played chess for ten years") or to correct them. Add what is new. Keep facts that are unique and still relevant even
    if the new evidence does not mention them, such as a plan. Then rewrite both lists so that they show the complete
    present state.
    """

    user: str = dspy.InputField(desc=USER_DESCRIPTION)
    core_entity: str = dspy.InputField(desc="the broad domain to describe")
    general_before: str = dspy.InputField(desc="general facts so far; may be empty")
    specific_before: str = dspy.InputField(desc="specific facts so far; may be empty")
    new_evidence: list[str] = dspy.InputField(
        desc="inferences first, then conclusions and raw events that the inferences do not cover"
    )
    general_facts: str = dspy.OutputField(desc="one fact per line")
    specific_facts: str = dspy.OutputField(
        desc="one theme per line: theme, colon, its facts; may be empty"
    )


class IntegrateConcept(dspy.Signature):
    """Write a high-level profile of a user for a parent concept, from the summaries of its sub-concepts.

    You are given the user, the parent concept and the sub-summaries. The profile guides other systems in talking to
    this user. Describe what drives the user and what limits the user. Describe the user; do not discuss the input. The
    profile has three parts: a macro-law, which is one statement that unites everything, core traits, and restrictions.
    Work in three steps.

    1. Collect the facts. Treat every sub-summary as one separate observation. If a sub-summary comes from a lower level
       and already contains a macro-law, traits or restrictions, ignore that structure: take only its facts, and treat
       them like those of the other sub-summaries. Do not repeat anything.
    2. Analyse the relations.
       - Synergy: patterns that several observations support together, such as traits, values and motives.
       - Tension: conflicts, contradictions, or competition for resources that the user has to manage.
       - If there is only one observation, look inside it. Take its strengths as the synergy. Take as the tension what
         it costs to maintain them (time, money, effort, missed opportunities), only as precisely as the input states.
         Do not name a vague outside conflict ("too little time") unless the input states it.
    3. Synthesise.
       - Macro-law: if the sub-summaries cover only a narrow part of the concept, the statement must say so.
       - Core traits: turn the synergy into direct, affirmative statements about traits and motives.
       - Restrictions: turn the tension into practical rules for other systems: what to avoid, and what balance to keep.
         If there is no tension, leave the restrictions empty.

    Be concise and practical. Do not use literary sentences, abstract filler or repeated explanations.
    """

    user: str = dspy.InputField(desc=USER_DESCRIPTION)
    core_entity: str = dspy.InputField(desc="the parent concept")
    sub_summaries: list[SubSummary] = dspy.InputField(
        desc="per sub-concept: its common pattern, and particulars that do not fit the pattern"
    )
    macro_law: str = dspy.OutputField(desc="one statement")
    core_traits: str = dspy.OutputField(desc="one per line")
    restrictions: str = dspy.OutputField(desc="one per line; may be empty")


class RewriteConceptSummary(dspy.Signature):
    """Update the summary of what is known about a user under one concept.

    You are given the user, the concept, the summary so far and new evidence. Write one coherent text that contains
    everything that is known: what the summary says and what the new evidence adds.
    """

    user: str = dspy.InputField(desc=USER_DESCRIPTION)
    concept: str = dspy.InputField(desc="the area of the user's life that the summary is about")
    summary_before: str = dspy.InputField(desc="the summary so far; empty the first time")
    new_evidence: list[str] = dspy.InputField(desc="what has become known since that summary")
    concept_summary: str = dspy.OutputField(desc="the updated summary")


class PlanRetrieval(dspy.Signature):
    """Plan how to search a memory for the answer to a question: list keywords, and say where to look for each one.

    The memory has two parts. One part is text: facts and conclusions from conversations. The other part is a graph
    whose nodes are abstract concepts, activities and events. The graph has four layers: summary, inference, conclusions
    and history. (The layer called conclusions finds conclusions through the nodes they belong to, not through their
    words.) Use the question and, if there are any, its options. Work in three stages.

    1. Collect keywords from the question and from every option.
       - Take the meaningful nouns and verbs. Add synonyms and broader terms for a noun (wedding: ceremony,
         celebration). Add other forms and related words for a verb (cook: cooked, cooking, recipe). Do not expand names
         of people or places, or titles of works.
       - Add times, places and other details that may occur in the text. For a full date, add four keywords: the date
         as the question writes it, YYYY-MM-DD, YYYY-MM and YYYY. Add words that match the tense of the question:
         "history" and "record" for the past, "plan" and "schedule" for the future. Do not add words that only ask for a
         time, such as "when", "time" or "date".
       - Add abstract concepts under which the subject of the question may be filed in the graph (for "cook" and "soup":
         Cooking, Dining; for "visit" and "castle": Sightseeing, Leisure Plans, Travel and Commute).
    2. Decide which layers the question needs, one or several:
       - an overview or a summary: summary
       - a reason, or how things are related: inference
       - a plain fact, or whether something is true: conclusions
       - what happened, or the details of an event: history
    3. Choose the few keywords most likely to be the name of a node, preferably nouns and concepts. Give each chosen
       keyword these layers. Leave the layers of all other keywords empty: they are searched for in the text only.
    """

    question: str = dspy.InputField(desc="the question, followed by its options if it has any")
    keywords: list[Keyword] = dspy.OutputField(desc="all keywords, most useful first")


class AnswerFromScales(dspy.Signature):
    """Answer a question using what has been recalled from memory.

    The context has up to four blocks:
    - Evidence, with dates: what happened. Trust it for details: who, what, where and when.
    - Conclusions: what individual conversations show about a person.
    - Summaries by concept: what holds over many conversations, and how it has changed. Use them for questions about the
      whole picture.
    - Inferred traits and restrictions: what is probably true, and what to avoid. Use them to judge what a person would
      like or do. They do not prove that an event happened.

    If blocks contradict each other, trust dated evidence over the rest, and later evidence over earlier. Check which
    person each line is about. Use the exact words of the context where they answer the question. If no line states the
    answer, infer it from the lines. If a line contains a relative time such as "yesterday" or "last week", work out the
    absolute date from the date of that line and answer with it, as precisely as the line allows.
    """

    context: str = dspy.InputField(
        desc="recalled lines, grouped in blocks with headings; may be empty"
    )
    question: str = dspy.InputField(
        desc="the question, with the date on which it is asked if that is known"
    )
    answer: str = dspy.OutputField(desc="only the answer, not a full sentence")

"""Prompts of PGR (prospection-guided retrieval): keep facts about a user, imagine what comes next, sum it up.

Source: the paper's appendix, all prompts but the two it does not print (query augmentation, prospection summary: ours).
Every rule is carried over in our own words; `docs/coverage.md` maps rule by rule. The example pairs that its prompts
leave blank are initial demos of our own (`pgr_examples.py`). The answer prompt is `answering.RespondPersonally`.

Limits: frequencies, provenance and new ids are code's business (`programs/pgr/memory.py`); no prompt asks for them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, Field

from ..reading.ids import Shown

Kind = Literal["Identity", "Preference", "Goal", "Interest", "Activity", "Event"]


class KnownFact(BaseModel):
    """A stored fact as prompts show it."""

    fact_id: str
    info: str
    type: Kind
    frequency: int = 1
    related_entities: list[str] = []
    date: str | None = None


class FactChange(BaseModel):
    """One fact that a dialogue adds or changes."""

    fact_id: Annotated[str, Shown("existing_facts", new=True)] = Field(
        default="", description="the id of the existing fact that changes; NEW_1, NEW_2, ... for new ones"
    )
    info: str = Field(description="the fact, short and understandable alone")
    type: Kind
    related_entities: list[str] = Field(default=[], description="keywords: entities, topics, themes")
    state: Literal["add", "update"] = "add"
    turn_ids: Annotated[list[str], Shown("dialogue")] = Field(
        default=[], description="ids of the turns that say it, as they stand in brackets"
    )


class UpdateFacts(dspy.Signature):
    """Bring a list of short, atomic facts about the user up to date with new conversations.

    Where two people talk, both count as the user: name the person in every fact.
    Worth keeping is whatever helps to personalise later answers:
    - personal details: name, age, home, relationships, important dates, health and wellness;
    - preferences and way of life: likes, dislikes, habits in food, activities, travel, entertainment, services;
    - plans, goals, upcoming events, career and profession;
    - favourite books, films, brands and whatever else gives context;
    - situations and experiences the user has been through or is in.

    Types: Identity (who the user is: name, age, home, profession, education, achievements, relationships); Preference
    (likes, dislikes, habits); Goal (stated intentions, plans, what is coming up); Interest (topics, hobbies, subjects);
    Activity (what the user does or did: commuting, visits, messages, finished tasks); Event (situations, changes,
    milestones, good or bad - emotional, social, financial, material, health - that shape later choices).

    - If the dialogue repeats, overlaps, extends or contradicts an existing fact: state "update", its fact_id, and an
      info that says how it stands now, with the change if it evolved.
    - Anything else that is new: state "add", a fact_id that begins with NEW_.
    - Leave out existing facts that do not change. If nothing is new or changed, the list is empty.
    - As few, well-made facts as hold the most; each independent, none redundant, nothing beyond the dialogue.
    """

    existing_facts: list[KnownFact] = dspy.InputField(
        desc="facts from this user's earlier conversations that these may concern"
    )
    dialogue: str = dspy.InputField(desc="new conversations, one turn per line: [turn id] (date) speaker: words")
    facts: list[FactChange] = dspy.OutputField(desc="new and changed facts only")


class MergedFact(BaseModel):
    """What several facts say together."""

    info: str = Field(description="one coherent sentence that holds every detail of the facts")
    type: Kind
    related_entities: list[str] = Field(default=[], description="the important ones only")


class MergeFacts(dspy.Signature):
    """Merge facts about a user that say nearly the same into one, without losing anything that matters.

    The new info is a single coherent sentence that captures what all of them say. Its type is the most fitting one
    among theirs. The related entities are a compact set, taken from the info.
    """

    similar_facts: list[KnownFact] = dspy.InputField(desc="facts found alike in content and close in date")
    merged_fact: MergedFact = dspy.OutputField()


class Step(BaseModel):
    """One imagined step of a chain."""

    action: str = Field(default="", description="what the person does, notices or asks at this point; concrete")
    constraints: str = Field(
        default="", description="what bears on it: preferences, limits, timing, people, costs, ..."
    )


class TreeNode(Step):
    """One imagined step of a tree."""

    action_id: str = Field(default="", description="unique: A1, A2, ...")
    parent: str | None = Field(default=None, description="id of the node it follows from; null for the first")
    children: list[str] = Field(default=[], description="ids of the steps that may come next")


class ImagineChain(dspy.Signature):
    """Put yourself into a person's near future: the steps that lead from the query to what they want.

    - Break the query into what a human would do, notice or live through, in the order of time.
    - Mind what may develop, needs that come up later, and aims that are not said.
    - A step is a concrete act of the moment, or a question of the situation ("how ...", "whether ...", "what ...").
      It never begins with a word about thinking, such as imagine, anticipate, think, plan, decide, evaluate, review,
      verify.
    - Every step is about a dimension of its own: timing, logistics, people, senses, preparation, doing, means, money.
    - Steps share neither meaning nor words: each will search a memory, and should point at one kind of fact there.
    """

    date: str = dspy.InputField(desc="when the query is asked")
    question: str = dspy.InputField(desc="the user's query")
    known_facts: str = dspy.InputField(desc="facts close to the query, which say what it means; may be empty")
    steps: list[Step] = dspy.OutputField(desc="in the order of time")


class RefineChain(dspy.Signature):
    """Rewrite imagined steps so that they are those of this very person, given what is known of them.

    - Use their preferences, constraints, habits and events to revise, sharpen or reorder the steps.
    - A date in parentheses says when a fact was noted or changed: work out whether it still matters for the query.
    - Mind what may develop, needs that come up later, and aims that are not said.
    - A step is a concrete act of the moment, or a question of the situation ("how ...", "whether ...", "what ...").
      It never begins with a word about thinking, such as imagine, anticipate, think, plan, decide, evaluate, review,
      verify.
    - Every step is about a dimension of its own: timing, logistics, people, senses, preparation, doing, means, money.
    - Steps share neither meaning nor words: each will search a memory. Make action and constraints particular enough
      to find something there; the constraints are the user's own.
    """

    date: str = dspy.InputField(desc="when the query is asked")
    initial_steps: list[Step] = dspy.InputField()
    personal_context: str = dspy.InputField(desc="facts about the user, one per line: (date) [type] fact")
    question: str = dspy.InputField(desc="the user's query")
    updated_steps: list[Step] = dspy.OutputField(desc="in the order of time")


class ImagineTree(dspy.Signature):
    """Put yourself into a person's possible futures: a tree of what may follow from the query.

    People weigh several ways in which things may go. Lay them out with their sub-goals and what one would need to know,
    so that a memory can be searched with them.
    - A node is a concrete act or observation of the moment. It never begins with a word about thinking, such as
      imagine, anticipate, think, plan, decide, evaluate, review, verify.
    - Branch where options, conditions or paths part.
    - Every node is about a dimension of its own: logistics, time, body, senses, people, money, ...
    - Nodes share neither meaning nor words: each should point at one kind of fact.
    - One root, whose parent is null; parent and children name ids of this tree.
    """

    date: str = dspy.InputField(desc="when the query is asked")
    question: str = dspy.InputField(desc="the user's query")
    known_facts: str = dspy.InputField(desc="facts close to the query, which say what it means; may be empty")
    tree: list[TreeNode] = dspy.OutputField(desc="all nodes, the root first")


class RefineTree(dspy.Signature):
    """Rewrite a tree of imagined futures so that it is this very person's, given what is known of them.

    - Revise, sharpen, prune or add nodes; reconnect branches as this person would likely decide and live.
    - A date in parentheses says when a fact was noted or changed: work out whether it still matters for the query.
    - A node stays a concrete act or observation. It never begins with a word about thinking, such as imagine,
      anticipate, think, plan, decide, evaluate, review, verify.
    - Every node is about a dimension of its own (logistics, time, people, senses, money, ...), adjusted to the user
      where it bears on them; nodes are coherent and distinct, and none repeats another.
    - Ids may stay or be new. One root, whose parent is null; parent and children name ids of this tree.
    """

    date: str = dspy.InputField(desc="when the query is asked")
    initial_tree: list[TreeNode] = dspy.InputField()
    personal_context: str = dspy.InputField(desc="facts about the user, one per line: (date) [type] fact")
    question: str = dspy.InputField(desc="the user's query")
    updated_tree: list[TreeNode] = dspy.OutputField(desc="all nodes, the root first")


class AugmentQuery(dspy.Signature):
    """Say the user's query again so that nothing in it stays unclear, with the help of facts about them.

    Resolve what it leaves open (which one, whose, when, where) only as far as the facts do. Keep what is asked and
    every name, number and date; add no wish, no answer and nothing that neither query nor facts say.
    """

    known_facts: str = dspy.InputField(desc="facts close to the query, one per line: (date) [type] fact")
    question: str = dspy.InputField(desc="the user's query")
    augmented_query: str = dspy.OutputField(desc="the query alone, in the user's voice")


class SummarizeProspection(dspy.Signature):
    """Sum up how a person's imagined next steps changed as facts about them were found.

    In a single paragraph: what they would attend to first, how the facts narrow that, and which particular limits,
    commitments and wishes the matter comes down to in the end. Rest every claim about the user on the facts.
    """

    date: str = dspy.InputField(desc="when the query is asked")
    imagined: str = dspy.InputField(desc="the steps of every round, from the first guess to the most personal one")
    personal_context: str = dspy.InputField(desc="facts about the user, one per line: (date) [type] fact")
    question: str = dspy.InputField(desc="the user's query")
    prospection_summary: str = dspy.OutputField()

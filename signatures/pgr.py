"""The prompts of PGR (prospection-guided retrieval), in the order in which the method asks them.

Source: the appendix of the paper, every rule in our own words. The paper prints no prompts for the
augmentation of queries and the summary of a prospection; those two are ours.

- Every few sessions, `UpdateFacts` adds and changes facts. Every so many new facts, `MergeFacts`
  merges those that are alike.
- For each question: `AugmentQuery`, if the query is to be rewritten. Then `ImagineChain` or
  `ImagineTree` once, `RefineChain` or `RefineTree` in each round, and `SummarizeProspection` at the
  end.
- The answer is asked for with `answering.RespondPersonally`.

Worked examples: `pgr_examples.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, Field

from ..reading.ids import IdFrom

Kind = Literal["Identity", "Preference", "Goal", "Interest", "Activity", "Event"]
"""The types of facts."""


class KnownFact(BaseModel):
    """A stored fact as prompts show it."""

    fact_id: str
    info: str
    type: Kind
    frequency: int = 1
    related_entities: list[str] = []
    date: str | None = None


class FactChange(BaseModel):
    """One fact that the conversations add, repeat or change."""

    fact_id: Annotated[str, IdFrom("existing_facts", allow_new=True)] = Field(
        default="",
        description="the id of the existing fact; NEW_1, NEW_2, ... for new facts",
    )
    info: str = Field(description="the fact, short and understandable on its own")
    type: Kind
    related_entities: list[str] = Field(
        default=[], description="keywords: entities, topics, themes"
    )
    state: Literal["add", "update"] = "add"
    turn_ids: Annotated[list[str], IdFrom("dialogue")] = Field(
        default=[], description="ids of the turns that state it, without the brackets"
    )


class MergedFact(BaseModel):
    """What several facts say together."""

    info: str = Field(description="one coherent sentence with every detail of the facts")
    type: Kind
    related_entities: list[str] = Field(default=[], description="the important ones only")


class Step(BaseModel):
    """One imagined step in a chain."""

    action: str = Field(
        default="",
        description="what the person does, notices or asks at this point, in concrete terms",
    )
    constraints: str = Field(
        default="",
        description="what influences it or must be known for it, such as preferences, limits, "
        "timing, people and costs",
    )


class TreeNode(Step):
    """One imagined step in a tree."""

    action_id: str = Field(default="", description="a unique id: A1, A2, ...")
    parent: str | None = Field(
        default=None, description="id of the node that it follows from; null for the root"
    )
    children: list[str] = Field(default=[], description="ids of the nodes that may come next")


_KNOWN_FACTS = (
    "facts or earlier turns related to the query, one per line, with the date when each was noted "
    "or said"
)
_PERSONAL_CONTEXT = (
    "facts about the user, or earlier turns, one per line, with the date when each was noted or "
    "said"
)


class UpdateFacts(dspy.Signature):
    """Update a list of atomic facts about a user with what new conversations say.

    You are given existing facts that the new conversations may affect, and the new conversations. Return only facts
    that are new, repeated or changed. If two people talk with each other, both count as the user: name the person in
    every fact.

    Keep whatever helps to personalise later answers:
    - personal details: name, age, home, relationships, important dates, health and wellness;
    - preferences and lifestyle: likes, dislikes and habits in food, activities, travel, entertainment and services;
    - plans, goals, upcoming events, career and profession;
    - favourite books, films and brands, and other useful context;
    - situations and experiences that the user has been through or is going through.

    Give each fact one type, the one that fits best:
    - Identity: who the user is, such as name, age, home, profession, education, achievements, relationships.
    - Preference: likes, dislikes and habits.
    - Goal: stated intentions, plans and upcoming events.
    - Interest: topics, hobbies and subjects that the user cares about.
    - Activity: what the user does or did, such as commuting, visits, messages, finished tasks.
    - Event: situations, changes and milestones, good or bad, that shape later choices. They may be emotional, social,
      financial, material or health-related.

    How to change the list:
    - If the new conversations repeat, extend, overlap with or contradict an existing fact, return it with state
      "update" and its own fact_id, even if its info stays the same. Its info says how things stand now and, if
      something has changed, what.
    - For any other new information, return a fact with state "add" and a fact_id that begins with NEW_.
    - Leave out existing facts that the new conversations do not touch. If nothing is left, return an empty list.
    - Write as few atomic facts as cover everything; do not combine unrelated things. Each fact is understandable on its
      own, none repeats another, and none goes beyond what the conversations say.
    - The examples show only the format. Take nothing from them.
    """

    existing_facts: list[KnownFact] = dspy.InputField(
        desc="existing facts that the new conversations may affect"
    )
    dialogue: str = dspy.InputField(
        desc="new conversations, one turn per line: [turn id] (date) speaker: words"
    )
    facts: list[FactChange] = dspy.OutputField(desc="new, repeated and changed facts only")


class MergeFacts(dspy.Signature):
    """Merge similar facts about a user into one fact that keeps every detail.

    Write the new info as one coherent sentence with everything that the facts say. Of the types of these facts, choose
    the one that fits best. As related entities, list only the important ones in the new info.
    """

    similar_facts: list[KnownFact] = dspy.InputField(
        desc="facts that are alike in content and close in date"
    )
    merged_fact: MergedFact = dspy.OutputField(desc="the one fact that takes their place")


class AugmentQuery(dspy.Signature):
    """Rewrite the user's query so that it is as clear as the facts about the user allow.

    Resolve what the query leaves open (which one, whose, when, where). Keep what the query asks for, and every name,
    number and date in it. Do not add wishes or answers. Use only what is in the query or the facts.
    """

    known_facts: str = dspy.InputField(desc=_KNOWN_FACTS)
    question: str = dspy.InputField(desc="the user's query")
    augmented_query: str = dspy.OutputField(desc="the rewritten query alone, in the user's voice")


class ImagineChain(dspy.Signature):
    """Imagine the steps that lead a person from a query to what they want to achieve.

    You are given the query, its date, and facts about the user that are related to it. Put yourself into the person's
    near future. List what they will do, notice or ask, in chronological order. Each step will be used to search a
    memory of facts about the person.
    - Consider how things may develop, needs that come up later, and aims that the query does not mention.
    - Each step is a concrete action or observation at that point, or a question that the situation raises ("how ...",
      "whether ...", "what ..."). Do not begin a step with a verb of thinking, such as imagine, anticipate, think, plan,
      decide, evaluate, review or verify.
    - Put sub-goals and the information that the person needs into `constraints`.
    - Each step is about a different aspect, such as timing, logistics, people, senses, preparation, execution,
      resources or money.
    - No two steps may overlap in meaning or wording. Each should point to one kind of fact about the person.
    """

    date: str = dspy.InputField(desc="when the query is made")
    question: str = dspy.InputField(desc="the user's query")
    known_facts: str = dspy.InputField(desc=f"{_KNOWN_FACTS}; may be empty")
    steps: list[Step] = dspy.OutputField(desc="in chronological order")


class RefineChain(dspy.Signature):
    """Rewrite imagined steps so that they fit one particular user, with the help of facts about this user.

    You are given the user's query, its date, the steps imagined so far, and what is known about the user. The new steps
    will be used to search the user's memory again.
    - Revise, replace, add, remove or reorder the steps according to the user's preferences, constraints, habits and
      events.
    - The date before a fact or turn says when it was noted, last changed or said. Work out whether it still matters on
      the date of the query.
    - Consider how things may develop, needs that come up later, and aims that the query does not mention.
    - Each step is a concrete action or observation at that point, or a question that the situation raises ("how ...",
      "whether ...", "what ..."). Do not begin a step with a verb of thinking, such as imagine, anticipate, think, plan,
      decide, evaluate, review or verify.
    - Each step is about a different aspect, such as timing, logistics, people, senses, preparation, execution,
      resources or money.
    - No two steps may overlap in meaning or wording. Each should point to one kind of fact about the user.
    - Actions and constraints must be specific enough to serve as search queries. Constraints must be this user's own.
    """

    date: str = dspy.InputField(desc="when the query is made")
    question: str = dspy.InputField(desc="the user's query")
    initial_steps: list[Step] = dspy.InputField(desc="the steps imagined so far")
    personal_context: str = dspy.InputField(desc=_PERSONAL_CONTEXT)
    updated_steps: list[Step] = dspy.OutputField(desc="in chronological order")


class ImagineTree(dspy.Signature):
    """Imagine the possible futures of a person who makes a request, as a tree of steps.

    You are given the request (the query), its date, and facts about the user that are related to it. People consider
    several ways in which things may go. Lay these out. Each node will be used to search a memory of facts about the
    person.
    - Each node is a concrete action or observation at that point. Do not begin a node with a verb of thinking, such as
      imagine, anticipate, think, plan, decide, evaluate, review or verify.
    - Put sub-goals and the information that the person needs into `constraints`.
    - Branch where options, conditions or paths diverge.
    - Each node is about a different aspect, such as logistics, time, the body, senses, people or money.
    - No two nodes may overlap in meaning or wording. Each should point to one kind of fact about the person.
    - The tree has one root, whose parent is null. All parents and children are ids of nodes of this tree.
    """

    date: str = dspy.InputField(desc="when the query is made")
    question: str = dspy.InputField(desc="the user's query")
    known_facts: str = dspy.InputField(desc=f"{_KNOWN_FACTS}; may be empty")
    tree: list[TreeNode] = dspy.OutputField(desc="all nodes, the root first")


class RefineTree(dspy.Signature):
    """Rewrite a tree of imagined futures so that it fits one particular user, with the help of facts about this user.

    You are given the user's query, its date, the tree imagined so far, and what is known about the user. The branches
    of the tree are different ways in which things may go. The nodes of the new tree will be used to search the user's
    memory again.
    - Revise, sharpen, remove or add nodes. Reconnect branches according to how this user is likely to decide and act.
    - The date before a fact or turn says when it was noted, last changed or said. Work out whether it still matters on
      the date of the query.
    - Each node must remain a concrete action or observation. Do not begin a node with a verb of thinking, such as
      imagine, anticipate, think, plan, decide, evaluate, review or verify.
    - Each node is about a different aspect, such as logistics, time, people, senses or money, and is adapted to the
      user where the facts allow it. Every node must make sense. No two nodes may overlap in meaning or wording.
    - You may keep ids or assign new ones. The tree has one root, whose parent is null. All parents and children are ids
      of nodes of this tree.
    """

    date: str = dspy.InputField(desc="when the query is made")
    question: str = dspy.InputField(desc="the user's query")
    initial_tree: list[TreeNode] = dspy.InputField(desc="the tree imagined so far")
    personal_context: str = dspy.InputField(desc=_PERSONAL_CONTEXT)
    updated_tree: list[TreeNode] = dspy.OutputField(desc="all nodes, the root first")


class SummarizeProspection(dspy.Signature):
    """Summarise how a user's imagined next steps changed as more facts about the user were found.

    You are given the user's query, its date, the steps that were imagined in each round, and the facts. Write a single
    paragraph. Say what the user would attend to first, how the facts narrow this down, and which specific limits,
    commitments and wishes decide the matter in the end. Base every statement about the user on the facts.
    """

    date: str = dspy.InputField(desc="when the query is made")
    question: str = dspy.InputField(desc="the user's query")
    imagined: str = dspy.InputField(
        desc="the steps of each round, from the first guess to the most personal one"
    )
    personal_context: str = dspy.InputField(desc=_PERSONAL_CONTEXT)
    prospection_summary: str = dspy.OutputField(desc="a single paragraph")

"""Prompts of PGR (prospection-guided retrieval): keep facts about a user, imagine what comes next, sum it up.

Source: the paper's appendix, every rule in our own words. It does not print the prompts of query augmentation and
prospection summary: those are ours. The predictors' initial demos are ours too. The paper has nine facts as the example
of an update, and leaves out its example pairs: three for each chain prompt and for the first tree prompt, one for the
refinement of a tree. The answer: `answering.RespondPersonally`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Literal

import dspy
from pydantic import BaseModel, Field

from ..reading.ids import IdFrom

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


class MergedFact(BaseModel):
    """What several facts say together."""

    info: str = Field(description="one coherent sentence with every detail of the facts")
    type: Kind
    related_entities: list[str] = Field(default=[], description="the important ones only")


class MergeFacts(dspy.Signature):
    """Merge similar facts about a user into one fact that keeps every detail.

    Write the new info as one coherent sentence with everything that the facts say. Of the types of these facts, choose
    the one that fits best. As related entities, list only the important ones in the new info.
    """

    similar_facts: list[KnownFact] = dspy.InputField(
        desc="facts that are alike in content and close in date"
    )
    merged_fact: MergedFact = dspy.OutputField(desc="the one fact that takes their place")


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
    known_facts: str = dspy.InputField(
        desc="facts or earlier turns related to the query, one per line, with the date when each "
        "was noted or said; may be empty"
    )
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
    personal_context: str = dspy.InputField(
        desc="facts about the user, or earlier turns, one per line, with the date when each was "
        "noted or said"
    )
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
    known_facts: str = dspy.InputField(
        desc="facts or earlier turns related to the query, one per line, with the date when each "
        "was noted or said; may be empty"
    )
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
    personal_context: str = dspy.InputField(
        desc="facts about the user, or earlier turns, one per line, with the date when each was "
        "noted or said"
    )
    updated_tree: list[TreeNode] = dspy.OutputField(desc="all nodes, the root first")


class AugmentQuery(dspy.Signature):
    """Rewrite the user's query so that it is as clear as the facts about the user allow.

    Resolve what the query leaves open (which one, whose, when, where). Keep what the query asks for, and every name,
    number and date in it. Do not add wishes or answers. Use only what is in the query or the facts.
    """

    known_facts: str = dspy.InputField(
        desc="facts or earlier turns related to the query, one per line, with the date when each "
        "was noted or said"
    )
    question: str = dspy.InputField(desc="the user's query")
    augmented_query: str = dspy.OutputField(desc="the rewritten query alone, in the user's voice")


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
    personal_context: str = dspy.InputField(
        desc="facts about the user, or earlier turns, one per line, with the date when each was "
        "noted or said"
    )
    prospection_summary: str = dspy.OutputField(desc="a single paragraph")


_PICNIC = (
    "I promised to bring something to the neighbourhood picnic on Saturday. What should I make?"
)
_RUN = "Should I sign up for the half marathon in October?"
_VISIT = "My parents are coming for a week. Help me set things up."
_PICNIC_FACTS = (
    "(2 March 2025, Sunday) [Identity] Is allergic to walnuts\n"
    "(11 May 2025, Sunday) [Event] The oven has been broken since last week\n"
    "(20 April 2025, Sunday) [Activity] Baked flatbread for the street party, and everybody "
    "asked for the recipe"
)
_RUN_FACTS = (
    "(6 June 2025, Friday) [Event] Sprained the left ankle on the stairs\n"
    "(1 February 2025, Saturday) [Identity] Works late shifts on Tuesdays and Thursdays\n"
    "(17 May 2025, Saturday) [Goal] Is saving until December for a used car"
)
_VISIT_FACTS = (
    "(9 January 2025, Thursday) [Event] Father has used a walking stick since his operation\n"
    "(3 March 2025, Monday) [Identity] Lives on the fourth floor without a lift\n"
    "(28 February 2025, Friday) [Event] Took over a colleague's project until Easter"
)


def update_examples() -> list[dspy.Example]:
    """For `UpdateFacts`: existing facts, dialogue, and nine facts, four changed and five new, as in the paper."""
    file = resources.files(__package__ or "").joinpath("pgr_update_example.json")
    example = json.loads(file.read_text(encoding="utf-8"))
    existing_facts = [KnownFact.model_validate(fact) for fact in example["existing_facts"]]
    facts = [FactChange.model_validate(fact) for fact in example["facts"]]
    return [
        dspy.Example(
            existing_facts=existing_facts, dialogue="\n".join(example["dialogue"]), facts=facts
        )
    ]


def chain_examples() -> list[dspy.Example]:
    """For `ImagineChain`: date, question, no known facts, steps."""
    return [
        _example("16 May 2025, Friday", _PICNIC, steps=_steps(
            "Ask who else is coming :: guests' diets, allergies, children",
            "Look through the kitchen cupboards :: ingredients at hand, working appliances",
            "Carry the dish to the park :: distance, transport, keeping it cool",
            "What people liked the last time :: earlier parties, praised recipes",
        )),
        _example("30 July 2025, Wednesday", _RUN, steps=_steps(
            "Run the first ten kilometres :: current fitness, old injuries",
            "Leave work in time for a long run :: shifts, evenings, weekends",
            "Pay the entry fee :: budget, savings, refund before the race",
            "Travel to the start in the early morning :: trains, a place to sleep",
        )),
        _example("10 March 2025, Monday", _VISIT, steps=_steps(
            "Make up beds in the flat :: rooms, mattresses, quiet at night",
            "Bring the luggage up :: stairs, health, help from friends",
            "Cook for the first evening :: family tastes, medicines with food",
            "Take days off work :: deadlines, remaining holidays, colleagues",
        )),
    ]  # fmt: skip


def refined_chain_examples() -> list[dspy.Example]:
    """For `RefineChain`: date, initial steps, facts, question, updated steps."""
    first = [example["steps"] for example in chain_examples()]
    return [
        _example("16 May 2025, Friday", _PICNIC, _PICNIC_FACTS, initial_steps=first[0], updated_steps=_steps(
            "Bake flatbread in a pan on the stove :: the oven is broken, the praised recipe needs little",
            "Label the dips for the table :: own walnut allergy, other guests' nuts",
            "Borrow a cool box from a neighbour :: contacts of the street party",
            "Ask the host for a place at the grill :: no oven until it is repaired, arrival on Saturday",
        )),
        _example("30 July 2025, Wednesday", _RUN, _RUN_FACTS, initial_steps=first[1], updated_steps=_steps(
            "Jog for half an hour without pain :: left ankle sprained in June, how far it has healed",
            "Train on Mondays, Wednesdays and weekends :: late shifts on Tuesdays and Thursdays",
            "How much of the month's money is free :: savings for the car until December",
            "Get a lift to the start from another runner :: no car yet, an early morning after a late shift",
        )),
        _example("10 March 2025, Monday", _VISIT, _VISIT_FACTS, initial_steps=first[2], updated_steps=_steps(
            "Book a room nearby on the ground floor :: father's walking stick, four floors without a lift",
            "Meet them after five on weekdays :: the colleague's project runs until Easter",
            "Whether the doctor's exercises need equipment :: father's operation, what he can do alone",
            "Order the heavy shopping to the door :: stairs without a lift, evenings full of work",
        )),
    ]  # fmt: skip


def tree_examples() -> list[dspy.Example]:
    """For `ImagineTree`: date, question, no known facts, tree."""
    return [
        _example("16 May 2025, Friday", _PICNIC, tree=_tree(
            "A1 - Ask who else is coming :: guests' diets, allergies, children",
            "A2 A1 Bake something at home :: oven, time on Friday evening, tried recipes",
            "A3 A1 Buy salads at the market :: opening hours, prices, money left this month",
            "A4 A2 Carry the dish to the park :: distance, bicycle or car, keeping it cool",
            "A5 A2 Make something raw from the family cookbook :: grandmother's dishes, missing kitchen tools",
            "A6 A3 Fetch the order before the stalls close :: work on Saturdays, errands on the way",
            "A7 A4 Sit down with the neighbours :: names, quarrels, who has been kind before",
            "A8 A6 Pick up drinks on the way back :: what others said they would bring, heavy bottles",
            "A9 A7 Pass on the recipe afterwards :: praise at earlier parties, own notes",
        )),
        _example("30 July 2025, Wednesday", _RUN, tree=_tree(
            "A1 - Run ten kilometres this week :: current fitness, old injuries",
            "A2 A1 Follow a training plan until October :: shifts, evenings, weekends",
            "A3 A1 Switch to the five-kilometre race :: joints, friends who join, doctor's advice",
            "A4 A2 Pay the entry fee :: budget, savings, refund before the race",
            "A5 A4 Sleep near the start :: trains in the morning, hotels",
            "A6 A2 Buy shoes that fit :: sizes, worn pairs, shops that proved good",
            "A7 A3 Cheer for a colleague along the course :: teams at work, earlier races watched",
            "A8 A5 Have breakfast before dawn :: allergies, meals before sport",
            "A9 A6 Run the whole distance in the rain :: clothes for bad weather, endurance",
        )),
        _example("10 March 2025, Monday", _VISIT, tree=_tree(
            "A1 - Bring the luggage into the flat :: stairs, health, help from friends",
            "A2 A1 Make up beds for them at home :: rooms, mattresses, quiet at night",
            "A3 A1 Book a guesthouse :: price, distance to the flat, bookings of earlier visits",
            "A4 A2 Cook for the first evening :: family tastes, medicines with food",
            "A5 A3 Take days off work :: deadlines, remaining holidays, colleagues",
            "A6 A4 Drive them to the old town :: car, parking, how far they can walk",
            "A7 A4 Invite an aunt for coffee :: relatives nearby, old disputes",
            "A8 A5 Leave them on their own until the afternoon :: spare keys, television, a park round the corner",
            "A9 A6 Take a family photo :: albums, the last visit, what their father likes to show",
        )),
    ]  # fmt: skip


def refined_tree_examples() -> list[dspy.Example]:
    """For `RefineTree`: date, initial tree, facts, question, updated tree."""
    first = tree_examples()[1]["tree"]
    return [
        _example("30 July 2025, Wednesday", _RUN, _RUN_FACTS, initial_tree=first, updated_tree=_tree(
            "A1 - Jog for half an hour without pain :: left ankle sprained in June, how far it has healed",
            "A2 A1 Train on Mondays, Wednesdays and weekends :: late shifts on Tuesdays and Thursdays",
            "A3 A1 Switch to the five-kilometre race :: the ankle's recovery, running partners",
            "A4 A2 Pay the entry fee :: savings for the car until December, refund after an injury",
            "A5 A4 Get a lift to the start :: no car of their own before December, runners nearby",
            "A6 A2 Buy shoes that support the ankle :: left ankle sprained in June, money set aside for the car",
            "A7 A3 Cheer for a colleague along the course :: teams at work, evenings without a late shift",
            "A8 A5 Have breakfast before dawn :: meals before sport, sleep after a late shift",
            "A9 A6 Run the whole distance in the rain :: endurance since the sprain, slippery ground",
        )),
    ]  # fmt: skip


def _example(
    date: str, question: str, facts: str = "", **steps: list[Step] | list[TreeNode]
) -> dspy.Example:
    known = {"personal_context": facts} if facts else {"known_facts": ""}
    return dspy.Example(date=date, question=question, **known, **steps)


def _steps(*lines: str) -> list[Step]:
    return [
        Step(action=action, constraints=limits)
        for action, limits in (line.split(" :: ") for line in lines)
    ]


def _tree(*lines: str) -> list[TreeNode]:
    parts = [line.split(" ", 2) for line in lines]
    children = {id: [child for child, parent, _ in parts if parent == id] for id, _, _ in parts}
    return [
        TreeNode(
            action_id=id,
            action=rest.split(" :: ")[0],
            constraints=rest.split(" :: ")[1],
            parent=None if parent == "-" else parent,
            children=children[id],
        )
        for id, parent, rest in parts
    ]

"""Prompts of PGR (prospection-guided retrieval): keep facts about a user, imagine what comes next, sum it up.

Source: the paper's appendix, every rule in our own words; it does not print the prompts of query augmentation and
prospection summary: ours. So are the example pairs that it leaves blank, the predictors' initial demos: three for each
chain prompt and for the first tree prompt, one for the refinement of a tree. The answer: `answering.RespondPersonally`.
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


_PICNIC = "I promised to bring something to the neighbourhood picnic on Saturday. What should I make?"
_RUN = "Sign me up for the half marathon in October?"
_VISIT = "My parents are coming for a week. Help me set things up."
_PICNIC_FACTS = (
    "(2 March 2025, Sunday) [Identity] Is allergic to walnuts\n"
    "(11 May 2025, Sunday) [Event] The oven has been broken since last week\n"
    "(20 April 2025, Sunday) [Activity] Baked flatbread for the street party, and everybody asked for the recipe"
)
_RUN_FACTS = (
    "(6 June 2025, Friday) [Event] Sprained the left ankle on the stairs\n"
    "(1 February 2025, Saturday) [Identity] Works late shifts on Tuesdays and Thursdays\n"
    "(17 May 2025, Saturday) [Goal] Is saving for a used car until December"
)
_VISIT_FACTS = (
    "(9 January 2025, Thursday) [Event] Father uses a walking stick since his operation\n"
    "(3 March 2025, Monday) [Identity] Lives on the fourth floor without a lift\n"
    "(28 February 2025, Friday) [Event] Took over a colleague's project until Easter"
)


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
            "Bring the luggage up :: stairs, health, help of friends",
            "Cook for the first evening :: family tastes, medicines with food",
            "Take days off :: deadlines, holidays left, colleagues",
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
            "Jog for half an hour without pain :: left ankle sprained in June, physiotherapy",
            "Train on Monday, Wednesday and at weekends :: late shifts on Tuesday and Thursday",
            "How much of the month's money is free :: savings for the car until December",
            "Ride to the start with another runner :: no car yet, an early morning after a late shift",
        )),
        _example("10 March 2025, Monday", _VISIT, _VISIT_FACTS, initial_steps=first[2], updated_steps=_steps(
            "Book a room near by on the ground floor :: father's walking stick, four floors without a lift",
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
            "A5 A2 Cook without heat, from a family notebook :: grandmother's dishes, missing kitchen tools",
            "A6 A3 Fetch the order before the stalls close :: work on Saturdays, errands on the way",
            "A7 A4 Sit down with the neighbours :: names, quarrels, who was kind before",
            "A8 A6 Bring drinks in place of food :: what others said they would bring, heavy bottles",
            "A9 A7 Hand on the recipe afterwards :: praise at earlier parties, own notes",
        )),
        _example("30 July 2025, Wednesday", _RUN, tree=_tree(
            "A1 - Run ten kilometres this week :: current fitness, old injuries",
            "A2 A1 Follow a training plan until October :: shifts, evenings, weekends",
            "A3 A1 Switch to the five-kilometre race :: joints, friends who join, doctor's advice",
            "A4 A2 Pay the entry fee :: budget, savings, refund before the race",
            "A5 A4 Sleep near the start :: trains in the morning, hotels",
            "A6 A2 Buy shoes that fit :: sizes, worn pairs, shops that were good",
            "A7 A3 Cheer for a colleague along the course :: teams at work, earlier races watched",
            "A8 A5 Eat what the stomach bears at dawn :: allergies, breakfasts before sport",
            "A9 A6 Run the whole distance in the rain :: weather so far this year, clothes, endurance",
        )),
        _example("10 March 2025, Monday", _VISIT, tree=_tree(
            "A1 - Bring the luggage into the flat :: stairs, health, help of friends",
            "A2 A1 Make up beds for them at home :: rooms, mattresses, quiet at night",
            "A3 A1 Book a guesthouse :: price, way to the flat, bookings of earlier visits",
            "A4 A2 Cook for the first evening :: family tastes, medicines with food",
            "A5 A3 Take days off :: deadlines, holidays left, colleagues",
            "A6 A4 Drive them to the old town :: car, parking, how far they walk",
            "A7 A4 Invite an aunt for coffee :: relatives near by, old disputes",
            "A8 A5 Leave them alone until the afternoon :: keys, television, a park round the corner",
            "A9 A6 Take a picture of all three :: albums, the last visit, what father likes to show",
        )),
    ]  # fmt: skip


def refined_tree_examples() -> list[dspy.Example]:
    """For `RefineTree`: date, initial tree, facts, question, updated tree."""
    first = tree_examples()[1]["tree"]
    return [
        _example("30 July 2025, Wednesday", _RUN, _RUN_FACTS, initial_tree=first, updated_tree=_tree(
            "A1 - Jog for half an hour without pain :: left ankle sprained in June, physiotherapy",
            "A2 A1 Train on Monday, Wednesday and at weekends :: late shifts on Tuesday and Thursday",
            "A3 A1 Switch to the five-kilometre race :: the ankle's recovery, running partners",
            "A4 A2 Pay the entry fee :: savings for the car until December, refund after an injury",
            "A5 A4 Ride to the start with somebody's car :: no car of one's own before December, runners near by",
            "A6 A2 Buy shoes that hold the ankle :: left ankle sprained in June, money set aside for the car",
            "A7 A3 Cheer for a colleague along the course :: teams at work, free evenings beside late shifts",
            "A8 A5 Eat what the stomach bears at dawn :: breakfasts before sport, hours after a late shift",
            "A9 A6 Run the whole distance in the rain :: endurance since the sprain, slippery ground",
        )),
    ]  # fmt: skip


def _example(date: str, question: str, facts: str = "", **steps: list[Step] | list[TreeNode]) -> dspy.Example:
    known = {"personal_context": facts} if facts else {"known_facts": ""}
    return dspy.Example(date=date, question=question, **known, **steps)


def _steps(*lines: str) -> list[Step]:
    return [Step(action=action, constraints=limits) for action, limits in (line.split(" :: ") for line in lines)]


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

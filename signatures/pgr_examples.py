"""Worked examples for the prompts of PGR, their initial demos.

The paper has nine facts as the example of an update, and leaves out its example pairs: three for
each chain prompt and for the first tree prompt, one for the refinement of a tree. The examples here
are ours, in the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import dspy

from .pgr import FactChange, KnownFact, Step, TreeNode


@dataclass(frozen=True)
class _Request:
    """A request of a user, and what is known about the user."""

    date: str
    question: str
    facts: str


def _node(action_id: str, parent: str | None, action: str, constraints: str) -> TreeNode:
    return TreeNode(action_id=action_id, parent=parent, action=action, constraints=constraints)


_PICNIC = _Request(
    date="16 May 2025, Friday",
    question=(
        "I promised to bring something to the neighbourhood picnic on Saturday. What should I make?"
    ),
    facts=(
        "(2 March 2025, Sunday) [Identity] Is allergic to walnuts\n"
        "(11 May 2025, Sunday) [Event] The oven has been broken since last week\n"
        "(20 April 2025, Sunday) [Activity] Baked flatbread for the street party, and everybody "
        "asked for the recipe"
    ),
)
_RUN = _Request(
    date="30 July 2025, Wednesday",
    question="Should I sign up for the half marathon in October?",
    facts=(
        "(6 June 2025, Friday) [Event] Sprained the left ankle on the stairs\n"
        "(1 February 2025, Saturday) [Identity] Works late shifts on Tuesdays and Thursdays\n"
        "(17 May 2025, Saturday) [Goal] Is saving until December for a used car"
    ),
)
_VISIT = _Request(
    date="10 March 2025, Monday",
    question="My parents are coming for a week. Help me set things up.",
    facts=(
        "(9 January 2025, Thursday) [Event] Father has used a walking stick since his operation\n"
        "(3 March 2025, Monday) [Identity] Lives on the fourth floor without a lift\n"
        "(28 February 2025, Friday) [Event] Took over a colleague's project until Easter"
    ),
)

_PICNIC_CHAIN = (
    Step(action="Ask who else is coming", constraints="guests' diets, allergies, children"),
    Step(
        action="Look through the kitchen cupboards",
        constraints="ingredients at hand, working appliances",
    ),
    Step(action="Carry the dish to the park", constraints="distance, transport, keeping it cool"),
    Step(action="What people liked the last time", constraints="earlier parties, praised recipes"),
)

_RUN_CHAIN = (
    Step(action="Run the first ten kilometres", constraints="current fitness, old injuries"),
    Step(action="Leave work in time for a long run", constraints="shifts, evenings, weekends"),
    Step(action="Pay the entry fee", constraints="budget, savings, refund before the race"),
    Step(action="Travel to the start in the early morning", constraints="trains, a place to sleep"),
)

_VISIT_CHAIN = (
    Step(action="Make up beds in the flat", constraints="rooms, mattresses, quiet at night"),
    Step(action="Bring the luggage up", constraints="stairs, health, help from friends"),
    Step(action="Cook for the first evening", constraints="family tastes, medicines with food"),
    Step(action="Take days off work", constraints="deadlines, remaining holidays, colleagues"),
)

_PICNIC_CHAIN_REFINED = (
    Step(
        action="Bake flatbread in a pan on the stove",
        constraints="the oven is broken, the praised recipe needs little",
    ),
    Step(
        action="Label the dips for the table", constraints="own walnut allergy, other guests' nuts"
    ),
    Step(action="Borrow a cool box from a neighbour", constraints="contacts of the street party"),
    Step(
        action="Ask the host for a place at the grill",
        constraints="no oven until it is repaired, arrival on Saturday",
    ),
)

_RUN_CHAIN_REFINED = (
    Step(
        action="Jog for half an hour without pain",
        constraints="left ankle sprained in June, how far it has healed",
    ),
    Step(
        action="Train on Mondays, Wednesdays and weekends",
        constraints="late shifts on Tuesdays and Thursdays",
    ),
    Step(
        action="How much of the month's money is free",
        constraints="savings for the car until December",
    ),
    Step(
        action="Get a lift to the start from another runner",
        constraints="no car yet, an early morning after a late shift",
    ),
)

_VISIT_CHAIN_REFINED = (
    Step(
        action="Book a room nearby on the ground floor",
        constraints="father's walking stick, four floors without a lift",
    ),
    Step(
        action="Meet them after five on weekdays",
        constraints="the colleague's project runs until Easter",
    ),
    Step(
        action="Whether the doctor's exercises need equipment",
        constraints="father's operation, what he can do alone",
    ),
    Step(
        action="Order the heavy shopping to the door",
        constraints="stairs without a lift, evenings full of work",
    ),
)

_PICNIC_TREE = (
    _node("A1", None, "Ask who else is coming", "guests' diets, allergies, children"),
    _node("A2", "A1", "Bake something at home", "oven, time on Friday evening, tried recipes"),
    _node("A3", "A1", "Buy salads at the market", "opening hours, prices, money left this month"),
    _node("A4", "A2", "Carry the dish to the park", "distance, bicycle or car, keeping it cool"),
    _node(
        "A5",
        "A2",
        "Make something raw from the family cookbook",
        "grandmother's dishes, missing kitchen tools",
    ),
    _node(
        "A6",
        "A3",
        "Fetch the order before the stalls close",
        "work on Saturdays, errands on the way",
    ),
    _node("A7", "A4", "Sit down with the neighbours", "names, quarrels, who has been kind before"),
    _node(
        "A8",
        "A6",
        "Pick up drinks on the way back",
        "what others said they would bring, heavy bottles",
    ),
    _node("A9", "A7", "Pass on the recipe afterwards", "praise at earlier parties, own notes"),
)

_RUN_TREE = (
    _node("A1", None, "Run ten kilometres this week", "current fitness, old injuries"),
    _node("A2", "A1", "Follow a training plan until October", "shifts, evenings, weekends"),
    _node(
        "A3", "A1", "Switch to the five-kilometre race", "joints, friends who join, doctor's advice"
    ),
    _node("A4", "A2", "Pay the entry fee", "budget, savings, refund before the race"),
    _node("A5", "A4", "Sleep near the start", "trains in the morning, hotels"),
    _node("A6", "A2", "Buy shoes that fit", "sizes, worn pairs, shops that proved good"),
    _node(
        "A7", "A3", "Cheer for a colleague along the course", "teams at work, earlier races watched"
    ),
    _node("A8", "A5", "Have breakfast before dawn", "allergies, meals before sport"),
    _node("A9", "A6", "Run the whole distance in the rain", "clothes for bad weather, endurance"),
)

_VISIT_TREE = (
    _node("A1", None, "Bring the luggage into the flat", "stairs, health, help from friends"),
    _node("A2", "A1", "Make up beds for them at home", "rooms, mattresses, quiet at night"),
    _node(
        "A3", "A1", "Book a guesthouse", "price, distance to the flat, bookings of earlier visits"
    ),
    _node("A4", "A2", "Cook for the first evening", "family tastes, medicines with food"),
    _node("A5", "A3", "Take days off work", "deadlines, remaining holidays, colleagues"),
    _node("A6", "A4", "Drive them to the old town", "car, parking, how far they can walk"),
    _node("A7", "A4", "Invite an aunt for coffee", "relatives nearby, old disputes"),
    _node(
        "A8",
        "A5",
        "Leave them on their own until the afternoon",
        "spare keys, television, a park round the corner",
    ),
    _node(
        "A9", "A6", "Take a family photo", "albums, the last visit, what their father likes to show"
    ),
)

_RUN_TREE_REFINED = (
    _node(
        "A1",
        None,
        "Jog for half an hour without pain",
        "left ankle sprained in June, how far it has healed",
    ),
    _node(
        "A2",
        "A1",
        "Train on Mondays, Wednesdays and weekends",
        "late shifts on Tuesdays and Thursdays",
    ),
    _node(
        "A3", "A1", "Switch to the five-kilometre race", "the ankle's recovery, running partners"
    ),
    _node(
        "A4",
        "A2",
        "Pay the entry fee",
        "savings for the car until December, refund after an injury",
    ),
    _node(
        "A5", "A4", "Get a lift to the start", "no car of their own before December, runners nearby"
    ),
    _node(
        "A6",
        "A2",
        "Buy shoes that support the ankle",
        "left ankle sprained in June, money set aside for the car",
    ),
    _node(
        "A7",
        "A3",
        "Cheer for a colleague along the course",
        "teams at work, evenings without a late shift",
    ),
    _node("A8", "A5", "Have breakfast before dawn", "meals before sport, sleep after a late shift"),
    _node(
        "A9",
        "A6",
        "Run the whole distance in the rain",
        "endurance since the sprain, slippery ground",
    ),
)


def update_examples() -> list[dspy.Example]:
    """Return an example for `UpdateFacts`: nine facts, four of them changed and five new."""
    file = resources.files(__package__ or "").joinpath("pgr_update_example.json")
    texts = json.loads(file.read_text(encoding="utf-8"))
    example = dspy.Example(
        existing_facts=[KnownFact.model_validate(fact) for fact in texts["existing_facts"]],
        dialogue="\n".join(texts["dialogue"]),
        facts=[FactChange.model_validate(fact) for fact in texts["facts"]],
    )
    return [example]


def chain_examples() -> list[dspy.Example]:
    """Return three examples for `ImagineChain`, without known facts."""
    return [
        _imagined_chain(_PICNIC, _PICNIC_CHAIN),
        _imagined_chain(_RUN, _RUN_CHAIN),
        _imagined_chain(_VISIT, _VISIT_CHAIN),
    ]


def refined_chain_examples() -> list[dspy.Example]:
    """Return three examples for `RefineChain`, which go on from those for `ImagineChain`."""
    return [
        _refined_chain(_PICNIC, _PICNIC_CHAIN, _PICNIC_CHAIN_REFINED),
        _refined_chain(_RUN, _RUN_CHAIN, _RUN_CHAIN_REFINED),
        _refined_chain(_VISIT, _VISIT_CHAIN, _VISIT_CHAIN_REFINED),
    ]


def tree_examples() -> list[dspy.Example]:
    """Return three examples for `ImagineTree`, without known facts."""
    return [
        _imagined_tree(_PICNIC, _PICNIC_TREE),
        _imagined_tree(_RUN, _RUN_TREE),
        _imagined_tree(_VISIT, _VISIT_TREE),
    ]


def refined_tree_examples() -> list[dspy.Example]:
    """Return an example for `RefineTree`.

    It goes on from the example of the half marathon for `ImagineTree`: the first tree was imagined
    without knowing the user, and the second one takes account of the facts.
    """
    return [
        dspy.Example(
            date=_RUN.date,
            question=_RUN.question,
            personal_context=_RUN.facts,
            initial_tree=_with_children(_RUN_TREE),
            updated_tree=_with_children(_RUN_TREE_REFINED),
        )
    ]


def _imagined_chain(request: _Request, steps: Sequence[Step]) -> dspy.Example:
    return dspy.Example(
        date=request.date,
        question=request.question,
        known_facts="",
        steps=list(steps),
    )


def _refined_chain(
    request: _Request, initial_steps: Sequence[Step], updated_steps: Sequence[Step]
) -> dspy.Example:
    return dspy.Example(
        date=request.date,
        question=request.question,
        personal_context=request.facts,
        initial_steps=list(initial_steps),
        updated_steps=list(updated_steps),
    )


def _imagined_tree(request: _Request, nodes: Sequence[TreeNode]) -> dspy.Example:
    return dspy.Example(
        date=request.date,
        question=request.question,
        known_facts="",
        tree=_with_children(nodes),
    )


def _with_children(nodes: Sequence[TreeNode]) -> list[TreeNode]:
    """Return the nodes of a tree, each with the ids of its children.

    The trees of this file name only the parent of a node. Prompts show both.
    """
    tree: list[TreeNode] = []
    for node in nodes:
        children = [child.action_id for child in nodes if child.parent == node.action_id]
        tree.append(node.model_copy(update={"children": children}))
    return tree

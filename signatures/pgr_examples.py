"""Example pairs for PGR's prospection prompts, written by us: the paper says how many there are and prints none.

Three for each chain prompt and for the first tree prompt, one for the refinement of a tree. They are the initial demos
of the predictors; optimizers that choose demos (bootstrap, MIPROv2) replace them, the others keep them.
"""

from __future__ import annotations

import dspy

from .pgr import Step, TreeNode

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
        )),
        _example("30 July 2025, Wednesday", _RUN, _RUN_FACTS, initial_steps=first[1], updated_steps=_steps(
            "Jog for half an hour without pain :: left ankle sprained in June, physiotherapy",
            "Train on Monday, Wednesday and at weekends :: late shifts on Tuesday and Thursday",
            "How much of the month's money is free :: savings for the car until December",
        )),
        _example("10 March 2025, Monday", _VISIT, _VISIT_FACTS, initial_steps=first[2], updated_steps=_steps(
            "Book a room near by on the ground floor :: father's walking stick, four floors without a lift",
            "Meet them after five on weekdays :: the colleague's project runs until Easter",
            "Whether the doctor's exercises need equipment :: father's operation, what he can do alone",
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
        )),
        _example("30 July 2025, Wednesday", _RUN, tree=_tree(
            "A1 - Run ten kilometres this week :: current fitness, old injuries",
            "A2 A1 Follow a training plan until October :: shifts, evenings, weekends",
            "A3 A1 Switch to the five-kilometre race :: joints, friends who join, doctor's advice",
            "A4 A2 Pay the entry fee :: budget, savings, refund before the race",
            "A5 A4 Sleep near the start :: trains in the morning, hotels",
        )),
        _example("10 March 2025, Monday", _VISIT, tree=_tree(
            "A1 - Bring the luggage into the flat :: stairs, health, help of friends",
            "A2 A1 Make up beds for them at home :: rooms, mattresses, quiet at night",
            "A3 A1 Book a guesthouse :: price, way to the flat, bookings of earlier visits",
            "A4 A2 Cook for the first evening :: family tastes, medicines with food",
            "A5 A3 Take days off :: deadlines, holidays left, colleagues",
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

"""Worked examples for the prompts of Memory-R2, their initial demos; the examples are ours.

In April Leo plans to visit a fair, and in May he tells Mia about it. All four operations occur.
"""

from __future__ import annotations

import dspy

from .memory_r2 import Fact, NewFact, Operation, StoredMemory

_SESSION_DATE = "8 May 2023, Monday 13:00"

_GREETING = "[D4:1] (8 May 2023, Monday 13:00) Mia: Hi Leo! How was your weekend?"

_NEWS = (
    "[D4:2] (8 May 2023, Monday 13:00) Leo: Great! Yesterday I went to the pottery fair in Bruges "
    "with Ina, and I bought a blue teapot there.\n"
    "[D4:3] (8 May 2023, Monday 13:00) Mia: Lovely! I want to learn the guitar this summer. I have "
    "had one for ten years."
)

_VISIT = Fact(
    speaker="Leo",
    turn_id="D4:2",
    fact="Leo visited the pottery fair in Bruges with Ina on 7 May 2023.",
)
_PURCHASE = Fact(
    speaker="Leo",
    turn_id="D4:2",
    fact="Leo bought a blue teapot at the pottery fair in Bruges on 7 May 2023.",
)
_INTENTION = Fact(
    speaker="Mia",
    turn_id="D4:3",
    fact="Mia intends to learn the guitar in summer 2023.",
)
_POSSESSION = Fact(
    speaker="Mia",
    turn_id="D4:3",
    fact="Mia has owned a guitar for ten years as of May 2023.",
)
_FACTS_OF_NEWS = (_VISIT, _PURCHASE, _INTENTION, _POSSESSION)

_SISTER = Fact(speaker="Leo", turn_id="D4:4", fact="Leo has a sister named Ina.")

_EARLIER_DATE = "3 April 2023, Monday 18:00"

_STORED_PLAN = StoredMemory(
    memory_id="m1",
    speaker="Leo",
    content="Leo plans to visit the pottery fair in Bruges in May 2023.",
    date=_EARLIER_DATE,
)
_STORED_SISTER = StoredMemory(
    memory_id="m2",
    speaker="Leo",
    content="Ina is Leo's younger sister.",
    date=_EARLIER_DATE,
)
_STORED_LACK = StoredMemory(
    memory_id="m3",
    speaker="Mia",
    content="Mia does not own a musical instrument.",
    date=_EARLIER_DATE,
)
_STORED_CONCERT = StoredMemory(
    memory_id="m4",
    speaker="Mia",
    content="Mia went to a guitar concert in Ghent in 2022.",
    date=_EARLIER_DATE,
)
_STORED_MEMORIES = (_STORED_PLAN, _STORED_SISTER, _STORED_LACK, _STORED_CONCERT)

_OPERATIONS = (
    Operation(op="UPDATE", memory_id="m1", speaker="Leo", content=_VISIT.fact, turn_id="D4:2"),
    Operation(op="INSERT", speaker="Leo", content=_PURCHASE.fact, turn_id="D4:2"),
    Operation(op="INSERT", speaker="Mia", content=_INTENTION.fact, turn_id="D4:3"),
    Operation(op="DELETE", memory_id="m3", speaker="Mia", turn_id="D4:3"),
    Operation(op="INSERT", speaker="Mia", content=_POSSESSION.fact, turn_id="D4:3"),
)


def extraction_examples() -> list[dspy.Example]:
    """Return examples for `ExtractFactsInContext`: four facts, and a greeting without one."""
    news = dspy.Example(earlier=_GREETING, dialogue=_NEWS, facts=list(_FACTS_OF_NEWS))
    greeting = dspy.Example(earlier="", dialogue=_GREETING, facts=[])
    return [example.with_inputs("earlier", "dialogue") for example in (news, greeting)]


def management_examples() -> list[dspy.Example]:
    """Return two examples for `ManageMemoryInContext`.

    The first shows four stored memories (m1 to m4) and four new facts. They lead to five
    operations: Mia's instrument is a new memory, and m3, which says that she has none, is deleted.
    In the second, the only new fact is stored already as m2, so nothing changes.
    """
    four_new_facts = dspy.Example(
        session_date=_SESSION_DATE,
        memories=list(_STORED_MEMORIES),
        earlier_facts=[],
        new_facts=[
            _new_fact(_VISIT, related_memory_ids=["m1", "m2"]),
            _new_fact(_PURCHASE, related_memory_ids=["m1"]),
            _new_fact(_INTENTION, related_memory_ids=["m4", "m3"]),
            _new_fact(_POSSESSION, related_memory_ids=["m3", "m4"]),
        ],
        operations=list(_OPERATIONS),
    )
    known_fact = dspy.Example(
        session_date=_SESSION_DATE,
        memories=[_STORED_SISTER],
        earlier_facts=list(_FACTS_OF_NEWS),
        new_facts=[_new_fact(_SISTER, related_memory_ids=["m2"])],
        operations=[Operation(op="NONE", memory_id="m2", speaker="Leo", turn_id="D4:4")],
    )
    inputs = ("session_date", "memories", "earlier_facts", "new_facts")
    return [example.with_inputs(*inputs) for example in (four_new_facts, known_fact)]


def editing_examples() -> list[dspy.Example]:
    """Return examples for `EditMemory`, the single agent: the same turns and operations."""
    changes = dspy.Example(
        session_date=_SESSION_DATE,
        memories=list(_STORED_MEMORIES),
        earlier=_GREETING,
        dialogue=_NEWS,
        operations=list(_OPERATIONS),
    )
    no_change = dspy.Example(
        session_date=_SESSION_DATE,
        memories=list(_STORED_MEMORIES),
        earlier="",
        dialogue=_GREETING,
        operations=[],
    )
    inputs = ("session_date", "memories", "earlier", "dialogue")
    return [example.with_inputs(*inputs) for example in (changes, no_change)]


def without_context(examples: list[dspy.Example]) -> list[dspy.Example]:
    """Return examples for `ExtractFacts` or `ManageMemory`, without the earlier session."""
    shortened_examples: list[dspy.Example] = []
    for example in examples:
        context_fields = [name for name in ("earlier", "earlier_facts") if name in example]
        shortened_examples.append(example.without(*context_fields))
    return shortened_examples


def _new_fact(fact: Fact, related_memory_ids: list[str]) -> NewFact:
    return NewFact(
        speaker=fact.speaker,
        turn_id=fact.turn_id,
        fact=fact.fact,
        related_memory_ids=related_memory_ids,
    )

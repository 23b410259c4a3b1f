"""The oracle's jobs in the world of PGR: keep facts, merge them, imagine an errand, make it personal, sum up, answer.

What it brings along is what everybody knows of errands (`grammar.pgr.ERRANDS`); of the user it knows what the prompt
says. A tree goes through the steps of one sub-goal and then of the other, with all options; a chain through all steps
in the order of time, each with the option that nothing is known against. Refined, both follow what the facts say that a
thing does not work without, one link a round as it is found.

The answer rests on the context alone. That an option is left, or what comes first, is no recalled fact: it is known
where the summary says it. One that reads numbers does not add them up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...grammar.pgr import (
    ERRANDS,
    FACTS,
    STEPS,
    SUMMARY,
    Act,
    Alias,
    Closed,
    Concern,
    Count,
    First,
    HowIs,
    HowMany,
    HowWas,
    Left,
    Link,
    Means,
    More,
    Remark,
    State,
    dated,
    errand_of,
    looks,
    question_of,
)
from ..offline.prompt import Prompt, parsed
from .engine import UNKNOWN, Job

_TURN = re.compile(r"^\[(\S+)\] \([^)]*\) \w+: (.*)$", re.M)


def _update(prompt: Prompt) -> Mapping[str, Any] | None:
    """New and changed facts; one more of something is counted on from what is known of it."""
    if "existing_facts" not in prompt.inputs:
        return None
    known: dict[Any, tuple[str, Any]] = {}
    for each in _records(prompt, "existing_facts"):
        known |= {_subject(fact): (each["fact_id"], fact) for fact in FACTS.read(each["info"])}
    changes: dict[Any, dict[str, Any]] = {}
    for id, text in _TURN.findall(prompt.inputs.get("dialogue", "")):
        for fact in FACTS.read(text):
            told = _standing(fact, known)
            subject = _subject(told)
            fact_id, before = known.get(subject, ("", None))
            if before == told:
                continue
            new = {"info": FACTS.say(told), "type": "Event", "state": "update" if fact_id else "add"}
            turns = [*changes.get(subject, {}).get("turn_ids", ()), id]
            changes[subject] = {**new, "fact_id": fact_id or f"NEW_{len(changes) + 1}", "turn_ids": turns}
            known[subject] = (fact_id, told)
    return {"facts": list(changes.values())}


def _standing(fact: Any, known: Mapping[Any, tuple[str, Any]]) -> Any:
    """What holds now that a fact is said."""
    if isinstance(fact, More):
        _, count = known.get((Count, fact.thing), ("", None))
        return Count(fact.thing, count.n + 1) if isinstance(count, Count) else fact
    return fact


def _subject(fact: Any) -> Any:
    """What a fact is about, where a later one takes its place; else the fact itself."""
    return (type(fact), fact.thing) if isinstance(fact, State | Count) else fact


def _merge(prompt: Prompt) -> Mapping[str, Any] | None:
    facts = [fact for each in _records(prompt, "similar_facts") for fact in FACTS.read(each["info"])]
    if not facts:
        return None
    seen: dict[str, list[str]] = {}
    for fact in facts:
        if isinstance(fact, Remark):
            seen.setdefault(fact.thing, []).append(fact.looks)
    merged = [Remark(thing, ", ".join(found)) for thing, found in seen.items()]
    others = [fact for fact in dict.fromkeys(facts) if not isinstance(fact, Remark)]
    return {"merged_fact": {"info": " ".join(map(FACTS.say, [*merged, *others])), "type": "Event"}}


def _imagine_tree(prompt: Prompt) -> Mapping[str, Any] | None:
    things = _imagined(prompt, "known_facts", tree=True)
    return None if things is None else {"tree": _nodes(things)}


def _imagine_chain(prompt: Prompt) -> Mapping[str, Any] | None:
    things = _imagined(prompt, "known_facts", tree=False)
    return None if things is None else {"steps": _acts(things)}


def _refine_tree(prompt: Prompt) -> Mapping[str, Any] | None:
    facts = FACTS.read(prompt.inputs.get("personal_context", ""))
    things = _things(prompt, "initial_tree") or _imagined(prompt, "personal_context", tree=True)
    return None if things is None else {"updated_tree": _nodes(_followed(_open(things, facts), facts))}


def _refine_chain(prompt: Prompt) -> Mapping[str, Any] | None:
    facts = FACTS.read(prompt.inputs.get("personal_context", ""))
    things = _things(prompt, "initial_steps") or _imagined(prompt, "personal_context", tree=False)
    if things is None:
        return None
    closed = {fact.thing for fact in facts if isinstance(fact, Closed)}
    instead = (next((each for each in _options(thing) if each not in closed), thing) for thing in things)
    turned = [other if thing in closed else thing for thing, other in zip(things, instead, strict=True)]
    return {"updated_steps": _acts(_followed(turned, facts))}


def _imagined(prompt: Prompt, context: str, tree: bool) -> list[str] | None:
    """The things of the steps to what a question wants; None where the question is none of this world."""
    question = question_of(prompt.inputs.get("question", ""))
    if question is None:
        return None
    if isinstance(question, HowIs | HowMany | HowWas):
        return [question.thing]
    errand = errand_of(question, FACTS.read(prompt.inputs.get(context, "")))
    slots = ERRANDS.get(errand or "", ())
    return [thing for slot in (*slots[0::2], *slots[1::2]) for thing in slot] if tree else [slot[0] for slot in slots]


def _followed(things: Sequence[str], facts: Iterable[Any]) -> list[str]:
    """The things, each followed by what it does not work without."""
    found = list[str]()
    links = [fact for fact in facts if isinstance(fact, Link)]
    for thing in things:
        found += [thing, *(link.other for link in links if link.thing == thing and link.other not in things)]
    return found


def _open(things: Iterable[str], facts: Sequence[Any]) -> list[str]:
    """The things that nothing is known against."""
    return [thing for thing in things if Closed(thing) not in facts]


def _options(thing: str) -> tuple[str, ...]:
    """All that the same step of an errand can be done with."""
    return next((slot for slots in ERRANDS.values() for slot in slots if thing in slot), ())


def _nodes(things: Sequence[str]) -> list[dict[str, Any]]:
    """The things as a tree: the options of a step side by side under the root, what follows from one under it."""
    nodes: list[dict[str, Any]] = [{"action_id": "A1", "action": "Do it", "parent": None, "children": []}]
    above = "A1"
    for n, thing in enumerate(things, start=2):
        if _options(thing):
            above = "A1"
        nodes.append({**_act(thing), "action_id": f"A{n}", "parent": above, "children": []})
        next(node for node in nodes if node["action_id"] == above)["children"].append(f"A{n}")
        above = f"A{n}"
    return nodes


def _acts(things: Iterable[str]) -> list[dict[str, Any]]:
    return [_act(thing) for thing in things]


def _act(thing: str) -> dict[str, Any]:
    return {"action": STEPS.say(Act(thing)), "constraints": ""}


def _things(prompt: Prompt, name: str) -> list[str]:
    """The things of steps that are given."""
    return [act.thing for step in _records(prompt, name) for act in STEPS.read(step["action"])]


def _rewrite(prompt: Prompt) -> Mapping[str, Any] | None:
    """The question with the errand in the place of the user's own name for it."""
    text = prompt.inputs.get("question", "")
    if question_of(text) is None:
        return None
    for fact in FACTS.read(prompt.inputs.get("known_facts", "")):
        if isinstance(fact, Alias):
            text = text.replace(f"do my {fact.name}", fact.errand)
    return {"augmented_query": text}


def _summarize(prompt: Prompt) -> Mapping[str, Any] | None:
    """What is wrong, in the order of the steps of the last round; and the option that is left of a step."""
    rounds = prompt.inputs.get("imagined", "").split("\nround ")
    steps = [[act.thing for act in STEPS.read(each)] for each in rounds]
    if not any(steps):
        return None
    facts = FACTS.read(prompt.inputs.get("personal_context", ""))
    states = {fact.thing: fact.how for fact in facts if isinstance(fact, State)}
    told = [Concern(thing, states[thing]) for thing in steps[-1] if thing in states]
    left: list[Left] = []
    for options in dict.fromkeys(_options(thing) for each in steps for thing in each):
        known = [thing for thing in options if any(thing in each for each in steps)]
        still = _open(known, facts)
        left += [Left(thing) for thing in still if len(still) == 1 and len(known) > 1]
    return {"prospection_summary": " ".join(map(SUMMARY.say, [*told, *left])) or "There is nothing to it."}


def _answer(prompt: Prompt) -> Mapping[str, Any] | None:
    question, context = question_of(prompt.inputs.get("question", "")), prompt.inputs.get("context", "")
    if question is None:
        return None
    summary, facts = SUMMARY.read(context), FACTS.read(context)
    states = {fact.thing: fact.how for fact in facts if isinstance(fact, State)}
    concerns = [each.how for each in summary if isinstance(each, Concern)]
    found: list[str]
    if isinstance(question, HowIs):
        found = [states[question.thing]] if question.thing in states else []
    elif isinstance(question, HowMany):
        found = [str(fact.n) for fact in facts if isinstance(fact, Count) and fact.thing == question.thing]
    elif isinstance(question, HowWas):
        found = _looked(context, question)
    elif isinstance(question, Means):
        found = [each.thing for each in summary if isinstance(each, Left)]
    else:
        found = sorted({states[thing] for thing in _concerned(errand_of(question, facts), facts) if thing in states})
        found = concerns[:1] if isinstance(question, First) and concerns else found
    # Several where one is asked for are none: the context does not say which.
    alone = len(found) == 1 or isinstance(question, Means)
    return {"answer": found[0] if found and alone else UNKNOWN}


def _looked(context: str, question: HowWas) -> list[str]:
    """How a thing looked in the month of a question, by the dates of the facts."""
    remarks = [fact for month, _, fact in dated(context) if month == question.month and isinstance(fact, Remark)]
    return [how for fact in remarks if fact.thing == question.thing for how in looks(fact)]


def _concerned(errand: str | None, facts: Sequence[Any]) -> list[str]:
    """The things that bear on an errand, by common sense and by what the facts say they do not work without."""
    things = [thing for slot in ERRANDS.get(errand or "", ()) for thing in slot]
    for thing in things:
        things += [fact.other for fact in facts if isinstance(fact, Link) and fact.thing == thing]
    return things


def _records(prompt: Prompt, name: str) -> list[dict[str, Any]]:
    """The records of a list among the inputs; none where it is no such list."""
    value = parsed(prompt.inputs.get(name, ""))
    value = value if isinstance(value, list) else []
    return [json.loads(each) if isinstance(each, str) else each for each in value]


JOBS: Mapping[frozenset[str], Job] = {
    frozenset(outputs): job
    for outputs, job in (
        (("facts",), _update),
        (("merged_fact",), _merge),
        (("tree",), _imagine_tree),
        (("steps",), _imagine_chain),
        (("updated_tree",), _refine_tree),
        (("updated_steps",), _refine_chain),
        (("augmented_query",), _rewrite),
        (("prospection_summary",), _summarize),
        (("answer",), _answer),
        (("reasoning", "answer"), _answer),
    )
}

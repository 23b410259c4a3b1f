"""RGMem's jobs in its world: what each of its prompts asks, done by reading the sentences of `grammar.rgmem`.

    dialogue ── synthesize ──> fact, conclusions        fragment ── extract, label ──> paths, labels
    evidence ── infer ──> a course, a trait           ── abstract, flow ──> laws, conditions, odd ones
    question ── plan ──> keywords with layers           context ── answer ──> what it says

One rule of reading decides everything that changes (`swayed`): new evidence alone speaks of the present, and what was
understood before is changed only by new evidence that speaks nearly alike, three of four at least. So an operator that
sees single signals takes noise for a turn, and one that never runs sees nothing turn. An answer is what is stated; only
where nothing is stated of the matter is it what most of the signals in the context say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...grammar.rgmem import (
    Course,
    Kind,
    Law,
    Minded,
    Odd,
    Question,
    Signal,
    Step,
    Trait,
    concept_of,
    leaning,
    listed,
    place,
    read_courses,
    read_gifts,
    read_laws,
    read_minded,
    read_odds,
    read_provisos,
    read_purchases,
    read_question,
    read_signals,
    read_traits,
    say_course,
    say_gift,
    say_law,
    say_minded,
    say_odd,
    say_proviso,
    say_purchase,
    say_signal,
    say_trait,
)
from ..offline.prompt import Prompt, parsed
from .engine import UNKNOWN, Job

TURNING = 0.75
"""The share of new evidence that has to speak against what was understood before."""
_TURN = re.compile(r"^\W*\[(D\d+:\d+)\].*?: (.*)$", re.M)
_DAY = re.compile(r"\((\d[^()]*)\)")


def swayed(before: bool | None, signs: Sequence[bool]) -> bool | None:
    """Which way it leans after new evidence.

    Args:
        before: Which way it leaned; None if that is not known.
        signs: Which way the new evidence leans, oldest first; of an even split the newest counts.
    """
    if not signs:
        return before
    ups = sum(signs)
    if before is None:
        return signs[-1] if 2 * ups == len(signs) else 2 * ups > len(signs)
    against = len(signs) - ups if before else ups
    return not before if against >= TURNING * len(signs) else before


def _synthesize(prompt: Prompt) -> Mapping[str, Any]:
    said, conclusions = list[str](), list[dict[str, Any]]()
    for id, text in _TURN.findall(prompt.inputs.get("dialogue", "")):
        high = [*map(say_signal, read_signals(text)), *map(say_proviso, read_provisos(text))]
        base = [say_purchase(one) for one in read_purchases(text)]
        said += [*high, *base, *map(say_gift, read_gifts(text))]
        for relevance, texts in (("high", high), ("base", base)):
            conclusions += [{"text": text, "relevance": relevance, "turn_ids": [id]} for text in texts]
    return {"fact": " ".join(said), "conclusions": conclusions}


def _extract(prompt: Prompt) -> Mapping[str, Any]:
    """Others' affairs and what was bought at a market are left out: nothing else of the user hangs on them."""
    text = prompt.inputs.get("fragment", "")
    things = dict.fromkeys(one.thing for one in (*read_signals(text), *read_provisos(text)))
    places = [found for found in map(place, things) if found]
    return {"entity_paths": [{"base": p.base, "concepts": [p.concept], "events": list(p.events)} for p in places]}


def _label(prompt: Prompt) -> Mapping[str, Any]:
    text, segments = prompt.inputs.get("fragment", ""), parsed(prompt.inputs.get("segments", "[]"))
    told = {one.thing: say_signal(one) for one in read_signals(text)}
    told |= {one.thing: f"Takes {_lower(say_proviso(one))}" for one in read_provisos(text)}
    labels: list[dict[str, str]] = []
    for segment in segments if isinstance(segments, list) else []:
        thing = str(segment["path"]).rpartition(" > ")[2]
        if thing in told:
            labels.append({"segment_id": segment["segment_id"], "label": f"user {_lower(told[thing]).rstrip('.')}"})
    return {"edge_labels": labels}


def _infer(prompt: Prompt) -> Mapping[str, Any]:
    """R_K1: how it went with the target so far, and which way it leans now."""
    target, before = prompt.inputs.get("target_entity", ""), prompt.inputs.get("inference_before", "")
    evidence = prompt.inputs.get("new_evidence", "")
    steps = _courses(before).get(target, ())
    steps = _after(steps, [one for one in _signals(evidence) if target in _above(one)])
    provisos = [one for one in read_provisos(f"{before}\n{evidence}") if one.thing == target]
    courses, traits = ([Course(target, steps)], [Trait(target, steps[-1].drawn)]) if steps else ([], [])
    told = [_lines(say_course, courses), _lines(say_proviso, provisos)]
    return {"fact_summary": "\n".join(filter(None, told)), "inferred_traits": _lines(say_trait, traits)}


def _abstract(prompt: Prompt) -> Mapping[str, Any]:
    """R_K2: what comes back across the branches of a concept, and the conditions that hold for one of them."""
    concept, evidence = prompt.inputs.get("core_entity", ""), prompt.inputs.get("new_evidence", "")
    before = _laws(prompt.inputs.get("general_before", "")).get(concept)
    inferred = [trait.drawn for trait in read_traits(evidence)]
    raw = [one.drawn for one in _signals(evidence) if concept in _above(one)]
    law = Law(concept, swayed(before, [*inferred, *raw]))
    minded = read_minded(prompt.inputs.get("specific_before", ""))
    provisos = ((one.terms, place(one.thing)) for one in read_provisos(evidence))
    minded += [Minded(concept, terms) for terms, where in provisos if where and where.concept == concept]
    return {"general_facts": say_law(law), "specific_facts": _lines(say_minded, minded)}


def _flow(prompt: Prompt) -> Mapping[str, Any]:
    """R_K3: what most of the concepts below have in common, and which of them goes against it."""
    parent, parts = prompt.inputs.get("core_entity", ""), parsed(prompt.inputs.get("sub_summaries", "[]"))
    leans: dict[str, bool | None] = {}
    for part in parts if isinstance(parts, list) else []:
        laws = _laws(f"{part['common']} {part.get('particular', '')}")
        if part["name"] in laws:
            leans[part["name"]] = laws[part["name"]]
    known = [drawn for drawn in leans.values() if drawn is not None]
    most = None if 2 * sum(known) == len(known) else 2 * sum(known) > len(known)
    odd = [name for name, drawn in leans.items() if most is not None and drawn is (not most)]
    traits = [Trait(name, drawn) for name, drawn in leans.items() if drawn is not None]
    return {
        "macro_law": say_law(Law(parent, most)),
        "core_traits": _lines(say_trait, traits),
        "restrictions": _lines(say_odd, [Odd(parent, name) for name in odd]),
    }


def _rewrite(prompt: Prompt) -> Mapping[str, Any]:
    """The flat summary: everything that is known of each thing under the concept, and nothing beyond it."""
    concept, evidence = prompt.inputs.get("concept", ""), prompt.inputs.get("new_evidence", "")
    before = prompt.inputs.get("summary_before", "")
    courses = _courses(before)
    signals = [one for one in _signals(evidence) if concept in _above(one)]
    for name in dict.fromkeys(_branch(one) for one in signals):
        courses[name] = _after(courses.get(name, ()), [one for one in signals if name == _branch(one)])
    minded = [*read_provisos(before), *read_provisos(evidence)]
    kept = [one for one in minded if (where := place(one.thing)) and where.concept == concept]
    lines = [_lines(say_course, [Course(*pair) for pair in courses.items()]), _lines(say_proviso, kept)]
    return {"concept_summary": "\n".join(filter(None, lines))}


def _plan(prompt: Prompt) -> Mapping[str, Any] | None:
    """An overview is in summaries, how things hang together in inferences, what happened in the history.

    Particulars are looked for in texts alone.
    """
    question = read_question(prompt.inputs.get("question", ""))
    if question is None:
        return None
    subjects = question.subjects
    if question.kind in ("purchases", "gifts"):
        return {"keywords": [_keyword(name) for name in subjects]}
    if question.kind in ("latest", "course", "reason"):
        wider = [concept for concept in map(concept_of, subjects) if concept]
        found = [_keyword(name, "inference") for name in subjects], [_keyword(name, "summary") for name in wider]
        return {"keywords": [*found[0], *found[1]]}
    if question.kind == "lately":
        return {"keywords": [_keyword(name, "history") for name in subjects]}
    return {"keywords": [_keyword(name, "summary") for name in subjects]}


def _answer(prompt: Prompt) -> Mapping[str, Any] | None:
    question = read_question(prompt.inputs.get("question", ""))
    if question is None:
        return None
    return {"answer": _ANSWERS[question.kind](question, prompt.inputs.get("context", "")) or UNKNOWN}


def _purchases(question: Question, context: str) -> str:
    return listed(one.good for one in read_purchases(context))


def _gifts(question: Question, context: str) -> str:
    return listed(one.present for one in read_gifts(context) if one.name in question.subjects)


def _latest(question: Question, context: str) -> str:
    subject = question.subjects[0]
    stated = [trait.drawn for trait in read_traits(context) if trait.subject == subject]
    steps = _courses(context).get(subject, ())
    now = stated[-1] if stated else steps[-1].drawn if steps else _shown(subject, context)
    return "" if now is None else leaning([now])


def _course(question: Question, context: str) -> str:
    return leaning(step.drawn for step in _courses(context).get(question.subjects[0], ()))


def _reason(question: Question, context: str) -> str:
    steps = _courses(context).get(question.subjects[0], ())
    return steps[-1].reason if steps else ""


def _leans(question: Question, context: str) -> str:
    laws = _laws(context)
    leans = [laws[name] if name in laws else _shown(name, context) for name in question.subjects]
    return "" if None in leans else leaning(leans)


def _terms(question: Question, context: str) -> str:
    concept = question.subjects[0]
    stated = [one.terms for one in read_minded(context) if one.concept == concept]
    raw = [one.terms for one in read_provisos(context) if (where := place(one.thing)) and where.concept == concept]
    return next(iter([*stated, *raw]), "")


def _lately(question: Question, context: str) -> str:
    """The last episode but one by the dates of the lines."""
    told = [
        (datetime.strptime(day[1].partition(",")[0], "%d %B %Y"), one.thing)
        for line in context.splitlines()
        if (day := _DAY.search(line))
        for one in read_signals(line)
        if question.subjects[0] in _above(one)
    ]
    dated = sorted(set(told))
    return dated[-2][1] if len(dated) > 1 else ""


def _odd(question: Question, context: str) -> str:
    return listed(one.part for one in read_odds(context) if one.concept in question.subjects)


_ANSWERS: Mapping[Kind, Callable[[Question, str], str]] = {
    "purchases": _purchases,
    "gifts": _gifts,
    "latest": _latest,
    "course": _course,
    "reason": _reason,
    "laws": _leans,
    "terms": _terms,
    "scenario": _leans,
    "odd": _odd,
    "lately": _lately,
}

JOBS: Mapping[frozenset[str], Job] = {
    frozenset({"fact", "conclusions"}): _synthesize,
    frozenset({"entity_paths"}): _extract,
    frozenset({"edge_labels"}): _label,
    frozenset({"fact_summary", "inferred_traits"}): _infer,
    frozenset({"general_facts", "specific_facts"}): _abstract,
    frozenset({"macro_law", "core_traits", "restrictions"}): _flow,
    frozenset({"concept_summary"}): _rewrite,
    frozenset({"keywords"}): _plan,
    frozenset({"answer"}): _answer,
}


def _signals(text: str) -> list[Signal]:
    """The signals of lines with dates, each once: the same episode is told by a conclusion and by labels."""
    found: dict[tuple[str, str], Signal] = {}
    for line in text.splitlines():
        day = _DAY.search(line)
        for signal in read_signals(line):
            found.setdefault((day[1] if day else "", signal.thing), signal)
    return list(found.values())


def _above(signal: Signal) -> tuple[str, ...]:
    """The thing of a signal and everything it is filed under."""
    where = place(signal.thing)
    return (signal.thing, *where.events, where.concept, where.base) if where else (signal.thing,)


def _branch(signal: Signal) -> str:
    """What a signal is about, right below its concept."""
    where = place(signal.thing)
    return where.events[0] if where else signal.thing


def _after(steps: tuple[Step, ...], signals: Sequence[Signal]) -> tuple[Step, ...]:
    before = steps[-1].drawn if steps else None
    now = swayed(before, [signal.drawn for signal in signals])
    if now is None or now == before:
        return steps
    reasons = [signal.reason for signal in signals if signal.drawn == now]
    return (*steps, Step(now, reasons[-1]))


def _shown(subject: str, context: str) -> bool | None:
    """What most of the signals in a context say of an activity or a concept, or most of the courses of its things."""
    signals = [one.drawn for one in _signals(context) if subject in _above(one)]
    courses = [
        steps[-1].drawn
        for thing, steps in _courses(context).items()
        if (where := place(thing)) and subject in (*where.events, where.concept, where.base)
    ]
    return swayed(None, signals or courses)


def _courses(text: str) -> dict[str, tuple[Step, ...]]:
    return {course.subject: course.steps for course in read_courses(text)}


def _laws(text: str) -> dict[str, bool | None]:
    return {law.concept: law.drawn for law in read_laws(text)}


def _lines(say: Callable[[Any], str], things: Iterable[Any]) -> str:
    return "\n".join(dict.fromkeys(map(say, things)))


def _keyword(name: str, *layers: str) -> Mapping[str, Any]:
    return {"name": name, "retrieve": list(layers)}


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]

"""H2Memory's jobs in its world: what each of its prompts asks, done by reading the sentences of `grammar.h2memory`.

    logs ── link ──> what goes back to what ── describe ──> a situation ── update ──> what the user is like
    dialogue ── outline ──> needs, proposals, preferences ── refine ──> needs with what lies behind them
    needs, preferences ── abstract, adjust ──> their theme, the kind of thing that suits
    context ── answer ──> what it says

A situation tells no more than logs that are shown as linked; a need is refined by the situation of its own matter, and
by what the user is like in that aspect. A principle is the kind that most preferences are of; it is revised where all
new ones are of another kind. An answer is what is stated; only of what suits on the whole, where no principle says it,
is it the kind of most topics in the context.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...grammar.h2memory import (
    LASTING,
    Affair,
    Ask,
    Aspect,
    Need,
    Preference,
    Principle,
    Question,
    Trait,
    aspect_of,
    kind_of,
    read_affairs,
    read_askings,
    read_delays,
    read_needs,
    read_preferences,
    read_principles,
    read_proposals,
    read_question,
    read_traits,
    read_troubles,
    read_verdicts,
    say_affair,
    say_asking,
    say_need,
    say_preference,
    say_principle,
    say_traits,
    say_trouble,
)
from ..offline.prompt import Prompt
from .engine import UNKNOWN, Job

_LOG = re.compile(r"^\W*\[([\w:]+)\][^\n]*", re.M)
_TYPE = re.compile(r"Type of need: ([^|\n]+?)(?: \||$)", re.M)


def _link(prompt: Prompt) -> Mapping[str, Any]:
    """A delay is caused by the last trouble of its place, a question about a matter follows its last delay."""
    first, last = prompt.inputs.get("first_log", ""), prompt.inputs.get("last_log", "")
    trouble, delay = dict[str, str](), dict[str, str]()
    links: list[dict[str, Any]] = []
    inside = False
    for match in _LOG.finditer(prompt.inputs.get("device_logs", "")):
        id, line = match[1], match[0]
        inside = inside or id == first
        caused = [trouble[one.place] for one in read_delays(line) if one.place in trouble]
        follows = [delay[one.matter] for one in read_askings(line) if one.matter in delay]
        if inside:
            links.append({"log_id": id, "caused_by": caused, "follows": follows})
        trouble |= {one.place: id for one in read_troubles(line)}
        delay |= {one.matter: id for one in read_delays(line)}
        if id == last:
            break
    return {"links": links}


def _describe(prompt: Prompt) -> Mapping[str, Any]:
    logs = prompt.inputs.get("linked_logs", "")
    states = {one.place: one.state for one in read_troubles(logs)}
    people = {one.matter: one.person for one in read_askings(logs)}
    delays = read_delays(logs)
    affairs = [Affair(d.matter, d.place, states.get(d.place, ""), people.get(d.matter, "")) for d in delays]
    traits = read_traits(logs)
    told = [*map(say_affair, affairs), *(f"The user {say_traits([trait])}." for trait in traits)]
    alone = [say_trouble(one) for one in read_troubles(logs)], [say_asking(one) for one in read_askings(logs)]
    matters = [one.matter for one in (*delays, *read_askings(logs))]
    aspects = [*(trait.aspect for trait in traits), *filter(None, map(aspect_of, matters))]
    text = " ".join(told or [*alone[0], *alone[1]])
    return {"found_situation": {"situation": text, "aspects": list(dict.fromkeys(aspects))}}


def _update(prompt: Prompt) -> Mapping[str, Any]:
    """What the user is like: what lasts is kept beside what is new. Affairs are too particular."""
    before = read_traits(prompt.inputs.get("background_before", ""))
    changed: dict[Aspect, list[Trait]] = {}
    for trait in read_traits(prompt.inputs.get("situations_since", "")):
        known = changed.get(trait.aspect, [one for one in before if one.aspect == trait.aspect])
        if trait not in known:
            changed[trait.aspect] = [*known, trait] if trait.aspect in LASTING else [trait]
    content = [{"aspect": aspect, "summary": say_traits(traits)} for aspect, traits in changed.items()]
    return {"updating_aspects": list(changed), "updating_content": content}


def _outline(prompt: Prompt) -> Mapping[str, Any]:
    """A topic begins where a need is said."""
    topics: list[list[tuple[str, str]]] = []
    for match in _LOG.finditer(prompt.inputs.get("conversation", "")):
        if read_needs(match[0]):
            topics.append([])
        if topics:
            topics[-1].append((match[1], match[0]))
    return {"outlines": [_outlined(lines) for lines in topics]}


def _outlined(lines: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    text = "\n".join(line for _, line in lines)
    verdicts = {one.thing: one.right for one in read_verdicts(text)}
    kinds = {True: "pos", False: "neg", None: "others"}
    proposals = [(one.thing, kinds[verdicts.get(one.thing)]) for one in read_proposals(text)]
    right = [thing for thing, verdict in verdicts.items() if verdict]
    wrong = [thing for thing, verdict in verdicts.items() if not verdict]
    return {
        "turn_span": [lines[0][0], lines[-1][0]],
        "requirement": say_need(read_needs(text)[0]),
        "solution_list": [{"solution": f"a {thing}", "feedback_type": kind} for thing, kind in proposals],
        "preference": say_preference(Preference(right[0], wrong[0])) if right and wrong else "",
    }


def _refine(prompt: Prompt) -> Mapping[str, Any]:
    stated = prompt.inputs.get("stated_need", "")
    needs = read_needs(stated)
    if not needs:
        return {"detailed_need": stated}
    need, aspect = needs[0], aspect_of(needs[0].matter)
    affairs = [one for one in read_affairs(prompt.inputs.get("recent_situations", "")) if one.matter == need.matter]
    place, state = (affairs[0].place, affairs[0].state) if affairs else ("", "")
    traits = [one for one in read_traits(prompt.inputs.get("overall_background", "")) if one.aspect == aspect]
    return {"detailed_need": say_need(Need(need.theme, need.matter, place, state, tuple(traits)))}


def _need_type(prompt: Prompt) -> Mapping[str, Any]:
    return {"general_need": _most(need.theme for need in read_needs(prompt.inputs.get("specific_needs", "")))}


def _principle(prompt: Prompt) -> Mapping[str, Any]:
    kind = _most(_kinds(prompt.inputs.get("preference_experiences", "")))
    return {"general_preference": say_principle(Principle(kind)) if kind else ""}


def _adjust_type(prompt: Prompt) -> Mapping[str, Any]:
    """A type that names a theme takes in further needs of it; one that names none is set right."""
    themes = [need.theme for need in read_needs(prompt.inputs.get("needs_since", ""))]
    fits = any(theme in prompt.inputs.get("type_so_far", "") for theme in themes)
    return {"type_verdict": {"adjust": False, "revised": ""} if fits or not themes else _revised(_most(themes))}


def _adjust_principle(prompt: Prompt) -> Mapping[str, Any]:
    before = [one.kind for one in read_principles(prompt.inputs.get("principle_so_far", ""))]
    kinds = _kinds(prompt.inputs.get("experiences_since", ""))
    if not kinds or any(kind in before for kind in kinds):
        return {"principle_verdict": {"adjust": False, "revised": ""}}
    return {"principle_verdict": _revised(say_principle(Principle(_most(kinds))))}


def _summarize(prompt: Prompt) -> Mapping[str, Any] | None:
    needs = read_needs(prompt.inputs.get("dialogue_so_far", ""))
    return {"current_need": say_need(needs[-1])} if needs else None


def _answer(prompt: Prompt) -> Mapping[str, Any] | None:
    question = read_question(prompt.inputs.get("question", ""))
    if question is None:
        return None
    return {"answer": _ANSWERS[question.ask](question, prompt.inputs.get("context", "")) or UNKNOWN}


def _state(question: Question, context: str) -> str:
    return _first(one.state for one in read_affairs(context) if one.matter == question.subjects[0])


def _person(question: Question, context: str) -> str:
    return _first(one.person for one in read_affairs(context) if one.place == question.subjects[0])


def _traits(question: Question, context: str) -> str:
    aspect = aspect_of(question.subjects[0])
    lines = [line for line in context.splitlines() if f"[{aspect}] {aspect}:" in line]
    return _first(say_traits(read_traits(line)) for line in lines)


def _rejected(question: Question, context: str) -> str:
    theme, matter = question.subjects
    topics = _topics(context)
    return _first(found.rejected for need, found in topics if (need.theme, need.matter) == (theme, matter))


def _behind(question: Question, context: str) -> str:
    theme, state = question.subjects
    return _first(found.liked for need, found in _topics(context) if (need.theme, need.state) == (theme, state))


def _trade(question: Question, context: str) -> str:
    theme, traits = question.subjects
    told = [(need, found) for need, found in _topics(context) if need.theme == theme]
    return _first(found.liked for need, found in told if say_traits(need.traits) == traits)


def _kind(question: Question, context: str) -> str:
    theme = question.subjects[0]
    lines = [line for line in context.splitlines() if any(theme == kind for kind in _TYPE.findall(line))]
    stated = [one.kind for line in lines for one in read_principles(line)]
    return _most(stated or [kind_of(found.liked) for need, found in _topics(context) if need.theme == theme])


_ANSWERS: Mapping[Ask, Callable[[Question, str], str]] = {
    "state": _state,
    "person": _person,
    "traits": _traits,
    "rejected": _rejected,
    "behind": _behind,
    "trade": _trade,
    "kind": _kind,
    "lately": _kind,
}

JOBS: Mapping[frozenset[str], Job] = {
    frozenset({"links"}): _link,
    frozenset({"found_situation"}): _describe,
    frozenset({"updating_aspects", "updating_content"}): _update,
    frozenset({"outlines"}): _outline,
    frozenset({"detailed_need"}): _refine,
    frozenset({"general_need"}): _need_type,
    frozenset({"general_preference"}): _principle,
    frozenset({"type_verdict"}): _adjust_type,
    frozenset({"principle_verdict"}): _adjust_principle,
    frozenset({"current_need"}): _summarize,
    frozenset({"answer"}): _answer,
}


def _topics(context: str) -> list[tuple[Need, Preference]]:
    """The topics of a context with what was liked."""
    lines = [(read_needs(line), read_preferences(line)) for line in context.splitlines()]
    return [(needs[0], found[0]) for needs, found in lines if needs and found]


def _kinds(text: str) -> list[str]:
    return [kind for kind in (kind_of(one.liked) for one in read_preferences(text)) if kind]


def _most(things: Iterable[str]) -> str:
    """The one that comes most often, of several the first; "" without any."""
    counted = Counter(thing for thing in things if thing).most_common(1)
    return counted[0][0] if counted else ""


def _first(things: Iterable[str]) -> str:
    return next(filter(None, things), "")


def _revised(text: str) -> Mapping[str, Any]:
    return {"adjust": True, "revised": text}

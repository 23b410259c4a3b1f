"""What PraMem's prompts ask, done in PraMem's world by its grammar, from what stands in the prompt alone.

The predictor that practises here leans, as the paper says of models: where experience says nothing, it goes by the
records of the same category among the newest ten, and else by the crowd. It finds no rule in a long list of records by
itself; that is what practice is for. Claims are judged by the records that they bear on: a claim holds where three in
four of them bear it out, and is contradicted where no more than one in four does.

Of a wrong prediction, reflection blames every aspect of the clip in turn, since it cannot know which was the cause:
author, part of the day, category; and its own leaning on the crowd, where its thinking tells of that. Of a right one it
learns only where earlier records show that the crowd was no ground for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from ...grammar.pramem import (
    LIKES,
    SCENE,
    SHARES,
    Aspect,
    Basis,
    Claim,
    Clip,
    Deed,
    Turned,
    read_basis,
    read_claims,
    read_clip,
    read_deeds,
    read_did,
    read_turned,
    say_basis,
    say_claim,
    say_clip,
    say_did,
    say_turned,
)
from ..offline.prompt import Prompt, parsed

Outputs = Mapping[str, Any] | None
NEWEST = 10
"""So many of the newest records are minded without experience."""
BORNE_OUT, CONTRADICTED = 0.75, 0.25
"""The share of records from which on a claim holds, and up to which it does not."""
NAMES = ("Ada Birk", "Bo Crane", "Cy Dunn", "Di Egan", "Ed Frost", "Flo Gray", "Gus Hale", "Ida Joss")
CATEGORIES = ("falconry", "origami", "welding", "heraldry", "bonsai", "fencing", "glassblowing", "topiary")
KEPT = 3
"""Every third virtual scene is of the real one's category; the others replace it too."""


@dataclass(frozen=True)
class Guess:
    """A prediction, and what it goes by."""

    reacts: bool
    basis: Basis
    used: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Entry:
    """An entry of the experience that a prompt shows."""

    id: str
    claim: Claim


def guess(clip: Clip, patterns: Iterable[Claim], alerts: Iterable[Claim], deeds: Sequence[Deed]) -> Guess:
    """What a user does with a clip: most patterns that bear on it, else alerts, newest records, the crowd."""
    used = tuple(claim for claim in patterns if claim.bears_on(clip))
    reacting = sum(claim.foretells(clip) for claim in used)
    if 2 * reacting != len(used):
        return Guess(2 * reacting > len(used), "experience", used)
    warned = tuple(claim for claim in alerts if claim.bears_on(clip))
    if warned:
        return Guess(warned[0].foretells(clip), "experience", warned)
    near = [deed for deed in deeds[-NEWEST:] if deed.clip.category == clip.category]
    return Guess(near[-1].reacted, "records") if near else Guess(clip.popular, "crowd")


def _tried(prompt: Prompt) -> Outputs:
    made = _trial(prompt)
    if made is None:
        return None
    useful = [say_claim(claim) for claim in made.used]
    alerts = [text for text in useful if text in prompt.inputs.get("alerts", "")]
    patterns = [text for text in useful if text not in alerts]
    named = {"useful_patterns": patterns, "useful_alerts": alerts, "reasoning": say_basis(made.basis)}
    return {**named, "predicted_action": say_did(made.reacts)}


def _tried_at_once(prompt: Prompt) -> Outputs:
    made = _trial(prompt)
    return made and {"predicted_action": say_did(made.reacts)}


def _trial(prompt: Prompt) -> Guess | None:
    clip, claims, deeds = read_clip(prompt.inputs.get("situation", "")), _claims(prompt), _deeds(prompt)
    return clip and guess(clip, claims("patterns"), claims("alerts"), deeds)


def _predicted(prompt: Prompt) -> Outputs:
    clip, claims = read_clip(prompt.inputs.get("question", "")), _claims(prompt)
    if clip is None:
        return None
    made = guess(clip, claims("patterns"), claims("alerts"), _deeds(prompt, "records"))
    return {"reasoning": say_basis(made.basis), "answer": _answer(prompt, made.reacts)}


def _answered(prompt: Prompt) -> Outputs:
    """Without experience: what most recalled records of the category tell, else as with experience."""
    clip = read_clip(prompt.inputs.get("question", ""))
    if clip is None:
        return None
    told = [deed.reacted for deed in _deeds(prompt, "context") if deed.clip.category == clip.category]
    if 2 * sum(told) != len(told):
        return {"answer": _answer(prompt, 2 * sum(told) > len(told))}
    made = guess(clip, _claims(prompt)("context"), (), _deeds(prompt, "records"))
    return {"answer": _answer(prompt, made.reacts)}


def _answer(prompt: Prompt, reacts: bool) -> str:
    return ("No", "Yes")[reacts] if "Yes" in prompt.inputs.get("options", "") else say_did(reacts)


def _reflected(prompt: Prompt) -> Outputs:
    made, deed = _draft(prompt, learn_from_right=True), _practised(prompt)
    if made is None or deed is None:
        return None
    right = _right(prompt, deed)
    lucky = right and made and read_basis(prompt.inputs.get("thinking", "")) == "crowd"
    verdict = "right by accident" if lucky else "right" if right else "wrong"
    asked = _asked(prompt)
    return {"tasks": [{"task": task, "verdict": verdict} for task in asked], "proposals": made * len(asked)}


def _proposed(prompt: Prompt) -> Outputs:
    made = _draft(prompt, learn_from_right=False)
    return None if made is None else {"proposals": made * len(_asked(prompt))}


def _asked(prompt: Prompt) -> list[str]:
    """What was predicted: each thing is reflected on, so that a view may be proposed for each of them."""
    told = prompt.inputs.get("practised_record", "")
    return [question for question in (LIKES, SHARES) if question in told] or [""]


def _practised(prompt: Prompt) -> Deed | None:
    return next(iter(read_deeds(prompt.inputs.get("practised_record", ""))), None)


def _right(prompt: Prompt, deed: Deed) -> bool:
    return read_did(prompt.inputs.get("predicted_action", "")) == deed.reacted


def _draft(prompt: Prompt, learn_from_right: bool) -> list[dict[str, Any]] | None:
    """The proposals for one task; None where the record is not of this world."""
    deed, past = _practised(prompt), _deeds(prompt)
    if deed is None:
        return None
    patterns, alerts = _entries(prompt, "pattern_experiences"), _entries(prompt, "alert_experiences")
    if _right(prompt, deed):
        shown = [aspect for aspect in get_args(Aspect) if learn_from_right and _shown(deed, aspect, past)]
        return [_added(deed, _claim(deed, aspect)) for aspect in shown if not _about(patterns, _claim(deed, aspect))]
    made = [_revised(deed, aspect, patterns) for aspect in get_args(Aspect)]
    warning = Claim("against the crowd", "category", deed.clip.category)
    known = _about(alerts, warning)
    if known:
        made.append(_change(deed, "remove", replace(warning, stance="with the crowd"), known.id))
    elif read_basis(prompt.inputs.get("thinking", "")) == "crowd":
        made.append(_change(deed, "add alert", warning))
    return [proposal for proposal in made if proposal]


def _shown(deed: Deed, aspect: Aspect, past: Sequence[Deed]) -> bool:
    """Whether records of the same aspect all show what this one does, one of them against the crowd."""
    same = [each for each in past if each.clip.of(aspect) == deed.clip.of(aspect)]
    agreed = bool(same) and all(each.reacted == deed.reacted for each in same)
    return agreed and any(each.reacted != each.clip.popular for each in same)


def _revised(deed: Deed, aspect: Aspect, patterns: Sequence[Entry]) -> dict[str, Any] | None:
    """What a wrong prediction says of one aspect: a new pattern, or a change of the one that there is."""
    claim = _claim(deed, aspect)
    known = _about(patterns, claim)
    if known is None:
        return _added(deed, claim)
    if known.claim.stance == claim.stance:
        return None
    if deed.reacted == deed.clip.popular:
        return _change(deed, "remove", replace(claim, stance="with the crowd"), known.id)
    return _change(deed, "modify", claim, known.id)


def _claim(deed: Deed, aspect: Aspect) -> Claim:
    return Claim("reacts" if deed.reacted else "passes", aspect, deed.clip.of(aspect))


def _added(deed: Deed, claim: Claim) -> dict[str, Any]:
    return _change(deed, "add pattern", claim)


def _change(deed: Deed, action: str, claim: Claim, target: str | None = None) -> dict[str, Any]:
    said = {"action": action, "experience_id": target, "content": say_claim(claim)}
    return {"trigger": SCENE, **said, "record_ids": [deed.id]}


def _planned(prompt: Prompt) -> Outputs:
    turns: Sequence[Turned] = get_args(Turned)
    if not _deeds(prompt):
        return None
    return {"plans": [{"direction": say_turned(turned)} for turned in turns[: _number(prompt, "count")]]}


def _turned(deeds: Sequence[Deed], turned: Turned) -> list[Deed]:
    reacts = {"all passed over": False, "all liked": True}
    return [replace(deed, reacted=reacts.get(turned, not deed.reacted)) for deed in deeds]


def _rewritten(prompt: Prompt) -> Outputs:
    turned, deeds = read_turned(prompt.inputs.get("direction", "")), _deeds(prompt)
    if turned is None:
        return None
    pairs = zip(deeds, _turned(deeds, turned), strict=True)
    changed = [new for old, new in pairs if new != old]
    return {"rewritten": [{"record": deed.id, "action": say_did(deed.reacted)} for deed in changed]}


def _grounded(prompt: Prompt) -> Outputs:
    turned, deeds = read_turned(prompt.inputs.get("direction", "")), _deeds(prompt)
    if turned is None:
        return None
    after = _turned(deeds, turned)

    def sensitive(claim: Claim) -> bool:
        return _borne_out(claim, deeds) >= BORNE_OUT and _borne_out(claim, after) <= CONTRADICTED

    return {"groundedness": [{"proposal": id, "sensitive": sensitive(claim)} for id, claim in _reviewed(prompt)]}


def _holding(prompt: Prompt) -> Outputs:
    deeds = _deeds(prompt, "given_records")

    def overturned(claim: Claim) -> bool:
        return 0 <= _borne_out(claim, deeds) <= CONTRADICTED

    return {"holding": [{"proposal": id, "overturned": overturned(claim)} for id, claim in _reviewed(prompt)]}


def _borne_out(claim: Claim, deeds: Sequence[Deed]) -> float:
    """The share of records that bear a claim out, of those that it bears on; -1 where there are none."""
    bearing = [claim.foretells(deed.clip) == deed.reacted for deed in deeds if claim.bears_on(deed.clip)]
    return sum(bearing) / len(bearing) if bearing else -1.0


def _staged(prompt: Prompt) -> Outputs:
    told = prompt.inputs.get("situation", "")
    clip = read_clip(told)
    if clip is None:
        return None
    said = say_clip(clip)
    others = [_other(clip, n) for n in range(_number(prompt, "count"))]
    return {"virtual_scenes": [told.replace(said, say_clip(other)) for other in others]}


def _other(clip: Clip, n: int) -> Clip:
    """A clip of the same type under another author's name, and of another category but for every third."""
    author = f"{NAMES[n % len(NAMES)]}{'' if n < len(NAMES) else f' {n}'}"
    kept = n % KEPT == KEPT - 1
    return replace(clip, author=author, category=clip.category if kept else CATEGORIES[n % len(CATEGORIES)])


def _general(prompt: Prompt) -> Outputs:
    scenes = _scenes(prompt)

    def general(claim: Claim) -> bool:
        return not claim.bears_on(scenes["A"]) or sum(map(claim.bears_on, scenes.values())) > 1

    if "A" not in scenes:
        return None
    return {"generality": [{"proposal": id, "general": general(claim)} for id, claim in _reviewed(prompt)]}


def _picked(prompt: Prompt) -> Outputs:
    scenes = _scenes(prompt)

    def letter(claim: Claim) -> str | None:
        fitting = [letter for letter, clip in scenes.items() if claim.bears_on(clip)]
        return fitting[0] if len(fitting) == 1 else None

    return {"picks": [{"proposal": id, "letter": letter(claim)} for id, claim in _reviewed(prompt)]} if scenes else None


def _scenes(prompt: Prompt) -> dict[str, Clip]:
    lines = (line.partition(". ") for line in prompt.inputs.get("candidates", "").splitlines())
    return {letter: clip for letter, _, scene in lines if (clip := read_clip(scene))}


def _reviewed(prompt: Prompt) -> list[tuple[str, Claim]]:
    rows = _rows(prompt, "proposals")
    return [(row["proposal"], claims[0]) for row in rows if (claims := read_claims(row["content"]))]


def _adjusted(prompt: Prompt) -> Outputs:
    """Changes by views: those with the most support first, one of them for what an entry is about."""
    pool = [(row, claims[0]) for row in _rows(prompt, "proposal_pool") if (claims := read_claims(row["content"]))]
    if not pool:
        return None
    distinct, needed = parsed(prompt.inputs.get("distinct_records", "")) is True, _number(prompt, "needed")
    views: dict[Claim, list[Mapping[str, Any]]] = defaultdict(list)
    for row, claim in pool:
        views[claim].append(row)

    def support(claim: Claim) -> int:
        return len({row["record"] for row in views[claim]}) if distinct else len(views[claim])

    changes: dict[Any, dict[str, Any]] = {}
    for claim in sorted(views, key=support, reverse=True):
        about = (claim.stance == "against the crowd", claim.subject)
        if support(claim) >= needed and about not in changes and (change := _adopted(prompt, claim)):
            changes[about] = {**change, "proposal_ids": [row["proposal"] for row in views[claim]]}
    return {"decisions": f"{len(changes)} views have enough support.", "changes": list(changes.values())}


def _adopted(prompt: Prompt, claim: Claim) -> dict[str, Any] | None:
    """The change that a view with enough support asks for; None where the experience says so already."""
    pattern = _about(_entries(prompt, "pattern_experiences"), claim)
    alert = _about(_entries(prompt, "alert_experiences"), claim)
    text = say_claim(claim)
    if claim.stance == "with the crowd":
        wrong = pattern or alert
        return wrong and {"action": "remove", "experience_id": wrong.id}
    if claim.stance == "against the crowd":
        return None if alert else {"action": "add alert", "text": text}
    if pattern is None:
        return {"action": "add pattern", "text": text}
    same = pattern.claim.stance == claim.stance
    return None if same else {"action": "modify", "experience_id": pattern.id, "text": text}


def _entries(prompt: Prompt, name: str) -> list[Entry]:
    rows = _rows(prompt, name)
    return [Entry(row["experience_id"], claims[0]) for row in rows if (claims := read_claims(row["text"]))]


def _about(entries: Iterable[Entry], claim: Claim) -> Entry | None:
    return next((entry for entry in entries if entry.claim.subject == claim.subject), None)


def _rows(prompt: Prompt, name: str) -> list[Mapping[str, Any]]:
    found = parsed(prompt.inputs.get(name, ""))
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _claims(prompt: Prompt) -> Callable[[str], list[Claim]]:
    return lambda name: read_claims(prompt.inputs.get(name, ""))


def _deeds(prompt: Prompt, name: str = "recent_records") -> list[Deed]:
    return read_deeds(prompt.inputs.get(name, ""))


def _number(prompt: Prompt, name: str) -> int:
    found = parsed(prompt.inputs.get(name, ""))
    return found if isinstance(found, int) else 0


JOBS: Mapping[frozenset[str], Callable[[Prompt], Outputs]] = {
    frozenset(("useful_patterns", "useful_alerts", "reasoning", "predicted_action")): _tried,
    frozenset(("predicted_action",)): _tried_at_once,
    frozenset(("relevant_patterns", "relevant_alerts", "reasoning", "answer")): _predicted,
    frozenset(("answer",)): _answered,
    frozenset(("tasks", "proposals")): _reflected,
    frozenset(("proposals",)): _proposed,
    frozenset(("plans",)): _planned,
    frozenset(("rewritten",)): _rewritten,
    frozenset(("groundedness",)): _grounded,
    frozenset(("holding",)): _holding,
    frozenset(("virtual_scenes",)): _staged,
    frozenset(("generality",)): _general,
    frozenset(("picks",)): _picked,
    frozenset(("decisions", "changes")): _adjusted,
}
"""What each prompt of PraMem, and that of behaviour prediction, asks for."""

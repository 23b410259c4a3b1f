"""Steps 5 and 6-2 of PAL-Set: what a dialogue is about, how it goes, and its words.

    requirement types ──> topics ──> 8 candidates each, without a look at the user ──> 2 liked, 2 disliked
    topics ── drawn ──> what is talked about, and a plan of actions ──> the turns

Drawn as in the released code. Of every topic one or two implicit needs are guessed, with equal chance. In the history
set one, two or three of its four solutions are proposed, with chances .2, .4 and .4; in the query set one or two of the
liked ones, with equal chance. Each proposal is discussed for one turn or not at all, with equal chance.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....signatures.synthesis_palset import (
    ChooseSolutions,
    DraftCandidates,
    DraftChoice,
    DraftTopic,
    ProposeCandidates,
    WriteRequirements,
)
from ....signatures.synthesis_palset_records import DraftTurn, WriteAdviceDialogue
from ...palbench.plans import action_plan
from ..runner import CheckResult, Step, accept_if_valid
from .people import Part, Session, Setting, Topic, blank, length_problems, text_problems, topic_text

REQUIREMENTS = Step("requirements", WriteRequirements)
CANDIDATES = Step("candidates", ProposeCandidates)
CHOICE = Step("liked and disliked", ChooseSolutions)
DIALOGUE = Step("dialogue", WriteAdviceDialogue)
KNOWS: Mapping[str, str] = {
    "history": "The assistant has seen the user's recent experiences. It knows neither the user's background as a "
    "whole nor their preferences.",
    "query": "The assistant knows background, personality, situation and preferences of the user well, and may use "
    "them when it discusses a proposal or responds to feedback.",
}
"""What the assistant knows, by part of the data."""

NEEDS, EVIDENCES, CANDIDATE_COUNT, CHOSEN = 2, (1, 5), 8, 2


def topics(session: Session, setting: Setting) -> list[Topic] | None:
    """The topics of a session's dialogue with their solutions; None if a step was given up."""
    persona = session.persona
    types = [persona.types[id] for id in session.requirement_ids]
    inputs = {
        "profile": persona.profile,
        "situation": session.situation,
        "experience": session.experience,
        "requirement_types": types,
    }
    check = accept_if_valid("topics", topic_problems, types, persona.draft.name)
    drafts: list[DraftTopic] | None = setting.ask(REQUIREMENTS, session.id, inputs, check)
    if drafts is None:
        return None
    keys = [f"topic-{n}" for n in range(1, len(drafts) + 1)]
    shown = {"topics": [f"{key}: {topic_text(draft)}" for key, draft in zip(keys, drafts, strict=True)]}
    candidates = setting.ask(CANDIDATES, session.id, shown, accept_if_valid("candidates", candidate_problems, keys))
    if candidates is None:
        return None
    found: list[Topic] = []
    for id, draft, one in zip(session.requirement_ids, drafts, candidates, strict=True):
        texts = [text.strip() for text in one.solutions]
        topic = _chosen(session, id, draft, texts, len(found) + 1, setting)
        if topic is None:
            return None
        found.append(topic)
    return found


def _chosen(
    session: Session, id: str, draft: DraftTopic, candidates: list[str], number: int, setting: Setting
) -> Topic | None:
    persona, preference = session.persona, session.persona.preferences[id]
    inputs = {
        "profile": persona.profile,
        "personality": persona.personality,
        "situation": session.situation,
        "topic": topic_text(draft),
        "likes": preference.pos,
        "dislikes": preference.neg,
        "candidates": candidates,
    }

    def check(answer: Any) -> CheckResult:
        problems = choice_problems(answer.liked, answer.disliked, candidates, persona.draft.name)
        for one in (*answer.liked, *answer.disliked):
            one.solution = one.solution.strip()
        topic = Topic(draft, candidates, answer.analysis, answer.liked, answer.disliked)
        return CheckResult(None if problems else topic, problems)

    return setting.ask(CHOICE, f"{session.id}/topic-{number}", inputs, check)


def topic_problems(topics: Sequence[DraftTopic], types: Sequence[str], name: str) -> list[str]:
    """What is wrong with the requirements of a dialogue, one topic for each type."""
    asked = [one.requirement_type.strip() for one in topics]
    found = [] if asked == list(types) else [f"requirement types are {asked}; write topics for {list(types)}"]
    for n, one in enumerate(topics, 1):
        where = f"topic-{n}"
        what = f"{where}: the user_query"
        found += [f"{what} is empty"] if blank(one.user_query) else length_problems(what, one.user_query, 1, 2)
        found += text_problems(f"{where}: requirement", one.requirement, 1, name)
        if len(one.implicit_needs) != NEEDS:
            found.append(f"{where}: {len(one.implicit_needs)} implicit needs; give 2")
        for need in one.implicit_needs:
            found += text_problems(f"{where}: need", need.need, 1, name, 1)
            if not EVIDENCES[0] <= len(need.evidences) <= EVIDENCES[1] or any(map(blank, need.evidences)):
                found.append(f"{where}: a need has to have 1 to 5 pieces of evidence, none empty")
    return found


def candidate_problems(candidates: Sequence[DraftCandidates], topics: Sequence[str]) -> list[str]:
    """What is wrong with the candidate solutions of a dialogue's topics."""
    given = [one.topic.strip() for one in candidates]
    found = [] if given == list(topics) else [f"topics are {given}; give solutions for {', '.join(topics)}"]
    for one in candidates:
        texts = [text.strip() for text in one.solutions]
        found += [] if len(texts) == CANDIDATE_COUNT else [f"{one.topic}: {len(texts)} solutions; give 8"]
        for n, text in enumerate(texts, 1):
            what = f"{one.topic}: solution {n}"
            found += [f"{what} is empty"] if blank(text) else length_problems(what, text, 1, 1)
        found += [f"{one.topic}: two solutions are the same"] if len(set(texts)) < len(texts) else []
    return found


def choice_problems(
    liked: Sequence[DraftChoice], disliked: Sequence[DraftChoice], candidates: Sequence[str], name: str
) -> list[str]:
    """What is wrong with the solutions that a user is said to like and dislike."""
    found = []
    for side, chosen in (("liked", liked), ("disliked", disliked)):
        found += [] if len(chosen) == CHOSEN else [f"{len(chosen)} {side} solutions; give 2"]
        for one in chosen:
            if one.solution.strip() not in candidates:
                found.append(f"{side}: {one.solution!r} is none of the candidates, word for word")
            found += text_problems(f"{side}: feedback_reason", one.feedback_reason, 1, name, 1)
    named = [one.solution.strip() for one in (*liked, *disliked)]
    return found + (["a solution is chosen twice"] if len(set(named)) < len(named) else [])


Planned = Mapping[str, tuple[str, str]]
"""Action and reference of each role in a turn."""


@dataclass(frozen=True)
class Script:
    """A framework (JSON, as prompts show it) and a plan."""

    framework: str
    plan: Sequence[Planned]

    @property
    def lines(self) -> list[str]:
        """The plan in words, a line per turn."""
        told = ["; ".join(f"{role} {said} ({label})" for role, (said, label) in one.items()) for one in self.plan]
        return [f"turn {n}: {line}" for n, line in enumerate(told, 1)]


def script(topics: Sequence[Topic], part: Part, seed: str) -> Script:
    """Draws by a seed what is talked about, and how; in the query set liked solutions alone are proposed."""
    rng = random.Random(seed)
    framework: dict[str, Any] = {}
    plan: list[Planned] = []
    for n, topic in enumerate(topics, 1):
        needs = topic.draft.implicit_needs[: rng.choice((1, 2))]
        known = [
            {"solution": one.solution, "feedback": side, "reason": one.feedback_reason}
            for side, chosen in (("pos", topic.liked), ("neg", topic.disliked))
            for one in chosen
            if side == "pos" or part == "history"
        ]
        count = rng.choices((1, 2, 3), (0.2, 0.4, 0.4))[0] if part == "history" else rng.choice((1, 2))
        solutions = rng.sample(known, count)
        framework[f"T{n}"] = {
            "topic": topic.draft.requirement,
            "requirements": {f"T{n}_Q": topic.draft.user_query}
            | {f"T{n}_N{m}": need.model_dump() for m, need in enumerate(needs, 1)},
            "solutions": {f"T{n}_S{m}": one for m, one in enumerate(solutions, 1)},
        }
        plan += [
            {"user": (asked, f"T{n}_{one}"), "assistant": (reply, f"T{n}_{other}")}
            for (asked, one), (reply, other) in action_plan(len(needs), len(solutions), rng)
        ]
    return Script(json.dumps(framework, ensure_ascii=False, indent=1), plan)


def turn_problems(turns: Sequence[DraftTurn], plan: Sequence[Planned]) -> list[str]:
    """What is wrong with a dialogue that has to follow a plan: its turns, actions, references, and empty words."""
    found = [] if len(turns) == len(plan) else [f"{len(turns)} turns; the plan has {len(plan)}"]
    for n, (turn, planned) in enumerate(zip(turns, plan, strict=False), 1):
        for role, (action, reference) in planned.items():
            said = getattr(turn, role)
            found += [] if said.action == action else [f"turn {n}, {role}: action is {said.action}, not {action}"]
            if said.reference.strip() != reference:
                found.append(f"turn {n}, {role}: reference is {said.reference!r}, not {reference}")
            found += [f"turn {n}, {role}: no words"] if blank(said.content) else []
    return found


def dialogue(session: Session, script: Script, setting: Setting) -> list[DraftTurn] | None:
    """The turns of a session's dialogue; None if they were given up."""
    inputs = {
        "profile": session.persona.profile,
        "personality": session.persona.personality,
        "situation": session.situation,
        "assistant_knows": KNOWS[session.part],
        "framework": script.framework,
        "plan": script.lines,
    }
    return setting.ask(DIALOGUE, session.id, inputs, accept_if_valid("turns", turn_problems, script.plan))

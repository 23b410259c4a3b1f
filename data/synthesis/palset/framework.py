"""Step 5 of PAL-Set, the framework of a dialogue: what the user asks and means, eight solutions, two liked, two not.

    requirement types ──> topics ──> 8 candidates each, without a look at the user ──> 2 liked, 2 disliked

Limits: a dialogue counts with all of its topics or not at all.
"""

from __future__ import annotations

from typing import Any

from ....signatures.synthesis_palset_situations import (
    ChooseSolutions,
    DraftCandidates,
    DraftTopic,
    ProposeCandidates,
    WriteRequirements,
)
from ..runner import Checked, Step, whole
from .framework_checks import candidate_problems, choice_problems, topic_problems
from .people import Choice, Session, Setting, Topic, topic_text

REQUIREMENTS = Step("requirements", WriteRequirements, list[DraftTopic])
CANDIDATES = Step("candidates", ProposeCandidates, list[DraftCandidates])
CHOICE = Step("liked and disliked", ChooseSolutions, Choice)


def topics(session: Session, setting: Setting) -> list[Topic] | None:
    """The topics of a session's dialogue with their solutions; None if a step was given up."""
    drafts = _requirements(session, setting)
    candidates = _candidates(session, drafts, setting) if drafts is not None else None
    if drafts is None or candidates is None:
        return None
    found = []
    for id, draft, texts in zip(session.situation.requirement_ids, drafts, candidates, strict=True):
        choice = _choice(session, id, draft, texts, len(found) + 1, setting)
        if choice is None:
            return None
        found.append(Topic(id, draft, texts, choice))
    return found


def _requirements(session: Session, setting: Setting) -> list[DraftTopic] | None:
    person = session.persona.person
    types = [session.persona.types[id] for id in session.situation.requirement_ids]
    inputs = {
        "profile": person.profile,
        "situation": session.situation.text,
        "experience": session.experience,
        "requirement_types": types,
    }

    return setting.ask(REQUIREMENTS, session.id, inputs, whole("topics", topic_problems, types, person.draft.name))


def _candidates(session: Session, drafts: list[DraftTopic], setting: Setting) -> list[list[str]] | None:
    keys = [f"topic-{n}" for n in range(1, len(drafts) + 1)]
    shown = [f"{key}: {topic_text(draft)}" for key, draft in zip(keys, drafts, strict=True)]

    found = setting.ask(CANDIDATES, session.id, {"topics": shown}, whole("candidates", candidate_problems, keys))
    return None if found is None else [[text.strip() for text in one.solutions] for one in found]


def _choice(
    session: Session, id: str, draft: DraftTopic, candidates: list[str], number: int, setting: Setting
) -> Choice | None:
    person, preference = session.persona.person, session.persona.preferences[id]
    inputs = {
        "profile": person.profile,
        "personality": person.personality,
        "situation": session.situation.text,
        "topic": topic_text(draft),
        "likes": preference.pos,
        "dislikes": preference.neg,
        "candidates": candidates,
    }

    def check(answer: Any) -> Checked:
        problems = choice_problems(answer.liked, answer.disliked, candidates, person.draft.name)
        for one in (*answer.liked, *answer.disliked):
            one.solution = one.solution.strip()
        chosen = Choice(analysis=answer.analysis, liked=answer.liked, disliked=answer.disliked)
        return Checked(None if problems else chosen, problems)

    return setting.ask(CHOICE, f"{session.id}/topic-{number}", inputs, check)

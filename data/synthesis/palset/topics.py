"""Step 5 of PAL-Set: what a dialogue is about, and which solutions the user likes.

5-1  a topic for each requirement type of the session
5-2  eight candidate solutions for each topic, without a look at the user
5-3  two that the user likes and two that the user dislikes
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import dspy

from ....signatures.synthesis_palset import (
    ChooseSolutions,
    DraftCandidates,
    DraftChoice,
    DraftNeed,
    DraftTopic,
    ProposeCandidates,
    WriteRequirements,
)
from ..runner import CheckResult, Step, accept_if_valid
from .records import Session, Topic
from .setting import Setting
from .texts import blank, phrase_problems, text_problems

NUM_NEEDS = 2
"""Implicit needs of a topic."""
MIN_EVIDENCE = 1
MAX_EVIDENCE = 5
"""Pieces of evidence for a need."""
NUM_CANDIDATES = 8
"""Candidate solutions of a topic."""
NUM_CHOSEN = 2
"""Solutions that the user likes, and as many that the user dislikes."""

REQUIREMENTS = Step("requirements", WriteRequirements)
CANDIDATES = Step("candidates", ProposeCandidates)
CHOICE = Step("liked and disliked", ChooseSolutions)


def write_topics(session: Session, setting: Setting) -> list[Topic] | None:
    """Return the topics of a session's dialogue with their solutions; None if one was given up."""
    drafts = _write_requirements(session, setting)
    if drafts is None:
        return None
    candidates = _propose_candidates(session, drafts, setting)
    if candidates is None:
        return None

    topics: list[Topic] = []
    for number, draft in enumerate(drafts, 1):
        solutions = [solution.strip() for solution in candidates[number - 1].solutions]
        topic = _choose_solutions(session, number, draft, solutions, setting)
        if topic is None:
            return None
        topics.append(topic)
    return topics


# Step 5-1: requirements.


def _write_requirements(session: Session, setting: Setting) -> list[DraftTopic] | None:
    """Ask for a topic for each requirement type of the session."""
    persona = session.persona
    types = [persona.types[type_id] for type_id in session.requirement_ids]
    inputs = {
        "profile": persona.profile,
        "situation": session.situation,
        "experience": session.experience,
        "requirement_types": types,
    }

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftTopic]]:
        problems = topic_problems(answer.topics, types, persona.draft.name)
        return accept_if_valid(answer.topics, problems)

    return setting.ask(REQUIREMENTS, session.id, inputs, check)


def topic_problems(topics: Sequence[DraftTopic], types: Sequence[str], user_name: str) -> list[str]:
    """Return what is wrong with the topics of a dialogue.

    Args:
        topics: The topics, each with a query, a requirement and its implicit needs.
        types: The requirement types of the session. Each of them needs a topic, in this order.
        user_name: The user's name, which texts must not give.
    """
    problems: list[str] = []
    types_of_topics = [topic.requirement_type.strip() for topic in topics]
    if types_of_topics != list(types):
        problems.append(f"requirement types are {types_of_topics}; write topics for {list(types)}")

    for number, topic in enumerate(topics, 1):
        where = _topic_key(number)
        problems += phrase_problems(f"{where}: the user_query", topic.user_query, max_sentences=2)
        problems += text_problems(
            f"{where}: requirement", topic.requirement, min_sentences=1, user_name=user_name
        )
        if len(topic.implicit_needs) != NUM_NEEDS:
            num_needs = len(topic.implicit_needs)
            problems.append(f"{where}: {num_needs} implicit needs; give {NUM_NEEDS}")
        for need in topic.implicit_needs:
            problems += _need_problems(where, need, user_name)
    return problems


def _need_problems(where: str, need: DraftNeed, user_name: str) -> list[str]:
    """Return what is wrong with an implicit need: it is one sentence, with pieces of evidence."""
    problems = text_problems(
        f"{where}: need", need.need, min_sentences=1, user_name=user_name, max_sentences=1
    )
    has_right_count = MIN_EVIDENCE <= len(need.evidences) <= MAX_EVIDENCE
    has_blank = any(blank(evidence) for evidence in need.evidences)
    if not has_right_count or has_blank:
        problems.append(
            f"{where}: a need has to have {MIN_EVIDENCE} to {MAX_EVIDENCE} pieces of evidence, "
            "none empty"
        )
    return problems


# Step 5-2: candidate solutions.


def _propose_candidates(
    session: Session, topics: Sequence[DraftTopic], setting: Setting
) -> list[DraftCandidates] | None:
    """Ask for the candidate solutions of all topics, without a look at the user."""
    keys: list[str] = []
    shown_topics: list[str] = []
    for number, topic in enumerate(topics, 1):
        key = _topic_key(number)
        keys.append(key)
        shown_topics.append(f"{key}: {topic_text(topic)}")

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftCandidates]]:
        return accept_if_valid(answer.candidates, candidate_problems(answer.candidates, keys))

    return setting.ask(CANDIDATES, session.id, {"topics": shown_topics}, check)


def _topic_key(number: int) -> str:
    return f"topic-{number}"


def topic_text(draft: DraftTopic) -> str:
    """Return a topic in JSON, without its type: it must not reveal what the user likes."""
    return json.dumps(draft.model_dump(exclude={"requirement_type"}), ensure_ascii=False)


def candidate_problems(candidates: Sequence[DraftCandidates], topics: Sequence[str]) -> list[str]:
    """Return what is wrong with the candidate solutions of a dialogue's topics.

    Args:
        candidates: The solutions of each topic.
        topics: The keys of the topics, e.g. "topic-1".
    """
    problems: list[str] = []
    keys = [draft.topic.strip() for draft in candidates]
    if keys != list(topics):
        problems.append(f"topics are {keys}; give solutions for {', '.join(topics)}")

    for draft in candidates:
        solutions = [solution.strip() for solution in draft.solutions]
        if len(solutions) != NUM_CANDIDATES:
            problems.append(f"{draft.topic}: {len(solutions)} solutions; give {NUM_CANDIDATES}")
        for number, solution in enumerate(solutions, 1):
            problems += phrase_problems(f"{draft.topic}: solution {number}", solution)
        if len(set(solutions)) < len(solutions):
            problems.append(f"{draft.topic}: two solutions are the same")
    return problems


# Step 5-3: solutions that the user likes and dislikes.


def _choose_solutions(
    session: Session,
    number: int,
    draft: DraftTopic,
    candidates: Sequence[str],
    setting: Setting,
) -> Topic | None:
    """Ask which candidates of a topic the user likes and dislikes.

    Args:
        session: The session.
        number: The place of the topic in the dialogue, counted from 1.
        draft: The topic.
        candidates: Its eight solutions.
        setting: Asks the model.
    """
    persona = session.persona
    # Topics have the order of the session's requirement types.
    type_id = session.requirement_ids[number - 1]
    preference = persona.preferences[type_id]
    inputs = {
        "profile": persona.profile,
        "personality": persona.personality,
        "situation": session.situation,
        "topic": topic_text(draft),
        "likes": preference.pos,
        "dislikes": preference.neg,
        "candidates": candidates,
    }

    def check(answer: dspy.Prediction) -> CheckResult[Topic]:
        """Return the topic with the choices of an answer, or what is wrong with the choices."""
        liked = cast("list[DraftChoice]", answer.liked)
        disliked = cast("list[DraftChoice]", answer.disliked)
        problems = choice_problems(liked, disliked, candidates, persona.draft.name)
        if problems:
            return CheckResult(None, problems)

        topic = Topic(
            draft=draft,
            candidates=candidates,
            analysis=answer.analysis,
            liked=_stripped(liked),
            disliked=_stripped(disliked),
        )
        return CheckResult(topic)

    return setting.ask(CHOICE, f"{session.id}/{_topic_key(number)}", inputs, check)


def _stripped(choices: Sequence[DraftChoice]) -> list[DraftChoice]:
    """Return choices without blanks around their solutions, as the candidates are."""
    return [choice.model_copy(update={"solution": choice.solution.strip()}) for choice in choices]


def choice_problems(
    liked: Sequence[DraftChoice],
    disliked: Sequence[DraftChoice],
    candidates: Sequence[str],
    user_name: str,
) -> list[str]:
    """Return what is wrong with the solutions that a user is said to like and dislike."""
    problems = _side_problems("liked", liked, candidates, user_name)
    problems += _side_problems("disliked", disliked, candidates, user_name)

    chosen = [choice.solution.strip() for choice in (*liked, *disliked)]
    if len(set(chosen)) < len(chosen):
        problems.append("a solution is chosen twice")
    return problems


def _side_problems(
    side: str, choices: Sequence[DraftChoice], candidates: Sequence[str], user_name: str
) -> list[str]:
    """Return what is wrong with the solutions that a user likes, or with those the user dislikes.

    Args:
        side: "liked" or "disliked".
        choices: The solutions with the user's reasons.
        candidates: The solutions of which they are chosen.
        user_name: The user's name, which reasons must not give.
    """
    problems: list[str] = []
    if len(choices) != NUM_CHOSEN:
        problems.append(f"{len(choices)} {side} solutions; give {NUM_CHOSEN}")
    for choice in choices:
        if choice.solution.strip() not in candidates:
            problems.append(f"{side}: {choice.solution!r} is none of the candidates, word for word")
        problems += text_problems(
            f"{side}: feedback_reason",
            choice.feedback_reason,
            min_sentences=1,
            user_name=user_name,
            max_sentences=1,
        )
    return problems

"""Writes MemoryQuest: requests whose facts a search for their words does not find, and the chats with the facts.

    profile ──> requests ──> gate: mean cosine of request and references <= .3, the 15 lowest
                                ├──> timeline: 5 to 10 chats in outline, each reference in one, the rest filler
                                └──> dialogue of each chat ──> OUT/user0.json

PGR (arXiv paper, section 4.2) in three prompts; profiles are those of PersonaLens. A request counts only with its
whole timeline: where a step is given up, the request is left out, and the report says why. The sessions of a user are
those of all requests, by date.

Limits: the threshold belongs to the paper's embedder, which it does not name; another one draws the line
elsewhere. Chats are written in parallel: they know the outlines of earlier chats of their own request, not their
words, and not the chats of other requests, so two requests of a user may disagree. How many candidates the
authors drew is not printed: three rounds of ten here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import UserError
from ...signatures.synthesis_memoryquest import (
    DraftEvent,
    DraftQuery,
    DraftTurn,
    PlanTimeline,
    WriteDialogue,
    WriteQueries,
)
from .journal import write_json
from .memoryquest_checks import dialogue_problems, query_problems, timeline_problems
from .personalens import Profile
from .runner import Checked, Runner, Step, whole

THRESHOLD = 0.3
"""Highest mean cosine between a request and its references (section 4.2, gamma)."""
MOST = 15
"""Most requests of a user (section 4.2, n_q)."""
ROUNDS, BATCH = 3, 10

QUERIES = Step("queries", WriteQueries, list[DraftQuery])
TIMELINE = Step("timeline", PlanTimeline, list[DraftEvent])
DIALOGUE = Step("dialogue", WriteDialogue, list[DraftTurn])


class Embeds(Protocol):
    """What the gate needs of an embedder."""

    @property
    def name(self) -> str:
        """Names its vectors; "offline" is the one that compares spelling."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of length 1, shape [texts, dimension]."""
        ...


@dataclass(frozen=True)
class _Plan:
    """A request with its timeline."""

    id: str
    query: DraftQuery
    events: list[DraftEvent]


def choose(profiles: Sequence[Profile], users: int | None, seed: int = 0) -> list[Profile]:
    """Draws so many users, in the order of the profiles; all of them if None.

    Raises:
        UserError: There are not so many.
    """
    if users is None:
        return list(profiles)
    if users > len(profiles):
        raise UserError(f"{users} users wanted, {len(profiles)} profiles there; lower --users")
    drawn = set(random.Random(seed).sample(range(len(profiles)), users))
    return [profile for n, profile in enumerate(profiles) if n in drawn]


def check_embedder(embedder: Embeds, force: bool = False) -> None:
    """Refuses an embedder whose cosines do not suit the gate.

    Raises:
        UserError: It is the offline one and `force` is not set.
    """
    if embedder.name == "offline" and not force:
        raise UserError(
            "the offline embedder compares spelling, so its cosine <= .3 says nothing; "
            "give a real one by --embedder, or --force to try the machinery"
        )


def make_memoryquest(
    profiles: Sequence[Profile], out: Path, runner: Runner, embedder: Embeds, note: Callable[[str], None] = print
) -> list[Path]:
    """Writes one file per user, as soon as the user is complete, under the language model of `dspy.context`.

    Args:
        profiles: The users.
        out: Folder of the files; made if missing.
        runner: Runs the steps; its report says what was refused.
        embedder: Measures how near requests are to their references.
        note: Told a line per user.

    Returns:
        The files written; a user without a single request gets none.

    Raises:
        LMError: The model failed.
        DataError: A file cannot be written.
    """
    drafts = runner.map(lambda profile: _queries(profile, runner, embedder), profiles)
    written = []
    for profile, queries in zip(profiles, drafts, strict=True):
        content = _user(profile, queries, runner)
        made, sessions = len(content["queries"]), len(content["sessions"])
        note(f"{profile.user_id}: {made} requests, {sessions} sessions, of {len(queries)} requests through the gate")
        if made:
            written.append(write_json(out / f"{profile.user_id}.json", content))
        else:
            runner.reject("user", profile.user_id, ["no request came through all steps"], "given up")
    return written


def _queries(profile: Profile, runner: Runner, embedder: Embeds) -> list[DraftQuery]:
    """The requests that pass the gate, lowest cosine first, at most `MOST`."""
    drafts: list[DraftQuery] = []
    for n in range(ROUNDS):
        earlier = [draft.query for draft in drafts]
        inputs = _about(profile) | {"earlier_queries": earlier, "count": BATCH}

        def check(found: Any, earlier: list[str] = earlier) -> Checked:
            return _check_queries(found.queries, earlier)

        found = runner.ask(QUERIES, f"{profile.user_id}/round{n + 1}", inputs, check)
        if found is None:
            break
        drafts += found
    ranked = sorted(((cosine(draft, embedder), n) for n, draft in enumerate(drafts)))
    for place, (value, n) in enumerate(ranked):
        problem = f"mean cosine {value:.3f} is over {THRESHOLD}" if value > THRESHOLD else f"{MOST} others are lower"
        if value > THRESHOLD or place >= MOST:
            runner.reject("gate", f"{profile.user_id}: {drafts[n].query:.60}", [problem])
    return [drafts[n] for value, n in ranked[:MOST] if value <= THRESHOLD]


def cosine(draft: DraftQuery, embedder: Embeds) -> float:
    """Mean cosine between a request and its references (section 4.2), to six places: vectors are float32."""
    vectors = embedder.embed([draft.query, *(reference.text for reference in draft.references)])
    return round(float(np.mean(vectors[1:] @ vectors[0])), 6)


def _check_queries(drafts: Sequence[DraftQuery], earlier: Sequence[str]) -> Checked:
    kept: list[DraftQuery] = []
    problems: list[str] = [] if drafts else ["no request was written"]
    for draft in drafts:
        found = query_problems(draft, [*earlier, *(one.query for one in kept)])
        problems += [f"{draft.query:.60}: {problem}" for problem in found]
        if not found:
            kept.append(draft)
    return Checked(kept or None, problems)


def _user(profile: Profile, queries: Sequence[DraftQuery], runner: Runner) -> dict[str, Any]:
    """Everything in a user's file."""
    ids = [f"{profile.user_id}/q{n}" for n in range(1, len(queries) + 1)]
    pairs = list(zip(ids, queries, strict=True))
    timelines = runner.map(lambda pair: _timeline(profile, pair[0], pair[1], runner), pairs)
    plans = [
        _Plan(id, query, events) for (id, query), events in zip(pairs, timelines, strict=True) if events is not None
    ]
    jobs = [(plan, n) for plan in plans for n in range(len(plan.events))]
    turns = dict(
        zip(
            [(plan.id, n) for plan, n in jobs],
            runner.map(lambda job: _dialogue(profile, job[0], job[1], runner), jobs),
            strict=True,
        )
    )
    whole = []
    for plan in plans:
        missing = [plan.events[n].date for n in range(len(plan.events)) if turns[plan.id, n] is None]
        if missing:
            runner.reject("query", plan.id, [f"left out: no dialogue for {', '.join(missing)}"], "given up")
        else:
            whole.append(plan)
    return _assemble(profile, whole, turns)


def _timeline(profile: Profile, id: str, query: DraftQuery, runner: Runner) -> list[DraftEvent] | None:
    facts = [f"r{n} ({one.date}): {one.text}" for n, one in enumerate(query.references, start=1)]
    inputs = _about(profile) | {"query": query.query, "query_date": query.date, "references": facts}

    return runner.ask(TIMELINE, id, inputs, whole("events", timeline_problems, query, profile.domain_summaries))


def _dialogue(profile: Profile, plan: _Plan, n: int, runner: Runner) -> list[DraftTurn] | None:
    event = plan.events[n]
    facts = [plan.query.references[int(id.removeprefix("r")) - 1].text for id in event.references]
    wanted = {domain.casefold().strip() for domain in event.domains}
    inputs = {
        "demographics": profile.demographics,
        "domain_summaries": {k: v for k, v in profile.domain_summaries.items() if k.casefold() in wanted},
        "date": event.date,
        "outline": event.summary,
        "facts": facts,
        "earlier_chats": [f"{one.date}: {one.summary}" for one in plan.events[:n]],
    }

    return runner.ask(DIALOGUE, f"{plan.id}/{event.date}", inputs, whole("turns", dialogue_problems, facts))


def _assemble(profile: Profile, plans: Sequence[_Plan], turns: Mapping[tuple[str, int], Any]) -> dict[str, Any]:
    order = sorted((event.date, p, n) for p, plan in enumerate(plans) for n, event in enumerate(plan.events))
    names = {(p, n): f"s{place}" for place, (_, p, n) in enumerate(order, start=1)}
    sessions = [
        {
            "session_id": names[p, n],
            "date": day,
            "turns": [turn.model_dump() for turn in turns[plans[p].id, n]],
        }
        for day, p, n in order
    ]
    queries = []
    for p, plan in enumerate(plans):
        told = {id: names[p, n] for n, event in enumerate(plan.events) for id in event.references}
        references = [
            one.model_dump() | {"session_id": told[f"r{r}"]} for r, one in enumerate(plan.query.references, start=1)
        ]
        queries.append({"query_id": f"q{p + 1}"} | plan.query.model_dump() | {"references": references})
    about = {"user_id": profile.user_id} | _about(profile)
    return about | {"sessions": sessions, "queries": queries}


def _about(profile: Profile) -> dict[str, Any]:
    return {"demographics": profile.demographics, "domain_summaries": profile.domain_summaries}

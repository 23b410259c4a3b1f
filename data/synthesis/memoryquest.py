"""Writes MemoryQuest: requests whose facts a search for their words does not find, and the chats with the facts.

    profile ──> requests ──> gate: mean cosine of request and references <= .3, the 15 lowest
                                ├──> timeline: 5 to 10 chats in outline, each reference in one, the rest filler
                                └──> dialogue of each chat ──> OUT/user0.json

PGR (arXiv paper, section 4.2) in three prompts; profiles are those of PersonaLens (CC BY-NC 4.0: what is made from
them is not for commercial use). A request counts only with its whole timeline; the report says what was left out.
Limits: the threshold belongs to the paper's embedder, which it does not name. Chats know the outlines of earlier chats
of their own request, not their words, so two requests of a user may disagree. Three rounds of ten candidates are ours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from ...errors import DataError, UserError
from ...records import read_json
from ...signatures.synthesis_memoryquest import (
    DraftEvent,
    DraftQuery,
    DraftTurn,
    PlanTimeline,
    WriteDialogue,
    WriteQueries,
)
from ..dataset import raise_on_fatal
from ..field_types import parse_day, natural_sort_key
from ..rows import Location, Row
from .runner import CheckResult, Runner, Step, accept_if_valid, write_json

THRESHOLD = 0.3
"""Highest mean cosine between a request and its references (section 4.2, gamma)."""
MAX_QUERIES = 15
"""Most requests of a user (section 4.2, n_q)."""
ROUNDS, BATCH = 3, 10
REFERENCES = (3, 5)
EVENTS = (5, 10)
TURNS = (5, 30)
MAX_LEAD_DAYS = timedelta(days=31)
"""Most days from the first event to the earliest reference: the paper says "shortly before", the number is ours."""
MIN_STATED_SHARE = 0.5
"""Share of a fact's words that the user has to say in its dialogue; ours."""

_NOTHING = {"", "n/a", "none"}
QUERIES = Step("queries", WriteQueries)
TIMELINE = Step("timeline", PlanTimeline)
DIALOGUE = Step("dialogue", WriteDialogue)


def _text(value: Any) -> str:
    """A value of a profile in words: texts as they are, lists with commas, attributes as `name: value; ...`."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "" if value is None else " ".join(str(value).split())


def _texts(value: Any) -> Any:
    return {name: _text(part) for name, part in value.items()} if isinstance(value, dict) else value or {}


Texts = Annotated[dict[str, str], BeforeValidator(_texts)]


class Profile(Row):
    """A profile of PersonaLens."""

    about: Texts = Field(validation_alias="demographics")
    interactions: Texts = {}  # noqa: RUF012
    affinities: Texts = {}  # noqa: RUF012

    @model_validator(mode="after")
    def _useful(self) -> Self:
        if not re.fullmatch(r"[\w-]+", self.user_id):
            raise ValueError(f"user_id {self.user_id!r} cannot name a file; use letters, digits, '-' and '_'")
        if not self.domain_summaries:
            raise ValueError("nothing in 'interactions' and 'affinities'; there is nothing to write about")
        return self

    @property
    def user_id(self) -> str:
        """The user's id, which names files."""
        return self.about.get("user_id", "")

    @property
    def demographics(self) -> dict[str, str]:
        """Without the id, and without what the profile leaves open ("N/A")."""
        return {key: text for key, text in self.about.items() if key != "user_id" and text.lower() not in _NOTHING}

    @property
    def domain_summaries(self) -> dict[str, str]:
        """What is known of the user, domain by domain."""
        both = (self.affinities, self.interactions)
        return {domain: text for part in both for domain, text in part.items() if text}


def read_profiles(folder: str | Path) -> list[Profile]:
    """Reads all files below a folder whose names end in `profile.json`, ordered by the numbers in their names.

    Raises:
        DataError: There is no such folder, no profile in it, a file is no profile, or two are of one user.
    """
    files = sorted(Path(folder).rglob("*profile.json"), key=lambda path: natural_sort_key(str(path)))
    if not files:
        raise DataError(f"{folder}: no such folder, or none with a user's profile.json in it; is it PersonaLens?")
    profiles: dict[str, Profile] = {}
    for path in files:
        profile = Location(raise_on_fatal(path), "profile").validate(Profile, read_json(path))
        if profile is not None and profiles.setdefault(profile.user_id, profile) is not profile:
            raise DataError(f"{path}: a second profile of {profile.user_id!r}; remove one")
    return list(profiles.values())


class Embeds(Protocol):
    """What the gate needs of an embedder: its name, and vectors of length 1, shape [texts, dimension]."""

    @property
    def name(self) -> str: ...
    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class _Plan:
    id: str
    query: DraftQuery
    events: list[DraftEvent]
    chats: list[list[DraftTurn] | None] = field(default_factory=list)


def make_memoryquest(
    profiles: Sequence[Profile], out: Path, runner: Runner, embedder: Embeds, on_progress: Callable[[str], None] = print
) -> list[Path]:
    """Writes one file per user, as soon as the user is complete, under the language model of `dspy.context`.

    Args:
        profiles: The users.
        out: Folder of the files; made if missing.
        runner: Runs the steps; its report says what was refused.
        embedder: Measures how near requests are to their references; not the offline one, which compares spelling.
        on_progress: Told a line per user.

    Returns:
        The files written; a user without a single request gets none.

    Raises:
        LMError: The model failed; answers before are kept.
        DataError: A file cannot be written.
        UserError: The embedder is the offline one, whose cosines do not suit the gate.
    """
    if embedder.name == "offline":
        raise UserError(
            f"the offline embedder compares spelling: its cosine <= {THRESHOLD} says nothing; give a real one"
        )
    drafts = runner.map(lambda profile: _queries(profile, runner, embedder), profiles)
    written = []
    for profile, queries in zip(profiles, drafts, strict=True):
        content = _user(profile, queries, runner)
        made, sessions = len(content["queries"]), len(content["sessions"])
        on_progress(
            f"{profile.user_id}: {made} requests, {sessions} sessions, of {len(queries)} requests through the gate"
        )
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
        check = partial(_check_queries, earlier)
        found = runner.ask(QUERIES, f"{profile.user_id}/round{n + 1}", inputs, check)
        if found is None:
            break
        drafts += found
    ranked = sorted(((cosine(draft, embedder), n) for n, draft in enumerate(drafts)))
    for place, (value, n) in enumerate(ranked):
        problem = (
            f"mean cosine {value:.3f} is over {THRESHOLD}" if value > THRESHOLD else f"{MAX_QUERIES} others are lower"
        )
        if value > THRESHOLD or place >= MAX_QUERIES:
            runner.reject("gate", f"{profile.user_id}: {drafts[n].query:.60}", [problem])
    return [drafts[n] for value, n in ranked[:MAX_QUERIES] if value <= THRESHOLD]


def cosine(draft: DraftQuery, embedder: Embeds) -> float:
    """Mean cosine between a request and its references (section 4.2), to six places: vectors are float32."""
    vectors = embedder.embed([draft.query, *(reference.text for reference in draft.references)])
    return round(float(np.mean(vectors[1:] @ vectors[0])), 6)


def _check_queries(earlier: Sequence[str], answer: Any) -> CheckResult:
    kept: list[DraftQuery] = []
    problems: list[str] = [] if answer.queries else ["no request was written"]
    for draft in answer.queries:
        found = query_problems(draft, [*earlier, *(one.query for one in kept)])
        problems += [f"{draft.query:.60}: {problem}" for problem in found]
        if not found:
            kept.append(draft)
    return CheckResult(kept or None, problems)


def _user(profile: Profile, queries: Sequence[DraftQuery], runner: Runner) -> dict[str, Any]:
    pairs = [(f"{profile.user_id}/q{n}", query) for n, query in enumerate(queries, start=1)]
    timelines = runner.map(lambda pair: _timeline(profile, *pair, runner), pairs)
    plans = [_Plan(*pair, events) for pair, events in zip(pairs, timelines, strict=True) if events is not None]
    jobs = [(plan, n) for plan in plans for n in range(len(plan.events))]
    chats = runner.map(lambda job: _dialogue(profile, *job, runner), jobs)
    for (plan, _), chat in zip(jobs, chats, strict=True):
        plan.chats.append(chat)
    for plan in plans:
        missing = [event.date for event, chat in zip(plan.events, plan.chats, strict=True) if chat is None]
        if missing:
            runner.reject("query", plan.id, [f"left out: no dialogue for {', '.join(missing)}"], "given up")
    return _assemble(profile, [plan for plan in plans if None not in plan.chats])


def _timeline(profile: Profile, id: str, query: DraftQuery, runner: Runner) -> list[DraftEvent] | None:
    facts = [f"r{n} ({one.date}): {one.text}" for n, one in enumerate(query.references, start=1)]
    inputs = _about(profile) | {"query": query.query, "query_date": query.date, "references": facts}
    return runner.ask(
        TIMELINE, id, inputs, accept_if_valid("events", timeline_problems, query, profile.domain_summaries)
    )


def _dialogue(profile: Profile, plan: _Plan, n: int, runner: Runner) -> list[DraftTurn] | None:
    event = plan.events[n]
    facts = [plan.query.references[int(id.removeprefix("r")) - 1].text for id in event.references]
    wanted = {_same(domain) for domain in event.domains}
    inputs = {
        "demographics": profile.demographics,
        "domain_summaries": {k: v for k, v in profile.domain_summaries.items() if _same(k) in wanted},
        "date": event.date,
        "outline": event.summary,
        "facts": facts,
        "earlier_chats": [f"{one.date}: {one.summary}" for one in plan.events[:n]],
    }
    return runner.ask(DIALOGUE, f"{plan.id}/{event.date}", inputs, accept_if_valid("turns", dialogue_problems, facts))


def _assemble(profile: Profile, plans: Sequence[_Plan]) -> dict[str, Any]:
    order = sorted((event.date, p, n) for p, plan in enumerate(plans) for n, event in enumerate(plan.events))
    names = {(p, n): f"s{place}" for place, (_, p, n) in enumerate(order, start=1)}
    sessions = [
        {"session_id": names[p, n], "date": day, "turns": [turn.model_dump() for turn in plans[p].chats[n] or ()]}
        for day, p, n in order
    ]
    queries = []
    for p, plan in enumerate(plans):
        told = {id: names[p, n] for n, event in enumerate(plan.events) for id in event.references}
        references = [
            one.model_dump() | {"session_id": told[f"r{r}"]} for r, one in enumerate(plan.query.references, start=1)
        ]
        queries.append({"query_id": f"q{p + 1}"} | plan.query.model_dump() | {"references": references})
    return {"user_id": profile.user_id} | _about(profile) | {"sessions": sessions, "queries": queries}


def _about(profile: Profile) -> dict[str, Any]:
    return {"demographics": profile.demographics, "domain_summaries": profile.domain_summaries}


def query_problems(draft: DraftQuery, earlier: Iterable[str]) -> list[str]:
    """What is wrong with a request: its text, its date, and its 3 to 5 references, each older than it."""
    texts, when = [_same(one.text) for one in draft.references], parse_day(draft.date)
    rules = [
        (not draft.query.strip(), "a request is empty"),
        (_same(draft.query) in map(_same, earlier), "this request exists already; write another"),
        (not REFERENCES[0] <= len(texts) <= REFERENCES[1], f"{len(texts)} references; give 3 to 5"),
        (len(set(texts)) < len(texts), "two references say the same"),
        (not all(texts), "a reference is empty"),
    ]
    found = [problem for broken, problem in rules if broken] + _no_days([draft, *draft.references])
    told = [(parse_day(one.date), one.date) for one in draft.references]
    late = [date for on, date in told if on and when and on >= when]
    return found + [f"the reference of {date} is not older than its request of {draft.date}" for date in late]


def timeline_problems(events: Sequence[DraftEvent], query: DraftQuery, domains: Iterable[str]) -> list[str]:
    """What is wrong with the timeline of a request that has passed `query_problems`; its references are r1, r2, ..."""
    found = [] if EVENTS[0] <= len(events) <= EVENTS[1] else [f"{len(events)} events; plan 5 to 10"]
    found += _no_days(events) or _order_problems([date.fromisoformat(event.date) for event in events], query)
    found += _reference_problems(events, query)
    names = {_same(domain) for domain in domains}
    for event in events:
        strange = [domain for domain in event.domains if _same(domain) not in names]
        if strange or not event.domains:
            found.append(f"event of {event.date}: domains {strange}; use names of domain_summaries, at least one")
        if not event.summary.strip():
            found.append(f"event of {event.date}: no summary")
    return found


def dialogue_problems(turns: Sequence[DraftTurn], facts: Sequence[str]) -> list[str]:
    """What is wrong with a chat in which the user has to state these facts."""
    said = _words(" ".join(turn.text for turn in turns if turn.speaker == "user"))
    rules = [
        (not TURNS[0] <= len(turns) <= TURNS[1], f"{len(turns)} turns; write 5 to 30"),
        (bool(turns) and turns[0].speaker != "user", "the user has to begin"),
        (any(one.speaker == other.speaker for one, other in pairwise(turns)), "user and assistant have to alternate"),
        (not all(turn.text.strip() for turn in turns), "a turn is empty"),
    ]
    told = [(_words(fact), fact) for fact in facts]
    rules += [
        (len(words & said) < MIN_STATED_SHARE * len(words), f"the user does not tell this: {fact}")
        for words, fact in told
    ]
    return [problem for broken, problem in rules if broken]


def _order_problems(days: Sequence[date], query: DraftQuery) -> list[str]:
    found = []
    if any(one >= other for one, other in pairwise(days)):
        found.append("events are not in ascending order, one a day")
    asked, first = date.fromisoformat(query.date), min(date.fromisoformat(one.date) for one in query.references)
    if days and max(days) >= asked:
        found.append(f"an event is not before the request of {query.date}")
    if days and not first - MAX_LEAD_DAYS <= min(days) < first:
        found.append(f"the first event is not shortly (at most {MAX_LEAD_DAYS.days} days) before {first}")
    return found


def _reference_problems(events: Sequence[DraftEvent], query: DraftQuery) -> list[str]:
    dates = {f"r{n}": reference.date for n, reference in enumerate(query.references, start=1)}
    told = Counter(id for event in events for id in event.references)
    found = [f"reference {id} is told in {told[id]} events; tell it in exactly one" for id in dates if told[id] != 1]
    found += [f"there is no reference {id!r}" for id in told if id not in dates]
    return found + [
        f"reference {id} belongs to {dates[id]}, not to the event of {event.date}"
        for event in events
        for id in event.references
        if dates.get(id, event.date) != event.date
    ]


def _no_days(dated: Iterable[Any]) -> list[str]:
    return [f"{one.date!r} is no day; write YYYY-MM-DD" for one in dated if parse_day(one.date) is None]


def _same(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> set[str]:
    """Beginnings of the longer words, and all numbers: "moved" and "moving" share them."""
    return {word[:4] for word in re.findall(r"\w+", text.casefold()) if len(word) > 3 or word.isdigit()}

"""Step 1 of MemoryQuest: the requests of a user, and which of them are hard for a search.

    profile ──> three rounds of ten requests ──> mean cosine of request and references <= .3
                                                 ──> the 15 with the lowest

The threshold belongs to the paper's embedder, which it does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import dspy
import numpy as np

from ....errors import UserError
from ....signatures.synthesis_memoryquest import DraftQuery, WriteQueries
from ...field_types import parse_day
from ..runner import CheckResult, Runner, Step
from .profiles import Profile
from .texts import day_problems, normalized

THRESHOLD = 0.3
"""Highest mean cosine between a request and its references (PGR, section 4.2, gamma)."""
MAX_QUERIES = 15
"""Most requests of a user (PGR, section 4.2, n_q)."""
ROUNDS = 3
"""How often requests are asked for; ours."""
BATCH = 10
"""Requests that one call writes; ours."""
MIN_REFERENCES = 3
MAX_REFERENCES = 5

QUERIES = Step("queries", WriteQueries)


class Embeds(Protocol):
    """What the gate needs of an embedder."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return vectors of length 1, shape [texts, dimension]."""
        ...


def refuse_offline_embedder(embedder: Embeds) -> None:
    """Refuse the offline embedder, whose cosines do not suit the gate.

    Raises:
        UserError: It is the offline embedder.
    """
    if embedder.name == "offline":
        raise UserError(
            f"the offline embedder compares spelling: its cosine <= {THRESHOLD} says nothing; "
            "give a real one"
        )


def write_queries(profile: Profile, runner: Runner, embedder: Embeds) -> list[DraftQuery]:
    """Return the requests of a user that pass the gate, lowest cosine first."""
    drafts = _draft_queries(profile, runner)
    return _pass_gate(drafts, profile.user_id, runner, embedder)


def _draft_queries(profile: Profile, runner: Runner) -> list[DraftQuery]:
    """Ask for requests, round by round, and return those of all rounds.

    If a round is given up, no further one is asked for. It would be the same question, since only
    the requests of earlier rounds tell rounds apart.
    """
    drafts: list[DraftQuery] = []
    for number in range(1, ROUNDS + 1):
        earlier = [draft.query for draft in drafts]
        new_drafts = _draft_round(profile, number, earlier, runner)
        if new_drafts is None:
            break
        drafts.extend(new_drafts)
    return drafts


def _draft_round(
    profile: Profile, number: int, earlier: Sequence[str], runner: Runner
) -> list[DraftQuery] | None:
    """Ask for as many requests as one call writes; None if that was given up.

    Args:
        profile: The user.
        number: The number of the round, counted from 1.
        earlier: The requests of earlier rounds.
        runner: Asks the model.
    """
    inputs = {**profile.inputs, "earlier_queries": earlier, "count": BATCH}

    def check(answer: dspy.Prediction) -> CheckResult[list[DraftQuery]]:
        return _check_queries(answer.queries, earlier)

    return runner.ask(QUERIES, f"{profile.user_id}/round{number}", inputs, check)


def _check_queries(
    drafts: Sequence[DraftQuery], earlier: Sequence[str]
) -> CheckResult[list[DraftQuery]]:
    """Keep the requests of an answer that have no problems; refuse an answer without any."""
    if not drafts:
        return CheckResult(None, ["no request was written"])

    accepted: list[DraftQuery] = []
    problems: list[str] = []
    for draft in drafts:
        known_queries = [*earlier, *(other.query for other in accepted)]
        problems_of_draft = query_problems(draft, known_queries)
        for problem in problems_of_draft:
            problems.append(f"{draft.query:.60}: {problem}")
        if not problems_of_draft:
            accepted.append(draft)
    return CheckResult(accepted or None, problems)


def query_problems(draft: DraftQuery, earlier: Iterable[str]) -> list[str]:
    """Return what is wrong with a request: its text, its date and its references.

    Args:
        draft: The request.
        earlier: The texts of the requests that exist already.
    """
    problems: list[str] = []
    if not draft.query.strip():
        problems.append("a request is empty")
    if normalized(draft.query) in [normalized(query) for query in earlier]:
        problems.append("this request exists already; write another")

    reference_texts = [normalized(reference.text) for reference in draft.references]
    if not MIN_REFERENCES <= len(reference_texts) <= MAX_REFERENCES:
        count = len(reference_texts)
        problems.append(f"{count} references; give {MIN_REFERENCES} to {MAX_REFERENCES}")
    if len(set(reference_texts)) < len(reference_texts):
        problems.append("two references say the same")
    if not all(reference_texts):
        problems.append("a reference is empty")

    problems += day_problems([draft.date])
    problems += day_problems([reference.date for reference in draft.references])
    problems += _order_problems(draft)
    return problems


def _order_problems(draft: DraftQuery) -> list[str]:
    """Return which references are not older than their request.

    Dates that cannot be parsed are passed over; `day_problems` reports them.
    """
    query_day = parse_day(draft.date)
    if query_day is None:
        return []

    problems: list[str] = []
    for reference in draft.references:
        day = parse_day(reference.date)
        if day is not None and day >= query_day:
            problems.append(
                f"the reference of {reference.date} is not older than its request of {draft.date}"
            )
    return problems


# The gate.


class _RankedDraft(NamedTuple):
    cosine: float
    number: int
    """The place of the draft; of equal cosines the earlier draft comes first."""


def _pass_gate(
    drafts: Sequence[DraftQuery], user_id: str, runner: Runner, embedder: Embeds
) -> list[DraftQuery]:
    """Return the requests with the lowest cosines, lowest first, and report the others.

    A low cosine means that a search for the words of a request does not find its references.
    """
    ranked = [_RankedDraft(cosine(draft, embedder), number) for number, draft in enumerate(drafts)]
    # By cosine, and of equal cosines by number.
    ranked.sort()

    passed: list[DraftQuery] = []
    for mean_cosine, number in ranked:
        draft = drafts[number]
        problem = ""
        if mean_cosine > THRESHOLD:
            problem = f"mean cosine {mean_cosine:.3f} is over {THRESHOLD}"
        elif len(passed) == MAX_QUERIES:
            problem = f"{MAX_QUERIES} others are lower"

        if problem:
            runner.reject("gate", f"{user_id}: {draft.query:.60}", [problem])
        else:
            passed.append(draft)
    return passed


def cosine(draft: DraftQuery, embedder: Embeds) -> float:
    """Return the mean cosine between a request and its references (PGR, section 4.2)."""
    reference_texts = [reference.text for reference in draft.references]
    vectors = embedder.embed([draft.query, *reference_texts])
    query_vector = vectors[0]
    reference_vectors = vectors[1:]
    # Vectors have length 1, so their dot products are cosines.
    cosines = reference_vectors @ query_vector
    # Rounded to what float32 can tell apart, so that rounding errors in later places decide neither
    # the order of requests nor whether one is over the threshold.
    return round(float(np.mean(cosines)), 6)

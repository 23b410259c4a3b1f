"""The questions on which earlier rounds of `mempiler improve` decided, kept in the model registry.

A round decides by its dev questions whether a new program is promoted. If the next rounds decided
on the same questions, one of many candidates would pass by chance. So each round reserves its dev
questions before it decides, and no later round decides on them. A round that did not decide
releases them again.

The registered model has a tag for each round, or several for a large one:

    mempiler.decided.20260102T030405-ab12.0 = 0f3a9c0d4e5b...

The value holds digests of questions, of 12 hexadecimal digits each, one after the other. There is
no text of a user in the registry.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

import dspy

from ..memory.answers import is_answer_id
from ..records import History
from .tracking.store import client, store_errors

TAG_PREFIX = "mempiler.decided."
"""The beginning of the names of the tags."""
DIGEST_LENGTH = 12
"""Hexadecimal digits of a digest: two of a million questions are equal with a chance of 0.2 %."""

_DIGESTS_PER_TAG = 400
"""Databases take 5,000 characters for the tag of a model."""


def question_digest(example: dspy.Example) -> str:
    """Return the digest by which rounds know a question again.

    A question from feedback has the id of its answer, which stays when the user or a reviewer
    corrects the answer. The digest of any other question covers the user, the first item of the
    history, the question and the answer.
    """
    example_id = str(example.get("id", ""))
    if is_answer_id(example_id):
        return _digest_of([example_id])

    history: History = example.history
    # The later items are left out: the history of a user grows, and the question stays the same.
    # The first item makes it hard to guess the question from the digest.
    first_item = history.prefixes[0]
    return _digest_of([history.id, first_item, str(example.question), str(example.answer)])


def _digest_of(values: list[str]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:DIGEST_LENGTH]


def new_round_id() -> str:
    """Return a new name for a round: the time, and a few random digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:4]}"


def read_decided(model_name: str) -> frozenset[str]:
    """Return the digests of all questions that rounds of a registered model have reserved.

    Raises:
        UserError: The registry cannot be reached, or has no such model.
    """
    with store_errors():
        tags = client().get_registered_model(model_name).tags

    decided: set[str] = set()
    for name, value in tags.items():
        if not name.startswith(TAG_PREFIX):
            continue
        # A tag holds many digests of the same length, one after the other.
        for start in range(0, len(value), DIGEST_LENGTH):
            decided.add(value[start : start + DIGEST_LENGTH])
    return frozenset(decided)


def reserve_questions(model_name: str, round_id: str, digests: Iterable[str]) -> None:
    """Record the dev questions of a round, so that no later round decides on them.

    Raises:
        UserError: The registry cannot be reached or written.
    """
    all_digests = sorted(digests)
    mlflow_client = client()
    # One tag cannot hold the digests of a large round.
    for start in range(0, len(all_digests), _DIGESTS_PER_TAG):
        part = start // _DIGESTS_PER_TAG
        value = "".join(all_digests[start : start + _DIGESTS_PER_TAG])
        with store_errors():
            mlflow_client.set_registered_model_tag(
                model_name, f"{TAG_PREFIX}{round_id}.{part}", value
            )


def release_questions(model_name: str, round_id: str) -> None:
    """Delete the record of a round's questions, so that later rounds may decide on them.

    Raises:
        UserError: The registry cannot be reached or written.
    """
    mlflow_client = client()
    with store_errors():
        tags = mlflow_client.get_registered_model(model_name).tags
        for name in tags:
            is_of_round = name.startswith(f"{TAG_PREFIX}{round_id}.")
            if is_of_round:
                mlflow_client.delete_registered_model_tag(model_name, name)

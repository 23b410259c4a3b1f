"""Metadata of sessions, and the conditions by which searches choose them (`memory.metadata`).

Whoever adds a session may give it metadata, such as `{"channel": "phone", "year": 2025}`. A search
with conditions (`where`) then looks only into sessions whose metadata meet them.
"""

from typing import Any

import pytest
from mempiler.errors import UserError
from mempiler.memory.metadata import Scalar, meets, validate_filter, validate_metadata


def meets_condition(value: Scalar, condition: object) -> bool:
    """Return whether a session with this value meets this condition on it."""
    return meets({"name": value}, validate_filter({"name": condition}))


@pytest.mark.parametrize(
    ("condition", "fitting_value", "other_value"),
    [
        ("phone", "phone", "mail"),
        (5, 5, 6),
        (True, True, False),
        ({"in": ["a", "b"]}, "b", "c"),
        ({"gt": 5}, 6, 5),
        ({"gte": 5}, 5, 4),
        ({"lt": 5}, 4, 5),
        ({"lte": 5}, 5, 6),
        ({"gte": 5, "lt": 7}, 6, 7),
        ({"gte": "2024-05"}, "2024-05-01", "2024-04-30"),
        ({"in": [5, 9], "gt": 6}, 9, 5),
    ],
)
def test_condition_holds_for_fitting_values(
    condition: object, fitting_value: Scalar, other_value: Scalar
) -> None:
    assert meets_condition(fitting_value, condition)
    assert not meets_condition(other_value, condition)


def test_whole_number_equals_the_same_number_with_a_decimal_point() -> None:
    assert meets_condition(5.0, 5)
    assert meets_condition(5, {"gte": 5.0})


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (True, 1),
        (0, False),
        ("5", 5),
        (5, "5"),
        (True, {"gte": 0}),
        ("5", {"gte": 0}),
        (5, {"lt": "a"}),
    ],
)
def test_a_value_of_another_type_than_the_condition_never_meets_it(
    value: Scalar, condition: object
) -> None:
    assert not meets_condition(value, condition)


def test_session_without_the_value_does_not_meet_a_condition() -> None:
    assert not meets({}, validate_filter({"year": {"lt": 2024}}))


def test_all_conditions_must_hold() -> None:
    conditions = validate_filter({"channel": "phone", "year": 2025})

    assert meets({"channel": "phone", "year": 2025, "paid": True}, conditions)
    assert not meets({"channel": "phone", "year": 2024}, conditions)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("phone", "dictionary"),
        ({"1st": 1}, "must be 1 to 64 letters"),
        ({"n" * 65: 1}, "must be 1 to 64 letters"),
        ({"name": None}, "no plain value"),
        ({"name": ["a"]}, "no plain value"),
        ({"name": "x" * 501}, "use at most 500"),
        ({"name": 2**53 + 1}, "no number from"),
        ({"name": float("nan")}, "no number from"),
        ({f"name{number}": 1 for number in range(33)}, "at most 32"),
    ],
)
def test_metadata_that_cannot_be_stored_are_refused(metadata: Any, reason: str) -> None:
    with pytest.raises(UserError, match=f"^metadata: .*{reason}"):
        validate_metadata(metadata)


def test_text_that_no_store_can_hold_is_refused() -> None:
    with pytest.raises(UserError, match="holds NUL"):
        validate_metadata({"name": "a\0"})


def test_values_of_metadata_keep_their_types() -> None:
    metadata = {"text": "x" * 500, "whole": 2**53, "part": 0.5, "truth": True}

    validated = validate_metadata(metadata)

    assert validated == metadata
    assert validated["truth"] is True


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({}, "is empty"),
        ({"gte": True}, "take a number or a text"),
        ({"in": []}, "at least 1"),
        ({"in": list(range(101))}, "at most 100"),
        ({"above": 5}, "above"),
        (None, "no plain value"),
    ],
)
def test_malformed_conditions_are_refused(condition: object, reason: str) -> None:
    with pytest.raises(UserError, match=f"^where: .*{reason}"):
        validate_filter({"name": condition})

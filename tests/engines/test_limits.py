"""Limits that are numbers: NaN and infinity, which no comparison stops at, are refused wherever they are given."""

import math
from typing import Any

import pytest
from mempiler.engines.guard import Limits
from mempiler.errors import UserError
from mempiler.runs.setup import Setup

WRONG = [
    (Limits, "max_usd", math.nan),
    (Limits, "max_usd", -1.0),
    (Limits, "max_calls", 10**400),
    (Limits, "max_tokens", "5"),
    (Setup, "max_lost", 1.5),
    (Setup, "threads", 0),
]


@pytest.mark.parametrize(("kind", "name", "value"), WRONG)
def test_a_number_that_stops_nothing_is_refused_by_name(kind: Any, name: str, value: Any) -> None:
    more = {"benchmark": "locomo"} if kind is Setup else {}
    with pytest.raises(UserError, match=f"{name} = .*give a finite number"):
        kind(**more, **{name: value})


def test_no_limit_and_zero_are_limits() -> None:
    assert not Limits()
    assert Limits(max_usd=0, max_calls=5)

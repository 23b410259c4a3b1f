"""The guard: exact budgets, dead endpoints, and reasons that stay what they were."""

import contextlib
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from dspy.utils.exceptions import LMAuthError, LMServerError
from mempiler.engines.guard import DEAD_AFTER, SHARE_FROM, Guard, Limits
from mempiler.engines.spending import Spending
from mempiler.errors import BudgetError, EndpointError, MempilerError, UserError
from mempiler.runs.setup import Setup


def fail(guard: Guard, times: int = 1, words: str = "busy") -> MempilerError | None:
    """Lets calls fail; the error that the last of them raised."""
    raised = None
    for _ in range(times):
        try:
            guard.failed(LMServerError(words))
            raised = None
        except MempilerError as error:
            raised = error
    return raised


def outcomes(calls: list[Any]) -> set[type]:
    """What calls of sixty-four threads end with."""
    with ThreadPoolExecutor(64) as pool:
        return {type(future.exception()) for future in [pool.submit(call) for call in calls]}


def admitted(guard: Guard, calls: int) -> int:
    before = guard.spent().calls
    outcomes([guard.admit] * calls)
    return int(guard.spent().calls - before)


@pytest.mark.parametrize("limit", [0, 1, 37])
def test_calls_are_admitted_up_to_the_limit_exactly(limit):
    guard = Guard(Limits(max_calls=limit))
    assert admitted(guard, 100) == limit
    assert (guard.struck, guard.refused, guard.dead) == (f"max-calls {limit}", 100 - limit, None)


@pytest.mark.parametrize(
    ("limits", "worked", "calls", "struck"),
    [
        (Limits(max_tokens=100), (60, None), 2, "max-tokens 100"),
        (Limits(max_usd=0.01), (1, 0.006), 2, "max-usd 0.01"),
        (Limits(max_calls=3), (1, None), 3, "max-calls 3"),
    ],
    ids=["tokens", "usd", "calls"],
)
def test_what_calls_used_counts_against_the_limits(limits, worked, calls, struck):
    guard = Guard(limits)
    while guard.struck is None:
        with contextlib.suppress(BudgetError):
            guard.admit()
            guard.worked(*worked)
    assert guard.struck == struck
    assert guard.spent().calls == calls


def test_candidates_of_calls_in_flight_count_before_they_come():
    guard = Guard(Limits(max_calls=20))
    asked: list[int] = []

    def call(number: int) -> None:
        with guard.reserving(Spending(calls=3)):
            guard.admit()
            asked.append(number)
            time.sleep(0.01)
            guard.worked(1, None, calls=4)

    assert outcomes([lambda n=n: call(n) for n in range(64)]) == {type(None), BudgetError}
    assert (len(asked), guard.spent().calls) == (5, 20)


def test_sixty_four_calls_in_flight_overrun_no_limit_by_more_than_one_of_them():
    sizes = random.Random(0).choices(range(10, 400), k=300)
    guard = Guard(Limits(max_tokens=10_000, max_usd=0.2))

    def call(tokens: int) -> None:
        most = tokens + sizes[tokens % 300]
        with guard.reserving(Spending(0, most, cost=most * 2e-5)):
            guard.admit()
            time.sleep(tokens * 1e-5)
            guard.worked(tokens, tokens * 2e-5)

    assert outcomes([lambda size=size: call(size) for size in sizes]) == {type(None), BudgetError}
    assert 10_000 <= guard.spent().tokens < 10_000 + max(sizes)


def test_answers_from_a_cache_are_free():
    guard = Guard(Limits(max_calls=1))
    for _ in range(5):
        guard.admit()
        guard.free()
    guard.admit()
    assert guard.spent().calls == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_usd", math.nan), ("max_calls", 10**400), ("max_tokens", "5"), ("max_lost", 1.5), ("threads", 0)],
)
def test_a_limit_that_stops_nothing_is_refused_by_name(name: str, value: Any) -> None:
    limits: Any = Limits if name.startswith("max_") and name != "max_lost" else partial(Setup, "locomo")
    with pytest.raises(UserError, match=f"{name} = .*give a finite number"):
        limits(**{name: value})
    assert Limits(max_usd=0)
    assert not Limits()


def test_a_phase_keeps_back_what_comes_after_it():
    guard = Guard(Limits(max_calls=10))
    with guard.phase(Spending(calls=7)):
        assert admitted(guard, 10) == 3
    assert guard.struck == "max-calls 10, less what scoring needs"
    assert admitted(guard, 10) == 7
    assert guard.struck == "max-calls 10"


@pytest.mark.parametrize("good", [0, 1, DEAD_AFTER - 1])
def test_an_answer_in_between_starts_the_row_anew(good):
    guard = Guard()
    assert fail(guard, good) is None
    guard.worked(1, None)
    assert fail(guard, DEAD_AFTER - 1) is None
    assert isinstance(fail(guard), EndpointError)


def test_half_of_the_calls_may_fail_but_not_more():
    guard = Guard()
    for _ in range(SHARE_FROM):
        guard.worked(1, None)
        assert fail(guard) is None
    assert "failed 21 of 41 calls" in str(fail(guard))


def test_a_refused_key_ends_the_run_at_once_and_the_first_reason_stands():
    guard = Guard()
    with pytest.raises(UserError, match="refuses the key: no such key"):
        guard.failed(LMAuthError("no such\nkey"))
    assert "no such key" in str(fail(guard, DEAD_AFTER, "another reason"))
    with pytest.raises(UserError, match="refuses the key"):
        guard.admit()


def test_only_failures_of_the_endpoint_count():
    guard = Guard()
    for _ in range(DEAD_AFTER * 2):
        guard.failed(ValueError("a bug"))
    assert guard.dead is None

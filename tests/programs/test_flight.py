"""Dropping values of a single-flight map."""

from concurrent.futures import Future

import pytest
from mempiler.programs.flight import Flight


def test_dropped_values_are_made_anew() -> None:
    flight = Flight()
    for key in ("a1", "a2", "b1"):
        flight.once(key, lambda key=key: key.upper())
    flight.drop(lambda key: str(key).startswith("a"))
    assert (flight.peek("a1"), flight.peek("b1")) == (None, "B1")
    assert flight.once("a1", lambda: "again") == "again"


def test_those_used_least_recently_go_first_and_a_look_is_a_use() -> None:
    flight = Flight(capacity=2)
    for key in ("a", "b"):
        flight.once(key, key.upper)
    assert flight.peek("a") == "A"
    flight.once("c", "c".upper)
    assert [flight.peek(key) for key in ("a", "b", "c")] == ["A", None, "C"]


def test_a_new_value_does_not_look_at_all_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    done = Future.done
    monkeypatch.setattr(Future, "done", lambda future: looked.append(future) or done(future))
    flight = Flight(capacity=100)
    for n in range(300):
        flight.once(n, lambda: 1)
    assert sum(flight.peek(n) is not None for n in range(300)) == 100
    assert len(looked) <= 300

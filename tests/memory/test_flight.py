"""Dropping values of a single-flight map."""

from mempiler.memory.flight import Flight


def test_dropped_values_are_made_anew() -> None:
    flight = Flight()
    for key in ("a1", "a2", "b1"):
        flight.once(key, lambda key=key: key.upper())
    assert flight.drop(lambda key: str(key).startswith("a")) == ["A1", "A2"]
    assert (flight.peek("a1"), flight.peek("b1")) == (None, "B1")
    assert flight.once("a1", lambda: "again") == "again"


def test_what_is_being_made_is_not_dropped() -> None:
    flight = Flight()
    assert flight.once("a", lambda: flight.drop(lambda key: True)) == []
    assert flight.peek("a") == []

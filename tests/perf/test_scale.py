"""The page on scale says what its script computes, and the simulation behaves like a queue."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    import scale

    return scale


def test_the_page_is_what_the_script_computes(scale: Any) -> None:
    assert (ROOT / "docs" / "scale.md").read_text(encoding="utf-8") == scale.page()


def test_what_the_busiest_hour_needs_is_worked_by_hand(scale: Any) -> None:
    costs = scale.Costs(10, 20, 70, 4, 1000, 100, 500, 50, 5)
    load = scale.Load(sessions=1, asks=2, swing=0.5, repeated=0)
    found = scale.need(86_400, costs, load, scale.Limits(latency=2))
    # 1.5 sessions and 3 questions a second: 6 + 3 calls, 1.5 x 80 ms + 3 x 20 ms, 1.5 x 1100 + 3 x 550 tokens.
    assert (found.sessions, found.asks, found.calls, found.flight) == pytest.approx((1.5, 3, 9, 18))
    assert (found.cores, found.tokens, found.commits) == pytest.approx((0.18, 198_000, 6))
    assert scale.stored(86_400, costs, load) == pytest.approx(0.432)


@pytest.mark.parametrize("users", [1_000, 100_000])
def test_an_outage_is_waited_for_and_worked_off(scale: Any, users: int) -> None:
    there = scale.size(users)
    ran = scale.simulate(users, there)
    assert ran.usual < 5
    assert 60 <= ran.outage < 70
    assert ran.refused == pytest.approx(users * 1.5 / 24 * 1.79, rel=0.2)
    assert scale.simulate(users, there) == ran


def test_less_headroom_is_a_longer_queue(scale: Any) -> None:
    there = scale.size(100_000)
    times = [scale.simulate(100_000, replace(there, flight=flight)).drained for flight in (there.flight, 21, 19)]
    assert times == sorted(times)
    assert times[0] < times[2]


def test_what_is_full_first_is_full_at_that_many_users(scale: Any) -> None:
    full = dict(scale.first_limits())
    flight = next(users for name, users in full.items() if name.startswith("calls in flight"))
    assert scale.need(flight).flight == pytest.approx(scale.LIMITS.slots)
    assert list(full.values()) == sorted(full.values())


def test_its_unit_costs_can_be_measured_again(scale: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import scale_costs

    for name, few in {"BEFORE": 2, "WRITTEN": 1, "REQUESTS": 20}.items():
        monkeypatch.setattr(scale_costs, name, few)
    found = scale.Costs(**scale_costs.measured())
    assert found.add_ms > 0
    assert found.ask_ms > 0
    assert found.write_ms > 0
    assert found.write_calls == scale.COSTS.write_calls
    assert found.write_in == pytest.approx(scale.COSTS.write_in, rel=0.1)

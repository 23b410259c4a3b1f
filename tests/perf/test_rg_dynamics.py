"""The propositions of RGMem's appendix B, and the two places where its proofs do not hold as printed."""

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "perf" / "rg_dynamics.py"


@pytest.fixture(scope="module")
def dynamics():
    spec = importlib.util.spec_from_file_location("rg_dynamics", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["rg_dynamics"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["rg_dynamics"]


def test_majority_error_by_hand(dynamics):
    """Three observations at e = .1: two or three flipped, 3 * .01 * .9 + .001."""
    assert dynamics.majority_error(Fraction(1, 10), 3) == Fraction(28, 1000)


def test_printed_bound_is_violated_where_the_right_one_holds(dynamics):
    error = float(dynamics.majority_error(Fraction(1, 10), 3))
    assert round(dynamics.printed_bound(Fraction(1, 10), 3), 4) == 0.0215
    assert dynamics.printed_bound(Fraction(1, 10), 3) < error < dynamics.hoeffding(Fraction(1, 10), 3)
    assert 3 in dynamics.violations(Fraction(1, 10), (1, 3, 5))


def test_information_of_a_useless_and_a_perfect_channel(dynamics):
    assert dynamics.information(Fraction(1, 2)) == pytest.approx(0.0)
    assert dynamics.information(Fraction(0)) == 1.0


def test_profile_by_hand(dynamics):
    """Sums 1, 3, 2, -3, -2 under theta 3: up at the second step, down at the fourth, kept otherwise."""
    evidence = np.array([[1.0, 2.0, -1.0, -5.0, 1.0]])
    assert dynamics.profile(evidence, 3.0, -1).tolist() == [[-1, -1, 1, 1, -1, -1]]


@pytest.mark.parametrize("checks", ["first", "second", "third"])
def test_propositions_hold(dynamics, checks):
    found = {
        "first": lambda: dynamics.proposition_1(sizes=range(1, 42, 2)),
        "second": lambda: dynamics.proposition_2(0.1, 3.0, -1, runs=40),
        "third": dynamics.proposition_3,
    }[checks]()
    assert [check.name for check in found if not check.holds] == []


def test_a_wrong_rate_is_seen(dynamics, monkeypatch):
    """The checks of B.3 fail where the recursion is another one."""
    right = dynamics.means
    monkeypatch.setattr(dynamics, "means", lambda fast, slow, *rest: right(fast, slow * 1.1, *rest))
    assert any(not check.holds for check in dynamics.proposition_3())


def test_no_drift_is_seen(dynamics):
    """Without a drift nothing decides the final sign, and nothing bounds what comes later."""
    assert any(not check.holds for check in dynamics.proposition_2(1e-6, 3.0, -1, steps=2000, runs=40))

"""perf/checks.py, and how often `mempiler check` is right.

The script scores versions of a program on conversations that it makes, and then draws many checks:
other conversations each time, and answers that turn out otherwise by chance. Checks of the same
program should be green, and those of a worse version red.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from .conftest import ROOT


@pytest.fixture(scope="module")
def checks() -> Any:
    """The script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "perf"))
        yield importlib.import_module("checks")


@pytest.fixture(scope="module")
def versions(checks: Any) -> dict[str, Any]:
    """The versions of the program by name, scored on 40 conversations."""
    return {version.name: version for version in checks.score_versions(pool_size=40)}


@pytest.mark.slow
def test_of_two_hundred_checks_of_the_same_program_at_most_ten_are_red(
    checks: Any, versions: dict[str, Any]
) -> None:
    """A red check says that the program got worse, which is never true here.

    By chance a verdict may be wrong in 5 percent of the cases: in 10 of 200.
    """
    program = versions["the same program"]

    red_checks = checks.count_red(program, program, checks=200)

    assert red_checks <= 10


@pytest.mark.slow
def test_most_checks_miss_a_loss_that_is_half_of_the_detectable_one(
    checks: Any, versions: dict[str, Any]
) -> None:
    """The version "k = 7" loses 0.07. A check of 200 questions detects a loss of twice as much.

    The documentation says that about 30 % of the checks notice this loss, which is 12 of 40.
    """
    program = versions["the same program"]

    red_checks = checks.count_red(program, versions["k = 7"], checks=40)

    assert 4 <= red_checks <= 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["k = 5", "no rule of brevity", "no rule of wording", "every fifth turn lost"]
)
def test_nine_of_ten_checks_of_a_worse_version_are_red(
    checks: Any, versions: dict[str, Any], name: str
) -> None:
    """A check asks 200 questions about 20 conversations."""
    program = versions["the same program"]

    red_checks = checks.count_red(program, versions[name], checks=40)

    assert red_checks >= 36

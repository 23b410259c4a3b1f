"""Cases that the authors' released code was run on.

The marker `@pytest.mark.cases_from_authors_code(FILE, PATTERN, ...)` runs a test with every case of
a file whose id matches. A case is a dict with "id", "source", "input", "expected" and sometimes
"note". The test computes our result from the input, and calls `assert_matches_authors_code(ours)`.

Where we deviate from the released code on purpose, the case is listed in a table of
docs/coverage.md, and our result must differ: a row that is no longer needed fails.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "coverage.md"
HEADING = "## Deviations from released code"

# | `file` | `pattern`, `pattern` | what the released code does | what we do, and why |
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)

Case = dict[str, Any]
AssertMatches = Callable[..., None]
"""The fixture `assert_matches_authors_code`."""


class Deviation(NamedTuple):
    """Cases in which our result differs from the released one on purpose."""

    pattern: str
    """A pattern of case ids."""
    reason: str


@functools.cache
def vectors(name: str) -> tuple[Case, ...]:
    """Return the cases of a file."""
    lines = (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


@functools.cache
def deviations() -> dict[str, list[Deviation]]:
    """Return the deviations that docs/coverage.md lists, by the name of their file."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    deviations_by_file: dict[str, list[Deviation]] = {}
    for name, patterns, _, reason in _ROW.findall(section):
        for pattern in re.findall(r"`([^`]+)`", patterns):
            deviations_by_file.setdefault(name, []).append(Deviation(pattern, reason))
    return deviations_by_file


def reason_to_deviate(name: str, case_id: str) -> str | None:
    """Return why our result in a case differs; None if it must agree."""
    for deviation in deviations().get(name, []):
        if fnmatch.fnmatchcase(case_id, deviation.pattern):
            return deviation.reason
    return None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def agree(ours: Any, theirs: Any, tolerance: float) -> bool:
    """Return whether two results are equal, numbers within a tolerance; tuples count as lists."""
    if isinstance(theirs, Mapping):
        if not isinstance(ours, Mapping) or ours.keys() != theirs.keys():
            return False
        return all(agree(ours[key], theirs[key], tolerance) for key in theirs)

    if isinstance(theirs, list):
        if not isinstance(ours, (list, tuple)) or len(ours) != len(theirs):
            return False
        pairs = zip(ours, theirs, strict=True)
        return all(agree(our_part, their_part, tolerance) for our_part, their_part in pairs)

    if is_number(theirs):
        # Of numbers, NumPy's count too.
        if ours is None or isinstance(ours, (bool, str)):
            return False
        return ours == pytest.approx(theirs, abs=tolerance, rel=tolerance, nan_ok=True)

    return type(ours) is type(theirs) and ours == theirs


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "cases_from_authors_code(file, *patterns): gives `case`, every case of a file that matches",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each of its cases."""
    for marker in metafunc.definition.iter_markers("cases_from_authors_code"):
        name, *patterns = marker.args
        cases: list[Case] = []
        for case in vectors(name):
            if any(fnmatch.fnmatchcase(case["id"], pattern) for pattern in patterns or ["*"]):
                cases.append(case)
        metafunc.parametrize("case", cases, ids=[case["id"] for case in cases])


@pytest.fixture
def assert_matches_authors_code(case: Case, request: pytest.FixtureRequest) -> AssertMatches:
    """Return a function that compares our result with the released one.

    `assert_matches_authors_code(ours)` compares with the "expected" of the case, and
    `assert_matches_authors_code(ours, theirs)` with a part of it. If the case is in the table of
    deviations, the results must differ.
    """
    name = request.node.get_closest_marker("cases_from_authors_code").args[0]
    expected = case["expected"]

    def assert_equals(ours: Any, theirs: Any = expected, tolerance: float = 1e-9) -> None:
        is_equal = agree(ours, theirs, tolerance)
        reason = reason_to_deviate(name, case["id"])
        if reason is None:
            difference = f"ours {ours!r}, released {theirs!r}: {case.get('note')}"
            assert is_equal, f"{case['id']}: {difference}"
        else:
            assert not is_equal, f"{case['id']} agrees: remove it from the table: {reason}"

    return assert_equals

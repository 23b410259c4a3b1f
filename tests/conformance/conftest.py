"""Cases that the authors' released code was run on: `@pytest.mark.vectors(FILE, PATTERN, ...)` gives a test every one.

A test computes ours and calls `agrees(ours)`. Where the suite deviates on purpose, the case is listed in the table of
docs/coverage.md, and ours must then differ: a row that nothing needs any more fails.
"""

import fnmatch
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "coverage.md"
HEADING = "## Deviations from released code"
_ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


@functools.cache
def vectors(name: str) -> tuple[dict[str, Any], ...]:
    """The cases of a file."""
    return tuple(map(json.loads, (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()))


@functools.cache
def deviations() -> dict[str, list[tuple[str, str]]]:
    """Of every file: a pattern of case ids, and why ours deviates."""
    section = PAGE.read_text(encoding="utf-8").partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    found: dict[str, list[tuple[str, str]]] = {}
    for name, cases, _, why in _ROW.findall(section):
        found.setdefault(name, []).extend((pattern, why) for pattern in re.findall(r"`([^`]+)`", cases))
    return found


def listed(name: str, case_id: str) -> str | None:
    """Why ours deviates in a case; None where it must agree."""
    return next((why for pattern, why in deviations().get(name, []) if fnmatch.fnmatchcase(case_id, pattern)), None)


def same(ours: Any, theirs: Any, within: float) -> bool:
    """Whether two results are equal, numbers within a tolerance; tuples count as lists."""
    if isinstance(theirs, Mapping):
        return (
            isinstance(ours, Mapping)
            and ours.keys() == theirs.keys()
            and all(same(ours[key], theirs[key], within) for key in theirs)
        )
    if isinstance(theirs, list):
        pairs = zip(ours, theirs, strict=False) if isinstance(ours, Sequence) else ()
        return isinstance(ours, (list, tuple)) and len(ours) == len(theirs) and all(same(*p, within) for p in pairs)
    if isinstance(theirs, (int, float)) and not isinstance(theirs, bool) and not isinstance(ours, (bool, str)):
        return ours is not None and ours == pytest.approx(theirs, abs=within, rel=within, nan_ok=True)
    return type(ours) is type(theirs) and ours == theirs


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", "vectors(file, *patterns): gives `case`, every case of a file that matches")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives a marked test its cases."""
    for marker in metafunc.definition.iter_markers("vectors"):
        name, *patterns = marker.args
        cases = [each for each in vectors(name) if any(fnmatch.fnmatchcase(each["id"], p) for p in patterns or ["*"])]
        metafunc.parametrize("case", cases, ids=[each["id"] for each in cases])


@pytest.fixture
def agrees(case: dict[str, Any], request: pytest.FixtureRequest) -> Callable[..., None]:
    """Holds ours against the released result of a case, or against the table of deviations."""
    name = request.node.get_closest_marker("vectors").args[0]

    def check(ours: Any, theirs: Any = case["expected"], within: float = 1e-9) -> None:
        why = listed(name, case["id"])
        if why is None:
            assert same(ours, theirs, within), f"{case['id']}: ours {ours!r}, released {theirs!r}: {case.get('note')}"
        else:
            assert not same(ours, theirs, within), f"{case['id']} agrees now: strike it from the table: {why}"

    return check


@pytest.fixture
def conformance() -> Any:
    """The vectors and the table, for tests of the table itself."""
    return SimpleNamespace(vectors=vectors, deviations=deviations)

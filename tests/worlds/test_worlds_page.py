"""docs/worlds.md tells what the commands print and which questions there are."""

import re
from pathlib import Path
from typing import Any

import pytest
from mempiler.cli import main
from mempiler.data.catalog import BENCHMARKS, benchmark
from mempiler.runs.recipes.claims.catalog import CLAIMS
from mempiler.runs.report import INSTRUMENT

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "worlds.md").read_text(encoding="utf-8")
FOUND = (DOCS / "worlds_found.md").read_text(encoding="utf-8")
WORLDS = [name for name in BENCHMARKS if name.startswith("world.")]


@pytest.mark.parametrize("world", WORLDS)
def test_the_page_names_every_category_of_a_world(world: str) -> None:
    categories = {str(example.category) for example in benchmark(world, users=1).examples}
    _, _, section = PAGE.partition(f"`{world}`:")
    assert section, f"{world} is not on the page"
    assert categories <= set(re.findall(r"`([\w ]+)`", section.partition("\n## ")[0]))


@pytest.mark.parametrize("line", re.findall(r"^    mempiler (evaluate .*)$", PAGE, re.M))
def test_a_command_of_the_page_says_that_the_oracle_is_no_model(line: str, capsys: Any) -> None:
    main([*line.split(), "--option", "users=3", "--test", "2"])
    told = capsys.readouterr().out
    first, heading = (line for line in told.splitlines() if INSTRUMENT in line)
    assert first.startswith("data: ")
    assert heading.endswith(f"({INSTRUMENT})")


@pytest.mark.parametrize("paper", CLAIMS)
def test_the_page_lists_what_no_claim_is_of(paper: str) -> None:
    _, _, listed = PAGE.partition("## What no world shows")
    named = set(re.findall(r"`(\w+)`", listed.partition("\n## ")[0]))
    assert {name.removeprefix("layer ") for name in CLAIMS[paper].apart} <= named


@pytest.mark.parametrize("paper", CLAIMS)
def test_the_page_of_what_was_found_has_every_claim(paper: str) -> None:
    _, _, section = FOUND.partition(f"\n## {paper}\n")
    switches = {line.split(" | ")[0].removeprefix("| ") for line in section.partition("\n## ")[0].splitlines()}
    assert {claim.name for claim in CLAIMS[paper].claims} <= switches

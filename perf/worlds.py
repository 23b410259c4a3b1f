"""Shows for every mechanism of a method that it matters in its world: what was predicted, and what was found.

A world (`data.worlds`) is built so that each mechanism of one paper's method is needed; the oracle engine does every
job rightly, as far as its prompt allows. So leaving a mechanism out, or starving it, has to lower the score of the
questions that need it, and of no others. Every row compares the method as it is with a changed one, question by
question; intervals of 95 % resample users. The oracle is a test instrument: no number here says anything of a model.

Usage:
    $ python perf/worlds.py                         # the worlds of all papers
    $ python perf/worlds.py rgmem --users 40
    $ python perf/worlds.py --page docs/worlds_found.md --results worlds.jsonl

The claims are those of `reproduce NAME --lm oracle` (`runs/recipes/claims`), and predictors that say nothing. What is
known of a claim is kept in the results file, and not measured again for the same users and the same sources. Exits with
1 if the interval of a prediction goes against it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mempiler.runs.recipes.catalog import RECIPES
from mempiler.runs.recipes.claims.catalog import CLAIMS
from mempiler.runs.recipes.claims.claim import MARGIN, Claim, Claims, Found

ROOT = Path(__file__).parents[1]
SOURCES = ("data/worlds", "grammar", "engines/oracle", "programs", "memory", "signatures")
HEAD = f"""# Predicted and found

Made by `perf/worlds.py --page`; nothing is written by hand. Every switch of the five methods in its
[world](worlds.md), under the oracle, a test instrument: no number says anything of a language model, or is comparable
with a published one. Differences are changed minus as it is, paired by question, with intervals of 95 % over users.
Predicted *lower* or *higher* is borne out by an interval off zero, *same* by one within {MARGIN:g} of it; *cannot be
told* is an interval that does neither. Rows of *same* name the categories that moved; the others stand together.
"""


def users_of(paper: str) -> int:
    """Those of the recipe's tables."""
    world = RECIPES[paper].world
    assert world is not None
    return int(world.options["users"])


def measured(claims: Claims, users: int, results: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of all claims as they come; those that are known from a results file are read there."""
    from world_bench import Bench

    bench: Bench | None = None
    known = _known(results)
    for claim in claims.claims:
        key = f"{claims.method} {users} {_digest(claims, claim)}"
        if key not in known:
            bench = bench or Bench(claims, users)
            known[key] = [_row(each) for each in bench.found([claim])]
            if results is not None:
                with results.open("a", encoding="utf-8") as file:
                    # A line that a killed run left unfinished stays by itself.
                    file.write("\n" + json.dumps({"key": key, "rows": known[key]}))
        yield from known[key]


def _known(results: Path | None) -> dict[str, list[dict[str, Any]]]:
    text = results.read_text(encoding="utf-8") if results is not None and results.exists() else ""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in text.splitlines():
        with suppress(ValueError):
            kept = json.loads(line)
            found[kept["key"]] = kept["rows"]
    return found


def _digest(claims: Claims, claim: Claim) -> str:
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    told = claims.world, claim.name, claim.lowers, claim.raises, claim.keeps, [arm.key for arm in claims.arms(claim)]
    text = "".join([repr(told), *(path.read_text(encoding="utf-8") for path in files)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _row(found: Found) -> dict[str, Any]:
    span = found.difference.interval
    return {
        "switch": found.name,
        "questions": found.questions,
        "predicted": found.predicted,
        "n": found.n,
        "difference": found.difference.mean,
        "interval": None if span is None else [span.low, span.high],
        "found": found.verdict,
    }


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row as text."""
    span = row["interval"]
    told = "-" if span is None else f"[{span[0]:+.3f}, {span[1]:+.3f}]"
    return (row["switch"], row["questions"], row["predicted"], str(row["n"]), f"{row['difference']:+.3f}", told)


def read(page: Path | None) -> dict[str, str]:
    """The parts of a page by paper: what is measured anew takes the place of what was there."""
    text = page.read_text(encoding="utf-8") if page is not None and page.exists() else ""
    found = (part.partition("\n") for part in text.split("\n## ")[1:])
    return {name: body for name, _, body in found}


def section(claims: Claims, users: int, rows: Sequence[dict[str, Any]]) -> str:
    """A paper's part of the page."""
    counts = {verdict: sum(row["found"] == verdict for row in rows) for verdict in ("as predicted", "not")}
    told = f"{len(rows)} predictions: {counts['as predicted']} as predicted, {counts['not']} not"
    left = len(rows) - sum(counts.values())
    lines = ["", f"`{claims.world}`, {users} users. {told}, {left} cannot be told.\n"]
    lines += ["| switch | questions | predicted | n | difference | 95 % interval | found |", "|---" * 7 + "|"]
    lines += [f"| {' | '.join((*cells(row), row['found']))} |" for row in rows]
    lines += ["\nNo claim is made of:\n", *(f"- {name}: {why}" for name, why in claims.apart.items())]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Predicted against found, for every mechanism.")
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"some of {', '.join(CLAIMS)} [default: all]")
    parser.add_argument("--users", type=int, help="users of a world [default: those of `reproduce`]")
    parser.add_argument("--page", type=Path, help="a file for the tables; those of other papers in it stay")
    parser.add_argument("--results", type=Path, help="a file that keeps what was measured")
    given, against = parser.parse_args(), 0
    page = read(given.page)
    for paper in given.papers or CLAIMS:
        claims, users = CLAIMS[paper], given.users or users_of(paper)
        print(f"\n{paper}: {claims.world}, {users} users, oracle\n")
        rows: list[dict[str, Any]] = []
        for row in measured(claims, users, given.results):
            switch, questions, *rest = cells(row)
            print(f"{switch:<38}{questions:<50}{'  '.join(rest):<44}{row['found']}", flush=True)
            rows.append(row)
        against += sum(row["found"] == "not" for row in rows)
        page[paper] = section(claims, users, rows)
        if given.page:
            told = "".join(f"\n## {name}\n{page[name]}" for name in CLAIMS if name in page)
            given.page.write_text(HEAD + told, encoding="utf-8")
    return int(against > 0)


if __name__ == "__main__":
    sys.exit(main())
